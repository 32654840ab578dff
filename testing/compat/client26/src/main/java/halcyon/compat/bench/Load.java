package halcyon.compat.bench;

import java.io.IOException;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.util.Bytes;

/** What both programs of this package write, and how they connect. */
final class Load {
  static final byte[] F = Bytes.toBytes("f");
  static final byte[] Q = Bytes.toBytes("q");

  private Load() {}

  static Connection connect(String zookeeper) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper);
    return ConnectionFactory.createConnection(conf);
  }

  /** Numbers that follow each other are in different regions: keys begin with a hexadecimal digit, as the splits do. */
  static byte[] row(int thread, int number) {
    return Bytes.toBytes(String.format("%x-%02d-%09d", number & 15, thread, number));
  }

  /** Bytes that neither server can compress, and that say which row they are of. */
  static byte[] value(int thread, int number, int length) {
    byte[] value = new byte[length];
    new Random(31L * number + thread).nextBytes(value);
    Bytes.putInt(value, 0, number);
    return value;
  }

  static Put put(int thread, int number, int length) {
    return new Put(row(thread, number)).addColumn(F, Q, value(thread, number, length));
  }
}
