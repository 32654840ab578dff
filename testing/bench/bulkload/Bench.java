// For testing/bench/bulkload.sh. ROOT and DIRECTORY are URIs.
//
//   java -cp JARS Bench write DIRECTORY FILES ROWS         HFiles of the family f, of ROWS rows each, values of 1,000 bytes
//   java ... create ZOOKEEPER ROOT TABLE FILES ROWS SHIFT  a region for each file; SHIFT rows later than the files begin
//   java ... load ZOOKEEPER ROOT TABLE DIRECTORY           prints the seconds that BulkLoadHFilesTool took
//   java ... check ZOOKEEPER ROOT TABLE FILES ROWS         reads the first and last row of each file, and 1,000 others
//   java ... back ZOOKEEPER ROOT TABLE DIRECTORY           takes the files of a table with a file in each region back into the directory
//   java ... drop ZOOKEEPER ROOT TABLE

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;

public class Bench {
  static final byte[] F = Bytes.toBytes("f"), Q = Bytes.toBytes("q");
  static final int VALUE_BYTES = 1000, THREADS = 2, READS = 1000;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    if (args[0].equals("write")) {
      write(conf, args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
      return;
    }
    conf.set("hbase.zookeeper.quorum", args[1].substring(0, args[1].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[1].substring(args[1].lastIndexOf(':') + 1));
    conf.set("hbase.rootdir", args[2]);
    TableName table = TableName.valueOf(args[3]);
    try (Connection c = ConnectionFactory.createConnection(conf); Admin admin = c.getAdmin()) {
      switch (args[0]) {
        case "create": create(admin, table, Integer.parseInt(args[4]), Integer.parseInt(args[5]), Integer.parseInt(args[6])); break;
        case "load":
          long start = System.nanoTime();
          Map<?, ?> loaded = BulkLoadHFiles.create(conf).bulkLoad(table, new Path(args[4]));
          System.out.printf("%.3f%n", (System.nanoTime() - start) / 1e9);
          System.err.println(loaded.size() + " files loaded");
          break;
        case "check": check(c, table, Integer.parseInt(args[4]), Integer.parseInt(args[5])); break;
        case "back": back(conf, c, admin, table, new Path(args[2]), new Path(args[4])); break;
        case "drop":
          if (admin.isTableEnabled(table)) admin.disableTable(table);
          admin.deleteTable(table);
          break;
        default: throw new IllegalArgumentException(args[0]);
      }
    }
  }

  static byte[] row(long number) { return Bytes.toBytes(String.format("%016d", number)); }

  /** Depends on the row alone, and does not compress. */
  static byte[] value(long number) {
    byte[] value = new byte[VALUE_BYTES];
    new Random(number).nextBytes(value);
    return value;
  }

  static void write(Configuration conf, String directory, int files, int rows) throws Exception {
    FileSystem fs = new Path(directory).getFileSystem(conf);
    fs.delete(new Path(directory), true);
    Thread[] threads = new Thread[THREADS];
    IOException[] failed = new IOException[1];
    for (int thread = 0; thread < THREADS; thread++) {
      int first = thread;
      threads[thread] = new Thread(() -> {
        try {
          for (int file = first; file < files; file += THREADS) writeOne(conf, fs, directory, file, rows);
        } catch (IOException e) {
          failed[0] = e;
        }
      });
      threads[thread].start();
    }
    for (Thread thread : threads) thread.join();
    if (failed[0] != null) throw failed[0];
  }

  static Path filePath(String directory, int file) { return new Path(directory, String.format("f/%032x", file)); }

  static void writeOne(Configuration conf, FileSystem fs, String directory, int file, int rows) throws IOException {
    Path path = filePath(directory, file);
    StoreFileWriter writer = new StoreFileWriter.Builder(conf, CacheConfig.DISABLED, fs).withFilePath(path).withBloomType(BloomType.ROW)
      .withFileContext(new HFileContextBuilder().withBlockSize(65536).withBytesPerCheckSum(16384).build()).build();
    for (long number = (long) file * rows; number < (file + 1L) * rows; number++) {
      writer.append(new KeyValue(row(number), F, Q, 5, value(number)));
    }
    writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(System.currentTimeMillis()));
    writer.close();
  }

  static void create(Admin admin, TableName table, int files, int rows, int shift) throws IOException {
    byte[][] splits = IntStream.range(1, files).mapToObj(file -> row((long) file * rows + shift)).toArray(byte[][]::new);
    admin.createTable(TableDescriptorBuilder.newBuilder(table)
      .setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
  }

  static void back(Configuration conf, Connection c, Admin admin, TableName table, Path root, Path directory) throws IOException {
    List<HRegionLocation> regions;
    try (RegionLocator locator = c.getRegionLocator(table)) { regions = locator.getAllRegionLocations(); }
    admin.disableTable(table);
    FileSystem fs = root.getFileSystem(conf);
    for (int file = 0; file < regions.size(); file++) {
      String region = regions.get(file).getRegion().getEncodedName();
      FileStatus[] found = fs.listStatus(new Path(root, "data/default/" + table + "/" + region + "/f"));
      Path path = filePath(directory.toString(), file);
      if (found.length != 1 || !fs.rename(found[0].getPath(), path)) throw new IOException(region + " has " + found.length + " files");
    }
  }

  static void check(Connection c, TableName table, int files, int rows) throws IOException {
    long all = (long) files * rows;
    long[] numbers = new Random(1).longs(READS, 0, all).toArray();
    try (Table t = c.getTable(table)) {
      for (int file = 0; file < files; file++) {
        same(t, (long) file * rows);
        same(t, (file + 1L) * rows - 1);
      }
      for (long number : numbers) same(t, number);
      if (t.exists(new Get(row(all)))) throw new AssertionError("a row behind the last one");
    }
  }

  static void same(Table table, long number) throws IOException {
    if (!Arrays.equals(table.get(new Get(row(number))).getValue(F, Q), value(number))) throw new AssertionError("row " + number);
  }
}
