#!/usr/bin/env bash
# HBase's tools on a cluster of HBase 2.6.4 with two region servers of HBase and two of Halcyon: the master's balancer and normalizer,
# ExportSnapshot, snapshots and flushes of a client of 2.4, RegionMover (graceful_stop.sh), decommission, rolling restarts, a table that
# servers of Halcyon refuse, a stop of the whole cluster and its next start.
#   mixed-tools-test.sh       some minutes
# STEPS              some of the steps, default all: balance normalize export znodes mover rolling decommission refused shutdown
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# CLUSTER_OPTIONS    more options of cluster.sh up
# ROWS               rows of the table, default 20000
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed-tools}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-20000}"
REGIONS=16
STEPS="${STEPS:-balance normalize export znodes mover rolling decommission refused shutdown}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
client26_classes
TOOLS_LIB="${HALCYON_HBASE_TOOLS_LIB:-$HOME/.cache/halcyon/hbase-tools-lib-2.6.4}"
[ -n "${HALCYON_HBASE_TOOLS_LIB:-}" ] || maven_jars "$HERE/tools/pom.xml" "$TOOLS_LIB"
CLIENT24_LIB="${HALCYON_CLIENT24_LIB:-$HOME/.cache/halcyon/client24-lib}"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
PROCESSES=(halcyon1 halcyon2 hregionserver1 hregionserver2)

