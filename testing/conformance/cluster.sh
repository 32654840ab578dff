# A cluster of Halcyon for one test class: masters and region servers, with a root directory and a znode of their own. Source it after
# ../compat/server.sh and java.sh.
# servers_start DIR MASTERS SERVERS   starts them with the properties of DIR/properties.xml, and prints the addresses and their names
# servers_stop               SIGTERM, region servers first; servers_kill is SIGKILL
# server_order ORDER [PORT]  what a test does to one server: start; start-master on this port (0: any); kill, stop (SIGTERM) or state of the one with this port.
#                            Prints "server-name NAME" of a new region server, "master-name NAME" of a new master; "ready" for the state of one
#                            that serves, "running" of a standby master, or "ended"; and "done"
# CONFORMANCE_JVMS           not empty: each server has a JVM for coprocessors and filters; otherwise if the test's properties speak of coprocessors
# CLUSTER_DIR                a cluster of ../cluster/cluster.sh with ZooKeeper and HDFS
SERVER_PIDS=()
SERVER_KINDS=()
declare -A SERVER_OF_PORT=()

servers_start() {
  local dir="$1" masters="$2" count="$3" name zookeeper root number log
  SERVERS_DIR="$dir"
  # Other classes have the same simple name, and a class that hung is run again: each has a root of its own, and keeps it over restarts.
  [ -e "$dir/name" ] || echo "/$(basename "$(dirname "$dir")")-$(basename "$dir")-$(date +%s%N)" > "$dir/name"
  name="$(cat "$dir/name")"
  zookeeper="$(sed -n 's/^zookeeper //p' "$CLUSTER_DIR/settings")"
  root="$(sed -n 's/^hdfs //p' "$CLUSTER_DIR/settings")$name"
  mkdir -p "$dir/conf"
  cp "$CLUSTER_DIR"/client/*-site.xml "$dir/conf/"
  {
    echo '<configuration>'
    for property in "hbase.rootdir=$root" hbase.cluster.distributed=true "hbase.zookeeper.quorum=${zookeeper%:*}" \
      "hbase.zookeeper.property.clientPort=${zookeeper##*:}" "zookeeper.znode.parent=$name" zookeeper.session.timeout=10000 \
      hbase.master.wait.on.regionservers.mintostart="$count"; do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    cat "$dir/properties.xml"
    [ "${CONFORMANCE_HOST:-none}" = none ] || { [ -z "${CONFORMANCE_JVMS:-}" ] && ! grep -q coprocessor "$dir/properties.xml"; } ||
      echo "<property><name>halcyon.coprocessor.host.classpath</name><value>$CONFORMANCE_HOST</value></property>"
    echo '</configuration>'
  } > "$dir/conf/hbase-site.xml"
  for log in "$dir"/{master,regionserver}*.log; do [ ! -e "$log" ] || mv "$log" "$log.$(date +%s)"; done
  [ -e "$dir/port" ] || free_port > "$dir/port" # clients know it
  server_begin master "$dir" --port "$(cat "$dir/port")"
  for ((number = 1; number < masters; number++)); do server_begin master "$dir" --port 0; done
  for ((number = 1; number <= count; number++)); do server_begin regionserver "$dir" --port 0; done
  for number in "${!SERVER_PIDS[@]}"; do server_await "$number" || return 1; done
  if ! process_await "${SERVER_PIDS[0]}" 60 grep -q '^ready' "$dir"/master*.log; then
    echo "no master became ready; the output of the first:" >&2
    tail -n 30 "$dir/master0.log" >&2
    return 1
  fi
  echo "zookeeper $zookeeper"
  echo "master 127.0.0.1:$(cat "$dir/port")"
  echo "root $root"
  echo "znode $name"
  sed -nE 's/^master ([^ ]*,.*)/master-name \1/p' "$dir"/master*.log
  sed -nE 's/^regionserver ([^ ]*,.*)/server-name \1/p' "$dir"/regionserver*.log
}

server_await() { # server_await NUMBER: it is ready, or stands for election; notes its port
  local log="$SERVERS_DIR/${SERVER_KINDS[$1]}$1.log"
  if ! process_await "${SERVER_PIDS[$1]}" 60 grep -qE '^(ready|stands for election)' "$log"; then
    echo "server $1 did not become ready; its output:" >&2
    tail -n 30 "$log" >&2
    return 1
  fi
  SERVER_OF_PORT["$(sed -n "s/^${SERVER_KINDS[$1]} [^,]*,\([0-9]*\),.*/\1/p" "$log")"]="$1"
}

server_order() {
  local number="${SERVER_OF_PORT[${2:-0}]:-}" pid=""
  [ -z "$number" ] || pid="${SERVER_PIDS[$number]}"
  case "$1" in
    start)
      server_begin regionserver "$SERVERS_DIR" --port 0
      server_await $((${#SERVER_PIDS[@]} - 1))
      sed -nE 's/^regionserver ([^ ]*,.*)/server-name \1/p' "$SERVER_LOG" ;;
    start-master)
      server_begin master "$SERVERS_DIR" --port "$2"
      server_await $((${#SERVER_PIDS[@]} - 1))
      sed -nE 's/^master ([^ ]*,.*)/master-name \1/p' "$SERVER_LOG" ;;
    kill) process_kill "$pid" ;;
    stop) [ -z "$pid" ] || kill "$pid" 2> /dev/null || true ;;
    state)
      if [ -z "$pid" ] || ! kill -0 "$pid" 2> /dev/null; then echo ended
      elif grep -q '^ready' "$SERVERS_DIR/${SERVER_KINDS[$number]}$number.log"; then echo ready
      else echo running; fi ;;
  esac
  echo done
}

server_begin() { # server_begin KIND DIR OPTION...
  local kind="$1" dir="$2"
  SERVER_LOG="$2/$1${#SERVER_PIDS[@]}.log"
  shift 2
  "$HALCYON" "$kind" --config "$dir/conf" --bind 127.0.0.1 --keeper false --info-port 0 --memory 512m --accept-without coprocessors \
    "$@" > "$SERVER_LOG" 2>&1 < /dev/null &
  SERVER_PIDS+=("$!")
  SERVER_KINDS+=("$kind")
}

servers_stop() { # fails if one does not end, or by an assertion
  local number status failed=0
  for ((number = ${#SERVER_PIDS[@]} - 1; number >= 0; number--)); do kill "${SERVER_PIDS[$number]}" 2> /dev/null || true; done
  for number in "${!SERVER_PIDS[@]}"; do
    status=0
    process_end "${SERVER_PIDS[$number]}" 30 || status=$?
    [ "$status" -ne 124 ] && ! is_assertion "$status" || { echo "a ${SERVER_KINDS[$number]} has ended with $status" >&2; failed=1; }
  done
  SERVER_PIDS=() SERVER_KINDS=()
  return $failed
}

servers_kill() {
  local pid
  for pid in "${SERVER_PIDS[@]}"; do process_kill "$pid"; done
  SERVER_PIDS=() SERVER_KINDS=()
}
