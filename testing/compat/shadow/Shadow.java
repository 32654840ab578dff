// HBase's own client through the proxy of halcyon shadow, for shadow.sh.
//
//   java -cp JARS Shadow load ADDRESS ROWS                 the table shop:items with 4 regions, filled; the same cells each time
//   java ... read ADDRESS ROWS ROUNDS [PORTS]              reads it in every way and checks each answer. PORTS: "host:port,...", the only
//                                                          addresses at which the client may find regions and masters
//   java ... write ADDRESS ROWS                            puts, increments and deletes of another table, shop:writes
//   java ... move ADDRESS SERVERS                          moves each region of shop:items by the names that the client sees
//   java ... plant ADDRESS                                 four differences: a value, a cell that is gone, one too many, another time
//   java ... flicker ADDRESS ROW SECONDS                   changes a row over and over
//
// ADDRESS is zk:HOST:PORT, or rpc:HOST:PORT for the RPC registry.

import java.io.IOException;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.util.Bytes;

public class Shadow {
  static final TableName ITEMS = TableName.valueOf("shop:items"), WRITES = TableName.valueOf("shop:writes");
  static final byte[] F = Bytes.toBytes("f"), G = Bytes.toBytes("info"), V = Bytes.toBytes("v"), N = Bytes.toBytes("server");
  static final int MINUTES_MAX = 15;

  static Configuration configuration(String address) {
    Configuration conf = HBaseConfiguration.create();
    String[] parts = address.split(":");
    if (parts[0].equals("zk")) {
      conf.set("hbase.zookeeper.quorum", parts[1]);
      conf.set("hbase.zookeeper.property.clientPort", parts[2]);
    } else {
      conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
      conf.set("hbase.client.bootstrap.servers", parts[1] + ":" + parts[2]);
      conf.set("hbase.zookeeper.quorum", "127.0.0.1");
      conf.set("hbase.zookeeper.property.clientPort", "1");
    }
    conf.setInt("hbase.client.retries.number", 8);
    conf.setInt("hbase.client.pause", 20);
    conf.setInt("hbase.client.operation.timeout", 60000);
    String compressor = System.getProperty("compressor", "");
    if (!compressor.isEmpty()) conf.set("hbase.client.rpc.compressor", compressor);
    String codec = System.getProperty("codec", "");
    if (!codec.isEmpty()) conf.set("hbase.client.rpc.codec", codec);
    return conf;
  }

  static byte[] key(int number) {
    return Bytes.toBytes(String.format("%08x", number * 0x9E3779B1));
  }

  static byte[] value(int number, int version) {
    byte[] value = new byte[40];
    Bytes.putInt(value, 0, number);
    Bytes.putInt(value, 4, version);
    for (int i = 8; i < value.length; i++) value[i] = (byte) (number * 31 + version * 7 + i);
    return value;
  }

  public static void main(String[] args) throws Exception {
    Thread limit = new Thread(() -> {
      try { TimeUnit.MINUTES.sleep(MINUTES_MAX); } catch (InterruptedException ignored) { }
      System.err.println("the client ends after " + MINUTES_MAX + " minutes");
      Runtime.getRuntime().halt(1);
    });
    limit.setDaemon(true);
    limit.start();
    try (Connection connection = ConnectionFactory.createConnection(configuration(args[1]))) {
      switch (args[0]) {
        case "load": load(connection, Integer.parseInt(args[2])); break;
        case "read": read(connection, args); break;
        case "write": write(connection, Integer.parseInt(args[2])); break;
        case "move": move(connection); break;
        case "plant": plant(connection); break;
        case "flicker": flicker(connection, args[2], Integer.parseInt(args[3])); break;
        default: throw new IllegalArgumentException(args[0]);
      }
    }
  }

