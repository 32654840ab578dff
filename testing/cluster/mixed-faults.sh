#!/usr/bin/env bash
# Faults around a Halcyon server in a cluster of HBase, one after the other, while a Java client that knows each answer reads and
# writes (MixedLoad.java). Each fault shows that it took effect. After it, the server has recovered, or it has left and is started
# again. At the end there is a table of the faults, and the client's verdict: no error, no lost row, no increment done twice.
# The cluster has a network namespace and mounts of its own, which end with this script. Needs root, nft (nftables) and, for the
# step `clocks`, libfaketime.
#   mixed-faults.sh
# STEPS     which, and in which order; default all: zookeeper namenode datanode master slow full cache name clocks znodes
# ROWS      rows of the table, default 20000
# HALCYON   the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed-faults}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
STEPS="${STEPS:-zookeeper namenode datanode master slow full cache name clocks znodes}" ROWS="${ROWS:-20000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
client26_classes
FAKETIME="$(find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 2> /dev/null | head -n 1)"
if [ -z "${MIXED_FAULTS_INSIDE:-}" ]; then
  [ "$(id -u)" = 0 ] && command -v nft > /dev/null || { echo "this needs root and nft (package nftables)" >&2; exit 69; }
  [ -n "$FAKETIME" ] || [[ " $STEPS " != *" clocks "* ]] || { echo "the step clocks needs libfaketime" >&2; exit 69; }
  hbase_fetch # in the namespace there is no network
  MIXED_FAULTS_INSIDE=yes exec unshare --net --mount -- "${BASH_SOURCE[0]}" "$@"
fi
ip link set lo up
VICTIM=halcyon1
SECOND=""
export CLUSTER_GROUPS="halcyon1=64101 hmaster=64102"
trap 'client_end; second_end; cluster down' EXIT
trap 'exit 143' TERM INT
# Connections that our server opens have mark 1, those of the master mark 2. What is dropped is dropped where it arrives: a drop
# at the sender is an error that TCP sees.
nft -f - << 'NFT'
table inet faults {
  chain marks {
    type filter hook output priority -150;
    ct state new meta skgid 64101 ct mark set 1
    ct state new meta skgid 64102 ct mark set 2
  }
  chain cuts {
    type filter hook input priority 0;
  }
  chain moved {
    type nat hook output priority -100;
  }
}
NFT

port() { sed -n "s/^$1 //p" "$CLUSTER_DIR/ports"; }
lose() { # lose MARK PORT [PERCENT]: packets of the connections that MARK's process has opened to PORT, both ways
  local way chance=""
  [ -z "${3:-}" ] || chance="numgen random mod 100 < $3"
  for way in dport sport; do nft add rule "inet faults cuts ct mark $1 tcp $way $2 $chance counter drop"; done
}
restore() { # ends all loss; sets DROPPED, the packets that were dropped
  DROPPED="$(nft list chain inet faults cuts | grep -o 'packets [0-9]*' | awk '{n += $2} END {print n + 0}')"
  nft flush chain inet faults cuts
  [ "$DROPPED" -gt 0 ] || fail "$FAULT: no packet was dropped"
}
first_datanode() { # the DataNode to which our server sends most: the first one of its WAL's pipeline
  local node
  for node in 1 2 3; do nft add rule inet faults cuts ct mark 1 tcp dport "$(port "datanode$node")" counter comment "datanode$node"; done
  sleep 2
  nft list chain inet faults cuts | sed -n 's/.*bytes \([0-9]*\).*"\(datanode.\)".*/\1 \2/p' | sort -rn | head -n 1 | cut -d ' ' -f 2
  nft flush chain inet faults cuts
}
new_log() { tail -n "+$((MARK + 1))" "$CLUSTER_DIR/$VICTIM/log"; } # what our server has logged since the fault began
logged() { grep -qE -- "$1" <<< "$(new_log)"; }
says() { # says SECONDS PATTERN: waits for this in the log, and sets LINE
  wait_for "$1" logged "$2"
  LINE="$(new_log | grep -E -m 1 -- "$2" | cut -c 1-400)"
}
lately() { tail -n "+$((REPORTS + 1))" <<< "$(grep '^so far' "$CLUSTER_DIR/client.log")" | sed -n 's/.*lately \([0-9]*\) ms/\1/p'; }
is_calm() { [ "$(lately | tail -n 1)" -lt 1500 ]; }

