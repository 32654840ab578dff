// Ingest CLIENT_PROPERTIES [--table T] [--clients N] [--nodes N] [--time SECONDS] [--batch N] [--layer N] [--presplit N]
//        [--rate PER_SECOND] [--warmup SECONDS] [--warmup-max SECONDS] [--slow-ms MS] [--seed N] [--json FILE] [--server-pid PID]
//        [--progress-period SECONDS]
//
// `halcyon bench ingest write` for Accumulo: the same nodes, options, measurements and results. A step adds a batch of
// nodes to the client's own BatchWriter and flushes it; its latency counts from when it should have begun.

import com.sun.management.OperatingSystemMXBean;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.accumulo.core.client.Accumulo;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.BatchWriter;
import org.apache.accumulo.core.client.BatchWriterConfig;
import org.apache.accumulo.core.client.TableExistsException;
import org.apache.accumulo.core.client.admin.NewTableConfiguration;
import org.apache.accumulo.core.data.Mutation;
import org.apache.hadoop.io.Text;

public class Ingest {
  static final byte[] FAMILY = "ci".getBytes(StandardCharsets.US_ASCII);
  static final long ROW_END = Long.MAX_VALUE; // rows lie below 2^63
  static final int QUALIFIER_END = 1 << 15;
  static final int DEPTH_MAX = 25;
  static final int SLOW_MAX = 100_000;
  static final long OPERATION_TIME_MAX_S = 30;
  static final String[] QUANTILE_NAMES = {"p50", "p90", "p95", "p99", "p99.9", "p99.99"};
  static final double[] QUANTILES = {0.5, 0.9, 0.95, 0.99, 0.999, 0.9999};

  // ---- options

  static final Map<String, String> options = new TreeMap<>(Map.of("table", "ci", "clients", "4", "nodes", "1000000",
      "batch", "1000", "layer", "10000", "presplit", "8", "warmup", "0", "slow-ms", "10", "progress-period", "10"));
  static final List<String> NAMES = List.of("table", "clients", "nodes", "time", "batch", "layer", "presplit", "rate",
      "warmup", "warmup-max", "slow-ms", "seed", "json", "server-pid", "progress-period");

  static void readOptions(String[] arguments) {
    for (int at = 1; at < arguments.length; at++) {
      String argument = arguments[at];
      if (!argument.startsWith("--")) {
        throw new IllegalArgumentException(argument + " is not an option");
      }
      int equals = argument.indexOf('=');
      String name = argument.substring(2, equals < 0 ? argument.length() : equals);
      if (!NAMES.contains(name)) {
        throw new IllegalArgumentException("--" + name + " is not an option");
      }
      if (equals < 0 && at + 1 == arguments.length) {
        throw new IllegalArgumentException("--" + name + " wants a value");
      }
      options.put(name, equals < 0 ? arguments[++at] : argument.substring(equals + 1));
    }
  }

  static long number(String name) {
    return Long.parseLong(options.get(name));
  }

  // ---- what is measured

  /** Counts of latencies in microseconds, exact to three digits. */
  static final class Histogram {
    private static final int BITS = 11;
    private long[] counts = new long[1 << BITS];
    long count;
    long max;
    double sum;

    static int bucket(long value) {
      int shift = Math.max(0, 64 - Long.numberOfLeadingZeros(value) - BITS);
      return (shift << (BITS - 1)) + (int) (value >>> shift);
    }

    static long highest(int bucket) {
      int shift = Math.max(0, (bucket >> (BITS - 1)) - 1);
      long low = bucket - ((long) shift << (BITS - 1));
      return ((low + 1) << shift) - 1;
    }

    void add(long value) {
      int bucket = bucket(value);
      if (bucket >= counts.length) {
        counts = Arrays.copyOf(counts, bucket + (1 << BITS));
      }
      counts[bucket]++;
      count++;
      sum += value;
      max = Math.max(max, value);
    }

    void add(Histogram other) {
      if (other.counts.length > counts.length) {
        counts = Arrays.copyOf(counts, other.counts.length);
      }
      for (int at = 0; at < other.counts.length; at++) {
        counts[at] += other.counts[at];
      }
      count += other.count;
      sum += other.sum;
      max = Math.max(max, other.max);
    }

