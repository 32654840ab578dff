#!/usr/bin/env bash
# HBase's own HBCK2 1.3.0 at a cluster of Halcyon, under a Java client that knows each answer (MixedLoad.java): recoveries of dead, live and
# unknown servers, also while the master is killed; assignments, states, a stuck procedure, a damaged HFile, regions that hbase:meta or
# HDFS has lost. Each command is judged by what it did: regions are open at live servers and every row is there. Some minutes.
#   hbck2-test.sh
# HALCYON_HBCK2_SOURCE   a checkout of apache/hbase-operator-tools at rel/1.3.0: the tool is not on Maven Central. It is compiled here
# PARTS    some of the parts, default all: servers regions damaged lost
# ROWS     rows of the client's table, default 20000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hbck2-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-20000}" PARTS="${PARTS:-servers regions damaged lost}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
DIR="$CLUSTER_DIR-tool" CONF="$CLUSTER_DIR-tool/conf"
. "$HERE/../compat/hbck2_tool.sh"
mkdir -p "$CONF"
client26_classes
hbck2_fetch
trap 'client_end; cluster down' EXIT
trap 'exit 143' TERM INT

shell() { sh_halcyon "$1"; }
region_at() { # region_at NUMBER: the full name of a region of t, in the order of the start keys
  shell "list_regions 't'" | grep -o 't,[^ ]*\.[0-9a-f]\{32\}\.' | awk '!seen[$0]++' | sort | sed -n "$1p"
}
encoded() { local name="${1%.}"; echo "${name##*.}"; }
hdfs() { timeout 120 "$JAVA" -Xmx64m "${JAVA_FLAGS[@]}" -cp "$CONF:$HBASE_LIB/*" org.apache.hadoop.fs.FsShell "$@" 2> "$DIR/hdfs.log"; }
all_open() { # every region of t is open, at a server that the master knows
  local listed
  listed="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 't'" 2> /dev/null)" && [ "$(grep -c '"OPEN"' <<< "$listed")" = 6 ] &&
    ! grep -q 'gone.example' <<< "$listed"
}
expect_whole() { # expect_whole WHEN
  wait_for 90 all_open
  expect_count t 2000 "$1"
}
meta_at() { sed -n 's/.*hbase:meta is open server=\([^ ]*\) .*/\1/p' <(sed 's/\x1b\[[0-9;]*m//g' "$CLUSTER_DIR/master1/log" "$CLUSTER_DIR/master2/log" | sort) | tail -n 1; }
process_of() { # process_of SERVER
  local process
  for process in halcyon1 halcyon2 halcyon3; do [ "$(name_of "$process")" != "$1" ] || echo "$process"; done
}
begun() { # what was said are numbers of procedures that have begun, so many
  local found
  found="$(numbers)"
  [[ "$found" =~ ^[0-9]+(, [0-9]+)*$ ]] && [ "$(tr ',' '\n' <<< "$found" | wc -l)" = "$1" ] || fail "procedures were to begin, $1 of them: $found"
}
back() { # back PROCESS SERVER: starts it again
  wait_for 60 has_ended "$1"
  cluster start "$1"
  wait_for 60 has_another "$1" "$2"
}
restart_masters() {
  local name
  for name in master1 master2; do cluster kill "$name"; done
  for name in master1 master2; do cluster start "$name"; done
  wait_for 60 has_active
}
has_active() { [ -n "$(active)" ]; }
put_meta() { shell "put 'hbase:meta', '$1', '$2', $3" > /dev/null; } # put_meta ROW COLUMN VALUE, which is quoted
numbers() { tail -n 1 "$DIR/out" | tr -d '[]'; } # what was said; some commands put brackets around

servers_part() { # dead, live and unknown servers are recovered
  run recoverUnknown
  [ -z "$(tr -d '[:space:]' < "$DIR/out")" ] || fail "unknown servers in a sound cluster: $(cat "$DIR/out")"
  run scheduleRecoveries gone.example,16020,7
  begun 1
  expect_whole "recovery of a server that never was"

  dead="$(name_of halcyon1)"
  cluster kill halcyon1
  run scheduleRecoveries "$dead" # beside the recovery that the master begins by itself
  wait_gone t "$dead"
  expect_whole "recovery of a server that was killed"
  run scheduleRecoveries "$dead"
  expect_whole "recovery of a server that is recovered already"
  back halcyon1 "$dead"

  live="$(name_of halcyon2)"
  move_half t "$live"
  seq 0 99 | awk '{ printf "put '\''t'\'', '\''r%04d'\'', '\''f:q'\'', '\''w%d'\''\n", $1 * 20, $1 }' | "$HALCYON" shell --zookeeper "$ZK" > /dev/null
  run scheduleRecoveries "$live"
  begun 1
  wait_gone t "$live"
  wait_for 60 has_ended halcyon2
  expect_whole "recovery of a live server, which ended"
  shell "get 't', 'r1980'" | grep -q 'value=w99' || fail "a write that only the WAL of the live server had is lost"
  back halcyon2 "$live"

  meta="$(meta_at)" process="$(process_of "$(meta_at)")"
  run scheduleRecoveries "$meta"
  begun 1
  wait_for 60 is_dead "$meta"
  wait_for 60 has_ended "$process"
  expect_whole "recovery of the live server of hbase:meta"
  back "$process" "$meta"

  first="$(name_of halcyon1)" second="$(name_of halcyon3)" master="$(active)"
  printf '%s\n%s\n' "$first" "$second" > "$DIR/servers"
  run scheduleRecoveries -i "$DIR/servers"
  begun 2
  cluster kill "$master"
  wait_for 60 another_is_active "$master"
  wait_for 90 is_dead "$first"
  wait_for 90 is_dead "$second"
  cluster start "$master"
  back halcyon1 "$first"
  back halcyon3 "$second"
  expect_whole "recovery of two of three servers, and the master was killed"

  for row in "$one" "$two"; do
    run unassigns "$(encoded "$row")"
    await_state "$row" CLOSED
    put_meta "$row" info:server "'gone.example:16020'"
    put_meta "$row" info:serverstartcode '"\x00\x00\x00\x00\x00\x00\x00\x07"'
    put_meta "$row" info:sn "'gone.example,16020,7'"
  done
  run setRegionState "$(encoded "$one")" OPEN
  run setRegionState "$(encoded "$two")" CLOSING
  restart_masters
  run recoverUnknown
  echo "recoverUnknown: $(tr '\n' ' ' < "$DIR/out")"
  expect_whole "regions of a server that nobody knows"
}

