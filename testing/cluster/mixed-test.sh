#!/usr/bin/env bash
# A region server of Halcyon in a cluster of HBase 2.6.4: HBase's master gives it regions, takes them back, and recovers them when it is killed.
#   mixed-test.sh      some minutes
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# CLUSTER_OPTIONS    more options of cluster.sh up, such as "--property hbase.wal.dir=/hbase-wals"
# ROWS               rows of the table, default 20000
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-20000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
trap "[ -n \"\${CLUSTER_RUNS:-}\" ] || cluster down" EXIT
trap 'exit 143' TERM INT

[ -n "${CLUSTER_RUNS:-}" ] || cluster up --parts "zookeeper hdfs hbaseservers" --seconds 1800 ${CLUSTER_OPTIONS:-} > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of halcyon1)" THEIRS="$(name_of hregionserver1)"
echo "servers: $OURS (Halcyon), $THEIRS (HBase)"
sh_halcyon "create 't', 'f', SPLITS => ['r3', 'r6']"
move_all t "$THEIRS"
for from in 0 $((ROWS / 2)); do
  seq "$from" $((from + ROWS / 2 - 1)) | awk '{ printf "put '\''t'\'', '\''r%d%06d'\'', '\''f:q'\'', '\''v%d'\''\n", $1 % 10, $1, $1 }' |
    "$HALCYON" shell --zookeeper "$ZK" > /dev/null
  if [ "$from" = 0 ]; then
    expect_count t $((ROWS / 2)) "written to HBase's server"
    move_all t "$OURS"
    expect_count t $((ROWS / 2)) "moved to Halcyon's server"
    sh_halcyon "put 't', 'r2x', 'f:q', 'in memory when the snapshot is taken'; snapshot 't', 's'; deleteall 't', 'r2x'" > /dev/null
  fi
done
expect_count t "$ROWS" "half written to Halcyon's server"
sh_halcyon "clone_snapshot 's', 'c'" > /dev/null
expect_count c $((ROWS / 2 + 1)) "clone of a snapshot of regions at Halcyon's server"
move_all t "$THEIRS"
expect_count t "$ROWS" "moved back to HBase's server"
move_all t "$OURS"
sh_halcyon "put 't', 'r1x', 'f:q', 'not flushed'" > /dev/null
cluster kill halcyon1
wait_gone t "$OURS"
expect_count t $((ROWS + 1)) "after Halcyon's server was killed"
cluster start halcyon1
wait_for 60 has_another halcyon1 "$OURS"
OURS="$(name_of halcyon1)"
move_all t "$OURS"
sh_halcyon "put 't', 'r1y', 'f:q', 'not flushed'" > /dev/null
cluster freeze halcyon1
wait_gone t "$OURS"
expect_count t $((ROWS + 2)) "while Halcyon's server is frozen"
cluster thaw halcyon1
wait_for 60 has_ended halcyon1
expect_count t $((ROWS + 2)) "after it was thawed and left"
cluster start halcyon1
wait_for 60 has_another halcyon1 "$OURS"
OURS="$(name_of halcyon1)"
move_all t "$OURS"
sh_halcyon "put 't', 'r1z', 'f:q', 'not flushed'" > /dev/null
cluster stop halcyon1
wait_gone t "$OURS"
expect_count t $((ROWS + 3)) "after Halcyon's server was stopped"
echo "mixed-test: passed"
