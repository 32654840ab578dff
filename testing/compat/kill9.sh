#!/usr/bin/env bash
# Kills the server with SIGKILL while clients write, starts it again on the same data, and asks for every row that it had
# acknowledged.
#   kill9.sh [ROUNDS]         default 10
# HALCYON   the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# SECONDS_A_ROUND           how long each round writes, default 4
# KILL9_DIR                 where data and logs go, default a fresh directory that is removed after success
# SERVER_OPTIONS            more options for the server
# In turn a round only writes, splits and merges regions meanwhile, flushes and compacts meanwhile, or flushes meanwhile.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROUNDS="${1:-10}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SECONDS_A_ROUND="${SECONDS_A_ROUND:-4}"
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
for round in $(seq 1 "$ROUNDS"); do
  kind="${KINDS[$(( (round - 1) % 4 ))]}"
  server_start "$DIR/data" "$DIR/server-$round.log"
  # the writer would stop later than the server is killed: it ends because the server is gone
  kill9 write "$ZK" "$LOG" $(( SECONDS_A_ROUND + 30 )) $kind > "$DIR/writer-$round.log" 2>&1 &
  writer=$!
  for _ in $(seq 1 300); do
    grep -q '^writing' "$DIR/writer-$round.log" && break
    kill -0 "$writer" 2>/dev/null || { echo "round $round: the writer ended before it began" >&2; cat "$DIR/writer-$round.log" >&2; exit 1; }
    sleep 0.1
  done
  sleep "$SECONDS_A_ROUND.$(( RANDOM % 10 ))"
  server_kill
  wait "$writer" || { echo "round $round: the writer failed" >&2; cat "$DIR/writer-$round.log" >&2; exit 1; }
  started=$(date +%s%3N)
  server_start "$DIR/data" "$DIR/server-$round-again.log"
  echo "round $round (${kind:-puts only}): $(grep "^acknowledged" "$DIR/writer-$round.log" | tail -n 1), $(grep -c "^reshaped" "$DIR/writer-$round.log" || true) splits and merges, up again after $(( $(date +%s%3N) - started )) ms"
  if ! kill9 verify "$ZK" "$LOG"; then
    echo "round $round: acknowledged rows are missing or cannot be read; data and logs stay in $DIR" >&2
    exit 1
  fi
  server_stop
done
echo "kill -9: $ROUNDS rounds, nothing lost"
[ -n "$KEEP" ] || rm -rf "$DIR"
