# The processes of a cluster, each with a directory of its own below DIR: pid, log, conf. Source it after ../compat/server.sh.
# A part (zookeeper.sh, hdfs.sh) defines
#   PART_configure    writes the configuration of its processes, and what a client needs, by `setting`
#   PART_start        starts them by process_start and waits until they serve
# and for each of its processes, named KIND or KIND and a number,
#   KIND_command NAME  sets COMMAND

port_of() { # port_of NAME: a free port, the same at each call with this name
  local port
  touch "$DIR/ports"
  if ! grep -q "^$1 " "$DIR/ports"; then
    port="$(free_port)"
    while grep -q " $port$" "$DIR/ports"; do port="$(free_port)"; done
    echo "$1 $port" >> "$DIR/ports"
  fi
  sed -n "s/^$1 //p" "$DIR/ports"
}

setting() { # setting NAME VALUE: a line of what clients need
  echo "$1 $2" >> "$DIR/settings"
}

site_file() { # site_file FILE NAME=VALUE...: a configuration as Hadoop and HBase read it; of equal names the last counts
  local file="$1" property value
  shift
  mkdir -p "$(dirname "$file")"
  {
    echo '<?xml version="1.0"?>'
    echo '<configuration>'
    for property in "$@"; do
      value="${property#*=}"
      value="${value//&/&amp;}"
      echo "  <property><name>${property%%=*}</name><value>${value//</&lt;}</value></property>"
    done
    echo '</configuration>'
  } > "$file"
}

log_file() { # log_file DIRECTORY: log4j.properties, everything to standard output
  cat > "$1/log4j.properties" << LOG
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
LOG
}

# web_directory DIRECTORY NAME: an empty web application. Hadoop looks for its pages on the class path, and its jars on Maven
# Central have none; the numbers at /jmx are there without them.
web_directory() {
  mkdir -p "$1/webapps/$2/WEB-INF" "$1/webapps/static"
  echo '<web-app/>' > "$1/webapps/$2/WEB-INF/web.xml"
}

java_command() { # java_command HEAP_MB CONF CLASS ARGUMENT...: sets COMMAND
  local heap="$1" conf="$2"
  shift 2
  # shellcheck disable=SC2206
  COMMAND=("$JAVA" "-Xmx${heap}m" "${JAVA_FLAGS[@]}" ${CLUSTER_JAVA_OPTIONS:-} -cp "$conf:$HBASE_LIB/*" "$@")
}

# process_start NAME: only for the keeper. The kernel kills the process when the keeper has ended, whatever ended it.
# With "NAME=GROUP ..." in CLUSTER_GROUPS the process has a group of its own, by which a packet filter knows it (root only).
# The file `environment` in its directory has variables for it, NAME=VALUE.
process_start() {
  local dir="$DIR/$1" group before=() variables=()
  mkdir -p "$dir"
  "${1%%[0-9]*}_command" "$1"
  [ ! -e "$dir/pid" ] || [ -e "$dir/exit" ] || process_note_end "$1"
  rm -f "$dir/exit"
  group="$(tr ' ' '\n' <<< "${CLUSTER_GROUPS:-}" | sed -n "s/^$1=//p")"
  [ -z "$group" ] || before=(setpriv --regid "$group" --clear-groups --) # first: a new group clears the signal of the next
  [ ! -e "$dir/environment" ] || readarray -t variables < "$dir/environment"
  "${before[@]}" setpriv --pdeathsig KILL -- env "${variables[@]}" "${COMMAND[@]}" >> "$dir/log" 2>&1 < /dev/null 4>&- &
  echo $! > "$dir/pid.new"
  mv "$dir/pid.new" "$dir/pid"
}

# process_note_ends: only for the keeper. Writes the exit statuses of processes that have ended.
process_note_ends() {
  local dir
  for dir in "$DIR"/*/; do
    [ -e "$dir/pid" ] && [ ! -e "$dir/exit" ] || continue
    kill -0 "$(< "$dir/pid")" 2> /dev/null || process_note_end "$(basename "$dir")"
  done
}

process_note_end() { # process_note_end NAME: of a process that has ended; the file `ends` keeps what a new start removes
  local code=0
  wait "$(< "$DIR/$1/pid")" || code=$?
  echo "$code" > "$DIR/$1/exit"
  echo "$1 $code" >> "$DIR/ends"
}

# processes_are_sound: no process of Halcyon has ended by an assertion, and none has failed that did not end one. It says which did.
processes_are_sound() {
  local name code sound=0
  [ ! -e "$DIR/ends" ] || while read -r name code; do
    case "$name" in halcyon* | master*) ! is_assertion "$code" || { echo "$name has ended with $code, by an assertion" >&2; sound=1; } ;; esac
  done < "$DIR/ends"
  for name in "$DIR"/{halcyon,master}[0-9]*/log; do
    [ ! -e "$name" ] || ! failed_assertions "$name" >&2 || sound=1
  done
  return $sound
}

