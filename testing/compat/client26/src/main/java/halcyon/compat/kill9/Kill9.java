package halcyon.compat.kill9;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.IntStream;
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
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Writes rows until the server dies, remembers what was acknowledged, and asks for all of it after the next start.
 *
 * <pre>
 * write HOST:PORT LOG SECONDS STOP [flush|compact|reshape]   until the file STOP is there, at most for SECONDS
 * verify HOST:PORT LOG DEATHS                                exit 1 on any loss
 * </pre>
 *
 * The writer prints how many rows each thread has had acknowledged ("so far"), each flush, compaction, split and merge, and when
 * a thread has ended ("ended", the milliseconds of the clock, and why). A thread that ended before the server was killed did not
 * write when it was: the script compares the times.
 *
 * Each writing thread owns rows and goes through three kinds of work: single puts of two families, lists of puts, and
 * increments of its counter. A line of LOG is written, and forced to disk, only after the server has answered:
 * <pre>
 * P thread number      the row of that number, both columns
 * C thread value       the thread's counter has at least this value
 * </pre>
 * The verifier asks for every P row by get and finds all of them once more by a scan; a row must be whole (its two
 * columns agree). Each death may leave one increment that was done and whose answer was on its way, so the counter may be ahead
 * of the log by DEATHS; one that is further ahead was incremented twice.
 */
