#!/usr/bin/env bash
# Replication in both directions between a cluster of Halcyon, with two masters and three region servers, and a real HBase 2.6.4. Under
# load region servers are killed and stopped, and the active master is killed. In the end each acknowledged row must be at both, once,
# and all versions and markers be equal. Before that, while the peer is disabled, two region servers and the active master die: the third
# server must have claimed what both have left, as `status 'replication'` shows.
#   replication.sh [ROUNDS]    default 6: in turn a region server is killed, the active master is killed, a region server is stopped
# HALCYON      the binary, default target/release/halcyon below CARGO_TARGET_DIR
# OPERATIONS   random operations on each side in a round, default 200
# LEDGER_SECONDS   for which rows are written in a round, default 12
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-cluster-replication}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROUNDS="${1:-6}"
OPERATIONS="${OPERATIONS:-200}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
DIR="$CLUSTER_DIR-peer" # a directory of a cluster holds nothing else
trap 'hbase_kill; cluster down' EXIT
trap 'exit 143' TERM INT
rm -rf "$DIR"
mkdir -p "$DIR/classes"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/../compat/replication/Replication.java" 2> "$DIR/javac.log"

client() { # client COMMAND ARGUMENT...
  timeout 900 "$JAVA" -Xmx300m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Replication "$@" \
    2>> "$DIR/client.log" < /dev/null || { echo "client $1 failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; return 1; }
}
shown_at() { # shown_at SERVER: the live server that sends what that one has left
  client loads "$ZK" | sed -n "s/^source hbase at \([^ ]*\) .* recovered hbase-$1\$/\1/p" | head -n 1
}
is_claimed() { [ -n "$(shown_at "$1")" ]; }
none_is_claimed() {
  local found
  found="$(client loads "$ZK")" && ! grep -q ' recovered ' <<< "$found"
}
process_of() { # process_of SERVER
  local process
  for process in halcyon1 halcyon2 halcyon3; do [ "$(name_of "$process")" != "$1" ] || echo "$process"; done
}
kill_server() { # kill_server PROCESS: until the master knows
  local name
  name="$(name_of "$1")"
  cluster kill-server "$1"
  wait_for 60 is_dead "$name"
  cluster kill "$1" 2> /dev/null || true
}
claims() { cat "$CLUSTER_DIR"/halcyon[123]/log | grep -c 'what a server has left is sent from here' || true; }

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
HBASE_PROPERTIES="fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem hbase.wal.provider=filesystem replication.source.sleepforretries=200 \
replication.sleep.before.failover=500"
HBASE_START_SECONDS=180
hbase_start "$DIR/hbase" "$DIR/hbase-root"
client create "$HBASE_ZK"
client create "$ZK"
client peer "$ZK" hbase "$HBASE_ZK:/hbase" > "$DIR/peers.txt"
client peer "$HBASE_ZK" halcyon "$ZK:/hbase" >> "$DIR/peers.txt"
for process in halcyon1 halcyon2 halcyon3; do
  [ "$(at_server ledger "$(name_of $process)")" -gt 0 ] || move_half ledger "$(name_of $process)"
done
# Nothing is sent for a while, so that queues stay.
client disable "$ZK" hbase
client ledger "$ZK" c1 6 > "$DIR/ledger-c1"
first="$(name_of halcyon1)"
kill_server halcyon1
wait_for 60 is_claimed "$first"
second="$(shown_at "$first")" master="$(active)"
[ -n "$master" ] || fail "no active master was found"
client ledger "$ZK" c2 15 > "$DIR/ledger-c2" & writer=$!
sleep 4
process="$(process_of "$second")"
cluster kill-server "$process"
cluster kill "$master"
wait_for 60 another_is_active "$master"
wait_for 60 is_dead "$second"
wait_for 60 is_claimed "$second"
wait_for 60 is_claimed "$first"
echo "what $first and $second have left is shown at $(shown_at "$first") and $(shown_at "$second")"
cluster kill "$process" 2> /dev/null || true
for process in halcyon1 "$process" "$master"; do cluster start "$process"; done
wait "$writer"
client enable "$ZK" hbase
wait_for 120 none_is_claimed

kills=2 stops=0 masters=1
for round in $(seq 1 "$ROUNDS"); do
  writers=""
  client write "$HBASE_ZK" "$OPERATIONS" "$round" x > /dev/null & writers="$writers $!"
  client write "$ZK" "$OPERATIONS" "$round" h > /dev/null & writers="$writers $!"
  client ledger "$HBASE_ZK" "x$round" "${LEDGER_SECONDS:-12}" > "$DIR/ledger-x$round" & writers="$writers $!"
  client ledger "$ZK" "h$round" "${LEDGER_SECONDS:-12}" > "$DIR/ledger-h$round" & writers="$writers $!"
  sleep $((RANDOM % 4 + 4))
  process="halcyon$((round % 3 + 1))" name="$(name_of "halcyon$((round % 3 + 1))")"
  case $((round % 3)) in
    1)
      sh_halcyon "wal_roll '$name'" > /dev/null
      kill_server "$process"
      cluster start "$process"
      kills=$((kills + 1))
      ;;
    2)
      master="$(active)"
      [ -n "$master" ] || fail "no active master was found"
      cluster kill "$master"
      wait_for 60 another_is_active "$master"
      cluster start "$master"
      masters=$((masters + 1))
      ;;
    0)
      cluster stop "$process"
      wait_for 60 is_dead "$name"
      cluster start "$process"
      stops=$((stops + 1))
      ;;
  esac
  for writer in $writers; do wait "$writer"; done
  [ $((round % 3)) = 2 ] || wait_for 60 has_another "$process" "$name"
  for other in halcyon1 halcyon2 halcyon3; do
    [ "$(at_server ledger "$(name_of $other)")" -gt 0 ] || move_half ledger "$(name_of $other)"
  done
done
ledgers=("c1=$(cat "$DIR/ledger-c1")" "c2=$(cat "$DIR/ledger-c2")")
for round in $(seq 1 "$ROUNDS"); do
  for side in x h; do ledgers+=("$side$round=$(cat "$DIR/ledger-$side$round")"); done
done
acknowledged="$(client ledgers "$HBASE_ZK" "$ZK" 300 "${ledgers[@]}")"
client compare "$HBASE_ZK" "$ZK" 120
client quiet "$ZK" "$HBASE_ZK"
wait_for 60 none_is_claimed
[ "$(claims)" -gt $((kills + stops)) ] || fail "$((kills + stops)) servers left, and $(claims) queues were claimed"
client remove "$ZK" hbase
echo "replication of a cluster of three servers: $kills region servers and $masters masters killed, $stops region servers stopped; $acknowledged acknowledged rows are at both sides, once"
