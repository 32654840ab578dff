#!/usr/bin/env bash
# `halcyon shadow` between a cluster of HBase 2.6.4 with three region servers and one of Halcyon with two masters and three region servers,
# under HBase's Java client and YCSB. What the proxy adds to the time of a call is measured.
#   shadow.sh
# 1. YCSB C at HBase and through `record`, in turn, ROUNDS times.
# 2. `record`, while a region server of HBase is killed and started again, and regions move. The clients see no error, and the replay finds
#    no difference between the two clusters.
# 3. `mirror` under YCSB A, whose writes HBase replicates to Halcyon (halcyon migrate). A region server and the active master of Halcyon
#    are killed. YCSB sees no error, and no read stays different.
# ROUNDS       default 3
# RATE         operations per second of YCSB, default 500, with 4 threads
# SECONDS_OF_ROUND   default 20
# PAGES        a directory for the pages of replay and mirror; default none
# HALCYON      the binary, default target/release/halcyon below CARGO_TARGET_DIR
# PEERS        where ycsb.sh is, default ../shared/peers next to the source tree
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-cluster-shadow}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROUNDS="${ROUNDS:-3}" RATE="${RATE:-500}" SECONDS_OF_ROUND="${SECONDS_OF_ROUND:-20}" ROWS=3000 RECORDS=20000
PEERS="${PEERS:-$HERE/../../../shared/peers}"
[ -x "$PEERS/ycsb.sh" ] || { echo "no YCSB: set PEERS to the directory with ycsb.sh" >&2; exit 66; }
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
DIR="$CLUSTER_DIR-source" # a directory of a cluster holds nothing else
PROXY="" YCSB_PID=""
finish() {
  process_kill "$PROXY"
  [ -z "$YCSB_PID" ] || kill -TERM -- "-$YCSB_PID" 2> /dev/null || true
  [ ! -e "$DIR/cluster" ] || source_cluster down || true
  cluster down
}
trap finish EXIT
trap 'exit 143' TERM INT
rm -rf "$DIR"
mkdir -p "$DIR/classes"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/../compat/shadow/Shadow.java" 2> "$DIR/javac.log" || fail "$(cat "$DIR/javac.log")"

