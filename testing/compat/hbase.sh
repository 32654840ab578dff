# Shared by the scripts that start a real HBase 2.6.4, standalone, on free ports of the loopback. Source it after server.sh and java.sh.
# hbase_start DIR ROOT sets HBASE_PID and HBASE_ZK (host:port). DIR gets configuration, logs and an empty ZooKeeper; ROOT is hbase.rootdir.
# HALCYON_HBASE_LIB  a directory with the jars, default where files.sh has put them
# HBASE_PROPERTIES   more properties, "name=value ..."
# HBASE_PORTS="zookeeper master regionserver"     default: three free ports
# HBASE_KEEP_ZK      not empty: DIR has the ZooKeeper of an earlier start, which goes on
# HBASE_MORE_LIB     a directory with more jars
# HBASE_SITE         a file with more properties, as lines of an hbase-site.xml
HBASE_LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
HBASE_PID=""

hbase_fetch() { # the jars, once, through Maven
  [ -n "${HALCYON_HBASE_LIB:-}" ] || maven_jars "$COMPAT/files/pom.xml" "$HBASE_LIB"
}

hbase_start() { # hbase_start DIR ROOT
  local dir="$1" root="$2" zk master regionserver property
  read -r zk master regionserver <<< "${HBASE_PORTS:-$(free_port) $(free_port) $(free_port)}"
  [ -n "${HBASE_KEEP_ZK:-}" ] || rm -rf "$dir/zk"
  rm -rf "$dir/tmp"
  [ ! -f "$dir/hbase.log" ] || mv "$dir/hbase.log" "$dir/hbase-$(date +%s).log"
  mkdir -p "$dir/conf"
  {
    echo '<configuration>'
    for property in "hbase.rootdir=file://$root" "hbase.tmp.dir=$dir/tmp" "hbase.zookeeper.property.dataDir=$dir/zk" \
      hbase.cluster.distributed=false hbase.zookeeper.quorum=127.0.0.1 "hbase.zookeeper.property.clientPort=$zk" \
      "hbase.master.port=$master" "hbase.regionserver.port=$regionserver" hbase.master.info.port=-1 hbase.regionserver.info.port=-1 \
      hbase.master.ipc.address=127.0.0.1 hbase.regionserver.ipc.address=127.0.0.1 hbase.master.hostname=localhost \
      hbase.unsafe.regionserver.hostname=localhost hbase.unsafe.stream.capability.enforce=false \
      hbase.io.compress.snappy.codec=org.apache.hadoop.hbase.io.compress.xerial.SnappyCodec \
      hbase.io.compress.zstd.codec=org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec \
      hbase.master.start.timeout.localHBaseCluster=120000 hbase.hfile.compaction.discharger.interval=1000 ${HBASE_PROPERTIES:-}; do
      echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
    done
    [ -z "${HBASE_SITE:-}" ] || cat "$HBASE_SITE"
    echo '</configuration>'
  } > "$dir/conf/hbase-site.xml"
  cat > "$dir/conf/log4j.properties" <<LOG
log4j.rootLogger=INFO,F
log4j.logger.org.apache.zookeeper=WARN
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File=$dir/hbase.log
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
LOG
  "$JAVA" -Xms256m -Xmx1g "${JAVA_FLAGS[@]}" -XX:+ExitOnOutOfMemoryError -cp "$dir/conf:$HBASE_LIB/*${HBASE_MORE_LIB:+:$HBASE_MORE_LIB/*}" \
    org.apache.hadoop.hbase.master.HMaster start > "$dir/stdout.log" 2>&1 < /dev/null &
  HBASE_PID=$!
  HBASE_ZK="127.0.0.1:$zk"
  if ! process_await "$HBASE_PID" "${HBASE_START_SECONDS:-90}" grep -q 'Master has completed initialization' "$dir/hbase.log"; then
    echo "HBase did not start; its log:" >&2
    grep -E ' (ERROR|FATAL|WARN) ' "$dir/hbase.log" | tail -n 15 >&2
    hbase_kill
    return 1
  fi
}

hbase_kill() { # SIGKILL
  process_kill "$HBASE_PID"
  HBASE_PID=""
}

hbase_stop() { # waits for its end, after its client asked for it
  [ -n "$HBASE_PID" ] || return 0
  local pid="$HBASE_PID"
  HBASE_PID=""
  process_end "$pid" 60 || [ $? -ne 124 ] # HBase's status says nothing
}
