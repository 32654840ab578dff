#!/usr/bin/env bash
# For how long rows cannot be written or read when a server dies: Halcyon and HBase 2.6.4 in turn on the same ZooKeeper and HDFS, each with
# two masters and three region servers. Prints the median and the worst of all rounds, as HBase's Java client sees it with its pauses between
# attempts, and as probes see it: one attempt each 50 ms, which is not repeated.
#   recovery.sh [SYSTEM...]    of halcyon, hbase, hbase-fast; default all
# ROUNDS      of each case, default 5
# CASES       default "kill freeze master move": a region server is killed, one is frozen, the active master is killed, a region is moved.
#             "host": a region server is frozen with its keeper and with a DataNode, which is as silent as a machine that is lost.
#             There are four DataNodes then, and not three. "silent": a region server is frozen with its keeper. "unnamed": a region is
#             moved to a server that the master chooses
# SETTLE      seconds between the return of a DataNode and the next round of "host", default 40: until then WALs and files have fewer
#             copies, and a round would be about two lost hosts
# PUBLISHED   not empty: clients are told of dead servers (hbase.status.published); default empty
# OUT         a directory that keeps the figures
# SESSION     zookeeper.session.timeout of halcyon and hbase-fast in ms, default 6000
# HALCYON     the binary, default target/release/halcyon below CARGO_TARGET_DIR
# PROPERTIES  more properties of the cluster, "NAME=VALUE ..."
# MORE_CASES  a file with functions round_NAME, which CASES may name then: round_NAME SYSTEM NUMBER
# CLIENT26_OPTIONS   "-Drpc=60000": HBase's default for one call of the client, and not 10 s; "-Dasync=true": its asynchronous client
#
# A round begins with half of the regions at the server that dies; the servers take turns, so it has hbase:meta in some rounds. The client
# has a writer and a reader for each region (halcyon.compat.bench.Recovery), and so have the probes (halcyon.compat.bench.Probes). A round is the
# longest time without success of any region. The client's figures are sums of its pauses (0.1, 0.3, 0.6, 1.1, 2.1, 4.1, 8.1, 18.1, 28.1 ... s)
# and a little. The script fails if the probes' figures are, too: if all rounds of a case are within 2 % of such sums.
#
# hbase       its defaults: a session of 90 s, of which ZooKeeper grants 60 s here
# hbase-fast  what its reference guide says for a fast recovery ("Better Mean Time to Recover", "Detect regionserver failure as fast as
#             reasonable" in the chapter on configuration): hbase.lease.recovery.dfs.timeout=23000, dfs.client.socket-timeout=10000, DataNodes
#             that are stale are avoided, and a shorter session. The guide names 20 to 30 s for the session; here it is SESSION.
# HDFS is the same for all of them: a heartbeat each second, DataNodes are stale after 3 s (testing/cluster/hdfs.sh). Other settings of HDFS are as
# fast as the guide says, or faster.
# HBase's frozen server is killed after its round. Halcyon's is killed by its keeper.
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$BENCH/../.." && pwd)"
HERE="$ROOT/testing/cluster"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-recovery}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROUNDS="${ROUNDS:-5}" CASES="${CASES:-kill freeze master move}" SESSION="${SESSION:-6000}" OUT="${OUT:-}" SETTLE="${SETTLE:-40}" PUBLISHED="${PUBLISHED:-}"
PROPERTIES="${PROPERTIES:-}" MORE_CASES="${MORE_CASES:-}"
REGIONS=12 SERVERS=3 DATANODES=3
case " $CASES " in *" host "*) DATANODES=4 ;; esac
case "${1:-}" in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
free_udp_port() { python3 -c 'import socket; it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.bind(("", 0)); print(it.getsockname()[1])'; }
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-recovery.XXXXXX")"
CLIENT=""
trap 'client_stop; cluster down; rm -rf "$DIR"' EXIT
trap 'exit 143' TERM INT

STATUS=(hbase.status.published=true hbase.status.multicast.ni.name=lo hbase.status.multicast.publisher.bind.address.ip=127.0.0.1
  "hbase.status.multicast.address.port=$(free_udp_port)")
