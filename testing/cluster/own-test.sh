#!/usr/bin/env bash
# What administrators do in a cluster of Halcyon: snapshots, splits, merges, changes of tables, decommissioning, the balancer,
# draining_servers.rb and graceful_stop.sh by HBase's own classes, a server that is stopped, and the stop and start of everything.
# Rows are counted after each step. Some minutes.
#   own-test.sh
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-own-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
TOOLS_LIB="${HALCYON_HBASE_TOOLS_LIB:-$HOME/.cache/halcyon/hbase-tools-lib-2.6.4}"
[ -n "${HALCYON_HBASE_TOOLS_LIB:-}" ] || maven_jars "$HERE/tools/pom.xml" "$TOOLS_LIB"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

write() { # write TABLE FROM TO
  seq "$2" "$3" | awk -v t="$1" '{ printf "put '\''%s'\'', '\''r%04d'\'', '\''f:q'\'', '\''v%d'\''\n", t, $1, $1 }' |
    "$HALCYON" shell --zookeeper "$ZK" > /dev/null
}
orders() { client26 halcyon.compat.mixed.Orders "$ZK" "$1"; }
has_regions() { [ "$(regions "$1" | wc -l)" = "$2" ]; } # has_regions TABLE COUNT
at() { "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" | grep -cF "$2" || true; } # at TABLE SERVER
tool() { # tool CLASS ARGUMENT...: a program of HBase or ZooKeeper
  timeout 300 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$TOOLS_LIB/*" "$@" > "$CLUSTER_DIR/tool.log" 2>&1 < /dev/null ||
    fail "$1: $(tail -n 5 "$CLUSTER_DIR/tool.log")"
}
exited() { # in order
  local found
  found="$(cluster status)" && grep -q "^$1 ended, 0$" <<< "$found"
}
is_empty() { [ "$(at t "$1")" = 0 ] && [ "$(meta_at)" != "$1" ]; }
has_some() { [ "$(at t "$1")" -gt 0 ]; }
meta_at() { sed -n 's/.*hbase:meta is open server=\([^ ]*\) .*/\1/p' <(sed 's/\x1b\[[0-9;]*m//g' "$CLUSTER_DIR/master1/log" "$CLUSTER_DIR/master2/log" | sort) | tail -n 1; }
server_at() { # server_at NAME: the process
  local process
  for process in halcyon1 halcyon2 halcyon3; do [ "$(name_of "$process")" != "$1" ] || echo "$process"; done
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 1800 > /dev/null
ZK="$(setting_of zookeeper)"
sh_halcyon "create 't', 'f', SPLITS => ['r0500', 'r1000', 'r1500']" > /dev/null
write t 0 1999
expect_count t 2000 "created"

sh_halcyon "snapshot 't', 's'; clone_snapshot 's', 'c'" > /dev/null
expect_count c 2000 "a clone of a snapshot, with rows that were in memory"
region="$(regions t | head -n 1)"
sh_halcyon "split '$region', 'r0250'" > /dev/null
wait_for 60 has_regions t 5
expect_count t 2000 "a region is split"
sh_halcyon "merge_region '$(regions c | sed -n 1p)', '$(regions c | sed -n 2p)'" > /dev/null
wait_for 60 has_regions c 3
expect_count c 2000 "regions of the clone are merged"
sh_halcyon "alter 't', {NAME => 'f', VERSIONS => 3}; disable 'c'; enable 'c'" > /dev/null
expect_count t 2000 "the table is changed"
expect_count c 2000 "the clone is disabled and enabled"
sh_halcyon "truncate 'c'" > /dev/null
expect_count c 0 "the clone is truncated"

meta="$(meta_at)"
sh_halcyon "decommission_regionservers ['$meta'], true" > /dev/null
wait_for 60 is_empty "$meta"
expect_count t 2000 "the server of hbase:meta is decommissioned, meta is at $(meta_at)"
sh_halcyon "list_decommissioned_regionservers" | grep -qF "$meta" || fail "$meta is not in the list of decommissioned servers"
sh_halcyon "recommission_regionserver '$meta'" > /dev/null
orders balance > "$CLUSTER_DIR/balance.log" 2>&1 || fail "balance: $(cat "$CLUSTER_DIR/balance.log")"
wait_for 60 has_some "$meta"
expect_count t 2000 "recommissioned and balanced: $(at t "$meta") regions there"

# draining_servers.rb makes this znode, and removes it
tool org.apache.zookeeper.ZooKeeperMain -server "$ZK" create "/hbase/draining/$meta"
sleep 2
sh_halcyon "create 'd', 'f', SPLITS => ['1', '2', '3', '4', '5']" > /dev/null
[ "$(at d "$meta")" = 0 ] || fail "a server that is drained got $(at d "$meta") regions of a new table"
tool org.apache.zookeeper.ZooKeeperMain -server "$ZK" delete "/hbase/draining/$meta"
sleep 2
sh_halcyon "disable 'd'; drop 'd'; create 'd', 'f', SPLITS => ['1', '2', '3', '4', '5']" > /dev/null
[ "$(at d "$meta")" -gt 0 ] || fail "a server that is not drained any more got no region of a new table"
echo "a server is drained, and not any more: $(at d "$meta") of 6 regions of a new table are there"

# as graceful_stop.sh: the balancer is off, RegionMover takes all regions away and notes them; it brings them back after the restart
sh_halcyon "balance_switch false" > /dev/null
process="$(server_at "$meta")" before="$(at t "$meta")"
port="${meta#*,}" port="${port%,*}"
[ "$before" -gt 0 ] || fail "no region of t is at $meta"
tool org.apache.hadoop.hbase.util.RegionMover -r "localhost:$port" -o unload -f "$CLUSTER_DIR/moved" -m 4 -t 200
is_empty "$meta" || fail "RegionMover has left regions: $(at t "$meta") of t"
cluster stop "$process"
wait_for 10 exited "$process"
cluster start "$process"
wait_for 60 has_another "$process" "$meta"
meta="$(name_of "$process")"
tool org.apache.hadoop.hbase.util.RegionMover -r "localhost:$port" -o load -f "$CLUSTER_DIR/moved" -m 4 -t 200
[ "$(at t "$meta")" = "$before" ] || fail "RegionMover brought $(at t "$meta") regions of t back, not $before"
sh_halcyon "balance_switch true" > /dev/null
expect_count t 2000 "graceful_stop: $before regions went and came back"

process="$(server_at "$meta")"
write t 2000 2099
cluster stop "$process"
wait_for 60 is_dead "$meta"
wait_for 10 exited "$process"
expect_count t 2100 "a server is stopped"

cluster start "$process"
wait_for 60 has_another "$process" "$meta"

write t 2100 2199
orders shutdown
for process in halcyon1 halcyon2 halcyon3; do wait_for 60 exited "$process"; done
for process in master1 master2; do wait_for 60 exited "$process"; done
for process in master1 master2 halcyon1 halcyon2 halcyon3; do cluster start "$process"; done
expect_count t 2200 "everything was stopped and started"
echo "own-test: passed"