process_ready() { # process_ready NAME SECONDS COMMAND...: waits until COMMAND succeeds; else the end of the process's log
  local name="$1" seconds="$2"
  shift 2
  process_await "$(cat "$DIR/$name/pid")" "$seconds" "$@" && return
  echo "$name did not serve within $seconds s; $DIR/$name/log ends with:"
  tail -n 15 "$DIR/$name/log"
  return 1
}

process_is() { # process_is PID TEXT: the process lives and TEXT is in its command line
  [ -n "$1" ] && tr '\0' ' ' 2> /dev/null < "/proc/$1/cmdline" | grep -qF -- "$2"
}

# The directory of the process is on its class path, so that no other process of that number is taken for it.
process_lives() { # process_lives DIRECTORY
  process_is "$(cat "$1/pid" 2> /dev/null)" "$1/conf"
}

process_signal() { # process_signal DIRECTORY SIGNAL
  process_lives "$1" || { echo "$(basename "$1") has ended already" >&2; return 1; }
  kill "-$2" "$(cat "$1/pid")"
}

# process_server DIRECTORY: the process that serves. A server of Halcyon is the child of its keeper.
process_server() {
  local pid child=""
  pid="$(cat "$1/pid")"
  # The line has no end. A keeper that has ended has no such file.
  { read -r child _ < "/proc/$pid/task/$pid/children"; } 2> /dev/null || true
  process_is "$child" --kept-by && echo "$child" || echo "$pid"
}

process_server_signal() { # process_server_signal DIRECTORY SIGNAL: to the process that serves alone
  process_lives "$1" || { echo "$(basename "$1") has ended already" >&2; return 1; }
  kill "-$2" "$(process_server "$1")"
}

process_freeze() { # process_freeze DIRECTORY: the server with its keeper, as if the machine was frozen
  local server
  server="$(process_server "$1")"
  process_signal "$1" STOP
  kill -STOP "$server"
}

process_thaw() { # process_thaw DIRECTORY: what is frozen of them. A server that its keeper has killed has ended
  local server
  process_lives "$1" || return 0
  server="$(process_server "$1")"
  kill -CONT "$server" || true
  process_signal "$1" CONT
}

process_gone() { # process_gone DIRECTORY SECONDS: waits for its end
  local tries=$(($2 * 10))
  while process_lives "$1"; do
    [ $((tries--)) -gt 0 ] || { echo "$(basename "$1") did not end within $2 s" >&2; return 1; }
    sleep 0.1
  done
}

process_ended_in_order() { # process_ended_in_order DIRECTORY: not by an assertion
  local tries=100 code
  until [ -e "$1/exit" ] || [ $((tries--)) -le 0 ]; do sleep 0.1; done
  code="$(cat "$1/exit" 2> /dev/null)" || { echo "the end of $(basename "$1") was not noted" >&2; return 1; }
  ! is_assertion "$code" || { echo "$(basename "$1") has ended with $code, by an assertion" >&2; return 1; }
}

process_restart() { # process_restart DIRECTORY: asks the keeper to start it, and waits until it runs
  ! process_lives "$1" || { echo "$(basename "$1") runs already" >&2; return 1; }
  local try
  for ((try = 0; try < 300; try++)); do
    # again and again: a `read` of the keeper that ends in the middle of a line loses it
    [ $((try % 50)) -ne 0 ] || echo "start $(basename "$1")" > "$DIR/requests"
    sleep 0.1
    ! process_lives "$1" || return 0
  done
  echo "$(basename "$1") was not started" >&2
  return 1
}

process_state() { # process_state DIRECTORY
  local pid kib
  pid="$(cat "$1/pid")"
  if ! process_lives "$1"; then
    echo "ended$(sed 's/^/, /' "$1/exit" 2> /dev/null)"
  elif [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status")" = T ]; then
    echo "frozen, process $pid"
  else
    kib="$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")" # none of a process that is just ending
    echo "running, process $pid, $((${kib:-0} / 1024)) MiB"
  fi
}
