#!/usr/bin/env bash
# HBase's own clients read through the proxy of `halcyon shadow`: from a real HBase 2.6.4, and from Halcyon. The recording is replayed
# against both, and differences that were planted have to be found.
#   shadow.sh [--short]     --short: Halcyon alone, before and behind the proxy, without HBase; part of make test
# ROWS         rows of the table, default 3000
# ROUNDS       rounds of reads, default 10
# CLIENTS      1: also the tests of testing/compat through the proxy (clients 1.4 to 3.0, asynchbase), default 0
# PAGE         where to keep the page of the replay with differences
# HALCYON      the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# SHADOW_DIR   data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SHORT=0
[ "${1:-}" != --short ] || SHORT=1
ROWS="${ROWS:-$([ $SHORT = 1 ] && echo 600 || echo 3000)}"
ROUNDS="${ROUNDS:-$([ $SHORT = 1 ] && echo 2 || echo 10)}"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
DIR="${SHADOW_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-shadow.XXXXXX")}"
PROXY=""
OTHER=""
FLICKER=""
finish() {
  local code=$?
  process_kill "$PROXY"
  process_kill "$FLICKER"
  process_kill "$OTHER"
  server_kill
  hbase_kill
  if [ $code -eq 0 ] && [ -z "${SHADOW_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes"
if [ $SHORT = 1 ]; then
  client26_classes
  JARS="$CLIENT26_CLASS_PATH"
else
  hbase_fetch
  JARS="$HBASE_LIB/*"
fi
"${JAVA}c" -nowarn -cp "$JARS" -d "$DIR/classes" "$HERE/shadow/Shadow.java" 2> "$DIR/javac.log" || { cat "$DIR/javac.log" >&2; exit 1; }

java_client() { # java_client COMMAND ARGUMENT...; CLIENT_OPTIONS has options of the JVM
  # shellcheck disable=SC2086
  timeout 600 "$JAVA" "-Xmx${CLIENT_MEMORY:-400m}" "${JAVA_FLAGS[@]}" ${CLIENT_OPTIONS:-} -cp "$DIR/classes:$JARS" Shadow "$@" 2>> "$DIR/client.log" < /dev/null ||
    fail "the client failed: $*"
}

fail() {
  echo "FAILED: $1" >&2
  grep -v '^\(log4j\|SLF4J\)' "$DIR/client.log" 2> /dev/null | tail -n 12 >&2
  exit 1
}

# proxy_start LOG COMMAND OPTION...: sets PROXY, PROXY_RPC, PROXY_ZK and PROXY_PORTS (host:port of each server, with commas)
proxy_start() {
  local log="$1"
  shift
  "$HALCYON" shadow "$@" > "$log" 2>&1 < /dev/null &
  PROXY=$!
  process_await "$PROXY" 30 grep -q '^ready' "$log" || { cat "$log" >&2; fail "halcyon shadow $1 did not start"; }
  PROXY_RPC="$(server_address registry "$log")"
  PROXY_ZK="$(server_address zookeeper "$log")"
  PROXY_PORTS="$(sed -n 's/^server .* is //p' "$log" | paste -sd, -)"
}

proxy_stop() { # SIGTERM; its output has to end well
  local pid="$PROXY"
  PROXY=""
  kill "$pid"
  process_end "$pid" 60
}

replay() { # replay LOG OPTION...: its result is that of the program
  local log="$1"
  shift
  timeout 600 "$HALCYON" shadow replay --tables shop:items "$@" > "$log" 2>&1 < /dev/null
}

number() { # number FILE PATH...: a number of a JSON file
  python3 -c 'import json,sys
value = json.load(open(sys.argv[1]))
for name in sys.argv[2:]: value = value[name]
print(value)' "$@"
}

server_start "$DIR/data" "$DIR/server.log"
HALCYON_URL="hbase://$ZK/hbase"
HALCYON_ZK="zk:$ZK"
if [ $SHORT = 1 ]; then
  FIRST_URL="$HALCYON_URL" FIRST_ZK="$HALCYON_ZK"
  java_client load "$FIRST_ZK" "$ROWS"
else
  hbase_start "$DIR/hbase" "$DIR/hbase-root"
  FIRST_URL="hbase://$HBASE_ZK/hbase" FIRST_ZK="zk:$HBASE_ZK"
  java_client load "$FIRST_ZK" "$ROWS"
  timeout 300 "$HALCYON" migrate --state "$DIR/migrate.json" --from "$FIRST_URL" --to "$HALCYON_URL" --tables shop:items > "$DIR/migrate.log" 2>&1 ||
    { tail -n 5 "$DIR/migrate.log" >&2; fail "the copy by halcyon migrate"; }
  timeout 120 "$HALCYON" migrate --state "$DIR/migrate.json" --abort >> "$DIR/migrate.log" 2>&1 || fail "the end of the copy"
  tail -n 1 "$DIR/migrate.log"
fi

# Recording: two clients of HBase, one by each way to find a cluster, and a third with another codec and compressor.
proxy_start "$DIR/record.log" record --cluster "$FIRST_URL" --output "$DIR/reads" --answers --file-size 1 --progress-period 2
java_client read "rpc:$PROXY_RPC" "$ROWS" "$ROUNDS" "$PROXY_PORTS"
if [ $SHORT = 0 ]; then
  java_client read "zk:$PROXY_ZK" "$ROWS" "$ROUNDS" "$PROXY_PORTS"
  CLIENT_OPTIONS="-Dcompressor=org.apache.hadoop.io.compress.GzipCodec -Dcodec=org.apache.hadoop.hbase.codec.CellCodec" \
    java_client read "zk:$PROXY_ZK" "$ROWS" 2 "$PROXY_PORTS"
  java_client write "zk:$PROXY_ZK" 300
  java_client move "rpc:$PROXY_RPC"
  java_client read "rpc:$PROXY_RPC" "$ROWS" 1 "$PROXY_PORTS"
fi
# Garbage ends its own connection only.
head -c 5000 /dev/urandom > "/dev/tcp/127.0.0.1/${PROXY_RPC##*:}" 2> /dev/null || true
printf 'HBas\0\x50\xff\xff\xff\xff' > "/dev/tcp/127.0.0.1/${PROXY_RPC##*:}" || true
head -c 5000 /dev/urandom > "/dev/tcp/127.0.0.1/${PROXY_ZK##*:}" 2> /dev/null || true
java_client read "zk:$PROXY_ZK" "$ROWS" 1
proxy_stop || fail "the proxy did not end well: $(tail -n 3 "$DIR/record.log")"
grep '^recorded: ' "$DIR/record.log"
grep -q ' 0 dropped, .* 0 not understood' <(tail -n 2 "$DIR/record.log") || fail "reads were lost: $(tail -n 2 "$DIR/record.log")"

# Both systems answer alike, and as the clients were answered.
replay "$DIR/replay.log" "$DIR/reads" --a "$FIRST_URL" --b "$HALCYON_URL" --speed 0 --threads 8 --json "$DIR/equal.json" --page "$DIR/equal.html" ||
  { tail -n 30 "$DIR/replay.log" >&2; fail "the replay found differences"; }
replay "$DIR/recorded.log" "$DIR/reads" --b "$HALCYON_URL" --speed 0 --threads 8 ||
  { tail -n 30 "$DIR/recorded.log" >&2; fail "the answers of the recording differ"; }
cat "$DIR/replay.log"
READS="$(number "$DIR/equal.json" all reads)"
for kind in get exists multi scan; do
  [ "$(number "$DIR/equal.json" byKind $kind reads)" -gt 0 ] || fail "no $kind was recorded"
done

if [ $SHORT = 1 ]; then
  java_client plant "$HALCYON_ZK"
  ! replay "$DIR/planted.log" "$DIR/reads" --b "$HALCYON_URL" --speed 0 --settle-pause 50 --settle-readings 2 --json "$DIR/planted.json" ||
    fail "planted differences were not found"
else
  # Planted differences stay different, on the page too; a row that changes all the time does not.
  java_client plant "$HALCYON_ZK"
  java_client flicker "$HALCYON_ZK" 5 600 > /dev/null &
  FLICKER=$!
  ! replay "$DIR/planted.log" "$DIR/reads" --a "$FIRST_URL" --b "$HALCYON_URL" --speed 0 --threads 8 --settle-pause 100 --settle-readings 2 \
    --json "$DIR/planted.json" --page "${PAGE:-$DIR/planted.html}" || fail "planted differences were not found"
  process_kill "$FLICKER"
  FLICKER=""
fi
for kind in 'other value' 'missing in b' 'missing in a' 'other timestamp'; do
  grep -q "\"kind\": \"$kind\"" "$DIR/planted.json" || fail "no difference '$kind' was found: $(cat "$DIR/planted.log")"
done
grep -E '^differences: |reads compared' "$DIR/planted.log" | tail -n 6

if [ $SHORT = 0 ]; then
  # A recording without secrets: no value of an answer is in it, and the planted differences are found by it as well.
  proxy_start "$DIR/hashed.log" record --cluster "$FIRST_URL" --output "$DIR/hashed" --answers --hash-values --sample 0.5
  java_client read "zk:$PROXY_ZK" "$ROWS" 2
  proxy_stop || fail "the proxy did not end well"
  ! grep -q 'host1[0-9]*:16020' "$DIR/hashed.000001" || fail "a value is in the recording"
  ! replay "$DIR/hashed-replay.log" "$DIR/hashed" --b "$HALCYON_URL" --speed 0 --settle-pause 50 --settle-readings 2 --json "$DIR/hashed.json" ||
    fail "planted differences were not found by checksums"
  grep -q '"kind": "other value"' "$DIR/hashed.json" || fail "no difference was found by checksums"

  # A mirror: the client is answered by HBase, and Halcyon gets copies. Then Halcyon dies, and the client does not notice.
  proxy_start "$DIR/mirror.log" mirror --cluster "$FIRST_URL" --to "$HALCYON_URL" --timeout 5 --settle-pause 50 --json "$DIR/mirror.json" --page "$DIR/mirror.html"
  java_client read "rpc:$PROXY_RPC" "$ROWS" "$ROUNDS"
  server_kill_running
  java_client read "rpc:$PROXY_RPC" "$ROWS" "$ROUNDS"
  local_pid="$PROXY" PROXY=""
  kill "$local_pid"
  process_end "$local_pid" 120 || true
  [ -s "$DIR/mirror.json" ] || fail "the mirror has no result: $(tail -n 5 "$DIR/mirror.log")"
  grep 'reads compared' "$DIR/mirror.log" | tail -n 1
  [ "$(number "$DIR/mirror.json" all reads)" -gt 100 ] || fail "the mirror compared too little"
  [ "$(number "$DIR/mirror.json" all staysDifferent)" -gt 0 ] || fail "the mirror found none of the planted differences"

  if [ "${CLIENTS:-0}" = 1 ]; then
    rm -rf "$DIR/data"
    server_start "$DIR/data2" "$DIR/server.log"
    proxy_start "$DIR/clients.log" record --cluster "hbase://$ZK/hbase" --output "$DIR/clients" --progress-period 60
    timeout 1500 mvn -B -ntp -fae -f "$HERE/pom.xml" test -Dcompat.zk="$PROXY_ZK" -Dcompat.registry="$PROXY_RPC" -Dcompat.halcyon=true \
      < /dev/null > "$DIR/clients-mvn.log" 2>&1 || { grep -E 'ERROR|FAIL' "$DIR/clients-mvn.log" | head -n 40 >&2; fail "clients of testing/compat through the proxy"; }
    proxy_stop
    grep -E 'Tests run:.*Time' "$DIR/clients-mvn.log" | tail -n 5
    tail -n 1 "$DIR/clients.log"
  fi
fi
echo "halcyon shadow: $READS reads of HBase's clients through the proxy answered alike by both; planted differences found"
