# Faults of a cluster, each with a beginning, an effect that is looked at, and an end. Source it after mixed.sh, with PREFIX, SERVERS,
# SYSTEM and RESULTS set. Faults are chosen by a generator of random numbers with the seed SEED, and written to faults.txt.
# A fault NAME is
#   begin_NAME   makes it. It chooses a process that runs, or fails if there is none, and calls `begun`
#   end_NAME     ends it after its time; none if it ends itself. What has ended is started again by `settle`
# and two of them at once are in the slots 0 and 1: SLOT is that of the one that begins or ends.
# Those of NETWORK_FAULTS need faults_network, those of DISK_FAULTS faults_disk; both need root and a network and mount namespace of
# the script's own.

SIMPLE_FAULTS="kill kill kill freeze freeze freeze master freeze_master move move"
PROCESS_FAULTS="kill kill_server freeze freeze_server host master freeze_master standby restart session datanode freeze_datanode slow_datanode
  zookeeper freeze_zookeeper zookeepers namenode freeze_namenode move flush all everything"
NETWORK_FAULTS="cut_zookeeper cut_master cut_namenode cut_datanode cut_clients cut_all cut_active one_way reset lossy"
DISK_FAULTS="full stuck_disk read_only"
CLOCK_FAULTS="clock far_clock"
FREEZES=(2 6 13 25) # seconds; the session in ZooKeeper is 10 s

