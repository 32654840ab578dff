package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.IsolationLevel;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Scans over 200 rows {@code r000..r199} in four regions, each with f:a, f:b, f:c and g:x. */
class ScanTest extends CompatTest {
  private static final int ROWS = 200;
  private static final Map<Registry, TableName> TABLES = new EnumMap<>(Registry.class);
  private Table table;

  @BeforeEach
  void load() throws IOException {
    TableName name = TABLES.get(registry);
    if (name == null) {
      name = freshName();
      byte[][] splits = {bytes("r050"), bytes("r100"), bytes("r150")};
      admin.createTable(descriptor(name, family(F).setMaxVersions(3).build(), family(G).build()), splits);
      List<Put> puts = new ArrayList<>();
      for (int i = 0; i < ROWS; i++) {
        puts.add(new Put(bytes(key(i))).addColumn(F, bytes("a"), 1000 + i, bytes("a" + i))
            .addColumn(F, bytes("b"), 1000 + i, bytes("b" + i)).addColumn(F, bytes("c"), 1000 + i, bytes("c" + i))
            .addColumn(G, bytes("x"), 1000 + i, bytes("x" + i % 10)));
      }
      table(name).put(puts);
      TABLES.put(registry, name);
    }
    table = table(name);
  }

  private static String key(int i) {
    return String.format("r%03d", i);
  }

  private static List<String> keys(int from, int to) {
    return IntStream.range(from, to).mapToObj(ScanTest::key).toList();
  }

