package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;

import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.filter.*;

/** Filters where more than one region, version or filter matters. */
final class FilterFacts {
  private FilterFacts() {}

  @Fact(value = "a page is counted in each region by itself", splits = {"c"})
  static void pageInEachRegion(Ground g) throws Exception {
    g.rows("a", "b", "c", "d");
    expect("a c", g.rowsOf(new Scan().setFilter(new PageFilter(1))));
  }

  @Fact(value = "a page filter with a limit ends at the limit", splits = {"c"})
  static void pageAndLimit(Ground g) throws Exception {
    g.rows("a", "b", "c", "d");
    expect("a b", g.rowsOf(new Scan().setFilter(new PageFilter(2)).setLimit(2)));
  }

  @Fact("a filter of values leaves out cells, and rows without any")
  static void values(Ground g) throws Exception {
    g.put("a", "x", 1, "1");
    g.put("a", "y", 1, "2");
    g.put("b", "x", 1, "2");
    expect("a/x@1=1", g.scan(new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(b("1")))));
  }

  @Fact("a skip filter leaves out a row if one cell fails")
  static void skip(Ground g) throws Exception {
    g.put("a", "x", 1, "1");
    g.put("a", "y", 1, "0");
    g.put("b", "x", 1, "1");
    Filter notZero = new ValueFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(b("0")));
    expect("b/x@1=1", g.scan(new SkipFilter(notZero)));
  }

  @Fact("a while-match filter ends the scan with the first cell that fails")
  static void whileMatch(Ground g) throws Exception {
    g.put("a", "x", 1, "1");
    g.put("b", "x", 1, "0");
    g.put("c", "x", 1, "1");
    expect("a/x@1=1", g.scan(new WhileMatchFilter(new ValueFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(b("0"))))));
  }

  @Fact("a single-column filter passes rows without the column unless it is told otherwise")
  static void singleColumn(Ground g) throws Exception {
    g.put("a", "x", 1, "1");
    g.put("b", "y", 1, "1");
    g.put("c", "x", 1, "2");
    SingleColumnValueFilter filter = new SingleColumnValueFilter(F, b("x"), CompareOperator.EQUAL, b("1"));
    expect("a/x@1=1 b/y@1=1", g.scan(filter));
    filter.setFilterIfMissing(true);
    expect("a/x@1=1", g.scan(filter));
    SingleColumnValueExcludeFilter exclude = new SingleColumnValueExcludeFilter(F, b("x"), CompareOperator.EQUAL, b("1"));
    expect("b/y@1=1", g.scan(exclude));
  }

  @Fact(value = "a single-column filter of older versions passes a row if one of them matches", versions = 3)
  static void singleColumnOfOldVersions(Ground g) throws Exception {
    g.put("a", "x", 1, "old");
    g.put("a", "x", 2, "new");
    SingleColumnValueFilter filter = new SingleColumnValueFilter(F, b("x"), CompareOperator.EQUAL, b("old"));
    filter.setFilterIfMissing(true);
    expect("", g.scan(new Scan().readAllVersions().setFilter(filter)));
    filter.setLatestVersionOnly(false);
    expect("a/x@2=new a/x@1=old", g.scan(new Scan().readAllVersions().setFilter(filter)));
  }

  @Fact("pagination of columns counts in each row")
  static void columnPagination(Ground g) throws Exception {
    for (int i = 1; i <= 4; i++) g.put("a", "q" + i, 1, "v");
    g.put("b", "q1", 1, "v");
    expect("a/q2@1=v a/q3@1=v", g.scan(new ColumnPaginationFilter(2, 1)));
    expect("a/q3@1=v a/q4@1=v", g.scan(new ColumnPaginationFilter(2, b("q3"))));
  }

  @Fact("a list of all needs each filter, a list of one any of them, cell by cell")
  static void lists(Ground g) throws Exception {
    g.put("a", "x", 1, "1");
    g.put("a", "y", 1, "1");
    g.put("a", "z", 1, "2");
    Filter x = new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(b("x")));
    Filter one = new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(b("1")));
    expect("a/x@1=1", g.scan(new FilterList(FilterList.Operator.MUST_PASS_ALL, x, one)));
    expect("a/x@1=1 a/y@1=1", g.scan(new FilterList(FilterList.Operator.MUST_PASS_ONE, x, one)));
    expect("a/x@1=1 a/y@1=1 a/z@1=2", g.scan(new FilterList(FilterList.Operator.MUST_PASS_ALL)));
  }

  @Fact("a key-only filter leaves the length of the value if asked")
  static void keyOnly(Ground g) throws Exception {
    g.put("a", "x", 1, "four");
    expect("a/x@1=", g.scan(new KeyOnlyFilter()));
    expect("a/x@1=\\x00\\x00\\x00\\x04", g.scan(new KeyOnlyFilter(true)));
  }

  @Fact(value = "a filter of timestamps finds versions that are not the latest", versions = 3)
  static void timestamps(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("a", "x", i, "v" + i);
    expect("a/x@1=v1", g.scan(new TimestampsFilter(List.of(1L))));
  }

  @Fact("a raw scan counts versions after its filter")
  static void versionsOfRawScans(Ground g) throws Exception {
    for (int i = 1; i <= 3; i++) g.put("a", "x", i, "v" + i);
    expect("a/x@1=v1", g.scan(new Scan().setRaw(true).readVersions(1).setFilter(new TimestampsFilter(List.of(1L)))));
  }

  @Fact(value = "a dependent column lets cells with its timestamps through", versions = 3)
  static void dependentColumn(Ground g) throws Exception {
    g.put("a", "x", 5, "v");
    g.put("a", "y", 5, "v");
    g.put("a", "z", 6, "v");
    expect("a/x@5=v a/y@5=v", g.scan(new DependentColumnFilter(F, b("x"))));
    expect("a/y@5=v", g.scan(new DependentColumnFilter(F, b("x"), true)));
  }

  @Fact("a fuzzy row has bytes that may be any")
  static void fuzzyRow(Ground g) throws Exception {
    g.rows("a1x", "b2x", "a3y");
    Filter filter = new FuzzyRowFilter(List.of(new org.apache.hadoop.hbase.util.Pair<>(b("a?x"), new byte[] {0, 1, 0})));
    expect("a1x", g.rowsOf(new Scan().setFilter(filter)));
  }

  @Fact(value = "ranges of rows are jumped between, over regions", splits = {"c"})
  static void rangesOfRows(Ground g) throws Exception {
    g.rows("a", "b", "c", "d", "e");
    Filter filter = new MultiRowRangeFilter(new java.util.ArrayList<>(List.of(new MultiRowRangeFilter.RowRange("b", true, "c", true),
        new MultiRowRangeFilter.RowRange("d", false, "e", true))));
    expect("b c e", g.rowsOf(new Scan().setFilter(filter)));
  }

  @Fact("a filter in words is parsed by the client")
  static void words(Ground g) throws Exception {
    g.rows("a", "b", "c");
    Filter filter = new ParseFilter().parseFilterString("(PrefixFilter ('a') OR RowFilter (=, 'binary:c')) AND KeyOnlyFilter ()");
    expect("a/q@1= c/q@1=", g.scan(filter));
  }
}
