#!/usr/bin/env bash
# `halcyon top` and `halcyon tune` look at a real HBase 2.6.4 under load: every mode shows the load, and rules are judged by HBase's metrics.
#   top.sh             about a minute and a half
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_HBASE_LIB  HBase's jars, as for files.sh
# ROOT_DIR           where data, logs and outputs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-top.XXXXXX")}"
mkdir -p "$DIR"
DIR="$(cd "$DIR" && pwd)"
[ -x "$HALCYON" ] || { echo "no binary at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
LOAD=""
trap '[ -z "$LOAD" ] || kill "$LOAD" 2> /dev/null || true; hbase_kill' EXIT

fail() { echo "top: $*" >&2; exit 1; }
has() { # has FILE PATTERN
  grep -Eq "$2" "$1" || { cat "$1" >&2; fail "$(basename "$1") has no $2"; }
}

hbase_fetch
pages="$(free_port)"
# HBase's jars bring no pages; its server of /jmx and /conf wants their directories.
mkdir -p "$DIR/conf/hbase-webapps/regionserver" "$DIR/conf/hbase-webapps/static"
HBASE_PROPERTIES="hbase.regionserver.user.metrics.enabled=true hbase.regionserver.info.port=$pages hbase.regionserver.info.bindAddress=127.0.0.1" hbase_start "$DIR" "$DIR/root"
"$HALCYON" bench pe --table load --valueSize 100 --rows 20000 --presplit 4 --zookeeper "$HBASE_ZK" sequentialWrite 1 > "$DIR/load.log" 2>&1
timeout 300 "$HALCYON" bench pe --table load --rows 3000000 --zookeeper "$HBASE_ZK" randomRead 2 > "$DIR/read.log" 2>&1 &
LOAD=$!
sleep 5
for mode in servers regions tables namespaces users; do
  timeout 60 "$HALCYON" top --zookeeper "$HBASE_ZK" --mode "$mode" --json --iterations 1 > "$DIR/top.$mode" || fail "mode $mode ended with $?"
  has "$DIR/top.$mode" '"reads_per_second":[1-9]'
done
has "$DIR/top.tables" '"table":"load"'
timeout 120 "$HALCYON" tune --zookeeper "$HBASE_ZK" --seconds 12 --json > "$DIR/tune" || fail "tune ended with $?"
timeout 120 "$HALCYON" tune --zookeeper "$HBASE_ZK" --seconds 12 > "$DIR/tune.txt" || fail "tune ended with $?"
kill "$LOAD" || fail "the load ended before the looks: $(tail -n 3 "$DIR/read.log")"
LOAD=""
has "$DIR/tune" '"rule":"small-calls","server":"[^"]*","verdict":"change"'
has "$DIR/tune" '"rule":"handlers-full","server":"[^"]*","verdict":"(fine|change)"' # known from /jmx and /conf only
has "$DIR/tune" '"without_metrics":\[\]'
hbase_kill
[ -n "$KEEP" ] || rm -rf "$DIR"
echo "halcyon top and halcyon tune work with HBase 2.6.4"