  private List<Result> results(Scan scan) throws IOException {
    List<Result> results = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      scanner.forEach(results::add);
    }
    return results;
  }

  private List<String> rows(Scan scan) throws IOException {
    return results(scan).stream().map(result -> text(result.getRow())).toList();
  }

  private static List<String> reversed(List<String> keys) {
    List<String> reversed = new ArrayList<>(keys);
    Collections.reverse(reversed);
    return reversed;
  }

  @Test
  void everything() throws Exception {
    List<Result> results = results(new Scan());
    assertEquals(ROWS, results.size());
    for (int i = 0; i < ROWS; i++) {
      assertEquals(key(i), text(results.get(i).getRow()));
      assertEquals(List.of("f:a=a" + i, "f:b=b" + i, "f:c=c" + i, "g:x=x" + i % 10), cells(results.get(i), false));
      assertFalse(results.get(i).mayHaveMoreCellsInRow());
    }
  }

  @Test
  void startAndStop() throws Exception {
    assertEquals(keys(40, 60), rows(new Scan().withStartRow(bytes("r040")).withStopRow(bytes("r060"))));
    assertEquals(keys(41, 61),
        rows(new Scan().withStartRow(bytes("r040"), false).withStopRow(bytes("r060"), true)));
    assertEquals(keys(120, 130), rows(new Scan().setStartStopRowForPrefixScan(bytes("r12"))));
    assertEquals(keys(190, 200), rows(new Scan().withStartRow(bytes("r19"))));
    assertEquals(List.of("r100"), rows(new Scan().withStartRow(bytes("r100")).withStopRow(bytes("r100"), true)));
    assertTrue(rows(new Scan().withStartRow(bytes("s"))).isEmpty());
    assertEquals(List.of("r077"), rows(new Scan(new Get(bytes("r077")))));
  }

  @Test
  void backwards() throws Exception {
    assertEquals(reversed(keys(0, ROWS)), rows(new Scan().setReversed(true)));
    assertEquals(reversed(keys(41, 61)),
        rows(new Scan().setReversed(true).withStartRow(bytes("r060")).withStopRow(bytes("r040"))));
    assertEquals(reversed(keys(40, 60)), rows(
        new Scan().setReversed(true).withStartRow(bytes("r060"), false).withStopRow(bytes("r040"), true)));
    assertEquals(reversed(keys(140, 160)),
        rows(new Scan().setReversed(true).withStartRow(bytes("r1599")).setLimit(20).setCaching(3)));
  }

  @Test
  void limits() throws Exception {
    assertEquals(keys(0, 1), rows(new Scan().setOneRowLimit()));
    assertEquals(keys(0, 70), rows(new Scan().setLimit(70)));
    assertEquals(keys(45, 55), rows(new Scan().withStartRow(bytes("r045")).setLimit(10).setCaching(4)));
  }

  @Test
  void cachingDoesNotChangeTheAnswer() throws Exception {
    for (int caching : new int[] {1, 7, 50, 1000}) {
      assertEquals(keys(0, ROWS), rows(new Scan().setCaching(caching)));
    }
    for (Scan.ReadType type : Scan.ReadType.values()) {
      assertEquals(keys(0, ROWS), rows(new Scan().setReadType(type)));
    }
  }

  @Test
  void batches() throws Exception {
    // no setLimit here: together with setBatch it trips an assertion inside the 2.6.4 client, whatever the server
    List<Result> results = results(new Scan().setBatch(3).withStopRow(bytes("r004")));
    List<String> sizes = results.stream().map(r -> text(r.getRow()) + " " + r.size()).toList();
    assertEquals(List.of("r000 3", "r000 1", "r001 3", "r001 1", "r002 3", "r002 1", "r003 3", "r003 1"), sizes);
    int cells = 0;
    for (Result result : results(new Scan().setBatch(1))) {
      assertEquals(1, result.size());
      cells++;
    }
    assertEquals(4 * ROWS, cells);
  }

  @Test
  void partialResults() throws Exception {
    // without partials the client puts the pieces of a row together again
    assertEquals(keys(0, ROWS), rows(new Scan().setMaxResultSize(1)));
    List<Cell> cells = new ArrayList<>();
    boolean partial = false;
    for (Result result : results(new Scan().setMaxResultSize(1).setAllowPartialResults(true))) {
      partial |= result.mayHaveMoreCellsInRow();
      cells.addAll(result.listCells());
    }
    assertTrue(partial);
    assertEquals(4 * ROWS, cells.size());
    assertEquals(keys(0, ROWS), rows(new Scan().setMaxResultSize(500)));
  }

  @Test
  void columns() throws Exception {
    for (Result result : results(new Scan().addColumn(F, bytes("b")))) {
      assertEquals(1, result.size());
      assertTrue(result.containsColumn(F, bytes("b")));
    }
    for (Result result : results(new Scan().addFamily(G))) {
      assertEquals(1, result.size());
    }
    for (Result result : results(new Scan().addColumn(F, bytes("c")).addColumn(F, bytes("a")).addFamily(G))) {
      assertEquals(3, result.size());
    }
    assertTrue(results(new Scan().addColumn(F, bytes("zz"))).isEmpty());
    assertFails(NoSuchColumnFamilyException.class, () -> results(new Scan().addFamily(bytes("nope"))));
  }

  @Test
  void timeRanges() throws Exception {
    assertEquals(keys(10, 20), rows(new Scan().setTimeRange(1010, 1020)));
    assertEquals(keys(33, 34), rows(new Scan().setTimestamp(1033)));
    assertEquals(keys(33, 34), rows(new Scan().setColumnFamilyTimeRange(F, 1033, 1034)
        .setColumnFamilyTimeRange(G, 0, 1)));
  }

  @Test
  void limitsPerFamily() throws Exception {
    for (Result result : results(new Scan().setMaxResultsPerColumnFamily(1))) {
      assertEquals(List.of("f:a", "g:x"),
          cells(result, false).stream().map(cell -> cell.substring(0, 3)).toList());
    }
    for (Result result : results(new Scan().addFamily(F).setMaxResultsPerColumnFamily(1)
        .setRowOffsetPerColumnFamily(2))) {
      assertTrue(cells(result, false).get(0).startsWith("f:c="));
    }
  }

  @Test
  void dropsEverything() throws Exception {
    // no row passes: the server answers with heartbeats, or once, but it ends
    QualifierFilter none = new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(bytes("none")));
    assertTrue(results(new Scan().setFilter(none).setCaching(1)).isEmpty());
    assertTrue(results(new Scan().setFilter(none).setReversed(true)).isEmpty());
    assertTrue(results(new Scan().setFilter(new FilterList(none)).setMaxResultSize(1)).isEmpty());
  }

  @Test
  void cursors() throws Exception {
    // whether cursors come depends on time; the rows do not
    List<String> rows = new ArrayList<>();
    for (Result result : results(new Scan().setNeedCursorResult(true).setMaxResultSize(1))) {
      if (result.isCursor()) {
        assertNotNull(result.getCursor().getRow());
      } else {
        rows.add(text(result.getRow()));
      }
    }
    assertEquals(keys(0, ROWS), rows);
  }

  @Test
  void leases() throws Exception {
    try (ResultScanner scanner = table.getScanner(new Scan().setCaching(5))) {
      assertEquals("r000", text(scanner.next().getRow()));
      for (int i = 0; i < 3; i++) {
        assertTrue(scanner.renewLease());
      }
      Result[] next = scanner.next(60);
      assertEquals(60, next.length);
      assertEquals("r060", text(next[59].getRow()));
      assertTrue(scanner.renewLease());
      assertEquals("r061", text(scanner.next().getRow()));
    }
    ResultScanner abandoned = table.getScanner(new Scan().setCaching(2));
    abandoned.next();
    abandoned.close();
  }

  @Test
  void metrics() throws Exception {
    try (ResultScanner scanner = table.getScanner(new Scan().setScanMetricsEnabled(true))) {
      int count = 0;
      for (Result ignored : scanner) {
        count++;
      }
      assertEquals(ROWS, count);
      assertEquals(4, scanner.getScanMetrics().countOfRegions.get());
      assertTrue(scanner.getScanMetrics().countOfRPCcalls.get() >= 4);
    }
  }

  @Test
  void versionsAndRaw() throws Exception {
    Table own = create(family(F).setMaxVersions(3).build());
    for (int i = 1; i <= 3; i++) {
      own.put(put(bytes("r"), "f:q", i, "v" + i));
    }
    own.delete(new Delete(bytes("r")).addColumns(F, Q, 2));
    own.put(put(bytes("s"), "f:q", 1, "s"));
    table = own;
    assertEquals(List.of("f:q@3=v3"), cells(results(new Scan().readAllVersions()).get(0), true));
    List<String> raw = new ArrayList<>();
    for (Cell cell : results(new Scan().setRaw(true).readAllVersions()).get(0).rawCells()) {
      raw.add(cell.getType() + "@" + cell.getTimestamp());
    }
    assertEquals(List.of("Put@3", "DeleteColumn@2", "Put@2", "Put@1"), raw);
    assertEquals(List.of("f:q@3=v3", "f:q@2="), cells(results(new Scan().setRaw(true).readVersions(2)).get(0), true)
        .subList(0, 2));
    assertEquals(List.of("f:q@1=s"),
        cells(results(new Scan().withStartRow(bytes("s")).readAllVersions()).get(0), true));
  }

  @Test
  void isolation() throws Exception {
    assertEquals(keys(0, ROWS), rows(new Scan().setIsolationLevel(IsolationLevel.READ_UNCOMMITTED)));
    // a scanner does not see what is written after it opened its region
    Table own = create(family(F).build());
    for (int i = 0; i < 20; i++) {
      own.put(put(bytes(key(i)), "f:q", "old"));
    }
    try (ResultScanner scanner = own.getScanner(new Scan().setCaching(2))) {
      assertEquals("old", text(scanner.next().getValue(F, Q)));
      for (int i = 0; i < 20; i++) {
        own.put(put(bytes(key(i)), "f:q", "new"));
      }
      own.put(put(bytes("r0055"), "f:q", "new"));
      int rest = 0;
      for (Result result : scanner) {
        assertEquals("old", text(result.getValue(F, Q)));
        rest++;
      }
      assertEquals(19, rest);
    }
  }

  @Test
  void isolationThroughFlushAndCompaction() throws Exception {
    Table own = create(family(F).build());
    for (int i = 0; i < 20; i++) {
      own.put(put(bytes(key(i)), "f:q", "old"));
    }
    try (ResultScanner scanner = own.getScanner(new Scan().setCaching(2))) {
      assertEquals("old", text(scanner.next().getValue(F, Q)));
      for (int i = 0; i < 20; i++) {
        own.put(put(bytes(key(i)), "f:q", "new"));
      }
      admin.flush(own.getName());
      own.delete(new Delete(bytes(key(15))));
      admin.flush(own.getName());
      int rest = 0;
      for (Result result : scanner) {
        assertEquals("old", text(result.getValue(F, Q)));
        rest++;
      }
      assertEquals(19, rest);
    }
  }

  @Test
  void bigRows() throws Exception {
    Table own = create(family(F).build());
    byte[] value = new byte[100_000];
    for (int r = 0; r < 3; r++) {
      Put put = new Put(bytes("big" + r));
      for (int c = 0; c < 40; c++) {
        put.addColumn(F, bytes(String.format("%02d", c)), value);
      }
      own.put(put);
    }
    table = own;
    // 4 MB a row and 2 MB an answer: every row comes in pieces
    List<Result> whole = results(new Scan());
    assertEquals(3, whole.size());
    for (Result result : whole) {
      assertEquals(40, result.size());
    }
    assertEquals(List.of("big2", "big1", "big0"), rows(new Scan().setReversed(true)));
    assertEquals(2, results(new Scan().setLimit(2)).size());
    int pieces = 0;
    int cells = 0;
    for (Result result : results(new Scan().setAllowPartialResults(true))) {
      pieces++;
      cells += result.size();
    }
    assertTrue(pieces > 3);
    assertEquals(120, cells);
    assertNull(own.get(new Get(bytes("big3"))).getRow());
  }
}
