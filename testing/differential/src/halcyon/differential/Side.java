package halcyon.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Table;

/** One of the two systems: HBase's own client, connected to it. */
final class Side implements AutoCloseable {
  /** Where run.sh looks for the name of a server that it is to kill and start again. */
  private static final String KILLS = System.getProperty("kills");
  private static final long RESTART_MS = 240_000;
  final String name;
  private final String zookeeper;
  Connection connection;
  Admin admin;
  private Side second;
  private ClusterConnection plain;

  Side(String name, String zookeeper) throws IOException {
    this.name = name;
    this.zookeeper = zookeeper;
    connect();
  }

  private void connect() throws IOException {
    connection = ConnectionFactory.createConnection(configuration(name, zookeeper));
    admin = connection.getAdmin();
  }

  /** Few retries, because errors are answers here. Tags come with cells, because the time to live is one. */
  private static Configuration configuration(String name, String zookeeper) {
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
    CountedCalls.configure(conf, name);
    return conf;
  }

  /** The same system for another client, with a connection of its own. */
  synchronized Side second() throws IOException {
    if (second == null) second = new Side(name, zookeeper);
    return second;
  }

  /** The connection, as what it is unless a judge has put its own around it. */
  synchronized ClusterConnection cluster() throws IOException {
    if (connection instanceof ClusterConnection itself) return itself;
    if (plain == null) {
      Configuration conf = configuration(name, zookeeper);
      conf.unset("hbase.client.connection.impl");
      plain = (ClusterConnection) ConnectionFactory.createConnection(conf);
    }
    return plain;
  }

  Table table(TableName name) throws IOException {
    return connection.getTable(name);
  }

  /** Regions have moved, so what the clients remember of them is of no use. */
  synchronized void forgetRegions() {
    connection.clearRegionLocationCache();
    if (second != null) second.connection.clearRegionLocationCache();
  }

  /** Kills the server, has it started again, and waits until each region answers. The clients are new ones. */
  synchronized void kill() throws IOException, InterruptedException {
    if (KILLS == null) throw new IOException("there is no one who kills");
    close();
    Path wanted = Path.of(KILLS, name);
    Path done = Path.of(KILLS, name + ".done");
    Files.writeString(wanted, "");
    long end = System.currentTimeMillis() + RESTART_MS;
    while (!Files.deleteIfExists(done)) {
      if (System.currentTimeMillis() > end) throw new IOException(name + " was not started again");
      Thread.sleep(50);
    }
    connect();
    for (TableName table : admin.listTableNames()) {
      if (!admin.isTableEnabled(table)) continue;
      for (RegionInfo region : admin.getRegions(table)) await(table, region, end);
    }
  }

  private void await(TableName name, RegionInfo region, long end) throws IOException, InterruptedException {
    byte[] row = region.getStartKey().length == 0 ? new byte[] {0} : region.getStartKey();
    while (true) {
      try (Table table = table(name)) {
        table.exists(new Get(row));
        return;
      } catch (IOException error) {
        if (System.currentTimeMillis() > end) throw error;
        forgetRegions();
        Thread.sleep(50);
      }
    }
  }

  @Override
  public void close() throws IOException {
    admin.close();
    connection.close();
    if (second != null) second.close();
    if (plain != null) plain.close();
    second = null;
    plain = null;
  }
}
