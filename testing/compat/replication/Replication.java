// Tables, peers, writes and comparisons for replication.sh.
//
//   java -cp JARS Replication.java create ZOOKEEPER               tables r, n:plain and local
//   java ... peer ZOOKEEPER ID CLUSTER_KEY                        adds a peer
//   java ... enable|disable ZOOKEEPER ID
//   java ... write ZOOKEEPER OPERATIONS SEED PREFIX               random operations; repeats what fails
//   java ... compare ZOOKEEPER ZOOKEEPER SECONDS                  waits until the replicated families are equal
//   java ... dropped ZOOKEEPER ZOOKEEPER SECONDS                  edits of tables and families that only the first one had
//   java ... admin ZOOKEEPER CLUSTER_KEY                          all changes of a peer, and the errors
//   java ... quiet ZOOKEEPER...                                   fails if a sink still applies anything
//   java ... ledger ZOOKEEPER PREFIX SECONDS                      puts numbered rows until the time is over; prints how many
//   java ... ledgers ZOOKEEPER ZOOKEEPER SECONDS PREFIX=ROWS...   each row once and with its value, at both
//   java ... rising-table ZOOKEEPER                            table rising, with four regions
//   java ... rising ZOOKEEPER FILE                               puts rising numbers into the same rows until FILE is there; prints the last
//   java ... loads ZOOKEEPER                                      prints what servers report of replication
//   java ... stop ZOOKEEPER                                       stops the cluster

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.replication.ReplicationLoadSource;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.replication.ReplicationPeerDescription;
import org.apache.hadoop.hbase.util.Bytes;

public class Replication {
  static final TableName RAW = TableName.valueOf("r");
  static final TableName PLAIN = TableName.valueOf("n:plain");
  static final TableName LOCAL = TableName.valueOf("local");
  static final TableName GONE = TableName.valueOf("gone");
  static final TableName LESS = TableName.valueOf("less");
  static final TableName LEDGER = TableName.valueOf("ledger");
  /** A ledger of fewer rows shows nothing, and neither does a comparison of fewer cells. */
  static final int ROWS_LEAST = 20, CELLS_LEAST = 20;

  static byte[] b(String text) { return Bytes.toBytes(text); }

  static Connection connect(String zookeeper) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper.substring(0, zookeeper.lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", zookeeper.substring(zookeeper.lastIndexOf(':') + 1));
    conf.set("hbase.client.rpc.codec", "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags");
    conf.setInt("hbase.client.retries.number", 20);
    conf.setInt("hbase.client.pause", 50);
    return ConnectionFactory.createConnection(conf);
  }

  static ColumnFamilyDescriptor family(String name, int scope, int versions, boolean keep) {
    return ColumnFamilyDescriptorBuilder.newBuilder(b(name)).setScope(scope).setMaxVersions(versions)
      .setKeepDeletedCells(keep ? KeepDeletedCells.TRUE : KeepDeletedCells.FALSE).build();
  }

