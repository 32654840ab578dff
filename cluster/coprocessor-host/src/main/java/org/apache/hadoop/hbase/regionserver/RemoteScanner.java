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
import org.apache.hadoop.hbase.filter.SkipFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.regionserver.ScannerContext.NextState;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;

/**
 * A scanner over a scanner of the server. Rows come in packets that grow. A filter that only this JVM has is applied here, to rows of which the
 * server has chosen columns and versions; HBase's own filters are applied by the server.
 */
final class RemoteScanner extends RegionScannerImpl {
  private static final int ROWS_MIN = 4, ROWS_MAX = 512;
  private static final long PACKET_BYTES = 256 << 10;
  private static final String OWN_FILTERS = "org.apache.hadoop.hbase.filter.";

  private final long number;
  /** As the client asked for it, with the read point of the first opening. */
  private final Scan scan;
  /** Null: the server filters, or nobody. */
  private final Filter filter;
  private final int batch;
  private final long readPoint;
  private final Deque<Frame.Cells> packet = new ArrayDeque<>();
  /** Of the server's scanner; 0: it has ended. */
  private long id;
  private int rows = ROWS_MIN;
  private boolean isClosed;
  private boolean filterDone;
  /** What a batch limit left of a row that was filtered here. */
  private List<Cell> rest = new ArrayList<>();

  static RemoteScanner open(ServedRegion region, long number, Scan scan) throws IOException {
    return new RemoteScanner(region, number, scan, isForeign(scan.getFilter()) ? scan.getFilter() : null);
  }

  private RemoteScanner(ServedRegion region, long number, Scan asked, Filter foreign) throws IOException {
    super(withoutStores(asked), null, region, 0, 0);
    this.number = number;
    this.batch = asked.getBatch();
    this.filter = foreign;
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
    if (!context.getKeepProgress()) context.clearProgress();
    Frame.Cells next = filter == null ? fetch() : fetchFiltered();
    if (next == null) return context.setScannerState(NextState.NO_MORE_VALUES).hasMoreValues();
    out.addAll(next.list);
    for (Cell cell : next.list) context.incrementSizeProgress(PrivateCellUtil.estimatedSerializedSizeOf(cell), cell.heapSize());
    if (next.partial) return context.setScannerState(NextState.BATCH_LIMIT_REACHED).hasMoreValues();
    boolean more = !isFilterDone() && peek();
    return context.setScannerState(more ? NextState.MORE_VALUES : NextState.NO_MORE_VALUES).hasMoreValues();
  }

  /** Whether the server has another row, whatever the filter says of it. */
  private boolean peek() throws IOException {
    Frame.Cells next = fetch();
    if (next != null) packet.addFirst(next);
    return next != null;
  }

  /** The next row or batch that the filter lets through; null at the end (RegionScannerImpl.nextInternal, UserScanQueryMatcher). */
  private Frame.Cells fetchFiltered() throws IOException {
    while (rest.isEmpty()) {
      if (filter.filterAllRemaining()) filterDone = true;
      Frame.Cells row = filterDone ? null : fetch();
      if (row == null) return null;
      filter.reset();
      Cell first = row.list.get(0);
      if (filter.filterRowKey(first)) continue;
      Cell hint = include(row.list);
      if (filter.hasFilterRow()) filter.filterRowCells(rest);
      if (filter.filterRow()) rest.clear();
      if (hint != null && rest.isEmpty()) skipTo(hint, first);
    }
    Frame.Cells next;
    if (batch <= 0 || rest.size() <= batch) {
      next = Frame.Cells.of(rest);
      rest = new ArrayList<>();
    } else {
      next = Frame.Cells.of(rest.subList(0, batch));
      next.partial = true;
      rest = new ArrayList<>(rest.subList(batch, rest.size()));
    }
    return next;
  }

  /** Puts the cells that the filter includes into `rest`. Returns a hint that leads out of the row. */
  private Cell include(List<Cell> row) throws IOException {
    Cell column = null, hint = null;
    for (Cell cell : row) {
      if (column != null && CellUtil.matchingColumn(column, cell)) continue;
      if (hint != null && comparator.compare(cell, hint) < 0) continue;
      column = null;
      hint = null;
      switch (filter.filterCell(cell)) {
        case INCLUDE:
          rest.add(filter.transformCell(cell));
          break;
        case INCLUDE_AND_NEXT_COL:
          rest.add(filter.transformCell(cell));
          column = cell;
          break;
        case INCLUDE_AND_SEEK_NEXT_ROW:
          rest.add(filter.transformCell(cell));
          return null;
        case NEXT_COL:
          column = cell;
          break;
        case NEXT_ROW:
          return null;
        case SEEK_NEXT_USING_HINT:
          hint = filter.getNextCellHint(cell);
          if (hint == null) return null;
          if (!CellUtil.matchingRows(hint, cell)) return hint;
          break;
        default: // SKIP
      }
    }
    return null;
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
    rest.clear();
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
    return rest.isEmpty() && (filterDone || (filter != null && filter.filterAllRemaining()));
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
