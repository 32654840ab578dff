// What HBase's own tools do with replication, for replication-tools.sh: bulk loads, VerifyReplication, serial peers.
//
//   java -cp JARS Tools create ZOOKEEPER SPLIT...                 table loads; its regions begin at the splits
//   java ... peer ZOOKEEPER ID CLUSTER_KEY [serial]               adds a peer
//   java ... enable|disable ZOOKEEPER ID                          a peer
//   java ... load ZOOKEEPER ROOT DIRECTORY FROM TO VALUE          writes HFiles and loads them with BulkLoadHFilesTool
//   java ... compact ZOOKEEPER                                    major compaction of table loads, and waits for it
//   java ... same ZOOKEEPER ZOOKEEPER ROWS SECONDS                waits until families f and g are equal and have so many rows
//   java ... files ZOOKEEPER                                      prints how many store files table loads has
//   java ... plant ZOOKEEPER                                      differences to table verified
//   java ... verified ZOOKEEPER ROWS                              table verified, and rows if there are to be any
//   java ... verify ZOOKEEPER PEER DIRECTORY GOOD BAD ONLY_SOURCE ONLY_PEER DIFFERENT     VerifyReplication and its counters
//   java ... serial ZOOKEEPER ZOOKEEPER PUTS SECONDS              one cell is put in order, while its region moves, splits and merges

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.mapreduce.replication.VerifyReplication;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.mapreduce.Counters;
import org.apache.hadoop.mapreduce.Job;

public class Tools {
  static final TableName LOADS = TableName.valueOf("loads");
  static final TableName VERIFIED = TableName.valueOf("verified");
  static final TableName SERIAL = TableName.valueOf("serial");
  static final byte[] Q = Bytes.toBytes("q");

  static byte[] b(String text) { return Bytes.toBytes(text); }

  static byte[] key(int row) { return b(String.format("row%04d", row)); }

  static Configuration conf(String zookeeper) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper.substring(0, zookeeper.lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", zookeeper.substring(zookeeper.lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 20);
    conf.setInt("hbase.client.pause", 50);
    return conf;
  }

