package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.LogQueryFilter;
import org.apache.hadoop.hbase.client.OnlineLogRecord;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ServerType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/**
 * {@code get_slowlog_responses} and its like. The server keeps them for clients, calls every scan slow, and every answer large
 * that has more than 1 MiB: hbase.regionserver.slowlog.buffer.enabled, hbase.ipc.warn.response.time.scan = 0,
 * hbase.ipc.warn.response.size = 1048576. It writes them to hbase:slowlog each second. slow-log.sh starts it so.
 */
class SlowLogTest extends CompatTest {
  private Set<ServerName> servers() throws IOException {
    assumeTrue(Boolean.getBoolean("compat.slowlog"), "the server has no slow log for clients");
    return Set.copyOf(admin.getRegionServers());
  }

  private List<OnlineLogRecord> kept(LogQueryFilter.Type type, Map<String, Object> filters, int limit) throws IOException {
    String name = type == LogQueryFilter.Type.LARGE_LOG ? "LARGE_LOG" : "SLOW_LOG";
    return admin.getLogEntries(servers(), name, ServerType.REGION_SERVER, limit, filters).stream()
        .map(OnlineLogRecord.class::cast).toList();
  }

  private static Map<String, Object> of(Table table) {
    return Map.of("tableName", table.getName().getNameAsString());
  }

  private static List<String> rows(Table table) throws IOException {
    List<String> rows = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      scanner.forEach(result -> rows.add(text(result.getRow())));
    }
    return rows;
  }

  @Test
  void slowCallsSayWhatTheyWere() throws Exception {
    servers();
    Table table = create(family(F).build());
    table.put(put(bytes("a"), "f:q", "v"));
    assertEquals(List.of("a"), rows(table));
    assertEquals(List.of("a"), rows(table));
    List<OnlineLogRecord> slow = kept(LogQueryFilter.Type.SLOW_LOG, of(table), 100);
    assertTrue(slow.size() >= 2, slow.toString());
    OnlineLogRecord last = slow.get(0);
    assertEquals("Scan", last.getMethodName());
    assertEquals("HRegionServer", last.getServerClass());
    assertTrue(last.getRegionName().startsWith(table.getName() + ","), last.getRegionName());
    assertTrue(last.getStartTime() >= slow.get(1).getStartTime(), "the newest first");
    assertTrue(Math.abs(System.currentTimeMillis() - last.getStartTime()) < 120_000, "" + last.getStartTime());
    assertTrue(last.getResponseSize() > 0 && !last.getClientAddress().isEmpty());
    assertTrue(last.getParam().contains("where: "), last.getParam());
    assertEquals(System.getProperty("user.name"), last.getUserName());
    assertEquals(1, kept(LogQueryFilter.Type.SLOW_LOG, of(table), 1).size());
    Map<String, Object> region = Map.of("regionName", last.getRegionName());
    assertEquals(slow.size(), kept(LogQueryFilter.Type.SLOW_LOG, region, 100).size());
    Map<String, Object> nobody =
        Map.of("tableName", table.getName().getNameAsString(), "userName", "nobody", "filterByOperator", "AND");
    assertEquals(List.of(), kept(LogQueryFilter.Type.SLOW_LOG, nobody, 100));
    assertEquals(List.of(), kept(LogQueryFilter.Type.LARGE_LOG, of(table), 100));
  }

  @SuppressWarnings("deprecation")
  @Test
  void largeAnswersSayHowLargeTheyWere() throws Exception {
    servers();
    Table table = create(family(F).build());
    byte[] value = new byte[2 << 20];
    table.put(new Put(bytes("large")).addColumn(F, Q, value));
    assertEquals(value.length, table.get(new Get(bytes("large"))).value().length);
    LogQueryFilter filter = new LogQueryFilter();
    filter.setType(LogQueryFilter.Type.LARGE_LOG);
    filter.setTableName(table.getName().getNameAsString());
    List<OnlineLogRecord> large = admin.getSlowLogResponses(servers(), filter);
    assertEquals(1, large.size(), large.toString());
    assertEquals("Get", large.get(0).getMethodName());
    assertTrue(large.get(0).getResponseSize() > value.length, large.toString());
    assertTrue(large.get(0).getParam().contains("row= large"), large.get(0).getParam());
  }

  @Test
  void clearedCallsAreGone() throws Exception {
    servers();
    Table table = create(family(F).build());
    assertEquals(List.of(), rows(table));
    assertFalse(kept(LogQueryFilter.Type.SLOW_LOG, of(table), 10).isEmpty());
    for (Boolean cleared : admin.clearSlowLogResponses(servers())) {
      assertTrue(cleared);
    }
    assertEquals(List.of(), kept(LogQueryFilter.Type.SLOW_LOG, of(table), 10));
  }

  /** HBase's own columns: {@code SlowLogTableAccessor}. HBase's block_bytes_scanned is not there. */
  private static final Set<String> COLUMNS = Set.of("call_details", "client_address", "fs_read_time", "method_name", "param",
      "processing_time", "queue_time", "region_name", "response_size", "server_class", "start_time", "type", "username");

  private List<Result> written(Table of) throws IOException {
    byte[] info = bytes("info");
    SubstringComparator region = new SubstringComparator(of.getName() + ",");
    Scan scan = new Scan().setFilter(new SingleColumnValueFilter(info, bytes("region_name"), CompareOperator.EQUAL, region));
    List<Result> rows = new ArrayList<>();
    try (Table table = connection.getTable(TableName.valueOf("hbase:slowlog")); ResultScanner scanner = table.getScanner(scan)) {
      scanner.forEach(rows::add);
    }
    return rows;
  }

  @Test
  void slowCallsAreWrittenToTheirTable() throws Exception {
    servers();
    Table table = create(family(F).build());
    assertEquals(List.of(), rows(table));
    List<Result> written = written(table);
    for (long until = System.currentTimeMillis() + 60_000; written.isEmpty() && System.currentTimeMillis() < until; written = written(table)) {
      Thread.sleep(200);
    }
    assertFalse(written.isEmpty(), "nothing in hbase:slowlog after a minute");
    Result first = written.get(0);
    Set<String> columns = first.getFamilyMap(bytes("info")).keySet().stream().map(SlowLogTest::text).collect(Collectors.toSet());
    assertEquals(COLUMNS, columns);
    Function<String, String> column = name -> text(first.getValue(bytes("info"), bytes(name)));
    assertEquals("Scan", column.apply("method_name"));
    assertEquals("SLOW_LOG", column.apply("type"));
    assertEquals(System.getProperty("user.name"), column.apply("username"));
    long wroteMs = Bytes.toLong(first.getRow()) / 100_000;
    assertTrue(wroteMs >= Long.parseLong(column.apply("start_time")) && wroteMs <= System.currentTimeMillis(), "" + wroteMs);
    TableDescriptor descriptor = admin.getDescriptor(TableName.valueOf("hbase:slowlog"));
    ColumnFamilyDescriptor info = descriptor.getColumnFamily(bytes("info"));
    assertEquals(1, info.getMaxVersions());
    assertFalse(info.isBlockCacheEnabled());
    for (Result row : written) {
      assertFalse(text(row.getValue(bytes("info"), bytes("region_name"))).startsWith("hbase:slowlog,"));
    }
  }

  @Test
  void balancersDecisionsAreReadFromTheMaster() throws Exception {
    for (String log : List.of("BALANCER_DECISION", "BALANCER_REJECTION")) {
      assertEquals(List.of(), admin.getLogEntries(Set.of(), log, ServerType.MASTER, 10, Map.of()));
    }
  }
}
