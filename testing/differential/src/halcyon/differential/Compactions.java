package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.Set;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Compactions that are over when the call returns. Servers have them switched off but for that time, so that they compact nothing by
 * themselves.
 */
final class Compactions {
  private static final long WAIT_MS = 20_000;

  private Compactions() {}

  /** A compaction while compactions are switched on. */
  private interface Work {
    void run() throws IOException, InterruptedException;
  }

  private static void switchedOn(Side side, Work work) throws IOException, InterruptedException {
    // Halcyon keeps what it would have compacted meanwhile, and HBase forgets it.
    for (ServerName server : side.admin.getRegionServers()) side.admin.clearCompactionQueues(server, Set.of("long", "short"));
    side.admin.compactionSwitch(true, List.of());
    try {
      work.run();
    } finally {
      side.admin.compactionSwitch(false, List.of());
    }
  }

  /** All store files of before are gone. */
  static void major(Side side, TableName table, byte[] family) throws IOException, InterruptedException {
    switchedOn(side, () -> {
      if (family != null) minorAlone(side, table); // Halcyon would do it for the other families
      majorAlone(side, table, family);
    });
  }

  private static void majorAlone(Side side, TableName table, byte[] family) throws IOException, InterruptedException {
    Set<String> before = files(side, table, family);
    askMajor(side, table, family);
    long end = System.currentTimeMillis() + WAIT_MS;
    while (System.currentTimeMillis() < end) {
      Set<String> left = new TreeSet<>(files(side, table, family));
      left.retainAll(before);
      if (left.isEmpty() && side.admin.getCompactionState(table) == CompactionState.NONE) return;
      Thread.sleep(20);
    }
    throw new IOException("the major compaction of " + table + " did not end on " + side.name + ": " + files(side, table, family));
  }

  /** Not of stores without files: in HBase their next compaction is a major one then, whenever it comes. */
  private static void askMajor(Side side, TableName table, byte[] family) throws IOException {
    boolean[] isEmpty = {false};
    counts(side, table, family, (region, settings, count) -> isEmpty[0] |= count == 0);
    if (isEmpty[0]) {
      counts(side, table, family, (region, settings, count) -> {
        if (count > 0) side.admin.majorCompactRegion(region, settings.getName());
      });
    } else if (family == null) {
      side.admin.majorCompact(table);
    } else {
      side.admin.majorCompact(table, family);
    }
  }

  /**
   * After a split or merge. A marker may stay in the compaction of references because of an older put in the other half of a file, and go in
   * the next one. So there are two more without references.
   */
  static void withoutReferences(Side side, TableName table) throws IOException, InterruptedException {
    switchedOn(side, () -> {
      for (int times = 0; times < 3; times++) majorAlone(side, table, null);
    });
  }

  /**
   * Minor compactions of all families, until no store has as many files as it wants to compact. Halcyon continues to that point by itself, and
   * HBase is asked again. Families that do not say how many files they want to compact have none. The numbers of files are no answer: where
   * a flush leaves all cells out, HBase writes a file without any.
   */
  static void minor(Side side, TableName table) throws IOException, InterruptedException {
    switchedOn(side, () -> minorAlone(side, table));
  }

  private static void minorAlone(Side side, TableName table) throws IOException, InterruptedException {
    long end = System.currentTimeMillis() + WAIT_MS;
    side.admin.compact(table);
    for (int[] wanted = wanted(side, table); wanted[0] > 0; wanted = wanted(side, table)) {
      int before = wanted[1];
      while (wanted(side, table)[1] == before || side.admin.getCompactionState(table) != CompactionState.NONE) {
        if (System.currentTimeMillis() > end) throw new IOException("no minor compaction of " + table + " on " + side.name);
        Thread.sleep(20);
      }
      side.admin.compact(table);
    }
  }

  /** How many stores have enough files for a minor compaction, and how many files there are in all. */
  private static int[] wanted(Side side, TableName table) throws IOException {
    int[] counts = {0, 0};
    counts(side, table, null, (region, settings, count) -> {
      String min = settings.getConfigurationValue(Families.COMPACTION_MIN);
      if (min != null && count >= Integer.parseInt(min)) counts[0]++;
      counts[1] += count;
    });
    return counts;
  }

  private interface Counted {
    void store(byte[] region, ColumnFamilyDescriptor family, int count) throws IOException;
  }

  /** The number of files of each store, by region and family. */
  private static void counts(Side side, TableName table, byte[] family, Counted counted) throws IOException {
    try (RegionLocator locator = side.connection.getRegionLocator(table)) {
      for (HRegionLocation location : locator.getAllRegionLocations()) {
        AdminProtos.AdminService.BlockingInterface server = side.cluster().getAdmin(location.getServerName());
        for (ColumnFamilyDescriptor each : side.admin.getDescriptor(table).getColumnFamilies()) {
          if (family != null && !Bytes.equals(family, each.getName())) continue;
          byte[] region = location.getRegion().getRegionName();
          counted.store(region, each, ProtobufUtil.getStoreFiles(server, region, each.getName()).size());
        }
      }
    }
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
        AdminProtos.AdminService.BlockingInterface server = side.cluster().getAdmin(location.getServerName());
        files.addAll(ProtobufUtil.getStoreFiles(server, location.getRegion().getRegionName(), families.get(0)));
        for (byte[] more : families.subList(1, families.size())) {
          files.addAll(ProtobufUtil.getStoreFiles(server, location.getRegion().getRegionName(), more));
        }
      }
    }
    return files;
  }
}
