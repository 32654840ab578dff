package halcyon.differential;

/**
 * One step of a script. It is run once on each side, at the same time, and must ask both the same.
 *
 * @param kind what the report counts it under
 * @param text what it does, for a person
 */
record Step(String kind, String text, Act act) {
  /** Works on one side and adds what it is answered. An exception is an answer too. */
  interface Act {
    void run(Side side, Answer answer) throws Exception;
  }

  Answer on(Side side) {
    Answer answer = new Answer();
    try {
      act.run(side, answer);
    } catch (Exception | NoSuchMethodError error) {
      answer.error(error);
    }
    return answer;
  }
}
