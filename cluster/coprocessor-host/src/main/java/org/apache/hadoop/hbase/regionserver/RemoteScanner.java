package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Lane;
import halcyon.coprocessor.Methods;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.UnknownScannerException;
import org.apache.hadoop.hbase.client.PackagePrivateFieldAccessor;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.filter.CompareFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FilterWrapper;
import org.apache.hadoop.hbase.filter.SkipFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.regionserver.ScannerContext.LimitScope;
import org.apache.hadoop.hbase.regionserver.ScannerContext.NextState;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;

/**
 * A scanner over a scanner of the server. Rows come in packets that grow. A filter that only this JVM has is applied here, to rows of which the
 * server has chosen columns and versions; HBase's own filters are applied by the server.
 */
final class RemoteScanner extends RegionScannerImpl {
  private static final int ROWS_MIN = 4, ROWS_MAX = 512;
  /** Of the heap, for a cell in a block or a memstore (ByteBufferKeyValue); the server counts it as well. */
  private static final long CELL_OVERHEAD = 32;
  private static final long PACKET_BYTES = 256 << 10;
  private static final String OWN_FILTERS = "org.apache.hadoop.hbase.filter.";

  private final ServedRegion served;
  private final long number;
  /** As the client asked for it, with the read point of the first opening. */
  private final Scan scan;
  /** Null: the server filters, or nobody. */
  private final FilterWrapper filter;
  /** Null: as the filter. */
  private final FilteredStores stores;
  private final int batch;
  private final long readPoint;
  private final Deque<Frame.Cells> packet = new ArrayDeque<>();
  /** Of the server's scanner; 0: it has ended. */
  private long id;
  private int rows = ROWS_MIN;
  private boolean isClosed;
  /** Cells between two looks at the clock (StoreScanner). */
  private final long cellsPerCheck;
  private long cellsSeen;
  /** The row, or the part of one, that is being read; null between rows. */
  private Frame.Cells row;
  private int at;
  /** The first cell of the row before. */
  private Cell before;
  /** The row that the packet begins with, if it was looked at already. */
  private Frame.Cells peeked;

  static RemoteScanner open(ServedRegion region, long number, Scan scan) throws IOException {
    return new RemoteScanner(region, number, scan, isForeign(scan.getFilter()) ? scan.getFilter() : null);
  }

  private RemoteScanner(ServedRegion region, long number, Scan asked, Filter foreign) throws IOException {
    super(withoutStores(asked), null, region, 0, 0);
    this.served = region;
    this.number = number;
    this.batch = asked.getBatch();
    this.filter = foreign == null ? null : new FilterWrapper(foreign);
    this.cellsPerCheck = Math.max(1, region.configuration().getLong(StoreScanner.HBASE_CELLS_SCANNED_PER_HEARTBEAT_CHECK,
      StoreScanner.DEFAULT_HBASE_CELLS_SCANNED_PER_HEARTBEAT_CHECK));
    Set<byte[]> families = asked.hasFamilies() ? asked.getFamilyMap().keySet() : region.getTableDescriptor().getColumnFamilyNames();
    this.stores = filter == null ? null : new FilteredStores(filter, asked.isReversed(), families);
    this.scan = new Scan(asked);
    PackagePrivateFieldAccessor.setMvccReadPoint(this.scan, PackagePrivateFieldAccessor.getMvccReadPoint(asked));
    if (foreign != null) {
      // A filter looks at whole rows.
      this.scan.setFilter(null);
      this.scan.setBatch(-1);
      foreign.setReversed(asked.isReversed());
    }
    this.readPoint = begin(this.scan);
    PackagePrivateFieldAccessor.setMvccReadPoint(this.scan, readPoint);
  }

  /** Of the superclass nothing is wanted but its type. */
  private static Scan withoutStores(Scan asked) {
    Scan scan = new Scan();
    scan.setBatch(asked.getBatch());
    scan.setMaxResultSize(asked.getMaxResultSize());
    if (asked.getId() != null) scan.setId(asked.getId());
    return scan;
  }

  /** Whether the server does not know the filter or a part of it. */
  static boolean isForeign(Filter filter) {
    if (filter == null) return false;
    if (filter.getClass() == FilterList.class) {
      return ((FilterList) filter).getFilters().stream().anyMatch(RemoteScanner::isForeign);
    }
    if (filter.getClass() == SkipFilter.class) return isForeign(((SkipFilter) filter).getFilter());
    if (filter.getClass() == WhileMatchFilter.class) return isForeign(((WhileMatchFilter) filter).getFilter());
    if (filter instanceof CompareFilter && ((CompareFilter) filter).getComparator() != null
      && !isOwn(((CompareFilter) filter).getComparator().getClass())) return true;
    return !isOwn(filter.getClass());
  }

