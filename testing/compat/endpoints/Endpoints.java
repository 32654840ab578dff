// Prints what endpoints answer, a line a call: the bytes of each response, what bulk deletes leave, and which locks are held. The same calls of the same cells,
// against a server whose tables may name AggregateImplementation and BulkDeleteEndpoint.
//
//   java -cp JARS Endpoints.java ZOOKEEPER

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.client.coprocessor.AggregationClient;
import org.apache.hadoop.hbase.client.coprocessor.BigDecimalColumnInterpreter;
import org.apache.hadoop.hbase.client.coprocessor.DoubleColumnInterpreter;
import org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter;
import org.apache.hadoop.hbase.client.locking.EntityLock;
import org.apache.hadoop.hbase.client.locking.LockServiceClient;
import org.apache.hadoop.hbase.coprocessor.ColumnInterpreter;
import org.apache.hadoop.hbase.coprocessor.example.generated.BulkDeleteProtos.BulkDeleteRequest;
import org.apache.hadoop.hbase.coprocessor.example.generated.BulkDeleteProtos.BulkDeleteRequest.DeleteType;
import org.apache.hadoop.hbase.coprocessor.example.generated.BulkDeleteProtos.BulkDeleteResponse;
import org.apache.hadoop.hbase.coprocessor.example.generated.BulkDeleteProtos.BulkDeleteService;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.ipc.RpcClient;
import org.apache.hadoop.hbase.ipc.RpcClientFactory;
import org.apache.hadoop.hbase.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.protobuf.generated.AggregateProtos.AggregateRequest;
import org.apache.hadoop.hbase.protobuf.generated.AggregateProtos.AggregateResponse;
import org.apache.hadoop.hbase.protobuf.generated.AggregateProtos.AggregateService;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockService;
import org.apache.hadoop.hbase.util.Bytes;

public class Endpoints {
  static final byte[] F = b("f");
  static final byte[] G = b("g");
  static final TableName NAME = TableName.valueOf("endpoints");
  static final String[] METHODS = {"GetMax", "GetMin", "GetSum", "GetRowNum", "GetAvg", "GetStd", "GetMedian"};

  static byte[] b(String text) { return Bytes.toBytes(text); }

  static String hex(byte[] bytes) { return bytes.length == 0 ? "-" : Bytes.toHex(bytes); }

