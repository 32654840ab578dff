package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;
import static halcyon.differential.Ground.expectError;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.util.Bytes;

/** Increments, appends, conditions and batches. */
final class AtomicFacts {
  private AtomicFacts() {}

  private static CheckAndMutate.Builder of(String row) {
    return CheckAndMutate.newBuilder(b(row));
  }

  private static Put one(String row, String value) {
    return new Put(b(row)).addColumn(F, b("q"), 9, b(value));
  }

  @Fact("an increment of a column that is not there starts at zero")
  static void incrementStartsAtZero(Ground g) throws Exception {
    expect(5L, g.table.incrementColumnValue(b("r"), F, b("n"), 5));
    expect(3L, g.table.incrementColumnValue(b("r"), F, b("n"), -2));
  }

  @Fact("an increment by zero writes a cell")
  static void incrementByZero(Ground g) throws Exception {
    expect(0L, g.table.incrementColumnValue(b("r"), F, b("n"), 0));
    expect(1, g.table.get(new Get(b("r"))).size());
  }

  @Fact("an increment overflows without an error")
  static void incrementOverflows(Ground g) throws Exception {
    g.table.incrementColumnValue(b("r"), F, b("n"), Long.MAX_VALUE);
    expect(Long.MIN_VALUE, g.table.incrementColumnValue(b("r"), F, b("n"), 1));
  }

  @Fact("an increment of a value that is not eight bytes long is refused and changes nothing")
  static void incrementOfAWrongValue(Ground g) throws Exception {
    g.put("r", "n", 1, "text");
    expectError("DoNotRetryIOException", () -> g.table.increment(new Increment(b("r")).addColumn(F, b("a"), 1).addColumn(F, b("n"), 1)));
    expect("r/n@1=text", g.get("r"));
  }

  @Fact(value = "the new value of a cell from the future is one millisecond ahead of it", versions = 3)
  static void incrementOfTheFuture(Ground g) throws Exception {
    g.table.put(new Put(b("r")).addColumn(F, b("n"), Times.FUTURE, Bytes.toBytes(1L)));
    g.table.incrementColumnValue(b("r"), F, b("n"), 1);
    expect(Times.FUTURE + 1, g.table.get(new Get(b("r"))).rawCells()[0].getTimestamp());
  }

  @Fact("an increment with a time range adds to what is in the range")
  static void incrementInATimeRange(Ground g) throws Exception {
    g.table.put(new Put(b("r")).addColumn(F, b("n"), 50, Bytes.toBytes(7L)));
    Result result = g.table.increment(new Increment(b("r")).addColumn(F, b("n"), 1).setTimeRange(0, 10));
    expect(1L, Ground.number(result, "n"));
  }

  @Fact("an append puts its bytes behind those that are there")
  static void append(Ground g) throws Exception {
    g.table.append(new Append(b("r")).addColumn(F, b("q"), b("a")));
    Result result = g.table.append(new Append(b("r")).addColumn(F, b("q"), b("b")));
    expect("ab", Bytes.toString(result.getValue(F, b("q"))));
  }

  @Fact("an append without results answers with none")
  static void appendWithoutResults(Ground g) throws Exception {
    Result result = g.table.append(new Append(b("r")).addColumn(F, b("q"), b("a")).setReturnResults(false));
    expect(true, result == null || result.isEmpty());
    expect(1, g.table.get(new Get(b("r"))).size());
  }

  @Fact("a mutation of a row returns the new cells in the order of its increments and appends")
  static void resultsOfAMutatedRow(Ground g) throws Exception {
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add((Mutation) new Increment(b("r")).addColumn(F, b("z"), 1));
    mutations.add((Mutation) new Append(b("r")).addColumn(F, b("a"), b("v")));
    List<String> qualifiers = new ArrayList<>();
    for (Cell cell : g.table.mutateRow(mutations).rawCells()) qualifiers.add(Bytes.toString(CellUtil.cloneQualifier(cell)));
    expect(List.of("z", "a"), qualifiers);
  }

  @Fact("a comparison with an empty value holds for a column that is not there and for an empty one")
  static void emptyValueInACondition(Ground g) throws Exception {
    expect(true, g.table.checkAndMutate(of("r").ifEquals(F, b("c"), new byte[0]).build(one("r", "1"))).isSuccess());
    g.put("r", "c", 1, "");
    expect(true, g.table.checkAndMutate(of("r").ifEquals(F, b("c"), new byte[0]).build(one("r", "2"))).isSuccess());
    g.put("r", "c", 2, "x");
    expect(false, g.table.checkAndMutate(of("r").ifEquals(F, b("c"), new byte[0]).build(one("r", "3"))).isSuccess());
    expect(true, g.table.checkAndMutate(of("r").ifMatches(F, b("c"), CompareOperator.NOT_EQUAL, new byte[0]).build(one("r", "4"))).isSuccess());
  }

