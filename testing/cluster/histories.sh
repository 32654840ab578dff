#!/usr/bin/env bash
# Histories of operations, recorded by HBase's Java client and by the Rust client while servers are killed and frozen and regions
# move, and checked for linearizability (docs/HISTORIES.md). Two masters and three region servers, on ZooKeeper and HDFS.
#   histories.sh
# SYSTEM    halcyon (default); hbase: a master and region servers of HBase 2.6.4 on the same ZooKeeper and HDFS
# SECONDS_OF_FAULTS  how long faults are made, default 180. A file CLUSTER_DIR/enough ends them after the round that runs
# SEED      chooses the faults and the operations, default 1
# FAULTS    which faults; default: kills and freezes of region servers and of the active master, and moves. `all`: those of
#           faults.sh, first each of them (not with ONLY_PAIRS), then pairs. It needs root, nft (nftables), libfaketime, and 6 GB of memory (8 GB with LOADS)
# ONLY      some kinds of `all`, such as "restart cut_all"; default all of them
# SERVERS   region servers, default 3
# RATE      operations of each process in a second, default 25; there are 3 processes of each client for each kind of history
# DELETES   false leaves out deletes, default true
# LOADS     default none: "list ingest" also runs HBase's BigLinkedList and a continuous ingest, and looks for every row at the end. Each
#           iteration of the list writes NODES rows (a multiple of 25000, default 25000); INGEST_RATE is nodes in a second, default 500
# RESULTS   directory that gets the histories, the faults and the result, default CLUSTER_DIR/histories
# CLOCKS_APART  yes: the clocks of the region servers are 0.4 s ahead, right and 0.4 s behind during the whole run, by libfaketime; no.
#           Default: with every second seed, if there is libfaketime
# AGE_AFTER after so many seconds, and each AGE_EVERY seconds from then on (default 70 and 300), rows are made old: all tables are flushed and
#           compacted, and a server with REPLAY_MIB (default 16) of edits in its WALs is killed
# LEAST_ANSWERS  operations of each client and kind that have to be acknowledged during each fault, default 10
# LEAST_AGED     reads of each kind that have to find what was written or deleted before such a flush, compaction and replay, default 10; none with
#           SYSTEM=hbase, whose log does not tell of replays, and none if SECONDS_OF_FAULTS is too short
# HALCYON   the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HISTORIES the checker and recorder, default target/debug/halcyon-histories there
# The result is that of the check: 0 all are linearizable, 1 one is not, 2 one is not decided, 3 one shows too little; others: a step failed.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEM="${SYSTEM:-halcyon}"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-histories-$SYSTEM}"
TARGET="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}"
export HALCYON="${HALCYON:-$TARGET/release/halcyon}"
HISTORIES="${HISTORIES:-$TARGET/debug/halcyon-histories}"
SECONDS_OF_FAULTS="${SECONDS_OF_FAULTS:-180}" SEED="${SEED:-1}" SERVERS="${SERVERS:-3}" RATE="${RATE:-25}" DELETES="${DELETES:-true}"
LOADS="${LOADS:-}" NODES="${NODES:-25000}" INGEST_RATE="${INGEST_RATE:-500}"
KINDS="lists registers rows versions" ANSWERS_LEAST=100
AGE_AFTER="${AGE_AFTER:-70}" AGE_EVERY="${AGE_EVERY:-300}" REPLAY_MIB="${REPLAY_MIB:-16}" LEAST_ANSWERS="${LEAST_ANSWERS:-10}" LEAST_AGED="${LEAST_AGED:-10}"
for program in "$HALCYON" "$HISTORIES"; do
  [ -x "$program" ] || { echo "no program at $program: build it, or set HALCYON and HISTORIES" >&2; exit 66; }
done
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/processes.sh"
. "$HERE/loads.sh"
has_load() { [[ " $LOADS " == *" $1 "* ]]; }
for load in $LOADS; do
  [[ " list ingest " == *" $load "* ]] || { echo "LOADS has $load, which is neither list nor ingest" >&2; exit 64; }
done
case "$SYSTEM" in
  halcyon) PREFIX=halcyon OPTIONS=(--masters 2 --halcyons "$SERVERS" --hregionservers 0) ;;
  hbase) PREFIX=hregionserver OPTIONS=(--masters 0 --halcyons 0 --hregionservers "$SERVERS") ;;
  *) echo "SYSTEM is halcyon or hbase" >&2; exit 64 ;;
