#!/usr/bin/env bash
# A table moves from a real HBase 2.6.4 to a cluster of Halcyon, with two masters and three region servers, and back, while a Java client
# writes to it and reads from it (testing/compat/migrate). A region server of Halcyon is killed during the copy, another one and the
# active master after the cut over. The client compares all rows of both with what was acknowledged.
#   migrate.sh
# SOURCE_SERVERS  region servers of HBase, each with two WALs (multiwal), on an HDFS of their own. One of them is killed during the copy, too.
#                 Default 0: one process with everything, and one WAL
# ROWS         rows that are loaded before, default 300000
# THREADS      threads of the client, default 4
# PAUSE_MAX    seconds after which a cut over is undone; it is tried up to six times; default 5
# COPY_LIMIT   MiB a second of the copy, default 3: it has to last until the killed server's regions are elsewhere
# HALCYON      the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-cluster-migrate}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-300000}" SOURCE_SERVERS="${SOURCE_SERVERS:-0}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
DIR="$CLUSTER_DIR-source" # a directory of a cluster holds nothing else
WORKER=""
trap 'process_kill "$WORKER"; hbase_kill; [ ! -e "$DIR/cluster" ] || source_cluster down || true; cluster down' EXIT
trap 'exit 143' TERM INT
rm -rf "$DIR"
mkdir -p "$DIR/classes"
touch "$DIR/migrate.log"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/../compat/migrate/Migrate.java" 2> "$DIR/javac.log"

source_cluster() { CLUSTER_DIR="$DIR/cluster" "$HERE/cluster.sh" "$@"; }
java_client() { # java_client COMMAND ARGUMENT...: in place of the shell that calls it
  exec "$JAVA" -Xmx600m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Migrate "$@" 2>> "$DIR/client.log" < /dev/null
}
migrate() { # migrate OPTION...: its output goes to migrate.log
  echo "\$ halcyon migrate $*" >> "$DIR/migrate.log"
  timeout 1500 "$HALCYON" migrate --state "$DIR/migrate.json" --ready-file "$DIR/ready" --progress-period 1 "$@" >> "$DIR/migrate.log" 2>&1 < /dev/null
}
must() {
  migrate "$@" || fail "halcyon migrate $*: $(tail -n 8 "$DIR/migrate.log")"
  kill -0 "$WORKER" 2> /dev/null || fail "the client has ended: $(cat "$DIR/worker.txt")"
}
cuts() { # cuts OPTION: a cut over whose pause has a limit. One that was undone is tried again
  local try
  for try in 1 2 3 4 5 6; do
    ! migrate "$1" --pause-max "${PAUSE_MAX:-5}" || { grep '^cut over: ' "$DIR/migrate.log" | tail -n 1; return 0; }
    tail -n 1 "$DIR/migrate.log" | grep 'takes writes again; nothing was moved' || fail "halcyon migrate $1: $(tail -n 5 "$DIR/migrate.log")"
    sleep 5
  done
  fail "no cut over within the pause in $try tries"
}
says() { grep -q "$1" "$DIR/migrate.log"; }
kill_one() { # kill_one PROCESS: until the master knows
  local name
  name="$(name_of "$1")"
  cluster kill "$1"
  wait_for 60 is_dead "$name"
  echo "$1 was killed $2"
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
if [ "$SOURCE_SERVERS" = 0 ]; then
  HBASE_START_SECONDS=180
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
else
  source_cluster up --parts "zookeeper hdfs hbaseservers" --halcyons 0 --hregionservers "$SOURCE_SERVERS" --seconds 3000 \
    --property hbase.wal.provider=multiwal > /dev/null
  grep -q RegionGroupingProvider "$DIR/cluster/hregionserver1/log" || fail "servers of the source have one WAL each"
  HBASE_ZK="$(source_cluster settings | sed -n 's/^zookeeper //p')"
fi
(java_client create "$HBASE_ZK")
(java_client load "$HBASE_ZK" "$ROWS")
java_client work "$HBASE_ZK" "$ZK" "$DIR" "${THREADS:-4}" "$ROWS" > "$DIR/worker.txt" &
WORKER=$!
process_await "$WORKER" 60 test -e "$DIR/counts"

must --from "hbase://$HBASE_ZK/hbase" --to "hbase://$ZK/hbase" --tables shop:orders --rate-limit "${COPY_LIMIT:-3}" &
run=$!
wait_for 300 says '^copy: '
kill_one halcyon1 "during the copy"
! says '^copied: ' || fail "the copy had ended before the server was declared dead: set COPY_LIMIT"
cluster start halcyon1
if [ "$SOURCE_SERVERS" != 0 ]; then
  source_cluster kill hregionserver2
  ! says '^copied: ' || fail "the copy had ended before a server of the source was killed: set COPY_LIMIT"
  sleep 15 # longer than its session
  source_cluster start hregionserver2
  echo "hregionserver2 of the source was killed during the copy"
fi
wait "$run"
grep -E '^(copied|compared): ' "$DIR/migrate.log" | tail -n 2
cuts --cut-over
kill_one halcyon2 "after the cut over"
master="$(active)"
cluster kill "$master"
wait_for 60 another_is_active "$master"
echo "$master was killed after the cut over"
cluster start halcyon2
cluster start "$master"
must --verify
cuts --back
sleep 3
must --verify
touch "$DIR/stop"
wait "$WORKER" || fail "the client: $(cat "$DIR/worker.txt")"
WORKER=""
tail -n 3 "$DIR/worker.txt"
migrate --finish || fail "halcyon migrate --finish: $(tail -n 5 "$DIR/migrate.log")"
echo "migration of $ROWS rows from HBase ($SOURCE_SERVERS region servers) to a cluster of Halcyon and back under writes: 2 region servers and a master killed, differences 0"
[ "$SOURCE_SERVERS" = 0 ] || source_cluster down
rm -rf "$DIR"
