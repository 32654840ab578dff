#!/usr/bin/env bash
# HBase's PerformanceEvaluation at size against a server of our own, all tables written as a whole counted with RowCounter; and
# what it cost: server CPU for each operation, operations each second, p99, p99.9, the longest wait, resident memory.
#   pe-size.sh [--rows N] [--snappy-rows N] [--sample RATE] [--memory SIZE] [--wal-sync written|fsync] [--out DIR]
# --rows         rows of each of the four clients, default 200000, which makes 800,000 rows of 1000 bytes
# --snappy-rows  rows of each of the eight clients of the table with 50 regions, Snappy and in-memory compaction; default --rows
# --sample       the part of the rows that single reads ask for, default 0.25
# --memory       default 4g; --wal-sync, default written
# --out DIR      keep the logs and results.tsv there
# HALCYON, PEERS, LAB_DIR     see common.sh
# HBASE_ZK=host:port SERVER_PID=n     use this server and start none, for instance HBase itself
# A run fails by its exit code or by any exception in what it prints. Each client reports its own latencies: p99 and so on are
# those of the worst. An operation of a scan is a row; of scanRange100, randomSeekScan and filterScan it is a whole scan. With
# filterAll the first operation reads the table and the others nothing.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

options() { # options ARGUMENTS... sets what the head above lists
  rows=200000 snappy_rows="" sample=0.25 memory=4g wal_sync=written out=""
  while [ $# -gt 0 ]; do case "$1" in
    --rows) rows=$2; shift 2;; --snappy-rows) snappy_rows=$2; shift 2;; --sample) sample=$2; shift 2;;
    --memory) memory=$2; shift 2;; --wal-sync) wal_sync=$2; shift 2;; --out) out=$2; shift 2;;
    *) sed -n 2,16p "$0" >&2; exit 64;; esac; done
  snappy_rows=${snappy_rows:-$rows}
  part=$(( rows / 20 > 0 ? rows / 20 : 1 ))
}

pe() { # pe NAME ARGUMENTS...
  printf 'pe\t%s\t1800\t%s/%s\t--nomapred --valueSize=1000 %s\n' "$1" "$ZK" "$pid" "${*:2}" >> "$DIR/cases"
}
count() { # count TABLE ROWS
  printf 'count\tcount-%s\t1800\t%s\t%s %s\n' "$1" "$ZK" "$1" "$2" >> "$DIR/cases"
}

cases() {
  pe sequentialWrite --rows="$rows" --presplit=10 sequentialWrite 4
  count TestTable $((rows * 4))
  pe randomRead --rows="$rows" --sampleRate="$sample" randomRead 4
  pe sequentialRead --rows="$rows" --sampleRate="$sample" sequentialRead 4
  pe multiGet --rows="$rows" --sampleRate="$sample" --multiGet=20 randomRead 4
  pe asyncRandomRead --rows="$rows" --sampleRate="$sample" asyncRandomRead 4
  pe scan --rows="$rows" scan 2
  pe scan-caching-1000 --rows="$rows" --caching=1000 scan 2
  pe asyncScan --rows="$rows" asyncScan 2
  pe reverseScan --rows="$rows" reverseScan 2
  pe scanRange100 --rows=$part scanRange100 4
  pe randomSeekScan --rows=$((part / 50 + 1)) randomSeekScan 4
  pe filterScan --rows=4 filterScan 1
  pe filterAll --rows="$rows" --filterAll scan 1
  pe randomWrite --rows="$rows" randomWrite 4
  pe asyncRandomWrite --rows=$part asyncRandomWrite 4
  pe asyncSequentialWrite --rows=$((part * 4)) --table=Async --presplit=10 asyncSequentialWrite 4
  count Async $((part * 16))
  pe randomWrite-autoFlush --rows=$part --presplit=10 --table=Unbuffered --autoFlush=true randomWrite 16
  # these clients all work upon the same rows
  pe increment --rows=$part --table=Cas increment 4
  pe append --rows=$part --table=Cas append 4
  pe checkAndMutate --rows=$part --table=Cas checkAndMutate 4
  pe checkAndPut --rows=$part --table=Cas checkAndPut 4
  count Cas $part
  pe snappy-write --rows="$snappy_rows" --table=Snappy --writeToWAL=true --inmemoryCompaction=BASIC --presplit=50 --compress=SNAPPY sequentialWrite 8
  pe snappy-read --rows="$snappy_rows" --table=Snappy --sampleRate="$sample" randomRead 4
  pe snappy-scan --rows="$snappy_rows" --table=Snappy scan 2
  count Snappy $((snappy_rows * 8))
}

main() {
  local failed=0
  options "$@"
  bench_dir pe-size
  if [ -n "${HBASE_ZK:-}" ]; then
    ZK="$HBASE_ZK" pid="$GIVEN_PID"
  else
    SERVER_MEMORY="$memory" halcyon_start --wal-sync "$wal_sync"
    pid="$SERVER_PID"
  fi
  cases
  JVM_OPTIONS="-Xms1g -XX:+UseParallelGC" pe_cases "$DIR/cases" 14400 | tee "$DIR/report"
  [ "${PIPESTATUS[0]}" -eq 0 ] || { failed=1; tail -n 5 "$DIR/runner.err"; }
  [ -z "$pid" ] || grep -E 'VmHWM|VmRSS' "/proc/$pid/status"
  if [ -z "${HBASE_ZK:-}" ]; then
    kill -0 "$SERVER_PID" 2>/dev/null || { echo "FAILED the server is gone"; tail -n 20 "$DIR/server.log"; failed=1; }
    server_stop || failed=1
    log_trouble || { echo "FAILED the server's log has these warnings or errors"; failed=1; }
  fi
  [ -z "$out" ] || { mkdir -p "$out" && cp -r "$DIR/logs" "$DIR/report" "$out/"; }
  echo "$(grep -c '^ok ' "$DIR/report") passed, $(grep -c '^FAILED' "$DIR/report") failed"
  return $failed
}
main "$@"
exit
