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
# KILL               one episode in so many kills both servers in its middle, default 12; 0: none
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
declare -A KINDS=([hbase]="$REFERENCE" [halcyon]="$AGAINST") PIDS=([hbase]="" [halcyon]="") ZOOKEEPERS=() PORTS=() STARTS=([hbase]=0 [halcyon]=0)
CLIENT=""
finish() {
  local code=$?
  # timeout hands this signal on to the client
  [ -z "$CLIENT" ] || kill "$CLIENT" 2> /dev/null || true
  server_kill
  hbase_kill
  process_kill "${PIDS[hbase]}"
  process_kill "${PIDS[halcyon]}"
  if [ $code -eq 0 ] && [ -z "${DIFFERENTIAL_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
trap 'exit 130' INT TERM
mkdir -p "$DIR/classes" "$DIR/conf" "$DIR/kills"
hbase_fetch
"${JAVA}c" -nowarn -Xlint:-options -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE"/src/halcyon/differential/*.java 2> "$DIR/javac.log" ||
  { cat "$DIR/javac.log" >&2; exit 70; }

# No file is compacted or dropped unless the script says so: when a server does it by itself depends on time. The client switches compactions
# on for those of the script. What is in memory is soon moved to pipelines, where a family wants that.
COMMON="hbase.regionserver.compaction.enabled=false hbase.hstore.compaction.min=1000 hbase.hstore.blockingStoreFiles=10000 \
  hbase.hregion.majorcompaction=0 hbase.store.delete.expired.storefile=false hbase.memstore.inmemoryflush.threshold.factor=0.00001"
# Hadoop's local file system keeps the last bytes of a file in the JVM for its checksums; the raw one gives them to the kernel before a kill.
HBASE_PROPERTIES="$COMMON fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem hbase.wal.provider=filesystem hbase.regionserver.handler.count=10 \
  hbase.snapshot.enabled=true hbase.client.scanner.timeout.period=5000 ${HBASE_PROPERTIES:-}"
{
  echo '<configuration>'
  for property in $COMMON; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
  echo '</configuration>'
} > "$DIR/conf/hbase-site.xml"

start() { # start hbase|halcyon: what takes the part of that system; on its own ports and data if it had been started before
  local name="$1" number="${STARTS[$1]}"
  [ -n "${PORTS[$name]:-}" ] || PORTS[$name]="$(free_port) $(free_port) $(free_port)"
  STARTS[$name]=$((number + 1))
  if [ "${KINDS[$name]}" = hbase ]; then
    mkdir -p "$DIR/$name"
    HBASE_KEEP_ZK="${number#0}" HBASE_PORTS="${PORTS[$name]}" hbase_start "$DIR/$name" "$DIR/$name-root"
    PIDS[$name]="$HBASE_PID" HBASE_PID="" ZOOKEEPERS[$name]="$HBASE_ZK"
  else
    SERVER_PORTS="${PORTS[$name]}" SERVER_OPTIONS="--config $DIR/conf ${SERVER_OPTIONS:-}" server_start "$DIR/$name-data" "$DIR/$name-$number.log"
    PIDS[$name]="$SERVER_PID" SERVER_PID="" ZOOKEEPERS[$name]="$ZK"
  fi
}

restart() { # restart hbase|halcyon: kills it, and starts it again
  local name="$1"
  if [ "${KINDS[$name]}" = hbase ]; then
    process_kill "${PIDS[$name]}"
  else
    SERVER_PID="${PIDS[$name]}" SERVER_SAID="$DIR/$name-$((STARTS[$name] - 1)).log"
    server_kill_running || return
  fi
  PIDS[$name]=""
  start "$name" || return
  : > "$DIR/kills/$name.done"
}

start hbase
start halcyon

client() { # client CLASS ARGUMENT...: in the background, so that a signal ends it
  local name code=0 options=("-Dseconds=$DURATION" "-Dkills=$DIR/kills" "-Dlog4j.configuration=file:$HERE/log4j.properties") value
  for name in SEED STEPS EPISODES ONLY STOP SHRINK ADMIN KILL NVB VERBOSE FACT; do
    value="${!name:-}"
    [ -z "$value" ] || options+=("-D${name,,}=$value")
  done
  timeout "$((DURATION + 1200))" "$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" "${options[@]}" ${JVM_OPTIONS:-} -cp "${CLASSES_FIRST:+$CLASSES_FIRST:}$DIR/classes:$HBASE_LIB/*" \
    "halcyon.differential.$1" "${@:2}" 2> "$DIR/client.log" < /dev/null &
  CLIENT=$!
  while kill -0 "$CLIENT" 2> /dev/null; do
    for name in hbase halcyon; do
      [ -e "$DIR/kills/$name" ] || continue
      rm "$DIR/kills/$name"
      restart "$name" || return
    done
    sleep 0.1
  done
  wait "$CLIENT" || code=$?
  CLIENT=""
  if [ $code -gt 1 ]; then grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; fi
  return $code
}

case "$COMMAND" in
  script) client Main "${ZOOKEEPERS[hbase]}" "${ZOOKEEPERS[halcyon]}" "${DELIBERATE:-$HERE/deliberate.txt}" "$DIR/differences.txt" ;;
  semantics) client Semantics "${ZOOKEEPERS[hbase]}" "${ZOOKEEPERS[halcyon]}" ;;
  *) echo "unknown command $COMMAND" >&2; exit 64 ;;
esac