begin() { # begin FAULT: some regions are at our server
  FAULT="$1" LINE=""
  move_half load "$OURS"
  [ "$(at_server load "$OURS")" -gt 0 ] || fail "$FAULT: no region was there"
  MARK="$(wc -l < "$CLUSTER_DIR/$VICTIM/log")" REPORTS="$(grep -c '^so far' "$CLUSTER_DIR/client.log" || true)" BEGUN="$SECONDS"
  echo "== $FAULT"
}
left() { # waits until our server has ended and others have its regions, and starts it again
  wait_for 60 has_ended "$VICTIM"
  wait_gone load "$OURS"
  start_again "$OURS"
}
stayed() {
  is_now "$VICTIM" running && ! is_dead "$OURS" || fail "$FAULT: the server did not stay"
  [ "$(at_server load "$OURS")" -gt 0 ] || fail "$FAULT: the server has lost its regions"
}
finish() { # finish left|stayed EVIDENCE
  local before row
  "$1"
  wait_for 120 is_open load
  before="$(operations)"
  wait_for 120 has_gone_on "$before"
  wait_for 60 is_calm
  client_works
  [ -n "$LINE" ] || LINE="$(new_log | grep -E -m 1 "(WARN|ERROR) halcyon" | cut -c 1-400 || true)"
  row="$FAULT | $2 | ${LINE:-(nothing)} | $1 | $(lately | sort -n | tail -n 1) ms | $((SECONDS - BEGUN)) s"
  echo "$row" | tee -a "$CLUSTER_DIR/table"
  tail -n 1 "$CLUSTER_DIR/client.log"
}

step_zookeeper() {
  begin "no packets between it and ZooKeeper for 5 s"
  lose 1 "$(port zookeeper)"
  sleep 5
  restore
  says 10 "SyncConnected"
  says 1 "Disconnected"
  sleep 8 # a lease that was not renewed would have ended
  finish stayed "$DROPPED packets dropped"

  begin "no packets between it and ZooKeeper until its session had expired"
  lose 1 "$(port zookeeper)"
  wait_gone load "$OURS"
  says 1 "the lease of .* has expired"
  restore
  finish left "$DROPPED packets dropped; the master had declared it dead"
}

step_namenode() {
  begin "no packets between it and the NameNode for 20 s"
  lose 1 "$(port namenode)"
  (timeout 60 "$HALCYON" shell --zookeeper "$ZK" -e "flush 'load'" > "$CLUSTER_DIR/flush.log" 2>&1 || true) &
  local flush=$!
  sleep 20
  restore
  wait "$flush"
  says 30 "(WARN|ERROR) halcyon"
  finish stayed "$DROPPED packets dropped"
}

step_datanode() {
  local node
  begin "no packets between it and the first DataNode of its WAL for 20 s"
  node="$(first_datanode)"
  lose 1 "$(port "$node")"
  sleep 20
  restore
  says 30 "(WARN|ERROR) halcyon"
  finish stayed "$DROPPED packets dropped ($node)"
}

is_at() { # is_at REGION SERVER
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'load'" | grep -F "$1")" && grep -qF "$2" <<< "$found"
}
step_master() {
  local region
  begin "no packets between it and the master for 20 s, and a region is to be moved to it"
  region="$(regions load | sed -n 2p)"
  sh_halcyon "move '$region', '$THEIRS'" > /dev/null
  lose 1 "$(port hmaster)"
  lose 2 "$(port halcyon1)"
  (timeout 60 "$HALCYON" shell --zookeeper "$ZK" -e "move '$region', '$OURS'" > "$CLUSTER_DIR/move.log" 2>&1 || true) &
  local move=$!
  sleep 20
  restore
  wait "$move"
  says 30 "the master did not take a report"
  wait_for 60 is_at "$region" "$OURS"
  finish stayed "$DROPPED packets dropped; the region came afterwards"
}

