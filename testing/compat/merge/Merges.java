// What a client of HBase sees of merges and of what Hbck.fixMeta repairs, a line each.
//
//   java -cp JARS org.apache.hadoop.hbase.client.Merges answers ZOOKEEPER ROOT     all of it, once
//   java -cp JARS org.apache.hadoop.hbase.client.Merges own ZOOKEEPER ROOT         where Halcyon does otherwise, and why
//
// It is in the package of the client, because only there a request can be sent as it is: Admin refuses some of them itself.
package org.apache.hadoop.hbase.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.ipc.RpcClient;
import org.apache.hadoop.hbase.ipc.RpcClientFactory;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.RequestConverter;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockHeartbeatRequest;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockHeartbeatResponse;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockRequest;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockService;
import org.apache.hadoop.hbase.shaded.protobuf.generated.LockServiceProtos.LockType;
import org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos.GetProcedureResultRequest;
import org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos.GetProcedureResultResponse;
import org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos.MergeTableRegionsRequest;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.ForeignExceptionUtil;

public class Merges {
  static final byte[] F = Bytes.toBytes("f"), Q = Bytes.toBytes("q"), INFO = HConstants.CATALOG_FAMILY;
  static final String[] ROWS = {"a", "b", "bb", "c", "cc", "d", "dd", "e", "ee", "f"};
  static Configuration conf;
  static ClusterConnection connection;
  static Admin admin;
  static Path root;
  /** What each region that was seen is called here, by its encoded name. */
  static final Map<String, String> NAMES = new HashMap<>();

  interface Step { Object run() throws Exception; }

