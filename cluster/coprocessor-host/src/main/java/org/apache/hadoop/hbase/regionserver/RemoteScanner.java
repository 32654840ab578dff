package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Lane;
import halcyon.coprocessor.Methods;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
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
  private final int batch;
  private final long readPoint;
  private final Deque<Frame.Cells> packet = new ArrayDeque<>();
  /** Of the server's scanner; 0: it has ended. */
  private long id;
  private int rows = ROWS_MIN;
  private boolean isClosed;
  /** Cells between two looks at the clock (StoreScanner). */
  private final long cellsPerCheck;
  private final boolean hasOneFamily;
  private long cellsSeen;
  /** The row, or the part of one, that is being read; null between rows. */
  private Frame.Cells row;
  private int at;
  /** Cells of this column are skipped, and those of this family. */
  private Cell column, family;
  /** What the filter wants to see next, and the cell at which it said so. */
  private Cell hint, hintFrom;

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
    this.hasOneFamily = (asked.hasFamilies() ? asked.numFamilies() : region.getTableDescriptor().getColumnFamilyCount()) == 1;
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

  /** The next row, or batch of a row; null at the end. */
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
        row = fetch();
        if (row == null) {
          if (wholeRows) filter.filterRowCells(results);
          return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
        }
        if (filter != null && filter.filterRowKey(row.list.get(0))) {
          if (filter.filterAllRemaining()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
          skipRow();
          if (!peek()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
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
        skipRow();
        if (!peek()) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
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
      Cell included = filter == null ? cell : match(cell);
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

  /** What the filter makes of a cell; null: nothing (StoreScanner, UserScanQueryMatcher). What ends a row there ends it in one family. */
  private Cell match(Cell cell) throws IOException {
    if (family != null && CellUtil.matchingFamily(family, cell)) return null;
    if (column != null && CellUtil.matchingColumn(column, cell)) return null;
    if (hint != null && CellUtil.matchingFamily(hintFrom, cell) && comparator.compare(cell, hint) < 0) return null;
    column = null;
    hint = null;
    switch (filter.filterCell(cell)) {
      case INCLUDE:
        return filter.transformCell(cell);
      case INCLUDE_AND_NEXT_COL:
        column = cell;
        return filter.transformCell(cell);
      case INCLUDE_AND_SEEK_NEXT_ROW:
        family = cell;
        return filter.transformCell(cell);
      case NEXT_COL:
        column = cell;
        return null;
      case NEXT_ROW:
        family = cell;
        return null;
      case SEEK_NEXT_USING_HINT:
        Cell next = filter.getNextCellHint(cell);
        if (next == null) return null;
        int order = comparator.compare(next, cell);
        if (scan.isReversed() ? order >= 0 : order <= 0) return null;
        hint = next;
        hintFrom = cell;
        if (!CellUtil.matchingRows(next, cell)) family = cell;
        return null;
      default: // SKIP
        return null;
    }
  }

  private void leaveRow() {
    row = null;
    at = 0;
    column = null;
    family = null;
    hint = null;
    hintFrom = null;
  }

  /** Leaves a row of which the client gets nothing, for the one of the filter's hint if that is known for all families. */
  private void skipRow() throws IOException {
    Cell next = hint, first = row.list.get(0);
    leaveRow();
    if (filter != null) filter.reset();
    if (next != null && hasOneFamily && !CellUtil.matchingRows(next, first)) skipTo(next, first);
  }

  /** Whether the server has another row, whatever the filter says of it. */
  private boolean peek() throws IOException {
    Frame.Cells next = fetch();
    if (next != null) packet.addFirst(next);
    return next != null;
  }

  /** Continues at the row of a hint. */
  private void skipTo(Cell hint, Cell from) throws IOException {
    int order = comparator.compareRows(hint, from);
    if (scan.isReversed() ? order >= 0 : order <= 0) return;
    while (!packet.isEmpty()) {
      int left = comparator.compareRows(packet.peek().list.get(0), hint);
      if (scan.isReversed() ? left <= 0 : left >= 0) return;
      packet.poll();
    }
    if (id != 0) reseek(CellUtil.cloneRow(hint));
  }

  @Override
  public synchronized boolean reseek(byte[] row) throws IOException {
    if (row == null) throw new IllegalArgumentException("Row cannot be null.");
    closeRemote();
    packet.clear();
    leaveRow();
    begin(from(row));
    return true;
  }

  /** The scan from a row on, at the same read point. */
  private Scan from(byte[] row) throws IOException {
    Scan from = new Scan(scan).withStartRow(row, true);
    PackagePrivateFieldAccessor.setMvccReadPoint(from, readPoint);
    return from;
  }

  private void closeRemote() throws IOException {
    if (id == 0) return;
    Frame call = Frame.call(Methods.CLOSE_SCAN, number);
    call.scanner = id;
    id = 0;
    Lane.current().call(call);
  }

  @Override
  public synchronized void close() {
    isClosed = true;
    try {
      closeRemote();
    } catch (IOException gone) {
      // The server closes it with the connection.
    }
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
