#!/usr/bin/env bash
# A running cluster of HBase 2.6.4 gets a master of Halcyon in the place of HBase's, and then HBase's again. The region servers, of
# both kinds, go on all the time, and so does a Java client that knows each answer (MixedLoad.java). Each master is stopped once and
# killed once. Under each, a table is made, regions move, and a region server is killed.
#   replace-master.sh
# ROWS     rows of the table, default 20000
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-replace-master}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-20000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
client26_classes
trap 'client_end; cluster down' EXIT
trap 'exit 143' TERM INT

lines() { wc -l < "$CLUSTER_DIR/$1/log"; } # lines PROCESS
says() { tail -n "+$(($3 + 1))" "$CLUSTER_DIR/$1/log" | grep -- "$2" > /dev/null; } # says PROCESS TEXT LINES: after so many lines
goes_on() {
  local before
  before="$(operations)"
  wait_for 90 has_gone_on $((before + 300))
}
is_open_without() { is_settled load "$1" && is_open load; }
work() { # work NAME SERVER: what a master is there for; SERVER is killed and started again
  local killed
  killed="$(name_of "$2")"
  sh_halcyon "create '$1', 'f', SPLITS => ['m']; put '$1', 'a', 'f:q', '1'; put '$1', 'z', 'f:q', '2'" > /dev/null
  expect_count "$1" 2 "$1: a new table"
  move_all load "$killed"
  cluster kill "$2"
  wait_gone load "$killed"
  wait_for 120 is_open_without "$killed"
  cluster start "$2"
  wait_for 60 has_another "$2" "$killed"
  expect_count "$1" 2 "$1: a server was killed"
  goes_on
}
replace() { # replace stop|kill OLD NEW TEXT: NEW waits for election, then OLD ends; TEXT is in the log of NEW when it is active
  local from=0
  [ ! -e "$CLUSTER_DIR/$3/log" ] || from="$(lines "$3")"
  cluster start "$3"
  wait_for 60 says "$3" "$5" "$from"
  cluster "$1" "$2"
  wait_for 120 says "$3" "$4" "$from"
  echo "$2 ended by $1, $3 is the master; $(tail -n 1 "$CLUSTER_DIR/client.log")"
  goes_on
}
to_halcyon() { replace "$1" hmaster master1 '^ready' '^stands for election'; }
to_hbase() { replace "$1" master1 hmaster 'Master has completed initialization' 'Adding backup master ZNode'; }

cluster up --parts "zookeeper hdfs hbaseservers" --hmaster --masters 1 --halcyons 2 --hregionservers 1 --seconds 3000 > /dev/null
ZK="$(setting_of zookeeper)"
client_start
for how in stop kill; do
  to_halcyon "$how"
  work "halcyon_$how" halcyon1
  work "halcyon_of_hbase_$how" hregionserver1
  to_hbase "$how"
  work "hbase_$how" halcyon2
done
client_verdict
echo "replace-master: passed"
