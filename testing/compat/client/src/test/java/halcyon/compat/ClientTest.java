package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The main verbs, run by the modules client24 and client30 with their clients. Each finds the cluster in the way that is its default:
 * 2.4 by ZooKeeper, 3.0 by the RPC registry.
 */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ClientTest {
  private static final byte[] F = bytes("f");
  private static final byte[] Q = bytes("q");
  private static final TableName NAME = TableName.valueOf("client_" + Long.toString(System.nanoTime(), 36));
  private static Configuration conf;
  private static Connection connection;
  private static Admin admin;
  private static Table table;

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @BeforeAll
  static void connect() throws IOException {
    conf = HBaseConfiguration.create();
    String[] zk = System.getProperty("compat.zk", "").split(":");
    String registry = System.getProperty("compat.registry", "");
    if (zk.length != 2 || !registry.contains(":")) {
      throw new IllegalStateException("say where the server is: -Dcompat.zk=host:port -Dcompat.registry=host:port");
    }
    conf.set("hbase.zookeeper.quorum", zk[0]);
    conf.set("hbase.zookeeper.property.clientPort", zk[1]);
    conf.set("hbase.client.bootstrap.servers", registry);
    conf.setInt("hbase.client.retries.number", 6);
    conf.setInt("hbase.client.pause", 50);
    conf.setInt("hbase.rpc.timeout", 20_000);
    conf.setInt("hbase.client.operation.timeout", 40_000);
    connection = ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
    admin.createTable(descriptor(NAME), new byte[][] {bytes("g"), bytes("p")});
    table = connection.getTable(NAME);
  }

  @AfterAll
  static void close() throws IOException {
    admin.disableTable(NAME);
    admin.deleteTable(NAME);
    assertFalse(admin.tableExists(NAME));
    table.close();
    admin.close();
    connection.close();
  }

  private static TableDescriptor descriptor(TableName name) {
    return TableDescriptorBuilder.newBuilder(name)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("g")).build();
  }

  private static Put put(String row, String value) {
    return new Put(bytes(row)).addColumn(F, Q, bytes(value));
  }

  private static String value(String row) throws IOException {
    return Bytes.toString(table.get(new Get(bytes(row))).getValue(F, Q));
  }

  private static <T extends Throwable> void assertFails(Class<T> expected, org.junit.jupiter.api.function.Executable action) {
    try {
      action.execute();
    } catch (Throwable thrown) {
      for (Throwable t = thrown; t != null; t = t.getCause()) {
        if (expected.isInstance(t)) {
          return;
        }
      }
      throw new AssertionError("expected " + expected.getName(), thrown);
    }
    throw new AssertionError("expected " + expected.getName() + ", nothing was thrown");
  }

  @Test
  void tables() throws Exception {
    assertTrue(admin.tableExists(NAME));
    assertTrue(admin.isTableEnabled(NAME));
    assertTrue(Arrays.asList(admin.listTableNames()).contains(NAME));
    assertEquals(3, admin.getDescriptor(NAME).getColumnFamily(F).getMaxVersions());
    assertEquals(3, admin.getRegions(NAME).size());
    assertEquals(3, connection.getRegionLocator(NAME).getAllRegionLocations().size());
    assertFails(TableExistsException.class, () -> admin.createTable(descriptor(NAME)));
    assertFails(TableNotFoundException.class, () -> admin.getDescriptor(TableName.valueOf("no_such_table")));
    assertFalse(admin.getClusterMetrics().getLiveServerMetrics().isEmpty());
    assertNotNull(admin.getClusterMetrics().getClusterId());

    TableName other = TableName.valueOf(NAME.getNameAsString() + "_2");
    admin.createTable(descriptor(other));
    admin.addColumnFamily(other, ColumnFamilyDescriptorBuilder.of("h"));
    assertTrue(admin.getDescriptor(other).hasColumnFamily(bytes("h")));
    admin.disableTable(other);
    assertTrue(admin.isTableDisabled(other));
    admin.truncateTable(other, false);
    admin.disableTable(other);
    admin.deleteTable(other);
    assertFalse(admin.tableExists(other));
  }

  @Test
  void namespaces() throws Exception {
    String name = NAME.getNameAsString() + "_ns";
    admin.createNamespace(NamespaceDescriptor.create(name).build());
    assertTrue(Arrays.stream(admin.listNamespaceDescriptors()).anyMatch(each -> each.getName().equals(name)));
    admin.deleteNamespace(name);
    assertFalse(Arrays.stream(admin.listNamespaceDescriptors()).anyMatch(each -> each.getName().equals(name)));
  }

  @Test
  void rows() throws Exception {
    for (String row : List.of("row-a", "g-row-b", "z-row-c")) {
      table.put(put(row, row + "!"));
      assertEquals(row + "!", value(row));
      assertTrue(table.exists(new Get(bytes(row))));
      table.delete(new Delete(bytes(row)));
      assertTrue(table.get(new Get(bytes(row))).isEmpty());
    }
    table.put(List.of(put("list-1", "1"), put("z-list-2", "2")));
    Result[] results = table.get(List.of(new Get(bytes("z-list-2")), new Get(bytes("list-1"))));
    assertArrayEquals(bytes("2"), results[0].getValue(F, Q));
    assertArrayEquals(bytes("1"), results[1].getValue(F, Q));
    for (int i = 1; i <= 4; i++) {
      table.put(new Put(bytes("versions")).addColumn(F, Q, i, bytes("v" + i)));
    }
    assertEquals(3, table.get(new Get(bytes("versions")).readAllVersions()).size());
    table.delete(new Delete(bytes("versions")).addColumn(F, Q));
    assertEquals("v3", value("versions"));
  }

  @Test
  void scans() throws Exception {
    List<Put> puts = new ArrayList<>();
    for (char c = 'a'; c <= 'z'; c++) {
      for (int i = 0; i < 10; i++) {
        puts.add(put(c + "-scan-" + i, c + "" + i));
      }
    }
    table.put(puts);
    assertEquals(30, count(new Scan().withStartRow(bytes("f-scan")).withStopRow(bytes("i-scan"))));
    assertEquals(30, count(new Scan().withStartRow(bytes("f-scan")).withStopRow(bytes("i-scan")).setCaching(4)));
    assertEquals(30, count(new Scan().withStartRow(bytes("i-scan")).withStopRow(bytes("f-scan")).setReversed(true)));
    assertEquals(7, count(new Scan().withStartRow(bytes("f-scan-5")).setLimit(7)));
    assertEquals(10, count(new Scan().setFilter(new PrefixFilter(bytes("m-scan")))));
    assertEquals(1, count(new Scan().setFilter(new FilterList(new PrefixFilter(bytes("m-scan")),
        new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(bytes("m4")))))));
    admin.flush(NAME);
    assertEquals(30, count(new Scan().withStartRow(bytes("f-scan")).withStopRow(bytes("i-scan")).setMaxResultSize(1)));
  }

  private static int count(Scan scan) throws IOException {
    int count = 0;
    byte[] last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        if (last != null) {
          assertTrue(Bytes.compareTo(last, result.getRow()) * (scan.isReversed() ? -1 : 1) < 0);
        }
        last = result.getRow();
        count++;
      }
    }
    return count;
  }

  @Test
  void atomicOnes() throws Exception {
    byte[] row = bytes("atomic");
    assertEquals(3, table.incrementColumnValue(row, F, bytes("n"), 3));
    assertEquals(5, Bytes.toLong(table.increment(new Increment(row).addColumn(F, bytes("n"), 2))
        .getValue(F, bytes("n"))));
    assertEquals("x", Bytes.toString(table.append(new Append(row).addColumn(F, Q, bytes("x"))).getValue(F, Q)));
    assertTrue(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, Q, bytes("x")).build(put("atomic", "y"))).isSuccess());
    assertFalse(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, Q, bytes("x")).build(put("atomic", "z"))).isSuccess());
    assertEquals("y", value("atomic"));
    CheckAndMutateResult result = table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifNotExists(F, bytes("none")).build(new Increment(row).addColumn(F, bytes("n"), 1)));
    assertEquals(6, Bytes.toLong(result.getResult().getValue(F, bytes("n"))));
    RowMutations mutations = new RowMutations(row);
    mutations.add(new Put(row).addColumn(F, bytes("a"), bytes("1")));
    mutations.add(new Delete(row).addColumns(F, bytes("missing")));
    table.mutateRow(mutations);
    assertArrayEquals(bytes("1"), table.get(new Get(row)).getValue(F, bytes("a")));
  }

  @Test
  void batches() throws Exception {
    table.put(put("batch-get", "got"));
    List<Row> actions = List.of(put("batch-put", "1"), new Get(bytes("batch-get")), new Delete(bytes("batch-none")),
        new Increment(bytes("z-batch")).addColumn(F, Q, 4));
    Object[] results = new Object[4];
    table.batch(actions, results);
    assertArrayEquals(bytes("got"), ((Result) results[1]).getValue(F, Q));
    assertEquals(4, Bytes.toLong(((Result) results[3]).getValue(F, Q)));
    try (BufferedMutator mutator = connection.getBufferedMutator(NAME)) {
      for (int i = 0; i < 100; i++) {
        mutator.mutate(put("buffered-" + i, "v" + i));
      }
    }
    assertEquals("v99", value("buffered-99"));
    assertEquals(100, count(new Scan().setFilter(new PrefixFilter(bytes("buffered-")))));
  }

  @Test
  void asynchronous() throws Exception {
    try (AsyncConnection async = ConnectionFactory.createAsyncConnection(conf).get(30, TimeUnit.SECONDS)) {
      var own = async.getTable(NAME);
      own.put(put("async", "v")).get(30, TimeUnit.SECONDS);
      assertArrayEquals(bytes("v"), own.get(new Get(bytes("async"))).get(30, TimeUnit.SECONDS).getValue(F, Q));
      assertTrue(async.getAdmin().tableExists(NAME).get(30, TimeUnit.SECONDS));
      assertEquals(3, async.getAdmin().getRegions(NAME).get(30, TimeUnit.SECONDS).size());
    }
  }

  /** The connection goes on with locations that it has of regions which are gone. */
  @Test
  void splitAndMerge() throws Exception {
    TableName name = TableName.valueOf(NAME.getNameAsString() + "_regions");
    admin.createTable(descriptor(name));
    try (Table own = connection.getTable(name)) {
      for (int i = 0; i < 100; i++) {
        own.put(put(String.format("r%02d", i), "v" + i));
      }
      admin.splitRegionAsync(admin.getRegions(name).get(0).getRegionName(), bytes("r40")).get(60, TimeUnit.SECONDS);
      assertEquals(2, admin.getRegions(name).size());
      checkRegions(own);
      byte[][] daughters = new byte[2][];
      for (int i = 0; i < 2; i++) {
        daughters[i] = admin.getRegions(name).get(i).getEncodedNameAsBytes();
      }
      for (int tries = 0; admin.getRegions(name).size() > 1; tries++) {
        try {
          admin.mergeRegionsAsync(daughters, false).get(60, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException e) {
          assertTrue(tries < 200, "the daughters refer to their parent until they are compacted: " + e);
          Thread.sleep(50);
        }
      }
      checkRegions(own);
    } finally {
      admin.disableTable(name);
      admin.deleteTable(name);
    }
  }

  private static void checkRegions(Table own) throws IOException {
    int rows = 0;
    try (ResultScanner scanner = own.getScanner(new Scan())) {
      for (Result result : scanner) {
        assertEquals("v" + rows++, Bytes.toString(result.getValue(F, Q)));
      }
    }
    assertEquals(100, rows);
    for (String row : List.of("r00", "r39", "r40", "r99")) {
      own.put(new Put(bytes(row)).addColumn(F, bytes("more"), bytes("x")));
      assertEquals(2, own.get(new Get(bytes(row))).size());
    }
  }
}
