package halcyon.compat.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
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
 * Writes and reads rows of each region of a table while a region server is killed, and knows each answer.
 *
 * <pre>
 * HOST:PORT,... TABLE REGIONS   creates the table, prints "working", and obeys the lines of the standard input
 * phase NAME [REGION...]        a new phase begins; these regions may be away in it. Prints "enough NAME" when the others had enough answers
 * verify                        the workers end, each acknowledged row and counter is looked for; prints "verdict ..."
 * shutdown                      asks the master to stop the cluster, after verify
 * </pre>
 *
 * Each region has a worker of its own, so a region that is away holds up no other. Retries are HBase's, with its default number. Exit 1 if
 * an operation failed or had a wrong answer, or if a region that may not be away had too few answers in a phase. Only operations that
 * began and ended in a phase count for it.
 *
 * <p>-Dleast=COUNT: writes, and reads, that each region must have acknowledged in each phase, default 20.
 */
public final class OneKill {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final long LEAST = Long.getLong("least", 20);
  private static final long PAUSE_MS = 5;
  private static final int SCANNED = 10;

  /** What was acknowledged between two lines of the script. */
  private final class Phase {
    final String name;
    final Set<Integer> away;
    final long begunNs = System.nanoTime();
    final AtomicLongArray writes = new AtomicLongArray(regions);
    final AtomicLongArray reads = new AtomicLongArray(regions);
    final AtomicBoolean isTold = new AtomicBoolean();

    Phase(String name, Set<Integer> away) {
      this.name = name;
      this.away = away;
    }

    boolean isEnough(int region) {
      return away.contains(region) || writes.get(region) >= LEAST && reads.get(region) >= LEAST;
    }

    void count(AtomicLongArray answers, int region) {
      answers.incrementAndGet(region);
      for (int other = 0; other < regions; other++) {
        if (!isEnough(other)) {
          return;
        }
      }
      if (isTold.compareAndSet(false, true)) {
        say("enough " + name);
      }
    }

    /** Prints what there was, and whether it was enough. */
    boolean judge() {
      say(String.format("phase %s: %.1f s, writes %s, reads %s, away %s", name, (System.nanoTime() - begunNs) / 1e9, writes, reads, away));
      boolean enough = true;
      for (int region = 0; region < regions; region++) {
        if (!isEnough(region)) {
          say("TOO FEW " + name + ": region " + region + " had " + writes.get(region) + " writes and " + reads.get(region) + " reads, and "
              + LEAST + " are the least");
          enough = false;
        }
      }
      return enough;
    }
  }

  private interface Call {
    void run() throws IOException;
  }

  /** The rows and the counter of one region. Only its thread writes them. */
  private final class Worker implements Runnable {
    final int region;
    final Random random;
    /** Rows below this one were acknowledged or have failed. */
    int tried;
    final List<Integer> failed = new ArrayList<>();
    long counter;

    Worker(int region) {
      this.region = region;
      this.random = new Random(region);
    }

    @Override
    public void run() {
      try (Table table = connection.getTable(name)) {
        while (working) {
          step(table);
          Thread.sleep(PAUSE_MS);
        }
      } catch (Throwable e) { // a worker that ends early shows nothing from then on
        error("the worker of region " + region + " ended", e);
      }
    }

    private void step(Table table) {
      int number = tried++;
      if (!attempt("put", () -> table.put(new Put(row(region, number)).addColumn(F, Q, value(region, number))), true)) {
        failed.add(number);
      }
      attempt("get", () -> get(table, random.nextInt(tried)), false);
      if (number % 4 == 0) {
        attempt("increment", () -> increment(table), true);
      }
      if (number % 8 == 0) {
        attempt("scan", () -> scan(table, Math.max(0, tried - SCANNED)), false);
      }
    }

    private boolean attempt(String what, Call call, boolean isWrite) {
      Phase begun = phase;
      try {
        call.run();
      } catch (IOException | RuntimeException | AssertionError e) {
        error(what + " in region " + region, e);
        return false;
      }
      if (begun == phase) {
        begun.count(isWrite ? begun.writes : begun.reads, region);
      }
      return true;
    }

    private void get(Table table, int number) throws IOException {
      compare(number, table.get(new Get(row(region, number))), "get");
    }

    private void compare(int number, Result found, String how) {
      if (!failed.contains(number) && !Arrays.equals(found.value(), value(region, number))) {
        differs(how + " of " + Bytes.toString(row(region, number)) + ": " + (found.isEmpty() ? "there is none" : "another value"));
      }
    }

    private void increment(Table table) throws IOException {
      byte[] value = table.increment(new Increment(counterRow(region)).addColumn(F, Q, 1)).value();
      counter++;
      // without a value: it was repeated, and the server knows that from a WAL
      if (value != null && (value.length != Long.BYTES || Bytes.toLong(value) != counter)) {
        differs("increment of " + Bytes.toString(counterRow(region)) + ": found " + Bytes.toStringBinary(value) + ", expected " + counter);
      }
    }

