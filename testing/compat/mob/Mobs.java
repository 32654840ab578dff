// What a client of HBase sees of tables with MOB families, and what is in the root directory then, a line each.
//
//   java -cp JARS Mobs.java answers ZOOKEEPER ROOT     all of it, once
//   java -cp JARS Mobs.java fill|work ZOOKEEPER ROOT   makes tables and snapshots; changes them, with further snapshots
//   java -cp JARS Mobs.java alter ZOOKEEPER ROOT       compacts "m1" and "m2", and writes more
//   java -cp JARS Mobs.java dump ZOOKEEPER ROOT        every version of every cell of the tables "m*", as a client reads it
//   java -cp JARS Mobs.java snapshot|clone ZOOKEEPER ROOT PREFIX   takes snapshots of "m1" and "m2", with this before their names, and
//                                                      prints their names; makes tables of such snapshots
//   java -cp JARS Mobs.java clean ZOOKEEPER ROOT       of a server that cleans each second: CompactType.MOB, and what goes when
//   java -cp JARS Mobs.java stop ZOOKEEPER ROOT        stops the cluster

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.fs.HFileSystem;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.mob.MobUtils;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.tool.BulkLoadHFilesTool;
import org.apache.hadoop.hbase.util.Bytes;

public class Mobs {
  static final byte[] M = Bytes.toBytes("m"), A = Bytes.toBytes("a"), Z = Bytes.toBytes("z"), Q = Bytes.toBytes("q");
  static final int THRESHOLD = 100;
  static Configuration conf;
  static Connection connection;
  static Admin admin;
  static File root;

  interface Step { Object run() throws Exception; }

