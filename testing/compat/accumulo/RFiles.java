// RFiles DIRECTORY [FACTOR]
//
// Writes RFiles by Accumulo's own API, and what they have as text, for the tests of programs/import. Each line of NAME.txt is an
// entry in the order of Accumulo: row, family, qualifier, visibility, timestamp, whether it deletes, value; bytes in hexadecimal.
// FACTOR makes the files larger.

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.accumulo.core.client.rfile.RFile;
import org.apache.accumulo.core.client.rfile.RFileWriter;
import org.apache.accumulo.core.client.sample.RowSampler;
import org.apache.accumulo.core.client.sample.SamplerConfiguration;
import org.apache.accumulo.core.data.Key;
import org.apache.accumulo.core.data.Value;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

public class RFiles {
  private static final String[] FAMILIES = {"attributes", "body", "c", "links", ""};
  private static final String[] VISIBILITIES = {"", "", "public", "(a|b)&secret", "\"x y\""};
  private static FileSystem fs;
  private static Path directory;

  public static void main(String[] arguments) throws Exception {
    directory = Path.of(arguments[0]);
    int factor = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 1;
    System.setProperty("io.compression.codec.zstd.class", "ZstdStreams");
    fs = FileSystem.getLocal(new Configuration()).getRaw();
    Files.createDirectories(directory);
    for (String codec : new String[] {"none", "gz", "snappy", "lz4", "zstd"}) {
      write(codec, 24 * factor, Map.of("table.file.compress.type", codec), true, null);
    }
    // an index of several levels
    write("levels", 48 * factor, Map.of("table.file.compress.type", "none", "table.file.compress.blocksize", "512",
        "table.file.compress.blocksize.index", "256"), true, null);
    write("one-group", 24 * factor, Map.of("table.file.compress.type", "gz"), false, null);
    write("empty", 0, Map.of("table.file.compress.type", "gz"), true, null);
    write("sampled", 24 * factor, Map.of("table.file.compress.type", "gz", "table.file.compress.blocksize", "1K"), true,
        new SamplerConfiguration(RowSampler.class.getName()).setOptions(Map.of("hasher", "murmur3_32", "modulus", "3")));
    write("bloom", 24 * factor, Map.of("table.file.compress.type", "gz", "table.bloom.enabled", "true"), true, null);
    if (arguments.length < 3) {
      encrypted();
    }
  }

  private static void write(String name, int rows, Map<String, String> properties, boolean hasGroups,
      SamplerConfiguration sampler) throws Exception {
    var entries = entries(name, rows);
    Path file = directory.resolve(name + ".rf");
    Files.deleteIfExists(file);
    var options = RFile.newWriter().to(file.toString()).withFileSystem(fs).withTableProperties(properties)
        .withVisibilityCacheSize(100);
    if (sampler != null) {
      options = options.withSampler(sampler);
    }
    try (RFileWriter writer = options.build()) {
      if (hasGroups) {
        writer.startNewLocalityGroup("texts", "body", "never");
        append(writer, entries, List.of("body"));
        writer.startNewLocalityGroup("small", "attributes", "c");
        append(writer, entries, List.of("attributes", "c"));
        writer.startDefaultLocalityGroup();
        append(writer, entries, List.of("links", ""));
      } else {
        writer.startDefaultLocalityGroup();
        append(writer, entries, List.of(FAMILIES));
      }
    }
    dump(file, name);
  }

  private static void append(RFileWriter writer, TreeMap<Key, Value> entries, List<String> families) throws IOException {
    for (Map.Entry<Key, Value> entry : entries.entrySet()) {
      if (families.contains(entry.getKey().getColumnFamily().toString())) {
        writer.append(entry.getKey(), entry.getValue());
      }
    }
  }

  private static TreeMap<Key, Value> entries(String name, int rows) {
    var random = new Random(name.hashCode());
    var entries = new TreeMap<Key, Value>();
    for (int row = 0; row < rows; row++) {
      var key = new byte[] {(byte) (row >> 8), (byte) row, 'r', (byte) random.nextInt(256)};
      for (int at = random.nextInt(12); at >= 0; at--) {
        var family = FAMILIES[random.nextInt(FAMILIES.length)].getBytes();
        var qualifier = ("q" + random.nextInt(1 << random.nextInt(12))).getBytes();
        var visibility = VISIBILITIES[random.nextInt(VISIBILITIES.length)].getBytes();
        long time = random.nextInt(10) == 0 ? random.nextLong() >>> (1 + random.nextInt(62)) : 1_700_000_000_000L + random.nextInt(100);
        var value = new byte[random.nextInt(100) == 0 ? 700 : random.nextInt(24)];
        random.nextBytes(value);
        boolean deletes = random.nextInt(8) == 0;
        entries.put(new Key(key, family, qualifier, visibility, time, deletes), new Value(deletes ? new byte[0] : value));
      }
    }
    return entries;
  }

  // What Accumulo itself reads of the file, deletions too.
  private static void dump(Path file, String name) throws Exception {
    try (var scanner = RFile.newScanner().from(file.toString()).withFileSystem(fs).withoutSystemIterators().build();
        var out = new PrintWriter(Files.newBufferedWriter(directory.resolve(name + ".txt")))) {
      for (Map.Entry<Key, Value> entry : scanner) {
        Key key = entry.getKey();
        out.println(hex(key.getRowData().toArray()) + " " + hex(key.getColumnFamilyData().toArray()) + " "
            + hex(key.getColumnQualifierData().toArray()) + " " + hex(key.getColumnVisibilityData().toArray()) + " "
            + key.getTimestamp() + " " + key.isDeleted() + " " + hex(entry.getValue().get()));
      }
    }
  }

  // A file of Accumulo's AES crypto service.
  private static void encrypted() throws Exception {
    Path key = directory.resolve("key");
    Files.write(key, "0123456789abcdef".getBytes());
    Path file = directory.resolve("encrypted.rf");
    Files.deleteIfExists(file);
    try (RFileWriter writer = RFile.newWriter().to(file.toString()).withFileSystem(fs)
        .withTableProperties(Map.of("table.crypto.opts.service", "org.apache.accumulo.core.spi.crypto.AESCryptoService",
            "table.crypto.opts.key.uri", key.toUri().toString(),
            "instance.crypto.opts.factory", "org.apache.accumulo.core.spi.crypto.PerTableCryptoServiceFactory",
            "table.crypto.opts.key.provider", "uri", "general.custom.crypto.key.uri", key.toUri().toString())).build()) {
      writer.startDefaultLocalityGroup();
      writer.append(new Key("r", "f", "q"), new Value("v"));
    }
    Files.delete(key);
  }

  private static String hex(byte[] bytes) {
    var text = new StringBuilder("x");
    for (byte one : bytes) {
      text.append(String.format("%02x", one));
    }
    return text.toString();
  }
}
