import java.io.PrintStream;
import java.util.Arrays;
import java.util.TreeMap;
import java.util.NavigableMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALKeyImpl;
import org.apache.hadoop.hbase.wal.WALProvider;
import org.apache.hadoop.hbase.wal.WALStreamReader;

/**
 * Writes and reads logs with HBase's own classes.
 *
 *   write FILE plain|secure|dictionary|gz|snappy|zstd   the entries below, encrypted or compressed as said
 *                                (zstd asks for hbase.io.compress.zstd.codec = HBase's ZstdCodec in core-site.xml)
 *   write FILE eviction                          more qualifiers than a dictionary holds
 *   read FILE                    the entries of a log as text
 */
public class HBaseWal {
  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    // A key store of base/crypto/testdata, for logs that are encrypted.
    conf.set("hbase.crypto.keyprovider.parameters",
      "jceks://" + System.getenv("HALCYON_KEY_STORE") + "?password=st0re-pass");
    conf.set("hbase.crypto.master.key.name", "master");
    Path path = new Path("file://" + new java.io.File(args[1]).getAbsolutePath());
    FileSystem fs = path.getFileSystem(conf);
    if (args[0].equals("write")) {
      write(conf, fs, path, args[2]);
    } else {
      read(conf, fs, path, System.out);
    }
    System.out.flush();
    System.exit(0);
  }

  static void write(Configuration conf, FileSystem fs, Path path, String kind) throws Exception {
    conf.setBoolean("hbase.regionserver.wal.encryption", kind.equals("secure"));
    conf.setBoolean("hbase.regionserver.wal.enablecompression", !kind.equals("plain") && !kind.equals("secure"));
    if (!Arrays.asList("plain", "secure", "dictionary", "eviction").contains(kind)) {
      conf.setBoolean("hbase.regionserver.wal.value.enablecompression", true);
      conf.set("hbase.regionserver.wal.value.compression.type", kind);
    }
    WALProvider.Writer writer = WALFactory.createWALWriter(fs, path, conf);
    String[] regions = { "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210" };
    String[] tables = { "t", "ns:other" };
    if (kind.equals("eviction")) {
      writeEvicting(writer);
      writer.close();
      return;
    }
    byte[] large = new byte[400];
    Arrays.fill(large, (byte) 'x');
    for (int i = 1; i <= 40; i++) {
      int r = i % 3 == 0 ? 1 : 0;
      NavigableMap<byte[], Integer> scopes = null;
      if (i % 5 == 0) {
        scopes = new TreeMap<>(Bytes.BYTES_COMPARATOR);
        scopes.put(Bytes.toBytes("f"), 1);
      }
      WALKeyImpl key = new WALKeyImpl(Bytes.toBytes(regions[r]), TableName.valueOf(tables[r]), (long) i,
        1700000000000L + i, java.util.Collections.emptyList(), i % 2, i % 4 == 0 ? 0 : 1000 + i, null, scopes);
      WALEdit edit = new WALEdit();
      for (int c = 0; c <= i % 3; c++) {
        edit.add(cell(i, c, large));
      }
      writer.append(new WAL.Entry(key, edit));
    }
    writer.close();
  }

  /** Each value is the qualifier once more. */
  static void writeEvicting(WALProvider.Writer writer) throws Exception {
    for (int i = 0; i < 5; i++) {
      WALKeyImpl key = new WALKeyImpl(Bytes.toBytes("0123456789abcdef0123456789abcdef"),
        TableName.valueOf("t"), (long) i + 1, 1700000000000L, java.util.Collections.emptyList(), 0, 0, null);
      WALEdit edit = new WALEdit();
      for (int c = 0; c < 100; c++) {
        int n = 100 * i + c;
        byte[] qualifier = Bytes.toBytes("q" + (n * n + 3 * n) % 401 % 190);
        edit.add(new KeyValue(Bytes.toBytes("r"), Bytes.toBytes("f"), qualifier, n, qualifier));
      }
      writer.append(new WAL.Entry(key, edit));
    }
  }

  static KeyValue cell(int i, int c, byte[] large) {
    byte[] row = Bytes.toBytes("row" + (i % 7));
    byte[] family = Bytes.toBytes(c == 1 ? "g" : "f");
    byte[] qualifier = c == 2 ? new byte[0] : Bytes.toBytes("q" + (i % 4));
    byte[] value = i % 9 == 0 ? large : i % 6 == 0 ? new byte[0] : Bytes.toBytes("value" + i);
    if (i % 10 == 3) {
      return new KeyValue(row, family, qualifier, 5000 + i, KeyValue.Type.DeleteColumn);
    }
    if (i % 8 == 1) {
      Tag[] tags = { new ArrayBackedTag((byte) 8, Bytes.toBytes(60000L)),
        new ArrayBackedTag((byte) 1, Bytes.toBytes("acl" + i % 2)) };
      return new KeyValue(row, family, qualifier, 5000 + i, value, tags);
    }
    return new KeyValue(row, family, qualifier, 5000 + i, value);
  }

  static void read(Configuration conf, FileSystem fs, Path path, PrintStream out) throws Exception {
    try (WALStreamReader reader = WALFactory.createStreamReader(fs, path, conf)) {
      for (WAL.Entry entry; (entry = reader.next()) != null;) {
        WALKeyImpl key = entry.getKey();
        out.print("entry " + Bytes.toString(key.getEncodedRegionName()) + " " + key.getTableName()
          + " seq=" + key.getSequenceId() + " time=" + key.getWriteTime() + " nonce=" + key.getNonceGroup()
          + "/" + key.getNonce());
        if (key.getReplicationScopes() != null) {
          key.getReplicationScopes().forEach((f, s) -> out.print(" scope=" + Bytes.toString(f) + "/" + s));
        }
        out.println();
        for (Cell cell : entry.getEdit().getCells()) {
          byte[] bytes = KeyValueUtil.ensureKeyValue(cell).getBuffer();
          KeyValue kv = KeyValueUtil.ensureKeyValue(cell);
          out.println("  " + Bytes.toHex(bytes, kv.getOffset(), kv.getLength()));
        }
      }
    }
  }
}
