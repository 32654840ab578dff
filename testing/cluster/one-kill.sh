#!/usr/bin/env bash
# One cluster of processes and one kill, in a minute: ZooKeeper, a NameNode and two DataNodes, two masters and three region servers. HBase's
# client writes and reads rows of each region and knows each answer (halcyon.compat.bench.OneKill). The region server with most regions is
# killed (SIGKILL, with its keeper); its regions have to open elsewhere, and every acknowledged row has to be there. Then the cluster is stopped.
#   one-kill.sh
# HALCYON       the binary, default target/release/halcyon below CARGO_TARGET_DIR
# CLUSTER_DIR   default a fresh directory, which is removed after success
# LEAST         writes, and reads, that each region must have had acknowledged before the kill, after it, and meanwhile where it was not away;
#               default 20
# OPEN_SECONDS  limit for the regions to be open elsewhere, default 60
# It fails if the jars of ZooKeeper and HDFS cannot be had.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
LEAST="${LEAST:-20}" OPEN_SECONDS="${OPEN_SECONDS:-60}" REGIONS=9
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
GIVEN="${CLUSTER_DIR:-}"
export CLUSTER_DIR="${CLUSTER_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-one-kill.XXXXXX")}"
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
end() {
  local code=$?
  client_end
  cluster down || code=1
  if [ $code -eq 0 ] && [ -z "$GIVEN" ]; then rm -rf "$CLUSTER_DIR"; else echo "logs are in $CLUSTER_DIR" >&2; fi
  exit $code
}
trap end EXIT
trap 'exit 143' TERM INT

tell() { client_works; echo "$*" >&7; }
places() { "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'rows'"; }
all_open() { local found; found="$(places 2> /dev/null)" && [ "$(grep -c '"OPEN"' <<< "$found")" = "$REGIONS" ]; }
all_are_elsewhere() { local found; found="$(places 2> /dev/null)" && ! grep -qF "$1" <<< "$found" && [ "$(grep -c '"OPEN"' <<< "$found")" = "$REGIONS" ]; }
status_of() { cluster status | sed -n "s/^$1 ended, //p"; } # status_of PROCESS: none while it runs, or its end is not noted yet
has_status() { [ -n "$(status_of "$1")" ]; }
phase() { # phase NAME [REGION...]: begins it
  tell phase "$@"
  wait_for 30 client_says "begun $1"
}
victim() { # the region server with most regions
  local process
  for process in halcyon1 halcyon2 halcyon3; do echo "$(at_server rows "$(name_of "$process")") $process"; done | sort -rn | sed -n '1s/.* //p'
}

SECONDS=0
cluster up --parts "zookeeper hdfs hbaseservers" --datanodes 2 --masters 2 --halcyons 3 --hregionservers 0 --owner $$ --seconds 600 \
  --property zookeeper.session.timeout=5000 > /dev/null
ZK="$(setting_of zookeeper)"
sh_halcyon "balance_switch false" > /dev/null
mkfifo "$CLUSTER_DIR/lines"
CLIENT26_MEMORY=200m CLIENT26_OPTIONS="-Dleast=$LEAST ${CLIENT26_OPTIONS:-}" client26 halcyon.compat.bench.OneKill "$ZK" rows "$REGIONS" \
  < "$CLUSTER_DIR/lines" > "$CLUSTER_DIR/client.log" 2>&1 &
CLIENT=$!
exec 7> "$CLUSTER_DIR/lines"
wait_for 60 client_says working
wait_for 30 all_open

phase before
wait_for 60 client_says "enough before"
VICTIM="$(victim)"
NAME="$(name_of "$VICTIM")"
AWAY="$(places | grep -F "$NAME" | sed -n 's/.*"start_key":"\([0-9]*\)".*/\1/p' | sed 's/^$/0/' | tr '\n' ' ')"
[ "$(wc -w <<< "$AWAY")" -ge 2 ] && [ "$(wc -w <<< "$AWAY")" -lt "$REGIONS" ] || fail "$VICTIM has the regions $AWAY of $REGIONS"

# shellcheck disable=SC2086
phase during $AWAY
begun=$SECONDS
cluster kill "$VICTIM"
wait_for 10 has_status "$VICTIM"
[ "$(status_of "$VICTIM")" = 137 ] || fail "$VICTIM had ended with $(status_of "$VICTIM") before it was killed"
wait_for "$OPEN_SECONDS" all_are_elsewhere "$NAME"
is_dead "$NAME" || fail "regions of $NAME are elsewhere, and the master has it among the live servers"
echo "$VICTIM was killed with the regions $AWAY; all are open elsewhere after $((SECONDS - begun)) s"
phase after
wait_for 90 client_says "enough after"

tell verify
wait_for 120 client_says verdict
tell shutdown
exec 7>&-
result=0
wait "$CLIENT" || result=$?
CLIENT=""
grep -v '^begun\|^enough' "$CLUSTER_DIR/client.log"
[ "$result" = 0 ] || fail "the client saw errors or differences, or had too few answers"
for process in halcyon1 halcyon2 halcyon3 master1 master2; do
  [ "$process" != "$VICTIM" ] || continue
  wait_for 60 has_status "$process"
  [ "$(status_of "$process")" = 0 ] || fail "$process was stopped, and has ended with $(status_of "$process")"
done
cluster sound || fail "a process of the cluster has failed"
echo "one-kill: passed, $SECONDS s"
