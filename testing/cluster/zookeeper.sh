# One ZooKeeper server. A session may last from 1 s to 60 s.

zookeeper_configure() {
  local conf="$DIR/zookeeper/conf"
  mkdir -p "$conf" "$DATA/zookeeper"
  log_file "$conf"
  cat > "$conf/zoo.cfg" << CFG
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
dataDir=$DATA/zookeeper
clientPortAddress=127.0.0.1
clientPort=$(port_of zookeeper)
admin.enableServer=false
4lw.commands.whitelist=*
CFG
  setting zookeeper "127.0.0.1:$(port_of zookeeper)"
}

zookeeper_command() {
  local conf="$DIR/zookeeper/conf"
  java_command 128 "$conf" org.apache.zookeeper.server.ZooKeeperServerMain "$conf/zoo.cfg"
}

zookeeper_start() {
  process_start zookeeper
  process_ready zookeeper 60 zookeeper_serves
}

zookeeper_serves() {
  local answer
  exec 5<> "/dev/tcp/127.0.0.1/$(port_of zookeeper)" || return 1
  echo ruok >&5
  read -r -t 2 -N 4 -u 5 answer
  exec 5>&-
  [ "$answer" = imok ]
}