monotonic() { python3 -c 'import time; print(time.monotonic_ns())'; } # the clock of histories
event() { echo "$*" >> "$RESULTS/events.txt"; } # event fault|flush|compact|replay NAME FROM TO: for halcyon-histories check --events
fault_event() { # from the beginning of the last round until now. Where no server lives no operation can be acknowledged
  [ ${#EFFECTS[@]} -gt 0 ] || return 0
  case " ${EFFECTS[*]} " in *" all "* | *" everything "*) ;; *) event fault "$(printf '%s\n' "${EFFECTS[@]}" | paste -sd +)" "$FAULT_FROM" "$(monotonic)" ;; esac
  EFFECTS=()
}
RANDOM_STATE=$SEED CHOICE=0 CHOSEN="" SLOT=0
KIND=() TARGET=() UNTIL=() EFFECTS=()
declare -A DONE=() PAIRS_DONE=()
random() { RANDOM_STATE=$(((RANDOM_STATE * 1103515245 + 12345) & 0x7fffffff)); CHOICE=$(((RANDOM_STATE >> 8) % $1)); } # random N: sets CHOICE to 0..N-1
one_of() { random $#; CHOSEN="${*:$((CHOICE + 1)):1}"; } # one_of WORD...: sets CHOSEN
note() { echo "$(cut -d' ' -f1 /proc/uptime) s: $1" | tee -a "$RESULTS/faults.txt"; }

servers() { local n; for ((n = 1; n <= SERVERS; n++)); do echo "$PREFIX$n"; done; }
masters() { [ "$SYSTEM" = hbase ] && echo hmaster || printf '%s\n' master1 master2; }
others() { ls -d "$CLUSTER_DIR"/{zookeeper,namenode,datanode}*/pid 2> /dev/null | sed 's|/pid$||; s|.*/||'; } # of ZooKeeper and HDFS
datanodes() { others | grep '^datanode'; }
zookeepers() { others | grep '^zookeeper'; }
life() { tail -n "+$(grep -n '^stands for election' "$CLUSTER_DIR/$1/log" | tail -n 1 | cut -d: -f1)" "$CLUSTER_DIR/$1/log"; } # the newest one of a master
active() { # the process of the active master
  local name
  [ "$SYSTEM" = halcyon ] || { echo hmaster; return; }
  for name in $(masters); do
    ! is_now "$name" running || ! grep -q '^ready' <(life "$name") || { echo "$name"; return; }
  done
}
has_active() { [ -n "$(active)" ] && timeout 20 "$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" > /dev/null 2>&1; }
another_is_active() { has_active && [ "$(active)" != "$1" ]; }
all_are_alive() {
  local name
  for name in $(servers); do is_now "$name" running && ! is_dead "$(name_of "$name")" || return 1; done
}

a_running() { # a_running PROCESS...: sets CHOSEN to one of them that runs
  local name names=() states
  states="$(cluster status)"
  for name in "$@"; do ! grep -q "^$name running" <<< "$states" || names+=("$name"); done
  [ ${#names[@]} -gt 0 ] && one_of "${names[@]}"
}
begun() { # begun SECONDS TEXT: CHOSEN has the fault of this slot for so long
  TARGET[SLOT]="$CHOSEN" UNTIL[SLOT]=$((SECONDS + $1))
  note "${KIND[SLOT]}: $2"
}
took_effect() { DONE[${KIND[SLOT]}]=$((${DONE[${KIND[SLOT]}]:-0} + 1)); EFFECTS+=("${KIND[SLOT]}"); }
had_none() { note "${KIND[SLOT]}: it had no effect$1, and does not count"; }
is_frozen() { # or has ended meanwhile by another fault
  is_now "$CHOSEN" frozen || { ! is_now "$CHOSEN" running || fail "$CHOSEN is not frozen"; return 1; }
}
thaw() { cluster thaw "${TARGET[SLOT]}" || true; } # it may have ended by another fault
killed() { # killed PROCESS...: one of them
  a_running "$@" || return 1
  cluster kill "$CHOSEN" || return 1
  is_now "$CHOSEN" ended || fail "$CHOSEN was killed and has not ended"
  took_effect
}
frozen() { # frozen PROCESS...: one of them
  a_running "$@" || return 1
  cluster freeze "$CHOSEN" || return 1
  is_frozen || return 1
  took_effect
}

begin_kill() { killed $(servers) && begun 0 "$CHOSEN ($(name_of "$CHOSEN")) was killed"; }
begin_kill_server() { # its keeper lives
  local pid
  a_running $(servers) && pid="$(cluster server "$CHOSEN")" && cluster kill-server "$CHOSEN" || return 1
  wait_for 5 is_no_process "$pid"
  took_effect
  begun 0 "the process of $CHOSEN ($(name_of "$CHOSEN")) was killed, and not its keeper"
}
is_no_process() { ! kill -0 "$1" 2> /dev/null; }
begin_freeze() {
  frozen $(servers) || return 1
  random "${#FREEZES[@]}"
  begun "${FREEZES[CHOICE]}" "$CHOSEN ($(name_of "$CHOSEN")) is frozen for ${FREEZES[CHOICE]} s"
}
end_freeze() {
  thaw
  sleep 3 # one that was declared dead ends itself
}
begin_freeze_server() { # its keeper ends it when it is declared dead
  local pid
  a_running $(servers) && pid="$(cluster server "$CHOSEN")" && cluster freeze-server "$CHOSEN" || return 1
  grep -q '^State:.T' "/proc/$pid/status" || return 1
  took_effect
  begun 15 "the process of $CHOSEN ($(name_of "$CHOSEN")) is frozen for 15 s, and not its keeper"
}
end_freeze_server() { thaw; }
begin_host() { # a machine that is lost: a server, its keeper and a DataNode
  local server
  a_running $(servers) || return 1
  server="$CHOSEN"
  a_running $(datanodes) && cluster freeze "$server" || return 1
  cluster freeze "$CHOSEN" || { cluster thaw "$server"; return 1; }
  is_now "$server" frozen && is_frozen || { cluster thaw "$server" || true; cluster thaw "$CHOSEN" || true; return 1; }
  took_effect
  CHOSEN="$server $CHOSEN"
  begun 20 "$CHOSEN are frozen for 20 s, as one host"
}
end_host() {
  local name
  for name in ${TARGET[SLOT]}; do cluster thaw "$name" || true; done
  sleep 3
}
begin_master() { killed $(active) && begun 0 "the active master $CHOSEN was killed"; }
begin_freeze_master() { frozen $(active) && begun 15 "the active master $CHOSEN is frozen for 15 s"; }
end_freeze_master() { end_freeze; }
begin_standby() { killed $(masters | grep -vx "$(active)") && begun 0 "the standby $CHOSEN was killed"; }
begin_restart() { # as an operator does it
  a_running $(servers) && cluster stop "$CHOSEN" || return 1
  is_now "$CHOSEN" ended || fail "$CHOSEN was stopped and has not ended"
  took_effect
  begun 0 "$CHOSEN was stopped"
}
begin_session() { # what ZooKeeper does when a session expires
  a_running $(servers) && client26 halcyon.compat.mixed.Znode "$ZK" delete "/hbase/rs/$(name_of "$CHOSEN")" > /dev/null || return 1
  took_effect
  begun 0 "the znode of $CHOSEN ($(name_of "$CHOSEN")) was deleted"
}
begin_datanode() { killed $(datanodes) && begun 12 "$CHOSEN was killed, for 12 s"; }
begin_freeze_datanode() {
  frozen $(datanodes) || return 1
  random "${#FREEZES[@]}"
  begun "${FREEZES[CHOICE]}" "$CHOSEN is frozen for ${FREEZES[CHOICE]} s"
}
end_freeze_datanode() { thaw; }
begin_slow_datanode() {
  a_running $(datanodes) || return 1
  stutter "$(cat "$CLUSTER_DIR/$CHOSEN/pid")" 15 > "$RESULTS/stutter$SLOT" 2>&1 &
  STUTTER[SLOT]=$!
  begun 15 "$CHOSEN stands still for 50 of every 100 ms, 15 s long"
}
STUTTER=()
stutter() { # stutter PROCESS SECONDS: prints in how many rounds it stood still
  local stopped=0 end=$((SECONDS + $2))
  while [ "$SECONDS" -lt "$end" ]; do
    kill -STOP "$1" || break
    sleep 0.05
    ! grep -q '^State:.T' "/proc/$1/status" || stopped=$((stopped + 1))
    kill -CONT "$1" || break
    sleep 0.05
  done
  echo "$stopped"
}
end_slow_datanode() {
  wait "${STUTTER[SLOT]}" || true
  if [ "$(tail -n 1 "$RESULTS/stutter$SLOT")" -gt 20 ]; then took_effect; else had_none ""; fi
}
begin_zookeeper() { killed $(zookeepers) && begun 5 "$CHOSEN was killed, for 5 s"; }
begin_freeze_zookeeper() { frozen $(zookeepers) && begun 8 "$CHOSEN is frozen for 8 s"; }
end_freeze_zookeeper() { thaw; }
begin_zookeepers() { # no quorum
  local name
  CHOSEN="$(zookeepers | tr '\n' ' ')"
  for name in $CHOSEN; do cluster freeze "$name" || true; done # another fault may have killed one
  for name in $CHOSEN; do ! is_now "$name" running || fail "$name is not frozen"; done
  took_effect
  begun 4 "all servers of ZooKeeper are frozen for 4 s"
}
end_zookeepers() {
  local name
  for name in ${TARGET[SLOT]}; do cluster thaw "$name" || true; done
}
begin_namenode() { killed namenode && begun 5 "the NameNode was killed, for 5 s"; }
begin_freeze_namenode() { frozen namenode && begun 12 "the NameNode is frozen for 12 s"; }
end_freeze_namenode() { thaw; }
# What moves, flushes and compactions have changed, from texts that were taken before and after.
places() { # places TABLE: "region server" of each region that is open
  timeout 20 "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions '$1'" |
    sed -n 's/.*"server_name":"\([^"]*\)","region_name":"[^"]*\.\([0-9a-f]\{32\}\)\.".*"state":"OPEN".*/\2 \1/p' | sort -u
}
moved() { # moved BEFORE AFTER SERVER: how many regions are at the server now and were at another one before
  awk -v to="$3" 'NR == FNR {was[$1] = $2; next} $2 == to && $1 in was && was[$1] != to {n++} END {print n + 0}' <(echo "$1") <(echo "$2")
}
store_files() { # store_files TABLE: "region/family name" of each, as the NameNode has them; nothing if it does not answer
  curl -sf --max-time 10 "http://$(setting_of namenode_http)/fsck?ugi=$(id -un)&path=/hbase/data/default/$1&files=1" |
    sed -n "s|^/hbase/data/default/$1/\([0-9a-f]\{32\}/[fg]\)/\([^ /]*\) [0-9].*|\1 \2|p" || true
}
new_files() { # new_files BEFORE AFTER: how many
  awk 'NR == FNR {was[$0]; next} NF == 2 && !($0 in was) {n++} END {print n + 0}' <(echo "$1") <(echo "$2")
}
rewritten() { # rewritten BEFORE AFTER: how many stores have files, and none of those of before
  awk 'NR == FNR {if (NF == 2) {was[$0]; had[$1]}; next} NF == 2 {has[$1]; if ($0 in was) kept[$1]}
    END {for (store in has) if (store in had && !(store in kept)) n++; print n + 0}' <(echo "$1") <(echo "$2")
}

begin_move() { # some regions, to one server; it counts if one went there from another
  local kind region count before until=$((SECONDS + 15))
  a_running $(servers) || return 1
  random "$(wc -w <<< "$KINDS")"
  kind="$(cut -d' ' -f$((CHOICE + 1)) <<< "$KINDS")"
  before="$(places "h-$kind")"
  for region in $(cut -d ' ' -f 1 <<< "$before"); do
    random 2
    [ "$SECONDS" -lt "$until" ] || break # the other fault of a pair has its time
    [ "$CHOICE" = 0 ] || timeout 10 "$HALCYON" shell --zookeeper "$ZK" -e "move '$region', '$(name_of "$CHOSEN")'" > /dev/null 2>&1 || note "the move of $region failed"
  done
  count="$(moved "$before" "$(places "h-$kind")" "$(name_of "$CHOSEN")")"
  begun 0 "regions of h-$kind were to move; $count have gone to $CHOSEN ($(name_of "$CHOSEN"))"
  if [ "$count" -gt 0 ]; then took_effect; else had_none ""; fi
}
FLUSHED=() FILES_BEFORE=()
begin_flush() { # new store files, and then one of them in each store
  local kind before
  random "$(wc -w <<< "$KINDS")"
  kind="$(cut -d' ' -f$((CHOICE + 1)) <<< "$KINDS")"
  before="$(store_files "h-$kind")"
  timeout 30 "$HALCYON" shell --zookeeper "$ZK" -e "flush 'h-$kind'" > /dev/null 2>&1 || return 1
  FLUSHED[SLOT]="h-$kind" FILES_BEFORE[SLOT]="$(store_files "h-$kind")"
  CHOSEN=""
  begun 5 "h-$kind was flushed, $(new_files "$before" "${FILES_BEFORE[SLOT]}") new files, and is compacted"
  [ "$(new_files "$before" "${FILES_BEFORE[SLOT]}")" -gt 0 ] &&
    timeout 30 "$HALCYON" shell --zookeeper "$ZK" -e "major_compact 'h-$kind'" > /dev/null 2>&1 || FLUSHED[SLOT]=""
}
end_flush() { # it counts if the flush made a file, and the compaction put another one in the place of all files of a store
  local try
  if [ -n "${FLUSHED[SLOT]}" ]; then
    for ((try = 0; try < 15; try++)); do
      [ "$(rewritten "${FILES_BEFORE[SLOT]}" "$(store_files "${FLUSHED[SLOT]}")")" = 0 ] || { took_effect; return; }
      sleep 1
    done
  fi
  had_none ""
}
begin_all() { # every server of Halcyon
  local name
  for name in $(servers) $(masters); do cluster kill "$name" 2> /dev/null || true; done
  for name in $(servers) $(masters); do is_now "$name" ended || fail "$name was killed and has not ended"; done
  took_effect
  CHOSEN=""
  begun 1 "all region servers and masters were killed"
}
begin_everything() {
  local name
  for name in $(servers) $(masters) $(others); do cluster kill "$name" 2> /dev/null || true; done
  for name in $(servers) $(masters) $(others); do is_now "$name" ended || fail "$name was killed and has not ended"; done
  took_effect
  CHOSEN=""
  begun 1 "all processes of the cluster were killed"
}

# Cuts. Connections that a server or a master opens have its mark. What is dropped is dropped where it arrives: a drop at the sender is
# an error that TCP sees.
port() { sed -n "s/^$1 //p" "$CLUSTER_DIR/ports"; }
mark_of() { local all; all=($(servers) $(masters)); for i in "${!all[@]}"; do [ "${all[i]}" != "$1" ] || echo $((i + 1)); done; }
faults_groups() { local name; for name in $(servers) $(masters); do echo -n "$name=$((64100 + $(mark_of "$name"))) "; done; }
faults_network() { # in a network namespace of the script's own
  local name
  {
    echo "table inet faults {"
    echo "chain marks { type filter hook output priority -150;"
    for name in $(servers) $(masters); do echo "ct state new meta skgid $((64100 + $(mark_of "$name"))) ct mark set $(mark_of "$name");"; done
    echo "}"
    echo "chain cuts { type filter hook input priority 0; }"
    echo "}"
  } | nft -f -
}
lose() { # lose DIRECTION RULE...: what this rule matches, to the port ("to"), from it ("from") or both ("both")
  local direction="$1" way
  shift
  for way in dport sport; do
    case "$direction$way" in tosport | fromdport) continue ;; esac
    nft add rule inet faults cuts "${@//PORT/tcp $way}" counter "${VERDICT:-drop}" comment "\"slot$SLOT\""
  done
}
ports() { local name; for name in "$@"; do echo -n "$(port "$name"),"; done | sed 's/,$//'; } # ports PROCESS...: as nft has them
cut_time() { one_of 5 15; HELD="$CHOSEN"; } # shorter and longer than a session
cut_from() { # cut_from WHAT PROCESS...: a server does not hear these, nor they it
  local what="$1" server
  shift
  a_running $(servers) || return 1
  server="$CHOSEN"
  lose both "ct mark $(mark_of "$server") PORT { $(ports "$@") }"
  cut_time
  CHOSEN="$server"
  begun "$HELD" "$server does not reach $what for $HELD s"
}
end_cut() { # also says what was dropped
  local rules handle dropped
  rules="$(nft -a list chain inet faults cuts | grep "\"slot$SLOT\"" || true)"
  dropped="$(grep -o 'packets [0-9]*' <<< "$rules" | awk '{n += $2} END {print n + 0}')"
  for handle in $(sed -n 's/.*# handle //p' <<< "$rules"); do nft delete rule inet faults cuts handle "$handle"; done
  if [ "$dropped" -gt 0 ]; then
    took_effect
    note "${KIND[SLOT]}: $dropped packets were dropped; ${TARGET[SLOT]} hears again"
  else
    had_none ", no packet was dropped"
  fi
}
begin_cut_zookeeper() { cut_from ZooKeeper $(zookeepers); }
begin_cut_namenode() { # files are to be made meanwhile
  cut_from "the NameNode" namenode || return 1
  (timeout 30 "$HALCYON" shell --zookeeper "$ZK" -e "flush 'h-registers'" > /dev/null 2>&1 || true) &
}
begin_cut_master() { # both ways: each opens connections to the other
  cut_from "the masters" $(masters) || return 1
  local name
  for name in $(masters); do lose both "ct mark $(mark_of "$name") PORT $(port "$CHOSEN")"; done
}
begin_cut_datanode() { # one to which a server sends
  local server node rules
  a_running $(servers) || return 1
  server="$CHOSEN"
  for node in $(datanodes); do
    nft add rule inet faults cuts "ct mark $(mark_of "$server") tcp dport $(port "$node")" counter comment "\"count$SLOT $node\""
  done
  sleep 1
  rules="$(nft -a list chain inet faults cuts | grep "\"count$SLOT ")"
  for node in $(sed -n 's/.*# handle //p' <<< "$rules"); do nft delete rule inet faults cuts handle "$node"; done
  node="$(sed -n 's/.*bytes \([0-9]*\).*"count. \(datanode.\)".*/\1 \2/p' <<< "$rules" | sort -rn | head -n 1 | cut -d ' ' -f 2)"
  lose both "ct mark $(mark_of "$server") PORT $(port "$node")"
  cut_time
  CHOSEN="$server"
  begun "$HELD" "$server does not reach $node for $HELD s"
}
begin_cut_clients() {
  a_running $(servers) || return 1
  local server="$CHOSEN"
  lose both "ct mark 0 PORT $(port "$server")"
  cut_time
  CHOSEN="$server"
  begun "$HELD" "clients do not reach $server for $HELD s"
}
cut_off() { # cut_off PROCESS...: one of them, from all others
  a_running "$@" || return 1
  local name="$CHOSEN"
  lose both "ct mark $(mark_of "$name") PORT 1-65535"
  lose both "PORT $(port "$name")"
  cut_time
  CHOSEN="$name"
  begun "$HELD" "$name is cut off for $HELD s"
}
begin_cut_all() { cut_off $(servers); }
begin_cut_active() { cut_off $(active); }
begin_one_way() {
  local server direction
  one_of to from
  direction="$CHOSEN"
  a_running $(servers) || return 1
  server="$CHOSEN"
  one_of zookeepers masters datanodes
  lose "$direction" "ct mark $(mark_of "$server") PORT { $(ports $("$CHOSEN")) }"
  local what="$CHOSEN"
  cut_time
  CHOSEN="$server"
  begun "$HELD" "packets $direction the $what of connections of $server are lost for $HELD s"
}
begin_reset() {
  a_running $(servers) || return 1
  local server="$CHOSEN" what
  one_of zookeepers masters datanodes
  what="$CHOSEN"
  VERDICT="reject with tcp reset" lose to "ct mark $(mark_of "$server") PORT { $(ports $("$what")) }"
  CHOSEN="$server"
  begun 3 "connections of $server to the $what are reset for 3 s"
}
begin_lossy() {
  a_running $(servers) || return 1
  lose both "ct mark $(mark_of "$CHOSEN") PORT 1-65535 numgen random mod 100 < 10"
  begun 10 "$CHOSEN loses every tenth packet for 10 s"
}
for kind in $NETWORK_FAULTS; do eval "end_$kind() { end_cut; }"; done

