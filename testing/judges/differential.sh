#!/usr/bin/env bash
# The differential test with two Halcyons, one of which, or both, do something wrong. It needs HBase's jars for its client.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
run=0
differential() { # differential FAULT
  run=$((run + 1))
  REFERENCE=halcyon HALCYON="$HALCYON" SECONDS=300 EPISODES=1 STEPS=200 ADMIN=2 SEED=4 DIFFERENTIAL_DIR="$DIR/differential$run" \
    JVM_OPTIONS="-Dfault=$1 -Dsound=0" CLASSES_FIRST="$CLIENT26_FIRST" "$TESTING/differential/run.sh"
}
expect 0 '^20[0-9] steps, .* 0 differences of 0 sorts' differential NONE
expect 0 '^deliberate differences that left other contents in rows that their steps name: \{put=' differential FIRST_IS_BROKEN
expect not '^  after a deliberate one: the row planted of .* the step does not name it' differential FIRST_IS_BROKEN_SECOND_DOES_MORE
expect not '^FAILED: hardly an answer of the kind "put' differential PUTS_FAIL