step_slow() {
  local node pid times=0 stopped=0 end
  begin "the first DataNode of its WAL stands still for 50 of every 100 ms, 20 s long"
  node="$(first_datanode)"
  pid="$(cat "$CLUSTER_DIR/$node/pid")"
  end=$((SECONDS + 20))
  while [ "$SECONDS" -lt "$end" ]; do
    kill -STOP "$pid"
    sleep 0.05
    grep -q '^State:.T' "/proc/$pid/status" && stopped=$((stopped + 1))
    kill -CONT "$pid"
    sleep 0.05
    times=$((times + 1))
  done
  [ "$stopped" -gt $((times / 2)) ] || fail "the DataNode was seen stopped in $stopped of $times rounds"
  finish stayed "$node was stopped in $stopped of $times rounds"

  begin "every fifth packet between it and the first DataNode of its WAL is lost, 20 s long"
  node="$(first_datanode)"
  lose 1 "$(port "$node")" 20
  sleep 20
  restore
  finish stayed "$DROPPED packets dropped ($node)"
}

no_space() { grep -c 'No space left on device' "$CLUSTER_DIR/datanode3/log" || true; }
is_full() { [ "$(no_space)" -gt "$1" ]; }
shrink() { # shrink DIRECTORY: its tmpfs to 256 KiB more than what is on it. Refused if more has been written meanwhile
  mount -o "remount,size=$(($(df --output=used "$1" | tail -n 1) + 256))k" "$1" 2> /dev/null
}
step_full() {
  local data="$CLUSTER_DIR/data/datanode3" before round free
  cluster stop datanode3
  mkdir "$CLUSTER_DIR/moved"
  cp -a "$data/." "$CLUSTER_DIR/moved"
  mount -t tmpfs -o size=20g tmpfs "$data"
  cp -a "$CLUSTER_DIR/moved/." "$data"
  cluster start datanode3
  sleep 8
  begin "the disk of one DataNode is full for 20 s"
  for round in 1 2 3; do # the first roll takes the spare file, which has no block there
    timeout 30 "$HALCYON" shell --zookeeper "$ZK" -e "wal_roll '$OURS'" > /dev/null
    sleep 3
  done
  MARK="$(wc -l < "$CLUSTER_DIR/$VICTIM/log")"
  before="$(no_space)"
  # It shrinks to what is on it. A small one, filled, has too little room for the NameNode to choose it in the first place.
  wait_for 10 shrink "$data"
  wait_for 30 is_full "$before"
  sleep 20
  free="$(df --output=avail "$data" | tail -n 1)"
  mount -o remount,size=20g "$data"
  says 30 "(WARN|ERROR) halcyon"
  finish stayed "$free KiB were free; $(($(no_space) - before)) times \"No space left on device\" in the DataNode's log"
}

metric() { curl -sf --max-time 5 "http://127.0.0.1:$(port halcyon1-info)/metrics" | sed -n "s/^$1 \([0-9]*\).*/\1/p"; }
has_metric() { [ "$(metric "$1")" "$2" "$3" ]; }
step_cache() {
  local site="$CLUSTER_DIR/$VICTIM/conf/hbase-site.xml" disk="$CLUSTER_DIR/cache" property round
  mkdir "$disk"
  mount -t tmpfs -o size=8m tmpfs "$disk"
  cp "$site" "$CLUSTER_DIR/site"
  for property in "hbase.bucketcache.ioengine file:$disk/blocks" "hbase.bucketcache.size 64" "hfile.block.cache.size 0.005"; do
    sed -i "s|</configuration>|<property><name>${property% *}</name><value>${property#* }</value></property></configuration>|" "$site"
  done
  cluster stop "$VICTIM"
  left
  begin "the disk of its cache tier is full"
  wait_for 30 has_metric halcyon_block_cache_file_on -eq 1
  wait_for 60 has_metric halcyon_block_cache_file_written_total -gt 0
  dd if=/dev/zero "of=$disk/filler" bs=64k status=none 2> /dev/null || true
  for round in 1 2 3 4 5 6; do # new files, whose blocks are not in the tier yet
    ! logged "the file tier of the block cache is off" || break
    timeout 60 "$HALCYON" shell --zookeeper "$ZK" -e "flush 'load'" > /dev/null
    sleep 5
  done
  says 10 "the file tier of the block cache is off"
  grep -q "No space left" <<< "$LINE" || fail "$FAULT: the log says another reason: $LINE"
  has_metric halcyon_block_cache_file_on -eq 0 || fail "$FAULT: the metric says that the tier is on"
  finish stayed "$(df --output=avail "$disk" | tail -n 1) KiB free; halcyon_block_cache_file_on 0"
  cp "$CLUSTER_DIR/site" "$site"
  cluster stop "$VICTIM"
  left
}

