package halcyon.compat.stopmaster;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.MasterNotRunningException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Stops the master of a server. Rows are read and written afterwards, through the same connection and a new one. An
 * administrative call fails as with HBase: the client finds no active master. Argument: host:port of ZooKeeper.
 */
public final class StopMaster {
  private static final TableName TABLE = TableName.valueOf("t");
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] QUALIFIER = Bytes.toBytes("q");

  private StopMaster() {}

  public static void main(String[] arguments) throws Exception {
    String[] address = arguments[0].split(":");
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.ZKConnectionRegistry");
    conf.set("hbase.zookeeper.quorum", address[0]);
    conf.set("hbase.zookeeper.property.clientPort", address[1]);
    conf.setInt("hbase.client.retries.number", 3);
    conf.setInt("hbase.client.pause", 50);
    try (Connection before = ConnectionFactory.createConnection(conf); Admin admin = before.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(TABLE)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY)).build());
      writeAndRead(before, "before");
      admin.stopMaster();
      writeAndRead(before, "after, the same connection");
      expectNoMaster(admin);
      try (Connection after = ConnectionFactory.createConnection(conf); Admin newAdmin = after.getAdmin()) {
        writeAndRead(after, "after, a new connection");
        expectNoMaster(newAdmin);
      }
    }
    System.out.println("rows are served without a master, and administrative calls find none");
  }

  private static void writeAndRead(Connection connection, String value) throws IOException {
    byte[] row = Bytes.toBytes(value);
    try (Table table = connection.getTable(TABLE)) {
      table.put(new Put(row).addColumn(FAMILY, QUALIFIER, row));
      if (!Bytes.equals(row, table.get(new Get(row)).getValue(FAMILY, QUALIFIER))) {
        throw new AssertionError("row '" + value + "' is not read back");
      }
    }
  }

  private static void expectNoMaster(Admin admin) {
    try {
      admin.listTableNames();
    } catch (IOException error) {
      for (Throwable cause = error; cause != null; cause = cause.getCause()) {
        if (cause instanceof MasterNotRunningException) {
          return;
        }
      }
      throw new AssertionError("not the exception of a stopped master", error);
    }
    throw new AssertionError("a stopped master has answered");
  }
}
