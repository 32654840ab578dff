#!/usr/bin/env bash
# Runs HBase 2.6.4's own client tests against a server in another process.
#   run.sh [OPTIONS] [REGEX]                                    starts a Halcyon of its own, and ends it
#   run.sh ZOOKEEPER --masters HOST:PORT [OPTIONS] [REGEX]      against a server that is up; the tests drop all its tables
#   run.sh --registry HOST:PORT [OPTIONS] [REGEX]               the same, found by its RPC registry
#   run.sh --own [OPTIONS] [REGEX]                              a Halcyon for each class of own.txt, with the properties that the test sets
# REGEX              only the classes that match
# --quick            only a few quick classes, those of `make test`
# --list FILE        the tests that are to pass, "class test" a line, instead of ceiling.txt or own.txt
# --all              also the tests of these classes that are not in ceiling.txt; they do not decide whether the run passes
# --classes FILE     other classes, one a line; implies --all
# --root ADDRESS     the server's root directory, for tests that read it; known of a server that this script starts
# --known FILE       the known failures, default known-failures.txt
# --without-known    known failures are not run at all: some of them hold up those that follow
# CONFORMANCE_SERVER with --own: halcyon (default), hbase for a real HBase 2.6.4, or cluster for as many masters and region servers of
#                    Halcyon as the class asks for, on the ZooKeeper and the HDFS of ../cluster/cluster.sh, which this script starts
# CONFORMANCE_HOST   with --own: the class path of Halcyon's JVM for coprocessors, default this tree's and the jars of the tests; "none": no JVM
# HALCYON            the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# CONFORMANCE_CACHE  where the jars and the agent stay between runs, default ~/.cache/halcyon/conformance-2.6.4
# RUN_DIR            results and logs, default a fresh directory that is removed after success
# TEST_SECONDS, CLASS_SECONDS      limits of one test and of one class, default 120 and 400
# Exit 0 when each selected test of ceiling.txt passed that is not a known failure.
set -euo pipefail
export LC_ALL=C # one order for sort and comm
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
CACHE="${CONFORMANCE_CACHE:-$HOME/.cache/halcyon/conformance-2.6.4}"
CEILING="$HERE/ceiling.txt"
KNOWN="$HERE/known-failures.txt"
QUICK='TestCheckAndMutate$|TestIncrementsFromClientSide$|TestMultipleTimestamps$|TestColumnRangeFilter$'
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"

usage() {
  sed -n '2,/^set/{s/^# \{0,1\}//;/^set/!p;}' "$HERE/run.sh" >&2
  exit 64
}

ZK="" REGISTRY="" MASTER="" ROOT="" ALL="" CLASSES="" WITHOUT_KNOWN="" OWN="" REGEX=.
while [ $# -gt 0 ]; do
  case "$1" in
    --registry) REGISTRY="${2:?}" MASTER="${2:?}"; shift ;;
    --masters) MASTER="${2:?}"; shift ;;
    --classes) CLASSES="${2:?}" ALL=1; shift ;;
    --root) ROOT="${2:?}"; shift ;;
    --known) KNOWN="${2:?}"; shift ;;
    --without-known) WITHOUT_KNOWN=1 ;;
    --own) OWN="$HERE/own.sh" CEILING="$HERE/own.txt" ;;
    --list) CEILING="$(cd "$(dirname "${2:?}")" && pwd)/$(basename "$2")"; shift ;;
    --all) ALL=1 ;;
    --quick) REGEX="$QUICK" ;;
    -*) usage ;;
    *:[0-9]*) ZK="$1" ;;
    *) REGEX="$1" ;;
  esac
  shift
done

KEEP="${RUN_DIR:-}"
DIR="${RUN_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-conformance.XXXXXX")}"
mkdir -p "$DIR"
DIR="$(cd "$DIR" && pwd)"
RESULTS="$DIR/results.tsv"
finish() {
  local code=$?
  server_kill
  [ "${CONFORMANCE_SERVER:-}" != cluster ] || CLUSTER_DIR="$DIR/cluster" "$HERE/../cluster/cluster.sh" down
  if [ $code -eq 0 ] && [ -z "$KEEP" ]; then rm -rf "$DIR"; else echo "results and logs are in $DIR" >&2; fi
}
trap finish EXIT

