package halcyon.differential;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What was compared, and what differed. Differences of one sort are printed a few times and then only counted. */
final class Report implements AutoCloseable {
  /** How two answers differ. */
  enum Verdict { EQUAL, DELIBERATE, WORDING, DIFFERENT }

  private static final Pattern ERROR = Pattern.compile("error (\\w+): .*");
  private static final String NO_ANSWER = "no answer: ";
  /** Of a kind of steps with so many answers, at least one in {@link #SOUND_ONE_IN} has to be no error: errors are often equal. */
  private static final int ANSWERS_LEAST = 20;
  private static final int SOUND_ONE_IN = 4;
  /** Errors of calls that the client repeats because of where a region is at the moment. */
  private static final Set<String> MOVED = Set.of("NotServingRegionException", "RegionMovedException", "RegionOpeningException");
  private static final Pattern LARGE = Pattern.compile("\\.\\.\\.[0-9]{4,}#");
  private static final Pattern OWN_TAG = Pattern.compile(" tag7[0-9]=");
  private static final int PRINTED_MAX = 3;
  private static final int CONTEXT = 3;
  private final Deliberate deliberate;
  private final PrintStream details;
  /** Of each kind of steps: answers, differences, errors among the answers. */
  private final Map<String, long[]> kinds = new TreeMap<>();
  /** The same of steps by what they were with. */
  private final Map<String, long[]> with = new TreeMap<>();
  /** By side, calls that failed in steps that went well, by the class of the error. */
  private final Map<String, Map<String, Long>> repeated = new LinkedHashMap<>();
  private final Map<String, Integer> differences = new LinkedHashMap<>();
  private final Map<String, Integer> wordings = new LinkedHashMap<>();
  long steps;
  long answers;
  long cells;
  private final Map<String, Integer> errors = new TreeMap<>();
  int deliberateCount;
  /** Deliberate differences that left the systems in different states, by kind of the step. */
  private final Map<String, Integer> otherStates = new TreeMap<>();
  private int unanswered;
  private int wrong;

  Report(Deliberate deliberate, Path details) throws IOException {
    this.deliberate = deliberate;
    this.details = new PrintStream(details.toFile());
  }

  int differenceCount() {
    return differences.values().stream().mapToInt(Integer::intValue).sum();
  }

  Verdict judge(Step step, Answer reference, Answer tested) {
    if (reference.sameAs(tested)) return Verdict.EQUAL;
    Verdict verdict = Verdict.EQUAL;
    for (int i = 0; i < Math.max(reference.lines.size(), tested.lines.size()); i++) {
      String first = line(reference, i);
      String second = line(tested, i);
      if (first.equals(second)) continue;
      Deliberate.Meaning meaning = deliberate.meaning(step.kind(), first, second);
      if (meaning == Deliberate.Meaning.NONE && !isWording(first, second)) return Verdict.DIFFERENT;
      if (meaning == Deliberate.Meaning.NONE) verdict = Verdict.WORDING;
      else if (verdict == Verdict.EQUAL) verdict = Verdict.DELIBERATE;
      // only one side failed, so the other one's lines go on alone
      boolean hasFailedAlone = ERROR.matcher(second).matches() && !ERROR.matcher(first).matches();
      if (meaning == Deliberate.Meaning.REST || meaning == Deliberate.Meaning.LINE && hasFailedAlone) break;
    }
    return verdict;
  }

  private static boolean isWording(String first, String second) {
    Matcher one = ERROR.matcher(first);
    Matcher other = ERROR.matcher(second);
    return one.matches() && other.matches() && one.group(1).equals(other.group(1));
  }