orders() { client26 halcyon.compat.mixed.Orders "$ZK" "$1"; }
tool() { # tool CLASS ARGUMENT...: one of HBase's or Hadoop's tools; its output only when it fails
  local code=0
  timeout 300 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$TOOLS_LIB/*" "$@" > "$CLUSTER_DIR/tool.log" 2>&1 || code=$?
  [ "$code" = 0 ] || { tail -n 20 "$CLUSTER_DIR/tool.log" >&2; fail "$1 ended with $code"; }
}
at() { # at TABLE PROCESS: number of its regions that are open there
  sh_halcyon "list_regions '$1'" | grep -F "$(name_of "$2")" | grep -c OPEN || true
}
where() { # where TABLE: the number at each server, in the order of PROCESSES
  local listed process
  listed="$(sh_halcyon "list_regions '$1'")"
  for process in "${PROCESSES[@]}"; do
    grep -F "$(name_of "$process")" <<< "$listed" | grep -c OPEN || true
  done | xargs
}
is_at() { [ "$(where "$1")" = "$2" ]; }
expect_where() { # expect_where TABLE "N N N N" WHEN
  local try
  for ((try = 0; try < 60; try++)); do ! is_at "$1" "$2" || return 0; sleep 0.5; done
  fail "$3: regions are at the servers (${PROCESSES[*]}) $(where "$1"), not $2"
}
expect_each() { # expect_each TABLE MINIMUM WHEN: each server has so many regions of the table
  local found number
  found="$(where "$1")"
  for number in $found; do [ "$number" -ge "$2" ] || fail "$3: regions are at the servers (${PROCESSES[*]}) $found"; done
  echo "$3: regions are at the servers (${PROCESSES[*]}) $found"
}
expect_none() { # expect_none TABLE PROCESS WHEN
  local found
  found="$(at "$1" "$2")"
  [ "$found" = 0 ] || fail "$3: $found regions are at $2"
  echo "$3: no region is at $2; all are at the servers (${PROCESSES[*]}) $(where "$1")"
}
ended_with() { # ended_with PROCESS STATUS
  local found
  found="$(cluster status)" && grep -q "^$1 ended, $2\$" <<< "$found"
}
has_meta() { sh_halcyon "list_regions 'hbase:meta'" | grep -qF "$(name_of "$1")"; }
is_live() { # the master has this process among the live servers
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed '/dead servers/,$d')" && grep -qF "$(name_of "$1" | cut -d, -f3)" <<< "$found"
}
all_live() { local process; for process in "${PROCESSES[@]}"; do is_live "$process" || return 1; done; }
balance() { # balance TABLE WHEN: until the balancer has nothing to do
  sh_halcyon "balance_switch true" > /dev/null
  orders balance > "$CLUSTER_DIR/balance.log" 2>&1 || { cat "$CLUSTER_DIR/balance.log" >&2; fail "$2: balance"; }
  sh_halcyon "balance_switch false" > /dev/null
  tail -n 1 "$CLUSTER_DIR/balance.log"
  grep -q ' [1-9][0-9]* executed' "$CLUSTER_DIR/balance.log" || fail "$2: the balancer moved nothing: $(cat "$CLUSTER_DIR/balance.log")"
  expect_each "$1" 1 "$2"
}
write() { # write TABLE FROM TO BYTES: rows, and a flush
  seq "$2" "$3" | awk -v t="$1" -v value="$(printf "%0$4d" 0)" '{ printf "put '\''%s'\'', '\''r%06d'\'', '\''f:q'\'', '\''%d%s'\''\n", t, $1, $1, value }' |
    "$HALCYON" shell --zookeeper "$ZK" > /dev/null
  sh_halcyon "flush '$1'" > /dev/null
}
restart() { # restart PROCESS: stops it as a service does, and starts it again
  local before status=0
  before="$(name_of "$1")"
  case "$1" in hregionserver*) status=143 ;; esac # a JVM after SIGTERM
  cluster stop "$1"
  wait_for 10 ended_with "$1" "$status"
  wait_gone t "$before"
  cluster start "$1"
  wait_for 60 has_another "$1" "$before"
}

step_balance() {
  move_all t "$(name_of hregionserver1)"
  expect_where t "0 0 $REGIONS 0" "all moved to one server of HBase"
  balance t "balanced, from one server of HBase"
  expect_count t "$ROWS" "balanced"
  move_all t "$(name_of halcyon1)"
  expect_where t "$REGIONS 0 0 0" "all moved to one server of Halcyon"
  balance t "balanced, from one server of Halcyon"
  expect_count t "$ROWS" "balanced"
}

split_by_normalizer() { [ "$(regions n | wc -l)" -ge 3 ]; }
merged_by_normalizer() { [ "$(regions n | wc -l)" -le "$(($1 - 2))" ]; }
normalize_until() { # normalize_until COMMAND...: the normalizer sees the sizes that the servers report
  local try
  for ((try = 0; try < 12; try++)); do
    sh_halcyon "normalize 'n'" > /dev/null
    sleep 5
    ! "$@" || return 0
  done
  fail "waited in vain for the normalizer: $*; regions are at the servers (${PROCESSES[*]}) $(where n)"
}
step_normalize() {
  local found
  sh_halcyon "normalizer_switch true; create 'n', {NAME => 'f'}, {NORMALIZATION_ENABLED => 'true'}" > /dev/null
  sh_halcyon "alter 'n', METHOD => 'table_att', METADATA => {'NORMALIZER_TARGET_REGION_SIZE_MB' => '1'}" > /dev/null
  move_all n "$(name_of halcyon1)"
  write n 1 800 10000
  [ "$(regions n | wc -l)" = 1 ] || fail "normalizer: the table was split before"
  normalize_until split_by_normalizer
  echo "split by the normalizer: regions are at the servers (${PROCESSES[*]}) $(where n)"
  expect_count n 800 "split by the normalizer"
  # every region with its neighbour at another server
  found=($(regions n))
  for number in "${!found[@]}"; do
    sh_halcyon "move '${found[$number]}', '$(name_of "${PROCESSES[$((number % 2 * 2))]}")'" > /dev/null
  done
  sh_halcyon "alter 'n', METHOD => 'table_att', METADATA => {'NORMALIZER_TARGET_REGION_SIZE_MB' => '40'}" > /dev/null
  echo "before the merges: ${#found[@]} regions at the servers (${PROCESSES[*]}) $(where n)"
  normalize_until merged_by_normalizer "${#found[@]}"
  echo "merged by the normalizer: regions are at the servers (${PROCESSES[*]}) $(where n)"
  expect_count n 800 "merged by the normalizer"
  sh_halcyon "disable 'n'; drop 'n'" > /dev/null
}

step_export() {
  spread
  sh_halcyon "create 'e', 'f', SPLITS => ['r0005', 'r0010', 'r0015']"
  local region number=0 root
  for region in $(regions e); do
    sh_halcyon "move '$region', '$(name_of "${PROCESSES[$number]}")'" > /dev/null
    number=$((number + 1))
  done
  expect_where e "1 1 1 1" "a region of the table at each server"
  write e 1 2000 100
  sh_halcyon "put 'e', 'r0007x', 'f:q', 'in memory when the snapshot is taken'; snapshot 'e', 'exported'; deleteall 'e', 'r0007x'" > /dev/null
  root="$(setting_of hdfs)"
  tool org.apache.hadoop.hbase.snapshot.ExportSnapshot -D mapreduce.framework.name=local -D "hadoop.tmp.dir=$CLUSTER_DIR/mapreduce" \
    --snapshot exported --copy-to "$root/export" --mappers 2
  tool org.apache.hadoop.hbase.snapshot.SnapshotInfo --snapshot exported --remote-dir "$root/export" --stats
  sed -n '/store file\|HFiles/p' "$CLUSTER_DIR/tool.log"
  [ "$(sed -n 's/^ *\([0-9]*\) HFiles (.*/\1/p' "$CLUSTER_DIR/tool.log" | head -n 1)" -ge 4 ] || fail "the export has fewer files than regions"
  ! grep -qi 'corrupted' "$CLUSTER_DIR/tool.log" || fail "the export is corrupt: $(cat "$CLUSTER_DIR/tool.log")"
  # The copy is the only one that is left when it comes back.
  sh_halcyon "disable 'e'; drop 'e'; delete_snapshot 'exported'" > /dev/null
  tool org.apache.hadoop.fs.FsShell -rm -r -f -skipTrash /hbase/archive/data/default/e
  tool org.apache.hadoop.hbase.snapshot.ExportSnapshot -D mapreduce.framework.name=local -D "hadoop.tmp.dir=$CLUSTER_DIR/mapreduce" \
    --snapshot exported --copy-from "$root/export" --copy-to "$root/hbase" --target back --mappers 2
  sh_halcyon "clone_snapshot 'back', 'e2'" > /dev/null
  move_all e2 "$(name_of halcyon2)"
  expect_where e2 "0 4 0 0" "the clone of the exported snapshot at a server of Halcyon"
  expect_count e2 2001 "exported, imported, cloned, at a server of Halcyon"
  move_all e2 "$(name_of hregionserver2)"
  expect_count e2 2001 "the same at a server of HBase"
  sh_halcyon "disable 'e2'; drop 'e2'; delete_snapshot 'back'" > /dev/null
}

