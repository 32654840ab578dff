#!/usr/bin/env bash
# HBase's own HBCK2 1.3.0 (hbase-operator-tools) runs its commands on Halcyon; each is judged by what it did, not by what it says.
#   hbck2.sh               about a minute and a half
# HALCYON_HBCK2_SOURCE   a checkout of apache/hbase-operator-tools at rel/1.3.0: the tool is not on Maven Central. It is compiled here
# HALCYON                the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB      HBase's jars, as for files.sh
# ROOT_DIR               where data, logs and outputs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-hbck2.XXXXXX")}"
mkdir -p "$DIR/conf"
DIR="$(cd "$DIR" && pwd)"
[ -x "$HALCYON" ] || { echo "no binary at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/hbck2_tool.sh"
CONF="$DIR/conf"
trap server_kill EXIT

fail() { echo "hbck2: $*" >&2; exit 1; }
shell() { timeout 60 "$HALCYON" shell --zookeeper "$ZK" -e "$1"; }
is_served() { # the row of the second region
  shell "get 't', 'h'" | grep -q 'value=1' || fail "the row of the region is not read"
}

hbck2_fetch
server_start "$DIR/data" "$DIR/server.log"
cat > "$DIR/conf/hbase-site.xml" <<XML
<configuration>
  <property><name>hbase.rootdir</name><value>file://$DIR/data</value></property>
  <property><name>hbase.zookeeper.quorum</name><value>127.0.0.1</value></property>
  <property><name>hbase.zookeeper.property.clientPort</name><value>${ZK#*:}</value></property>
  <property><name>hbase.client.retries.number</name><value>3</value></property>
</configuration>
XML
shell "create 't', 'f', SPLITS => ['g', 'p']
put 't', 'h', 'f:q', '1'
flush 't'" > /dev/null
row="$(shell "list_regions 't'" | grep -o 't,g,[0-9]*\.[0-9a-f]*\.')"
region="${row%.}" region="${region##*.}"

run setTableState t DISABLED
says 'state=ENABLED'
shell "is_disabled 't'" | grep -q true || fail "setTableState has not disabled the table"
run setTableState t ENABLED
shell "is_enabled 't'" | grep -q true || fail "setTableState has not enabled the table"

run unassigns "$region"
await_state "$row" CLOSED
run assigns "$region"
await_state "$row" OPEN
is_served

run setRegionState "$region" CLOSED
says 'from OPEN to CLOSED'
[ "$(state "$row")" = CLOSED ] || fail "setRegionState has not written CLOSED"
run setRegionState "$region" OPEN
[ "$(state "$row")" = OPEN ] || fail "setRegionState has not written OPEN"

run bypass 999999 # no such procedure
says false
run recoverUnknown
if hbck2 scheduleRecoveries gone.example,1,7; then fail "scheduleRecoveries of one process succeeded"; fi
grep -q 'master and region server are one process' "$DIR/err" || fail "scheduleRecoveries does not say why it is refused"

for command in reportMissingRegionsInMeta extraRegionsInMeta; do
  run "$command"
  says 't -> No mismatching regions'
done
run filesystem
says 'HFile Summary: OK'
run replication
run regionInfoMismatch
says 'Found 0 regions to fix'
run generateMissingTableDescriptorFile t

shell "deleteall 'hbase:meta', '$row'" > /dev/null
run reportMissingRegionsInMeta
says "$region"
run addFsRegionsMissingInMeta default:t
says 'Regions re-added into Meta: 1'
[ "$(state "$row")" = CLOSED ] || fail "addFsRegionsMissingInMeta has written no row"
shell "deleteall 'hbase:meta', '$row'" > /dev/null
run fixMeta
await_state "$row" OPEN
is_served
rm -rf "$DIR/data/data/default/t/.tabledesc"
run generateMissingTableDescriptorFile t
ls "$DIR"/data/data/default/t/.tabledesc/.tableinfo.* > /dev/null || fail "no descriptor was written"
server_stop
[ -n "$KEEP" ] || rm -rf "$DIR"
echo "HBCK2's commands work with Halcyon"