maven_jars "$HERE/pom.xml" "$CACHE/lib"
if [ ! -e "$CACHE/agent.jar" ] || [ -n "$(find "$HERE/src" -newer "$CACHE/agent.jar" -name '*.java')" ]; then
  rm -rf "$CACHE/classes"
  "${JAVA}c" -nowarn -d "$CACHE/classes" -cp "$CACHE/lib/*" "$HERE"/src/halcyon/conformance/*.java
  printf 'Premain-Class: halcyon.conformance.Agent\n' > "$CACHE/manifest"
  jar cfm "$CACHE/agent.new" "$CACHE/manifest" -C "$CACHE/classes" .
  mv "$CACHE/agent.new" "$CACHE/agent.jar"
fi
if [ -n "$OWN" ] && [ -z "${CONFORMANCE_HOST:-}" ]; then
  HBASE_LIB="$CACHE/lib"
  . "$HERE/../compat/coprocessor-host.sh"
  coprocessor_host "$DIR/coprocessor-host"
  CONFORMANCE_HOST="$COPROCESSOR_HOST_JAR:$CACHE/lib/*"
fi
SERVER_TESTS="$(find "$CACHE/lib" -name 'hbase-server-*-tests.jar')"

export HALCYON CONFORMANCE_CACHE="$CACHE" CONFORMANCE_SERVER CONFORMANCE_HOST="${CONFORMANCE_HOST:-}"
if [ -z "$ZK$REGISTRY$OWN" ]; then
  [ -x "$HALCYON" ] || { echo "no server at $HALCYON: make build" >&2; exit 66; }
  SERVER_MEMORY="${SERVER_MEMORY:-1g}" server_start "$DIR/data" "$DIR/server.log"
  [ -n "$ROOT${HALCYON_TEST_ROOT:-}" ] || ROOT="file://$DIR/data"
fi
[ -n "$MASTER" ] || MASTER=127.0.0.1:1 # never the default port, where another server may listen

if [ "${CONFORMANCE_SERVER:-}" = cluster ]; then
  export CLUSTER_DIR="$DIR/cluster"
  "$HERE/../cluster/cluster.sh" up --memory --seconds 7200 --owner $$ > /dev/null
fi

# What a client's hbase-site.xml and log4j.properties would be: some tests copy the first about.
mkdir -p "$DIR/conf"
{
  echo '<configuration>'
  properties=(hbase.defaults.for.version.skip=true mapreduce.framework.name=local fs.defaultFS=file:///
    "hadoop.tmp.dir=$DIR/hadoop-tmp" "hbase.fs.tmp.dir=$DIR/staging" "hbase.rootdir=file://$DIR/no-root"
    hbase.unsafe.stream.capability.enforce=false "hbase.masters=$MASTER")
  if [ -n "$ZK" ]; then
    properties+=("hbase.zookeeper.quorum=${ZK%:*}" "hbase.zookeeper.property.clientPort=${ZK##*:}"
      hbase.client.registry.impl=org.apache.hadoop.hbase.client.ZKConnectionRegistry)
  else
    [ -n "$OWN" ] || properties+=("hbase.client.bootstrap.servers=$REGISTRY"
      hbase.client.registry.impl=org.apache.hadoop.hbase.client.RpcConnectionRegistry)
  fi
  for property in "${properties[@]}"; do
    echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
  done
  echo '</configuration>'
} > "$DIR/conf/hbase-site.xml"
if [ -n "$OWN" ]; then # what tests may rely on of the site file of HBase's own builds, which is in no jar
  mkdir -p "$DIR/site"
  {
    echo '<configuration>'
    for property in hbase.defaults.for.version.skip=true hbase.regionserver.msginterval=100 hbase.server.thread.wakefrequency=100 \
      hbase.regionserver.handler.count=3 hbase.regionserver.metahandler.count=3 hbase.master.handler.count=7 \
      hbase.regionserver.compaction.check.period=1000 hbase.regionserver.flush.check.period=1000 hbase.hregion.max.filesize=67108864 \
      hbase.table.sanity.checks=false hbase.loadincremental.threads.max=1 hbase.ipc.client.fallback-to-simple-auth-allowed=true; do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    echo '</configuration>'
  } > "$DIR/site/hbase-site.xml"
fi
# a file that a test opens by its path
MAPREDUCE_TESTS="$(find "$CACHE/lib" -name 'hbase-mapreduce-*-tests.jar')"
mkdir -p "$DIR/site"
unzip -qod "$DIR/site" "$MAPREDUCE_TESTS" org/apache/hadoop/hbase/mapreduce/exportedTableIn94Format
cat > "$DIR/conf/log4j.properties" <<'LOG'
log4j.rootLogger=WARN,C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.target=System.err
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=%d %p [%t] %c{1}: %m%n
LOG

run_class() { # run_class CLASS: one JVM; exit code 75 means that a test hung
  local work="$DIR/${1##*.}" only="$CEILING"
  [ -z "$ALL" ] || only=""
  rm -rf "$work"
  mkdir -p "$work/target/test-classes"
  cp "$DIR/conf/hbase-site.xml" "$work/target/test-classes/"
  unzip -qp "$SERVER_TESTS" override-hbase-site.xml > "$work/target/test-classes/override-hbase-site.xml"
  (cd "$work" && "$JAVA" -Xmx1500m "${JAVA_FLAGS[@]}" "-javaagent:$CACHE/agent.jar" "-Dconformance.dir=$work" "-Dconformance.own=$OWN" \
    "-Dconformance.zk=$ZK" "-Dconformance.registry=$REGISTRY" "-Dconformance.masters=$MASTER" "-Dconformance.root=$ROOT" \
    "-Dconformance.testSeconds=${TEST_SECONDS:-120}" "-Dconformance.classSeconds=${CLASS_SECONDS:-400}" \
    "-Dconformance.only=$only" "-Dconformance.except=$DIR/done" -Dconformance.traces=true ${CONFORMANCE_OPTIONS:-} \
    "-Dlog4j.configuration=file:$DIR/conf/log4j.properties" -cp "$CACHE/agent.jar:$DIR/site:$SERVER_TESTS:$CACHE/lib/*" \
    halcyon.conformance.Run "$RESULTS" "$1" > "$work/out.log" 2>&1 < /dev/null)
}

known() { sed 's/ *#.*//' "$KNOWN" | { grep . || true; } | sort; }
except() { # except CLASS: its tests that are not run
  [ -z "$WITHOUT_KNOWN" ] || known
  awk -F '\t' -v class="$1" '$1 == class {print $1 " " $2}' "$RESULTS"
}
: > "$RESULTS"
{ if [ -n "$CLASSES" ]; then cat "$CLASSES"; else cut -d ' ' -f 1 "$CEILING" | sort -u; fi; } | { grep -E "$REGEX" || true; } > "$DIR/classes"
[ -s "$DIR/classes" ] || { echo "no class matches $REGEX" >&2; exit 64; }
while read -r class <&3; do
  except "$class" > "$DIR/done"
  for _ in 1 2 3; do
    code=0
    run_class "$class" || code=$?
    [ $code = 75 ] || break # the class again, without the tests that have a result
    except "$class" > "$DIR/done"
  done
  awk -F '\t' -v class="$class" '$1 == class {n[$3]++; seen = 1}
    END {printf "%s: %d passed, %d failed, %d skipped\n", class, n["pass"], n["fail"], n["skip"]; exit !seen}' "$RESULTS" \
    || { [ -n "$WITHOUT_KNOWN" ] && [ "$code" = 0 ]; } \
    || printf '%s\t(class)\tfail\t0\tno result, exit %s\n' "$class" "$code" >> "$RESULTS"