  static Connection connect(String zookeeper) throws IOException { return ConnectionFactory.createConnection(conf(zookeeper)); }

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "create": create(args); break;
      case "peer": {
        ReplicationPeerConfig config =
          ReplicationPeerConfig.newBuilder().setClusterKey(args[3]).setSerial(args.length > 4).build();
        try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) {
          admin.addReplicationPeer(args[2], config);
          check(admin.getReplicationPeerConfig(args[2]).isSerial() == args.length > 4, "a peer is serial or not");
        }
        break;
      }
      case "enable": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.enableReplicationPeer(args[2]); } break;
      case "disable": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.disableReplicationPeer(args[2]); } break;
      case "load": load(args); break;
      case "compact": compact(args[1]); break;
      case "same": same(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4])); break;
      case "files": System.out.println(files(args[1])); break;
      case "plant": plant(args[1]); break;
      case "verified": verified(args[1], Integer.parseInt(args[2])); break;
      case "verify": verify(args); break;
      case "serial": serial(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4])); break;
      default: throw new IllegalArgumentException(args[0]);
    }
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static ColumnFamilyDescriptor family(String name, int scope) {
    return ColumnFamilyDescriptorBuilder.newBuilder(b(name)).setScope(scope).build();
  }

  static void create(String[] args) throws Exception {
    byte[][] splits = new byte[args.length - 2][];
    for (int i = 0; i < splits.length; i++) splits[i] = b(args[i + 2]);
    try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(LOADS).setColumnFamily(family("f", 1)).setColumnFamily(family("g", 1))
        .setColumnFamily(family("h", 0)).build(), splits);
    }
  }

  /** Each family has a file with all rows, so that the tool divides it by regions. */
  static void load(String[] args) throws Exception {
    Configuration conf = conf(args[1]);
    conf.set("hbase.rootdir", args[2]);
    conf.set("hbase.fs.tmp.dir", args[3] + "/tmp");
    FileSystem fs = FileSystem.getLocal(conf).getRaw();
    for (String family : new String[] {"f", "g", "h"}) {
      Path path = new Path(args[3] + "/" + args[6] + "/" + family + "/0000000000000000000000000000000a");
      try (HFile.Writer writer = HFile.getWriterFactory(conf, new CacheConfig(conf)).withPath(fs, path)
        .withFileContext(new HFileContextBuilder().withBlockSize(1024).build()).create()) {
        for (int row = Integer.parseInt(args[4]); row < Integer.parseInt(args[5]); row++) {
          writer.append(new KeyValue(key(row), b(family), Q, 5, b(args[6] + row)));
        }
      }
    }
    Map<?, ?> loaded = BulkLoadHFiles.create(conf).bulkLoad(LOADS, new Path("file://" + args[3] + "/" + args[6]));
    System.out.println(args[6] + ": " + loaded.size() + " files loaded");
    check(!loaded.isEmpty(), "nothing was loaded");
  }

  static void compact(String zookeeper) throws Exception {
    try (Connection c = connect(zookeeper); Admin admin = c.getAdmin()) {
      admin.majorCompact(LOADS);
      long end = System.nanoTime() + 60_000_000_000L;
      do {
        check(System.nanoTime() < end, "a compaction does not end");
        Thread.sleep(500);
      } while (admin.getCompactionState(LOADS) != CompactionState.NONE);
    }
  }

  static List<String> cells(Connection connection, TableName name) throws IOException {
    List<String> cells = new ArrayList<>();
    Scan scan = new Scan().addFamily(b("f"));
    if (name.equals(LOADS)) scan.addFamily(b("g"));
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) cells.add(CellUtil.getCellKeyAsString(cell) + "=" + Bytes.toString(CellUtil.cloneValue(cell)));
      }
    }
    return cells;
  }

  static void same(String left, String right, int rows, int seconds) throws Exception {
    long end = System.nanoTime() + seconds * 1000000000L;
    try (Connection one = connect(left); Connection other = connect(right)) {
      for (;;) {
        List<String> ours = cells(one, LOADS), theirs = cells(other, LOADS);
        if (ours.equals(theirs) && ours.size() == 2 * rows) break;
        if (System.nanoTime() > end) {
          System.err.println(ours.size() + " and " + theirs.size() + " cells, expected " + 2 * rows);
          System.exit(1);
        }
        Thread.sleep(300);
      }
      System.out.println("loads: " + rows + " rows are equal");
    }
  }

  static int files(String zookeeper) throws IOException {
    int files = 0;
    try (Connection c = connect(zookeeper); Admin admin = c.getAdmin()) {
      for (org.apache.hadoop.hbase.ServerMetrics server : admin.getClusterMetrics().getLiveServerMetrics().values()) {
        for (org.apache.hadoop.hbase.RegionMetrics region : server.getRegionMetrics().values()) {
          if (region.getNameAsString().startsWith("loads,")) files += region.getStoreFileCount();
        }
      }
    }
    return files;
  }

  static void verified(String zookeeper, int rows) throws Exception {
    try (Connection c = connect(zookeeper); Admin admin = c.getAdmin()) {
      if (!admin.tableExists(VERIFIED)) {
        byte[][] splits = {key(100), key(200)};
        admin.createTable(TableDescriptorBuilder.newBuilder(VERIFIED).setColumnFamily(family("f", 1)).build(), splits);
      }
      try (BufferedMutator table = c.getBufferedMutator(VERIFIED)) {
        for (int row = 0; row < rows; row++) table.mutate(new Put(key(row)).addColumn(b("f"), Q, 7, b("v" + row)));
      }
    }
  }

  /** One row less, one more, and two others. Written where nothing is sent to the other side from. */
  static void plant(String zookeeper) throws Exception {
    try (Connection c = connect(zookeeper); Table table = c.getTable(VERIFIED)) {
      table.delete(new Delete(key(17)));
      table.put(new Put(key(9000)).addColumn(b("f"), Q, 7, b("more")));
      table.put(new Put(key(150)).addColumn(b("f"), Q, 7, b("another")));
      table.put(new Put(key(250)).addColumn(b("f"), b("r"), 7, b("more")));
    }
  }

  static void verify(String[] args) throws Exception {
    Configuration conf = conf(args[1]);
    conf.set("mapreduce.framework.name", "local");
    conf.set("fs.defaultFS", "file:///");
    conf.set("hadoop.tmp.dir", args[3] + "/mapreduce");
    conf.set("hbase.fs.tmp.dir", "file://" + args[3] + "/mapreduce/staging");
    if (System.getProperty("root") != null) { // peers are files there, as with HBase's storage of this name
      conf.set("hbase.replication.peer.storage.impl", "filesystem");
      conf.set("hbase.rootdir", System.getProperty("root"));
    }
    Job job = new VerifyReplication().createSubmittableJob(conf, new String[] {args[2], VERIFIED.getNameAsString()});
    check(job != null && job.waitForCompletion(false), "VerifyReplication has failed");
    Counters counters = job.getCounters();
    String found = "";
    for (String name : new String[] {"GOODROWS", "BADROWS", "ONLY_IN_SOURCE_TABLE_ROWS", "ONLY_IN_PEER_TABLE_ROWS", "CONTENT_DIFFERENT_ROWS"}) {
      found += " " + name + "=" + counters.findCounter(VerifyReplication.Verifier.Counters.valueOf(name)).getValue();
    }
    System.out.println("VerifyReplication:" + found);
    String expected = "";
    String[] names = {"GOODROWS", "BADROWS", "ONLY_IN_SOURCE_TABLE_ROWS", "ONLY_IN_PEER_TABLE_ROWS", "CONTENT_DIFFERENT_ROWS"};
    for (int i = 0; i < names.length; i++) expected += " " + names[i] + "=" + args[4 + i];
    check(found.equals(expected), "expected" + expected);
  }

  /**
   * The cell has one timestamp, so what is applied last is what is read: at the second cluster the value must never fall. Meanwhile the
   * region is reopened, split and merged.
   */
  static void serial(String left, String right, int puts, int seconds) throws Exception {
    byte[] row = b("m");
    for (String zookeeper : new String[] {left, right}) {
      try (Connection c = connect(zookeeper); Admin admin = c.getAdmin()) {
        if (!admin.tableExists(SERIAL)) admin.createTable(TableDescriptorBuilder.newBuilder(SERIAL).setColumnFamily(family("f", 1)).build());
      }
    }
    AtomicLong seen = new AtomicLong(-1);
    List<String> falls = new ArrayList<>();
    Thread reader = new Thread(() -> {
      try (Connection c = connect(right); Table table = c.getTable(SERIAL)) {
        long end = System.nanoTime() + seconds * 1000000000L;
        while (seen.get() < puts - 1 && System.nanoTime() < end) {
          byte[] value = table.get(new Get(row)).getValue(b("f"), Q);
          long now = value == null ? -1 : Bytes.toLong(value);
          if (now < seen.get()) falls.add(seen.get() + " and then " + now);
          seen.set(now);
        }
      } catch (IOException error) {
        falls.add(error.toString());
      }
    });
    reader.start();
    try (Connection c = connect(left); Admin admin = c.getAdmin(); Table table = c.getTable(SERIAL)) {
      for (int i = 0; i < puts; i++) {
        table.put(new Put(row).addColumn(b("f"), Q, 1, Bytes.toBytes((long) i)));
        if (i % 8 == 0) table.put(new Put(b(i % 16 == 0 ? "a" : "z")).addColumn(b("f"), Q, b("other")));
        if (i == puts / 5 || i == puts * 4 / 5) {
          for (RegionInfo region : admin.getRegions(SERIAL)) admin.move(region.getEncodedNameAsBytes());
        }
        if (i == puts * 2 / 5) admin.splitRegionAsync(admin.getRegions(SERIAL).get(0).getRegionName(), b("g")).get();
        if (i == puts * 3 / 5) {
          admin.compact(SERIAL);
          Thread.sleep(3000); // daughters with references cannot be merged
          List<RegionInfo> regions = admin.getRegions(SERIAL);
          admin.mergeRegionsAsync(new byte[][] {regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()}, false).get();
        }
      }
    }
    reader.join();
    check(falls.isEmpty(), "the cell has fallen: " + falls);
    check(seen.get() == puts - 1, "the last value is not there: " + seen.get());
    System.out.println("serial: " + puts + " puts in order, over moves, a split and a merge");
  }
}
