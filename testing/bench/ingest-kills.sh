#!/usr/bin/env bash
# `halcyon bench ingest` goes on while the server is killed with SIGKILL and started again on the same data, again and again;
# then the verifier asks for every node whose write was acknowledged.
#   ingest-kills.sh [KILLS]     default 10
# HALCYON   the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# RATE      nodes each second, default 20000; CLIENTS, default 4; BATCH, nodes of one call, default 100
# SECONDS_A_ROUND           how long the server lives at least between two kills, default 2; up to a second is added by chance
# SERVER_OPTIONS            more options for the server
# KEEP=1    keep logs and data
# One ingest lives through all kills. It must have gone on after each of them, and no call may have failed for good. UNDEFINED
# and CORRUPT must be 0, and at least as many nodes be there as were acknowledged.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
KILLS="${1:-10}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SECONDS_A_ROUND="${SECONDS_A_ROUND:-2}"
# nodes that are acknowledged between two kills, at least
NODES_LEAST=500
# how long the ingest may take to go on, and the server to be back, in seconds
PATIENCE=120
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/../compat/server.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-ingest-kills.XXXXXX")"
WRITER=""

finish() { # finish EXIT_CODE
  server_kill
  [ -z "$WRITER" ] || kill -9 "$WRITER" 2>/dev/null || true
  if [ "$1" -eq 0 ] && [ -z "${KEEP:-}" ]; then rm -rf "$DIR"; else echo "logs and data stay in $DIR" >&2; fi
}
trap 'finish $?' EXIT
trap 'exit 130' INT TERM

nodes() { # how many nodes the ingest had written when it last said so
  sed -n 's/^ingest write: [0-9]* s, \([0-9]*\)[ ,].*/\1/p' "$DIR/writer.log" | tail -n 1 | grep . || echo 0
}

gone_on() { # gone_on NODES waits until there are more, by the least number that shows something
  local waited=0
  while [ "$(nodes)" -le $(($1 + NODES_LEAST)) ]; do
    kill -0 "$WRITER" 2>/dev/null || { echo "the ingest has ended:" >&2; tail -n 5 "$DIR/writer.log" "$DIR/writer.err" >&2; return 1; }
    [ $waited -lt $((PATIENCE * 10)) ] || { echo "the ingest does not go on after $PATIENCE s" >&2; return 1; }
    sleep 0.1
    waited=$((waited + 1))
  done
}

# below the ports of connections: while the server is down, a client that looks for it may get its port
ports="$(free_port) $(free_port) $(free_port)"
SERVER_PORTS="$ports" server_start "$DIR/data" "$DIR/server-0.log"
"$HALCYON" bench ingest write --zookeeper "$ZK" --nodes 1000000000000 --rate "${RATE:-20000}" --clients "${CLIENTS:-4}" --batch "${BATCH:-100}" \
  --layer 2000 --operation-timeout $PATIENCE --call-timeout 5 --progress-period 1 --json "$DIR/ingest.json" > "$DIR/writer.out" 2> "$DIR/writer.log" < /dev/null &
WRITER=$!
gone_on 0
for round in $(seq 1 "$KILLS"); do
  sleep "$SECONDS_A_ROUND.$((RANDOM % 10))"
  server_kill_running || { echo "the server had ended before kill $round" >&2; exit 1; }
  killed_ms=$(date +%s%3N)
  # what was under way is counted with the second in which it ended
  sleep 1.2
  before="$(nodes)"
  started_ms=$(date +%s%3N)
  SERVER_PORTS="$ports" server_start "$DIR/data" "$DIR/server-$round.log"
  ready_ms=$(date +%s%3N)
  gone_on "$before"
  echo "kill $round: $before nodes acknowledged, ready $((ready_ms - started_ms)) ms after its start, the ingest had gone on $(( $(date +%s%3N) - killed_ms )) ms after the kill"
done
sleep 2
kill -INT "$WRITER"
wait "$WRITER" && { echo "the ingest ended before it was told to" >&2; exit 1; }
WRITER=""
grep -q 'the result is partial: interrupted' "$DIR/writer.log" || { echo "the ingest failed:" >&2; tail -n 5 "$DIR/writer.log" >&2; exit 1; }
acknowledged="$(sed -n 's/^ingest write (partial): \([0-9]*\) operations.*/\1/p' "$DIR/writer.out")"
grep 'tried again\|failed' "$DIR/writer.out" || true
if grep '^  failed' "$DIR/writer.out"; then exit 1; fi
"$HALCYON" bench ingest verify --zookeeper "$ZK" --json "$DIR/verify.json" > "$DIR/verify.out" 2> "$DIR/verify.log" || { cat "$DIR/verify.out" "$DIR/verify.log" >&2; exit 1; }
grep -E '^(REFERENCED|UNREFERENCED|UNDEFINED|CORRUPT) ' "$DIR/verify.out"
count() { sed -n "s/^$1 \([0-9]*\)$/\1/p" "$DIR/verify.out"; }
there=$(( $(count REFERENCED) + $(count UNREFERENCED) ))
[ "$(count UNDEFINED)" = 0 ] && [ "$(count CORRUPT)" = 0 ] || { echo "nodes are undefined or corrupt" >&2; exit 1; }
[ "$(count REFERENCED)" -gt 0 ] && [ "$there" -ge "$acknowledged" ] || { echo "$acknowledged nodes were acknowledged, $there are there" >&2; exit 1; }
server_stop
if failed_assertions "$DIR"/server-*.log; then exit 1; fi
echo "ingest through $KILLS kills: $acknowledged nodes acknowledged, $there there, none undefined"
