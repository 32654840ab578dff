#!/usr/bin/env bash
# The tests of `make test` that start servers, with the servers' root directories in HDFS. Tests that look at files of a server
# or change them stay on this machine's files.
#   hdfs-suite.sh [unit|compat]    default both
# HALCYON    the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hdfs-suite}"
export HERE WHAT="${1:-unit compat}"
# shellcheck disable=SC2016
exec "$HERE/cluster.sh" run --parts hdfs --property dfs.client.socket-timeout=60000 --seconds 7200 bash -c '
  export HALCYON_TEST_ROOT="$CLUSTER_HDFS/tests" HALCYON_TEST_WALS="$CLUSTER_HDFS/wals" HADOOP_CONF_DIR="$CLUSTER_CONF"
  result=0
  case "$WHAT" in *unit*) (cd "$HERE/../.." && cargo test --package halcyon --no-fail-fast) || result=1 ;; esac
  case "$WHAT" in *compat*) "$HERE/../compat/run.sh" || result=1 ;; esac
  exit "$result"'
