package halcyon.differential;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.Collectors;

/** Looks for few steps that still end in a difference, by leaving out more and more of them. */
final class Shrink {
  private final Pair pair;
  private final Report report;
  private final List<Step> steps;
  private final long end;
  private String sort;

  Shrink(Pair pair, Report report, List<Step> steps, long seconds) {
    this.pair = pair;
    this.report = report;
    this.steps = steps;
    this.end = System.currentTimeMillis() + 1000 * seconds;
  }

  /**
   * @param last the step whose answers differ
   * @param answers how
   */
  void shrink(long seed, BitSet chosen, int last, Answer[] answers) throws Exception {
    sort = report.sort(steps.get(last), answers[0], answers[1]);
    List<Integer> kept = new ArrayList<>();
    for (int i = chosen.nextSetBit(0); i >= 0 && i < last; i = chosen.nextSetBit(i + 1)) {
      if (!isReading(steps.get(i))) kept.add(i);
    }
    if (!differs(kept, last)) {
      System.out.println("  the writes alone do not repeat it");
      return;
    }
    List<Integer> ofTable = kept.stream().filter(i -> mentions(steps.get(i), steps.get(last))).collect(Collectors.toList());
    if (differs(ofTable, last)) kept = ofTable;
    for (int size = Math.max(1, kept.size() / 2); size >= 1 && System.currentTimeMillis() < end; size = size == 1 ? 0 : size / 2) {
      for (int at = kept.size() - size; at > -size && System.currentTimeMillis() < end; at -= size) {
        List<Integer> fewer = new ArrayList<>(kept.subList(0, Math.max(0, at)));
        fewer.addAll(kept.subList(Math.min(kept.size(), at + size), kept.size()));
        if (differs(fewer, last)) kept = fewer;
      }
    }
    kept.add(last);
    System.out.println("  SEED=" + seed + " ONLY=" + kept.stream().map(String::valueOf).collect(Collectors.joining(",")) + " repeats it:");
    for (int i : kept) System.out.println("    " + i + ": " + steps.get(i).kind() + ": " + steps.get(i).text());
  }

  private static boolean isReading(Step step) {
    return step.kind().equals("state") || step.kind().startsWith("get") || step.kind().equals("scan") || step.kind().equals("exists")
        || step.kind().equals("admin: look");
  }

  /** Whether a step is about the table of another. */
  private static boolean mentions(Step step, Step other) {
    String table = other.text().split(" ")[0];
    return step.kind().startsWith("admin") || step.text().startsWith(table + " ");
  }

  private boolean differs(List<Integer> kept, int last) throws Exception {
    if (System.currentTimeMillis() > end) return false;
    pair.clear();
    for (int i : kept) pair.run(steps.get(i));
    Answer[] answers = pair.run(steps.get(last));
    return report.judge(steps.get(last), answers[0], answers[1]) == Report.Verdict.DIFFERENT
        && report.sort(steps.get(last), answers[0], answers[1]).equals(sort);
  }
}
