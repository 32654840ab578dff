#!/usr/bin/env bash
# Writes a row to a running server with HBase's Java client and reads it back.
#   run.sh [PORT]   PORT of the ZooKeeper endpoint, default 2181
# Needs Maven and a JDK from 17 to 23; Maven fetches the client on the first run.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
CLASSPATH_FILE="$(mktemp)"
trap 'rm -f "$CLASSPATH_FILE"' EXIT
mvn -q -B -f "$HERE/pom.xml" dependency:build-classpath -Dmdep.outputFile="$CLASSPATH_FILE"
java -cp "$(cat "$CLASSPATH_FILE")" "$HERE/FirstRow.java" "$@"
