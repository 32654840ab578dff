package halcyon.compat.histories;

import static org.apache.hadoop.hbase.util.Bytes.toBytes;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.stream.Collectors;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * One process: it has one operation at a time and writes each down.
 *
 * <p>Gets, scans, appends and increments are retried by the client: reads change nothing, and the others carry nonces. A put,
 * delete or check-and-mutate that is repeated after a lost answer may happen twice, so it has one attempt ({@code single}).
 */
final class Worker {
  static final int COLUMNS = 16;
  private static final byte[][] FAMILIES = {toBytes("f"), toBytes("g")};
  private static final byte[] F = FAMILIES[0];
  private static final byte[] Q = toBytes("q");
  /** A scan walks through the rows of so many slots, and so through several regions. */
  private static final int SCANNED = 3;
  /** Rows of one slot that a scan of versions walks through: those of so many periods. */
  private static final int SCANNED_PERIODS = 3;
  /** How far below the newest numbers a range of versions begins at most, and how many numbers it has at most. */
  private static final int RANGE_MAX = 20_000;
  /** After an operation without an answer, so that an outage does not fill the history with them. */
  private static final long PAUSE_MS = 300;
  /** hbase.client.pause: an answer that came earlier is that of the first attempt. */
  private static final long FIRST_PAUSE_NS = 100_000_000;

  private final Kind kind;
  private final HistoryFile file;
  private final Table patient;
  private final Table single;
  private final int process;
  private final String name;
  private final boolean deletes;
  private final SplittableRandom random;
  /** What this process saw last of a row, for checks; null: no value. */
  private final Map<String, Long> seen = new HashMap<>();
  /** Versions that this process saw of a row and has not deleted. */
  private final Map<String, List<Long>> versions = new HashMap<>();
  private final long begunNs;
  private long written;

  Worker(Kind kind, HistoryFile file, Table patient, Table single, int process, boolean deletes, long seed,
      long begunNs) {
    this.kind = kind;
    this.file = file;
    this.patient = patient;
    this.single = single;
    this.process = process;
    this.name = name(process);
    this.deletes = deletes;
    this.begunNs = begunNs;
    this.random = new SplittableRandom(seed * 1_000_003 + process);
  }

  static String name(int process) {
    return "java" + process;
  }

  /** What a process of this kind does. */
  static List<String> actions(Kind kind, boolean deletes) {
    return switch (kind) {
      case LISTS -> List.of("append", "get");
      case ROWS, VERSIONS -> deletes ? List.of("put", "delete", "scan", "get") : List.of("put", "scan", "get");
      default -> deletes ? List.of("put", "delete", "increment", "check", "get") : List.of("put", "increment", "check", "get");
    };
  }

  /** One operation and a pause, of {@code intervalNs} together in the mean. */
  void step(long periodNs, long intervalNs) throws IOException, InterruptedException {
    long start = System.nanoTime();
    if (!operation(periodNs)) {
      Thread.sleep(PAUSE_MS);
    }
    long pauseNs = start + random.nextLong(2 * intervalNs) - System.nanoTime();
    if (pauseNs > 0) {
      Thread.sleep(pauseNs / 1_000_000, (int) (pauseNs % 1_000_000));
    }
  }

  /** Reads each row until there is an answer; fails if that takes too long. */
  void readAll(List<String> rows, long timeMs) throws IOException, InterruptedException {
    long end = System.nanoTime() + timeMs * 1_000_000;
    for (String row : rows) {
      while (!getAll(row)) {
        if (System.nanoTime() > end) {
          throw new IOException("the row " + row + " could not be read at the end");
        }
        Thread.sleep(PAUSE_MS);
      }
    }
  }

  private long next() {
    return Names.number(kind, process, ++written);
  }

