#!/usr/bin/env bash
# How long HBase's BulkLoadHFilesTool takes to load files into HBase 2.6.4 and into Halcyon, in turn, standalone servers on local files.
# Prints the seconds of each round, and what the server took of the processors meanwhile.
#   bulkload.sh [CASE...]    aligned: a region for each file; straddling: each file has rows of two regions, so that the tool divides it.
#                            Default aligned
# FILES    default 16
# ROWS     of each file, 1,000 bytes each, default 620000: 10 GB in 16 files
# ROUNDS   default 5
# DIR      where the files and both root directories are, which must be one disk; default a new directory in TMPDIR
# OUT      a directory that keeps the figures
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
#
# The loaded files are second names (hard links) of files that are written once, so every round loads the same ones. After each load rows of
# all files are read and compared. HBase has a heap of 1 GiB and its default collector, Halcyon as much memory.
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$BENCH/../compat/java.sh"
. "$BENCH/../compat/server.sh"
. "$BENCH/../compat/hbase.sh"
FILES="${FILES:-16}" ROWS="${ROWS:-620000}" ROUNDS="${ROUNDS:-5}"
CASES=("$@")
[ $# -gt 0 ] || CASES=(aligned)
hbase_fetch
MADE=""
[ -n "${DIR:-}" ] || MADE="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-bulkload.XXXXXX")"
DIR="${DIR:-$MADE}"
OUT="${OUT:-$DIR}"
declare -A PID ADDRESS ROOT
finish() {
  local code=$? name
  for name in "${!PID[@]}"; do process_kill "${PID[$name]}"; done
  rm -rf "$DIR/loaded" "$DIR/written"
  if [ $code -ne 0 ]; then echo "logs are in $DIR" >&2; elif [ -n "$MADE" ]; then rm -rf "$MADE"; fi
}
trap finish EXIT
mkdir -p "$DIR/classes" "$OUT"
: > "$OUT/bulkload.tsv"
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$BENCH/bulkload/Bench.java" 2> "$DIR/javac.log"
CLIENT_FLAGS=("${JAVA_FLAGS[@]}")
JAVA_FLAGS=() # of HBase's server and of the tool: the JVM's own collector and compilers
for flag in "${CLIENT_FLAGS[@]}"; do
  case "$flag" in -XX:+UseSerialGC | -XX:TieredStopAtLevel=1) ;; *) JAVA_FLAGS+=("$flag") ;; esac
done

bench() { # bench COMMAND ARGUMENT...
  timeout 1800 "$JAVA" -Xmx1g "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Bench "$@" 2>> "$DIR/client.log" < /dev/null ||
    { echo "bench $* failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 15 >&2; return 1; }
}

cpu() { # cpu NAME: its CPU time so far, in hundredths of a second
  awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/${PID[$1]}/stat"
}

bench write "$DIR/written" "$FILES" "$ROWS"
echo "$FILES files, $(du -sb "$DIR/written" | cut -f 1) bytes"
SERVER_MEMORY=1g
ROOT[halcyon]="$DIR/data" ROOT[hbase]="$DIR/hbase-root"
server_start "${ROOT[halcyon]}" "$DIR/server.log"
PID[halcyon]="$SERVER_PID" ADDRESS[halcyon]="$ZK"
hbase_start "$DIR/hbase" "${ROOT[hbase]}"
PID[hbase]="$HBASE_PID" ADDRESS[hbase]="$HBASE_ZK"

one() { # one CASE SYSTEM TABLE
  local at=("${ADDRESS[$2]}" "${ROOT[$2]}" "$3") shift=0 before seconds took
  [ "$1" = aligned ] || shift=$((ROWS / 2))
  bench create "${at[@]}" "$FILES" "$ROWS" "$shift"
  rm -rf "$DIR/loaded"
  cp -al "$DIR/written" "$DIR/loaded"
  before="$(cpu "$2")"
  seconds="$(bench load "${at[@]}" "$DIR/loaded")"
  took="$(awk -v hundredths="$(($(cpu "$2") - before))" 'BEGIN { printf "%.2f", hundredths / 100 }')"
  bench check "${at[@]}" "$FILES" "$ROWS"
  bench drop "${at[@]}"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$seconds" "$took" | tee -a "$OUT/bulkload.tsv"
}

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
