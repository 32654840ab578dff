#!/usr/bin/env bash
# What clients see of coprocessors that run in a JVM beside the server, against answers of HBase 2.6.4 (coprocessors/answers.txt): an observer
# of the test (coprocessors/src), its filter (coprocessors/filters), and the unmodified RowCountEndpoint, WriteHeavyIncrementObserver and Export
# of HBase's own jars. Then the JVM is killed, frozen and disturbed (coprocessors/faults.sh).
#   coprocessors.sh            starts a Halcyon and compares
#   coprocessors.sh --hbase    starts an HBase and writes the file anew
#   coprocessors.sh --cost     what a hook and an endpoint that do nothing cost, at HBase and at Halcyon in turn
# HALCYON           the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# COPROCESSORS_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
. "$HERE/coprocessor-host.sh"
scratch coprocessors

hbase_fetch
coprocessor_tests "$DIR"

client() { # client CLASS ZOOKEEPER ARGUMENT...
  local class="$1"
  shift
  (cd "$DIR" && timeout 400 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$COPROCESSORS_CLIENT" "$class" "$@" \
    2> "$DIR/client.log" < /dev/null) || { tail -n 20 "$DIR/client.log" >&2; return 1; }
}

hbase_with_examples() {
  HBASE_OWN="$HBASE_LIB"
  HBASE_LIB="${COPROCESSORS_SERVERS%/\*}" # hbase_start adds the last asterisk
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  HBASE_LIB="$HBASE_OWN"
}

if [ "${1:-}" = --hbase ]; then
  hbase_with_examples
  client Coprocessors "$HBASE_ZK" "$MARKS_JAR" "$DIR" > "$DIR/answers.txt"
  cp "$DIR/answers.txt" "$HERE/coprocessors/answers.txt"
  exit 0
fi
coprocessor_host "$DIR/host"
mkdir -p "$DIR/conf"
coprocessor_site "$COPROCESSOR_HOST_JAR:$COPROCESSORS_SERVERS" halcyon.coprocessor.call.timeout=8000 halcyon.coprocessor.hang.timeout=4000 > "$DIR/conf/hbase-site.xml"
SERVER_OPTIONS="--config $DIR/conf"
if [ "${1:-}" = --cost ]; then
  hbase_with_examples
  echo "HBase:"
  client Cost "$HBASE_ZK" "$MARKS_JAR"
  hbase_kill
  server_start "$DIR/data" "$DIR/server.log"
  echo "$HALCYON:"
  client Cost "$ZK" "$MARKS_JAR"
  server_stop
  exit 0
fi
server_start "$DIR/data" "$DIR/server.log"
client Coprocessors "$ZK" "$MARKS_JAR" "$DIR" > "$DIR/answers.txt"
DIFFERS=0
diff "$HERE/coprocessors/answers.txt" "$DIR/answers.txt" >&2 || DIFFERS=1
[ $DIFFERS -eq 1 ] || echo "$(wc -l < "$DIR/answers.txt") answers with coprocessors are HBase's"
. "$HERE/coprocessors/faults.sh"
[ $DIFFERS -eq 0 ] || { echo "FAILED: coprocessors are seen otherwise than at HBase" >&2; exit 1; }
