#!/usr/bin/env bash
# HBase's IntegrationTestBigLinkedList on a cluster with region servers of HBase and of Halcyon, while servers of both kinds are
# killed in turn. Each iteration writes lists of rows that refer to each other, then reads all of them: a reference to a row
# that is not there is a lost row.
#   linked-list.sh [ITERATIONS]    default 2
# NODES         rows of each iteration, a multiple of 25000, default 250000
# KILL_SECONDS  between the start of a server and the next kill, default 40; 0 kills nobody
# HALCYON       the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-linked-list}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ITERATIONS="${1:-2}" NODES="${NODES:-250000}" KILL_SECONDS="${KILL_SECONDS:-40}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/processes.sh"
. "$HERE/loads.sh"
linked_list_fetch
trap 'linked_list_kill; cluster down' EXIT
trap 'exit 143' TERM INT

kill_in_turn() { # until the test has ended
  local victim kills=0 name
  while linked_list_works; do
    for victim in halcyon1 hregionserver1; do
      for ((second = 0; second < KILL_SECONDS; second++)); do linked_list_works && sleep 1; done
      linked_list_works || break
      name="$(name_of "$victim")"
      cluster kill "$victim"
      wait_for 120 is_dead "$name"
      cluster start "$victim"
      wait_for 120 has_another "$victim" "$name"
      echo "kill $((++kills)), of $victim; $(linked_list_verified) iterations verified"
    done
  done
  KILLS=$kills
}

properties=()
for kind in "" read. write.; do properties+=(--property "hbase.rpc.${kind}timeout=10000"); done
properties+=(--property dfs.client.socket-timeout=60000)
cluster up --parts "zookeeper hdfs hbaseservers" --hregionservers 2 "${properties[@]}" --seconds $((1800 + ITERATIONS * 1800)) > /dev/null
ZK="$(setting_of zookeeper)"
echo "servers: $(name_of halcyon1) (Halcyon), $(name_of hregionserver1) and $(name_of hregionserver2) (HBase)"
linked_list_start "$ITERATIONS" "$NODES"
KILLS=0
if [ "$KILL_SECONDS" -gt 0 ]; then kill_in_turn; fi
linked_list_end
echo "linked-list: $ITERATIONS iterations of $NODES rows, $KILLS kills, nothing lost"
