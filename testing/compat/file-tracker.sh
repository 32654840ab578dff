#!/usr/bin/env bash
# Store file trackers (DEFAULT, FILE, MIGRATION), by a client of HBase, against the answers of HBase 2.6.4 (file-tracker/answers.txt).
#   file-tracker.sh            starts a Halcyon and compares; about a minute
#   file-tracker.sh --hbase    starts an HBase and writes the file anew
#   file-tracker.sh --root     one root directory under HBase, Halcyon, HBase and Halcyon again, each killed with SIGKILL: each reads
#                              what the one before has written, and goes on
# HALCYON            the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# TRACKERS_DIR       data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch trackers
hbase_fetch
[ -n "$(find "$DIR/classes" -newer "$HERE/file-tracker/Trackers.java" -name Trackers.class 2> /dev/null)" ] ||
  javac -nowarn -d "$DIR/classes" -cp "$HBASE_LIB/*" "$HERE/file-tracker/Trackers.java"
trackers() { # trackers MODE ZOOKEEPER ROOT
  (cd "$DIR" && timeout 900 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Trackers "$@" 2> "$DIR/client.log" < /dev/null) ||
    { tail -n 20 "$DIR/client.log" >&2; return 1; }
}
same() { # same WHAT BEFORE AFTER
  diff "$DIR/$2.dump" "$DIR/$3.dump" > "$DIR/$3.diff" || { echo "FAILED: $1, see $DIR/$3.diff" >&2; head -n 10 "$DIR/$3.diff" | cut -c 1-300 >&2; exit 1; }
  echo "$1: $(grep -c '^cell ' "$DIR/$3.dump") cells are the same"
}

case "${1:-}" in
  --hbase)
    hbase_start "$DIR/hbase" "$DIR/hbase-root/data"
    trackers answers "$HBASE_ZK" "$DIR/hbase-root/data" > "$DIR/answers.txt"
    cp "$DIR/answers.txt" "$HERE/file-tracker/answers.txt"
    hbase_kill
    ;;
  --root)
    ROOT="$DIR/shared/data"
    mkdir -p "$ROOT"
    hbase_start "$DIR/first" "$ROOT"
    trackers fill "$HBASE_ZK" "$ROOT"
    trackers dump "$HBASE_ZK" "$ROOT" > "$DIR/filled.dump"
    hbase_kill
    server_start "$ROOT" "$DIR/server.log"
    trackers dump "$ZK" "$ROOT" > "$DIR/taken.dump"
    same "HBase's directory in Halcyon" filled taken
    trackers work "$ZK" "$ROOT"
    trackers dump "$ZK" "$ROOT" > "$DIR/worked.dump"
    server_kill_running
    hbase_start "$DIR/second" "$ROOT"
    trackers dump "$HBASE_ZK" "$ROOT" > "$DIR/back.dump"
    same "Halcyon's directory in HBase" worked back
    trackers work "$HBASE_ZK" "$ROOT"
    trackers dump "$HBASE_ZK" "$ROOT" > "$DIR/again.dump"
    hbase_kill
    server_start "$ROOT" "$DIR/server2.log"
    trackers dump "$ZK" "$ROOT" > "$DIR/end.dump"
    same "back in Halcyon" again end
    trackers work "$ZK" "$ROOT"
    trackers dump "$ZK" "$ROOT" > "$DIR/last.dump"
    server_kill_running
    server_start "$ROOT" "$DIR/server3.log"
    trackers dump "$ZK" "$ROOT" > "$DIR/reopened.dump"
    same "after a kill of Halcyon" last reopened
    server_stop
    ;;
  *)
    mkdir -p "$DIR/root/data"
    server_start "$DIR/root/data" "$DIR/server.log"
    trackers answers "$ZK" "$DIR/root/data" > "$DIR/answers.txt"
    server_stop
    mkdir -p "$DIR/own/data"
    server_start "$DIR/own/data" "$DIR/own.log"
    trackers own "$ZK" "$DIR/own/data" > "$DIR/own.txt"
    server_stop
    diff "$HERE/file-tracker/own.txt" "$DIR/own.txt" >&2 || { echo "FAILED: what HBase 2.6.4 cannot do" >&2; exit 1; }
    diff "$HERE/file-tracker/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: store file trackers work otherwise than HBase's" >&2; exit 1; }
    echo "$(wc -l < "$DIR/answers.txt") answers about store file trackers are HBase's"
    ;;
esac