esac
client26_classes
! has_load list || linked_list_fetch
. "$HERE/faults.sh"
. "$HERE/ageing.sh"
FAULTS="${FAULTS:-$SIMPLE_FAULTS}"
FAKETIME="$(find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 2> /dev/null | head -n 1)"
CLOCKS_APART="${CLOCKS_APART:-$([ $((SEED % 2)) = 0 ] && [ -n "$FAKETIME" ] && [ "$SYSTEM" = halcyon ] && echo yes || echo no)}"
[ "$CLOCKS_APART" != yes ] || [ -n "$FAKETIME" ] || { echo "CLOCKS_APART needs libfaketime" >&2; exit 69; }
ALL_FAULTS="$PROCESS_FAULTS $NETWORK_FAULTS $DISK_FAULTS"
[ "$CLOCKS_APART" = yes ] || ALL_FAULTS+=" $CLOCK_FAULTS" # at their end the clock is right
ONLY="${ONLY:-$ALL_FAULTS}"
for kind in $ONLY; do
  [[ " ${ALL_FAULTS//$'\n'/ } " == *" $kind "* ]] || { echo "ONLY has $kind, which is no kind of fault" >&2; exit 64; }
done
if [ "$FAULTS" = all ]; then
  [ "$SYSTEM" = halcyon ] || { echo "FAULTS=all is for SYSTEM=halcyon" >&2; exit 64; }
  [ "$(id -u)" = 0 ] && command -v nft > /dev/null && [ -n "$FAKETIME" ] ||
    { echo "FAULTS=all needs root, nft (package nftables) and libfaketime" >&2; exit 69; }
  # Where numbers of processes come again, bash once waited for ever for a `sleep` that had ended, after 76 minutes.
  [ "$SECONDS_OF_FAULTS" -le 3600 ] || [ "$(cat /proc/sys/kernel/pid_max)" -gt 1000000 ] ||
    { echo "more than an hour of faults needs more numbers for processes: sysctl kernel.pid_max=4194304" >&2; exit 69; }
  if [ -z "${HISTORIES_INSIDE:-}" ]; then
    . "$HERE/../compat/hbase.sh"
    hbase_fetch # in the namespace there is no network
    HISTORIES_INSIDE=yes exec unshare --net --mount -- "${BASH_SOURCE[0]}" "$@"
  fi
  ip link set lo up
  faults_network
  CLUSTER_GROUPS="$(faults_groups)"
  export CLUSTER_GROUPS
  OPTIONS+=(--zookeepers 3 --datanodes 4 --property dfs.blocksize=16777216
    --property dfs.datanode.round-robin-volume-choosing-policy.additional-available-space=0)
fi
RECORDERS=()
end() {
  local pid
  for pid in "${RECORDERS[@]}"; do pkill -TERM -P "$pid" || kill "$pid" 2> /dev/null || true; done
  linked_list_kill
  ingest_kill
  cluster down
}
trap end EXIT
trap 'exit 143' TERM INT

all_are_open() { # at servers that live: hbase:meta has the regions of a dead one as open until the master knows of its death
  local kind name names
  names="$(for name in $(servers); do echo "\"$(name_of "$name")\""; done)"
  for kind in $KINDS; do
    [ "$(timeout 20 "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'h-$kind'" 2> /dev/null | grep '"OPEN"' | grep -cFf <(echo "$names"))" = 8 ] || return 1
  done
}
recorders_work() {
  local pid
  cluster sound || fail "an assertion has failed"
  for pid in "${RECORDERS[@]}"; do kill -0 "$pid" 2> /dev/null || fail "a recorder ended: $(tail -n 3 "$RESULTS"/*.log)"; done
  ! has_load list || linked_list_works || linked_list_end
  ! has_load ingest || ingest_works || fail "the ingest ended: $(tail -n 3 "$CLUSTER_DIR/ingest.log")"
}
recorded() { # recorded FILE...: "file answers" of each
  local file
  for file in "$@"; do echo "$file $(grep -c ' ok' "$file" || true)"; done
}
# have_recorded BEFORE AFTER: each file has as many answers more as show that its recorder works. They are written some dozens at a time
have_recorded() {
  awk -v least="$ANSWERS_LEAST" 'NR == FNR {was[$1] = $2; next} {n++} !($1 in was) || $2 - was[$1] < least {few++}
    END {exit n == 0 || few > 0}' <(echo "$1") <(echo "$2")
}
all_have_recorded() { have_recorded "$1" "$(recorded "$RESULTS"/*-{lists,registers,rows,versions}.txt)"; }
has_ingested() { [ "$(ingest_nodes)" -gt "$1" ]; }
has_verified() { [ "$(linked_list_verified)" -ge "$1" ] || ! linked_list_works; }

