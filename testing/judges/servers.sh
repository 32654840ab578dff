#!/usr/bin/env bash
# server.sh, processes.sh and cluster.sh with servers that end by an assertion, or have ended before.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
HALCYON="$HERE/fake-halcyon.sh"
stopped() { ( # stopped FAKE [SECONDS]: started and, so many seconds later, stopped
  export FAKE="$1"
  server_start "$DIR/data" "$DIR/server.log"
  sleep "${2:-0}"
  server_stop && echo "was stopped" # errors do not end a command that is looked at
) }
killed() { (
  export FAKE="$1"
  server_start "$DIR/data" "$DIR/server.log"
  sleep 1
  server_kill_running && echo "was killed"
) }
expect 0 'was stopped' stopped sound
expect not 'the server has ended with 134 when it was stopped' stopped aborts
expect not 'an assertion of the server has failed: .*panicked at' stopped panics
expect not 'the server has ended with 134 before it was stopped' stopped dies 1
expect 0 'was killed' killed sound
expect not 'the server had ended with 134 before it was killed' killed dies

# The keeper of a cluster notes how processes end; cluster.sh is told by `stop`, `sound` and `down`.
. "$TESTING/cluster/processes.sh"
halcyon_command() { COMMAND=("$HERE/fake-halcyon.sh" "$DIR/$1/conf"); }
in_cluster() { ( # in_cluster FAKE: a process of a cluster, stopped by its keeper's notes
  export FAKE="$1" DIR="$DIR/cluster-$1"
  mkdir -p "$DIR/halcyon1"
  process_start halcyon1
  process_await "$(cat "$DIR/halcyon1/pid")" 20 grep -q '^ready' "$DIR/halcyon1/log"
  [ "$1" = dies ] || kill "$(cat "$DIR/halcyon1/pid")"
  process_gone "$DIR/halcyon1" 20
  process_note_ends
  FAKE=sound process_start halcyon1 # a new life must not hide how the old one ended
  result=0
  processes_are_sound || result=1
  process_kill "$(cat "$DIR/halcyon1/pid")"
  [ "$result" = 0 ] && echo "is sound"
) }
expect 0 'is sound' in_cluster sound
expect not 'halcyon1 has ended with 134, by an assertion' in_cluster aborts
expect not 'log:.*panicked at' in_cluster panics
expect not 'halcyon1 has ended with 134, by an assertion' in_cluster dies
