#!/usr/bin/env bash
# Clients are told of dead servers (hbase.status.published): a cluster of Halcyon on ZooKeeper and HDFS, and HBase's Java client with its
# own timeout of a minute for a call. A region server is frozen with its keeper, so nothing ends the client's connections to it: it is as
# silent as a machine that is lost, but HDFS is whole. Prints how long the longest call took, with the client that listens, which is
# HBase's blocking one, its asynchronous one and the Rust client, and with the client that does not. Eight minutes.
#   status-test.sh
# CLIENTS  default "blocking async rust takeover deaf"; "takeover" is the blocking one, and the active master is killed as well, so that
#          the next one has to tell it
# ROUNDS   of each, default 2
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR. The Rust client is beside it: examples/recovery
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-status-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
CLIENTS="${CLIENTS:-blocking async rust takeover deaf}" ROUNDS="${ROUNDS:-2}" REGIONS=12 SERVERS=3
RUST_CLIENT="$(dirname "$HALCYON")/examples/recovery"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
case " $CLIENTS " in
  *" rust "*) [ -x "$RUST_CLIENT" ] || { echo "no program at $RUST_CLIENT: cargo build -p halcyon-client --example recovery" >&2; exit 66; } ;;
esac
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
[ "$CLIENTS" = rust ] || client26_classes
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-status-test.XXXXXX")"
CLIENT=""
trap 'client_stop; cluster down; rm -rf "$DIR"' EXIT
trap 'exit 143' TERM INT

client_stop() {
  [ -z "$CLIENT" ] || { exec 7>&-; pkill -TERM -P "$CLIENT" || true; wait "$CLIENT" || true; }
  CLIENT=""
}
client_begin() { # client_begin KIND
  local options="-Drpc=60000" status=(hbase.status.published=true hbase.status.multicast.ni.name=lo "hbase.status.multicast.address.port=$PORT")
  [ "$1" = deaf ] || options+=" ${status[*]/#/-D}"
  [ "$1" != async ] || options+=" -Dasync=true"
  rm -f "$DIR/lines"
  mkfifo "$DIR/lines"
  if [ "$1" = rust ]; then
    timeout 36000 "$RUST_CLIENT" "$ZK" "$1" "$REGIONS" hbase.rpc.timeout=60000 "${status[@]}" < "$DIR/lines" > "$DIR/client" 2> "$DIR/client.err" &
  else
    CLIENT26_SECONDS=36000 CLIENT26_MEMORY=300m CLIENT26_OPTIONS="$options" client26 halcyon.compat.bench.Recovery "$ZK" "$1" "$REGIONS" \
      < "$DIR/lines" > "$DIR/client" 2> "$DIR/client.err" &
  fi
  CLIENT=$!
  exec 7> "$DIR/lines"
  wait_for 120 grep -q '^working' "$DIR/client"
}
tell() { kill -0 "$CLIENT" 2> /dev/null || fail "the client ended: $(tail -n 3 "$DIR/client.err")"; echo "$*" >&7; }
has_said() { grep -q "^$1	$2" "$DIR/client"; }

round() { # round KIND NUMBER: sets LONGEST_CALL
  local process="halcyon$(($2 % SERVERS + 1))" name master=""
  name="$(name_of "$process")"
  move_half "$1" "$name"
  tell "begin $1$2"
  wait_for 30 has_said begun "$1$2"
  sleep 0.5
  [ "$1" != takeover ] || master="$(active)"
  cluster freeze "$process"
  if [ "$1" = takeover ]; then
    [ -n "$master" ] || fail "no master is active"
    cluster kill "$master"
    wait_for 60 another_is_active "$master"
  fi
  sleep 1
  tell "end $1$2"
  wait_for 320 has_said round "$1$2"
  LONGEST_CALL="$(sed -n "s/^round	$1$2	//p" "$DIR/client" | cut -f3)"
  [ "$(sed -n "s/^round	$1$2	//p" "$DIR/client" | cut -f5)" = 0 ] || fail "the client saw errors: $(tail -n 3 "$DIR/client.err")"
  wait_for 60 is_dead "$name"
  cluster kill "$process"
  cluster start "$process"
  wait_for 60 has_another "$process" "$name"
  [ -z "$master" ] || cluster start "$master"
}

PORT="$(python3 -c 'import socket; it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); it.bind(("", 0)); print(it.getsockname()[1])')"
cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons "$SERVERS" --hregionservers 0 --property zookeeper.session.timeout=6000 \
  --property hbase.status.published=true --property hbase.status.multicast.ni.name=lo --property "hbase.status.multicast.address.port=$PORT" \
  --property dfs.client.socket-timeout=10000 --seconds 3600 > /dev/null
ZK="$(setting_of zookeeper)"
sh_halcyon "balance_switch false" > /dev/null
number=0
for kind in $CLIENTS; do
  client_begin "$kind"
  for ((n = 0; n < ROUNDS; n++)); do
    round "$kind" $((number++))
    echo "a region server frozen with its keeper$([ "$kind" != takeover ] || echo ", and the active master killed"), client $kind: the longest call took $LONGEST_CALL ms"
    case "$kind" in
      deaf) [ "$LONGEST_CALL" -ge 50000 ] || fail "the client that does not listen waited for no timeout: this test shows nothing" ;;
      *) [ "$LONGEST_CALL" -lt 30000 ] || fail "the client was told of the dead server, and waited all the same" ;;
    esac
  done
  client_stop
done
echo "status-test: passed"
