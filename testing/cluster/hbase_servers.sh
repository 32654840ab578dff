# HBase 2.6.4 on the cluster's ZooKeeper and HDFS: a master, HREGIONSERVERS region servers of HBase, and HALCYONS of Halcyon.
# With MASTERS above 0 there are so many masters of Halcyon in the place of HBase's: master1, master2 ... With HMASTER there is
# HBase's master too, which is the only one that is started. HBase's masters are hmaster, hmaster2 ... up to HMASTERS.
# Needs the parts zookeeper and hdfs. The binary of Halcyon is HALCYON.
# HALCYON_MEMORY             memory of a server of Halcyon, default 256m; HALCYON_OPTIONS has more options
# HREGIONSERVER_JAVA_OPTIONS more options of HBase's region servers; a later -Xmx counts

hbaseservers_properties() { # sets HBASE_COMMON
  HBASE_COMMON=("hbase.rootdir=hdfs://127.0.0.1:$(port_of namenode)/hbase" hbase.cluster.distributed=true
    "hbase.zookeeper.quorum=$(hbaseservers_quorum)" "hbase.zookeeper.property.clientPort=$(port_of zookeeper)" "hbase.tmp.dir=$DATA/hbase-tmp"
    zookeeper.session.timeout=10000 hbase.master.hostname=localhost hbase.unsafe.regionserver.hostname=localhost
    hbase.master.ipc.address=127.0.0.1 hbase.regionserver.ipc.address=127.0.0.1 hbase.master.info.port=-1
    hbase.regionserver.info.port=-1 "hbase.master.port=$(port_of hmaster)" hbase.unsafe.stream.capability.enforce=true
    hbase.regionserver.handler.count=10 hbase.master.wait.on.regionservers.mintostart=1
    hbase.io.compress.snappy.codec=org.apache.hadoop.hbase.io.compress.xerial.SnappyCodec
    hbase.io.compress.zstd.codec=org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec)
}

hbaseservers_quorum() { # hosts of an ensemble have ports of their own; that of a single server is in the property clientPort
  if [ "$ZOOKEEPERS" = 1 ]; then echo 127.0.0.1; else zookeeper_quorum; fi
}

hbaseservers_configure() {
  local number name conf
  hbaseservers_properties
  for name in client $(hbaseservers_masters) $(hbaseservers_names); do
    conf="$DIR/$name/conf"
    [ "$name" = client ] && conf="$DIR/client"
    mkdir -p "$conf"
    [ "$name" = client ] || cp "$DIR/client/core-site.xml" "$DIR/client/hdfs-site.xml" "$conf/"
    site_file "$conf/hbase-site.xml" "${HBASE_COMMON[@]}" $(hbaseservers_ports "$name") $(hbaseservers_pages "$name") \
      "${PROPERTIES[@]}"
    log_file "$conf"
  done
}

hbaseservers_ports() { # hbaseservers_ports NAME
  case "$1" in
    master* | hmaster*) echo "hbase.master.port=$(port_of "$1")" ;;
    *) echo "hbase.regionserver.port=$(port_of "$1")" ;;
  esac
}

hbaseservers_masters() {
  local number
  if has_hmaster; then
    for ((number = 1; number <= HMASTERS; number++)); do echo "hmaster${number#1}"; done # fewer than ten
  fi
  for ((number = 1; number <= MASTERS; number++)); do echo "master$number"; done
}

has_hmaster() { [ "$MASTERS" = 0 ] || [ -n "$HMASTER" ]; }

hbaseservers_pages() { # hbaseservers_pages NAME: HBase's own servers need much memory for pages
  case "$1" in
    halcyon*) echo "hbase.regionserver.info.port=$(port_of "$1-info")" ;;
    master*) echo "hbase.master.info.port=$(port_of "$1-info")" ;;
  esac
}

hbaseservers_names() { # the region servers
  local number
  for ((number = 1; number <= HREGIONSERVERS; number++)); do echo "hregionserver$number"; done
  for ((number = 1; number <= HALCYONS; number++)); do echo "halcyon$number"; done
}

hmaster_command() {
  java_command 512 "$DIR/$1/conf" org.apache.hadoop.hbase.master.HMaster start
}

hregionserver_command() {
  CLUSTER_JAVA_OPTIONS="${CLUSTER_JAVA_OPTIONS:-} ${HREGIONSERVER_JAVA_OPTIONS:-}" \
    java_command 512 "$DIR/$1/conf" org.apache.hadoop.hbase.regionserver.HRegionServer start
}

master_command() {
  COMMAND=(env RUST_LOG="${RUST_LOG:-info}" "$HALCYON" master --config "$DIR/$1/conf" --bind 127.0.0.1 --hostname localhost
    --memory "${HALCYON_MEMORY:-256m}")
}

halcyon_command() {
  COMMAND=(env RUST_LOG="${RUST_LOG:-info}" "$HALCYON" regionserver --config "$DIR/$1/conf" --bind 127.0.0.1 --hostname localhost
    --memory "${HALCYON_MEMORY:-256m}" ${HALCYON_OPTIONS:-})
}

hbaseservers_start() {
  local name
  for name in $(hbaseservers_masters); do
    case "$name" in
      hmaster*) process_start "$name" ;;
      *) has_hmaster || process_start "$name" ;;
    esac
  done
  for name in $(hbaseservers_names); do process_start "$name"; done
  if has_hmaster; then
    process_ready hmaster 120 grep -q 'Master has completed initialization' "$DIR"/hmaster*/log
  else
    process_ready master1 120 grep -q '^ready' "$DIR"/master*/log
  fi
  for name in $(hbaseservers_names); do
    case "$name" in
      halcyon*) process_ready "$name" 60 grep -q '^ready' "$DIR/$name/log" ;;
      *) process_ready "$name" 60 grep -q 'Serving as' "$DIR/$name/log" ;;
    esac
  done
}
