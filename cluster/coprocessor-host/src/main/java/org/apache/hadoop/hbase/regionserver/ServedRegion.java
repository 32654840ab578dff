package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Lane;
import halcyon.coprocessor.Methods;
import halcyon.coprocessor.Mutations;
import halcyon.coprocessor.ServerStub;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.filter.ByteArrayComparable;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.wal.WALEdit;

/**
 * A region of the server: its methods ask the server on the connection of the calling thread. It is an HRegion because
 * RegionCoprocessorHost wants one, and has neither files nor a memstore.
 */
public final class ServedRegion extends HRegion {
  private final long number;
  private final Map<byte[], ServedStore> served = new ConcurrentSkipListMap<>(Bytes.BYTES_COMPARATOR);

  public ServedRegion(long number, RegionInfo info, TableDescriptor table, Configuration configuration, ServerStub server) throws IOException {
    super(new NoFiles(configuration, CommonFSUtils.getTableDir(new Path("/"), table.getTableName()), info), null, configuration, table, null);
    this.number = number;
  }

  /** The server has the files. */
  private static final class NoFiles extends HRegionFileSystem {
    NoFiles(Configuration configuration, Path table, RegionInfo info) throws IOException {
      super(configuration, FileSystem.getLocal(configuration), table, info);
    }

    @Override
    Path createStoreDir(String family) {
      return getStoreDir(family);
    }

    @Override
    public void setStoragePolicy(String family, String policy) {
      // It is the server's business.
    }
  }

  /** The server's, with the values of the table's descriptor. */
  public Configuration configuration() {
    return conf;
  }

  private Frame call(int method) {
    return Frame.call(method, number);
  }

  private static Frame ask(Frame call) throws IOException {
    return Lane.current().call(call);
  }

  private static UnsupportedOperationException unsupported(String method) {
    return new UnsupportedOperationException("Region." + method + " in the JVM of coprocessors");
  }

  // Reads

  @Override
  public Result get(Get get) throws IOException {
    List<Cell> cells = get(get, true);
    boolean existence = get.isCheckExistenceOnly();
    return Result.create(cells, existence ? !cells.isEmpty() : null, getRegionInfo().getReplicaId() != 0);
  }

  @Override
  public List<Cell> get(Get get, boolean withCoprocessor) throws IOException {
    List<Cell> results = new ArrayList<>();
    if (withCoprocessor && getCoprocessorHost() != null && getCoprocessorHost().preGet(get, results)) return results;
    results.addAll(read(get));
    if (withCoprocessor && getCoprocessorHost() != null) getCoprocessorHost().postGet(get, results);
    return results;
  }

  List<Cell> read(Get get) throws IOException {
    if (RemoteScanner.isForeign(get.getFilter())) {
      List<Cell> cells = new ArrayList<>();
      try (RegionScanner scanner = getScanner(new Scan(get))) {
        scanner.nextRaw(cells);
      }
      return cells;
    }
    Frame call = call(Methods.READ_ROW);
    call.get = ProtobufUtil.toGet(get).toByteArray();
    addOptions(new Scan(get), call);
    return ask(call).cells.get(0).list;
  }

  @Override
  public RegionScannerImpl getScanner(Scan scan) throws IOException {
    return getScanner(scan, null);
  }

  @Override
  public RegionScannerImpl getScanner(Scan scan, List<KeyValueScanner> additionalScanners) throws IOException {
    if (additionalScanners != null && !additionalScanners.isEmpty()) throw unsupported("getScanner with additional scanners");
    return RemoteScanner.open(this, number, scan);
  }

  // Writes

  @Override
  public void put(Put put) throws IOException {
    checkOne(batchMutate(new Mutation[] { put }));
  }

  @Override
  public void delete(Delete delete) throws IOException {
    checkOne(batchMutate(new Mutation[] { delete }));
  }

  private static void checkOne(OperationStatus[] statuses) throws IOException {
    if (statuses[0].getOperationStatusCode() == HConstants.OperationStatusCode.SUCCESS) return;
    throw new DoNotRetryIOException(statuses[0].getExceptionMsg());
  }

  @Override
  public OperationStatus[] batchMutate(Mutation[] mutations) throws IOException {
    return mutate(Arrays.asList(mutations), false, HConstants.NO_NONCE, HConstants.NO_NONCE);
  }

  @Override
  public OperationStatus[] batchMutate(Mutation[] mutations, boolean atomic, long nonceGroup, long nonce) throws IOException {
    return mutate(Arrays.asList(mutations), atomic, nonceGroup, nonce);
  }

