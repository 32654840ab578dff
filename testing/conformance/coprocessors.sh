#!/usr/bin/env bash
# Runs HBase's own tests of coprocessors (coprocessors.txt), each class against a Halcyon of its own with a JVM for coprocessors. The classes of
# those tests are in HBase's test jars, which are on the class path of that JVM.
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
CONFORMANCE_HOST="$COPROCESSOR_HOST_JAR:$CACHE/lib/*" "$HERE/run.sh" --own --list "$HERE/coprocessors.txt" "${1:-.}"
