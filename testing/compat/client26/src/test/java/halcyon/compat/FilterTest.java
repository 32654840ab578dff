package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.BigDecimalComparator;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.BinaryComponentComparator;
import org.apache.hadoop.hbase.filter.BinaryPrefixComparator;
import org.apache.hadoop.hbase.filter.BitComparator;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.ColumnValueFilter;
import org.apache.hadoop.hbase.filter.DependentColumnFilter;
import org.apache.hadoop.hbase.filter.FamilyFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.LongComparator;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter.RowRange;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.NullComparator;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.ParseFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.QualifierFilter;
import org.apache.hadoop.hbase.filter.RandomRowFilter;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueExcludeFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SkipFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.filter.TimestampsFilter;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Every built-in filter and comparator, end to end. Six rows r0..r5; row i has f:alpha=ai, f:beta=bi, f:num=long i and,
 * in the even rows, g:even=yes; the timestamp of row i is 100 + i. The table is flushed half way, so that filters run
 * over a file and the memstore.
 */
class FilterTest extends CompatTest {
  private static final Map<Registry, TableName> TABLES = new EnumMap<>(Registry.class);
  private static final byte[] ALPHA = bytes("alpha");
  private static final byte[] BETA = bytes("beta");
  private static final byte[] NUM = bytes("num");
  private static final byte[] EVEN = bytes("even");
  private Table table;

  @BeforeEach
  void load() throws IOException {
    TableName name = TABLES.get(registry);
    if (name == null) {
      name = freshName();
      admin.createTable(descriptor(name, family(F).setMaxVersions(3).build(), family(G).build()));
      for (int i = 0; i < 6; i++) {
        Put put = new Put(bytes("r" + i)).addColumn(F, ALPHA, 100 + i, bytes("a" + i))
            .addColumn(F, BETA, 100 + i, bytes("b" + i)).addColumn(F, NUM, 100 + i, Bytes.toBytes((long) i));
        if (i % 2 == 0) {
          put.addColumn(G, EVEN, 100 + i, bytes("yes"));
        }
        table(name).put(put);
        if (i == 2) {
          admin.flush(name);
        }
      }
      TABLES.put(registry, name);
    }
    table = table(name);
  }

