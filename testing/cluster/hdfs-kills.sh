#!/usr/bin/env bash
# Kills a standalone server whose root directory is in HDFS while a Java client writes, starts it again, and asks for every row
# that it had acknowledged (../compat/kill9.sh).
#   hdfs-kills.sh [ROUNDS]    default 10
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hdfs-kills}"
export HERE ROUNDS="${1:-10}"
# shellcheck disable=SC2016
exec "$HERE/cluster.sh" run --parts hdfs --seconds $((300 + ROUNDS * 60)) bash -c \
  'HADOOP_CONF_DIR="$CLUSTER_CONF" SERVER_OPTIONS="--root $CLUSTER_HDFS/halcyon" "$HERE/../compat/kill9.sh" "$ROUNDS"'