client_stop() {
  [ -z "$CLIENT" ] || { exec 7>&-; pkill -TERM -P "$CLIENT" || true; wait "$CLIENT" || true; }
  CLIENT=""
}
client_begin() { # client_begin SYSTEM
  rm -f "$DIR/lines"
  mkfifo "$DIR/lines"
  CLIENT26_SECONDS=36000 CLIENT26_MEMORY=300m CLIENT26_OPTIONS="-Dprobes=true ${CLIENT26_OPTIONS:-} ${PUBLISHED:+${STATUS[*]/#/-D}}" \
    client26 halcyon.compat.bench.Recovery "$ZK" rows "$REGIONS" < "$DIR/lines" \
    > "$DIR/client" 2> "$DIR/client.err" &
  CLIENT=$!
  exec 7> "$DIR/lines"
  wait_for 120 grep -q '^working' "$DIR/client"
}
tell() { kill -0 "$CLIENT" 2> /dev/null || fail "the client ended: $(tail -n 3 "$DIR/client.err")"; echo "$*" >&7; }
has_said() { grep -q "^$1	$2" "$DIR/client"; }
figures_of() { grep "^$1	$2	" "$DIR/client" | tail -n 1 | cut -f 3-; }
round_begin() { tell begin "$1"; wait_for 30 has_said begun "$1"; sleep 0.5; }
round_end() { # round_end SYSTEM CASE NAME
  sleep 1 # nothing that began before may count for the end
  tell end "$3"
  wait_for 320 has_said round "$3"
  # the client's figures, then those of the probes
  echo "$1	$2	$(figures_of round "$3")	$(figures_of probes "$3")" | tee -a "$DIR/rounds.tsv" >&2
}

masters() { if [ "$1" = halcyon ]; then echo master1 master2; else echo hmaster hmaster2; fi; }
server() { # server SYSTEM NUMBER: its process
  if [ "$1" = halcyon ]; then echo "halcyon$(($2 % SERVERS + 1))"; else echo "hregionserver$(($2 % SERVERS + 1))"; fi
}
active_process() { # active_process SYSTEM: the process of the active master, by its port
  local port name
  port="$("$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed -n 's/.*active master:.*:\([0-9]*\) .*/\1/p' | head -n 1)"
  for name in $(masters "$1"); do
    [ "$(sed -n "s/^$name //p" "$CLUSTER_DIR/ports")" != "$port" ] || echo "$name"
  done
}
all_open() {
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'rows'" 2> /dev/null)" && [ "$(grep -c '"OPEN"' <<< "$found")" = "$REGIONS" ]
}
alive() { # alive SERVER
  "$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed '/dead servers/,$d' | grep -qF "${1##*,}"
}
has_joined() { local name; name="$(name_of "$1")"; [ "$name" != "$2" ] && alive "$name"; }
back() { # back PROCESS SERVER: starts the process that was called SERVER again
  cluster kill "$1" 2> /dev/null || true
  wait_for 120 is_dead "$2"
  wait_for 60 all_open
  cluster start "$1"
  wait_for 300 has_joined "$1" "$2"
}

round_kill() { # round_kill SYSTEM NUMBER
  local process name
  process="$(server "$1" "$2")" name="$(name_of "$(server "$1" "$2")")"
  move_half rows "$name"
  round_begin "kill$2"
  cluster kill-server "$process"
  round_end "$1" kill "kill$2"
  back "$process" "$name"
}
freeze_round() { # freeze_round SYSTEM NUMBER CASE VERB
  local process name
  process="$(server "$1" "$2")" name="$(name_of "$(server "$1" "$2")")"
  move_half rows "$name"
  round_begin "$3$2"
  cluster "$4" "$process"
  round_end "$1" "$3" "$3$2"
  back "$process" "$name"
}
round_freeze() { freeze_round "$1" "$2" freeze freeze-server; }
round_silent() { freeze_round "$1" "$2" silent freeze; }
has_datanodes() { local found; found="$(cluster status)" && grep -q "^NumLiveDataNodes $DATANODES$" <<< "$found" && grep -q '^StaleDataNodes 0$' <<< "$found"; }
round_host() {
  local process name datanode="datanode$(($2 % DATANODES + 1))"
  process="$(server "$1" "$2")" name="$(name_of "$(server "$1" "$2")")"
  move_half rows "$name"
  round_begin "host$2"
  cluster freeze "$process"
  cluster freeze "$datanode"
  round_end "$1" host "host$2"
  cluster kill "$datanode"
  cluster start "$datanode"
  wait_for 60 has_datanodes
  back "$process" "$name"
  sleep "$SETTLE"
}
round_master() {
  local process
  process="$(active_process "$1")"
  [ -n "$process" ] || fail "no active master was found"
  round_begin "master$2"
  cluster kill-server "$process"
  round_end "$1" master "master$2"
  sleep 1
  cluster kill "$process" 2> /dev/null || true
  cluster start "$process"
  wait_for 60 is_now "$process" running
  sleep 3 # it stands for election
}
round_move() { # round_move SYSTEM NUMBER [CASE]
  local region to case="${3:-move}"
  to="$(name_of "$(server "$1" "$2")")"
  region="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'rows'" | grep -vF "$to" | grep -o '[0-9a-f]\{32\}' | sed -n 1p)"
  [ -n "$region" ] || { move_half rows "$(name_of "$(server "$1" $(($2 + 1)))")"; region="$(regions rows | sed -n 1p)"; }
  round_begin "$case$2"
  sh_halcyon "move '$region', '$to'" > /dev/null
  round_end "$1" "$case" "$case$2"
}
round_unnamed() {
  local region before
  region="$(regions rows | sed -n "$(($2 % REGIONS + 1))p")"
  before="$(place_of "$region")"
  round_begin "unnamed$2"
  sh_halcyon "move '$region'" > /dev/null
  wait_for 60 is_elsewhere "$region" "$before"
  round_end "$1" unnamed "unnamed$2"
}
place_of() { "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'rows'" | grep -F "$1" | grep -o '"[^" ]*,[0-9]*,[0-9]\{13\}"' | sed -n 1p; }
is_elsewhere() { local now; now="$(place_of "$1")" && [ -n "$now" ] && [ "$now" != "$2" ]; }

