package halcyon.compat.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Writes and reads a row of each region of a table in short intervals, and tells for how long some region could not be written or read.
 *
 * <pre>
 * HOST:PORT,... TABLE REGIONS    creates the table, prints "working", and obeys the lines of the standard input
 * begin NAME                     forgets what was before
 * end NAME                       waits until every region was written and read, and a master has answered, in calls that begin after this line, and prints
 * </pre>
 *
 * a line of tab-separated figures, in ms since the line {@code begin}:
 *
 * <pre>
 * round  NAME  longest time without a write to some region  the same of reads  longest call  longest time without an answer of a master  errors
 * </pre>
 *
 * and before it with -Dprobes=true, of {@link Probes}, which do not have the client's pauses:
 *
 * <pre>
 * probes NAME  longest time without a write to some region  the same of reads  longest time without an answer of a master  failed attempts
 * </pre>
 *
 * Each region has a writer and a reader, so a region that is away holds up no other. The reader knows which values the row may have:
 * any other one is an error, and so is a call that fails after the client's own retries. Exit 1 after an error.
 *
 * <p>-Drpc=MS: the client's timeout of one call, default 10000; HBase's own is 60000. -Dasync=true: calls go through HBase's asynchronous
 * client, the one that HBase 3 has. -Dhbase.NAME=VALUE: any other property of the client.
 */
public final class Recovery {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("q");
  private static final long PAUSE_MS = 20;
  private static final long MASTER_PAUSE_MS = 100;
  private static final long END_MS_MAX = 300_000;

  private interface Call {
    void run() throws Exception;
  }

  /** What is asked of a cluster, by either of HBase's clients. */
  private interface Client extends AutoCloseable {
    void create(TableDescriptor table, byte[][] splits) throws Exception;

    Rows rows(TableName table) throws Exception;

    void askMaster() throws Exception;
  }

  private interface Rows {
    void put(Put put) throws Exception;

    Result get(Get get) throws Exception;
  }

  private static final class Blocking implements Client {
    private final Connection connection;
    private final Admin admin;

    Blocking(Configuration conf) throws Exception {
      connection = ConnectionFactory.createConnection(conf);
      admin = connection.getAdmin();
    }

    @Override
    public void create(TableDescriptor table, byte[][] splits) throws Exception {
      admin.createTable(table, splits);
    }

    @Override
    public Rows rows(TableName name) throws Exception {
      Table table = connection.getTable(name);
      return new Rows() {
        @Override
        public void put(Put put) throws Exception {
          table.put(put);
        }

        @Override
        public Result get(Get get) throws Exception {
          return table.get(get);
        }
      };
    }

    @Override
    public void askMaster() throws Exception {
      admin.isBalancerEnabled();
    }

    @Override
    public void close() throws Exception {
      connection.close();
    }
  }

  private static final class Asynchronous implements Client {
    private final AsyncConnection connection;

    Asynchronous(Configuration conf) throws Exception {
      connection = ConnectionFactory.createAsyncConnection(conf).get();
    }

    @Override
    public void create(TableDescriptor table, byte[][] splits) throws Exception {
      connection.getAdmin().createTable(table, splits).get();
    }

    @Override
    public Rows rows(TableName name) {
      AsyncTable<?> table = connection.getTable(name);
      return new Rows() {
        @Override
        public void put(Put put) throws Exception {
          table.put(put).get();
        }

        @Override
        public Result get(Get get) throws Exception {
          return table.get(get).get();
        }
      };
    }

    @Override
    public void askMaster() throws Exception {
      connection.getAdmin().isBalancerEnabled().get();
    }

    @Override
    public void close() throws Exception {
      connection.close();
    }
  }

  /** One kind of call, made again and again. */
  private final class Caller implements Runnable {
    final Call call;
    final long pauseMs;
    /** Of the last call that succeeded. */
    volatile long begunNs;
    volatile long endedNs;
    final AtomicLong longestGapNs = new AtomicLong();
    final AtomicLong longestCallNs = new AtomicLong();

    Caller(Call call, long pauseMs) {
      this.call = call;
      this.pauseMs = pauseMs;
    }

    void forget(long nowNs) {
      synchronized (this) {
        endedNs = nowNs;
        longestGapNs.set(0);
        longestCallNs.set(0);
      }
    }

    @Override
    public void run() {
      while (working) {
        long begun = System.nanoTime();
        try {
          call.run();
          long ended = System.nanoTime();
          synchronized (this) {
            longestGapNs.accumulateAndGet(ended - endedNs, Math::max);
            longestCallNs.accumulateAndGet(ended - begun, Math::max);
            endedNs = ended;
            begunNs = begun;
          }
        } catch (Exception error) {
          errors.incrementAndGet();
          System.err.println(error);
        }
        sleep(pauseMs);
      }
    }
  }

  private final Configuration conf;
  private final Client client;
  private final TableName name;
  private final int regions;
  private final AtomicLong errors = new AtomicLong();
  private volatile boolean working = true;
  private long allErrors;

