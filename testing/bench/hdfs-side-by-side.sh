#!/usr/bin/env bash
# Puts at region servers of Halcyon and at region servers of HBase 2.6.4, in the same cluster on the same HDFS, with the same durability, in
# turn. First with hflush (hbase.wal.hsync=false, the default of both), then with hsync. One table of medians for each.
#   hdfs-side-by-side.sh [--quick] [--modes "hflush hsync"] [--rounds N] [--seconds N] [--cases LIST] [--out DIR]
# --quick     about three minutes: 2 rounds of 3 s, no batches and no gets
# --modes     default "hflush hsync"
# --rounds    default 3; each has each case at each server, and every other round begins with the other server
# --seconds   of a run, default 6
# --warm      seconds of each case at each server before the first round, default 8
# --cases     default "put:1,put:8,batch:2,get:8" with hflush, and the first two of them with hsync; the number is that of threads
# --out DIR   keeps the table and all figures there
# HALCYON, MEMORY, HBASE_GC, VALUE_BYTES, SERVERS    see hdfs-cluster.sh. With SERVERS=3 it is three servers of each kind
# The client is one JVM for all runs of a mode, warmed up by a round that is not counted; so are both servers and the
# DataNodes. Client and servers share the machine: the processor time of the servers is the figure to compare. It is that of the
# server's process from before to after a run, flushes and compactions included.
. "$(dirname "${BASH_SOURCE[0]}")/hdfs-cluster.sh"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hdfs-side-by-side}"
rounds=3 seconds=6 warm=8 rows=2500 modes="hflush hsync" cases="" out=""
given="$*"
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) rounds=2 seconds=3 warm=5 cases="put:1,put:8"; shift ;;
    --modes) modes="$2"; shift 2 ;;
    --rounds) rounds="$2"; shift 2 ;;
    --seconds) seconds="$2"; shift 2 ;;
    --warm) warm="$2"; shift 2 ;;
    --cases) cases="$2"; shift 2 ;;
    --out) out="$2"; shift 2 ;;
    *) sed -n '2,/^\. /{/^\. /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;;
  esac
done
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-side-by-side.XXXXXX")"
trap 'cluster down; rm -rf "$DIR"' EXIT
trap 'exit 143' TERM INT
cp "$HALCYON" "$DIR/halcyon" # a build that goes on meanwhile must not change what is measured
HALCYON="$DIR/halcyon"

measure() { # measure hflush|hsync
  local hsync=false list="${cases:-put:1,put:8,batch:2,get:8}" datanodes
  [ "$1" = hflush ] || hsync=true list="${cases:-put:1,put:8}"
  bench_up 1800 --property "hbase.wal.hsync=$hsync"
  datanodes="$(pid_of datanode1)+$(pid_of datanode2)+$(pid_of datanode3)"
  bench_client halcyon.compat.bench.PutLatency "$ZK" "$rounds" "$seconds" "$warm" "$rows" "$VALUE_BYTES" "$list" \
    "hbase=$(pids_of hbase),halcyon=$(pids_of halcyon)" "datanodes=$datanodes,namenode=$(pid_of namenode)" |
    tee "$DIR/$1.tsv" >&2
  for table in hbase halcyon; do is_placed "$table" || fail "regions of $table have moved meanwhile"; done
  grep -h ' \(ERROR\|WARN\) ' "$CLUSTER_DIR"/halcyon[0-9]/log > "$DIR/$1.halcyon-trouble" || true
  cluster down
}

bench_head "testing/bench/hdfs-side-by-side.sh $given" > "$DIR/head"
for mode in $modes; do measure "$mode"; done
# shellcheck disable=SC2086
python3 "$BENCH/tools/hdfs_side_by_side.py" "$DIR" $modes | tee "$DIR/table.md"
[ -z "$out" ] || { mkdir -p "$out" && cp "$DIR"/head "$DIR"/table.md "$DIR"/*.tsv "$DIR"/*.halcyon-trouble "$out/"; }
