import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.net.Address;
import org.apache.hadoop.hbase.rsgroup.RSGroupAdminClient;
import org.apache.hadoop.hbase.util.Bytes;

/** HBase's own client of groups, and of the normalizer, against a cluster. Arguments: an order and what it is about. */
public final class Groups {
  private static final TableName T = TableName.valueOf("t");
  private static final int ROWS = 2000;

  private static Connection connection;
  private static Admin admin;
  private static RSGroupAdminClient groups;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    try (Connection opened = ConnectionFactory.createConnection(conf); Admin ofIt = opened.getAdmin()) {
      connection = opened;
      admin = ofIt;
      groups = new RSGroupAdminClient(opened);
      switch (args[0]) {
        case "begin" -> begin();
        case "wait" -> waitFor(args[1], args[2]);
        case "after-restart" -> afterRestart(args[1]);
        case "normalize" -> normalize();
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
  }

  private static Set<Address> addresses() throws Exception {
    return admin.getRegionServers().stream().map(server -> server.getAddress())
      .collect(Collectors.toCollection(TreeSet::new));
  }

  private static Set<Address> placesOf(TableName table) throws Exception {
    return connection.getRegionLocator(table).getAllRegionLocations().stream()
      .map(location -> location.getServerName().getAddress()).collect(Collectors.toCollection(TreeSet::new));
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
    System.out.println("ok: " + what);
  }

  private static void refused(String text, Action action) throws Exception {
    try {
      action.run();
    } catch (Exception e) {
      String said = e.getClass().getSimpleName() + ": " + e.getMessage();
      check(said.contains(text) && said.startsWith("ConstraintException"), "refused: " + text + " (" + said + ")");
      return;
    }
    throw new AssertionError("not refused: " + text);
  }

  private interface Action {
    void run() throws Exception;
  }

  private static int rows() throws Exception {
    int count = 0;
    try (Table table = connection.getTable(T); ResultScanner scanner = table.getScanner(new Scan())) {
      while (scanner.next() != null) {
        count++;
      }
    }
    return count;
  }

  /** Three servers: the last of them gets a group with the table t. Prints its address. */
  private static void begin() throws Exception {
    byte[][] keys = { Bytes.toBytes("r0500"), Bytes.toBytes("r1000"), Bytes.toBytes("r1500") };
    admin.createTable(TableDescriptorBuilder.newBuilder(T).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build(), keys);
    try (Table table = connection.getTable(T)) {
      for (int row = 0; row < ROWS; row++) {
        byte[] key = Bytes.toBytes(String.format("r%04d", row));
        table.put(new Put(key).addColumn(Bytes.toBytes("f"), Bytes.toBytes("q"), key));
      }
    }
    Set<Address> all = addresses();
    check(all.size() == 3 && groups.listRSGroups().size() == 1, "three servers in one group");
    check(groups.getRSGroupInfo("default").getServers().equals(all), "all servers are in default");
    check(groups.getRSGroupInfoOfTable(T).getName().equals("default"), "the table is in default");
    groups.addRSGroup("g");
    refused("RSGroup name should only contain alphanumeric characters", () -> groups.addRSGroup("a-b"));
    refused("Target RSGroup must have at least one server.", () -> groups.moveTables(Set.of(T), "g"));
    refused("should keep at least one server", () -> groups.moveServers(all, "g"));
    refused("is either offline or it does not exist", () -> groups.moveServers(Set.of(Address.fromParts("no", 1)), "g"));
    Address[] sorted = all.toArray(new Address[0]);
    Address last = sorted[2];
    groups.moveServers(Set.of(last), "g");
    check(!placesOf(T).contains(last), "regions leave a server that goes to another group");
    check(groups.getRSGroupOfServer(last).getName().equals("g"), "the server is in its group");
    groups.moveTables(Set.of(T), "g");
    check(placesOf(T).equals(Set.of(last)), "regions go with their table");
    check(groups.getRSGroupInfo("g").getTables().equals(new TreeSet<>(Set.of(T))), "the group has the table");
    check(rows() == ROWS, "all rows are there");
    refused("you must remove these tables", () -> groups.removeRSGroup("g"));
    refused("Cannot leave a RSGroup g", () -> groups.moveServers(Set.of(last), "default"));
    admin.createNamespace(NamespaceDescriptor.create("n").addConfiguration("hbase.rsgroup.name", "g").build());
    TableName inNamespace = TableName.valueOf("n:t");
    admin.createTable(TableDescriptorBuilder.newBuilder(inNamespace).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    check(placesOf(inNamespace).equals(Set.of(last)), "a new table is in the group of its namespace");
    admin.disableTable(inNamespace);
    admin.deleteTable(inNamespace);
    check(groups.getRSGroupInfo("g").getTables().size() == 1, "a deleted table leaves its group");
    groups.renameRSGroup("g", "h");
    check(groups.getRSGroupInfo("g") == null && groups.getRSGroupInfoOfTable(T).getName().equals("h"), "the group has another name");
    check(!groups.balanceRSGroup("h").isBalancerRan(), "one server needs no balance");
    System.out.println("server " + last);
  }

  /** Until all regions are, or none is, open at the address: "all" or "none". */
  private static void waitFor(String address, String what) throws Exception {
    Address wanted = Address.fromString(address);
    for (int attempt = 0; attempt < 300; attempt++) {
      boolean alive = addresses().contains(wanted);
      if (what.equals("none") ? !alive : alive && placesOf(T).equals(Set.of(wanted)) && rows() == ROWS) {
        System.out.println("ok: " + what + " at " + address);
        return;
      }
      Thread.sleep(200);
    }
    throw new AssertionError(what + " at " + address + ": " + placesOf(T));
  }

  private static void afterRestart(String address) throws Exception {
    Address last = Address.fromString(address);
    check(groups.listRSGroups().size() == 2, "another master has the groups");
    check(groups.getRSGroupOfServer(last).getName().equals("h"), "and their servers");
    check(groups.getRSGroupInfoOfTable(T).getName().equals("h"), "and their tables");
    groups.moveServersAndTables(Set.of(last), Set.of(T), "default");
    refused("RSGroup h is referenced by namespace: n", () -> groups.removeRSGroup("h")); // it has the new name
    admin.deleteNamespace("n");
    groups.removeRSGroup("h");
    check(groups.listRSGroups().size() == 1 && rows() == ROWS, "a group without servers and tables goes");
  }

  /** Four small regions become one, as the table's attributes ask. */
  private static void normalize() throws Exception {
    check(admin.isNormalizerEnabled(), "the normalizer is on");
    admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(T)).setNormalizationEnabled(true)
      .setNormalizerTargetRegionSize(10).setValue("hbase.normalizer.merge.min_region_age.days", "0").build());
    check(admin.normalizerSwitch(false) && !admin.normalize(), "it is off, and does not run");
    check(!admin.normalizerSwitch(true), "it is on again");
    for (int attempt = 0; attempt < 300; attempt++) {
      admin.normalize();
      if (admin.getRegions(T).size() == 1) {
        check(rows() == ROWS, "four regions are one, with all rows");
        return;
      }
      Thread.sleep(200);
    }
    throw new AssertionError("not merged: " + Arrays.toString(admin.getRegions(T).toArray()));
  }
}
