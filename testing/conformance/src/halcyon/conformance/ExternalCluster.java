package halcyon.conformance;

import java.io.IOException;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.MiniHBaseCluster;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HRegionServer;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.JVMClusterUtil.MasterThread;
import org.apache.hadoop.hbase.util.JVMClusterUtil.RegionServerThread;

/**
 * The part of the mini cluster that the client API can provide. It is never constructed: a mock of this class calls these
 * methods, and skips the test that calls any other.
 */
public class ExternalCluster extends MiniHBaseCluster {
  public ExternalCluster(Configuration conf) throws IOException, InterruptedException {
    super(conf, 0);
  }

  /** Static, because no initializer of a mock runs. */
  private static final Map<HBaseTestingUtility, Map<ServerName, RegionServerThread>> THREADS = new IdentityHashMap<>();

  /** Whose cluster it is; set right after the mock is made. */
  HBaseTestingUtility util;
  /** The server that a test ended last by its number. */
  private ServerName ended;

  private Admin admin() throws IOException {
    return util.getAdmin();
  }

  @Override
  public boolean isDistributedCluster() {
    return true;
  }

  @Override
  public Configuration getConfiguration() {
    return util.getConfiguration();
  }

  @Override
  public Configuration getConf() {
    return util.getConfiguration();
  }

  @Override
  public ClusterMetrics getClusterMetrics() throws IOException {
    return admin().getClusterMetrics();
  }