second() { # second ADDRESS SECONDS: a server with the name and the port of ours; COMMAND
  COMMAND=(timeout "$2" "$HALCYON" regionserver --config "$CLUSTER_DIR/$VICTIM/conf" --bind "$1" --hostname localhost --memory 128m)
}
second_end() {
  [ -z "$SECOND" ] || kill "$SECOND" 2> /dev/null || true
  SECOND=""
}
second_ready() { grep -q '^ready' "$CLUSTER_DIR/second.log"; }
refused_second() { # a second server at the same address ends with an error
  local result=0
  second 127.0.0.1 30
  "${COMMAND[@]}" > "$CLUSTER_DIR/second.log" 2>&1 || result=$?
  [ "$result" != 0 ] && [ "$result" != 124 ] || fail "$FAULT: the second server ended with $result"
  LINE="$(tail -n 1 "$CLUSTER_DIR/second.log")"
  grep -q "in use" <<< "$LINE" || fail "$FAULT: the second server says: $LINE"
  EVIDENCE="the second one ended with status $result"
}
step_name() {
  local others frozen
  begin "a second server with its name, host and port is started"
  refused_second
  finish stayed "$EVIDENCE"

  begin "it is frozen; a second server gets its host name, address and port; then it thaws"
  cluster freeze "$VICTIM"
  is_now "$VICTIM" frozen || fail "$FAULT: not frozen"
  frozen="$SECONDS"
  refused_second # the frozen one has the port
  # Another host with the address of the old one: connections that exist stay with the old one.
  nft add rule inet faults moved ip daddr 127.0.0.1 tcp dport "$(port halcyon1)" counter dnat ip to "127.0.0.2:$(port halcyon1)"
  second 127.0.0.2 300
  "${COMMAND[@]}" > "$CLUSTER_DIR/second.log" 2>&1 &
  SECOND=$!
  wait_for 60 second_ready
  wait_for 60 is_dead "$OURS"
  others="$(sed -n 's/^regionserver //p' "$CLUSTER_DIR/second.log" | tail -n 1)"
  frozen=$((SECONDS - frozen))
  cluster thaw "$VICTIM"
  wait_for 60 has_ended "$VICTIM"
  says 5 "no member of the cluster|declared this server dead|gave up"
  wait_gone load "$OURS"
  wait_for 60 is_open load
  move_half load "$others"
  [ "$(at_server load "$others")" -gt 0 ] || fail "$FAULT: the second server has no region"
  EVIDENCE="frozen for $frozen s; the second server $others took $(at_server load "$others") regions; $(nft list chain inet faults moved | sed -n 's/.*packets \([0-9]*\).*/\1/p') connections were made to it"
  kill "$(pgrep -P "$SECOND")"
  wait "$SECOND" || fail "$FAULT: the second server ended with $?"
  SECOND=""
  nft flush chain inet faults moved
  finish left "$EVIDENCE"
}

