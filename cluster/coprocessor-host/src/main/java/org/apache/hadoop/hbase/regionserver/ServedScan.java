package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.regionserver.ScannerContext.LimitScope;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;

/** A scan of a client in this JVM, and what one call of it may take (RSRpcServices.scan). */
final class ServedScan {
  /** The scan is over, whatever the region still has. */
  static final String DONE = "done";

  final RegionScanner scanner;
  /** Of the last result that was sent, if that may be a part of its row. */
  private byte[] partialRow;

  ServedScan(RegionScanner scanner) {
    this.scanner = scanner;
  }

  /**
   * Adds results until a limit of the call is reached. The answer gets `flag` for a heartbeat, `cursor`, and `text` if all rows that the client
   * wants are there. Returns whether the region has more.
   */
  boolean next(Frame call, List<Result> results, Frame answer) throws IOException {
    // Parts of rows would not be in order behind results of a coprocessor.
    boolean partials = call.partials && results.isEmpty();
    boolean heartbeats = call.timeMs > 0 && partials;
    ScannerContext context = ScannerContext.newBuilder(true)
      .setSizeLimit(partials ? LimitScope.BETWEEN_CELLS : LimitScope.BETWEEN_ROWS, call.bytesMax, call.bytesMax, Long.MAX_VALUE)
      .setBatchLimit(scanner.getBatch())
      .setTimeLimit(heartbeats ? LimitScope.BETWEEN_CELLS : LimitScope.BETWEEN_ROWS,
        heartbeats ? EnvironmentEdgeManager.currentTime() + call.timeMs : -1)
      .build();
    List<Cell> values = new ArrayList<>();
    long rows = 0;
    boolean more = true;
    for (int count = 0; count < call.count;) {
      context.setBatchProgress(0);
      values.clear();
      more = scanner.nextRaw(values, context);
      if (!values.isEmpty()) {
        byte[] open = results.isEmpty() ? partialRow : openRow(results.get(results.size() - 1));
        if (open != null && !CellUtil.matchingRows(values.get(0), open) && isEnough(++rows, call, answer)) break;
        boolean partial = context.mayHaveMoreCellsInRow();
        results.add(Result.create(values, null, false, partial));
        count++;
        if (!partial && isEnough(++rows, call, answer)) break;
      } else if (!more && !results.isEmpty()) {
        // The last part had all that the filter leaves of its row.
        int last = results.size() - 1;
        Result result = results.get(last);
        if (result.mayHaveMoreCellsInRow()) results.set(last, Result.create(result.rawCells(), null, false, false));
      }
      boolean sizeReached = context.checkSizeLimit(LimitScope.BETWEEN_ROWS), timeReached = context.checkTimeLimit(LimitScope.BETWEEN_ROWS);
      if (more && (timeReached || (sizeReached && results.isEmpty()))) {
        answer.flag = true;
        Cell peeked = context.getLastPeekedCell();
        if (peeked != null) answer.cursor = CellUtil.cloneRow(peeked);
      }
      if (sizeReached || timeReached || !more) break;
    }
    return more;
  }

  /** To be called with the results of each call. */
  void note(List<Result> results) {
    if (!results.isEmpty()) partialRow = openRow(results.get(results.size() - 1));
  }

  private static byte[] openRow(Result result) {
    return result.mayHaveMoreCellsInRow() ? result.getRow() : null;
  }

  private static boolean isEnough(long rows, Frame call, Frame answer) {
    if (call.rowsMax == 0 || rows < call.rowsMax) return false;
    answer.text = DONE;
    return true;
  }
}
