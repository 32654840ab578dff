package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.ConnectionUtils;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.NonceGenerator;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** Many actions in one call, buffered writes, durability levels and sizes. */
class BatchTest extends CompatTest {
  @Test
  void mixedActions() throws Exception {
    Table table = shared();
    table.put(List.of(put(row("get"), "f:q", "got"), put(row("delete"), "f:q", "x"), put(row("append"), "f:q", "a")));
    List<Row> actions = List.of(put(row("put"), "f:q", "new"), new Get(row("get")), new Delete(row("delete")),
        new Increment(row("increment")).addColumn(F, Q, 4), new Append(row("append")).addColumn(F, Q, bytes("b")),
        RowMutations.of(List.of(put(row("rows"), "f:a", "1"), put(row("rows"), "f:b", "2"))),
        new Get(row("missing")));
    Object[] results = new Object[actions.size()];
    table.batch(actions, results);
    for (Object result : results) {
      assertInstanceOf(Result.class, result);
    }
    assertEquals("got", text(((Result) results[1]).getValue(F, Q)));
    assertEquals(4, Bytes.toLong(((Result) results[3]).getValue(F, Q)));
    assertEquals("ab", text(((Result) results[4]).getValue(F, Q)));
    assertTrue(((Result) results[6]).isEmpty());
    assertEquals("new", value(table, row("put"), "f:q"));
    assertTrue(table.get(new Get(row("delete"))).isEmpty());
    assertEquals(List.of("f:a=1", "f:b=2"), cells(table.get(new Get(row("rows"))), false));
  }

  @Test
  void oneActionFailsTheOthersDoNot() throws Exception {
    Table table = shared();
    List<Row> actions = List.of(put(row("a"), "f:q", "1"), put(row("b"), "nope:q", "2"), put(row("c"), "f:q", "3"),
        new Get(row("d")).addFamily(bytes("nope")));
    Object[] results = new Object[actions.size()];
    RetriesExhaustedWithDetailsException thrown =
        assertFails(RetriesExhaustedWithDetailsException.class, () -> table.batch(actions, results));
    assertEquals(2, thrown.getNumExceptions());
    assertInstanceOf(Result.class, results[0]);
    assertInstanceOf(NoSuchColumnFamilyException.class, results[1]);
    assertInstanceOf(Result.class, results[2]);
    assertInstanceOf(NoSuchColumnFamilyException.class, results[3]);
    assertEquals("1", value(table, row("a"), "f:q"));
    assertEquals("3", value(table, row("c"), "f:q"));
  }

