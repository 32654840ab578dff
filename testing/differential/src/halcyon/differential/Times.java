package halcyon.differential;

import java.util.Random;

/**
 * Timestamps of a script. They are of four ages, so that a time to live divides them, and print without the clock:
 * {@code 7} is ancient, {@code B7} a day old, {@code F7} ten days ahead, and {@code now} what a server has set.
 * Such a time lies in the run. Those of one row are numbered within an answer, so that two that have to differ do.
 */
final class Times {
  static final long DAY = 86_400_000L;
  static final int COUNT = 16;
  private static final long STARTED = System.currentTimeMillis();
  static final long BASE = STARTED - DAY;
  static final long FUTURE = STARTED + 10 * DAY;
  private static final long NEAR = 1_000_000L;
  /** The clocks of a machine and of its servers are one. */
  private static final long CLOCK_MS = 60_000L;

  private Times() {}

  static long any(Random random) {
    int kind = random.nextInt(20);
    long offset = 1 + random.nextInt(COUNT);
    if (kind < 9) return BASE + offset;
    if (kind < 18) return offset;
    return FUTURE + offset;
  }

  /** Not one ahead of the clock. */
  static long past(Random random) {
    long timestamp = any(random);
    return timestamp < FUTURE ? timestamp : timestamp - FUTURE;
  }

  /** A bound of a time range. */
  static long bound(Random random) {
    return switch (random.nextInt(12)) {
      case 0 -> 0;
      case 1 -> Long.MAX_VALUE;
      default -> any(random);
    };
  }

  /** Whether a server may have set it since this run began. */
  static boolean isNow(long timestamp) {
    return timestamp >= STARTED - CLOCK_MS && timestamp <= System.currentTimeMillis() + CLOCK_MS;
  }

  static String text(long timestamp) {
    if (timestamp == Long.MAX_VALUE) return "latest";
    if (isNow(timestamp)) return "now";
    if (Math.abs(timestamp - BASE) < NEAR) return "B" + (timestamp - BASE);
    if (Math.abs(timestamp - FUTURE) < NEAR) return "F" + (timestamp - FUTURE);
    return Long.toString(timestamp);
  }
}
