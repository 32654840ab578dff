#!/usr/bin/env bash
# What a load generator costs: the processor time of HBase's PerformanceEvaluation and of YCSB with HBase's client, and of `halcyon
# bench`, each with the same work against the same server, in turn; medians of the repetitions. Java's includes the start of its
# JVM, as that is what a run costs; give it enough rows.
#   client-cpu.sh
# ROWS       rows of each client, default 100000; CLIENTS, default 4; RECORDS and operations of YCSB, default ROWS * CLIENTS
# REPS       repetitions, default 3
# HALCYON, PEERS, LAB_DIR     see common.sh
# HBASE_ZK=host:port          use this server and start none, for instance HBase itself
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
ROWS="${ROWS:-100000}"
CLIENTS="${CLIENTS:-4}"
RECORDS="${RECORDS:-$((ROWS * CLIENTS))}"
REPS="${REPS:-3}"
bench_dir client-cpu
if [ -n "${HBASE_ZK:-}" ]; then ZK="$HBASE_ZK"; else halcyon_start --wal-sync written; fi

java_us() { # java_us OPERATIONS SCRIPT ARGUMENTS... prints microseconds of client time for each operation
  HBASE_ZK="$ZK" SERVER_PID="" "$PEERS/$2" "${@:3}" > "$DIR/java.log" 2>&1 || { tail -n 5 "$DIR/java.log" >&2; return 1; }
  sed -n 's/^cpu wall.*client \([0-9.]*\) s.*/\1/p' "$DIR/java.log" | awk -v n="$1" '{printf "%.2f\n", $1 * 1e6 / n}'
}

our_us() { # our_us ARGUMENTS...
  "$HALCYON" bench "$@" --zookeeper "$ZK" > "$DIR/ours.log" 2>&1 || { tail -n 5 "$DIR/ours.log" >&2; return 1; }
  sed -n 's/.*client cpu.* \([0-9.]*\) us per operation.*/\1/p' "$DIR/ours.log"
}

ycsb_workload() { # ycsb_workload a|c
  local properties=(-p recordcount="$RECORDS" -p operationcount="$RECORDS")
  java_us "$RECORDS" ycsb.sh run "$1" "${properties[@]}" -threads "$CLIENTS" >> "$DIR/java-ycsb-$1" \
    && our_us ycsb run --workload "$1" "${properties[@]}" --threads "$CLIENTS" >> "$DIR/ours-ycsb-$1"
}

pe() { # pe NAME COMMAND OPTIONS...
  java_us $((ROWS * CLIENTS)) pe.sh --rows="$ROWS" "${@:3}" "$2" "$CLIENTS" >> "$DIR/java-$1" \
    && our_us pe --rows="$ROWS" "${@:3}" "$2" "$CLIENTS" >> "$DIR/ours-$1"
}

median() { # median FILE prints it and the smallest and largest
  sort -n "$1" | awk '{at[NR] = $1} END {print at[int((NR + 1) / 2)] " (" at[1] " to " at[NR] ")"}'
}

our_us ycsb load --workload a -p recordcount="$RECORDS" -p hbase.presplit=10 -p hbase.recreate=true --threads "$CLIENTS" > /dev/null || exit 1
for repetition in $(seq "$REPS"); do
  echo "repetition $repetition of $REPS" >&2
  pe sequentialWrite sequentialWrite --presplit=10 && pe randomRead randomRead || exit 1
  ycsb_workload c && ycsb_workload a || exit 1
done
echo "microseconds of client processor time for each operation, $CLIENTS clients, $ROWS rows each, YCSB $RECORDS records and operations;"
echo "median of $REPS repetitions (smallest to largest)"
echo "| load | Java client | halcyon bench |"
echo "|---|---|---|"
for name in sequentialWrite randomRead ycsb-c ycsb-a; do
  echo "| $name | $(median "$DIR/java-$name") | $(median "$DIR/ours-$name") |"
done
