package halcyon.compat;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CoprocessorEnvironment;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.ipc.RpcCall;
import org.apache.hadoop.hbase.ipc.RpcServer;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.MiniBatchOperationInProgress;
import org.apache.hadoop.hbase.regionserver.Region;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WALEdit;

/** An observer whose hooks can be seen from outside. What they do depends on how the row begins. */
public class Marks implements RegionCoprocessor, RegionObserver {
  private static final byte[] F = Bytes.toBytes("f");
  /** Rows that begin with "seen": the mutation as the hook behind its write has found it. */
  private static final Map<String, String> SEEN = new ConcurrentHashMap<>();
  private String label = "";
  /** All hooks of a batch are called by one thread. */
  private final ThreadLocal<String> seen = new ThreadLocal<>();

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public void start(CoprocessorEnvironment environment) {
    label = environment.getConfiguration().get("label", "none");
  }

  private static boolean begins(byte[] row, String with) {
    return Bytes.toString(row).startsWith(with);
  }

  /** Leaves a mark in another row, through the region. */
  private void mark(ObserverContext<RegionCoprocessorEnvironment> context, byte[] row, String hook) throws IOException {
    if (begins(row, "log-") || !begins(row, "log")) return;
    Append append = new Append(Bytes.toBytes("log-" + Bytes.toString(row)));
    append.addColumn(F, Bytes.toBytes("hooks"), Bytes.toBytes(hook + " "));
    context.getEnvironment().getRegion().append(append);
  }

  private static void see(Mutation mutation) {
    if (begins(mutation.getRow(), "seen")) SEEN.put(Bytes.toString(mutation.getRow()), Times.of(mutation));
  }

  /** Who calls, as the RPC call of the thread says it. */
  private static byte[] caller(ObserverContext<RegionCoprocessorEnvironment> context) {
    RpcCall call = RpcServer.getCurrentCall().get();
    StringBuilder text = new StringBuilder(call.getRequestUserName().orElse("nobody"));
    text.append(' ').append(context.getCaller().map(User::getShortName).orElse("nobody"));
    text.append(' ').append(call.getRemoteAddress().isLoopbackAddress()).append(' ').append(call.getRemotePort() > 0);
    text.append(' ').append(call.getClientVersionInfo().getVersionMajor()).append('.').append(call.getClientVersionInfo().getVersionMinor());
    text.append(' ').append(call.isClientCellBlockSupported()).append(' ').append(call.isRetryImmediatelySupported());
    text.append(" connection ").append(shown(call.getConnectionAttributes())).append(" request ").append(shown(call.getRequestAttributes()));
    text.append(' ').append(call.getHeader().getAttributeCount()).append(' ').append(Bytes.toString(call.getRequestAttribute("b")));
    text.append(' ').append(call.getDeadline() > System.currentTimeMillis() && call.getReceiveTime() <= System.currentTimeMillis());
    return Bytes.toBytes(text.toString());
  }

  private static String shown(Map<String, byte[]> attributes) {
    Map<String, String> shown = new TreeMap<>();
    attributes.forEach((name, value) -> shown.put(name, Bytes.toStringBinary(value)));
    return shown.toString();
  }

  @Override
  public void prePut(ObserverContext<RegionCoprocessorEnvironment> context, Put put, WALEdit edit) throws IOException {
    byte[] row = put.getRow();
    if (begins(row, "bypass")) context.bypass();
    if (begins(row, "fail")) throw new DoNotRetryIOException("prePut refuses " + Bytes.toString(row));
    if (begins(row, "slow")) pause(11_000);
    if (begins(row, "garbage")) Disturber.writeGarbage();
    if (begins(row, "halt")) Runtime.getRuntime().halt(3);
    if (begins(row, "bug")) throw new IllegalStateException("a bug in prePut");
    if (begins(row, "add")) put.addColumn(F, Bytes.toBytes("added"), Bytes.toBytes(label));
    if (put.getAttribute("attribute") != null) put.addColumn(F, Bytes.toBytes("attribute"), put.getAttribute("attribute"));
    if (begins(row, "caller")) put.addColumn(F, Bytes.toBytes("caller"), caller(context));
    mark(context, row, "prePut");
  }

