package halcyon.conformance;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.Coprocessor;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HBaseZKTestingUtility;
import org.apache.hadoop.hbase.LocalHBaseCluster;
import org.apache.hadoop.hbase.MiniHBaseCluster;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.StartMiniClusterOption;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.net.Address;
import org.apache.hadoop.hbase.quotas.RegionServerRpcQuotaManager;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HRegionServer;
import org.apache.hadoop.hbase.replication.ReplicationPeerDescription;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.util.JVMClusterUtil.MasterThread;
import org.apache.hadoop.hbase.util.JVMClusterUtil.RegionServerThread;
import org.apache.hadoop.hbase.zookeeper.MiniZooKeeperCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;

/**
 * What the rewritten testing utility calls: the external server in the place of a mini cluster, as far as the client API can
 * tell of it. Whatever else a test asks for ends it as an assumption that does not hold, which counts as skipped.
 */
public final class External {
  private static final String ZK = System.getProperty("conformance.zk", "");
  private static final String REGISTRY = System.getProperty("conformance.registry", "");
  private static final String ZNODE = System.getProperty("conformance.znode", "/hbase");
  private static final String ROOT = System.getProperty("conformance.root", "");
  private static final String MASTERS = System.getProperty("conformance.masters", "");

  static volatile HBaseTestingUtility util;
  private static final Map<HBaseZKTestingUtility, MiniHBaseCluster> MINIS = new IdentityHashMap<>();
  private static MiniDFSCluster dfs;

  private External() {
  }

  /** What the test that runs has asked for and did not get; null: nothing. A test that expects an exception takes this one for it. */
  static volatile String asked;

  /** Skips a test that asks for what only a cluster inside this JVM has. */
  public static void internals(String what) {
    asked = what;
    throw new AssumptionViolatedException("JVM internals: " + what);
  }

