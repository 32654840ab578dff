#!/usr/bin/env bash
# MixedLoad.java, the client that knows each answer, beside a server that does something wrong.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
server_start "$DIR/data" "$DIR/server.log"
table=0
mixed_load() { # mixed_load FAULT OPERATIONS: a table of its own; the client does so many, a number of digits
  local client
  table=$((table + 1))
  rm -f "$DIR/stop"
  CLIENT26_OPTIONS="-Dreport=500" with_fault "$1" client26 halcyon.compat.mixed.MixedLoad "$ZK" "load$table" 400 "$DIR/stop" &
  client=$!
  work_until "$client" "^so far: $2 operations"
  touch "$DIR/stop"
  wait "$client"
}
expect 0 '^verified 400 rows' mixed_load NONE "[0-9]{4}"
expect not '^ERROR scan from .*planted: the scan is refused' mixed_load SCANS_FAIL "[0-9]{4}"
expect not '^DIFFERENCE get of .*found 5 bytes' mixed_load VALUES_ARE_CUT "[0-9]{4}"
expect not '^ERROR worker-. ended early: .*planted: a thread ends' mixed_load GETS_END_THREADS "[0-9]{3}"
expect not '^ERROR get of .*planted: the client is broken' mixed_load GETS_BREAK "[0-9]{4}"
expect not '^TOO FEW worker-. had [0-9]* answers to [A-Z]*, and 10 are the least' mixed_load INCREMENTS_HANG "2[0-9][0-9]"
server_stop
