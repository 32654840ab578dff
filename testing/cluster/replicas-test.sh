#!/usr/bin/env bash
# Region replicas under HBase's Java client: in a standalone server, then in a cluster of Halcyon in which the server of a primary is
# frozen and killed while its rows are read. Some minutes.
#   replicas-test.sh [standalone|cluster]
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-replicas-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
client26_classes
WHAT="${1:-all}"
meta_at() { sed -n 's/.*hbase:meta is open server=\([^ ]*\) .*/\1/p' <(sed 's/\x1b\[[0-9;]*m//g' "$CLUSTER_DIR/master1/log") | tail -n 1; }
is_at() { # is_at TABLE SERVER: the server has a region of the table that is open
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'")" && grep -F "$2" <<< "$found" | grep -q '"OPEN"'
}
replicas() { client26 halcyon.compat.mixed.Replicas "$ZK" "$@"; }
trap 'exit 143' TERM INT

if [ "$WHAT" != cluster ]; then
  ALONE="$CLUSTER_DIR-standalone" # a directory of a cluster holds nothing else
  trap 'server_kill' EXIT
  rm -rf "$ALONE"
  mkdir -p "$ALONE"
  server_start "$ALONE/data" "$ALONE/log"
  replicas walk
  # The copies come back with the server.
  replicas fill again > /dev/null
  server_stop
  server_start "$ALONE/data" "$ALONE/log"
  [ "$(replicas timeline again)" != "" ] || fail "no timeline read after a restart"
  server_stop
  echo "replicas-test: a standalone server passed"
fi

if [ "$WHAT" != standalone ]; then
  trap 'cluster down' EXIT
  cluster up --parts "zookeeper hdfs hbaseservers" --masters 1 --halcyons 3 --hregionservers 0 --seconds 1200 \
    --property hbase.regionserver.storefile.refresh.period=1000 --property hbase.regionserver.meta.storefile.refresh.period=1000 > /dev/null
  ZK="$(setting_of zookeeper)"
  replicas walk
  replicas fill t > "$CLUSTER_DIR/places"
  primary="$(sed -n 's/^0 //p' "$CLUSTER_DIR/places")" secondary="$(sed -n 's/^1 //p' "$CLUSTER_DIR/places")"
  [ -n "$primary" ] && [ -n "$secondary" ] && [ "$primary" != "$secondary" ] || fail "the copies are at '$primary' and '$secondary'"
  # The client has to find hbase:meta while the server is frozen.
  if [ "$(meta_at)" = "$primary" ]; then
    for process in halcyon1 halcyon2 halcyon3; do
      other="$(name_of "$process")"
      [ "$other" = "$primary" ] || [ "$other" = "$secondary" ] || third="$other"
    done
    sh_halcyon "move '$(regions t | head -n 1)', '$third'" > /dev/null
    wait_for 30 is_at t "$third"
    primary="$third"
  fi
  [ "$(replicas timeline t)" = fresh ] || fail "a timeline read of a primary that is there is stale"
  for process in halcyon1 halcyon2 halcyon3; do [ "$(name_of "$process")" != "$primary" ] || PRIMARY="$process"; done
  cluster freeze "$PRIMARY"
  found="$(replicas timeline t)"
  cluster kill "$PRIMARY"
  echo "the primary's server was frozen: $found"
  [ "$found" = stale ] || fail "a timeline read with a frozen primary: $found"
  wait_for 60 is_dead "$primary"
  wait_for 60 counts t
  replicas timeline t
  expect_count t 1 "the primary is open elsewhere"
  echo "replicas-test: a cluster passed"
fi
