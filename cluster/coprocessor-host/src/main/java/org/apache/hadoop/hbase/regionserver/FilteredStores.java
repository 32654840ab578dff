package org.apache.hadoop.hbase.regionserver;

import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.InnerStoreCellComparator;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Where a filter has sent each family of a scan (StoreScanner, UserScanQueryMatcher). HBase has a scanner for each family, and it alone follows
 * what the filter says of a cell: one family may be rows ahead of another, and never shows the filter a cell before the one that it was sent to.
 * Filters count on that; Phoenix's skip scans keep a hint for each family and throw if one comes twice. Used by one thread.
 */
final class FilteredStores {
  /** Of the cells of one store, in which HBase compares lengths of families only: a hint need not name the family. */
  private static final InnerStoreCellComparator ORDER = InnerStoreCellComparator.INNER_STORE_COMPARATOR;

  /** One family. */
  private static final class Store {
    /** No cell before it is shown to the filter; null: it is reached. */
    Cell hint;
    /** The rest of this column of the present row is left out. */
    Cell column;
    boolean rowIsOver;
    /** The filter had enough when it was asked for a cell of this family. */
    boolean isOver;
  }

  private final Filter filter;
  private final boolean isReversed;
  private final Map<byte[], Store> stores = new TreeMap<>(Bytes.BYTES_COMPARATOR);
  /** Of the cell before, so that a family is not looked up for each of its cells. */
  private Cell last;
  private Store ofLast;

  FilteredStores(Filter filter, boolean isReversed, Set<byte[]> families) {
    this.filter = filter;
    this.isReversed = isReversed;
    for (byte[] family : families) stores.put(family, new Store());
  }

  private Store store(Cell cell) {
    if (last == null || !CellUtil.matchingFamily(last, cell)) {
      ofLast = stores.computeIfAbsent(CellUtil.cloneFamily(cell), unknown -> new Store());
    }
    last = cell;
    return ofLast;
  }

  /** Whether the family of a cell was sent behind it. */
  private boolean hasPassed(Store store, Cell cell) {
    if (store.isOver) return true;
    if (store.hint == null) return false;
    int rows = ORDER.compareRows(cell, store.hint);
    boolean isBefore = rows == 0 ? ORDER.compare(cell, store.hint) < 0 : isReversed ? rows > 0 : rows < 0;
    if (!isBefore) store.hint = null;
    return isBefore;
  }

  /** Takes the cells out of a row that their families have passed: for HBase's scanners they are not there. */
  void leaveOutPassed(List<Cell> row) {
    boolean isBehindAll = true;
    for (Store store : stores.values()) isBehindAll &= store.hint == null && !store.isOver;
    if (isBehindAll) return;
    for (Iterator<Cell> cells = row.iterator(); cells.hasNext();) {
      Cell cell = cells.next();
      if (hasPassed(store(cell), cell)) cells.remove();
    }
  }

  /** What the filter makes of a cell; null: nothing. */
  Cell match(Cell cell) throws IOException {
    Store store = store(cell);
    if (store.rowIsOver || hasPassed(store, cell)) return null;
    if (store.column != null && CellUtil.matchingQualifier(store.column, cell)) return null;
    store.column = null;
    if (filter.filterAllRemaining()) {
      store.isOver = true;
      return null;
    }
    switch (filter.filterCell(cell)) {
      case INCLUDE:
        return filter.transformCell(cell);
      case INCLUDE_AND_NEXT_COL:
        store.column = cell;
        return filter.transformCell(cell);
      case INCLUDE_AND_SEEK_NEXT_ROW:
        store.rowIsOver = true;
        return filter.transformCell(cell);
      case NEXT_COL:
        store.column = cell;
        return null;
      case NEXT_ROW:
        store.rowIsOver = true;
        return null;
      case SEEK_NEXT_USING_HINT:
        Cell hint = filter.getNextCellHint(cell);
        if (hint == null) return null;
        int order = ORDER.compare(hint, cell);
        if (isReversed ? order < 0 : order > 0) store.hint = hint;
        return null;
      default: // SKIP
        return null;
    }
  }

  void endRow() {
    for (Store store : stores.values()) {
      store.column = null;
      store.rowIsOver = false;
    }
  }

  /** Whether the filter had enough in each family. */
  boolean areOver() {
    for (Store store : stores.values()) {
      if (!store.isOver) return false;
    }
    return !stores.isEmpty();
  }

  /** The nearest cell behind this row that any family was sent to; null: one of them goes on with the row that follows. */
  Cell next(Cell row) {
    Cell nearest = null;
    for (Store store : stores.values()) {
      if (store.isOver) continue;
      if (store.hint == null || isNotBehind(store.hint, row)) return null;
      if (nearest == null || isNotBehind(store.hint, nearest)) nearest = store.hint;
    }
    return nearest;
  }

  private boolean isNotBehind(Cell cell, Cell row) {
    int order = ORDER.compareRows(cell, row);
    return isReversed ? order >= 0 : order <= 0;
  }
}
