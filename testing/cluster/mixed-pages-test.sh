#!/usr/bin/env bash
# The pages of a region server of Halcyon in a cluster of HBase 2.6.4, and its RPC registry by a client of HBase 2.6.4.
#   mixed-pages-test.sh     about two minutes
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# CLUSTER_RUNS       is set: the cluster in CLUSTER_DIR is used, and left
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed-pages}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/../compat/java.sh"
. "$HERE/mixed.sh"
trap "[ -n \"\${CLUSTER_RUNS:-}\" ] || cluster down" EXIT
trap 'exit 143' TERM INT

page() { curl -sSf --max-time 10 "http://$INFO$1" || fail "no answer to $1"; }
expect() { # expect PATH TEXT...: the page has each text
  local path="$1" found text
  shift
  found="$(page "$path")"
  for text in "$@"; do
    grep -qF -- "$text" <<< "$found" || fail "$path has no \"$text\": $(head -c 2000 <<< "$found")"
  done
  echo "$path: ok"
}
expect_none() { # expect_none PATH TEXT
  local found
  found="$(page "$1")"
  ! grep -qF -- "$2" <<< "$found" || fail "$1 has \"$2\""
}

[ -n "${CLUSTER_RUNS:-}" ] || cluster up --parts "zookeeper hdfs hbaseservers" --seconds 900 > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of halcyon1)" THEIRS="$(name_of hregionserver1)"
INFO="$(sed -n 's|^regionserver-info http://\(.*\)/$|\1|p' "$CLUSTER_DIR/halcyon1/log" | tail -n 1)"
MASTER="$(sed -n 's/^master //p' "$CLUSTER_DIR/halcyon1/log" | tail -n 1)"
echo "servers: $OURS (Halcyon, pages at $INFO), $THEIRS (HBase)"
sh_halcyon "create 'pages', 'f'; put 'pages', 'r', 'f:q', 'seen'" > /dev/null
move_all pages "$OURS"
expect_count pages 1 "moved to Halcyon's server"
REGION="$(regions pages)"

PLACE=("$OURS" "$MASTER" "$ZK/hbase" "2 live, 0 draining" "valid for" "hdfs://")
expect /rs-status "${PLACE[@]}" "$REGION"
expect /state "halcyon" "regionserver" "${PLACE[@]}" "$REGION"
expect /api/v1/summary '"scope":"server"' "$OURS" "${PLACE[@]}"
expect /api/v1/tables '"scope":"server"' '"pages"'
expect '/jmx?qry=Hadoop:service=HBase,name=RegionServer,*' '"tag.serverName": "'"$OURS" '"regionCount": ' sub=IPC sub=WAL \
  "Namespace_default_table_pages_region_${REGION}_metric_writeRequestCount"
expect_none /jmx 'name=Master'
expect /prometheus "server_region_count{"
expect /metrics halcyon_regionserver_gets_total
expect /stalls cause
expect /api/v1/slow-calls '"calls"'
expect /api/v1/settings "hbase.rootdir" "hdfs://"
expect /conf "<configuration>"
expect /health OK
expect '/prof?seconds=1&output=collapsed' ";"
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://$INFO/master-status")" = 404 ] || fail "a region server has no /master-status"

client26_classes
found="$(client26 halcyon.compat.registry.Registry "localhost:$(cut -d, -f2 <<< "$OURS")" pages r)"
[ "$(grep -c '^value seen' <<< "$found")" = 3 ] && [ "$(grep -c '^servers 2' <<< "$found")" = 3 ] || fail "RPC registry: $found"
grep -qFx "pages $OURS ${INFO##*:}" <<< "$found" || fail "the master has another port for the pages of $OURS than ${INFO##*:}: $found"
echo "a client that knows only Halcyon's server found the cluster $(sed -n 's/^cluster //p' <<< "$found" | head -n 1) and read a row"
cluster kill hmaster
wait_master() { ! page /rs-status | grep -qF "$MASTER"; }
wait_for 30 wait_master
expect /rs-status "<td>Active master</td><td>none</td>"
cluster start hmaster
wait_back() { page /rs-status | grep -q "<td>Active master</td><td>.*,$(cut -d, -f2 <<< "$MASTER"),"; }
wait_for 60 wait_back
echo "mixed-pages-test: passed"
