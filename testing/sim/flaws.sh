#!/bin/bash
# Deliberate bugs (flaws/*.patch), one after the other in a copy of the source. The seeds must find each: those of the master with models
# of region servers, those of the region server (server-*) and of splits and merges (split-*, merge-*) with real ones.
# SEEDS=number, default 3000, SERVER_SEEDS=number, default 1000; names of patches as arguments choose some.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$copy/source" >"$copy/log" 2>&1; rm -rf "$copy"' EXIT
git -C "$root" worktree add --detach "$copy/source" HEAD >"$copy/log" 2>&1 || { cat "$copy/log"; exit 1; }
cd "$copy/source" || exit 1
# A directory of its own: cargo takes what was built from a copy for what the source would give.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/sim-flaws"
export CARGO_TARGET_DIR
missed=0
for patch in "$root"/testing/sim/flaws/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    git checkout -q -- . && git apply "$patch" || { echo "$name: the patch does not apply"; missed=1; continue; }
    tried=a_cluster_keeps seeds=${SEEDS:-3000}
    [[ ! $name =~ ^(server|split|merge)- ]] || tried=a_cluster_of_real_servers seeds=${SERVER_SEEDS:-1000}
    if HALCYON_SEEDS=$seeds cargo test -q -p halcyon-sim --test seeds "$tried" >"$copy/log" 2>&1; then
        echo "$name: MISSED"
        missed=1
    elif seed=$(grep -o 'seed [0-9]* fails' "$copy/log"); then
        echo "$name: $seed: $(grep -A1 'panicked at testing\|panicked at cluster' "$copy/log" | sed -n 2p | cut -c1-150)"
    else
        echo "$name: does not compile"
        tail -20 "$copy/log"
        missed=1
    fi
done
exit $missed
