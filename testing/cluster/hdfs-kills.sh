#!/usr/bin/env bash
# Kills a standalone server whose root directory is in HDFS while a Java client writes, starts it again, and asks for every row
# that it had acknowledged (../compat/kill9.sh). Archive and old WALs are cleaned within seconds: a server that is killed every half
# minute never comes to its usual turn, and 50 rounds would fill 50 GB.
#   hdfs-kills.sh [ROUNDS]    default 10
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hdfs-kills}"
export HERE ROUNDS="${1:-10}"
# shellcheck disable=SC2016
exec "$HERE/cluster.sh" run --parts hdfs --seconds $((300 + ROUNDS * 120)) bash -c '
  site="$CLUSTER_DIR/site"
  mkdir -p "$site" && cp "$CLUSTER_CONF"/core-site.xml "$CLUSTER_CONF"/hdfs-site.xml "$site"
  {
    echo "<configuration>"
    for setting in hbase.master.cleaner.interval:3000 hbase.master.hfilecleaner.ttl:20000 hbase.master.logcleaner.ttl:20000 \
        hbase.regionserver.storefile.refresh.period:5000; do
      echo "<property><name>${setting%:*}</name><value>${setting#*:}</value></property>"
    done
    echo "</configuration>"
  } > "$site/hbase-site.xml"
  SERVER_OPTIONS="--config $site --root $CLUSTER_HDFS/halcyon" "$HERE/../compat/kill9.sh" "$ROUNDS"'
