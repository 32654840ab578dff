package halcyon.differential;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.apache.hadoop.hbase.TableName;

/**
 * Runs random scripts on two systems and compares every answer.
 *
 *   Main HBASE-ZOOKEEPER HALCYON-ZOOKEEPER DELIBERATE DETAILS
 *
 * Properties: seconds, seed, steps (of an episode), episodes, only (step numbers such as 0,3-7), stop (first), shrink (seconds).
 */
public final class Main {
  private final Pair pair;
  private final Report report;
  private final boolean stopsAtFirst = "first".equals(System.getProperty("stop", ""));
  private final long shrinkSeconds = Long.getLong("shrink", 0);

  private Main(Pair pair, Report report) {
    this.pair = pair;
    this.report = report;
  }

  public static void main(String[] args) throws Exception {
    boolean isClean;
    try (Side reference = new Side("hbase", args[0]); Side tested = new Side("halcyon", args[1]); Pair pair = new Pair(reference, tested);
        Report report = new Report(new Deliberate(Path.of(args[2])), Path.of(args[3]))) {
      new Main(pair, report).run();
      isClean = report.isClean();
    }
    System.exit(isClean ? 0 : 1);
  }

  private void run() throws Exception {
    long started = System.currentTimeMillis();
    long end = started + 1000 * Long.getLong("seconds", 120);
    long first = Long.getLong("seed", 1);
    int steps = Integer.getInteger("steps", 400);
    int episodes = Integer.getInteger("episodes", Integer.MAX_VALUE);
    try {
      for (int i = 0; i < episodes && System.currentTimeMillis() < end; i++) {
        boolean hasDifference = episode(first + i, steps, end);
        System.out.println("SEED=" + (first + i) + ": " + report.steps + " steps, " + report.answers + " answers, " + report.differenceCount()
            + " differences after " + (System.currentTimeMillis() - started) / 1000 + " s");
        if (hasDifference && stopsAtFirst) break;
      }
    } finally {
      report.finish((System.currentTimeMillis() - started) / 1000);
    }
  }

  /** One script in empty systems. It ends early if the systems are no longer in the same state. */
  private boolean episode(long seed, int count, long end) throws Exception {
    List<Step> steps = new Script(seed, count).steps();
    BitSet chosen = chosen(steps.size());
    boolean hasDifference = false;
    pair.clear();
    for (int i = chosen.nextSetBit(0); i >= 0; i = chosen.nextSetBit(i + 1)) {
      if (System.currentTimeMillis() > end) break;
      Step step = steps.get(i);
      if (Boolean.getBoolean("verbose")) System.out.println(i + ": " + step.kind() + ": " + step.text());
      Answer[] answers = pair.run(step);
      if (Boolean.getBoolean("verbose")) answers[0].lines.stream().filter(line -> line.startsWith("error")).forEach(System.out::println);
      Report.Verdict verdict = report.add(seed, i, step, answers[0], answers[1]);
      // what HBase has failed to do may have left it in another state
      if (verdict == Report.Verdict.DELIBERATE && !statesAgree()) {
        String other = new Contents(pair).reconcile(step);
        if (other == null) {
          report.otherState(step);
          continue;
        }
        report.differentState(seed, i, step, other);
        hasDifference = true;
        break;
      }
      if (verdict != Report.Verdict.DIFFERENT) continue;
      hasDifference = true;
      if (shrinkSeconds > 0) new Shrink(pair, report, steps, shrinkSeconds).shrink(seed, chosen, i, answers);
      if (stopsAtFirst || shrinkSeconds > 0 || !statesAgree()) break;
    }
    return hasDifference;
  }

  private static BitSet chosen(int count) {
    BitSet chosen = new BitSet();
    String only = System.getProperty("only", "");
    if (only.isEmpty()) {
      chosen.set(0, count);
      return chosen;
    }
    for (String range : only.split(",")) {
      String[] ends = range.split("-");
      int last = Integer.parseInt(ends[ends.length - 1]);
      chosen.set(Integer.parseInt(ends[0]), Math.min(count, last + 1));
    }
    return chosen;
  }

  private boolean statesAgree() throws IOException, InterruptedException {
    List<TableName> tables = new ArrayList<>(List.of(pair.reference.admin.listTableNames()));
    if (!tables.equals(List.of(pair.tested.admin.listTableNames()))) return false;
    for (TableName table : tables) {
      Step everything = ReadSteps.everything(new Model.Shape(table));
      Answer[] answers = pair.run(everything);
      if (report.judge(everything, answers[0], answers[1]) == Report.Verdict.DIFFERENT) return false;
    }
    return true;
  }
}
