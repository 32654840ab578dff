package halcyon.conformance;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BalanceRequest;
import org.apache.hadoop.hbase.client.TableState;
import org.apache.hadoop.hbase.master.DeadServer;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.master.MasterCoprocessorHost;
import org.apache.hadoop.hbase.master.MasterFileSystem;
import org.apache.hadoop.hbase.master.ServerManager;
import org.apache.hadoop.hbase.master.TableStateManager;
import org.apache.hadoop.hbase.master.janitor.CatalogJanitor;
import org.apache.hadoop.hbase.procedure2.Procedure;
import org.apache.hadoop.hbase.rsgroup.RSGroupBasedLoadBalancer;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.util.JVMClusterUtil.MasterThread;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;

/** The masters of a test's cluster, of which a client sees one, or the one master of an external server. */
final class Masters {
  /** In the order of their start, without those that a test has waited for. Tests hold such a list while it changes. */
  private static final Map<HBaseTestingUtility, List<MasterThread>> THREADS = new IdentityHashMap<>();

  private Masters() {
  }

  /** Notes the masters that have been started in the place of all before. */
  static synchronized void started(HBaseTestingUtility u, List<ServerName> names) {
    List<MasterThread> threads = new ArrayList<>();
    for (ServerName name : names) {
      threads.add(thread(u, name, threads.size()));
    }
    THREADS.put(u, threads);
  }

  static synchronized List<MasterThread> threads(HBaseTestingUtility u, String method) {
    if (!OwnServer.isCluster()) {
      External.internals(method);
    }
    return THREADS.get(u);
  }

  static MasterThread start(HBaseTestingUtility u) throws IOException {
    List<MasterThread> threads = threads(u, "MiniHBaseCluster.startMaster");
    int port = u.getConfiguration().getInt(HConstants.MASTER_PORT, HConstants.DEFAULT_MASTER_PORT);
    port = port == HConstants.DEFAULT_MASTER_PORT ? 0 : port;
    String answer = OwnServer.order(u, "MiniHBaseCluster.startMaster", "start-master", port);
    MasterThread thread = thread(u, ServerName.valueOf(answer.replace("master-name ", "")), threads.size());
    threads.add(thread);
    return thread;
  }

  /** Sends SIGTERM to a master ("stop"), or SIGKILL ("kill"). */
  static void end(HBaseTestingUtility u, ServerName name, String order) throws IOException {
    OwnServer.order(u, "MiniHBaseCluster." + order + "Master", order, name.getPort());
  }

  /** The one that serves, or null. */
  static MasterThread active(HBaseTestingUtility u) throws IOException {
    for (MasterThread thread : threads(u, "MiniHBaseCluster.getMasterThread")) {
      if (thread.getMaster().isActiveMaster()) {
        return thread;
      }
    }
    return null;
  }

  static boolean awaitActive(HBaseTestingUtility u, long timeout) throws IOException {
    for (long end = System.currentTimeMillis() + timeout; OwnServer.isCluster() && active(u) == null; External.pause()) {
      if (System.currentTimeMillis() > end) {
        return false;
      }
    }
    return true;
  }

  static void awaitEnd(HBaseTestingUtility u, ServerName name, long timeout) throws IOException {
    for (long end = System.currentTimeMillis() + timeout; !state(u, name).equals("ended"); External.pause()) {
      if (System.currentTimeMillis() > end) {
        throw new IOException("waited for the end of " + name + " for " + timeout + " ms");
      }
    }
  }

