#!/usr/bin/env bash
# Restarts every process of Halcyon in a cluster, one after the other, under a Java client that knows each answer (MixedLoad.java):
# each region server is emptied by decommissioning, stopped by SIGTERM, started and taken back; then the masters, the active one last.
#   rolling-restart.sh
# ROUNDS   of all processes, default 1
# SERVERS  region servers, default 3
# ROWS     rows of the table, default 50000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
# YCSB     seconds for which YCSB A runs as well, longer than the restarts take; default 0. Any operation that it does not count as OK
#          fails the test. PEERS as in testing/bench/common.sh, default ../shared/peers next to the source tree
# HALCYON_NEXT  the binary that the processes are started with again, default HALCYON: an upgrade
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-rolling-restart}"
FIRST="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}" NEXT="${HALCYON_NEXT:-}"
ROUNDS="${ROUNDS:-1}" SERVERS="${SERVERS:-3}" ROWS="${ROWS:-50000}" YCSB="${YCSB:-0}"
PEERS="${PEERS:-$HERE/../../../shared/peers}"
[ "$YCSB" = 0 ] || [ -x "$PEERS/ycsb.sh" ] || { echo "no YCSB: set PEERS to the directory with ycsb.sh" >&2; exit 66; }
[ -x "$FIRST" ] || { echo "no program at $FIRST: build it, or set HALCYON" >&2; exit 66; }
[ -z "$NEXT" ] || [ -x "$NEXT" ] || { echo "no program at $NEXT" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
BIN="$(mktemp -d)"
export HALCYON="$BIN/halcyon"
ln -s "$(realpath "$FIRST")" "$HALCYON"
trap 'client_end; [ -z "$YCSB_PID" ] || kill -TERM -- "-$YCSB_PID" 2> /dev/null || true; cluster down; rm -rf "$BIN"' EXIT
trap 'exit 143' TERM INT

orders() { client26 halcyon.compat.mixed.Orders "$ZK" "$1" > "$CLUSTER_DIR/orders.log" 2>&1 || fail "$1: $(cat "$CLUSTER_DIR/orders.log")"; }
exited() { # in order
  local found
  found="$(cluster status)" && grep -q "^$1 ended, 0$" <<< "$found"
}
is_empty() { [ "$(at_server load "$1")" = 0 ]; }
active() { # the process of the active master
  local name
  for name in master1 master2; do
    ! is_now "$name" running || ! tail -n "+$(grep -n '^stands for election' "$CLUSTER_DIR/$name/log" | tail -n 1 | cut -d: -f1)" "$CLUSTER_DIR/$name/log" |
      grep '^ready' > /dev/null || { echo "$name"; return; }
  done
}
is_active() { [ -n "$(active)" ]; }
again() { # again PROCESS: stopped in order and started
  cluster stop "$1"
  wait_for 10 exited "$1"
  cluster start "$1"
}
YCSB_PID="" RECORDS=20000
ycsb() { HBASE_ZK="$ZK" CLIENT_HEAP=500m "$PEERS/ycsb.sh" "$@" -p recordcount="$RECORDS" -threads 8; }
ycsb_start() {
  ycsb load a -p hbase.presplit=10 -p hbase.recreate=true > "$CLUSTER_DIR/ycsb-load.log" 2>&1 || fail "YCSB could not load: $(tail -n 3 "$CLUSTER_DIR/ycsb-load.log")"
  set -m # a process group of its own, which the end of this script ends
  ycsb run a -p operationcount=2000000000 -p maxexecutiontime="$YCSB" > "$CLUSTER_DIR/ycsb.log" 2>&1 &
  YCSB_PID=$!
  set +m
  sleep 5 # its JVM starts
}
ycsb_verdict() {
  local operations
  kill -0 "$YCSB_PID" 2> /dev/null || fail "YCSB ended before the last restart: $(tail -n 3 "$CLUSTER_DIR/ycsb.log")"
  wait "$YCSB_PID" || fail "YCSB failed: $(tail -n 3 "$CLUSTER_DIR/ycsb.log")"
  ! grep -m 3 -E 'Return=(ERROR|NOT_FOUND|UNEXPECTED|BAD|NOT_IMPL|SERVICE|FORB)|-FAILED\]' "$CLUSTER_DIR/ycsb.log" || fail "YCSB saw errors"
  operations="$(sed -n 's/^\[\(READ\|UPDATE\)\], Return=OK, \([0-9]*\)$/\2/p' "$CLUSTER_DIR/ycsb.log" | awk '{sum += $1} END {print sum + 0}')"
  [ "$operations" -ge 1000 ] || fail "YCSB did $operations operations only"
  echo "YCSB A: $operations operations in $YCSB s, no errors; the longest took $(sed -n 's/^\[\(READ\|UPDATE\)\], MaxLatency(us), \([0-9]*\)$/\1 \2 us/p' "$CLUSTER_DIR/ycsb.log" | paste -sd' ')"
}
longest() { sed -n 's/^so far:.*longest operation \([0-9]*\) ms.*/\1/p' "$CLUSTER_DIR/client.log" | tail -n 1; }

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons "$SERVERS" --hregionservers 0 --seconds $((600 + ROUNDS * 600)) > /dev/null
ZK="$(setting_of zookeeper)"
client_start
[ "$YCSB" = 0 ] || ycsb_start
[ -z "$NEXT" ] || ln -sfn "$(realpath "$NEXT")" "$HALCYON"
for ((round = 1; round <= ROUNDS; round++)); do
  for ((n = 1; n <= SERVERS; n++)); do
    process="halcyon$n" name="$(name_of "halcyon$n")"
    sh_halcyon "decommission_regionservers ['$name'], true" > /dev/null
    wait_for 60 is_empty "$name"
    again "$process"
    wait_for 60 has_another "$process" "$name"
    sh_halcyon "recommission_regionserver '$name'" > /dev/null 2>&1 || true # it was another process
    orders balance
    client_works
    echo "round $round: $process restarted; longest operation so far $(longest) ms"
  done
  first="$(active)" second="$([ "$(active)" = master1 ] && echo master2 || echo master1)"
  again "$second"
  again "$first"
  wait_for 60 is_active
  client_works
  echo "round $round: $second and $first restarted, $(active) is active; longest operation so far $(longest) ms"
done
[ "$YCSB" = 0 ] || ycsb_verdict
client_verdict
echo "rolling-restart: passed"
