#!/usr/bin/env bash
# What compressed WALs cost and save: puts into servers without compression, with dictionaries, and with values compressed as well,
# in turn. A line each: puts a second, server CPU, MB of WALs. Medians of all rounds at the end. Needs no Java.
#   compressed-wals.sh
# ROUNDS   of each, default 5
# ROWS     puts of each of the four clients, default 100000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$BENCH/../compat/server.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-compressed-wals.XXXXXX")"
trap 'server_kill; rm -rf "$DIR"' EXIT
ROWS="${ROWS:-100000}"

properties() { # properties KIND
  [ "$1" = plain ] || echo hbase.regionserver.wal.enablecompression=true
  case "$1" in
    gz|snappy|zstd)
      echo hbase.regionserver.wal.value.enablecompression=true
      echo "hbase.regionserver.wal.value.compression.type=$1"
      ;;
  esac
}

round() { # round KIND: puts a second, CPU seconds, MB of WALs
  local kind="$1" property begin ticks
  mkdir -p "$DIR/conf"
  {
    echo '<configuration>'
    for property in $(properties "$kind"); do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    echo '</configuration>'
  } > "$DIR/conf/hbase-site.xml"
  SERVER_MEMORY=2g SERVER_OPTIONS="--config $DIR/conf --wal-sync written" server_start "$DIR/data" "$DIR/server.log"
  begin="$(date +%s%N)"
  "$HALCYON" bench pe --zookeeper "$ZK" --rows "$ROWS" --valueSize 200 --presplit 10 randomWrite 4 > "$DIR/bench.log" 2>&1 ||
    { tail -n 5 "$DIR/bench.log" >&2; return 1; }
  begin=$(($(date +%s%N) - begin))
  ticks="$(awk '{ print $14 + $15 }' "/proc/$SERVER_PID/stat")"
  echo "$kind $((ROWS * 4 * 1000 / (begin / 1000000))) $((ticks * 1000 / $(getconf CLK_TCK))) $(find "$DIR/data" -path '*WALs*' -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum / 1e6 }')"
  server_stop
  rm -rf "$DIR/data"
}

echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(date -u +%FT%RZ); commit $(git -C "$BENCH" rev-parse --short HEAD 2> /dev/null || echo unknown)"
echo "kind, puts a second, server CPU in ms, MB of WALs"
for _ in $(seq 1 "${ROUNDS:-5}"); do
  for kind in plain names gz snappy zstd; do round "$kind"; done
done | tee "$DIR/rounds"
echo "medians:"
for kind in plain names gz snappy zstd; do
  echo -n "$kind"
  for column in 2 3 4; do
    echo -n " $(awk -v kind="$kind" -v column="$column" '$1 == kind { print $column }' "$DIR/rounds" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')"
  done
  echo
done
