import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellComparatorImpl;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.security.EncryptionUtil;
import org.apache.hadoop.hbase.tool.BulkLoadHFiles;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Encrypted tables, for encryption.sh. The class path begins with a directory of the hbase-site.xml that the server has.
 *
 * <pre>
 * stores FILE KEY...             a key store (JCEKS) with keys of these names; the password is "hush-hush"
 * fill HOST:PORT                 table "secret": a family with random keys, one with a key of its own, a plain one; a snapshot, a clone;
 *                                table "listed": the same, with lists of store files
 * load HOST:PORT DIRECTORY       a bulk load of an encrypted file for each encrypted family, which is made in the directory
 * copies HOST:PORT ...           table "copies" with a replicated encrypted family at each of these clusters
 * peer HOST:PORT OTHER           the second cluster is a peer of the first
 * replicate HOST:PORT OTHER N    N rows are written at the first and come to the second, unless they are there after a minute
 * unflushed HOST:PORT NUMBER     rows that stay in memory and in the log
 * work HOST:PORT                 flushes, splits, compacts
 * rotate HOST:PORT MASTER        a new family key, wrapped with this master key, and a major compaction of all tables
 * dump HOST:PORT FILE            every cell
 * tables HOST:PORT               which tables can be read
 * refused HOST:PORT CASE         what a client is told: the first line of an exception
 * stop HOST:PORT                 ends the cluster in order
 * </pre>
 */
public final class Encryption {
  private static final TableName SECRET = TableName.valueOf("secret");
  private static final TableName LISTED = TableName.valueOf("listed");
  private static final TableName COPIES = TableName.valueOf("copies");
  private static final TableName CLONE = TableName.valueOf("clone");
  private static final TableName PLAIN = TableName.valueOf("plain");
  private static final byte[] RANDOM = Bytes.toBytes("random");
  private static final byte[] OWN = Bytes.toBytes("own");
  private static final byte[] OPEN = Bytes.toBytes("open");
  private static final String[] NAMES = {"random", "own", "open"};

  private final Configuration conf;
  private final Connection connection;
  private final Admin admin;

  private Encryption(Configuration conf, Connection connection) throws IOException {
    this.conf = conf;
    this.connection = connection;
    this.admin = connection.getAdmin();
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("stores")) {
      stores(args);
      return;
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[1].split(":")[0]);
    conf.set("hbase.zookeeper.property.clientPort", args[1].split(":")[1]);
    conf.setInt("hbase.client.retries.number", args[0].equals("tables") ? 2 : 8);
    conf.setInt("hbase.client.pause", 100);
    conf.setInt("hbase.rpc.timeout", 10_000);
    conf.setInt("hbase.client.operation.timeout", 30_000);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      Encryption it = new Encryption(conf, connection);
      switch (args[0]) {
        case "fill" -> it.fill();
        case "unflushed" -> {
          it.put(SECRET, Integer.parseInt(args[2]), 40);
          it.put(LISTED, Integer.parseInt(args[2]), 40);
        }
        case "load" -> it.load(args[2]);
        case "copies" -> it.copies();
        case "peer" -> it.peer(args[2]);
        case "replicate" -> it.replicate(args[2], Integer.parseInt(args[3]));
        case "work" -> it.work();
        case "rotate" -> it.rotate(args[2]);
        case "dump" -> Files.write(Path.of(args[2]), it.dump());
        case "tables" -> it.tables();
        case "refused" -> it.refused(args[2]);
        case "stop" -> it.admin.shutdown();
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
    System.exit(0);
  }

  private static void stores(String[] args) throws Exception {
    char[] password = "hush-hush".toCharArray();
    KeyStore store = KeyStore.getInstance("JCEKS");
    store.load(null, null);
    for (String name : Arrays.asList(args).subList(2, args.length)) {
      byte[] key = Arrays.copyOf(name.getBytes(StandardCharsets.UTF_8), name.length() > 5 ? 32 : 16);
      store.setEntry(name, new KeyStore.SecretKeyEntry(new SecretKeySpec(key, "AES")), new KeyStore.PasswordProtection(password));
    }
    try (FileOutputStream out = new FileOutputStream(args[1])) {
      store.store(out, password);
    }
  }

