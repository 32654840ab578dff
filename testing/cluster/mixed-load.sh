#!/usr/bin/env bash
# A Java client reads and writes a table of a cluster with region servers of HBase and of Halcyon. Meanwhile all regions move to
# Halcyon's server and back, and that server is killed and frozen. The client knows each answer (MixedLoad.java): it may see no
# error, no lost row and no increment that was done twice.
# VICTIM=hregionserver2 does the same to a server of HBase, in a cluster without Halcyon, for comparison.
#   mixed-load.sh
# MOVES, KILLS, FREEZES  how often, default 2, 5 and 5
# FAULTS                 how often each other process of the cluster is frozen and killed, default 0 (see `faults` below)
# MEMBERS                with an ensemble of three ZooKeeper servers: how often each of them, the leader of the moment, and the one where
#                        VICTIM has its session, is killed for 5 s and frozen for 15 s, default 0. The session stays at 10 s
# ROWS                   rows of the table, default 100000
# FREEZE_SECONDS         how long the server is frozen, default 1 and 20 in turn; the session in ZooKeeper is 10 s, 40 s with FAULTS
# SHELL_MOVES            hbase: regions are listed and moved by HBase's own shell, which HBASE_SHELL names (see hbase_shell.sh)
# HALCYON                the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed-load}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
MOVES="${MOVES:-2}" KILLS="${KILLS:-5}" FREEZES="${FREEZES:-5}" FAULTS="${FAULTS:-0}" MEMBERS="${MEMBERS:-0}" ROWS="${ROWS:-100000}"
read -r -a FREEZE_SECONDS <<< "${FREEZE_SECONDS:-1 20}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
if [ "${SHELL_MOVES:-}" = hbase ]; then
  . "$HERE/../compat/hbase.sh"
  . "$HERE/hbase_shell.sh"
  hbase_shell_fetch
  hbase_shell_moves
fi
VICTIM="${VICTIM:-halcyon1}"
[ "$FAULTS" = 0 ] || [ "$MEMBERS" = 0 ] || { echo "FAULTS needs long sessions and MEMBERS short ones: one at a time" >&2; exit 64; }
[ "$VICTIM" = halcyon1 ] && servers=(--hregionservers 1 --halcyons 1) || servers=(--hregionservers 2 --halcyons 0)
trap 'client_end; cluster down' EXIT
trap 'exit 143' TERM INT

# What can happen to the servers that those of regions need: process, what, seconds. With FAULTS the session is 40 s.
faults=("zookeeper freeze 5" "zookeeper kill 3" "namenode freeze 30" "namenode kill 5" "datanode1 kill 20" "datanode2 freeze 20"
  "hmaster freeze 20" "hmaster kill 5")
disturb() { # disturb PROCESS freeze|kill SECONDS
  local before
  cluster "$2" "$1"
  [ "$2" = freeze ] && is_now "$1" frozen || is_now "$1" ended || fail "$1: $2 had no effect"
  before="$(operations)"
  sleep "$3"
  [ "$2" = freeze ] && cluster thaw "$1" || cluster start "$1"
  wait_for 60 is_now "$1" running
  wait_for 120 is_open load
  wait_for 120 has_gone_on "$before"
}

# disturb_member MEMBER kill|freeze SECONDS: MEMBER is the process of a ZooKeeper server, `leader`, or `session`
disturb_member() {
  local member="$1" modes mode at now
  modes="$(cluster zookeepers)"
  at="$(session_at)"
  case "$member" in
    leader) member="$(sed -n 's/ leader .*//p' <<< "$modes")" ;;
    session) member="$at" ;;
  esac
  mode="$(sed -n "s/^$member \([a-z]*\) .*/\1/p" <<< "$modes")"
  [ "$mode" = leader ] || [ "$mode" = follower ] || fail "$member: does not serve: $modes"
  move_half load "$OURS"
  disturb "$member" "$2" "$3"
  wait_for 60 ensemble_is_whole
  for process in "$VICTIM" hregionserver1 hmaster; do is_now "$process" running || fail "$2 of $member: $process has ended"; done
  now="$(session_at)"
  [ "$member" != "$at" ] || [ "$now" != "$at" ] || fail "$2 of $member: the session did not leave it"
  echo "$2 of $member ($mode) for $3 s, the session of $VICTIM was at $at and is at $now; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  client_works
}
ensemble_is_whole() { [ "$(cluster zookeepers | grep -cE ' (leader|follower) ')" = 3 ]; }
session_at() { # the process of the ZooKeeper server where our server has its connection
  local name mode address id answer
  id="$(sed -n 's/.* session 0x\([0-9a-f]*\) with a timeout.*/\1/p; s/.*session id = 0x\([0-9a-f]*\).*/\1/p' "$CLUSTER_DIR/$VICTIM/log" | tail -n 1)"
  while read -r name mode address; do
    [ "$mode" != none ] || continue
    exec 6<> "/dev/tcp/${address%:*}/${address#*:}"
    echo cons >&6
    answer="$(timeout 3 cat <&6 || true)"
    exec 6>&-
    ! grep -qi "sid=0x0*$id," <<< "$answer" || { echo "$name"; return; }
  done < <(cluster zookeepers)
  echo "none of them"
}

