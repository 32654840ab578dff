#!/usr/bin/env bash
# HBase's own client tests (testing/conformance) against a cluster of HBase 2.6.4 with region servers of HBase and of Halcyon, or against
# a cluster of Halcyon.
#   mixed-conformance.sh [OPTION...] [REGEX]     OPTION and REGEX are those of testing/conformance/run.sh; without them all tests
# SERVERS            mixed (default): two region servers of HBase, two of Halcyon
#                    hbase: four of HBase, the cluster to compare with
#                    own: two masters and three region servers, all of Halcyon
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# RUN_DIR            results and logs of the tests, default a fresh directory that is removed after success
# CLUSTER_OPTIONS    more options of cluster.sh up
# TEST_SECONDS, CLASS_SECONDS      limits of one test and of one class, default 120 and 900
# Tests that mixed-conformance/SERVERS.txt names are not run: a table that cannot be opened holds up the tests after it.
# Exit 0 when each other selected test of ceiling.txt passed. In a run of all tests each server has to have had regions.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed-conformance}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SERVERS="${SERVERS:-mixed}"
case "$SERVERS" in
  mixed) THEIRS=2 OURS=2 MASTERS=0 MASTER=hmaster ;;
  hbase) THEIRS=4 OURS=0 MASTERS=0 MASTER=hmaster ;;
  own) THEIRS=0 OURS=3 MASTERS=2 MASTER=master1 ;;
  *) echo "SERVERS is mixed, hbase or own, not $SERVERS" >&2; exit 64 ;;
esac
[ "$OURS" = 0 ] || [ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/processes.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

opened() { # opened PROCESS: how many times it has opened a region of a table of the tests
  case "$1" in
    halcyon*) grep -c ' opened .*region=' "$CLUSTER_DIR/$1/log" ;;
    *) grep -c 'Post open deploy tasks for' "$CLUSTER_DIR/$1/log" ;;
  esac || true
}

cluster up --parts "zookeeper hdfs hbaseservers" --hregionservers "$THEIRS" --halcyons "$OURS" --masters "$MASTERS" --seconds 7200 ${CLUSTER_OPTIONS:-} > /dev/null
ZK="$(setting_of zookeeper)"
export TEST_SECONDS="${TEST_SECONDS:-120}" CLASS_SECONDS="${CLASS_SECONDS:-900}"
result=0
"$HERE/../conformance/run.sh" "$ZK" --masters "localhost:$(DIR="$CLUSTER_DIR" port_of $MASTER)" --root "$(setting_of hdfs)/hbase" \
  --known "$HERE/mixed-conformance/$SERVERS.txt" --without-known "$@" || result=$?
for process in $(cd "$CLUSTER_DIR" && ls -d hregionserver*/ halcyon*/ 2> /dev/null | tr -d /); do
  echo "$process opened $(opened "$process") regions"
  ! has_ended "$process" || fail "$process has ended; its log is in $CLUSTER_DIR/$process"
  [ "$result" != 0 ] || [ $# -gt 0 ] || [ "$(opened "$process")" -gt 0 ] || fail "$process had no region"
done
[ "$result" = 0 ] || fail "failed with servers: $SERVERS; logs of the cluster are in $CLUSTER_DIR"
echo "mixed-conformance: passed with servers: $SERVERS"
