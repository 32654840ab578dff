#!/usr/bin/env bash
# HBase's client starts a trace, and the server's spans of it arrive at a collector of the test's own.
# HALCYON          the server's binary
# TRACES_DIR       where data and output of the server go
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
: "${HALCYON:?the server binary}" "${TRACES_DIR:?a directory}"
. "$HERE/server.sh"
trap server_kill EXIT

mkdir -p "$TRACES_DIR"
collector="$(free_port)"
export OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:$collector" OTEL_BSP_SCHEDULE_DELAY=100
server_start "$TRACES_DIR/data" "$TRACES_DIR/server.log"
unset OTEL_TRACES_EXPORTER OTEL_EXPORTER_OTLP_ENDPOINT OTEL_BSP_SCHEDULE_DELAY
timeout 300 mvn -B -ntp -q -f "$HERE/pom.xml" -pl client26 test -Dtest=TracesTest -Dcompat.collector="$collector" \
  -Dcompat.zk="$ZK" -Dcompat.registry="$MASTER" -Dcompat.halcyon=true < /dev/null
echo "traces: the server continues those of HBase's client"
server_stop
