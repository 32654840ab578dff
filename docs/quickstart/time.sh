#!/usr/bin/env bash
# Does what the quick start says, after the build: `make run` in one terminal, `make shell` in another, with the lines of
# first-row.txt. Fails if the row does not come back or if it takes a minute. Prints how long it took.
#   time.sh       HALCYON=binary takes a program that is built already
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$HERE/../.."
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-quickstart.XXXXXX")"
. "$ROOT/testing/compat/server.sh"
make=(make --no-print-directory -C "$ROOT")
if [ -n "${HALCYON:-}" ]; then
  make+=(-o build "HALCYON=$HALCYON")
else
  "${make[@]}" build
fi
ended() { # make hands SIGTERM on to the server
  kill "$SERVER_PID" 2> /dev/null || return 0
  process_end "$SERVER_PID" 30 || [ $? -ne 124 ] # that of make, which was told to end
}
SERVER_PID=""
trap '[ -z "$SERVER_PID" ] || ended; rm -rf "$DIR"' EXIT
# ports of its own, because 2181 may be taken on this machine
ZOOKEEPER="127.0.0.1:$(free_port)"
OPTIONS="--zookeeper-port ${ZOOKEEPER#*:} --master-port 0 --regionserver-port 0 --master-info-port 0 --regionserver-info-port 0"
start=$(date +%s%N)
"${make[@]}" run "DATA=$DIR/data" "OPTIONS=$OPTIONS" > "$DIR/server.log" 2>&1 < /dev/null &
SERVER_PID=$!
if ! process_await "$SERVER_PID" 60 grep -q '^ready' "$DIR/server.log"; then
  tail -n 30 "$DIR/server.log" >&2
  exit 1
fi
"${make[@]}" shell "SHELL_OPTIONS=--zookeeper $ZOOKEEPER" < "$HERE/first-row.txt" | tee "$DIR/shell.out"
took_ms=$((($(date +%s%N) - start) / 1000000))
grep -q 'value=hello' "$DIR/shell.out"
grep -q '1 row(s)' "$DIR/shell.out"
[ "$took_ms" -lt 60000 ] || { echo "the quick start took $took_ms ms" >&2; exit 1; }
echo "from the start of the server to the row read back: $took_ms ms"
