package halcyon.compat.root;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Fills a cluster with tables of every sort, and writes down what is in it, so that the same root directory can be compared under
 * two servers.
 *
 * <pre>
 * fill HOST:PORT                 makes the tables
 * unflushed HOST:PORT            writes rows that stay in memory and in the log
 * work HOST:PORT                 writes, flushes, splits, merges and compacts tables that `fill` made
 * half HOST:PORT                 asks for a table of many regions and does not wait
 * stop HOST:PORT                 ends the cluster in order
 * dump HOST:PORT FILE            one line for each namespace, descriptor, state, region, snapshot and cell
 * </pre>
 *
 * Cells are dumped twice: as a scan of all versions shows them, and raw, with deletes and what they hide. Disabled tables are
 * enabled for it and disabled again.
 */
public final class Root {
  private static final byte[] Q = Bytes.toBytes("q");
  /** A past that every run shares. */
  private static final long T0 = 1_600_000_000_000L;

  /** So many files that no server compacts by itself what a raw scan is to find again. */
  private static final String FILES_MIN = "hbase.hstore.compaction.min";

  private final Connection connection;
  private final Admin admin;

  private Root(Connection connection) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[1].split(":")[0]);
    conf.set("hbase.zookeeper.property.clientPort", args[1].split(":")[1]);
    conf.setInt("hbase.client.retries.number", 8);
    conf.setInt("hbase.client.scanner.timeout.period", 10_000);
    conf.setInt("hbase.client.pause", 100);
    conf.setInt("hbase.rpc.timeout", 10_000);
    conf.setInt("hbase.client.operation.timeout", 30_000);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      Root root = new Root(connection);
      switch (args[0]) {
        case "fill" -> root.fill();
        case "unflushed" -> root.unflushed();
        case "work" -> root.work();
        case "half" -> root.half();
        case "stop" -> root.admin.shutdown();
        case "dump" -> Files.write(Path.of(args[2]), root.dump());
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
    System.exit(0);
  }

  // ---- filling ----

  private void fill() throws Exception {
    admin.createNamespace(NamespaceDescriptor.create("n1").addConfiguration("hbase.namespace.quota.maxtables", "50")
        .addConfiguration("owner", "somebody").build());
    admin.createNamespace(NamespaceDescriptor.create("empty_ns").build());
    admin.createNamespace(NamespaceDescriptor.create("gone_ns").build());
    admin.deleteNamespace("gone_ns");
    formats();
    wide();
    deep();
    layers();
    splits();
    merges();
    states();
    snapshots();
  }

  private static ColumnFamilyDescriptorBuilder family(String name) {
    return ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(name)).setMaxVersions(3);
  }

  private static TableDescriptorBuilder table(String name, ColumnFamilyDescriptorBuilder... families) {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(TableName.valueOf(name));
    for (ColumnFamilyDescriptorBuilder family : families) {
      table.setColumnFamily(family.build());
    }
    return table;
  }

  private static byte[] row(long number) {
    return Bytes.toBytes(String.format("row%08d", number));
  }

  private static byte[] value(long number, int len) {
    byte[] value = new byte[len];
    new Random(number).nextBytes(value);
    Arrays.fill(value, 0, len / 2, (byte) number); // half of it is worth compressing
    return value;
  }

  /** Every encoding with every compression and kind of bloom filter, in two files each. */
  private void formats() throws IOException {
    Compression.Algorithm[] compressions = {Compression.Algorithm.NONE, Compression.Algorithm.GZ, Compression.Algorithm.SNAPPY,
        Compression.Algorithm.LZ4, Compression.Algorithm.ZSTD};
    BloomType[] blooms = BloomType.values();
    DataBlockEncoding[] encodings = {DataBlockEncoding.NONE, DataBlockEncoding.PREFIX, DataBlockEncoding.DIFF,
        DataBlockEncoding.FAST_DIFF, DataBlockEncoding.ROW_INDEX_V1};
    int number = 0;
    for (Compression.Algorithm compression : compressions) {
      TableDescriptorBuilder builder = table("formats_" + compression.getName());
      for (DataBlockEncoding encoding : encodings) {
        builder.setColumnFamily(family("f" + encoding.getId()).setDataBlockEncoding(encoding).setCompressionType(compression)
            .setBlocksize(2048).setBloomFilterType(blooms[number++ % blooms.length])
            .setConfiguration("RowPrefixBloomFilter.prefix_length", "5").build());
      }
      admin.createTable(builder.build());
      for (int file = 0; file < 2; file++) {
        List<Put> puts = new ArrayList<>();
        for (int i = file; i < 400; i += 1 + file) {
          Put put = new Put(row(i));
          for (ColumnFamilyDescriptor f : builder.build().getColumnFamilies()) {
            put.addColumn(f.getName(), Q, T0 + file, value(i + file, 40));
            put.addColumn(f.getName(), Bytes.toBytes("long qualifier " + i), T0 + i, value(i, i % 100));
          }
          puts.add(put);
        }
        put(builder.build().getTableName(), puts);
        admin.flush(builder.build().getTableName());
      }
    }
  }

  /** Many regions; versions, every kind of delete, counters, cells that have expired and that will. */
  private void wide() throws IOException {
    byte[][] splits = new byte[11][];
    for (int i = 0; i < splits.length; i++) {
      splits[i] = row((i + 1) * 100L);
    }
    TableName name = TableName.valueOf("n1:wide");
    admin.createTable(table("n1:wide", family("v").setMaxVersions(5).setMinVersions(1), family("ttl").setTimeToLive(400_000_000),
        family("kept").setKeepDeletedCells(org.apache.hadoop.hbase.KeepDeletedCells.TRUE), family("mem").setInMemory(true))
        .setValue("a setting", "its value").setMaxFileSize(7L << 30).setValue(FILES_MIN, "100").build(), splits);
    byte[] v = Bytes.toBytes("v"), ttl = Bytes.toBytes("ttl"), kept = Bytes.toBytes("kept");
    try (Table table = connection.getTable(name)) {
      for (int round = 0; round < 3; round++) {
        List<Put> puts = new ArrayList<>();
        for (int i = 0; i < 1200; i += 2) {
          Put put = new Put(row(i)).addColumn(v, Q, T0 + round, value(i + round, 30)).addColumn(kept, Q, T0 + round, value(i, 9));
          put.addColumn(ttl, Q, T0, value(i, 5)); // long expired
          put.addColumn(ttl, Bytes.toBytes("young"), System.currentTimeMillis(), value(i, 5));
          puts.add(put);
        }
        table.put(puts);
        for (int i = round; i < 1200; i += 50) {
          table.delete(new Delete(row(i)));
          table.delete(new Delete(row(i + 2)).addColumn(v, Q, T0 + 1));
          table.delete(new Delete(row(i + 4)).addColumns(v, Q, T0 + round));
          table.delete(new Delete(row(i + 6)).addFamily(kept, T0 + 1));
          table.delete(new Delete(row(i + 8)).addFamilyVersion(v, T0));
          table.increment(new Increment(row(i)).addColumn(Bytes.toBytes("mem"), Q, round + 7));
        }
        admin.flush(name);
      }
      Put large = new Put(row(555));
      large.addColumn(v, Bytes.toBytes("large"), T0, value(1, 3 << 20));
      large.addColumn(v, Bytes.toBytes("short-lived"), T0, value(1, 10));
      table.put(large);
      table.put(new Put(row(556)).setTTL(3_600_000_000L).addColumn(v, Q, value(1, 8)));
    }
  }

  /** Files whose index has several levels. */
  private void deep() throws IOException {
    TableDescriptorBuilder builder = table("deep", family("f").setBlocksize(1024)).setValue("hfile.index.block.max.size", "512");
    builder.setValue("io.storefile.bloom.block.size", "1024");
    admin.createTable(builder.build());
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 20_000; i++) {
      puts.add(new Put(row(i)).addColumn(Bytes.toBytes("f"), Q, T0, value(i, 20)));
    }
    put(builder.build().getTableName(), puts);
    admin.flush(builder.build().getTableName());
  }

  /** Several files that hold the same cells with other values: the later write counts. */
  private void layers() throws Exception {
    TableName name = TableName.valueOf("layers");
    admin.createTable(table("layers", family("f").setMaxVersions(1)).setValue(FILES_MIN, "100").build());
    for (int file = 0; file < 6; file++) {
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < 200; i++) {
        puts.add(new Put(row(i)).addColumn(Bytes.toBytes("f"), Q, T0, value(i * 10 + file, 12)));
      }
      put(name, puts);
      admin.flush(name);
      if (file == 3) {
        compact(name);
      }
    }
  }

  private void rows(TableName name, int count) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      puts.add(new Put(row(i)).addColumn(Bytes.toBytes("f"), Q, T0, value(i, 50)));
    }
    put(name, puts);
  }

  private void splits() throws Exception {
    TableName name = TableName.valueOf("n1:split");
    admin.createTable(table("n1:split", family("f")).build());
    rows(name, 500);
    admin.flush(name);
    split(name, 200);
    compact(name);
    split(name, 400);
    rows(name, 50);
    // Split, and nothing more: references, if the server leaves them.
    TableName fresh = TableName.valueOf("fresh_split");
    admin.createTable(table("fresh_split", family("f")).build());
    rows(fresh, 300);
    admin.flush(fresh);
    split(fresh, 100);
  }

  private void merges() throws Exception {
    TableName name = TableName.valueOf("merged");
    admin.createTable(table("merged", family("f")).build(), new byte[][] {row(100), row(200), row(300)});
    rows(name, 400);
    admin.flush(name);
    List<RegionInfo> regions = admin.getRegions(name);
    admin.mergeRegionsAsync(new byte[][] {regions.get(1).getEncodedNameAsBytes(), regions.get(2).getEncodedNameAsBytes()}, false)
        .get();
  }

  private void states() throws Exception {
    admin.createTable(table("empty", family("f"), family("g")).build(), new byte[][] {row(1), row(2)});
    TableName disabled = TableName.valueOf("n1:disabled");
    admin.createTable(table("n1:disabled", family("f")).build(), new byte[][] {row(50)});
    rows(disabled, 100);
    admin.disableTable(disabled);
    TableName gone = TableName.valueOf("gone");
    admin.createTable(table("gone", family("f")).build());
    rows(gone, 100);
    admin.disableTable(gone);
    admin.deleteTable(gone);
    TableName truncated = TableName.valueOf("truncated");
    admin.createTable(table("truncated", family("f")).build(), new byte[][] {row(50)});
    rows(truncated, 100);
    admin.disableTable(truncated);
    admin.truncateTable(truncated, true);
    rows(truncated, 10);
    TableName altered = TableName.valueOf("altered");
    admin.createTable(table("altered", family("f"), family("g")).build());
    rows(altered, 20);
    admin.deleteColumnFamily(altered, Bytes.toBytes("g"));
    admin.addColumnFamily(altered, family("h").setBloomFilterType(BloomType.ROWCOL).build());
  }

  private void snapshots() throws Exception {
    TableName name = TableName.valueOf("photographed");
    admin.createTable(table("photographed", family("f")).build(), new byte[][] {row(50)});
    rows(name, 100);
    admin.snapshot("picture", name);
    rows(name, 120);
    admin.cloneSnapshot("picture", TableName.valueOf("n1:cloned"));
    admin.cloneSnapshot("picture", TableName.valueOf("cloned_and_split"));
    split(TableName.valueOf("cloned_and_split"), 20);
    admin.snapshot("second picture".replace(' ', '_'), TableName.valueOf("n1:cloned"));
    compact(name);
  }

  /** Rows that were not flushed, in tables that regions of which have been split, merged and cloned. */
  private void unflushed() throws IOException {
    // No two runs write the same cells, and no cell is deleted that may still be in memory: whether a raw scan shows those depends
    // on when they were flushed.
    long at = System.currentTimeMillis();
    for (String table : new String[] {"n1:split", "merged", "layers", "truncated", "altered", "n1:cloned", "cloned_and_split"}) {
      TableName name = TableName.valueOf(table);
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < 600; i += 7) {
        puts.add(new Put(row(i)).addColumn(Bytes.toBytes("f"), Bytes.toBytes("unflushed"), at, value(i, 25)));
      }
      put(name, puts);
      try (Table opened = connection.getTable(name)) {
        opened.delete(new Delete(row(15)));
        opened.increment(new Increment(row(10_000 + at % 10_000)).addColumn(Bytes.toBytes("f"), Bytes.toBytes("count"), 5));
      }
    }
    TableName late = TableName.valueOf("late");
    if (!admin.tableExists(late)) {
      admin.createTable(table("late", family("f")).build());
      rows(late, 100);
    }
  }

  private void half() throws Exception {
    byte[][] splits = new byte[300][];
    for (int i = 0; i < splits.length; i++) {
      splits[i] = row(i + 1);
    }
    admin.createTableAsync(table("half", family("f")).build(), splits);
  }

  private void work() throws Exception {
    unflushed();
    TableName name = TableName.valueOf("n1:split");
    for (String table : new String[] {"n1:split", "merged", "deep", "n1:wide", "fresh_split", "n1:cloned", "cloned_and_split"}) {
      admin.flush(TableName.valueOf(table));
    }
    compact(name);
    split(name, 270 + 10 * admin.getRegions(name).size());
    compact(TableName.valueOf("n1:wide"));
    TableName more = TableName.valueOf("n1:more" + admin.listTableDescriptors().size());
    admin.createTable(table(more.getNameAsString(), family("f")).build());
    rows(more, 100);
    admin.createNamespace(NamespaceDescriptor.create("ns" + admin.listNamespaceDescriptors().length).build());
    admin.enableTable(TableName.valueOf("n1:disabled"));
    TableName copy = TableName.valueOf("copy" + admin.listTableDescriptors().size());
    admin.cloneSnapshot("second_picture", copy);
    rows(copy, 3);
    admin.disableTable(TableName.valueOf("n1:disabled"));
    admin.modifyColumnFamily(TableName.valueOf("altered"), family("h").setMaxVersions(9).build());
  }

  private void put(TableName name, List<Put> puts) throws IOException {
    try (Table table = connection.getTable(name)) {
      table.put(puts);
    }
  }

  /** A region that still has references is not split: its server has to compact it first. */
  private void split(TableName name, int at) throws Exception {
    int before = admin.getRegions(name).size();
    for (int tries = 0; admin.getRegions(name).size() == before; tries++) {
      for (RegionInfo region : admin.getRegions(name)) {
        if (region.containsRow(row(at)) && !Bytes.equals(region.getStartKey(), row(at))) {
          try {
            admin.splitRegionAsync(region.getRegionName(), row(at)).get();
          } catch (Exception e) {
            if (tries == 100) {
              throw e;
            }
          }
        }
      }
      Thread.sleep(200);
    }
  }

  private void compact(TableName name) throws Exception {
    admin.majorCompact(name);
    Thread.sleep(300);
    for (int i = 0; i < 200 && admin.getCompactionState(name) != CompactionState.NONE; i++) {
      Thread.sleep(50);
    }
  }

  // ---- dumping ----

  private List<String> dump() throws Exception {
    List<String> lines = new ArrayList<>();
    for (NamespaceDescriptor namespace : admin.listNamespaceDescriptors()) {
      lines.add("namespace " + namespace.getName() + " " + new TreeMap<>(namespace.getConfiguration()));
    }
    for (SnapshotDescription snapshot : admin.listSnapshots()) {
      lines.add("snapshot " + snapshot.getName() + " of " + snapshot.getTableNameAsString() + " " + snapshot.getType());
    }
    lines.add("switches " + admin.isBalancerEnabled() + " " + admin.isSplitEnabled() + " " + admin.isMergeEnabled());
    for (TableDescriptor descriptor : admin.listTableDescriptors()) {
      TableName name = descriptor.getTableName();
      boolean disabled = admin.isTableDisabled(name);
      lines.add("table " + name + (disabled ? " disabled " : " enabled ") + values(descriptor.getValues()));
      for (ColumnFamilyDescriptor family : descriptor.getColumnFamilies()) {
        lines.add("family " + name + " " + family.getNameAsString() + " " + values(family.getValues())
            + new TreeMap<>(family.getConfiguration()));
      }
      if (disabled) {
        admin.enableTable(name);
      }
      for (RegionInfo region : admin.getRegions(name)) {
        lines.add("region " + region.getRegionNameAsString() + " to " + Bytes.toStringBinary(region.getEndKey()));
      }
      try {
        scan(lines, name, new Scan().readAllVersions(), "cell");
        scan(lines, name, new Scan().readAllVersions().setRaw(true), "raw");
      } catch (IOException e) {
        lines.add("unreadable " + name + " " + String.valueOf(e.getMessage()).lines().findFirst().orElse(""));
      }
      if (disabled) {
        admin.disableTable(name);
      }
    }
    Collections.sort(lines);
    return lines;
  }

  private static <T> String values(Map<T, T> values) {
    TreeSet<String> sorted = new TreeSet<>();
    values.forEach((key, value) -> sorted.add(key + "=" + value));
    return sorted.toString();
  }

  private void scan(List<String> lines, TableName name, Scan scan, String word) throws IOException {
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) {
          lines.add(word + " " + name + " " + cell + " "
              + Bytes.hashCode(cell.getValueArray(), cell.getValueOffset(), cell.getValueLength()));
        }
      }
    }
  }
}
