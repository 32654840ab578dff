#!/usr/bin/env bash
# How long puts wait when HDFS fails under them: at a region server of Halcyon and at one of HBase 2.6.4, one after the other, in the
# same cluster. A DataNode of the WAL's pipeline is killed, one is frozen, and the NameNode is frozen. All acknowledged rows are
# read afterwards. One table; a put that failed or a row that is missing ends the script with 1.
#   hdfs-stalls.sh [--servers "halcyon hbase"] [--places "1 3"] [--namenode-seconds N] [--hsync] [--out DIR]
# --servers            which, in which order
# --places             which DataNodes of the pipeline are killed and frozen: 1 is the one that the client writes to, 3 the last
# --namenode-seconds   default 30
# --hsync              hbase.wal.hsync=true
# --out DIR            keeps the table and the logs of the servers there
# DATANODES  default 3: each is in every pipeline, and in the file that Halcyon keeps ready, too. With 6 there are others
# THREADS    default 8
# HALCYON, MEMORY, HBASE_GC, VALUE_BYTES    see hdfs-cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/hdfs-cluster.sh"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-hdfs-stalls}"
servers="halcyon hbase" places="1 3" away=30 hsync=false out=""
given="$*"
while [ $# -gt 0 ]; do
  case "$1" in
    --servers) servers="$2"; shift 2 ;;
    --places) places="$2"; shift 2 ;;
    --namenode-seconds) away="$2"; shift 2 ;;
    --hsync) hsync=true; shift ;;
    --out) out="$2"; shift 2 ;;
    *) sed -n '2,/^\. /{/^\. /d;s/^# \{0,1\}//p}' "$0" >&2; exit 64 ;;
  esac
done
QUIET_SECONDS=4 KILL_SECONDS=6 FREEZE_SECONDS=8
# HBase leaves a DataNode out for six hours after a failure. Of three there would soon be none left.
settings=(--property hbase.regionserver.async.wal.max.exclude.datanode.count=0)
trap 'exec 7>&-; cluster down' EXIT # the client ends when its input does
trap 'exit 143' TERM INT