# The disk of the last DataNode is a file system of its own, in a file. It can be full, stand still, or fail as a disk does.
no_space() { grep -c 'No space left on device' "$CLUSTER_DIR/$DISK_DATANODE/log" || true; }
faults_disk() { # faults_disk DATANODE
  DISK_DATANODE="$1" DISK_DATA="$CLUSTER_DIR/data/$1" DISK_IMAGE="$CLUSTER_DIR/disk"
  cluster stop "$1"
  truncate -s 4g "$DISK_IMAGE"
  mkfs.ext4 -q -m 0 "$DISK_IMAGE"
  mkdir "$CLUSTER_DIR/moved"
  cp -a "$DISK_DATA/." "$CLUSTER_DIR/moved"
  mount_disk
  cp -a "$CLUSTER_DIR/moved/." "$DISK_DATA"
  cluster start "$1"
}
other_has_disk() { [[ " $DISK_FAULTS " == *" ${KIND[1 - SLOT]} "* ]]; } # the fault of the other slot is one of this disk
mount_disk() { mount -o loop,errors=remount-ro "$DISK_IMAGE" "$DISK_DATA"; }
new_wals() { # new WALs, some of them on that disk
  local server
  for server in $(servers); do timeout 10 "$HALCYON" shell --zookeeper "$ZK" -e "wal_roll '$(name_of "$server")'" > /dev/null 2>&1 || true; done
}
begin_full() {
  ! other_has_disk && a_running "$DISK_DATANODE" || return 1
  new_wals
  CHOSEN="$DISK_DATANODE" FULL_BEFORE="$(no_space)"
  fallocate -l "$(($(df -k --output=avail "$DISK_DATA" | tail -n 1) - 256))k" "$DISK_DATA/filled" || return 1
  begun 20 "the disk of $CHOSEN is full for 20 s"
}
end_full() {
  rm -f "$DISK_DATA/filled"
  if [ "$(no_space)" -gt "$FULL_BEFORE" ]; then took_effect; else had_none ""; fi
}
begin_stuck_disk() { # who writes to it waits
  ! other_has_disk && a_running "$DISK_DATANODE" || return 1
  new_wals
  CHOSEN="$DISK_DATANODE"
  fsfreeze -f "$DISK_DATA" || return 1
  random "${#FREEZES[@]}"
  begun "${FREEZES[CHOICE]}" "the disk of $CHOSEN stands still for ${FREEZES[CHOICE]} s"
}
end_stuck_disk() {
  local waiting
  waiting="$(grep -l '^State:.D' "/proc/$(cat "$CLUSTER_DIR/$DISK_DATANODE/pid")/task"/*/status 2> /dev/null | wc -l || true)"
  fsfreeze -u "$DISK_DATA"
  if [ "$waiting" -gt 0 ]; then took_effect; else had_none ""; fi
}
begin_read_only() { # after an error of the disk, as a kernel does it
  local device
  ! other_has_disk && a_running "$DISK_DATANODE" || return 1
  device="$(findmnt -no SOURCE "$DISK_DATA")"
  echo 1 > "/sys/fs/ext4/${device#/dev/}/trigger_fs_error" || return 1
  ! touch "$DISK_DATA/try" 2> /dev/null || fail "the disk of $CHOSEN can be written to"
  took_effect
  begun 20 "the disk of $CHOSEN is read-only for 20 s"
}
end_read_only() { # the disk is repaired; its DataNode may have ended itself
  cluster thaw "$DISK_DATANODE" || true # another fault
  cluster stop "$DISK_DATANODE" || cluster kill "$DISK_DATANODE" || true
  local tries=50
  until umount "$DISK_DATA" 2> "$RESULTS/umount"; do # a child of the DataNode, such as du, may outlive it
    [ $((tries--)) -gt 0 ] || fail "the disk is in use: $(cat "$RESULTS/umount"; fuser -vm "$DISK_DATA" 2>&1)"
    sleep 0.2
  done
  e2fsck -fp "$DISK_IMAGE" > "$RESULTS/e2fsck" 2>&1 || [ $? -le 1 ] || fail "the disk cannot be repaired: $(cat "$RESULTS/e2fsck")"
  mount_disk
}