  /** Points a configuration at the server under test. */
  public static void point(Configuration conf) {
    if (OwnServer.ON) {
      return; // its server is not there yet
    }
    if (!ZK.isEmpty()) {
      int c = ZK.lastIndexOf(':');
      conf.set("hbase.zookeeper.quorum", c < 0 ? ZK : ZK.substring(0, c));
      conf.set("hbase.zookeeper.property.clientPort", c < 0 ? "2181" : ZK.substring(c + 1));
      conf.set("zookeeper.znode.parent", ZNODE);
    }
    String masters = MASTERS.isEmpty() ? REGISTRY : MASTERS;
    if (!masters.isEmpty()) {
      conf.set("hbase.masters", masters);
    }
    if (!REGISTRY.isEmpty()) {
      conf.set("hbase.client.bootstrap.servers", REGISTRY);
      if (ZK.isEmpty()) {
        conf.set("hbase.client.registry.impl",
          "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
      }
    }
  }

  /** Local directories where a mini DFS would have been, or the file system that the server has its root directory in. */
  public static void local(HBaseZKTestingUtility u) throws IOException {
    Configuration conf = u.getConfiguration();
    conf.set("fs.defaultFS", ROOT.startsWith("hdfs:") ? URI.create(ROOT).resolve("/").toString() : "file:///");
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    conf.set("mapreduce.framework.name", "local");
    if (conf.get("conformance.base") == null) {
      File base = new File(System.getProperty("conformance.dir", "."), "fs").getAbsoluteFile();
      base.mkdirs();
      conf.set("conformance.base", base.getPath());
      conf.set("hbase.rootdir", ROOT.isEmpty() ? new File(base, "root").toURI().toString() : ROOT);
      conf.set("hbase.fs.tmp.dir", new File(base, "staging").toURI().toString());
      conf.set("hadoop.tmp.dir", new File(base, "hadoop-tmp").getPath());
    }
    if (Run.testClass.startsWith("org.apache.hadoop.hbase.mapred.")) {
      // TableOutputFormat of that package is a FileOutputFormat, and a reducer of the local runner wants its directory
      conf.setIfUnset("mapreduce.output.fileoutputformat.outputdir", new File(conf.get("conformance.base"), "output").toURI().toString());
    }
    point(conf);
  }

  /** Where there is a cluster for each class, it has as many masters and region servers as the test asks for. */
  public static MiniHBaseCluster start(HBaseTestingUtility u, StartMiniClusterOption option) throws Exception {
    util = u;
    local(u);
    new File(u.getDataTestDir().toUri().getPath()).mkdirs(); // tests write lists of servers there
    FileSystem.getLocal(u.getConfiguration());
    if (OwnServer.ON) {
      u.closeConnection(); // of a server before it, which a test that failed left
      OwnServer.start(u, false, option);
    } else {
      clean(u.getConfiguration());
    }
    for (String m : u.getConfiguration().getStrings("hbase.coprocessor.master.classes", new String[0])) {
      // some classes only check that their observer was started
      step("start of " + m, () -> ((Coprocessor) Class.forName(m).getDeclaredConstructor()
        .newInstance()).start(null));
    }
    return mini(u);
  }

  public static boolean hasOwnServer() {
    return OwnServer.ON;
  }

  public static Path rootDir(HBaseTestingUtility u) throws IOException {
    return CommonFSUtils.getRootDir(u.getConfiguration());
  }

  /** Where a mini cluster has ZooKeeper and files of its own, it may be started on them again. */
  public static MiniHBaseCluster startAgain(HBaseTestingUtility u, StartMiniClusterOption option) throws Exception {
    if (!OwnServer.ON) {
      return start(u, option);
    }
    util = u;
    local(u);
    OwnServer.start(u, true, option);
    return mini(u);
  }

  /** The end of the server without a chance to write anything. */
  public static void kill(HBaseTestingUtility u) throws IOException {
    if (!OwnServer.ON) {
      internals("killMiniHBaseCluster");
    }
    u.closeConnection();
    OwnServer.kill(u);
  }

  /** A clean stop of the server and its start with the same files. */
  public static void restart(HBaseTestingUtility u) throws IOException, InterruptedException {
    if (!OwnServer.ON) {
      internals("restartHBaseCluster");
    }
    u.closeConnection();
    OwnServer.start(u, true, null);
  }

  /** A table with the endpoint that a test names for all regions: a server that is not the test's own has another configuration. */
  public static TableDescriptor withEndpoints(HBaseTestingUtility u, TableDescriptor td)
    throws IOException {
    if (OwnServer.ON) {
      return td; // the server has the properties of the test
    }
    String endpoint = "org.apache.hadoop.hbase.coprocessor.AggregateImplementation";
    TableDescriptor with = td;
    for (String key : new String[] {"hbase.coprocessor.region.classes", "hbase.coprocessor.user.region.classes"}) {
      for (String item : u.getConfiguration().getTrimmedStringCollection(key)) {
        String name = item.split("\\|")[0].trim();
        if (name.equals(endpoint) && !with.hasCoprocessor(name)) {
          with = TableDescriptorBuilder.newBuilder(with).setCoprocessor(name).build();
        }
      }
    }
    return with;
  }

  /** The server has its WALs in its root directory. */
  public static Path walRootDir(HBaseTestingUtility u) throws IOException {
    u.getConfiguration().unset("hbase.wal.dir");
    return rootDir(u);
  }

  /** The endpoint of a peer. One class of the tests only counts what HBase's own does, which is the default. */
  public static String endpoint(String name) {
    return "org.apache.hadoop.hbase.replication.TestReplicationBase$ReplicationEndpointTest".equals(name) ? null : name;
  }

  public static void stop(HBaseTestingUtility u) throws IOException {
    u.closeConnection();
    if (OwnServer.ON) {
      OwnServer.stop(u);
    }
  }

  /** Removes what earlier classes left. A step that the server refuses is logged, and the next one follows. */
  static void clean(Configuration from) throws Exception {
    Configuration conf = new Configuration(from);
    conf.setInt("hbase.client.retries.number", 6);
    conf.setInt("hbase.client.sync.wait.timeout.msec", 60_000); // a table may be stuck for good
    conf.unset("hbase.client.async.connection.impl");
    try (Connection c = ConnectionFactory.createConnection(conf); Admin a = c.getAdmin()) {
      step("recommission", () -> {
        for (ServerName s : a.listDecommissionedRegionServers()) {
          a.recommissionRegionServer(s, Collections.emptyList());
        }
      });
      step("tables", () -> {
        for (TableDescriptor td : a.listTableDescriptors()) {
          TableName t = td.getTableName();
          step("table " + t, () -> {
            if (a.isTableEnabled(t)) {
              a.disableTable(t);
            }
            a.deleteTable(t);
          });
        }
      });
      step("snapshots", () -> {
        for (SnapshotDescription s : a.listSnapshots()) {
          a.deleteSnapshot(s.getName());
        }
      });
      step("namespaces", () -> {
        for (NamespaceDescriptor n : a.listNamespaceDescriptors()) {
          if (!n.getName().equals("default") && !n.getName().equals("hbase")) {
            step("namespace " + n.getName(), () -> a.deleteNamespace(n.getName()));
          }
        }
      });
      step("peers", () -> {
        for (ReplicationPeerDescription p : a.listReplicationPeers()) {
          a.removeReplicationPeer(p.getPeerId());
        }
      });
      step("balancer on", () -> a.balancerSwitch(true, true));
      step("split switch on", () -> a.splitSwitch(true, true));
      step("merge switch on", () -> a.mergeSwitch(true, true));
      step("normalizer on", () -> a.normalizerSwitch(true));
      step("janitor on", () -> a.catalogJanitorSwitch(true));
    }
  }

  interface Step {
    void run() throws Exception;
  }

  private static void step(String what, Step s) {
    try {
      s.run();
    } catch (Throwable t) {
      System.err.println("conformance: clean " + what + ": " + t);
    }
  }

  public static void waitNoRit(HBaseTestingUtility u, long ms) throws IOException {
    long end = System.currentTimeMillis() + ms;
    while (!u.getAdmin().getClusterMetrics(EnumSet.of(Option.REGIONS_IN_TRANSITION))
      .getRegionStatesInTransition().isEmpty()) {
      if (System.currentTimeMillis() > end) {
        throw new AssertionError("regions still in transition after " + ms + " ms");
      }
      pause();
    }
  }

  public static boolean ensureServers(HBaseTestingUtility u, int n) throws IOException {
    if (!OwnServer.isCluster()) {
      return false; // none was started; the test continues with the servers that run
    }
    int missing = n - mini(u).getNumLiveRegionServers();
    for (int i = 0; i < missing; i++) {
      mini(u).startRegionServer();
    }
    return missing > 0;
  }

  public static void moveAndWait(HBaseTestingUtility u, RegionInfo r, ServerName to)
    throws IOException {
    u.getAdmin().move(r.getEncodedNameAsBytes(), to);
    for (int i = 0; i < 600; i++) {
      if (to.equals(u.getConnection().getRegionLocator(r.getTable())
        .getRegionLocation(r.getStartKey(), true).getServerName())) {
        return;
      }
      pause();
    }
    throw new AssertionError(r + " did not reach " + to);
  }

  static void pause() {
    try {
      Thread.sleep(100);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  public static synchronized MiniHBaseCluster mini(HBaseZKTestingUtility u) {
    return MINIS.computeIfAbsent(u, k -> {
      ExternalCluster mini = Mockito.mock(ExternalCluster.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
        if (i.getMethod().getDeclaringClass() == ExternalCluster.class) {
          return i.callRealMethod();
        }
        if (i.getMethod().getName().equals("toString")) {
          return "external cluster";
        }
        throw new AssumptionViolatedException("JVM internals: MiniHBaseCluster." + i.getMethod().getName());
      }));
      mini.util = (HBaseTestingUtility) u;
      mini.hbaseCluster = threads(mini);
      return mini;
    });
  }

  /** The field of a mini cluster that tests use to wait for threads. */
  private static LocalHBaseCluster threads(ExternalCluster mini) {
    return Mockito.mock(LocalHBaseCluster.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      if (i.getMethod().getName().equals("waitOnMaster") && i.getArgument(0) instanceof MasterThread thread) {
        return mini.waitOnMaster(mini.getMasterThreads().indexOf(thread));
      }
      if (i.getMethod().getName().equals("waitOnRegionServer") && i.getArgument(0) instanceof RegionServerThread thread) {
        mini.waitForRegionServerToStop(thread.getRegionServer().getServerName(), 60_000);
        return thread.getName();
      }
      throw new AssumptionViolatedException("JVM internals: LocalHBaseCluster." + i.getMethod().getName());
    }));
  }

  /** The server of a table's first region. */
  public static HRegionServer server(HBaseTestingUtility u, TableName t) throws IOException {
    return server(u, u.getConnection().getRegionLocator(t).getAllRegionLocations().get(0).getServerName());
  }

  /** A server, with what the client API tells of it. */
  static HRegionServer server(HBaseTestingUtility u, ServerName sn) {
    return Mockito.mock(HRegionServer.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getServerName" -> {
          return sn;
        }
        case "getConfiguration" -> {
          return u.getConfiguration();
        }
        case "isOnline", "isAlive" -> {
          return lives(u, sn);
        }
        case "isAborted", "isStopped", "isStopping", "isShutDown" -> {
          return !lives(u, sn);
        }
        case "run" -> {
          while (lives(u, sn)) {
            pause();
          }
          return null;
        }
        case "abort", "stop" -> {
          String method = i.getMethod().getName();
          OwnServer.order(u, "HRegionServer." + method, method.equals("stop") ? "stop" : "kill", sn.getPort());
          return null;
        }
        case "getRegions" -> {
          List<HRegion> regions = new ArrayList<>();
          TableName t = i.getArguments().length == 1 ? (TableName) i.getArgument(0) : null;
          for (RegionInfo r : regionsAt(u, sn)) {
            if (t == null || r.getTable().equals(t)) {
              regions.add(Regions.region(u, r));
            }
          }
          return regions;
        }
        case "getConnection" -> {
          return u.getConnection();
        }
        case "getOnlineRegion", "getRegion" -> {
          for (RegionInfo r : regionsAt(u, sn)) {
            boolean same = i.getArgument(0) instanceof String name ? r.getEncodedName().equals(name)
              : Bytes.equals(r.getRegionName(), (byte[]) i.getArgument(0));
            if (same) {
              return Regions.region(u, r);
            }
          }
          return null;
        }
        case "getWAL" -> {
          return Wals.of(u, sn);
        }
        case "getWALs" -> {
          return Collections.singletonList(Wals.of(u, sn));
        }
        case "getCompactedHFilesDischarger" -> {
          return Mockito.mock(i.getMethod().getReturnType()); // the external server archives by itself
        }
        case "getRSRpcServices", "getRpcServices" -> {
          return Stubs.regionServer(u, sn);
        }
        case "getZooKeeper" -> {
          if (!OwnServer.ON) {
            internals("HRegionServer.getZooKeeper");
          }
          return u.getZooKeeperWatcher();
        }
        case "getRegionServerRpcQuotaManager" -> {
          return rpcQuotas(u);
        }
        case "waitForServerOnline" -> {
          return null; // the thread of a server begins when the master knows it
        }
        case "getNumberOfOnlineRegions" -> {
          return regionsAt(u, sn).size();
        }
        case "toString" -> {
          return sn.toString();
        }
        default -> {
          throw new AssumptionViolatedException(
            "JVM internals: HRegionServer." + i.getMethod().getName());
        }
      }
    }));
  }

  /** None of a server that has ended: it answers nobody, where a mini cluster's can still be asked. */
  static List<RegionInfo> regionsAt(HBaseTestingUtility u, ServerName name) throws IOException {
    return OwnServer.isCluster() && !lives(u, name) ? Collections.emptyList() : u.getAdmin().getRegions(name);
  }

  /** Whether a server's process runs. That of a server which cannot be ended does. */
  static boolean lives(HBaseTestingUtility u, ServerName name) throws IOException {
    return !OwnServer.isCluster() || OwnServer.order(u, "state", "state", name.getPort()).equals("ready");
  }

  /** Whether requests are limited. The quotas themselves the external server reads by itself. */
  private static RegionServerRpcQuotaManager rpcQuotas(HBaseTestingUtility u) {
    return Mockito.mock(RegionServerRpcQuotaManager.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "isRpcThrottleEnabled" -> {
          return u.getAdmin().isRpcThrottleEnabled();
        }
        case "getQuotaCache" -> {
          return Mockito.mock(i.getMethod().getReturnType(), Mockito.withSettings().stubOnly().defaultAnswer(j -> {
            if (!j.getMethod().getName().equals("triggerCacheRefresh")) {
              internals("QuotaCache." + j.getMethod().getName());
            }
            return null;
          }));
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: RegionServerRpcQuotaManager." + i.getMethod().getName());
        }
      }
    }));
  }

  /** In the place of a wait for a server's cache of quotas. */
  public static void readQuotas() throws InterruptedException {
    if (!OwnServer.ON) {
      internals("QuotaCache");
    }
    Thread.sleep(1000);
  }

  public static MiniZooKeeperCluster zk(HBaseZKTestingUtility u) {
    if (ZK.isEmpty() && !OwnServer.ON) {
      internals("ZooKeeper");
    }
    return Mockito.mock(MiniZooKeeperCluster.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      String address = OwnServer.ON ? OwnServer.zooKeeper(u) : ZK;
      switch (i.getMethod().getName()) {
        case "getClientPort" -> {
          return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
        }
        case "getAddress" -> {
          return Address.fromString(address);
        }
        case "toString" -> {
          return address;
        }
        case "shutdown" -> {
          return null; // each server ends its own
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: MiniZooKeeperCluster." + i.getMethod().getName());
        }
      }
    }));
  }

  public static synchronized MiniDFSCluster dfs() {
    if (dfs == null) {
      dfs = Mockito.mock(MiniDFSCluster.class,
        Mockito.withSettings().stubOnly().defaultAnswer(i -> {
          switch (i.getMethod().getName()) {
            case "toString" -> {
              return "no DFS";
            }
            case "getFileSystem" -> {
              if (!OwnServer.isCluster() || util == null) {
                internals("MiniDFSCluster.getFileSystem");
              }
              return CommonFSUtils.getRootDir(util.getConfiguration()).getFileSystem(util.getConfiguration());
            }
            case "shutdown" -> {
              return null;
            }
            default -> {
              throw new AssumptionViolatedException(
                "JVM internals: MiniDFSCluster." + i.getMethod().getName());
            }
          }
        }));
    }
    return dfs;
  }
}
