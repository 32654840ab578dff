#!/usr/bin/env bash
# The keepers of a cluster of Halcyon with real processes: what they report, how fast, and what they do with a frozen server. Also that a
# pause of 5 s with a session of 6 s is no death, and that a standby master does not wait for a session. Three minutes.
#   keeper-test.sh
# PAUSES   pauses of 5 s, default 4
# KILLS    killed servers, default 3: how long each report takes
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-keeper-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
PAUSES="${PAUSES:-4}" KILLS="${KILLS:-3}" SESSION_MS=6000
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
LISTENER=""
trap '[ -z "$LISTENER" ] || kill "$LISTENER"; cluster down' EXIT
trap 'exit 143' TERM INT

plain() { sed 's/\x1b\[[0-9;]*m//g' "$@"; }
now_ms() { date +%s%3N; }
said_after() { # said_after PROCESS BEGUN_MS TEXT: how many ms after BEGUN_MS the log has a line with TEXT; nothing if it has none
  local time at
  while read -r time _; do
    at="$(date -d "$time" +%s%3N 2> /dev/null)" || continue
    [ "$at" -lt "$2" ] || { echo $((at - $2)); return; }
  done < <(plain "$CLUSTER_DIR/$1/log" | grep -F -- "$3")
}
has_said() { [ -n "$(said_after "$@")" ]; }
server_of() { # server_of PROCESS: the process that its keeper has started
  local pid child
  pid="$(cat "$CLUSTER_DIR/$1/pid")"
  read -r child _ < "/proc/$pid/task/$pid/children" || true # the line has no end
  echo "$child"
}
active() { # the process of the active master
  local name
  for name in master1 master2; do
    ! is_now "$name" running || ! grep -q '^ready' <(tail -n "+$(grep -n '^stands for election' "$CLUSTER_DIR/$name/log" | tail -n 1 | cut -d: -f1)" "$CLUSTER_DIR/$name/log") || { echo "$name"; return; }
  done
}
another_is_active() { [ -n "$(active)" ] && [ "$(active)" != "$1" ]; }
exited() { # exited PROCESS CODE
  local found
  found="$(cluster status)" && grep -q "^$1 ended, $2$" <<< "$found"
}
deaths() { cat "$CLUSTER_DIR"/master*/log | plain | grep -c 'a region server is dead' || true; }
back() { # back PROCESS SERVER: starts the process that was called SERVER again
  cluster start "$1"
  wait_for 60 has_another "$1" "$2"
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --property "zookeeper.session.timeout=$SESSION_MS" \
  --seconds 1200 > /dev/null
ZK="$(setting_of zookeeper)"
sh_halcyon "create 't', 'f', SPLITS => ['1', '2', '3', '4', '5']; put 't', '0', 'f:q', 'v'" > /dev/null
for name in halcyon1 master1; do
  echo "keeper of $name: $(sed -n 's/^\(VmRSS\|RssAnon\|Threads\):\s*//p' "/proc/$(cat "$CLUSTER_DIR/$name/pid")/status" | tr '\n' ' ')(resident, its own, threads)"
done

for ((n = 1; n <= PAUSES; n++)); do # the whole server, with its keeper; and the server alone
  name="halcyon$((n % 3 + 1))" before="$(name_of "halcyon$((n % 3 + 1))")" dead="$(deaths)"
  if [ $((n % 2)) = 1 ]; then cluster freeze "$name"; else cluster freeze-server "$name"; fi
  sleep 5
  cluster thaw "$name"
  sleep 3
  [ "$(deaths)" = "$dead" ] && ! is_dead "$before" || fail "a pause of 5 s was taken for a death"
  expect_count t 1 "pause $n of 5 s with a session of $SESSION_MS ms: no failover"
done

for ((n = 1; n <= KILLS; n++)); do
  name="halcyon$((n % 3 + 1))" before="$(name_of "halcyon$((n % 3 + 1))")" server="$(server_of "halcyon$((n % 3 + 1))")"
  begun="$(now_ms)"
  kill -KILL "$server"
  wait_for 10 has_said "$name" "$begun" "the server's session is ended"
  wait_for 10 is_dead "$before"
  noticed="$(said_after "$(active)" "$begun" "a region server is dead")"
  echo "kill $n of a server, in ms after the signal: its keeper knew $(said_after "$name" "$begun" "the server has ended")," \
    "its session was ended $(said_after "$name" "$begun" "the server's session is ended"), the master knew $noticed"
  [ "$noticed" -lt 2000 ] || fail "the master knew of it after $noticed ms"
  wait_for 10 exited "$name" 137
  expect_count t 1 "kill $n"
  [ "$n" = "$KILLS" ] || back "$name" "$before"
done

mkdir -p "$CLUSTER_DIR/notify"
python3 -c '
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(sys.argv[1])
while True:
    print(listener.recv(4096).decode(), flush=True)' "$CLUSTER_DIR/notify/socket" > "$CLUSTER_DIR/notify/heard" &
LISTENER=$!
printf 'NOTIFY_SOCKET=%s\nWATCHDOG_USEC=3000000\n' "$CLUSTER_DIR/notify/socket" > "$CLUSTER_DIR/$name/environment"
back "$name" "$before"
wait_for 20 grep -q '^WATCHDOG=1' "$CLUSTER_DIR/notify/heard"
before="$(name_of "$name")"
cluster stop "$name"
wait_for 10 exited "$name" 0
[ "$(grep -v '^WATCHDOG=1$' "$CLUSTER_DIR/notify/heard" | tr -s '\n' ' ')" = "READY=1 STOPPING=1 " ] || fail "systemd heard: $(cat "$CLUSTER_DIR/notify/heard")"
echo "SIGTERM is passed on, the exit status is 0, and systemd hears of the server by its keeper"
back "$name" "$before"

name=halcyon2 before="$(name_of halcyon2)" begun="$(now_ms)" server="$(server_of halcyon2)"
cluster freeze-server "$name"
wait_for 30 has_said "$name" "$begun" "declared the server dead while it is frozen"
wait_for 10 exited "$name" 137
! kill -0 "$server" 2> /dev/null || fail "the frozen server was not killed"
after="$(said_after "$name" "$begun" "declared the server dead while it is frozen")"
echo "a frozen server: killed by its keeper after $after ms"
[ "$after" -gt 3000 ] && [ "$after" -lt 12000 ] || fail "killed after $after ms with a session of $SESSION_MS ms"
wait_for 30 is_dead "$before"
expect_count t 1 "frozen"
back "$name" "$before"

for verb in kill-server kill; do # with the keeper's report, and without a keeper
  name="$(active)" begun="$(now_ms)"
  cluster "$verb" "$name"
  wait_for 60 another_is_active "$name"
  elected="$(said_after "$(active)" "$begun" "this master is active")"
  echo "$verb of the active $name: $(active) is elected after $elected ms"
  [ "$elected" -lt 3000 ] || fail "it has waited for the session"
  wait_for 10 is_now "$name" ended
  cluster start "$name"
  wait_for 30 is_now "$name" running
  sleep 2
done
expect_count t 1 "after two masters"
echo "keeper-test: passed"
