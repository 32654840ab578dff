#!/usr/bin/env bash
# HBase's clients and load tools against a cluster of Halcyon with two masters and three region servers.
#   own-clients.sh [PART...]     of compat, load, pe, ycsb; default all
# compat   the tests of testing/compat with HBase's clients 1.4 to 3.0 and asynchbase
# load     HBase's LoadTestTool: writes, updates and reads with verification, with and without multi-puts; then with a region server killed
# pe       every command of PerformanceEvaluation (testing/bench/pe-all.sh)
# ycsb     YCSB's load and its workloads a to f (testing/bench/ycsb-all.sh)
# ROWS     keys of LoadTestTool, default 20000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
# PEERS    for pe and ycsb, see testing/bench/common.sh
# Each part has a table whose regions are at all three servers, or the script fails. Exit 1 if a part failed; the others run all the same.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-own-clients}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
CONFORMANCE_CACHE="${CONFORMANCE_CACHE:-$HOME/.cache/halcyon/conformance-2.6.4}"
ROWS="${ROWS:-20000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
[ $# -gt 0 ] || set -- compat load pe ycsb

opened() { grep -c ' opened .*region=' "$CLUSTER_DIR/$1/log" || true; } # opened PROCESS: how many times it opened a region of a table

part_compat() {
  timeout 1800 mvn -B -ntp -fae -f "$HERE/../compat/pom.xml" test -Dcompat.zk="$ZK" -Dcompat.registry="$MASTERS" -Dcompat.root= \
    -Dcompat.halcyon=true -Dcompat.servers=3 < /dev/null > "$CLUSTER_DIR/compat.log" 2>&1 || { grep -E '^\[ERROR\]|Tests run' "$CLUSTER_DIR/compat.log" | tail -n 40; return 1; }
  grep -E 'Tests run:.*[0-9]$' "$CLUSTER_DIR/compat.log"
}

# load_tool TABLE OPTION...: fails by its exit code, by a read that found a wrong value, or by keys that are missing.
load_tool() {
  local table="$1" log="$CLUSTER_DIR/load-$1.log"
  shift
  timeout 900 "$JAVA" -Xmx500m "${JAVA_FLAGS[@]}" -cp "$CONFORMANCE_CACHE/lib/*" org.apache.hadoop.hbase.util.LoadTestTool -zk "$ZK" -zk_root /hbase \
    -tn "$table" -num_keys "$ROWS" "$@" >> "$log" 2>&1 < /dev/null || { echo "LoadTestTool $*: exit code $?"; tail -n 20 "$log"; return 1; }
  ! grep -E 'Failed to write keys: [1-9]|Number of read failures: [1-9]|verification failed|VERIFICATION FAILED' "$log" || { echo "LoadTestTool $* saw errors"; return 1; }
}
part_load() {
  maven_jars "$HERE/../conformance/pom.xml" "$CONFORMANCE_CACHE/lib"
  load_tool single -write 2:200:10 -read 100:5 -num_regions_per_server 4 || return 1
  load_tool multi -write 2:200:10 -multiput -batchupdate -read 100:5 -compression SNAPPY -data_block_encoding FAST_DIFF -bloom ROWCOL || return 1
  load_tool single -skip_init -update 20:5:1 || return 1
  echo "LoadTestTool: $ROWS keys written, updated and read in two tables"
  local victim=halcyon2 name
  name="$(name_of halcyon2)"
  load_tool killed -write 2:200:10 -read 100:5 -num_regions_per_server 4 &
  local tool=$!
  sleep 15
  kill -0 "$tool" 2> /dev/null || { echo "LoadTestTool ended before the kill"; return 1; }
  cluster kill-server "$victim"
  wait "$tool" || return 1
  is_dead "$name" || { echo "$name still lives after the kill"; return 1; }
  load_tool killed -skip_init -read 100:5 || return 1
  echo "LoadTestTool: $ROWS keys written and read while $name was killed"
}
part_pe() { HBASE_ZK="$ZK" SECONDS_MAX=2400 "$HERE/../bench/pe-all.sh" > "$CLUSTER_DIR/pe.log" 2>&1 || { grep -v '^ok' "$CLUSTER_DIR/pe.log" | tail -n 30; return 1; }; tail -n 1 "$CLUSTER_DIR/pe.log"; }
part_ycsb() { HBASE_ZK="$ZK" "$HERE/../bench/ycsb-all.sh" > "$CLUSTER_DIR/ycsb.log" 2>&1 || { tail -n 30 "$CLUSTER_DIR/ycsb.log"; return 1; }; cat "$CLUSTER_DIR/ycsb.log"; }

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 7200 > /dev/null
ZK="$(setting_of zookeeper)"
MASTERS="$(for name in master1 master2; do sed -n "s/^$name /localhost:/p" "$CLUSTER_DIR/ports"; done | paste -sd,)"
result=0
for part in "$@"; do
  declare -A before=()
  for process in halcyon1 halcyon2 halcyon3; do before[$process]="$(opened $process)"; done
  if "part_$part"; then echo "own-clients: $part passed"; else echo "own-clients: $part FAILED; its log is in $CLUSTER_DIR"; result=1; fi
  for process in halcyon1 halcyon2 halcyon3; do
    [ "$(opened $process)" -gt "${before[$process]}" ] || { echo "own-clients: $process had no region of $part"; result=1; }
  done
done
exit $result