    long quantile(double quantile) {
      long rank = Math.max(1, (long) Math.ceil(quantile * count)), seen = 0;
      for (int at = 0; at < counts.length; at++) {
        seen += counts[at];
        if (seen >= rank) {
          return Math.min(highest(at), max);
        }
      }
      return max;
    }
  }

  record Slow(long beginNs, long latencyUs) {}

  /** What one client has measured since it was last asked. */
  static final class Recorder {
    private Histogram latencies = new Histogram();
    private List<Slow> slow = new ArrayList<>();
    private long operations;

    synchronized void done(long nodes, long beginNs, long endNs, long measuredFromNs, double slowUs) {
      operations += nodes;
      if (beginNs < measuredFromNs) {
        return;
      }
      long us = Math.max(0, endNs - beginNs + 999) / 1000;
      latencies.add(us);
      if (us > slowUs) {
        slow.add(new Slow(beginNs, us));
      }
    }

    synchronized long drain(Histogram into, List<Slow> slowInto) {
      into.add(latencies);
      slowInto.addAll(slow);
      long drained = operations;
      latencies = new Histogram();
      slow = new ArrayList<>();
      operations = 0;
      return drained;
    }
  }

  record Second(double elapsedS, long operations, Histogram latencies) {}

  // ---- the run

  static volatile boolean stop;
  static volatile String partial;
  static volatile long measuredFromNs = Long.MAX_VALUE;
  static final Map<String, Long> errors = new TreeMap<>();

  static synchronized void failed(Throwable error) {
    errors.merge(error.getClass().getSimpleName(), 1L, Long::sum);
    if (partial == null) {
      partial = "an operation failed: " + String.valueOf(error).lines().findFirst().orElse("");
    }
    stop = true;
  }

