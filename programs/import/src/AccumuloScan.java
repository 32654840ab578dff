// AccumuloScan CLIENT_PROPERTIES TABLE AUTHORIZATIONS|*
//
// The source of `halcyon import accumulo --instance`: scans a table with Accumulo's own client. Reads commands from standard
// input, one a line, and writes answers to standard output:
//
//   table                 P name value (properties of the table)*, S row (ends of tablets)*, A authorization*, end
//   scan START END        E key value*, end. Rows behind START and up to END, in hexadecimal; "-" is no bound
//
// Each part of an answer is a letter and byte strings, each with its length before it as int32. The end is Z with the number of
// parts as int64; X with a text is an error. The program ends with its standard input.

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeSet;
import org.apache.accumulo.core.client.Accumulo;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.Scanner;
import org.apache.accumulo.core.data.Key;
import org.apache.accumulo.core.data.Range;
import org.apache.accumulo.core.data.Value;
import org.apache.accumulo.core.security.Authorizations;
import org.apache.hadoop.io.Text;

public class AccumuloScan {
  private static DataOutputStream out;

  public static void main(String[] arguments) throws Exception {
    out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 18));
    System.setOut(System.err); // whatever a library prints
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    AccumuloClient client = null;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      try {
        if (client == null) {
          client = Accumulo.newClient().from(arguments[0]).build();
        }
        var words = line.split(" ");
        var auths = authorizations(client, arguments[2]);
        long parts = words[0].equals("table")
            ? table(client, arguments[1], auths)
            : scan(client, arguments[1], auths, words[1], words[2]);
        out.writeByte('Z');
        out.writeLong(parts);
      } catch (Throwable error) {
        var text = error.getClass().getName() + ": " + error.getMessage();
        part('X', text.getBytes(StandardCharsets.UTF_8));
      }
      out.flush();
    }
    if (client != null) {
      client.close();
    }
  }

  private static Authorizations authorizations(AccumuloClient client, String wanted) throws Exception {
    if (wanted.equals("*")) {
      return client.securityOperations().getUserAuthorizations(client.whoami());
    }
    return wanted.isEmpty() ? Authorizations.EMPTY : new Authorizations(wanted.split(","));
  }

  private static long table(AccumuloClient client, String table, Authorizations auths) throws Exception {
    long parts = 0;
    for (Map.Entry<String, String> property : client.tableOperations().getConfiguration(table).entrySet()) {
      part('P', property.getKey().getBytes(StandardCharsets.UTF_8), property.getValue().getBytes(StandardCharsets.UTF_8));
      parts++;
    }
    for (Text split : new TreeSet<>(client.tableOperations().listSplits(table))) {
      part('S', split.copyBytes());
      parts++;
    }
    for (byte[] auth : auths.getAuthorizations()) {
      part('A', auth);
      parts++;
    }
    return parts;
  }

  private static long scan(AccumuloClient client, String table, Authorizations auths, String start, String end)
      throws Exception {
    long entries = 0;
    try (Scanner scanner = client.createScanner(table, auths)) {
      scanner.setRange(new Range(row(start), false, row(end), true));
      scanner.setBatchSize(10_000);
      for (Map.Entry<Key, Value> entry : scanner) {
        Key key = entry.getKey();
        part('E', key.getRowData().toArray(), key.getColumnFamilyData().toArray(), key.getColumnQualifierData().toArray(),
            key.getColumnVisibilityData().toArray(), entry.getValue().get());
        out.writeLong(key.getTimestamp());
        entries++;
      }
    }
    return entries;
  }

  private static Text row(String hex) {
    if (hex.equals("-")) {
      return null;
    }
    var bytes = new byte[hex.length() / 2];
    for (int at = 0; at < bytes.length; at++) {
      bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
    }
    return new Text(bytes);
  }

  private static void part(char kind, byte[]... fields) throws Exception {
    out.writeByte(kind);
    for (byte[] field : fields) {
      out.writeInt(field.length);
      out.write(field);
    }
  }
}
