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
JARS="${HALCYON_HBASE_IT_LIB:-$HOME/.cache/halcyon/hbase-it-lib}"
[ -n "${HALCYON_HBASE_IT_LIB:-}" ] || maven_jars "$HERE/linked-list/pom.xml" "$JARS"
TEST=""
trap '[ -z "$TEST" ] || kill "$TEST" 2> /dev/null; cluster down' EXIT
trap 'exit 143' TERM INT

rounds() { grep -c 'Verify finished with success' "$CLUSTER_DIR/test.log" || true; }
works() { kill -0 "$TEST" 2> /dev/null; }
kill_in_turn() { # until the test has ended
  local victim kills=0 name
  while works; do
    for victim in halcyon1 hregionserver1; do
      for ((second = 0; second < KILL_SECONDS; second++)); do works && sleep 1; done
      works || break
      name="$(name_of "$victim")"
      cluster kill "$victim"
      wait_for 120 is_dead "$name"
      cluster start "$victim"
      wait_for 120 has_another "$victim" "$name"
      echo "kill $((++kills)), of $victim; $(rounds) iterations verified"
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
mkdir -p "$CLUSTER_DIR/test"
cp "$CLUSTER_DIR/client/"*.xml "$CLUSTER_DIR/test/"
log_file "$CLUSTER_DIR/test"
"$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/test:$JARS/*" org.apache.hadoop.hbase.test.IntegrationTestBigLinkedList \
  -D mapreduce.framework.name=local -D "hadoop.tmp.dir=$CLUSTER_DIR/test/tmp" \
  Loop "$ITERATIONS" 1 "$NODES" /linked-list 1 1000 25 > "$CLUSTER_DIR/test.log" 2>&1 < /dev/null &
TEST=$!
KILLS=0
if [ "$KILL_SECONDS" -gt 0 ]; then kill_in_turn; fi
result=0
wait "$TEST" || result=$?
TEST=""
grep -E '(UNREFERENCED|REFERENCED|UNDEFINED|CORRUPT|EXTRAREFERENCES|LOST_FAMILIES)=' "$CLUSTER_DIR/test.log" | tail -n 8 || true
[ "$result" = 0 ] || { tail -n 20 "$CLUSTER_DIR/test.log" >&2; fail "the test failed with $result; logs are in $CLUSTER_DIR"; }
echo "linked-list: $ITERATIONS iterations of $NODES rows, $KILLS kills, nothing lost"
