import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.master.RegionState;
import org.apache.hadoop.hbase.zookeeper.ClusterStatusTracker;
import org.apache.hadoop.hbase.zookeeper.MasterAddressTracker;
import org.apache.hadoop.hbase.zookeeper.MetaTableLocator;
import org.apache.hadoop.hbase.zookeeper.ZKClusterId;
import org.apache.hadoop.hbase.zookeeper.ZKWatcher;

/**
 * Reads with HBase's own classes what a master has written into ZooKeeper.
 *
 * <pre>
 * java ReadMaster.java HOST:PORT BASE_PATH
 * </pre>
 */
public final class ReadMaster {
  private ReadMaster() {}

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration(false);
    conf.set("hbase.zookeeper.quorum", args[0]);
    conf.set("zookeeper.znode.parent", args[1]);
    try (ZKWatcher watcher = new ZKWatcher(conf, "ReadMaster", null)) {
      System.out.println("master " + MasterAddressTracker.getMasterAddress(watcher) + " "
        + MasterAddressTracker.getMasterInfoPort(watcher));
      for (ServerName backup : MasterAddressTracker.getBackupMastersAndRenewWatch(watcher)) {
        System.out.println("backup " + backup + " "
          + MasterAddressTracker.getBackupMasterInfoPort(watcher, backup));
      }
      RegionState meta = MetaTableLocator.getMetaRegionState(watcher);
      System.out.println("meta " + meta.getServerName() + " " + meta.getState());
      System.out.println("cluster " + ZKClusterId.readClusterIdZNode(watcher));
      ClusterStatusTracker status = new ClusterStatusTracker(watcher, null);
      status.start();
      System.out.println("running " + status.isClusterUp());
    }
    System.exit(0); // HBase's threads would keep the process
  }
}