regions_part() { # assignments and states
  run unassigns "$region"
  await_state "$one" CLOSED
  run assigns "$region" 0123456789abcdef0123456789abcdef
  says ', -1'
  await_state "$one" OPEN
  printf '%s\n' $(for n in 1 2 3 4 5 6; do encoded "$(region_at "$n")"; done) > "$DIR/regions"
  run unassigns -b 2 -i "$DIR/regions"
  begun 6
  for n in 1 2 3 4 5 6; do await_state "$(region_at "$n")" CLOSED; done
  run assigns -b 4 -i "$DIR/regions"
  begun 6
  expect_whole "unassigned and assigned by a file"
  run assigns 1588230740 # hbase:meta, which is open
  expect_whole "hbase:meta is assigned"
  run setTableState t DISABLED
  says 'state=ENABLED'
  shell "is_disabled 't'" | grep -q true || fail "setTableState has not disabled the table"
  run setTableState t ENABLED
  expect_whole "the state of the table"
}

damaged_part() { # a damaged HFile keeps its region from opening, until it is set aside
  run unassigns "$region"
  await_state "$one" CLOSED
  head -c 5000 /dev/urandom > "$DIR/damaged"
  hdfs -put "$DIR/damaged" "/hbase/data/default/t/$region/f/0123456789abcdef0123456789abcdef" || fail "$(cat "$DIR/hdfs.log")"
  hbck2 filesystem t || true
  says 'HFile Summary: CORRUPTED'
  run assigns "$region"
  stuck="$(numbers)"
  sleep 10
  [ "$(state "$one")" != OPEN ] || fail "a region with a damaged HFile is open"
  hbck2 bypass -o -r "$stuck" || true
  echo "bypass of the procedure that opens a damaged region: $(tr '\n' ' ' < "$DIR/out"), the region is $(state "$one")"
  hbck2 filesystem -f t || true
  [ "$(hdfs -ls -R "/hbase/data/default/t/$region" | grep -c 0123456789abcdef)" = 0 ] || fail "the damaged HFile is still there"
  [ "$(state "$one")" = OPEN ] || run assigns -o "$region"
  await_state "$one" OPEN
  expect_whole "a damaged HFile was set aside"
  run filesystem
  says 'HFile Summary: OK'
}

lost_part() { # what hbase:meta or HDFS has lost
  shell "deleteall 'hbase:meta', '$one'" > /dev/null
  run reportMissingRegionsInMeta default:t
  says "$region"
  run addFsRegionsMissingInMeta default:t
  says 'Regions re-added into Meta: 1'
  restart_masters
  run assigns "$region"
  await_state "$one" OPEN
  expect_whole "a row that hbase:meta had lost, written by the tool"
  shell "deleteall 'hbase:meta', '$two'" > /dev/null
  run fixMeta
  await_state "$two" OPEN
  expect_whole "a row that hbase:meta had lost, written by fixMeta"
  for command in reportMissingRegionsInMeta extraRegionsInMeta; do
    run "$command"
    says 't -> No mismatching regions'
  done
  hdfs -rm -r -skipTrash /hbase/data/default/t/.tabledesc > /dev/null || fail "$(cat "$DIR/hdfs.log")"
  run generateMissingTableDescriptorFile t
  hdfs -ls /hbase/data/default/t/.tabledesc | grep -q tableinfo || fail "no descriptor was written"
  run replication
  run regionInfoMismatch
  says 'Found 0 regions to fix'
  run bypass 999999 # no such procedure
  says false
}

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 3 --hregionservers 0 --seconds 2400 > /dev/null
ZK="$(setting_of zookeeper)"
cp "$CLUSTER_DIR/client/"*.xml "$CONF/"
# what commands say must be alone on their output
sed 's/^\(log4j.appender.console\)=.*/&\n\1.target=System.err/' "$CLUSTER_DIR/client/log4j.properties" > "$CONF/log4j.properties"
shell "create 't', {NAME => 'f'}, {SPLITS => ['r0300', 'r0600', 'r0900', 'r1200', 'r1500']}" > /dev/null
seq 0 1999 | awk '{ printf "put '\''t'\'', '\''r%04d'\'', '\''f:q'\'', '\''v%d'\''\n", $1, $1 }' | "$HALCYON" shell --zookeeper "$ZK" > /dev/null
shell "flush 't'" > /dev/null
client_start
expect_whole "created"
one="$(region_at 2)" two="$(region_at 3)"
region="$(encoded "$one")"
for part in $PARTS; do
  "${part}_part"
  client_works
done
restart_masters
expect_whole "everything, after another start of the masters"
client_verdict
rm -rf "$DIR"
echo "hbck2-test: passed"