  /** HBase's own classes are not inside others; those of its tests may be. */
  private static boolean isOwn(Class<?> of) {
    return of.getName().startsWith(OWN_FILTERS) && of.getName().indexOf('$') < 0;
  }

  private long begin(Scan from) throws IOException {
    Frame call = Frame.call(Methods.OPEN_SCAN, number);
    call.scan = ProtobufUtil.toScan(from).toByteArray();
    served.addOptions(scan, call);
    Frame answer = Lane.current().call(call);
    id = answer.scanner;
    return answer.readPoint;
  }

  /** The next row, or batch of a row; null at the end. Rows that all their families have passed are not there. */
  private Frame.Cells nextRow() throws IOException {
    if (stores == null) return fetch();
    for (;;) {
      if (stores.areOver()) return null;
      Cell next = before == null ? null : stores.next(before);
      if (next != null) skipTo(next);
      Frame.Cells found = fetch();
      if (found == null) return null;
      before = found.list.get(0);
      stores.leaveOutPassed(found.list);
      if (!found.list.isEmpty()) return found;
    }
  }

  private Frame.Cells fetch() throws IOException {
    while (packet.isEmpty() && id != 0) {
      Frame call = Frame.call(Methods.NEXT_ROWS, number);
      call.scanner = id;
      call.count = rows;
      call.bytesMax = PACKET_BYTES;
      Frame answer = Lane.current().call(call);
      packet.addAll(answer.cells);
      rows = Math.min(rows * 2, ROWS_MAX);
      if (!answer.more) id = 0; // the server has closed it
    }
    return packet.poll();
  }

  @Override
  public boolean nextRaw(List<Cell> out) throws IOException {
    return nextRaw(out, getContext());
  }

  @Override
  public synchronized boolean next(List<Cell> out, ScannerContext context) throws IOException {
    return nextRaw(out, context);
  }

  @Override
  public boolean nextRaw(List<Cell> out, ScannerContext context) throws IOException {
    if (isClosed) throw new UnknownScannerException("Scanner was closed");
    List<Cell> found = out.isEmpty() ? out : new ArrayList<>();
    boolean more = nextInternal(found, context);
    if (found != out) out.addAll(found);
    if (filter == null) return more;
    if (!context.mayHaveMoreCellsInRow()) filter.reset();
    return more && !filter.filterAllRemaining();
  }

