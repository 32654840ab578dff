#!/usr/bin/env bash
# Apache Phoenix, unmodified, from Maven Central: its client, and its coprocessors in the JVM beside Halcyon, against what it answers on HBase
# 2.6.4 (phoenix/answers.txt).
#   phoenix.sh            starts a Halcyon and compares
#   phoenix.sh --hbase    starts an HBase and writes the file anew
# HALCYON      the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# PHOENIX_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
. "$HERE/coprocessor-host.sh"
scratch phoenix
mkdir -p "$DIR/client"

hbase_fetch
PHOENIX_LIB="$HOME/.cache/halcyon/phoenix-5.2.1"
maven_jars "$HERE/phoenix/pom.xml" "$PHOENIX_LIB"
javac -nowarn -d "$DIR/client" -cp "$HBASE_LIB/*" "$HERE/phoenix/Phoenix.java"

answers() { # answers ZOOKEEPER FILE
  (cd "$DIR" && timeout 600 "$JAVA" -Xmx600m "${JAVA_FLAGS[@]}" -cp "$DIR/client:$HBASE_LIB/*:$PHOENIX_LIB/*" Phoenix "$1" \
    > "$2" 2> "$DIR/client.log" < /dev/null) || { tail -n 20 "$DIR/client.log" >&2; return 1; }
}

if [ "${1:-}" = --hbase ]; then
  HBASE_LIB="$HBASE_LIB/*:$PHOENIX_LIB" # hbase_start adds the last asterisk
  HBASE_PROPERTIES="hbase.regionserver.wal.codec=org.apache.hadoop.hbase.regionserver.wal.IndexedWALEditCodec"
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  HBASE_LIB="${HBASE_LIB%%/\**}"
  answers "$HBASE_ZK" "$DIR/answers.txt"
  cp "$DIR/answers.txt" "$HERE/phoenix/answers.txt"
  exit 0
fi
coprocessor_host "$DIR/host"
mkdir -p "$DIR/conf"
coprocessor_site "$COPROCESSOR_HOST_JAR:$HBASE_LIB/*:$PHOENIX_LIB/*" halcyon.coprocessor.host.heap=805306368 \
  hbase.regionserver.wal.codec=org.apache.hadoop.hbase.regionserver.wal.IndexedWALEditCodec > "$DIR/conf/hbase-site.xml"
SERVER_OPTIONS="--config $DIR/conf"
server_start "$DIR/data" "$DIR/server.log"
answers "$ZK" "$DIR/answers.txt"
server_stop
diff "$HERE/phoenix/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: Phoenix answers otherwise than on HBase" >&2; exit 1; }
echo "$(wc -l < "$DIR/answers.txt") answers of Phoenix are those on HBase"