    private void scan(Table table, int first) throws IOException {
      int expected = first;
      try (ResultScanner scanner = table.getScanner(new Scan().withStartRow(row(region, first)).withStopRow(row(region, tried)))) {
        for (Result found : scanner) {
          while (expected < tried && failed.contains(expected) && !Arrays.equals(found.getRow(), row(region, expected))) {
            expected++;
          }
          if (!Arrays.equals(found.getRow(), row(region, expected))) {
            differs("scan: found " + Bytes.toString(found.getRow()) + ", expected " + Bytes.toString(row(region, expected)));
            return;
          }
          compare(expected, found, "scan");
          expected++;
        }
      }
      if (expected < tried && !failed.contains(expected)) {
        differs("scan: the row " + Bytes.toString(row(region, expected)) + " is not there");
      }
    }
  }

  private final Connection connection;
  private final TableName name;
  private final int regions;
  private final AtomicLong errors = new AtomicLong();
  private final AtomicLong differences = new AtomicLong();
  private final List<Phase> phases = new ArrayList<>();
  private volatile Phase phase;
  private volatile boolean working = true;

  private OneKill(Connection connection, String table, int regions) {
    this.connection = connection;
    this.name = TableName.valueOf(table);
    this.regions = regions;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 3 || Integer.parseInt(args[2]) > 10) {
      System.err.println("HOST:PORT,... TABLE REGIONS, at most 10");
      System.exit(64);
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    conf.setInt("zookeeper.session.timeout", 6_000);
    for (String kind : new String[] {"", "read.", "write."}) {
      conf.setInt("hbase.rpc." + kind + "timeout", 10_000);
    }
    boolean right;
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      right = new OneKill(connection, args[1], Integer.parseInt(args[2])).run();
    }
    System.exit(right ? 0 : 1);
  }

  private boolean run() throws Exception {
    create();
    begin("first", Set.of());
    List<Worker> workers = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (int region = 0; region < regions; region++) {
      workers.add(new Worker(region));
      threads.add(new Thread(workers.get(region)));
    }
    threads.forEach(Thread::start);
    say("working");
    boolean right = false;
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "phase" -> begin(words[1], Arrays.stream(words).skip(2).map(Integer::parseInt).collect(Collectors.toSet()));
        case "verify" -> right = verdict(workers, threads);
        case "shutdown" -> {
          try (Admin admin = connection.getAdmin()) {
            admin.shutdown();
          }
        }
        default -> throw new IllegalArgumentException(line);
      }
    }
    return right;
  }

  private void begin(String phaseName, Set<Integer> away) {
    Phase next = new Phase(phaseName, away);
    phases.add(next);
    phase = next;
    say("begun " + phaseName);
  }

  private void create() throws IOException {
    byte[][] splits = new byte[regions - 1][];
    for (int region = 1; region < regions; region++) {
      splits[region - 1] = Bytes.toBytes(Integer.toString(region));
    }
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
    }
  }

  private boolean verdict(List<Worker> workers, List<Thread> threads) throws Exception {
    working = false;
    for (Thread thread : threads) {
      thread.join();
    }
    boolean enough = true;
    for (Phase one : phases.subList(1, phases.size())) {
      enough &= one.judge();
    }
    lookForAll(workers);
    boolean right = enough && errors.get() == 0 && differences.get() == 0;
    say("verdict " + (right ? "right" : "WRONG") + ": " + workers.stream().mapToInt(worker -> worker.tried - worker.failed.size()).sum()
        + " rows and " + workers.stream().mapToLong(worker -> worker.counter).sum() + " increments acknowledged, " + errors + " errors, "
        + differences + " differences");
    return right;
  }

  /** Each acknowledged row, and no other. */
  private void lookForAll(List<Worker> workers) throws IOException {
    try (Table table = connection.getTable(name)) {
      for (Worker worker : workers) {
        worker.scan(table, 0);
        byte[] count = table.get(new Get(counterRow(worker.region))).value();
        if (count == null || Bytes.toLong(count) != worker.counter) {
          differs("counter of region " + worker.region + ": found " + (count == null ? "none" : Bytes.toLong(count)) + ", expected "
              + worker.counter);
        }
      }
    }
  }

  private void error(String what, Throwable error) {
    if (errors.incrementAndGet() <= 20) {
      say("ERROR " + what + ": " + error);
    }
  }

  private void differs(String what) {
    if (differences.incrementAndGet() <= 20) {
      say("DIFFERENCE " + what);
    }
  }

  private static byte[] row(int region, int number) {
    return Bytes.toBytes(String.format("%d-%08d", region, number));
  }

  private static byte[] counterRow(int region) {
    return Bytes.toBytes(region + "counter");
  }

  private static byte[] value(int region, int number) {
    byte[] value = new byte[80];
    Arrays.fill(value, (byte) (region * 31 + number));
    Bytes.putInt(value, 0, region);
    Bytes.putInt(value, 4, number);
    return value;
  }

  private static void say(String text) {
    System.out.println(text);
    System.out.flush();
  }
}
