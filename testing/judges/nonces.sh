#!/usr/bin/env bash
# nonce-kills.sh with a thread that ends, and with one kind of operation that never succeeds.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
run=0
nonces() { # nonces FAULT
  run=$((run + 1))
  NONCE_KILLS_DIR="$DIR/nonces$run" HALCYON="$HALCYON" with_fault "$1" "$TESTING/compat/nonce-kills.sh" 4
}
expect 0 '^4 kills: .* 0 not applied exactly once' nonces NONE
expect not 'counter . had 0 answers to appends' nonces APPENDS_FAIL
