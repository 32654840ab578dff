package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.Set;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos;

/** Major compactions that are over when the call returns: the store files of before are gone. */
final class Compactions {
  private static final long WAIT_MS = 20_000;

  private Compactions() {}

  static void major(Side side, TableName table, byte[] family) throws IOException, InterruptedException {
    Set<String> before = files(side, table, family);
    if (family == null) side.admin.majorCompact(table);
    else side.admin.majorCompact(table, family);
    long end = System.currentTimeMillis() + WAIT_MS;
    while (System.currentTimeMillis() < end) {
      Set<String> left = new TreeSet<>(files(side, table, family));
      left.retainAll(before);
      if (left.isEmpty() && side.admin.getCompactionState(table) == CompactionState.NONE) return;
      Thread.sleep(20);
    }
    throw new IOException("the major compaction of " + table + " did not end on " + side.name + ": " + files(side, table, family));
  }

  /**
   * After a split or merge: servers compact references by themselves, sooner or later than asked. A marker may stay in that compaction
   * because of an older put in the other half of a file, and go in the next one. So there are two more without references.
   */
  static void withoutReferences(Side side, TableName table) throws IOException, InterruptedException {
    long end = System.currentTimeMillis() + WAIT_MS;
    while (System.currentTimeMillis() < end && files(side, table, null).stream().anyMatch(Compactions::isReference)) Thread.sleep(20);
    major(side, table, null);
    major(side, table, null);
  }

  /** A reference has the name of a file, a dot and the name of a region. */
  private static boolean isReference(String path) {
    return path.substring(path.lastIndexOf('/') + 1).indexOf('.') > 0;
  }

  /**
   * Waits until regions may be split and merged again: HBase refuses that as long as references of a split are in their directories, or
   * the catalog names parents of a merge.
   */
  static void settle(Side side) throws IOException, InterruptedException {
    Thread.sleep(1500);
    for (int tries = 0; tries < 10 && side.admin.runCatalogJanitor() == 0; tries++) Thread.sleep(100);
  }

  /** Names of the store files of a table or of one of its families. */
  private static Set<String> files(Side side, TableName table, byte[] family) throws IOException {
    List<byte[]> families = new ArrayList<>();
    if (family != null) families.add(family);
    else for (ColumnFamilyDescriptor each : side.admin.getDescriptor(table).getColumnFamilies()) families.add(each.getName());
    Set<String> files = new TreeSet<>();
    try (RegionLocator locator = side.connection.getRegionLocator(table)) {
      for (HRegionLocation location : locator.getAllRegionLocations()) {
        AdminProtos.AdminService.BlockingInterface server = ((ClusterConnection) side.connection).getAdmin(location.getServerName());
        files.addAll(ProtobufUtil.getStoreFiles(server, location.getRegion().getRegionName(), families.get(0)));
        for (byte[] more : families.subList(1, families.size())) {
          files.addAll(ProtobufUtil.getStoreFiles(server, location.getRegion().getRegionName(), more));
        }
      }
    }
    return files;
  }
}