properties=()
for kind in "" read. write.; do # HBase's master, too, waits for a frozen server's answer
  properties+=(--property "hbase.rpc.${kind}timeout=10000")
done
properties+=(--property dfs.client.socket-timeout=60000)
# HBase's servers end with their session: it has to outlast a ZooKeeper that is frozen, also on a busy machine.
[ "$FAULTS" = 0 ] || properties+=(--property zookeeper.session.timeout=40000)
[ "$MEMBERS" = 0 ] || properties+=(--zookeepers 3)
cluster up --parts "zookeeper hdfs hbaseservers" "${servers[@]}" "${properties[@]}" --seconds $((900 + MOVES * 60 + KILLS * 60 + FREEZES * 90 + FAULTS * 600 + MEMBERS * 600 + ROWS / 2000)) > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of "$VICTIM")" THEIRS="$(name_of hregionserver1)"
echo "servers: $OURS ($VICTIM), $THEIRS (hregionserver1)"
client_start
sh_halcyon "balance_switch false" > /dev/null

for ((round = 1; round <= MOVES; round++)); do
  move_all load "$THEIRS"
  move_all load "$OURS"
  echo "move $round: $(at_server load "$OURS") regions at $VICTIM; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  client_works
done
for ((round = 1; round <= KILLS; round++)); do
  move_half load "$OURS"
  regions="$(at_server load "$OURS")"
  [ "$regions" -gt 0 ] || fail "kill $round: no region was there"
  sleep "1.$((RANDOM % 10))"
  cluster kill "$VICTIM"
  wait_gone load "$OURS"
  wait_for 60 is_open load
  start_again "$OURS"
  echo "kill $round: $regions regions were there; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  client_works
done
for ((round = 1; round <= FREEZES; round++)); do
  seconds="${FREEZE_SECONDS[$(((round - 1) % ${#FREEZE_SECONDS[@]}))]}"
  move_half load "$OURS"
  regions="$(at_server load "$OURS")"
  [ "$regions" -gt 0 ] || fail "freeze $round: no region was there"
  sleep "1.$((RANDOM % 10))"
  cluster freeze "$VICTIM"
  sleep "$seconds"
  [ "$seconds" -lt 10 ] || wait_gone load "$OURS"
  cluster thaw "$VICTIM"
  if [ "$seconds" -ge 10 ]; then
    wait_for 60 has_ended "$VICTIM"
    start_again "$OURS"
  fi
  wait_for 60 is_open load
  echo "freeze $round of $seconds s: $regions regions were there; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  client_works
done
for ((round = 1; round <= FAULTS; round++)); do
  for fault in "${faults[@]}"; do
    move_half load "$OURS"
    # shellcheck disable=SC2086
    disturb $fault
    for process in "$VICTIM" hregionserver1; do is_now "$process" running || fail "$fault: $process has ended"; done
    echo "fault $round, $fault s: $(at_server load "$OURS") regions at $VICTIM; $(tail -n 1 "$CLUSTER_DIR/client.log")"
    client_works
  done
done
for ((round = 1; round <= MEMBERS; round++)); do
  for member in zookeeper zookeeper2 zookeeper3 leader session; do disturb_member "$member" kill 5; done
  for member in zookeeper zookeeper2 zookeeper3 leader session; do disturb_member "$member" freeze 15; done
done
longest="$(sed -n 's/^so far.*lately \([0-9]*\) ms/\1/p' "$CLUSTER_DIR/client.log" | sort -n | tail -n 1)"
echo "the longest operation since the first report took $longest ms"
[ -z "${MOVED:-}" ] || echo "HBase's shell has moved $MOVED regions"
client_verdict
echo "mixed-load: passed"