  /** Whether there was an answer. */
  private boolean operation(long periodNs) throws IOException {
    int slot = random.nextInt(Names.SLOTS);
    long nowNs = System.nanoTime();
    int choice = random.nextInt(Integer.MAX_VALUE);
    boolean isEarlier = kind != Kind.ROWS && random.nextInt(Names.EARLIER) == 0;
    long timeNs = isEarlier ? Names.earlier(nowNs, begunNs, random.nextLong(Long.MAX_VALUE)) : nowNs;
    String row = Names.row(kind, slot, timeNs, periodNs, choice);
    if (isEarlier && random.nextInt(Names.EARLIER_WRITES) > 0) {
      return getAll(row);
    }
    int die = random.nextInt(100);
    switch (kind) {
      case LISTS:
        return die < 50 ? append(row) : get(row);
      case ROWS:
        if (die < 40) {
          String written = slot + "-" + Names.writtenRow(nowNs, begunNs, periodNs, choice);
          return deletes && die < 5 ? deleteRow(written) : putColumns(written);
        }
        return die < 60 ? scan(slot) : get(row);
      case VERSIONS:
        if (die < 40) {
          return putVersion(row);
        }
        if (die < 50 && deletes) {
          return deleteVersion(row);
        }
        if (die >= 50 && die < 65) {
          return scanRange(slot, timeNs, periodNs);
        }
        long[] range = range();
        return getRange(row, range[0], range[1]);
      default:
        if (die < 20) {
          return put(row);
        }
        if (die < 28 && deletes) {
          return delete(row);
        }
        return die < 43 ? increment(row) : die < 65 ? check(row) : get(row);
    }
  }

  /** What an operation answers, as the history has it. */
  private interface Call {
    String result() throws IOException;
  }

  /** A write; {@code isRetried}: the client may have tried it several times. */
  private boolean write(String action, String row, String argument, boolean isRetried, Call call) throws IOException {
    long called = System.nanoTime();
    String result;
    try {
      result = call.result();
    } catch (WrongValue e) {
      throw e;
    } catch (IOException | RuntimeException e) {
      note(e);
      result = Errors.result(e, !isRetried || System.nanoTime() - called < FIRST_PAUSE_NS);
    }
    file.write(name, action, row, argument, called, System.nanoTime(), result);
    return !result.equals(HistoryFile.UNKNOWN);
  }

  /** The whole value of a row. */
  private boolean getAll(String row) throws IOException {
    return kind == Kind.VERSIONS ? getRange(row, 0, Long.MAX_VALUE) : get(row);
  }

  private boolean get(String row) throws IOException {
    long called = System.nanoTime();
    String result;
    try {
      result = "ok:" + value(row, patient.get(new Get(toBytes(row))));
    } catch (WrongValue e) {
      throw e;
    } catch (IOException | RuntimeException e) {
      note(e);
      result = HistoryFile.UNKNOWN;
    }
    file.write(name, "get", row, "-", called, System.nanoTime(), result);
    return !result.equals(HistoryFile.UNKNOWN);
  }

  /** An exception of the client itself fails the recorder at its end. */
  private void note(Exception error) {
    if (error instanceof RuntimeException broken && !(error instanceof UncheckedIOException)) {
      file.broken(broken);
    }
  }

  private String value(String row, Result found) throws WrongValue {
    if (found.isEmpty()) {
      seen.remove(row);
      return "-";
    }
    switch (kind) {
      case LISTS:
        return list(row, found);
      case ROWS:
        return columns(row, found);
      case VERSIONS:
        return versions(row, found);
      default:
        long number = number(row, found);
        seen.put(row, number);
        return Long.toString(number);
    }
  }

  private boolean append(String row) throws IOException {
    long id = next();
    Append append = new Append(toBytes(row)).addColumn(F, Q, toBytes(id + ","));
    return write("append", row, Long.toString(id), true, () -> {
      // without cells: it was repeated, and the server does not know the value any more
      Result answer = patient.append(append);
      return answer == null || answer.isEmpty() ? "ok" : "ok:" + list(row, answer);
    });
  }

  private boolean increment(String row) throws IOException {
    Increment increment = new Increment(toBytes(row)).addColumn(F, Q, 1);
    return write("increment", row, "1", true, () -> {
      Result answer = patient.increment(increment);
      return answer == null || answer.isEmpty() ? "ok" : "ok:" + number(row, answer);
    });
  }

  private boolean put(String row) throws IOException {
    long number = next();
    Put put = new Put(toBytes(row)).addColumn(F, Q, toBytes(number));
    return write("put", row, Long.toString(number), false, () -> {
      single.put(put);
      return "ok";
    });
  }

