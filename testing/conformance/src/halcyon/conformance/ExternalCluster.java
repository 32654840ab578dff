package halcyon.conformance;

import java.io.IOException;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.MiniHBaseCluster;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The part of the mini cluster that the client API can provide. It is never constructed: a mock of this class calls these
 * methods, and skips the test that calls any other.
 */
public class ExternalCluster extends MiniHBaseCluster {
  public ExternalCluster(Configuration conf) throws IOException, InterruptedException {
    super(conf, 0);
  }

  private Admin admin() throws IOException {
    return External.util.getAdmin();
  }

  @Override
  public boolean isDistributedCluster() {
    return true;
  }

  @Override
  public Configuration getConfiguration() {
    return External.util.getConfiguration();
  }

  @Override
  public Configuration getConf() {
    return External.util.getConfiguration();
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
    return true;
  }

  @Override
  public boolean waitForActiveAndReadyMaster(long timeout) throws IOException {
    return true;
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
    if (major) {
      admin().majorCompact(tableName);
    } else {
      admin().compact(tableName);
    }
  }

  @Override
  public ServerName getServerHoldingRegion(TableName tn, byte[] regionName) throws IOException {
    for (HRegionLocation l : External.util.getConnection().getRegionLocator(tn)
      .getAllRegionLocations()) {
      if (Bytes.equals(l.getRegion().getRegionName(), regionName)) {
        return l.getServerName();
      }
    }
    return null;
  }

  @Override
  public ServerName getServerHoldingMeta() throws IOException {
    return External.util.getConnection().getRegionLocator(TableName.META_TABLE_NAME)
      .getRegionLocation(new byte[0]).getServerName();
  }

  @Override
  public java.util.List<HRegion> getRegions(TableName tableName) {
    try {
      java.util.List<HRegion> out = new java.util.ArrayList<>();
      for (RegionInfo r : admin().getRegions(tableName)) {
        out.add(External.region(r));
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
  public HMaster getMaster() {
    return External.master();
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
