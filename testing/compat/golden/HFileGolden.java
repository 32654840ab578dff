import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.SortedSet;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellComparator;
import org.apache.hadoop.hbase.CellComparatorImpl;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.ExtendedCell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.MetaCellComparator;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.io.Reference;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.BloomFilterMetrics;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.io.hfile.HFileInfo;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.regionserver.StoreFileInfo;
import org.apache.hadoop.hbase.regionserver.StoreFileReader;
import org.apache.hadoop.hbase.regionserver.StoreFileScanner;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;
import org.apache.hadoop.hbase.util.BloomFilterUtil;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.ChecksumType;

/**
 * HBase's side of the HFile compatibility tests, on HBase's own classes.
 *
 * write DIR: writes the golden files of storage/hfile/testdata and the cells in them as text.
 * read FILE [PROBE]...: opens FILE (named in hex, as a store file) and prints file info, cells, answers of
 * bloom filters, and what seeks to some keys find, as text that the Rust side prints as well.
 */
public class HFileGolden {
  static final Configuration CONF = HBaseConfiguration.create();

  public static void main(String[] args) throws Exception {
    prepare();
    if (args[0].equals("write")) {
      writeAll(args[1]);
    } else {
      for (int i = 1; i < args.length; i++) {
        read(args[i], System.out);
      }
    }
  }

  static void prepare() {
    CONF.set("hbase.io.compress.snappy.codec", "org.apache.hadoop.hbase.io.compress.xerial.SnappyCodec");
    CONF.set("hbase.io.compress.zstd.codec", "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec");
    CONF.set("hbase.io.compress.lzo.codec", "org.apache.hadoop.hbase.io.compress.aircompressor.LzoCodec");
    CONF.set("hbase.io.compress.brotli.codec", "org.apache.hadoop.hbase.io.compress.brotli.BrotliCodec");
    CONF.set("hbase.io.compress.lzma.codec", "LzmaCodec");
    CONF.set("hbase.io.compress.bzip2.codec", "BZip2JavaCodec");
    for (Compression.Algorithm algorithm : Compression.Algorithm.values()) {
      algorithm.reload(CONF);
    }
    CONF.setInt(BloomFilterUtil.PREFIX_LENGTH_KEY, 6);
    CONF.setInt("hfile.format.version", 3);
    // Several index levels and bloom chunks from little data.
    CONF.setInt("hfile.index.block.max.size", 256);
    CONF.setInt("hfile.index.block.min.entries", 3);
    CONF.setInt("io.storefile.bloom.block.size", 128);
    // A key store of base/crypto/testdata, for files that are encrypted.
    CONF.set("hbase.crypto.keyprovider.parameters",
      "jceks://" + System.getenv("HALCYON_KEY_STORE") + "?password=st0re-pass");
    CONF.set("hbase.crypto.master.key.name", "master");
  }

  static FileSystem fs() throws Exception {
    LocalFileSystem fs = FileSystem.getLocal(CONF);
    fs.setWriteChecksum(false);
    fs.setVerifyChecksum(false);
    return fs;
  }

  // ---- writing