  @Override
  public void postPut(ObserverContext<RegionCoprocessorEnvironment> context, Put put, WALEdit edit) throws IOException {
    if (begins(put.getRow(), "latefail")) throw new DoNotRetryIOException("postPut refuses");
    see(put);
    mark(context, put.getRow(), "postPut");
  }

  @Override
  public void preDelete(ObserverContext<RegionCoprocessorEnvironment> context, Delete delete, WALEdit edit) throws IOException {
    if (begins(delete.getRow(), "keep")) context.bypass();
    mark(context, delete.getRow(), "preDelete" + delete.getFamilyCellMap().size());
  }

  @Override
  public void postDelete(ObserverContext<RegionCoprocessorEnvironment> context, Delete delete, WALEdit edit) throws IOException {
    see(delete);
    mark(context, delete.getRow(), "postDelete");
  }

  @Override
  public void preBatchMutate(ObserverContext<RegionCoprocessorEnvironment> context, MiniBatchOperationInProgress<Mutation> batch)
    throws IOException {
    for (int at = 0; at < batch.size(); at++) {
      byte[] row = batch.getOperation(at).getRow();
      mark(context, row, "preBatch" + batch.size());
      if (begins(row, "index") || begins(row, "seenindex")) {
        Put entry = new Put(Bytes.toBytes((begins(row, "seen") ? "s-" : "entry-") + Bytes.toString(row)));
        entry.addColumn(F, Bytes.toBytes("of"), 5, row);
        batch.addOperationsFromCP(at, new Mutation[] { entry });
      }
    }
  }

  @Override
  public void postBatchMutate(ObserverContext<RegionCoprocessorEnvironment> context, MiniBatchOperationInProgress<Mutation> batch)
    throws IOException {
    if (begins(batch.getOperation(0).getRow(), "log-")) return; // a mark itself, on the same thread
    // A write here would wait for this one, which is not over.
    seen.set("postBatch" + batch.size());
  }

  @Override
  public void postBatchMutateIndispensably(ObserverContext<RegionCoprocessorEnvironment> context,
    MiniBatchOperationInProgress<Mutation> batch, boolean success) throws IOException {
    if (begins(batch.getOperation(0).getRow(), "log-")) return;
    for (int at = 0; at < batch.size(); at++) mark(context, batch.getOperation(at).getRow(), seen.get() + " end" + success);
    seen.remove();
  }

  @Override
  public void preGetOp(ObserverContext<RegionCoprocessorEnvironment> context, Get get, List<Cell> results) throws IOException {
    if (begins(get.getRow(), "made")) {
      results.add(new KeyValue(get.getRow(), F, Bytes.toBytes("made"), 7, Bytes.toBytes(label)));
      context.bypass();
    }
    if (begins(get.getRow(), "askcaller")) {
      results.add(new KeyValue(get.getRow(), F, Bytes.toBytes("caller"), 7, caller(context)));
      context.bypass();
    }
    if (begins(get.getRow(), "stamps") || begins(get.getRow(), "seen")) {
      boolean isSeen = begins(get.getRow(), "seen");
      String text = isSeen ? SEEN.get(Bytes.toString(get.getRow())) : Times.afterWrites(context.getEnvironment().getRegion());
      results.add(new KeyValue(get.getRow(), F, Bytes.toBytes("times"), 7, Bytes.toBytes(String.valueOf(text))));
      context.bypass();
    }
    if (begins(get.getRow(), "narrow")) get.addColumn(F, Bytes.toBytes("a"));
    mark(context, get.getRow(), "preGet");
  }

  @Override
  public void postGetOp(ObserverContext<RegionCoprocessorEnvironment> context, Get get, List<Cell> results) {
    if (begins(get.getRow(), "more")) results.add(new KeyValue(get.getRow(), F, Bytes.toBytes("zz"), 8, Bytes.toBytes("post")));
    if (begins(get.getRow(), "hide")) results.clear();
  }

  @Override
  public boolean preExists(ObserverContext<RegionCoprocessorEnvironment> context, Get get, boolean exists) {
    if (begins(get.getRow(), "ghost")) {
      context.bypass();
      return true;
    }
    return exists;
  }

  @Override
  public boolean postExists(ObserverContext<RegionCoprocessorEnvironment> context, Get get, boolean exists) {
    return begins(get.getRow(), "not") ? !exists : exists;
  }

