#!/usr/bin/env bash
# One root directory under two servers: HBase 2.6.4, a real one in a process of its own, and Halcyon. Each step dumps all tables,
# descriptors, states, regions, snapshots and cells (every version, also raw) through HBase's client, and compares with the step before.
#   root.sh            Halcyon makes a directory, HBase opens it and works in it, Halcyon opens that: about a minute
#   root.sh all        also: HBase makes one; either is killed with unflushed edits, and with a compressed log; HBase is killed in
#                      the middle of an action: about five minutes
# HALCYON            the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB  HBase's jars, as for files.sh
# ROOT_DIR           where data and logs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-root.XXXXXX")}"
mkdir -p "$DIR/conf"
DIR="$(cd "$DIR" && pwd)"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
trap 'server_kill; hbase_kill' EXIT
hbase_fetch

client26_classes
# ZSTD in the form of HBase's own codec, which needs no native library
COMPRESSED='hbase.regionserver.wal.enablecompression=true hbase.regionserver.wal.value.enablecompression=true'
site() { # site ["NAME=VALUE ..."]: Halcyon's configuration
  local property
  {
    echo '<configuration>'
    for property in hbase.io.compress.zstd.codec=org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec ${1:-}; do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    echo '</configuration>'
  } > "$DIR/conf/hbase-site.xml"
}
site
SERVER_OPTIONS="--config $DIR/conf"
root() { # root fill|unflushed|work|half|stop|dump HOST:PORT ...
  CLIENT26_MEMORY=600m CLIENT26_SECONDS=240 client26 halcyon.compat.root.Root "$@"
}
halcyon_open() { server_start "$DIR/$1" "$DIR/$1.halcyon.log"; }
hbase_open() { mkdir -p "$DIR/$1.hbase"; hbase_start "$DIR/$1.hbase" "$DIR/$1"; }
hbase_close() { root stop "$HBASE_ZK"; hbase_stop; }
same() { # same WHAT BEFORE AFTER [raw]: with "raw" also what only a raw scan shows
  local before="$DIR/$2.dump" after="$DIR/$3.dump" filter='^raw '
  [ "${4:-}" = raw ] && filter='^$'
  if ! diff <(grep -v "$filter" "$before") <(grep -v "$filter" "$after") > "$DIR/$3.diff"; then
    echo "FAILED: $1: $(grep -c '^[<>]' "$DIR/$3.diff") lines differ, see $DIR/$3.diff" >&2
    head -n 10 "$DIR/$3.diff" | cut -c 1-200 >&2
    exit 1
  fi
  echo "$1: $(grep -c '^cell ' "$after") cells of $(grep -c '^table ' "$after") tables are the same"
}

# ---- Halcyon's directory opens in HBase, HBase works in it, and it opens in Halcyon again
halcyon_open ours
root fill "$ZK"
root unflushed "$ZK"
root dump "$ZK" "$DIR/ours.dump"
server_stop
cp -r "$DIR/ours" "$DIR/there"
hbase_open there
root dump "$HBASE_ZK" "$DIR/there.dump"
same "Halcyon's directory in HBase" ours there raw
root work "$HBASE_ZK"
root dump "$HBASE_ZK" "$DIR/worked.dump"
hbase_close
cp -r "$DIR/there" "$DIR/back"
site hbase.hstore.compaction.min=100 # a region with many files is compacted when it opens, and a raw scan shows less then
halcyon_open back
site
root dump "$ZK" "$DIR/back.dump"
same "back from HBase" worked back raw
if [ "${1:-}" = all ]; then
  # ---- and once more to HBase, from a Halcyon that was killed after as much work
  root work "$ZK"
  root dump "$ZK" "$DIR/killed.dump"
  server_kill_running
  cp -r "$DIR/back" "$DIR/again"
  hbase_open again
  root dump "$HBASE_ZK" "$DIR/again.dump"
  same "Halcyon, killed, in HBase" killed again
  hbase_close

  # ---- a Halcyon with compressed logs, killed: in HBase, and in Halcyon
  site "$COMPRESSED"
  cp -r "$DIR/again" "$DIR/packed"
  halcyon_open packed
  root unflushed "$ZK"
  root dump "$ZK" "$DIR/packed.dump"
  server_kill_running
  "$HALCYON" inspect wal "$DIR/packed/WALs"/*/* > "$DIR/packed.wals"
  grep -q 'Compressed: dictionary' "$DIR/packed.wals" || { echo "FAILED: no WAL is compressed" >&2; exit 1; }
  cp -r "$DIR/packed" "$DIR/packed-there"
  hbase_open packed-there
  root dump "$HBASE_ZK" "$DIR/packed-there.dump"
  same "Halcyon, killed (compressed log), in HBase" packed packed-there
  hbase_close
  cp -r "$DIR/packed" "$DIR/packed-here"
  halcyon_open packed-here
  root dump "$ZK" "$DIR/packed-here.dump"
  same "Halcyon, killed (compressed log), in Halcyon" packed packed-here
  server_stop
  site

  # ---- HBase's own directory, stopped in order and killed, with a plain and a compressed log
  for compression in false true; do
    name="hbase-$compression"
    HBASE_PROPERTIES="hbase.regionserver.wal.enablecompression=$compression" hbase_open "$name"
    root fill "$HBASE_ZK"
    root unflushed "$HBASE_ZK"
    root dump "$HBASE_ZK" "$DIR/$name.dump"
    root unflushed "$HBASE_ZK"
    root dump "$HBASE_ZK" "$DIR/$name-killed.dump"
    hbase_kill
    cp -r "$DIR/$name" "$DIR/$name-taken"
    halcyon_open "$name-taken"
    root dump "$ZK" "$DIR/$name-taken.dump"
    same "HBase, killed (compressed log: $compression), in Halcyon" "$name-killed" "$name-taken"
    server_stop
  done
  hbase_open hbase-false
  root dump "$HBASE_ZK" "$DIR/hbase-false.dump"
  hbase_close
  cp -r "$DIR/hbase-false" "$DIR/stopped"
  halcyon_open stopped
  root dump "$ZK" "$DIR/stopped.dump"
  same "HBase's directory in Halcyon" hbase-false stopped raw
  server_stop

  # ---- HBase, killed in the middle of an action, is let alone until it has ended it
  hbase_open hbase-false
  root half "$HBASE_ZK"
  hbase_kill
  cp -r "$DIR/hbase-false" "$DIR/half"
  if halcyon_open half 2> "$DIR/refused.log"; then
    echo "FAILED: Halcyon opened a directory in which HBase creates a table" >&2
    exit 1
  fi
  grep -o 'HBase has .*' "$DIR/refused.log" | head -n 1
  hbase_open half
  for _ in $(seq 1 60); do
    root dump "$HBASE_ZK" "$DIR/finished.dump"
    [ "$(grep -c '^region half' "$DIR/finished.dump")" = 301 ] && break
    sleep 1
  done
  hbase_close
  halcyon_open half
  root dump "$ZK" "$DIR/half.dump"
  same "HBase's directory after a refusal" finished half raw
fi
server_stop
echo "root directories: all the same"
[ -n "$KEEP" ] || rm -rf "$DIR"
