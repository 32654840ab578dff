#!/usr/bin/env bash
# Histories of operations, recorded by HBase's Java client and by the Rust client while servers are killed and frozen and regions
# move, and checked for linearizability (docs/HISTORIES.md). Two masters and three region servers, on ZooKeeper and HDFS.
#   histories.sh
# SYSTEM    halcyon (default); hbase: a master and region servers of HBase 2.6.4 on the same ZooKeeper and HDFS
# SECONDS_OF_FAULTS  how long faults are made, default 180
# SEED      chooses the faults and the operations, default 1
# SERVERS   region servers, default 3
# RATE      operations of each process in a second, default 25; there are 3 processes of each client for each kind of history
# DELETES   false leaves out deletes, default true
# RESULTS   directory that gets the histories, the faults and the result, default CLUSTER_DIR/histories
# HALCYON   the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HISTORIES the checker and recorder, default target/debug/halcyon-histories there
# The result is that of the check: 0 all are linearizable, 1 one is not, 2 one is not decided; others: a step failed.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEM="${SYSTEM:-halcyon}"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-histories-$SYSTEM}"
TARGET="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}"
export HALCYON="${HALCYON:-$TARGET/release/halcyon}"
HISTORIES="${HISTORIES:-$TARGET/debug/halcyon-histories}"
SECONDS_OF_FAULTS="${SECONDS_OF_FAULTS:-180}" SEED="${SEED:-1}" SERVERS="${SERVERS:-3}" RATE="${RATE:-25}" DELETES="${DELETES:-true}"
KINDS="lists registers rows"
FREEZES=(2 6 13 25) # seconds; the session in ZooKeeper is 10 s
for program in "$HALCYON" "$HISTORIES"; do
  [ -x "$program" ] || { echo "no program at $program: build it, or set HALCYON and HISTORIES" >&2; exit 66; }
done
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
case "$SYSTEM" in
  halcyon) PREFIX=halcyon OPTIONS=(--masters 2 --halcyons "$SERVERS" --hregionservers 0) ;;
  hbase) PREFIX=hregionserver OPTIONS=(--masters 0 --halcyons 0 --hregionservers "$SERVERS") ;;
  *) echo "SYSTEM is halcyon or hbase" >&2; exit 64 ;;
esac
client26_classes
RECORDERS=()
end() {
  local pid
  for pid in "${RECORDERS[@]}"; do pkill -TERM -P "$pid" || kill "$pid" 2> /dev/null || true; done
  cluster down
}
trap end EXIT
trap 'exit 143' TERM INT

servers() { local n; for ((n = 1; n <= SERVERS; n++)); do echo "$PREFIX$n"; done; }
masters() { [ "$SYSTEM" = hbase ] && echo hmaster || printf '%s\n' master1 master2; }
life() { tail -n "+$(grep -n '^stands for election' "$CLUSTER_DIR/$1/log" | tail -n 1 | cut -d: -f1)" "$CLUSTER_DIR/$1/log"; } # the newest one of a master
active() { # the process of the active master
  local name
  [ "$SYSTEM" = halcyon ] || { echo hmaster; return; }
  for name in $(masters); do
    ! is_now "$name" running || ! grep -q '^ready' <(life "$name") || { echo "$name"; return; }
  done
}
has_active() { [ -n "$(active)" ] && "$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" > /dev/null 2>&1; }
another_is_active() { has_active && [ "$(active)" != "$1" ]; }
all_are_open() {
  local kind
  for kind in $KINDS; do
    [ "$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'h-$kind'" 2> /dev/null | grep -c '"OPEN"')" = 8 ] || return 1
  done
}
all_are_alive() {
  local name
  for name in $(servers); do is_now "$name" running && ! is_dead "$(name_of "$name")" || return 1; done
}
recorders_work() {
  local pid
  for pid in "${RECORDERS[@]}"; do kill -0 "$pid" 2> /dev/null || fail "a recorder ended: $(tail -n 3 "$RESULTS"/*.log)"; done
}

