package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncBufferedMutator;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ScanResultConsumer;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** The asynchronous client, which shares little code with the other one in 2.6. */
class AsyncTest extends CompatTest {
  private AsyncTable<?> asyncShared() throws Exception {
    return async().getTable(shared().getName(), ForkJoinPool.commonPool());
  }

  private AsyncConnection async() {
    return Target.asyncConnection(registry);
  }

  @Test
  void singleRows() throws Exception {
    AsyncTable<?> table = asyncShared();
    byte[] row = row("r");
    get(table.put(put(row, "f:q", "v")));
    assertEquals("v", text(get(table.get(new Get(row))).getValue(F, Q)));
    assertTrue(get(table.exists(new Get(row))));
    assertEquals(3, Bytes.toLong(get(table.increment(new Increment(row).addColumn(F, bytes("n"), 3)))
        .getValue(F, bytes("n"))));
    assertEquals("vw", text(get(table.append(new Append(row).addColumn(F, Q, bytes("w")))).getValue(F, Q)));
    assertTrue(get(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, Q, bytes("vw")).build(put(row, "f:q", "x")))).isSuccess());
    assertFalse(get(table.checkAndMutate(
        CheckAndMutate.newBuilder(row).ifEquals(F, Q, bytes("vw")).build(put(row, "f:q", "y")))).isSuccess());
    tick();
    get(table.mutateRow(RowMutations.of(List.of(put(row, "f:a", "1"), new Delete(row).addColumns(F, bytes("n"))))));
    assertEquals(List.of("f:a=1", "f:q=x"), cells(get(table.get(new Get(row))), false));
    tick();
    get(table.delete(new Delete(row)));
    assertTrue(get(table.get(new Get(row))).isEmpty());
  }

  @Test
  void manyRows() throws Exception {
    AsyncTable<?> table = asyncShared();
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      puts.add(put(row(String.format("%03d", i)), "f:q", "v" + i));
      gets.add(new Get(row(String.format("%03d", i))));
    }
    get(table.putAll(puts));
    List<Result> results = get(table.getAll(gets));
    for (int i = 0; i < 100; i++) {
      assertEquals("v" + i, text(results.get(i).getValue(F, Q)));
    }
    List<Row> mixed = List.of(put(row("x"), "f:q", "1"), new Get(row("001")), new Delete(row("002")));
    assertEquals(3, get(table.batchAll(mixed)).size());
    assertEquals(100, get(table.scanAll(scanMine())).size());

    List<CompletableFuture<Object>> futures = table.batch(List.of(put(row("y"), "f:q", "1"), put(row("z"), "nope:q", "1")));
    get(futures.get(0));
    assertFails(NoSuchColumnFamilyException.class, () -> get(futures.get(1)));
  }

  @Test
  void scans() throws Exception {
    AsyncTable<?> table = asyncShared();
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 60; i++) {
      puts.add(put(row(String.format("%02d", i)), "f:q", "v" + i).addColumn(G, Q, bytes("w")));
    }
    get(table.putAll(puts));
    List<String> names = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scanMine().setCaching(7))) {
      for (Result result : scanner) {
        names.add(name(result));
      }
    }
    assertEquals(60, names.size());
    assertEquals("00", names.get(0));
    assertEquals("59", name(get(table.scanAll(
        new Scan().setReversed(true).withStartRow(row("~")).setLimit(1))).get(0)));
    assertEquals(10, get(table.scanAll(scanMine().setLimit(10).setMaxResultSize(1))).size());
    assertEquals(120, get(table.scanAll(scanMine().setBatch(1))).size());

    CompletableFuture<Integer> consumed = new CompletableFuture<>();
    async().getTable(shared().getName(), ForkJoinPool.commonPool()).scan(scanMine(), new ScanResultConsumer() {
      private int count;

      @Override
      public boolean onNext(Result result) {
        return ++count < 25;
      }

      @Override
      public void onError(Throwable error) {
        consumed.completeExceptionally(error);
      }

      @Override
      public void onComplete() {
        consumed.complete(count);
      }
    });
    assertEquals(25, get(consumed));
  }

  @Test
  void bufferedMutator() throws Exception {
    AsyncTable<?> table = asyncShared();
    List<CompletableFuture<Void>> futures = new ArrayList<>();
    try (AsyncBufferedMutator mutator = async().getBufferedMutator(table.getName())) {
      for (int i = 0; i < 200; i++) {
        futures.add(mutator.mutate(put(row("" + i), "f:q", "v")));
      }
    }
    for (CompletableFuture<Void> future : futures) {
      get(future);
    }
    assertEquals(200, get(table.scanAll(scanMine())).size());
  }

  @Test
  void adminAndLocations() throws Exception {
    AsyncAdmin asyncAdmin = async().getAdmin();
    TableName name = dropLater(freshName());
    get(asyncAdmin.createTable(descriptor(name, family(F).build()), new byte[][] {bytes("m")}));
    assertTrue(get(asyncAdmin.tableExists(name)));
    assertTrue(get(asyncAdmin.isTableEnabled(name)));
    assertTrue(get(asyncAdmin.listTableNames()).contains(name));
    assertEquals(name, get(asyncAdmin.getDescriptor(name)).getTableName());
    assertEquals(2, get(asyncAdmin.getRegions(name)).size());
    HRegionLocation location = get(async().getRegionLocator(name).getRegionLocation(bytes("z")));
    assertEquals("m", text(location.getRegion().getStartKey()));
    assertEquals(2, get(async().getRegionLocator(name).getAllRegionLocations()).size());
    AsyncTable<?> table = async().getTable(name, ForkJoinPool.commonPool());
    get(table.put(put(bytes("z"), "f:q", "v")));
    get(asyncAdmin.flush(name));
    assertEquals("v", text(get(table.get(new Get(bytes("z")))).getValue(F, Q)));
    assertFalse(get(asyncAdmin.getClusterMetrics()).getLiveServerMetrics().isEmpty());
    get(asyncAdmin.disableTable(name));
    assertTrue(get(asyncAdmin.isTableDisabled(name)));
    get(asyncAdmin.deleteTable(name));
    assertFalse(get(asyncAdmin.tableExists(name)));
    assertFails(TableNotFoundException.class, () -> get(asyncAdmin.getDescriptor(name)));
  }
}
