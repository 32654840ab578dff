#!/usr/bin/env bash
# Starts the server of one test class, for the Java agent, with the properties that the test has set. Not to be called by hand.
#   own.sh DIR MASTERS SERVERS     DIR/properties.xml has the properties; data and logs go into DIR; files that are in DIR/data stay
# Prints the addresses, then "ready". The server ends with standard input; "kill" there is SIGKILL. With a cluster "server-ORDER PORT" there
# is an order of cluster.sh.
# CONFORMANCE_SERVER   halcyon (default), hbase for a real HBase 2.6.4, or cluster: MASTERS masters and SERVERS region servers of Halcyon on the
#                      ZooKeeper and the HDFS of CLUSTER_DIR
# HALCYON, CONFORMANCE_CACHE, CONFORMANCE_HOST (the class path of the JVM for coprocessors) are set by run.sh
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DIR="$1"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
HALCYON_HBASE_LIB="$CONFORMANCE_CACHE/lib"
. "$HERE/../compat/hbase.sh"
CONFORMANCE_SERVER="${CONFORMANCE_SERVER:-halcyon}"
if [ "$CONFORMANCE_SERVER" = hbase ]; then
  trap hbase_kill EXIT
  HBASE_SITE="$DIR/properties.xml" hbase_start "$DIR/hbase" "$DIR/data"
  echo "zookeeper $HBASE_ZK"
  echo "master 127.0.0.1:$(sed -n 's/.*<name>hbase.master.port<.name><value>\([0-9]*\)<.*/\1/p' "$DIR/hbase/conf/hbase-site.xml")"
elif [ "$CONFORMANCE_SERVER" = cluster ]; then
  . "$HERE/cluster.sh"
  trap servers_kill EXIT
  servers_start "$DIR" "$2" "$3"
else
  trap server_kill EXIT
  mkdir -p "$DIR/conf"
  {
    echo '<configuration>'
    # HBase looks for compactions that are due each 10,000 s (hbase.server.compactchecker.interval.multiplier).
    echo "<property><name>hbase.server.compactchecker.interval</name><value>10000000</value></property>"
    cat "$DIR/properties.xml"
    [ "${CONFORMANCE_HOST:-none}" = none ] || echo "<property><name>halcyon.coprocessor.host.classpath</name><value>$CONFORMANCE_HOST</value></property>"
    echo '</configuration>'
  } > "$DIR/conf/hbase-site.xml"
  # Coprocessors of masters and the like do not run; only the tests that need them fail.
  # the ports of the one before: clients know them
  [ ! -e "$DIR/ports" ] || SERVER_PORTS="$(cat "$DIR/ports")"
  SERVER_MEMORY="${SERVER_MEMORY:-1g}" SERVER_OPTIONS="--config $DIR/conf --accept-without coprocessors" server_start "$DIR/data" "$DIR/server.log"
  echo "${ZK##*:} ${MASTER##*:} ${REGIONSERVER##*:}" > "$DIR/ports"
  echo "zookeeper $ZK"
  echo "master $MASTER"
fi
echo ready
while read -r order port || order=stop; do
  { [ "$CONFORMANCE_SERVER" = cluster ] && [[ "$order" == server-* ]]; } || break
  server_order "${order#server-}" $port
done
[ "$order" = kill ] || [ -z "$SERVER_PID" ] || server_stop
[ "$order" = kill ] || [ "$CONFORMANCE_SERVER" != cluster ] || servers_stop
