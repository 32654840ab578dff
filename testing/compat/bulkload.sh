#!/usr/bin/env bash
# Bulk loads with HBase 2.6.4's own BulkLoadHFilesTool (bulkload/BulkLoads.java) against a server of its own.
# HALCYON is the program, default target/release/halcyon below CARGO_TARGET_DIR. The jars are those of files.sh.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
. "$HERE/java.sh"
. "$HERE/server.sh"
[ -n "${HALCYON_HBASE_LIB:-}" ] || maven_jars "$HERE/files/pom.xml" "$LIB"
WORK="$(mktemp -d)"
trap 'server_kill; rm -rf "$WORK"' EXIT
javac -nowarn -d "$WORK/classes" -cp "$LIB/*" "$HERE/bulkload/BulkLoads.java"
server_start "$WORK/data" "$WORK/log"
timeout 240 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$WORK/classes:$LIB/*" BulkLoads "$ZK" "file://$WORK/data" "$WORK/files"
