#!/usr/bin/env bash
# Halcyon beside HBase 2.6.4: same machine, same client, same durability, both servers up and one of them idle, their runs in
# turn. One command, one table.
#   side-by-side.sh [--quick] [--durability written|fsync|both] [--reps N] [--rows N] [--clients N] [--memory SIZE]
#                   [--hbase "OPTIONS"] [--ycsb RECORDS] [--out DIR]
# --quick        about 5 minutes: 40000 rows a client, 2 repetitions, 1g of memory
# --durability   written: an acknowledged put is with the operating system (HBase: --wal local); fsync: it is on the disk
#                (HBase: --wal raw). Default both, one after the other; gets and scans are measured with the first only
# --rows         rows of each client, default 200000, of 1000 bytes; --clients, default 4; --reps, default 5
# --memory       HBase's heap, and Halcyon's --memory, default 4g
# --hbase        more options for hbase.sh start, for instance "--jdk 25 --gc zgc"
# --ycsb         also YCSB's load and its workloads a to f with so many records and operations each, HBase first (ycsb-all.sh),
#                with the first durability; its operations each second stand below the table
# --out DIR      keep logs and all figures there; table.md in it is the table
# HALCYON, PEERS, LAB_DIR   see common.sh
# The client is HBase's PerformanceEvaluation in one JVM for all runs, warmed up by a round that is not counted; so are both
# servers. CPU is the server process's user and system time from before to after a run, table creation included; what a
# server puts off until later, such as a compaction, counts for the run during which it does it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

options() { # options ARGUMENTS... sets what the head above lists
  rows="" reps="" memory="" clients=4 durabilities="written fsync" hbase_options="" ycsb="" out="" quick=no
  while [ $# -gt 0 ]; do case "$1" in
    --quick) quick=yes; shift;;
    --rows) rows=$2; shift 2;; --reps) reps=$2; shift 2;; --clients) clients=$2; shift 2;; --memory) memory=$2; shift 2;;
    --durability) durabilities=${2/both/written fsync}; shift 2;; --hbase) hbase_options=$2; shift 2;; --ycsb) ycsb=$2; shift 2;; --out) out=$2; shift 2;;
    *) sed -n 2,20p "$0" >&2; exit 64;; esac; done
  if [ $quick = yes ]; then rows=${rows:-40000} reps=${reps:-2} memory=${memory:-1g}; fi
  rows=${rows:-200000} reps=${reps:-5} memory=${memory:-4g}
}

hbase_start() { # hbase_start local|raw sets HBASE_PID, HBASE_ADDRESS and FIRST_PUT_HBASE (ms)
  local ports said
  mapfile -t ports < <(free_ports 3)
  # shellcheck disable=SC2086
  said="$(LAB_DIR="$lab" HBASE_ZK_PORT=${ports[0]} HBASE_MASTER_PORT=${ports[1]} HBASE_RS_PORT=${ports[2]} \
    "$PEERS/hbase.sh" start --wal "$1" --heap "$memory" $hbase_options 2>&1)" || { echo "HBase did not start: $said" >&2; exit 1; }
  HBASE_PID="$(cat "$lab/hbase/hbase.pid")"
  HBASE_ADDRESS="127.0.0.1:${ports[0]}"
  FIRST_PUT_HBASE="$(sed -n 's/.*first_put_ms \([0-9]*\).*/\1/p' <<< "$said")"
}

hbase_stop() {
  [ ! -f "$lab/hbase/hbase.pid" ] || LAB_DIR="$lab" "$PEERS/hbase.sh" stop > /dev/null 2>&1
}

free_ports() { # free_ports N prints N ports that nobody listens on
  python3 -c 'import socket, sys
taken = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in taken:
    one.bind(("127.0.0.1", 0))
    print(one.getsockname()[1])' "$1"
}

# The probe is up before the server is; its JVM's start is not the server's. It looks each 100 ms, and its first call costs
# it as much as any Java client's: this is an upper bound.
first_put_halcyon() { # first_put_halcyon WAL_SYNC sets FIRST_PUT_HALCYON (ms)
  local ports start probe
  mapfile -t ports < <(free_ports 5)
  start=$(( $(date +%s%3N) + 4000 ))
  # shellcheck disable=SC2086
  "$JAVA" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 $HB_OPENS -cp "$PEERS/conf-client:$jars/*" -Dlog4j.rootLogger=OFF \
    "$PEERS/tools/PutProbe.java" $start 127.0.0.1 "${ports[0]}" 60 > "$DIR/probe" 2> "$DIR/probe.err" &
  probe=$!
  while [ "$(date +%s%3N)" -lt $start ]; do sleep 0.01; done
  "$HALCYON" standalone --data "$DIR/first" --memory "$memory" --wal-sync "$1" --zookeeper-port "${ports[0]}" --master-port "${ports[1]}" \
    --regionserver-port "${ports[2]}" --master-info-port "${ports[3]}" --regionserver-info-port "${ports[4]}" > "$DIR/first.log" 2>&1 &
  SERVER_PID=$!
  wait $probe || { echo "no put within 60 s; see $DIR/first.log" >&2; exit 1; }
  server_stop
  rm -rf "$DIR/first"
  FIRST_PUT_HALCYON="$(sed -n 's/first_put_ms //p' "$DIR/probe")"
}

