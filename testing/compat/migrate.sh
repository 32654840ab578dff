#!/usr/bin/env bash
# A table moves from a real HBase 2.6.4 to Halcyon by `halcyon migrate` and back, while a Java client writes to it and reads from it. The
# client knows what each row must have, and compares all rows of both at the end. HBase has another peer meanwhile, which gets all
# tables and goes on getting its edits. A second table is truncated before the cut over.
#   migrate.sh
# ROWS         rows that are loaded before, default 200000
# THREADS      threads of the client, default 8
# PAUSE_MAX    seconds after which a cut over is undone; it is tried up to six times; default 5
# FAULTS       1: kills the migration (-9) in each phase, and resumes it; default 1
# COPY_LIMIT   MiB a second of the copy that is killed, default 2: it has to last some seconds
# HALCYON      the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# MIGRATE_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROWS="${ROWS:-200000}"
THREADS="${THREADS:-8}"
FAULTS="${FAULTS:-1}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
DIR="${MIGRATE_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-migrate.XXXXXX")}"
WORKER=""
RUN=""
SITE_PID=""
finish() {
  local code=$?
  process_kill "$RUN"
  process_kill "$WORKER"
  process_kill "$SITE_PID"
  server_kill
  hbase_kill
  if [ $code -eq 0 ] && [ -z "${MIGRATE_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes"
rm -f "$DIR/ready" "$DIR/stop" "$DIR/migrate.json"
hbase_fetch
"${JAVA}c" -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/migrate/Migrate.java" 2> "$DIR/javac.log"

java_client() { # java_client COMMAND ARGUMENT...: in place of the shell that calls it; it ends itself
  exec "$JAVA" "-Xmx${CLIENT_MEMORY:-600m}" "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$HBASE_LIB/*" Migrate "$@" 2>> "$DIR/client.log" < /dev/null
}

fail() {
  echo "$1" >&2
  grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" 2> /dev/null | tail -n 5 >&2
  exit 1
}

migrate() { # migrate OPTION...: its output goes to migrate.log
  echo "\$ halcyon migrate $*" >> "$DIR/migrate.log"
  timeout "${MIGRATE_SECONDS:-3000}" "$HALCYON" migrate --state "$DIR/migrate.json" --ready-file "$DIR/ready" --progress-period 5 "$@" \
    >> "$DIR/migrate.log" 2>&1 < /dev/null
}

must() {
  migrate "$@" || { tail -n 15 "$DIR/migrate.log" >&2; fail "halcyon migrate $* failed"; }
  kill -0 "$WORKER" 2> /dev/null || fail "the client has ended: $(cat "$DIR/worker.txt")"
}

# cuts OPTION...: a cut over whose pause has a limit. One that was undone is tried again, some times.
cuts() {
  local try
  for try in 1 2 3 4 5 6; do
    if migrate "$@" --pause-max "${PAUSE_MAX:-5}"; then
      kill -0 "$WORKER" 2> /dev/null || fail "the client has ended: $(cat "$DIR/worker.txt")"
      return 0
    fi
    tail -n 1 "$DIR/migrate.log" | grep 'takes writes again; nothing was moved' || fail "halcyon migrate $*: $(tail -n 5 "$DIR/migrate.log")"
    UNDONE=$((UNDONE + 1))
    sleep 5
  done
  fail "no cut over within the pause in $try tries"
}

# killed TEXT OPTION...: kills a run as soon as its output has a line with TEXT, or after it has ended.
killed() {
  local text="$1" from tries=6000
  shift
  echo "\$ halcyon migrate $* # killed at '$text'" >> "$DIR/migrate.log"
  from="$(wc -l < "$DIR/migrate.log")"
  "$HALCYON" migrate --state "$DIR/migrate.json" --ready-file "$DIR/ready" --progress-period 1 "$@" >> "$DIR/migrate.log" 2>&1 < /dev/null &
  RUN=$!
  while ! tail -n "+$((from + 1))" "$DIR/migrate.log" | grep "$text" > /dev/null; do
    kill -0 "$RUN" 2> /dev/null && [ $((tries--)) -gt 0 ] || fail "no line '$text' before the end of the run: $(tail -n 5 "$DIR/migrate.log")"
    sleep 0.05
  done
  process_kill "$RUN"
  RUN=""
  KILLS=$((KILLS + 1))
}

cpu_ms() { # cpu_ms PID: processor time
  awk -v hz="$(getconf CLK_TCK)" '{sub(/^.*\) /, ""); print int(($12 + $13) * 1000 / hz)}' "/proc/$1/stat"
}

# measured NAME COMMAND...: how long it takes, and the processor time of both servers and the client meanwhile.
measured() {
  local name="$1" hbase halcyon worker start
  shift
  hbase="$(cpu_ms "$HBASE_PID")" halcyon="$(cpu_ms "$SERVER_PID")" worker="$(cpu_ms "$WORKER")" start="$(date +%s%N)"
  "$@"
  printf '%s: %.1f s, processor time HBase %.1f s, Halcyon %.1f s, client %.1f s\n' "$name" \
    "$(bc -l <<< "($(date +%s%N) - $start) / 1000000000")" "$(bc -l <<< "($(cpu_ms "$HBASE_PID") - $hbase) / 1000")" \
    "$(bc -l <<< "($(cpu_ms "$SERVER_PID") - $halcyon) / 1000")" "$(bc -l <<< "($(cpu_ms "$WORKER") - $worker) / 1000")"
}

shell_at() { # shell_at ZOOKEEPER COMMAND
  "$HALCYON" shell --zookeeper "$1" -e "$2" >> "$DIR/shell.log" 2>&1 < /dev/null || fail "halcyon shell, $2: $(tail -n 3 "$DIR/shell.log")"
}

# site_gets ROW: a row of a table that does not move reaches HBase's other peer.
site_gets() {
  shell_at "$HBASE_ZK" "put 'bystander', '$1', 'f:q', 'v'"
  process_await "$SITE_PID" 60 site_has "$1" || fail "row $1 has not reached the other peer of HBase"
}
site_has() { "$HALCYON" shell --zookeeper "$SITE_ZK" -e "get 'bystander', '$1'" < /dev/null | grep -q 'value=v'; }

KILLS=0
UNDONE=0
server_start "$DIR/site" "$DIR/site.log"
SITE_PID="$SERVER_PID" SITE_ZK="$ZK"
server_start "$DIR/data" "$DIR/server.log"
hbase_start "$DIR/hbase" "$DIR/hbase-root"
(java_client create "$HBASE_ZK")
(java_client load "$HBASE_ZK" "$ROWS")
java_client work "$HBASE_ZK" "$ZK" "$DIR" "$THREADS" "$ROWS" > "$DIR/worker.txt" &
WORKER=$!
process_await "$WORKER" 60 test -e "$DIR/counts"
sleep 3
WHERE=(--from "hbase://$HBASE_ZK/hbase" --to "hbase://$ZK/hbase" --tables shop:orders,shop:small)
for at in "$HBASE_ZK" "$SITE_ZK"; do
  shell_at "$at" "create 'bystander', {NAME => 'f', REPLICATION_SCOPE => 1}"
done
shell_at "$SITE_ZK" "create_namespace 'shop'"
shell_at "$SITE_ZK" "create 'shop:orders', 'a', 'b'"
shell_at "$SITE_ZK" "create 'shop:small', 'f'"
shell_at "$HBASE_ZK" "create 'shop:small', 'f'"
shell_at "$HBASE_ZK" "put 'shop:small', 'old', 'f:q', 'v'"
shell_at "$HBASE_ZK" "add_peer 'site', CLUSTER_KEY => \"$SITE_ZK:/hbase\""
site_gets before

# Wrong input changes nothing and says what to do.
! migrate --from "hbase://$HBASE_ZK/hbase" --to "hbase://$ZK/hbase" --tables shop:none || fail "a table that does not exist was taken"
grep -q "the source has no table shop:none" "$DIR/migrate.log"
! migrate --from "hbase://$HBASE_ZK/hbase" --to "hbase://$HBASE_ZK/hbase" --tables shop:orders || fail "one cluster was taken for two"
grep -q "are one cluster" "$DIR/migrate.log"
! migrate --cut-over || fail "a cut over without a migration"
grep -q "there is no migration" "$DIR/migrate.log"
! migrate "${WHERE[@]}" || fail "the other peer of HBase was not looked at"
grep -q "the peer site of the source would begin to get shop:orders" "$DIR/migrate.log"
! migrate "${WHERE[@]}" --accept-other-peers || fail "the other peer of HBase would get the table of marks"
shell_at "$HBASE_ZK" "$(grep -o 'append_peer_exclude_tableCFs .site., {"halcyon_migrate" => \[\]}' "$DIR/migrate.log" | head -n 1)"
WHERE+=(--accept-other-peers)

if [ "$FAULTS" = 1 ]; then
  killed 'target: shop:orders is created' "${WHERE[@]}"
  killed 'the peer halcyon_migrate is added' "${WHERE[@]}"
  killed '^copy: ' "${WHERE[@]}" --rate-limit "${COPY_LIMIT:-2}"
  killed '^copied: ' "${WHERE[@]}"
  killed '^follow: ' "${WHERE[@]}"
  killed '^compare\(d\)\?: ' "${WHERE[@]}"
fi
measured "copy, follow, compare" must "${WHERE[@]}"
grep -E '^(copied|follow: the target|compared): ' "$DIR/migrate.log" | tail -n 4
if [ "$FAULTS" = 1 ]; then
  killed 'writes stop' --cut-over --pause-max 60
  must # undoes it
  killed 'pause: ' --cut-over --pause-max 60
  must --cut-over --pause-max 60
  killed 'writes stop' --back --pause-max 60
  must --back --pause-max 60
fi
sleep 3
site_gets during
# What the target has of a table that was truncated is not deleted unasked.
shell_at "$HBASE_ZK" "truncate 'shop:small'"
shell_at "$HBASE_ZK" "put 'shop:small', 'new', 'f:q', 'v'"
! migrate --cut-over || fail "the cut over deleted a row that it was not told to"
grep -q "1 rows have cells that only the target has: shop:small 'old'" "$DIR/migrate.log"
measured "cut over" cuts --cut-over --delete-surplus
grep '^cut over: ' "$DIR/migrate.log" | tail -n 1
sleep 5
measured "verify at Halcyon" must --verify
sleep 2
measured "cut over back" cuts --back
grep '^cut over: ' "$DIR/migrate.log" | tail -n 1
sleep 5
must --verify
touch "$DIR/stop"
wait "$WORKER" || fail "the client: $(cat "$DIR/worker.txt")"
WORKER=""
cat "$DIR/worker.txt"
migrate --finish || fail "halcyon migrate --finish failed: $(tail -n 5 "$DIR/migrate.log")"
migrate --status || fail "no status"
grep -q 'has ended' "$DIR/migrate.log"
site_gets after
echo "migration of $ROWS rows from HBase and back under writes: $KILLS kills of the migration, $UNDONE cut overs undone, differences 0"
