package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.stumbleupon.async.Deferred;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.hbase.async.AppendRequest;
import org.hbase.async.AtomicIncrementRequest;
import org.hbase.async.ColumnPrefixFilter;
import org.hbase.async.DeleteRequest;
import org.hbase.async.GetRequest;
import org.hbase.async.GetResultOrException;
import org.hbase.async.HBaseClient;
import org.hbase.async.KeyRegexpFilter;
import org.hbase.async.KeyValue;
import org.hbase.async.NoSuchColumnFamilyException;
import org.hbase.async.NonRecoverableException;
import org.hbase.async.PutRequest;
import org.hbase.async.Scanner;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What OpenTSDB and others use of asynchbase, through ZooKeeper. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AsyncHBaseTest {
  private static final String TABLE = "asynchbase_" + Long.toString(System.nanoTime(), 36);
  private static Connection connection;
  private static HBaseClient client;

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  @BeforeAll
  static void connect() throws Exception {
    String zk = System.getProperty("compat.zk", "");
    if (!zk.contains(":")) {
      throw new IllegalStateException("say where the server is: -Dcompat.zk=host:port");
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zk.split(":")[0]);
    conf.set("hbase.zookeeper.property.clientPort", zk.split(":")[1]);
    connection = ConnectionFactory.createConnection(conf);
    try (var admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf(TABLE))
          .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(bytes("f")).setMaxVersions(3).build()).build(),
          new byte[][] {bytes("g"), bytes("p")});
    }
    client = new HBaseClient(zk);
    client.setFlushInterval((short) 10);
  }

  @AfterAll
  static void close() throws Exception {
    client.shutdown().join(20_000);
    try (var admin = connection.getAdmin()) {
      admin.disableTable(TableName.valueOf(TABLE));
      admin.deleteTable(TableName.valueOf(TABLE));
    }
    connection.close();
  }

  private static <T> T join(Deferred<T> deferred) throws Exception {
    return deferred.joinUninterruptibly(30_000);
  }

  private static PutRequest put(String row, String qualifier, String value) {
    return new PutRequest(TABLE, row, "f", qualifier, value);
  }

  private static List<String> get(String row) throws Exception {
    return join(client.get(new GetRequest(TABLE, row))).stream()
        .map(cell -> text(cell.qualifier()) + "=" + text(cell.value())).toList();
  }

  @Test
  void tableAndFamily() throws Exception {
    join(client.ensureTableFamilyExists(TABLE, "f"));
    assertThrows(NoSuchColumnFamilyException.class, () -> join(client.ensureTableFamilyExists(TABLE, "nope")));
    assertThrows(NonRecoverableException.class, () -> join(client.ensureTableExists("no_such_table")));
  }

  @Test
  void putGetDelete() throws Exception {
    for (String row : List.of("a", "k", "z")) {
      join(client.put(put(row, "q", row + "1")));
      PutRequest single = put(row, "r", row + "2");
      single.setBufferable(false);
      join(client.put(single));
      assertEquals(List.of("q=" + row + "1", "r=" + row + "2"), get(row));
      join(client.delete(new DeleteRequest(TABLE, row, "f", "q")));
      assertEquals(List.of("r=" + row + "2"), get(row));
      join(client.delete(new DeleteRequest(TABLE, row)));
      assertTrue(get(row).isEmpty());
    }
    assertTrue(get("never there").isEmpty());
    assertThrows(NoSuchColumnFamilyException.class,
        () -> join(client.put(new PutRequest(TABLE, "r", "nope", "q", "v"))));
  }

  @Test
  void manyPutsAndGets() throws Exception {
    List<Deferred<Object>> puts = new ArrayList<>();
    List<GetRequest> gets = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      String row = "agpz".charAt(i % 4) + "-many-" + i;
      puts.add(client.put(put(row, "q", "v" + i)));
      gets.add(new GetRequest(TABLE, row));
    }
    for (Deferred<Object> put : puts) {
      join(put);
    }
    for (int i = 0; i < 300; i++) {
      ArrayList<KeyValue> cells = join(client.get(gets.get(i)));
      assertEquals("v" + i, text(cells.get(0).value()));
    }
    List<GetResultOrException> multi = join(client.get(gets.subList(0, 20)));
    for (int i = 0; i < 20; i++) {
      assertEquals("v" + i, text(multi.get(i).getCells().get(0).value()));
    }
  }

  @Test
  void columnsAndVersions() throws Exception {
    for (int i = 1; i <= 3; i++) {
      join(client.put(new PutRequest(bytes(TABLE), bytes("versions"), bytes("f"), bytes("q"), bytes("v" + i), i)));
    }
    join(client.put(put("versions", "other", "x")));
    ArrayList<KeyValue> cells =
        join(client.get(new GetRequest(TABLE, "versions", "f", "q").maxVersions(3)));
    assertEquals(3, cells.size());
    assertEquals(3, cells.get(0).timestamp());
    assertEquals("v1", text(cells.get(2).value()));
    PutRequest several = new PutRequest(bytes(TABLE), bytes("several"), bytes("f"),
        new byte[][] {bytes("a"), bytes("b")}, new byte[][] {bytes("1"), bytes("2")});
    join(client.put(several));
    assertEquals(List.of("a=1", "b=2"), get("several"));
  }

  @Test
  void scans() throws Exception {
    List<Deferred<Object>> puts = new ArrayList<>();
    for (char c = 'a'; c <= 'z'; c++) {
      for (int i = 0; i < 5; i++) {
        puts.add(client.put(put(c + "-scan-" + i, "q", c + "" + i)));
      }
    }
    join(client.flush());
    for (Deferred<Object> put : puts) {
      join(put); // flush() promises only to send what is buffered
    }
    assertEquals(20, rows(scanner("f-scan", "j-scan")).size());
    Scanner small = scanner("f-scan", "j-scan");
    small.setMaxNumRows(3);
    List<String> rows = rows(small);
    assertEquals(20, rows.size());
    assertEquals("f-scan-0", rows.get(0));
    assertEquals("i-scan-4", rows.get(19));
    Scanner filtered = scanner("a", "zz");
    filtered.setFilter(new KeyRegexpFilter("[mn]-scan-[012]"));
    assertEquals(6, rows(filtered).size());
    Scanner columns = scanner("f-scan", "j-scan");
    columns.setFilter(new ColumnPrefixFilter("none"));
    assertTrue(rows(columns).isEmpty());
    Scanner one = scanner("f-scan", "j-scan");
    one.setMaxNumRows(2);
    assertEquals(2, join(one.nextRows()).size());
    join(one.close());
  }

  private static Scanner scanner(String start, String stop) {
    Scanner scanner = client.newScanner(TABLE);
    scanner.setStartKey(start);
    scanner.setStopKey(stop);
    scanner.setFamily("f");
    return scanner;
  }

  private static List<String> rows(Scanner scanner) throws Exception {
    List<String> rows = new ArrayList<>();
    ArrayList<ArrayList<KeyValue>> answer;
    while ((answer = join(scanner.nextRows())) != null) {
      for (ArrayList<KeyValue> row : answer) {
        rows.add(text(row.get(0).key()));
      }
    }
    return rows;
  }

  @Test
  void increments() throws Exception {
    AtomicIncrementRequest increment =
        new AtomicIncrementRequest(bytes(TABLE), bytes("counter"), bytes("f"), bytes("n"), 5);
    assertEquals(5L, join(client.atomicIncrement(increment)));
    increment.setAmount(-2);
    assertEquals(3L, join(client.atomicIncrement(increment)));
    List<Deferred<Long>> buffered = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      buffered.add(client.bufferAtomicIncrement(
          new AtomicIncrementRequest(bytes(TABLE), bytes("z-counter"), bytes("f"), bytes("n"), 1)));
    }
    join(client.flush());
    for (Deferred<Long> each : buffered) {
      join(each);
    }
    assertEquals(50L, join(client.atomicIncrement(
        new AtomicIncrementRequest(bytes(TABLE), bytes("z-counter"), bytes("f"), bytes("n"), 0))));
  }

  @Test
  void appends() throws Exception {
    AppendRequest first = new AppendRequest(TABLE, "append", "f", "q", "one");
    first.returnResult(true);
    first.setBufferable(false);
    Object result = join(client.append(first));
    assertInstanceOf(KeyValue.class, result);
    assertEquals("one", text(((KeyValue) result).value()));
    AppendRequest second = new AppendRequest(TABLE, "append", "f", "q", "+two");
    second.setBufferable(false);
    join(client.append(second));
    assertEquals(List.of("q=one+two"), get("append"));
  }

  @Test
  void checksAndSets() throws Exception {
    assertTrue(join(client.compareAndSet(put("cas", "q", "1"), new byte[0])));
    assertFalse(join(client.compareAndSet(put("cas", "q", "2"), new byte[0])));
    assertTrue(join(client.compareAndSet(put("cas", "q", "2"), "1")));
    assertFalse(join(client.compareAndSet(put("cas", "q", "3"), "1")));
    assertEquals(List.of("q=2"), get("cas"));
    assertTrue(join(client.atomicCreate(put("created", "q", "1"))));
    assertFalse(join(client.atomicCreate(put("created", "q", "2"))));
    assertArrayEquals(bytes("1"), join(client.get(new GetRequest(TABLE, "created"))).get(0).value());
  }

  /** The client has the locations of regions that are gone. */
  @Test
  void regionsThatSplit() throws Exception {
    for (int i = 0; i < 50; i++) {
      join(client.put(put(String.format("split%02d", i), "q", "v" + i)));
    }
    try (var admin = connection.getAdmin()) {
      TableName name = TableName.valueOf(TABLE);
      var last = admin.getRegions(name).get(2);
      admin.splitRegionAsync(last.getRegionName(), bytes("split25")).get();
      assertEquals(4, admin.getRegions(name).size());
    }
    for (int i = 0; i < 50; i++) {
      String row = String.format("split%02d", i);
      assertEquals("v" + i, text(join(client.get(new GetRequest(TABLE, row, "f", "q"))).get(0).value()));
      join(client.put(put(row, "q", "w" + i)));
    }
    Scanner scanner = client.newScanner(TABLE);
    scanner.setStartKey("split");
    scanner.setStopKey("split~");
    int rows = 0;
    for (var batch = join(scanner.nextRows(7)); batch != null; batch = join(scanner.nextRows(7))) {
      for (var row : batch) {
        assertEquals("w" + rows++, text(row.get(0).value()));
      }
    }
    assertEquals(50, rows);
  }
}