  /** Counts a step that was compared, and prints it if the answers differ. */
  Verdict add(long seed, int number, Step step, Answer reference, Answer tested) {
    Verdict verdict = judge(step, reference, tested);
    long errorsOfStep = reference.lines.stream().filter(line -> ERROR.matcher(line).matches()).count();
    boolean isDifferent = verdict == Verdict.DIFFERENT;
    count(kinds, step.kind(), reference.answers, errorsOfStep, isDifferent);
    for (String each : step.with()) count(with, each, reference.answers, errorsOfStep, isDifferent);
    if (reference.lines.stream().anyMatch(line -> LARGE.matcher(line).find())) count(with, "values over 999 bytes", reference.answers, errorsOfStep, isDifferent);
    if (reference.lines.stream().anyMatch(line -> OWN_TAG.matcher(line).find())) count(with, "tags of the client", reference.answers, errorsOfStep, isDifferent);
    if (!step.kind().equals("kill")) {
      noteRepeated("HBase", reference);
      noteRepeated("Halcyon", tested);
    }
    steps++;
    answers += reference.answers;
    cells += reference.cells;
    for (String line : reference.lines) {
      Matcher error = ERROR.matcher(line);
      if (error.matches()) {
        errors.merge(error.group(1), 1, Integer::sum);
      }
    }
    // Both sides may be out of time. That is equal, and nothing was compared.
    for (Answer answer : new Answer[] {reference, tested}) {
      for (String line : answer.lines) {
        if (line.startsWith(NO_ANSWER)) unanswered++;
        if (!line.startsWith(Answer.WRONG)) continue;
        wrong++;
        System.out.println("FAILED: SEED=" + seed + " step " + number + ": " + line);
      }
    }
    if (verdict == Verdict.DELIBERATE) {
      deliberateCount++;
    } else if (verdict == Verdict.WORDING) {
      for (int i = 0; i < reference.lines.size(); i++) {
        String first = reference.lines.get(i);
        String second = line(tested, i);
        if (!first.equals(second) && isWording(first, second)) {
          wordings.merge("HBase:   " + first + "\n    Halcyon: " + second + "\n    first with SEED=" + seed + " step " + number, 1, Integer::sum);
        }
      }
    } else if (verdict == Verdict.DIFFERENT) {
      different(seed, number, step, reference, tested);
    }
    return verdict;
  }

  private static void count(Map<String, long[]> counts, String name, long answers, long errors, boolean isDifferent) {
    long[] count = counts.computeIfAbsent(name, each -> new long[3]);
    count[0] += answers;
    count[1] += isDifferent ? 1 : 0;
    count[2] += errors;
  }

  /** Of a step that went well: an error in the answer has been seen. */
  private void noteRepeated(String side, Answer answer) {
    Map<String, Long> counts = repeated.computeIfAbsent(side, each -> new TreeMap<>());
    if (answer.lines.stream().anyMatch(line -> ERROR.matcher(line).matches())) return;
    answer.failedCalls.forEach((error, count) -> counts.merge(error, count, Long::sum));
  }

  /** Errors of Halcyon that went away when the client asked again, and that do not say that a region is elsewhere. HBase has none of them. */
  private List<String> strange() {
    Map<String, Long> ours = repeated.getOrDefault("Halcyon", Map.of());
    Map<String, Long> theirs = repeated.getOrDefault("HBase", Map.of());
    return ours.keySet().stream().filter(error -> !MOVED.contains(error) && !theirs.containsKey(error)).toList();
  }

  /** The step's difference was meant and left other contents, in rows that the step names. */
  void otherState(Step step) {
    otherStates.merge(step.kind(), 1, Integer::sum);
  }

  /** A difference of what a step has left behind. */
  void differentState(long seed, int number, Step step, String what) {
    differences.merge(step.kind() + " | state after a deliberate difference | " + mask(what), 1, Integer::sum);
    String text = "difference: SEED=" + seed + " step " + number + ": " + step.kind() + ": " + step.text() + "\n  after a deliberate one: " + what;
    details.println(text);
    details.flush();
    System.out.println(text);
  }

  /** Kinds of steps of which too few had an answer that is no error. */
  private List<String> errorKinds() {
    Map<String, long[]> all = new TreeMap<>(kinds);
    all.putAll(with);
    return all.entrySet().stream().filter(kind -> !kind.getKey().contains("wrong") && kind.getValue()[0] >= ANSWERS_LEAST
        && (kind.getValue()[0] - kind.getValue()[2]) * SOUND_ONE_IN < kind.getValue()[0]).map(Map.Entry::getKey).toList();
  }

