package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.CallState;
import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Methods;
import halcyon.coprocessor.Mutations;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.UnknownScannerException;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.ipc.ServerRpcController;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/**
 * HBase's own host of the coprocessors of one region, and what the server asks of it. Loading, order, bypass, removal after an error and the
 * rest are HBase's; here is what HRegion and RSRpcServices do around the hooks.
 */
public final class ServedHost extends RegionCoprocessorHost {
  private final ServedRegion region;
  private final long hooks;
  private final Set<String> uncalled = new TreeSet<>();
  private final ConcurrentHashMap<Long, ServedScan> scanners = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Long, StoreJob> jobs = new ConcurrentHashMap<>();
  private final AtomicLong scannerIds = new AtomicLong();

  public ServedHost(ServedRegion region, RegionServerServices services, Configuration configuration) {
    super(region, services, configuration);
    this.region = region;
    long mask = 0;
    for (RegionCoprocessorEnvironment environment : coprocEnvironments) {
      if (environment.getInstance().getRegionObserver().isPresent()) {
        mask |= HookMask.of(environment.getInstance().getRegionObserver().get());
        uncalled.addAll(HookMask.uncalled(environment.getInstance().getRegionObserver().get()));
      }
    }
    this.hooks = mask;
  }

  public ServedRegion region() {
    return region;
  }

  public long hooks() {
    return hooks;
  }

  /** Hooks that a class overrides and that nobody calls here. */
  public Set<String> uncalled() {
    return uncalled;
  }

  public Frame dispatch(Frame call, CallState state) throws Exception {
    switch (call.method) {
      case Methods.PRE_CLOSE: return announceClose(call);
      case Methods.UNLOAD: return unload(call);
      case Methods.STORE_BEGIN: return beginJob(call);
      case Methods.STORE_OPEN: return job(call).open();
      case Methods.STORE_NEXT: return job(call).next(call);
      case Methods.STORE_END: return endJob(call);
      case Methods.READ_OPTIONS: return readOptions(call);
      case Methods.BULK_LOAD: return bulkLoad(call);
      case Methods.EXECUTE: return execute(call);
      case Methods.PRE_GET: return preGet(call);
      case Methods.POST_GET: return postGet(call);
      case Methods.WHOLE_GET: return found(region.get(get(call), true));
      case Methods.PRE_MUTATE: return preMutate(call, state);
      case Methods.PRE_BATCH: return preBatch(state);
      case Methods.POST_MUTATE: return state.pop(Batch.class).after(call);
      case Methods.PRE_CHECK: return preCheck(call, state);
      case Methods.PRE_CHECK_LOCKED: return preCheckLocked(state);
      case Methods.POST_CHECK: return postCheck(call, state);
      case Methods.PRE_SCANNER_OPEN: return openedScan(call);
      case Methods.SCANNER_OPEN: return openScanner(call);
      case Methods.SCANNER_NEXT: return nextResults(call);
      case Methods.SCANNER_CLOSE: return closeScanner(call);
      case Methods.NOTE: return note(call);
      default: throw new UnsupportedOperationException("method " + call.method + " of the protocol");
    }
  }

  private Frame announceClose(Frame call) throws IOException {
    for (Long id : scanners.keySet()) {
      ServedScan scan = scanners.remove(id);
      if (scan != null) scan.scanner.close();
    }
    preClose(call.flag);
    return Frame.answer();
  }

  private Frame unload(Frame call) {
    postClose(call.flag); // also ends the environments
    return Frame.answer();
  }

  /** RSRpcServices.execServiceOnRegion. */
  private Frame execute(Frame call) throws IOException {
    ClientProtos.CoprocessorServiceCall service = ClientProtos.CoprocessorServiceCall.parseFrom(call.value);
    com.google.protobuf.Message result = region.execService(new ServerRpcController(), service);
    Frame answer = Frame.answer();
    answer.text = result.getClass().getName();
    answer.value = result.toByteArray();
    return answer;
  }

  // Gets

  private static Get get(Frame call) throws IOException {
    return ProtobufUtil.toGet(ClientProtos.Get.parseFrom(call.get));
  }

  private static Frame found(List<Cell> cells) {
    Frame answer = Frame.answer();
    answer.cells.add(Frame.Cells.of(cells));
    return answer;
  }