done_by() { # done_by PROCESS PROCEDURE: how many times this server of Halcyon has done its part
  grep -c "has done its part of $2" "$CLUSTER_DIR/$1/log" || true
}
step_znodes() { # HBase's master coordinates these through znodes
  local region number=0 process procedure expected
  [ -n "${HALCYON_CLIENT24_LIB:-}" ] || maven_jars "$COMPAT/client24/pom.xml" "$CLIENT24_LIB"
  sh_halcyon "create 'z', 'f', 'g', {SPLITS => ['r000500', 'r001000', 'r001500'], COMPACTION_ENABLED => 'false'}"
  for region in $(regions z); do
    sh_halcyon "move '$region', '$(name_of "${PROCESSES[$number]}")'" > /dev/null
    number=$((number + 1))
  done
  expect_where z "1 1 1 1" "a region of the table at each server"
  write z 1 2000 100
  CLIENT26_CLASS_PATH="$COMPAT/client26/target/classes:$CLIENT24_LIB/*" client26 halcyon.compat.mixed.Barriers "$ZK" old z ||
    fail "a client of 2.4"
  client26 halcyon.compat.mixed.Barriers "$ZK" exec z || fail "Admin.execProcedure"
  # Some flushes only put something into memory for the next one.
  for process in halcyon1 halcyon2; do
    for procedure in "online-snapshot z-old" "online-snapshot z-exec" "online-snapshot z-skipflush" "flush-table-proc z"; do
      case "$procedure" in flush*) expected=5 ;; *) expected=1 ;; esac
      number="$(done_by "$process" "$procedure\$")"
      [ "$number" -ge "$expected" ] || fail "$process has taken part in $procedure $number times, not $expected"
    done
  done
  expect_where z "1 1 1 1" "after snapshots and flushes through znodes"
  timeout 60 "$JAVA" "${JAVA_FLAGS[@]}" -Dlog4j2.level=OFF -cp "$HBASE_LIB/*" "$HERE/znodes/GarbageProcedures.java" "$ZK" z \
    2> "$CLUSTER_DIR/garbage.log" || { tail -n 20 "$CLUSTER_DIR/garbage.log" >&2; fail "garbage in znodes"; }
  client26 halcyon.compat.mixed.Barriers "$ZK" exec z > /dev/null || fail "Admin.execProcedure after garbage"
  sh_halcyon "disable 'z'; drop 'z'" > /dev/null
}

