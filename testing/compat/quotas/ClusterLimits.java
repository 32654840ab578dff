// Prints how two region servers share limits of scope CLUSTER, a line each: how many requests each of them lets through. The table has three
// regions, two at the first server. Limits are by the hour, so that nothing comes back meanwhile.
//
//   java -cp JARS ClusterLimits.java ZOOKEEPER

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.quotas.*;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.util.Bytes;

public class ClusterLimits {
  static final byte[] F = Bytes.toBytes("f");
  static final byte[] Q = Bytes.toBytes("q");
  static final String NAMESPACE = "shared";
  static final TableName TABLE = TableName.valueOf(NAMESPACE, "t");
  static final String USER = "limited";
  static final QuotaScope CLUSTER = QuotaScope.CLUSTER;
  static final TimeUnit HOURS = TimeUnit.HOURS;
  static final long SETTLE_MS = Long.getLong("settle", 1500);
  /** Rows of the three regions. */
  static final String FIRST = "a", MIDDLE = "h", LAST = "p";

  static Admin admin;
  static Connection connection;
  static Table table;
  static List<ServerName> servers;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, args[0].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(args[0].lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 0);
    Configuration patient = new Configuration(conf);
    patient.setInt("hbase.client.retries.number", 20);
    User limited = User.createUserForTesting(conf, USER, new String[0]);
    User other = User.createUserForTesting(conf, "other", new String[0]);
    try (Connection ofAdmin = ConnectionFactory.createConnection(patient, other);
        Connection ofUser = ConnectionFactory.createConnection(conf, limited)) {
      admin = ofAdmin.getAdmin();
      connection = ofUser;
      table = connection.getTable(TABLE);
      admin.balancerSwitch(false, true);
      servers = new ArrayList<>(admin.getRegionServers());
      admin.createNamespace(NamespaceDescriptor.create(NAMESPACE).build());
      TableDescriptor descriptor =
        TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build();
      admin.createTable(descriptor, new byte[][] {Bytes.toBytes(MIDDLE), Bytes.toBytes(LAST)});
      place(FIRST, 0);
      place(MIDDLE, 0);
      place(LAST, 1);
      tables();
      others();
      kinds();
      moves();
    }
  }

  /** Moves the region of a row, and waits until it is open there. */
  static void place(String row, int server) throws Exception {
    RegionLocator locator = admin.getConnection().getRegionLocator(TABLE);
    HRegionLocation at = locator.getRegionLocation(Bytes.toBytes(row), true);
    if (!at.getServerName().equals(servers.get(server))) {
      admin.move(at.getRegion().getEncodedNameAsBytes(), servers.get(server));
    }
    while (!locator.getRegionLocation(Bytes.toBytes(row), true).getServerName().equals(servers.get(server))) Thread.sleep(50);
    connection.clearRegionLocationCache();
  }

  static void get(String row) throws IOException { table.get(new Get(Bytes.toBytes(row))); }

  static void put(String row) throws IOException { table.put(new Put(Bytes.toBytes(row)).addColumn(F, Q, new byte[1000])); }

  interface Step { void run(String row) throws Exception; }

  /** How many times a step is done with a row before it is refused, and what it is told then. */
  static String count(String row, Step step) {
    for (int done = 0; done < 30; done++) {
      try {
        step.run(row);
      } catch (Exception error) {
        return done + " " + text(error);
      }
    }
    return "all";
  }

  static String text(Throwable error) {
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof RpcThrottlingException) {
        String message = at.getMessage().split("\n")[0];
        return message.replaceAll("wait [0-9][0-9a-z, ]*ms.*", "wait").replaceAll("^(org\\.apache\\.[A-Za-z.]*Exception: )+", "");
      }
    }
    return error.toString();
  }

  /** What both servers let through under a limit. */
  static void shared(String name, QuotaSettings on, QuotaSettings off, Step step) throws Exception {
    admin.setQuota(on);
    Thread.sleep(SETTLE_MS);
    System.out.println(name + ": " + count(FIRST, step) + "; " + count(LAST, step));
    admin.setQuota(off);
    Thread.sleep(SETTLE_MS);
  }

  static QuotaSettings ofTable(ThrottleType kind, long limit) {
    return QuotaSettingsFactory.throttleTable(TABLE, kind, limit, HOURS, CLUSTER);
  }

  static void tables() throws Exception {
    QuotaSettings none = QuotaSettingsFactory.unthrottleTable(TABLE);
    shared("table", ofTable(ThrottleType.READ_NUMBER, 9), none, ClusterLimits::get);
    shared("table, not even", ofTable(ThrottleType.READ_NUMBER, 10), none, ClusterLimits::get);
    shared("table, less than the servers", ofTable(ThrottleType.READ_NUMBER, 1), none, ClusterLimits::get);
    QuotaSettings alone = QuotaSettingsFactory.throttleTable(TABLE, ThrottleType.READ_NUMBER, 9, HOURS, QuotaScope.MACHINE);
    shared("table, for each machine", alone, none, ClusterLimits::get);
  }

  static void others() throws Exception {
    ThrottleType kind = ThrottleType.REQUEST_NUMBER;
    shared("namespace", QuotaSettingsFactory.throttleNamespace(NAMESPACE, kind, 8, HOURS, CLUSTER),
      QuotaSettingsFactory.unthrottleNamespace(NAMESPACE), ClusterLimits::get);
    shared("user", QuotaSettingsFactory.throttleUser(USER, kind, 7, HOURS, CLUSTER), QuotaSettingsFactory.unthrottleUser(USER), ClusterLimits::get);
    shared("user on table", QuotaSettingsFactory.throttleUser(USER, TABLE, kind, 9, HOURS, CLUSTER),
      QuotaSettingsFactory.unthrottleUser(USER, TABLE), ClusterLimits::get);
    shared("user on namespace", QuotaSettingsFactory.throttleUser(USER, NAMESPACE, kind, 8, HOURS, CLUSTER),
      QuotaSettingsFactory.unthrottleUser(USER, NAMESPACE), ClusterLimits::get);
  }

  static void kinds() throws Exception {
    QuotaSettings none = QuotaSettingsFactory.unthrottleTable(TABLE);
    shared("writes", ofTable(ThrottleType.WRITE_NUMBER, 9), none, ClusterLimits::put);
    shared("bytes written", ofTable(ThrottleType.WRITE_SIZE, 9000), none, ClusterLimits::put);
    shared("capacity written", ofTable(ThrottleType.WRITE_CAPACITY_UNIT, 18), none, ClusterLimits::put);
    shared("capacity of requests", ofTable(ThrottleType.REQUEST_CAPACITY_UNIT, 18), none, ClusterLimits::put);
  }

  /** A server has more of a limit when it has more of the regions, from the next time that limits are read. */
  static void moves() throws Exception {
    admin.setQuota(ofTable(ThrottleType.READ_NUMBER, 9));
    Thread.sleep(SETTLE_MS);
    System.out.println("before a move: " + count(FIRST, ClusterLimits::get) + "; " + count(LAST, ClusterLimits::get));
    place(MIDDLE, 1);
    admin.setQuota(QuotaSettingsFactory.throttleUser("nobody", ThrottleType.READ_NUMBER, 5, HOURS));
    Thread.sleep(SETTLE_MS);
    System.out.println("after it: " + count(FIRST, ClusterLimits::get) + "; " + count(LAST, ClusterLimits::get));
    admin.setQuota(QuotaSettingsFactory.unthrottleTable(TABLE));
    Thread.sleep(SETTLE_MS);
    shared("a new limit", ofTable(ThrottleType.READ_NUMBER, 9), QuotaSettingsFactory.unthrottleTable(TABLE), ClusterLimits::get);
  }
}