  static void load(Connection connection, int rows) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      if (Arrays.stream(admin.listNamespaceDescriptors()).noneMatch(one -> one.getName().equals("shop")))
        admin.createNamespace(NamespaceDescriptor.create("shop").build());
      byte[][] splits = {Bytes.toBytes("4"), Bytes.toBytes("8"), Bytes.toBytes("c")};
      admin.createTable(TableDescriptorBuilder.newBuilder(ITEMS)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of(G)).build(), splits);
      admin.createTable(TableDescriptorBuilder.newBuilder(WRITES).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build());
    }
    try (Table table = connection.getTable(ITEMS)) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < rows; i++) {
        Put put = new Put(key(i));
        for (int version = 1; version <= 3; version++) put.addColumn(F, V, version * 1000, value(i, version));
        // a family and a column as hbase:meta has them: the proxy must leave them alone
        put.addColumn(G, N, 5000, Bytes.toBytes("host" + i + ":16020"));
        puts.add(put);
        if (puts.size() == 500) { table.put(puts); puts.clear(); }
      }
      table.put(puts);
    }
    System.out.println("loaded " + rows + " rows");
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static void checkRow(Result result, int number) {
    check(Bytes.equals(result.getRow(), key(number)), "row " + number);
    check(Bytes.equals(result.getValue(F, V), value(number, 3)), "value of row " + number);
    check(Bytes.toString(result.getValue(G, N)).equals("host" + number + ":16020"), "info:server of row " + number);
  }

  static void read(Connection connection, String[] args) throws Exception {
    int rows = Integer.parseInt(args[2]), rounds = Integer.parseInt(args[3]);
    if (args.length > 4) checkAddresses(connection, new HashSet<>(Arrays.asList(args[4].split(","))));
    TreeMap<String, Integer> sorted = new TreeMap<>();
    for (int i = 0; i < rows; i++) sorted.put(Bytes.toString(key(i)), i);
    List<Integer> order = new ArrayList<>(sorted.values());
    Random random = new Random(7);
    long began = System.nanoTime(), reads = 0;
    try (Table table = connection.getTable(ITEMS)) {
      for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 20; i++, reads++) {
          int number = random.nextInt(rows);
          checkRow(table.get(new Get(key(number))), number);
          Result versions = table.get(new Get(key(number)).addColumn(F, V).readAllVersions());
          check(versions.size() == 3 && versions.rawCells()[2].getTimestamp() == 1000, "versions of row " + number);
          check(table.exists(new Get(key(number))), "row " + number + " exists");
          check(!table.exists(new Get(Bytes.toBytes("none" + number))), "a row that is not there");
        }
        List<Get> gets = new ArrayList<>();
        int[] numbers = random.ints(30, 0, rows).toArray();
        for (int number : numbers) gets.add(new Get(key(number)));
        gets.add(new Get(Bytes.toBytes("none")));
        Result[] results = table.get(gets);
        for (int i = 0; i < numbers.length; i++) checkRow(results[i], numbers[i]);
        check(results[numbers.length].isEmpty(), "a row that is not there");
        boolean[] exist = table.exists(gets);
        check(exist[0] && !exist[numbers.length], "exists of many");
        reads += 2;
        reads += scans(table, order, random);
      }
    }
    async(connection, order);
    System.out.printf("read %d times in %.1f s: every answer is right%n", reads, (System.nanoTime() - began) / 1e9);
  }

  static int scans(Table table, List<Integer> order, Random random) throws IOException {
    scan(table, new Scan(), order);
    scan(table, new Scan().setCaching(17), order);
    scan(table, new Scan().setMaxResultSize(4000), order);
    List<Integer> reversed = new ArrayList<>(order);
    Collections.reverse(reversed);
    scan(table, new Scan().setReversed(true).setCaching(50), reversed);
    int from = random.nextInt(order.size() - 1), to = from + random.nextInt(order.size() - from);
    scan(table, new Scan().withStartRow(key(order.get(from))).withStopRow(key(order.get(to)), true), order.subList(from, to + 1));
    scan(table, new Scan().withStartRow(key(order.get(from))).setLimit(7), order.subList(from, Math.min(order.size(), from + 7)));
    Scan filtered = new Scan().setFilter(new FilterList(new PrefixFilter(Bytes.toBytes("a")), new KeyOnlyFilter()));
    int count = 0;
    try (ResultScanner scanner = table.getScanner(filtered)) { for (Result ignored : scanner) count++; }
    check(count == order.stream().filter(number -> Bytes.toString(key(number)).startsWith("a")).count(), "rows of a filter");
    int cells = 0;
    try (ResultScanner scanner = table.getScanner(new Scan().readAllVersions().setBatch(2))) { for (Result result : scanner) cells += result.size(); }
    check(cells == 4 * order.size(), "cells in batches: " + cells);
    cells = 0;
    try (ResultScanner scanner = table.getScanner(new Scan().readAllVersions().setAllowPartialResults(true).setMaxResultSize(100))) {
      for (int i = 0; i < 40; i++) cells += scanner.next().size();
    }
    check(cells > 0, "cells of partial results");
    // a client that stops early
    try (ResultScanner scanner = table.getScanner(new Scan().setCaching(10))) {
      for (int i = 0; i < 15; i++) checkRow(scanner.next(), order.get(i));
    }
    return 10;
  }

  static void scan(Table table, Scan scan, List<Integer> expected) throws IOException {
    Iterator<Integer> next = expected.iterator();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        check(next.hasNext(), "a row too many in " + scan);
        checkRow(result, next.next());
      }
    }
    check(!next.hasNext(), "a row is missing in " + scan);
  }

  /** The other of HBase's clients, which looks up regions by another way. */
  static void async(Connection connection, List<Integer> order) throws Exception {
    try (AsyncConnection async = ConnectionFactory.createAsyncConnection(connection.getConfiguration()).get(60, TimeUnit.SECONDS)) {
      AsyncTable<AdvancedScanResultConsumer> table = async.getTable(ITEMS);
      List<CompletableFuture<Result>> all = new ArrayList<>();
      for (int i = 0; i < 200; i++) all.add(table.get(new Get(key(order.get(i % order.size())))));
      for (int i = 0; i < 200; i++) checkRow(all.get(i).get(60, TimeUnit.SECONDS), order.get(i % order.size()));
      List<Result> found = table.scanAll(new Scan().setCaching(100)).get(60, TimeUnit.SECONDS);
      check(found.size() == order.size(), "rows of the asynchronous client: " + found.size());
    }
  }

  /** A client of the proxy meets ports of the proxy only. */
  static void checkAddresses(Connection connection, Set<String> allowed) throws IOException {
    try (RegionLocator locator = connection.getRegionLocator(ITEMS); RegionLocator meta = connection.getRegionLocator(TableName.META_TABLE_NAME);
        Admin admin = connection.getAdmin()) {
      List<HRegionLocation> all = new ArrayList<>(locator.getAllRegionLocations());
      all.addAll(meta.getAllRegionLocations());
      check(all.size() >= 5, "regions: " + all);
      for (HRegionLocation location : all) check(allowed.contains(location.getHostnamePort()), location + " is none of " + allowed);
      ClusterMetrics metrics = admin.getClusterMetrics();
      check(allowed.contains(metrics.getMasterName().getAddress().toString()), "master " + metrics.getMasterName());
      for (ServerName server : metrics.getLiveServerMetrics().keySet()) {
        check(allowed.contains(server.getAddress().toString()), "server " + server);
        check(!admin.getRegions(server).isEmpty(), "regions of " + server);
      }
    }
  }

  static void write(Connection connection, int rows) throws IOException {
    try (Table table = connection.getTable(WRITES)) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < rows; i++) puts.add(new Put(key(i)).addColumn(F, V, value(i, 1)));
      table.put(puts);
      for (int i = 0; i < rows; i++) table.incrementColumnValue(key(i), F, N, 2);
      for (int i = 0; i < rows; i++) check(Bytes.toLong(table.get(new Get(key(i))).getValue(F, N)) == 2, "counter " + i);
      List<Delete> deletes = new ArrayList<>();
      for (int i = 0; i < rows; i++) deletes.add(new Delete(key(i)));
      table.delete(deletes);
      check(!table.exists(new Get(key(0))), "a deleted row");
    }
    System.out.println("wrote " + rows + " rows");
  }

  /** By the names that the client sees: they have to mean the same to the master. */
  static void move(Connection connection) throws IOException {
    try (Admin admin = connection.getAdmin(); RegionLocator locator = connection.getRegionLocator(ITEMS)) {
      for (HRegionLocation location : locator.getAllRegionLocations())
        admin.move(location.getRegion().getEncodedNameAsBytes(), location.getServerName());
      admin.flush(ITEMS);
    }
    System.out.println("moved");
  }

  static void plant(Connection connection) throws IOException {
    try (Table table = connection.getTable(ITEMS)) {
      table.put(new Put(key(1)).addColumn(F, V, 3000, Bytes.toBytes("planted")));
      table.delete(new Delete(key(2)).addColumns(F, V, 9000));
      table.put(new Put(key(3)).addColumn(F, Bytes.toBytes("w"), 1000, Bytes.toBytes("planted")));
      table.delete(new Delete(key(4)).addColumns(G, N, 9000));
      table.put(new Put(key(4)).addColumn(G, N, 9001, Bytes.toBytes("host4:16020")));
    }
    System.out.println("planted");
  }

  static void flicker(Connection connection, String row, int seconds) throws Exception {
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    try (Table table = connection.getTable(ITEMS)) {
      for (int i = 0; System.nanoTime() < end; i++) {
        table.put(new Put(key(Integer.parseInt(row))).addColumn(F, V, Bytes.toBytes("flicker" + i)));
        Thread.sleep(20);
      }
    }
  }
}
