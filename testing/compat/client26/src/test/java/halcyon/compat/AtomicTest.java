package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** What reads and writes a row in one step. */
class AtomicTest extends CompatTest {
  private static final byte[] A = bytes("a");
  private static final byte[] B = bytes("b");

  private static long number(Result result, byte[] qualifier) {
    return Bytes.toLong(result.getValue(F, qualifier));
  }

  @Test
  void increment() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    assertEquals(5, number(table.increment(new Increment(row).addColumn(F, A, 5)), A));
    Result two = table.increment(new Increment(row).addColumn(F, A, -2).addColumn(F, B, 10).addColumn(G, A, 1));
    assertEquals(3, number(two, A));
    assertEquals(10, number(two, B));
    assertEquals(3, two.size());
    assertEquals(7, table.incrementColumnValue(row, F, A, 4));
    assertEquals(7, number(table.get(new Get(row)), A));
    // zero reads without changing the value
    assertEquals(7, number(table.increment(new Increment(row).addColumn(F, A, 0)), A));
    assertTrue(table.increment(new Increment(row).addColumn(F, A, 1).setReturnResults(false)).isEmpty());
    assertEquals(8, number(table.get(new Get(row)), A));
    tick();
    table.delete(new Delete(row));
    tick();
    assertEquals(1, table.incrementColumnValue(row, F, A, 1));
  }

  @Test
  void incrementRefused() throws Exception {
    Table table = shared();
    table.put(put(row("r"), "f:a", "not eight bytes"));
    assertFails(DoNotRetryIOException.class, () -> table.incrementColumnValue(row("r"), F, A, 1));
    assertEquals("not eight bytes", value(table, row("r"), "f:a"));
    assertFails(NoSuchColumnFamilyException.class,
        () -> table.incrementColumnValue(row("r"), bytes("nope"), A, 1));
  }

  @Test
  void incrementFromMany() throws Exception {
    Table table = shared();
    byte[] row = row("counter");
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try {
      List<Future<Long>> sums = new ArrayList<>();
      for (int t = 0; t < 4; t++) {
        sums.add(threads.submit(() -> {
          long sum = 0;
          try (Table own = connection.getTable(table.getName())) {
            for (int i = 0; i < 50; i++) {
              sum += own.incrementColumnValue(row, F, A, 1);
            }
          }
          return sum;
        }));
      }
      long total = 0;
      for (Future<Long> sum : sums) {
        total += sum.get();
      }
      assertEquals(200 * 201 / 2, total); // every number from 1 to 200 was given out once
    } finally {
      threads.shutdownNow();
    }
    assertEquals(200, number(table.get(new Get(row)), A));
  }

  @Test
  void append() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    assertEquals("one", text(table.append(new Append(row).addColumn(F, A, bytes("one"))).getValue(F, A)));
    Result result = table.append(new Append(row).addColumn(F, A, bytes("+two")).addColumn(G, B, bytes("x")));
    assertEquals(List.of("f:a=one+two", "g:b=x"), cells(result, false));
    Result none = table.append(new Append(row).addColumn(F, A, bytes("+three")).setReturnResults(false));
    assertTrue(none == null || none.isEmpty());
    assertEquals("one+two+three", value(table, row, "f:a"));
    table.append(new Append(row).addColumn(F, A, new byte[0]));
    assertEquals("one+two+three", value(table, row, "f:a"));
  }

  @Test
  void checkAndPut() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    CheckAndMutate ifNotExists =
        CheckAndMutate.newBuilder(row).ifNotExists(F, A).build(put(row, "f:a", "1"));
    assertTrue(table.checkAndMutate(ifNotExists).isSuccess());
    assertFalse(table.checkAndMutate(ifNotExists).isSuccess());
    assertTrue(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1")).build(put(row, "f:a", "2"))).isSuccess());
    assertFalse(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1")).build(put(row, "f:a", "3"))).isSuccess());
    assertEquals("2", value(table, row, "f:a"));
    // the row that is checked and the row that is written must be one
    assertFails(Exception.class, () -> table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("2")).build(put(row("other"), "f:a", "3"))));
  }

  @Test
  void checkOperators() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", "m"));
    // the operator stands between the expected value and the stored one, in this order
    Object[][] rules = {
        {CompareOperator.EQUAL, "m", true}, {CompareOperator.EQUAL, "n", false},
        {CompareOperator.NOT_EQUAL, "n", true}, {CompareOperator.NOT_EQUAL, "m", false},
        {CompareOperator.LESS, "a", true}, {CompareOperator.LESS, "m", false}, {CompareOperator.LESS, "z", false},
        {CompareOperator.LESS_OR_EQUAL, "m", true}, {CompareOperator.LESS_OR_EQUAL, "z", false},
        {CompareOperator.GREATER, "z", true}, {CompareOperator.GREATER, "m", false},
        {CompareOperator.GREATER_OR_EQUAL, "m", true}, {CompareOperator.GREATER_OR_EQUAL, "a", false}};
    for (Object[] rule : rules) {
      boolean success = table.checkAndMutate(CheckAndMutate.newBuilder(row)
          .ifMatches(F, A, (CompareOperator) rule[0], bytes((String) rule[1])).build(put(row, "f:b", "x"))).isSuccess();
      assertEquals(rule[2], success, rule[0] + " " + rule[1]);
    }
    assertFalse(table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifMatches(F, bytes("missing"), CompareOperator.LESS, bytes("x")).build(put(row, "f:b", "y"))).isSuccess());
  }

  @Test
  void checkAndDelete() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", "1").addColumn(F, B, bytes("2")));
    assertFalse(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("9"))
        .build(new Delete(row))).isSuccess());
    assertTrue(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1"))
        .build(new Delete(row).addColumns(F, B))).isSuccess());
    assertEquals(List.of("f:a=1"), cells(table.get(new Get(row)), false));
  }

  @Test
  void checkWithFilterAndTimeRange() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", 100, "1").addColumn(F, B, 100, bytes("2")));
    FilterList both = new FilterList(
        new SingleColumnValueFilter(F, A, CompareOperator.EQUAL, bytes("1")),
        new SingleColumnValueFilter(F, B, CompareOperator.EQUAL, bytes("2")));
    assertTrue(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifMatches(both).build(put(row, "f:c", "yes"))).isSuccess());
    FilterList no = new FilterList(
        new SingleColumnValueFilter(F, A, CompareOperator.EQUAL, bytes("1")),
        new SingleColumnValueFilter(F, B, CompareOperator.EQUAL, bytes("3")));
    assertFalse(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifMatches(no).build(put(row, "f:c", "no"))).isSuccess());
    assertEquals("yes", value(table, row, "f:c"));
    assertFalse(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1"))
        .timeRange(org.apache.hadoop.hbase.io.TimeRange.between(0, 100)).build(put(row, "f:c", "no"))).isSuccess());
    assertTrue(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1"))
        .timeRange(org.apache.hadoop.hbase.io.TimeRange.between(100, 101)).build(put(row, "f:c", "in"))).isSuccess());
  }

  @Test
  void checkAndIncrementOrAppend() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:flag", "on"));
    CheckAndMutateResult incremented = table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifEquals(F, bytes("flag"), bytes("on")).build(new Increment(row).addColumn(F, A, 3)));
    assertTrue(incremented.isSuccess());
    assertEquals(3, number(incremented.getResult(), A));
    CheckAndMutateResult appended = table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifEquals(F, bytes("flag"), bytes("on")).build(new Append(row).addColumn(F, B, bytes("x"))));
    assertEquals("x", text(appended.getResult().getValue(F, B)));
    CheckAndMutateResult refused = table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifEquals(F, bytes("flag"), bytes("off")).build(new Increment(row).addColumn(F, A, 3)));
    assertFalse(refused.isSuccess());
    assertNull(refused.getResult());
    assertEquals(3, number(table.get(new Get(row)), A));
  }

  @Test
  void checkAndRowMutations() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", "1").addColumn(F, B, bytes("2")));
    RowMutations mutations = RowMutations.of(List.of(put(row, "f:c", "3"), new Delete(row).addColumns(F, B),
        new Increment(row).addColumn(F, bytes("n"), 7), new Append(row).addColumn(F, bytes("t"), bytes("tail"))));
    CheckAndMutateResult refused = table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("0")).build(mutations));
    assertFalse(refused.isSuccess());
    assertEquals(List.of("f:a=1", "f:b=2"), cells(table.get(new Get(row)), false));
    CheckAndMutateResult done = table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, A, bytes("1")).build(mutations));
    assertTrue(done.isSuccess());
    assertEquals(7, number(done.getResult(), bytes("n")));
    assertEquals("tail", text(done.getResult().getValue(F, bytes("t"))));
    Result result = table.get(new Get(row));
    assertEquals("3", text(result.getValue(F, bytes("c"))));
    assertNull(result.getValue(F, B));
    assertEquals(7, number(result, bytes("n")));
  }

  @Test
  void checkAndMutateMany() throws Exception {
    Table table = shared();
    for (String name : List.of("a", "b", "c")) {
      table.put(put(row(name), "f:a", name));
    }
    List<CheckAndMutate> checks = new ArrayList<>();
    for (String name : List.of("a", "b", "c")) {
      checks.add(CheckAndMutate.newBuilder(row(name)).ifEquals(F, A, bytes(name.equals("b") ? "?" : name))
          .build(put(row(name), "f:a", name + name)));
    }
    List<CheckAndMutateResult> results = table.checkAndMutate(checks);
    assertEquals(List.of(true, false, true), results.stream().map(CheckAndMutateResult::isSuccess).toList());
    assertEquals("aa", value(table, row("a"), "f:a"));
    assertEquals("b", value(table, row("b"), "f:a"));
  }

  @Test
  @SuppressWarnings("deprecation")
  void olderForms() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    assertTrue(table.checkAndMutate(row, F).qualifier(A).ifNotExists().thenPut(put(row, "f:a", "1")));
    assertFalse(table.checkAndMutate(row, F).qualifier(A).ifNotExists().thenPut(put(row, "f:a", "2")));
    assertTrue(table.checkAndMutate(row, F).qualifier(A).ifEquals(bytes("1"))
        .thenMutate(RowMutations.of(List.of(put(row, "f:a", "2"), put(row, "f:b", "3")))));
    assertTrue(table.checkAndMutate(row,
        new SingleColumnValueFilter(F, A, CompareOperator.EQUAL, new BinaryComparator(bytes("2"))))
        .thenDelete(new Delete(row).addColumns(F, A)));
    assertEquals(List.of("f:b=3"), cells(table.get(new Get(row)), false));
  }

  @Test
  void rowMutations() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", "1").addColumn(F, B, bytes("2")));
    Result result = table.mutateRow(RowMutations.of(List.of(new Delete(row).addColumns(F, A), put(row, "f:c", "3"),
        put(row, "g:d", "4"), new Increment(row).addColumn(F, bytes("n"), 2))));
    assertEquals(2, number(result, bytes("n")));
    Result read = table.get(new Get(row));
    assertFalse(read.containsColumn(F, A));
    assertEquals("3", text(read.getValue(F, bytes("c"))));
    assertEquals("4", text(read.getValue(G, bytes("d"))));
    // all or nothing
    RetriesExhaustedWithDetailsException thrown = assertFails(RetriesExhaustedWithDetailsException.class,
        () -> table.mutateRow(RowMutations.of(List.of(put(row, "f:c", "changed"), put(row, "nope:x", "y")))));
    assertInstanceOf(NoSuchColumnFamilyException.class, thrown.getCause(0));
    assertEquals("3", value(table, row, "f:c"));
  }

  @Test
  void rowsAreNeverSeenHalf() throws Exception {
    Table table = shared();
    byte[] row = row("pair");
    table.put(new Put(row).addColumn(F, A, Bytes.toBytes(0L)).addColumn(G, B, Bytes.toBytes(0L)));
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      List<Future<?>> writers = new ArrayList<>();
      for (int t = 0; t < 2; t++) {
        long base = t * 1_000_000L;
        writers.add(threads.submit(() -> {
          try (Table own = connection.getTable(table.getName())) {
            for (int i = 1; i <= 150; i++) {
              byte[] value = Bytes.toBytes(base + i);
              own.put(new Put(row).addColumn(F, A, value).addColumn(G, B, value));
            }
          }
          return null;
        }));
      }
      int reads = 0;
      while (writers.stream().anyMatch(writer -> !writer.isDone()) || reads == 0) {
        Result result = table.get(new Get(row));
        assertEquals(number(result, A), Bytes.toLong(result.getValue(G, B)));
        reads++;
      }
      for (Future<?> writer : writers) {
        writer.get();
      }
    } finally {
      threads.shutdownNow();
    }
  }
}
