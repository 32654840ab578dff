package halcyon.compat.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Latencies and processor time of the same load at several servers in turn.
 *
 * <pre>
 * HOST:PORT,... ROUNDS SECONDS WARM_SECONDS ROWS VALUE_BYTES CASE,... TABLE=PID,... OTHERS=PID+PID,...
 * </pre>
 *
 * A case is {@code put:THREADS}, {@code get:THREADS} or {@code batch:THREADS}, puts in batches of 100. Each table has its
 * regions at the server of that process. Tables are loaded with ROWS rows for each of 8 threads, which are overwritten and
 * read later. Each round runs each case for SECONDS at each table; every other round begins with the last table. Round 0 is
 * the warm-up. Prints a line of tab-separated figures for each run; processor time is user and system time of
 * {@code /proc/PID/stat}, from before to after the run. Exit 1 if an operation failed.
 */
public final class PutLatency {
  private static final int LOADERS = 8;
  private static final int BATCH = 100;
  private static final int LOAD_BATCH = 500;
  private static final double TICK_SECONDS = 0.01; // USER_HZ is 100 on every Linux of today

  private final Connection connection;
  private final int rows;
  private final int valueBytes;
  private final Map<String, List<Long>> servers;
  private final Map<String, List<Long>> others;
  private final AtomicLong errors = new AtomicLong();

