#!/usr/bin/env bash
# Cached reads as a share of the possible: gets of rows that a server of our own has in its cache, beside a call that does nothing
# and a get whose answer is at hand, over as many connections and with as many calls at once, in turn.
#   read-share.sh [CONNECTIONSxCALLS...]      default 1x1 4x4 4x64 16x256
# SECONDS_EACH   seconds of each measurement, default 3, after 1 of warm-up; REPS, default 3
# HALCYON        the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# Shares are medians of operations each second, and of processor time for each operation, client and server together: on a
# machine where others are at work, only the second means much.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SECONDS_EACH="${SECONDS_EACH:-3}"
REPS="${REPS:-3}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/../compat/server.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-read-share.XXXXXX")"
trap 'server_kill; rm -rf "$DIR"' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- 1x1 4x4 4x64 16x256
ROWS=100000

figures() { # figures FILE NAME appends "operations/s us" of a result's text to DIR/NAME
  awk '/ operations in /{sub("/s", "", $NF); rate = $NF} / cpu .* us per operation/{us += $(NF - 3)} END {print rate, us}' "$1" >> "$DIR/$2"
}
median() { # median NAME FIELD
  awk -v f="$2" '{print $f}' "$DIR/$1" | sort -n | awk '{at[NR] = $1} END {print at[int((NR + 1) / 2)]}'
}
share() { # share A B
  awk -v a="$1" -v b="$2" 'BEGIN {printf "%.0f %%", 100 * a / b}'
}

SERVER_MEMORY=1g SERVER_OPTIONS="--wal-sync written" server_start "$DIR/data" "$DIR/server.log"
pe() { "$HALCYON" bench pe --zookeeper "$ZK" --server-pid "$SERVER_PID" "$@"; }
pe --rows=$((ROWS / 4)) --presplit=4 --flushCommits=true sequentialWrite 4 > "$DIR/load"
pe --rows=$((ROWS / 4)) sequentialRead 4 > "$DIR/warm"
for _ in $(seq "$REPS"); do
  for shape in "$@"; do
    "$HALCYON" bench limits --only calls --calls "$shape" --warmup 1 --seconds "$SECONDS_EACH" > "$DIR/limits"
    sed '/a get that/,$d' "$DIR/limits" > "$DIR/text"; figures "$DIR/text" "nothing-$shape"
    sed -n '/a get that/,$p' "$DIR/limits" > "$DIR/text"; figures "$DIR/text" "at-hand-$shape"
    # over the same rows until it is told to end
    "$HALCYON" bench pe --zookeeper "$ZK" --server-pid "$SERVER_PID" --rows=$((ROWS / ${shape#*x})) --cycles=1000000 --connCount="${shape%x*}" \
      --warmup 1 randomRead "${shape#*x}" > "$DIR/text" 2> "$DIR/err" < /dev/null &
    reader=$!
    sleep $((SECONDS_EACH + 1))
    kill -INT $reader
    wait $reader || grep -q interrupted "$DIR/err" || { cat "$DIR/err" >&2; exit 1; }
    grep -q 'not there 0$' "$DIR/text" || { echo "some rows are not there" >&2; exit 1; }
    figures "$DIR/text" "read-$shape"
  done
done
echo "| connections x calls at once | do-nothing/s, us | get at hand/s, us | cached read/s, us | share of do-nothing: rate, us | share of get at hand: rate, us |"
echo "|---|---|---|---|---|---|"
for shape in "$@"; do
  n="$(median "nothing-$shape" 1)" nu="$(median "nothing-$shape" 2)" h="$(median "at-hand-$shape" 1)" hu="$(median "at-hand-$shape" 2)"
  r="$(median "read-$shape" 1)" ru="$(median "read-$shape" 2)"
  echo "| $shape | $n, $nu | $h, $hu | $r, $ru | $(share "$r" "$n"), $(share "$nu" "$ru") | $(share "$r" "$h"), $(share "$hu" "$ru") |"
done