  /** The answer has `more` where the read is still to be done. */
  private Frame preGet(Frame call) throws IOException {
    Get get = get(call);
    if (call.flag) {
      Boolean exists = preExists(get);
      if (exists != null) {
        Frame answer = Frame.answer();
        answer.flag = exists;
        return answer;
      }
    }
    List<Cell> results = new ArrayList<>();
    boolean bypassed = preGet(get, results);
    Frame answer = found(results);
    answer.flag = !results.isEmpty();
    answer.more = !bypassed;
    byte[] changed = ProtobufUtil.toGet(get).toByteArray();
    if (!Arrays.equals(changed, call.get)) answer.get = changed;
    return answer;
  }

  private Frame postGet(Frame call) throws IOException {
    Get get = get(call);
    List<Cell> cells = new ArrayList<>(call.cells.get(0).list);
    postGet(get, cells);
    Frame answer = found(cells);
    answer.flag = !cells.isEmpty();
    if (call.flag) answer.flag = postExists(get, answer.flag);
    return answer;
  }

  // Mutations

  static List<Mutation> mutations(Frame call) throws IOException {
    List<Mutation> mutations = new ArrayList<>(call.mutations.size());
    for (Frame.Part part : call.mutations) mutations.add(Mutations.read(part));
    return mutations;
  }

  private Frame preMutate(Frame call, CallState state) throws IOException {
    state.beginOperation(Batch.class);
    Batch batch = new Batch(this, mutations(call));
    batch.beforeEach();
    if (call.flag) batch.runBatchHooks();
    if ((hooks & (HookMask.AFTER_WRITE | HookMask.PRE_BATCH)) != 0) state.push(batch);
    return batch.answer();
  }

  private Frame preBatch(CallState state) throws IOException {
    try {
      return state.peek(Batch.class).beforeBatch();
    } catch (Throwable failed) {
      state.pop(Batch.class);
      throw failed;
    }
  }

  // Checks

  private Frame preCheck(Frame call, CallState state) throws IOException {
    state.beginOperation(Check.class);
    Check check = new Check(call);
    Frame answer = checked(preCheckAndMutate(check.check));
    if (!answer.more) return answer;
    state.push(check);
    return check.withChanges(answer);
  }

  private Frame preCheckLocked(CallState state) throws IOException {
    Check check = state.peek(Check.class);
    Frame answer = checked(preCheckAndMutateAfterRowLock(check.check));
    return answer.more ? check.withChanges(answer) : answer;
  }

  private Frame postCheck(Frame call, CallState state) throws IOException {
    Check check = state.pop(Check.class);
    check.takeOver(call);
    return checked(postCheckAndMutate(check.check, outcome(call)));
  }

  private static CheckAndMutateResult outcome(Frame call) {
    return new CheckAndMutateResult(call.flag, call.cells.isEmpty() ? null : Result.create(call.cells.get(0).list));
  }

  /** `more`: there is no result yet. */
  private static Frame checked(CheckAndMutateResult result) {
    Frame answer = Frame.answer();
    answer.more = result == null;
    if (result == null) return answer;
    answer.flag = result.isSuccess();
    if (result.getResult() != null) answer.cells.add(Frame.Cells.of(cells(result.getResult())));
    return answer;
  }

  static List<Cell> cells(Result result) {
    return result.rawCells() == null ? List.of() : Arrays.asList(result.rawCells());
  }

  // Scans

  private static Scan scan(Frame call) throws IOException {
    return ProtobufUtil.toScan(ClientProtos.Scan.parseFrom(call.scan));
  }

  private Frame openedScan(Frame call) throws IOException {
    Scan scan = withFamilies(scan(call));
    preScannerOpen(scan);
    Frame answer = Frame.answer();
    answer.scan = ProtobufUtil.toScan(scan).toByteArray();
    return answer;
  }

  /** RSRpcServices.newRegionScanner. */
  private Scan withFamilies(Scan scan) {
    if (!scan.hasFamilies()) region.getTableDescriptor().getColumnFamilyNames().forEach(scan::addFamily);
    return scan;
  }