  @Override
  public Result preIncrement(ObserverContext<RegionCoprocessorEnvironment> context, Increment increment) throws IOException {
    if (!begins(increment.getRow(), "bypass")) return null;
    context.bypass();
    return Result.create(new Cell[] { new KeyValue(increment.getRow(), F, Bytes.toBytes("n"), 9, Bytes.toBytes(99L)) });
  }

  @Override
  public Result postIncrement(ObserverContext<RegionCoprocessorEnvironment> context, Increment increment, Result result) {
    see(increment);
    if (!begins(increment.getRow(), "change")) return result;
    return Result.create(new Cell[] { new KeyValue(increment.getRow(), F, Bytes.toBytes("n"), 9, Bytes.toBytes(77L)) });
  }

  @Override
  public Result preAppend(ObserverContext<RegionCoprocessorEnvironment> context, Append append) throws IOException {
    if (!begins(append.getRow(), "bypass")) return null;
    context.bypass();
    return Result.EMPTY_RESULT;
  }

  @Override
  public CheckAndMutateResult preCheckAndMutate(ObserverContext<RegionCoprocessorEnvironment> context, CheckAndMutate check,
    CheckAndMutateResult result) throws IOException {
    mark(context, check.getRow(), "preCheck");
    if (begins(check.getRow(), "seencheck")) ((Put) check.getAction()).addColumn(F, Bytes.toBytes("early"), F);
    if (!begins(check.getRow(), "bypass")) return result;
    context.bypass();
    return new CheckAndMutateResult(true, null);
  }

  @Override
  public CheckAndMutateResult preCheckAndMutateAfterRowLock(ObserverContext<RegionCoprocessorEnvironment> context, CheckAndMutate check,
    CheckAndMutateResult result) {
    if (begins(check.getRow(), "seencheck")) ((Put) check.getAction()).addColumn(F, Bytes.toBytes("late"), F);
    return result;
  }

  @Override
  public CheckAndMutateResult postCheckAndMutate(ObserverContext<RegionCoprocessorEnvironment> context, CheckAndMutate check,
    CheckAndMutateResult result) throws IOException {
    mark(context, check.getRow(), "postCheck" + result.isSuccess());
    if (begins(check.getRow(), "seencheck")) SEEN.put("seenbehind", Times.of((Put) check.getAction()));
    return begins(check.getRow(), "turn") ? new CheckAndMutateResult(!result.isSuccess(), null) : result;
  }

  @Override
  public void preScannerOpen(ObserverContext<RegionCoprocessorEnvironment> context, Scan scan) {
    if (scan.getAttribute("only") != null) scan.addColumn(F, scan.getAttribute("only"));
  }

  @Override
  public RegionScanner postScannerOpen(ObserverContext<RegionCoprocessorEnvironment> context, Scan scan, RegionScanner scanner)
    throws IOException {
    if (scan.getAttribute("caller") != null) throw new DoNotRetryIOException(Bytes.toString(caller(context)));
    if (scan.getAttribute("fail") != null) throw new DoNotRetryIOException("postScannerOpen refuses");
    return scanner;
  }

  @Override
  public boolean postScannerNext(ObserverContext<RegionCoprocessorEnvironment> context, InternalScanner scanner, List<Result> results,
    int limit, boolean more) {
    results.removeIf(result -> begins(result.getRow(), "scanhidden"));
    return more;
  }

  private static void pause(long ms) throws IOException {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException error) {
      throw new IOException(error);
    }
  }

  /** What `Region` answers to a coprocessor, as text. */
  static String look(Region region, byte[] row) throws IOException {
    StringBuilder text = new StringBuilder();
    for (Cell cell : region.get(new Get(row)).listCells()) text.append(Bytes.toString(CellUtil.cloneValue(cell))).append(' ');
    Scan scan = new Scan().withStartRow(row).setLimit(2);
    try (RegionScanner scanner = region.getScanner(scan)) {
      List<Cell> cells = new java.util.ArrayList<>();
      boolean more = scanner.next(cells);
      text.append(cells.size()).append(more);
    }
    return text.toString() + Arrays.asList(region.getTableDescriptor().getTableName(), region.isReadOnly());
  }
}
