#!/usr/bin/env bash
# An acknowledged put has been synced: each of 20 puts, one after the other, comes after an fdatasync of a WAL that the kernel was asked
# for. A kill -9 cannot show it, because the page cache survives the process.
#   sync.sh
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# SERVER_OPTIONS   more options for the server; with --wal-sync written this has to fail
# It needs strace, and is left out without.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/server.sh"
strace -D -o /dev/null true 2> /dev/null || { left_out "whether puts are synced: strace does not run"; exit 0; }
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-sync.XXXXXX")"
trap 'server_kill; rm -rf "$DIR"' EXIT
PUTS=20
# With -D the server is the child of this shell, and strace a child of it.
printf '#!/bin/sh\nexec strace -D -f -qq -y -e trace=fsync,fdatasync -o "%s" "%s" "$@"\n' "$DIR/syncs" "$HALCYON" > "$DIR/traced"
chmod +x "$DIR/traced"
REAL="$HALCYON"
HALCYON="$DIR/traced" server_start "$DIR/data" "$DIR/server.log"
"$REAL" shell --zookeeper "$ZK" -e "create 't', 'f'" > "$DIR/shell.log"
syncs() { grep -cE '(fsync|fdatasync)\(.*/WALs/' "$DIR/syncs" || true; } # of WALs. The result may be on another line
before="$(syncs)"
puts="$(for ((n = 0; n < PUTS; n++)); do echo "put 't', 'r$n', 'f:q', '$n';"; done)"
"$REAL" shell --zookeeper "$ZK" -e "$puts" > "$DIR/shell.log"
[ "$("$REAL" shell --zookeeper "$ZK" -e "count 't'" | grep -o '[0-9]* row' | head -n 1)" = "$PUTS row" ] || { echo "the puts were not acknowledged: $(cat "$DIR/shell.log")" >&2; exit 1; }
sleep 0.2 # strace writes its lines
after="$(syncs)"
server_stop
[ $((after - before)) -ge "$PUTS" ] || { echo "$PUTS puts were acknowledged one after the other, and WALs synced $((after - before)) times" >&2; exit 1; }
echo "$PUTS puts, one after the other: WALs were synced $((after - before)) times"
