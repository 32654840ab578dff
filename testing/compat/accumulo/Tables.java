// Tables DIRECTORY ZOOKEEPER_PORT ROWS
//
// An Accumulo mini cluster with tables for `halcyon import accumulo`. Each is exported to DIRECTORY/export/TABLE, with the files that
// distcp.txt names. DIRECTORY/expected/TABLE.txt has what a scan of Accumulo shows, a line for each entry: row, family, qualifier,
// visibility, timestamp, value; bytes in hexadecimal. Says "ready", and runs until its standard input ends.

import java.io.File;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.accumulo.core.client.Accumulo;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.BatchWriter;
import org.apache.accumulo.core.client.IteratorSetting;
import org.apache.accumulo.core.client.admin.CompactionConfig;
import org.apache.accumulo.core.client.admin.NewTableConfiguration;
import org.apache.accumulo.core.client.rfile.RFile;
import org.apache.accumulo.core.data.Key;
import org.apache.accumulo.core.data.Mutation;
import org.apache.accumulo.core.data.Value;
import org.apache.accumulo.core.iterators.IteratorUtil.IteratorScope;
import org.apache.accumulo.core.iterators.LongCombiner;
import org.apache.accumulo.core.iterators.user.SummingCombiner;
import org.apache.accumulo.core.security.Authorizations;
import org.apache.accumulo.core.security.ColumnVisibility;
import org.apache.accumulo.minicluster.MemoryUnit;
import org.apache.accumulo.minicluster.ServerType;
import org.apache.accumulo.miniclusterImpl.MiniAccumuloClusterImpl;
import org.apache.accumulo.miniclusterImpl.MiniAccumuloConfigImpl;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.Text;

public class Tables {
  private static final Authorizations AUTHS = new Authorizations("public", "secret", "a", "b", "x y");
  private static final String[] VISIBILITIES = {"public", "secret&(a|b)", "a", "\"x y\"|b"};
  private static Path directory;
  private static AccumuloClient client;
  private static int rows;

