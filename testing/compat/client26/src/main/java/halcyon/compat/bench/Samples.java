package halcyon.compat.bench;

import java.util.Arrays;

/** Every latency of a run, not a histogram: percentiles are exact. */
final class Samples {
  private long[] nanos = new long[1 << 16];
  private int count;

  void add(long value) {
    if (count == nanos.length) {
      nanos = Arrays.copyOf(nanos, 2 * count);
    }
    nanos[count++] = value;
  }

  void clear() {
    count = 0;
  }

  int count() {
    return count;
  }

  /** All of them in order. */
  static long[] sorted(Iterable<Samples> parts) {
    int total = 0;
    for (Samples part : parts) {
      total += part.count;
    }
    long[] all = new long[total];
    int at = 0;
    for (Samples part : parts) {
      System.arraycopy(part.nanos, 0, all, at, part.count);
      at += part.count;
    }
    Arrays.sort(all);
    return all;
  }

  /** The smallest one that is not below the given share of all. */
  static long percentile(long[] sorted, double share) {
    return sorted.length == 0 ? 0 : sorted[Math.max(0, (int) Math.ceil(share * sorted.length) - 1)];
  }
}
