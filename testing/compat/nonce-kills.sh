#!/usr/bin/env bash
# A real client increments and appends while the server is killed with SIGKILL between its work and the answer, and started again at
# once. The client repeats the call with its nonce; each operation must be applied exactly once.
#   nonce-kills.sh [ROUNDS]     default 20; 1,000 take about 20 minutes
# HALCYON            the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# NONCE_KILLS_DIR    data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROUNDS="${1:-20}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/java.sh"
. "$HERE/server.sh"
KEEP="${NONCE_KILLS_DIR:-}"
DIR="${NONCE_KILLS_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-nonce-kills.XXXXXX")}"
mkdir -p "$DIR"
client26_classes
CLIENT26_SECONDS=$((120 + ROUNDS * 10)) client26 halcyon.compat.nonces.NonceKills "$HALCYON" "$DIR" \
  "$(free_port)" "$(free_port)" "$(free_port)" "$ROUNDS" \
  || { echo "data and logs are in $DIR" >&2; exit 1; }
[ -n "$KEEP" ] || rm -rf "$DIR"