both() { # both CASE REPETITION ARGUMENTS... : one run against each, HBase first
  printf 'pe\t%s@hbase.%s\t1200\t%s/%s\t%s\n' "$1" "$2" "$HBASE_ADDRESS" "$HBASE_PID" "${*:3}" >> "$DIR/cases"
  printf 'pe\t%s@halcyon.%s\t1200\t%s/%s\t%s\n' "$1" "$2" "$ZK" "$SERVER_PID" "${*:3}" >> "$DIR/cases"
}

measure() { # measure DURABILITY READS(yes|no)
  local all="--nomapred --valueSize=1000" unbuffered=$(( rows * clients / 10 / 16 )) repetition
  [ $unbuffered -gt 0 ] || unbuffered=1
  : > "$DIR/cases"
  [ "$2" = no ] || both load warm "$all" --rows="$rows" --presplit=10 --flushCommits=true sequentialWrite "$clients"
  for repetition in warm $(seq "$reps"); do
    if [ "$2" = yes ]; then
      both get "$repetition" "$all" --rows="$rows" --sampleRate=0.25 randomRead "$clients"
      both scan "$repetition" "$all" --rows="$rows" --caching=100 scan 2
    fi
    both put "$repetition" "$all" --rows=$unbuffered --presplit=10 --table=Unbuffered --autoFlush=true randomWrite 16
    both buffered "$repetition" "$all" --rows="$rows" --presplit=10 --table=Buffered sequentialWrite "$clients"
  done
  JVM_OPTIONS="-Xms1g -XX:+UseParallelGC" pe_cases "$DIR/cases" 7200 | tee "$DIR/report-$1" >&2
  [ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
  mv "$DIR/logs" "$DIR/logs-$1"
}

ycsb() { # ycsb : both, one after the other; DIR/ycsb gets what ycsb-all.sh prints
  local name address failed=0
  for name in HBase Halcyon; do
    address="$ZK"
    [ $name = Halcyon ] || address="$HBASE_ADDRESS"
    echo "$name, YCSB with $ycsb records:"
    HBASE_ZK="$address" "$BENCH/ycsb-all.sh" "$ycsb" || failed=1
  done > "$DIR/ycsb"
  return $failed
}

head_lines() {
  echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/MemTotal/{printf "%.0f", $2/1048576}' /proc/meminfo) GiB, Linux $(uname -r), load before $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%FT%RZ)"
  echo "commit: $(git -C "$ROOT" rev-parse --short HEAD 2>/dev/null || echo unknown)$(git -C "$ROOT" diff --quiet HEAD 2>/dev/null || echo ' and changes')"
  echo "command: testing/bench/side-by-side.sh --rows $rows --reps $reps --clients $clients --memory $memory --durability \"$durabilities\"${hbase_options:+ --hbase \"$hbase_options\"}${ycsb:+ --ycsb $ycsb}"
}

main() {
  local durability wal reads=yes
  options "$@"
  [ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
  bench_dir side-by-side
  # HBase gets a lab of its own, so that it meets neither data nor process of another.
  jars="$LAB_DIR/hbase/lib" lab="$DIR/lab"
  mkdir -p "$lab/hbase" && ln -s "$jars" "$lab/hbase/lib"
  trap 'code=$?; hbase_stop; bench_end $code' EXIT
  head_lines > "$DIR/head"
  for durability in $durabilities; do
    wal=local
    [ "$durability" = written ] || wal=raw
    rm -rf "$DIR/data"
    hbase_start $wal
    first_put_halcyon "$durability"
    SERVER_MEMORY="$memory" halcyon_start --wal-sync "$durability"
    echo "$durability: HBase $(cat "$lab/hbase/mode") pid $HBASE_PID, Halcyon memory=$memory pid $SERVER_PID" | tee -a "$DIR/head" >&2
    measure "$durability" $reads
    if [ -n "$ycsb" ] && [ $reads = yes ]; then ycsb || { cat "$DIR/ycsb"; exit 1; }; fi
    printf 'first_put_ms\t%s\t%s\n' "$FIRST_PUT_HBASE" "$FIRST_PUT_HALCYON" > "$DIR/logs-$durability/first"
    hbase_stop
    server_stop || exit 1
    log_trouble || echo "Halcyon's log has these warnings or errors" >&2
    mv "$DIR/server.log" "$DIR/logs-$durability/"
    reads=no
  done
  # shellcheck disable=SC2086
  python3 "$BENCH/tools/side_by_side.py" "$DIR" $durabilities > "$DIR/table.md" || exit 1
  [ -z "$ycsb" ] || cat "$DIR/ycsb" >> "$DIR/table.md"
  cat "$DIR/table.md"
  [ -z "$out" ] || { mkdir -p "$out" && cp -r "$DIR"/table.md "$DIR"/logs-* "$out/"; }
}
main "$@"
exit