  /** The mutations themselves get the times with which they were written. */
  private OperationStatus[] mutate(Collection<? extends Mutation> mutations, boolean atomic, long nonceGroup, long nonce)
    throws IOException {
    Frame call = call(Methods.MUTATE);
    for (Mutation mutation : mutations) call.mutations.add(Mutations.write(mutation));
    call.flag = atomic;
    call.nonceGroup = nonceGroup;
    call.nonce = nonce;
    Frame answer = ask(call);
    takeOver(mutations, answer);
    OperationStatus[] statuses = new OperationStatus[mutations.size()];
    for (int at = 0; at < statuses.length; at++) {
      Frame.Part part = answer.mutations.get(at);
      if (part.status == Frame.Part.FAILED) {
        statuses[at] = new OperationStatus(HConstants.OperationStatusCode.FAILURE, part.failure.message);
      } else {
        Result result = part.result == null ? Result.EMPTY_RESULT : Result.create(part.result.list);
        statuses[at] = new OperationStatus(HConstants.OperationStatusCode.SUCCESS, result);
      }
    }
    return statuses;
  }

  private static void takeOver(Collection<? extends Mutation> mutations, Frame answer) throws IOException {
    int at = 0;
    for (Mutation mutation : mutations) Mutations.takeOver(mutation, answer.mutations.get(at++).cells);
  }

  @Override
  public Result append(Append append) throws IOException {
    return modify(append, HConstants.NO_NONCE, HConstants.NO_NONCE);
  }

  @Override
  public Result append(Append append, long nonceGroup, long nonce) throws IOException {
    return modify(append, nonceGroup, nonce);
  }

  @Override
  public Result increment(Increment increment) throws IOException {
    return modify(increment, HConstants.NO_NONCE, HConstants.NO_NONCE);
  }

  @Override
  public Result increment(Increment increment, long nonceGroup, long nonce) throws IOException {
    return modify(increment, nonceGroup, nonce);
  }

  private Result modify(Mutation mutation, long nonceGroup, long nonce) throws IOException {
    OperationStatus[] statuses = mutate(List.of(mutation), true, nonceGroup, nonce);
    checkOne(statuses);
    return statuses[0].getResult();
  }

  @Override
  public Result mutateRow(RowMutations mutations) throws IOException {
    List<Cell> cells = new ArrayList<>();
    for (OperationStatus status : mutate(mutations.getMutations(), true, HConstants.NO_NONCE, HConstants.NO_NONCE)) {
      if (status.getOperationStatusCode() != HConstants.OperationStatusCode.SUCCESS) throw new DoNotRetryIOException(status.getExceptionMsg());
      if (status.getResult().rawCells() != null) cells.addAll(Arrays.asList(status.getResult().rawCells()));
    }
    return Result.create(cells);
  }

  @Override
  public void mutateRowsWithLocks(Collection<Mutation> mutations, Collection<byte[]> rowsToLock, long nonceGroup, long nonce)
    throws IOException {
    List<RowLock> locks = new ArrayList<>();
    try {
      lockRows(rowsToLock, locks);
      mutateAll(mutations, nonceGroup, nonce);
    } finally {
      for (RowLock lock : locks) lock.release();
    }
  }

  @Override
  public CheckAndMutateResult checkAndMutate(CheckAndMutate check) throws IOException {
    return checkAndMutate(check, HConstants.NO_NONCE, HConstants.NO_NONCE);
  }

  @Override
  public CheckAndMutateResult checkAndMutate(CheckAndMutate check, long nonceGroup, long nonce) throws IOException {
    Frame call = call(Methods.CHECK_AND_MUTATE);
    call.condition = ProtobufUtil.toCondition(check.getRow(), check.getFamily(), check.getQualifier(), check.getCompareOp(), check.getValue(),
      check.getFilter(), check.getTimeRange(), false).toByteArray();
    List<Mutation> mutations = Check.mutations(check);
    for (Mutation mutation : mutations) call.mutations.add(Mutations.write(mutation));
    call.nonceGroup = nonceGroup;
    call.nonce = nonce;
    Frame answer = ask(call);
    if (!answer.mutations.isEmpty()) takeOver(mutations, answer);
    return new CheckAndMutateResult(answer.flag, answer.cells.isEmpty() ? null : Result.create(answer.cells.get(0).list));
  }

