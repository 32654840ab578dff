#!/usr/bin/env bash
# The same random script on a real HBase 2.6.4 and on Halcyon, every answer compared.
#   run.sh                random scripts
#   run.sh semantics      the written facts of HBase's interface, on both
# SECONDS            seconds of random scripts, default 120
# SEED               the seed of the first episode, default 1; each episode after it has the next one
# STEPS              steps of an episode, default 400
# EPISODES           episodes, default as many as there is time for
# ONLY               the numbers of the steps to run, such as 0,3-7; default all
# FACT               only written facts whose names contain it
# STOP=first         ends with the first difference
# SHRINK             seconds to look for fewer steps that end in the same difference; default 0, none
# ADMIN              percent of administrative steps, default 7
# VERBOSE=true       prints each step, and HBase's errors
# NVB=true           families with NEW_VERSION_BEHAVIOR as well
# AGAINST=hbase      compares HBase with a second HBase, which must show no difference
# REFERENCE=halcyon  a second Halcyon takes HBase's part, for the judge of this test
# JVM_OPTIONS, CLASSES_FIRST   more options of the client's JVM, and what is before its class path
# HALCYON            the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB  HBase's jars, as for testing/compat/files.sh
# DIFFERENTIAL_DIR   data and logs, default a fresh directory that is removed after success
set -euo pipefail
# bash counts on from the number in the environment
DURATION=$((SECONDS > 0 ? SECONDS : 120))
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
COMMAND="${1:-script}"
AGAINST="${AGAINST:-halcyon}" REFERENCE="${REFERENCE:-hbase}"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
DIR="${DIFFERENTIAL_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-differential.XXXXXX")}"
FIRST_HBASE="" FIRST_HALCYON=""
CLIENT=""
finish() {
  local code=$?
  # timeout hands this signal on to the client
  [ -z "$CLIENT" ] || kill "$CLIENT" 2> /dev/null || true
  server_kill
  hbase_kill
  process_kill "$FIRST_HBASE"
  process_kill "$FIRST_HALCYON"
  if [ $code -eq 0 ] && [ -z "${DIFFERENTIAL_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
trap 'exit 130' INT TERM
mkdir -p "$DIR/classes" "$DIR/first" "$DIR/second" "$DIR/conf"
hbase_fetch
"${JAVA}c" -nowarn -Xlint:-options -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE"/src/halcyon/differential/*.java 2> "$DIR/javac.log" ||
  { cat "$DIR/javac.log" >&2; exit 70; }

# No file is compacted or dropped unless the script says so: when a server does it by itself depends on time.
COMMON="hbase.hstore.compaction.min=1000 hbase.hstore.blockingStoreFiles=10000 hbase.hregion.majorcompaction=0 hbase.store.delete.expired.storefile=false"
HBASE_PROPERTIES="$COMMON hbase.regionserver.handler.count=10 hbase.snapshot.enabled=true hbase.client.scanner.timeout.period=5000 ${HBASE_PROPERTIES:-}"
halcyon() { # halcyon DATA LOG
  {
    echo '<configuration>'
    for property in $COMMON; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
    echo '</configuration>'
  } > "$DIR/conf/hbase-site.xml"
  SERVER_OPTIONS="--config $DIR/conf ${SERVER_OPTIONS:-}" server_start "$1" "$2"
}
if [ "$REFERENCE" = halcyon ]; then
  halcyon "$DIR/first-data" "$DIR/first.log"
  FIRST_HALCYON="$SERVER_PID" ZOOKEEPER="$ZK"
else
  hbase_start "$DIR/first" "$DIR/first-root"
  ZOOKEEPER="$HBASE_ZK"
fi
if [ "$AGAINST" = hbase ]; then
  FIRST_HBASE="$HBASE_PID"
  hbase_start "$DIR/second" "$DIR/second-root"
  ZK="$HBASE_ZK"
else
  halcyon "$DIR/data" "$DIR/server.log"
fi

client() { # client CLASS ARGUMENT...: in the background, so that a signal ends it
  local options=("-Dseconds=$DURATION" "-Dlog4j.configuration=file:$HERE/log4j.properties") name value
  for name in SEED STEPS EPISODES ONLY STOP SHRINK ADMIN NVB VERBOSE FACT; do
    value="${!name:-}"
    [ -z "$value" ] || options+=("-D${name,,}=$value")
  done
  timeout "$((DURATION + 1200))" "$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" "${options[@]}" ${JVM_OPTIONS:-} -cp "${CLASSES_FIRST:+$CLASSES_FIRST:}$DIR/classes:$HBASE_LIB/*" \
    "halcyon.differential.$1" "${@:2}" 2> "$DIR/client.log" < /dev/null &
  CLIENT=$!
  local code=0
  wait "$CLIENT" || code=$?
  CLIENT=""
  if [ $code -gt 1 ]; then grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; fi
  return $code
}

case "$COMMAND" in
  script) client Main "$ZOOKEEPER" "$ZK" "${DELIBERATE:-$HERE/deliberate.txt}" "$DIR/differences.txt" ;;
  semantics) client Semantics "$ZOOKEEPER" "$ZK" ;;
  *) echo "unknown command $COMMAND" >&2; exit 64 ;;
esac
