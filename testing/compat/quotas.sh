#!/usr/bin/env bash
# What quotas let through and what they refuse, by a client of HBase, against the answers of HBase 2.6.4 (quotas/answers.txt).
#   quotas.sh            starts a Halcyon and compares
#   quotas.sh --hbase    starts an HBase and writes the file anew
# HALCYON     the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# QUOTAS_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch quotas

# The chores of space quotas run each second instead of each minute.
PROPERTIES="hbase.quota.enabled=true hbase.master.quotas.observer.chore.period=1000 hbase.master.quotas.observer.chore.delay=100
  hbase.regionserver.quotas.policy.refresher.chore.period=1000 hbase.regionserver.quotas.policy.refresher.chore.delay=100
  hbase.regionserver.quotas.region.size.reporting.chore.period=1000 hbase.regionserver.quotas.region.size.reporting.chore.delay=100"

answers() { # answers ZOOKEEPER FILE SETTLE_MS
  (cd "$DIR" && timeout 900 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" "-Dsettle=$3" -cp "$HBASE_LIB/*" "$HERE/quotas/Quotas.java" "$1" \
    > "$2" 2> "$DIR/client.log" < /dev/null) || { tail -n 20 "$DIR/client.log" >&2; return 1; }
}

hbase_fetch
if [ "${1:-}" = --hbase ]; then
  HBASE_PROPERTIES="$PROPERTIES"
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  answers "$HBASE_ZK" "$DIR/answers.txt" 1000
  cp "$DIR/answers.txt" "$HERE/quotas/answers.txt"
  exit 0
fi
mkdir -p "$DIR/conf"
{
  echo '<configuration>'
  for property in $PROPERTIES; do
    echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
  done
  echo '</configuration>'
} > "$DIR/conf/hbase-site.xml"
SERVER_OPTIONS="--config $DIR/conf"
server_start "$DIR/data" "$DIR/server.log"
answers "$ZK" "$DIR/answers.txt" 20
server_stop
diff "$HERE/quotas/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: quotas work otherwise than HBase's" >&2; exit 1; }
echo "$(wc -l < "$DIR/answers.txt") answers about quotas are HBase's"
