#!/usr/bin/env bash
# Tables of HBase's PerformanceEvaluation (PE) read by `halcyon bench pe`, and the other way round: all rows have to be found, with
# all their cells and every byte of their values.
#   exchange.sh
# ROWS       rows of each of the two clients, default 500
# HALCYON, PEERS, LAB_DIR     see common.sh
# HBASE_ZK=host:port          use this server and start none, for instance HBase itself
# KEEP=1     keep logs and data
# PE itself does not say what it finds: HBase's RowCounter counts a table's rows, and a scan by HBase's client rows, cells and bytes.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
ROWS="${ROWS:-500}"
CLIENTS=2
TOTAL=$((ROWS * CLIENTS))
bench_dir exchange
failed=0

# families columns valueSize, and more options of the table
SHAPES=("1 1 1000" "1 1 10 --presplit=5" "1 1 100000 --compress=SNAPPY" "3 5 100 --presplit=4" "2 1 1 --flushCommits=true" "1 7 2000 --blockEncoding=FAST_DIFF --flushCommits=true")

shape() { # shape NUMBER sets FAMILIES COLUMNS SIZE MORE
  read -r FAMILIES COLUMNS SIZE MORE <<< "${SHAPES[$1]}"
  OPTIONS="--rows=$ROWS --families=$FAMILIES --columns=$COLUMNS --valueSize=$SIZE"
}

if [ -n "${HBASE_ZK:-}" ]; then ZK="$HBASE_ZK"; else halcyon_start --wal-sync written; fi

# one JVM writes with PE what we read, and reads what we have written
for number in "${!SHAPES[@]}"; do
  shape "$number"
  printf 'pe\twrite-%s\t120\t%s\t--nomapred --table=Theirs%s %s %s sequentialWrite %s\n' "$number" "$ZK" "$number" "$OPTIONS" "$MORE" $CLIENTS >> "$DIR/cases"
  printf 'count\tcount-theirs-%s\t120\t%s\tTheirs%s %s\n' "$number" "$ZK" "$number" "$TOTAL" >> "$DIR/cases"
  printf 'count\tcount-ours-%s\t120\t%s\tOurs%s %s\n' "$number" "$ZK" "$number" "$TOTAL" >> "$DIR/cases"
  cells=$((TOTAL * FAMILIES * COLUMNS))
  for table in Theirs Ours; do
    printf 'cells\tcells-%s-%s\t120\t%s\t%s%s %s %s %s\n' $table "$number" "$ZK" $table "$number" $TOTAL $cells $((cells * SIZE)) >> "$DIR/cases"
  done
  for command in sequentialRead randomRead scan; do
    printf 'pe\t%s-%s\t120\t%s\t--nomapred --table=Ours%s %s %s %s\n' "$command" "$number" "$ZK" "$number" "$OPTIONS" "$command" $CLIENTS >> "$DIR/cases"
  done
done

for number in "${!SHAPES[@]}"; do
  shape "$number"
  # shellcheck disable=SC2086
  "$HALCYON" bench pe --zookeeper "$ZK" --table=Ours"$number" $OPTIONS $MORE sequentialWrite $CLIENTS > "$DIR/ours-write-$number.log" 2>&1 \
    || { echo "FAILED our sequentialWrite $OPTIONS"; tail -n 3 "$DIR/ours-write-$number.log"; exit 1; }
done
pe_cases "$DIR/cases" 900 | tee "$DIR/report"
[ "${PIPESTATUS[0]}" -le 1 ] || { echo "FAILED the runner itself:"; tail -n 20 "$DIR/runner.err"; exit 1; }
failed=$((failed + $(grep -c '^FAILED' "$DIR/report")))

echo "| PE's table: families, columns, bytes | rows: RowCounter | read by | rows found | cells | bytes of values | not there |"
echo "|---|---|---|---|---|---|---|"
for number in "${!SHAPES[@]}"; do
  shape "$number"
  cells=$((TOTAL * FAMILIES * COLUMNS))
  for command in sequentialRead randomRead scan "scan --asyncPrefetch"; do
    read -r name options <<< "$command"
    # shellcheck disable=SC2086
    "$HALCYON" bench pe --zookeeper "$ZK" --table=Theirs"$number" $OPTIONS $options $name $CLIENTS > "$DIR/ours.log" 2>&1 || { echo "FAILED our $command:"; tail -n 3 "$DIR/ours.log"; failed=$((failed + 1)); continue; }
    found="$(sed -n 's/^  found \([0-9]*\) rows, \([0-9]*\) cells, \([0-9]*\) bytes of values; not there \([0-9]*\)$/\1 \2 \3 \4/p' "$DIR/ours.log")"
    read -r rows some bytes missing <<< "$found"
    echo "| $FAMILIES, $COLUMNS, $SIZE $MORE | $TOTAL | bench pe $command | $rows | $some | $bytes | $missing |"
    [ "$found" = "$TOTAL $cells $((cells * SIZE)) 0" ] || { echo "FAILED expected $TOTAL $cells $((cells * SIZE)) 0"; failed=$((failed + 1)); }
  done
done
if [ -z "${HBASE_ZK:-}" ]; then
  server_stop || failed=$((failed + 1))
  log_trouble || { echo "FAILED the server's log has these warnings or errors"; failed=$((failed + 1)); }
fi
echo "$failed failed"
[ $failed -eq 0 ]
