#!/usr/bin/env bash
# A cluster of Halcyon: two masters, region servers, on ZooKeeper and HDFS. A Java client reads and writes a table; it knows each
# answer (MixedLoad.java): it may see no error, no lost row and no increment that was done twice. Meanwhile regions move, region
# servers are killed and frozen, one of their threads is held, and the active master is killed.
#   own-load.sh
# MOVES, KILLS, FREEZES, STUCK, MASTERS   how often, default 2, 5, 3, 2 and 3; MOVES are of all regions to one server and back to the
#          others; STUCK are event loops that are held, first for a part of halcyon.regionserver.progress.timeout and then for good
# HBASE    region servers of HBase 2.6.4 among those of Halcyon, default 0
# SERVERS  region servers of Halcyon, default 3
# PROGRESS_SECONDS  halcyon.regionserver.progress.timeout, default 15
# ROWS     rows of the table, default 100000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-own-load}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
MOVES="${MOVES:-2}" KILLS="${KILLS:-5}" FREEZES="${FREEZES:-3}" STUCK="${STUCK:-2}" MASTERS="${MASTERS:-3}" SERVERS="${SERVERS:-3}" HBASE="${HBASE:-0}"
ROWS="${ROWS:-100000}" FREEZE_SECONDS=20 PROGRESS_SECONDS="${PROGRESS_SECONDS:-15}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
HOLDER=""
trap 'client_end; [ -z "$HOLDER" ] || kill "$HOLDER" 2> /dev/null || true; cluster down' EXIT
trap 'exit 143' TERM INT

active() { # the process of the active master
  local name
  for name in master1 master2; do
    ! is_now "$name" running || ! grep -q '^ready' <(tail -n "+$(started "$name")" "$CLUSTER_DIR/$name/log") || { echo "$name"; return; }
  done
}
started() { grep -n '^stands for election' "$CLUSTER_DIR/$1/log" | tail -n 1 | cut -d: -f1; } # the line where its newest life begins
is_active() { [ -n "$(active)" ]; }
another_is_active() { is_active && [ "$(active)" != "$1" ]; }
is_whole() { # all servers are alive, and all regions are open
  local name
  for name in $(servers); do ! is_dead "$(name_of "$name")" || return 1; done
  is_open load
}
servers() { local n; for ((n = 1; n <= SERVERS; n++)); do echo "halcyon$n"; done; for ((n = 1; n <= HBASE; n++)); do echo "hregionserver$n"; done; }
victim() { servers | sed -n "$(($1 % (SERVERS + HBASE) + 1))p"; }
goes_on() { # the client has found its way
  local before
  before="$(operations)"
  wait_for 90 has_gone_on $((before + 300))
}
recovery() { # recovery WHAT SERVER BEGUN_NS: waits until meta has all regions open, none at SERVER; says how long it took
  wait_for 120 is_settled load "$2"
  wait_for 120 is_open load
  echo "$1: regions open elsewhere after $((($(date +%s%N) - $3) / 1000000)) ms; $(tail -n 1 "$CLUSTER_DIR/client.log")"
}
hold() { # hold PROCESS THREAD SECONDS: one thread of a server stands still
  : > "$CLUSTER_DIR/holder"
  "$HERE/hold_thread.py" "$(cluster server "$1")" "$2" "$3" > "$CLUSTER_DIR/holder" &
  HOLDER=$!
  wait_for 5 grep -q '^held' "$CLUSTER_DIR/holder"
}
held_until() { # held_until released|ended
  wait "$HOLDER" || fail "the thread could not be held"
  HOLDER=""
  grep -q "^$1" "$CLUSTER_DIR/holder" || fail "the held thread was not $1: $(tr '\n' ' ' < "$CLUSTER_DIR/holder")"
}

properties=(--property "halcyon.regionserver.progress.timeout=${PROGRESS_SECONDS}000")
for kind in "" read. write.; do properties+=(--property "hbase.rpc.${kind}timeout=10000"); done
cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons "$SERVERS" --hregionservers "$HBASE" "${properties[@]}" \
  --property dfs.client.socket-timeout=60000 --seconds $((900 + (MOVES + KILLS + FREEZES + STUCK + MASTERS) * 300)) > /dev/null
ZK="$(setting_of zookeeper)"
client_start
echo "the client works; the active master is $(active)"

for ((n = 1; n <= MOVES; n++)); do
  move_all load "$(name_of halcyon1)"
  [ "$(at_server load "$(name_of halcyon1)")" -ge 10 ] || fail "not all regions are at halcyon1"
  move_half load "$(name_of halcyon2)"
  echo "move $n; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  goes_on
  client_works
done
for ((n = 0; n < KILLS; n++)); do
  name="$(victim "$n")" before="$(name_of "$(victim "$n")")"
  move_half load "$before"
  begun="$(date +%s%N)"
  cluster kill "$name"
  wait_for 60 is_dead "$before"
  recovery "kill of $name" "$before" "$begun"
  cluster start "$name"
  wait_for 60 has_another "$name" "$before"
  goes_on
  client_works
done
for ((n = 0; n < FREEZES; n++)); do
  name="$(victim "$n")" before="$(name_of "$(victim "$n")")"
  move_half load "$before"
  begun="$(date +%s%N)"
  cluster freeze "$name"
  wait_for 60 is_dead "$before"
  recovery "freeze of $name" "$before" "$begun"
  sleep "$FREEZE_SECONDS"
  cluster thaw "$name"
  wait_for 60 has_ended "$name" # it finds that it is no member any more
  cluster start "$name"
  wait_for 60 has_another "$name" "$before"
  goes_on
  client_works
done
for ((n = 0; n < STUCK; n++)); do
  name="halcyon$((n % SERVERS + 1))" thread="network-$((n % 2))"
  before="$(name_of "$name")"
  move_half load "$before"
  hold "$name" "$thread" $((PROGRESS_SECONDS / 2))
  held_until released
  goes_on
  ! is_dead "$before" || fail "$name was declared dead, although its thread stood still for half of the limit only"
  begun="$(date +%s%N)"
  hold "$name" "$thread" $((PROGRESS_SECONDS * 4))
  wait_for $((PROGRESS_SECONDS * 3)) is_dead "$before"
  held_until ended
  grep -q "its thread $thread has not come round for ${PROGRESS_SECONDS}s" "$CLUSTER_DIR/$name/log" || fail "$name did not say that $thread is stuck"
  recovery "$thread of $name held" "$before" "$begun"
  wait_for 60 has_ended "$name"
  cluster start "$name"
  wait_for 60 has_another "$name" "$before"
  goes_on
  client_works
done
for ((n = 0; n < MASTERS; n++)); do
  name="$(active)"
  begun="$(date +%s%N)"
  cluster kill "$name"
  wait_for 60 another_is_active "$name"
  echo "kill of the active $name: $(active) is active after $((($(date +%s%N) - begun) / 1000000)) ms; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  cluster start "$name"
  move_half load "$(name_of halcyon1)"
  goes_on
  client_works
done
wait_for 60 is_whole
client_verdict
echo "own-load: $MOVES moves, $KILLS kills, $FREEZES freezes, $STUCK stuck threads, $MASTERS kills of the active master"