  @Fact("the value of a condition is the left operand")
  static void operandsOfACondition(Ground g) throws Exception {
    g.put("r", "c", 1, "5");
    expect(true, g.table.checkAndMutate(of("r").ifMatches(F, b("c"), CompareOperator.GREATER, b("6")).build(one("r", "1"))).isSuccess());
    expect(false, g.table.checkAndMutate(of("r").ifMatches(F, b("c"), CompareOperator.LESS, b("6")).build(one("r", "1"))).isSuccess());
    expect(true, g.table.checkAndMutate(of("r").ifMatches(F, b("c"), CompareOperator.LESS_OR_EQUAL, b("5")).build(one("r", "1"))).isSuccess());
  }

  @Fact("a comparison other than with an empty value does not hold for a column that is not there")
  static void conditionOnNothing(Ground g) throws Exception {
    for (CompareOperator operator : CompareOperator.values()) {
      if (operator == CompareOperator.NO_OP) continue;
      expect(false, g.table.checkAndMutate(of("r").ifMatches(F, b("c"), operator, b("v")).build(one("r", "1"))).isSuccess());
    }
    expect(true, g.table.checkAndMutate(of("r").ifNotExists(F, b("c")).build(one("r", "1"))).isSuccess());
  }

  @Fact(value = "a condition with a time range looks at the versions in it", versions = 3)
  static void conditionInATimeRange(Ground g) throws Exception {
    g.put("r", "c", 1, "old");
    g.put("r", "c", 2, "new");
    expect(true, g.table.checkAndMutate(of("r").ifEquals(F, b("c"), b("old")).timeRange(TimeRange.between(0, 2)).build(one("r", "1"))).isSuccess());
  }

  @Fact("a condition with a filter holds if a cell of the row passes")
  static void conditionWithAFilter(Ground g) throws Exception {
    g.put("r", "c", 1, "v");
    ValueFilter filter = new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(b("v")));
    expect(true, g.table.checkAndMutate(of("r").ifMatches(filter).build(one("r", "1"))).isSuccess());
    expect(false, g.table.checkAndMutate(of("none").ifMatches(filter).build(one("none", "1"))).isSuccess());
  }

  @Fact("a condition that does not hold hides an unknown family of the action")
  static void unknownFamilyBehindACondition(Ground g) throws Exception {
    Put put = new Put(b("r")).addColumn(b("none"), b("q"), 1, b("v"));
    expect(false, g.table.checkAndMutate(of("r").ifEquals(F, b("c"), b("v")).build(put)).isSuccess());
    expectError("NoSuchColumnFamilyException", () -> g.table.checkAndMutate(of("r").ifNotExists(F, b("c")).build(put)));
  }

  @Fact("an increment as the action of a condition returns its value")
  static void incrementBehindACondition(Ground g) throws Exception {
    CheckAndMutateResult result = g.table.checkAndMutate(of("r").ifNotExists(F, b("c")).build(new Increment(b("r")).addColumn(F, b("n"), 2)));
    expect(2L, Ground.number(result.getResult(), "n"));
  }

  @Fact("an error of one action of a batch leaves the others")
  static void errorInABatch(Ground g) throws Exception {
    Object[] results = new Object[3];
    List<Row> actions = List.of(one("a", "1"), new Put(b("b")).addColumn(b("none"), b("q"), 1, b("v")), new Get(b("c")));
    expectError("NoSuchColumnFamilyException", () -> g.table.batch(actions, results));
    expect(true, results[0] instanceof Result && results[1] instanceof Throwable && results[2] instanceof Result);
    expect("a/q@9=1", g.all());
  }

  @Fact("a mutation of a row with an unknown family changes nothing")
  static void mutateRowIsAtomic(Ground g) throws Exception {
    RowMutations mutations = new RowMutations(b("r"));
    mutations.add((Mutation) one("r", "1"));
    mutations.add((Mutation) new Put(b("r")).addColumn(b("none"), b("q"), 1, b("v")));
    expectError("NoSuchColumnFamilyException", () -> g.table.mutateRow(mutations));
    expect("", g.all());
  }

  @Fact("exists says for each get whether it finds something")
  static void exists(Ground g) throws Exception {
    g.rows("a");
    expect(List.of(true, false, false), List.of(g.table.exists(new Get(b("a"))), g.table.exists(new Get(b("b"))),
        g.table.exists(new Get(b("a")).addColumn(F, b("other")))));
  }
}