  static TableDescriptor table(TableName name, ColumnFamilyDescriptor... families) {
    TableDescriptorBuilder builder = TableDescriptorBuilder.newBuilder(name);
    for (ColumnFamilyDescriptor family : families) builder.setColumnFamily(family);
    return builder.build();
  }

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "create": create(args[1]); break;
      case "peer": peer(args[1], args[2], args[3]); break;
      case "serial": serial(args[1], args[2], args[3], Boolean.parseBoolean(args[4])); break;
      case "rising-table": risingTable(args[1]); break;
      case "rising": rising(args[1], args[2]); break;
      case "remove": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.removeReplicationPeer(args[2]); } break;
      case "enable": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.enableReplicationPeer(args[2]); } break;
      case "disable": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.disableReplicationPeer(args[2]); } break;
      case "write": write(args[1], Integer.parseInt(args[2]), Long.parseLong(args[3]), args[4]); break;
      case "compare": compare(args[1], args[2], Integer.parseInt(args[3])); break;
      case "dropped": dropped(args[1], args[2], Integer.parseInt(args[3])); break;
      case "quiet": quiet(args); break;
      case "admin": admin(args[1], args[2]); break;
      case "loads": loads(args[1]); break;
      case "ledger": ledger(args[1], args[2], Integer.parseInt(args[3])); break;
      case "ledgers": ledgers(args[1], args[2], Integer.parseInt(args[3]), args); break;
      case "stop": try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) { admin.shutdown(); } break;
      default: throw new IllegalArgumentException(args[0]);
    }
  }

  static void create(String zookeeper) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      admin.createNamespace(NamespaceDescriptor.create("n").build());
      byte[][] splits = {b("row-05"), b("row-10"), b("row-15")};
      admin.createTable(table(RAW, family("a", 1, 10000, true), family("b", 1, 10000, true), family("c", 0, 10000, true)), splits);
      // A major compaction drops markers that are older than each put of a region, also where deleted cells are kept.
      try (Table table = connection.getTable(RAW)) {
        for (String row : List.of("row-00", "row-05", "row-10", "row-15")) {
          table.put(new Put(b(row)).addColumn(b("a"), b("first"), 1, b("v")).addColumn(b("b"), b("first"), 1, b("v")));
        }
      }
      ColumnFamilyDescriptor mob = ColumnFamilyDescriptorBuilder.newBuilder(family("b", 1, 1, false)).setMobEnabled(true).setMobThreshold(6).build();
      admin.createTable(table(PLAIN, family("a", 1, 3, false), mob, family("c", 0, 1, false)), splits);
      admin.createTable(table(LOCAL, family("a", 0, 1, false)));
      admin.createTable(table(LEDGER, family("a", 1, 1000, true)), splits);
    }
  }

  static byte[] ledgerRow(String prefix, int number) { return b(String.format("row-%02d-%s-%08d", number % 20, prefix, number)); }

  /** A put that fails is repeated with its timestamp, so that each row has one version. A row is counted when it was acknowledged. */
  static void ledger(String zookeeper, String prefix, int seconds) throws Exception {
    long end = System.nanoTime() + seconds * 1000000000L;
    int number = 0;
    try (Connection connection = connect(zookeeper); Table table = connection.getTable(LEDGER)) {
      for (; System.nanoTime() < end; number++) {
        Put put = new Put(ledgerRow(prefix, number)).addColumn(b("a"), b("q"), 1 + number, b("v" + number));
        for (int attempt = 0; ; attempt++) {
          try {
            table.put(put);
            break;
          } catch (IOException error) {
            if (attempt == 200) throw error;
            Thread.sleep(250);
          }
        }
      }
    }
    if (number < ROWS_LEAST) {
      System.err.println("the ledger has " + number + " rows, and " + ROWS_LEAST + " are the least");
      System.exit(1);
    }
    System.out.println(number);
  }

  static void ledgers(String left, String right, int seconds, String[] args) throws Exception {
    long end = System.nanoTime() + seconds * 1000000000L;
    int sum = 0;
    for (String zookeeper : new String[] {left, right}) {
      try (Connection connection = connect(zookeeper)) {
        for (int i = 4; i < args.length; i++) {
          String[] prefixAndRows = args[i].split("=");
          int rows = Integer.parseInt(prefixAndRows[1]);
          if (rows < ROWS_LEAST) throw new AssertionError("the ledger " + prefixAndRows[0] + " has " + rows + " rows");
          for (;;) {
            String wrong = wrongLedger(connection, prefixAndRows[0], rows);
            if (wrong == null) break;
            if (System.nanoTime() > end) {
              System.err.println(zookeeper + ": " + wrong);
              System.exit(1);
            }
            Thread.sleep(1000);
          }
          if (zookeeper.equals(left)) sum += rows;
        }
      }
    }
    System.out.println(sum);
  }

  static String wrongLedger(Connection connection, String prefix, int rows) throws IOException {
    java.util.BitSet seen = new java.util.BitSet();
    Scan scan = new Scan().setRaw(true).readAllVersions().setFilter(
      new org.apache.hadoop.hbase.filter.RowFilter(CompareOperator.EQUAL, new org.apache.hadoop.hbase.filter.SubstringComparator("-" + prefix + "-")));
    try (Table table = connection.getTable(LEDGER); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        String row = Bytes.toString(result.getRow());
        int number = Integer.parseInt(row.substring(row.lastIndexOf('-') + 1));
        if (result.size() != 1) return row + " has " + result.size() + " cells";
        if (!("v" + number).equals(Bytes.toString(result.value()))) return row + " has " + Bytes.toString(result.value());
        seen.set(number);
      }
    }
    int missing = seen.nextClearBit(0);
    return missing < rows ? "row " + missing + " of " + rows + " is missing, " + (rows - seen.get(0, rows).cardinality()) + " are" : null;
  }

  /** Adds a peer that is serial, or makes it so, or makes it another one. */
  static void serial(String zookeeper, String id, String key, boolean serial) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      ReplicationPeerConfig config = ReplicationPeerConfig.newBuilder().setClusterKey(key).setSerial(serial).build();
      boolean known = admin.listReplicationPeers().stream().anyMatch(peer -> peer.getPeerId().equals(id));
      if (known) admin.updateReplicationPeerConfig(id, config); else admin.addReplicationPeer(id, config);
      if (admin.getReplicationPeerConfig(id).isSerial() != serial) throw new AssertionError("the peer is not as it was told to be");
    }
  }

  static final TableName RISING = TableName.valueOf("rising");
  static final int RISING_ROWS = 20;

  static void risingTable(String zookeeper) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      admin.createTable(table(RISING, family("f", 1, 100000, false)), new byte[][] {b("row-05"), b("row-10"), b("row-15")});
    }
  }

  /** A number is put until it is acknowledged, and then the next one: into each row in turn. */
  static void rising(String zookeeper, String end) throws Exception {
    int number = 0;
    try (Connection connection = connect(zookeeper); Table table = connection.getTable(RISING)) {
      while (!new java.io.File(end).exists()) {
        number++;
        for (int row = 0; row < RISING_ROWS; row++) {
          Put put = new Put(b(String.format("row-%02d", row))).addColumn(b("f"), b("q"), b(Integer.toString(number)));
          for (int attempt = 0; ; attempt++) {
            try {
              table.put(put);
              break;
            } catch (IOException error) {
              if (attempt == 200) throw error;
              Thread.sleep(250);
            }
          }
        }
      }
    }
    System.out.println(number);
  }

  static void peer(String zookeeper, String id, String key) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      admin.addReplicationPeer(id, ReplicationPeerConfig.newBuilder().setClusterKey(key).build());
      for (ReplicationPeerDescription peer : admin.listReplicationPeers()) System.out.println(peer);
    }
  }

  /** What is written depends on the seed alone, but for timestamps of the server. */
  static void write(String zookeeper, int operations, long seed, String prefix) throws Exception {
    Random random = new Random(seed);
    try (Connection connection = connect(zookeeper)) {
      TableName[] names = {RAW, RAW, RAW, PLAIN, PLAIN, LOCAL};
      for (int i = 0; i < operations; i++) {
        TableName name = names[random.nextInt(names.length)];
        try (Table table = connection.getTable(name)) {
          long operation = random.nextLong();
          for (int attempt = 0; ; attempt++) {
            try (Admin admin = connection.getAdmin()) {
              if (i % 300 == 299) admin.flush(PLAIN); // values of family b go to mob files
              one(table, new Random(operation), prefix, name);
              break;
            } catch (IOException error) {
              if (attempt == 40) throw error;
              Thread.sleep(250);
            }
          }
        }
      }
    }
    System.out.println("wrote " + operations);
  }

  /**
   * What a scan without markers shows depends on flushes and compactions if versions are deleted one by one, or if something is written
   * below a marker. So that is done in table r alone, which is compared with its markers.
   */
  static void one(Table table, Random random, String prefix, TableName name) throws Exception {
    boolean isLocal = name.equals(LOCAL), isRaw = name.equals(RAW);
    byte[] row = b(String.format("row-%02d-%s", random.nextInt(20), prefix));
    byte[] family = b(isLocal ? "a" : "abc".substring(random.nextInt(3)).substring(0, 1));
    byte[] column = b("q" + random.nextInt(4));
    byte[] value = b("v" + random.nextInt(1000000));
    long time = 1 + random.nextInt(50);
    boolean isTimed = random.nextInt(3) == 0 && isRaw;
    int kind = random.nextInt(13);
    switch (!isRaw && (kind == 2 || kind == 4) ? 0 : kind) {
      case 0: table.delete(isTimed ? new Delete(row, time) : new Delete(row)); break;
      case 1: table.delete(isTimed ? new Delete(row).addFamily(family, time) : new Delete(row).addFamily(family)); break;
      case 2: table.delete(new Delete(row).addFamilyVersion(family, time)); break;
      case 3: table.delete(isTimed ? new Delete(row).addColumns(family, column, time) : new Delete(row).addColumns(family, column)); break;
      case 4: table.delete(isTimed ? new Delete(row).addColumn(family, column, time) : new Delete(row).addColumn(family, column)); break;
      case 5: table.increment(new Increment(row).addColumn(family, b("n"), random.nextInt(9))); break;
      case 6: table.append(new Append(row).addColumn(family, b("x"), value)); break;
      case 7: table.put(new Put(row).addColumn(family, column, value).setTTL(3600000 + random.nextInt(1000))); break;
      case 8: {
        List<Put> puts = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
          Put put = new Put(b(String.format("row-%02d-%s", i, prefix)));
          puts.add(isTimed ? put.addColumn(family, column, time, value) : put.addColumn(family, column, value));
        }
        table.put(puts);
        break;
      }
      case 9: {
        RowMutations both = new RowMutations(row);
        both.add(new Put(row).addColumn(family, column, value));
        both.add((Mutation) new Delete(row).addColumns(family, b("other")));
        table.mutateRow(both);
        break;
      }
      case 10: table.checkAndMutate(row, family).qualifier(column).ifNotExists().thenPut(new Put(row).addColumn(family, column, value)); break;
      default: {
        Put put = new Put(row);
        for (String each : isLocal ? new String[] {"a"} : new String[] {"a", "b", "c"}) {
          if (isTimed) put.addColumn(b(each), column, time, value); else put.addColumn(b(each), column, value);
        }
        table.put(put);
      }
    }
  }

  static List<String> cells(Connection connection, TableName name, boolean raw) throws IOException {
    Scan scan = new Scan().addFamily(b("a")).addFamily(b("b")).setRaw(raw);
    if (raw) scan.readAllVersions(); else scan.readVersions(3);
    List<String> cells = new ArrayList<>();
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        for (Cell cell : result.rawCells()) {
          byte[] tags = PrivateCellUtil.cloneTags(cell);
          cells.add(CellUtil.getCellKeyAsString(cell) + " = " + Bytes.toStringBinary(CellUtil.cloneValue(cell)) + " tags " + Bytes.toStringBinary(tags));
        }
      }
    }
    return cells;
  }

  static void compare(String left, String right, int seconds) throws Exception {
    long end = System.nanoTime() + seconds * 1000000000L;
    try (Connection one = connect(left); Connection other = connect(right)) {
      for (boolean isRaw : new boolean[] {true, false}) {
        TableName name = isRaw ? RAW : PLAIN;
        for (;;) {
          List<String> ours = cells(one, name, isRaw), theirs = cells(other, name, isRaw);
          if (ours.equals(theirs)) {
            System.out.println(name + ": " + ours.size() + " cells are equal");
            if (ours.size() < CELLS_LEAST) throw new AssertionError(name + ": too few cells to compare");
            break;
          }
          if (System.nanoTime() > end) {
            List<String> less = new ArrayList<>(ours), more = new ArrayList<>(theirs);
            less.removeAll(theirs);
            more.removeAll(ours);
            System.err.println(name + " differs: " + ours.size() + " and " + theirs.size() + " cells");
            System.err.println("missing " + less.size() + ": " + less.subList(0, Math.min(5, less.size())));
            System.err.println("more " + more.size() + ": " + more.subList(0, Math.min(5, more.size())));
            System.exit(1);
          }
          Thread.sleep(500);
        }
      }
      try (Table table = other.getTable(RAW); ResultScanner scanner = table.getScanner(new Scan().addFamily(b("c")).setRaw(true))) {
        // Family c has no scope: the second cluster has cells of it only if it was written there.
        if ("true".equals(System.getProperty("one.way")) && scanner.next() != null) {
          System.err.println("a family without scope was replicated");
          System.exit(1);
        }
      }
    }
  }

  /** Edits of a table and of a family that the second cluster lacks: with HBase's settings they do not hold up the others. */
  static void dropped(String left, String right, int seconds) throws Exception {
    try (Connection one = connect(left); Connection other = connect(right); Admin admin = one.getAdmin(); Admin there = other.getAdmin()) {
      admin.createTable(table(GONE, family("a", 1, 1, false)));
      admin.createTable(table(LESS, family("a", 1, 1, false), family("z", 1, 1, false)));
      there.createTable(table(LESS, family("a", 1, 1, false)));
      try (Table gone = one.getTable(GONE); Table less = one.getTable(LESS)) {
        gone.put(new Put(b("r")).addColumn(b("a"), b("q"), b("v")));
        less.put(new Put(b("r")).addColumn(b("z"), b("q"), b("v")));
        admin.disableTable(GONE);
        admin.deleteTable(GONE);
        admin.deleteColumnFamily(LESS, b("z"));
        less.put(new Put(b("last")).addColumn(b("a"), b("q"), b("v")));
      }
      try (Table table = other.getTable(LESS)) {
        long end = System.nanoTime() + seconds * 1000000000L;
        while (!table.exists(new Get(b("last")))) {
          if (System.nanoTime() > end) {
            System.err.println("edits of what was deleted hold up the others");
            System.exit(1);
          }
          Thread.sleep(500);
        }
      }
      System.out.println("edits of a deleted table and family are dropped by the source");
    }
  }

  interface Call { void run() throws Exception; }

  static void fails(String text, Call call) throws Exception {
    try {
      call.run();
    } catch (Exception error) {
      if (String.valueOf(error.getMessage()).contains(text)) return;
      throw error;
    }
    throw new AssertionError("no error: " + text);
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static void admin(String zookeeper, String key) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      ReplicationPeerConfig config = ReplicationPeerConfig.newBuilder().setClusterKey(key).build();
      int before = admin.listReplicationPeers().size();
      admin.addReplicationPeer("other", config, false);
      check(!admin.isReplicationPeerEnabled("other"), "the peer is enabled");
      check(admin.listReplicationPeers().size() == before + 1, "one more peer");
      check(admin.listReplicationPeers(java.util.regex.Pattern.compile("oth.*")).size() == 1, "by pattern");
      fails("already exists", () -> admin.addReplicationPeer("other", config));
      fails("already been disabled", () -> admin.disableReplicationPeer("other"));
      admin.updateReplicationPeerConfig("other",
        ReplicationPeerConfig.newBuilder(config).setBandwidth(1000).setReplicateAllUserTables(false)
          .setTableCFsMap(java.util.Map.of(RAW, List.of("a"))).putConfiguration("k", "v").build());
      ReplicationPeerConfig changed = admin.getReplicationPeerConfig("other");
      check(changed.getBandwidth() == 1000 && changed.getTableCFsMap().get(RAW).equals(List.of("a")), "changed " + changed);
      check("v".equals(changed.getConfiguration().get("k")), "configuration " + changed);
      admin.appendReplicationPeerTableCFs("other", java.util.Map.of(PLAIN, List.of("b")));
      admin.removeReplicationPeerTableCFs("other", java.util.Map.of(RAW, List.of("a")));
      check(admin.getReplicationPeerConfig("other").getTableCFsMap().keySet().equals(java.util.Set.of(PLAIN)), "table-cfs");
      fails("Changing the cluster key", () -> admin.updateReplicationPeerConfig("other",
        ReplicationPeerConfig.newBuilder(changed).setClusterKey("localhost:1:/x").build()));
      admin.updateReplicationPeerConfig("other", ReplicationPeerConfig.newBuilder(admin.getReplicationPeerConfig("other")).setSerial(true).build());
      check(admin.getReplicationPeerConfig("other").isSerial(), "serial");
      admin.updateReplicationPeerConfig("other", ReplicationPeerConfig.newBuilder(admin.getReplicationPeerConfig("other")).setSerial(false).build());
      check(!admin.getReplicationPeerConfig("other").isSerial(), "no longer serial");
      fails("not supported", () -> admin.addReplicationPeer("endpoint",
        ReplicationPeerConfig.newBuilder(config).setReplicationEndpointImpl("a.B").build()));
      fails("Invalid cluster key", () -> admin.addReplicationPeer("bad", ReplicationPeerConfig.newBuilder().setClusterKey("x").build()));
      check(admin.replicationPeerModificationSwitch(false), "the switch was on");
      fails("modification disabled", () -> admin.removeReplicationPeer("other"));
      check(!admin.isReplicationPeerModificationEnabled(), "the switch is off");
      admin.replicationPeerModificationSwitch(true);
      admin.enableReplicationPeer("other");
      check(admin.isReplicationPeerEnabled("other"), "enabled");
      admin.removeReplicationPeer("other");
      fails("does not exist", () -> admin.getReplicationPeerConfig("other"));
      fails("Can't get peerClusterId", () -> admin.addReplicationPeer("gone",
        ReplicationPeerConfig.newBuilder().setClusterKey("127.0.0.1:1:/x").build()));
      System.out.println("peers: all changes and errors as in HBase");
    }
  }

  static long applied(Connection connection) throws IOException {
    long sum = 0;
    try (Admin admin = connection.getAdmin()) {
      for (ServerMetrics server : admin.getClusterMetrics().getLiveServerMetrics().values()) {
        sum += server.getReplicationLoadSink().getTotalOpsProcessed();
      }
    }
    return sum;
  }

  static void quiet(String[] args) throws Exception {
    for (int round = 0; ; round++) {
      List<Long> before = new ArrayList<>(), after = new ArrayList<>();
      for (List<Long> counts : List.of(before, after)) {
        for (int i = 1; i < args.length; i++) {
          try (Connection connection = connect(args[i])) { counts.add(applied(connection)); }
        }
        if (counts == before) Thread.sleep(8000); // HBase's servers report each three seconds
      }
      if (before.equals(after)) {
        System.out.println("quiet: sinks have applied " + after);
        return;
      }
      if (round == 5) {
        System.err.println("sinks go on: " + before + ", then " + after);
        System.exit(1);
      }
    }
  }

  static void loads(String zookeeper) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      for (ServerMetrics server : admin.getClusterMetrics().getLiveServerMetrics().values()) {
        System.out.println("sink ops " + server.getReplicationLoadSink().getTotalOpsProcessed() + " age "
          + server.getReplicationLoadSink().getAgeOfLastAppliedOp());
        for (ReplicationLoadSource source : server.getReplicationLoadSourceList()) {
          System.out.println("source " + source.getPeerID() + " at " + server.getServerName() + " queue " + source.getSizeOfLogQueue() + " lag "
            + source.getReplicationLag() + " shipped " + source.getOPsShipped() + (source.isRecovered() ? " recovered " : " normal ")
            + source.getQueueId());
        }
      }
    }
  }
}
