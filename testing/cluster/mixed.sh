# Functions of the scripts that drive a cluster with region servers of HBase and of Halcyon. Source it after HERE, CLUSTER_DIR and
# HALCYON are set; ZK is the setting `zookeeper` of the cluster.

cluster() { "$HERE/cluster.sh" "$@"; }
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}
setting_of() { cluster settings | sed -n "s/^$1 //p"; }
sh_halcyon() { "$HALCYON" shell --zookeeper "$ZK" -e "$1"; }
name_of() { # name_of PROCESS: the server's name, as the master knows it
  case "$1" in
    halcyon*) sed -n 's/^regionserver //p' "$CLUSTER_DIR/$1/log" | tail -n 1 ;;
    *) sed -n 's/.*Serving as \([^ ]*,[0-9]*,[0-9]*\),.*/\1/p' "$CLUSTER_DIR/$1/log" | tail -n 1 ;;
  esac
}
regions() { # regions TABLE: encoded names, in the order of the start keys
  "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" | grep -o '[0-9a-f]\{32\}' | awk '!seen[$0]++'
}
move_all() { # move_all TABLE SERVER
  local region
  for region in $(regions "$1"); do sh_halcyon "move '$region', '$2'" > /dev/null; done
}
count() { sh_halcyon "count '$1'" | grep -o '[0-9][0-9]* row' | head -n 1 | cut -d' ' -f1; }
expect_count() { # expect_count TABLE ROWS WHEN
  local found
  wait_for 30 counts "$1"
  found="$(count "$1")"
  [ "$found" = "$2" ] || fail "$3: $found rows of $2"
  echo "$3: $found rows"
}

wait_for() { # wait_for SECONDS COMMAND...
  local tries=$(($1 * 2))
  shift
  until "$@"; do
    [ $((tries--)) -gt 0 ] || fail "waited in vain for: $*"
    sleep 0.5
  done
}
is_dead() { # the master has this server no more among the live ones. Another process may have the same start code
  local found port="${1#*,}"
  port="${port%,*}"
  found="$("$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed '/dead servers/,$d')" && [ -n "$found" ] &&
    ! grep -qF ":$port ${1##*,}" <<< "$found"
}
is_settled() { # is_settled TABLE SERVER: no region of the table is at this server, and one is open
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" 2> /dev/null)" && ! grep -qF "$2" <<< "$found" &&
    [ "$(grep -c '"OPEN"' <<< "$found")" -ge 1 ]
}
wait_gone() { # wait_gone TABLE SERVER: the master has declared the server dead and assigned its regions
  wait_for 60 is_dead "$2"
  wait_for 60 is_settled "$1" "$2"
}
has_another() { # has_another PROCESS SERVER: the process was started again and the master knows it
  [ "$(name_of "$1")" != "$2" ] && ! is_dead "$(name_of "$1")"
}
active() { # the process of the active one of two masters of Halcyon
  local port name
  port="$(sh_halcyon "status 'simple'" 2> /dev/null | sed -n 's/.*active master:.*:\([0-9]*\) .*/\1/p' | head -n 1)"
  for name in master1 master2; do [ "$(sed -n "s/^$name //p" "$CLUSTER_DIR/ports")" != "$port" ] || echo "$name"; done
}
another_is_active() { # another_is_active MASTER
  local now
  now="$(active)" && [ -n "$now" ] && [ "$now" != "$1" ]
}
counts() { count "$1" > /dev/null 2>&1; }
has_ended() { # the process
  local found
  found="$(cluster status)" && grep -q "^$1 ended" <<< "$found"
}

# MixedLoad, the client that knows each answer, works on the table `load`, with ROWS rows, beside what a script does to VICTIM.
CLIENT=""
client_start() { # the rows are there when this returns
  touch "$CLUSTER_DIR/client.log"
  CLIENT26_SECONDS=36000 CLIENT26_MEMORY=300m client26 halcyon.compat.mixed.MixedLoad "$ZK" load "$ROWS" "$CLUSTER_DIR/stop" > "$CLUSTER_DIR/client.log" 2>&1 &
  CLIENT=$!
  wait_for $((120 + ROWS / 1000)) client_says working
}
client_end() { # The client is a child of the shell that is CLIENT.
  [ -z "$CLIENT" ] || pkill -TERM -P "$CLIENT" || true
}
client_verdict() { # its last check and counts; fails with it
  local result=0
  touch "$CLUSTER_DIR/stop"
  wait "$CLIENT" || result=$?
  CLIENT=""
  grep -v '^so far' "$CLUSTER_DIR/client.log" | tail -n 25
  cluster sound || fail "a process of the cluster has failed; logs are in $CLUSTER_DIR"
  [ "$result" = 0 ] || fail "the client saw errors or differences; logs are in $CLUSTER_DIR"
}
is_open() { # is_open TABLE: every region of it
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" 2> /dev/null)" && [ "$(grep -c '"OPEN"' <<< "$found")" -ge 10 ]
}
at_server() { # at_server TABLE SERVER: how many regions of the table are there
  "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" | grep -cF "$2" || true
}
client_says() { grep -q "^$1" "$CLUSTER_DIR/client.log"; }
client_works() { kill -0 "$CLIENT" 2> /dev/null || fail "the client ended: $(tail -n 3 "$CLUSTER_DIR/client.log")"; }
move_half() { # move_half TABLE SERVER: every second region
  local region take=yes
  for region in $(regions "$1"); do
    [ -z "$take" ] || sh_halcyon "move '$region', '$2'" > /dev/null
    [ -z "$take" ] && take=yes || take=""
  done
}
start_again() { # start_again SERVER: a new process in the place of the one that was called SERVER
  cluster start "$VICTIM"
  wait_for 60 has_another "$VICTIM" "$1"
  OURS="$(name_of "$VICTIM")"
}

is_now() { # is_now PROCESS STATE
  local found
  found="$(cluster status)" && grep -q "^$1 $2" <<< "$found"
}
operations() { # 0 before the client's first report
  local found
  found="$(sed -n 's/^so far: \([0-9]*\) operations.*/\1/p' "$CLUSTER_DIR/client.log" | tail -n 1)"
  echo "${found:-0}"
}
has_gone_on() { [ "$(operations)" -gt "$1" ]; } # has_gone_on OPERATIONS: the client has done more than these