  @Override
  public int getNumLiveRegionServers() {
    try {
      return admin().getClusterMetrics(EnumSet.of(Option.LIVE_SERVERS)).getLiveServerMetrics()
        .size();
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public boolean waitForActiveAndReadyMaster() throws IOException {
    return Masters.awaitActive(util, 120_000);
  }

  @Override
  public boolean waitForActiveAndReadyMaster(long timeout) throws IOException {
    return Masters.awaitActive(util, timeout);
  }

  @Override
  public java.util.List<MasterThread> getMasterThreads() {
    return Masters.threads(util, "MiniHBaseCluster.getMasterThreads");
  }

  @Override
  public java.util.List<MasterThread> getLiveMasterThreads() {
    java.util.List<MasterThread> live = new java.util.ArrayList<>(getMasterThreads());
    live.removeIf(thread -> !thread.isAlive());
    return live;
  }

  @Override
  public MasterThread getMasterThread() {
    try {
      return Masters.active(util);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public MasterThread startMaster() throws IOException {
    return Masters.start(util);
  }

  @Override
  public void killMaster(ServerName name) throws IOException {
    Masters.end(util, name, "kill");
  }

  @Override
  public void stopMaster(ServerName name) throws IOException {
    Masters.end(util, name, "stop");
  }

  @Override
  public String abortMaster(int number) {
    return endMaster(number, "kill").toString();
  }

  @Override
  public MasterThread stopMaster(int number) {
    return endMaster(number, "stop");
  }

  @Override
  public MasterThread stopMaster(int number, boolean shutdownFileSystem) {
    return stopMaster(number);
  }

  private MasterThread endMaster(int number, String order) {
    MasterThread thread = getMasterThreads().get(number);
    try {
      Masters.end(util, thread.getMaster().getServerName(), order);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    return thread;
  }

  @Override
  public String waitOnMaster(int number) {
    ServerName name = getMasterThreads().remove(number).getMaster().getServerName();
    try {
      Masters.awaitEnd(util, name, 60_000);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    return name.toString();
  }

  @Override
  public void waitForMasterToStop(ServerName name, long timeout) throws IOException {
    Masters.awaitEnd(util, name, timeout);
  }

  @Override
  public HMaster getMaster(int number) {
    return getMasterThreads().get(number).getMaster();
  }

  @Override
  public boolean isKilledRS(ServerName serverName) {
    return false;
  }

  @Override
  public void flushcache() throws IOException {
    for (TableDescriptor td : admin().listTableDescriptors()) {
      if (admin().isTableEnabled(td.getTableName())) {
        admin().flush(td.getTableName());
      }
    }
  }

  @Override
  public void flushcache(TableName tableName) throws IOException {
    admin().flush(tableName);
  }

  @Override
  public void compact(boolean major) throws IOException {
    for (TableDescriptor td : admin().listTableDescriptors()) {
      compact(td.getTableName(), major);
    }
  }

  @Override
  public void compact(TableName tableName, boolean major) throws IOException {
    Regions.compact(util, tableName, major);
  }

  @Override
  public ServerName getServerHoldingRegion(TableName tn, byte[] regionName) throws IOException {
    for (HRegionLocation l : util.getConnection().getRegionLocator(tn)
      .getAllRegionLocations()) {
      if (Bytes.equals(l.getRegion().getRegionName(), regionName)) {
        return l.getServerName();
      }
    }
    return null;
  }

  @Override
  public ServerName getServerHoldingMeta() throws IOException {
    return util.getConnection().getRegionLocator(TableName.META_TABLE_NAME)
      .getRegionLocation(new byte[0]).getServerName();
  }

  @Override
  public java.util.List<HRegion> getRegions(TableName tableName) {
    try {
      java.util.List<HRegion> out = new java.util.ArrayList<>();
      for (ServerName server : admin().getRegionServers()) { // not from meta, which has no replicas of its own
        for (RegionInfo r : External.regionsAt(util, server)) {
          if (r.getTable().equals(tableName)) {
            out.add(Regions.region(util, r));
          }
        }
      }
      return out;
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public java.util.List<HRegion> getRegions(byte[] tableName) {
    return getRegions(TableName.valueOf(tableName));
  }

  @Override
  public java.util.List<HRegion> findRegionsForTable(TableName tableName) {
    return getRegions(tableName);
  }

  private java.util.List<ServerName> servers() {
    try {
      if (OwnServer.isCluster() && getMasterThread() == null) { // no master tells which there are
        java.util.List<ServerName> live = new java.util.ArrayList<>();
        for (ServerName name : OwnServer.regionServers(util)) {
          if (External.lives(util, name)) {
            live.add(name);
          }
        }
        return live;
      }
      return new java.util.ArrayList<>(admin().getRegionServers());
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public HRegionServer getRegionServer(int number) {
    java.util.List<ServerName> servers = servers();
    if (number >= servers.size()) {
      External.internals("region server number " + number);
    }
    return External.server(util, servers.get(number));
  }

  @Override
  public HRegionServer getRegionServer(ServerName name) {
    return servers().contains(name) ? External.server(util, name) : null;
  }

  @Override
  public java.util.List<RegionServerThread> getRegionServerThreads() {
    java.util.List<RegionServerThread> out = new java.util.ArrayList<>();
    for (ServerName name : servers()) {
      out.add(thread(name));
    }
    return out;
  }

  /** A real thread: whether one is alive cannot be mocked. It ends with the server. */
  private synchronized RegionServerThread thread(ServerName name) {
    return THREADS.computeIfAbsent(util, key -> new HashMap<>()).computeIfAbsent(name, key -> {
      RegionServerThread thread = new RegionServerThread(External.server(util, name), 0);
      thread.setName(name.toString());
      thread.setDaemon(true);
      thread.start();
      return thread;
    });
  }

  @Override
  public java.util.List<RegionServerThread> getLiveRegionServerThreads() {
    return getRegionServerThreads();
  }

  @Override
  public RegionServerThread startRegionServer() throws IOException {
    ServerName name = OwnServer.startRegionServer(util);
    for (int i = 0; i < 300; i++) {
      if (servers().contains(name)) {
        return thread(name);
      }
      External.pause();
    }
    throw new IOException("the master does not know the new server");
  }

  @Override
  public RegionServerThread startRegionServerAndWait(long timeout) throws IOException {
    return startRegionServer();
  }

  @Override
  public void killRegionServer(ServerName name) throws IOException {
    OwnServer.order(util, "MiniHBaseCluster.killRegionServer", "kill", name.getPort());
  }

  @Override
  public void stopRegionServer(ServerName name) throws IOException {
    OwnServer.order(util, "MiniHBaseCluster.stopRegionServer", "stop", name.getPort());
  }

  @Override
  public String abortRegionServer(int number) {
    return end(number, "kill").toString();
  }

  @Override
  public RegionServerThread stopRegionServer(int number) {
    return thread(end(number, "stop"));
  }

  @Override
  public RegionServerThread stopRegionServer(int number, boolean shutdownFileSystem) {
    return stopRegionServer(number);
  }

  private ServerName end(int number, String order) {
    ServerName name = getRegionServer(number).getServerName();
    try {
      OwnServer.order(util, "MiniHBaseCluster." + order + "RegionServer", order, name.getPort());
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    ended = name;
    return name;
  }

  @Override
  public String waitOnRegionServer(int number) {
    if (ended == null) {
      External.internals("MiniHBaseCluster.waitOnRegionServer");
    }
    try {
      await(ended, 60_000, false); // servers that have ended are not in the list, so the number is another's
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    return ended.toString();
  }

  @Override
  public void waitForRegionServerToStop(ServerName name, long timeout) throws IOException {
    await(name, timeout, false);
  }

  @Override
  public void waitForRegionServerToStart(String host, int port, long timeout) {
  }

  private void await(ServerName name, long timeout, boolean lives) throws IOException {
    long end = System.currentTimeMillis() + timeout;
    while (External.lives(util, name) != lives || servers().contains(name) != lives) {
      if (System.currentTimeMillis() > end) {
        throw new IOException("waited for " + name + " for " + timeout + " ms");
      }
      External.pause();
    }
  }

  @Override
  public int getServerWithMeta() {
    return getServerWith(RegionInfoBuilder.FIRST_META_REGIONINFO.getRegionName());
  }

  @Override
  public int getServerWith(byte[] regionName) {
    try {
      java.util.List<ServerName> servers = servers();
      for (int i = 0; i < servers.size(); i++) {
        for (RegionInfo r : External.regionsAt(util, servers.get(i))) {
          if (Bytes.equals(r.getRegionName(), regionName)) {
            return i;
          }
        }
      }
      return -1;
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public long countServedRegions() {
    try {
      long n = 0;
      for (ServerName server : servers()) {
        n += External.regionsAt(util, server).size();
      }
      return n;
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public HMaster getMaster() {
    if (!OwnServer.isCluster()) {
      return Masters.master(util);
    }
    MasterThread active = getMasterThread();
    return active == null ? null : active.getMaster();
  }

  @Override
  public void shutdown() {
  }

  @Override
  public void waitUntilShutDown() {
  }

  @Override
  public void close() {
  }
}
