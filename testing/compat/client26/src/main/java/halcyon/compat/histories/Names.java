package halcyon.compat.histories;

/** Rows and numbers. They are those of testing/histories/src/record/names.rs, so that both recorders use the same rows. */
final class Names {
  static final int SLOTS = 8;
  static final int WHOLE_ROWS = 3;
  private static final int PROCESSES_MAX = 100;
  private static final int INCREMENT_BITS = 20;

  private Names() {}

  static String row(Kind kind, int slot, long nowNs, long periodNs, int choice) {
    if (kind == Kind.ROWS) {
      return slot + "-" + choice % WHOLE_ROWS;
    }
    return slot + "-" + (nowNs + slot * periodNs / SLOTS) / periodNs;
  }

  static long number(Kind kind, int process, long count) {
    long number = count * PROCESSES_MAX + process;
    return kind == Kind.REGISTERS ? number << INCREMENT_BITS : number;
  }
}
