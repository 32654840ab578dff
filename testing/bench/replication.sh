#!/usr/bin/env bash
# How fast replication catches up, and how long a put takes to be at the peer: from HBase to HBase, from Halcyon to HBase and from HBase to
# Halcyon, in turn, standalone servers on local files of the same machine. Prints medians.
#   replication.sh [PAIR...]   of hbase-hbase, halcyon-hbase, hbase-halcyon; default all
# ROUNDS   default 3
# ROWS     rows that wait for the peer, one cell of 100 bytes each, default 200000
# RATE     puts a second while lags are measured, default 500
# SECONDS_LAG   for how long, default 15
# OUT      a directory that keeps the figures
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
#
# The peer is disabled while the rows are written. `rate` is rows a second from when it is enabled until all of them are there; `cpu` is
# what both servers took in that time, in seconds of CPU. All settings are the defaults, but HBase has a heap of 1 GiB and Halcyon as much memory.
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$BENCH/../compat/java.sh"
. "$BENCH/../compat/server.sh"
. "$BENCH/../compat/hbase.sh"
ROUNDS="${ROUNDS:-3}" ROWS="${ROWS:-200000}" RATE="${RATE:-500}" SECONDS_LAG="${SECONDS_LAG:-15}"
PAIRS=("$@")
[ $# -gt 0 ] || PAIRS=(hbase-hbase halcyon-hbase hbase-halcyon)
hbase_fetch
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-replication.XXXXXX")"
OUT="${OUT:-$DIR}"
declare -A PID ADDRESS
finish() {
  local code=$? name
  for name in "${!PID[@]}"; do process_kill "${PID[$name]}"; done
  if [ $code -eq 0 ]; then rm -rf "$DIR"; else echo "logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes" "$OUT"
: > "$OUT/replication.tsv"
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$BENCH/replication/Bench.java" 2> "$DIR/javac.log"
CLIENT_FLAGS=("${JAVA_FLAGS[@]}")
JAVA_FLAGS=() # of HBase's servers: the JVM's own collector and compilers
for flag in "${CLIENT_FLAGS[@]}"; do
  case "$flag" in -XX:+UseSerialGC | -XX:TieredStopAtLevel=1) ;; *) JAVA_FLAGS+=("$flag") ;; esac
done

bench() { # bench COMMAND ARGUMENT...
  timeout 300 "$JAVA" -Xmx400m "${CLIENT_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Bench "$@" 2>> "$DIR/client.log" < /dev/null ||
    { echo "bench $* failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 15 >&2; return 1; }
}

cpu() { # cpu NAME: its CPU time so far, in hundredths of a second
  awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/${PID[$1]}/stat"
}

SERVER_MEMORY=1g
server_start "$DIR/data" "$DIR/server.log"
PID[halcyon]="$SERVER_PID" ADDRESS[halcyon]="$ZK"
for name in hbase peer; do
  hbase_start "$DIR/$name" "$DIR/$name-root"
  PID[$name]="$HBASE_PID" ADDRESS[$name]="$HBASE_ZK"
done

one() { # one PAIR SOURCE PEER NUMBER
  local pair="$1" from="$2" to="$3" table="t$4" id="p$4" seconds before lag
  for name in "$from" "$to"; do bench create "${ADDRESS[$name]}" "$table"; done
  bench peer "${ADDRESS[$from]}" "$id" "${ADDRESS[$to]}:/hbase"
  bench load "${ADDRESS[$from]}" "$table" "$ROWS"
  sleep 2
  before="$(cpu "$from") $(cpu "$to")"
  seconds="$(bench catchup "${ADDRESS[$from]}" "${ADDRESS[$to]}" "$id" "$table" "$ROWS")"
  set -- $before "$(cpu "$from")" "$(cpu "$to")"
  sleep 1
  lag="$(bench lag "${ADDRESS[$from]}" "${ADDRESS[$to]}" "$table" "$RATE" "$SECONDS_LAG")"
  bench remove "${ADDRESS[$from]}" "$id"
  awk -v pair="$pair" -v rows="$ROWS" -v seconds="$seconds" -v source="$(($3 - $1))" -v peer="$(($4 - $2))" -v lag="$lag" 'BEGIN {
    split(lag, l, " "); printf "%s\t%.0f\t%.2f\t%.2f\t%d\t%d\t%d\n", pair, rows / seconds, source / 100, peer / 100, l[1], l[2], l[3] }' |
    tee -a "$OUT/replication.tsv" >&2
}

number=0
for _ in $(seq 1 "$ROUNDS"); do
  for pair in "${PAIRS[@]}"; do
    number=$((number + 1))
    case "$pair" in
      hbase-hbase) one "$pair" hbase peer $number ;;
      halcyon-hbase) one "$pair" halcyon peer $number ;;
      hbase-halcyon) one "$pair" hbase halcyon $number ;;
      *) echo "no pair $pair" >&2; exit 64 ;;
    esac
  done
done
echo "pair	rows/s	source cpu s	peer cpu s	lag p50 ms	p99 ms"
for pair in "${PAIRS[@]}"; do
  for column in 2 3 4 5 6; do
    awk -F '\t' -v pair="$pair" -v column=$column '$1 == pair { print $column }' "$OUT/replication.tsv" | sort -n |
      awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
  done | paste -s -d '\t' | sed "s/^/$pair	/"
done