  private Frame openScanner(Frame call) throws IOException {
    Scan scan = withFamilies(scan(call));
    preScannerOpen(scan);
    RegionScanner core = region.getScanner(scan);
    RegionScanner scanner;
    try {
      scanner = postScannerOpen(scan, core);
    } catch (Throwable failed) {
      core.close();
      throw failed;
    }
    long id = scannerIds.incrementAndGet();
    scanners.put(id, new ServedScan(scanner));
    Frame answer = Frame.answer();
    answer.scanner = id;
    answer.readPoint = scanner.getMvccReadPoint();
    return answer;
  }

  /** RSRpcServices.scan. */
  private Frame nextResults(Frame call) throws IOException {
    ServedScan scan = scanners.get(call.scanner);
    if (scan == null) throw new UnknownScannerException("scanner " + call.scanner + " in the JVM of coprocessors");
    int limit = (int) Math.min(call.count, Integer.MAX_VALUE);
    List<Result> results = new ArrayList<>();
    Boolean bypass = preScannerNext(scan.scanner, results, limit);
    boolean more = bypass != null && bypass;
    Frame answer = Frame.answer();
    if (bypass == null) {
      more = scan.next(call, results, answer);
      more = postScannerNext(scan.scanner, results, limit, more);
    }
    for (Result result : results) {
      Frame.Cells cells = Frame.Cells.of(cells(result));
      cells.partial = result.mayHaveMoreCellsInRow();
      answer.cells.add(cells);
    }
    answer.more = more;
    if (scan.scanner.isFilterDone() && results.isEmpty()) answer.text = ServedScan.DONE;
    scan.note(results);
    return answer;
  }

  private Frame closeScanner(Frame call) throws IOException {
    ServedScan scan = scanners.remove(call.scanner);
    if (scan == null || preScannerClose(scan.scanner)) return Frame.answer();
    scan.scanner.close();
    postScannerClose(scan.scanner);
    return Frame.answer();
  }

  // Flushes, compactions, and what families keep

  private Frame beginJob(Frame call) throws IOException {
    long id = scannerIds.incrementAndGet();
    StoreJob job = new StoreJob(this, call.region, id, call);
    Frame answer = Frame.answer();
    answer.scanner = id;
    job.begin(answer);
    // The server does one of a kind at a time: of one before, it could not tell the end.
    jobs.values().removeIf(job::replaces);
    jobs.put(id, job);
    return answer;
  }

  private StoreJob job(Frame call) throws IOException {
    StoreJob job = jobs.get(call.scanner);
    if (job == null) throw new IOException("no flush or compaction " + call.scanner + " has begun in the JVM of coprocessors");
    return job;
  }

  private Frame endJob(Frame call) throws IOException {
    StoreJob job = jobs.remove(call.scanner);
    if (job != null) job.end(call);
    return Frame.answer();
  }

  private Frame readOptions(Frame call) throws IOException {
    Frame answer = Frame.answer();
    region.addOptions(new Scan(get(call)), answer);
    return answer;
  }

  // Bulk loads

  /** SecureBulkLoadManager.secureBulkLoadHFiles. A hook may change what is loaded. */
  private Frame bulkLoad(Frame call) throws IOException {
    List<Pair<byte[], String>> asked = new ArrayList<>();
    Map<byte[], List<Path>> loaded = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    for (String[] file : call.properties) {
      byte[] family = file[0].getBytes(StandardCharsets.ISO_8859_1);
      if (asked.size() < call.count) asked.add(new Pair<>(family, file[1]));
      else loaded.computeIfAbsent(family, none -> new ArrayList<>()).add(new Path(file[1]));
    }
    if (call.flag) postBulkLoadHFile(asked, loaded);
    else preBulkLoadHFile(asked);
    Frame answer = Frame.answer();
    for (Pair<byte[], String> file : asked) {
      answer.properties.add(new String[] { new String(file.getFirst(), StandardCharsets.ISO_8859_1), file.getSecond() });
    }
    return answer;
  }

  // What happens by itself

  private Frame note(Frame call) throws IOException {
    switch (call.text) {
      case "preFlush":
        preFlush(FlushLifeCycleTracker.DUMMY);
        break;
      case "postFlush":
        postFlush(FlushLifeCycleTracker.DUMMY);
        break;
      default:
        throw new UnsupportedOperationException("note " + call.text);
    }
    return Frame.answer();
  }
}
