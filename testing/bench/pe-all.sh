#!/usr/bin/env bash
# Every command of HBase's PerformanceEvaluation, and most of its options, against a server of our own with little data:
# does it work? Tables that were written as a whole are counted with HBase's RowCounter.
#   pe-all.sh [PATTERN]       only runs whose name or arguments match PATTERN; mind that reads need the tables that writes make
# ROWS       rows of each client, default 1000
# HALCYON, PEERS, LAB_DIR     see common.sh
# HBASE_ZK=host:port          use this server and start none, for instance HBase itself
# KEEP=1     keep logs and data
# A run fails by its exit code or by any exception in what it prints. The server's log must be free of errors, too.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
PATTERN="${1:-.}"
ROWS="${ROWS:-1000}"
CLIENTS=2
TOTAL=$((ROWS * CLIENTS))
bench_dir pe-all
CASES="$DIR/cases"

declare -A NAMES=()
named() { # named NAME sets NAME_NOW, NAME or NAME-2, NAME-3, ...
  local count=$(( ${NAMES[$1]:-0} + 1 ))
  NAMES[$1]=$count
  NAME_NOW="$1"
  [ $count -eq 1 ] || NAME_NOW="$1-$count"
}
pe() { # pe COMMAND [OPTIONS...]
  named "$1"
  printf 'pe\t%s\t120\tSERVER\t--nomapred --rows=%s %s %s %s\n' "$NAME_NOW" "${N:-$ROWS}" "${*:2}" "$1" "${C:-$CLIENTS}" >> "$CASES"
}
count() { # count TABLE ROWS, or TABLE LEAST-MOST
  named "count-$1"
  printf 'count\t%s\t120\tSERVER\t%s %s\n' "$NAME_NOW" "$1" "$2" >> "$CASES"
}

# The plain commands, first upon memory and then upon files.
pe sequentialWrite --presplit=5
count TestTable $TOTAL
for flush in "" --flushCommits=true; do
  [ -z "$flush" ] || pe sequentialWrite $flush
  pe sequentialRead
  pe randomRead
  pe randomRead --multiGet=20
  pe randomRead --addColumns=false --oneCon=true
  pe randomRead --inmemory=true --latency --sampleRate=0.5
  pe scan
  pe scan --caching=7 --addColumns=false
  pe scan --filterAll
  pe scan --asyncPrefetch=true
  pe scan --cacheBlocks=false --scanReadType=stream
  pe scan --scanReadType=pread --caching=1000
  pe reverseScan
  pe reverseScan --caching=1
  N=20 pe filterScan
  N=20 pe filterScan --filterAll
  N=100 pe randomSeekScan
  N=100 pe scanRange10
  N=100 pe scanRange100
  N=50 pe scanRange1000
  N=10 pe scanRange10000
  N=100 pe scanRange100 --caching=3 --filterAll
  pe asyncSequentialRead
  pe asyncRandomRead
  pe asyncRandomRead --multiGet=10 --connCount=1
  pe asyncScan
  pe asyncScan --caching=5 --filterAll
  count TestTable $TOTAL
done

# Every way of writing.
pe randomWrite
pe randomWrite --autoFlush=true
pe randomWrite --autoFlush=true --multiPut=25
pe randomWrite --writeToWAL=false
pe randomWrite --valueRandom --valueSize=300 --bufferSize=20000
pe randomWrite --valueZipf
C=8 pe randomWrite --autoFlush=true --valueSize=10
pe sequentialWrite --table=Multi --autoFlush=true --multiPut=10
count Multi $TOTAL
pe asyncRandomWrite
pe asyncSequentialWrite --table=Async --presplit=3
count Async $TOTAL
pe asyncSequentialWrite --table=AsyncMulti --multiPut=10 --autoFlush=true
count AsyncMulti $TOTAL
pe increment --table=Cas
pe append --table=Cas
pe checkAndMutate --table=Cas
pe checkAndPut --table=Cas
count Cas "$ROWS"
pe checkAndDelete --table=Cas
# all clients work upon the same rows: a row may be put again after its last delete
count Cas "0-$ROWS"
C=6 pe increment --table=CasBasic --inmemoryCompaction=BASIC --columns=2
C=6 pe append --table=CasBasic
C=6 pe checkAndPut --table=CasBasic --autoFlush=true
count CasBasic "$ROWS"
pe randomDelete
count TestTable "1-$((4 * TOTAL))" # the eight clients above drew from that many rows
pe randomDelete --autoFlush=true
pe sequentialDelete --table=Async
count Async 0
pe sequentialDelete --table=Multi --autoFlush=true --writeToWAL=false
count Multi 0

