#!/usr/bin/env bash
# bench/recovery.sh: probes that have the pauses of HBase's client, and assignments that are five seconds late, of a Halcyon and of an HBase.
# Ten minutes.
# ROUNDS   of each case of a cluster, default 3: the shortest ones are compared
set -euo pipefail
. "$(dirname "$0")/kit.sh"
ROUNDS="${ROUNDS:-3}"
table() { # table MS...: of rounds in which probes had these figures, and the client the same or more
  local ms
  for ms in "$@"; do printf 'hbase-fast\tkill\t18409\t18411\t18409\t120\t0\t%d\t%d\t60\t900\n' "$ms" "$ms"; done > "$DIR/rounds.tsv"
  python3 "$TESTING/bench/tools/recovery.py" "$DIR/rounds.tsv"
}
expect 0 '18409 / 18409 . 11520 / 12117' table 9873 11520 12117
expect 0 '18409 / 18409 . 18390 / 18430' table 15020 18390 18430
expect not 'kill of hbase-fast, no write, probes: all rounds are sums of the client.s pauses: .18390, 18409, 18430' table 18409 18390 18430
expect not 'all rounds are sums' table 8150 4120 18409
expect 0 'With fewer than 3 rounds nothing tells' table 18409 18390

faulty_client
mkdir -p "$DIR/late"
"${JAVA}c" -nowarn -d "$DIR/late" -cp "$CLIENT26_CLASS_PATH:${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}/*" "$HERE"/late/*.java
run=0
late() { # late SYSTEM CASE BOUNDS: by how much later the probes succeed when assignments are late; fails out of the BOUNDS, in ms
  local system="$1" case="$2" least="$3" most="$4" by
  run=$((run + 1))
  # A master that is frozen for five seconds is no dead one. A region server of HBase opens three regions at a time otherwise.
  CLUSTER_DIR="$DIR/cluster$run" OUT="$DIR/out$run" SESSION=20000 CASES="$case late_$case" MORE_CASES="$HERE/late/cases.sh" LATE_CLASSES="$DIR/late" \
    PROPERTIES="hbase.regionserver.executor.openregion.threads=20" CLIENT26_FIRST="" ROUNDS="$ROUNDS" "$TESTING/bench/recovery.sh" "$system" || return
  by="$(python3 -c '
import sys
rounds = [line.split("\t") for line in sys.stdin]
shortest = lambda case: min(int(one[7]) for one in rounds if one[1] == case)
print(shortest("late_" + sys.argv[1]) - shortest(sys.argv[1]))' "$case" < "$DIR/out$run/rounds.tsv")"
  echo "$case of $system: the probes write $by ms later"
  [ "$by" -ge "$least" ] && [ "$by" -le "$most" ]
}
expect 0 'move of hbase-fast: the probes write [4-6][0-9]{3} ms later' late hbase-fast move 4000 6500
expect 0 'kill of halcyon: the probes write [4-6][0-9]{3} ms later' late halcyon kill 4000 6500
