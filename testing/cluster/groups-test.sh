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
trap 'cluster down' EXIT
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

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 900 \
  --property hbase.coprocessor.master.classes=org.apache.hadoop.hbase.rsgroup.RSGroupAdminEndpoint \
  --property hbase.master.loadbalancer.class=org.apache.hadoop.hbase.rsgroup.RSGroupBasedLoadBalancer > /dev/null
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
echo "groups-test: passed"
