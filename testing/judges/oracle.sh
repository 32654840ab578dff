#!/usr/bin/env bash
# The oracle of random scripts on a region whose minor compactions leave their oldest file in the store, and the next opening reads it.
# CARGO_TARGET_DIR   below it is a directory for the copies of the source that are built
set -euo pipefail
. "$(dirname "$0")/kit.sh"
ROOT="$(cd "$TESTING/.." && pwd)"
git -C "$ROOT" worktree add -q --detach "$DIR/source" HEAD
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/judges" RUST_BACKTRACE=0
trap 'git -C "$ROOT" worktree remove --force "$DIR/source"; kit_end' EXIT
region() { # region [PATCH]
  cd "$DIR/source" && git checkout -q -- storage || return
  [ $# -eq 0 ] || git apply "$HERE/$1.patch" || return
  # Most scripts that fail do so by a cell that a major compaction had removed for sure. Not this one.
  HALCYON_SEED=62 HALCYON_SEEDS=4 "$TESTING/compat/cargo-tests.sh" 1 --quiet -p halcyon-region --test all oracle::by_windows_of_time
}
expect 0 '^test result: ok. 1 passed' region
expect not '^an earlier read has shown that it was gone, and it came back' region compacted-file-stays
