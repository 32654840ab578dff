# Shared by the scripts that start a server of their own. Source it after setting HALCYON (the binary).
# server_start DATA LOG sets SERVER_PID and the addresses ZK, MASTER and REGIONSERVER (host:port).
# SERVER_PORTS="zookeeper master regionserver"     the ports it is to have; default three free ones
SERVER_PID=""

server_start() { # server_start DATA LOG
  local log="$2" waited=0 ports
  read -r -a ports <<< "${SERVER_PORTS:-0 0 0}"
  : > "$log"
  # shellcheck disable=SC2086
  "$HALCYON" standalone --data "$1" --bind 127.0.0.1 --memory "${SERVER_MEMORY:-512m}" \
    --zookeeper-port "${ports[0]}" --master-port "${ports[1]}" --regionserver-port "${ports[2]}" --master-info-port 0 --regionserver-info-port 0 \
    ${SERVER_OPTIONS:-} > "$log" 2>&1 < /dev/null &
  SERVER_PID=$!
  until grep -q '^ready' "$log"; do
    if ! kill -0 "$SERVER_PID" 2>/dev/null || [ $waited -ge 600 ]; then
      echo "the server did not become ready; its output:" >&2
      tail -n 30 "$log" >&2
      server_kill
      return 1
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  ZK="$(server_address zookeeper "$log")"
  MASTER="$(server_address master "$log")"
  REGIONSERVER="$(server_address regionserver "$log")"
}

server_address() { # server_address NAME LOG
  sed -n "s/^$1 \([0-9.]*:[0-9]*\).*/\1/p" "$2" | head -n 1
}

server_kill() { # without a chance to say goodbye
  if [ -n "$SERVER_PID" ]; then
    kill -9 "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" 2>/dev/null || true
    SERVER_PID=""
  fi
}

server_stop() { # in order, within 30 s
  local waited=0
  [ -n "$SERVER_PID" ] || return 0
  kill "$SERVER_PID" 2>/dev/null || true
  while kill -0 "$SERVER_PID" 2>/dev/null; do
    [ $waited -ge 300 ] && { echo "the server did not stop within 30 s" >&2; server_kill; return 1; }
    sleep 0.1
    waited=$((waited + 1))
  done
  wait "$SERVER_PID" 2>/dev/null || true
  SERVER_PID=""
}