  public static void main(String[] arguments) throws Exception {
    directory = Path.of(arguments[0]).toAbsolutePath();
    rows = Integer.parseInt(arguments[2]);
    var config = new MiniAccumuloConfigImpl(directory.resolve("accumulo").toFile(), "secret");
    Files.createDirectories(directory.resolve("accumulo"));
    config.setInstanceName("compat");
    config.setZooKeeperPort(Integer.parseInt(arguments[1]));
    config.setZooKeeperStartupTime(60_000);
    config.setNumTservers(1);
    config.setMemory(ServerType.TABLET_SERVER, 512, MemoryUnit.MEGABYTE);
    config.setSystemProperties(Map.of("io.compression.codec.zstd.class", "ZstdStreams"));
    config.setSiteConfig(Map.of("tserver.memory.maps.native.enabled", "false", "tserver.memory.maps.max", "64M",
        "tserver.cache.data.size", "16M", "tserver.cache.index.size", "16M"));
    var cluster = new MiniAccumuloClusterImpl(config);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(cluster)));
    cluster.start();
    client = Accumulo.newClient().from(cluster.getClientProperties()).build();
    client.securityOperations().changeUserAuthorizations("root", AUTHS);
    Files.createDirectories(directory.resolve("expected"));
    plain();
    groups();
    for (String codec : new String[] {"none", "lz4", "zstd"}) {
      codec(codec);
    }
    bulk();
    sums();
    try (var out = Files.newBufferedWriter(directory.resolve("client.properties"))) {
      cluster.getClientProperties().store(out, null);
    }
    System.out.println("ready");
    System.out.flush();
    while (System.in.read() >= 0) {
    }
    System.exit(0);
  }

  private static void stop(MiniAccumuloClusterImpl cluster) {
    try {
      cluster.stop();
    } catch (Exception e) {
      e.printStackTrace();
    }
  }

  // Overwritten and deleted entries in several files; tablets that were divided when there were files already, so that they share
  // them; and a tablet whose deletions were compacted away, while its neighbour still has the file with what they deleted.
  private static void plain() throws Exception {
    client.tableOperations().create("plain");
    write("plain", 1, 0, rows, false);
    client.tableOperations().flush("plain", null, null, true);
    write("plain", 2, 0, rows, false);
    client.tableOperations().flush("plain", null, null, true);
    split("plain", row(rows / 4), row(rows / 2), row(rows / 2) + "\u0001", row(3 * rows / 4));
    try (BatchWriter writer = client.createBatchWriter("plain")) {
      for (int row = 0; row < rows / 4; row++) {
        var mutation = new Mutation(row(row));
        mutation.putDelete("meta", "name");
        mutation.putDelete("body", "q" + row % 7);
        writer.addMutation(mutation);
      }
    }
    client.tableOperations().flush("plain", null, null, true);
    client.tableOperations().compact("plain",
        new CompactionConfig().setStartRow(null).setEndRow(new Text(row(rows / 4))).setWait(true));
    write("plain", 3, rows / 8, rows / 6, true);
    finish("plain");
  }

  // Locality groups, visibilities, three versions, snappy.
  private static void groups() throws Exception {
    client.tableOperations().create("groups");
    client.tableOperations().setLocalityGroups("groups",
        Map.of("text", Set.of(new Text("body")), "small", Set.of(new Text("meta"), new Text("bin\u0007\\"))));
    client.tableOperations().setProperty("groups", "table.file.compress.type", "snappy");
    client.tableOperations().setProperty("groups", "table.file.compress.blocksize", "4K");
    client.tableOperations().setProperty("groups", "table.file.compress.blocksize.index", "1K");
    for (IteratorScope scope : IteratorScope.values()) {
      client.tableOperations().setProperty("groups", "table.iterator." + scope + ".vers.opt.maxVersions", "3");
    }
    split("groups", row(rows / 3), row(2 * rows / 3));
    for (int round = 1; round <= 5; round++) {
      write("groups", round, 0, rows / 2, true);
      if (round % 2 == 0) {
        client.tableOperations().flush("groups", null, null, true);
      }
    }
    finish("groups");
  }

  private static void codec(String codec) throws Exception {
    client.tableOperations().create(codec);
    client.tableOperations().setProperty(codec, "table.file.compress.type", codec);
    write(codec, 1, 0, rows / 10, false);
    client.tableOperations().flush(codec, null, null, true);
    write(codec, 2, rows / 20, rows / 8, false);
    finish(codec);
  }

  // Bulk imports, one with timestamps that the import has set.
  private static void bulk() throws Exception {
    client.tableOperations().create("bulk");
    var fs = FileSystem.getLocal(new Configuration());
    for (boolean setTime : new boolean[] {false, true}) {
      Path files = directory.resolve("bulk-" + setTime);
      Files.createDirectories(files);
      try (var writer = RFile.newWriter().to(files.resolve("f.rf").toString()).withFileSystem(fs).build()) {
        writer.startDefaultLocalityGroup();
        for (int row = 0; row < 500; row++) {
          long time = setTime ? Long.MAX_VALUE : 1000 + row;
          writer.append(new Key(new Text(row(row)), new Text("f"), new Text("q" + setTime), time), new Value("v" + row));
        }
      }
      client.tableOperations().importDirectory(files.toString()).to("bulk").tableTime(setTime).load();
    }
    finish("bulk");
  }

  // Sums that no file has.
  private static void sums() throws Exception {
    client.tableOperations().create("sums", new NewTableConfiguration().withoutDefaultIterators());
    var sum = new IteratorSetting(10, "sum", SummingCombiner.class);
    LongCombiner.setEncodingType(sum, LongCombiner.Type.STRING);
    SummingCombiner.setCombineAllColumns(sum, true);
    client.tableOperations().attachIterator("sums", sum, EnumSet.of(IteratorScope.scan));
    split("sums", row(50));
    for (int round = 0; round < 3; round++) {
      try (BatchWriter writer = client.createBatchWriter("sums")) {
        for (int row = 0; row < 100; row++) {
          var mutation = new Mutation(row(row));
          mutation.put("f", "count", new Value("" + (row + round)));
          writer.addMutation(mutation);
        }
      }
      client.tableOperations().flush("sums", null, null, true);
    }
    finish("sums");
  }

  private static void write(String table, int round, int from, int to, boolean hasVisibility) throws Exception {
    var random = new Random(table.hashCode() * 31L + round);
    try (BatchWriter writer = client.createBatchWriter(table)) {
      for (int row = from; row < to; row++) {
        var mutation = new Mutation(row(row));
        int visible = hasVisibility && !table.equals("plain") ? random.nextInt(VISIBILITIES.length) : -1;
        var visibility = visible < 0 ? new ColumnVisibility() : new ColumnVisibility(VISIBILITIES[visible]);
        long time = 1_600_000_000_000L + round * 1000L + random.nextInt(5);
        var value = new byte[random.nextInt(60)];
        random.nextBytes(value);
        mutation.put(new Text("body"), new Text("q" + row % 7), visibility, time, new Value(value));
        mutation.put(new Text("meta"), new Text("name"), visibility, time, new Value("name-" + row + "-" + round));
        mutation.put(new Text("bin\u0007\\"), new Text(new byte[] {0x10, (byte) 0xff, (byte) round}), new ColumnVisibility(), time, new Value());
        if (random.nextInt(20) == 0) {
          mutation.putDelete(new Text("meta"), new Text("name"), visibility, time + 500);
        }
        writer.addMutation(mutation);
      }
    }
  }

  private static String row(int row) {
    return String.format("row-%07d", row);
  }

  private static void split(String table, String... rows) throws Exception {
    var splits = new TreeSet<Text>();
    for (String row : rows) {
      splits.add(new Text(row));
    }
    client.tableOperations().addSplits(table, splits);
  }

  private static void finish(String table) throws Exception {
    client.tableOperations().flush(table, null, null, true);
    try (var scanner = client.createScanner(table, AUTHS);
        var out = new PrintWriter(Files.newBufferedWriter(directory.resolve("expected/" + table + ".txt")))) {
      for (Map.Entry<Key, Value> entry : scanner) {
        Key key = entry.getKey();
        out.println(hex(key.getRowData().toArray()) + " " + hex(key.getColumnFamilyData().toArray()) + " "
            + hex(key.getColumnQualifierData().toArray()) + " " + hex(key.getColumnVisibilityData().toArray()) + " "
            + key.getTimestamp() + " " + hex(entry.getValue().get()));
      }
    }
    String clone = table + "_clone";
    client.tableOperations().clone(table, clone, true, Map.of(), Set.of());
    client.tableOperations().offline(clone, true);
    Path export = directory.resolve("export").resolve(table);
    client.tableOperations().exportTable(clone, export.toString());
    for (String line : Files.readAllLines(export.resolve("distcp.txt"))) {
      Path file = Path.of(line.replaceFirst("^file:(//)?", ""));
      if (!file.startsWith(export)) {
        Files.copy(file, export.resolve(file.getFileName()), StandardCopyOption.REPLACE_EXISTING);
      }
    }
    System.out.println("exported " + table);
    System.out.flush();
  }

  private static String hex(byte[] bytes) {
    var text = new StringBuilder("x");
    for (byte one : bytes) {
      text.append(String.format("%02x", one));
    }
    return text.toString();
  }
}
