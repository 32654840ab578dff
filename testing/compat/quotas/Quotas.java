// Prints what quotas allow and what they refuse, a line each: how many requests a throttle lets through and what the next one is told, what
// administrators are told, and what tables may do that exceed their space. Limits are by the hour, so that nothing comes back meanwhile.
//
//   java -cp JARS Quotas.java ZOOKEEPER

import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.quotas.*;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.util.Bytes;

public class Quotas {
  static final byte[] F = Bytes.toBytes("f");
  static final byte[] Q = Bytes.toBytes("q");
  static final TableName TABLE = TableName.valueOf("qns:t");
  static final String USER = "limited";
  /** Until a change has reached the region servers. */
  static final long SETTLE_MS = Long.getLong("settle", 1500);

  interface Step { void run(int number) throws Exception; }

  static Admin admin;
  static Table table;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, args[0].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(args[0].lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 0);
    conf.setInt("hbase.client.pause", 50);
    Configuration patient = new Configuration(conf);
    patient.setInt("hbase.client.retries.number", 10);
    User limited = User.createUserForTesting(conf, USER, new String[0]);
    User other = User.createUserForTesting(conf, "other", new String[0]);
    try (Connection ofAdmin = ConnectionFactory.createConnection(patient, other);
        Connection connection = ConnectionFactory.createConnection(conf, limited)) {
      admin = ofAdmin.getAdmin();
      admin.createNamespace(NamespaceDescriptor.create("qns").build());
      admin.createTable(TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build());
      table = connection.getTable(TABLE);
      put(0);
      settings();
      subjects();
      kinds();
      switches();
      namespaces();
      space(ofAdmin);
    }
  }

  // ---- requests ----

  static Put aPut(int number) {
    return new Put(Bytes.toBytes(String.format("r%04d", number))).addColumn(F, Q, new byte[200]);
  }

  static void put(int number) throws IOException { table.put(aPut(number)); }

  static void get(int number) throws IOException { table.get(new Get(Bytes.toBytes("r0000"))); }

  static void scan(int number) throws IOException {
    try (ResultScanner scanner = table.getScanner(new Scan().setLimit(1))) { scanner.next(); }
  }

  static void increment(int number) throws IOException {
    table.increment(new Increment(Bytes.toBytes("n")).addColumn(F, Q, 1));
  }

  static void append(int number) throws IOException {
    table.append(new Append(Bytes.toBytes("a")).addColumn(F, Q, new byte[10]));
  }

  static void checkAndPut(int number) throws IOException {
    table.checkAndMutate(CheckAndMutate.newBuilder(Bytes.toBytes("r0000")).ifEquals(F, Q, new byte[200]).build(aPut(0)));
  }

  static void delete(int number) throws IOException {
    table.delete(new Delete(Bytes.toBytes("none")).addColumns(F, Q));
  }

  static void fivePuts(int number) throws Exception {
    List<Row> puts = new ArrayList<>();
    for (int at = 0; at < 5; at++) puts.add(aPut(at));
    Object[] results = new Object[5];
    try {
      table.batch(puts, results);
    } catch (RetriesExhaustedWithDetailsException error) {
      throw (Exception) error.getCause(0);
    }
  }

  static void mixed(int number) throws Exception {
    List<Row> rows = Arrays.asList(aPut(1), new Get(Bytes.toBytes("r0000")), new Increment(Bytes.toBytes("n")).addColumn(F, Q, 1));
    Object[] results = new Object[3];
    try {
      table.batch(rows, results);
    } catch (RetriesExhaustedWithDetailsException error) {
      throw (Exception) error.getCause(0);
    }
  }

  static void row(int number) throws IOException {
    table.mutateRow(RowMutations.of(Arrays.asList(aPut(2), new Delete(Bytes.toBytes("r0002")).addColumns(F, Bytes.toBytes("x")))));
  }

  /** Runs a step until it is refused, at most {@code max} times. */
  static void count(String name, int max, Step step) throws Exception {
    int done = 0;
    String end = "";
    for (; done < max; done++) {
      try {
        step.run(done);
      } catch (Exception error) {
        end = ", then " + text(error);
        break;
      }
    }
    System.out.println(name + ": " + done + end);
  }

  static String text(Throwable error) {
    Throwable cause = error;
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof RetriesExhaustedWithDetailsException) at = ((RetriesExhaustedWithDetailsException) at).getCause(0);
      if (at instanceof RpcThrottlingException || at instanceof QuotaExceededException) cause = at;
    }
    String message = String.valueOf(cause.getMessage()).split("\n")[0];
    message = message.replaceAll("wait [0-9][0-9a-z, ]*ms.*", "wait").replaceAll("[0-9a-f]{32}", "REGION");
    // The class is before the message if the request was refused, and not if its procedure was.
    message = message.replaceAll("^(org\\.apache\\.[A-Za-z.]*Exception: )+", "");
    message = message.replaceAll("[0-9]{13}", "TIME").replaceAll(" at .*|: 1 time.*|row '.*", "");
    return cause.getClass().getSimpleName() + " " + message;
  }

  static void attempt(String name, Callable<?> call) {
    try {
      Object answer = call.call();
      System.out.println(name + ": " + (answer == null ? "done" : answer));
    } catch (Exception error) {
      System.out.println(name + ": " + text(error));
    }
  }

  static Void set(QuotaSettings settings) throws IOException {
    admin.setQuota(settings);
    return null;
  }

  static void settle() throws InterruptedException { Thread.sleep(SETTLE_MS); }

  static void list(String name) throws IOException {
    TreeSet<String> all = new TreeSet<>();
    for (QuotaSettings settings : admin.getQuota(new QuotaFilter())) {
      String who = settings.getUserName() + "/" + settings.getTableName() + "/" + settings.getNamespace() + "/" + settings.getRegionServer();
      all.add(who + " " + settings);
    }
    System.out.println(name + ": " + all);
  }

  // ---- what is set ----

  static void settings() throws Exception {
    list("quotas at first");
    attempt("throttle of a table", () -> set(QuotaSettingsFactory.throttleTable(TABLE, ThrottleType.READ_NUMBER, 7, TimeUnit.MINUTES)));
    attempt("another one", () -> set(QuotaSettingsFactory.throttleTable(TABLE, ThrottleType.WRITE_SIZE, 1 << 20, TimeUnit.DAYS)));
    attempt("space of it", () -> set(QuotaSettingsFactory.limitTableSpace(TABLE, 1 << 30, SpaceViolationPolicy.NO_INSERTS)));
    attempt("of a user", () -> set(QuotaSettingsFactory.throttleUser("u1", ThrottleType.REQUEST_NUMBER, 5, TimeUnit.SECONDS)));
    attempt("of a user on a table", () -> set(QuotaSettingsFactory.throttleUser("u1", TABLE, ThrottleType.REQUEST_SIZE, 6, TimeUnit.HOURS)));
    attempt("of a user on a namespace",
      () -> set(QuotaSettingsFactory.throttleUser("u1", "qns", ThrottleType.READ_CAPACITY_UNIT, 8, TimeUnit.HOURS, QuotaScope.CLUSTER)));
    attempt("of a namespace", () -> set(QuotaSettingsFactory.throttleNamespace("qns", ThrottleType.ATOMIC_WRITE_SIZE, 9, TimeUnit.HOURS)));
    attempt("of servers", () -> set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.REQUEST_NUMBER, 1 << 30, TimeUnit.SECONDS)));
    attempt("bypass", () -> set(QuotaSettingsFactory.bypassGlobals("u2", true)));
    list("quotas of all kinds");
    attempt("a limit of 0", () -> set(QuotaSettingsFactory.throttleTable(TABLE, ThrottleType.READ_NUMBER, 0, TimeUnit.MINUTES)));
    attempt("one less", () -> set(QuotaSettingsFactory.unthrottleTableByThrottleType(TABLE, ThrottleType.READ_NUMBER)));
    attempt("no space", () -> set(QuotaSettingsFactory.removeTableSpaceLimit(TABLE)));
    attempt("no bypass", () -> set(QuotaSettingsFactory.bypassGlobals("u2", false)));
    list("fewer quotas");
    attempt("unthrottle the user", () -> set(QuotaSettingsFactory.unthrottleUser("u1")));
    attempt("unthrottle the namespace", () -> set(QuotaSettingsFactory.unthrottleNamespace("qns")));
    attempt("unthrottle the table", () -> set(QuotaSettingsFactory.unthrottleTable(TABLE)));
    attempt("unthrottle the servers", () -> set(QuotaSettingsFactory.unthrottleRegionServer("all")));
    list("quotas left");
    attempt("unthrottle the user on a table", () -> set(QuotaSettingsFactory.unthrottleUser("u1", TABLE)));
    attempt("unthrottle the user on a namespace", () -> set(QuotaSettingsFactory.unthrottleUser("u1", "qns")));
    list("quotas at last");
  }

  static void throttled(QuotaSettings on, QuotaSettings off, Callable<Void> between) throws Exception {
    set(on);
    settle();
    between.call();
    set(off);
    settle();
  }

  static void subjects() throws Exception {
    ThrottleType kind = ThrottleType.REQUEST_NUMBER;
    throttled(QuotaSettingsFactory.throttleTable(TABLE, kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleTable(TABLE), () -> {
      count("table", 20, Quotas::put);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleNamespace("qns", kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleNamespace("qns"), () -> {
      count("namespace", 20, Quotas::get);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleUser(USER, kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleUser(USER), () -> {
      count("user", 20, Quotas::scan);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleUser(USER, TABLE, kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleUser(USER, TABLE), () -> {
      count("user on table", 20, Quotas::increment);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleUser(USER, "qns", kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleUser(USER, "qns"), () -> {
      count("user on namespace", 20, Quotas::mixed);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleUser("other", kind, 1, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleUser("other"), () -> {
      count("another user", 20, Quotas::put);
      return null;
    });
    throttled(QuotaSettingsFactory.throttleRegionServer("all", kind, 6, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleRegionServer("all"), () -> {
      count("servers", 20, Quotas::put);
      return null;
    });
    set(QuotaSettingsFactory.throttleTable(TABLE, kind, 2, TimeUnit.HOURS));
    throttled(QuotaSettingsFactory.bypassGlobals(USER, true), QuotaSettingsFactory.bypassGlobals(USER, false), () -> {
      count("bypass", 20, Quotas::put);
      return null;
    });
    set(QuotaSettingsFactory.unthrottleTable(TABLE));
    settle();
    throttled(QuotaSettingsFactory.throttleUser(USER, TABLE, kind, 9, TimeUnit.HOURS), QuotaSettingsFactory.unthrottleUser(USER, TABLE), () -> {
      set(QuotaSettingsFactory.throttleUser(USER, kind, 3, TimeUnit.HOURS));
      settle();
      count("the more special one", 20, Quotas::put);
      set(QuotaSettingsFactory.unthrottleUser(USER));
      return null;
    });
  }

  static void kinds() throws Exception {
    Object[][] limits = {
      {ThrottleType.REQUEST_NUMBER, 12}, {ThrottleType.WRITE_NUMBER, 12}, {ThrottleType.READ_NUMBER, 12},
      {ThrottleType.REQUEST_SIZE, 3000}, {ThrottleType.WRITE_SIZE, 3000}, {ThrottleType.READ_SIZE, 3000},
      {ThrottleType.REQUEST_CAPACITY_UNIT, 8}, {ThrottleType.WRITE_CAPACITY_UNIT, 8}, {ThrottleType.READ_CAPACITY_UNIT, 80},
      {ThrottleType.ATOMIC_REQUEST_NUMBER, 12}, {ThrottleType.ATOMIC_WRITE_SIZE, 3000},
    };
    String[] names = {"put", "get", "scan", "delete", "five puts", "mixed", "row", "increment", "append", "checkAndPut"};
    Step[] steps = {Quotas::put, Quotas::get, Quotas::scan, Quotas::delete, Quotas::fivePuts, Quotas::mixed, Quotas::row, Quotas::increment,
      Quotas::append, Quotas::checkAndPut};
    for (Object[] limit : limits) {
      ThrottleType kind = (ThrottleType) limit[0];
      for (int at = 0; at < steps.length; at++) {
        set(QuotaSettingsFactory.throttleUser(USER, kind, (Integer) limit[1], TimeUnit.HOURS));
        settle();
        count(kind + " " + limit[1] + " " + names[at], 30, steps[at]);
        set(QuotaSettingsFactory.unthrottleUser(USER));
        settle();
      }
    }
  }

  static void switches() throws Exception {
    set(QuotaSettingsFactory.throttleUser(USER, ThrottleType.REQUEST_NUMBER, 3, TimeUnit.HOURS));
    attempt("throttling", () -> admin.isRpcThrottleEnabled());
    attempt("switched off, before", () -> admin.switchRpcThrottle(false));
    settle();
    count("while it is off", 20, Quotas::put);
    attempt("switched on, before", () -> admin.switchRpcThrottle(true));
    settle();
    count("when it is on", 20, Quotas::put);
    attempt("exceed without servers' quotas", () -> admin.exceedThrottleQuotaSwitch(true));
    set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.READ_NUMBER, 1000, TimeUnit.SECONDS));
    attempt("exceed without one of writes", () -> admin.exceedThrottleQuotaSwitch(true));
    set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.WRITE_NUMBER, 1000, TimeUnit.MINUTES));
    attempt("exceed by the minute", () -> admin.exceedThrottleQuotaSwitch(true));
    set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.WRITE_NUMBER, 1000, TimeUnit.SECONDS));
    attempt("exceed, before", () -> admin.exceedThrottleQuotaSwitch(true));
    set(QuotaSettingsFactory.throttleRegionServer("all", ThrottleType.READ_NUMBER, 1000, TimeUnit.SECONDS));
    settle();
    count("while users may exceed", 20, Quotas::put);
    attempt("not exceed, before", () -> admin.exceedThrottleQuotaSwitch(false));
    set(QuotaSettingsFactory.unthrottleRegionServer("all"));
    set(QuotaSettingsFactory.unthrottleUser(USER));
    settle();
    count("without quotas", 20, Quotas::put);
  }

  // ---- namespaces ----

  static TableDescriptor of(TableName name) {
    return TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build();
  }

  static void namespaces() throws Exception {
    attempt("no tables", () -> { admin.createNamespace(NamespaceDescriptor.create("bad").addConfiguration("hbase.namespace.quota.maxtables", "0").build()); return null; });
    attempt("no regions", () -> { admin.createNamespace(NamespaceDescriptor.create("bad").addConfiguration("hbase.namespace.quota.maxregions", "-1").build()); return null; });
    attempt("no number", () -> { admin.createNamespace(NamespaceDescriptor.create("bad").addConfiguration("hbase.namespace.quota.maxregions", "x").build()); return null; });
    admin.createNamespace(NamespaceDescriptor.create("few").addConfiguration("hbase.namespace.quota.maxtables", "2")
      .addConfiguration("hbase.namespace.quota.maxregions", "4").build());
    TableName one = TableName.valueOf("few:one"), two = TableName.valueOf("few:two"), three = TableName.valueOf("few:three");
    attempt("five regions", () -> { admin.createTable(of(one), new byte[][] {Bytes.toBytes("a"), Bytes.toBytes("b"), Bytes.toBytes("c"), Bytes.toBytes("d")}); return null; });
    attempt("three regions", () -> { admin.createTable(of(one), new byte[][] {Bytes.toBytes("h"), Bytes.toBytes("p")}); return null; });
    attempt("two more", () -> { admin.createTable(of(two), new byte[][] {Bytes.toBytes("a")}); return null; });
    attempt("one more", () -> { admin.createTable(of(two)); return null; });
    attempt("a third table", () -> { admin.createTable(of(three)); return null; });
    attempt("a split", () -> { admin.splitRegionAsync(admin.getRegions(one).get(0).getRegionName(), Bytes.toBytes("c")).get(60, TimeUnit.SECONDS); return null; });
    admin.snapshot("few-one", one);
    attempt("a clone", () -> { admin.cloneSnapshot("few-one", three); return null; });
    admin.disableTable(two);
    admin.deleteTable(two);
    attempt("a split with room", () -> { admin.splitRegionAsync(admin.getRegions(one).get(0).getRegionName(), Bytes.toBytes("c")).get(60, TimeUnit.SECONDS); return null; });
    System.out.println("regions: " + admin.getRegions(one).size());
    admin.disableTable(one);
    attempt("restore", () -> { admin.restoreSnapshot("few-one", false); return null; });
    admin.deleteTable(one);
    attempt("a clone with room", () -> { admin.cloneSnapshot("few-one", three); return null; });
    admin.disableTable(three);
    admin.deleteTable(three);
    admin.deleteSnapshot("few-one");
    admin.deleteNamespace("few");
  }

  // ---- space ----

  static void await(String name, Callable<Boolean> done) throws Exception {
    for (int at = 0; at < 600; at++) {
      if (done.call()) {
        System.out.println(name);
        return;
      }
      Thread.sleep(100);
    }
    System.out.println(name + ": not within a minute");
  }

  static boolean isExceeded(TableName name) throws IOException {
    SpaceQuotaSnapshotView view = admin.getCurrentSpaceQuotaSnapshot(name);
    return view != null && view.getQuotaStatus().isInViolation();
  }

  static boolean isRefused(Table of) {
    try {
      of.put(new Put(Bytes.toBytes("probe")).addColumn(F, Q, Q));
      return false;
    } catch (IOException error) {
      return text(error).contains("SpaceLimiting") || text(error).contains("disallowed");
    }
  }

  static void space(Connection connection) throws Exception {
    for (SpaceViolationPolicy policy : new SpaceViolationPolicy[] {SpaceViolationPolicy.NO_INSERTS, SpaceViolationPolicy.NO_WRITES,
        SpaceViolationPolicy.NO_WRITES_COMPACTIONS}) {
      TableName name = TableName.valueOf("qns:space-" + policy.name().toLowerCase());
      admin.createTable(of(name));
      try (Table of = connection.getTable(name)) {
        for (int at = 0; at < 20; at++) of.put(new Put(Bytes.toBytes("r" + at)).addColumn(F, Q, new byte[100_000]));
        admin.flush(name);
        set(QuotaSettingsFactory.limitTableSpace(name, 1 << 20, policy));
        await(policy + " exceeded", () -> isExceeded(name) && isRefused(of));
        attempt(policy + " put", () -> { of.put(new Put(Bytes.toBytes("x")).addColumn(F, Q, Q)); return null; });
        attempt(policy + " delete", () -> { of.delete(new Delete(Bytes.toBytes("r1"))); return null; });
        attempt(policy + " increment", () -> { of.increment(new Increment(Bytes.toBytes("n")).addColumn(F, Q, 1)); return null; });
        attempt(policy + " append", () -> { of.append(new Append(Bytes.toBytes("n")).addColumn(F, Q, Q)); return null; });
        attempt(policy + " batch", () -> { of.put(Arrays.asList(new Put(Bytes.toBytes("y")).addColumn(F, Q, Q))); return null; });
        attempt(policy + " row", () -> { of.mutateRow(RowMutations.of(Arrays.asList(new Put(Bytes.toBytes("z")).addColumn(F, Q, Q)))); return null; });
        attempt(policy + " get", () -> of.get(new Get(Bytes.toBytes("r0"))).value().length);
        set(QuotaSettingsFactory.removeTableSpaceLimit(name));
        await(policy + " removed", () -> !isRefused(of));
      }
      admin.disableTable(name);
      admin.deleteTable(name);
    }
    TableName name = TableName.valueOf("qns:disabled");
    admin.createTable(of(name));
    try (Table of = connection.getTable(name)) {
      for (int at = 0; at < 20; at++) of.put(new Put(Bytes.toBytes("r" + at)).addColumn(F, Q, new byte[100_000]));
      admin.flush(name);
      set(QuotaSettingsFactory.limitNamespaceSpace("qns", 1 << 20, SpaceViolationPolicy.NO_INSERTS));
      await("namespace exceeded", () -> isRefused(of));
      SpaceQuotaSnapshotView ofNamespace = admin.getCurrentSpaceQuotaSnapshot("qns");
      System.out.println("namespace limit " + ofNamespace.getLimit() + " in violation " + ofNamespace.getQuotaStatus().isInViolation());
      set(QuotaSettingsFactory.removeNamespaceSpaceLimit("qns"));
      await("namespace removed", () -> !isRefused(of));
      set(QuotaSettingsFactory.limitTableSpace(name, 1 << 20, SpaceViolationPolicy.DISABLE));
      await("disabled", () -> admin.isTableDisabled(name));
      set(QuotaSettingsFactory.removeTableSpaceLimit(name));
      await("enabled", () -> admin.isTableEnabled(name));
      System.out.println("table sizes: " + admin.getSpaceQuotaTableSizes().keySet().contains(name));
    }
    TableName dropped = TableName.valueOf("qns:dropped");
    admin.createTable(of(dropped));
    set(QuotaSettingsFactory.limitTableSpace(dropped, 1 << 30, SpaceViolationPolicy.NO_INSERTS));
    set(QuotaSettingsFactory.throttleTable(dropped, ThrottleType.READ_NUMBER, 1, TimeUnit.HOURS));
    admin.disableTable(dropped);
    admin.deleteTable(dropped);
    list("after the table was deleted");
  }
}
