#!/usr/bin/env bash
# How long a cluster of Halcyon takes to empty a server that is decommissioned, and to recover one that dies while its regions move: a
# table of REGIONS regions with a row each, on three region servers, ZooKeeper and HDFS.
#   decommission.sh
# REGIONS  default 5000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HERE="$BENCH/../cluster"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-decommission}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
REGIONS="${REGIONS:-5000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

places() { "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'big'"; }
at() { places | grep -cF "$1" || true; }                                     # at SERVER: its regions of the table
open_elsewhere() { ! grep -qF "$1" <<< "$(places)" && [ "$(places | grep -c '"OPEN"')" = "$REGIONS" ]; } # open_elsewhere SERVER
has_left() { [ "$(at "$1")" -le "$2" ]; }                                    # has_left SERVER COUNT
since() { echo $((($(date +%s%N) - $1) / 1000000)); }                        # since BEGUN
meta_at() { sed 's/\x1b\[[0-9;]*m//g' "$CLUSTER_DIR/master1/log" | sed -n 's/.*hbase:meta is open server=\([^ ]*\) .*/\1/p' | tail -n 1; }
without_meta() { # the processes of live servers that do not have hbase:meta
  local process
  for process in "$@"; do [ "$(name_of "$process")" = "$(meta_at)" ] || echo "$process"; done
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 1 --halcyons 3 --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
begun=$(date +%s%N)
sh_halcyon "create 'big', 'f', {NUMREGIONS => $REGIONS, SPLITALGO => 'HexStringSplit'}" > /dev/null
echo "create: $REGIONS regions in $(since "$begun") ms"
seq 0 $((REGIONS - 1)) | awk -v step="$((4294967296 / REGIONS))" '{ printf "put '\''big'\'', '\''%08x'\'', '\''f:q'\'', '\''v'\''\n", $1 * step }' | "$HALCYON" shell --zookeeper "$ZK" > /dev/null
expect_count big "$REGIONS" "rows"

process="$(without_meta halcyon1 halcyon2 halcyon3 | head -n 1)"
first="$(name_of "$process")"
had="$(at "$first")"
begun=$(date +%s%N)
sh_halcyon "decommission_regionservers ['$first'], true" > /dev/null
echo "a server with $had regions is decommissioned: the command takes $(since "$begun") ms"
wait_for $((300 + REGIONS / 10)) has_left "$first" $((had - had / 10))
left="$(at "$first")"
echo "$((had - left)) regions have moved after $(since "$begun") ms"
cluster kill "$process" > /dev/null
begun=$(date +%s%N)
wait_for $((300 + REGIONS / 10)) open_elsewhere "$first"
echo "it is killed: its regions, $left of them a moment before, are open elsewhere after $(since "$begun") ms"
expect_count big "$REGIONS" "rows"

case "$process" in halcyon1) others="halcyon2 halcyon3" ;; halcyon2) others="halcyon1 halcyon3" ;; *) others="halcyon1 halcyon2" ;; esac
# shellcheck disable=SC2086 # two words
second="$(name_of "$(without_meta $others | head -n 1)")"
had="$(at "$second")"
begun=$(date +%s%N)
sh_halcyon "decommission_regionservers ['$second'], true" > /dev/null
wait_for $((300 + REGIONS / 10)) open_elsewhere "$second"
echo "another one is decommissioned: its $had regions have moved after $(since "$begun") ms"
expect_count big "$REGIONS" "rows"
