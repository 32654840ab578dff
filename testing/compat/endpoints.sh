#!/usr/bin/env bash
# What endpoints answer, byte by byte, against answers of HBase 2.6.4 (endpoints/answers.txt).
#   endpoints.sh            starts a Halcyon and compares
#   endpoints.sh --hbase    starts an HBase with the coprocessors of hbase-endpoint and writes the file anew
# HALCYON        the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# ENDPOINTS_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch endpoints

hbase_fetch
ENDPOINT_LIB="$HOME/.cache/halcyon/hbase-endpoint-2.6.1"
maven_jars "$HERE/endpoints/pom.xml" "$ENDPOINT_LIB"
HBASE_LIB="$HBASE_LIB/*:$ENDPOINT_LIB" # hbase_start adds the last asterisk

answers() { # answers ZOOKEEPER FILE
  (cd "$DIR" && timeout 300 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$HBASE_LIB/*" "$HERE/endpoints/Endpoints.java" "$1" \
    > "$2" 2> "$DIR/client.log" < /dev/null) || { tail -n 20 "$DIR/client.log" >&2; return 1; }
}

if [ "${1:-}" = --hbase ]; then
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  answers "$HBASE_ZK" "$DIR/answers.txt"
  cp "$DIR/answers.txt" "$HERE/endpoints/answers.txt"
  exit 0
fi
server_start "$DIR/data" "$DIR/server.log"
answers "$ZK" "$DIR/answers.txt"
server_stop
diff "$HERE/endpoints/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: endpoints answer otherwise than HBase" >&2; exit 1; }
echo "$(wc -l < "$DIR/answers.txt") answers of endpoints are HBase's"
