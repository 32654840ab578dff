// A client that writes and reads all the time while its table moves, for migrate.sh.
//
//   java -cp JARS Migrate create ZOOKEEPER                        the table shop:orders with 8 regions
//   java ... load ZOOKEEPER ROWS                                  fills it
//   java ... work ZOOKEEPER ZOOKEEPER DIR THREADS ROWS            until DIR/stop is there. Then it compares every row of both clusters with what
//                                                                 was acknowledged. DIR/ready names the cluster to use, as halcyon migrate writes it
//
// Each thread has rows of its own and knows what must be in them: values of puts, deletes, counters of increments. A write that is
// refused is tried again until it succeeds, on whatever cluster is the one to use then.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

public class Migrate {
  static final TableName TABLE = TableName.valueOf("shop:orders");
  static final byte[] A = Bytes.toBytes("a"), B = Bytes.toBytes("b"), V = Bytes.toBytes("v"), N = Bytes.toBytes("n");
  static final long ABSENT = Long.MIN_VALUE;
  static final int VALUE_BYTES = 100;
  static final long TOLD_WAIT_MS = 250;
  static final int HOURS_MAX = 3;

  static Connection connect(String zookeeper) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper.substring(0, zookeeper.lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", zookeeper.substring(zookeeper.lastIndexOf(':') + 1));
    conf.setInt("hbase.client.retries.number", 12);
    conf.setInt("hbase.client.pause", 20);
    return ConnectionFactory.createConnection(conf);
  }

  /** Spread over the regions, and unique. */
  static byte[] key(int number) {
    return Bytes.toBytes(String.format("%08x", number * 0x9E3779B1));
  }

  static byte[] value(long number) {
    byte[] value = new byte[VALUE_BYTES];
    Bytes.putLong(value, 0, number);
    for (int i = 8; i < VALUE_BYTES; i++) value[i] = (byte) (number * 31 + i);
    return value;
  }

  public static void main(String[] args) throws Exception {
    Thread limit = new Thread(() -> {
      try { Thread.sleep(HOURS_MAX * 3_600_000L); } catch (InterruptedException ignored) { }
      System.err.println("the client ends after " + HOURS_MAX + " hours");
      Runtime.getRuntime().halt(1);
    });
    limit.setDaemon(true);
    limit.start();
    switch (args[0]) {
      case "create": create(args[1]); break;
      case "load": load(args[1], Integer.parseInt(args[2])); break;
      case "work": new Migrate(args).work(); break;
      default: throw new IllegalArgumentException(args[0]);
    }
  }

