package halcyon.compat.histories;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** The file of a history while it is recorded. Its format is described in testing/histories/src/text.rs. */
final class HistoryFile {
  static final String UNKNOWN = "unknown";
  static final String REFUSED = "refused";
  private static final Path BOOT_ID = Path.of("/proc/sys/kernel/random/boot_id");

  private final BufferedWriter file;
  private final TreeSet<String> rows = new TreeSet<>();
  private long count;
  private long unknown;
  /** How many operations had an answer, by process and action. */
  private final Map<String, Long> answers = new TreeMap<>();
  private long broken;
  private RuntimeException firstBroken;

  HistoryFile(Path path, Kind kind, String table, String client) throws IOException {
    file = Files.newBufferedWriter(path);
    file.write("halcyon-history 1\nkind " + kind.name().toLowerCase() + "\nclock " + Files.readString(BOOT_ID).trim()
        + "\ntable " + table + "\ncolumns " + (kind == Kind.ROWS ? Worker.COLUMNS : 0) + "\nclient " + client
        + "\nbegin\n");
  }

  /** {@code action} is the action with its row and argument. */
  synchronized void write(String process, String action, String row, String argument, long called, long answered,
      String result) throws IOException {
    file.write(process + ' ' + action + ' ' + row + ' ' + argument + ' ' + called + ' ' + answered + ' ' + result + '\n');
    count++;
    unknown += result.equals(UNKNOWN) ? 1 : 0;
    answers.merge(process + " " + action, result.equals(UNKNOWN) || result.equals(REFUSED) ? 0L : 1L, Long::sum);
    rows.add(row);
  }

  synchronized List<String> rows() {
    return new ArrayList<>(rows);
  }

  synchronized long count() {
    return count;
  }

  /** An operation ended in an exception that is no answer of a server and no lost connection: the client itself is broken. */
  synchronized void broken(RuntimeException error) {
    broken++;
    firstBroken = firstBroken == null ? error : firstBroken;
  }

  /**
   * Why this file shows nothing, or null: a process that had less than {@code least} answers to something that it does, or an
   * exception of the client itself.
   */
  synchronized String fault(Iterable<String> processes, Iterable<String> actions, long least) {
    if (broken > 0) {
      return broken + " operations ended in exceptions that are no answers, the first: " + firstBroken;
    }
    for (String process : processes) {
      for (String action : actions) {
        long count = answers.getOrDefault(process + " " + action, 0L);
        if (count < least) {
          return process + " had " + count + " answers to " + action + ", and " + least + " are the least";
        }
      }
    }
    return null;
  }

  /** Only a file with this end is whole. */
  synchronized void end() throws IOException {
    file.write("end " + count + "\n");
    file.close();
  }

  @Override
  public synchronized String toString() {
    return count + " operations, " + unknown + " without an answer";
  }
}
