package halcyon.compat.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A steady load of puts, each of a new row, and how long they waited while something was done to the cluster.
 *
 * <pre>
 * HOST:PORT,... TABLE THREADS VALUE_BYTES
 * </pre>
 *
 * Each line of the standard input begins a phase of that name; the line {@code end} ends the load. Then a line of
 * tab-separated figures is printed for each phase:
 *
 * <pre>
 * phase  seconds  puts  puts each second  longest put in ms  longest time without an acknowledged put in ms  errors
 * </pre>
 *
 * A put that waited through a border belongs to the phases on both sides. Every acknowledged row is read at the end. Exit 1
 * after an error or if one is missing.
 */
public final class PutStalls {
  /** Shorter waits are counted, and only the longest of them is known. */
  private static final long NOTED_NS = 10_000_000;

  private record Wait(long beginNs, long endNs) {}

  private static final class Phase {
    final String name;
    final long beginNs = System.nanoTime();
    long endNs;
    final AtomicLong puts = new AtomicLong();
    final AtomicLong errors = new AtomicLong();
    final AtomicLong longestShortNs = new AtomicLong();
    final AtomicLong lastNs = new AtomicLong(beginNs);
    final AtomicLong longestGapNs = new AtomicLong();

    Phase(String name) {
      this.name = name;
    }

    void acknowledged(long nowNs) {
      puts.incrementAndGet();
      long before = lastNs.getAndAccumulate(nowNs, Math::max);
      longestGapNs.accumulateAndGet(nowNs - before, Math::max);
    }
  }

  private final Connection connection;
  private final TableName name;
  private final int valueBytes;
  /** So many rows of each thread were acknowledged: the next one has this number. */
  private final AtomicIntegerArray acknowledged;
  private final List<List<Integer>> unsure = new ArrayList<>();
  private final List<Phase> phases = new ArrayList<>();
  private final List<Wait> waits = new ArrayList<>();
  private volatile Phase phase;

  private PutStalls(Connection connection, String table, int threads, int valueBytes) {
    this.connection = connection;
    this.name = TableName.valueOf(table);
    this.valueBytes = valueBytes;
    this.acknowledged = new AtomicIntegerArray(threads);
    for (int thread = 0; thread < threads; thread++) {
      unsure.add(new ArrayList<>());
    }
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 4) {
      System.err.println("HOST:PORT,... TABLE THREADS VALUE_BYTES");
      System.exit(64);
    }
    boolean right;
    try (Connection connection = Load.connect(args[0])) {
      right = new PutStalls(connection, args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3])).run();
    }
    System.exit(right ? 0 : 1);
  }

  private boolean run() throws Exception {
    begin("start");
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < acknowledged.length(); t++) {
      int thread = t;
      threads.add(new Thread(() -> work(thread), "worker-" + t));
    }
    threads.forEach(Thread::start);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); !"end".equals(line); line = lines.readLine()) {
      if (line == null) {
        System.exit(2); // the script has ended
      }
      begin(line);
      System.out.println("begins\t" + line);
      System.out.flush();
    }
    Phase last = phase;
    phase = null;
    for (Thread thread : threads) {
      thread.join();
    }
    last.endNs = System.nanoTime();
    phases.forEach(this::print);
    return verify() && phases.stream().allMatch(one -> one.errors.get() == 0);
  }

  private void begin(String name) {
    Phase next = new Phase(name);
    if (phase != null) {
      phase.endNs = next.beginNs;
    }
    phases.add(next);
    phase = next;
  }

  private void work(int thread) {
    try (Table table = connection.getTable(name)) {
      for (Phase now = phase; now != null; now = phase) {
        put(table, thread, now);
      }
    } catch (IOException e) {
      System.err.println("ERROR closing the table: " + e);
    }
  }

  private void put(Table table, int thread, Phase now) {
    int number = acknowledged.get(thread) + unsure.get(thread).size();
    Put put = Load.put(thread, number, valueBytes);
    boolean failed = false;
    long beginNs = System.nanoTime();
    try {
      table.put(put);
      acknowledged.incrementAndGet(thread);
    } catch (IOException e) {
      failed = true;
      unsure.get(thread).add(number);
      if (now.errors.incrementAndGet() <= 5) {
        System.err.println("ERROR in " + now.name + ": " + e);
      }
    }
    long endNs = System.nanoTime();
    Phase next = phase;
    Phase then = next == null ? now : next;
    if (!failed) {
      then.acknowledged(endNs);
    }
    if (endNs - beginNs < NOTED_NS) {
      then.longestShortNs.accumulateAndGet(endNs - beginNs, Math::max);
    } else {
      synchronized (waits) {
        waits.add(new Wait(beginNs, endNs));
      }
    }
  }

  private void print(Phase one) {
    long longestNs = waits.stream().filter(wait -> wait.beginNs < one.endNs && wait.endNs > one.beginNs)
        .mapToLong(wait -> wait.endNs - wait.beginNs).max().orElse(one.longestShortNs.get());
    double seconds = (one.endNs - one.beginNs) / 1e9;
    long gapNs = Math.max(one.longestGapNs.get(), one.endNs - one.lastNs.get());
    System.out.println(String.format("phase\t%s\t%.1f\t%d\t%.0f\t%.1f\t%.1f\t%d", one.name, seconds, one.puts.get(),
        one.puts.get() / seconds, longestNs / 1e6, gapNs / 1e6, one.errors.get()));
  }

  /** Every acknowledged row is there, with its value. */
  private boolean verify() throws IOException {
    int threads = acknowledged.length();
    boolean[][] found = new boolean[threads][];
    long expected = 0;
    for (int thread = 0; thread < threads; thread++) {
      found[thread] = new boolean[acknowledged.get(thread) + unsure.get(thread).size()];
      expected += acknowledged.get(thread);
    }
    long wrong = 0;
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan().setCaching(1000))) {
      for (Result result : scanner) {
        String[] key = Bytes.toString(result.getRow()).split("-");
        int thread = Integer.parseInt(key[1]);
        int number = Integer.parseInt(key[2]);
        boolean right = number < found[thread].length
            && Arrays.equals(result.getValue(Load.F, Load.Q), Load.value(thread, number, valueBytes));
        if (right) {
          found[thread][number] = true;
        } else {
          wrong++;
        }
      }
    }
    long missing = 0;
    for (int thread = 0; thread < threads; thread++) {
      for (int number = 0; number < found[thread].length; number++) {
        missing += !found[thread][number] && !unsure.get(thread).contains(number) ? 1 : 0;
      }
    }
    System.out.println(String.format("verified\t%d rows\t%d missing\t%d wrong", expected, missing, wrong));
    return missing == 0 && wrong == 0;
  }
}
