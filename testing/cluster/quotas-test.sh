#!/usr/bin/env bash
# Quotas in clusters of several processes: the client of testing/compat/quotas.sh, and its answers, which are those of a standalone HBase 2.6.4.
#   quotas-test.sh [own|hbase]...    the master: Halcyon's or HBase's; default both, one after the other
#   quotas-test.sh answers           two servers of HBase write anew how they share limits of scope CLUSTER
# The only region server is a Halcyon server, because limits are those of one server. Then there are two, and share limits of scope
# CLUSTER as two servers of HBase 2.6.4 do. HDFS is below all.
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

up() { # up MASTERS OPTION...: a cluster with quotas
  local masters="$1"
  shift
  cluster up --parts "zookeeper hdfs hbaseservers" --masters "$masters" --seconds 1800 --property hbase.quota.enabled=true \
    --property hbase.master.quotas.observer.chore.period=1000 --property hbase.master.quotas.observer.chore.delay=100 \
    --property hbase.regionserver.quotas.policy.refresher.chore.period=1000 \
    --property hbase.regionserver.quotas.region.size.reporting.chore.period=1000 "$@" > /dev/null
}
ask() { # ask CLIENT FILE: its answers
  timeout 1200 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" "-Dsettle=${SETTLE_MS:-1500}" -cp "$HBASE_LIB/*" "$QUOTAS/$1.java" "$(setting_of zookeeper)" \
    > "$2" 2> "$CLUSTER_DIR/client.log" < /dev/null || fail "$1 failed: $CLUSTER_DIR/client.log"
}
compare() { # compare CLIENT FILE MASTER
  ask "$1" "$CLUSTER_DIR/answers.txt"
  diff "$QUOTAS/$2" "$CLUSTER_DIR/answers.txt" >&2 || fail "quotas under a master of kind $3 work otherwise than in HBase"
  echo "quotas-test: $(wc -l < "$CLUSTER_DIR/answers.txt") answers of $1 under a master of kind $3 are HBase's"
}

for kind in "${@:-own hbase}"; do
  for master in $kind; do
    case "$master" in
      own) masters=1 ;;
      hbase) masters=0 ;;
      answers)
        up 0 --hregionservers 2 --halcyons 0
        ask ClusterLimits "$CLUSTER_DIR/answers.txt"
        cp "$CLUSTER_DIR/answers.txt" "$QUOTAS/cluster-answers.txt"
        cluster down
        continue
        ;;
      *) echo "a master is own or hbase, not $master" >&2; exit 64 ;;
    esac
    up "$masters" --hregionservers 0 --halcyons 1
    compare Quotas answers.txt "$master"
    cluster down
    up "$masters" --hregionservers 0 --halcyons 2
    compare ClusterLimits cluster-answers.txt "$master"
    cluster down
  done
done