clock() { # clock [OFFSET]: that of our server, from its next start on
  rm -f "$CLUSTER_DIR/$VICTIM/environment"
  [ -z "${1:-}" ] || printf '%s\n' "LD_PRELOAD=$FAKETIME" FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 "FAKETIME=$1" > "$CLUSTER_DIR/$VICTIM/environment"
}
refused_start() { logged "the master refuses"; }
step_clocks() {
  local offset before after seen round
  for offset in +0.5 -0.5; do
    clock "$offset"
    cluster stop "$VICTIM"
    left
    begin "its clock is $offset s from the master's, started so"
    sh_halcyon "move '$(regions side)', '$OURS'" > /dev/null
    before="$(date +%s%3N)"
    sh_halcyon "put 'side', 'row', 'f:q', '$offset'" > /dev/null
    after="$(date +%s%3N)"
    seen="$(sh_halcyon "get 'side', 'row'" | grep -o 'timestamp=[0-9T:.-]*' | cut -d = -f 2)"
    seen="$(date -u -d "$seen" +%s%3N)"
    EVIDENCE="a put has a timestamp $((seen - after)) to $((seen - before)) ms after the clock of this script"
    case "$offset" in
      +*) [ "$seen" -gt $((after + 300)) ] ;;
      *) [ "$seen" -lt $((before - 300)) ] ;;
    esac || fail "$FAULT: $EVIDENCE"
    for round in 1 2; do
      move_all load "$THEIRS"
      move_half load "$OURS"
    done
    finish stayed "$EVIDENCE; regions moved there and back twice"
  done
  for offset in +40 -40; do
    clock "$offset"
    FAULT="its clock is $offset s from the master's, started so"
    begin "$FAULT"
    cluster stop "$VICTIM"
    wait_for 60 has_ended "$VICTIM"
    wait_gone load "$OURS"
    MARK="$(wc -l < "$CLUSTER_DIR/$VICTIM/log")"
    cluster start "$VICTIM" || true
    wait_for 60 refused_start
    wait_for 60 has_ended "$VICTIM"
    says 5 "the master refuses"
    grep -qi "time" <<< "$LINE" || fail "$FAULT: the log does not name the clock: $LINE"
    wait_for 10 test -e "$CLUSTER_DIR/$VICTIM/exit"
    EVIDENCE="ended with status $(cat "$CLUSTER_DIR/$VICTIM/exit"); the master's log: $(grep -c 'out of sync with master' "$CLUSTER_DIR/hmaster/log" || true) lines"
    clock
    finish left "$EVIDENCE"
  done
}

znode() { client26 halcyon.compat.mixed.Znode "$ZK" "$@"; }
step_znodes() {
  local name
  for name in master meta-region-server running; do
    begin "garbage in /hbase/$name for 10 s"
    EVIDENCE="$(znode garbage "/hbase/$name" 10 | tr '\n' ',')"
    says 10 "/hbase/$name"
    finish stayed "$EVIDENCE"
  done
  begin "its own znode is deleted"
  EVIDENCE="$(znode delete "/hbase/rs/$OURS")"
  says 30 "no member of the cluster"
  finish left "$EVIDENCE"
}

properties=(--property dfs.client.socket-timeout=60000 --property dfs.blocksize=16777216
  --property dfs.datanode.round-robin-volume-choosing-policy.additional-available-space=0)
for kind in "" read. write.; do properties+=(--property "hbase.rpc.${kind}timeout=10000"); done
cluster up --parts "zookeeper hdfs hbaseservers" --owner $$ --seconds 2400 "${properties[@]}" > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of "$VICTIM")" THEIRS="$(name_of hregionserver1)"
sh_halcyon "balance_switch false" > /dev/null
sh_halcyon "move '1588230740', '$THEIRS'" > /dev/null # the recovery of hbase:meta takes longer, and mixed-load.sh has it
sh_halcyon "create 'side', 'f'" > /dev/null
echo "servers: $OURS ($VICTIM), $THEIRS (hregionserver1)"
# A row is not written again within a second: with clocks half a second apart, HBase itself keeps the wrong one of the two versions.
CLIENT26_OPTIONS="-Dagain=1000 -Dreport=2000" client_start
for step in $STEPS; do "step_$step"; done
echo
cat "$CLUSTER_DIR/table"
client_verdict
echo "mixed-faults: passed"
