# A NameNode and DATANODES DataNodes; with STANDBY a second NameNode (namenode2), and both are the name service halcyon. They
# share the directory of the edits, and `cluster.sh active` says which one is active: there is no failover controller. The NameNode syncs its edits to the disk, as it does in production.
# The settings are those that bound the time of a failover: a heartbeat each second, a DataNode is stale after 3 s without one
# and then gets neither reads nor writes, and what one DataNode asks of another has short timeouts.
# The load of a DataNode does not count: with a few of them the NameNode takes one that has just thawed for overloaded.

hdfs_configure() {
  local number name conf authority common
  authority="127.0.0.1:$(port_of namenode)"
  [ -z "$STANDBY" ] || authority=halcyon
  common=("fs.defaultFS=hdfs://$authority" "hadoop.tmp.dir=$DATA/tmp" dfs.permissions.enabled=false
    "dfs.replication=$((DATANODES < 3 ? DATANODES : 3))" dfs.namenode.fs-limits.min-block-size=4096 dfs.heartbeat.interval=1
    dfs.namenode.stale.datanode.interval=3000 dfs.namenode.avoid.read.stale.datanode=true
    dfs.namenode.avoid.write.stale.datanode=true dfs.namenode.handler.count=8 dfs.datanode.handler.count=4
    dfs.namenode.redundancy.considerLoad=false
    dfs.client.socket-timeout=5000 dfs.datanode.socket.write.timeout=5000 ipc.client.connect.timeout=1000
    ipc.client.connect.max.retries=1 ipc.client.connect.max.retries.on.timeouts=1)
  NAMENODES=()
  [ -z "$STANDBY" ] || name_service
  common+=("${NAMENODES[@]}")
  namenode_configure namenode
  [ -z "$STANDBY" ] || namenode_configure namenode2
  for ((number = 1; number <= DATANODES; number++)); do
    name="datanode$number" conf="$DIR/datanode$number/conf"
    site_file "$conf/core-site.xml" "${common[@]}"
    site_file "$conf/hdfs-site.xml" "${common[@]}" "dfs.datanode.data.dir=$(hdfs_directories "$name")" dfs.datanode.hostname=localhost \
      "dfs.datanode.address=127.0.0.1:$(port_of "$name")" "dfs.datanode.ipc.address=127.0.0.1:$(port_of "$name-ipc")" \
      "dfs.datanode.http.address=127.0.0.1:$(port_of "$name-http")" "${PROPERTIES[@]}"
    log_file "$conf"
    web_directory "$conf" datanode
  done
  site_file "$DIR/client/core-site.xml" "fs.defaultFS=hdfs://$authority" "${PROPERTIES[@]}"
  site_file "$DIR/client/hdfs-site.xml" "dfs.replication=$((DATANODES < 3 ? DATANODES : 3))" dfs.client.socket-timeout=5000 \
    "${NAMENODES[@]}" "${PROPERTIES[@]}"
  setting hdfs "hdfs://$authority"
  setting conf "$DIR/client"
  setting namenode_http "127.0.0.1:$(port_of namenode-http)"
}

hdfs_directories() { # hdfs_directories NAME: where a DataNode keeps blocks
  if [ -n "$SSD" ]; then
    echo "[DISK]file://$DATA/$1,[SSD]file://$DATA/$1-ssd"
  else
    echo "$DATA/$1"
  fi
}

name_service() { # sets NAMENODES: what servers and clients know of the two
  local id name=namenode
  NAMENODES=(dfs.nameservices=halcyon dfs.ha.namenodes.halcyon=namenode,namenode2 dfs.ha.fencing.methods=shell\(true\)
    "dfs.namenode.shared.edits.dir=file://$DATA/edits" dfs.ha.tail-edits.period=1 dfs.ha.log-roll.period=5
    dfs.client.failover.proxy.provider.halcyon=org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider)
  for name in namenode namenode2; do
    NAMENODES+=("dfs.namenode.rpc-address.halcyon.$name=127.0.0.1:$(port_of "$name")"
      "dfs.namenode.http-address.halcyon.$name=127.0.0.1:$(port_of "$name-http")")
  done
}

namenode_configure() { # namenode_configure NAME, with `common` of the caller
  local conf="$DIR/$1/conf"
  local own=("dfs.namenode.rpc-address=127.0.0.1:$(port_of "$1")" "dfs.namenode.http-address=127.0.0.1:$(port_of "$1-http")")
  [ -z "$STANDBY" ] || own=("dfs.ha.namenode.id=$1")
  site_file "$conf/core-site.xml" "${common[@]}"
  site_file "$conf/hdfs-site.xml" "${common[@]}" "dfs.namenode.name.dir=$DATA/$1" "${own[@]}" \
    dfs.namenode.safemode.extension=0 dfs.namenode.datanode.registration.ip-hostname-check=false "${PROPERTIES[@]}"
  log_file "$conf"
  web_directory "$conf" hdfs
}

namenode_command() {
  java_command 256 "$DIR/$1/conf" org.apache.hadoop.hdfs.server.namenode.NameNode
}

datanode_command() {
  java_command 192 "$DIR/$1/conf" org.apache.hadoop.hdfs.server.datanode.DataNode
}

hdfs_start() {
  local number
  namenode_command namenode
  "${COMMAND[@]}" -format -nonInteractive > "$DIR/namenode/format.log" 2>&1 < /dev/null 4>&- ||
    { echo "the NameNode could not format its directory:"; tail -n 15 "$DIR/namenode/format.log"; return 1; }
  process_start namenode
  if [ -n "$STANDBY" ]; then
    cp -r "$DATA/namenode" "$DATA/namenode2"
    process_start namenode2
    process_ready namenode 120 hdfs_active namenode
  fi
  for ((number = 1; number <= DATANODES; number++)); do process_start "datanode$number"; done
  process_ready namenode 120 hdfs_serves
}

hdfs_active() { # hdfs_active NAME: makes a NameNode of two the active one. The other one becomes the standby first, if it answers
  local other=namenode
  [ "$1" != namenode ] || other=namenode2
  ha_admin -transitionToStandby "$other" || true
  ha_admin -transitionToActive --forceactive "$1"
}

ha_admin() { # what an operator types as `hdfs haadmin`
  java_command 64 "$DIR/client" org.apache.hadoop.hdfs.tools.DFSHAAdmin -Dipc.client.connect.max.retries=1 \
    -Dha.failover-controller.cli-check.rpc-timeout.ms=3000 -Dipc.client.rpc-timeout.ms=3000 "$@"
  timeout 30 "${COMMAND[@]}" >> "$DIR/ha.log" 2>&1 < /dev/null 4>&-
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
