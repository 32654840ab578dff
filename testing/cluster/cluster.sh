#!/usr/bin/env bash
# A small cluster on this machine's loopback, from Maven coordinates: ZooKeeper, a NameNode, DataNodes. Each is a process of its own.
#   cluster.sh up [OPTION...]              starts it, prints what a client needs, returns
#   cluster.sh run [OPTION...] COMMAND...  starts it, runs COMMAND, ends it; the result is that of COMMAND
#   cluster.sh down                        ends it; fails if an assertion of a process of Halcyon had failed, and so does run
#   cluster.sh sound                       fails if one has failed so far
#   cluster.sh settings | status           what a client needs | each process, and what the NameNode says of its DataNodes.
#                                          "ended, 0": the process ended with this exit status
#   cluster.sh kill|freeze|thaw|stop|start PROCESS
#     SIGKILL, SIGSTOP, SIGCONT, SIGTERM (waits for the end), start again. PROCESS is zookeeper, zookeeper2, namenode, datanode1 ...
#     A server of Halcyon is frozen and thawed with its keeper, as if the machine was; the keeper takes the server with it when it is killed.
#   cluster.sh kill-server|freeze-server|server PROCESS   SIGKILL, SIGSTOP to the server alone; its keeper lives. Its process number
#   cluster.sh zookeepers                  each ZooKeeper server: process, "leader", "follower", "standalone" or "none", address
#   cluster.sh active NAMENODE             with --standby: makes namenode or namenode2 the active one
# Options of up and run:
#   --parts LIST         default "zookeeper hdfs"; hbaseservers behind them is an HBase cluster
#   --zookeepers N       servers of ZooKeeper, default 1; more than one are an ensemble
#   --datanodes N        default 3
#   --ssd                each DataNode has a second directory, which it takes for an SSD
#   --standby            a second NameNode; both are the name service halcyon
#   --hregionservers N   region servers of HBase in the part hbaseservers, default 1
#   --halcyons N         region servers of Halcyon there, default 1; HALCYON names the binary
#   --masters N          masters of Halcyon there in the place of HBase's, default 0
#   --hmaster            HBase's master there all the same; the masters of Halcyon are not started yet, `start master1` does it
#   --hmasters N         masters of HBase there without those: hmaster, hmaster2 ..., default 1
#   --seconds N          everything is ended after so many seconds, default 3600
#   --owner PID          everything is ended when this process has ended; run sets it
#   --memory             data in memory (/dev/shm): the NameNode's fsync of its edits costs nothing. Without it they go to the disk
#   --property NAME=VALUE   a further setting of HDFS and HBase, for the servers and the clients
# CLUSTER_DIR            configuration, data and logs; default /tmp/halcyon-cluster. `up` empties it
# CLUSTER_JAVA_OPTIONS   more options of each JVM, such as -XX:TieredStopAtLevel=4
# CLUSTER_GROUPS         "hmaster=64102 ...": processes that run in a group of their own, for a packet filter
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
. "$HERE/processes.sh"
. "$HERE/zookeeper.sh"
. "$HERE/hdfs.sh"
. "$HERE/hbase_servers.sh"
DIR="${CLUSTER_DIR:-/tmp/halcyon-cluster}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
START_SECONDS=180

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 64
}

keeper_lives() {
  local pid
  pid="$(cat "$DIR/keeper.pid" 2> /dev/null)" && process_is "$pid" "cluster.sh keep"
}

options() { # reads the options of up and run; REST is what remains
  PARTS="zookeeper hdfs" ZOOKEEPERS=1 DATANODES=3 HREGIONSERVERS=1 HALCYONS=1 MASTERS=0 LIFE_SECONDS=3600 OWNER="" MEMORY="" STANDBY="" SSD="" HMASTER="" HMASTERS=1 PROPERTIES=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --parts) PARTS="$2"; shift 2 ;;
      --zookeepers) ZOOKEEPERS="$2"; shift 2 ;;
      --datanodes) DATANODES="$2"; shift 2 ;;
      --hregionservers) HREGIONSERVERS="$2"; shift 2 ;;
      --halcyons) HALCYONS="$2"; shift 2 ;;
      --masters) MASTERS="$2"; shift 2 ;;
      --hmaster) HMASTER=yes; shift ;;
      --hmasters) HMASTERS="$2"; shift 2 ;;
      --seconds) LIFE_SECONDS="$2"; shift 2 ;;
      --owner) OWNER="$2"; shift 2 ;;
      --memory) MEMORY=yes; shift ;;
      --standby) STANDBY=yes; shift ;;
      --ssd) SSD=yes; shift ;;
      --property) PROPERTIES+=("$2"); shift 2 ;;
      --) shift; break ;;
      -*) echo "cluster.sh: unknown option $1" >&2; usage ;;
      *) break ;;
    esac
  done
  REST=("$@")
}

