package halcyon.differential;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Table;

/** One of the two systems: HBase's own client, connected to it. */
final class Side implements AutoCloseable {
  final String name;
  final Connection connection;
  final Admin admin;

  Side(String name, String zookeeper) throws IOException {
    this.name = name;
    connection = ConnectionFactory.createConnection(configuration(zookeeper));
    admin = connection.getAdmin();
  }

  /** Few retries, because errors are answers here. Tags come with cells, because the time to live is one. */
  private static Configuration configuration(String zookeeper) {
    Configuration conf = HBaseConfiguration.create();
    int colon = zookeeper.lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", zookeeper.substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", zookeeper.substring(colon + 1));
    conf.set("hbase.client.rpc.codec", "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags");
    conf.setInt("hbase.client.retries.number", 4);
    conf.setInt("hbase.client.pause", 20);
    conf.setInt("hbase.client.operation.timeout", 60_000);
    conf.setInt("hbase.client.meta.operation.timeout", 60_000);
    conf.setInt("hbase.client.sync.wait.timeout.msec", 120_000);
    return conf;
  }

  Table table(TableName name) throws IOException {
    return connection.getTable(name);
  }

  /** Regions have moved, so what the client remembers of them is of no use. */
  void forgetRegions() {
    connection.clearRegionLocationCache();
  }

  @Override
  public void close() throws IOException {
    admin.close();
    connection.close();
  }
}
