package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Lane;
import halcyon.coprocessor.Methods;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.regionserver.ScannerContext.LimitScope;
import org.apache.hadoop.hbase.regionserver.ScannerContext.NextState;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequestImpl;

/**
 * A flush or a compaction of one family, which the server does. The hooks are run here in HBase's order (DefaultStoreFlusher, HStore,
 * Compactor), and cells come from the server and go back to it.
 */
final class StoreJob {
  static final String FLUSH = "flush", COMPACTION = "compaction";
  /** Cells that a scanner is asked for at a time (hbase.hstore.compaction.kv.max). */
  private static final int CELLS_MAX = 10;

  private final ServedHost host;
  private final ServedStore store;
  private final boolean isFlush;
  private final ScanType scanType;
  private final CompactionRequestImpl request;
  private final long id, number;
  private InternalScanner scanner;

  StoreJob(ServedHost host, long number, long id, Frame call) throws IOException {
    this.host = host;
    this.id = id;
    this.number = number;
    this.store = host.region().store(call.row);
    this.isFlush = call.text.equals(FLUSH);
    this.scanType = call.flag ? ScanType.COMPACT_DROP_DELETES : ScanType.COMPACT_RETAIN_DELETES;
    this.request = new CompactionRequestImpl(List.of());
    RegionInfo region = host.region().getRegionInfo();
    request.setDescription(region.getRegionNameAsString(), store.getColumnFamilyName());
    request.setIsMajor(call.more, call.flag);
    request.setTracker(CompactionLifeCycleTracker.DUMMY);
  }

  /** Whether both are flushes, or compactions, of one family. */
  boolean replaces(StoreJob before) {
    return store == before.store && isFlush == before.isFlush;
  }

  /** What the family is to keep, if that is not what its descriptor says. */
  void begin(Frame answer) throws IOException {
    ScanInfo wanted = isFlush
      ? host.preFlushScannerOpen(store, FlushLifeCycleTracker.DUMMY)
      : host.preCompactScannerOpen(store, scanType, CompactionLifeCycleTracker.DUMMY, request, null);
    store.addChanges(wanted, answer);
  }

  /** `flag`: the coprocessors want the scanner as it is. */
  Frame open() throws IOException {
    InternalScanner from = new Source();
    scanner = isFlush
      ? host.preFlush(store, from, FlushLifeCycleTracker.DUMMY)
      : host.preCompact(store, from, scanType, CompactionLifeCycleTracker.DUMMY, request, null);
    if (scanner == null) throw new IOException("a coprocessor has returned no scanner for a " + (isFlush ? FLUSH : COMPACTION));
    Frame answer = Frame.answer();
    answer.flag = scanner == from;
    return answer;
  }

  Frame next(Frame call) throws IOException {
    ScannerContext context = ScannerContext.newBuilder().setBatchLimit(CELLS_MAX).build();
    Frame.Cells cells = new Frame.Cells();
    cells.hasSequenceIds = true;
    List<Cell> batch = new ArrayList<>();
    boolean more = true;
    for (long bytes = 0; more && bytes < call.bytesMax;) {
      batch.clear();
      more = scanner.next(batch, context);
      for (Cell cell : batch) bytes += PrivateCellUtil.estimatedSerializedSizeOf(cell);
      cells.list.addAll(batch);
      bytes++; // a scanner that gives nothing for long lets the server look after the time
    }
    Frame answer = Frame.answer();
    answer.cells.add(cells);
    answer.more = more;
    return answer;
  }

  /** `flag`: the files are in place. */
  void end(Frame call) throws IOException {
    if (scanner != null) scanner.close();
    if (!call.flag) return;
    if (call.properties.isEmpty()) after(null);
    for (String[] file : call.properties) after(store.file(new Path(file[1])));
  }

  private void after(HStoreFile file) throws IOException {
    if (!isFlush) {
      host.postCompact(store, file, CompactionLifeCycleTracker.DUMMY, request, null);
    } else if (file != null) {
      host.postFlush(store, file, FlushLifeCycleTracker.DUMMY);
    }
  }

  /** The cells that the server would write. */
  private final class Source implements InternalScanner {
    private final Deque<Cell> packet = new ArrayDeque<>();
    private boolean hasEnded;

    private Cell peek() throws IOException {
      while (packet.isEmpty() && !hasEnded) {
        Frame call = Frame.call(Methods.NEXT_CELLS, number);
        call.scanner = id;
        call.bytesMax = Long.MAX_VALUE; // the server has a limit
        Frame answer = Lane.current().call(call);
        answer.cells.forEach(cells -> packet.addAll(cells.list));
        hasEnded = !answer.more;
      }
      return packet.peek();
    }

    /** Cells of one row, up to the limit of the batch. */
    @Override
    public boolean next(List<Cell> out, ScannerContext context) throws IOException {
      if (!context.getKeepProgress()) context.clearProgress();
      Cell row = peek();
      if (row == null) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
      for (;;) {
        out.add(packet.poll());
        context.incrementBatchProgress(1);
        Cell next = peek();
        if (next == null) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
        if (!CellUtil.matchingRows(row, next)) return context.setScannerState(NextState.MORE_VALUES).hasMoreValues();
        if (context.checkBatchLimit(LimitScope.BETWEEN_CELLS)) return context.setScannerState(NextState.BATCH_LIMIT_REACHED).hasMoreValues();
      }
    }

    @Override
    public void close() {
      hasEnded = true;
      packet.clear();
    }
  }
}