  @Test
  void bufferedMutator() throws Exception {
    Table table = create(new byte[][] {bytes("0300"), bytes("0600")}, family(F).build());
    BufferedMutatorParams params = new BufferedMutatorParams(table.getName()).writeBufferSize(20_000);
    try (BufferedMutator mutator = connection.getBufferedMutator(params)) {
      for (int i = 0; i < 1000; i++) {
        mutator.mutate(put(bytes(String.format("%04d", i)), "f:q", "v" + i));
      }
      mutator.flush();
      mutator.mutate(new Delete(bytes("0007")));
    }
    int count = 0;
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      for (Result result : scanner) {
        assertEquals("v" + Integer.parseInt(text(result.getRow())), text(result.getValue(F, Q)));
        count++;
      }
    }
    assertEquals(999, count);
  }

  @Test
  void bufferedMutatorTellsOfErrors() throws Exception {
    Table table = shared();
    List<String> failed = new ArrayList<>();
    BufferedMutatorParams params = new BufferedMutatorParams(table.getName()).listener((exception, mutator) -> {
      for (int i = 0; i < exception.getNumExceptions(); i++) {
        failed.add(text(exception.getRow(i).getRow()));
      }
    });
    try (BufferedMutator mutator = connection.getBufferedMutator(params)) {
      mutator.mutate(put(row("good"), "f:q", "1"));
      mutator.mutate(put(row("bad"), "nope:q", "2"));
      mutator.flush();
    }
    assertEquals(List.of(text(row("bad"))), failed);
    assertEquals("1", value(table, row("good"), "f:q"));
  }

  @Test
  void durabilityLevels() throws Exception {
    Table table = shared();
    for (Durability durability : Durability.values()) {
      byte[] row = row(durability.name());
      table.put(put(row, "f:q", "1").setDurability(durability));
      table.increment(new Increment(row).addColumn(F, bytes("n"), 1).setDurability(durability));
      table.append(new Append(row).addColumn(F, Q, bytes("2")).setDurability(durability));
      table.put(List.of(put(row, "f:x", "x").setDurability(durability), put(row, "f:y", "y")));
      table.delete(new Delete(row).addColumns(F, bytes("x")).setDurability(durability));
      assertEquals("12", value(table, row, "f:q"));
      assertEquals("y", value(table, row, "f:y"));
      assertEquals(null, value(table, row, "f:x"));
    }
  }

  @Test
  void cellsOverTheLimitAreRefused() throws Exception {
    Table table = shared();
    table.put(put(row("r"), "f:q", "small"));
    byte[] eleven = new byte[11 << 20];
    // the client has the same limit; switched off there, the server must hold it
    var conf = Target.configuration(registry);
    conf.setInt("hbase.client.keyvalue.maxsize", 0);
    try (Connection other = ConnectionFactory.createConnection(conf);
        Table unlimited = other.getTable(table.getName())) {
      assertFails(DoNotRetryIOException.class, () -> unlimited.put(new Put(row("r")).addColumn(F, Q, eleven)));
      assertEquals("small", value(table, row("r"), "f:q"));
      byte[] nine = new byte[9 << 20];
      nine[nine.length - 1] = 1;
      unlimited.put(new Put(row("big")).addColumn(F, Q, nine));
      assertArrayEquals(nine, table.get(new Get(row("big"))).getValue(F, Q));
      // growing over it is refused as well
      assertFails(DoNotRetryIOException.class,
          () -> unlimited.append(new Append(row("big")).addColumn(F, Q, new byte[2 << 20])));
      table.delete(new Delete(row("big")));
    }
  }

  @Test
  void bigBatches() throws Exception {
    Table table = create(new byte[][] {bytes("1"), bytes("2")}, family(F).build());
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    byte[] value = new byte[1000];
    for (int i = 0; i < 6000; i++) {
      byte[] row = bytes(i % 3 + "-" + i);
      puts.add(new Put(row).addColumn(F, Q, value));
      gets.add(new Get(row));
    }
    table.put(puts);
    // 6 MB of results: more than one answer may hold
    for (Result result : table.get(gets)) {
      assertEquals(1000, result.getValue(F, Q).length);
    }
  }

  /** What the client does when an answer is lost: it sends the same call with the same nonce once more. */
  @Test
  void repeatedNonceAppliesOnce() throws Exception {
    AtomicLong nonce = new AtomicLong(1);
    long group = System.nanoTime(); // a server remembers nonces longer than one run of these tests
    NonceGenerator stuck = new NonceGenerator() {
      @Override
      public long getNonceGroup() {
        return group;
      }

      @Override
      public long newNonce() {
        return nonce.get();
      }
    };
    byte[] row = row("n");
    Table table = shared();
    // the generator is a static field of the client: whatever happens, the usual one must come back
    NonceGenerator usual =
        ConnectionUtils.injectNonceGeneratorForTesting((ClusterConnection) connection, stuck);
    try {
      assertEquals(5, table.incrementColumnValue(row, F, Q, 5));
      assertEquals(5, table.incrementColumnValue(row, F, Q, 5));
      assertEquals(5, table.incrementColumnValue(row, F, Q, 5));
      nonce.set(2);
      assertEquals(10, table.incrementColumnValue(row, F, Q, 5));
      nonce.set(3);
      Append append = new Append(row).addColumn(F, bytes("t"), bytes("x"));
      assertEquals("x", text(table.append(append).getValue(F, bytes("t"))));
      assertEquals("x", text(table.append(append).getValue(F, bytes("t"))));
      nonce.set(4);
      assertEquals("xx", text(table.append(append).getValue(F, bytes("t"))));
    } finally {
      ConnectionUtils.injectNonceGeneratorForTesting((ClusterConnection) connection, usual);
    }
  }
}
