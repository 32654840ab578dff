#!/usr/bin/env bash
# Both recorders of histories: a process that ends early, a client that is broken, and one that gets no answers to one thing. Histories without
# answers during a fault, and without reads of what is old.
# HISTORIES   the Rust recorder, default target/debug/halcyon-histories below CARGO_TARGET_DIR; it is left out if there is none
set -euo pipefail
. "$(dirname "$0")/kit.sh"
HISTORIES="${HISTORIES:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/debug/halcyon-histories}"
faulty_client
server_start "$DIR/data" "$DIR/server.log"
run=0
recorder() { # recorder FAULT
  local client
  run=$((run + 1))
  rm -f "$DIR/stop"
  mkdir -p "$DIR/histories$run"
  client26 halcyon.compat.histories.Recorder create "$ZK" "h$run"
  CLIENT26_OPTIONS="-Dsound=300 -Drate=60 -Dleast=3" with_fault "$1" client26 halcyon.compat.histories.Recorder record "$ZK" "h$run" "$DIR/histories$run" "$DIR/stop" &
  client=$!
  work_until "$client" '^so far: [0-9]{4} operations'
  touch "$DIR/stop"
  wait "$client"
}
rust() { # rust KIND: of tables that the Java recorder has made
  "$HISTORIES" record "$1" --zookeeper "$ZK" --table "h1-$1" --output "$DIR/rust-$1.txt" --seconds 10 "${@:2}"
}
expect 0 '^end: rows: ' recorder NONE
expect not '^FAILED: java.lang.LinkageError: planted' recorder GETS_END_THREADS
expect not '^FAILED: .*ended in exceptions that are no answers, the first: java.lang.IllegalStateException: planted' recorder GETS_BREAK
expect not '^FAILED: lists: java. had 0 answers to append' recorder APPENDS_FAIL
if [ -x "$HISTORIES" ]; then
  expect 0 'recorded [0-9]* operations' rust lists
  expect not 'rust.* had [0-9]* answers to .*, and 100000 are the least' rust lists --least 100000
  shown() { # shown EVENT...: whether what the Java recorder wrote shows something of these events
    printf '%s\n' "$@" > "$DIR/events"
    "$HISTORIES" check --events "$DIR/events" --least-answers 10 --least-aged 10 "$DIR/histories1"/java-*.txt
  }
  from="$(sed -n 's/^java0 put [^ ]* [^ ]* \([0-9]*\) .*/\1/p' "$DIR/histories1/java-rows.txt" | head -n 1)"
  always="fault kill $from $((from + 3600000000000))"
  expect not 'TOO LITTLE: java had 0 answers during the fault kill at [0-9]* s, and 10 are the least' shown "fault kill $((from - 10)) $((from - 5))"
  expect not 'TOO LITTLE: 0 reads found what was written or deleted before a flush' shown "$always"
else
  left_out "the Rust recorder, there is no $HISTORIES"
fi
server_stop
