#!/usr/bin/env bash
# Apache Phoenix's own integration tests, unmodified, from its test jar on Maven Central: the classes that share a cluster, against a Halcyon
# with Phoenix's coprocessors in the JVM beside it.
#   phoenix-suite.sh [REGEX]     classes that match, default all; several hours
#   phoenix-suite.sh --list      only names them
# phoenix/suite-failures.tsv has the tests that do not pass, with the reason. The result is 1 if another one fails.
# HALCYON                  the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# PHOENIX_SUITE_DIR        results.tsv, data and logs, default a fresh directory that is removed after success. Classes that results.tsv has
#                          already are left out, so that a run can be continued
# CLASS_SECONDS            limit of one class, default 900
# CLASSES_PER_SERVER       after so many classes there is a new server with new data, default 20; a class that was too late has one at once
# CLIENT_HEAP, HOST_HEAP   of the JVM of the tests, default 1g, and of that of the coprocessors in bytes, default 1 GiB
set -euo pipefail
export LC_ALL=C
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
. "$HERE/coprocessor-host.sh"
KNOWN="$HERE/phoenix/suite-failures.tsv"
SUITE_LIB="$HOME/.cache/halcyon/phoenix-suite-5.2.1"
TESTS_JAR="$SUITE_LIB/phoenix-core-5.2.1-tests.jar"
maven_jars "$HERE/phoenix/suite-pom.xml" "$SUITE_LIB"
scratch phoenix_suite
mkdir -p "$DIR/runner" "$DIR/conf" "$DIR/client" "$DIR/logs"
javac -nowarn -d "$DIR/runner" -cp "$SUITE_LIB/*" "$HERE/phoenix/suite/Suite.java"
"$JAVA" "${JAVA_FLAGS[@]}" -cp "$DIR/runner:$SUITE_LIB/*" Suite --list "$TESTS_JAR" > "$DIR/classes.txt" 2> "$DIR/list.log"
if [ "${1:-}" = --list ]; then
  cat "$DIR/classes.txt"
  exit 0
fi

hbase_fetch
PHOENIX_LIB="$HOME/.cache/halcyon/phoenix-5.2.1"
maven_jars "$HERE/phoenix/pom.xml" "$PHOENIX_LIB"
coprocessor_host "$DIR/host"
# Tests name coprocessors of their own, which are in their jar. Their client makes the table of sequences with four buckets; what the
# coprocessors ask of sequences themselves has to know that (QueryServicesTestImpl). Some of their coprocessors extend one of the tests of HBase,
# which asserts by JUnit.
# Their own cluster takes descriptors that are not sane, such as regions of 10 KB, and Phoenix's tasks do not wait there for a minute
# (BaseTest.setUpConfigForMiniCluster).
OF_TESTS="$(printf ':%s' "$SUITE_LIB"/{hbase-*-tests,junit-4*,hamcrest*}.jar)"
coprocessor_site "$COPROCESSOR_HOST_JAR:$HBASE_LIB/*:$PHOENIX_LIB/*:$TESTS_JAR$OF_TESTS" \
  "halcyon.coprocessor.host.heap=${HOST_HEAP:-1073741824}" hbase.table.sanity.checks=false phoenix.sequence.saltBuckets=4 \
  phoenix.task.handling.interval.ms=10000 phoenix.global.index.row.age.threshold.to.delete.ms=0 \
  hbase.regionserver.wal.codec=org.apache.hadoop.hbase.regionserver.wal.IndexedWALEditCodec \
  > "$DIR/conf/hbase-site.xml"

server_new() { # with new data
  [ -z "$SERVER_PID" ] || server_kill_running || true # what was wrong is in SERVER_TROUBLE
  rm -rf "$DIR/data"
  SERVER_OPTIONS="--config $DIR/conf" server_start "$DIR/data" "$DIR/logs/server-$(date +%s).log"
  {
    echo '<configuration>'
    for property in hbase.test.cluster.distributed=true "hbase.zookeeper.quorum=${ZK%:*}" "hbase.zookeeper.property.clientPort=${ZK#*:}"; do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    echo '</configuration>'
  } > "$DIR/client/hbase-site.xml"
}

touch "$DIR/results.tsv"
served=0 number=0
classes="$(grep -E "${1:-.}" "$DIR/classes.txt")" || { echo "no class of Phoenix matches $1" >&2; exit 64; }
for class in $classes; do
  number=$((number + 4000)) # names have six digits
  ! grep -q "^$class	" "$DIR/results.tsv" || continue
  if [ -z "$SERVER_PID" ] || ! kill -0 "$SERVER_PID" 2> /dev/null || [ "$served" -ge "${CLASSES_PER_SERVER:-20}" ]; then
    server_new
    served=0
  fi
  served=$((served + 1))
  log="$DIR/logs/${class##*.}.log" code=0
  (cd "$DIR" && timeout -s KILL "${CLASS_SECONDS:-900}" "$JAVA" "-Xmx${CLIENT_HEAP:-1g}" "${JAVA_FLAGS[@]}" \
    -cp "$DIR/client:$DIR/runner:$SUITE_LIB/*" Suite "$class" "$number" > "$DIR/class.tsv" 2> "$log" < /dev/null) || code=$?
  if [ $code -ne 0 ]; then
    printf '%s\t*\tfail\t0\t%s\n' "$class" "not done within ${CLASS_SECONDS:-900} s, or ended: $code" >> "$DIR/class.tsv"
    served=1000
  fi
  cat "$DIR/class.tsv" >> "$DIR/results.tsv"
  awk -F'\t' -v class="$class" '{ n[$3]++ } END { print class, n["pass"] + 0, "passed", n["fail"] + 0, "failed", n["skip"] + 0, "skipped" }' "$DIR/class.tsv"
done
server_stop
[ -z "$SERVER_TROUBLE" ] || { echo "FAILED: $SERVER_TROUBLE" >&2; exit 1; }

# A line of the list with "*" for the test is for all of its class.
grep -v '^#' "$KNOWN" | cut -f 1,2 | sort > "$DIR/known.txt"
awk -F'\t' 'NR == FNR { known[$1, $2]; next } $3 == "fail" && !(($1, $2) in known) && !(($1, "*") in known) { print $1 "\t" $2 "\t" $5 }' \
  "$DIR/known.txt" "$DIR/results.tsv" > "$DIR/new-failures.tsv"
awk -F'\t' 'NR == FNR { if ($3 == "pass") passed[$1, $2]; next } ($1, $2) in passed { print $1 " " $2 " passes, and is known as a failure" }' \
  "$DIR/results.tsv" "$DIR/known.txt"
awk -F'\t' '{ n[$3]++ } END { print n["pass"] + 0, "tests of Phoenix passed,", n["fail"] + 0, "failed,", n["skip"] + 0, "skipped" }' "$DIR/results.tsv"
if [ -s "$DIR/new-failures.tsv" ]; then
  cat "$DIR/new-failures.tsv" >&2
  echo "FAILED: $(wc -l < "$DIR/new-failures.tsv") tests of Phoenix that are not in ${KNOWN##*/}" >&2
  exit 1
fi