  private Recovery(Configuration conf, Client client, String table, int regions) {
    this.conf = conf;
    this.client = client;
    this.name = TableName.valueOf(table);
    this.regions = regions;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 3) {
      System.err.println("HOST:PORT,... TABLE REGIONS");
      System.exit(64);
    }
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    for (String kind : new String[] {"", "read.", "write."}) {
      conf.setInt("hbase.rpc." + kind + "timeout", Integer.getInteger("rpc", 10_000));
    }
    for (String property : System.getProperties().stringPropertyNames()) {
      if (property.startsWith("hbase.")) {
        conf.set(property, System.getProperty(property));
      }
    }
    boolean right;
    try (Client client = Boolean.getBoolean("async") ? new Asynchronous(conf) : new Blocking(conf)) {
      right = new Recovery(conf, client, args[1], Integer.parseInt(args[2])).run();
    }
    System.exit(right ? 0 : 1);
  }

  private boolean run() throws Exception {
    create();
    if (!Boolean.getBoolean("probes")) {
      return run(null);
    }
    List<byte[]> rows = new ArrayList<>();
    for (int region = 0; region < regions; region++) {
      rows.add(Bytes.toBytes(String.format("%04d-probe", region)));
    }
    try (Probes probes = new Probes(conf, name, rows)) {
      return run(probes);
    }
  }

  private boolean run(Probes probes) throws Exception {
    List<Caller> writers = new ArrayList<>();
    List<Caller> readers = new ArrayList<>();
    for (int region = 0; region < regions; region++) {
      byte[] row = Bytes.toBytes(String.format("%04d-row", region));
      AtomicLong begun = new AtomicLong();
      AtomicLong acknowledged = new AtomicLong();
      Rows table = client.rows(name);
      writers.add(new Caller(() -> {
        long value = begun.incrementAndGet();
        table.put(new Put(row).addColumn(F, Q, Bytes.toBytes(value)));
        acknowledged.set(value);
      }, PAUSE_MS));
      readers.add(new Caller(() -> {
        long least = acknowledged.get();
        Result result = table.get(new Get(row));
        long found = result.isEmpty() ? 0 : Bytes.toLong(result.value());
        if (found < least || found > begun.get()) {
          throw new IllegalStateException(Bytes.toString(row) + " has " + found + ", not " + least + " to " + begun.get());
        }
      }, PAUSE_MS));
    }
    Caller master = new Caller(client::askMaster, MASTER_PAUSE_MS);
    List<Caller> all = new ArrayList<>(writers);
    all.addAll(readers);
    all.add(master);
    List<Thread> threads = new ArrayList<>();
    for (Caller caller : all) {
      caller.forget(System.nanoTime());
      threads.add(new Thread(caller));
    }
    threads.forEach(Thread::start);
    await(all, probes);
    say("working");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.startsWith("begin ")) {
        long now = System.nanoTime();
        errors.set(0);
        all.forEach(caller -> caller.forget(now));
        if (probes != null) {
          probes.forget(now);
        }
        say("begun\t" + line.substring(6));
      } else if (line.startsWith("end ")) {
        await(all, probes);
        if (probes != null) {
          errors.addAndGet(probes.wrong());
          say("probes\t" + line.substring(4) + "\t" + probes.figures());
        }
        allErrors += errors.get();
        List<Caller> ofRows = new ArrayList<>(writers);
        ofRows.addAll(readers);
        long longestCall = ofRows.stream().mapToLong(caller -> caller.longestCallNs.get()).max().orElse(0);
        say(String.join("\t", "round", line.substring(4), ms(longestGap(writers)), ms(longestGap(readers)), ms(longestCall),
            ms(master.longestGapNs.get()), Long.toString(errors.get())));
      }
    }
    working = false;
    for (Thread thread : threads) {
      thread.join();
    }
    return allErrors == 0;
  }

  private void create() throws Exception {
    byte[][] splits = new byte[regions - 1][];
    for (int region = 1; region < regions; region++) {
      splits[region - 1] = Bytes.toBytes(String.format("%04d", region));
    }
    client.create(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
  }

  /** Waits until each caller and each probe has had an answer to a call that began after this. */
  private static void await(List<Caller> callers, Probes probes) {
    long now = System.nanoTime();
    while (!callers.stream().allMatch(caller -> caller.begunNs != 0 && caller.begunNs - now >= 0)
        || probes != null && !probes.haveSucceededSince(now)) {
      if (System.nanoTime() - now > END_MS_MAX * 1_000_000) {
        System.err.println("some calls had no answer within " + END_MS_MAX + " ms");
        System.exit(2);
      }
      sleep(5);
    }
  }

  private static long longestGap(List<Caller> callers) {
    return callers.stream().mapToLong(caller -> caller.longestGapNs.get()).max().orElse(0);
  }

  private static String ms(long ns) {
    return Long.toString(ns / 1_000_000);
  }

  private static void sleep(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void say(String text) {
    System.out.println(text);
    System.out.flush();
  }
}