open_files() { # open_files TABLE: the open files of its server's WAL, oldest first, each with the addresses of its DataNodes in order
  curl -sf --max-time 10 "http://$(setting_of namenode_http)/fsck?ugi=$USER_NAME&path=/hbase/WALs&files=1&blocks=1&locations=1&openforwrite=1" |
    awk -v server="$(name_of "$(process_of "$1")")" '
      /OPENFORWRITE/ { file = index($1, server) && $1 !~ /\.meta/ ? $1 : "" }
      /Expected_repl|Live_repl/ && file {
        line = file
        while (match($0, /WithStorage\[[0-9.]*:[0-9]*/)) {
          line = line " " substr($0, RSTART + 12, RLENGTH - 12)
          $0 = substr($0, RSTART + RLENGTH)
        }
        print line
        file = ""
      }' | sort
}
USER_NAME="$(id -un)"
# has_pipeline TABLE: its WAL is written to three DataNodes; sets PIPELINE to its name and their addresses. Halcyon has the next
# file open already.
has_pipeline() {
  local newest=1
  [ "$1" = hbase ] || newest=2
  PIPELINE="$(open_files "$1" | tail -n "$newest" | head -n 1)" && [ "$(wc -w <<< "$PIPELINE")" = 4 ]
}
datanode_at() { # datanode_at PLACE: the process
  local port number
  port="$(cut -d' ' -f"$(($1 + 1))" <<< "$PIPELINE" | cut -d: -f2)"
  number="$(sed -n "s/^datanode\([0-9]*\) $port$/\1/p" "$CLUSTER_DIR/ports")"
  [ -n "$number" ] || fail "no DataNode has the port $port of the pipeline $PIPELINE"
  echo "datanode$number"
}
new_pipeline() { # new_pipeline TABLE: new files of the WAL; the second takes the place of one that was made in advance
  sh_halcyon "wal_roll '$(name_of "$(process_of "$1")")'" > /dev/null
  sh_halcyon "wal_roll '$(name_of "$(process_of "$1")")'" > /dev/null
  wait_for 100 has_pipeline "$1"
}
is_whole() { # all DataNodes are alive, and get blocks
  local found
  found="$(cluster status)" && grep -q "^NumLiveDataNodes ${DATANODES:-3}$" <<< "$found" && grep -q '^StaleDataNodes 0$' <<< "$found"
}
is_away() { ! curl -sf --max-time 1 "http://$(setting_of namenode_http)/jmx?qry=x:y=z" > /dev/null; }

began() { grep -q "^begins.$1$" "$CLUSTER_DIR/client.log"; }
phase() { # phase NAME: from now on
  echo "$1" >&7
  wait_for 10 began "$1"
  kill -0 "$CLIENT" 2> /dev/null || fail "the client ended: $(tail -n 3 "$CLUSTER_DIR/client.log")"
}
log_of() { echo "$CLUSTER_DIR/$(process_of "$1")/log"; }
# seen TABLE BYTES: what the server's log says of its WAL behind so many bytes. It shows that the fault has met the WAL.
seen() {
  local pattern='the write-ahead log has a new file|a sync of the write-ahead log was late'
  [ "$1" = halcyon ] || pattern='(AsyncFSWAL|AbstractFSWAL|FanOutOneBlock|LogRoller).*([Ff]ail|roll|timeout|died|lost)'
  tail -c "+$(($2 + 1))" "$(log_of "$1")" | grep -cE "$pattern" || true
}

fault() { # fault TABLE NAME SECONDS HOW PROCESS BACK: the process is hit by HOW, and BACK brings it back
  local table="$1" name="$2" seconds="$3" how="$4" process="$5" back="$6" bytes lines
  phase "$name-before"
  sleep "$QUIET_SECONDS"
  bytes="$(stat -c %s "$(log_of "$table")")"
  phase "$name"
  cluster "$how" "$process"
  sleep 1
  [ "$process" != namenode ] || is_away || fail "$name: the NameNode still answers"
  sleep $((seconds - 1))
  lines="$(seen "$table" "$bytes")"
  [ "$process" = namenode ] || [ "$lines" -gt 0 ] || fail "$name: $process was in the pipeline ($PIPELINE), but the log of the server does not say that its WAL was hit"
  phase "$name-after"
  cluster "$back" "$process"
  sleep "$QUIET_SECONDS"
  echo "$table $name $lines" >> "$CLUSTER_DIR/faults"
  phase pause
  wait_for 60 is_whole
}

stalls() { # stalls TABLE
  local place
  mkfifo "$CLUSTER_DIR/phases-$1"
  exec 7<> "$CLUSTER_DIR/phases-$1"
  : > "$CLUSTER_DIR/client.log"
  bench_client halcyon.compat.bench.PutStalls "$ZK" "$1" "${THREADS:-8}" "$VALUE_BYTES" < "$CLUSTER_DIR/phases-$1" \
    > "$CLUSTER_DIR/client.log" 2>&1 7>&- &
  CLIENT=$!
  phase warm
  sleep 15
  for place in $places; do
    new_pipeline "$1"
    fault "$1" "kill-$place" "$KILL_SECONDS" kill "$(datanode_at "$place")" start
  done
  for place in $places; do
    new_pipeline "$1"
    fault "$1" "freeze-$place" "$FREEZE_SECONDS" freeze "$(datanode_at "$place")" thaw
  done
  [ "$away" = 0 ] || fault "$1" namenode "$away" freeze namenode thaw
  echo end >&7
  local result=0
  wait "$CLIENT" || result=$?
  exec 7>&-
  mv "$CLUSTER_DIR/client.log" "$CLUSTER_DIR/client-$1.log"
  grep -E '^(ERROR|verified)' "$CLUSTER_DIR/client-$1.log" | sed "s/^/$1: /" >&2 || true
  [ "$result" = 0 ] || failed=1
}

table() {
  echo
  echo "| server | what | puts each second before, during, after | longest put before, during, after, ms | longest time without an acknowledged put, ms | errors | lines of the log about the WAL |"
  echo "|---|---|---|---|---|---|---|"
  local name what lines
  while read -r name what lines; do
    awk -F'\t' -v server="$name" -v what="$what" -v lines="$lines" '
      $1 == "phase" && $2 == what "-before" { before = $5; longest_before = $6; errors += $8 }
      $1 == "phase" && $2 == what { during = $5; longest = $6; gap = $7; errors += $8 }
      $1 == "phase" && $2 == what "-after" { after = $5; longest_after = $6; errors += $8 }
      END {
        printf "| %s | %s | %d, %d, %d | %.0f, %.0f, %.0f | %.0f | %d | %d |\n", server, what, before, during, after, longest_before, longest, longest_after, gap, errors, lines
      }' "$CLUSTER_DIR/client-$name.log"
  done < "$CLUSTER_DIR/faults"
}

failed=0
bench_head "testing/bench/hdfs-stalls.sh $given" > "${TMPDIR:-/tmp}/halcyon-stalls-head.$$"
bench_up 1800 --datanodes "${DATANODES:-3}" "${settings[@]}" --property "hbase.wal.hsync=$hsync"
mv "${TMPDIR:-/tmp}/halcyon-stalls-head.$$" "$CLUSTER_DIR/head"
: > "$CLUSTER_DIR/faults"
for server in $servers; do stalls "$server"; done
{
  cat "$CLUSTER_DIR/head"
  table
  echo
  grep -h '^verified' "$CLUSTER_DIR"/client-*.log | sed 's/\t/, /g'
} | tee "$CLUSTER_DIR/table.md"
[ -z "$out" ] || { mkdir -p "$out" && cp "$CLUSTER_DIR"/table.md "$CLUSTER_DIR"/client-*.log "$out/" &&
  cp "$CLUSTER_DIR/halcyon1/log" "$out/halcyon1.log" && cp "$CLUSTER_DIR/hregionserver1/log" "$out/hregionserver1.log"; }
exit "$failed"
