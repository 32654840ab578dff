#!/usr/bin/env bash
# Spark 3.5 with HBase's input and output formats, and with its connector: bulk loads, reads and writes of tables, a snapshot. Every
# row is compared.
#   spark.sh [--hbase]   with HBase instead
# HALCYON    the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# ROWS       default 20000
# SPARK_DIR  data and logs, default a fresh directory that is removed after success
# SPARK_LIB  where Spark's jars are or go, default ~/.cache/halcyon/spark-3.5.7-lib
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch spark
SPARK_LIB="${SPARK_LIB:-$HOME/.cache/halcyon/spark-3.5.7-lib}"
maven_jars "$HERE/spark/pom.xml" "$SPARK_LIB"
[ -n "$(find "$DIR/classes" -newer "$HERE/spark/SparkLoad.java" -name SparkLoad.class 2> /dev/null)" ] ||
  "${JAVA}c" -nowarn -d "$DIR/classes" -cp "$SPARK_LIB/*" "$HERE/spark/SparkLoad.java" 2> "$DIR/javac.log"
mkdir -p "$DIR/root/data"
if [ "${1:-}" = --hbase ]; then
  hbase_fetch
  hbase_start "$DIR/hbase" "$DIR/root/data"
  ZK="$HBASE_ZK"
else
  server_start "$DIR/root/data" "$DIR/server.log"
fi
(cd "$DIR" && timeout 600 "$JAVA" -Xmx1g "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$SPARK_LIB/*" SparkLoad "$ZK" "$DIR/root/data" "$DIR" "${ROWS:-20000}" \
  2> "$DIR/client.log" < /dev/null) || { grep -v '^\(log4j\|SLF4J\|[0-9/]* [0-9:]* INFO\)' "$DIR/client.log" | tail -n 30 >&2; exit 1; }
[ "${1:-}" = --hbase ] || server_stop