  static double clientCpu() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
  }

  static String text(String path) {
    try {
      return Files.readString(Path.of(path));
    } catch (Exception e) {
      return "";
    }
  }

  /** User and system time of the server, or null. */
  static Double serverCpu() {
    String stat = options.containsKey("server-pid") ? text("/proc/" + options.get("server-pid") + "/stat") : "";
    int end = stat.lastIndexOf(") ");
    if (end < 0) {
      return null;
    }
    String[] fields = stat.substring(end + 2).split(" ");
    return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
  }

  static Long serverResidentBytes() {
    String status = options.containsKey("server-pid") ? text("/proc/" + options.get("server-pid") + "/status") : "";
    String kilobytes = valueOf(status, "VmRSS");
    return kilobytes == null ? null : Long.valueOf(Long.parseLong(kilobytes.replace(" kB", "").trim()) * 1024);
  }

  static String valueOf(String text, String name) {
    return text.lines().filter(line -> line.startsWith(name)).findFirst()
        .map(line -> line.substring(line.indexOf(':') + 1).trim()).orElse(null);
  }

  public static void main(String[] arguments) throws Exception {
    var properties = new Properties();
    try {
      readOptions(arguments);
      try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
        properties.load(file);
      }
    } catch (Exception e) {
      System.err.println("ingest: " + e.getMessage());
      System.exit(2);
    }
    var main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      if (main.isAlive() && !stop) {
        partial = "interrupted";
        stop = true;
        try {
          main.join(5_000);
        } catch (InterruptedException e) {
          return; // the process ends anyway
        }
      }
    }));
    boolean whole = false;
    try {
      // never closed, as a close may wait for a cluster that is gone
      AccumuloClient client = Accumulo.newClient().from(properties).build();
      prepare(client);
      whole = run(client, properties.getProperty("instance.zookeepers"));
    } catch (Exception e) {
      System.err.println("ingest: " + e);
    }
    System.out.flush();
    Runtime.getRuntime().halt(whole ? 0 : 1); // the hook waits for this thread
  }

  /** Makes the table, divided evenly, if it is not there. */
  static void prepare(AccumuloClient client) throws Exception {
    String table = options.get("table");
    if (client.tableOperations().exists(table)) {
      return;
    }
    long regions = number("presplit");
    var splits = new TreeSet<Text>();
    for (long at = 1; at < regions; at++) {
      splits.add(new Text(hex(ROW_END / regions * at, 16)));
    }
    var made = new NewTableConfiguration();
    try {
      client.tableOperations().create(table, splits.isEmpty() ? made : made.withSplits(splits));
    } catch (TableExistsException e) {
      return; // somebody was quicker
    }
  }

  static boolean run(AccumuloClient client, String cluster) throws Exception {
    int clients = (int) number("clients");
    long warmupS = number("warmup"), periodS = Math.max(1, number("progress-period"));
    Double rate = options.containsKey("rate") ? Double.valueOf(options.get("rate")) : null;
    Long timeS = options.containsKey("time") ? Long.valueOf(options.get("time")) : null;
    long seed = options.containsKey("seed") ? number("seed") : ThreadLocalRandom.current().nextLong() >>> 1;
    var left = new AtomicLong(number("nodes"));
    String loadBefore = text("/proc/loadavg").trim();

    var recorders = new ArrayList<Recorder>();
    var threads = new ArrayList<Thread>();
    long beginNs = System.nanoTime();
    var random = new SplittableRandom(seed);
    for (int at = 0; at < clients; at++) {
      var recorder = new Recorder();
      recorders.add(recorder);
      var writer = new Writer(client, random.split(), at, left, recorder, rate, clients, beginNs);
      var thread = new Thread(() -> {
        try {
          writer.write();
        } catch (Throwable e) {
          failed(e);
        }
      }, "client-" + at);
      thread.setDaemon(true);
      threads.add(thread);
    }
    threads.forEach(Thread::start);

    // the measuring begins when the warm-up is over
    var total = new Histogram();
    var slow = new PriorityQueue<Slow>(Comparator.comparingLong(Slow::latencyUs));
    var series = new ArrayList<Second>();
    long slowCount = 0, operations = 0, warmupOperations = 0;
    // with a maximum the warm-up lasts until it is steady, as that of halcyon bench
    Long warmupMaxS = options.containsKey("warmup-max") ? Long.valueOf(options.get("warmup-max")) : null;
    boolean hasWarmup = warmupS > 0 || warmupMaxS != null;
    var warmupRates = new ArrayList<Object>();
    double warmupLengthS = 0;
    boolean measuring = false;
    long startNs = beginNs, startedMs = 0, lastNs = beginNs, progressNs = beginNs, progressOperations = 0;
    double clientBefore = 0;
    Double serverBefore = null;
    while (true) {
      boolean over = threads.stream().noneMatch(Thread::isAlive) || stop;
      long nowNs = System.nanoTime();
      if (!measuring && nowNs - lastNs >= 1_000_000_000L) {
        long done = 0;
        for (Recorder recorder : recorders) {
          done += recorder.drain(new Histogram(), new ArrayList<>());
        }
        warmupOperations += done;
        warmupRates.add(done / ((nowNs - lastNs) / 1e9));
        lastNs = nowNs;
      }
      double warmingS = (nowNs - beginNs) / 1e9;
      boolean late = warmupMaxS != null && warmingS >= Math.max(warmupS, warmupMaxS);
      if (!measuring && (over || warmingS >= warmupS && (warmupMaxS == null || late || isSteady(warmupRates)))) {
        measuring = true;
        warmupLengthS = hasWarmup ? warmingS : 0;
        if (!over && warmupMaxS != null && !isSteady(warmupRates) && partial == null) {
          partial = String.format(Locale.ROOT, "not steady after a warm-up of %.0f s", warmingS);
        }
        for (Recorder recorder : recorders) {
          warmupOperations += recorder.drain(new Histogram(), new ArrayList<>());
        }
        measuredFromNs = hasWarmup ? nowNs : beginNs;
        startNs = lastNs = progressNs = measuredFromNs;
        startedMs = System.currentTimeMillis() - (nowNs - startNs) / 1_000_000;
        clientBefore = clientCpu();
        serverBefore = serverCpu();
        if (!hasWarmup) { // nothing was measured before
          operations += warmupOperations;
          warmupOperations = 0;
        }
        if (over && hasWarmup && partial == null) {
          partial = "all was done before the warm-up was over";
        }
      } else if (measuring && (over || nowNs - lastNs >= 1_000_000_000L)) {
        if (timeS != null && nowNs - startNs >= timeS * 1_000_000_000L) {
          stop = over = true;
        }
        if (over) {
          long untilNs = System.nanoTime() + (OPERATION_TIME_MAX_S + 5) * 1_000_000_000L;
          if ("interrupted".equals(partial)) {
            untilNs = System.nanoTime() + 3_000_000_000L;
          }
          for (Thread thread : threads) {
            thread.join(Math.max(1, (untilNs - System.nanoTime()) / 1_000_000));
          }
          nowNs = System.nanoTime();
          if (partial == null && threads.stream().anyMatch(Thread::isAlive)) {
            partial = "the cluster does not answer any more";
          }
        }
        var since = new Histogram();
        var slowSince = new ArrayList<Slow>();
        long done = 0;
        for (Recorder recorder : recorders) {
          done += recorder.drain(since, slowSince);
        }
        operations += done;
        total.add(since);
        slowCount += slowSince.size();
        for (Slow one : slowSince) {
          slow.add(one);
          if (slow.size() > SLOW_MAX) {
            slow.poll();
          }
        }
        series.add(new Second((nowNs - startNs) / 1e9, done, since));
        lastNs = nowNs;
        if (nowNs - progressNs >= periodS * 1_000_000_000L) {
          double each = (operations - progressOperations) / ((nowNs - progressNs) / 1e9);
          System.err.printf(Locale.ROOT, "ingest write: %.0f s, %d of %s, %.0f/s; last second p50 %d p99 %d max %d us%n",
              (nowNs - startNs) / 1e9, operations, options.get("nodes"), each, since.quantile(0.5), since.quantile(0.99),
              since.max);
          progressNs = nowNs;
          progressOperations = operations;
        }
        if (over) {
          break;
        }
      }
      Thread.sleep(over ? 0 : 10);
    }

    double elapsedS = (lastNs - startNs) / 1e9, clientS = clientCpu() - clientBefore;
    Double serverAfter = serverCpu();
    Double serverS = serverAfter == null || serverBefore == null ? null : Double.valueOf(serverAfter - serverBefore);
    System.out.printf(Locale.ROOT, "ingest write%s: %d operations in %.2f s, %.0f/s%n", partial == null ? "" : " (partial)",
        operations, elapsedS, operations / Math.max(elapsedS, 1e-9));
    System.out.printf(Locale.ROOT, "  batch latency (us), %d: mean %.0f", total.count, total.sum / Math.max(1, total.count));
    for (int at = 0; at < QUANTILES.length; at++) {
      System.out.print(" " + QUANTILE_NAMES[at] + " " + total.quantile(QUANTILES[at]));
    }
    System.out.println(" max " + total.max);
    System.out.printf(Locale.ROOT, "  client cpu %.2f s, %.2f us per operation%n", clientS, clientS * 1e6 / Math.max(1, operations));
    if (serverS != null) {
      System.out.printf(Locale.ROOT, "  server cpu %.2f s, %.2f us per operation%n", serverS, serverS * 1e6 / Math.max(1, operations));
    }
    if (options.containsKey("json")) {
      var json = new Json();
      json.put("benchmark", "ingest write");
      json.put("command_line", commandLine());
      var environment = new Json();
      environment.put("cpu", valueOf(text("/proc/cpuinfo"), "model name"));
      environment.put("cores", Runtime.getRuntime().availableProcessors());
      environment.put("memory", valueOf(text("/proc/meminfo"), "MemTotal"));
      environment.put("kernel", text("/proc/sys/kernel/osrelease").trim());
      environment.put("load_before", loadBefore);
      environment.put("java", System.getProperty("java.version"));
      json.put("environment", environment);
      json.put("cluster", cluster);
      json.put("started_ms", startedMs);
      json.put("ended_ms", System.currentTimeMillis());
      json.put("warmup_s", warmupLengthS);
      json.put("warmup_rates_per_s", warmupRates);
      json.put("warmup_operations", warmupOperations);
      json.put("partial", partial);
      json.put("rate_wanted_per_s", rate);
      json.put("elapsed_s", elapsedS);
      json.put("operations", operations);
      json.put("operations_per_s", operations / Math.max(elapsedS, 1e-9));
      json.put("client_cpu_s", clientS);
      json.put("client_cpu_us_per_operation", operations == 0 ? 0.0 : clientS * 1e6 / operations);
      json.put("server_cpu_s", serverS);
      json.put("server_cpu_us_per_operation", serverS == null || operations == 0 ? null : (Object) (serverS * 1e6 / operations));
      json.put("server_resident_bytes", serverResidentBytes());
      var summary = new Json();
      summary.put("count", total.count);
      summary.put("mean", total.sum / Math.max(1, total.count));
      for (int at = 0; at < QUANTILES.length; at++) {
        summary.put(QUANTILE_NAMES[at], total.quantile(QUANTILES[at]));
      }
      summary.put("max", total.max);
      json.put("latency_us", new Json().with("batch", summary));
      var buckets = new ArrayList<Object>();
      for (int at = 0; at < total.counts.length; at++) {
        if (total.counts[at] > 0) {
          buckets.add(List.of(Histogram.highest(at), total.counts[at]));
        }
      }
      json.put("histogram_us", new Json().with("batch", buckets));
      json.put("errors", new Json().withAll(errors));
      json.put("retries", null);
      var seconds = new ArrayList<Object>();
      for (Second second : series) {
        var one = new Json();
        one.put("elapsed_s", second.elapsedS);
        one.put("operations", second.operations);
        one.put("p50_us", second.latencies.quantile(0.5));
        one.put("p99_us", second.latencies.quantile(0.99));
        one.put("p99.9_us", second.latencies.quantile(0.999));
        one.put("max_us", second.latencies.max);
        seconds.add(one);
      }
      json.put("series", seconds);
      json.put("slow_ms", Double.valueOf(options.get("slow-ms")));
      var inOrder = new ArrayList<>(slow);
      inOrder.sort(Comparator.comparingLong(Slow::beginNs));
      var slowOnes = new ArrayList<Object>();
      for (Slow one : inOrder) {
        slowOnes.add(new Json().with("at_s", (one.beginNs - startNs) / 1e9).with("kind", "batch").with("latency_us", one.latencyUs));
      }
      json.put("slow", slowOnes);
      json.put("slow_left_out", slowCount - slow.size());
      json.put("extra", new Json().with("table", options.get("table")).with("clients", clients)
          .with("batch", number("batch")).with("layer", number("layer")).with("seed", seed));
      Path file = Path.of(options.get("json")).toAbsolutePath(), beside = Path.of(file + ".tmp");
      Files.writeString(beside, json + "\n");
      Files.move(beside, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }
    if (partial != null) {
      System.err.println("ingest: the result is partial: " + partial);
    }
    return partial == null;
  }

  /** Whether the rates of the last three seconds differ by less than 5 %. */
  static boolean isSteady(List<Object> rates) {
    if (rates.size() < 3) {
      return false;
    }
    double least = Double.POSITIVE_INFINITY, largest = 0;
    for (Object rate : rates.subList(rates.size() - 3, rates.size())) {
      least = Math.min(least, (Double) rate);
      largest = Math.max(largest, (Double) rate);
    }
    return largest > 0 && largest - least < largest * 0.05;
  }

  static List<Object> commandLine() {
    var info = ProcessHandle.current().info();
    var line = new ArrayList<Object>(List.of(info.command().orElse("java")));
    info.arguments().ifPresent(arguments -> line.addAll(Arrays.asList(arguments)));
    return line;
  }

  /** One client: layers of nodes, each of which refers to one of the layer before. */
  static final class Writer {
    private final AccumuloClient client;
    private final SplittableRandom random;
    private final String name;
    private final AtomicLong left;
    private final Recorder recorder;
    private final long batch = number("batch");
    private final int layer = (int) ((number("layer") + batch - 1) / batch * batch);
    private final double slowUs = Double.parseDouble(options.get("slow-ms")) * 1000;
    private final double stepNs;
    private final double firstNs;

    Writer(AccumuloClient client, SplittableRandom random, int number, AtomicLong left, Recorder recorder, Double rate,
        int clients, long beginNs) {
      this.client = client;
      this.random = random;
      this.name = hex(ThreadLocalRandom.current().nextLong() >>> 1, 16) + "-" + number;
      this.left = left;
      this.recorder = recorder;
      this.stepNs = rate == null ? 0 : batch * clients / rate * 1e9;
      this.firstNs = beginNs + stepNs * number / clients;
    }

    void write() throws Exception {
      var config = new BatchWriterConfig().setTimeout(OPERATION_TIME_MAX_S, TimeUnit.SECONDS);
      long[] before = new long[0], current = new long[layer];
      long count = 0, steps = 0;
      int filled = 0, depth = 0;
      try (BatchWriter writer = client.createBatchWriter(options.get("table"), config)) {
        while (!stop) {
          long beginNs = System.nanoTime();
          if (stepNs > 0) {
            long intendedNs = (long) (firstNs + stepNs * steps++);
            while (intendedNs > System.nanoTime() && !stop) {
              TimeUnit.NANOSECONDS.sleep(Math.min(intendedNs - System.nanoTime(), 100_000_000L));
            }
            if (stop) {
              break;
            }
            beginNs = intendedNs;
          }
          long nodes = Math.min(batch, left.getAndAdd(-batch));
          if (nodes <= 0) {
            break;
          }
          for (long at = 0; at < nodes; at++) {
            long row = random.nextLong(ROW_END);
            int refersTo = filled + (int) at;
            String to = before.length > 0 ? hex(before[refersTo], 16) : "";
            writer.addMutation(node(row, random.nextInt(QUALIFIER_END), count++, to));
            current[refersTo] = row;
          }
          writer.flush();
          recorder.done(nodes, beginNs, System.nanoTime(), measuredFromNs == Long.MAX_VALUE ? 0 : measuredFromNs, slowUs);
          filled += (int) nodes;
          if (filled >= layer) {
            filled = 0;
            if (++depth == DEPTH_MAX) {
              depth = 0;
              before = new long[0];
            } else {
              before = current;
              current = new long[layer];
            }
          }
        }
      }
    }

    Mutation node(long row, int qualifier, long count, String before) {
      byte[] key = ascii(hex(row, 16)), column = ascii(hex(qualifier, 4));
      String value = name + ":" + hex(count, 16) + ":" + before + ":";
      var sum = new CRC32();
      sum.update(key);
      sum.update(FAMILY);
      sum.update(column);
      sum.update(ascii(value));
      var mutation = new Mutation(key);
      mutation.put(FAMILY, column, ascii(value + hex(sum.getValue(), 8)));
      return mutation;
    }
  }

  static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  static String hex(long value, int digits) {
    String text = Long.toHexString(value);
    return text.length() >= digits ? text : "0".repeat(digits - text.length()) + text;
  }

  /** An object of JSON; its values are texts, numbers, lists, objects and null. */
  static final class Json {
    private final List<Map.Entry<String, Object>> entries = new ArrayList<>();

    void put(String name, Object value) {
      entries.add(new java.util.AbstractMap.SimpleEntry<>(name, value));
    }

    Json with(String name, Object value) {
      put(name, value);
      return this;
    }

    Json withAll(Map<String, Long> counts) {
      counts.forEach(this::put);
      return this;
    }

    @Override
    public String toString() {
      var out = new StringBuilder();
      write(out, this);
      return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
      if (value instanceof Json json) {
        out.append('{');
        for (var entry : json.entries) {
          out.append(out.charAt(out.length() - 1) == '{' ? "" : ", ");
          write(out, entry.getKey());
          out.append(": ");
          write(out, entry.getValue());
        }
        out.append('}');
      } else if (value instanceof List<?> list) {
        out.append('[');
        for (int at = 0; at < list.size(); at++) {
          out.append(at > 0 ? ", " : "");
          write(out, list.get(at));
        }
        out.append(']');
      } else if (value instanceof String text) {
        out.append('"');
        text.chars().forEach(c -> {
          if (c == '"' || c == '\\') {
            out.append('\\').append((char) c);
          } else if (c < 0x20) {
            out.append(String.format("\\u%04x", c));
          } else {
            out.append((char) c);
          }
        });
        out.append('"');
      } else if (value instanceof Double number && !Double.isFinite(number)) {
        out.append("null");
      } else {
        out.append(value);
      }
    }
  }
}
