#!/usr/bin/env bash
# How long a cluster of Halcyon takes from the start of its processes until all regions are open: a table of REGIONS regions with a
# row each, on three region servers, ZooKeeper and HDFS; stopped in order, and killed as a whole. And how much memory the region
# servers need for each region that does nothing: what they have more than before there was a table.
#   cold-start.sh
# REGIONS  default 1000
# SERVERS  default 3
# ROUNDS   default 3
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HERE="$BENCH/../cluster"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-cold-start}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
REGIONS="${REGIONS:-1000}" SERVERS="${SERVERS:-3}" ROUNDS="${ROUNDS:-3}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

processes="master1 $(seq -f 'halcyon%.0f' "$SERVERS" | tr '\n' ' ')"
exited() {
  local found
  found="$(cluster status)" && grep -q "^$1 ended" <<< "$found"
}
opened() { # regions of the table that servers have opened since the start
  local process sum=0
  for process in $processes; do
    [ "$process" = master1 ] || sum=$((sum + $(tail -n "+$(($(cat "$CLUSTER_DIR/$process.lines") + 1))" "$CLUSTER_DIR/$process/log" | sed 's/\x1b\[[0-9;]*m//g' | grep -c 'opened .*table=big' || true)))
  done
  echo "$sum"
}
has_opened() { [ "$(opened)" -ge "$REGIONS" ]; }
mark() { for process in $processes; do wc -l < "$CLUSTER_DIR/$process/log" > "$CLUSTER_DIR/$process.lines"; done; }
memory() { # resident bytes of all region servers, without the pages of the program
  local process sum=0
  for process in $processes; do
    [ "$process" = master1 ] || sum=$((sum + 1024 * $(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$(cluster server "$process")/status")))
  done
  echo "$sum"
}
is_ready() { tail -n "+$(($(cat "$CLUSTER_DIR/master1.lines") + 1))" "$CLUSTER_DIR/master1/log" | grep '^ready' > /dev/null; }
start() { # start HOW: prints how long it took
  local process begun
  mark
  begun=$(date +%s%N)
  for process in $processes; do cluster start "$process" > /dev/null; done
  wait_for $((300 + REGIONS / 10)) has_opened
  wait_for 60 is_ready
  echo "$1: $REGIONS regions open $((($(date +%s%N) - begun) / 1000000)) ms after the start of the processes; master: $(grep '^ready' "$CLUSTER_DIR/master1/log" | tail -n 1)"
  sleep 5
  echo "$1: $((($(memory) - EMPTY) / REGIONS)) bytes of memory for each region, $(($(memory) >> 20)) MiB of all servers, $((EMPTY >> 20)) MiB without the table"
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 1 --halcyons "$SERVERS" --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
sleep 5
EMPTY="$(memory)"
begun=$(date +%s%N)
sh_halcyon "create 'big', 'f', {NUMREGIONS => $REGIONS, SPLITALGO => 'HexStringSplit'}" > /dev/null
echo "create: $REGIONS regions in $((($(date +%s%N) - begun) / 1000000)) ms"
seq 0 $((REGIONS - 1)) | awk -v step="$((4294967296 / REGIONS))" '{ printf "put '\''big'\'', '\''%08x'\'', '\''f:q'\'', '\''v'\''\n", $1 * step }' | "$HALCYON" shell --zookeeper "$ZK" > /dev/null
expect_count big "$REGIONS" "rows"
for ((n = 1; n <= ROUNDS; n++)); do
  client26 halcyon.compat.mixed.Orders "$ZK" shutdown
  for process in $processes; do wait_for $((120 + REGIONS / 10)) exited "$process"; done
  start "stopped in order"
  expect_count big "$REGIONS" "rows"
  for process in $processes; do cluster kill "$process" > /dev/null; done
  start "killed"
  expect_count big "$REGIONS" "rows"
done
