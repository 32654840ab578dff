package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Base of all tests: each runs once per registry. Two kinds of tables: {@link #shared}, made once per class and
 * registry and kept, in which a test uses rows under its own {@link #row} prefix; and {@link #create}d ones, dropped
 * after the test.
 */
@ParameterizedClass
@EnumSource(Registry.class)
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
abstract class CompatTest {
  static final byte[] F = bytes("f");
  static final byte[] G = bytes("g");
  static final byte[] Q = bytes("q");

  private static final AtomicInteger NEXT_TABLE = new AtomicInteger();
  private static final Map<String, TableName> SHARED = new ConcurrentHashMap<>();
  private static final String RUN = Long.toString(System.currentTimeMillis(), 36);

  @Parameter
  Registry registry;

  Connection connection;
  Admin admin;
  private String test;
  private final List<TableName> created = new ArrayList<>();
  private final List<AutoCloseable> open = new ArrayList<>();

  @BeforeEach
  void connect(TestInfo info) throws IOException {
    connection = Target.connection(registry);
    admin = connection.getAdmin();
    open.add(admin);
    test = info.getTestMethod().orElseThrow().getName();
  }

  @AfterEach
  void cleanUp() throws Exception {
    for (TableName table : created) {
      drop(table);
    }
    for (AutoCloseable closeable : open) {
      closeable.close();
    }
  }

  /** Bytes of a text. */
  static byte[] bytes(String text) {
    return Bytes.toBytes(text);
  }

  static String text(byte[] bytes) {
    return Bytes.toString(bytes);
  }

  /** A row key that belongs to this test alone. */
  byte[] row(String name) {
    return bytes(test + "/" + name);
  }

  /** The row's name without the test's prefix. */
  String name(Result result) {
    return text(result.getRow()).substring(test.length() + 1);
  }

  /** A scan over this test's rows of a shared table. */
  Scan scanMine() {
    return new Scan().setStartStopRowForPrefixScan(bytes(test + "/"));
  }

  TableName freshName() {
    return TableName.valueOf("t_" + RUN + "_" + NEXT_TABLE.incrementAndGet());
  }

  static ColumnFamilyDescriptorBuilder family(byte[] name) {
    return ColumnFamilyDescriptorBuilder.newBuilder(name);
  }

  static TableDescriptor descriptor(TableName name, ColumnFamilyDescriptor... families) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamilies(List.of(families)).build();
  }

  /** A table for this test alone. */
  Table create(byte[][] splits, ColumnFamilyDescriptor... families) throws IOException {
    TableName name = freshName();
    created.add(name);
    admin.createTable(descriptor(name, families), splits);
    return table(name);
  }

  Table create(ColumnFamilyDescriptor... families) throws IOException {
    return create(null, families);
  }

  /** A table for all tests of this class, with families f and g of 5 versions each. */
  Table shared() throws IOException {
    String key = getClass().getSimpleName() + "_" + registry;
    TableName name = SHARED.get(key);
    if (name == null) {
      name = TableName.valueOf("shared_" + key.toLowerCase() + "_" + RUN);
      admin.createTable(descriptor(name, family(F).setMaxVersions(5).build(), family(G).setMaxVersions(5).build()));
      SHARED.put(key, name);
    }
    return table(name);
  }

  Table table(TableName name) throws IOException {
    Table table = connection.getTable(name);
    open.add(table);
    return table;
  }

  /** Drops the table after the test, if it is there by then. */
  TableName dropLater(TableName name) {
    created.add(name);
    return name;
  }

  void drop(TableName name) throws IOException {
    if (!admin.tableExists(name)) {
      return;
    }
    if (admin.isTableEnabled(name)) {
      admin.disableTable(name);
    }
    admin.deleteTable(name);
  }

  static Put put(byte[] row, String column, String value) {
    String[] parts = column.split(":", 2);
    return new Put(row).addColumn(bytes(parts[0]), bytes(parts[1]), bytes(value));
  }

  static Put put(byte[] row, String column, long timestamp, String value) {
    String[] parts = column.split(":", 2);
    return new Put(row).addColumn(bytes(parts[0]), bytes(parts[1]), timestamp, bytes(value));
  }

  /** The value of a column, or null. */
  static String value(Table table, byte[] row, String column) throws IOException {
    String[] parts = column.split(":", 2);
    return text(table.get(new Get(row)).getValue(bytes(parts[0]), bytes(parts[1])));
  }

  /** The cells of a result as text: {@code f:q=v}, or {@code f:q@5=v} with timestamps. */
  static List<String> cells(Result result, boolean timestamps) {
    if (result.isEmpty()) {
      return List.of();
    }
    return result.listCells().stream().map(cell -> cell(cell, timestamps)).collect(Collectors.toList());
  }

  private static String cell(Cell cell, boolean timestamps) {
    return text(CellUtil.cloneFamily(cell)) + ":" + text(CellUtil.cloneQualifier(cell))
        + (timestamps ? "@" + cell.getTimestamp() : "") + "=" + text(CellUtil.cloneValue(cell));
  }

  /** The names of the rows that a scan of this test's rows returns. */
  List<String> names(Table table, Scan scan) throws IOException {
    List<String> names = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        names.add(name(result));
      }
    }
    return names;
  }

  /**
   * Waits until the server's clock is past all timestamps it has given out. Without it a put in the millisecond of a
   * delete is hidden by it, and counters run ahead of the clock by one millisecond per increment.
   */
  static void tick() throws InterruptedException {
    Thread.sleep(20);
  }

  interface Action {
    void run() throws Exception;
  }

  /**
   * Asserts that an action fails with the class, be it thrown or the cause of what is thrown: with HBase's clients the
   * class that a program sees may be wrapped, by retries or by a future.
   */
  static <T extends Throwable> T assertFails(Class<T> expected, Action action) {
    try {
      action.run();
    } catch (Throwable thrown) {
      for (Throwable t = thrown; t != null; t = t.getCause()) {
        if (expected.isInstance(t)) {
          return expected.cast(t);
        }
      }
      throw new AssertionError("expected " + expected.getName() + ", got " + thrown, thrown);
    }
    return fail("expected " + expected.getName() + ", nothing was thrown");
  }

  static <T> T get(Future<T> future) throws Exception {
    try {
      return future.get(60, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof Exception cause ? cause : e;
    }
  }

  /** Waits for something that the server does in the background. */
  static void eventually(String what, java.util.concurrent.Callable<Boolean> condition) throws Exception {
    eventually(what, 30, condition);
  }

  static void eventually(String what, int secondsMax, java.util.concurrent.Callable<Boolean> condition) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(secondsMax);
    while (!condition.call()) {
      assertTrue(System.nanoTime() < deadline, "not within " + secondsMax + " s: " + what);
      Thread.sleep(50);
    }
  }
}
