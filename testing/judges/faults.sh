#!/usr/bin/env bash
# A fault of faults.sh counts only when its effect was seen, and each recorder has to get answers after it (histories.sh).
set -euo pipefail
. "$(dirname "$0")/kit.sh"
chmod +x "$HERE/fake-cluster.sh"
mkdir -p "$DIR/bin"
ln -s "$HERE/fake-cluster.sh" "$DIR/bin/curl"
export STATE="$DIR/state" HALCYON="$HERE/fake-cluster.sh" PATH="$DIR/bin:$PATH" CLUSTER_DIR="$DIR/cluster"
mkdir -p "$CLUSTER_DIR/halcyon1" "$CLUSTER_DIR/halcyon2"

one_fault() { # one_fault FAULT FAKE [OFFSET]: whether it counted
  export FAKE="$2" OFFSET="${3:-0}"
  rm -rf "$STATE"
  mkdir -p "$STATE" "$DIR/results"
  printf '%032d s%d\n' 1 1 2 1 > "$STATE/places"
  printf '%032d/f old\n' 1 > "$STATE/files"
  SEED=3 PREFIX=halcyon SERVERS=2 SYSTEM=halcyon RESULTS="$DIR/results" ZK=none KINDS="lists registers rows" bash -euo pipefail -c '
    . "$1/cluster/faults.sh"
    fail() { echo "failed: $*"; exit 1; }
    setting_of() { echo 127.0.0.1:1; }
    name_of() { echo s2; }
    clock_back() { :; }
    with_clock() { begun 0 "its clock is $2 s off"; }
    cluster() { echo "halcyon1 running, halcyon2 running" | tr "," "\n" | sed "s/^ //"; }
    fault_round "$2"
    echo "counted ${DONE[$2]:-0}"
    [ "${DONE[$2]:-0}" = 1 ]' faults "$TESTING" "$1"
}
expect 0 '[0-9] have gone to halcyon' one_fault move ""
expect not 'move: it had no effect' one_fault move idle
expect 0 'was flushed, 1 new files' one_fault flush ""
expect not 'flush: it had no effect' one_fault flush idle
expect not 'flush: it had no effect' one_fault flush lazy

clocks() { # clocks OFFSET: of a put, at servers that are told to be half a second ahead or behind
  local seed
  for seed in +0.5 -0.5; do
    one_fault clock "" "$([ "$1" = right ] && echo "$seed" || echo "$1")" > "$DIR/clock" 2>&1 || true
    cat "$DIR/clock"
    grep -q "clock is $seed" "$DIR/clock" || continue
    grep -q 'counted 1' "$DIR/clock" || return 1
    return 0
  done
}
expect 0 'counted 1' clocks right
expect not 'clock: it had no effect: [0-9]* [0-9]* [0-9]*' clocks 0

recorders() { # recorders JAVA RUST: answers that each has after a fault, 1000 before
  local before after
  before="$(printf 'java-lists.txt 1000\nrust-lists.txt 1000\n')"
  after="$(printf 'java-lists.txt %d\nrust-lists.txt %d\n' $((1000 + $1)) $((1000 + $2)))"
  ANSWERS_LEAST=100
  eval "$(sed -n '/^have_recorded() {/,/^}/p' "$TESTING/cluster/histories.sh")"
  have_recorded "$before" "$after" && echo "both have answers" || { echo "one has too few"; return 1; }
}
expect 0 'both have answers' recorders 150 100
expect not 'one has too few' recorders 5000 0
expect not 'one has too few' recorders 99 100
