#!/usr/bin/env bash
# `cargo test`, which fails if fewer tests have passed than there have to be. A filter that matches no test, a test that was renamed or is
# not ignored any more, and a file that is empty without a flag are a success of cargo.
#   cargo-tests.sh LEAST ARGUMENT...
set -euo pipefail
least="$1"
shift
said="$(mktemp)"
trap 'rm -f "$said"' EXIT
cargo test "$@" | tee "$said"
passed="$(sed -n 's/^.*test result: ok\. \([0-9]*\) passed.*/\1/p' "$said" | awk '{sum += $1} END {print sum + 0}')"
[ "$passed" -ge "$least" ] || { echo "$passed tests have run, and $least are the least: cargo test $*" >&2; exit 1; }
