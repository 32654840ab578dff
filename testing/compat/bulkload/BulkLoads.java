import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Bulk loads with HBase's own BulkLoadHFilesTool: two families, three regions, files that have rows of several regions, damaged
 * files. Arguments: ZooKeeper's host:port, the root directory, a working directory.
 */
public class BulkLoads {
  private static final byte[] Q = Bytes.toBytes("q");
  private static final String[] FAMILIES = {"f", "g"};
  private static Configuration conf;
  private static FileSystem fs;

  public static void main(String[] args) throws Exception {
    conf = HBaseConfiguration.create();
    String[] zk = args[0].split(":");
    conf.set("hbase.zookeeper.quorum", zk[0]);
    conf.set("hbase.zookeeper.property.clientPort", zk[1]);
    conf.set("hbase.rootdir", args[1]);
    conf.set("hbase.fs.tmp.dir", args[2] + "/tmp");
    conf.setInt("hbase.bulkload.retries.number", 3);
    fs = FileSystem.getLocal(conf).getRaw();
    TableName name = TableName.valueOf("bulk");
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
      for (String family : FAMILIES) {
        table.setColumnFamily(ColumnFamilyDescriptorBuilder.of(family));
      }
      admin.createTable(table.build(), new byte[][] {Bytes.toBytes("row0300"), Bytes.toBytes("row0600")});
      Table rows = connection.getTable(name);
      rows.put(new Put(Bytes.toBytes("row0005")).addColumn(Bytes.toBytes("f"), Q, 5, Bytes.toBytes("old")));

      String whole = args[2] + "/whole";
      for (String family : FAMILIES) {
        write(whole, family, 0, 900, "v");
      }
      load(name, whole);
      check(rows, 900, "v");

      admin.split(name, Bytes.toBytes("row0450"));
      String second = args[2] + "/second";
      for (String family : FAMILIES) {
        write(second, family, 200, 700, "w");
      }
      load(name, second);
      checkRange(rows, 0, 200, "v");
      checkRange(rows, 200, 700, "w");
      checkRange(rows, 700, 900, "v");

      admin.majorCompact(name);
      admin.flush(name);
      checkRange(rows, 200, 700, "w");

      damaged(name, args[2] + "/half", rows);
      System.out.println("bulk loads passed");
    }
  }

  private static void load(TableName name, String dir) throws IOException {
    Map<?, ?> loaded = BulkLoadHFiles.create(conf).bulkLoad(name, new Path("file://" + dir));
    System.out.println(dir + ": " + loaded.size() + " loaded");
  }

  /** A file of which the second half is missing: the tool passes over it and loads the other one. */
  private static void damaged(TableName name, String dir, Table rows) throws Exception {
    for (String family : FAMILIES) {
      write(dir, family, 0, 100, "x");
    }
    Path cut = new Path(dir + "/g/0000000000000000000000000000000a");
    byte[] bytes = Files.readAllBytes(Paths.get(cut.toString()));
    Files.write(Paths.get(cut.toString()), java.util.Arrays.copyOf(bytes, bytes.length / 2));
    load(name, dir);
    for (int row = 0; row < 100; row++) {
      Result result = rows.get(new Get(key(row)));
      String f = Bytes.toString(result.getValue(Bytes.toBytes("f"), Q));
      String g = Bytes.toString(result.getValue(Bytes.toBytes("g"), Q));
      if (!("x" + row).equals(f) || !("v" + row).equals(g)) {
        throw new AssertionError("row " + row + " is " + f + " " + g);
      }
    }
  }

  private static void write(String dir, String family, int from, int to, String value) throws IOException {
    Path path = new Path(dir + "/" + family + "/0000000000000000000000000000000a");
    try (HFile.Writer writer = HFile.getWriterFactory(conf, new CacheConfig(conf)).withPath(fs, path)
      .withFileContext(new HFileContextBuilder().withBlockSize(1024).build()).create()) {
      for (int row = from; row < to; row++) {
        writer.append(new KeyValue(key(row), Bytes.toBytes(family), Q, 5, Bytes.toBytes(value + row)));
      }
      writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(System.currentTimeMillis()));
    }
  }

  private static byte[] key(int row) {
    return Bytes.toBytes(String.format("row%04d", row));
  }

  private static void check(Table rows, int count, String value) throws IOException {
    checkRange(rows, 0, count, value);
    try (ResultScanner scanner = rows.getScanner(new Scan())) {
      int seen = 0;
      while (scanner.next() != null) {
        seen++;
      }
      if (seen != count) {
        throw new AssertionError(seen + " rows, not " + count);
      }
    }
  }

  private static void checkRange(Table rows, int from, int to, String value) throws IOException {
    Scan scan = new Scan().withStartRow(key(from)).withStopRow(key(to));
    try (ResultScanner scanner = rows.getScanner(scan)) {
      for (int row = from; row < to; row++) {
        Result result = scanner.next();
        for (String family : FAMILIES) {
          String found = Bytes.toString(result.getValue(Bytes.toBytes(family), Q));
          if (!(value + row).equals(found)) {
            throw new AssertionError("row " + row + " of " + family + " is " + found);
          }
        }
      }
    }
  }
}
