package halcyon.compat.histories;

/** Rows and numbers. They are those of testing/histories/src/record/names.rs, so that both recorders use the same rows. */
final class Names {
  static final int SLOTS = 8;
  static final int WHOLE_ROWS = 4;
  /** The last whole row of a slot is written in the first half of a period, and then not for the rest of so many. */
  private static final int SELDOM_PERIODS = 4;
  /** Of so many operations one is of a row of an earlier time. */
  static final int EARLIER = 6;
  /** Of so many of these one may write: a row is to be left alone long enough. */
  static final int EARLIER_WRITES = 30;
  private static final int PROCESSES_MAX = 100;
  private static final int INCREMENT_BITS = 20;

  private Names() {}

  static String row(Kind kind, int slot, long nowNs, long periodNs, int choice) {
    if (kind == Kind.ROWS) {
      return slot + "-" + choice % WHOLE_ROWS;
    }
    return slot + "-" + (nowNs + slot * periodNs / SLOTS) / periodNs;
  }

  /** A time since the recorder began: the row of that time is used again. */
  static long earlier(long nowNs, long begunNs, long choice) {
    return nowNs - choice % (nowNs - begunNs + 1);
  }

  /** The number of a whole row that is written now. The last one is left alone most of the time. */
  static int writtenRow(long nowNs, long begunNs, long periodNs, int choice) {
    boolean isSeldom = (nowNs - begunNs) % (SELDOM_PERIODS * periodNs) > periodNs / 2;
    return isSeldom ? choice % (WHOLE_ROWS - 1) : choice % WHOLE_ROWS;
  }

  static long number(Kind kind, int process, long count) {
    long number = count * PROCESSES_MAX + process;
    return kind == Kind.REGISTERS ? number << INCREMENT_BITS : number;
  }
}
