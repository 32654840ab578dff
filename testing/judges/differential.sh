#!/usr/bin/env bash
# The differential test with two Halcyons, one of which, or both, do something wrong. It needs HBase's jars for its client.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
run=0
differential() { # differential FAULT [KILL]
  run=$((run + 1))
  REFERENCE=halcyon HALCYON="$HALCYON" SECONDS=300 EPISODES=1 STEPS=300 ADMIN=2 SEED=4 KILL="${2:-0}" DIFFERENTIAL_DIR="$DIR/differential$run" \
    JVM_OPTIONS="-Dfault=$1 -Dsound=0" CLASSES_FIRST="$CLIENT26_FIRST" "$TESTING/differential/run.sh"
}
expect 0 '^30[0-9] steps, .* 0 differences of 0 sorts' differential NONE
expect 0 '^deliberate differences that left other contents in rows that their steps name: \{[a-z]' differential FIRST_IS_BROKEN
expect not '^  after a deliberate one: the row planted of .* the step does not name it' differential FIRST_IS_BROKEN_SECOND_DOES_MORE
expect not '^FAILED: hardly an answer of the kind "put' differential PUTS_FAIL
expect 0 '^kill +[0-9]+ +0 ' differential NONE 1
expect not '^FAILED: .* wrong: not what it was before the kill' differential PUTS_SKIP_THE_WAL 1

FAKETIME="$(find /usr/lib -name libfaketimeMT.so.1 2> /dev/null | head -n 1)"
if [ -n "$FAKETIME" ]; then
  cat > "$DIR/late-halcyon" << LATE
#!/usr/bin/env bash
[[ " \$* " != *"/halcyon-data "* ]] || export LD_PRELOAD="$FAKETIME" FAKETIME=-10m FAKETIME_DONT_FAKE_MONOTONIC=1
exec "$HALCYON" "\$@"
LATE
  chmod +x "$DIR/late-halcyon"
  HALCYON="$DIR/late-halcyon" expect not '/1[0-9]{12}/(Put|Delete)' differential NONE
else
  left_out "a server whose clock is wrong: there is no libfaketime"
fi
