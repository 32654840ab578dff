#!/usr/bin/env bash
# Quotas in clusters of several processes: the client of testing/compat/quotas.sh, and its answers, which are those of a standalone HBase 2.6.4.
#   quotas-test.sh [own|hbase]...    the master: Halcyon's or HBase's; default both, one after the other
# The only region server is a Halcyon server, because limits are those of one server. HDFS is below both.
# HALCYON     the binary, default target/release/halcyon below CARGO_TARGET_DIR
# SETTLE_MS   how long a change may take until a region server obeys it, default 1500
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-quotas-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
QUOTAS="$HERE/../compat/quotas"
hbase_fetch

for kind in "${@:-own hbase}"; do
  for master in $kind; do
    case "$master" in
      own) masters=1 ;;
      hbase) masters=0 ;;
      *) echo "a master is own or hbase, not $master" >&2; exit 64 ;;
    esac
    cluster up --parts "zookeeper hdfs hbaseservers" --hregionservers 0 --halcyons 1 --masters "$masters" --seconds 1800 \
      --property hbase.quota.enabled=true --property hbase.master.quotas.observer.chore.period=1000 \
      --property hbase.master.quotas.observer.chore.delay=100 \
      --property hbase.regionserver.quotas.policy.refresher.chore.period=1000 \
      --property hbase.regionserver.quotas.region.size.reporting.chore.period=1000 > /dev/null
    answers="$CLUSTER_DIR/answers.txt"
    timeout 1200 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" "-Dsettle=${SETTLE_MS:-1500}" -cp "$HBASE_LIB/*" "$QUOTAS/Quotas.java" \
      "$(setting_of zookeeper)" > "$answers" 2> "$CLUSTER_DIR/client.log" < /dev/null || fail "the client failed: $CLUSTER_DIR/client.log"
    diff "$QUOTAS/answers.txt" "$answers" >&2 || fail "quotas under a master of kind $master work otherwise than in HBase"
    echo "quotas-test: $(wc -l < "$answers") answers under a master of kind $master are HBase's"
    cluster down
  done
done