up() {
  if keeper_lives; then
    echo "a cluster runs in $DIR already: cluster.sh down, or set CLUSTER_DIR" >&2
    return 1
  fi
  hbase_fetch || { echo "Maven could not fetch the jars of $COMPAT/files/pom.xml" >&2; return 69; }
  if [ -e "$DIR" ] && [ ! -e "$DIR/cluster" ] && [ -n "$(ls -A "$DIR")" ]; then
    echo "$DIR is not the directory of a cluster: CLUSTER_DIR names one that may be emptied" >&2
    return 1
  fi
  local data="$DIR/data"
  [ -z "$MEMORY" ] || data="/dev/shm/$(basename "$DIR")-$(cksum <<< "$DIR" | cut -d " " -f 1)" # each cluster its own
  rm -rf "$DIR" "$data"
  mkdir -p "$DIR" "$data"
  : > "$DIR/cluster"
  {
    declare -p PARTS ZOOKEEPERS DATANODES STANDBY SSD HREGIONSERVERS HALCYONS MASTERS HMASTER HMASTERS LIFE_SECONDS OWNER PROPERTIES
    echo "DATA=$(printf %q "$data")"
  } > "$DIR/options"
  mkfifo "$DIR/requests"
  CLUSTER_DIR="$DIR" setsid bash "$HERE/cluster.sh" keep > "$DIR/keeper.log" 2>&1 < /dev/null &
  echo $! > "$DIR/keeper.pid"
  if ! process_await $! "$START_SECONDS" test -e "$DIR/ready"; then
    echo "the cluster did not become ready within $START_SECONDS s; $DIR/keeper.log ends with:" >&2
    tail -n 20 "$DIR/keeper.log" >&2
    down
    return 1
  fi
}

# The keeper is the parent of all processes. It ends them when it ends, and the kernel does when it is killed (see process_start).
keep() {
  . "$DIR/options"
  trap 'exit 0' TERM INT HUP
  trap finish EXIT
  exec 4<> "$DIR/requests"
  local part name verb
  for part in $PARTS; do "${part}_configure"; done
  for part in $PARTS; do "${part}_start"; done
  : > "$DIR/ready"
  while [ "$SECONDS" -lt "$LIFE_SECONDS" ] && { [ -z "$OWNER" ] || kill -0 "$OWNER" 2> /dev/null; }; do
    process_note_ends
    read -r -t 1 -u 4 verb name || continue
    [ "$verb" != start ] || process_lives "$DIR/$name" || process_start "$name"
  done
  echo "the end: $SECONDS s, owner ${OWNER:-none}"
}

finish() {
  trap '' TERM INT HUP
  local file
  process_note_ends
  for file in "$DIR"/*/pid; do
    [ ! -e "$file" ] || process_kill "$(cat "$file")"
  done
  [ "$DATA" = "$DIR/data" ] || rm -rf "$DATA"
  rm -f "$DIR/ready"
}

down() { # processes that the keeper kills at its end are not judged: it notes no ends then
  local pid
  if keeper_lives; then
    pid="$(cat "$DIR/keeper.pid")"
    kill "$pid"
    process_end "$pid" 30 || [ $? -ne 124 ] # the keeper may be the child of another shell
  fi
  [ -e "$DIR/cluster" ] && [ ! -e "$DIR/judged" ] || return 0
  : > "$DIR/judged"
  processes_are_sound
}

sound() {
  settings > /dev/null
  processes_are_sound
}

settings() {
  keeper_lives && [ -e "$DIR/ready" ] || { echo "no cluster runs in $DIR" >&2; return 1; }
  cat "$DIR/settings"
}

status() {
  settings > /dev/null
  local file
  for file in "$DIR"/*/pid; do
    echo "$(basename "$(dirname "$file")") $(process_state "$(dirname "$file")")"
  done
  [ ! -e "$DIR/namenode/pid" ] || hdfs_status
}

run() {
  [ ${#REST[@]} -gt 0 ] || usage
  OWNER=$$
  trap down EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  up
  local name value
  export CLUSTER_DIR="$DIR"
  while read -r name value; do export "CLUSTER_${name^^}=$value"; done < "$DIR/settings"
  "${REST[@]}"
}

zookeepers() {
  settings > /dev/null
  . "$DIR/options"
  zookeeper_status
}

one() { # one VERB PROCESS
  local verb="$1" dir="$DIR/${2:?which process?}"
  settings > /dev/null
  [ -e "$dir/pid" ] || [ "$verb" = start ] && [ -d "$dir/conf" ] || { echo "no process $2 in $DIR; there are: $(cd "$DIR" && ls -d */pid | sed 's|/pid||' | tr '\n' ' ')" >&2; return 64; }
  case "$verb" in
    kill) process_signal "$dir" KILL && process_gone "$dir" 10 ;;
    server) process_server "$dir" ;;
    kill-server) process_server_signal "$dir" KILL ;;
    freeze) process_freeze "$dir" ;;
    freeze-server) process_server_signal "$dir" STOP ;;
    thaw) process_thaw "$dir" ;;
    stop) process_signal "$dir" TERM && process_gone "$dir" 30 && process_ended_in_order "$dir" ;;
    start) process_restart "$dir" ;;
  esac
}

verb="${1:-}"
[ $# -eq 0 ] || shift
case "$verb" in
  up) options "$@"; up; settings ;;
  run) options "$@"; run ;;
  keep | down | settings | status | sound | zookeepers) "$verb" ;;
  kill | kill-server | freeze | freeze-server | server | thaw | stop | start) one "$verb" "$@" ;;
  active) settings > /dev/null; hdfs_active "${1:?which NameNode?}" ;;
  *) usage ;;
esac
