package halcyon.compat.registry;

import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Finds a cluster by one of its region servers, without ZooKeeper, and reads a row.
 *
 * <pre>Registry HOST:PORT TABLE ROW      prints the cluster, the number of live servers, their ports of
 * pages, and the first value</pre>
 */
public final class Registry {
  private Registry() {}

  public static void main(String[] arguments) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    conf.set("hbase.client.bootstrap.servers", arguments[0]);
    conf.set("hbase.zookeeper.quorum", "none.invalid");
    conf.setInt("hbase.client.retries.number", 5);
    // The client asks the first server for more servers at once, and then one of these.
    conf.setLong("hbase.client.bootstrap.initial_refresh_delay_secs", 1);
    conf.setLong("hbase.client.bootstrap.refresh_interval_secs", 1);
    conf.setLong("hbase.client.bootstrap.min_secs_between_refreshes", 1);
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin();
        Table table = connection.getTable(TableName.valueOf(arguments[1]))) {
      for (int round = 0; round < 3; round++) {
        Result result = table.get(new Get(Bytes.toBytes(arguments[2])));
        System.out.println("cluster " + connection.getClusterId());
        Map<ServerName, ServerMetrics> servers = admin.getClusterMetrics().getLiveServerMetrics();
        System.out.println("servers " + servers.size());
        servers.forEach((name, metrics) -> System.out.println("pages " + name + " " + metrics.getInfoServerPort()));
        System.out.println("value " + (result.isEmpty() ? "none" : Bytes.toStringBinary(result.value())));
        Thread.sleep(1500);
      }
    }
  }
}