public final class Kill9 {
  private static final TableName TABLE = TableName.valueOf("kill9");
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] G = Bytes.toBytes("g");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final int THREADS = 4;

  private Kill9() {}

  public static void main(String[] args) throws Exception {
    if (args.length < (args.length > 0 && args[0].equals("write") ? 5 : 4)) {
      System.err.println("write HOST:PORT LOG SECONDS STOP [flush|compact|reshape]  or  verify HOST:PORT LOG DEATHS");
      System.exit(64);
    }
    Path log = Path.of(args[2]);
    String meanwhile = args.length > 5 ? args[5] : "";
    int tries = args[0].equals("verify") || meanwhile.equals("reshape") ? 10 : 1;
    try (Connection connection = ConnectionFactory.createConnection(configuration(args[1], tries))) {
      switch (args[0]) {
        case "write" -> {
          write(connection, log, Integer.parseInt(args[3]), Path.of(args[4]), meanwhile);
          System.out.flush();
          Runtime.getRuntime().halt(0); // closing a connection to a server that is gone takes its time
        }
        case "verify" -> System.exit(verify(connection, log, Long.parseLong(args[3])) ? 0 : 1);
        default -> throw new IllegalArgumentException(args[0]);
      }
    }
    System.exit(0);
  }

  /**
   * A writer gives up at the first error: a retry could hide which answer was the server's. Only where regions come and
   * go it has to look for them anew.
   */
  private static Configuration configuration(String zk, int tries) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zk.split(":")[0]);
    conf.set("hbase.zookeeper.property.clientPort", zk.split(":")[1]);
    conf.setInt("hbase.client.retries.number", tries);
    conf.setInt("hbase.client.pause", 100);
    conf.setInt("hbase.rpc.timeout", 10_000);
    conf.setInt("hbase.client.operation.timeout", 30_000);
    return conf;
  }

  private static byte[] row(int thread, long number) {
    // spread over the regions by the last digit, like most people's salted keys
    return Bytes.toBytes(String.format("%d-%d-%010d", number % 10, thread, number));
  }

  private static byte[] value(int thread, long number) {
    byte[] value = new byte[100 + (int) (number % 400)];
    Arrays.fill(value, (byte) number);
    Bytes.putLong(value, 0, number);
    Bytes.putInt(value, 8, thread);
    return value;
  }

  /** What is known to be acknowledged. */
  private static final class Acknowledged {
    final Map<Integer, List<Long>> rows = new TreeMap<>();
    final Map<Integer, Long> counters = new TreeMap<>();

    static Acknowledged read(Path log) throws IOException {
      Acknowledged read = new Acknowledged();
      if (!Files.exists(log)) {
        return read;
      }
      try (BufferedReader lines = Files.newBufferedReader(log)) {
        for (String line; (line = lines.readLine()) != null;) {
          String[] parts = line.split(" ");
          int thread = Integer.parseInt(parts[1]);
          long number = Long.parseLong(parts[2]);
          if (parts[0].equals("P")) {
            read.rows.computeIfAbsent(thread, key -> new ArrayList<>()).add(number);
          } else {
            read.counters.merge(thread, number, Long::max);
          }
        }
      }
      return read;
    }

    long next(int thread) {
      List<Long> numbers = rows.getOrDefault(thread, List.of());
      // leave a gap: numbers tried but not acknowledged in an earlier round are not used again
      return numbers.isEmpty() ? 1 : numbers.get(numbers.size() - 1) + 1000;
    }
  }

  private static void write(Connection connection, Path log, int seconds, Path stop, String meanwhile) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      if (!admin.tableExists(TABLE)) {
        admin.createTable(TableDescriptorBuilder.newBuilder(TABLE)
            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(F))
            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(G)).build(),
            new byte[][] {Bytes.toBytes("3"), Bytes.toBytes("6")});
      }
    }
    Acknowledged before = Acknowledged.read(log);
    AtomicLongArray counts = new AtomicLongArray(THREADS);
    long deadline = System.nanoTime() + seconds * 1_000_000_000L;
    try (FileChannel channel = FileChannel.open(log, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
      for (int t = 0; t < THREADS; t++) {
        int id = t;
        start("writer-" + t, () -> {
          try (Table table = connection.getTable(TABLE)) {
            writeRows(table, channel, id, before.next(id), deadline, counts);
          }
        });
      }
      say("writing");
      if (!meanwhile.isEmpty()) {
        disturb(connection, meanwhile, deadline);
      }
      while (!Files.exists(stop) && System.nanoTime() < deadline) {
        Thread.sleep(100);
        say("so far: " + counts);
      }
      Thread.sleep(500); // answers that are here already are noted
    }
    say("acknowledged " + IntStream.range(0, THREADS).mapToLong(counts::get).sum());
  }

  /** What a thread does until it is stopped. */
  private interface Work {
    void run() throws Exception;
  }

  /** The end of a thread is said, whatever ends it. It is what the kill does to it, if it comes later than that. */
  private static void start(String name, Work work) {
    Thread thread = new Thread(() -> {
      String why = "its time is over";
      try {
        work.run();
      } catch (Throwable e) {
        why = String.valueOf(e).lines().findFirst().orElse("");
      }
      say("ended " + System.currentTimeMillis() + " " + name + ": " + why);
    }, name);
    thread.setDaemon(true);
    thread.start();
  }

  private static void say(String text) {
    System.out.println(text);
    System.out.flush();
  }

  private static void writeRows(Table table, FileChannel log, int thread, long first, long deadline, AtomicLongArray counts)
      throws IOException {
    Random random = new Random(thread);
    long number = first;
    while (System.nanoTime() < deadline) {
      List<Put> puts = new ArrayList<>();
      StringBuilder lines = new StringBuilder();
      int size = random.nextInt(4) == 0 ? 20 : 1;
      for (int i = 0; i < size; i++, number++) {
        byte[] value = value(thread, number);
        puts.add(new Put(row(thread, number)).addColumn(F, Q, value).addColumn(G, Q, value));
        lines.append("P ").append(thread).append(' ').append(number).append('\n');
      }
      if (size == 1) {
        table.put(puts.get(0));
      } else {
        table.put(puts);
      }
      if (random.nextInt(5) == 0) {
        Result counter = table.increment(
            new Increment(Bytes.toBytes("counter-" + thread)).addColumn(F, Q, 1));
        lines.append("C ").append(thread).append(' ').append(Bytes.toLong(counter.getValue(F, Q))).append('\n');
      }
      synchronized (log) {
        log.write(ByteBuffer.wrap(lines.toString().getBytes(StandardCharsets.UTF_8)));
        log.force(false);
      }
      counts.addAndGet(thread, size);
    }
  }

  /** Splits a region or merges two; or tries to, as those that refer to a parent's files are refused. */
  private static void reshape(Admin admin, Random random) throws InterruptedException {
    try {
      List<RegionInfo> regions = admin.getRegions(TABLE);
      int at = random.nextInt(regions.size());
      if (regions.size() < 3 || (regions.size() < 8 && random.nextBoolean())) {
        byte[] row = Bytes.toBytes(random.nextInt(10) + "-" + random.nextInt(THREADS));
        admin.splitRegionAsync(regions.get(at).getRegionName(), row).get();
      } else {
        at = Math.min(at, regions.size() - 2);
        byte[][] pair = {regions.get(at).getEncodedNameAsBytes(), regions.get(at + 1).getEncodedNameAsBytes()};
        admin.mergeRegionsAsync(pair, false).get();
      }
      say("reshaped");
    } catch (ExecutionException | IOException e) {
      // the next one may be possible, if the server lives
    }
  }

  /** Flushes, compacts or reshapes again and again, so that the kill falls into the middle of one now and then. */
  private static void disturb(Connection connection, String what, long deadline) {
    start("disturber", () -> {
      try (Admin admin = connection.getAdmin()) {
        Random random = new Random();
        for (int i = 0; System.nanoTime() < deadline; i++) {
          if (what.equals("reshape")) {
            Thread.sleep(50);
            reshape(admin, random);
            continue;
          }
          Thread.sleep(250);
          admin.flush(TABLE);
          say("flushed");
          if (what.equals("compact") && i % 3 == 2) {
            admin.majorCompact(TABLE);
            say("compacted");
          }
        }
      }
    });
  }

  private static boolean verify(Connection connection, Path log, long deaths) throws IOException {
    Acknowledged wanted = Acknowledged.read(log);
    long rows = 0;
    long lost = 0;
    try (Table table = connection.getTable(TABLE)) {
      Map<String, Boolean> scanned = scan(table);
      for (var entry : wanted.rows.entrySet()) {
        int thread = entry.getKey();
        List<Long> numbers = entry.getValue();
        for (int from = 0; from < numbers.size(); from += 500) {
          List<Long> part = numbers.subList(from, Math.min(numbers.size(), from + 500));
          Result[] results = table.get(part.stream().map(number -> new Get(row(thread, number))).toList());
          for (int i = 0; i < results.length; i++) {
            long number = part.get(i);
            rows++;
            byte[] value = value(thread, number);
            String key = Bytes.toString(row(thread, number));
            String fault = !Bytes.equals(value, results[i].getValue(F, Q)) ? "column f:q"
                : !Bytes.equals(value, results[i].getValue(G, Q)) ? "column g:q"
                : !scanned.containsKey(key) ? "not in the scan" : null;
            if (fault != null && lost++ < 20) {
              System.out.println("LOST " + key + " " + fault);
            }
          }
        }
      }
      for (var half : scanned.entrySet()) {
        if (!half.getValue() && lost++ < 20) {
          System.out.println("HALF " + half.getKey());
        }
      }
      for (var entry : wanted.counters.entrySet()) {
        byte[] value = table.get(new Get(Bytes.toBytes("counter-" + entry.getKey()))).getValue(F, Q);
        long found = value == null ? 0 : Bytes.toLong(value);
        if (found < entry.getValue()) {
          lost++;
          System.out.println("LOST counter-" + entry.getKey() + " " + found + " < " + entry.getValue());
        } else if (found > entry.getValue() + deaths) {
          lost++;
          System.out.println("TWICE counter-" + entry.getKey() + " " + found + " > " + entry.getValue() + " + " + deaths + " deaths");
        }
      }
    }
    System.out.println("verified " + rows + " acknowledged rows, " + lost + " lost");
    return lost == 0;
  }

  /** All rows but the counters, each with whether its two columns agree. */
  private static Map<String, Boolean> scan(Table table) throws IOException {
    Map<String, Boolean> rows = new TreeMap<>();
    try (ResultScanner scanner = table.getScanner(new Scan().withStopRow(Bytes.toBytes("c")))) {
      for (Result result : scanner) {
        rows.put(Bytes.toString(result.getRow()),
            result.getValue(F, Q) != null && Bytes.equals(result.getValue(F, Q), result.getValue(G, Q)));
      }
    }
    return rows;
  }
}
