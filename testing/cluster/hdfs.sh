# A NameNode and DATANODES DataNodes. The NameNode syncs its edits to the disk, as it does in production.
# The settings are those that bound the time of a failover: a heartbeat each second, a DataNode is stale after 3 s without one
# and then gets neither reads nor writes, and what one DataNode asks of another has short timeouts.

hdfs_configure() {
  local conf="$DIR/namenode/conf" number name
  local rpc common
  rpc="127.0.0.1:$(port_of namenode)"
  common=("fs.defaultFS=hdfs://$rpc" "hadoop.tmp.dir=$DATA/tmp" dfs.permissions.enabled=false
    "dfs.replication=$((DATANODES < 3 ? DATANODES : 3))" dfs.namenode.fs-limits.min-block-size=4096 dfs.heartbeat.interval=1
    dfs.namenode.stale.datanode.interval=3000 dfs.namenode.avoid.read.stale.datanode=true
    dfs.namenode.avoid.write.stale.datanode=true dfs.namenode.handler.count=8 dfs.datanode.handler.count=4
    dfs.client.socket-timeout=5000 dfs.datanode.socket.write.timeout=5000 ipc.client.connect.timeout=1000
    ipc.client.connect.max.retries=1 ipc.client.connect.max.retries.on.timeouts=1)
  site_file "$conf/core-site.xml" "${common[@]}"
  site_file "$conf/hdfs-site.xml" "${common[@]}" "dfs.namenode.name.dir=$DATA/namenode" "dfs.namenode.rpc-address=$rpc" \
    "dfs.namenode.http-address=127.0.0.1:$(port_of namenode-http)" dfs.namenode.safemode.extension=0 \
    dfs.namenode.datanode.registration.ip-hostname-check=false "${PROPERTIES[@]}"
  log_file "$conf"
  web_directory "$conf" hdfs
  for ((number = 1; number <= DATANODES; number++)); do
    name="datanode$number" conf="$DIR/datanode$number/conf"
    site_file "$conf/core-site.xml" "${common[@]}"
    site_file "$conf/hdfs-site.xml" "${common[@]}" "dfs.datanode.data.dir=$DATA/$name" dfs.datanode.hostname=localhost \
      "dfs.datanode.address=127.0.0.1:$(port_of "$name")" "dfs.datanode.ipc.address=127.0.0.1:$(port_of "$name-ipc")" \
      "dfs.datanode.http.address=127.0.0.1:$(port_of "$name-http")" "${PROPERTIES[@]}"
    log_file "$conf"
    web_directory "$conf" datanode
  done
  site_file "$DIR/client/core-site.xml" "fs.defaultFS=hdfs://$rpc" "${PROPERTIES[@]}"
  site_file "$DIR/client/hdfs-site.xml" "dfs.replication=$((DATANODES < 3 ? DATANODES : 3))" dfs.client.socket-timeout=5000 \
    "${PROPERTIES[@]}"
  setting hdfs "hdfs://$rpc"
  setting conf "$DIR/client"
  setting namenode_http "127.0.0.1:$(port_of namenode-http)"
}

namenode_command() {
  java_command 256 "$DIR/namenode/conf" org.apache.hadoop.hdfs.server.namenode.NameNode
}

datanode_command() {
  java_command 192 "$DIR/$1/conf" org.apache.hadoop.hdfs.server.datanode.DataNode
}

hdfs_start() {
  local number
  namenode_command
  "${COMMAND[@]}" -format -nonInteractive > "$DIR/namenode/format.log" 2>&1 < /dev/null 4>&- ||
    { echo "the NameNode could not format its directory:"; tail -n 15 "$DIR/namenode/format.log"; return 1; }
  process_start namenode
  for ((number = 1; number <= DATANODES; number++)); do process_start "datanode$number"; done
  process_ready namenode 120 hdfs_serves
}

hdfs_numbers() { # what the NameNode counts
  curl -sf --max-time 3 "http://127.0.0.1:$(port_of namenode-http)/jmx?qry=Hadoop:service=NameNode,name=FSNamesystem*"
}

hdfs_number() { # hdfs_number NAME, from the output of hdfs_numbers
  sed -n "s/^ *\"$1\" : \"\{0,1\}\([^\",]*\).*/\1/p" | head -n 1
}

hdfs_serves() {
  local numbers
  numbers="$(hdfs_numbers)" || return 1
  [ "$(hdfs_number NumLiveDataNodes <<< "$numbers")" = "$DATANODES" ] && [ "$(hdfs_number FSState <<< "$numbers")" = Operational ]
}

hdfs_status() {
  local numbers name
  numbers="$(hdfs_numbers)" || { echo "the NameNode does not answer"; return 0; }
  for name in FSState NumLiveDataNodes NumDeadDataNodes StaleDataNodes UnderReplicatedBlocks; do
    echo "$name $(hdfs_number "$name" <<< "$numbers")"
  done
}