# Tables of every kind: write, flush, read all and at random, write and delete once more.
kind() { # kind TABLE OPTIONS...
  local table="--table=$1" total=$(( ${N:-$ROWS} * CLIENTS ))
  pe sequentialWrite "$table" --flushCommits=true "${@:2}"
  pe sequentialRead "$table" "${KIND_READ:-}"
  pe randomRead "$table" --multiGet=5 "${KIND_READ:-}"
  pe scan "$table" --caching=100 "${KIND_READ:-}"
  pe reverseScan "$table" "${KIND_READ:-}"
  pe randomWrite "$table" --flushCommits=true "${@:2}"
  count "$1" $total
}
kind Issue --presplit=50 --writeToWAL=true --inmemoryCompaction=BASIC --compress=SNAPPY
kind Gz --compress=GZ --bloomFilter=ROWCOL --blockSize=4096
kind Zstd --compress=ZSTD --bloomFilter=NONE --blockEncoding=FAST_DIFF
kind Lz4 --compress=LZ4 --blockEncoding=PREFIX --inmemoryCompaction=EAGER
kind Diff --blockEncoding=DIFF --inmemoryCompaction=ADAPTIVE --inmemory=true
kind Index --blockEncoding=ROW_INDEX_V1 --inmemoryCompaction=NONE --blockSize=1024
# ROWPREFIX_FIXED_LENGTH needs a length, for which PE has no option
kind Policy --splitPolicy=org.apache.hadoop.hbase.regionserver.ConstantSizeRegionSplitPolicy
KIND_READ="--columns=5 --families=3" kind Wide --columns=5 --families=3 --valueSize=50 --presplit=3
kind Tags --usetags=true --numoftags=3 --presplit=2
kind TagsEncoded --usetags=true --numoftags=2 --blockEncoding=FAST_DIFF --compress=SNAPPY --inmemoryCompaction=BASIC
N=3 kind Huge --valueSize=3000000 --compress=SNAPPY

# hbase:meta: the commands are for one client.
C=1 N=200 pe metaWrite
C=1 N=200 pe metaRandomRead
C=1 N=200 pe cleanMeta

listed() { # the commands that PE itself names
  # shellcheck disable=SC2086
  "$JAVA" -Xmx128m -XX:TieredStopAtLevel=1 $HB_OPENS -cp "$PEERS/conf-client:$LAB_DIR/hbase/lib/*" \
    org.apache.hadoop.hbase.PerformanceEvaluation 2>&1 | sed -n '/^Command:/,/^Class:/s/^ \([A-Za-z0-9]*\) .*/\1/p'
}
COMMANDS="$(listed)"
[ -n "$COMMANDS" ] || { echo "PE lists no commands" >&2; exit 1; }
failed=0
for command in $COMMANDS; do
  grep -qE "[[:space:]]$command [0-9]+$" "$CASES" || { echo "FAILED $command: no run for this command of PE"; failed=$((failed + 1)); }
done
if [ -n "${HBASE_ZK:-}" ]; then ZK="$HBASE_ZK"; else halcyon_start --wal-sync written; fi
grep -E "$PATTERN" "$CASES" | sed "s/\tSERVER\t/\t$ZK\t/" > "$CASES.picked"
pe_cases "$CASES.picked" "${SECONDS_MAX:-1800}" | tee "$DIR/report"
[ "${PIPESTATUS[0]}" -le 1 ] || { echo "FAILED the runner itself:"; tail -n 20 "$DIR/runner.err"; failed=$((failed + 1)); }
if [ -z "${HBASE_ZK:-}" ]; then
  kill -0 "$SERVER_PID" 2>/dev/null || { echo "FAILED the server is gone"; tail -n 20 "$DIR/server.log"; failed=$((failed + 1)); }
  server_stop || failed=$((failed + 1))
  log_trouble || { echo "FAILED the server's log has these warnings or errors"; failed=$((failed + 1)); }
fi
passed=$(grep -c '^ok ' "$DIR/report")
failed=$((failed + $(grep -c '^FAILED' "$DIR/report")))
echo "$(echo "$COMMANDS" | wc -w) commands of PE: $passed passed, $failed failed"
[ $failed -eq 0 ]
