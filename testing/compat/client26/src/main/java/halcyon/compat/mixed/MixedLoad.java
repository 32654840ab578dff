package halcyon.compat.mixed;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Reads and writes a table while its regions move and its servers die, and knows what each answer has to be.
 *
 * <pre>
 * HOST:PORT,... TABLE ROWS STOP    creates the table, writes ROWS rows, prints "working", and works until the file STOP is there
 * </pre>
 *
 * Each thread owns rows. It knows their versions, so a get has one right answer. Counters are incremented by one each time:
 * an answer that is not the one before plus one shows an increment that was lost or done twice. The client's own retries are
 * HBase's, with its default number. An exception that reaches this program is an error, whatever its class, and then the row or
 * counter may have either of two values. So is a thread that ends before it is told to. At the end every row and every counter is
 * read once more. Exit 1 on any error or difference, or if a thread has too few answers of one kind of operation.
 *
 * <p>-Dagain=MS: no row is overwritten earlier than so long after the last time. Servers whose clocks are apart by less than that
 * then give its versions ascending timestamps. -Dreport=MS: between two reports, default 10000. -Dleast=COUNT: answers of each
 * kind of operation that each thread must get, default 10.
 */
public final class MixedLoad {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] G = Bytes.toBytes("g");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final int THREADS = 4;
  private static final int COUNTERS = 25; // of each thread
  private static final int REGIONS = 10;
  private static final long AGAIN_NS = Long.getLong("again", 0) * 1_000_000;
  private static final long REPORT_MS = Long.getLong("report", 10_000);
  private static final long LEAST = Long.getLong("least", 10);

  /** Kinds of operations. */
  private enum Kind {
    GET, PUT, INCREMENT, SCAN
  }


  private final Connection connection;
  private final TableName name;
  private final int rows;
  private final Path stop;
  /** The newest version of each row that was acknowledged, and whether one more was tried without an answer. */
  private final int[] versions;
  private final boolean[] unsure;
  private final long[] counters = new long[THREADS * COUNTERS];
  private final long[] unsureCounts = new long[THREADS * COUNTERS];
  private final AtomicLong operations = new AtomicLong();
  private final AtomicLong errors = new AtomicLong();
  private final AtomicLong differences = new AtomicLong();
  /**
   * Increments that were answered without a value. HBase 2.6.4 answers so when an increment is repeated that the server knows
   * from a recovered WAL only: such a nonce has no read point there, so nothing can be read.
   */
  private final AtomicLong withoutValue = new AtomicLong();
  private final AtomicLong longestMs = new AtomicLong();
  /** The longest one since the last report. */
  private final AtomicLong latelyMs = new AtomicLong();
  /** When each thread's operation began, 0 if it has none. */
  private final AtomicLongArray begun = new AtomicLongArray(THREADS);
  private final long[] overwritten;
  /** Operations of each thread that had an answer, by kind. */
  private final AtomicLongArray[] answered = new AtomicLongArray[THREADS];

  private MixedLoad(Connection connection, String table, int rows, Path stop) {
    this.connection = connection;
    this.name = TableName.valueOf(table);
    this.rows = rows;
    this.stop = stop;
    this.versions = new int[rows];
    this.unsure = new boolean[rows];
    this.overwritten = new long[rows];
    Arrays.fill(overwritten, System.nanoTime() - AGAIN_NS);
    Arrays.setAll(answered, thread -> new AtomicLongArray(Kind.values().length));
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 4) {
      System.err.println("HOST:PORT,... TABLE ROWS STOP");
      System.exit(64);
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    // A look-up in ZooKeeper has 10 s (zookeeper.registry.async.get.timeout); a frozen server is noticed after 2/3 of this, 60 s by default.
    conf.setInt("zookeeper.session.timeout", 6_000);
    for (String kind : new String[] {"", "read.", "write."}) {
      conf.setInt("hbase.rpc." + kind + "timeout", 10_000); // a frozen server does not answer
    }
    boolean right;
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      right = new MixedLoad(connection, args[1], Integer.parseInt(args[2]), Path.of(args[3])).run();
    }
    System.exit(right ? 0 : 1);
  }

  private boolean run() throws Exception {
    load();
    say("working");
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < THREADS; t++) {
      int id = t;
      threads.add(new Thread(() -> work(id), "worker-" + t));
    }
    threads.forEach(Thread::start);
    while (!Files.exists(stop)) {
      Thread.sleep(REPORT_MS);
      say("so far: " + counts() + ", lately " + lately() + " ms");
    }
    for (Thread thread : threads) {
      thread.join();
    }
    verify();
    say("end: " + counts());
    return errors.get() == 0 && differences.get() == 0 && hasEnough();
  }

  /** Whether each thread had answers of each kind: what was hardly asked shows nothing. */
  private boolean hasEnough() {
    boolean enough = true;
    StringBuilder sums = new StringBuilder("answers:");
    for (Kind kind : Kind.values()) {
      sums.append(' ').append(kind);
      for (int thread = 0; thread < THREADS; thread++) {
        long count = answered[thread].get(kind.ordinal());
        sums.append(' ').append(count);
        if (count < LEAST) {
          say("TOO FEW worker-" + thread + " had " + count + " answers to " + kind + ", and " + LEAST + " are the least");
          enough = false;
        }
      }
    }
    say(sums.toString());
    return enough;
  }

  private String counts() {
    return operations + " operations, " + errors + " errors, " + differences + " differences, longest operation "
        + longestMs + " ms";
  }

  /** The longest operation that ended since the last report or has not ended yet. */
  private long lately() {
    long longest = latelyMs.getAndSet(0);
    for (int thread = 0; thread < THREADS; thread++) {
      long start = begun.get(thread);
      longest = Math.max(longest, start == 0 ? 0 : (System.nanoTime() - start) / 1_000_000);
    }
    return longest;
  }

  private static void say(String text) {
    System.out.println(text);
    System.out.flush();
  }

  /** Numbers that are near each other are in different regions. */
  private static byte[] row(int number) {
    return Bytes.toBytes(String.format("%d%08d", number % REGIONS, number));
  }

  private static byte[] counterRow(int counter) {
    return Bytes.toBytes(String.format("%dcounter%03d", counter % REGIONS, counter));
  }

  private static byte[] value(int number, int version) {
    byte[] value = new byte[60 + number % 80];
    Arrays.fill(value, (byte) (number * 31 + version));
    Bytes.putInt(value, 0, number);
    Bytes.putInt(value, 4, version);
    return value;
  }

  private static Put put(int number, int version) {
    byte[] value = value(number, version);
    return new Put(row(number)).addColumn(F, Q, value).addColumn(G, Q, value);
  }

  private void load() throws IOException {
    byte[][] splits = new byte[REGIONS - 1][];
    for (int at = 0; at < splits.length; at++) {
      splits[at] = Bytes.toBytes(Integer.toString(at + 1));
    }
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(name)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of(F))
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of(G)).build(), splits);
    }
    try (BufferedMutator mutator = connection.getBufferedMutator(name)) {
      for (int number = 0; number < rows; number++) {
        mutator.mutate(put(number, 0));
      }
    }
    say("loaded " + rows + " rows");
  }

  /** A thread that ends before it is told to is an error, whatever has ended it. */
  private void work(int thread) {
    Random random = new Random(thread);
    try (Table table = connection.getTable(name)) {
      while (!Files.exists(stop)) {
        long start = System.nanoTime();
        begun.set(thread, start);
        try {
          operation(table, random, thread);
        } finally {
          begun.set(thread, 0);
        }
        operations.incrementAndGet();
        long took = (System.nanoTime() - start) / 1_000_000;
        longestMs.accumulateAndGet(took, Math::max);
        latelyMs.accumulateAndGet(took, Math::max);
      }
    } catch (Throwable e) {
      failed("worker-" + thread + " ended early", e);
    }
  }

  private void operation(Table table, Random random, int thread) {
    switch (random.nextInt(10)) {
      case 0, 1, 2, 3 -> tried(Kind.GET, thread, get(table, own(random, thread)));
      case 4, 5, 6 -> tried(Kind.PUT, thread, overwrite(table, own(random, thread)));
      case 7, 8 -> tried(Kind.INCREMENT, thread, increment(table, thread * COUNTERS + random.nextInt(COUNTERS)));
      default -> tried(Kind.SCAN, thread, scan(table, random.nextInt(rows), thread));
    }
  }

  private void tried(Kind kind, int thread, boolean isAnswered) {
    answered[thread].addAndGet(kind.ordinal(), isAnswered ? 1 : 0);
  }

  private int own(Random random, int thread) {
    int number = random.nextInt(rows / THREADS) * THREADS + thread;
    return Math.min(number, rows - 1) / THREADS * THREADS + thread;
  }

  private void failed(String what, Throwable error) {
    if (errors.incrementAndGet() <= 20) {
      say("ERROR " + what + ": " + error);
    }
  }

  private void differs(String what) {
    if (differences.incrementAndGet() <= 20) {
      say("DIFFERENCE " + what);
    }
  }

  /** Whether there was an answer, as of the other operations. */
  private boolean get(Table table, int number) {
    try {
      compare(number, table.get(new Get(row(number))), "get");
      return true;
    } catch (IOException | RuntimeException | AssertionError e) {
      failed("get of " + Bytes.toString(row(number)), e);
      return false;
    }
  }

  private void compare(int number, Result found, String how) {
    byte[] value = found.getValue(F, Q);
    boolean whole = value != null && Bytes.equals(value, found.getValue(G, Q));
    boolean newest = whole && Bytes.equals(value, value(number, versions[number]));
    boolean next = whole && unsure[number] && Bytes.equals(value, value(number, versions[number] + 1));
    if (!newest && !next) {
      differs(how + " of " + Bytes.toString(row(number)) + ": found "
          + (value == null ? "nothing" : value.length < 8 ? value.length + " bytes" : "version " + Bytes.toInt(value, 4))
          + (value == null || whole ? "" : ", and another value in the other family")
          + ", expected " + versions[number] + (unsure[number] ? " or one more" : ""));
    }
  }

  private boolean overwrite(Table table, int number) {
    if (unsure[number] || System.nanoTime() - overwritten[number] < AGAIN_NS) {
      return false;
    }
    try {
      table.put(put(number, versions[number] + 1));
      versions[number]++;
      overwritten[number] = System.nanoTime();
      return true;
    } catch (IOException | RuntimeException | AssertionError e) {
      unsure[number] = true;
      failed("put of " + Bytes.toString(row(number)), e);
      return false;
    }
  }

  private boolean increment(Table table, int counter) {
    try {
      byte[] value = table.increment(new Increment(counterRow(counter)).addColumn(F, Q, 1)).getValue(F, Q);
      long least = counters[counter] + 1;
      if (value == null) {
        withoutValue.incrementAndGet();
        counters[counter] = least;
        return true;
      }
      if (value.length != Long.BYTES) {
        differs("increment of " + Bytes.toString(counterRow(counter)) + ": found " + value.length + " bytes");
        unsureCounts[counter]++;
        return true;
      }
      long found = Bytes.toLong(value);
      if (found < least || found > least + unsureCounts[counter]) {
        differs("increment of " + Bytes.toString(counterRow(counter)) + ": found " + found + ", expected " + least
            + (unsureCounts[counter] == 0 ? "" : " to " + (least + unsureCounts[counter])));
      }
      unsureCounts[counter] = Math.max(0, unsureCounts[counter] - (found - least));
      counters[counter] = found;
      return true;
    } catch (IOException | RuntimeException | AssertionError e) {
      unsureCounts[counter]++;
      failed("increment of " + Bytes.toString(counterRow(counter)), e);
      return false;
    }
  }

  /** Some rows from one on. They are in the order of their keys, without a gap, and those of this thread have their values. */
  private boolean scan(Table table, int first, int thread) {
    Scan scan = new Scan().withStartRow(row(first)).setLimit(20);
    try (ResultScanner scanner = table.getScanner(scan)) {
      int expected = first;
      for (Iterator<Result> results = scanner.iterator(); results.hasNext();) {
        Result result = results.next();
        if (Bytes.toString(result.getRow()).contains("counter") || expected >= rows) {
          return true; // the rows of this region have ended
        }
        if (!Bytes.equals(result.getRow(), row(expected))) {
          differs("scan: found " + Bytes.toString(result.getRow()) + ", expected " + Bytes.toString(row(expected)));
          return true;
        }
        if (expected % THREADS == thread) {
          compare(expected, result, "scan");
        }
        expected += REGIONS;
      }
      return true;
    } catch (IOException | RuntimeException | AssertionError e) { // an iterator throws UncheckedIOException
      failed("scan from " + Bytes.toString(row(first)), e);
      return false;
    }
  }

  private void verify() throws IOException {
    long found = 0;
    try (Table table = connection.getTable(name)) {
      try (ResultScanner scanner = table.getScanner(new Scan().setCaching(1000))) {
        for (Result result : scanner) {
          String key = Bytes.toString(result.getRow());
          if (key.matches("[0-9]{9}") && Integer.parseInt(key.substring(1)) < rows) {
            found++;
            compare(Integer.parseInt(key.substring(1)), result, "last scan");
          } else if (!key.contains("counter")) {
            differs("last scan: found the row " + Bytes.toStringBinary(result.getRow()) + ", which nothing wrote");
          }
        }
      }
      if (found != rows) {
        differs("last scan: found " + found + " rows, expected " + rows);
      }
      for (int counter = 0; counter < counters.length; counter++) {
        byte[] value = table.get(new Get(counterRow(counter))).getValue(F, Q);
        long count = value == null ? 0 : value.length == Long.BYTES ? Bytes.toLong(value) : -1;
        if (count < counters[counter] || count > counters[counter] + unsureCounts[counter]) {
          differs("counter " + counter + ": found " + count + ", expected " + counters[counter]);
        }
      }
    }
    say("verified " + found + " rows and " + counters.length + " counters of "
        + Arrays.stream(counters).sum() + " increments, of which " + withoutValue + " were answered without a value");
  }
}