  public static void main(String[] args) throws Exception {
    conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[1].substring(0, args[1].lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", args[1].substring(args[1].lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 4);
    conf.setInt("hbase.client.pause", 50);
    conf.setInt("hbase.client.operation.timeout", 20000);
    root = new Path(args[2]);
    connection = (ClusterConnection) ConnectionFactory.createConnection(conf);
    admin = connection.getAdmin();
    switch (args[0]) {
      case "answers": refused(); merged(); apart(); overlaps(); many(); written(); holes(); locked(); break;
      case "own": own(); break;
      default: throw new IllegalArgumentException(args[0]);
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  static void say(String format, Object... values) { System.out.println(String.format(format, values)); }

  /** Prints what a step gives, or the exception that it ends with. */
  static void tell(String what, Step step) {
    try {
      say("%s: %s", what, step.run());
    } catch (Throwable error) {
      say("%s: %s", what, text(error));
    }
  }

  /** The innermost exception that came from a server. Regions have their names of here, and numbers that differ are left out. */
  static String text(Throwable error) {
    while (error.getCause() != null && error.getCause() != error &&
      (error instanceof java.util.concurrent.ExecutionException || error instanceof RetriesExhaustedException)) error = error.getCause();
    String name = error.getClass().getSimpleName();
    String text = String.valueOf(error.getMessage()).split("\n")[0].replaceAll(" via .*?:", ":").replaceAll("^(org\\.apache\\.hadoop\\.hbase\\.exceptions\\.MergeRegionException: )+", "");
    text = text.replaceAll(",\\d{13}(_\\d{4})?\\.", ",ID.");
    Matcher encoded = Pattern.compile("[0-9a-f]{32}").matcher(text);
    StringBuffer named = new StringBuffer();
    while (encoded.find()) encoded.appendReplacement(named, NAMES.getOrDefault(encoded.group(), "UNKNOWN"));
    return name + ": " + encoded.appendTail(named);
  }

  static TableName table(String name) { return TableName.valueOf(name); }

  static TableDescriptorBuilder descriptor(String name) {
    ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build();
    return TableDescriptorBuilder.newBuilder(table(name)).setColumnFamily(family);
  }

  static void create(TableDescriptorBuilder descriptor, String... splits) throws Exception {
    admin.createTable(descriptor.build(), Arrays.stream(splits).map(Bytes::toBytes).toArray(byte[][]::new));
    regions(descriptor.build().getTableName().getNameAsString());
  }

  /** A table of the regions ..b, b..c, c..d, d..e and e.., with a value in each of ROWS; half of them are in files. */
  static void filled(String name, String... settings) throws Exception {
    TableDescriptorBuilder descriptor = descriptor(name);
    for (int at = 0; at < settings.length; at += 2) descriptor.setValue(settings[at], settings[at + 1]);
    create(descriptor, "b", "c", "d", "e");
    for (int at = 0; at < ROWS.length; at++) {
      put(name, ROWS[at], "1");
      if (at == ROWS.length / 2) admin.flush(table(name));
    }
  }

  static void put(String name, String row, String value) throws Exception {
    try (Table table = connection.getTable(table(name))) {
      table.put(new Put(Bytes.toBytes(row)).addColumn(F, Q, Bytes.toBytes(value)));
    }
  }

  static Scan ofTable(String name) {
    return new Scan().withStartRow(Bytes.toBytes(name + ",,")).withStopRow(Bytes.toBytes(name + " ,,")).addFamily(INFO);
  }

  /** The live regions of a table as meta has them, by their ranges. */
  static Map<String, RegionInfo> regions(String name) throws Exception {
    Map<String, RegionInfo> found = new TreeMap<>();
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME);
      ResultScanner rows = meta.getScanner(ofTable(name))) {
      for (Result row : rows) {
        RegionInfo region = RegionInfo.parseFromOrNull(row.getValue(INFO, HConstants.REGIONINFO_QUALIFIER));
        if (region == null || region.isOffline()) continue;
        String range = Bytes.toString(region.getStartKey()) + ".." + Bytes.toString(region.getEndKey());
        NAMES.put(region.getEncodedName(), name + "[" + range + "]");
        found.put(range, region);
      }
    }
    return found;
  }

  static RegionInfo region(String name, String range) throws Exception {
    RegionInfo found = regions(name).get(range);
    if (found == null) throw new IllegalStateException("no region " + range + " among " + regions(name).keySet());
    return found;
  }

  static RegionInfo[] ranges(String name, String... ranges) throws Exception {
    RegionInfo[] found = new RegionInfo[ranges.length];
    for (int at = 0; at < ranges.length; at++) found[at] = region(name, ranges[at]);
    return found;
  }

  /** What a client of the master does, without the checks of Admin; waits until the procedure has ended. */
  static String merge(boolean forcible, RegionInfo... regions) throws Exception {
    byte[][] names = Arrays.stream(regions).map(RegionInfo::getEncodedNameAsBytes).toArray(byte[][]::new);
    return merge(forcible, names);
  }

  static String merge(boolean forcible, byte[][] names) throws Exception {
    MergeTableRegionsRequest request =
      RequestConverter.buildMergeTableRegionsRequest(names, forcible, HConstants.NO_NONCE, HConstants.NO_NONCE);
    MasterKeepAliveConnection master = connection.getMaster();
    try {
      return ended(master, master.mergeTableRegions(null, request).getProcId());
    } catch (org.apache.hbase.thirdparty.com.google.protobuf.ServiceException error) {
      throw ProtobufUtil.handleRemoteException(error);
    }
  }

  static String ended(MasterKeepAliveConnection master, long id) throws Exception {
    GetProcedureResultRequest request = GetProcedureResultRequest.newBuilder().setProcId(id).build();
    for (int tries = 0; tries < 600; tries++, Thread.sleep(100)) {
      GetProcedureResultResponse result = master.getProcedureResult(null, request);
      if (result.getState() != GetProcedureResultResponse.State.FINISHED) continue;
      if (!result.hasException()) return "merged";
      throw ForeignExceptionUtil.toIOException(result.getException());
    }
    throw new IllegalStateException("procedure " + id + " has not ended");
  }

  static String scan(String name, boolean reversed) throws Exception {
    StringBuilder text = new StringBuilder();
    try (Table table = connection.getTable(table(name)); ResultScanner rows = table.getScanner(new Scan().setReversed(reversed))) {
      for (Result row : rows) text.append(' ').append(Bytes.toString(row.getRow())).append('=').append(Bytes.toString(row.getValue(F, Q)));
    }
    return text.toString().trim();
  }

  /** Each row by a get; a table whose regions overlap does not give all of them. */
  static String gets(String name) throws Exception {
    StringBuilder text = new StringBuilder();
    try (Table table = connection.getTable(table(name))) {
      for (String row : ROWS) {
        text.append(' ').append(row).append('=');
        try {
          byte[] value = table.get(new Get(Bytes.toBytes(row))).getValue(F, Q);
          text.append(value == null ? "-" : Bytes.toString(value));
        } catch (Exception error) {
          text.append('?');
        }
      }
    }
    return text.toString().trim();
  }

  static void rows(String name) {
    tell(name + " regions", () -> regions(name).keySet());
    tell(name + " scan", () -> scan(name, false));
    tell(name + " reversed scan", () -> scan(name, true));
    tell(name + " gets", () -> gets(name));
  }

  /** Writes whole files of all that the regions have, and waits until nothing refers to the files of others. */
  static void compact(String name) throws Exception {
    for (int tries = 0; tries < 100; tries++) {
      for (RegionInfo region : regions(name).values()) admin.majorCompactRegion(region.getRegionName());
      for (int wait = 0; wait < 8; wait++) {
        Thread.sleep(250);
        admin.runCatalogJanitor();
        if (!refers(name)) return;
      }
    }
    throw new IllegalStateException(name + " still refers to files of others");
  }

  static boolean refers(String name) throws Exception {
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME);
      ResultScanner rows = meta.getScanner(ofTable(name))) {
      for (Result row : rows) {
        for (Cell cell : row.rawCells()) {
          String qualifier = Bytes.toString(CellUtil.cloneQualifier(cell));
          if (qualifier.startsWith("merge") || qualifier.startsWith("split")) return true;
        }
      }
    }
    return false;
  }

  static void await(String what, java.util.concurrent.Callable<Boolean> is) throws Exception {
    for (int tries = 0; tries < 300; tries++, Thread.sleep(100)) if (is.call()) return;
    throw new IllegalStateException("waited in vain: " + what);
  }

  static boolean isWhole(String name) throws Exception {
    List<RegionInfo> found = new ArrayList<>(regions(name).values());
    found.sort(RegionInfo.COMPARATOR);
    byte[] end = HConstants.EMPTY_BYTE_ARRAY;
    for (int at = 0; at < found.size(); at++) {
      if (!Bytes.equals(end, found.get(at).getStartKey()) || at > 0 && end.length == 0) return false;
      end = found.get(at).getEndKey();
    }
    return end.length == 0 && !found.isEmpty() && isOpen(name);
  }

  static boolean isOpen(String name) throws Exception {
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME)) {
      for (RegionInfo region : regions(name).values()) {
        byte[] state = meta.get(new Get(region.getRegionName())).getValue(INFO, HConstants.STATE_QUALIFIER);
        if (state == null || !Bytes.toString(state).equals("OPEN")) return false;
      }
    }
    return true;
  }

  /** The janitor's report is what HBase's repair goes by. */
  static String fix() throws Exception {
    admin.runCatalogJanitor();
    try (Hbck hbck = connection.getHbck()) {
      hbck.fixMeta();
    }
    return "answered";
  }

  static void fixed(String name) throws Exception {
    tell(name + " fixMeta", Merges::fix);
    await(name + " is whole", () -> isWhole(name));
    connection.clearRegionLocationCache();
    rows(name);
  }

  static void refused() throws Exception {
    filled("r");
    create(descriptor("s"), "b");
    RegionInfo[] all = ranges("r", "..b", "b..c", "c..d", "d..e", "e..");
    RegionInfo first = all[0], second = all[1], third = all[2];
    tell("one region", () -> merge(true, first));
    tell("a region twice", () -> merge(false, first, first));
    tell("a region twice, forced", () -> merge(true, first, second, first));
    tell("two tables", () -> merge(true, first, region("s", "..b")));
    tell("an unknown region", () -> merge(true, new byte[][] {first.getEncodedNameAsBytes(), Bytes.toBytes("no such region")}));
    tell("not neighbours", () -> merge(false, first, third));
    tell("neighbours, not in order", () -> merge(false, first, third, second));
    tell("one after the other is no neighbour", () -> merge(false, first, second, all[3]));
    admin.unassign(second.getRegionName());
    await("closed", () -> !isOpen("r"));
    tell("a closed region", () -> merge(false, first, second));
    tell("a closed region, forced", () -> merge(true, first, second));
    admin.assign(second.getRegionName());
    await("open", () -> isOpen("r"));
    admin.mergeSwitch(false, true);
    tell("switched off", () -> merge(true, first, third));
    admin.mergeSwitch(true, true);
    admin.disableTable(table("r"));
    tell("a disabled table", () -> merge(true, first, second));
    admin.enableTable(table("r"));
    create(descriptor("o").setValue("MERGE_ENABLED", "false"), "b");
    tell("merges of the table are off", () -> merge(true, ranges("o", "..b", "b..")));
    create(descriptor("p").setRegionReplication(2), "b");
    RegionInfo copy = RegionReplicaUtil.getRegionInfoForReplica(region("p", "..b"), 1);
    NAMES.put(copy.getEncodedName(), "p[..b] copy");
    tell("a copy", () -> merge(true, copy, region("p", "b..")));
    tell("Admin, two tables", () -> admin.mergeRegionsAsync(new byte[][] {first.getRegionName(), region("s", "..b").getRegionName()}, true).get());
    tell("Admin, not neighbours", () -> admin.mergeRegionsAsync(new byte[][] {first.getRegionName(), third.getRegionName()}, false).get());
    rows("r");
  }

  static void merged() throws Exception {
    filled("m");
    tell("neighbours", () -> merge(false, ranges("m", "b..c", "..b")));
    rows("m");
    tell("neighbours, forced", () -> merge(true, ranges("m", "c..d", "d..e")));
    rows("m");
    compact("m");
    tell("three, not in order, forced", () -> merge(true, ranges("m", "e..", "..c", "c..e")));
    rows("m");
    filled("n", "COMPACTION_ENABLED", "false");
    tell("all by Admin", () -> {
      byte[][] names = regions("n").values().stream().map(RegionInfo::getRegionName).toArray(byte[][]::new);
      return admin.mergeRegionsAsync(new byte[][] {names[0], names[1]}, true).get();
    });
    rows("n");
    tell("merged just now", () -> merge(true, ranges("n", "..c", "c..d")));
  }

  /** Regions with others between them. */
  static void apart() throws Exception {
    filled("a");
    tell("apart", () -> merge(true, ranges("a", "b..c", "d..e")));
    connection.clearRegionLocationCache();
    tell("a regions", () -> regions("a").keySet());
    tell("a gets", () -> gets("a"));
    compact("a");
    tell("a regions when the parents are gone", () -> regions("a").keySet());
    tell("the region between is overlapped", () -> merge(false, ranges("a", "b..e", "c..d")));
    connection.clearRegionLocationCache();
    rows("a");
    compact("a");
    rows("a");
    filled("e");
    tell("apart, to the end, by Admin", () -> admin.mergeRegionsAsync(new byte[][] {region("e", "e..").getRegionName(), region("e", "..b").getRegionName()}, true).get());
    tell("e regions", () -> regions("e").keySet());
  }

  static void overlaps() throws Exception {
    filled("f");
    tell("apart", () -> merge(true, ranges("f", "b..c", "d..e")));
    compact("f");
    connection.clearRegionLocationCache();
    for (String row : new String[] {"b", "bb", "c", "cc"}) put("f", row, "2");
    fixed("f");
    compact("f");
    rows("f");
    tell("nothing to fix", Merges::fix);
    rows("f");
  }

  /** More than are merged at a time: hbase.master.metafixer.max.merge.count is 3 here. */
  static void many() throws Exception {
    create(descriptor("g"), "b", "c", "d", "e", "f", "g");
    for (String row : ROWS) put("g", row, "1");
    tell("apart", () -> merge(true, ranges("g", "..b", "f..g")));
    compact("g");
    tell("g regions", () -> regions("g").keySet());
    tell("g fixMeta", Merges::fix);
    await("three are left", () -> regions("g").size() == 3 && isOpen("g"));
    tell("g regions", () -> regions("g").keySet());
    compact("g");
    fixed("g");
  }

  /** An overlap that is written into hbase:meta, with a directory, as a repair by hand does. */
  static void written() throws Exception {
    filled("w");
    RegionInfo wide = RegionInfoBuilder.newBuilder(table("w")).setStartKey(Bytes.toBytes("b")).setEndKey(Bytes.toBytes("d")).build();
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME)) {
      meta.put(new Put(wide.getRegionName()).addColumn(INFO, HConstants.REGIONINFO_QUALIFIER, RegionInfo.toByteArray(wide))
        .addColumn(INFO, HConstants.STATE_QUALIFIER, Bytes.toBytes("CLOSED")));
    }
    Path dir = new Path(root, "data/default/w/" + wide.getEncodedName());
    FileSystem files = dir.getFileSystem(conf);
    files.mkdirs(new Path(dir, "f"));
    try (FSDataOutputStream out = files.create(new Path(dir, ".regioninfo"), false)) {
      out.write(RegionInfo.toDelimitedByteArray(wide));
    }
    try (Hbck hbck = connection.getHbck()) {
      List<Long> begun = hbck.assigns(Arrays.asList(wide.getEncodedName()));
      say("w assigns: %s", begun.get(0) > 0 ? "begun" : "not begun");
    }
    await("w is open", () -> isOpen("w"));
    tell("w regions", () -> regions("w").keySet());
    fixed("w");
    put("w", "cc", "3");
    tell("w gets", () -> gets("w"));
  }

  static void holes() throws Exception {
    create(descriptor("h"), "b", "c");
    for (String row : new String[] {"a", "c"}) put("h", row, "1");
    admin.flush(table("h"));
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME)) {
      meta.delete(new Delete(region("h", "b..c").getRegionName()));
    }
    tell("h regions", () -> regions("h").keySet());
    fixed("h");
    put("h", "bb", "2");
    rows("h");
  }

  /** The repair does not wait for who has the table. */
  static void locked() throws Exception {
    filled("l");
    tell("apart", () -> merge(true, ranges("l", "b..c", "d..e")));
    compact("l");
    LockRequest request = LockRequest.newBuilder().setLockType(LockType.EXCLUSIVE).setTableName(ProtobufUtil.toProtoTableName(table("l"))).setDescription("test").build();
    try (RpcClient rpc = RpcClientFactory.createClient(conf, admin.getClusterMetrics().getClusterId())) {
      LockService.BlockingInterface locks = LockService.newBlockingStub(rpc.createBlockingRpcChannel(admin.getMaster(), User.getCurrent(), 30_000));
      long id = locks.requestLock(null, request).getProcId();
      LockHeartbeatRequest keep = LockHeartbeatRequest.newBuilder().setProcId(id).build();
      await("locked", () -> locks.lockHeartbeat(null, keep).getLockStatus() == LockHeartbeatResponse.LockStatus.LOCKED);
      tell("l fixMeta while it is locked", Merges::fix);
      Thread.sleep(500);
      tell("l regions", () -> regions("l").keySet());
      locks.lockHeartbeat(null, keep.toBuilder().setKeepAlive(false).build());
    }
    await("l is whole", () -> isWhole("l"));
    connection.clearRegionLocationCache();
    rows("l");
  }

  /** A region that reaches to the end of the table, and one inside of it. HBase's merged region ends where the one inside does. */
  static void own() throws Exception {
    filled("q");
    tell("apart, to the end", () -> merge(true, ranges("q", "b..c", "e..")));
    compact("q");
    tell("q regions", () -> regions("q").keySet());
    tell("what reaches to the end, and what is inside", () -> merge(true, ranges("q", "b..", "c..d", "d..e")));
    connection.clearRegionLocationCache();
    rows("q");
  }
}
