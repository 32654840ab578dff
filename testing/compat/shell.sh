#!/usr/bin/env bash
# One script of more than 200 commands through `halcyon shell`, against a real HBase 2.6.4 and against Halcyon. What they print is
# compared line by line, after times, servers and ids of regions have been replaced.
#   shell.sh           two to four minutes, when everything is built
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB  HBase's jars, as for files.sh
# ROOT_DIR           where data, logs and outputs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-shell.XXXXXX")}"
mkdir -p "$DIR"
DIR="$(cd "$DIR" && pwd)"
[ -x "$HALCYON" ] || { echo "no binary at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
trap 'hbase_kill; server_kill' EXIT

# What differs from run to run and from machine to machine is replaced. Errors are compared by class, because Halcyon words them
# itself. Numbers of regions differ by one: Halcyon keeps namespaces in a table, HBase 2.6 in meta.
normalized() {
  sed -E \
    -e 's/(20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+)/TIME/g' \
    -e 's/[A-Za-z0-9.-]+,[0-9]+,1[0-9]{12}/SERVER/g' \
    -e 's/(active master:  |^    )[A-Za-z0-9.-]+:[0-9]+ 1[0-9]{12}/\1SERVER/' \
    -e 's/,1[0-9]{12}\.[0-9a-f]{32}\./,ID./g' \
    -e 's/^(ERROR: [A-Za-z]+Exception): .*/\1/' \
    -e 's/("error":"[A-Za-z]+Exception").*/\1}/' \
    -e 's/[0-9.]+ average load/N average load/' \
    -e 's/"regions":[0-9]+,"average_load":[0-9.]+/"regions":N/' \
    -e 's/^2\.6\.4(-hadoop3)?$/2.6.4/' \
    -e 's/127\.0\.0\.1:[0-9]+:/ZOOKEEPER:/g' \
    -e 's/ENCODED => [0-9a-f]{32}/ENCODED => ID/g' \
    -e '/requestsPerSecond=/s/=[0-9]+/=N/g' \
    -e 's/ +$//'
}

regions_of() { # encoded names of the regions of a table, in order: ZOOKEEPER TABLE
  "$HALCYON" shell --zookeeper "$1" --json -e "list_regions '$2'" | sed -E 's/.*\.([0-9a-f]{32})\.".*/\1/'
}

GROUPS_OF_COMMANDS="peers quotas logs operations groups" # each has a script
run_shell() { # run_shell ZOOKEEPER NAME: the script, then commands that need the names of regions, then those of the groups
  local zookeeper="$1" out="$DIR/$2.out" regions server group
  "$HALCYON" shell --zookeeper "$zookeeper" --keep-going "$HERE/shell/script.txt" > "$out" 2>&1 || echo "exit code $?" >> "$out"
  "$HALCYON" shell --zookeeper "$zookeeper" -e "create 'r', 'f', SPLITS => ['h', 'p']" \
    -e "put 'r', 'a', 'f:q', '1', 1; put 'r', 'i', 'f:q', '2', 1; put 'r', 'x', 'f:q', '3', 1" >> "$out" 2>&1
  mapfile -t regions < <(regions_of "$zookeeper" r)
  "$HALCYON" shell --zookeeper "$zookeeper" --keep-going >> "$out" 2>&1 << SCRIPT || echo "exit code $?" >> "$out"
flush '${regions[0]}'
compact '${regions[0]}'
major_compact '${regions[1]}', 'f'
move '${regions[2]}'
move 'ffffffffffffffffffffffffffffffff'
unassign '${regions[2]}'
assign '${regions[2]}'
merge_region '${regions[0]}', '${regions[1]}'
merge_region '${regions[2]}'
split '${regions[2]}', 't'
split '${regions[2]}', 't'
get_splits 'r'
scan 'r'
regioninfo '${regions[2]}'
SCRIPT
  "$HALCYON" shell --zookeeper "$zookeeper" --keep-going >> "$out" 2>&1 << 'SCRIPT' || echo "exit code $?" >> "$out"
count 'r'
disable 'r'
drop 'r'
list
SCRIPT
  server="$("$HALCYON" shell --zookeeper "$zookeeper" -e "status 'simple'" | sed -n 's/^    \([^ ]*:[0-9]*\) [0-9]*$/\1/p' | head -n 1)"
  for group in $GROUPS_OF_COMMANDS; do
    echo "# $group" >> "$out"
    sed -e "s/ZOOKEEPER_HERE/$zookeeper/g; s/SERVER_HERE/$server/g" "$HERE/shell/$group.txt" |
      "$HALCYON" shell --zookeeper "$zookeeper" --keep-going - >> "$out" 2>&1 || echo "exit code $?" >> "$out"
  done
  "$HALCYON" shell --zookeeper "$zookeeper" --json --keep-going "$HERE/shell/json.txt" >> "$out" 2>&1 || echo "exit code $?" >> "$out"
  normalized < "$out" > "$DIR/$2.txt"
}

hbase_fetch
GROUPS_LIB="${HALCYON_GROUPS_LIB:-$HOME/.cache/halcyon/hbase-rsgroup-lib}"
maven_jars "$HERE/../cluster/groups/pom.xml" "$GROUPS_LIB"
PROPERTIES="hbase.quota.enabled=true hbase.coprocessor.master.classes=org.apache.hadoop.hbase.rsgroup.RSGroupAdminEndpoint
  hbase.master.loadbalancer.class=org.apache.hadoop.hbase.rsgroup.RSGroupBasedLoadBalancer"
HBASE_MORE_LIB="$GROUPS_LIB" HBASE_PROPERTIES="$PROPERTIES" hbase_start "$DIR" "$DIR/root"
run_shell "$HBASE_ZK" hbase
hbase_kill
mkdir -p "$DIR/site"
{
  echo "<configuration>"
  for property in $PROPERTIES; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
  echo "</configuration>"
} > "$DIR/site/hbase-site.xml"
SERVER_OPTIONS="--config $DIR/site" server_start "$DIR/data" "$DIR/server.log"
run_shell "$ZK" halcyon
server_stop
commands=$(cat "$HERE/shell/script.txt" $(printf "$HERE/shell/%s.txt " $GROUPS_OF_COMMANDS) | grep -vc '^#')
diff --unchanged-line-format= --old-line-format='HBase: %L' --new-line-format='Halcyon: %L' \
  "$DIR/hbase.txt" "$DIR/halcyon.txt" > "$DIR/differences.txt" || true
if ! diff <(grep -v '^#' "$HERE/shell/differences.txt") "$DIR/differences.txt" > "$DIR/unexpected.txt"; then
  echo "differences that testing/compat/shell/differences.txt does not have (>), or that are gone (<); all output is in $DIR:" >&2
  cat "$DIR/unexpected.txt" >&2
  exit 1
fi
lines=$(wc -l < "$DIR/hbase.txt")
differences=$(grep -c '^Halcyon' "$DIR/differences.txt" || true)
echo "$commands commands, and more on regions and as JSON, print the same $lines lines on HBase 2.6.4 and Halcyon but for $differences"
[ -n "$KEEP" ] || rm -rf "$DIR"
