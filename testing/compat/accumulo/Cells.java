// Cells ZOOKEEPER TABLE
//
// Prints all cells of a table of HBase or Halcyon, with HBase's own client: row, family, qualifier, timestamp, value, tags; bytes in
// hexadecimal. Then a line with the start keys of the regions. The client asks for tags, which it usually does not.

import java.util.Iterator;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.util.Bytes;

public class Cells {
  public static void main(String[] arguments) throws Exception {
    var conf = HBaseConfiguration.create();
    int colon = arguments[0].lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", arguments[0].substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", arguments[0].substring(colon + 1));
    conf.set("hbase.client.rpc.codec", "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags");
    var name = TableName.valueOf(arguments[1]);
    var out = new StringBuilder();
    try (var connection = ConnectionFactory.createConnection(conf); var table = connection.getTable(name);
        var scanner = table.getScanner(new Scan().readAllVersions())) {
      for (Result row : scanner) {
        for (Cell cell : row.rawCells()) {
          out.append(hex(CellUtil.cloneRow(cell))).append(' ').append(hex(CellUtil.cloneFamily(cell))).append(' ')
              .append(hex(CellUtil.cloneQualifier(cell))).append(' ').append(cell.getTimestamp()).append(' ')
              .append(hex(CellUtil.cloneValue(cell)));
          for (Iterator<Tag> tags = PrivateCellUtil.tagsIterator(cell); tags.hasNext();) {
            Tag tag = tags.next();
            out.append(" tag").append(tag.getType()).append('=').append(hex(Tag.cloneValue(tag)));
          }
          out.append('\n');
        }
      }
      out.append("regions");
      for (byte[] start : connection.getRegionLocator(name).getStartKeys()) {
        out.append(' ').append(hex(start));
      }
      out.append('\n');
    }
    System.out.print(out);
  }

  private static String hex(byte[] bytes) {
    return "x" + Bytes.toHex(bytes);
  }
}
