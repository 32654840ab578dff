#!/usr/bin/env bash
# Replication in both directions between a real HBase 2.6.4 and Halcyon, while one of them is killed (SIGKILL), in turn, under load.
# HBase's Java client writes to both. In the end each acknowledged row must be at both, once, and all versions and markers be equal.
#   replication-kills.sh [KILLS]    default 20
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# ROOT             where Halcyon's root directory is: local (default), hdfs, or wals: local, with the WALs elsewhere (hbase.wal.dir)
# OPERATIONS       random operations on each side between two kills, default 400
# REPLICATION_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
KILLS="${1:-20}"
OPERATIONS="${OPERATIONS:-400}"
ROOT="${ROOT:-local}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
if [ "$ROOT" = hdfs ] && [ -z "${CLUSTER_HDFS:-}" ]; then
  exec "$HERE/../cluster/cluster.sh" run --parts hdfs --datanodes 1 --seconds 3000 "$HERE/replication-kills.sh" "$KILLS"
fi
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
mkdir -p "$DIR/classes" "$DIR/server"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/replication/Replication.java" 2> "$DIR/javac.log"

client() { # client COMMAND ARGUMENT...
  timeout 900 "$JAVA" -Xmx300m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Replication "$@" \
    2>> "$DIR/client.log" < /dev/null || { echo "client $1 failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; return 1; }
}

case "$ROOT" in
  local) ;;
  hdfs) export HALCYON_TEST_ROOT="$CLUSTER_HDFS/replication" ;;
  wals)
    echo "<configuration><property><name>hbase.wal.dir</name><value>file://$DIR/wals</value></property></configuration>" \
      > "$DIR/server/hbase-site.xml"
    SERVER_OPTIONS="--config $DIR/server"
    ;;
  *) echo "ROOT is local, hdfs or wals" >&2; exit 2 ;;
esac
# Hadoop's local file system keeps the last bytes of a file in the JVM for its checksums; the raw one gives them to the kernel.
HBASE_PROPERTIES="fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem hbase.wal.provider=filesystem zookeeper.session.timeout=10000 \
replication.source.sleepforretries=200 replication.sleep.before.failover=500 ${HBASE_PROPERTIES:-}"
HBASE_PORTS="$(free_port) $(free_port) $(free_port)"
HBASE_START_SECONDS=180
SERVER_PORTS="$(free_port) $(free_port) $(free_port)"
server_start "$DIR/data" "$DIR/server-0.log"
hbase_start "$DIR/hbase" "$DIR/hbase-root"
client create "$HBASE_ZK"
client create "$ZK"
client peer "$HBASE_ZK" halcyon "$ZK:/hbase" > "$DIR/peers.txt"
client peer "$ZK" hbase "$HBASE_ZK:/hbase" >> "$DIR/peers.txt"
HBASE_KEEP_ZK=1

for kill in $(seq 1 "$KILLS"); do
  client write "$HBASE_ZK" "$OPERATIONS" "$kill" x > /dev/null & writers=$!
  client write "$ZK" "$OPERATIONS" "$kill" h > /dev/null & writers="$writers $!"
  client ledger "$HBASE_ZK" "x$kill" 8 > "$DIR/ledger-x$kill" & writers="$writers $!"
  client ledger "$ZK" "h$kill" 8 > "$DIR/ledger-h$kill" & writers="$writers $!"
  sleep $((RANDOM % 4 + 3)).$((RANDOM % 10))
  if [ $((kill % 2)) -eq 1 ]; then
    server_kill_running
    server_start "$DIR/data" "$DIR/server-$kill.log"
  else
    hbase_kill
    hbase_start "$DIR/hbase" "$DIR/hbase-root"
  fi
  for writer in $writers; do wait "$writer"; done
done
ledgers=()
for kill in $(seq 1 "$KILLS"); do
  for side in x h; do ledgers+=("$side$kill=$(cat "$DIR/ledger-$side$kill")"); done
done
acknowledged="$(client ledgers "$HBASE_ZK" "$ZK" 300 "${ledgers[@]}")"
client compare "$HBASE_ZK" "$ZK" 120
client quiet "$ZK" "$HBASE_ZK"
client loads "$ZK"
echo "replication with kills, root $ROOT: $KILLS kills, every second one of HBase; $acknowledged acknowledged rows are at both sides, once"
