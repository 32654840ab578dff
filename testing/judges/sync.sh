#!/usr/bin/env bash
# Syncs that do nothing: in RealFileSystem, and of a server that acknowledges before.
# CARGO_TARGET_DIR   below it is a directory for the copies of the source that are built
set -euo pipefail
. "$(dirname "$0")/kit.sh"
puts() { SERVER_OPTIONS="$*" HALCYON="$HALCYON" "$TESTING/compat/sync.sh"; }
if strace -D -o /dev/null true 2> /dev/null; then
  expect 0 '^20 puts, one after the other' puts
  expect not 'WALs synced 0 times' puts --wal-sync written
else
  left_out "whether puts are synced: strace does not run"
fi

ROOT="$(cd "$TESTING/.." && pwd)"
git -C "$ROOT" worktree add -q --detach "$DIR/source" HEAD
cp "$ROOT/base/env/src/real.rs" "$DIR/source/base/env/src/real.rs"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/judges"
trap 'git -C "$ROOT" worktree remove --force "$DIR/source"; kit_end' EXIT
file_system() { # file_system [PATCH]
  cd "$DIR/source" && cp "$ROOT/base/env/src/real.rs" base/env/src/real.rs || return
  [ $# -eq 0 ] || git apply "$HERE/$1.patch" || return
  "$TESTING/compat/cargo-tests.sh" 1 --quiet -p halcyon-env --lib real::tests::a_sync
}
expect 0 '^test result: ok. 1 passed' file_system
expect not 'the null device cannot be synced' file_system sync-of-a-file
expect not 'the null device cannot be synced' file_system sync-of-a-directory
