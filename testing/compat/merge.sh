#!/usr/bin/env bash
# Merges of regions, and what fixMeta of HBCK2 merges, by a client of HBase, against the answers of HBase 2.6.4 (merge/answers.txt).
#   merge.sh            starts a Halcyon and compares; about a minute
#   merge.sh --hbase    starts an HBase and writes the file anew
# HALCYON      the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# MERGE_DIR    data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch merge
mkdir -p "$DIR/classes" "$DIR/root/data"
hbase_fetch
CLASS=org.apache.hadoop.hbase.client.Merges
[ -n "$(find "$DIR/classes" -newer "$HERE/merge/Merges.java" -name Merges.class 2> /dev/null)" ] ||
  javac -nowarn -Xlint:none -d "$DIR/classes" -cp "$HBASE_LIB/*" "$HERE/merge/Merges.java"
merges() { # merges MODE ZOOKEEPER ROOT
  (cd "$DIR" && timeout 900 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" "$CLASS" "$@" 2> "$DIR/client.log" < /dev/null) ||
    { tail -n 20 "$DIR/client.log" >&2; return 1; }
}

case "${1:-}" in
  --hbase)
    HBASE_PROPERTIES="hbase.master.metafixer.max.merge.count=3" hbase_start "$DIR/hbase" "$DIR/hbase-root/data"
    merges answers "$HBASE_ZK" "$DIR/hbase-root/data" > "$DIR/answers.txt"
    cp "$DIR/answers.txt" "$HERE/merge/answers.txt"
    merges own "$HBASE_ZK" "$DIR/hbase-root/data" > "$DIR/own.txt"
    hbase_kill
    echo "What HBase does where Halcyon does otherwise:"
    cat "$DIR/own.txt"
    ;;
  *)
    mkdir -p "$DIR/conf"
    cat > "$DIR/conf/hbase-site.xml" <<XML
<configuration>
  <property><name>hbase.master.metafixer.max.merge.count</name><value>3</value></property>
</configuration>
XML
    SERVER_OPTIONS="--config $DIR/conf" server_start "$DIR/root/data" "$DIR/server.log"
    merges answers "$ZK" "$DIR/root/data" > "$DIR/answers.txt"
    merges own "$ZK" "$DIR/root/data" > "$DIR/own.txt"
    server_stop
    diff "$HERE/merge/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: merges work otherwise than HBase's" >&2; exit 1; }
    diff "$HERE/merge/own.txt" "$DIR/own.txt" >&2 || { echo "FAILED: where Halcyon does otherwise" >&2; exit 1; }
    echo "$(wc -l < "$DIR/answers.txt") answers about merges and fixMeta are HBase's"
    ;;
esac
