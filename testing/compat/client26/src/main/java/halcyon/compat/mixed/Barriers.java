package halcyon.compat.mixed;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.SnapshotType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.VersionInfo;

/**
 * Procedures that HBase's master coordinates through znodes.
 *
 * <pre>
 * HOST:PORT,... old TABLE    snapshot and flush by a client before 2.6, which must be the one on the class path
 * HOST:PORT,... exec TABLE   the same by Admin.execProcedure of any client; TABLE has the families f and g,
 *                          no compactions, and four regions
 * </pre>
 *
 * Rows that are written after a snapshot must not be in its clone.
 */
public final class Barriers {
  /** A master that waits for a server that takes no part gives up after a minute (flush) or five (snapshot). */
  private static final long SECONDS_MAX = 40;

  private final Connection connection;
  private final Admin admin;
  private final TableName table;

  private Barriers(Connection connection, Admin admin, TableName table) {
    this.connection = connection;
    this.admin = admin;
    this.table = table;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 3) {
      System.err.println("HOST:PORT,... old|exec TABLE");
      System.exit(64);
    }
    System.out.println("client " + VersionInfo.getVersion());
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      Barriers barriers = new Barriers(connection, admin, TableName.valueOf(args[2]));
      switch (args[1]) {
        case "old" -> barriers.old();
        case "exec" -> barriers.exec();
        default -> throw new IllegalArgumentException(args[1]);
      }
    }
    System.exit(0);
  }

  private void old() throws Exception {
    String version = VersionInfo.getVersion();
    check(version.startsWith("2.4.") || version.startsWith("2.5."), "a client before 2.6, not " + version);
    snapshotAndClone("old", name -> admin.snapshot(name, table));
    snapshotAndClone("skipflush", name -> admin.snapshot(name, table, SnapshotType.SKIPFLUSH));
    expectFlushed("flush", 2, () -> admin.flush(table));
  }

  private void exec() throws Exception {
    snapshotAndClone("exec", name -> {
      admin.execProcedure("online-snapshot", name, Map.of("table", table.getNameAsString()));
    });
    expectFlushed("flush-table-proc", 2, () -> flush(Map.of()));
    expectFlushed("flush-table-proc of f", 1, () -> flush(Map.of("family", "f")));
    expectFlushed("flush-table-proc of f,g", 2, () -> flush(Map.of("family", "f,g")));
  }

  private void flush(Map<String, String> properties) throws Exception {
    admin.execProcedure("flush-table-proc", table.getNameAsString(), properties);
  }

  private interface Step {
    void run() throws Exception;
  }

  private interface TakeSnapshot {
    void named(String name) throws Exception;
  }

  private void snapshotAndClone(String name, TakeSnapshot snapshot) throws Exception {
    put("of " + name, "f");
    Map<String, String> before = rows(table);
    String what = "snapshot " + table + "-" + name;
    timed(what, () -> snapshot.named(table + "-" + name));
    put("after " + name, "f");
    TableName clone = TableName.valueOf(table + "-" + name);
    admin.cloneSnapshot(table + "-" + name, clone);
    Map<String, String> cloned = rows(clone);
    if (name.equals("skipflush")) {
      check(cloned.size() < before.size(), what + " has what was in memory only");
      cloned.forEach((row, value) -> check(value.equals(before.get(row)), what + ": row " + row));
    } else {
      check(cloned.equals(before), what + ": " + cloned.size() + " rows of " + before.size() + ", or other values");
    }
    System.out.println(what + ": " + cloned.size() + " rows of " + before.size());
    admin.disableTable(clone);
    admin.deleteTable(clone);
    admin.deleteSnapshot(table + "-" + name);
  }

  /** All regions have something in memory of both families before; afterwards they have a file more of each flushed one. */
  private void expectFlushed(String what, int families, Step flush) throws Exception {
    admin.flush(table);
    put("of " + what, "f");
    put("of " + what, "g");
    Map<String, Integer> before = storeFiles();
    timed(what, flush);
    Map<String, Integer> after = storeFiles();
    before.replaceAll((region, files) -> files + families);
    check(after.equals(before), what + ": store files are " + after + ", not " + before);
    System.out.println(what + ": " + families + " new files in each of " + after.size() + " regions");
  }

  /** Of each region at its server. Compactions are off. */
  private Map<String, Integer> storeFiles() throws Exception {
    Map<String, Integer> found = new TreeMap<>();
    for (ServerName server : admin.getRegionServers()) {
      for (RegionMetrics region : admin.getRegionMetrics(server, table)) {
        found.put(server + " " + region.getNameAsString(), region.getStoreFileCount());
      }
    }
    check(found.size() == 4, "four regions, not " + found.keySet());
    return found;
  }

  /** A row for each region. */
  private void put(String value, String family) throws Exception {
    List<Put> puts = new ArrayList<>();
    try (Table rows = connection.getTable(table); var locator = connection.getRegionLocator(table)) {
      for (byte[] start : locator.getStartKeys()) {
        byte[] row = Bytes.add(start, Bytes.toBytes("-" + value.replace(' ', '-')));
        puts.add(new Put(row).addColumn(Bytes.toBytes(family), Bytes.toBytes("q"), Bytes.toBytes(value)));
      }
      rows.put(puts);
    }
  }

  private Map<String, String> rows(TableName of) throws Exception {
    Map<String, String> found = new TreeMap<>();
    try (Table rows = connection.getTable(of); ResultScanner scanner = rows.getScanner(new Scan())) {
      for (Result row : scanner) {
        StringBuilder cells = new StringBuilder();
        row.listCells().forEach(cell -> cells.append(Bytes.toString(CellUtil.cloneFamily(cell))).append('=')
            .append(Bytes.toString(CellUtil.cloneValue(cell))).append('@').append(cell.getTimestamp()).append(' '));
        found.put(Bytes.toStringBinary(row.getRow()), cells.toString());
      }
    }
    return found;
  }

  private static void timed(String what, Step step) throws Exception {
    long begin = System.nanoTime();
    step.run();
    long millis = (System.nanoTime() - begin) / 1_000_000;
    System.out.println(what + ": " + millis + " ms");
    check(millis < SECONDS_MAX * 1000, what + " took longer than " + SECONDS_MAX + " s");
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