random() { RANDOM_STATE=$(((RANDOM_STATE * 1103515245 + 12345) & 0x7fffffff)); CHOICE=$(((RANDOM_STATE >> 8) % $1)); } # random N: sets CHOICE to 0..N-1
RANDOM_STATE=$SEED CHOICE=0
declare -A DONE=()
fault() { # fault KIND TEXT: writes down a fault that took effect, with the time of the histories
  DONE[$1]=$((${DONE[$1]:-0} + 1))
  note "$2"
}
a_server() { random "$SERVERS"; NAME="$PREFIX$((CHOICE + 1))"; SERVER="$(name_of "$NAME")"; }
note() { echo "$(cut -d' ' -f1 /proc/uptime) s: $1" | tee -a "$RESULTS/faults.txt"; }
revive() { # what has ended is started again
  local name states
  states="$(cluster status)"
  for name in $(servers) $(masters); do
    grep -q "^$name ended" <<< "$states" || continue
    cluster start "$name"
    note "$name is started again"
  done
}
is_settled_again() { revive && has_active && all_are_alive; }
settle() { wait_for 240 is_settled_again; }
fault_kill() {
  a_server
  cluster kill "$NAME"
  is_now "$NAME" ended || fail "$NAME was killed and has not ended"
  fault kill "$NAME ($SERVER) was killed"
  wait_for 120 is_dead "$SERVER"
}
fault_freeze() {
  local seconds
  a_server
  random "${#FREEZES[@]}"
  seconds="${FREEZES[$CHOICE]}"
  cluster freeze "$NAME"
  is_now "$NAME" frozen || fail "$NAME is not frozen"
  fault freeze "$NAME ($SERVER) is frozen for $seconds s"
  sleep "$seconds"
  ! is_dead "$SERVER" || note "it was declared dead meanwhile"
  cluster thaw "$NAME"
  sleep 3 # one that was declared dead ends itself
}
fault_master() {
  local name
  name="$(active)"
  cluster kill "$name"
  is_now "$name" ended || fail "$name was killed and has not ended"
  fault master "the active master $name was killed"
  [ "$SYSTEM" = hbase ] || wait_for 90 another_is_active "$name"
}
fault_freeze_master() {
  local name
  name="$(active)"
  cluster freeze "$name"
  is_now "$name" frozen || fail "$name is not frozen"
  fault freeze_master "the active master $name is frozen for 15 s"
  sleep 15
  cluster thaw "$name"
  sleep 3
}
fault_move() { # some regions, to one server
  local kind region count
  a_server
  random 3
  kind="$(cut -d' ' -f$((CHOICE + 1)) <<< "$KINDS")"
  for region in $(regions "h-$kind"); do
    random 2
    [ "$CHOICE" = 0 ] || sh_halcyon "move '$region', '$SERVER'" > /dev/null 2>&1 || note "the move of $region failed"
  done
  count="$(at_server "h-$kind" "$SERVER")"
  [ "$count" = 0 ] || fault move "regions of h-$kind were moved; $count are at $SERVER"
}

properties=()
for kind in "" read. write.; do properties+=(--property "hbase.rpc.${kind}timeout=10000"); done
cluster up --parts "zookeeper hdfs hbaseservers" "${OPTIONS[@]}" "${properties[@]}" --property dfs.client.socket-timeout=60000 \
  --seconds $((900 + SECONDS_OF_FAULTS * 3)) > /dev/null
ZK="$(setting_of zookeeper)"
RESULTS="${RESULTS:-$CLUSTER_DIR/histories}"
mkdir -p "$RESULTS"
: > "$RESULTS/faults.txt"
client26 halcyon.compat.histories.Recorder create "$ZK" h
wait_for 60 all_are_open
CLIENT26_SECONDS=$((900 + SECONDS_OF_FAULTS * 3)) CLIENT26_MEMORY=300m CLIENT26_OPTIONS="-Drate=$RATE -Dseed=$SEED -Ddeletes=$DELETES" \
  client26 halcyon.compat.histories.Recorder record "$ZK" h "$RESULTS" "$CLUSTER_DIR/stop" > "$RESULTS/java.log" 2>&1 &
RECORDERS+=($!)
[ "$DELETES" = true ] && deletes=() || deletes=(--no-deletes)
for kind in $KINDS; do
  "$HISTORIES" record "$kind" --zookeeper "$ZK" --table "h-$kind" --output "$RESULTS/rust-$kind.txt" --stop "$CLUSTER_DIR/stop" \
    --seconds $((900 + SECONDS_OF_FAULTS * 3)) --rate "$RATE" --seed "$SEED" "${deletes[@]}" > "$RESULTS/rust-$kind.log" 2>&1 &
  RECORDERS+=($!)
done
wait_for 60 grep -q '^working' "$RESULTS/java.log"
sleep 5

begun=$SECONDS
while [ $((SECONDS - begun)) -lt "$SECONDS_OF_FAULTS" ]; do
  recorders_work
  settle
  random 10
  case "$CHOICE" in
    0 | 1 | 2) fault_kill ;;
    3 | 4 | 5) fault_freeze ;;
    6) fault_master ;;
    7) fault_freeze_master ;;
    *) fault_move ;;
  esac
  random 5
  sleep $((CHOICE + 1))
done

settle
wait_for 180 all_are_open
recorders_work
touch "$CLUSTER_DIR/stop"
for pid in "${RECORDERS[@]}"; do wait "$pid" || fail "a recorder failed: $(tail -n 3 "$RESULTS"/*.log)"; done
RECORDERS=()
result=0
"$HISTORIES" check "$RESULTS"/*-{lists,registers,rows}.txt > "$RESULTS/result.txt" || result=$?
cat "$RESULTS/result.txt"
summary="histories of $SYSTEM, seed $SEED: "
for kind in "${!DONE[@]}"; do summary+="${DONE[$kind]} $kind, "; done
echo "${summary%, }; files in $RESULTS"
exit "$result"
