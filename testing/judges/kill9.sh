#!/usr/bin/env bash
# kill9.sh with writers that had ended before the kill, and with counters that went too far.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
run=0
kill9() { # kill9 FAULT
  run=$((run + 1))
  KILL9_DIR="$DIR/kill9-$run" SECONDS_A_ROUND=3 HALCYON="$HALCYON" with_fault "$1" "$TESTING/compat/kill9.sh" "${ROUNDS:-1}"
}
ROUNDS=3 expect 0 '^kill -9: 3 rounds, nothing lost' kill9 NONE
expect not 'a thread ended [0-9]* ms before the kill: writer-.: .*planted: put is refused' kill9 PUTS_FAIL
expect not '^TWICE counter-' kill9 COUNTERS_ARE_AHEAD
