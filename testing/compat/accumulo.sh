#!/usr/bin/env bash
# `halcyon import accumulo` from a real Accumulo 2.1.4 (accumulo/Tables.java): exported tables and a running instance. HBase's client reads
# the new tables, and each cell is compared with what Accumulo shows.
#   accumulo.sh
# ROWS          rows of the larger tables, default 4000
# HBASE         1: one table also goes to a real HBase 2.6.4
# In an HDFS (testing/cluster/cluster.sh run --parts hdfs testing/compat/accumulo.sh) one export is also read from there.
# HALCYON       the program, default target/release/halcyon below CARGO_TARGET_DIR
# ACCUMULO_LIB  a directory with Accumulo's jars, default: fetched through Maven
# ACCUMULO_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
LIB="${ACCUMULO_LIB:-$HOME/.cache/halcyon/accumulo-lib-2.1.4}"
[ -n "${ACCUMULO_LIB:-}" ] || maven_jars "$HERE/accumulo/pom.xml" "$LIB"
DIR="${ACCUMULO_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-accumulo.XXXXXX")}"
ACCUMULO_PID=""
RUN=""
finish() {
  local code=$? left
  process_kill "$RUN"
  server_kill
  hbase_kill
  if [ -n "$ACCUMULO_PID" ]; then
    exec 4>&- # its standard input: it stops its servers
    process_end "$ACCUMULO_PID" 60 || true
    # Its ZooKeeper was seen to stay. Each of its servers has this directory in its arguments.
    for left in $(pgrep -f -- "$DIR/mini/" || true); do process_kill "$left"; done
  fi
  if [ $code -eq 0 ] && [ -z "${ACCUMULO_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes" "$DIR/cells"
hbase_fetch
"${JAVA}c" -nowarn -cp "$LIB/*" -d "$DIR/classes" "$HERE"/accumulo/{Tables,ZstdStreams}.java
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/accumulo/Cells.java"

fail() {
  echo "$1" >&2
  tail -n 20 "$DIR/import.log" >&2
  exit 1
}

accumulo_start() {
  mkfifo "$DIR/input"
  "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$LIB/*" Tables "$DIR/mini" "$(free_port)" "${ROWS:-4000}" \
    > "$DIR/accumulo.log" 2>&1 < "$DIR/input" &
  ACCUMULO_PID=$!
  exec 4> "$DIR/input"
  process_await "$ACCUMULO_PID" 300 grep -q '^ready' "$DIR/accumulo.log" || { tail -n 20 "$DIR/accumulo.log" >&2; exit 1; }
}

NUMBER=0
import() { # import OPTION...: an import of its own; its output is in import.log
  NUMBER=$((NUMBER + 1))
  echo "\$ halcyon import accumulo $*" >> "$DIR/import.log"
  timeout 600 "$HALCYON" import accumulo --state "$DIR/state-$NUMBER.json" --to "hbase://${TO:-$ZK}/hbase" --progress-period 1 "$@" \
    >> "$DIR/import.log" 2>&1 < /dev/null
}

refused() { # refused TEXT OPTION...: the import ends with an error that has this text, and makes no table
  local text="$1" from
  shift
  from="$(wc -l < "$DIR/import.log")"
  ! import "$@" --table refused || fail "not refused: $*"
  tail -n "+$((from + 1))" "$DIR/import.log" | grep -F -- "$text" > /dev/null || fail "no '$text' for $*"
}

cells() { # cells TABLE: what HBase's client reads
  timeout 120 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Cells "${TO:-$ZK}" "$1" 2>> "$DIR/client.log"
}

# expected TABLE AWK: what Accumulo shows, as cells. AWK sets f, q and t of the fields row $1, family $2, qualifier $3, visibility $4.
expected() {
  awk '{f = "x66"; q = $2 "3a" substr($3, 2); t = ""; '"$2"'; print $1, f, q, $5, $6 t}' "$DIR/mini/expected/$1.txt" | LC_ALL=C sort
}

same() { # same SOURCE TABLE AWK [REGIONS]: the table has what Accumulo shows
  cells "$2" > "$DIR/cells/$2.all"
  grep -v '^regions' "$DIR/cells/$2.all" | LC_ALL=C sort > "$DIR/cells/$2"
  expected "$1" "$3" > "$DIR/cells/$2.expected"
  cmp "$DIR/cells/$2" "$DIR/cells/$2.expected" || fail "$2 differs from $1 of Accumulo"
  [ -s "$DIR/cells/$2" ] || fail "$2 is empty"
  if [ -n "${4:-}" ]; then
    [ "$(grep '^regions' "$DIR/cells/$2.all")" = "regions $4" ] || fail "$2 has other regions: $(grep '^regions' "$DIR/cells/$2.all")"
  fi
  echo "$2: $(wc -l < "$DIR/cells/$2") cells are those of Accumulo"
}

hex() { printf 'x%s00' "$(printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n')"; }

TAG='if ($4 != "x") t = " tag7=" $4'
JOINED='if ($4 != "x") q = q "00" substr($4, 2)'
SMALL='if ($2 == "x" "6d657461" || $2 == "x62696e075c") f = "x736d616c6c"; if ($2 == "x626f6479") f = "x74657874"'
: > "$DIR/import.log"
accumulo_start
server_start "$DIR/data" "$DIR/server.log"
EXPORT="$DIR/mini/export"

# what cannot be done changes nothing
refused 'have a visibility expression' --from "$EXPORT/groups"
refused 'are in columns that differ only by their visibility' --from "$EXPORT/groups" --visibility tag
refused 'the table has iterators' --from "$EXPORT/sums"
refused 'has no exportMetadata.zip' --from "$EXPORT"
refused 'has no exportMetadata.zip' --from "$DIR/nothing"
rm -rf "$DIR/broken"
cp -r "$EXPORT/plain" "$DIR/broken"
FILES=("$DIR/broken"/*.rf)
WHOLE="${FILES[0]}"
cp "$WHOLE" "$DIR/whole.rf"
truncate -s -1000 "$WHOLE"
refused 'not copied to its end' --from "$DIR/broken"
head -c 20000 /dev/urandom > "$WHOLE"
refused 'does not end as an RFile' --from "$DIR/broken"
cp "$DIR/whole.rf" "$WHOLE"
printf 'damage' | dd of="$WHOLE" bs=1 seek=100 conv=notrunc status=none
refused 'damaged' --from "$DIR/broken"
! cells refused > /dev/null 2>&1 || fail "a refused import has made a table"
import --from "$DIR/broken" --table part --skip-damaged || fail "--skip-damaged failed"
grep -q '^skipped: the tablet' "$DIR/import.log"
import --from "$EXPORT/plain" --table none --dry-run || fail "the dry run failed"
grep -q '^dry run: nothing was written' "$DIR/import.log"

import --from "$EXPORT/plain" --table plain
ROWS="${ROWS:-4000}"
row() { printf 'row-%07d' "$1"; }
same plain plain '' "x $(hex "$(row $((ROWS / 4)))") $(hex "$(row $((ROWS / 2)))") $(hex "$(row $((ROWS / 2)))"$'\001') $(hex "$(row $((3 * ROWS / 4)))")"
! import --from "$EXPORT/plain" --table plain || fail "a filled table was taken"
grep -q 'plain has rows already' "$DIR/import.log"
import --from "$EXPORT/groups" --table with:groups --visibility qualifier --groups-as-families
same groups with:groups "$SMALL; $JOINED"
import --from "$EXPORT/groups" --table own --visibility qualifier --family 'bin\x07\\=b' --separator '\x00'
same groups own 'q = $2 "00" substr($3, 2); if ($2 == "x62696e075c") {f = "x62"; q = $3}; '"$JOINED"
for codec in none lz4 zstd; do
  import --from "$EXPORT/$codec" --table "$codec"
  same "$codec" "$codec" ''
done
import --from "$EXPORT/bulk" --table bulk
same bulk bulk ''

# all rows of all files: what was deleted and compacted away comes back, and cannot without the flag
mkdir -p "$DIR/bare/t-1"
cp "$EXPORT/none"/*.rf "$DIR/bare/t-1"
import --from "$DIR/bare" --table bare --without-metadata --versions 1 --regions 3 --family meta=m
same none bare 'if ($2 == "x6d657461") {f = "x6d"; q = $3}'
[ "$(grep '^regions' "$DIR/cells/bare.all" | wc -w)" -ge 3 ] || fail "the table was not divided"

# killed again and again, and resumed with the same command
NUMBER=$((NUMBER + 1))
KILLS=0
while :; do
  "$HALCYON" import accumulo --state "$DIR/killed.json" --to "hbase://$ZK/hbase" --progress-period 1 --threads 1 --from "$EXPORT/plain" --table killed \
    >> "$DIR/killed.log" 2>&1 < /dev/null &
  RUN=$!
  [ $KILLS -lt 8 ] && { sleep "0.$((1 + KILLS))"; kill -9 "$RUN" 2> /dev/null || true; KILLS=$((KILLS + 1)); }
  if wait "$RUN" 2> /dev/null; then break; fi
  [ "$(wc -l < "$DIR/killed.log")" -lt 400 ] || fail "the import does not end"
done
RUN=""
same plain killed ''
echo "killed $KILLS times and resumed"

# the running instance
LIVE=(--instance "$DIR/mini/client.properties" --classpath "$LIB/*" --java "$JAVA")
import "${LIVE[@]}" --source-table plain --table live
same plain live ''
import "${LIVE[@]}" --source-table sums --table sums
same sums sums ''
import "${LIVE[@]}" --source-table groups --table live-groups --visibility qualifier
same groups live-groups "$JOINED"
refused 'TableNotFoundException' "${LIVE[@]}" --source-table nothing

# expressions as tags, where each column has one
import "${LIVE[@]}" --source-table groups --table tagged --visibility tag --auths public
cells tagged > "$DIR/cells/tagged"
grep -q ' tag7=x7075626c6963$' "$DIR/cells/tagged" || fail "no tags"
grep -v '^regions' "$DIR/cells/tagged" | LC_ALL=C sort > "$DIR/cells/tagged.sorted"
awk '$4 == "x" || $4 == "x7075626c6963"' "$DIR/mini/expected/groups.txt" |
  awk '{t = ""; '"$TAG"'; print $1, "x66", $2 "3a" substr($3, 2), $5, $6 t}' | LC_ALL=C sort > "$DIR/cells/tagged.expected"
cmp "$DIR/cells/tagged.sorted" "$DIR/cells/tagged.expected" || fail "tagged cells differ"
echo "tagged: $(wc -l < "$DIR/cells/tagged.sorted") cells are those of Accumulo, with their expressions as tags"

if [ -n "${CLUSTER_HDFS:-}" ]; then
  files() { "$JAVA" "${JAVA_FLAGS[@]}" -cp "$CLUSTER_CONF:$HBASE_LIB/*" org.apache.hadoop.fs.FsShell "$@" >> "$DIR/client.log" 2>&1; }
  files -mkdir -p "$CLUSTER_HDFS/export"
  files -put -f "$EXPORT/plain"/* "$CLUSTER_HDFS/export"
  import --from "$CLUSTER_HDFS/export" --table from-hdfs --config "$CLUSTER_CONF"
  same plain from-hdfs ''
fi
if [ "${HBASE:-0}" = 1 ]; then
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  TO="$HBASE_ZK"
  import --from "$EXPORT/plain" --table plain
  same plain plain ''
  echo "the same at HBase 2.6.4"
fi
