# What makes rows old for histories.sh: a flush, a compaction and the replay of a large WAL between a write and a read; and clocks of region
# servers that are apart. Source it after faults.sh, with FAKETIME and REPLAY_MIB set.

VALUE_KIB=20 # of what fills WALs

slots_at() { # slots_at TABLE SERVER: those whose region is there
  "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" | grep -F "\"$2\"" | sed -n 's/.*"start_key":"\([^"]*\)".*/\1/p' | sed 's/^$/0/'
}
stores_of() { cut -d ' ' -f 1 <<< "$1" | sort -u | grep -c . || true; } # stores_of FILES: how many have files
all_are_rewritten() { [ "$(rewritten "$2" "$(store_files "$1")")" = "$(stores_of "$2")" ]; } # all_are_rewritten TABLE FILES_BEFORE

age_rows() { # in the order that counts: flush, compaction, replay
  local kind
  for kind in $KINDS; do flush_and_compact "h-$kind"; done
  replay_much
}
flush_and_compact() { # flush_and_compact TABLE
  local before flushed from
  before="$(store_files "$1")" from="$(monotonic)"
  sh_halcyon "flush '$1'" > /dev/null
  flushed="$(store_files "$1")"
  [ "$(new_files "$before" "$flushed")" -gt 0 ] || fail "$1 was flushed, and has no new file"
  event flush "$1" "$from" "$(monotonic)"
  from="$(monotonic)"
  sh_halcyon "major_compact '$1'" > /dev/null
  wait_for 60 all_are_rewritten "$1" "$flushed"
  event compact "$1" "$from" "$(monotonic)"
  note "$1 was flushed and compacted: $(new_files "$before" "$flushed") new files, $(stores_of "$flushed") stores rewritten"
}
# A server gets edits of rows that recorders do not look at, and is killed. It counts when the master says how much was in its WALs.
replay_much() {
  local victim name slot kind from bytes places=()
  victim="$(for name in $(servers); do echo "$(slots_at h-lists "$(name_of "$name")" | wc -l) $name"; done | sort -rn | sed -n '1s/.* //p')"
  name="$(name_of "$victim")"
  # shellcheck disable=SC2046
  fill_wal $(slots_at h-lists "$name")
  for kind in $KINDS; do
    for slot in $(slots_at "h-$kind" "$name"); do places+=("h-$kind/$slot"); done
  done
  from="$(monotonic)"
  cluster kill "$victim"
  settle
  bytes="$(sed 's/\x1b\[[0-9;]*m//g' "$CLUSTER_DIR"/master*/log | sed -n "s/.*WALs of a dead server are split server=$name logs=All .* bytes=\([0-9]*\) .*/\1/p" | awk '{n += $1} END {print n + 0}')"
  note "$victim ($name) was killed with $((bytes / 1048576)) MiB in its WALs, and ${#places[@]} regions"
  [ "$bytes" -ge $((REPLAY_MIB * 1048576)) ] || fail "$REPLAY_MIB MiB were to be replayed, and the master says $bytes bytes"
  for slot in "${places[@]}"; do event replay "$slot" "$from" "$(monotonic)"; done
}
fill_wal() { # fill_wal SLOT...: REPLAY_MIB and a little in rows of these slots
  local value number count=$(((REPLAY_MIB + 1) * 1024 / VALUE_KIB)) slots=("$@")
  [ ${#slots[@]} -gt 0 ] || fail "no region of h-lists is at the server that is to be killed"
  value="$(head -c $((VALUE_KIB * 768)) /dev/urandom | base64 -w 0)"
  for ((number = 0; number < count; number++)); do
    echo "put 'h-lists', '${slots[number % ${#slots[@]}]}-fill$number', 'f:fill', '$value'"
  done | "$HALCYON" shell --zookeeper "$ZK" > /dev/null
}

clock_of() { case "$1" in *1) echo +0.4 ;; *3) echo -0.4 ;; esac; } # clock_of SERVER: how far it is off, nothing if it is right
clocks_apart() {
  local server before
  for server in $(servers); do
    [ -n "$(clock_of "$server")" ] || continue
    before="$(name_of "$server")"
    cluster stop "$server"
    faketime_environment "$(clock_of "$server")" > "$CLUSTER_DIR/$server/environment"
    cluster start "$server"
    wait_for 60 has_another "$server" "$before"
  done
}
clocks_are_apart() { # puts at the servers have their times
  local server seen
  for server in $(servers); do
    [ -n "$(clock_of "$server")" ] || continue
    seen="$(timestamp_at "$(name_of "$server")")" || fail "no put at $server"
    # shellcheck disable=SC2086
    is_off "$(clock_of "$server")" $seen || fail "the clock of $server is to be $(clock_of "$server") s off: $seen"
    note "the clock of $server is $(clock_of "$server") s off during the whole run"
  done
}
