package halcyon.judges;

import java.io.IOException;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.metrics.ScanMetrics;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What a server would do wrong, made in the client: -Dfault=NAME. A judge that does not say no to it is blind.
 *
 * <p>Each fault begins after the first {@link #SOUND} calls of its method, so that a program finds its feet.
 */
enum Fault {
  NONE,
  /** Each second scan is refused in its middle. */
  SCANS_FAIL,
  /** A get finds a value that is cut. */
  VALUES_ARE_CUT,
  /** A thread of the client ends. */
  GETS_END_THREADS,
  /** Each second get ends in an exception that is no IOException. */
  GETS_BREAK,
  /** Increments take longer than the program runs. */
  INCREMENTS_HANG,
  /** All puts are refused from then on, for a time or for ever. */
  PUTS_FAIL,
  /** Puts are acknowledged and are in no WAL, so a kill loses them. */
  PUTS_SKIP_THE_WAL,
  /** Counters are ahead, as if increments were done twice. */
  COUNTERS_ARE_AHEAD,
  /** Appends are refused, from the first. */
  APPENDS_FAIL,
  /** Of two systems that are compared the first fails each tenth put as HBase fails by a bug of its own. */
  FIRST_IS_BROKEN,
  /** As that, and the second does more in the same call. */
  FIRST_IS_BROKEN_SECOND_DOES_MORE;

  static final Fault CHOSEN = valueOf(System.getProperty("fault", "NONE"));
  private static final long SOUND = Long.getLong("sound", 50);
  private static final AtomicLong CALLS = new AtomicLong();
  private static final ConcurrentHashMap<Integer, AtomicLong> PUTS = new ConcurrentHashMap<>();

  /** A call of {@code Table}. */
  interface Call {
    Object answer() throws Throwable;
  }

  /** One of two systems that are compared. */
  Object ofPair(int system, Table table, Object[] arguments, Call call) throws Throwable {
    boolean isDue = arguments.length == 1 && arguments[0] instanceof Put
        && PUTS.computeIfAbsent(system, key -> new AtomicLong()).incrementAndGet() % 10 == 0;
    if (isDue && system == 1) {
      throw new IOException("Cannot invoke \"planted\" because \"x\" is null");
    }
    if (isDue && this == FIRST_IS_BROKEN_SECOND_DOES_MORE) {
      Put put = (Put) arguments[0];
      table.put(new Put(Bytes.toBytes("planted")).addColumn(put.getFamilyCellMap().firstKey(), null, null));
    }
    return call.answer();
  }

  Object around(String method, Call call) throws Throwable {
    boolean isReached = switch (this) {
      case SCANS_FAIL -> method.equals("getScanner");
      case VALUES_ARE_CUT, GETS_END_THREADS, GETS_BREAK, COUNTERS_ARE_AHEAD -> method.equals("get");
      case INCREMENTS_HANG -> method.equals("increment");
      case PUTS_FAIL -> method.equals("put");
      case APPENDS_FAIL -> method.equals("append") || method.equals("batch");
      default -> false;
    };
    if (!isReached || CALLS.incrementAndGet() <= (this == APPENDS_FAIL || this == COUNTERS_ARE_AHEAD ? 0 : SOUND)) {
      return call.answer();
    }
    switch (this) {
      case PUTS_FAIL, APPENDS_FAIL -> throw new DoNotRetryIOException("planted: " + method + " is refused");
      case GETS_END_THREADS -> throw new LinkageError("planted: a thread ends");
      case GETS_BREAK -> {
        if (CALLS.get() % 2 == 0) {
          throw new IllegalStateException("planted: the client is broken");
        }
      }
      case INCREMENTS_HANG -> Thread.sleep(3_000);
      default -> { }
    }
    Object answer = call.answer();
    return switch (this) {
      case SCANS_FAIL -> CALLS.get() % 2 == 0 ? failing((ResultScanner) answer) : answer;
      case VALUES_ARE_CUT -> answer instanceof Result result ? changed(result, false) : answer;
      case COUNTERS_ARE_AHEAD -> answer instanceof Result result ? changed(result, true) : answer;
      default -> answer;
    };
  }

  /** Cuts each value to 5 bytes, or adds a hundred to a counter. */
  private static Result changed(Result result, boolean isAhead) {
    if (result.isEmpty()) {
      return result;
    }
    Cell[] cells = Arrays.stream(result.rawCells()).map(cell -> {
      byte[] value = CellUtil.cloneValue(cell);
      if (isAhead && value.length == Long.BYTES) {
        value = Bytes.toBytes(Bytes.toLong(value) + 100);
      } else if (!isAhead) {
        value = Arrays.copyOf(value, 5);
      }
      return (Cell) new KeyValue(CellUtil.cloneRow(cell), CellUtil.cloneFamily(cell), CellUtil.cloneQualifier(cell), cell.getTimestamp(),
          value);
    }).toArray(Cell[]::new);
    return Result.create(cells);
  }

  private static ResultScanner failing(ResultScanner scanner) {
    return new ResultScanner() {
      private int calls;

      @Override
      public Result next() throws IOException {
        if (calls++ > 0) {
          throw new DoNotRetryIOException("planted: the scan is refused");
        }
        return scanner.next();
      }

      @Override
      public void close() {
        scanner.close();
      }

      @Override
      public boolean renewLease() {
        return scanner.renewLease();
      }

      @Override
      public ScanMetrics getScanMetrics() {
        return scanner.getScanMetrics();
      }
    };
  }
}
