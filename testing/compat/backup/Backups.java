// Backups HBASE_SITE_DIRECTORY ROOT_DIRECTORY WORK_DIRECTORY
//
// HBase's own backup tool against a running cluster. ROOT_DIRECTORY is a local path, or an address of HDFS: full and incremental backups, restores, merges,
// sets, history. Prints answers. Ids and times are replaced, so that answers of two servers can be compared.

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.backup.BackupDriver;
import org.apache.hadoop.hbase.backup.RestoreDriver;
import org.apache.hadoop.hbase.backup.impl.BackupSystemTable;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.tool.BulkLoadHFilesTool;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

public class Backups {
  private static final TableName T1 = TableName.valueOf("t1");
  private static final TableName T2 = TableName.valueOf("shop", "t2");
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] G = Bytes.toBytes("g");
  private static Configuration conf;
  private static Connection connection;
  private static Admin admin;
  private static org.apache.hadoop.fs.Path root;
  private static Path work;
  private static PrintStream out;
  private static final List<String> ids = new ArrayList<>();

  public static void main(String[] arguments) throws Exception {
    out = System.out;
    conf = new Configuration(false);
    for (String name : new String[] {"core-default.xml", "hbase-default.xml"}) {
      conf.addResource(name);
    }
    conf.addResource(new org.apache.hadoop.fs.Path("file://" + arguments[0] + "/hbase-site.xml"));
    root = new org.apache.hadoop.fs.Path(arguments[1]);
    work = Path.of(arguments[2]);
    connection = ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
    String backups = "file://" + work.resolve("backups");

    makeTables();
    put(T1, 0, 300, "one");
    put(T2, 0, 100, "one");
    say("without tables", tool(new BackupDriver(), "create", "full", backups, "-t", "nothing"));
    say("incremental before full", tool(new BackupDriver(), "create", "incremental", backups, "-t", "t1"));
    say("full", tool(new BackupDriver(), "create", "full", backups, "-t", "t1,shop:t2"));
    var first = sums();
    history();

    put(T1, 200, 400, "two");
    put(T2, 50, 150, "two");
    delete(T1, 0, 20);
    admin.flush(T1);
    put(T1, 10, 15, "three");
    say("incremental", tool(new BackupDriver(), "create", "incremental", backups, "-t", "t1,shop:t2"));
    var second = sums();

    put(T1, 390, 420, "four");
    bulkLoad(T1, 1000, 1100);
    admin.compact(T1);
    put(T2, 0, 5, "four");
    admin.majorCompact(T1);
    Thread.sleep(3000);
    say("bulk loads noted", "" + bulkRows());
    say("incremental with a bulk load", tool(new BackupDriver(), "create", "incremental", backups, "-t", "t1,shop:t2"));
    say("bulk loads noted", "" + bulkRows());
    var third = sums();
    put(T1, 0, 500, "later");

    history();
    say("history of t1", tool(new BackupDriver(), "history", "-n", "2", "-t", "t1"));
    for (int at = 0; at < ids.size(); at++) {
      say("describe " + at, tool(new BackupDriver(), "describe", ids.get(at)));
    }
    say("progress", tool(new BackupDriver(), "progress", ids.get(0)));
    sets();

    restore(backups, 0, "after full", first);
    restore(backups, 1, "after incremental", second);
    restore(backups, 2, "after incremental with a bulk load", third);
    say("restore over a table without -o", tool(restore(), backups, ids.get(0), "-t", "t1"));
    say("check only", tool(restore(), backups, ids.get(2), "-t", "t1", "-c"));
    say("restore over a table", tool(restore(), backups, ids.get(2), "-t", "t1", "-o"));
    compare("t1 itself", T1, third.get(T1));

    put(T1, 0, 50, "five");
    say("incremental again", tool(new BackupDriver(), "create", "incremental", backups, "-t", "t1,shop:t2"));
    var fourth = sums();
    say("merge", tool(new BackupDriver(), "merge", ids.get(1) + "," + ids.get(2) + "," + ids.get(3)));
    history();
    restore(backups, 3, "after the merge", fourth);
    retention(backups);
    say("delete", tool(new BackupDriver(), "delete", "-l", ids.get(ids.size() - 1)));
    history();
    say("repair", tool(new BackupDriver(), "repair"));
    connection.close();
  }

  private static void makeTables() throws Exception {
    admin.createNamespace(NamespaceDescriptor.create("shop").build());
    var f = ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build();
    var g = ColumnFamilyDescriptorBuilder.of(G);
    admin.createTable(TableDescriptorBuilder.newBuilder(T1).setColumnFamily(f).setColumnFamily(g).build(),
        new byte[][] {Bytes.toBytes("row-00100"), Bytes.toBytes("row-00300")});
    admin.createTable(TableDescriptorBuilder.newBuilder(T2).setColumnFamily(f).build());
  }

  private static String row(int number) {
    return String.format("row-%05d", number);
  }

  private static void put(TableName name, int from, int to, String value) throws Exception {
    try (var table = connection.getTable(name)) {
      var puts = new ArrayList<Put>();
      for (int row = from; row < to; row++) {
        var put = new Put(Bytes.toBytes(row(row)));
        put.addColumn(F, Bytes.toBytes("q"), Bytes.toBytes(value + row));
        if (name.equals(T1)) {
          put.addColumn(G, Bytes.toBytes("r"), Bytes.toBytes(value));
        }
        puts.add(put);
      }
      table.put(puts);
    }
  }

  private static void delete(TableName name, int from, int to) throws Exception {
    try (var table = connection.getTable(name)) {
      for (int row = from; row < to; row++) {
        table.delete(new Delete(Bytes.toBytes(row(row))));
      }
    }
  }

  private static void bulkLoad(TableName name, int from, int to) throws Exception {
    var dir = new org.apache.hadoop.fs.Path("file://" + work.resolve("hfiles"));
    var file = new org.apache.hadoop.fs.Path(dir, "f/loaded");
    try (var writer = HFile.getWriterFactory(conf, new CacheConfig(conf)).withPath(file.getFileSystem(conf), file)
        .withFileContext(new HFileContextBuilder().build()).create()) {
      for (int row = from; row < to; row++) {
        writer.append(new KeyValue(Bytes.toBytes(row(row)), F, Bytes.toBytes("q"), 1000L + row, Bytes.toBytes("loaded" + row)));
      }
    }
    say("bulk load", "" + new BulkLoadHFilesTool(conf).run(new String[] {dir.toString(), name.getNameAsString()}));
  }

  private static int bulkRows() throws Exception {
    int rows = 0;
    try (var table = connection.getTable(BackupSystemTable.getTableNameForBulkLoadedData(conf)); var scanner = table.getScanner(new Scan())) {
      for (Result row : scanner) {
        rows++;
      }
    }
    return rows;
  }

  private static void sets() throws Exception {
    say("set add", tool(new BackupDriver(), "set", "add", "mine", "t1"));
    say("set add more", tool(new BackupDriver(), "set", "add", "mine", "shop:t2"));
    say("set list", tool(new BackupDriver(), "set", "list"));
    say("set describe", tool(new BackupDriver(), "set", "describe", "mine"));
    say("set remove", tool(new BackupDriver(), "set", "remove", "mine", "t1"));
    say("set describe again", tool(new BackupDriver(), "set", "describe", "mine"));
    say("full of a set", tool(new BackupDriver(), "create", "full", "file://" + work.resolve("other"), "-s", "mine"));
    ids.remove(ids.size() - 1); // of another directory
    say("set delete", tool(new BackupDriver(), "set", "delete", "mine"));
    say("set list at the end", tool(new BackupDriver(), "set", "list"));
  }

  private static void restore(String backups, int at, String what, TreeMap<TableName, String> sums) throws Exception {
    say("restore " + what, tool(restore(), backups, ids.get(at), "-t", "t1,shop:t2", "-m", "r1_" + at + ",shop:r2_" + at, "-o"));
    compare("t1 " + what, TableName.valueOf("r1_" + at), sums.get(T1));
    compare("shop:t2 " + what, TableName.valueOf("shop", "r2_" + at), sums.get(T2));
  }

  private static void compare(String what, TableName name, String expected) throws Exception {
    var found = sum(name);
    say(what, found.equals(expected) ? "is what it was: " + found : "is " + found + ", was " + expected);
  }

  // WALs that no backup has stay, however old. That others go is not asked: HBase archives a WAL later than Halcyon does.
  private static void retention(String backups) throws Exception {
    put(T1, 0, 30, "six");
    // those that have these edits: the last one of each server
    var last = new TreeMap<String, String>();
    for (String name : logs("WALs")) {
      last.merge(name.substring(0, name.lastIndexOf('.')), name, (a, b) -> number(a) < number(b) ? b : a);
    }
    rollAll();
    admin.flush(T1);
    admin.flush(T2);
    for (TableName name : admin.listTableNames()) {
      admin.flush(name);
    }
    Thread.sleep(1000);
    rollAll();
    Thread.sleep(15_000); // the cleaner has been there several times
    var kept = new TreeSet<>(logs("oldWALs"));
    kept.addAll(logs("WALs"));
    say("WALs with edits that no backup has", kept.containsAll(last.values()) ? "are kept" : "are gone");
    say("incremental for the WALs", tool(new BackupDriver(), "create", "incremental", backups, "-t", "t1,shop:t2"));
    // shop:t2 has a backup in the other directory, too, which has not copied the WALs either
    say("incremental elsewhere", tool(new BackupDriver(), "create", "incremental", "file://" + work.resolve("other"), "-t", "shop:t2"));
    ids.remove(ids.size() - 1);
  }

  private static void rollAll() throws Exception {
    for (ServerName server : admin.getRegionServers()) {
      admin.rollWALWriter(server);
    }
  }

  private static long number(String log) {
    return Long.parseLong(log.substring(log.lastIndexOf('.') + 1));
  }

  private static List<String> logs(String below) throws Exception {
    var names = new ArrayList<String>();
    var dir = new org.apache.hadoop.fs.Path(root, below);
    var fs = dir.getFileSystem(conf);
    if (fs.exists(dir)) {
      for (var files = fs.listFiles(dir, true); files.hasNext();) {
        var name = files.next().getPath().getName();
        if (!name.endsWith(".meta") && !name.startsWith(".") && name.contains("%2C") && !name.contains("masterLocalRegion")
            && !name.endsWith("$masterlocalwal$")) {
          names.add(name);
        }
      }
    }
    return names;
  }

  private static TreeMap<TableName, String> sums() throws Exception {
    var sums = new TreeMap<TableName, String>();
    sums.put(T1, sum(T1));
    sums.put(T2, sum(T2));
    return sums;
  }

  // Rows, cells, and a sum over what a client reads; without timestamps, which are not the same in two runs.
  private static String sum(TableName name) throws Exception {
    int rows = 0;
    int cells = 0;
    int sum = 0;
    try (var table = connection.getTable(name); var scanner = table.getScanner(new Scan())) {
      for (Result row : scanner) {
        rows++;
        for (Cell cell : row.rawCells()) {
          cells++;
          var key = Bytes.toStringBinary(cell.getRowArray(), cell.getRowOffset(), cell.getRowLength())
              + Bytes.toStringBinary(cell.getQualifierArray(), cell.getQualifierOffset(), cell.getQualifierLength())
              + Bytes.toStringBinary(cell.getValueArray(), cell.getValueOffset(), cell.getValueLength());
          sum += key.hashCode();
        }
      }
    }
    return rows + " rows, " + cells + " cells, sum " + sum;
  }

  private static final Pattern ID = Pattern.compile("backup_\\d+");

  // Runs a tool as its main method does, and returns its exit code and what it prints on standard output.
  private static String tool(Tool tool, String... arguments) throws Exception {
    if (arguments[0].equals("create")) {
      arguments = Arrays.copyOf(arguments, arguments.length + 1);
      arguments[arguments.length - 1] = "-i"; // Java's local file system has checksums of one of the two files only
    }
    var bytes = new ByteArrayOutputStream();
    var stream = new PrintStream(bytes, true);
    System.setOut(stream);
    System.setErr(stream);
    int code;
    try {
      code = ToolRunner.run(new Configuration(conf), tool, arguments);
    } catch (Throwable error) {
      code = -100;
      error.printStackTrace(stream);
      error.printStackTrace(Log.stream());
    } finally {
      System.setOut(out);
    }
    var text = bytes.toString();
    Log.stream().println("$ " + String.join(" ", arguments) + " -> " + code + "\n" + text);
    var created = Pattern.compile("Backup session (backup_\\d+) finished. Status: SUCCESS").matcher(text);
    if (created.find()) {
      ids.add(created.group(1));
    }
    var said = new StringBuilder("exit code " + code);
    for (String line : text.split("\n")) {
      if (line.startsWith("\tat ") || line.isBlank() || line.startsWith("SLF4J") || line.startsWith("log4j") || line.startsWith("WARNING")) {
        continue;
      }
      said.append("\n    ").append(plain(line));
    }
    return said.toString();
  }

  private static String plain(String line) {
    line = line.replace(work.toString(), "WORK").replace(root.toString(), "ROOT");
    for (int at = 0; at < ids.size(); at++) {
      line = line.replace(ids.get(at), "backup_" + (char) ('A' + at));
    }
    Matcher unknown = ID.matcher(line);
    line = unknown.replaceAll("backup_N");
    line = line.replaceAll("(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \\w+ \\d+ [\\d:]+ \\w+ \\d+", "TIME");
    line = line.replaceAll("\\d{13,}", "NUMBER");
    return line;
  }

  // Its constructor is for its main method alone.
  private static Tool restore() throws Exception {
    var constructor = RestoreDriver.class.getDeclaredConstructor();
    constructor.setAccessible(true);
    return constructor.newInstance();
  }

  private static void history() throws Exception {
    say("history", tool(new BackupDriver(), "history"));
  }

  private static void say(String what, String answer) {
    out.println(what + ": " + answer);
    out.flush();
  }

  /** What tools print, as it is. */
  private static class Log {
    private static PrintStream stream;

    static PrintStream stream() throws Exception {
      if (stream == null) {
        stream = new PrintStream(Files.newOutputStream(work.resolve("tools.log")), true);
      }
      return stream;
    }
  }
}