  /** RegionScannerImpl.nextInternal, over rows of the server instead of stores. */
  private boolean nextInternal(List<Cell> results, ScannerContext context) throws IOException {
    int batchBefore = context.getBatchProgress();
    long sizeBefore = context.getDataSizeProgress(), heapBefore = context.getHeapSizeProgress();
    for (;;) {
      setProgress(context, batchBefore, sizeBefore, heapBefore);
      boolean wholeRows = filter != null && filter.hasFilterRow();
      LimitScope scope = wholeRows ? LimitScope.BETWEEN_ROWS : LimitScope.BETWEEN_CELLS;
      if (wholeRows) {
        context.setSizeLimitScope(scope);
        context.setTimeLimitScope(scope);
      }
      if (context.checkTimeLimit(LimitScope.BETWEEN_CELLS)) return true;
      if (row == null) {
        row = nextRow();
        if (row == null) {
          if (wholeRows) filter.filterRowCells(results);
          return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
        }
        if (filter != null && filter.filterRowKey(row.list.get(0))) {
          if (filter.filterAllRemaining()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
          // HBase's stores pass the row as well, and the filter sends them on.
          for (Cell cell : row.list) stores.match(cell);
          if (!skipRow()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
          if (context.checkAnyLimitReached(scope)) return true;
          continue;
        }
      }
      if (isStopped(results, context)) return true;
      if (row.partial) {
        leaveRow();
        return context.setScannerState(NextState.BATCH_LIMIT_REACHED).hasMoreValues();
      }
      boolean isEmpty = results.isEmpty(), excluded = false;
      if (wholeRows) {
        excluded = filter.filterRowCellsWithRet(results) == FilterWrapper.FilterRowRetCode.EXCLUDE;
        setProgress(context, batchBefore, sizeBefore, heapBefore);
        context.incrementBatchProgress(results.size());
        for (Cell cell : results) count(cell, context);
      } else if (filter != null && !isEmpty) {
        excluded = filter.filterRow();
      }
      if (isEmpty || excluded || results.isEmpty()) {
        results.clear();
        if (!skipRow()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
        if (context.checkAnyLimitReached(scope)) return true;
        continue;
      }
      leaveRow();
      return context.setScannerState(peek() ? NextState.MORE_VALUES : NextState.NO_MORE_VALUES).hasMoreValues();
    }
  }

  private static void setProgress(ScannerContext context, int batch, long size, long heap) {
    if (context.getKeepProgress()) {
      context.setProgress(batch, size, heap);
    } else {
      context.clearProgress();
    }
  }

  private static void count(Cell cell, ScannerContext context) {
    long size = PrivateCellUtil.estimatedSerializedSizeOf(cell); // with its length before it
    context.incrementSizeProgress(size, size - Integer.BYTES + CELL_OVERHEAD);
  }

  /** Takes what is left of the row. True: a limit came before its end, or with it; the state says which. */
  private boolean isStopped(List<Cell> results, ScannerContext context) throws IOException {
    while (at < row.list.size()) {
      if (cellsSeen % cellsPerCheck == 0 && context.checkTimeLimit(LimitScope.BETWEEN_CELLS)) {
        return context.setScannerState(NextState.TIME_LIMIT_REACHED_MID_ROW).hasMoreValues();
      }
      cellsSeen++;
      Cell cell = row.list.get(at++);
      context.setLastPeekedCell(cell);
      Cell included = filter == null ? cell : stores.match(cell);
      if (included == null) continue;
      results.add(included);
      count(included, context);
      context.incrementBatchProgress(1);
      boolean moreInRow = at < row.list.size() || row.partial;
      NextState state = null;
      if (moreInRow && context.checkBatchLimit(LimitScope.BETWEEN_CELLS)) {
        state = NextState.BATCH_LIMIT_REACHED;
      } else if (context.checkSizeLimit(LimitScope.BETWEEN_CELLS)) {
        state = moreInRow ? NextState.SIZE_LIMIT_REACHED_MID_ROW : NextState.SIZE_LIMIT_REACHED;
      }
      if (state == null) continue;
      if (at == row.list.size()) leaveRow();
      return context.setScannerState(state).hasMoreValues();
    }
    if (row.partial) return false;
    boolean isLate = context.checkTimeLimit(LimitScope.BETWEEN_CELLS);
    // A store is asked for its next cell, which is of another row, unless it looks at the clock before: cursors show that.
    if (!(isLate && cellsSeen % cellsPerCheck == 0) && peek()) context.setLastPeekedCell(packet.peek().list.get(0));
    if (!isLate) return false;
    leaveRow();
    return context.setScannerState(NextState.TIME_LIMIT_REACHED).hasMoreValues();
  }

  private void leaveRow() {
    row = null;
    at = 0;
    if (stores != null) stores.endRow();
  }

  /** Leaves a row of which the client gets nothing (RegionScannerImpl.nextRow). False: that was the last one. */
  private boolean skipRow() throws IOException {
    Cell first = row.list.get(0);
    leaveRow();
    if (filter != null) {
      filter.reset();
      RegionCoprocessorHost host = served.getCoprocessorHost();
      if (host != null && !host.postScannerFilterRow(this, first)) return false;
    }
    return peek();
  }

  /** Whether the server has another row, whatever the filter says of it. */
  private boolean peek() throws IOException {
    if (!packet.isEmpty() && packet.peek() == peeked) return true;
    peeked = nextRow();
    if (peeked != null) packet.addFirst(peeked);
    return peeked != null;
  }

  /** Continues at the row of a cell behind the present one. */
  private void skipTo(Cell cell) throws IOException {
    while (!packet.isEmpty()) {
      int left = comparator.compareRows(packet.peek().list.get(0), cell);
      if (scan.isReversed() ? left <= 0 : left >= 0) return;
      packet.poll();
    }
    if (id == 0) return;
    rows = ROWS_MIN; // who jumps may want few rows of each place
    restart(CellUtil.cloneRow(cell));
  }

  /** The old scanner holds the read point until the new one has it, or a flush in between would take away what that sees. */
  private void restart(byte[] row) throws IOException {
    long before = id;
    packet.clear();
    id = 0;
    try {
      begin(from(row));
    } finally {
      closeRemote(before);
    }
  }

  @Override
  public synchronized boolean reseek(byte[] row) throws IOException {
    if (row == null) throw new IllegalArgumentException("Row cannot be null.");
    restart(row);
    leaveRow();
    before = null;
    return true;
  }

  /** The scan from a row on, at the same read point. */
  private Scan from(byte[] row) throws IOException {
    Scan from = new Scan(scan).withStartRow(row, true);
    PackagePrivateFieldAccessor.setMvccReadPoint(from, readPoint);
    return from;
  }

  private void closeRemote(long which) throws IOException {
    if (which == 0) return;
    Frame call = Frame.call(Methods.CLOSE_SCAN, number);
    call.scanner = which;
    Lane.current().call(call);
  }

  @Override
  public synchronized void close() {
    isClosed = true;
    try {
      closeRemote(id);
    } catch (IOException gone) {
      // The server closes it with the connection.
    }
    id = 0;
    super.close();
  }

  @Override
  public synchronized boolean isFilterDone() throws IOException {
    return filter != null && filter.filterAllRemaining();
  }

  @Override
  public long getMvccReadPoint() {
    return readPoint;
  }

  @Override
  public int getBatch() {
    return batch;
  }
}