[ -z "$MORE_CASES" ] || . "$MORE_CASES"

measure() { # measure SYSTEM
  local case n it options=()
  case "$1" in
    halcyon) options=(--masters 2 --halcyons "$SERVERS" --hregionservers 0 --property "zookeeper.session.timeout=$SESSION" --property dfs.client.socket-timeout=10000) ;;
    hbase) options=(--hmasters 2 --halcyons 0 --hregionservers "$SERVERS" --property zookeeper.session.timeout=90000 --property dfs.client.socket-timeout=60000) ;;
    hbase-fast) options=(--hmasters 2 --halcyons 0 --hregionservers "$SERVERS" --property "zookeeper.session.timeout=$SESSION" --property hbase.lease.recovery.dfs.timeout=23000
      --property dfs.client.socket-timeout=10000) ;;
    *) fail "$1 is none of halcyon, hbase, hbase-fast" ;;
  esac
  for it in $PROPERTIES; do options+=(--property "$it"); done
  [ -z "$PUBLISHED" ] || for it in "${STATUS[@]}"; do options+=(--property "$it"); done
  cluster up --parts "zookeeper hdfs hbaseservers" --datanodes "$DATANODES" --seconds $((1200 + ROUNDS * 4 * (240 + SETTLE))) "${options[@]}" > /dev/null
  ZK="$(setting_of zookeeper)"
  sh_halcyon "balance_switch false" > /dev/null
  client_begin "$1"
  for case in $CASES; do
    for ((n = 0; n < ROUNDS; n++)); do "round_$case" "$1" "$n"; done
  done
  client_stop
  cluster down
}

: > "$DIR/rounds.tsv"
result=0
[ $# -gt 0 ] || set -- halcyon hbase hbase-fast
for system in "$@"; do measure "$system"; done
{
  echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, load after $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%FT%RZ); commit $(git -C "$ROOT" rev-parse --short HEAD 2> /dev/null || echo unknown)"
  echo "ROUNDS=$ROUNDS SESSION=$SESSION; median / worst in ms"
  python3 "$BENCH/tools/recovery.py" "$DIR/rounds.tsv"
} | tee "$DIR/table.md" || { result=$?; echo "the figures of the probes cannot be right" >&2; }
[ -z "$OUT" ] || { mkdir -p "$OUT" && cp "$DIR/rounds.tsv" "$DIR/table.md" "$OUT/"; }
exit "$result"
