package halcyon.compat.histories;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
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
    rows.add(row);
  }

  synchronized List<String> rows() {
    return new ArrayList<>(rows);
  }

  synchronized long count() {
    return count;
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
