#!/usr/bin/env bash
# Runs HBase's own tests of coprocessors (coprocessors.txt) against a Halcyon with a JVM for coprocessors. The classes of those tests are in
# HBase's test jars, which are on the class path of that JVM.
#   coprocessors.sh [REGEX]    only the classes that match
# HALCYON, RUN_DIR, CONFORMANCE_CACHE   as of run.sh
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
CACHE="${CONFORMANCE_CACHE:-$HOME/.cache/halcyon/conformance-2.6.4}"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
. "$HERE/../compat/coprocessor-host.sh"
HOST_DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-coprocessor-tests.XXXXXX")"
trap 'rm -rf "$HOST_DIR"' EXIT
hbase_fetch
maven_jars "$HERE/pom.xml" "$CACHE/lib"
coprocessor_host "$HOST_DIR"
coprocessor_site "$COPROCESSOR_HOST_JAR:$CACHE/lib/*" > "$HOST_DIR/hbase-site.xml"
CONFORMANCE_OPTIONS="-Dconformance.coprocessors=true" SERVER_OPTIONS="--config $HOST_DIR" "$HERE/run.sh" --classes "$HERE/coprocessors.txt" "${1:-.}"
