# ZOOKEEPERS ZooKeeper servers: zookeeper, zookeeper2, zookeeper3 ... More than one are an ensemble. A session may last from 1 s to 60 s.
# A member of an ensemble that hears nothing of its leader for 2 s (syncLimit) takes part in the election of another one. With
# ZooKeeper's usual settings (tickTime=2000, syncLimit=5) that takes 10 s, and a leader that is frozen is missed for so long.

zookeeper_configure() {
  local name conf
  for name in $(zookeeper_names); do
    conf="$DIR/$name/conf"
    mkdir -p "$conf" "$DATA/$name"
    log_file "$conf"
    cat > "$conf/zoo.cfg" << CFG
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir=$DATA/$name
clientPortAddress=127.0.0.1
clientPort=$(port_of "$name")
admin.enableServer=false
4lw.commands.whitelist=*
CFG
    [ "$ZOOKEEPERS" = 1 ] || zookeeper_ensemble "$name" >> "$conf/zoo.cfg"
  done
  setting zookeeper "$(zookeeper_quorum)"
}

zookeeper_names() {
  local number
  for ((number = 1; number <= ZOOKEEPERS; number++)); do echo "zookeeper${number#1}"; done # fewer than ten
}

zookeeper_quorum() { # what clients need: host:port of each, with commas between
  local name quorum=""
  for name in $(zookeeper_names); do quorum+=",127.0.0.1:$(port_of "$name")"; done
  echo "${quorum#,}"
}

zookeeper_ensemble() { # zookeeper_ensemble NAME: prints the further settings of a member, and writes its number
  local other number=0
  echo "initLimit=20"
  echo "syncLimit=4"
  for other in $(zookeeper_names); do
    number=$((number + 1))
    echo "server.$number=127.0.0.1:$(port_of "$other-peer"):$(port_of "$other-election")"
    [ "$other" != "$1" ] || echo "$number" > "$DATA/$1/myid"
  done
}

zookeeper_command() { # zookeeper_command NAME
  local conf="$DIR/$1/conf" class=ZooKeeperServerMain
  ! grep -q '^server\.' "$conf/zoo.cfg" || class=quorum.QuorumPeerMain
  java_command 128 "$conf" "org.apache.zookeeper.server.$class" "$conf/zoo.cfg"
}

zookeeper_start() {
  local name
  for name in $(zookeeper_names); do process_start "$name"; done
  for name in $(zookeeper_names); do process_ready "$name" 60 zookeeper_serves "$name"; done
}

zookeeper_serves() { [ "$(zookeeper_mode "$1")" != none ]; }

# zookeeper_mode NAME: standalone, leader, follower; or none: it is not there, frozen, or without a quorum
zookeeper_mode() {
  local line mode=none
  if { exec 5<> "/dev/tcp/127.0.0.1/$(port_of "$1")"; } 2> /dev/null; then
    echo srvr >&5
    while read -r -t 2 -u 5 line; do
      case "$line" in "Mode: "*) mode="${line#Mode: }" ;; esac
    done
    exec 5>&-
  fi
  echo "$mode"
}

zookeeper_status() { # a line for each: NAME MODE HOST:PORT
  local name
  for name in $(zookeeper_names); do echo "$name $(zookeeper_mode "$name") 127.0.0.1:$(port_of "$name")"; done
}