  private boolean putColumns(String row) throws IOException {
    long number = next();
    Put put = new Put(toBytes(row));
    for (byte[] family : FAMILIES) {
      for (int column = 0; column < COLUMNS / FAMILIES.length; column++) {
        put.addColumn(family, toBytes("c" + column), toBytes(number));
      }
    }
    return write("put", row, Long.toString(number), false, () -> {
      single.put(put);
      return "ok";
    });
  }

  private boolean delete(String row) throws IOException {
    Delete delete = new Delete(toBytes(row)).addColumns(F, Q);
    return write("delete", row, "-", false, () -> {
      single.delete(delete);
      return "ok";
    });
  }

  /** All columns of both families at once. */
  private boolean deleteRow(String row) throws IOException {
    return write("delete", row, "-", false, () -> {
      single.delete(new Delete(toBytes(row)));
      return "ok";
    });
  }

  /** A number whose timestamp is the number. */
  private boolean putVersion(String row) throws IOException {
    long number = next();
    Put put = new Put(toBytes(row)).addColumn(F, Q, number, toBytes(number));
    return write("put", row, Long.toString(number), false, () -> {
      single.put(put);
      return "ok";
    });
  }

  /** One that this process has seen, so that its put has happened. A delete hides puts of the same time that come later. */
  private boolean deleteVersion(String row) throws IOException {
    List<Long> known = versions.getOrDefault(row, List.of());
    if (known.isEmpty()) {
      return getRange(row, 0, Long.MAX_VALUE);
    }
    long number = known.remove(random.nextInt(known.size()));
    Delete delete = new Delete(toBytes(row)).addColumn(F, Q, number);
    return write("delete", row, Long.toString(number), false, () -> {
      single.delete(delete);
      return "ok";
    });
  }

  /** Most ranges are short and near the newest numbers, so that a server can leave out files and segments. */
  private long[] range() {
    if (random.nextInt(4) == 0) {
      return new long[] {0, Long.MAX_VALUE};
    }
    long from = Math.max(0, Names.number(kind, process, written + 1) - random.nextInt(RANGE_MAX));
    return new long[] {from, from + 1 + random.nextInt(RANGE_MAX)};
  }

  private boolean getRange(String row, long from, long to) throws IOException {
    Get get = new Get(toBytes(row)).addColumn(F, Q).setTimeRange(from, to).readAllVersions();
    long called = System.nanoTime();
    String result;
    try {
      result = "ok:" + value(row, patient.get(get));
    } catch (WrongValue e) {
      throw e;
    } catch (IOException | RuntimeException e) {
      note(e);
      result = HistoryFile.UNKNOWN;
    }
    file.write(name, "get", row, from + ":" + to, called, System.nanoTime(), result);
    return !result.equals(HistoryFile.UNKNOWN);
  }

  /** The versions of a range in the rows of some periods of a slot. */
  private boolean scanRange(int slot, long timeNs, long periodNs) throws IOException {
    List<String> rows = new ArrayList<>();
    for (int age = SCANNED_PERIODS - 1; age >= 0; age--) {
      rows.add(Names.row(kind, slot, Math.max(0, timeNs - age * periodNs), periodNs, 0));
    }
    long[] range = range();
    Scan scan = new Scan().withStartRow(toBytes(rows.get(0))).withStopRow(toBytes(rows.get(rows.size() - 1)), true).addColumn(F, Q)
        .setTimeRange(range[0], range[1]).readAllVersions().setCaching(2);
    return scan(scan, rows, range[0] + ":" + range[1]);
  }

  /** If the row is as this process saw it last, it gets a new number, or none. */
  private boolean check(String row) throws IOException {
    Long expected = seen.get(row);
    boolean isDelete = deletes && expected != null && random.nextInt(5) == 0;
    Long number = isDelete ? null : next();
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(toBytes(row));
    builder = expected == null ? builder.ifNotExists(F, Q) : builder.ifEquals(F, Q, toBytes(expected));
    CheckAndMutate check = isDelete ? builder.build(new Delete(toBytes(row)).addColumns(F, Q))
        : builder.build(new Put(toBytes(row)).addColumn(F, Q, toBytes(number)));
    return write("check", row, optional(expected) + ":" + optional(number), false, () -> {
      boolean held = single.checkAndMutate(check).isSuccess();
      if (held) {
        seen.put(row, number);
      }
      return "ok:" + held;
    });
  }

