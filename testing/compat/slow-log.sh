#!/usr/bin/env bash
# HBase's client reads slow calls and large answers of a server that keeps them for clients, and the table hbase:slowlog.
# HALCYON          the server's binary
# SLOW_LOG_DIR     where data and output of the server go
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${HALCYON:?the server binary}" "${SLOW_LOG_DIR:?a directory}"
. "$HERE/server.sh"
trap server_kill EXIT

mkdir -p "$SLOW_LOG_DIR/conf"
cat > "$SLOW_LOG_DIR/conf/hbase-site.xml" << 'XML'
<?xml version="1.0"?>
<configuration>
  <property><name>hbase.regionserver.slowlog.buffer.enabled</name><value>true</value></property>
  <property><name>hbase.regionserver.slowlog.systable.enabled</name><value>true</value></property>
  <property><name>hbase.slowlog.systable.chore.duration</name><value>1000</value></property>
  <property><name>hbase.ipc.warn.response.time.scan</name><value>0</value></property>
  <property><name>hbase.ipc.warn.response.size</name><value>1048576</value></property>
</configuration>
XML
SERVER_OPTIONS="--config $SLOW_LOG_DIR/conf" server_start "$SLOW_LOG_DIR/data" "$SLOW_LOG_DIR/server.log"
timeout 300 mvn -B -ntp -q -f "$HERE/pom.xml" -pl client26 test -Dtest=SlowLogTest -Dcompat.slowlog=true \
  -Dcompat.zk="$ZK" -Dcompat.registry="$MASTER" -Dcompat.halcyon=true < /dev/null
lines="$(grep -c '(responseTooSlow): {"starttimems":' "$SLOW_LOG_DIR/server.log")" || true
[ "${lines:-0}" -gt 0 ] || { echo "no line (responseTooSlow) in $SLOW_LOG_DIR/server.log" >&2; exit 1; }
grep -q '(responseTooLarge): {"starttimems":' "$SLOW_LOG_DIR/server.log" || { echo "no line (responseTooLarge)" >&2; exit 1; }
echo "slow log: read by HBase's client, $lines lines (responseTooSlow)"
server_stop
