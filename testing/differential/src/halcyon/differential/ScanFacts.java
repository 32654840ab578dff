package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;
import static halcyon.differential.Ground.expectError;

import org.apache.hadoop.hbase.client.*;

/** Ranges, limits, and results that are parts of rows. */
final class ScanFacts {
  private ScanFacts() {}

  private static void wide(Ground g) throws Exception {
    for (String row : new String[] {"a", "b"}) {
      for (int i = 1; i <= 5; i++) g.put(row, "q" + i, i, "v");
    }
  }

  @Fact("a start row is in the range and a stop row is not, unless the scan says otherwise")
  static void bounds(Ground g) throws Exception {
    g.rows("a", "b", "c");
    expect("a b", g.rowsOf(new Scan().withStartRow(b("a")).withStopRow(b("c"))));
    expect("b c", g.rowsOf(new Scan().withStartRow(b("a"), false).withStopRow(b("c"), true)));
    expect("b", g.rowsOf(new Scan().withStartRow(b("b")).withStopRow(b("b"), true)));
    expect("", g.rowsOf(new Scan().withStartRow(b("c")).withStopRow(b("a"))));
  }

  @Fact(value = "a reversed scan goes down through all regions", splits = {"c", "e"})
  static void reversedAcrossRegions(Ground g) throws Exception {
    g.rows("a", "b", "c", "d", "e", "f");
    expect("f e d c b a", g.rowsOf(new Scan().setReversed(true)));
    expect("e d c", g.rowsOf(new Scan().setReversed(true).withStartRow(b("e")).withStopRow(b("b"))));
    expect("d c b", g.rowsOf(new Scan().setReversed(true).withStartRow(b("e"), false).withStopRow(b("b"), true)));
    expect("e d", g.rowsOf(new Scan().setReversed(true).withStartRow(b("ee")).setLimit(2)));
  }

  @Fact(value = "a limit counts rows over all regions", splits = {"b", "c"})
  static void limitAcrossRegions(Ground g) throws Exception {
    g.rows("a", "b", "c", "d");
    expect("a b c", g.rowsOf(new Scan().setLimit(3)));
    expect("a b c", g.rowsOf(new Scan().setLimit(3).setCaching(1)));
    expect("a", g.rowsOf(new Scan().setOneRowLimit()));
  }

  @Fact("a batch cuts rows into results, and the last one is what is left")
  static void batch(Ground g) throws Exception {
    wide(g);
    expect("a a a b b b", g.rowsOf(new Scan().setBatch(2)));
    expect("a b", g.rowsOf(new Scan().setBatch(5)));
  }

  @Fact("with a batch a limit counts rows, not results")
  static void batchAndLimit(Ground g) throws Exception {
    wide(g);
    expect("a a a", g.rowsOf(new Scan().setBatch(2).setLimit(1)));
  }

  @Fact("partial results of a tiny size are single cells")
  static void partialResults(Ground g) throws Exception {
    wide(g);
    expect("a a a a a b b b b b", g.rowsOf(new Scan().setMaxResultSize(1).setAllowPartialResults(true)));
    expect("a b", g.rowsOf(new Scan().setMaxResultSize(1)));
  }

  @Fact("a result is a part if its row has more cells")
  static void flagsOfParts(Ground g) throws Exception {
    wide(g);
    StringBuilder flags = new StringBuilder();
    try (ResultScanner scanner = g.table.getScanner(new Scan().setMaxResultSize(1).setAllowPartialResults(true))) {
      for (Result result : scanner) flags.append(result.mayHaveMoreCellsInRow() ? " part" : " end");
    }
    expect(" part part part part end part part part part end", flags.toString());
  }

  @Fact("limits of a family leave out cells of each family of a row by itself")
  static void limitsOfFamilies(Ground g) throws Exception {
    wide(g);
    g.table.put(new Put(b("a")).addColumn(Ground.G, b("x"), 1, b("v")).addColumn(Ground.G, b("y"), 2, b("v")));
    expect("a/q1@1=v a/x@1=v", g.get(new Get(b("a")).setMaxResultsPerColumnFamily(1)));
    expect("a/q2@2=v a/y@2=v", g.get(new Get(b("a")).setMaxResultsPerColumnFamily(1).setRowOffsetPerColumnFamily(1)));
    expect("a/q5@5=v", g.get(new Get(b("a")).setRowOffsetPerColumnFamily(4)));
  }

  @Fact("a limit of zero cells of a family lets one through")
  static void limitOfZero(Ground g) throws Exception {
    wide(g);
    expect("a/q1@1=v", g.get(new Get(b("a")).setMaxResultsPerColumnFamily(0)));
  }

  @Fact("a raw scan of columns is refused, of families not")
  static void rawScanOfColumns(Ground g) throws Exception {
    wide(g);
    expectError("DoNotRetryIOException", () -> g.scan(new Scan().setRaw(true).addColumn(F, b("q1"))));
    expect("a b", g.rowsOf(new Scan().setRaw(true).addFamily(F)));
  }

  @Fact("an unknown family is refused")
  static void unknownFamily(Ground g) throws Exception {
    expectError("NoSuchColumnFamilyException", () -> g.scan(new Scan().addFamily(b("none"))));
    expectError("NoSuchColumnFamilyException", () -> g.get(new Get(b("r")).addFamily(b("none"))));
  }

  @Fact(value = "a scanner does not see what is written to its region after it was opened", versions = 3)
  static void snapshotOfARegion(Ground g) throws Exception {
    g.rows("a", "b", "c");
    try (ResultScanner scanner = g.table.getScanner(new Scan().setCaching(1))) {
      expect("a", Domain.text(scanner.next().getRow()));
      g.rows("bb");
      g.delete(new Delete(b("c")));
      g.flush();
      expect("b", Domain.text(scanner.next().getRow()));
      expect("c", Domain.text(scanner.next().getRow()));
      expect(null, scanner.next());
    }
  }

  @Fact(value = "a family delete below an unnamed column's newest cell hides the columns behind it", versions = 1)
  static void familyDeleteBehindTheUnnamedColumn(Ground g) throws Exception {
    g.put("r", "x", 1, "hidden");
    g.delete(new Delete(b("r")).addFamily(F, 5));
    g.put("r", "", 9, "newer");
    expect("r/@9=newer", g.get("r"));
    expect("", g.get(new Get(b("r")).addColumn(F, b("x"))));
    g.flush();
    expect("r/@9=newer", g.get("r"));
    g.compact();
    expect("r/@9=newer", g.raw());
  }

  @Fact("families that a filter does not need are read for rows that pass")
  static void familiesOnDemand(Ground g) throws Exception {
    g.rows("a", "b");
    g.table.put(new Put(b("a")).addColumn(Ground.G, b("x"), 1, b("v")));
    var filter = new org.apache.hadoop.hbase.filter.SingleColumnValueFilter(F, b("q"), org.apache.hadoop.hbase.CompareOperator.EQUAL, b("a"));
    filter.setFilterIfMissing(true);
    expect("a/q@1=a a/x@1=v", g.scan(new Scan().setFilter(filter).setLoadColumnFamiliesOnDemand(true)));
    expect("a/q@1=a a/x@1=v", g.scan(new Scan().setFilter(filter).setLoadColumnFamiliesOnDemand(false)));
  }
}