  private PutLatency(Connection connection, int rows, int valueBytes, String servers, String others) {
    this.connection = connection;
    this.rows = rows;
    this.valueBytes = valueBytes;
    this.servers = processes(servers);
    this.others = processes(others);
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 9) {
      System.err.println("HOST:PORT,... ROUNDS SECONDS WARM_SECONDS ROWS VALUE_BYTES CASE,... TABLE=PID,... OTHERS=PID+PID,...");
      System.exit(64);
    }
    long errors;
    try (Connection connection = Load.connect(args[0])) {
      PutLatency load =
          new PutLatency(connection, Integer.parseInt(args[4]), Integer.parseInt(args[5]), args[7], args[8]);
      load.run(Integer.parseInt(args[1]), seconds(args[2]), seconds(args[3]), args[6].split(","));
      errors = load.errors.get();
    }
    System.exit(errors == 0 ? 0 : 1);
  }

  private static long seconds(String text) {
    return (long) (Double.parseDouble(text) * 1e9);
  }

  private static Map<String, List<Long>> processes(String text) {
    Map<String, List<Long>> all = new LinkedHashMap<>();
    for (String one : text.split(",")) {
      List<Long> pids = new ArrayList<>();
      for (String pid : one.split("=")[1].split("\\+")) {
        pids.add(Long.parseLong(pid));
      }
      all.put(one.split("=")[0], pids);
    }
    return all;
  }

  private void run(int rounds, long runNs, long warmNs, String[] cases) throws Exception {
    System.out.println("round\tcase\tthreads\tserver\tops\trows\tseconds\tp50_us\tp99_us\tp999_us\tmax_us\terrors\tserver_cpu_s\tclient_cpu_s"
        + String.join("", others.keySet().stream().map(name -> "\t" + name + "_cpu_s").toList()));
    List<String> tables = new ArrayList<>(servers.keySet());
    for (String table : tables) {
      load(TableName.valueOf(table));
    }
    for (int round = 0; round <= rounds; round++) {
      for (String one : cases) {
        for (int at = 0; at < tables.size(); at++) {
          String table = tables.get(round % 2 == 1 ? at : tables.size() - 1 - at);
          measure(round, one.split(":")[0], Integer.parseInt(one.split(":")[1]), table, round == 0 ? warmNs : runNs);
        }
      }
    }
  }

  private void load(TableName name) throws Exception {
    inThreads(LOADERS, thread -> {
      try (Table table = connection.getTable(name)) {
        for (int from = 0; from < rows; from += LOAD_BATCH) {
          List<Put> puts = new ArrayList<>();
          for (int number = from; number < Math.min(from + LOAD_BATCH, rows); number++) {
            puts.add(Load.put(thread, number, valueBytes));
          }
          table.put(puts);
        }
      }
    });
  }

  private interface Work {
    void of(int thread) throws IOException;
  }

  private void inThreads(int count, Work work) throws InterruptedException {
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < count; t++) {
      int thread = t;
      threads.add(new Thread(() -> {
        try {
          work.of(thread);
        } catch (IOException e) {
          failed(e);
        }
      }));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
  }

  private void failed(Exception error) {
    if (errors.incrementAndGet() <= 20) {
      System.err.println("ERROR " + error);
    }
  }

  private void measure(int round, String what, int threads, String server, long forNs) throws Exception {
    System.gc(); // so that the pauses of one run are not the leavings of another
    Thread.sleep(200);
    long errorsBefore = errors.get();
    List<Samples> samples = new ArrayList<>();
    for (int t = 0; t < threads; t++) {
      samples.add(new Samples());
    }
    double[] before = cpu(server);
    long begin = System.nanoTime();
    CyclicBarrier start = new CyclicBarrier(threads);
    TableName name = TableName.valueOf(server);
    inThreads(threads, thread -> {
      try (Table table = connection.getTable(name)) {
        start.await();
        work(table, what, thread, begin + forNs, samples.get(thread), new Random(round * 1000L + thread));
      } catch (Exception e) {
        failed(e);
      }
    });
    double seconds = (System.nanoTime() - begin) / 1e9;
    double[] after = cpu(server);
    long[] sorted = Samples.sorted(samples);
    StringBuilder line = new StringBuilder();
    line.append(String.format("%d\t%s\t%d\t%s\t%d\t%d\t%.3f", round, what, threads, server, sorted.length,
        sorted.length * (what.equals("batch") ? (long) BATCH : 1), seconds));
    for (double share : new double[] {0.5, 0.99, 0.999, 1}) {
      line.append(String.format("\t%.1f", Samples.percentile(sorted, share) / 1e3));
    }
    line.append("\t").append(errors.get() - errorsBefore);
    for (int at = 0; at < before.length; at++) {
      line.append(String.format("\t%.2f", after[at] - before[at]));
    }
    System.out.println(line);
    System.out.flush();
  }

  private void work(Table table, String what, int thread, long endNs, Samples samples, Random random) {
    while (System.nanoTime() < endNs) {
      int number = random.nextInt(rows);
      List<Put> puts = new ArrayList<>();
      for (int more = 0; more < (what.equals("batch") ? BATCH : what.equals("put") ? 1 : 0); more++) {
        puts.add(Load.put(thread % LOADERS, (number + more) % rows, valueBytes));
      }
      long begin = System.nanoTime();
      try {
        switch (what) {
          case "put" -> table.put(puts.get(0));
          case "batch" -> table.put(puts);
          case "get" -> get(table, thread % LOADERS, number);
          default -> throw new IllegalArgumentException(what);
        }
        samples.add(System.nanoTime() - begin);
      } catch (IOException e) {
        failed(e);
      }
    }
  }

  private void get(Table table, int thread, int number) throws IOException {
    byte[] value = table.get(new Get(Load.row(thread, number))).getValue(Load.F, Load.Q);
    if (value == null || Bytes.toInt(value) != number) {
      throw new IOException("a wrong answer for " + Bytes.toString(Load.row(thread, number)));
    }
  }

  /** Seconds of the server, of this client, and of each group of the others. */
  private double[] cpu(String server) throws IOException {
    double[] all = new double[2 + others.size()];
    all[0] = cpu(servers.get(server));
    all[1] = cpu(List.of(ProcessHandle.current().pid()));
    int at = 2;
    for (List<Long> pids : others.values()) {
      all[at++] = cpu(pids);
    }
    return all;
  }

  private static double cpu(List<Long> pids) throws IOException {
    long ticks = 0;
    for (long pid : pids) {
      String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" "); // the name before may have spaces
      ticks += Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
    }
    return ticks * TICK_SECONDS;
  }
}