CLOCK=() # the offset that the server of a slot has
begin_clock() { # a server with another clock than the others, from a start to the next one
  local server
  a_running $(servers) && server="$CHOSEN" && one_of +0.5 -0.5 && CLOCK[SLOT]="$CHOSEN" && with_clock "$server" "$CHOSEN"
}
timestamp_at() { # timestamp_at SERVER: "before timestamp after" of a put there, in ms: of this script's clock and of the server's
  local before after region key seen server="$1"
  places h-lists | grep -qF " $server" || {
    region="$(places h-lists | head -n 1 | cut -d ' ' -f 1)"
    timeout 10 "$HALCYON" shell --zookeeper "$ZK" -e "move '$region', '$server'" > /dev/null 2>&1 || return 1
  }
  key="$(timeout 20 "$HALCYON" shell --zookeeper "$ZK" --json -e "list_regions 'h-lists'" | grep -F "\"$server\"" |
    sed -n 's/.*"start_key":"\([^"]*\)".*/\1/p' | head -n 1)"
  before="$(date +%s%3N)"
  timeout 10 "$HALCYON" shell --zookeeper "$ZK" -e "put 'h-lists', '${key:-0}-clock', 'f:clock', 'x'" > /dev/null 2>&1 || return 1
  after="$(date +%s%3N)"
  seen="$(timeout 10 "$HALCYON" shell --zookeeper "$ZK" -e "get 'h-lists', '${key:-0}-clock', 'f:clock'" | grep -o 'timestamp=[0-9T:.-]*' | cut -d = -f 2)"
  [ -n "$seen" ] && echo "$before $(date -u -d "$seen" +%s%3N) $after"
}
is_off() { # is_off OFFSET BEFORE SEEN AFTER: a time that was seen in between is at least 300 ms off
  case "$1" in
    +*) [ "$3" -gt $(($4 + 300)) ] ;;
    *) [ "$3" -lt $(($2 - 300)) ] ;;
  esac
}
faketime_environment() { printf '%s\n' "LD_PRELOAD=$FAKETIME" FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 "FAKETIME=$1"; } # faketime_environment OFFSET
with_clock() { # with_clock SERVER OFFSET
  cluster stop "$1" || return 1
  faketime_environment "$2" > "$CLUSTER_DIR/$1/environment"
  CHOSEN="$1"
  cluster start "$1" || { rm "$CLUSTER_DIR/$1/environment"; return 1; }
  begun 20 "$1 was stopped; for 20 s its clock is $2 s off"
}
end_clock() { # it counts if a put at the server has its time
  local seen
  # shellcheck disable=SC2086
  if seen="$(timestamp_at "$(name_of "${TARGET[SLOT]}")")" && is_off "${CLOCK[SLOT]}" $seen; then took_effect; else had_none ": ${seen:-no put}"; fi
  clock_back
}
clock_back() {
  rm -f "$CLUSTER_DIR/${TARGET[SLOT]}/environment"
  cluster stop "${TARGET[SLOT]}" || cluster kill "${TARGET[SLOT]}" || true
}
begin_far_clock() { # so far off that a master does not take the server
  local server
  a_running $(servers) && server="$CHOSEN" && one_of +40 -40 && FAR_BEFORE="$(rejected)" && with_clock "$server" "$CHOSEN"
}
rejected() { cat "$CLUSTER_DIR"/halcyon*/log | grep -c 'too far out of sync' || true; }
end_far_clock() {
  clock_back
  if [ "$(rejected)" -gt "$FAR_BEFORE" ]; then took_effect; else had_none ""; fi
}