  static void create(String zookeeper) throws Exception {
    try (Connection connection = connect(zookeeper); Admin admin = connection.getAdmin()) {
      admin.createNamespace(NamespaceDescriptor.create("shop").build());
      byte[][] splits = new byte[7][];
      for (int i = 0; i < 7; i++) splits[i] = Bytes.toBytes(Integer.toHexString(2 * (i + 1)));
      admin.createTable(TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of(A))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(B).setMaxVersions(3).build()).build(), splits);
    }
  }

  static void load(String zookeeper, int rows) throws Exception {
    long start = System.nanoTime();
    try (Connection connection = connect(zookeeper);
        BufferedMutator mutator = connection.getBufferedMutator(new BufferedMutatorParams(TABLE).writeBufferSize(4 << 20))) {
      for (int i = 0; i < rows; i++) mutator.mutate(new Put(key(i)).addColumn(A, V, value(0)));
    }
    System.out.printf("loaded %d rows in %.1f s%n", rows, (System.nanoTime() - start) / 1e9);
  }

  final String[] zookeepers;
  final Path dir;
  final int threads, rows;
  final Connection[] connections = new Connection[2];
  /** The cluster to use. */
  volatile int current = 0;
  volatile boolean stops = false;
  volatile String failure;
  final AtomicLong writes = new AtomicLong(), reads = new AtomicLong(), refused = new AtomicLong(), longest = new AtomicLong();
  final List<String> waits = new ArrayList<>();
  final long started = System.nanoTime();

  Migrate(String[] args) throws IOException {
    zookeepers = new String[] {args[1], args[2]};
    dir = Path.of(args[3]);
    threads = Integer.parseInt(args[4]);
    rows = Integer.parseInt(args[5]);
    for (int i = 0; i < 2; i++) connections[i] = connect(zookeepers[i]);
  }

  class Worker extends Thread {
    final int number;
    final SplittableRandom random;
    final long[] values, counters;

    Worker(int number) {
      this.number = number;
      random = new SplittableRandom(number);
      values = new long[(rows - number + threads - 1) / threads];
      counters = new long[values.length];
      java.util.Arrays.fill(counters, ABSENT);
    }

    public void run() {
      try {
        for (long operation = 1; !stops; operation++) one(operation);
      } catch (Throwable error) {
        error.printStackTrace();
        failure = "worker " + number + ": " + error;
      }
    }

    /** A tenth of the rows gets most of the requests. */
    void one(long operation) throws Exception {
      int at = random.nextInt(4) == 0 ? random.nextInt(values.length) : random.nextInt(Math.max(1, values.length / 10));
      byte[] row = key(at * threads + number);
      int kind = random.nextInt(100);
      if (kind < 50) {
        read(row, at);
        return;
      }
      if (kind < 85) {
        write(table -> table.put(new Put(row).addColumn(A, V, value(operation))));
        values[at] = operation;
      } else if (kind < 93) {
        increment(row, at);
      } else {
        boolean all = kind >= 97;
        write(table -> table.delete(all ? new Delete(row) : new Delete(row).addColumns(A, V)));
        values[at] = ABSENT;
        if (all) counters[at] = ABSENT;
        Thread.sleep(3); // what is written in the millisecond of a delete is deleted with it
      }
    }

    /** Tried again only when it is known what became of it. */
    void increment(byte[] row, int at) throws Exception {
      long before = counters[at] == ABSENT ? 0 : counters[at];
      write(table -> {
        try {
          table.increment(new Increment(row).addColumn(B, N, 1));
        } catch (IOException error) {
          long now = number(get(table, row).getValue(B, N));
          if (now != before + 1) throw error;
        }
      });
      counters[at] = before + 1;
    }

    void read(byte[] row, int at) throws Exception {
      for (int attempt = 0; ; attempt++) {
        try (Table table = connections[current].getTable(TABLE)) {
          check(row, at, get(table, row));
          reads.incrementAndGet();
          return;
        } catch (IOException error) {
          if (attempt == 1000) throw error;
          Thread.sleep(20);
        }
      }
    }

    void check(byte[] row, int at, Result result) {
      byte[] value = result.getValue(A, V), counter = result.getValue(B, N);
      boolean isRight = values[at] == ABSENT ? value == null : value != null && Bytes.equals(value, value(values[at]));
      boolean isCounted = counters[at] == ABSENT ? counter == null : counter != null && Bytes.toLong(counter) == counters[at];
      if (!isRight || !isCounted) {
        throw new AssertionError("row " + Bytes.toString(row) + " has value " + (value == null ? "none" : Bytes.toLong(value)) + " and counter "
          + (counter == null ? "none" : Bytes.toLong(counter)) + ", not " + values[at] + " and " + counters[at] + "; cluster " + current);
      }
    }

    void write(Write write) throws Exception {
      long began = System.nanoTime();
      int first = current;
      for (int attempt = 0; ; attempt++) {
        int at = current;
        try (Table table = connections[at].getTable(TABLE)) {
          write.on(table);
          break;
        } catch (IOException error) {
          refused.incrementAndGet();
          if (System.nanoTime() - began > 180_000_000_000L) throw error;
          Thread.sleep(5);
        }
      }
      writes.incrementAndGet();
      long waited = (System.nanoTime() - began) / 1_000_000;
      longest.accumulateAndGet(waited, Math::max);
      if (waited >= TOLD_WAIT_MS) {
        synchronized (waits) {
          waits.add(String.format("%.1f s: a write waited %d ms%s", (began - started) / 1e9, waited, first == current ? "" : " for the switch"));
        }
      }
    }
  }

  interface Write { void on(Table table) throws IOException; }

  static Result get(Table table, byte[] row) throws IOException { return table.get(new Get(row)); }

  static long number(byte[] value) { return value == null ? 0 : Bytes.toLong(value); }

  /** What halcyon migrate has written last: hbase://host:port/hbase. */
  void watch() throws Exception {
    Path ready = dir.resolve("ready");
    if (!Files.exists(ready)) return;
    String address = Files.readString(ready).trim();
    for (int i = 0; i < 2; i++) {
      if (address.startsWith("hbase://" + zookeepers[i] + "/") && current != i) {
        current = i;
        System.out.printf("%.1f s: switched to %s%n", (System.nanoTime() - started) / 1e9, address);
      }
    }
  }

  void work() throws Exception {
    Worker[] workers = new Worker[threads];
    for (int i = 0; i < threads; i++) (workers[i] = new Worker(i)).start();
    Path stop = dir.resolve("stop");
    while (!Files.exists(stop) && failure == null) {
      watch();
      Files.writeString(dir.resolve("counts"), writes + " " + reads + " " + longest + "\n");
      Thread.sleep(10);
    }
    stops = true;
    for (Worker worker : workers) worker.join();
    double seconds = (System.nanoTime() - started) / 1e9;
    synchronized (waits) { waits.forEach(System.out::println); }
    System.out.printf("%d writes and %d reads in %.0f s (%.0f/s); longest wait of a write %d ms; %d attempts refused%n", writes.get(), reads.get(),
      seconds, (writes.get() + reads.get()) / seconds, longest.get(), refused.get());
    if (failure != null) {
      System.err.println(failure);
      System.exit(1);
    }
    for (int i : new int[] {current, 1 - current}) verify(workers, i);
    System.exit(0);
  }

  /** All rows of a cluster. Edits for the cluster that follows may be on their way for some time. */
  void verify(Worker[] workers, int at) throws Exception {
    long end = System.nanoTime() + (at == current ? 0 : 120_000_000_000L);
    for (;;) {
      try {
        long found = 0, expected = 0;
        for (Worker worker : workers) {
          for (int i = 0; i < worker.values.length; i++) if (worker.values[i] != ABSENT || worker.counters[i] != ABSENT) expected++;
        }
        try (Table table = connections[at].getTable(TABLE); ResultScanner scanner = table.getScanner(new Scan().setCacheBlocks(false).setCaching(1000))) {
          for (Result result : scanner) {
            int number = (int) Long.parseLong(Bytes.toString(result.getRow()), 16) * INVERSE;
            Worker worker = workers[number % threads];
            worker.check(result.getRow(), number / threads, result);
            found++;
          }
        }
        if (found != expected) throw new AssertionError(found + " rows, not " + expected);
        System.out.println("verified: cluster " + zookeepers[at] + " has what was acknowledged in " + found + " rows");
        return;
      } catch (AssertionError | IOException error) {
        if (System.nanoTime() > end) {
          System.err.println("cluster " + zookeepers[at] + ": " + error);
          System.exit(1);
        }
        Thread.sleep(1000);
      }
    }
  }

  /** Of the factor in key(), modulo 2 to the 32. */
  static final int INVERSE = java.math.BigInteger.valueOf(0x9E3779B1L).modInverse(java.math.BigInteger.ONE.shiftLeft(32)).intValue();
}
