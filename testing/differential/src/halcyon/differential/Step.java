package halcyon.differential;

import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * One step of a script. It is run once on each side, at the same time, and must ask both the same.
 *
 * @param kind what the report counts it under
 * @param text what it does, for a person
 * @param with what the report counts it under as well: what its table has, and who asks
 */
record Step(String kind, String text, Act act, Set<String> with) {
  static final String SECOND_CLIENT = "a second client";

  /** Works on one side and adds what it is answered. An exception is an answer too. */
  interface Act {
    void run(Side side, Answer answer) throws Exception;
  }

  Step(String kind, String text, Act act) {
    this(kind, text, act, Set.of());
  }

  Step with(Set<String> more) {
    Set<String> all = new TreeSet<>(with);
    all.addAll(more);
    return new Step(kind, text, act, all);
  }

  /** The same, asked by another client. */
  Step bySecondClient() {
    return new Step(kind, text, (side, answer) -> act.run(side.second(), answer), with).with(Set.of(SECOND_CLIENT));
  }

  Answer on(Side side) {
    Answer answer = new Answer();
    Map<String, Long> before = CountedCalls.failed(side.name);
    try {
      act.run(side, answer);
    } catch (Exception | NoSuchMethodError error) {
      answer.error(error);
    }
    answer.end(before, CountedCalls.failed(side.name));
    return answer;
  }
}