  private byte[] familyKey(String master, int fill) throws IOException {
    byte[] key = new byte[16];
    Arrays.fill(key, (byte) fill);
    return EncryptionUtil.wrapKey(conf, master, new SecretKeySpec(key, "AES"));
  }

  private void fill() throws Exception {
    ColumnFamilyDescriptor random = ColumnFamilyDescriptorBuilder.newBuilder(RANDOM).setMaxVersions(3).setEncryptionType("AES")
        .setCompressionType(Compression.Algorithm.GZ).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF).setBlocksize(2048).build();
    ColumnFamilyDescriptor own = ColumnFamilyDescriptorBuilder.newBuilder(OWN).setMaxVersions(3).setEncryptionType("AES")
        .setEncryptionKey(familyKey(conf.get("hbase.crypto.master.key.name"), 7)).setBlocksize(2048).build();
    ColumnFamilyDescriptor open = ColumnFamilyDescriptorBuilder.newBuilder(OPEN).setMaxVersions(3).build();
    admin.createTable(TableDescriptorBuilder.newBuilder(SECRET).setColumnFamily(random).setColumnFamily(own).setColumnFamily(open)
        .setValue("hbase.hstore.compaction.min", "100").build());
    admin.createTable(TableDescriptorBuilder.newBuilder(LISTED).setColumnFamily(random).setColumnFamily(own).setColumnFamily(open)
        .setValue("hbase.store.file-tracker.impl", "FILE").build());
    admin.createTable(TableDescriptorBuilder.newBuilder(PLAIN).setColumnFamily(open).build());
    put(PLAIN, 1, 10);
    for (int round = 1; round <= 2; round++) {
      for (TableName name : new TableName[] {SECRET, LISTED}) {
        put(name, round, 300);
        admin.flush(name);
      }
    }
    admin.snapshot("snap", SECRET);
    admin.cloneSnapshot("snap", CLONE);
    put(SECRET, 3, 20);
  }

  /** Values of encrypted families begin with a word that must be in no file. */
  private void put(TableName name, int round, int count) throws IOException {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Put put = new Put(Bytes.toBytes(String.format("row%05d", i * 7 % 1000)));
      for (String family : NAMES) {
        if (!name.equals(PLAIN) || family.equals("open")) {
          String word = family.equals("open") ? "everybody" : "topsecret";
          put.addColumn(Bytes.toBytes(family), Bytes.toBytes("q" + round), 1_600_000_000_000L + round,
              Bytes.toBytes(word + " " + round + " " + i));
        }
      }
      puts.add(put);
    }
    try (Table table = connection.getTable(name)) {
      table.put(puts);
    }
  }

  private void work() throws Exception {
    put(SECRET, 5, 200);
    admin.flush(SECRET);
    put(SECRET, 6, 100);
    RegionInfo before = admin.getRegions(SECRET).get(0);
    admin.splitRegionAsync(before.getRegionName(), Bytes.toBytes("row00500")).get();
    while (admin.getRegions(SECRET).contains(before)) {
      Thread.sleep(100);
    }
    put(SECRET, 7, 50);
    put(LISTED, 5, 100);
    compact(LISTED);
    put(LISTED, 6, 50);
    compact(CLONE);
    admin.flush(SECRET);
    put(SECRET, 8, 50);
  }

  private void compact(TableName name) throws Exception {
    admin.flush(name);
    admin.majorCompact(name);
    do {
      Thread.sleep(500);
    } while (admin.getCompactionState(name) != CompactionState.NONE);
  }

  private void rotate(String master) throws Exception {
    ColumnFamilyDescriptor own = admin.getDescriptor(SECRET).getColumnFamily(OWN);
    for (TableName name : new TableName[] {SECRET, LISTED, CLONE}) {
      admin.modifyColumnFamily(name,
          ColumnFamilyDescriptorBuilder.newBuilder(own).setEncryptionKey(familyKey(master, 9)).build());
      compact(name);
    }
  }

  /** Files with a random key and with the family's, each wrapped with the master key. */
  private void load(String directory) throws Exception {
    FileSystem files = FileSystem.getLocal(conf).getRaw();
    for (String family : new String[] {"random", "own"}) {
      ColumnFamilyDescriptor descriptor = admin.getDescriptor(SECRET).getColumnFamily(Bytes.toBytes(family));
      HFileContext context = new HFileContextBuilder().withBlockSize(2048).withColumnFamily(Bytes.toBytes(family))
          .withTableName(SECRET.getName()).withCellComparator(CellComparatorImpl.COMPARATOR)
          .withEncryptionContext(EncryptionUtil.createEncryptionContext(conf, descriptor)).build();
      org.apache.hadoop.fs.Path file = new org.apache.hadoop.fs.Path(directory + "/" + family, family + "-file");
      try (HFile.Writer writer = HFile.getWriterFactoryNoCache(conf).withPath(files, file).withFileContext(context).create()) {
        for (int i = 0; i < 200; i++) {
          writer.append(new KeyValue(Bytes.toBytes(String.format("row%05d", i)), Bytes.toBytes(family), Bytes.toBytes("loaded"),
              1_600_000_000_500L, Bytes.toBytes("topsecret loaded " + i)));
        }
      }
    }
    Map<BulkLoadHFiles.LoadQueueItem, ByteBuffer> loaded =
        BulkLoadHFiles.create(conf).bulkLoad(SECRET, new org.apache.hadoop.fs.Path("file://" + directory));
    if (loaded.size() != 2) {
      throw new IllegalStateException("loaded: " + loaded);
    }
  }

  private void copies() throws IOException {
    admin.createTable(TableDescriptorBuilder.newBuilder(COPIES).setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(OWN).setScope(1)
        .setEncryptionType("AES").setEncryptionKey(familyKey(conf.get("hbase.crypto.master.key.name"), 7)).build()).build());
  }

  private void peer(String other) throws IOException {
    admin.addReplicationPeer("other", ReplicationPeerConfig.newBuilder().setClusterKey(other + ":/hbase").build());
  }

  private void replicate(String other, int count) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Put put = new Put(Bytes.toBytes("from " + conf.get("hbase.zookeeper.property.clientPort") + " " + i));
      puts.add(put.addColumn(OWN, OWN, 1_600_000_000_000L, Bytes.toBytes("topsecret " + i)));
    }
    try (Table table = connection.getTable(COPIES)) {
      table.put(puts);
    }
    Configuration there = new Configuration(conf);
    there.set("hbase.zookeeper.property.clientPort", other.split(":")[1]);
    try (Connection second = ConnectionFactory.createConnection(there); Table table = second.getTable(COPIES)) {
      List<Get> gets = new ArrayList<>();
      puts.forEach(put -> gets.add(new Get(put.getRow())));
      for (int tries = 0; tries < 120; tries++) {
        boolean all = true;
        Result[] found = table.get(gets);
        for (int i = 0; i < count; i++) {
          all &= ("topsecret " + i).equals(Bytes.toString(found[i].getValue(OWN, OWN)));
        }
        if (all) {
          System.out.println(count + " rows of an encrypted log were replicated");
          return;
        }
        Thread.sleep(500);
      }
    }
    throw new IllegalStateException("rows did not come within a minute");
  }

  private List<String> dump() throws IOException {
    List<String> lines = new ArrayList<>();
    for (TableName name : admin.listTableNames()) {
      try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan().readAllVersions())) {
        for (Result result : scanner) {
          for (Cell cell : result.rawCells()) {
            lines.add("cell " + name + " " + cell + " " + Bytes.toString(CellUtil.cloneValue(cell)));
          }
        }
      }
    }
    Collections.sort(lines);
    return lines;
  }

  private void tables() throws IOException {
    for (TableName name : new TableName[] {PLAIN, SECRET}) {
      try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan())) {
        System.out.println(name + " " + (scanner.next() == null ? "is empty" : "is read"));
      } catch (IOException e) {
        System.out.println(name + " is not read");
      }
    }
  }

  private void refused(String what) throws IOException {
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(RANDOM).setEncryptionType("AES");
    switch (what) {
      case "cipher" -> family.setEncryptionType("DES");
      case "key" -> family.setEncryptionKey(familyKey("other", 1));
      default -> {
      }
    }
    try {
      admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf("refused")).setColumnFamily(family.build()).build());
      System.out.println(what + ": created");
      admin.disableTable(TableName.valueOf("refused"));
      admin.deleteTable(TableName.valueOf("refused"));
    } catch (IOException e) {
      String first = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      System.out.println(what + ": " + e.getClass().getName() + ": " + first);
    }
  }
}