  /** What a scan with the filter returns: {@code r0[alpha,beta] r1[alpha]}. */
  private String scan(Scan scan) throws IOException {
    List<String> rows = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        List<String> columns = new ArrayList<>();
        for (var cell : result.rawCells()) {
          columns.add(text(org.apache.hadoop.hbase.CellUtil.cloneQualifier(cell)));
        }
        rows.add(text(result.getRow()) + "[" + String.join(",", columns) + "]");
      }
    }
    return String.join(" ", rows);
  }

  private String scan(Filter filter) throws IOException {
    return scan(new Scan().setFilter(filter));
  }

  /** Only the rows that pass, without their columns. */
  private String rows(Filter filter) throws IOException {
    return scan(filter).replaceAll("\\[[^]]*]", "");
  }

  @Test
  void rowFilters() throws Exception {
    assertEquals("r2", rows(new RowFilter(CompareOperator.EQUAL, new BinaryComparator(bytes("r2")))));
    assertEquals("r0 r1 r3 r4 r5", rows(new RowFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(bytes("r2")))));
    assertEquals("r0 r1", rows(new RowFilter(CompareOperator.LESS, new BinaryComparator(bytes("r2")))));
    assertEquals("r0 r1 r2", rows(new RowFilter(CompareOperator.LESS_OR_EQUAL, new BinaryComparator(bytes("r2")))));
    assertEquals("r3 r4 r5", rows(new RowFilter(CompareOperator.GREATER, new BinaryComparator(bytes("r2")))));
    assertEquals("r1 r3", rows(new RowFilter(CompareOperator.EQUAL, new RegexStringComparator("r[13]"))));
    assertEquals("r4", rows(new RowFilter(CompareOperator.EQUAL, new SubstringComparator("R4"))));
    assertEquals("r0 r1 r2 r3 r4 r5",
        rows(new RowFilter(CompareOperator.EQUAL, new BinaryPrefixComparator(bytes("r")))));
    assertEquals("r3",
        rows(new RowFilter(CompareOperator.EQUAL, new BinaryComponentComparator(bytes("3"), 1))));
    // a row whose bits all equal the comparator's has no bit left after the exclusive or
    assertEquals("r0 r1 r3 r4 r5", rows(new RowFilter(CompareOperator.EQUAL,
        new BitComparator(bytes("r2"), BitComparator.BitwiseOp.XOR))));
  }

  @Test
  void prefixesAndRanges() throws Exception {
    assertEquals("r3", rows(new PrefixFilter(bytes("r3"))));
    assertEquals("r0 r1 r2", rows(new InclusiveStopFilter(bytes("r2"))));
    assertEquals("r1 r4 r5", rows(new MultiRowRangeFilter(new ArrayList<>(List.of(
        new RowRange("r1", true, "r2", false), new RowRange("r3", false, "r5", true))))));
    assertEquals("r2 r4", rows(new MultiRowRangeFilter(new byte[][] {bytes("r2"), bytes("r4")})));
    byte[] mask = {0, 1};
    assertEquals("r0 r1 r2 r3 r4 r5",
        rows(new FuzzyRowFilter(List.of(new Pair<>(bytes("r?"), mask)))));
    assertEquals("r2 r5", rows(new FuzzyRowFilter(List.of(new Pair<>(bytes("?2"), new byte[] {1, 0}),
        new Pair<>(bytes("?5"), new byte[] {1, 0})))));
  }

  @Test
  void columns() throws Exception {
    assertEquals("r0[alpha] r1[alpha] r2[alpha] r3[alpha] r4[alpha] r5[alpha]",
        scan(new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(ALPHA))));
    assertEquals("r0[even] r2[even] r4[even]",
        scan(new FamilyFilter(CompareOperator.EQUAL, new BinaryComparator(G))));
    assertEquals("r0[beta] r1[beta] r2[beta] r3[beta] r4[beta] r5[beta]", scan(new ColumnPrefixFilter(bytes("be"))));
    assertEquals("r0[alpha,even] r1[alpha] r2[alpha,even] r3[alpha] r4[alpha,even] r5[alpha]",
        scan(new MultipleColumnPrefixFilter(new byte[][] {bytes("al"), bytes("ev")})));
    assertEquals("r0[beta,even] r1[beta] r2[beta,even] r3[beta] r4[beta,even] r5[beta]",
        scan(new ColumnRangeFilter(BETA, true, NUM, false)));
    assertEquals("r0[alpha] r1[alpha] r2[alpha] r3[alpha] r4[alpha] r5[alpha]", scan(new FirstKeyOnlyFilter()));
    assertEquals(List.of("f:alpha=a1", "f:beta=b1"),
        cells(table.get(new Get(bytes("r1")).setFilter(new ColumnCountGetFilter(2))), false));
    assertEquals(List.of("f:beta=b1"),
        cells(table.get(new Get(bytes("r1")).setFilter(new ColumnPaginationFilter(1, 1))), false));
    assertEquals(List.of("f:beta=b1"), cells(
        table.get(new Get(bytes("r1")).addFamily(F).setFilter(new ColumnPaginationFilter(1, BETA))), false));
  }

  @Test
  void values() throws Exception {
    assertEquals("r3[alpha]", scan(new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(bytes("a3")))));
    assertEquals("r1[alpha,beta]", scan(new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("^[ab]1$"))));
    assertEquals("r4[num] r5[num]",
        scan(new Scan().addColumn(F, NUM).setFilter(new ValueFilter(CompareOperator.GREATER, new LongComparator(3)))));
    assertEquals("r0[even] r2[even] r4[even]", scan(new Scan().addFamily(G)
        .setFilter(new ValueFilter(CompareOperator.NOT_EQUAL, new NullComparator()))));
    assertEquals("r2[alpha]", scan(new ColumnValueFilter(F, ALPHA, CompareOperator.EQUAL, bytes("a2"))));
    assertEquals("r1[num] r3[num] r5[num]", scan(new Scan().addColumn(F, NUM).setFilter(
        new ValueFilter(CompareOperator.EQUAL, new BitComparator(Bytes.toBytes(1L), BitComparator.BitwiseOp.AND)))));
  }

  @Test
  void bigDecimals() throws Exception {
    Table own = create(family(F).build());
    for (String number : List.of("1.5", "2.25", "10")) {
      own.put(new Put(bytes(number)).addColumn(F, Q, Bytes.toBytes(new java.math.BigDecimal(number))));
    }
    table = own;
    assertEquals("10 2.25", rows(new ValueFilter(CompareOperator.GREATER,
        new BigDecimalComparator(new java.math.BigDecimal("2.0")))));
  }

  @Test
  void singleColumnValues() throws Exception {
    assertEquals("r2[alpha,beta,num,even]",
        scan(new SingleColumnValueFilter(F, ALPHA, CompareOperator.EQUAL, bytes("a2"))));
    assertEquals("r4[alpha,beta,even] r5[alpha,beta]",
        scan(new SingleColumnValueExcludeFilter(F, NUM, CompareOperator.GREATER, Bytes.toBytes(3L))));
    SingleColumnValueFilter even = new SingleColumnValueFilter(G, EVEN, CompareOperator.EQUAL, bytes("yes"));
    assertEquals("r0 r1 r2 r3 r4 r5", rows(even)); // a row without the column passes
    even.setFilterIfMissing(true);
    assertEquals("r0 r2 r4", rows(even));
    // the other family is read only for the rows that pass
    assertEquals("r0 r2 r4",
        scan(new Scan().setFilter(even).setLoadColumnFamiliesOnDemand(true)).replaceAll("\\[[^]]*]", ""));
    SingleColumnValueFilter latest =
        new SingleColumnValueFilter(F, ALPHA, CompareOperator.NOT_EQUAL, new SubstringComparator("A3"));
    latest.setLatestVersionOnly(false);
    assertEquals("r0 r1 r2 r4 r5", rows(latest));
  }

  @Test
  void wrappers() throws Exception {
    assertEquals("r0 r1 r2", rows(new WhileMatchFilter(
        new RowFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(bytes("r3"))))));
    assertEquals("r0 r1 r3 r4 r5", rows(new SkipFilter(
        new ValueFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(bytes("b2"))))));
    assertEquals("r0 r1 r2", rows(new PageFilter(3)));
  }

  @Test
  void times() throws Exception {
    assertEquals("r1 r4", rows(new TimestampsFilter(List.of(101L, 104L, 999L))));
    assertEquals("r0 r1 r2 r3 r4 r5", rows(new DependentColumnFilter(F, ALPHA)));
    assertEquals("r2[beta,num,even]", scan(new DependentColumnFilter(F, ALPHA, true, CompareOperator.EQUAL,
        new BinaryComparator(bytes("a2")))));
  }

  @Test
  void keysOnly() throws Exception {
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(new KeyOnlyFilter()))) {
      for (Result result : scanner) {
        assertEquals(0, result.getValue(F, NUM).length);
      }
    }
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(new KeyOnlyFilter(true)))) {
      assertEquals(8, Bytes.toInt(scanner.next().getValue(F, NUM)));
    }
  }

  @Test
  void random() throws Exception {
    assertEquals("", rows(new RandomRowFilter(-1)));
    assertEquals("r0 r1 r2 r3 r4 r5", rows(new RandomRowFilter(2)));
  }

  @Test
  void lists() throws Exception {
    Filter low = new RowFilter(CompareOperator.LESS, new BinaryComparator(bytes("r2")));
    Filter high = new RowFilter(CompareOperator.GREATER, new BinaryComparator(bytes("r4")));
    Filter alpha = new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(ALPHA));
    assertEquals("r0 r1 r5", rows(new FilterList(FilterList.Operator.MUST_PASS_ONE, low, high)));
    assertEquals("", rows(new FilterList(FilterList.Operator.MUST_PASS_ALL, low, high)));
    assertEquals("r0[alpha] r1[alpha] r5[alpha]",
        scan(new FilterList(new FilterList(FilterList.Operator.MUST_PASS_ONE, low, high), alpha)));
    assertEquals("r0[alpha] r1[alpha]", scan(new FilterList(alpha, new PageFilter(2))));
    assertEquals("r0 r1 r2 r3 r4 r5", rows(new FilterList()));
  }

  @Test
  void parsed() throws Exception {
    assertEquals("r3[alpha]", scan(
        new ParseFilter().parseFilterString("PrefixFilter('r3') AND QualifierFilter(=, 'binary:alpha')")));
  }

  @Test
  void withGetReverseAndLimit() throws Exception {
    Filter notThree = new RowFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(bytes("r3")));
    assertEquals("r5[alpha] r4[alpha] r2[alpha]", scan(
        new Scan().setReversed(true).addColumn(F, ALPHA).setFilter(notThree).setLimit(3)));
    assertTrue(table.get(new Get(bytes("r3")).setFilter(notThree)).isEmpty());
    assertEquals("r5 r4", scan(new Scan().setReversed(true).setFilter(new PageFilter(2)))
        .replaceAll("\\[[^]]*]", ""));
  }
}