revive() { # what has ended is started again
  local name states
  states="$(cluster status)"
  for name in $(others) $(servers) $(masters); do
    grep -q "^$name ended" <<< "$states" || continue
    cluster start "$name"
    note "$name is started again"
  done
}
is_settled_again() { revive && has_active && all_are_alive && all_are_open; }
settle() { # each server has regions then
  local until=$((SECONDS + 300))
  until is_settled_again; do
    [ "$SECONDS" -lt "$until" ] || fail "the cluster has not settled: $(cluster status | tr '\n' ';') $(timeout 20 "$HALCYON" shell --zookeeper "$ZK" -e "status 'simple'" 2>&1 | tail -n 20)"
    sleep 0.5
  done
  [ "$SYSTEM" = hbase ] || timeout 30 "$HALCYON" shell --zookeeper "$ZK" -e balancer > /dev/null 2>&1 || true
}

# fault_round NAME...: one fault, or two at the same time, from their beginning to the moment when all works again. A name may be a list
# of which one is chosen. A pair counts when both took effect.
fault_round() {
  local slot try names order="0 1"
  EFFECTS=() KIND=(none none) UNTIL=(0 0) FAULT_FROM="$(monotonic)"
  for ((slot = 0; slot < $#; slot++)); do
    SLOT=$slot
    read -r -d '' -a names <<< "${@:$((slot + 1)):1}" || true
    for ((try = 0; try < 8; try++)); do
      one_of "${names[@]}"
      KIND[SLOT]="$CHOSEN"
      ! "begin_${KIND[SLOT]}" || break
      KIND[SLOT]=none
    done
    [ "$slot" = $(($# - 1)) ] || { random 4; sleep "0.$((CHOICE * 3))"; }
  done
  [ "${UNTIL[0]}" -le "${UNTIL[1]}" ] || order="1 0" # the one that ends first
  for SLOT in $order; do
    [ "${KIND[SLOT]}" != none ] || continue
    while [ "$SECONDS" -lt "${UNTIL[SLOT]}" ]; do sleep 0.5; done
    ! declare -F "end_${KIND[SLOT]}" > /dev/null || "end_${KIND[SLOT]}"
  done
  [ ${#EFFECTS[@]} -lt 2 ] || PAIRS_DONE["$(printf '%s\n' "${EFFECTS[@]}" | sort | tr '\n' ' ')"]=1
}
