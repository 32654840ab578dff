#!/usr/bin/env bash
# What being watched costs: YCSB's workload C against a server of our own, in turns with and without somebody who watches.
#   watched.sh [PAIRS]      default 9
# Who watches: the console's overview page (its requests, every two seconds) and /metrics, /prometheus and /jmx, each second.
# HALCYON        the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# SECONDS_EACH   seconds of each turn, default 6; THREADS, default 4; RECORDS, default 50000
# Prints the server's processor time for each read and the reads of a second, both as medians of the ratios of neighbours.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
PAIRS="${1:-9}"
SECONDS_EACH="${SECONDS_EACH:-6}"
THREADS="${THREADS:-4}"
RECORDS="${RECORDS:-50000}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/../compat/server.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-watched.XXXXXX")"
WATCHER=""
trap 'watch_end; server_kill; rm -rf "$DIR"' EXIT
trap 'exit 130' INT TERM

ask() { # ask PATH...: in one process and over one connection, as scrapers and browsers do; notes what came
  local path
  for path in "$@"; do
    printf 'url = "http://%s/%s"\n' "$PAGES" "$path"
    case "$path" in */series*) echo "output = \"$DIR/series\"" ;; *) echo 'output = "/dev/null"' ;; esac
  done | curl -sf --fail-early -w '%{url_effective} %{http_code} %{size_download}\n' -K - || echo "one of $* failed"
}
watch() { # until it is ended: asks what a console and a scraper ask
  local after=0 turn=0 paths
  while :; do
    paths=(metrics prometheus jmx)
    if [ $((turn % 2)) = 0 ]; then
      paths+=("api/v1/series?range=15m&after_ms=$after")
      for path in summary "stalls?range=15m" "keys?range=15m&rows=120" memory tables "regions?limit=20"; do
        paths+=("api/v1/$path")
      done
    fi
    ask "${paths[@]}"
    [ $((turn % 2)) = 1 ] || after="$(sed -n 's/.*"now_ms":\([0-9]*\).*/\1/p' "$DIR/series")"
    turn=$((turn + 1))
    sleep 1
  done > "$DIR/watched"
}
watch_begin() { watch & WATCHER=$!; }
watch_end() {
  [ -n "$WATCHER" ] || return 0
  kill "$WATCHER" 2> /dev/null || true
  wait "$WATCHER" 2> /dev/null || true
  WATCHER=""
}

cpu_us() { # microseconds of the server's threads so far
  awk '{sum += $1} END {printf "%d\n", sum / 1000}' /proc/"$SERVER_PID"/task/*/schedstat
}
turn() { # turn NAME: appends "us-per-read reads-per-second" to DIR/NAME
  local before after rate
  before="$(cpu_us)"
  "$HALCYON" bench ycsb run --workload c --zookeeper "$ZK" --threads "$THREADS" -p recordcount="$RECORDS" \
    -p operationcount=2000000000 -p maxexecutiontime="$SECONDS_EACH" > "$DIR/run" 2>&1 || { cat "$DIR/run" >&2; exit 1; }
  after="$(cpu_us)"
  rate="$(sed -n 's/.* operations in [0-9.]* s, \([0-9]*\)\/s.*/\1/p' "$DIR/run" | head -n 1)"
  [ -n "$rate" ] || { echo "no rate in:" >&2; cat "$DIR/run" >&2; exit 1; }
  awk -v cpu=$((after - before)) -v rate="$rate" -v seconds="$SECONDS_EACH" 'BEGIN {printf "%.3f %d\n", cpu / (rate * seconds), rate}' >> "$DIR/$1"
}
ratios() { # ratios FIELD: watched divided by unwatched, of each pair, sorted
  paste -d ' ' "$DIR/unwatched" "$DIR/seen" | awk -v f="$1" '{print $(f + 2) / $f}' | sort -n
}
report() { # report NAME FIELD
  ratios "$2" | awk -v name="$1" '{at[NR] = $1} END {printf "%s, watched / unwatched: median %.3f of %d pairs (%.3f to %.3f)\n", name, at[int((NR + 1) / 2)], NR, at[1], at[NR]}'
}

SERVER_MEMORY=1g SERVER_OPTIONS="--wal-sync written" server_start "$DIR/data" "$DIR/server.log"
PAGES="$(sed -n "s|.*http://\([0-9.:]*\)/.*|\1|p" "$DIR/server.log" | tail -n 1)"
curl -sf -o /dev/null "http://$PAGES/metrics" || { echo "no pages at '$PAGES':" >&2; head "$DIR/server.log" >&2; exit 1; }
"$HALCYON" bench ycsb load --workload c --zookeeper "$ZK" --threads 4 -p recordcount="$RECORDS" -p hbase.presplit=4 > "$DIR/run" 2>&1 || { cat "$DIR/run" >&2; exit 1; }
SECONDS_EACH=3 turn warm
for pair in $(seq "$PAIRS"); do
  order="unwatched seen"
  [ $((pair % 2)) = 0 ] && order="seen unwatched"
  for name in $order; do
    [ "$name" = unwatched ] || watch_begin
    turn "$name"
    if [ "$name" = seen ]; then
      watch_end
      ! grep failed "$DIR/watched" || { echo "a page did not answer" >&2; exit 1; }
    fi
  done
done
echo "asked in the last turn:"
sed -e "s|http://$PAGES/||" -e 's|&after_ms=[0-9]*||' "$DIR/watched" | sort | uniq -c
report "processor time for each read" 1
report "reads each second" 2