properties=()
for kind in "" read. write.; do properties+=(--property "hbase.rpc.${kind}timeout=10000"); done
cluster up --parts "zookeeper hdfs hbaseservers" "${OPTIONS[@]}" "${properties[@]}" --property dfs.client.socket-timeout=60000 \
  --seconds $((900 + SECONDS_OF_FAULTS * 3)) > /dev/null
ZK="$(setting_of zookeeper)"
RESULTS="${RESULTS:-$CLUSTER_DIR/histories}"
mkdir -p "$RESULTS"
: > "$RESULTS/faults.txt"
: > "$RESULTS/loads.txt"
: > "$RESULTS/events.txt"
[ "$CLOCKS_APART" = no ] || clocks_apart
client26 halcyon.compat.histories.Recorder create "$ZK" h
wait_for 60 all_are_open
[ "$CLOCKS_APART" = no ] || clocks_are_apart
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
# The job waits for the worst pair of faults. It asks for the sizes of regions without a second attempt, and needs none.
! has_load list || linked_list_start 100000 "$NODES" -D hbase.client.retries.number=100 -D zookeeper.registry.async.get.timeout=120000 \
  -D zookeeper.recovery.retry=100 -D hbase.regionsizecalculator.enable=false
! has_load ingest || ingest_start "$INGEST_RATE"
sleep 5

# When all works again, each recorder has answers of each kind, too.
works_again() {
  local before
  settle
  fault_event
  recorders_work
  before="$(recorded "$RESULTS"/*-{lists,registers,rows,versions}.txt)"
  wait_for 60 all_have_recorded "$before"
  if has_load ingest; then
    before="$(ingest_nodes)"
    wait_for 120 has_ingested $((before + 500))
  fi
}

IN_PAIRS="" single=()
if [ "$FAULTS" = all ]; then
  FAULTS="$ONLY" IN_PAIRS=yes
  faults_disk datanode4
  [ -n "${ONLY_PAIRS:-}" ] || read -r -d '' -a single <<< "$FAULTS" || true
fi
begun=$SECONDS aged=$((SECONDS + AGE_AFTER))
while [ $((SECONDS - begun)) -lt "$SECONDS_OF_FAULTS" ] && [ ! -e "$CLUSTER_DIR/enough" ]; do
  if [ ${#single[@]} -gt 0 ]; then
    fault_round "${single[0]}"
    single=("${single[@]:1}")
  elif [ -n "$IN_PAIRS" ]; then
    fault_round "$FAULTS" "$FAULTS"
  else
    fault_round "$FAULTS"
  fi
  works_again
  random 5
  sleep $((CHOICE + 1))
  if [ "$SYSTEM" = halcyon ] && [ "$SECONDS" -ge "$aged" ]; then
    age_rows
    works_again
    aged=$((SECONDS + AGE_EVERY))
  fi
done

works_again
touch "$CLUSTER_DIR/stop"
for pid in "${RECORDERS[@]}"; do wait "$pid" || fail "a recorder failed: $(tail -n 3 "$RESULTS"/*.log)"; done
RECORDERS=()
if has_load list; then # the iteration that runs, and all before
  verified="$(linked_list_verified)"
  wait_for 900 has_verified $((verified + 1))
  linked_list_works || linked_list_end
  linked_list_kill
  LINKED_LIST=""
  linked_list_counts >> "$RESULTS/loads.txt"
  echo "BigLinkedList: $((verified + 1)) iterations of $NODES rows verified" >> "$RESULTS/loads.txt"
fi
! has_load ingest || ingest_verdict >> "$RESULTS/loads.txt"
[ -z "$LOADS" ] || cat "$RESULTS/loads.txt"
result=0
if [ "$SYSTEM" = hbase ] || [ "$SECONDS_OF_FAULTS" -le $((AGE_AFTER + 40)) ]; then LEAST_AGED=0; fi
"$HISTORIES" check --events "$RESULTS/events.txt" --least-answers "$LEAST_ANSWERS" --least-aged "$LEAST_AGED" "$RESULTS"/*-{lists,registers,rows,versions}.txt > "$RESULTS/result.txt" || result=$?
cat "$RESULTS/result.txt"
summary="histories of $SYSTEM, seed $SEED, clocks apart: $CLOCKS_APART: " total=0
for kind in "${!DONE[@]}"; do summary+="${DONE[$kind]} $kind, " total=$((total + DONE[$kind])); done
echo "${summary%, }; $total faults took effect, ${#PAIRS_DONE[@]} different pairs; files in $RESULTS" | tee -a "$RESULTS/faults.txt"
exit "$result"
