#!/usr/bin/env bash
# cluster/one-kill.sh with rows that are acknowledged and in no WAL, with servers that end by SIGABRT, and without the jars of ZooKeeper.
set -euo pipefail
. "$(dirname "$0")/kit.sh"
faulty_client
run=0
one_kill() { # one_kill FAULT [PROGRAM]
  run=$((run + 1))
  CLUSTER_DIR="$DIR/cluster$run" PROGRAM="$HALCYON" HALCYON="${2:-$HALCYON}" with_fault "$1" timeout 400 "$TESTING/cluster/one-kill.sh"
}
expect 0 '^verdict right: [0-9]{3,} rows' one_kill NONE
expect not '^DIFFERENCE scan: found .*, expected' one_kill PUTS_SKIP_THE_WAL
expect not 'halcyon.* was stopped, and has ended with 134' one_kill NONE "$HERE/aborting-server.sh"

mkdir -p "$DIR/bin" "$DIR/home"
cat > "$DIR/bin/mvn" << FAKE
#!/bin/sh
case "\$*" in *copy-dependencies*) exit 1 ;; esac
exec $(command -v mvn) "\$@"
FAKE
chmod +x "$DIR/bin/mvn"
without_jars() { HALCYON_HBASE_LIB="" HOME="$DIR/home" PATH="$DIR/bin:$PATH" one_kill NONE; }
expect not 'Maven could not fetch the jars' without_jars
