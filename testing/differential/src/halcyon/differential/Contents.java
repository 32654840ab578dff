package halcyon.differential;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.hbase.TableName;

/**
 * What a step has left behind whose answers differ on purpose: HBase has failed, and Halcyon has not. The rows that the step names may
 * differ then, and no other ones. The tables where they do are emptied on both sides, so that the script can be looked at to its end.
 */
final class Contents {
  /** Steps that change nothing. */
  private static final Set<String> READS = Set.of("get", "get list", "exists", "scan", "state");
  private final Pair pair;

  Contents(Pair pair) {
    this.pair = pair;
  }

  /** Makes the systems equal again. Returns what differs that must not; null: nothing does. */
  String reconcile(Step step) throws IOException, InterruptedException {
    List<TableName> tables = List.of(pair.reference.admin.listTableNames());
    if (!tables.equals(List.of(pair.tested.admin.listTableNames()))) return "the tables are other ones";
    Set<String> named = new HashSet<>();
    if (!READS.contains(step.kind())) named.addAll(Arrays.asList(step.text().split("[ /,\\[\\]]")));
    for (TableName table : tables) {
      Answer[] answers = pair.run(ReadSteps.everything(new Model.Shape(table)));
      if (answers[0].sameAs(answers[1])) continue;
      for (String row : differing(rows(answers[0]), rows(answers[1]))) {
        if (!named.contains(row)) return "the row " + row + " of " + table + " is another one, and the step does not name it";
      }
      for (Side side : new Side[] {pair.reference, pair.tested}) {
        side.admin.disableTable(table);
        side.admin.truncateTable(table, true);
        side.forgetRegions();
      }
    }
    return null;
  }

  private static Set<String> differing(Map<String, String> first, Map<String, String> second) {
    Set<String> rows = new TreeSet<>(first.keySet());
    rows.addAll(second.keySet());
    rows.removeIf(row -> Objects.equals(first.get(row), second.get(row)));
    return rows;
  }

  /** The cells of each row, as lines; what is no cell is a row of its own. */
  private static Map<String, String> rows(Answer answer) {
    Map<String, String> rows = new TreeMap<>();
    for (String line : answer.lines) {
      boolean isCell = line.startsWith("  ");
      if (!isCell && line.startsWith("result")) continue;
      rows.merge(isCell ? line.strip().split("/", 2)[0] : line, line + "\n", String::concat);
    }
    return rows;
  }
}
