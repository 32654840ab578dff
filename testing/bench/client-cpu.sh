#!/usr/bin/env bash
# What a load generator costs: the processor time of HBase's PerformanceEvaluation and of `halcyon bench pe`, each with the same
# command against the same server. Java's includes the start of its JVM, as that is what a run costs; give it enough rows.
#   client-cpu.sh
# ROWS       rows of each client, default 100000; CLIENTS, default 4
# HALCYON, PEERS, LAB_DIR     see common.sh
# HBASE_ZK=host:port          use this server and start none, for instance HBase itself
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
ROWS="${ROWS:-100000}"
CLIENTS="${CLIENTS:-4}"
bench_dir client-cpu
if [ -n "${HBASE_ZK:-}" ]; then ZK="$HBASE_ZK"; else halcyon_start --wal-sync written; fi
total=$((ROWS * CLIENTS))

java_us() { # java_us ARGUMENTS... prints microseconds of client time for each operation
  HBASE_ZK="$ZK" SERVER_PID="" "$PEERS/pe.sh" "$@" > "$DIR/java.log" 2>&1 || { tail -n 5 "$DIR/java.log" >&2; return 1; }
  sed -n 's/^cpu wall.*client \([0-9.]*\) s.*/\1/p' "$DIR/java.log" | awk -v n=$total '{printf "%.2f", $1 * 1e6 / n}'
}

our_us() { # our_us ARGUMENTS...
  "$HALCYON" bench pe --zookeeper "$ZK" "$@" > "$DIR/ours.log" 2>&1 || { tail -n 5 "$DIR/ours.log" >&2; return 1; }
  sed -n 's/.*client cpu.* \([0-9.]*\) us per operation.*/\1/p' "$DIR/ours.log"
}

echo "microseconds of client processor time for each operation, $CLIENTS clients of $ROWS rows"
echo "| command | PerformanceEvaluation | halcyon bench pe |"
echo "|---|---|---|"
for case in "sequentialWrite --presplit=10" "randomRead"; do
  read -r command options <<< "$case"
  # shellcheck disable=SC2086
  java=$(java_us --rows="$ROWS" $options "$command" "$CLIENTS") && ours=$(our_us --rows="$ROWS" $options "$command" "$CLIENTS") || exit 1
  echo "| $command | $java | $ours |"
done