  public static void main(String[] args) throws Exception {
    conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[1].substring(0, args[1].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[1].substring(args[1].lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 5);
    conf.setInt("hbase.client.pause", 50);
    conf.set("hbase.rootdir", "file://" + args[2]);
    conf.set("fs.defaultFS", "file:///");
    root = new File(args[2]);
    connection = ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
    switch (args[0]) {
      case "answers": answers(); break;
      case "fill": fill(); break;
      case "work": work(); break;
      case "alter": alter("m1", "m2"); break;
      case "dump": dump(); break;
      case "clean": clean(); break;
      case "snapshot": snapshot(args[3]); break;
      case "clone": cloned(args[3]); break;
      case "stop": admin.shutdown(); break;
      default: throw new IllegalArgumentException(args[0]);
    }
    if (!args[0].equals("stop")) connection.close();
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  static void say(String format, Object... values) { System.out.println(String.format(format, values)); }

  /** Prints what a step gives, or the exception that it ends with. */
  static void tell(String what, Step step) {
    try {
      say("%s: %s", what, step.run());
    } catch (Throwable error) {
      while (error instanceof RetriesExhaustedException && error.getCause() != null) error = error.getCause();
      if (error instanceof RetriesExhaustedWithDetailsException) error = ((RetriesExhaustedWithDetailsException) error).getCause(0);
      String text = String.valueOf(error.getMessage()).split("\n")[0];
      String kind = text.contains("FileNotFoundException") ? " of a FileNotFoundException" : "";
      say("%s: %s%s", what, error.getClass().getSimpleName(), kind);
    }
  }

  // ---- tables ----

  static ColumnFamilyDescriptorBuilder mobFamily(byte[] name) {
    return ColumnFamilyDescriptorBuilder.newBuilder(name).setMobEnabled(true).setMobThreshold(THRESHOLD).setMaxVersions(3);
  }

  static TableName table(String name) { return TableName.valueOf(name); }

  static void create(String name, byte[][] splits, ColumnFamilyDescriptor... families) throws IOException {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(table(name)).setCompactionEnabled(true);
    for (ColumnFamilyDescriptor family : families) builder.setColumnFamily(family);
    if (splits == null) admin.createTable(builder.build()); else admin.createTable(builder.build(), splits);
  }

  static byte[] value(int number, int length) {
    byte[] value = new byte[length];
    Arrays.fill(value, (byte) ('a' + number % 26));
    byte[] text = Bytes.toBytes(String.format("%06d", number));
    System.arraycopy(text, 0, value, 0, Math.min(text.length, length));
    return value;
  }

  static void put(String name, String row, byte[] family, String qualifier, long timestamp, byte[] value) throws IOException {
    try (Table table = connection.getTable(table(name))) {
      table.put(new Put(Bytes.toBytes(row)).addColumn(family, Bytes.toBytes(qualifier), timestamp, value));
    }
  }

  static void compact(String name, boolean major) throws Exception {
    if (major) admin.majorCompact(table(name)); else admin.compact(table(name));
    settle(name);
  }

  /** Until nothing is compacted: a request takes a moment to become a compaction. */
  static void settle(String name) throws Exception {
    Thread.sleep(1500);
    for (int quiet = 0; quiet < 3;) {
      quiet = admin.getCompactionState(table(name)) == CompactionState.NONE ? quiet + 1 : 0;
      Thread.sleep(200);
    }
  }

  // ---- files ----

  static File mobDir(String name, String family) {
    TableName table = table(name);
    String region = MobUtils.getMobRegionInfo(table).getEncodedName();
    return new File(root, "mobdir/data/" + table.getNamespaceAsString() + "/" + table.getQualifierAsString() + "/" + region + "/" + family);
  }

  static File archiveDir(String name, String family) {
    TableName table = table(name);
    String region = MobUtils.getMobRegionInfo(table).getEncodedName();
    return new File(root, "archive/data/" + table.getNamespaceAsString() + "/" + table.getQualifierAsString() + "/" + region + "/" + family);
  }

  static TreeSet<String> names(File dir) {
    TreeSet<String> names = new TreeSet<>();
    for (File file : dir.listFiles() == null ? new File[0] : dir.listFiles()) {
      if (file.isFile() && !file.getName().endsWith(".crc")) names.add(file.getName());
    }
    return names;
  }

  static TreeSet<String> mobFiles(String name) { return names(mobDir(name, "m")); }

  static List<File> storeFiles(String name, String family) throws IOException {
    List<File> files = new ArrayList<>();
    TableName table = table(name);
    for (RegionInfo region : admin.getRegions(table)) {
      File dir = new File(root, "data/" + table.getNamespaceAsString() + "/" + table.getQualifierAsString() + "/" + region.getEncodedName() + "/" + family);
      for (String file : names(dir)) if (!file.contains("=") && !file.contains(".")) files.add(new File(dir, file));
    }
    return files;
  }


  static String infoKeys(File file) throws Exception {
    TreeSet<String> keys = new TreeSet<>();
    try (HFile.Reader reader = HFile.createReader(new HFileSystem(conf, false), new org.apache.hadoop.fs.Path("file://" + file), CacheConfig.DISABLED, true, conf)) {
      for (byte[] key : reader.getHFileInfo().keySet()) keys.add(Bytes.toString(key));
    }
    return keys.toString();
  }

  static byte[] infoValue(File file, String key) throws Exception {
    try (HFile.Reader reader = HFile.createReader(new HFileSystem(conf, false), new org.apache.hadoop.fs.Path("file://" + file), CacheConfig.DISABLED, true, conf)) {
      return reader.getHFileInfo().get(Bytes.toBytes(key));
    }
  }

  /** How many mob files the store files refer to, in all. */
  static int referred(String name) throws Exception {
    TreeSet<String> all = new TreeSet<>();
    for (File file : storeFiles(name, "m")) {
      byte[] refs = infoValue(file, "MOB_FILE_REFS");
      if (refs != null) all.addAll(MobUtils.deserializeMobFileRefs(refs).build().values());
    }
    return all.size();
  }

  // ---- cells ----

  static String md5(byte[] bytes) {
    try {
      return Bytes.toHex(MessageDigest.getInstance("MD5").digest(bytes)).substring(0, 8);
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  static String show(Cell cell) {
    byte[] value = CellUtil.cloneValue(cell);
    boolean reference = value.length > 100 && value.length < 120 && value[0] == 0;
    String shown = reference ? "reference " + Bytes.toInt(value) : value.length + " " + md5(value);
    return Bytes.toString(CellUtil.cloneRow(cell)) + "/" + Bytes.toString(CellUtil.cloneFamily(cell)) + ":" + Bytes.toString(CellUtil.cloneQualifier(cell))
      + "/" + (cell.getTimestamp() > 1_000_000_000L ? "now" : String.valueOf(cell.getTimestamp())) + "/" + cell.getType() + " " + shown;
  }

  static String show(Result result) {
    List<String> cells = new ArrayList<>();
    if (result.rawCells() != null) for (Cell cell : result.rawCells()) cells.add(show(cell));
    return String.valueOf(cells);
  }

  static String scan(String name, Scan scan) throws IOException {
    StringBuilder rows = new StringBuilder();
    try (Table table = connection.getTable(table(name)); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) rows.append(show(result));
    }
    return rows.toString();
  }

  static Scan all() { return new Scan().readAllVersions(); }

  static Scan with(Filter filter) { return all().setFilter(filter); }

  static Scan attribute(Scan scan, String... names) {
    for (String name : names) scan.setAttribute(name, Bytes.toBytes(true));
    return scan;
  }

  // ---- answers ----

  static void answers() throws Exception {
    descriptors();
    reading();
    modifying();
    compacting();
    missing();
    splitting();
    snapshots();
    removing();
    bulk();
    admins();
    replicas();
  }

  /** A copy of a region finds values in mob files, in those that a compaction has written too. */
  static void replicas() throws Exception {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(table("copied")).setRegionReplication(2);
    admin.createTable(builder.setColumnFamily(mobFamily(M).build()).setColumnFamily(ColumnFamilyDescriptorBuilder.of(A)).build());
    for (int row = 1; row <= 6; row++) {
      put("copied", "r" + row, M, "q", 1, value(row, 100 * row));
      put("copied", "r" + row, A, "q", 1, value(row, 5));
    }
    admin.flush(table("copied"));
    say("a copy: %s", copy(6));
    for (int row = 1; row <= 3; row++) put("copied", "r" + row, M, "q", 2, value(row + 10, 1000 + row));
    try (Table table = connection.getTable(table("copied"))) { table.delete(new Delete(Bytes.toBytes("r6"))); }
    put("copied", "r7", M, "q", 1, value(7, 700));
    put("copied", "r7", M, "s", 1, value(7, 10));
    admin.flush(table("copied"));
    say("after a second flush: %s", copy(7));
    compact("copied", true);
    put("copied", "r8", M, "q", 1, value(8, 800));
    admin.flush(table("copied"));
    say("after a compaction: %s", copy(8));
    admin.disableTable(table("copied"));
    admin.enableTable(table("copied"));
    say("after it was disabled: %s", copy(8));
    admin.disableTable(table("copied"));
    admin.deleteTable(table("copied"));
  }

  /** All versions of the last row, when the copy has it, and of all rows. */
  static String copy(int lastRow) throws Exception {
    Get get = new Get(Bytes.toBytes("r" + lastRow)).setConsistency(Consistency.TIMELINE).setReplicaId(1);
    for (long end = System.nanoTime() + 60_000_000_000L; System.nanoTime() < end; Thread.sleep(100)) {
      try (Table table = connection.getTable(table("copied"))) {
        Result row = table.get(get);
        if (row.isEmpty()) continue;
        Scan scan = all().setConsistency(Consistency.TIMELINE).setReplicaId(1);
        return row.isStale() + " " + show(row) + " " + scan("copied", scan);
      }
    }
    return "nothing within a minute";
  }

  static void descriptors() throws Exception {
    ColumnFamilyDescriptor family = mobFamily(M).setMobCompactPartitionPolicy(MobCompactPartitionPolicy.WEEKLY).build();
    create("attributes", null, family, ColumnFamilyDescriptorBuilder.of(A));
    TableDescriptor descriptor = admin.getDescriptor(table("attributes"));
    ColumnFamilyDescriptor read = descriptor.getColumnFamily(M);
    say("attributes: %s %d %s, other %s %d", read.isMobEnabled(), read.getMobThreshold(), read.getMobCompactPartitionPolicy(),
      descriptor.getColumnFamily(A).isMobEnabled(), descriptor.getColumnFamily(A).getMobThreshold());
    tell("alter", () -> {
      admin.modifyColumnFamily(table("attributes"), mobFamily(M).setMobThreshold(7).build());
      return admin.getDescriptor(table("attributes")).getColumnFamily(M).getMobThreshold();
    });
    admin.disableTable(table("attributes"));
    admin.deleteTable(table("attributes"));
  }

  static void reading() throws Exception {
    create("read", new byte[][] {Bytes.toBytes("r5")}, ColumnFamilyDescriptorBuilder.of(A), mobFamily(M).build(), ColumnFamilyDescriptorBuilder.of(Z));
    for (int row = 1; row <= 8; row++) {
      put("read", "r" + row, A, "q", 1, value(row, 5));
      put("read", "r" + row, M, "q", 1, value(row, 20));
      put("read", "r" + row, M, "q", 2, value(row, 1000 * row));
      put("read", "r" + row, M, "s", 3, value(row, 100));
      put("read", "r" + row, Z, "q", 4, value(row, 500));
    }
    put("read", "r3", M, "q", 3, value(33, 101));
    try (Table table = connection.getTable(table("read"))) {
      table.delete(new Delete(Bytes.toBytes("r4")).addColumns(M, Q, 2));
    }
    for (int round = 0; round < 2; round++) {
      String when = round == 0 ? "in memory" : "flushed";
      tell(when + ", get", () -> {
        try (Table table = connection.getTable(table("read"))) { return show(table.get(new Get(Bytes.toBytes("r2")))); }
      });
      tell(when + ", get of three versions", () -> {
        try (Table table = connection.getTable(table("read"))) {
          return show(table.get(new Get(Bytes.toBytes("r3")).addFamily(M).readAllVersions()));
        }
      });
      tell(when + ", gets", () -> {
        List<Get> gets = new ArrayList<>();
        for (int row = 1; row <= 8; row++) gets.add(new Get(Bytes.toBytes("r" + row)).addColumn(M, Q));
        try (Table table = connection.getTable(table("read"))) { return Arrays.stream(table.get(gets)).map(Mobs::show).collect(java.util.stream.Collectors.toList()); }
      });
      tell(when + ", exists", () -> {
        try (Table table = connection.getTable(table("read"))) {
          return table.exists(new Get(Bytes.toBytes("r2")).addColumn(M, Q)) + " " + table.exists(new Get(Bytes.toBytes("r9")));
        }
      });
      tell(when + ", scan", () -> scan("read", all()));
      tell(when + ", newest", () -> scan("read", new Scan()));
      tell(when + ", reversed", () -> scan("read", all().setReversed(true)));
      tell(when + ", raw", () -> scan("read", all().setRaw(true)));
      tell(when + ", batch", () -> scan("read", all().setBatch(2)));
      tell(when + ", limit and offset", () -> scan("read", all().setMaxResultsPerColumnFamily(1).setRowOffsetPerColumnFamily(1)));
      tell(when + ", small results", () -> scan("read", all().setMaxResultSize(1500)));
      tell(when + ", partial results", () -> {
        // The cells, whatever the results are: where those end depends on the estimate of what is in memory.
        List<String> cells = new ArrayList<>();
        try (Table table = connection.getTable(table("read")); ResultScanner scanner = table.getScanner(all().setMaxResultSize(1500).setAllowPartialResults(true))) {
          for (Result result : scanner) for (Cell cell : result.rawCells()) cells.add(show(cell));
        }
        return cells;
      });
      tell(when + ", times", () -> scan("read", all().setTimeRange(2, 4)));
      tell(when + ", one column", () -> scan("read", all().addColumn(M, Q)));
      if (round == 0) {
        admin.flush(table("read"));
        files("read");
      }
    }
    filters();
    attributes();
    admin.flush(table("read"));
  }

  static void files(String name) throws Exception {
    int files = 0, cells = 0;
    String today = new SimpleDateFormat("yyyyMMdd").format(new Date(4));
    TreeSet<String> regions = new TreeSet<>(), starts = new TreeSet<>();
    for (RegionInfo region : admin.getRegions(table(name))) {
      regions.add(region.getEncodedName());
      starts.add(org.apache.hadoop.hbase.util.MD5Hash.getMD5AsHex(region.getStartKey()));
    }
    for (String file : mobFiles(name)) {
      boolean whole = file.length() == 105 && starts.contains(file.substring(0, 32)) && file.substring(32, 40).equals(today)
        && file.charAt(72) == '_' && regions.contains(file.substring(73));
      cells += Bytes.toLong(infoValue(new File(mobDir(name, "m"), file), "MOB_CELLS_COUNT"));
      files += whole ? 1 : 0;
    }
    say("mob files of %s: %d with names of HBase of %d, %d cells, %d referred to", name, files, mobFiles(name).size(), cells, referred(name));
    say("info of a mob file: %s", infoKeys(new File(mobDir(name, "m"), mobFiles(name).first())));
    say("info of a store file: %s", infoKeys(storeFiles(name, "m").get(0)));
  }

  static void filters() throws Exception {
    Object[][] filters = {
      {"ValueFilter of a small value", new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(value(2, 20)))},
      {"ValueFilter of a large value", new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(value(2, 2000)))},
      {"ValueFilter of a part", new ValueFilter(CompareOperator.EQUAL, new SubstringComparator("bbb"))},
      {"ValueFilter not equal", new ValueFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(value(2, 2000)))},
      {"SingleColumnValueFilter", new SingleColumnValueFilter(M, Q, CompareOperator.EQUAL, value(2, 2000))},
      {"SingleColumnValueExcludeFilter", new SingleColumnValueExcludeFilter(A, Q, CompareOperator.EQUAL, value(2, 5))},
      {"ColumnValueFilter", new ColumnValueFilter(M, Q, CompareOperator.EQUAL, value(2, 2000))},
      {"KeyOnlyFilter", new KeyOnlyFilter()},
      {"KeyOnlyFilter with lengths", new KeyOnlyFilter(true)},
      {"FirstKeyOnlyFilter", new FirstKeyOnlyFilter()},
      {"QualifierFilter", new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(Bytes.toBytes("s")))},
      {"FamilyFilter", new FamilyFilter(CompareOperator.EQUAL, new BinaryComparator(M))},
      {"SkipFilter", new SkipFilter(new ValueFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(value(2, 2000))))},
      {"WhileMatchFilter", new WhileMatchFilter(new RowFilter(CompareOperator.LESS, new BinaryComparator(Bytes.toBytes("r3"))))},
      {"ColumnPaginationFilter", new ColumnPaginationFilter(2, 1)},
      {"DependentColumnFilter", new DependentColumnFilter(M, Q)},
      {"PageFilter", new PageFilter(2)},
      {"list", new FilterList(new FamilyFilter(CompareOperator.EQUAL, new BinaryComparator(M)), new ColumnPrefixFilter(Q))},
      {"list of one", new FilterList(FilterList.Operator.MUST_PASS_ONE, new ColumnPrefixFilter(Bytes.toBytes("s")), new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(value(2, 2000))))},
    };
    for (Object[] filter : filters) tell((String) filter[0], () -> scan("read", with((Filter) filter[1])));
  }

  static void attributes() throws Exception {
    tell("references", () -> scan("read", attribute(all(), "hbase.mob.scan.raw")));
    tell("references only, resolved", () -> scan("read", attribute(all(), "hbase.mob.scan.ref.only")));
    tell("references only", () -> scan("read", attribute(all(), "hbase.mob.scan.ref.only", "hbase.mob.scan.raw")));
    tell("references only, reversed", () -> scan("read", attribute(all().setReversed(true), "hbase.mob.scan.ref.only", "hbase.mob.scan.raw")));
    tell("references only, newest", () -> scan("read", attribute(new Scan(), "hbase.mob.scan.ref.only")));
    tell("references only of a family", () -> scan("read", attribute(all().addFamily(M), "hbase.mob.scan.ref.only")));
    tell("references only, with a filter", () -> scan("read", attribute(with(new PrefixFilter(Bytes.toBytes("r3"))), "hbase.mob.scan.ref.only")));
    tell("blocks cached", () -> scan("read", attribute(new Scan().addFamily(M), "hbase.mob.cache.blocks")));
    tell("a false attribute", () -> scan("read", all().addFamily(M).setAttribute("hbase.mob.scan.raw", Bytes.toBytes(false))));
    tell("a wrong attribute", () -> scan("read", all().addFamily(M).setAttribute("hbase.mob.scan.raw", Bytes.toBytes("true"))));
    tell("a get of a reference", () -> {
      try (Table table = connection.getTable(table("read"))) {
        Get get = new Get(Bytes.toBytes("r2")).addColumn(M, Q);
        get.setAttribute("hbase.mob.scan.raw", Bytes.toBytes(true));
        return show(table.get(get));
      }
    });
  }

  static void modifying() throws Exception {
    create("modify", null, mobFamily(M).build());
    byte[] row = Bytes.toBytes("r");
    put("modify", "r", M, "q", 1, value(1, 500));
    put("modify", "r", M, "n", 1, Bytes.toBytes(41L));
    put("modify", "s", M, "q", 1, value(2, 300));
    admin.flush(table("modify"));
    try (Table table = connection.getTable(table("modify"))) {
      tell("append to a value in a mob file", () -> show(table.append(new Append(row).addColumn(M, Q, value(3, 50)))));
      tell("increment", () -> show(table.increment(new Increment(row).addColumn(M, Bytes.toBytes("n"), 1))));
      tell("increment of a value in a mob file", () -> show(table.increment(new Increment(Bytes.toBytes("s")).addColumn(M, Q, 1))));
      admin.flush(table("modify"));
      byte[] now = CellUtil.cloneValue(table.get(new Get(row).addColumn(M, Q)).rawCells()[0]);
      say("appended: %d %s", now.length, md5(now));
      tell("check of another value", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(M, Q, value(9, 10)).build(new Put(row).addColumn(M, Q, value(4, 10)))).isSuccess());
      tell("check of a value in a mob file", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(M, Q, now).build(new Put(row).addColumn(M, Q, value(4, 700)))).isSuccess());
      admin.flush(table("modify"));
      tell("check by a filter", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row).ifMatches(new SingleColumnValueFilter(M, Q, CompareOperator.EQUAL, value(4, 700))).build(new Put(row).addColumn(M, Q, value(5, 800)))).isSuccess());
      tell("check that there is none", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row).ifNotExists(M, Q).build(new Put(row).addColumn(M, Q, value(5, 800)))).isSuccess());
      tell("check of a larger value", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row).ifMatches(M, Q, CompareOperator.GREATER, value(9, 10)).build(new Put(row).addColumn(M, Q, value(5, 800)))).isSuccess());
      tell("a row at once", () -> {
        table.mutateRow(RowMutations.of(Arrays.asList(new Put(row).addColumn(M, Bytes.toBytes("x"), value(6, 900)), new Delete(row).addColumns(M, Q))));
        return show(table.get(new Get(row)));
      });
      admin.flush(table("modify"));
      tell("a row at once, flushed", () -> show(table.get(new Get(row))));
      tell("a batch", () -> {
        Object[] results = new Object[3];
        table.batch(Arrays.asList(new Get(row), new Put(Bytes.toBytes("t")).addColumn(M, Q, value(7, 400)), new Get(Bytes.toBytes("s"))), results);
        return show((Result) results[0]) + show((Result) results[2]);
      });
      tell("deleted", () -> {
        table.delete(new Delete(row));
        admin.flush(table("modify"));
        return show(table.get(new Get(row))) + scan("modify", new Scan());
      });
    }
  }

  static void compacting() throws Exception {
    create("compact", null, mobFamily(M).setMaxVersions(1).build());
    for (int file = 0; file < 4; file++) {
      put("compact", "r" + file, M, "q", 10 + file, value(file, 200 + file));
      put("compact", "same", M, "q", 10 + file, value(file, 300 + file));
      admin.flush(table("compact"));
    }
    say("flushed: %d mob files, %d referred to", mobFiles("compact").size(), referred("compact"));
    compact("compact", true);
    TreeSet<String> now = mobFiles("compact");
    say("compacted: %d mob files, %d referred to, %d store files", now.size(), referred("compact"), storeFiles("compact", "m").size());
    tell("compacted, scan", () -> scan("compact", all()));
    tell("compacted, references", () -> scan("compact", attribute(all(), "hbase.mob.scan.raw")));
    for (String file : now) {
      byte[] major = infoValue(new File(mobDir("compact", "m"), file), "MAJOR_COMPACTION_KEY");
      if (Bytes.toBoolean(major)) say("info of a compacted mob file: %s, %d cells", infoKeys(new File(mobDir("compact", "m"), file)),
        Bytes.toLong(infoValue(new File(mobDir("compact", "m"), file), "MOB_CELLS_COUNT")));
    }
    say("info of a compacted store file: %s", infoKeys(storeFiles("compact", "m").get(0)));
    try (Table table = connection.getTable(table("compact"))) {
      table.delete(new Delete(Bytes.toBytes("r1")));
      table.put(new Put(Bytes.toBytes("r2")).addColumn(M, Q, 50, value(50, 10)));
    }
    admin.flush(table("compact"));
    compact("compact", true);
    tell("compacted again", () -> scan("compact", all()) + " " + referred("compact"));
    // The threshold: higher, lower, and without the attribute.
    admin.modifyColumnFamily(table("compact"), mobFamily(M).setMaxVersions(1).setMobThreshold(100_000).build());
    compact("compact", true);
    tell("higher threshold", () -> scan("compact", attribute(all(), "hbase.mob.scan.raw")) + " " + referred("compact"));
    admin.modifyColumnFamily(table("compact"), mobFamily(M).setMaxVersions(1).setMobThreshold(202).build());
    compact("compact", true);
    tell("lower threshold", () -> scan("compact", attribute(all(), "hbase.mob.scan.raw")) + " " + referred("compact"));
    admin.modifyColumnFamily(table("compact"), mobFamily(M).setMaxVersions(1).setMobThreshold(100_000).build());
    compact("compact", true);
    admin.modifyColumnFamily(table("compact"), ColumnFamilyDescriptorBuilder.of(M));
    put("compact", "new", M, "q", 60, value(60, 5000));
    admin.flush(table("compact"));
    compact("compact", true);
    tell("no mobs any more", () -> scan("compact", all()));
    admin.modifyColumnFamily(table("compact"), mobFamily(M).setMaxVersions(1).build());
    compact("compact", true);
    tell("mobs again", () -> scan("compact", attribute(all(), "hbase.mob.scan.raw")) + " " + referred("compact"));
  }

  static void missing() throws Exception {
    create("missing", null, mobFamily(M).build());
    put("missing", "a", M, "q", 1, value(1, 400));
    admin.flush(table("missing"));
    String first = mobFiles("missing").first();
    put("missing", "b", M, "q", 1, value(2, 500));
    put("missing", "c", M, "q", 1, value(3, 10));
    admin.flush(table("missing"));
    TreeSet<String> both = mobFiles("missing");
    both.remove(first);
    String second = both.first();
    // The first one in the archive, the second one nowhere.
    Files.createDirectories(archiveDir("missing", "m").toPath());
    move(first, mobDir("missing", "m"), archiveDir("missing", "m"));
    move(second, mobDir("missing", "m"), root.getParentFile());
    try (Table table = connection.getTable(table("missing"))) {
      tell("archived", () -> show(table.get(new Get(Bytes.toBytes("a")))));
      tell("missing, get", () -> show(table.get(new Get(Bytes.toBytes("b")))));
      tell("missing, exists", () -> table.exists(new Get(Bytes.toBytes("b"))));
      tell("missing, another row", () -> show(table.get(new Get(Bytes.toBytes("c")))));
      tell("missing, append", () -> show(table.append(new Append(Bytes.toBytes("b")).addColumn(M, Q, value(3, 50)))));
      tell("missing, check", () -> table.checkAndMutate(CheckAndMutate.newBuilder(Bytes.toBytes("b")).ifEquals(M, Q, value(9, 10)).build(new Put(Bytes.toBytes("b")).addColumn(M, Q, value(4, 10)))).isSuccess());
    }
    tell("missing, scan", () -> scan("missing", new Scan()));
    tell("missing, reference", () -> scan("missing", attribute(new Scan(), "hbase.mob.scan.raw")));
    tell("missing, empty", () -> scan("missing", attribute(new Scan(), "empty.value.on.mobcell.miss")));
    tell("missing, overwritten", () -> {
      put("missing", "b", M, "q", 5, value(8, 20));
      return scan("missing", new Scan());
    });
    move(second, root.getParentFile(), mobDir("missing", "m"));
    tell("back", () -> scan("missing", all()));
  }

  static void move(String name, File from, File to) throws IOException {
    Files.move(new File(from, name).toPath(), new File(to, name).toPath());
    Path crc = new File(from, "." + name + ".crc").toPath();
    if (Files.exists(crc)) Files.move(crc, new File(to, "." + name + ".crc").toPath());
  }

  static void splitting() throws Exception {
    create("split", null, mobFamily(M).build());
    for (int row = 0; row < 20; row++) put("split", String.format("r%02d", row), M, "q", 1, value(row, 150 + row));
    admin.flush(table("split"));
    String before = scan("split", all());
    admin.split(table("split"), Bytes.toBytes("r10"));
    for (int tries = 0; tries < 300 && admin.getRegions(table("split")).size() != 2; tries++) Thread.sleep(100);
    for (int tries = 0; tries < 100 && !admin.isTableAvailable(table("split")); tries++) Thread.sleep(100);
    tell("split", () -> admin.getRegions(table("split")).size() + " " + scan("split", all()).equals(before));
    settle("split");
    compact("split", true);
    tell("split and compacted", () -> scan("split", all()).equals(before));
    List<RegionInfo> regions = admin.getRegions(table("split"));
    admin.mergeRegionsAsync(new byte[][] {regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()}, false).get();
    tell("merged", () -> admin.getRegions(table("split")).size() + " " + scan("split", all()).equals(before));
  }

  static String shape(TreeSet<String> names) {
    TreeSet<String> shapes = new TreeSet<>();
    int count = 0;
    for (String name : names) {
      shapes.add(name.replaceAll("[0-9a-f]{72}_[0-9a-f]{32}", "MOB").replaceAll("[0-9a-f]{32}", "REGION"));
      count++;
    }
    return count + " " + shapes;
  }

  static void snapshots() throws Exception {
    create("snap", new byte[][] {Bytes.toBytes("r5")}, mobFamily(M).build(), ColumnFamilyDescriptorBuilder.of(A));
    for (int row = 0; row < 10; row++) {
      put("snap", "r" + row, M, "q", 1, value(row, 150 + row));
      put("snap", "r" + row, A, "q", 1, value(row, 150 + row));
    }
    admin.snapshot("s1", table("snap"));
    String before = scan("snap", all());
    for (int row = 0; row < 10; row += 2) put("snap", "r" + row, M, "q", 2, value(row, 250 + row));
    admin.flush(table("snap"));
    String after = scan("snap", all());
    admin.cloneSnapshot("s1", table("cloned"));
    tell("clone", () -> scan("cloned", all()).equals(before));
    say("mob files of the clone: %s", shape(mobFiles("cloned")));
    put("cloned", "r1", M, "q", 3, value(77, 777));
    admin.flush(table("cloned"));
    tell("clone, written", () -> show(connection.getTable(table("cloned")).get(new Get(Bytes.toBytes("r1")).readAllVersions())));
    admin.snapshot("s2", table("cloned"));
    admin.disableTable(table("snap"));
    tell("disabled snapshot", () -> { admin.snapshot("s3", table("snap")); return admin.listSnapshots().size(); });
    admin.restoreSnapshot("s1");
    admin.enableTable(table("snap"));
    tell("restore", () -> scan("snap", all()).equals(before));
    admin.disableTable(table("snap"));
    admin.restoreSnapshot("s3");
    admin.enableTable(table("snap"));
    tell("restore of the later one", () -> scan("snap", all()).equals(after));
    compact("snap", true);
    tell("restored and compacted", () -> scan("snap", all()).equals(after));
    admin.cloneSnapshot("s3", table("third"));
    admin.disableTable(table("snap"));
    admin.deleteTable(table("snap"));
    say("mob files of the deleted table: %s", mobDir("snap", "m").exists());
    tell("clone of a deleted table", () -> scan("third", all()).equals(after));
    tell("clone of a deleted table, the other", () -> scan("cloned", all()).length() > before.length());
    compact("third", true);
    tell("clone, compacted", () -> scan("third", all()).equals(after));
    admin.disableTable(table("cloned"));
    admin.deleteTable(table("cloned"));
    tell("clone of a deleted clone", () -> { admin.cloneSnapshot("s2", table("fourth")); return scan("fourth", all()).length() > before.length(); });
    tell("the name again", () -> { admin.cloneSnapshot("s1", table("snap")); return scan("snap", all()).equals(before); });
  }

  static void removing() throws Exception {
    create("removed", null, mobFamily(M).build(), mobFamily(Z).build());
    for (byte[] family : new byte[][] {M, Z}) put("removed", "r", family, "q", 1, value(1, 400));
    admin.flush(table("removed"));
    say("mob files: %d and %d", mobFiles("removed").size(), names(mobDir("removed", "z")).size());
    admin.deleteColumnFamily(table("removed"), Z);
    say("family deleted: %d and %d, archived %d", mobFiles("removed").size(), names(mobDir("removed", "z")).size(), names(archiveDir("removed", "z")).size());
    admin.disableTable(table("removed"));
    admin.truncateTable(table("removed"), false);
    say("truncated: %d, archived %d", mobFiles("removed").size(), names(archiveDir("removed", "m")).size());
    put("removed", "r", M, "q", 1, value(2, 500));
    admin.flush(table("removed"));
    tell("truncated, scan", () -> scan("removed", all()));
    admin.disableTable(table("removed"));
    admin.deleteTable(table("removed"));
    say("deleted: %s, archived %d", mobDir("removed", "m").getParentFile().getParentFile().exists(), names(archiveDir("removed", "m")).size());
  }

  static void bulk() throws Exception {
    create("bulk", null, mobFamily(M).build());
    File dir = new File(root.getParentFile(), "bulk/m");
    dir.mkdirs();
    org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path("file://" + dir + "/0123456789abcdef0123456789abcdef");
    try (HFile.Writer writer = HFile.getWriterFactoryNoCache(conf).withPath(new HFileSystem(conf, false), path).withFileContext(new HFileContextBuilder().build()).create()) {
      for (int row = 0; row < 3; row++) writer.append(new KeyValue(Bytes.toBytes("r" + row), M, Q, 1, value(row, 90 + 10 * row)));
      writer.appendFileInfo(Bytes.toBytes("BULKLOAD_TIMESTAMP"), Bytes.toBytes(1L));
    }
    new BulkLoadHFilesTool(conf).bulkLoad(table("bulk"), new org.apache.hadoop.fs.Path("file://" + dir.getParent()));
    tell("loaded", () -> scan("bulk", attribute(all(), "hbase.mob.scan.raw")));
    compact("bulk", true);
    tell("loaded and compacted", () -> scan("bulk", attribute(all(), "hbase.mob.scan.raw")) + scan("bulk", all()));
    say("loaded and compacted: %d mob files", mobFiles("bulk").size());
  }

  static void admins() throws Exception {
    tell("state of MOB compactions", () -> admin.getCompactionState(table("read"), CompactType.MOB));
    tell("state of another table", () -> admin.getCompactionState(table("nothere"), CompactType.MOB));
  }

  // ---- what HBase does once a day ----

  static void await(String what, java.util.concurrent.Callable<Boolean> condition) throws Exception {
    for (int tries = 0; tries < 300; tries++) {
      if (condition.call()) { say("%s: yes", what); return; }
      Thread.sleep(100);
    }
    throw new IllegalStateException(what + ": not after 30 s; mob files " + mobFiles("clean"));
  }

  static void clean() throws Exception {
    create("clean", null, mobFamily(M).setMaxVersions(1).build());
    for (int file = 0; file < 4; file++) {
      put("clean", "r" + file, M, "q", System.currentTimeMillis(), value(file, 200 + file));
      admin.flush(table("clean"));
    }
    String before = scan("clean", all());
    Thread.sleep(3000);
    say("flushed: %d mob files, %d referred to", mobFiles("clean").size(), referred("clean"));
    admin.majorCompact(table("clean"), CompactType.MOB);
    await("compacted", () -> storeFiles("clean", "m").size() == 1 && referred("clean") == 1);
    await("at rest", () -> admin.getCompactionState(table("clean"), CompactType.MOB) == CompactionState.NONE);
    await("cleaned", () -> mobFiles("clean").size() == 1);
    say("archived: %d, the same: %s", names(archiveDir("clean", "m")).size(), scan("clean", all()).equals(before));
    // A split: the daughters refer to the mob file of their parent.
    admin.split(table("clean"), Bytes.toBytes("r2"));
    await("split", () -> admin.getRegions(table("clean")).size() == 2 && admin.isTableAvailable(table("clean")));
    String parent = mobFiles("clean").first();
    settle("clean");
    await("the parent is gone", () -> {
      admin.runCatalogJanitor();
      for (String region : new File(root, "data/default/clean").list()) if (parent.endsWith(region)) return false;
      return true;
    });
    Thread.sleep(3000);
    say("mob files after the split: %d, the same: %s", mobFiles("clean").size(), scan("clean", all()).equals(before));
    admin.majorCompact(table("clean"));
    await("the parent's mob file is gone", () -> !mobFiles("clean").contains(parent) && referred("clean") == 2);
    say("after a compaction: %d, the same: %s", mobFiles("clean").size(), scan("clean", all()).equals(before));
    admin.modifyColumnFamily(table("clean"), mobFamily(M).setMaxVersions(1).setTimeToLive(86400).build());
    put("clean", "r9", M, "q", System.currentTimeMillis() - 1000L * 86400 * 3, value(9, 500));
    put("clean", "r0", M, "q", System.currentTimeMillis(), value(0, 210));
    admin.flush(table("clean"));
    say("with a time to live: %s", scan("clean", new Scan()).contains("r9"));
  }

  // ---- one directory under two servers ----

  static void fill() throws Exception {
    create("m1", new byte[][] {Bytes.toBytes("r3")}, mobFamily(M).build(), ColumnFamilyDescriptorBuilder.of(A));
    create("m2", null, mobFamily(M).setDataBlockEncoding(org.apache.hadoop.hbase.io.encoding.DataBlockEncoding.FAST_DIFF)
      .setCompressionType(Compression.Algorithm.GZ).setBloomFilterType(BloomType.ROWCOL).build());
    for (int round = 0; round < 3; round++) {
      for (int row = 0; row < 6; row++) {
        for (String name : new String[] {"m1", "m2"}) {
          put(name, "r" + row, M, "q", 10 * round + row, value(row + round, 50 + 100 * row + round));
          put(name, "r" + row, M, "b", 10 * round + row, value(row + round, 5000 * row + round));
        }
        put("m1", "r" + row, A, "q", round, value(row, 500));
      }
      if (round < 2) for (String name : new String[] {"m1", "m2"}) admin.flush(table(name));
    }
    try (Table table = connection.getTable(table("m1"))) {
      table.delete(new Delete(Bytes.toBytes("r2")).addColumns(M, Q, 12));
      table.put(new Put(Bytes.toBytes("ttl")).addColumn(M, Q, 1, value(3, 3000)).setTTL(1_000_000_000_000L));
    }
    admin.flush(table("m1"));
    admin.snapshot("sm1", table("m1"));
    admin.cloneSnapshot("sm1", table("m3"));
    put("m3", "new", M, "q", 1, value(5, 4000));
    admin.flush(table("m3"));
    // In the log only.
    put("m2", "unflushed", M, "q", 1, value(6, 6000));
  }

  static void alter(String... names) throws Exception {
    for (String name : names) {
      String before = scan(name, all());
      compact(name, true);
      if (!before.equals(scan(name, all()))) throw new IllegalStateException(name + " is another after a compaction");
      for (int row = 1; row < 6; row++) put(name, "w" + row, M, "q", 100 + row, value(row, 120 * row));
      admin.flush(table(name));
    }
  }

  static void work() throws Exception {
    alter("m1", "m2", "m3");
    String marker = "s" + System.currentTimeMillis();
    admin.snapshot(marker, table("m1"));
    admin.cloneSnapshot("sm1", table("m" + marker));
    admin.cloneSnapshot(marker, table("mm" + marker));
    admin.disableTable(table("m2"));
    admin.enableTable(table("m2"));
    put("m2", "unflushed", M, "q", 2, value(7, 7000));
  }

  static void snapshot(String prefix) throws Exception {
    // Not of a clone: HBase's tool takes names of links to mob files for names of files.
    for (TableDescriptor descriptor : admin.listTableDescriptors(java.util.regex.Pattern.compile("m[12]"))) {
      String name = prefix + descriptor.getTableName().getNameAsString();
      admin.snapshot(name, descriptor.getTableName());
      say("%s", name);
    }
  }

  static void cloned(String prefix) throws Exception {
    for (SnapshotDescription snapshot : admin.listSnapshots()) {
      String name = snapshot.getName();
      if (name.startsWith(prefix)) admin.cloneSnapshot(name, table(name.substring(prefix.length())));
    }
  }

  static void dump() throws Exception {
    for (TableDescriptor descriptor : admin.listTableDescriptors(java.util.regex.Pattern.compile("m.*"))) {
      String name = descriptor.getTableName().getNameAsString();
      try (Table table = connection.getTable(table(name)); ResultScanner scanner = table.getScanner(all())) {
        for (Result result : scanner) for (Cell cell : result.rawCells()) say("cell %s %s", name, show(cell));
      }
    }
    for (SnapshotDescription snapshot : admin.listSnapshots()) say("snapshot %s of %s", snapshot.getName(), snapshot.getTableNameAsString());
  }
}
