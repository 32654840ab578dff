#!/usr/bin/env bash
# Replication between a real HBase 2.6.4 and Halcyon: HBase's Java client writes, first to HBase, then to both. All cells of both must
# become equal while Halcyon is killed.
#   replication.sh [ROUNDS]       rounds with a kill, default 3
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# OPERATIONS       operations of a round, default 1500
# REPLICATION_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROUNDS="${1:-3}"
OPERATIONS="${OPERATIONS:-1500}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
DIR="${REPLICATION_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-replication.XXXXXX")}"
finish() {
  local code=$?
  server_kill
  hbase_kill
  if [ $code -eq 0 ] && [ -z "${REPLICATION_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/replication/Replication.java" 2> "$DIR/javac.log"

client() { # client COMMAND ARGUMENT...
  timeout 300 "$JAVA" -Xmx300m "${JAVA_FLAGS[@]}" ${CLIENT_OPTIONS:-} -cp "$DIR/classes:$HBASE_LIB/*" Replication "$@" \
    2>> "$DIR/client.log" < /dev/null || { echo "client $1 failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; return 1; }
}

restart() { # kills Halcyon and starts it again on the same ports
  server_kill_running
  server_start "$DIR/data" "$DIR/server-$1.log"
}

kill_twice() { # kill_twice NAME: within some seconds
  sleep $((RANDOM % 3 + 1)).$((RANDOM % 10))
  restart "$1"
  sleep $((RANDOM % 2 + 1)).$((RANDOM % 10))
  restart "$1-again"
}

SERVER_PORTS="$(free_port) $(free_port) $(free_port)"
HBASE_PROPERTIES="hbase.replication.drop.on.deleted.table=true hbase.replication.drop.on.deleted.columnfamily=true \
replication.source.sleepforretries=200 replication.sleep.before.failover=500 ${HBASE_PROPERTIES:-}"
server_start "$DIR/data" "$DIR/server-0.log"
hbase_start "$DIR/hbase" "$DIR/hbase-root"
client create "$HBASE_ZK"
client create "$ZK"
client peer "$HBASE_ZK" halcyon "$ZK:/hbase" > "$DIR/peers.txt"
for round in $(seq 1 "$ROUNDS"); do
  client write "$HBASE_ZK" "$OPERATIONS" "$round" w > "$DIR/writer-$round.txt" &
  writer=$!
  kill_twice "$round"
  wait "$writer"
  CLIENT_OPTIONS="-Done.way=true" client compare "$HBASE_ZK" "$ZK" 90
done
client dropped "$HBASE_ZK" "$ZK" 60
client quiet "$ZK"

# Both ways: each gets what the other has written, and nothing comes back.
client peer "$ZK" hbase "$HBASE_ZK:/hbase" >> "$DIR/peers.txt"
for round in $(seq 1 "$ROUNDS"); do
  client write "$HBASE_ZK" "$OPERATIONS" "$round" x > "$DIR/writer-$round-x.txt" &
  writer=$!
  client write "$ZK" "$OPERATIONS" "$round" h > "$DIR/writer-$round-h.txt" &
  own=$!
  kill_twice "$round-both"
  wait "$writer"
  wait "$own"
  client compare "$HBASE_ZK" "$ZK" 90
done
client quiet "$ZK" "$HBASE_ZK"
client admin "$ZK" "$HBASE_ZK:/hbase"
client loads "$ZK"
echo "replication with HBase: $ROUNDS rounds each one way and both ways, with two kills each, nothing lost"
