import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.crypto.Encryption;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.ChecksumType;

/**
 * HBase's side of the HFile matrix: every combination, one file each.
 *
 * write DIR LIST: LIST has a line for each file, "name encoding compression bloom tags block-size index-size
 * checksum key"; the cells are those of the golden files. tags is none (and no mvcc), plain or compressed; key is the
 * length in bytes of the key that the file is encrypted with, or 0.
 * read LIST DIR: prints, for each file that LIST names, into DIR what HFileGolden's read prints.
 */
public class HFileMatrix {
  public static void main(String[] args) throws Exception {
    HFileGolden.prepare();
    if (args[0].equals("write")) {
      List<KeyValue> cells = HFileGolden.cells(45);
      for (String line : Files.readAllLines(Paths.get(args[2]))) {
        write(args[1], line.split(" "), cells);
      }
    } else {
      for (String file : Files.readAllLines(Paths.get(args[1]))) {
        String name = Paths.get(file).getFileName().toString();
        try (PrintStream out = new PrintStream(Files.newOutputStream(Paths.get(args[2], name)))) {
          HFileGolden.read(file, out);
        }
      }
    }
  }

  static void write(String dir, String[] words, List<KeyValue> cells) throws Exception {
    Configuration conf = new Configuration(HFileGolden.CONF);
    conf.setInt("hfile.index.block.max.size", Integer.parseInt(words[6]));
    HFileContextBuilder options = HFileGolden
      .options(DataBlockEncoding.valueOf(words[1]), Compression.Algorithm.valueOf(words[2]))
      .withBlockSize(Integer.parseInt(words[5])).withIncludesTags(!words[4].equals("none"))
      .withIncludesMvcc(!words[4].equals("none")).withCompressTags(words[4].equals("compressed"))
      .withChecksumType(ChecksumType.nameToType(words[7]));
    int key = Integer.parseInt(words[8]);
    if (key > 0) {
      byte[] bytes = new byte[key];
      Bytes.secureRandom(bytes);
      options.withEncryptionContext(
        Encryption.newContext(conf).setCipher(Encryption.getCipher(conf, "AES")).setKey(bytes));
    }
    HFileGolden.write(conf, dir, words[0], cells, options, BloomType.valueOf(words[3]));
  }
}
