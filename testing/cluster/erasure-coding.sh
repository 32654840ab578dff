#!/usr/bin/env bash
# A table whose files HDFS keeps by an erasure coding policy, and one whose files have two copies, at region servers of Halcyon and of HBase
# 2.6.4 under a master of Halcyon. HBase's LoadTestTool writes and verifies; DataNodes are killed, so that blocks have to be computed from the
# others, and a region server of Halcyon.
#   erasure-coding.sh
# ROWS       rows of each load, default 600; each has about 40 KiB
# HALCYON    the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-erasure-coding}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
CONFORMANCE_CACHE="${CONFORMANCE_CACHE:-$HOME/.cache/halcyon/conformance-2.6.4}"
ROWS="${ROWS:-600}" POLICY=RS-3-2-1024k
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
maven_jars "$HERE/../conformance/pom.xml" "$CONFORMANCE_CACHE/lib"
hbase_fetch

hadoop() { # hadoop CLASS ARGUMENT...
  "$JAVA" -Xmx64m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$HBASE_LIB/*" "org.apache.hadoop.$@" 2>> "$CLUSTER_DIR/hadoop.log"
}
files() { # files TABLE: its store files
  hadoop fs.FsShell -ls -R "/hbase/data/default/$1" | awk '$NF ~ /\/f\/[0-9a-f]+$/ { print $NF }'
}
expect_policy() { # expect_policy TABLE POLICY: of each store file; "unspecified" is none
  local file said count=0
  for file in $(files "$1"); do
    said="$(hadoop hdfs.tools.ECAdmin -getPolicy -path "$file")"
    grep -q "$2" <<< "$said" || fail "$file is to be stored by '$2'; the NameNode says: $said"
    count=$((count + 1))
  done
  [ $count -gt 0 ] || fail "$1 has no store file"
  echo "$count files of $1: $2"
}
expect_copies() { # expect_copies TABLE COPIES
  local found
  found="$(for file in $(files "$1"); do hadoop fs.FsShell -stat %r "$file"; done | grep -x '[0-9]*' | sort -u)"
  [ "$found" = "$2" ] || fail "the files of $1 have '$found' copies, not $2"
  echo "files of $1: $2 copies"
}
expect_refused() { # expect_refused POLICY TEXT
  local said
  said="$(sh_halcyon "create 'refused', 'f', {ERASURE_CODING_POLICY => '$1'}" 2>&1)" && fail "$1 was not refused"
  grep -qF "$2" <<< "$said" || fail "$1: $said"
  echo "$1 is refused: $2"
}
load_tool() { # load_tool TABLE OPTION...: fails by its exit code, by a read that found a wrong value, or by keys that are missing
  local log="$CLUSTER_DIR/load.log"
  timeout 600 "$JAVA" -Xmx500m "${JAVA_FLAGS[@]}" -cp "$CONFORMANCE_CACHE/lib/*" org.apache.hadoop.hbase.util.LoadTestTool -zk "$ZK" -zk_root /hbase \
    -tn "$1" -families f -skip_init "${@:2}" > "$log" 2>&1 < /dev/null || fail "LoadTestTool $*: exit code $?: $(tail -n 5 "$log")"
  ! grep -E 'Failed to write keys: [1-9]|Number of read failures: [1-9]|verification failed|VERIFICATION FAILED' "$log" || fail "LoadTestTool $* saw errors"
}
rows=0
write() { # write TABLE: further rows
  load_tool "$1" -write 4:10000:2 -start_key "$rows" -num_keys "$ROWS"
  rows=$((rows + ROWS))
}
verify() { # verify TABLE WHEN
  load_tool "$1" -read 100:2 -start_key 0 -num_keys "$rows"
  echo "$2: $rows rows are right"
}
alive() { hadoop hdfs.tools.DFSAdmin -report -live | grep -c '^Name:'; }
has_alive() { [ "$(alive)" = "$1" ]; }
without_two() { # without_two SERVER WHEN: its regions open there while two DataNodes are dead, so no block of them is in its cache
  cluster kill datanode1
  cluster kill datanode2
  move_all coded "$(name_of "$1")"
  verify coded "$2, without two DataNodes"
  cluster start datanode1
  cluster start datanode2
  wait_for 60 has_alive 6
}

cluster up --parts "zookeeper hdfs hbaseservers" --datanodes 6 --masters 1 --halcyons 2 --hregionservers 1 --seconds 2400 \
  --property dfs.namenode.heartbeat.recheck-interval=3000 > /dev/null
ZK="$(setting_of zookeeper)"
hadoop hdfs.tools.ECAdmin -enablePolicy -policy "$POLICY" > /dev/null
hadoop hdfs.tools.ECAdmin -enablePolicy -policy XOR-2-1-1024k > /dev/null
expect_refused NONE "Cannot set Erasure Coding policy: NONE. Policy not found. Available policies are:"
expect_refused RS-10-4-1024k "The policy must be enabled, but has state DISABLED"
expect_refused XOR-2-1-1024k "Halcyon writes files with policies of Reed-Solomon (RS) only"

sh_halcyon "create 'copied', {NAME => 'f', DFS_REPLICATION => '2'}; put 'copied', 'r', 'f:q', 'v'; flush 'copied'" > /dev/null
expect_copies copied 2
sh_halcyon "create 'coded', 'f', {ERASURE_CODING_POLICY => '$POLICY'}, SPLITS => ['4', '8', 'c']" > /dev/null
move_all coded "$(name_of halcyon2)"
write coded
verify coded "in the memory of Halcyon"
sh_halcyon "flush 'coded'" > /dev/null
expect_policy coded "$POLICY"
verify coded "from Halcyon's files, by Halcyon"
without_two halcyon1 "from Halcyon's files, by Halcyon"
without_two hregionserver1 "from Halcyon's files, by HBase"
write coded
sh_halcyon "flush 'coded'" > /dev/null
without_two halcyon2 "from files of both, by Halcyon"
move_all coded "$(name_of halcyon1)"
sh_halcyon "major_compact 'coded'" > /dev/null
sleep 10
expect_policy coded "$POLICY"

write coded
name="$(name_of halcyon1)"
cluster kill halcyon1
wait_gone coded "$name"
verify coded "after a kill of the server, whose WAL has the last rows"
cluster start halcyon1
wait_for 60 has_another halcyon1 "$name"
sh_halcyon "flush 'coded'; disable 'coded'; snapshot 'coded', 's'; clone_snapshot 's', 'clone'; enable 'coded'" > /dev/null
hadoop hdfs.tools.ECAdmin -getPolicy -path /hbase/data/default/clone | grep -q "$POLICY" || fail "the clone has no policy"
hadoop hdfs.tools.ECAdmin -getPolicy -path "$(hadoop fs.FsShell -ls /hbase/WALs | awk '$NF ~ /^\// { print $NF }' | head -n 1)" | grep -q unspecified || fail "WALs are coded"

sh_halcyon "alter 'coded', METHOD => 'table_att_unset', NAME => 'ERASURE_CODING_POLICY'" > /dev/null
sh_halcyon "major_compact 'coded'" > /dev/null
is_plain() { (expect_policy coded unspecified) > /dev/null 2>&1; }
wait_for 60 is_plain
expect_policy coded unspecified
verify coded "after the policy was taken away and a major compaction"
echo "erasure-coding: passed"
