#!/usr/bin/env bash
# Tables with MOB families, by a client of HBase, against the answers of HBase 2.6.4 (mob/answers.txt).
#   mob.sh            starts a Halcyon and compares; about a minute
#   mob.sh --hbase    starts an HBase and writes the file anew
#   mob.sh --root     one root directory under HBase, Halcyon, HBase and Halcyon again: each reads what the one before has written
#   mob.sh --export   snapshots go by HBase's ExportSnapshot from Halcyon to HBase, and from there to another Halcyon; each time the
#                     directory that they came from is removed, and tables are made of them
# HALCYON     the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# MOB_DIR     data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch mob
mkdir -p "$DIR/conf"
hbase_fetch
[ -n "$(find "$DIR/classes" -newer "$HERE/mob/Mobs.java" -name Mobs.class 2> /dev/null)" ] || javac -nowarn -d "$DIR/classes" -cp "$HBASE_LIB/*" "$HERE/mob/Mobs.java"
mobs() { # mobs MODE ZOOKEEPER ROOT
  (cd "$DIR" && timeout 900 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Mobs "$@" 2> "$DIR/client.log" < /dev/null) ||
    { tail -n 20 "$DIR/client.log" >&2; return 1; }
}
same() { # same WHAT BEFORE AFTER
  diff "$DIR/$2.dump" "$DIR/$3.dump" > "$DIR/$3.diff" || { echo "FAILED: $1, see $DIR/$3.diff" >&2; head -n 10 "$DIR/$3.diff" | cut -c 1-300 >&2; exit 1; }
  echo "$1: $(grep -c '^cell ' "$DIR/$3.dump") cells are the same"
}
export_all() { # export_all FROM TO SNAPSHOT... Local files have no checksums for the tool to compare
  local from="$1" to="$2" name
  shift 2
  for name in "$@"; do
    timeout 300 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$TOOLS_LIB/*" org.apache.hadoop.hbase.snapshot.ExportSnapshot \
      -D mapreduce.framework.name=local -D "hadoop.tmp.dir=$DIR/mapreduce" -D "hbase.rootdir=file://$from" -D fs.defaultFS=file:/// \
      --snapshot "$name" --copy-to "file://$to" --mappers 1 --no-checksum-verify > "$DIR/export.log" 2>&1 < /dev/null ||
      { tail -n 20 "$DIR/export.log" >&2; echo "FAILED: the export of $name" >&2; exit 1; }
  done
}
cells() { mobs dump "$1" "$2" | grep '^cell m[12] '; }

case "${1:-}" in
  --hbase)
    HBASE_PROPERTIES='hbase.regionserver.storefile.refresh.period=1000' hbase_start "$DIR/hbase" "$DIR/hbase-root/data"
    mobs answers "$HBASE_ZK" "$DIR/hbase-root/data" > "$DIR/answers.txt"
    cp "$DIR/answers.txt" "$HERE/mob/answers.txt"
    ;;
  --root)
    ROOT="$DIR/shared/data"
    mkdir -p "$ROOT"
    hbase_start "$DIR/first" "$ROOT"
    mobs fill "$HBASE_ZK" "$ROOT"
    mobs dump "$HBASE_ZK" "$ROOT" > "$DIR/filled.dump"
    mobs stop "$HBASE_ZK" "$ROOT"
    hbase_stop
    server_start "$ROOT" "$DIR/server.log"
    mobs dump "$ZK" "$ROOT" > "$DIR/taken.dump"
    same "HBase's directory in Halcyon" filled taken
    mobs work "$ZK" "$ROOT"
    mobs dump "$ZK" "$ROOT" > "$DIR/worked.dump"
    server_stop
    hbase_start "$DIR/second" "$ROOT"
    mobs dump "$HBASE_ZK" "$ROOT" > "$DIR/back.dump"
    same "Halcyon's directory in HBase" worked back
    mobs work "$HBASE_ZK" "$ROOT"
    mobs dump "$HBASE_ZK" "$ROOT" > "$DIR/again.dump"
    mobs stop "$HBASE_ZK" "$ROOT"
    hbase_stop
    server_start "$ROOT" "$DIR/server2.log"
    mobs dump "$ZK" "$ROOT" > "$DIR/end.dump"
    same "back in Halcyon" again end
    mobs work "$ZK" "$ROOT"
    server_stop
    ;;
  --export)
    TOOLS_LIB="${HALCYON_HBASE_TOOLS_LIB:-$HOME/.cache/halcyon/hbase-tools-lib-2.6.4}"
    [ -n "${HALCYON_HBASE_TOOLS_LIB:-}" ] || maven_jars "$HERE/../cluster/tools/pom.xml" "$TOOLS_LIB"
    FIRST="$DIR/first/data" SECOND="$DIR/second/data" THIRD="$DIR/third/data"
    mkdir -p "$FIRST" "$SECOND" "$THIRD"
    server_start "$FIRST" "$DIR/first.log"
    mobs fill "$ZK" "$FIRST"
    mobs work "$ZK" "$FIRST"
    mapfile -t snapshots < <(mobs snapshot "$ZK" "$FIRST" e)
    cells "$ZK" "$FIRST" > "$DIR/first.dump"
    hbase_start "$DIR/hbase" "$SECOND"
    export_all "$FIRST" "$SECOND" "${snapshots[@]}"
    server_stop
    rm -r "$DIR/first"
    mobs clone "$HBASE_ZK" "$SECOND" e
    cells "$HBASE_ZK" "$SECOND" > "$DIR/second.dump"
    same "${#snapshots[@]} snapshots of Halcyon in HBase" first second
    mobs alter "$HBASE_ZK" "$SECOND"
    mapfile -t snapshots < <(mobs snapshot "$HBASE_ZK" "$SECOND" f)
    cells "$HBASE_ZK" "$SECOND" > "$DIR/altered.dump"
    server_start "$THIRD" "$DIR/third.log"
    export_all "$SECOND" "$THIRD" "${snapshots[@]}"
    mobs stop "$HBASE_ZK" "$SECOND"
    hbase_stop
    rm -r "$DIR/second"
    mobs clone "$ZK" "$THIRD" f
    cells "$ZK" "$THIRD" > "$DIR/third.dump"
    same "${#snapshots[@]} snapshots of HBase in Halcyon" altered third
    mobs alter "$ZK" "$THIRD"
    server_stop
    ;;
  *)
    mkdir -p "$DIR/root/data"
    server_start "$DIR/root/data" "$DIR/server.log"
    mobs answers "$ZK" "$DIR/root/data" > "$DIR/answers.txt"
    server_stop
    diff "$HERE/mob/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: MOB works otherwise than HBase's" >&2; exit 1; }
    echo "$(wc -l < "$DIR/answers.txt") answers about MOB are HBase's"
    {
      echo '<configuration>'
      for property in hbase.master.mob.cleaner.period=1 hbase.mob.min.age.archive=0; do
        echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
      done
      echo '</configuration>'
    } > "$DIR/conf/hbase-site.xml"
    mkdir -p "$DIR/cleaned/data"
    SERVER_OPTIONS="--config $DIR/conf"
    server_start "$DIR/cleaned/data" "$DIR/cleaned.log"
    mobs clean "$ZK" "$DIR/cleaned/data" > "$DIR/clean.txt"
    server_stop
    diff "$HERE/mob/clean.txt" "$DIR/clean.txt" >&2 || { echo "FAILED: mob files are cleaned otherwise" >&2; exit 1; }
    ;;
esac
