# Functions of the scripts that drive a cluster with region servers of HBase and of Halcyon. Source it after HERE, CLUSTER_DIR and
# HALCYON are set; ZK is the cluster's ZooKeeper.

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
is_dead() { # the master has this server no more among the live ones
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed '/dead servers/,$d')" && [ -n "$found" ] &&
    ! grep -qF "${1##*,}" <<< "$found"
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
counts() { count "$1" > /dev/null 2>&1; }
has_ended() { # the process
  local found
  found="$(cluster status)" && grep -q "^$1 ended" <<< "$found"
}