  static void writeAll(String dir) throws Exception {
    List<KeyValue> cells = cells(45);
    text(dir, "cells", cells);
    List<KeyValue> few = cells.subList(0, 40);
    text(dir, "few-cells", few);
    List<KeyValue> meta = metaCells();
    text(dir, "meta-cells", meta);

    write(dir, "row", cells, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE), BloomType.ROW);
    write(dir, "rowcol", few, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE), BloomType.ROWCOL);
    write(dir, "rowprefix", few, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE),
      BloomType.ROWPREFIX_FIXED_LENGTH);
    for (Compression.Algorithm compression : Compression.Algorithm.values()) {
      if (compression != Compression.Algorithm.NONE) {
        write(dir, compression.name().toLowerCase(), few, options(DataBlockEncoding.NONE, compression), BloomType.ROW);
      }
    }
    write(dir, "crc32", few, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE)
      .withChecksumType(ChecksumType.CRC32).withBytesPerCheckSum(100), BloomType.NONE);
    for (DataBlockEncoding encoding : DataBlockEncoding.values()) {
      if (encoding == DataBlockEncoding.NONE) {
        continue;
      }
      String name = encoding.name().toLowerCase().replace("_", "-");
      write(dir, name, cells, options(encoding, Compression.Algorithm.NONE).withBlockSize(1024),
        BloomType.NONE);
      write(dir, name + "-tags", few, options(encoding, Compression.Algorithm.NONE)
        .withBlockSize(1024).withCompressTags(true), BloomType.NONE);
    }
    write(dir, "meta", meta, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE)
      .withCellComparator(MetaCellComparator.META_COMPARATOR), BloomType.ROWCOL);
    write(dir, "bulk", few, options(DataBlockEncoding.NONE, Compression.Algorithm.NONE)
      .withIncludesMvcc(false), BloomType.ROW);
    write(dir, "empty", new ArrayList<>(), options(DataBlockEncoding.NONE, Compression.Algorithm.NONE),
      BloomType.ROW);
  }

  static HFileContextBuilder options(DataBlockEncoding encoding, Compression.Algorithm compression) {
    return new HFileContextBuilder().withBlockSize(300).withCompression(compression)
      .withDataBlockEncoding(encoding).withIncludesMvcc(true).withIncludesTags(true)
      .withCompressTags(false).withBytesPerCheckSum(16384).withChecksumType(ChecksumType.CRC32C)
      .withCellComparator(CellComparatorImpl.COMPARATOR).withCreateTime(1700000000000L);
  }

  static void write(String dir, String name, List<KeyValue> cells, HFileContextBuilder options,
    BloomType bloom) throws Exception {
    write(CONF, dir, name, cells, options, bloom);
  }

  static void write(Configuration conf, String dir, String name, List<KeyValue> cells,
    HFileContextBuilder options, BloomType bloom) throws Exception {
    Path path = new Path(Paths.get(dir, name + ".hfile").toAbsolutePath().toUri());
    StoreFileWriter writer = new StoreFileWriter.Builder(conf, new CacheConfig(conf), fs())
      .withFilePath(path).withFileContext(options.build()).withBloomType(bloom).withMaxKeyCount(1000)
      .build();
    for (KeyValue cell : cells) {
      writer.append(cell);
    }
    if (name.equals("bulk")) {
      writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(1700000000001L));
      writer.appendTrackedTimestampsToMetadata();
    } else {
      writer.appendMetadata(4711, name.equals("row"));
    }
    writer.close();
  }

  static void text(String dir, String name, List<KeyValue> cells) throws Exception {
    try (PrintStream out = new PrintStream(Files.newOutputStream(Paths.get(dir, name + ".txt")))) {
      for (KeyValue cell : cells) {
        out.println(line(cell));
      }
    }
  }

  /** Rows with columns, versions, markers, tags and bytes of all kinds; the same every time. */
  static List<KeyValue> cells(int rows) {
    Random random = new Random(7);
    TreeSet<KeyValue> cells = new TreeSet<>(CellComparatorImpl.COMPARATOR);
    byte[] family = Bytes.toBytes("f");
    for (int i = 0; i < rows; i++) {
      byte[] row = Bytes.toBytes(String.format(i % 5 == 0 ? "row%05d" : "row%05d-%d", i, i % 5));
      if (i % 11 == 3) {
        cells.add(new KeyValue(row, family, null, 500 + i, KeyValue.Type.DeleteFamily));
      }
      if (i % 13 == 5) {
        cells.add(new KeyValue(row, family, null, 400, KeyValue.Type.DeleteFamilyVersion));
      }
      for (int q = 0; q < 1 + random.nextInt(3); q++) {
        byte[] qualifier = Bytes.toBytes(q == 2 ? "a longer qualifier " + i : "q" + q);
        if (i % 17 == 1) {
          cells.add(new KeyValue(row, family, qualifier, 700, KeyValue.Type.DeleteColumn));
        }
        long timestamp = i % 19 == 0 ? 5 : 1700000000000L + random.nextInt(70000);
        if (i % 23 == 2) {
          timestamp = Long.MAX_VALUE - random.nextInt(5);
        }
        for (int v = 0; v < 1 + random.nextInt(2); v++) {
          byte[] value = new byte[random.nextInt(i == 20 ? 600 : 12)];
          if (v == 0) {
            random.nextBytes(value);
          }
          List<Tag> tags = new ArrayList<>();
          if (i % 6 == 1) {
            tags.add(new ArrayBackedTag((byte) 8, Bytes.toBytes(60000L)));
            tags.add(new ArrayBackedTag((byte) 1, Bytes.toBytes("acl" + random.nextInt(3))));
          }
          KeyValue cell = new KeyValue(row, family, qualifier, timestamp - v, KeyValue.Type.Put, value, tags);
          cell.setSequenceId(random.nextInt(4) == 0 ? 0 : random.nextInt(100000));
          cells.add(cell);
        }
        if (i % 29 == 0) {
          cells.add(new KeyValue(row, family, qualifier, timestamp, KeyValue.Type.Delete));
        }
      }
    }
    return new ArrayList<>(cells);
  }

  static List<KeyValue> metaCells() {
    TreeSet<KeyValue> cells = new TreeSet<>(MetaCellComparator.META_COMPARATOR);
    String[] tables = { "t", "t0", "t-x", "ns:t" };
    for (String table : tables) {
      for (String start : new String[] { "", "a", "a,b", "k\u0001", "z" }) {
        byte[] row = Bytes.toBytes(table + "," + start + ",1700000000000." + "0123456789abcdef0123456789abcdef.");
        for (String qualifier : new String[] { "regioninfo", "server", "state" }) {
          cells.add(new KeyValue(row, Bytes.toBytes("info"), Bytes.toBytes(qualifier), 77, Bytes.toBytes(table)));
        }
      }
    }
    return new ArrayList<>(cells);
  }

  // ---- reading

  static String line(Cell c) {
    return String.join(" ", hex(CellUtil.cloneRow(c)), hex(CellUtil.cloneFamily(c)),
      hex(CellUtil.cloneQualifier(c)), Long.toString(c.getTimestamp()),
      Integer.toString(c.getTypeByte() & 0xff), hex(CellUtil.cloneValue(c)),
      hex(PrivateCellUtil.cloneTags((ExtendedCell) c)), Long.toString(c.getSequenceId()));
  }

  static String hex(byte[] bytes) {
    return bytes.length == 0 ? "-" : Bytes.toHex(bytes);
  }

  static void read(String file, PrintStream out) throws Exception {
    Path path = new Path(Paths.get(file).toAbsolutePath().toUri());
    StoreFileInfo storeInfo =
      new StoreFileInfo(CONF, fs(), fs().getFileStatus(path), (Reference) null);
    HStoreFile store = new HStoreFile(storeInfo, BloomType.ROW, new CacheConfig(CONF), new BloomFilterMetrics());
    store.initReader();
    StoreFileReader reader = store.getReader();
    out.println("file " + path.getName());
    out.println("bloom " + reader.getBloomFilterType());
    out.println("seqid " + store.getMaxSequenceId() + " major " + store.isMajorCompactionResult());
    out.println("mvcc " + store.getMaxMemStoreTS() + " range " + store.getMinimumTimestamp().getAsLong() + " "
      + store.getMaximumTimestamp().getAsLong());
    HFileInfo info = reader.getHFileReader().getHFileInfo();
    TreeSet<byte[]> keys = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    keys.addAll(info.keySet());
    for (byte[] key : keys) {
      out.println("info " + Bytes.toString(key) + " " + hex(info.get(key)));
    }
    out.println("midkey " + store.getReader().midKey().map(HFileGolden::key).orElse("-"));
    List<Cell> cells = new ArrayList<>();
    StoreFileScanner scanner = store.getPreadScanner(false, Long.MAX_VALUE, 0, false);
    scanner.seek(KeyValue.LOWESTKEY);
    for (Cell c = scanner.next(); c != null; c = scanner.next()) {
      KeyValue copy = KeyValueUtil.copyToNewKeyValue((ExtendedCell) c);
      cells.add(copy);
      out.println("cell " + line(copy));
    }
    byte[] lastRow = null;
    int number = 0;
    for (Cell c : cells) {
      byte[] row = CellUtil.cloneRow(c);
      byte[] absent = Bytes.add(Bytes.copy(row, 0, row.length - 1), Bytes.toBytes("/" + number++));
      if (lastRow == null || !Bytes.equals(row, lastRow)) {
        out.println("blooms " + hex(row) + " " + rowIn(reader, row) + " " + rowIn(reader, absent) + " "
          + columnIn(reader, row, "q0") + " " + columnIn(reader, row, "nothing") + " "
          + columnIn(reader, absent, "q0") + " "
          + reader.passesDeleteFamilyBloomFilter(row, 0, row.length));
        KeyValue first = KeyValueUtil.createFirstOnRow(row);
        out.println("seek " + hex(row) + " " + (scanner.seek(first) ? key(scanner.peek()) : "-"));
        out.println("before " + hex(row) + " "
          + (scanner.seekToPreviousRow(first) ? hex(CellUtil.cloneRow(scanner.peek())) : "-"));
      }
      lastRow = row;
    }
    store.closeStoreFile(true);
  }

  static String key(Cell c) {
    return hex(PrivateCellUtil.getCellKeySerializedAsKeyValueKey((ExtendedCell) c));
  }

  static boolean rowIn(StoreFileReader reader, byte[] row) throws Exception {
    return passes(reader, new Scan(new Get(row)), null);
  }

  static boolean columnIn(StoreFileReader reader, byte[] row, String qualifier) throws Exception {
    TreeSet<byte[]> columns = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    columns.add(Bytes.toBytes(qualifier));
    Scan scan = new Scan(new Get(row).addColumn(Bytes.toBytes("f"), Bytes.toBytes(qualifier)));
    return passes(reader, scan, columns);
  }

  static boolean passes(StoreFileReader reader, Scan scan, TreeSet<byte[]> columns) throws Exception {
    Method method = StoreFileReader.class.getDeclaredMethod("passesBloomFilter", Scan.class, SortedSet.class);
    method.setAccessible(true);
    return (boolean) method.invoke(reader, scan, columns);
  }
}
