#!/usr/bin/env bash
# Kills the server with SIGKILL while clients write, starts it again on the same data, and asks for every row that it had
# acknowledged.
#   kill9.sh [ROUNDS]         default 10
# HALCYON   the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# SECONDS_A_ROUND           how long each round writes, default 4
# KILL9_DIR                 where data and logs go, default a fresh directory that is removed after success
# SERVER_OPTIONS            more options for the server
# ROWS_LEAST                rows that each of the four threads has had acknowledged before the kill, default 100: the kill waits for them
# In turn a round only writes, splits and merges regions meanwhile, flushes and compacts meanwhile, or flushes meanwhile.
# The kill waits until that was done once. A round counts if every thread wrote when the server was killed.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROUNDS="${1:-10}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SECONDS_A_ROUND="${SECONDS_A_ROUND:-4}" ROWS_LEAST="${ROWS_LEAST:-100}"
KEEP="${KILL9_DIR:-}"
DIR="${KILL9_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-kill9.XXXXXX")}"
mkdir -p "$DIR"
DIR="$(cd "$DIR" && pwd)"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/server.sh"
. "$HERE/java.sh"

client26_classes
kill9() { client26 halcyon.compat.kill9.Kill9 "$@"; } # kill9 write|verify ...

trap 'server_kill' EXIT
LOG="$DIR/acknowledged.log"
KINDS=("" reshape compact flush)
declare -A DISTURBED=([reshape]=reshaped [compact]=compacted [flush]=flushed)
has_written() { # has_written LOG KIND: each thread has the least number of rows, and what disturbs them was done
  local counts count
  [ -z "$2" ] || grep -q "^${DISTURBED[$2]}" "$1" || return 1
  counts="$(sed -n 's/^so far: \[\(.*\)\]$/\1/p' "$1" | tail -n 1)"
  [ -n "$counts" ] || return 1
  for count in ${counts//,/}; do [ "$count" -ge "$ROWS_LEAST" ] || return 1; done
}
may_be_killed() { has_written "$@" || grep -q '^ended ' "$1"; } # a thread that has ended makes the round worthless
wrote_when() { # wrote_when MILLISECONDS LOG KIND: no thread had ended by then
  local ended time
  while read -r _ time ended; do
    [ "$time" -ge "$1" ] || { echo "a thread ended $(($1 - time)) ms before the kill: $ended" >&2; return 1; }
  done < <(grep '^ended ' "$2")
  has_written "$2" "$3" || { echo "too little was done before the kill: $(grep '^so far' "$2" | tail -n 1), $(grep -c "^${DISTURBED[${3:-flush}]}" "$2" || true) ${3:-}" >&2; return 1; }
}
deaths=0
for round in $(seq 1 "$ROUNDS"); do
  kind="${KINDS[$(( (round - 1) % 4 ))]}"
  server_start "$DIR/data" "$DIR/server-$round.log"
  stop="$DIR/stop-$round" said="$DIR/writer-$round.log"
  kill9 write "$ZK" "$LOG" $((SECONDS_A_ROUND + 180)) "$stop" $kind > "$said" 2>&1 &
  writer=$!
  process_await "$writer" 60 grep -q '^writing' "$said" || { echo "round $round: the writer ended before it began" >&2; cat "$said" >&2; exit 1; }
  sleep "$SECONDS_A_ROUND.$(( RANDOM % 10 ))"
  process_await "$writer" 120 may_be_killed "$said" "$kind" || true
  killed=$(date +%s%3N)
  server_kill_running || { echo "round $round: the server had ended before it was killed" >&2; tail -n 20 "$DIR/server-$round.log" >&2; exit 1; }
  deaths=$((deaths + 1))
  touch "$stop"
  wait "$writer" || { echo "round $round: the writer failed" >&2; cat "$said" >&2; exit 1; }
  wrote_when "$killed" "$said" "$kind" || { echo "round $round: the kill met no writer; logs stay in $DIR" >&2; exit 1; }
  started=$(date +%s%3N)
  server_start "$DIR/data" "$DIR/server-$round-again.log"
  echo "round $round (${kind:-puts only}): $(grep "^acknowledged" "$said" | tail -n 1), $(grep -c "^reshaped" "$said" || true) splits and merges, $(grep -c "^flushed" "$said" || true) flushes, up again after $(( $(date +%s%3N) - started )) ms"
  if ! kill9 verify "$ZK" "$LOG" "$deaths"; then
    echo "round $round: acknowledged rows are missing or cannot be read; data and logs stay in $DIR" >&2
    exit 1
  fi
  server_stop
done
echo "kill -9: $ROUNDS rounds, nothing lost"
[ -n "$KEEP" ] || rm -rf "$DIR"
