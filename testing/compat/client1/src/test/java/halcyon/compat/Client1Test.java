package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HColumnDescriptor;
import org.apache.hadoop.hbase.HTableDescriptor;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The main verbs with clients of HBase 1, run by the modules client14 and client17. These clients read the states of tables
 * from ZooKeeper, where HBase 2 mirrors them.
 */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class Client1Test {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final TableName NAME = TableName.valueOf("client1_" + Long.toString(System.nanoTime(), 36));
  private static Connection connection;
  private static Admin admin;
  private static Table table;

  @BeforeAll
  static void connect() throws IOException {
    Configuration conf = HBaseConfiguration.create();
    String[] zk = System.getProperty("compat.zk", "").split(":");
    if (zk.length != 2) {
      throw new IllegalStateException("say where the server is: -Dcompat.zk=host:port");
    }
    conf.set("hbase.zookeeper.quorum", zk[0]);
    conf.set("hbase.zookeeper.property.clientPort", zk[1]);
    conf.setInt("hbase.client.retries.number", 6);
    conf.setInt("hbase.client.pause", 50);
    conf.setInt("hbase.rpc.timeout", 20_000);
    conf.setInt("hbase.client.operation.timeout", 40_000);
    connection = ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
    admin.createTable(descriptor(NAME), new byte[][] {Bytes.toBytes("m")});
    table = connection.getTable(NAME);
  }

  @AfterAll
  static void close() throws IOException {
    drop(NAME);
    table.close();
    admin.close();
    connection.close();
  }

  private static HTableDescriptor descriptor(TableName name) {
    HTableDescriptor descriptor = new HTableDescriptor(name);
    descriptor.addFamily(new HColumnDescriptor(F).setMaxVersions(3));
    return descriptor;
  }

  private static void drop(TableName name) throws IOException {
    if (!admin.isTableDisabled(name)) {
      admin.disableTable(name);
    }
    admin.deleteTable(name);
    assertFalse(admin.tableExists(name));
  }

  private static Put put(String row, String value) {
    return new Put(Bytes.toBytes(row)).addColumn(F, Q, Bytes.toBytes(value));
  }

  private static String value(String row) throws IOException {
    return Bytes.toString(table.get(new Get(Bytes.toBytes(row))).getValue(F, Q));
  }

  @Test
  void rows() throws Exception {
    for (String row : List.of("row-a", "z-row")) {
      table.put(put(row, row + "!"));
      assertEquals(row + "!", value(row));
      table.delete(new Delete(Bytes.toBytes(row)));
      assertTrue(table.get(new Get(Bytes.toBytes(row))).isEmpty());
    }
  }

  @Test
  void scans() throws Exception {
    for (int i = 0; i < 20; i++) {
      table.put(put((i % 2 == 0 ? "a" : "z") + "-scan-" + i, "v" + i));
    }
    assertEquals(10, count(new Scan(Bytes.toBytes("a-scan"), Bytes.toBytes("a-scao")).setCaching(3)));
    assertEquals(10, count(new Scan(Bytes.toBytes("z-scao"), Bytes.toBytes("z-scan")).setReversed(true)));
  }

  private static int count(Scan scan) throws IOException {
    int count = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      while (scanner.next() != null) {
        count++;
      }
    }
    return count;
  }

  @Test
  void atomicOnesAndBatches() throws Exception {
    byte[] row = Bytes.toBytes("atomic");
    assertEquals(3, table.incrementColumnValue(row, F, Bytes.toBytes("n"), 3));
    assertEquals("x", Bytes.toString(table.append(new Append(row).add(F, Q, Bytes.toBytes("x"))).getValue(F, Q)));
    assertTrue(table.checkAndPut(row, F, Q, Bytes.toBytes("x"), put("atomic", "y")));
    assertFalse(table.checkAndPut(row, F, Q, Bytes.toBytes("x"), put("atomic", "z")));
    Object[] results = new Object[2];
    table.batch(Arrays.<Row>asList(new Get(row), put("z-batch", "v")), results);
    assertArrayEquals(Bytes.toBytes("y"), ((Result) results[0]).getValue(F, Q));
    assertEquals("v", value("z-batch"));
  }

  @Test
  void statesOfTables() throws Exception {
    TableName name = TableName.valueOf(NAME.getNameAsString() + "_states");
    assertFalse(admin.tableExists(name));
    admin.createTable(descriptor(name));
    assertTrue(admin.isTableEnabled(name));
    assertFalse(admin.isTableDisabled(name));
    assertTrue(admin.isTableAvailable(name));
    admin.disableTable(name);
    assertTrue(admin.isTableDisabled(name));
    assertFalse(admin.isTableEnabled(name));
    admin.addColumn(name, new HColumnDescriptor("g"));
    admin.enableTable(name);
    assertTrue(admin.isTableEnabled(name));
    drop(name);
    assertThrows(TableNotFoundException.class, () -> admin.getTableDescriptor(name));
  }

  @Test
  void flushesCompactionsAndSnapshots() throws Exception {
    table.put(put("flushed", "v"));
    admin.flush(NAME);
    admin.majorCompact(NAME);
    assertEquals("v", value("flushed"));
    String name = "snap_" + NAME.getNameAsString();
    admin.snapshot(name, NAME);
    assertTrue(admin.listSnapshots().stream().anyMatch(each -> each.getName().equals(name)));
    admin.deleteSnapshot(name);
  }

  @Test
  void whatTheClusterSays() throws Exception {
    assertTrue(Arrays.asList(admin.listTableNames()).contains(NAME));
    assertEquals(2, admin.getTableRegions(NAME).size());
    assertEquals(2, connection.getRegionLocator(NAME).getAllRegionLocations().size());
    assertEquals(Integer.getInteger("compat.servers", 1), admin.getClusterStatus().getServersSize());
    String namespace = NAME.getNameAsString() + "_ns";
    admin.createNamespace(NamespaceDescriptor.create(namespace).build());
    awaitNamespace(namespace);
    TableName inside = TableName.valueOf(namespace, "t");
    admin.createTable(descriptor(inside));
    assertTrue(admin.isTableEnabled(inside));
    drop(inside);
    admin.deleteNamespace(namespace);
  }

  /** Clients of HBase 1 do not wait for the procedure, and a master of HBase 2 answers before it ends. */
  private static void awaitNamespace(String namespace) throws Exception {
    for (long until = System.currentTimeMillis() + 30_000;; Thread.sleep(20)) {
      try {
        admin.getNamespaceDescriptor(namespace);
        return;
      } catch (NamespaceNotFoundException absent) {
        if (System.currentTimeMillis() > until) {
          throw absent;
        }
      }
    }
  }
}
