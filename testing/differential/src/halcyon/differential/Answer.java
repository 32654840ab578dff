package halcyon.differential;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RetriesExhaustedException;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.ipc.RemoteException;

/** What one system has answered to one step, as lines of text. What differs from run to run is replaced. */
final class Answer {
  private static final Pattern HEX = Pattern.compile("\\\\x[0-9A-Fa-f]{2}");
  /** A time that a server has set, until the answer is complete. */
  private static final Pattern NOW = Pattern.compile("/now\\{([0-9]+)}/");
  final List<String> lines = new ArrayList<>();
  /** Begins a line that tells of something that is wrong, also if both sides have it. */
  static final String WRONG = "wrong: ";
  int answers;
  int cells;
  /** Calls that failed before the client had this answer, by the class of their error. */
  final Map<String, Long> failedCalls = new TreeMap<>();

  /** The answer is complete. The arguments are calls that have failed, before it and now. */
  void end(Map<String, Long> before, Map<String, Long> after) {
    after.forEach((error, count) -> {
      long more = count - before.getOrDefault(error, 0L);
      if (more > 0) failedCalls.put(error, more);
    });
    numberTimes();
  }

  /** Gives the times that a server has set their numbers in their row. Whether those of two rows of a batch are one depends on the clock. */
  private void numberTimes() {
    Map<String, TreeSet<Long>> times = new TreeMap<>();
    for (String line : lines) {
      for (Matcher found = NOW.matcher(line); found.find();) {
        times.computeIfAbsent(rowOf(line), row -> new TreeSet<>()).add(Long.valueOf(found.group(1)));
      }
    }
    lines.replaceAll(line -> NOW.matcher(line)
        .replaceAll(found -> "/now" + times.get(rowOf(line)).headSet(Long.valueOf(found.group(1)), true).size() + "/"));
  }

  private static String rowOf(String line) {
    return line.substring(0, line.indexOf('/') + 1);
  }

  void add(Object value) {
    answers++;
    lines.add(String.valueOf(value));
  }

  void add(Result result) {
    answers++;
    note(result);
  }

  void addAll(Answer other) {
    lines.addAll(other.lines);
    answers += other.answers;
    cells += other.cells;
  }

  /** A line that belongs to the answer before it. */
  void note(String line) {
    lines.add(line);
  }

  void note(Result result) {
    if (result == null) {
      lines.add("no result");
      return;
    }
    StringBuilder flags = new StringBuilder("result");
    if (result.getExists() != null) flags.append(" exists=").append(result.getExists());
    if (result.isStale()) flags.append(" stale");
    if (result.mayHaveMoreCellsInRow()) flags.append(" partial");
    if (result.isCursor()) flags.append(" cursor=").append(Domain.text(result.getCursor().getRow()));
    lines.add(flags + (result.isEmpty() ? " empty" : ""));
    if (result.isEmpty()) return;
    for (Cell cell : result.rawCells()) {
      cells++;
      lines.add("  " + text(cell));
    }
  }

  void add(CheckAndMutateResult result) {
    add("success=" + result.isSuccess());
    if (result.getResult() != null) note(result.getResult());
  }

  /** The answer of an element of a batch. */
  void element(Object element) {
    if (element instanceof Throwable error) error(error);
    else if (element instanceof Result result) add(result);
    else if (element instanceof CheckAndMutateResult result) add(result);
    else add(element);
  }

  void error(Throwable thrown) {
    Throwable error = root(thrown);
    add("error " + error.getClass().getSimpleName() + ": " + normalized(firstLine(error)));
  }

  static String text(Cell cell) {
    StringBuilder text = new StringBuilder(Domain.text(CellUtil.cloneRow(cell))).append('/')
        .append(Domain.text(CellUtil.cloneFamily(cell))).append(':').append(Domain.text(CellUtil.cloneQualifier(cell)))
        .append('/').append(time(cell.getTimestamp())).append('/').append(cell.getType()).append('=')
        .append(Domain.text(CellUtil.cloneValue(cell)));
    for (Iterator<Tag> tags = PrivateCellUtil.tagsIterator(cell); tags.hasNext();) {
      Tag tag = tags.next();
      text.append(" tag").append(tag.getType()).append('=').append(Bytes.toStringBinary(Tag.cloneValue(tag)));
    }
    return text.toString();
  }

  private static String time(long timestamp) {
    return Times.isNow(timestamp) ? "now{" + timestamp + "}" : Times.text(timestamp);
  }

  /** The cause, without what the client has wrapped around it. */
  static Throwable root(Throwable error) {
    if (error instanceof RetriesExhaustedWithDetailsException details && details.getNumExceptions() > 0) {
      return root(details.getCause(0));
    }
    boolean isWrapper = error instanceof RetriesExhaustedException || error instanceof ExecutionException
        || error instanceof CompletionException || error instanceof java.io.UncheckedIOException
        || error instanceof java.lang.reflect.UndeclaredThrowableException;
    if (isWrapper && error.getCause() != null) return root(error.getCause());
    // the client makes an IOException of a remote one, with the remote one as its cause
    if (error instanceof RemoteException remote) return remote.unwrapRemoteException();
    return error;
  }

  private static String firstLine(Throwable error) {
    String message = error.getMessage() == null ? "" : error.getMessage();
    message = message.stripLeading();
    int end = message.indexOf('\n');
    return (end < 0 ? message : message.substring(0, end)).strip();
  }

  static String normalized(String message) {
    return HEX.matcher(message).replaceAll(found -> found.group().toLowerCase(java.util.Locale.ROOT).replace("\\", "\\\\"))
        .replaceAll("^(([a-z]+\\.)+[A-Z][A-Za-z$]*(Exception|Error): )+", "")
        .replaceAll("[A-Za-z0-9.-]+,[0-9]+,1[0-9]{12}", "SERVER")
        .replaceAll("\\{ENCODED => [^}]*NAME => '([^']*)'[^}]*\\}", "$1")
        .replaceAll(",1[0-9]{12}\\.[0-9a-f]{32}\\.?", ",ID.")
        // HBase goes on with the whole descriptor
        .replaceAll(" in table .*", " in table")
        .replaceAll("\\b[0-9a-f]{32}\\b", "ID")
        .replaceAll("(localhost|127\\.0\\.0\\.1)(/127\\.0\\.0\\.1)?:[0-9]+", "ADDRESS")
        .replaceAll("\\b1[0-9]{12}\\b", "TIME")
        .replaceAll("\\b(pid|procId)=[0-9]+", "$1=N")
        .replaceAll("\\b(file|hdfs):/+[^ ]*", "FILE");
  }

  boolean sameAs(Answer other) {
    return lines.equals(other.lines);
  }

  /** The index of the first line that differs. */
  int firstDifference(Answer other) {
    int mismatch = Arrays.mismatch(lines.toArray(), other.lines.toArray());
    return mismatch < 0 ? lines.size() : mismatch;
  }
}
