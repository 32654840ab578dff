#!/bin/bash
# Deliberate bugs (flaws/*.patch), one after the other in a copy of the source. The seeds must find each: those of the master with models
# of region servers, those of the region server (server-*) and of splits and merges (split-*, merge-*) with real ones.
# A patch counts as found when a seed fails with it for the reason in its head ("Found by: regular expression"; older ones have none), and
# passes without it.
# A patch that changes nothing must be missed.
# SEEDS=number, default 3000, SERVER_SEEDS=number, default 4000; names of patches as arguments choose some.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$copy/source" >"$copy/log" 2>&1; rm -rf "$copy"' EXIT
git -C "$root" worktree add --detach "$copy/source" HEAD >"$copy/log" 2>&1 || { cat "$copy/log"; exit 1; }
cd "$copy/source" || exit 1
# A directory of its own: cargo takes what was built from a copy for what the source would give.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/sim-flaws"
export CARGO_TARGET_DIR
# Threads take turns: on one processor they pass them faster.
pinned=()
! command -v taskset >"$copy/log" || pinned=(taskset -c "$(($(nproc) - 1))")

# build NAME: the simulation as the source is now, in $copy/NAME.
build() {
    cargo build -q -p halcyon-sim --bin halcyon-sim >"$copy/log" 2>&1 || return 1
    cp "$CARGO_TARGET_DIR/debug/halcyon-sim" "$copy/$1"
}

# run NAME ARGUMENTS: seeds, until one fails.
run() {
    local name=$1
    shift
    "${pinned[@]}" "$copy/$name" --failures 1 "$@" >"$copy/log" 2>&1
}

# judge NAME REASON SEEDS [--real]: prints the verdict. An error: the patch was not found.
judge() {
    local name=$1 reason=$2 seeds=$3 seed said
    shift 3
    if ! build patched; then
        echo "$name: does not compile"
        tail -20 "$copy/log"
        return 1
    fi
    if run patched --seeds "$seeds" "$@"; then
        echo "$name: MISSED by $seeds seeds"
        return 1
    fi
    seed=$(sed -n 's/^seed \([0-9]*\) fails$/\1/p' "$copy/log")
    said=$(grep -A1 'panicked at' "$copy/log" | grep -v 'panicked at\|^--' | cut -c1-150)
    if ! grep -A1 'panicked at' "$copy/log" | grep -qE -- "$reason"; then
        echo "$name: seed $seed fails for another reason than '$reason': $said"
        return 1
    fi
    if ! run plain --first "$seed" --seeds 1 "$@"; then
        echo "$name: seed $seed fails without the patch, too"
        return 1
    fi
    echo "$name: seed $seed: $said"
}

build plain || { echo "the source does not compile"; tail -20 "$copy/log"; exit 1; }
if [ $# -eq 0 ] && verdict=$(judge "no patch" . 20); then
    echo "what changes nothing was found: $verdict"
    exit 1
fi
missed=0
for patch in "$root"/testing/sim/flaws/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    git checkout -q -- . && git apply "$patch" || { echo "$name: the patch does not apply"; missed=1; continue; }
    reason=$(sed -n 's/^Found by: //p' "$patch")
    [ -n "$reason" ] || echo "$name: its head has no reason, so any counts"
    if [[ $name =~ ^(server|split|merge)- ]]; then
        judge "$name" "${reason:-.}" "${SERVER_SEEDS:-4000}" --real || missed=1
    else
        judge "$name" "${reason:-.}" "${SEEDS:-3000}" || missed=1
    fi
done
exit $missed
