#!/usr/bin/env bash
# A serial peer of a cluster of Halcyon with two masters and three region servers: a real HBase 2.6.4. A client puts rising numbers into the
# same rows. Meanwhile regions are moved, split and merged, and region servers and the active master are killed. In the WALs of the peer
# each row's numbers must come in their order: what comes for the first time is larger than all before. A batch may come twice after a kill.
#   replication-serial.sh [ROUNDS]    default 3: in each a region server is killed; in the second one the active master, too
# HALCYON      the binary, default target/release/halcyon below CARGO_TARGET_DIR
# MOVES        of regions in a round, default 12
# PLAIN        not empty: the peer is not serial. Then the check must fail, which shows that it can
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-cluster-serial}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROUNDS="${1:-3}"
MOVES="${MOVES:-12}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
DIR="$CLUSTER_DIR-peer" # a directory of a cluster holds nothing else
trap 'touch "$DIR/end"; hbase_kill; cluster down' EXIT
trap 'exit 143' TERM INT
rm -rf "$DIR"
mkdir -p "$DIR/classes"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/../compat/replication/Replication.java" 2> "$DIR/javac.log"

client() { # client COMMAND ARGUMENT...
  timeout 900 "$JAVA" -Xmx300m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Replication "$@" \
    2>> "$DIR/client.log" < /dev/null || { echo "client $1 failed:" >&2; grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" | tail -n 20 >&2; return 1; }
}
arrivals() { # row and number of each cell in the peer's WALs, in their order
  find "$DIR/hbase-root/WALs" "$DIR/hbase-root/oldWALs" -type f -name '*,*' -o -type f -name '*%2C*' | grep -v '\.meta' |
    awk -F. '{ print $NF, $0 }' | sort -n | cut -d' ' -f2- | while read -r wal; do
    "$HALCYON" inspect wal -p -t rising "$wal" 2>> "$DIR/inspect.log" || true
  done | awk '/^row=row-/ { sub(/,.*/, ""); row = $0 } /^    value: / && row != "" { if ($2 ~ /^[0-9]+$/) print row, $2; row = "" }'
}
has_all() { # has_all NUMBER: the last number of each row has arrived
  arrivals > "$DIR/arrivals"
  [ "$(awk -v last="$1" '$2 == last && !seen[$1]++' "$DIR/arrivals" | wc -l)" = 20 ]
}
moved=0
move_some() { # move_some COUNT
  local number servers region
  for number in $(seq 1 "$1"); do
    mapfile -t servers < <(for process in halcyon1 halcyon2 halcyon3; do name_of "$process"; done)
    region="$(regions rising | shuf -n 1)"
    [ -z "$region" ] || ! sh_halcyon "move '$region', '${servers[RANDOM % 3]}'" > /dev/null 2>&1 || moved=$((moved + 1))
  done
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
HBASE_PROPERTIES="fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem hbase.wal.provider=filesystem hbase.master.logcleaner.ttl=86400000"
HBASE_START_SECONDS=180
hbase_start "$DIR/hbase" "$DIR/hbase-root"
client rising-table "$HBASE_ZK"
client rising-table "$ZK"
# A peer that is serial, is not, and becomes so again.
client serial "$ZK" hbase "$HBASE_ZK:/hbase" true
client serial "$ZK" hbase "$HBASE_ZK:/hbase" false
[ -n "${PLAIN:-}" ] || client serial "$ZK" hbase "$HBASE_ZK:/hbase" true

client rising "$ZK" "$DIR/end" > "$DIR/last" & writer=$!
move_some "$MOVES"
for round in $(seq 1 "$ROUNDS"); do
  process="halcyon$((round % 3 + 1))" name="$(name_of "halcyon$((round % 3 + 1))")"
  move_some 2
  cluster kill-server "$process"
  if [ "$round" = 2 ]; then
    master="$(active)"
    [ -z "$master" ] || { cluster kill "$master"; wait_for 60 another_is_active "$master"; cluster start "$master"; }
  fi
  wait_for 60 is_dead "$name"
  cluster kill "$process" 2> /dev/null || true
  cluster start "$process"
  wait_for 60 has_another "$process" "$name"
  move_some "$MOVES"
  case $((round % 2)) in
    1) sh_halcyon "split '$(regions rising | head -n 1)', 'row-0$((round + 1))'" > /dev/null || fail "no split" ;;
    0) sh_halcyon "merge_region '$(regions rising | sed -n 1p)', '$(regions rising | sed -n 2p)'" > /dev/null || fail "no merge" ;;
  esac
  sleep 2
done
touch "$DIR/end"
wait "$writer"
last="$(cat "$DIR/last")"
wait_for 120 has_all "$last"
awk '
  $2 > most[$1] { if ($2 != most[$1] + 1) { print $1, $2, "came behind", most[$1] + 0; wrong++ } most[$1] = $2; first++; next }
  { again++ }
  END { print first + 0, "numbers came in their order,", again + 0, "came again"; exit wrong > 0 }
' "$DIR/arrivals" > "$DIR/verdict" || { head -n 20 "$DIR/verdict"; fail "numbers did not come in their order"; }
sh_halcyon "scan 'hbase:meta', {COLUMNS => ['rep_barrier']}" > "$DIR/barriers" 2>&1 || true
echo "a serial peer of a cluster of three servers: $ROUNDS region servers killed, $moved moves, up to $last in each of 20 rows; $(tail -n 1 "$DIR/verdict")"
