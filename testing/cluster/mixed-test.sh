#!/usr/bin/env bash
# A region server of Halcyon in a cluster of HBase 2.6.4: HBase's master gives it regions, takes them back, and recovers them when it is killed.
#   mixed-test.sh      some minutes
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# ROWS               rows of the table, default 20000
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
ROWS="${ROWS:-20000}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
cluster() { "$HERE/cluster.sh" "$@"; }
trap "[ -n \"\${CLUSTER_RUNS:-}\" ] || cluster down" EXIT
trap 'exit 143' TERM INT

fail() {
  echo "mixed-test: $*" >&2
  exit 1
}
setting_of() { cluster settings | sed -n "s/^$1 //p"; }
sh_halcyon() { "$HALCYON" shell --zookeeper "$ZK" -e "$1"; }
name_of() { # name_of PROCESS: the server's name, as the master knows it
  case "$1" in
    halcyon*) sed -n 's/^regionserver //p' "$CLUSTER_DIR/$1/log" | tail -n 1 ;;
    *) sed -n 's/.*Serving as \([^ ]*,[0-9]*,[0-9]*\),.*/\1/p' "$CLUSTER_DIR/$1/log" | tail -n 1 ;;
  esac
}
regions() { "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" | grep -o '[0-9a-f]\{32\}' | sort -u; }
move_all() { # move_all TABLE SERVER
  local region
  for region in $(regions "$1"); do sh_halcyon "move '$region', '$2'" > /dev/null; done
}
count() { sh_halcyon "count '$1'" | grep -o '[0-9][0-9]* row' | head -n 1 | cut -d' ' -f1; }
expect_count() { # expect_count TABLE ROWS WHEN
  local found
  wait_for 30 counts "$1"
  found="$(count "$1")"
  [ "$found" = "$2" ] || fail "$3: $found rows of $2"
  echo "$3: $found rows"
}

wait_for() { # wait_for SECONDS COMMAND...
  local tries=$(($1 * 2))
  shift
  until "$@"; do
    [ $((tries--)) -gt 0 ] || fail "waited in vain for: $*"
    sleep 0.5
  done
}
is_dead() { # the master has this server no more among the live ones
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2> /dev/null | sed '/dead servers/,$d')" && [ -n "$found" ] &&
    ! grep -qF "${1##*,}" <<< "$found"
}
is_settled() { # no region of the table is at this server
  local found
  found="$("$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 't'" 2> /dev/null)" && ! grep -qF "$1" <<< "$found" &&
    [ "$(grep -c '"OPEN"' <<< "$found")" -ge 1 ]
}
wait_gone() { wait_for 60 is_dead "$1"; wait_for 60 is_settled "$1"; }
has_another() { [ "$(name_of halcyon1)" != "$1" ] && ! is_dead "$(name_of halcyon1)"; }
counts() { count "$1" > /dev/null 2>&1; }
has_ended() { # the process
  local found
  found="$(cluster status)" && grep -q "^$1 ended" <<< "$found"
}

[ -n "${CLUSTER_RUNS:-}" ] || cluster up --parts "zookeeper hdfs hbaseservers" --seconds 1800 > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of halcyon1)" THEIRS="$(name_of hregionserver1)"
echo "servers: $OURS (Halcyon), $THEIRS (HBase)"
sh_halcyon "create 't', 'f', SPLITS => ['r3', 'r6']"
move_all t "$THEIRS"
for from in 0 $((ROWS / 2)); do
  seq "$from" $((from + ROWS / 2 - 1)) | awk '{ printf "put '\''t'\'', '\''r%d%06d'\'', '\''f:q'\'', '\''v%d'\''\n", $1 % 10, $1, $1 }' |
    "$HALCYON" shell --zookeeper "$ZK" > /dev/null
  if [ "$from" = 0 ]; then
    expect_count t $((ROWS / 2)) "written to HBase's server"
    move_all t "$OURS"
    expect_count t $((ROWS / 2)) "moved to Halcyon's server"
    sh_halcyon "put 't', 'r2x', 'f:q', 'in memory when the snapshot is taken'; snapshot 't', 's'; deleteall 't', 'r2x'" > /dev/null
  fi
done
expect_count t "$ROWS" "half written to Halcyon's server"
sh_halcyon "clone_snapshot 's', 'c'" > /dev/null
expect_count c $((ROWS / 2 + 1)) "clone of a snapshot of regions at Halcyon's server"
move_all t "$THEIRS"
expect_count t "$ROWS" "moved back to HBase's server"
move_all t "$OURS"
sh_halcyon "put 't', 'r1x', 'f:q', 'not flushed'" > /dev/null
cluster kill halcyon1
wait_gone "$OURS"
expect_count t $((ROWS + 1)) "after Halcyon's server was killed"
cluster start halcyon1
wait_for 60 has_another "$OURS"
OURS="$(name_of halcyon1)"
move_all t "$OURS"
sh_halcyon "put 't', 'r1y', 'f:q', 'not flushed'" > /dev/null
cluster freeze halcyon1
wait_gone "$OURS"
expect_count t $((ROWS + 2)) "while Halcyon's server is frozen"
cluster thaw halcyon1
wait_for 60 has_ended halcyon1
expect_count t $((ROWS + 2)) "after it was thawed and left"
cluster start halcyon1
wait_for 60 has_another "$OURS"
OURS="$(name_of halcyon1)"
move_all t "$OURS"
sh_halcyon "put 't', 'r1z', 'f:q', 'not flushed'" > /dev/null
cluster stop halcyon1
wait_gone "$OURS"
expect_count t $((ROWS + 3)) "after Halcyon's server was stopped"
echo "mixed-test: passed"
