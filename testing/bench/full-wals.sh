#!/usr/bin/env bash
# What halcyon.regionserver.recovery.time does: a cluster of Halcyon, region servers that have much in memory, and one of them killed.
# Prints how much its WALs had, how long the other servers split them, and after what time all regions were open elsewhere.
#   full-wals.sh [MS...]    values of the property; default "0 3000 1000"
# ROUNDS   of each, default 3
# FILL     MiB that are written before each, default 1536
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
BENCH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HERE="$BENCH/../cluster"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-full-wals}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
export HALCYON_MEMORY="${HALCYON_MEMORY:-1536m}"
ROUNDS="${ROUNDS:-3}" FILL="${FILL:-1536}" REGIONS=12 SERVERS=3
case "${1:-}" in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;; esac
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

page() { curl -sf "http://127.0.0.1:$(sed -n "s/^$1-info //p" "$CLUSTER_DIR/ports")$2"; } # page PROCESS PATH
gauge() { page "$1" /metrics | sed -n "s/^halcyon_$2 //p"; }
recovery() { # recovery SERVER: of its death, when all regions are open
  page "$(active)" '/api/v1/recoveries?kind=server&limit=5' | python3 -c '
import json, sys
of = [it for it in json.load(sys.stdin)["recoveries"] if it["server"] == sys.argv[1] and it["ended_ms"]]
if not of: sys.exit(1)
it = of[0]
since = lambda name, before: it[name] - it[before]
print("%d files, split in %d ms; all regions open %d ms after the death was noticed" % (it["wals_count"], since("split_ms", "fenced_ms"), since("last_opened_ms", "noticed_ms")))
' "$1"
}
all_open() {
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'big'" 2> /dev/null)" && [ "$(grep -c '"OPEN"' <<< "$found")" = "$REGIONS" ]
}

echo "machine: $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(date -u +%FT%RZ); commit $(git -C "$BENCH" rev-parse --short HEAD 2> /dev/null || echo unknown)"
for time in ${*:-0 3000 1000}; do
  cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons "$SERVERS" --hregionservers 0 --property zookeeper.session.timeout=6000 \
    --property "halcyon.regionserver.recovery.time=$time" --seconds 3600 > /dev/null
  ZK="$(setting_of zookeeper)"
  sh_halcyon "balance_switch false" > /dev/null
  sh_halcyon "create 'big', {NAME => 'f'}, {NUMREGIONS => $REGIONS, SPLITALGO => 'HexStringSplit', MEMSTORE_FLUSHSIZE => '1073741824'}" > /dev/null
  for ((n = 0; n < ROUNDS; n++)); do
    process="halcyon$((n % SERVERS + 1))" name="$(name_of "halcyon$((n % SERVERS + 1))")"
    client26 halcyon.compat.bench.Fill "$ZK" big "$FILL" > "$CLUSTER_DIR/fill.log" 2>&1 || fail "the rows were not written: $(tail -n 3 "$CLUSTER_DIR/fill.log")"
    sleep 3
    bytes="$(gauge "$process" wal_files_bytes)" bytes_max="$(gauge "$process" wal_files_bytes_max)"
    cluster kill-server "$process"
    wait_for 60 is_dead "$name"
    wait_for 300 all_open
    wait_for 60 recovery "$name" > "$CLUSTER_DIR/recovery"
    echo "recovery.time=$time: WALs of $((bytes / 1000000)) MB of $((bytes_max / 1000000)), $(cat "$CLUSTER_DIR/recovery")"
    cluster kill "$process" 2> /dev/null || true
    cluster start "$process"
    wait_for 60 has_another "$process" "$name"
    sh_halcyon "balance_switch true; balancer; balance_switch false" > /dev/null
    wait_for 60 all_open
    sh_halcyon "flush 'big'" > /dev/null
  done
  cluster down
done