  public static void main(String[] args) throws Throwable {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, args[0].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(args[0].lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 3);
    conf.setInt("hbase.client.pause", 50);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      create(admin);
      locks(connection, admin);
      try (Table table = connection.getTable(NAME)) {
        fill(table, new Random(20261125));
        admin.flush(NAME);
        fill(table, new Random(7));
        aggregates(table);
        client(connection);
      }
      for (DeleteType type : DeleteType.values()) {
        for (Long timestamp : new Long[] {null, 3L}) {
          admin.disableTable(NAME);
          admin.deleteTable(NAME);
          create(admin);
          try (Table table = connection.getTable(NAME)) {
            fill(table, new Random(20261125));
            delete(table, type, timestamp);
          }
        }
      }
      admin.disableTable(NAME);
      admin.deleteTable(NAME);
      TableDescriptor plain = TableDescriptorBuilder.newBuilder(NAME).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build();
      admin.createTable(plain);
      try (Table table = connection.getTable(NAME)) {
        stub(table, "").getMax(null, request(new LongColumnInterpreter(), new Scan().addFamily(F)));
        System.out.println("a table without the coprocessor: answers");
      } catch (Exception e) {
        System.out.println("a table without the coprocessor: " + cause(e));
      }
      admin.disableTable(NAME);
      admin.deleteTable(NAME);
    }
  }

  /** Locks of the master that clients hold. */
  static void locks(Connection connection, Admin admin) throws Exception {
    Configuration conf = connection.getConfiguration();
    NonceGenerator nonces = new NonceGenerator() {
      private long last = System.nanoTime();

      @Override
      public long getNonceGroup() { return 1; }

      @Override
      public long newNonce() { return ++last; }
    };
    try (RpcClient rpc = RpcClientFactory.createClient(conf, admin.getClusterMetrics().getClusterId())) {
      LockServiceClient locks = new LockServiceClient(conf,
        LockService.newBlockingStub(rpc.createBlockingRpcChannel(admin.getMaster(), User.getCurrent(), 30_000)), nonces);
      // HBase's client asks for the namespace of that name
      EntityLock table = locks.tableLock(NAME, true, "table", null);
      table.requestLock();
      System.out.println("lock of a table " + table.await(20, TimeUnit.SECONDS));
      table.unlock();
      EntityLock lock = locks.regionLock(admin.getRegions(NAME), "regions", null);
      lock.requestLock();
      System.out.println("lock of regions " + lock.await(20, TimeUnit.SECONDS));
      EntityLock other = locks.regionLock(admin.getRegions(NAME).subList(1, 2), "one of them", null);
      other.requestLock();
      System.out.println("lock of one meanwhile " + other.await(1, TimeUnit.SECONDS));
      lock.unlock();
      System.out.println("lock of one afterwards " + other.await(20, TimeUnit.SECONDS));
      other.unlock();
      EntityLock namespace = locks.namespaceLock("default", "namespace", null);
      namespace.requestLock();
      System.out.println("lock of a namespace " + namespace.await(20, TimeUnit.SECONDS));
      namespace.unlock();
    }
  }

  static void create(Admin admin) throws Exception {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(NAME);
    for (byte[] family : new byte[][] {F, G}) {
      table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(3).build());
    }
    table.setCoprocessor("org.apache.hadoop.hbase.coprocessor.AggregateImplementation");
    table.setCoprocessor("org.apache.hadoop.hbase.coprocessor.example.BulkDeleteEndpoint");
    admin.createTable(table.build(), new byte[][] {b("r3"), b("r6")});
  }

  static void fill(Table table, Random random) throws Exception {
    long[] longs = {0, 1, -1, Long.MAX_VALUE, Long.MIN_VALUE, 1L << 40};
    double[] doubles = {0.0, -0.0, Double.NaN, Double.MAX_VALUE, -Double.MAX_VALUE, Double.MIN_VALUE, Double.POSITIVE_INFINITY, 0.1};
    List<Put> puts = new ArrayList<>();
    for (int at = 0; at < 90; at++) {
      Put put = new Put(b("r" + at / 10 + "-" + at % 10));
      long timestamp = 1 + random.nextInt(4);
      boolean special = at / 10 == 4;
      put.addColumn(F, b("l"), timestamp, Bytes.toBytes(special ? longs[at % longs.length] : random.nextInt()));
      if (!special) {
        put.addColumn(F, b("l"), timestamp, Bytes.toBytes((long) random.nextInt()));
      }
      put.addColumn(F, b("d"), timestamp, Bytes.toBytes(special ? doubles[at % doubles.length] : random.nextGaussian()));
      int scale = random.nextInt(12) - 4;
      BigInteger unscaled = new BigInteger(special ? 400 : 40, random);
      BigDecimal decimal = new BigDecimal(random.nextBoolean() ? unscaled : unscaled.negate(), scale);
      put.addColumn(F, b("e"), timestamp, Bytes.toBytes(decimal));
      put.addColumn(F, b("h"), timestamp, Bytes.toBytes(new BigDecimal(BigInteger.valueOf(random.nextInt(2000) * 5 - 5000), 3)));
      if (random.nextInt(3) == 0) {
        put.addColumn(F, b("m"), timestamp, Bytes.toBytes((long) random.nextInt(50)));
      }
      if (random.nextInt(4) == 0) {
        put.addColumn(G, b("w"), timestamp, Bytes.toBytes(random.nextLong()));
      }
      if (at == 77) {
        put.addColumn(F, b("x"), timestamp, b("text"));
      }
      puts.add(put);
    }
    table.put(puts);
  }

  static Map<String, Supplier<Scan>> scans(String qualifier) {
    Map<String, Supplier<Scan>> scans = new TreeMap<>();
    byte[] q = b(qualifier);
    scans.put("column", () -> new Scan().addColumn(F, q));
    scans.put("two columns", () -> new Scan().addColumn(F, q).addColumn(F, b("m")));
    scans.put("versions", () -> versions(new Scan().addColumn(F, q)));
    scans.put("range", () -> new Scan().addColumn(F, q).withStartRow(b("r1-5")).withStopRow(b("r7-2"), true));
    scans.put("empty range", () -> new Scan().addColumn(F, q).withStartRow(b("r99")).withStopRow(b("r999")));
    scans.put("other family", () -> new Scan().addFamily(G));
    scans.put("no value", () -> new Scan().addColumn(F, b("x")).addColumn(F, b("none")));
    scans.put("page", () -> new Scan().addColumn(F, q).setFilter(new PageFilter(7)));
    scans.put("row regex", () -> new Scan().addColumn(F, q).setFilter(new RowFilter(
      org.apache.hadoop.hbase.CompareOperator.EQUAL, new RegexStringComparator("-[147]$"))));
    scans.put("value filter", () -> new Scan().addColumn(F, q).addColumn(F, b("m")).setFilter(new SingleColumnValueFilter(
      F, b("m"), org.apache.hadoop.hbase.CompareOperator.GREATER, Bytes.toBytes(20L))));
    scans.put("batch", () -> new Scan().addColumn(F, q).addColumn(F, b("m")).setBatch(1));
    scans.put("reversed", () -> new Scan().addColumn(F, q).setReversed(true));
    scans.put("time range", () -> times(new Scan().addColumn(F, q)));
    return scans;
  }

  static Scan versions(Scan scan) { return scan.readVersions(3); }

  static Scan times(Scan scan) {
    try {
      return scan.setTimeRange(2, 4);
    } catch (java.io.IOException e) {
      throw new IllegalStateException(e);
    }
  }

  static AggregateRequest request(ColumnInterpreter<?, ?, ?, ?, ?> interpreter, Scan scan) throws Exception {
    return AggregateRequest.newBuilder().setInterpreterClassName(interpreter.getClass().getCanonicalName())
      .setInterpreterSpecificBytes(interpreter.getRequestData().toByteString()).setScan(ProtobufUtil.toScan(scan)).build();
  }

  static AggregateService.BlockingInterface stub(Table table, String row) {
    return AggregateService.newBlockingStub(table.coprocessorService(b(row)));
  }

  static void aggregates(Table table) throws Exception {
    Map<String, ColumnInterpreter<?, ?, ?, ?, ?>> interpreters = new TreeMap<>();
    interpreters.put("l", new LongColumnInterpreter());
    interpreters.put("d", new DoubleColumnInterpreter());
    interpreters.put("e", new BigDecimalColumnInterpreter());
    interpreters.put("h", new BigDecimalColumnInterpreter());
    for (String qualifier : interpreters.keySet()) {
      for (Map.Entry<String, Supplier<Scan>> scan : scans(qualifier).entrySet()) {
        if (qualifier.compareTo("e") >= 0 && qualifier.compareTo("l") < 0 && scan.getKey().equals("other family")) {
          continue; // HBase takes any 8 bytes for a decimal with up to two billion digits, and calculates
        }
        for (String method : METHODS) {
          if (method.equals("GetMedian") && Arrays.asList("empty range", "no value").contains(scan.getKey())) {
            continue; // HBase ends in a NullPointerException
          }
          for (String region : new String[] {"", "r3", "r6"}) {
            AggregateRequest request = request(interpreters.get(qualifier), scan.getValue().get());
            System.out.println(String.join(" ", qualifier, scan.getKey(), method, "'" + region + "'", answer(table, region, method, request)));
          }
        }
      }
    }
    AggregateRequest everything = request(new LongColumnInterpreter(), new Scan());
    System.out.println("rows of all families " + answer(table, "r6", "GetRowNum", everything));
    AggregateRequest partial = AggregateRequest.newBuilder(request(new LongColumnInterpreter(), new Scan().addFamily(F)))
      .setClientSupportsPartialResult(true).build();
    for (String method : METHODS) {
      System.out.println("partial results " + method + " " + answer(table, "r3", method, partial));
    }
    AggregateRequest unknown = AggregateRequest.newBuilder(partial).setInterpreterClassName("org.x.Y").build();
    System.out.println("unknown interpreter " + answer(table, "", "GetMax", unknown));
    System.out.println("no column family " + answer(table, "", "GetMax", everything));
  }

  /** Errors differ in class and retry where HBase has a RuntimeException; that there is one is compared. */
  static String answer(Table table, String region, String method, AggregateRequest request) {
    try {
      AggregateService.BlockingInterface service = stub(table, region);
      AggregateResponse response = switch (method) {
        case "GetMax" -> service.getMax(null, request);
        case "GetMin" -> service.getMin(null, request);
        case "GetSum" -> service.getSum(null, request);
        case "GetRowNum" -> service.getRowNum(null, request);
        case "GetAvg" -> service.getAvg(null, request);
        case "GetStd" -> service.getStd(null, request);
        default -> service.getMedian(null, request);
      };
      return hex(response.toByteArray());
    } catch (Exception e) {
      return "error";
    }
  }

  static String cause(Throwable e) {
    while (e.getCause() != null && e.getCause() != e) {
      e = e.getCause();
    }
    String text = String.valueOf(e.getMessage());
    return text.replaceAll("(?s)\\n.*", "").replaceAll("endpoints,,\\d+\\.[0-9a-f]+\\.", "REGION").replaceAll(".*(No registered)", "$1");
  }

  /** The client that puts the answers of regions together. */
  static void client(Connection connection) throws Throwable {
    try (AggregationClient client = new AggregationClient(connection.getConfiguration()); Table table = connection.getTable(NAME)) {
      Scan scan = new Scan().addColumn(F, b("h"));
      BigDecimalColumnInterpreter decimals = new BigDecimalColumnInterpreter();
      System.out.println("client max " + client.max(table, decimals, new Scan(scan)) + " min " + client.min(table, decimals, new Scan(scan)));
      System.out.println("client sum " + client.sum(table, decimals, new Scan(scan)) + " rows " + client.rowCount(table, decimals, new Scan(scan)));
      System.out.println("client avg " + client.avg(table, decimals, new Scan(scan)) + " std " + client.std(table, decimals, new Scan(scan)));
      System.out.println("client median " + client.median(table, new LongColumnInterpreter(), new Scan().addColumn(F, b("m"))));
    }
  }

  static void delete(Table table, DeleteType type, Long timestamp) throws Exception {
    Scan scan = new Scan().addFamily(F).withStartRow(b("r0-5")).withStopRow(b("r2-5"));
    if (type == DeleteType.COLUMN || type == DeleteType.VERSION) {
      scan = new Scan().addColumn(F, b("m")).addColumn(F, b("l")).withStartRow(b("r0-5")).withStopRow(b("r2-5")).readVersions(2);
    }
    BulkDeleteRequest.Builder request =
      BulkDeleteRequest.newBuilder().setScan(ProtobufUtil.toScan(scan)).setDeleteType(type).setRowBatchSize(4);
    if (timestamp != null) {
      request.setTimestamp(timestamp);
    }
    BulkDeleteResponse response =
      BulkDeleteService.newBlockingStub(table.coprocessorService(b(""))).delete(null, request.build());
    System.out.println("delete " + type + " " + timestamp + " " + hex(response.toByteArray()));
    long digest = 17;
    int count = 0;
    try (ResultScanner left = table.getScanner(new Scan().readVersions(3))) {
      for (Result row : left) {
        for (Cell cell : row.rawCells()) {
          digest = digest * 31 + Arrays.hashCode(CellUtil.cloneRow(cell));
          digest = digest * 31 + Arrays.hashCode(CellUtil.cloneQualifier(cell));
          digest = digest * 31 + cell.getTimestamp();
          count++;
        }
      }
    }
    System.out.println("delete " + type + " " + timestamp + " leaves " + count + " cells " + Long.toHexString(digest));
  }
}
