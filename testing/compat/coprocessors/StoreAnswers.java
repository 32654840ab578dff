import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;

/** What clients see of coprocessors that look at flushes and compactions. */
final class StoreAnswers {
  private static final byte[] F = Bytes.toBytes("f"), PLAIN = Bytes.toBytes("plain");
  private final Admin admin;
  private final TableName name;
  private final Table table;

  private final Configuration configuration;
  private final String directory;

  private StoreAnswers(Connection connection, String name, String directory) throws Exception {
    this.configuration = connection.getConfiguration();
    this.directory = directory;
    this.admin = connection.getAdmin();
    this.name = TableName.valueOf(name);
    this.table = connection.getTable(this.name);
  }

  static void run(Connection connection, Admin admin, String jar, String directory) throws Exception {
    for (boolean keeps : new boolean[] { false, true }) {
      String name = keeps ? "keeping" : "stores";
      admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf(name))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(2).setTimeToLive(1_000_000).build())
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of(PLAIN))
        .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Stores").setJarPath(jar)
          .setProperty("keep", Boolean.toString(keeps)).build()).build());
      new StoreAnswers(connection, name, directory).answers();
    }
  }

  /** All that is there, with types and timestamps. */
  private String all() throws Exception {
    List<String> cells = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(new Scan().setRaw(true).readAllVersions())) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) {
          cells.add(Bytes.toString(CellUtil.cloneRow(cell)) + '/' + Bytes.toString(CellUtil.cloneQualifier(cell)) + '/' + cell.getTimestamp() % 1000
            + '/' + cell.getType() + '=' + Bytes.toString(CellUtil.cloneValue(cell)));
        }
      }
    }
    return cells.toString();
  }

  private String seen() throws Exception {
    return Bytes.toString(table.get(new Get(Bytes.toBytes("seen"))).value());
  }

  /** What was seen whose name has this part. */
  private List<String> seen(String part) throws Exception {
    List<String> seen = new ArrayList<>(List.of(seen().split("[{,}] ?")));
    seen.removeIf(what -> !what.contains(part));
    return seen;
  }

  private String versions(int kept, boolean asScan) throws Exception {
    Get get = new Get(Bytes.toBytes("r1")).readAllVersions().addColumn(F, Bytes.toBytes("a"));
    Scan scan = new Scan(get);
    if (kept > 0) {
      get.setAttribute("versions", Bytes.toBytes(kept));
      scan.setAttribute("versions", Bytes.toBytes(kept));
    }
    if (!asScan) return Integer.toString(table.get(get).size());
    int cells = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) cells += result.size();
    }
    return Integer.toString(cells);
  }

  private void put(long base, String value) throws Exception {
    for (int version = 1; version <= 4; version++) {
      Put put = new Put(Bytes.toBytes("r1"), base + version).addColumn(F, Bytes.toBytes("a"), Bytes.toBytes(value + version));
      put.addColumn(PLAIN, Bytes.toBytes("p"), Bytes.toBytes(value + version));
      table.put(put);
    }
    for (int row = 2; row < 30; row++) {
      Put put = new Put(Bytes.toBytes("r" + row), base);
      for (String column : new String[] { "a", "drop", "mark" }) put.addColumn(F, Bytes.toBytes(column), Bytes.toBytes(value));
      for (int column = 0; column < 25 && row < 4; column++) put.addColumn(F, Bytes.toBytes("w" + column), Bytes.toBytes(value));
      table.put(put);
    }
    table.delete(new Delete(Bytes.toBytes("r5"), base + 10));
    table.delete(new Delete(Bytes.toBytes("r6")).addColumns(F, Bytes.toBytes("mark"), base + 10));
  }

  private void compact(boolean major) throws Exception {
    long before = admin.getLastMajorCompactionTimestamp(name);
    if (major) admin.majorCompact(name);
    else admin.compact(name);
    for (int tries = 0; tries < 600; tries++) {
      Thread.sleep(100);
      boolean isOver = major ? admin.getLastMajorCompactionTimestamp(name) > before : files() == 2;
      if (isOver && admin.getCompactionState(name) == CompactionState.NONE && tries > 10) return;
    }
    throw new Exception("no compaction");
  }

  private int files() throws Exception {
    int files = 0;
    for (RegionMetrics region : admin.getRegionMetrics(admin.getClusterMetrics().getLiveServerMetrics().keySet().iterator().next(), name)) {
      files += region.getStoreFileCount();
    }
    return files;
  }

  /** Loads an HFile of two rows for each family that is named, with this word in the names of files and rows. */
  private String bulkLoad(String word, String... families) throws Exception {
    Path root = new Path(directory + "/bulk-" + name + "-" + word);
    FileSystem files = FileSystem.getLocal(configuration);
    for (String family : families) {
      String file = family.equals("f") ? word : "whole";
      try (HFile.Writer writer = HFile.getWriterFactory(configuration, CacheConfig.DISABLED).withPath(files, new Path(root, family + "/" + file))
        .withFileContext(new HFileContextBuilder().build()).create()) {
        for (int row = 0; row < 2; row++) {
          writer.append(new KeyValue(Bytes.toBytes(word + row), Bytes.toBytes(family), Bytes.toBytes("a"), System.currentTimeMillis(),
            Bytes.toBytes(word)));
        }
      }
    }
    BulkLoadHFiles.create(configuration).bulkLoad(name, root);
    StringBuilder rows = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(new Scan().setRowPrefixFilter(Bytes.toBytes(word)))) {
      for (Result result : scanner) rows.append(Bytes.toString(result.getRow())).append(' ').append(result.size()).append(' ');
    }
    return rows.toString();
  }

  private void answers() throws Exception {
    long base = System.currentTimeMillis() / 1000 * 1000 - 10_000;
    String of = name + ": ";
    Coprocessors.say(of + "seen at first", this::seen);
    put(base, "x");
    Coprocessors.say(of + "in memory", this::all);
    Coprocessors.say(of + "seen of reads", this::seen);
    admin.flush(name);
    Coprocessors.say(of + "seen of a flush", this::seen);
    Coprocessors.say(of + "flushed", this::all);
    for (int kept : new int[] { 0, 1, 3, 7 }) {
      Coprocessors.say(of + "versions of a get that keeps " + kept, () -> versions(kept, false));
      Coprocessors.say(of + "versions of a scan that keeps " + kept, () -> versions(kept, true));
    }
    Coprocessors.say(of + "a get that is refused", () -> {
      Get get = new Get(Bytes.toBytes("r1"));
      get.setAttribute("refused", F);
      return table.get(get).size();
    });
    Coprocessors.say(of + "a batch of gets", () -> {
      Get kept = new Get(Bytes.toBytes("r1")).readAllVersions().addFamily(F);
      kept.setAttribute("versions", Bytes.toBytes(1));
      Result[] results = table.get(List.of(kept, new Get(Bytes.toBytes("r1")).readAllVersions().addFamily(F)));
      return results[0].size() + " " + results[1].size();
    });
    put(base + 100, "y");
    Coprocessors.say(of + "seen of gets", this::seen);
    admin.flush(name);
    admin.flush(name); // nothing to be done
    Coprocessors.say(of + "seen of two flushes", this::seen);
    put(base + 150, "w");
    admin.flush(name); // with three files a compaction may begin by itself
    compact(false);
    Coprocessors.say(of + "seen of a compaction", () -> seen("ompact"));
    Coprocessors.say(of + "compacted", this::all);
    put(base + 200, "z");
    admin.flush(name);
    seen();
    compact(true);
    Coprocessors.say(of + "seen of a major compaction", this::seen);
    Coprocessors.say(of + "compacted as a whole", this::all);
    put(base + 300, "u");
    admin.disableTable(name);
    admin.enableTable(name);
    Coprocessors.say(of + "flushed by a close", this::all);
    admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(name)).setValue("x", "y").build());
    Coprocessors.say(of + "a scan after all", () -> {
      int cells = 0;
      try (ResultScanner scanner = table.getScanner(new Scan())) {
        for (Result result : scanner) cells += result.size();
      }
      return cells;
    });
    seen();
    Coprocessors.say(of + "a bulk load", () -> bulkLoad("loaded", "f", "plain"));
    Coprocessors.say(of + "seen of a bulk load", () -> seen("BulkLoad"));
    Coprocessors.say(of + "a bulk load of which a file is left out", () -> bulkLoad("left", "f", "plain"));
    Coprocessors.say(of + "a bulk load of which all is left out", () -> bulkLoad("left-all", "f"));
    Coprocessors.say(of + "a bulk load that is refused", () -> bulkLoad("refused", "f"));
    table.close();
  }
}