  private void different(long seed, int number, Step step, Answer reference, Answer tested) {
    int at = firstUnexplained(step, reference, tested);
    String sort = sort(step, reference, tested);
    int seen = differences.merge(sort, 1, Integer::sum);
    String head = "difference: SEED=" + seed + " step " + number + ": " + step.kind() + ": " + step.text();
    details.println(head);
    details.println(" HBase:");
    reference.lines.forEach(line -> details.println("  " + line));
    details.println(" Halcyon:");
    tested.lines.forEach(line -> details.println("  " + line));
    details.flush();
    if (seen > PRINTED_MAX) return;
    System.out.println(head);
    print("HBase", reference.lines, at);
    print("Halcyon", tested.lines, at);
    System.out.flush();
  }

  /** What differences that belong together have in common. */
  String sort(Step step, Answer reference, Answer tested) {
    int at = firstUnexplained(step, reference, tested);
    return step.kind() + " | " + mask(line(reference, at)) + " | " + mask(line(tested, at));
  }

  private int firstUnexplained(Step step, Answer reference, Answer tested) {
    for (int i = 0; ; i++) {
      String first = line(reference, i);
      String second = line(tested, i);
      if (first.equals(second) && !first.equals("(end)")) continue;
      if (first.equals("(end)") || second.equals("(end)")) return i;
      if (deliberate.meaning(step.kind(), first, second) == Deliberate.Meaning.NONE) return i;
    }
  }

  private static String line(Answer answer, int at) {
    return at < answer.lines.size() ? answer.lines.get(at) : "(end)";
  }

  private static String mask(String line) {
    return line.replaceAll("/.*=", "/=").replaceAll("[0-9]+", "#").replaceAll("  .*/=.*", "cell");
  }

  private static void print(String name, List<String> lines, int at) {
    System.out.println("  " + name + ":" + (lines.isEmpty() ? " nothing" : ""));
    for (int i = Math.max(0, at - CONTEXT); i < Math.min(lines.size(), at + CONTEXT); i++) {
      System.out.println((i == at ? "  > " : "    ") + lines.get(i));
    }
    if (at >= lines.size()) System.out.println("  > (end)");
  }

  /** Prints the totals. */
  void finish(long seconds) {
    System.out.println();
    table("kind", kinds);
    System.out.println();
    table("of these with", with);
    System.out.println("calls that failed in steps that went well, because the client asked again: " + repeated);
    for (String error : strange()) System.out.println("FAILED: Halcyon had errors " + error + " that went away, and HBase had none");
    for (String kind : errorKinds()) System.out.println("FAILED: hardly an answer of the kind \"" + kind + "\" was no error");
    if (unanswered > 0) System.out.println("FAILED: " + unanswered + " steps had no answer within their time");
    System.out.println("deliberate differences that left other contents in rows that their steps name: " + otherStates);
    System.out.println("errors compared: " + errors);
    if (!wordings.isEmpty()) {
      System.out.println("errors of the same class with other words:");
      wordings.forEach((pair, count) -> System.out.println("  " + pair + "\n    (" + count + " times)"));
    }
    if (!differences.isEmpty()) {
      System.out.println("sorts of differences:");
      differences.forEach((sort, count) -> System.out.println("  " + count + " times: " + sort));
    }
    int errorCount = errors.values().stream().mapToInt(Integer::intValue).sum();
    System.out.println(steps + " steps, " + answers + " answers with " + cells + " cells and " + errorCount + " errors compared in "
        + seconds + " s: " + differenceCount() + " differences of " + differences.size() + " sorts, " + wordings.size()
        + " other wordings, " + deliberateCount + " deliberate");
  }

  private static void table(String title, Map<String, long[]> counts) {
    System.out.printf("%-24s %10s %10s %8s %12s%n", title, "answers", "errors", "sound", "differences");
    counts.forEach((name, count) -> System.out.printf("%-24s %10d %10d %7.1f%% %12d%n", name, count[0], count[2],
        100.0 * Math.max(0, count[0] - count[2]) / Math.max(1, count[0]), count[1]));
  }

  boolean isClean() {
    return strange().isEmpty() && differences.isEmpty() && wordings.isEmpty() && errorKinds().isEmpty() && unanswered == 0 && wrong == 0;
  }

  @Override
  public void close() {
    details.close();
  }
}