spread() { # the regions of t in turn to all servers
  local region number=0
  for region in $(regions t); do
    sh_halcyon "move '$region', '$(name_of "${PROCESSES[$((number % 4))]}")'" > /dev/null
    number=$((number + 1))
  done
  expect_where t "4 4 4 4" "spread over all servers"
}
mover() { # mover OPERATION PROCESS
  tool org.apache.hadoop.hbase.util.RegionMover -r "localhost:$(name_of "$2" | cut -d, -f2)" -o "$1" -f "$CLUSTER_DIR/moved-$2" -m 4 -t 200
}
step_mover() {
  local process
  for process in halcyon1 hregionserver1 halcyon2; do
    spread
    sh_halcyon "put 't', 'r5$process', 'f:q', 'not flushed'" > /dev/null
    ROWS=$((ROWS + 1))
    mover unload "$process"
    expect_none t "$process" "unloaded by RegionMover"
    expect_count t "$ROWS" "unloaded by RegionMover"
    if [ "$process" = halcyon2 ]; then
      restart "$process"
      expect_none t "$process" "restarted after it was unloaded"
    fi
    mover load "$process"
    [ "$(at t "$process")" = 4 ] || fail "loaded by RegionMover: $(at t "$process") regions of 4 are at $process"
    expect_count t "$ROWS" "loaded by RegionMover, 4 regions at $process"
  done
}

step_rolling() {
  local process
  spread
  for process in halcyon1 halcyon2 hregionserver1 hregionserver2; do
    move_all t "$(name_of "$process")"
    sh_halcyon "put 't', 'r3$process', 'f:q', 'not flushed'" > /dev/null
    ROWS=$((ROWS + 1))
    restart "$process"
    expect_none t "$process" "rolling restart"
    expect_count t "$ROWS" "rolling restart, after $process with all regions"
  done
}

step_decommission() {
  local process name
  for process in halcyon1 hregionserver1; do
    spread
    name="$(name_of "$process")"
    sh_halcyon "decommission_regionservers ['$name'], true" > /dev/null
    wait_for 60 is_settled t "$name"
    expect_none t "$process" "decommissioned"
    sh_halcyon "list_decommissioned_regionservers" | grep -qF "$name" || fail "$name is not in the list of decommissioned servers"
    expect_count t "$ROWS" "decommissioned"
    sh_halcyon "create 'd', 'f', SPLITS => ['1', '2', '3', '4', '5', '6', '7', '8', '9']; balance_switch true" > /dev/null
    orders balance > "$CLUSTER_DIR/balance.log" 2>&1 || fail "balance beside a decommissioned server: $(cat "$CLUSTER_DIR/balance.log")"
    sh_halcyon "balance_switch false" > /dev/null
    expect_none d "$process" "a new table and the balancer, decommissioned"
    expect_none t "$process" "the balancer, decommissioned"
    sh_halcyon "recommission_regionserver '$name'" > /dev/null
    balance t "recommissioned and balanced"
    expect_count t "$ROWS" "recommissioned"
    sh_halcyon "disable 'd'; drop 'd'" > /dev/null
  done
}