source_cluster() { CLUSTER_DIR="$DIR/cluster" "$HERE/cluster.sh" "$@"; }
java_client() { # java_client COMMAND ARGUMENT...
  timeout 600 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Shadow "$@" 2>> "$DIR/client.log" < /dev/null ||
    fail "the client failed: $*: $(grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 5)"
}
migrate() { # migrate OPTION...: its output goes to migrate.log
  timeout 900 "$HALCYON" migrate --state "$DIR/migrate.json" --progress-period 1 "$@" >> "$DIR/migrate.log" 2>&1 < /dev/null ||
    fail "halcyon migrate $*: $(tail -n 8 "$DIR/migrate.log")"
}
proxy_start() { # proxy_start COMMAND OPTION...: sets PROXY and PROXY_ZK
  "$HALCYON" shadow "$@" > "$DIR/proxy.log" 2>&1 < /dev/null &
  PROXY=$!
  process_await "$PROXY" 30 grep -q '^ready' "$DIR/proxy.log" || fail "halcyon shadow $1 did not start: $(cat "$DIR/proxy.log")"
  PROXY_ZK="$(server_address zookeeper "$DIR/proxy.log")"
}
proxy_stop() { # its exit code
  local pid="$PROXY"
  PROXY=""
  kill "$pid"
  process_end "$pid" 120
}
number() { # number FILE PATH...: a number of a JSON file
  python3 -c 'import json,sys
value = json.load(open(sys.argv[1]))
for name in sys.argv[2:]: value = value[name]
print(value)' "$@"
}
ycsb() { # ycsb ZOOKEEPER load|run WORKLOAD OPTION...
  HBASE_ZK="$1" CLIENT_HEAP=400m "$PEERS/ycsb.sh" "${@:2}" -p recordcount="$RECORDS" -threads 4
}
ycsb_start() { # ycsb_start ZOOKEEPER WORKLOAD SECONDS: in the background
  set -m # a process group of its own, which the end of this script ends
  ycsb "$1" run "$2" -p operationcount=2000000000 -p maxexecutiontime="$3" -target "$RATE" > "$DIR/ycsb.log" 2>&1 &
  YCSB_PID=$!
  set +m
}
ycsb_end() { # ycsb_end NAME OPERATIONS_MIN: it has seen no error; sets OPERATIONS
  local pid="$YCSB_PID"
  wait "$pid" || fail "$1: YCSB failed: $(tail -n 3 "$DIR/ycsb.log")"
  YCSB_PID=""
  ! grep -m 3 -E 'Return=(ERROR|NOT_FOUND|UNEXPECTED|BAD|NOT_IMPL|SERVICE|FORB)|-FAILED\]' "$DIR/ycsb.log" || fail "$1: YCSB saw errors"
  OPERATIONS="$(sed -n 's/^\[\(READ\|UPDATE\)\], Return=OK, \([0-9]*\)$/\2/p' "$DIR/ycsb.log" | awk '{sum += $1} END {print sum + 0}')"
  [ "$OPERATIONS" -ge "$2" ] || fail "$1: YCSB did $OPERATIONS operations only"
}
of_reads() { sed -n "s/^\[READ\], $1(us), \([0-9]*\)\$/\1/p" "$DIR/ycsb.log"; }
ticks() { awk '{print $14 + $15}' "/proc/$PROXY/stat"; } # hundredths of a second that the proxy has used a processor
median() { sort -n | awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'; }
column() { awk -v side="$1" -v n="$2" '$1 == side {print $n}' "$DIR/latencies"; } # column SIDE COLUMN

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
source_cluster up --parts "zookeeper hdfs hbaseservers" --halcyons 0 --hregionservers 3 --seconds 3000 > /dev/null
HBASE_ZK="$(source_cluster settings | sed -n 's/^zookeeper //p')"
HBASE_URL="hbase://$HBASE_ZK/hbase" HALCYON_URL="hbase://$ZK/hbase"
java_client load "zk:$HBASE_ZK" "$ROWS"
ycsb "$HBASE_ZK" load a -p hbase.presplit=10 -p hbase.recreate=true > "$DIR/load.log" 2>&1 || fail "YCSB could not load: $(tail -n 3 "$DIR/load.log")"
migrate --from "$HBASE_URL" --to "$HALCYON_URL" --tables shop:items,usertable
grep -E '^(copied|compared): ' "$DIR/migrate.log" | tail -n 2

# What the proxy adds. A run before the first counts for nothing: HBase's code is compiled while it runs.
ycsb_start "$HBASE_ZK" c "$SECONDS_OF_ROUND"
ycsb_end "YCSB C" 1000
: > "$DIR/latencies"
proxy_start record --cluster "$HBASE_URL" --output "$DIR/reads"
for ((round = 1; round <= ROUNDS; round++)); do
  for side in direct proxy; do
    used="$(ticks)"
    ycsb_start "$([ $side = direct ] && echo "$HBASE_ZK" || echo "$PROXY_ZK")" c "$SECONDS_OF_ROUND"
    ycsb_end "YCSB C, $side" 1000
    echo "$side $(of_reads 50thPercentileLatency) $(of_reads 99thPercentileLatency) $((10000 * ($(ticks) - used) / OPERATIONS)) $OPERATIONS" >> "$DIR/latencies"
  done
done
for side in direct proxy; do
  echo "YCSB C, $RATE reads/s, $side: p50 $(column $side 2 | median) us, p99 $(column $side 3 | median) us (medians of $ROUNDS rounds)"
done
echo "processor time of the proxy: $(column proxy 4 | median) us a read, with the recording"

# A server of HBase dies and comes back, and regions move.
ycsb_start "$PROXY_ZK" c 100
sleep 5
java_client move "zk:$PROXY_ZK"
java_client read "zk:$PROXY_ZK" "$ROWS" 2
source_cluster kill hregionserver2
sleep 45 # its session, and the recovery
source_cluster start hregionserver2
java_client read "zk:$PROXY_ZK" "$ROWS" 2
ycsb_end "record" 10000
grep -q 'ended' <(source_cluster status) && fail "a server of HBase has not come back"
proxy_stop || fail "the proxy did not end well: $(tail -n 3 "$DIR/proxy.log")"
grep '^recorded: ' "$DIR/proxy.log"
grep -q ' 0 dropped, .* 0 not understood' <(tail -n 2 "$DIR/proxy.log") || fail "reads were lost: $(tail -n 2 "$DIR/proxy.log")"
options=()
[ -z "${PAGES:-}" ] || { mkdir -p "$PAGES" && options=(--page "$PAGES/replay.html"); }
timeout 900 "$HALCYON" shadow replay "$DIR/reads" --a "$HBASE_URL" --b "$HALCYON_URL" --speed 0 --threads 8 --json "$DIR/replay.json" "${options[@]}" \
  > "$DIR/replay.log" 2>&1 < /dev/null || fail "the replay found differences: $(tail -n 30 "$DIR/replay.log")"
for kind in get multi scan; do [ "$(number "$DIR/replay.json" byKind $kind reads)" -gt 0 ] || fail "no $kind was recorded"; done
for side in a b; do [ "$(number "$DIR/replay.json" all failed $side)" = 0 ] || fail "reads failed in the replay: $(tail -n 30 "$DIR/replay.log")"; done
tail -n 12 "$DIR/replay.log"

# HBase replicates its writes, and Halcyon is behind by that. Servers of Halcyon die.
options=()
[ -z "${PAGES:-}" ] || options=(--page "$PAGES/mirror.html")
proxy_start mirror --cluster "$HBASE_URL" --to "$HALCYON_URL" --settle-pause 1000 --settle-readings 15 --json "$DIR/mirror.json" "${options[@]}"
ycsb_start "$PROXY_ZK" a 90
sleep 20
name="$(name_of halcyon2)"
cluster kill halcyon2
wait_for 60 is_dead "$name"
master="$(active)"
cluster kill "$master"
wait_for 60 another_is_active "$master"
cluster start halcyon2
cluster start "$master"
ycsb_end "mirror" 10000
code=0
proxy_stop || code=$?
[ -s "$DIR/mirror.json" ] || fail "the mirror has no result: $(tail -n 5 "$DIR/proxy.log")"
tail -n 12 "$DIR/proxy.log"
[ $code = 0 ] || fail "the mirror ended with $code"
[ "$(number "$DIR/mirror.json" all reads)" -gt 5000 ] || fail "the mirror compared too little"
echo "dropped: $(number "$DIR/mirror.json" dropped), left out: $(number "$DIR/mirror.json" leftOut)"
[ "$(number "$DIR/mirror.json" all staysDifferent)" = 0 ] || fail "reads stay different"
[ "$(($(number "$DIR/mirror.json" all settled) + $(number "$DIR/mirror.json" all changing)))" -gt 0 ] || fail "no read differed: nothing was replicated late"
migrate --verify
migrate --abort
echo "shadow: passed"
source_cluster down
rm -rf "$DIR"
