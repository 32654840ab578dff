#!/usr/bin/env bash
# YCSB's load and its workloads a to f against a server of our own: does every operation succeed?
#   ycsb-all.sh [RECORDS]     default 10000 records and as many operations for each workload
# THREADS=16
# HALCYON, PEERS, LAB_DIR   see common.sh
# HBASE_ZK=host:port        use this server and start none
# KEEP=1     keep logs and data
# A run fails by its exit code, by any operation that YCSB does not count as OK, by any exception in what it prints, or by
# too few operations. The server's log must be free of errors, too.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
RECORDS="${1:-10000}"
THREADS="${THREADS:-16}"
bench_dir ycsb-all
if [ -n "${HBASE_ZK:-}" ]; then ZK="$HBASE_ZK"; else halcyon_start --wal-sync written; export SERVER_PID; fi

failed=0 passed=0
ycsb() { # ycsb NAME load|run WORKLOAD OPTIONS...
  local log="$DIR/$1.log" trouble="" done_count
  HBASE_ZK="$ZK" timeout "${SECONDS_MAX:-600}" "$PEERS/ycsb.sh" "${@:2}" -p recordcount="$RECORDS" -p operationcount="$RECORDS" \
    -threads "$THREADS" > "$log" 2>&1 || trouble="exit code $?"
  done_count=$(sed -n 's/^\[\(READ\|UPDATE\|INSERT\|SCAN\)\], Return=OK, \([0-9]*\)$/\2/p' "$log" | awk '{sum += $1} END {print sum + 0}')
  [ -n "$trouble" ] || trouble="$(grep -m 1 -E 'Return=(ERROR|NOT_FOUND|UNEXPECTED|BAD|NOT_IMPL|SERVICE|FORB)|-FAILED\]|Exception' "$log")"
  [ -n "$trouble" ] || [ "$done_count" -ge "$RECORDS" ] || trouble="only $done_count operations of $RECORDS"
  if [ -z "$trouble" ]; then
    passed=$((passed + 1))
    printf 'ok     %-6s %8s operations %10.0f/s\n' "$1" "$done_count" "$(sed -n 's/^\[OVERALL\], Throughput(ops\/sec), //p' "$log")"
  else
    failed=$((failed + 1))
    printf 'FAILED %-6s %s\n' "$1" "$trouble"
  fi
}
ycsb load load a -p hbase.presplit=10 -p hbase.recreate=true
for workload in a b c d e f; do ycsb $workload run $workload; done

if [ -z "${HBASE_ZK:-}" ]; then
  kill -0 "$SERVER_PID" 2>/dev/null || { echo "FAILED the server is gone"; tail -n 20 "$DIR/server.log"; failed=$((failed + 1)); }
  server_stop || failed=$((failed + 1))
  log_trouble || { echo "FAILED the server's log has these warnings or errors"; failed=$((failed + 1)); }
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
