#!/usr/bin/env bash
# A real client stops the master: rows are still served, and administrative calls find no master.
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/java.sh"
. "$HERE/server.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-stop-master.XXXXXX")"
trap 'server_kill; rm -rf "$DIR"' EXIT
client26_classes
server_start "$DIR/data" "$DIR/server.log"
CLIENT26_SECONDS=120 client26 halcyon.compat.stopmaster.StopMaster "$ZK"
server_stop
