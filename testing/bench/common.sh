# Shared by the scripts of this directory; source it first. Sets:
# BENCH, ROOT      this directory, the source tree
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# PEERS            where lib.sh, hbase.sh, pe.sh and ycsb.sh are, which fetch and run HBase and YCSB; default ../shared/peers
#                  beside the source tree
# LAB_DIR          where those keep jars and data, default ~/.cache/halcyon-lab
# and from testing/compat/server.sh: server_start, server_stop, server_kill.
set -uo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$BENCH/../.." && pwd)"
PEERS="${PEERS:-$ROOT/../shared/peers}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -f "$PEERS/lib.sh" ] || { echo "no HBase to take the clients from: set PEERS to the directory with lib.sh, hbase.sh, pe.sh and ycsb.sh" >&2; exit 66; }
PEERS="$(cd "$PEERS" && pwd)"
GIVEN_PID="${SERVER_PID:-}" # of a server that is not ours to end
. "$PEERS/lib.sh"
. "$ROOT/testing/compat/server.sh"
hbase_libs || exit 1
JAVA="$(jdk_home "${CLIENT_JDK:-17}")/bin/java" || exit 1

# bench_dir NAME sets DIR, a new directory for data and logs, removed at the end if the script ends with 0.
bench_dir() {
  DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-$1.XXXXXX")"
  trap 'bench_end $?' EXIT
  trap 'exit 130' INT TERM
}

bench_end() { # bench_end EXIT_CODE
  server_kill
  [ -z "$SERVER_TROUBLE" ] || set -- 1 # not every script ends when server_stop fails
  if [ "$1" -eq 0 ] && [ -z "${KEEP:-}" ]; then rm -rf "$DIR"; else echo "logs and data stay in $DIR" >&2; fi
  exit "$1"
}

# halcyon_start [OPTIONS...] with its data and its log in DIR; sets ZK and SERVER_PID.
halcyon_start() {
  [ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
  # a build that goes on meanwhile must not change what is measured
  cp "$HALCYON" "$DIR/halcyon" && : > "$DIR/server.log" || exit 1
  HALCYON="$DIR/halcyon" SERVER_MEMORY="${SERVER_MEMORY:-1g}" SERVER_OPTIONS="$*" server_start "$DIR/data" "$DIR/server.log" || exit 1
}

# log_trouble prints what the server's log says of errors; fails if there is any.
log_trouble() {
  ! grep -E ' (ERROR|WARN) |panicked' "$DIR/server.log"
}

# pe_cases CASES SECONDS_MAX runs a list of PE and RowCounter runs in one JVM, see tools/PeRunner.java; logs and figures go
# to DIR/logs. JVM_OPTIONS says how the JVM is; the default starts quickly.
pe_cases() {
  local lib="$LAB_DIR/rowcounter-lib"
  if [ ! -f "$lib/.complete" ]; then
    mvn -q -B -ntp -f "$BENCH/pom.xml" dependency:copy-dependencies -DoutputDirectory="$lib" >&2 && touch "$lib/.complete" || return 2
  fi
  mkdir -p "$DIR/logs"
  # Hadoop's local job runner makes links in the working directory
  # shellcheck disable=SC2086
  (cd "$DIR" && exec timeout "$2" "$JAVA" -Xmx1g ${JVM_OPTIONS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1} $HB_OPENS \
    -Djava.net.preferIPv4Stack=true -cp "$PEERS/conf-client:$LAB_DIR/hbase/lib/*:$lib/*" "$BENCH/tools/PeRunner.java" \
    "$1" "$DIR/logs") 2> "$DIR/runner.err"
}