  @Override
  public boolean checkAndMutate(byte[] row, byte[] family, byte[] qualifier, CompareOperator op, ByteArrayComparable comparator,
    TimeRange timeRange, Mutation mutation) throws IOException {
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row).timeRange(timeRange);
    builder.ifMatches(family, qualifier, op, comparator.getValue());
    return checkAndMutate(ofOne(builder, mutation)).isSuccess();
  }

  @Override
  public boolean checkAndMutate(byte[] row, Filter filter, TimeRange timeRange, Mutation mutation) throws IOException {
    return checkAndMutate(ofOne(CheckAndMutate.newBuilder(row).timeRange(timeRange).ifMatches(filter), mutation)).isSuccess();
  }

  @Override
  public boolean checkAndRowMutate(byte[] row, byte[] family, byte[] qualifier, CompareOperator op, ByteArrayComparable comparator,
    TimeRange timeRange, RowMutations mutations) throws IOException {
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row).timeRange(timeRange);
    return checkAndMutate(builder.ifMatches(family, qualifier, op, comparator.getValue()).build(mutations)).isSuccess();
  }

  @Override
  public boolean checkAndRowMutate(byte[] row, Filter filter, TimeRange timeRange, RowMutations mutations) throws IOException {
    return checkAndMutate(CheckAndMutate.newBuilder(row).timeRange(timeRange).ifMatches(filter).build(mutations)).isSuccess();
  }

  private static CheckAndMutate ofOne(CheckAndMutate.Builder builder, Mutation mutation) throws IOException {
    if (mutation instanceof Put) return builder.build((Put) mutation);
    if (mutation instanceof Delete) return builder.build((Delete) mutation);
    if (mutation instanceof Increment) return builder.build((Increment) mutation);
    if (mutation instanceof Append) return builder.build((Append) mutation);
    throw new DoNotRetryIOException("a mutation of class " + mutation.getClass().getName());
  }

  // Row locks: the server keeps them, for the connection of the thread.

  @Override
  public RowLock getRowLock(byte[] row, boolean readLock) throws IOException {
    Lane lane = Lane.current();
    lane.call(rowCall(Methods.LOCK_ROW, row, readLock));
    return new RowLock() {
      private boolean released;

      @Override
      public synchronized void release() {
        if (released) return;
        released = true;
        try {
          lane.call(rowCall(Methods.UNLOCK_ROW, row, readLock));
        } catch (IOException gone) {
          // The server has released it with the connection.
        }
      }
    };
  }

  @Override
  public RowLock getRowLock(byte[] row) throws IOException {
    return getRowLock(row, false);
  }

  private Frame rowCall(int method, byte[] row, boolean readLock) {
    Frame call = call(method);
    call.row = row;
    call.flag = readLock;
    return call;
  }

  @Override
  public void processRowsWithLocks(RowProcessor<?, ?> processor) throws IOException {
    processRowsWithLocks(processor, HConstants.NO_NONCE, HConstants.NO_NONCE);
  }

  @Override
  public void processRowsWithLocks(RowProcessor<?, ?> processor, long nonceGroup, long nonce) throws IOException {
    processRowsWithLocks(processor, rowProcessorTimeout, nonceGroup, nonce);
  }

  /** The server writes the mutations, all or none, and its log has them; what the processor adds to its WALEdit is in no log. */
  @Override
  public void processRowsWithLocks(RowProcessor<?, ?> processor, long timeout, long nonceGroup, long nonce) throws IOException {
    WALEdit edit = new WALEdit();
    processor.preProcess(this, edit);
    if (processor.readOnly()) {
      RowProcessing.run(processor, this, null, null, timeout);
      processor.postProcess(this, edit, true);
      return;
    }
    boolean success = false;
    List<RowLock> locks = new ArrayList<>();
    try {
      lockRows(processor.getRowsToLock(), locks);
      List<Mutation> mutations = new ArrayList<>();
      RowProcessing.run(processor, this, mutations, edit, timeout);
      if (!mutations.isEmpty()) {
        processor.preBatchMutate(this, edit);
        mutateAll(mutations, nonceGroup, nonce);
        processor.postBatchMutate(this);
      }
      success = true;
    } finally {
      for (RowLock lock : locks) lock.release();
    }
    processor.postProcess(this, edit, success);
  }

  private void lockRows(Collection<byte[]> rowsToLock, List<RowLock> locks) throws IOException {
    List<byte[]> rows = new ArrayList<>(rowsToLock);
    rows.sort(Bytes.BYTES_COMPARATOR);
    for (byte[] row : rows) locks.add(getRowLock(row, false));
  }

  private void mutateAll(Collection<Mutation> mutations, long nonceGroup, long nonce) throws IOException {
    for (OperationStatus status : mutate(mutations, true, nonceGroup, nonce)) {
      if (status.getOperationStatusCode() != HConstants.OperationStatusCode.SUCCESS) throw new DoNotRetryIOException(status.getExceptionMsg());
    }
  }

  @Override
  public void startRegionOperation() {
    // The server looks at each call whether the region is open.
  }

  @Override
  public void startRegionOperation(Operation op) {
    // As above.
  }

  @Override
  public void closeRegionOperation() {
    // As above.
  }

  @Override
  public void closeRegionOperation(Operation op) {
    // As above.
  }

  // State

  @Override
  public boolean isAvailable() {
    return true;
  }

  @Override
  public boolean isClosed() {
    return false;
  }

  @Override
  public boolean isClosing() {
    return false;
  }

  @Override
  public boolean isReadOnly() {
    return getTableDescriptor().isReadOnly() || getRegionInfo().getReplicaId() != 0;
  }

  @Override
  public Configuration getReadOnlyConfiguration() {
    return new org.apache.hadoop.hbase.coprocessor.ReadOnlyConfiguration(conf);
  }

  private long counter(int at) {
    try {
      return Long.parseLong(ask(call(Methods.COUNTERS)).text.split(" ")[at]);
    } catch (IOException gone) {
      throw new java.io.UncheckedIOException(gone);
    }
  }

  @Override
  public long getReadRequestsCount() {
    return counter(0);
  }

  @Override
  public long getFilteredReadRequestsCount() {
    return counter(1);
  }

  @Override
  public long getWriteRequestsCount() {
    return counter(2);
  }

  @Override
  public long getMemStoreDataSize() {
    return counter(3);
  }

  @Override
  public long getMemStoreHeapSize() {
    return counter(4);
  }

  @Override
  public long getMemStoreOffHeapSize() {
    return 0;
  }

  @Override
  public FlushResultImpl flushcache(List<byte[]> families, boolean writeFlushRequestWalMarker, FlushLifeCycleTracker tracker) {
    throw unsupported("flush, which waits; requestFlush does not");
  }

  @Override
  public void requestFlush(FlushLifeCycleTracker tracker) throws IOException {
    ask(call(Methods.FLUSH));
  }

  @Override
  public long getSmallestReadPoint() {
    return counter(5);
  }

  // Stores: only what they are called and what they keep

  ServedStore store(byte[] family) throws IOException {
    ServedStore known = served.get(family);
    if (known != null) return known;
    ColumnFamilyDescriptor descriptor = getTableDescriptor().getColumnFamily(family);
    if (descriptor == null) throw new NoSuchColumnFamilyException("family " + Bytes.toStringBinary(family));
    ServedStore store = new ServedStore(this, descriptor);
    ServedStore before = served.putIfAbsent(family, store);
    return before == null ? store : before;
  }

  /** What the families of a read keep, as the coprocessors say (HStore.getScanner). */
  void addOptions(Scan scan, Frame frame) throws IOException {
    ServedHost host = (ServedHost) getCoprocessorHost();
    if (host == null || (host.hooks() & HookMask.STORE_SCANNER) == 0) return;
    for (byte[] family : scan.hasFamilies() ? scan.getFamilyMap().keySet() : getTableDescriptor().getColumnFamilyNames()) {
      if (getTableDescriptor().hasColumnFamily(family)) store(family).addChanges(scan, frame);
    }
  }

  @Override
  public List<HStore> getStores() {
    List<HStore> stores = new ArrayList<>();
    for (byte[] family : getTableDescriptor().getColumnFamilyNames()) stores.add(getStore(family));
    return stores;
  }

  @Override
  public HStore getStore(byte[] family) {
    if (!getTableDescriptor().hasColumnFamily(family)) return null;
    try {
      return store(family);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  // What needs files

  @Override
  public List<String> getStoreFileList(byte[][] columns) {
    throw unsupported("getStoreFileList");
  }

  @Override
  public boolean refreshStoreFiles() {
    throw unsupported("refreshStoreFiles");
  }

  @Override
  public long getMaxFlushedSeqId() {
    throw unsupported("getMaxFlushedSeqId");
  }

  @Override
  public long getOldestHfileTs(boolean majorCompactionOnly) {
    throw unsupported("getOldestHfileTs");
  }

  @Override
  public Map<byte[], Long> getMaxStoreSeqId() {
    throw unsupported("getMaxStoreSeqId");
  }

  @Override
  public long getEarliestFlushTimeForAllStores() {
    throw unsupported("getEarliestFlushTimeForAllStores");
  }

  @Override
  public CompactionState getCompactionState() {
    throw unsupported("getCompactionState");
  }

  @Override
  public void requestCompaction(String why, int priority, boolean major, CompactionLifeCycleTracker tracker) {
    throw unsupported("requestCompaction");
  }

  @Override
  public void requestCompaction(byte[] family, String why, int priority, boolean major, CompactionLifeCycleTracker tracker) {
    throw unsupported("requestCompaction");
  }

  @Override
  public boolean waitForFlushes(long timeout) {
    throw unsupported("waitForFlushes");
  }

  @Override
  public int getMinBlockSizeBytes() {
    return HConstants.DEFAULT_BLOCKSIZE;
  }
}
