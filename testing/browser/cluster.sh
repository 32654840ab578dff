#!/usr/bin/env bash
# The console of a cluster in a headless Chromium: ZooKeeper, HDFS, two masters and two region servers of Halcyon, all of this
# machine. A region server is killed, and then the active master; after each the pages and their JSON are looked at. Some minutes.
# HALCYON              the binary, default target/release/halcyon below CARGO_TARGET_DIR
# HALCYON_CHROMIUM, HALCYON_SCREENSHOTS   as for run.sh
set -euo pipefail
TOP="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
HERE="$TOP/testing/cluster"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-browser-cluster}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$TOP/testing/browser/chromium.sh"
cd "$TOP"
cargo test --package halcyon --test all --no-run
trap 'cluster down' EXIT
trap 'exit 143' TERM INT

look() { # look TEST
  "$HERE/../compat/cargo-tests.sh" 1 --quiet --package halcyon --test all -- --ignored --exact --nocapture "browser_cluster::$1"
}
pages_of() { sed -n 's|^master-info http://\(.*\)/$|\1|p' "$CLUSTER_DIR/$1/log" | tail -n 1; } # pages_of PROCESS
master_name() { sed -n 's/^master //p' "$CLUSTER_DIR/$1/log" | tail -n 1; }
is_active() { grep -q '^ready' "$CLUSTER_DIR/$1/log"; }
one_is_active() { is_active master1 || is_active master2; }
summary() { curl -sSf --max-time 10 "http://$HALCYON_ACTIVE_PAGES/api/v1/$1"; }
is_recovered() { # is_recovered NAME: in the list of the active master
  summary 'recoveries?kind=server&limit=200' | grep -o '"server":"'"$1"'"[^}]*"ended_ms":[0-9]*' > /dev/null
}
all_recovered() { ! summary 'recoveries?limit=200' | grep -q '"ended_ms":null'; }
has_servers() { summary cluster | grep -q '"online_count":'"$1,"; }
has_reports() { ! summary servers | grep -q '"report_age_ms":null'; }

cluster up --parts "zookeeper hdfs hbaseservers" --masters 2 --halcyons 2 --hregionservers 0 --seconds 1200 > /dev/null
ZK="$(setting_of zookeeper)"
wait_for 60 one_is_active
if is_active master1; then ACTIVE=master1 OTHER=master2; else ACTIVE=master2 OTHER=master1; fi
HALCYON_ACTIVE_PAGES="$(pages_of "$ACTIVE")" HALCYON_STANDBY_PAGES="$(pages_of "$OTHER")"
export HALCYON_ACTIVE_PAGES HALCYON_STANDBY_PAGES
wait_for 30 has_servers 2
sh_halcyon "create 't', 'f', SPLITS => ['r0500', 'r1000', 'r1500', 'r2000', 'r2500']" > /dev/null
sh_halcyon "create 'a-table-with-a-rather-long-name-that-must-not-make-a-page-wider', 'f'" > /dev/null
seq 0 2999 | awk '{ printf "put '\''t'\'', '\''r%04d'\'', '\''f:q'\'', '\''v%d'\''\n", $1, $1 }' |
  "$HALCYON" shell --zookeeper "$ZK" > /dev/null
wait_for 30 has_reports
look a_cluster_at_rest
look a_huge_cluster_stays_usable
look a_standby_leads_to_the_active_master

HALCYON_KILLED="$(summary cluster | sed -n 's/.*"meta":"\([^"]*\)".*/\1/p')" # the server of hbase:meta
export HALCYON_KILLED
VICTIM=halcyon1
[ "$(name_of halcyon1)" = "$HALCYON_KILLED" ] || VICTIM=halcyon2
cluster kill "$VICTIM"
wait_for 60 is_recovered "$HALCYON_KILLED"
look a_killed_server_has_a_timeline
expect_count t 3000 "after the death of a region server"
cluster start "$VICTIM"
wait_for 60 has_servers 2
# Its keeper died with it, so its znode stays until the session of 10 seconds ends. A master that sees that recovers the server once more.
sleep 11

HALCYON_MASTER_BEFORE="$(master_name "$ACTIVE")"
export HALCYON_MASTER_BEFORE HALCYON_TAKEN_OVER=1
cluster kill "$ACTIVE"
wait_for 60 is_active "$OTHER"
HALCYON_ACTIVE_PAGES="$HALCYON_STANDBY_PAGES"
# The test compares pages with what the API says a moment later.
wait_for 60 all_recovered
look a_takeover_keeps_what_was_known
"$HALCYON" top --zookeeper "$ZK" --mode servers --json --iterations 1 | grep -q '"server":"localhost:' || fail "halcyon top shows no servers"
echo "browser cluster: passed"
