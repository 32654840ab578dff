#!/usr/bin/env bash
# The same PerformanceEvaluation and YCSB runs against Halcyon and against HBase, one after the other on this machine.
#   compare.sh [halcyon] [hbase]      default both
# MEMORY     of each server, default 4g
# Sizes and further variables (PE_ROWS, YCSB_RECORDS, YCSB_SECONDS, REPS, QUICK, SKIP_PE, SKIP_YCSB) are those of measure.sh beside
# lib.sh in PEERS. Each result states its command; logs and tables stay in LAB_DIR/runs.
# Both servers promise the same here: a write is acknowledged when the operating system has it (HBase --wal local, Halcyon
# --wal-sync written). DURABLE=1 compares with a sync of the disk per group of writes instead.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set -e
MEMORY="${MEMORY:-4g}"
HBASE_WAL=local SYNC=written
[ -z "${DURABLE:-}" ] || { HBASE_WAL=raw; SYNC=fsync; }
[ $# -gt 0 ] || set -- halcyon hbase
bench_dir compare
for who in "$@"; do
  echo "== $who, memory $MEMORY, log $([ "$SYNC" = fsync ] && echo synced || echo written), $(nproc) cores, $(date -u +%FT%RZ)"
  case "$who" in
    halcyon)
      SERVER_MEMORY="$MEMORY" SERVER_OPTIONS="--wal-sync $SYNC ${SERVER_OPTIONS:-}" server_start "$DIR/data" "$DIR/server.log"
      HBASE_ZK="$ZK" SERVER_PID="$SERVER_PID" "$PEERS/measure.sh" "compare-$who" --external
      server_stop ;;
    hbase)
      "$PEERS/measure.sh" "compare-$who" --jdk 17 --gc g1 --heap "$MEMORY" --wal "$HBASE_WAL" ;;
    *) echo "halcyon or hbase, not $who" >&2; exit 64 ;;
  esac
  python3 "$PEERS/tools/summary.py" "$LAB_DIR/runs/compare-$who"
done