  /** A real thread: whether one is alive cannot be mocked. It ends with the master. */
  private static MasterThread thread(HBaseTestingUtility u, ServerName name, int number) {
    MasterThread thread = new MasterThread(master(u, name), number);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** "running", "ready" for the active master that serves, or "ended". */
  private static String state(HBaseTestingUtility u, ServerName name) throws IOException {
    return OwnServer.order(u, "HMaster", "state", name.getPort());
  }

  /** A master of a cluster, with its process's state and, if it is active, with what the client API tells of it. */
  private static HMaster master(HBaseTestingUtility u, ServerName name) {
    HMaster active = master(u);
    return Mockito.mock(HMaster.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "isInitialized", "isActiveMaster" -> {
          return state(u, name).equals("ready");
        }
        case "getServerName" -> {
          return name;
        }
        case "getRSRpcServices" -> {
          return Stubs.regionServer(u, name);
        }
        case "isAlive", "isOnline" -> {
          return !state(u, name).equals("ended");
        }
        case "isStopped", "isAborted", "isStopping", "isShutDown" -> {
          return state(u, name).equals("ended");
        }
        case "abort" -> {
          end(u, name, "kill");
          return null;
        }
        case "stop", "stopMaster" -> {
          end(u, name, "stop");
          return null;
        }
        case "run" -> {
          while (!state(u, name).equals("ended")) {
            External.pause();
          }
          return null;
        }
        case "toString" -> {
          return name.toString();
        }
        default -> {
          try {
            return i.getMethod().invoke(active, i.getRawArguments());
          } catch (InvocationTargetException e) {
            throw e.getCause();
          }
        }
      }
    }));
  }

  /** The active master, with what the client API tells of it. */
  static HMaster master(HBaseTestingUtility util) {
    return Mockito.mock(HMaster.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "isInitialized", "isActiveMaster" -> {
          return true;
        }
        case "getServerName" -> {
          return util.getAdmin().getMaster();
        }
        case "getConfiguration" -> {
          return util.getConfiguration();
        }
        case "getClusterMetrics", "getClusterMetricsWithoutCoprocessor" -> {
          return util.getAdmin().getClusterMetrics();
        }
        case "getBackupMasters" -> {
          return util.getAdmin().getClusterMetrics(EnumSet.of(Option.BACKUP_MASTERS)).getBackupMasterNames();
        }
        case "isBalancerOn" -> {
          return util.getAdmin().isBalancerEnabled();
        }
        case "balanceSwitch" -> {
          return util.getAdmin().balancerSwitch(i.getArgument(0), true);
        }
        case "balance" -> {
          return i.getRawArguments().length == 0 ? util.getAdmin().balance(BalanceRequest.defaultInstance())
            : util.getAdmin().balance((BalanceRequest) i.getArgument(0));
        }
        case "setCatalogJanitorEnabled" -> {
          util.getAdmin().catalogJanitorSwitch(i.getArgument(0));
          return null;
        }
        case "getCatalogJanitor" -> {
          return janitor(util);
        }
        case "getClusterId" -> {
          return util.getAdmin().getClusterMetrics(EnumSet.of(Option.CLUSTER_ID)).getClusterId();
        }
        case "getNumberOfOnlineRegions" -> {
          return 0;
        }
        case "getMasterRpcServices" -> {
          return Stubs.master(util);
        }
        case "shutdown" -> {
          util.getAdmin().shutdown();
          return null;
        }
        case "isStopped", "isAborted", "isStopping" -> {
          return false;
        }
        case "getConnection" -> {
          return util.getConnection();
        }
        case "getZooKeeper" -> {
          if (!OwnServer.ON) {
            External.internals("HMaster.getZooKeeper");
          }
          return util.getZooKeeperWatcher();
        }
        case "getServerManager" -> {
          return Mockito.mock(ServerManager.class, Mockito.withSettings().stubOnly().defaultAnswer(j -> {
            Map<ServerName, ServerMetrics> live = util.getAdmin().getClusterMetrics(EnumSet.of(Option.LIVE_SERVERS)).getLiveServerMetrics();
            switch (j.getMethod().getName()) {
              case "getOnlineServers" -> {
                return live;
              }
              case "getOnlineServersList" -> {
                return new ArrayList<>(live.keySet());
              }
              case "getDeadServers" -> {
                return deadServers(util);
              }
              case "areDeadServersInProgress" -> {
                for (Procedure<?> procedure : Regions.procedures(util)) {
                  if (!procedure.isFinished() && procedure.toString().contains("ServerCrash")) {
                    return true;
                  }
                }
                return false;
              }
              case "isServerOnline" -> {
                return live.containsKey(j.getArgument(0));
              }
              default -> {
                throw new AssumptionViolatedException("JVM internals: ServerManager." + j.getMethod().getName());
              }
            }
          }));
        }
        case "getMasterCoprocessorHost" -> {
          return masterCoprocessors();
        }
        case "getLoadBalancer" -> {
          return groupBalancer();
        }
        case "getLastMajorCompactionTimestamp" -> {
          return util.getAdmin().getLastMajorCompactionTimestamp(i.getArgument(0));
        }
        case "getFileSystem" -> {
          if (!OwnServer.ON) {
            External.internals("HMaster.getFileSystem");
          }
          return CommonFSUtils.getRootDir(util.getConfiguration()).getFileSystem(util.getConfiguration());
        }
        case "getWALRootDir" -> {
          return External.walRootDir(util);
        }
        case "getProcedures" -> {
          return Regions.procedures(util);
        }
        case "getHFileCleaner", "getLogCleaner" -> {
          return Mockito.mock(i.getMethod().getReturnType()); // the external server cleans by itself
        }
        // of an empty directory, unless the server is the test's own: a test may clear it, but finds nothing in it
        case "getMasterFileSystem" -> {
          return Mockito.mock(MasterFileSystem.class,
            Mockito.withSettings().stubOnly().defaultAnswer(j -> {
              switch (j.getMethod().getName()) {
                case "getFileSystem":
                case "getWALFileSystem":
                  return OwnServer.ON ? CommonFSUtils.getRootDir(util.getConfiguration()).getFileSystem(util.getConfiguration())
                    : FileSystem.getLocal(util.getConfiguration());
                case "getRootDir":
                case "getWALRootDir":
                  return OwnServer.ON ? CommonFSUtils.getRootDir(util.getConfiguration())
                    : new Path(util.getConfiguration().get("conformance.base"), "root");
                case "getConfiguration":
                  return util.getConfiguration();
                case "logFileSystemState":
                  return null;
                default:
                  throw new AssumptionViolatedException(
                    "JVM internals: MasterFileSystem." + j.getMethod().getName());
              }
            }));
        }
        case "getAssignmentManager" -> {
          return Regions.assignments(util);
        }
        case "getTableStateManager" -> {
          return Mockito.mock(TableStateManager.class,
            Mockito.withSettings().stubOnly().defaultAnswer(j -> {
              if (!j.getMethod().getName().equals("isTableState")) {
                throw new AssumptionViolatedException(
                  "JVM internals: TableStateManager." + j.getMethod().getName());
              }
              TableName t = j.getArgument(0);
              for (TableState.State s : (TableState.State[]) j.getRawArguments()[1]) {
                if (s == TableState.State.ENABLED && util.getAdmin().isTableEnabled(t)
                  || s == TableState.State.DISABLED && util.getAdmin().isTableDisabled(t)) {
                  return true;
                }
              }
              return false;
            }));
        }
        case "toString" -> {
          return "external master";
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: HMaster." + i.getMethod().getName());
        }
      }
    }));
  }

  private static DeadServer deadServers(HBaseTestingUtility u) throws IOException {
    List<ServerName> dead = u.getAdmin().getClusterMetrics(EnumSet.of(Option.DEAD_SERVERS)).getDeadServerNames();
    return Mockito.mock(DeadServer.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "isDeadServer" -> {
          return dead.contains(i.getArgument(0));
        }
        case "isEmpty" -> {
          return dead.isEmpty();
        }
        case "size" -> {
          return dead.size();
        }
        case "copyServerNames" -> {
          return new HashSet<>(dead);
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: DeadServer." + i.getMethod().getName());
        }
      }
    }));
  }

  /** Its look at hbase:meta. What it found is only in the server. */
  private static CatalogJanitor janitor(HBaseTestingUtility u) {
    return Mockito.mock(CatalogJanitor.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "scan" -> {
          return u.getAdmin().runCatalogJanitor();
        }
        case "getEnabled" -> {
          return u.getAdmin().isCatalogJanitorEnabled();
        }
        case "setEnabled" -> {
          return u.getAdmin().catalogJanitorSwitch(i.getArgument(0));
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: CatalogJanitor." + i.getMethod().getName());
        }
      }
    }));
  }

  /** Tests of groups wait until the balancer has read them; a master that answers has. */
  private static RSGroupBasedLoadBalancer groupBalancer() {
    return Mockito.mock(RSGroupBasedLoadBalancer.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      if (!i.getMethod().getName().equals("isOnline")) {
        External.internals("LoadBalancer." + i.getMethod().getName());
      }
      return true;
    }));
  }

  /** Observers of the tests of groups, which no master calls: what they should have seen they have not. */
  private static MasterCoprocessorHost masterCoprocessors() {
    return Mockito.mock(MasterCoprocessorHost.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      boolean ofGroups = i.getMethod().getName().equals("findCoprocessor") && i.getArgument(0) instanceof String name
        && name.startsWith("org.apache.hadoop.hbase.rsgroup.");
      if (!ofGroups) {
        External.internals("HMaster.getMasterCoprocessorHost");
      }
      Class<?> observer = Class.forName(i.getArgument(0));
      return observer.getDeclaredConstructor().newInstance();
    }));
  }
}
