# Shared by the scripts that start a server of their own. Source it after setting HALCYON (the binary).
# server_start DATA LOG sets SERVER_PID and the addresses ZK, MASTER and REGIONSERVER (host:port).
# server_stop ends the server in order, server_kill_running kills it. Both fail if it had ended before or one of its assertions has
# failed; SERVER_TROUBLE is then what was wrong. server_kill is for the end of a script: it kills what is still there.
# SERVER_PORTS="zookeeper master regionserver"     the ports of the server; default three free ones
# SERVER_MEMORY      default 512m
# SERVER_OPTIONS     more options
# HALCYON_TEST_ROOT  a directory in HDFS, hdfs://host:port/...: the root directory is DATA below it
SERVER_PID="" SERVER_SAID="" SERVER_TROUBLE=""

free_port() { # a port nobody listens on, below those that the kernel gives to connections
  local port
  while :; do
    port=$((10000 + RANDOM % 20000))
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
  done
}

left_out() { # left_out TEXT: something is not tested here. What may be is in .ci/left-out.txt
  echo "LEFT OUT: $1"
  [ -z "${HALCYON_LEFT_OUT:-}" ] || echo "$1" >> "$HALCYON_LEFT_OUT"
}

# process_await PID SECONDS COMMAND...: waits until COMMAND succeeds; fails if the process ends before, or after SECONDS.
process_await() {
  local pid="$1" tries=$(($2 * 10))
  shift 2
  until "$@" 2> /dev/null; do
    kill -0 "$pid" 2> /dev/null && [ $((tries--)) -gt 0 ] || return 1
    sleep 0.1
  done
}

process_kill() { # process_kill PID: SIGKILL
  [ -n "$1" ] || return 0
  kill -9 "$1" 2> /dev/null || true
  wait "$1" 2> /dev/null || true
}

# process_end PID SECONDS: waits until the process, a child of this shell, has ended; the result is its exit status. After SECONDS it is
# killed and the result is 124.
process_end() {
  local tries=$(($2 * 10))
  while kill -0 "$1" 2> /dev/null; do
    [ $((tries--)) -gt 0 ] || { echo "process $1 did not end within $2 s" >&2; process_kill "$1"; return 124; }
    sleep 0.1
  done
  wait "$1" 2> /dev/null
}

is_assertion() { # is_assertion STATUS: of a process that ended by a panic, an abort or a fault of its memory
  case "$1" in 101 | 132 | 134 | 135 | 136 | 139) ;; *) return 1 ;; esac
}

failed_assertions() { # failed_assertions LOG...: the lines that tell of them; fails if there are none
  grep -H -m 3 -e 'panicked at' -e 'an assertion failed: the process ends' "$@"
}

server_start() { # server_start DATA LOG
  local log="$2" ports
  SERVER_SAID="$log"
  read -r -a ports <<< "${SERVER_PORTS:-0 0 0}"
  : > "$log"
  # shellcheck disable=SC2086
  "$HALCYON" standalone --data "$1" --bind 127.0.0.1 --memory "${SERVER_MEMORY:-512m}" --zookeeper-port "${ports[0]}" \
    --master-port "${ports[1]}" --regionserver-port "${ports[2]}" --master-info-port 0 --regionserver-info-port 0 \
    ${HALCYON_TEST_ROOT:+--root "$HALCYON_TEST_ROOT$1"} ${SERVER_OPTIONS:-} > "$log" 2>&1 < /dev/null &
  SERVER_PID=$!
  if ! process_await "$SERVER_PID" 60 grep -q '^ready' "$log"; then
    echo "the server did not become ready; its output:" >&2
    tail -n 30 "$log" >&2
    server_kill
    return 1
  fi
  ZK="$(server_address zookeeper "$log")"
  MASTER="$(server_address master "$log")"
  REGIONSERVER="$(server_address regionserver "$log")"
}

server_address() { # server_address NAME LOG
  sed -n "s/^$1 \([0-9.]*:[0-9]*\).*/\1/p" "$2" | head -n 1
}

server_kill() { # SIGKILL, if there is one
  process_kill "$SERVER_PID"
  SERVER_PID=""
}

server_kill_running() { # SIGKILL to a server that has to be there
  local pid="$SERVER_PID" status=0
  SERVER_PID=""
  [ -n "$pid" ] || { server_ended "no server was started"; return; }
  kill -9 "$pid" 2> /dev/null || true
  wait "$pid" 2> /dev/null || status=$?
  [ "$status" = 137 ] || server_ended "the server had ended with $status before it was killed" || return
  server_is_sound
}

server_stop() { # SIGTERM; the server has 30 s to stop
  [ -n "$SERVER_PID" ] || return 0
  local pid="$SERVER_PID" status=0 when="when it was stopped"
  SERVER_PID=""
  kill "$pid" 2> /dev/null || when="before it was stopped"
  process_end "$pid" 30 || status=$?
  [ "$status$when" = "0when it was stopped" ] || server_ended "the server has ended with $status $when" || return
  server_is_sound
}

server_is_sound() { # no assertion has failed
  local found
  found="$(failed_assertions "$SERVER_SAID")" || return 0
  server_ended "an assertion of the server has failed: $found"
}

server_ended() { # server_ended TEXT: fails, and says it
  SERVER_TROUBLE="$1"
  echo "$1; its output ends with:" >&2
  tail -n 5 "$SERVER_SAID" >&2
  return 1
}
