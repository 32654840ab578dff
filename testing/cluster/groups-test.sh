#!/usr/bin/env bash
# Region server groups and the normalizer, with HBase's own client classes: three servers of Halcyon and two masters. One or two minutes.
#   groups-test.sh
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-groups-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
GROUPS_LIB="${HALCYON_GROUPS_LIB:-$HOME/.cache/halcyon/hbase-rsgroup-lib}"
hbase_fetch
maven_jars "$HERE/groups/pom.xml" "$GROUPS_LIB"
trap 'cluster down; rm -f "$CLUSTER_DIR.script"' EXIT
trap 'exit 143' TERM INT

groups() { # groups ORDER ARGUMENT...
  local conf="$CLUSTER_DIR/groups-conf"
  if [ ! -d "$conf" ]; then
    mkdir "$conf"
    cp "$CLUSTER_DIR/client/"*.xml "$conf/"
    echo "log4j.rootLogger=OFF" > "$conf/log4j.properties"
  fi
  timeout 240 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$conf:$GROUPS_LIB/*:$HBASE_LIB/*" "$HERE/groups/Groups.java" "$@" 2> "$CLUSTER_DIR/groups.err" ||
    { tail -n 15 "$CLUSTER_DIR/groups.err" >&2; fail "groups $*"; }
}

SCRIPT="$CLUSTER_DIR.script" # a group for one table
printf '#!/bin/sh\n[ "$1 $2" != "default scripted" ] || echo shell\n' > "$SCRIPT"
chmod +x "$SCRIPT"
cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 900 \
  --property hbase.coprocessor.master.classes=org.apache.hadoop.hbase.rsgroup.RSGroupAdminEndpoint \
  --property hbase.master.loadbalancer.class=org.apache.hadoop.hbase.rsgroup.RSGroupBasedLoadBalancer \
  --property "hbase.rsgroup.table.mapping.script=$SCRIPT" > /dev/null
ZK="$(setting_of zookeeper)"
groups begin | tee "$CLUSTER_DIR/begin"
server="$(sed -n 's/^server //p' "$CLUSTER_DIR/begin")"
for process in halcyon1 halcyon2 halcyon3; do
  case "$(name_of "$process")" in *",${server##*:},"*) found="$process" ;; esac
done

cluster kill "$found"
groups wait "$server" none
cluster start "$found"
groups wait "$server" all

active="$(sed -n 's/^ready.*/1/p' "$CLUSTER_DIR/master1/log" | head -n 1)"
if [ -n "$active" ]; then cluster kill master1; else cluster kill master2; fi
groups wait "$server" all
groups after-restart "$server"
groups normalize

# the same by the shell
address_of() { name_of "$1" | sed 's/,\([0-9]*\),.*/:\1/'; }
for process in halcyon1 halcyon2 halcyon3; do [ "$process" = "$found" ] || other="$(address_of "$process")"; done
in_group() { sh_halcyon "get_rsgroup '$1'" | grep -qwF "$2"; } # in_group GROUP SERVER_OR_TABLE
all_at() { local seen; seen="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'")" && grep -q OPEN <<< "$seen" && ! grep -vqF "${2/:/,}," <<< "$seen"; }
sh_halcyon "add_rsgroup 'shell'; move_servers_rsgroup 'shell', ['$other']; create 'shell', 'f'; move_tables_rsgroup 'shell', ['shell']" > /dev/null
in_group shell "$other" && in_group shell shell || fail "the group of the shell is: $(sh_halcyon "get_rsgroup 'shell'")"
wait_for 30 all_at shell "$other"
sh_halcyon "create 'scripted', 'f'" > /dev/null
in_group shell scripted || fail "the script's group of the table was not taken: $(sh_halcyon "get_rsgroup 'shell'")"
wait_for 30 all_at scripted "$other"
sh_halcyon "disable 'scripted'; drop 'scripted'" > /dev/null
sh_halcyon "move_tables_rsgroup 'default', ['shell']; move_servers_rsgroup 'default', ['$other']; remove_rsgroup 'shell'" > /dev/null
in_group default "$other" && ! sh_halcyon "list_rsgroups" | grep -q '^shell' || fail "the group of the shell is still there: $(sh_halcyon list_rsgroups)"
echo "groups-test: passed"