  private static String optional(Long number) {
    return number == null ? "-" : number.toString();
  }

  /** The whole rows of some slots; one that the scan does not return was absent. */
  private boolean scan(int slot) throws IOException {
    int first = Math.min(slot, Names.SLOTS - SCANNED);
    Scan scan = new Scan().withStartRow(toBytes(Integer.toString(first)))
        .withStopRow(toBytes(Integer.toString(first + SCANNED))).setCaching(2);
    List<String> rows = new ArrayList<>();
    for (int at = first; at < first + SCANNED; at++) {
      for (int number = 0; number < Names.WHOLE_ROWS; number++) {
        rows.add(at + "-" + number);
      }
    }
    return scan(scan, rows, "-");
  }

  private boolean scan(Scan scan, List<String> rows, String argument) throws IOException {
    Map<String, String> found = new HashMap<>();
    boolean isWhole = true;
    long called = System.nanoTime();
    try (ResultScanner scanner = patient.getScanner(scan)) {
      for (Result result : scanner) {
        String row = Bytes.toString(result.getRow());
        if (found.put(row, value(row, result)) != null) {
          throw new WrongValue("a scan returned the row " + row + " twice");
        }
      }
    } catch (WrongValue e) {
      throw e;
    } catch (IOException | RuntimeException e) {
      note(e);
      isWhole = false;
    }
    long answered = System.nanoTime();
    for (String row : rows) {
      String value = found.remove(row);
      String result = !isWhole ? HistoryFile.UNKNOWN : value == null ? "ok:-" : "ok:" + value;
      file.write(name, "scan", row, argument, called, answered, result);
    }
    if (isWhole && !found.isEmpty()) {
      throw new WrongValue("a scan returned rows that no recorder writes: " + found.keySet());
    }
    return isWhole;
  }

  /** A value that no recorder has written. */
  private static final class WrongValue extends IOException {
    WrongValue(String text) {
      super(text);
    }
  }

  private static String list(String row, Result found) throws WrongValue {
    byte[] value = found.getValue(F, Q);
    String text = value == null ? "" : Bytes.toString(value);
    if (!text.matches("([0-9]+,)+")) {
      throw new WrongValue("the row " + row + " has no list: " + text);
    }
    return text.substring(0, text.length() - 1);
  }

  private static long number(String row, Result found) throws WrongValue {
    byte[] value = found.getValue(F, Q);
    if (value == null || value.length != Long.BYTES) {
      throw new WrongValue("the row " + row + " has no number: " + Bytes.toStringBinary(value));
    }
    return Bytes.toLong(value);
  }

  /** The numbers of all versions, as they come. Each has its number as its time. */
  private String versions(String row, Result found) throws WrongValue {
    List<Long> numbers = new ArrayList<>();
    for (Cell cell : found.rawCells()) {
      byte[] value = CellUtil.cloneValue(cell);
      if (value.length != Long.BYTES || Bytes.toLong(value) != cell.getTimestamp()) {
        throw new WrongValue("the row " + row + " has a version that no recorder writes: " + cell);
      }
      numbers.add(cell.getTimestamp());
    }
    versions.put(row, numbers);
    return numbers.stream().map(String::valueOf).collect(Collectors.joining(","));
  }

  /** Runs of equal columns, in HBase's order. */
  private static String columns(String row, Result found) throws WrongValue {
    StringBuilder runs = new StringBuilder();
    long last = 0;
    int count = 0;
    for (Cell cell : found.rawCells()) {
      byte[] value = CellUtil.cloneValue(cell);
      if (value.length != Long.BYTES) {
        throw new WrongValue("the row " + row + " has a column without a number: " + Bytes.toStringBinary(value));
      }
      if (count > 0 && Bytes.toLong(value) != last) {
        runs.append(last).append('*').append(count).append('+');
        count = 0;
      }
      last = Bytes.toLong(value);
      count++;
    }
    return runs.append(last).append('*').append(count).toString();
  }
}