done 3< "$DIR/classes"
[ -z "$SERVER_PID" ] || server_stop

awk -F '\t' '$3 == "fail"' "$RESULTS" | cut -c 1-240
awk -F '\t' '{n[$3]++} END {printf "%d passed, %d failed, %d skipped\n", n["pass"], n["fail"], n["skip"]}' "$RESULTS"
awk -F '\t' '$3 == "pass" && $5 != "" {print "PASSED, NOT JUDGED: " $1 " " $2 ": " $5}' "$RESULTS" | cut -c 1-240
awk -F '\t' '$3 == "unit" {print "NOT JUDGED: " $1 ": " $5}' "$RESULTS"
passed() { awk -F '\t' '$3 == "pass" {print $1 " " $2}' "$RESULTS" | sort; }
expected() { awk 'NR == FNR {selected[$1] = 1; next} $1 in selected' "$DIR/classes" "$CEILING" | sort; }
comm -12 <(known) <(passed) | sed 's/$/ passes: take it out of '"$(basename "$KNOWN")"'/'
comm -23 <(comm -23 <(expected) <(known)) <(passed) > "$DIR/lost"
if [ -s "$DIR/lost" ]; then
  sed 's/^/FAILED: no longer passes: /' "$DIR/lost" >&2
  exit 1
fi
echo "$(expected | wc -l) listed tests, $(comm -12 <(expected) <(known) | wc -l) of them known failures, all others passed"
