#!/usr/bin/env bash
# How long HBase's BulkLoadHFilesTool takes to load files into a region server of HBase 2.6.4 and into one of Halcyon, in turn, in one cluster
# under HBase's master, with one DataNode. Prints the seconds of each round, and what the region server took of the processors meanwhile.
#   bulkload.sh [CASE...]    aligned: a region for each file; straddling: each file has rows of two regions, so that the tool divides it.
#                            Default aligned
# FILES                       default 16
# ROWS                        of each file, 1,000 bytes each, default 620000: 10 GB in 16 files
# ROUNDS                      default 5
# OUT                         a directory that keeps the figures
# HALCYON, MEMORY, HBASE_GC   see hdfs-cluster.sh
# CLUSTER_DIR                 see cluster.sh; default a new directory in TMPDIR
# Each round loads the same files. After each load rows of all files are read and compared. The disk has to hold what is loaded three times.
case "${1:-}" in -*) sed -n '2,/^case /{/^case /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
VALUE_BYTES=1000 # as in Bench.java
export CLUSTER_DIR="${CLUSTER_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-bulkload.XXXXXX")}"
. "$(dirname "${BASH_SOURCE[0]}")/hdfs-cluster.sh"
. "$HERE/processes.sh"
. "$HERE/../compat/hbase.sh"
FILES="${FILES:-16}" ROWS="${ROWS:-620000}" ROUNDS="${ROUNDS:-5}"
CASES=("$@")
[ $# -gt 0 ] || CASES=(aligned)
hbase_fetch
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
# Files of dropped tables go at once: the disk would hold ten times what is loaded.
cluster up --parts "zookeeper hdfs hbaseservers" --datanodes 1 --hregionservers 1 --halcyons 1 --seconds 14000 \
  --property hbase.master.hfilecleaner.ttl=1000 --property hbase.master.cleaner.interval=1000 > /dev/null
ZK="$(setting_of zookeeper)"
QUORUM="${ZK%%/*}"
WRITTEN="$(setting_of hdfs)/written"
sh_halcyon "balance_switch false" > /dev/null
WORK="$CLUSTER_DIR/bulkload"
OUT="${OUT:-$WORK}"
mkdir -p "$WORK/classes" "$OUT"
: > "$OUT/bulkload.tsv"
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$WORK/classes" "$BENCH/bulkload/Bench.java" 2> "$WORK/javac.log"
log_file "$WORK/classes"
sed -i "s/ConsoleAppender/FileAppender/; \$ a log4j.appender.console.File=$WORK/tool.log" "$WORK/classes/log4j.properties"
TOOL_FLAGS=() # the JVM's own collector and compilers
for flag in "${JAVA_FLAGS[@]}"; do
  case "$flag" in -XX:+UseSerialGC | -XX:TieredStopAtLevel=1) ;; *) TOOL_FLAGS+=("$flag") ;; esac
done

bench() { # bench COMMAND ARGUMENT...
  timeout 1800 "$JAVA" -Xmx1g "${TOOL_FLAGS[@]}" -cp "$WORK/classes:$(setting_of conf):$HBASE_LIB/*" Bench "$@" \
    2>> "$WORK/client.log" < /dev/null || { tail -n 15 "$WORK/client.log" >&2; fail "bench $*"; }
}

cpu() { # cpu PROCESS: its CPU time so far, in hundredths of a second
  awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$(pid_of "$1")/stat"
}

all_at() { # all_at TABLE SERVER: all of its regions are open there
  [ "$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" 2> /dev/null | grep '"OPEN"' | grep -cF "$2")" = "$FILES" ]
}

one() { # one CASE SYSTEM TABLE
  local at=("$QUORUM" "$(setting_of hdfs)/hbase" "$3") shift=0 process before seconds took
  process="$(process_of "$2")"
  [ "$1" = aligned ] || shift=$((ROWS / 2))
  [ -n "$HAVE" ] || bench write "$WRITTEN" "$FILES" "$ROWS"
  HAVE=yes
  bench create "${at[@]}" "$FILES" "$ROWS" "$shift"
  move_all "$3" "$(name_of "$process")"
  wait_for 60 all_at "$3" "$(name_of "$process")"
  before="$(cpu "$process")"
  seconds="$(bench load "${at[@]}" "$WRITTEN")"
  took="$(awk -v hundredths="$(($(cpu "$process") - before))" 'BEGIN { printf "%.2f", hundredths / 100 }')"
  bench check "${at[@]}" "$FILES" "$ROWS"
  all_at "$3" "$(name_of "$process")" || fail "regions of $3 have moved meanwhile"
  # The tool deletes a file that it has divided.
  if [ "$1" = aligned ]; then bench back "${at[@]}" "$WRITTEN"; else HAVE=""; fi
  bench drop "${at[@]}"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$seconds" "$took" | tee -a "$OUT/bulkload.tsv"
}

bench_head "testing/bench/bulkload.sh ${CASES[*]}, FILES=$FILES ROWS=$ROWS ROUNDS=$ROUNDS"
HAVE="" # the files are there, whole
echo "case	system	seconds	server CPU s"
number=0
for case in "${CASES[@]}"; do
  case "$case" in aligned | straddling) ;; *) echo "no case $case" >&2; exit 64 ;; esac
  for _ in $(seq 1 "$ROUNDS"); do
    number=$((number + 1))
    for system in halcyon hbase; do one "$case" "$system" "t$number"; done
  done
done
echo "medians:"
for case in "${CASES[@]}"; do
  for system in halcyon hbase; do
    for column in 3 4; do
      awk -F '\t' -v kind="$case" -v name="$system" -v column=$column '$1 == kind && $2 == name { print $column }' "$OUT/bulkload.tsv" |
        sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
    done | paste -s -d '\t' | sed "s/^/$case	$system	/"
  done
done