refusals() { cat "$CLUSTER_DIR"/halcyon*/log | grep -c 'a region cannot be opened here' || true; }
all_at_theirs() { # all_at_theirs TABLE REGIONS
  [ "$(where "$1" | awk '{ print $1 + $2, $3 + $4 }')" = "0 $2" ]
}
step_refused() { # the master tries other servers until each region is at one of HBase
  local before
  before="$(refusals)"
  SECONDS=0
  sh_halcyon "create 'p', {NAME => 'f'}, {SPLITS => ['1', '2', '3', '4', '5', '6', '7'],
    METADATA => {'coprocessor\$1' => '|org.apache.hadoop.hbase.constraint.ConstraintProcessor|1073741823|'}}" > /dev/null
  wait_for 120 all_at_theirs p 8
  echo "a table with a coprocessor is open after $SECONDS s and $(($(refusals) - before)) refusals: regions are at the servers (${PROCESSES[*]}) $(where p)"
  [ "$(refusals)" -gt "$before" ] || fail "no server of Halcyon was asked"
  write p 1 100 20
  expect_count p 100 "a table with a coprocessor"
  before="$(refusals)"
  sh_halcyon "move '$(regions p | tail -n 1)', '$(name_of halcyon1)'" > /dev/null
  wait_for 120 all_at_theirs p 8
  [ "$(refusals)" -gt "$before" ] || fail "the region was not moved"
  expect_count p 100 "after a move to a server of Halcyon, which refused the region"
  sh_halcyon "disable 'p'; drop 'p'" > /dev/null
}

all_ended() { local process; for process in hmaster "${PROCESSES[@]}"; do has_ended "$process" || return 1; done; }
step_shutdown() {
  local meta process before
  for meta in hregionserver1 halcyon1; do
    spread
    sh_halcyon "move '1588230740', '$(name_of "$meta")'" > /dev/null
    wait_for 30 has_meta "$meta"
    for process in "${PROCESSES[@]}"; do sh_halcyon "put 't', 'r7$meta-$process', 'f:q', 'not flushed'" > /dev/null; done
    ROWS=$((ROWS + 4))
    expect_count t "$ROWS" "before the stop of the cluster, with hbase:meta at $meta"
    before="$(for process in "${PROCESSES[@]}"; do name_of "$process"; done)"
    SECONDS=0
    orders shutdown
    wait_for 90 all_ended
    echo "all have ended after $SECONDS s: $(cluster status | sed -n 's/^\(h[^ ]*\) ended, \(.*\)/\1 \2/p' | xargs)"
    for process in hmaster "${PROCESSES[@]}"; do
      wait_for 5 ended_with "$process" 0
    done
    for process in hmaster "${PROCESSES[@]}"; do cluster start "$process"; done
    wait_for 120 all_live
    for process in "${PROCESSES[@]}"; do
      ! grep -qF "$(name_of "$process")" <<< "$before" || fail "$process has its name of before: $(name_of "$process")"
    done
    wait_for 90 counts t
    [ "$(where t | tr ' ' + | { read -r sum; echo $((sum)); })" = "$REGIONS" ] || fail "after the start regions are at the servers $(where t)"
    expect_count t "$ROWS" "after the stop and the start of the cluster"
  done
}

cluster up --parts "zookeeper hdfs hbaseservers" --hregionservers 2 --halcyons 2 --seconds 3600 \
  --property hbase.normalizer.merge.min_region_age.days=0 ${CLUSTER_OPTIONS:-} > /dev/null
ZK="$(setting_of zookeeper)"
for process in "${PROCESSES[@]}"; do echo "$process is $(name_of "$process")"; done
sh_halcyon "balance_switch false" > /dev/null
sh_halcyon "create 't', 'f', SPLITS => [$(seq 1 $((REGIONS - 1)) | awk -v n="$REGIONS" -v rows="$ROWS" '{ printf "%s'\''r%06d'\''", (NR > 1 ? ", " : ""), $1 * rows / n }')]" > /dev/null
spread
write t 0 $((ROWS - 1)) 20
expect_count t "$ROWS" "written"
for step in $STEPS; do
  echo "--- $step"
  "step_$step"
done
echo "mixed-tools-test: passed"
