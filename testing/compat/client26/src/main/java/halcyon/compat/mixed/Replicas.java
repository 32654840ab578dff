package halcyon.compat.mixed;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Region replicas: what clients see of them.
 *
 * <pre>
 * HOST:PORT,... walk              reads, alterations, a split, a merge, and replicas of hbase:meta
 * HOST:PORT,... fill TABLE        makes a table with two copies of its region and a row "a"; prints the server of each copy
 * HOST:PORT,... timeline TABLE    reads the row with Consistency.TIMELINE; prints "stale" or "fresh"
 * </pre>
 */
public final class Replicas {
  private static final byte[] FAMILY = bytes("f");
  private static final byte[] QUALIFIER = bytes("q");
  private static final long PATIENCE_MS = 60_000;

  private final Connection connection;
  private final Admin admin;

  private Replicas(Connection connection, Admin admin) {
    this.connection = connection;
    this.admin = admin;
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    conf.setInt("hbase.client.retries.number", 4);
    conf.setInt("hbase.rpc.timeout", 10_000);
    conf.setInt("hbase.client.operation.timeout", 60_000);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      Replicas replicas = new Replicas(connection, admin);
      switch (args[1]) {
        case "walk" -> replicas.walk(TableName.valueOf("replicas"));
        case "fill" -> replicas.fill(TableName.valueOf(args[2]));
        case "timeline" -> replicas.timeline(TableName.valueOf(args[2]));
        default -> throw new IllegalArgumentException(args[1]);
      }
    }
    System.exit(0);
  }

  private void walk(TableName name) throws Exception {
    create(name, 3);
    try (Table table = connection.getTable(name)) {
      put(table, "b");
      check(rows(table, 1).isEmpty(), "what is in the primary's memory is not in a replica");
      admin.flush(name);
      await("the flushed row is in the replicas", () -> rows(table, 1).equals(List.of("b")) && rows(table, 2).size() == 1);
      Result result = table.get(get("b").setReplicaId(2));
      check(result.isStale() && Arrays.equals(result.getValue(FAMILY, QUALIFIER), bytes("b")), "a get of replica 2");
      check(table.get(get("x").setReplicaId(1)).isEmpty(), "a row that is not there");
      check(table.exists(get("b").setReplicaId(1)), "exists of a replica");
      // The client passes over the replica of a get in a list: it asks the primary, and other replicas when that takes 10 ms.
      Result[] results = table.get(List.of(get("b").setReplicaId(1), get("b").setReplicaId(1)));
      check(Arrays.stream(results).noneMatch(Result::isEmpty), "gets of one call: " + Arrays.toString(results));
      System.out.println("gets of one call are stale: " + Arrays.stream(results).map(Result::isStale).toList());
      check(!table.get(get("b").setConsistency(Consistency.STRONG)).isStale(), "the primary's answer is not stale");
      put(table, "c");
      check(rows(table, 0).equals(List.of("b", "c")) && !table.get(get("c").setConsistency(Consistency.STRONG)).isStale(), "the primary has both rows");
      admin.flush(name);
      await("both rows are in the replica", () -> rows(table, 1).equals(List.of("b", "c")));
      admin.majorCompact(name);
      await("replicas follow a compaction", () -> storeFiles(name) == 1 && rows(table, 2).equals(List.of("b", "c")));

      for (int replication : new int[] {1, 2}) {
        admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(name)).setRegionReplication(replication).build());
        awaitLocations(name, replication, 1);
      }
      await("a new replica has all rows", () -> rows(table, 1).equals(List.of("b", "c")));

      admin.split(name, bytes("c"));
      awaitLocations(name, 2, 2);
      await("replicas of both daughters answer", () -> rows(table, 1).equals(List.of("b", "c")));
      List<byte[]> regions = new ArrayList<>();
      for (RegionInfo region : admin.getRegions(name)) { // with the replicas
        if (region.getReplicaId() == 0) {
          regions.add(region.getEncodedNameAsBytes());
        }
      }
      check(regions.size() == 2, "there are two daughters, not " + regions.size());
      admin.majorCompact(name); // a merge wants no references
      await("regions are merged", () -> {
        admin.mergeRegionsAsync(regions.toArray(new byte[0][]), false).get(60, TimeUnit.SECONDS);
        return true;
      });
      awaitLocations(name, 2, 1);
      await("the replica of the merged region answers", () -> rows(table, 1).equals(List.of("b", "c")));

      admin.disableTable(name);
      admin.enableTable(name);
      awaitLocations(name, 2, 1);
      await("after it was enabled", () -> rows(table, 1).equals(List.of("b", "c")));
      admin.snapshot("replicas_s", name);
      TableName clone = TableName.valueOf("replicas_c");
      admin.cloneSnapshot("replicas_s", clone);
      awaitLocations(clone, 2, 1);
      try (Table cloned = connection.getTable(clone)) {
        await("the replica of a clone answers", () -> rows(cloned, 1).equals(List.of("b", "c")));
      }
      drop(clone);
      admin.deleteSnapshot("replicas_s");
      admin.disableTable(name);
      admin.truncateTable(name, true);
      awaitLocations(name, 2, 1);
      check(rows(table, 1).isEmpty(), "the replica of a truncated table");
    }
    drop(name);
    for (int replication : new int[] {3, 1}) {
      admin.modifyTable(
          TableDescriptorBuilder.newBuilder(admin.getDescriptor(TableName.META_TABLE_NAME)).setRegionReplication(replication).build());
      awaitLocations(TableName.META_TABLE_NAME, replication, 1);
    }
    System.out.println("walk: passed");
  }

  private void fill(TableName name) throws Exception {
    create(name, 2);
    try (Table table = connection.getTable(name)) {
      put(table, "a");
      admin.flush(name);
      await("the row is in the replica", () -> rows(table, 1).equals(List.of("a")));
    }
    for (HRegionLocation location : locations(name)) {
      System.out.println(location.getRegion().getReplicaId() + " " + location.getServerName());
    }
  }

  private void timeline(TableName name) throws Exception {
    try (Table table = connection.getTable(name)) {
      Result result = table.get(get("a").setConsistency(Consistency.TIMELINE));
      check(Arrays.equals(result.getValue(FAMILY, QUALIFIER), bytes("a")), "a timeline read");
      System.out.println(result.isStale() ? "stale" : "fresh");
    }
  }

  private void create(TableName name, int replication) throws Exception {
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
        .setRegionReplication(replication).build());
    awaitLocations(name, replication, 1);
  }

  private void drop(TableName name) throws Exception {
    admin.disableTable(name);
    admin.deleteTable(name);
  }

  private void awaitLocations(TableName name, int replication, int regions) throws Exception {
    await(name + " has " + replication + " copies of " + regions + " regions", () -> {
      Set<String> found = new HashSet<>();
      for (HRegionLocation location : locations(name)) {
        found.add(location.getRegion().getRegionNameAsString());
      }
      return found.size() == replication * regions;
    });
  }

  private List<HRegionLocation> locations(TableName name) throws Exception {
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      locator.clearRegionLocationCache();
      List<HRegionLocation> found = new ArrayList<>();
      for (HRegionLocation location : locator.getAllRegionLocations()) {
        if (location != null && location.getServerName() != null) {
          found.add(location);
        }
      }
      return found;
    }
  }

  private int storeFiles(TableName name) throws Exception {
    int count = 0;
    for (var server : admin.getRegionServers()) {
      for (var region : admin.getRegionMetrics(server, name)) {
        if (RegionInfo.parseRegionName(region.getRegionName()).length == 3 && !region.getNameAsString().contains("_0")) {
          count += region.getStoreFileCount();
        }
      }
    }
    return count;
  }

  private static List<String> rows(Table table, int replica) throws Exception {
    List<String> rows = new ArrayList<>();
    Scan scan = new Scan().setReplicaId(replica);
    if (replica > 0) {
      scan.setConsistency(Consistency.TIMELINE);
    }
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        check(result.isStale() == (replica > 0), "a scan of replica " + replica + " is stale: " + result.isStale());
        rows.add(new String(result.getRow(), StandardCharsets.UTF_8));
      }
    }
    return rows;
  }

  private static Get get(String row) {
    return new Get(bytes(row)).setConsistency(Consistency.TIMELINE);
  }

  private static void put(Table table, String row) throws Exception {
    table.put(new Put(bytes(row)).addColumn(FAMILY, QUALIFIER, bytes(row)));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  private interface Question {
    boolean ask() throws Exception;
  }

  /** Asks until the answer is yes. An exception is a no, until time is up. */
  private static void await(String what, Question question) throws Exception {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
    Exception last = null;
    while (System.nanoTime() < end) {
      try {
        if (question.ask()) {
          System.out.println(what);
          return;
        }
        last = null;
      } catch (Exception e) {
        last = e;
      }
      Thread.sleep(200);
    }
    throw new AssertionError("in vain: " + what, last);
  }
}
