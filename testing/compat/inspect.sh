#!/usr/bin/env bash
# `halcyon inspect hfile` and `halcyon inspect wal` print what HBase's HFilePrettyPrinter and WALPrettyPrinter print of the same files:
# every cell with its value and tags, trailer, file info, bloom filters, index, block headers, entries with their positions.
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB  a directory with HBase's jars; fetched once through Maven if it is not set
# Arguments: store files and WALs (*.wal, or below WALs, oldWALs, recovered.edits); default: the golden files of storage/.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
. "$HERE/java.sh"
[ -n "${HALCYON_HBASE_LIB:-}" ] || maven_jars "$HERE/files/pom.xml" "$LIB"
STORAGE="$HERE/../../storage"
[ $# -gt 0 ] || set -- "$STORAGE"/hfile/testdata/*.hfile "$STORAGE"/wal/testdata/*.wal
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-inspect.XXXXXX")"
trap 'rm -rf "$DIR"' EXIT
failed=0
compared=0
# The codec without a native library.
property="<property><name>hbase.io.compress.zstd.codec</name><value>org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec</value></property>"
echo "<configuration>$property</configuration>" > "$DIR/hbase-site.xml"

hbase() { # hbase CLASS ARGUMENT...: one JVM for all files of a kind
  local class="$1"
  shift
  "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -Duser.timezone=UTC -cp "$DIR:$LIB/*" "org.apache.hadoop.hbase.$class" "$@" 2> "$DIR/hbase.err" ||
    { cat "$DIR/hbase.err" >&2; return 1; }
}

# What only a JVM can say, and lines that both print in their own words, are left out.
hfile_lines() {
  sed -E -e 's/, buf=.*//' -e 's/\[blockType=([^,]*), fileOffset=([0-9]*), .*uncompressedSizeWithoutHeader=([0-9]*), prevBlockOffset=(-?[0-9]*),.*getOnDiskSizeWithHeader=([0-9]*).*/block \1 \2 \3 \4 \5/' \
    -e 's/DataIndexEncodingType.*//' -e 's/^key=(.*)\/vlen=0\/mvcc=0$/key=\1/' -e 's/^Mid-key: Optional\[(.*)\/seqid=0\]/Mid-key: \1/' \
    -e 's/^Mid-key: Optional.empty/Mid-key: none/' -e 's/^Unable to retrieve the midkey/Mid-key: none/' -e 's/^    firstKey=Optional\[(.*)\/seqid=0\],/    firstKey=\1/' \
    -e 's/^    lastKey=Optional\[(.*)\/seqid=0\],/    lastKey=\1/' -e 's/^    (first|last)Key=Optional.empty,/    \1Key=null/' \
    -e 's/^(    [a-zA-Z]+=.*),$/\1/' -e 's/Comparator: .*/Comparator/' -e 's/,$//' -e '/COMPACTION_EVENT_KEY/d' -e '/^$/d' |
    grep -vE '^(Block index size|Scanning ->|reader=|Scanned kv count|    (cacheConf|cache[A-Z]|prefetchOnOpen|avgKeyLen|avgValueLen|compression=)|    comparatorClassName|    hfile.LEN_OF_BIGGEST_CELL)' || true
}

in_order() { # cells, then what the file says of itself, then blocks; HBase prints blocks up to the last data block only
  awk '/^K: / { print; next } $1 != "block" { other[++m] = $0; next } { blocks[++n] = $0; if ($2 ~ /DATA$/) last = n }
    END { for (i = 1; i <= m; i++) print other[i]; for (i = 1; i <= last; i++) print blocks[i] }'
}

wal_lines() {
  grep -vE '^(cell total size sum|edit heap size|Scanning ->|Compressed|Torn tail|[^ ]*: [0-9]+ entries)' | sed -E -e 's/^Writer Classes: .*/Writer/' -e 's/^(row=.*), tag.*/\1/'
}

compare() { # compare FILE: what both printed of it
  compared=$((compared + 1))
  cmp -s "$DIR/hbase" "$DIR/ours" && return 0
  echo "FAILED: $1: HBase (-) and halcyon inspect (+) differ:" >&2
  diff -u "$DIR/hbase" "$DIR/ours" | head -n 40 >&2 || true
  failed=1
}

for file in "$@"; do
  file="$(realpath "$file")"
  case "$file" in
    *.wal | */WALs/* | */oldWALs/* | */recovered.edits/*)
      for options in -p "-s 3" "-t t"; do
        # shellcheck disable=SC2086
        hbase wal.WALPrettyPrinter $options "$file" | wal_lines > "$DIR/hbase"
        # shellcheck disable=SC2086
        "$HALCYON" inspect wal $options "$file" | wal_lines > "$DIR/ours"
        compare "$file $options"
      done
      ;;
    *)
      options="-p -m -b -h"
      case "$file" in */empty.hfile) options="-p -m -b" ;; esac # HBase's tool looks for a first block there
      # shellcheck disable=SC2086
      hbase io.hfile.HFilePrettyPrinter $options -f "$file" | hfile_lines | in_order > "$DIR/hbase"
      # shellcheck disable=SC2086
      "$HALCYON" inspect hfile $options -f "$file" | hfile_lines | in_order > "$DIR/ours"
      compare "$file"
      ;;
  esac
done
[ $failed -eq 0 ] && echo "halcyon inspect and HBase's tools agree about $compared outputs"
exit $failed
