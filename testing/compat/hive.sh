#!/usr/bin/env bash
# The output format with which Hive makes files for a bulk load (hive.hbase.generatehfiles), and HBase's tool that loads them.
# HALCYON    the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# ROWS       default 5000
# HIVE_DIR   data and logs, default a fresh directory that is removed after success
# HIVE_LIB   where Hive's jars are or go, default ~/.cache/halcyon/hive-3.1.3-lib
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch hive
HIVE_LIB="${HIVE_LIB:-$HOME/.cache/halcyon/hive-3.1.3-lib}"
maven_jars "$HERE/hive/pom.xml" "$HIVE_LIB"
TOOLS_LIB="${HALCYON_HBASE_TOOLS_LIB:-$HOME/.cache/halcyon/hbase-tools-lib-2.6.4}"
[ -n "${HALCYON_HBASE_TOOLS_LIB:-}" ] || maven_jars "$HERE/../cluster/tools/pom.xml" "$TOOLS_LIB"
"${JAVA}c" -nowarn -d "$DIR/classes" -cp "$TOOLS_LIB/*:$HIVE_LIB/*" "$HERE/hive/HiveLoad.java" 2> "$DIR/javac.log"
server_start "$DIR/data" "$DIR/server.log"
(cd "$DIR" && timeout 300 "$JAVA" -Xmx500m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$TOOLS_LIB/*:$HIVE_LIB/*" HiveLoad "$ZK" "$DIR" "${ROWS:-5000}" \
  2> "$DIR/client.log" < /dev/null) || { grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; exit 1; }
server_stop
