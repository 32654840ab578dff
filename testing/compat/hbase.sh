# Shared by the scripts that start a real HBase 2.6.4, standalone, on free ports of the loopback. Source it after server.sh.
# hbase_start DIR ROOT sets HBASE_PID and HBASE_ZK (host:port). DIR gets configuration, logs and an empty ZooKeeper; ROOT is hbase.rootdir.
# HALCYON_HBASE_LIB  a directory with the jars, default where files.sh has put them
# HBASE_PROPERTIES   more properties, "name=value ..."
HBASE_LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
HBASE_PID=""

# What HBase's own launcher adds on JDK 11 and later.
HBASE_FLAGS="--add-modules=jdk.unsupported -Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true"
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent \
  java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar jdk.internal.util.random jdk.internal.misc; do
  HBASE_FLAGS="$HBASE_FLAGS --add-opens=java.base/$package=ALL-UNNAMED --add-exports=java.base/$package=ALL-UNNAMED"
done

hbase_fetch() { # the jars, once, through Maven
  [ -z "${HALCYON_HBASE_LIB:-}" ] || return 0
  cmp -s "$HERE/files/pom.xml" "$HBASE_LIB/.complete" && return 0
  mvn -q -B -ntp -f "$HERE/files/pom.xml" dependency:copy-dependencies -DoutputDirectory="$HBASE_LIB" < /dev/null
  cp "$HERE/files/pom.xml" "$HBASE_LIB/.complete"
}

free_port() { # one nobody listens on, below those that the kernel hands out
  local port
  while :; do
    port=$(( 10000 + RANDOM % 20000 ))
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
  done
}

hbase_start() { # hbase_start DIR ROOT
  local dir="$1" root="$2" zk master regionserver waited=0 property
  zk="$(free_port)" master="$(free_port)" regionserver="$(free_port)"
  rm -rf "$dir/zk" "$dir/tmp"
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
  # shellcheck disable=SC2086
  java -Xms256m -Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError $HBASE_FLAGS -Djava.net.preferIPv4Stack=true \
    -cp "$dir/conf:$HBASE_LIB/*" org.apache.hadoop.hbase.master.HMaster start > "$dir/stdout.log" 2>&1 < /dev/null &
  HBASE_PID=$!
  HBASE_ZK="127.0.0.1:$zk"
  until grep -q 'Master has completed initialization' "$dir/hbase.log" 2> /dev/null; do
    if ! kill -0 "$HBASE_PID" 2> /dev/null || [ $waited -ge $(( ${HBASE_START_SECONDS:-90} * 10 )) ]; then
      echo "HBase did not start; its log:" >&2
      grep -E ' (ERROR|FATAL|WARN) ' "$dir/hbase.log" | tail -n 15 >&2
      hbase_kill
      return 1
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
}

hbase_kill() {
  if [ -n "$HBASE_PID" ]; then
    kill -9 "$HBASE_PID" 2> /dev/null || true
    wait "$HBASE_PID" 2> /dev/null || true
    HBASE_PID=""
  fi
}

hbase_stop() { # waits until it has ended, after its client asked it to
  local waited=0
  [ -n "$HBASE_PID" ] || return 0
  while kill -0 "$HBASE_PID" 2> /dev/null; do
    [ $waited -ge 600 ] && { echo "HBase did not stop within 60 s" >&2; hbase_kill; return 1; }
    sleep 0.1
    waited=$((waited + 1))
  done
  wait "$HBASE_PID" 2> /dev/null || true
  HBASE_PID=""
}
