package halcyon.compat.histories;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.VersionInfo;

/**
 * Records histories with HBase's own client, for `halcyon-histories check`. Its twin for the Rust client is
 * testing/histories/src/record; both work on the same rows.
 *
 * <pre>
 * create HOST:PORT,... PREFIX                      creates the tables PREFIX-lists, PREFIX-registers, PREFIX-rows and PREFIX-versions
 * record HOST:PORT,... PREFIX DIRECTORY STOP       works on them until the file STOP is there, then reads each row once more;
 *                                                  writes DIRECTORY/java-lists.txt and so on; prints "working" and counts
 * </pre>
 *
 * -Dprocesses=3 of each kind, -Dfirst=0 the number of the first, -Drate=25 operations of each in a second, -Dperiod=60 seconds
 * until new rows are used, -Dseed=1, -Ddeletes=true. Timeouts in ms: -Dcall=3000, -Doperation=30000. Retries are HBase's
 * default, but for writes without a nonce, which have one attempt. -Dleast=10: answers that each process must get to each action;
 * with fewer the recorder fails, as it does when a process ends early.
 */
public final class Recorder {
  private static final int PROCESSES = Integer.getInteger("processes", 3);
  private static final int FIRST = Integer.getInteger("first", 0);
  private static final long INTERVAL_NS = 1_000_000_000L / Integer.getInteger("rate", 25);
  private static final long PERIOD_NS = Long.getLong("period", 60) * 1_000_000_000L;
  private static final long SEED = Long.getLong("seed", 1);
  private static final boolean DELETES = Boolean.parseBoolean(System.getProperty("deletes", "true"));
  private static final int CALL_MS = Integer.getInteger("call", 3_000);
  private static final int OPERATION_MS = Integer.getInteger("operation", 30_000);
  private static final long LAST_READS_MS = 90_000;
  private static final long LEAST = Long.getLong("least", 10);

  private final String prefix;
  private final Path directory;
  private final Path stop;
  private final Connection patient;
  private final Connection single;
  private final long begunNs = System.nanoTime();
  private final AtomicReference<Throwable> failure = new AtomicReference<>();
  private final AtomicBoolean isOver = new AtomicBoolean();

  private Recorder(String prefix, Path directory, Path stop, Connection patient, Connection single) {
    this.prefix = prefix;
    this.directory = directory;
    this.stop = stop;
    this.patient = patient;
    this.single = single;
  }

  public static void main(String[] args) throws Exception {
    boolean isRight = true;
    if (args.length == 3 && args[0].equals("create")) {
      try (Connection connection = connect(args[1], 15, OPERATION_MS)) {
        create(connection, args[2]);
      }
    } else if (args.length == 5 && args[0].equals("record")) {
      try (Connection patient = connect(args[1], 15, OPERATION_MS); Connection single = connect(args[1], 0, CALL_MS)) {
        isRight = new Recorder(args[2], Path.of(args[3]), Path.of(args[4]), patient, single).run();
      }
    } else {
      System.err.println("create HOST:PORT,... PREFIX | record HOST:PORT,... PREFIX DIRECTORY STOP");
      System.exit(64);
    }
    System.exit(isRight ? 0 : 1);
  }

  private static Connection connect(String zookeeper, int retries, int operationMs) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper);
    conf.setInt("zookeeper.session.timeout", 6_000); // a frozen ZooKeeper is noticed in time
    for (String kind : new String[] {"", "read.", "write."}) {
      conf.setInt("hbase.rpc." + kind + "timeout", CALL_MS);
    }
    conf.setInt("hbase.client.operation.timeout", operationMs);
    conf.setInt("hbase.client.meta.operation.timeout", operationMs);
    conf.setInt("hbase.client.scanner.timeout.period", OPERATION_MS);
    conf.setInt("hbase.client.retries.number", retries);
    return ConnectionFactory.createConnection(conf);
  }

  private static String table(String prefix, Kind kind) {
    return prefix + "-" + kind.name().toLowerCase();
  }

  /** Each slot of the rows has a region. */
  private static void create(Connection connection, String prefix) throws IOException {
    byte[][] splits = new byte[Names.SLOTS - 1][];
    for (int at = 0; at < splits.length; at++) {
      splits[at] = Bytes.toBytes(Integer.toString(at + 1));
    }
    try (Admin admin = connection.getAdmin()) {
      for (Kind kind : Kind.values()) {
        admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf(table(prefix, kind)))
            .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes("f"))
                .setMaxVersions(kind == Kind.VERSIONS ? Integer.MAX_VALUE : 1).build())
            .setColumnFamily(ColumnFamilyDescriptorBuilder.of("g")).build(), splits);
      }
    }
  }

  private boolean run() throws Exception {
    List<Thread> threads = new ArrayList<>();
    List<HistoryFile> files = new ArrayList<>();
    for (Kind kind : Kind.values()) {
      String table = table(prefix, kind);
      Path path = directory.resolve("java-" + kind.name().toLowerCase() + ".txt");
      HistoryFile file = new HistoryFile(path, kind, table, "HBase's Java client " + VersionInfo.getVersion());
      files.add(file);
      for (int at = 0; at < PROCESSES; at++) {
        int process = at;
        threads.add(new Thread(() -> work(kind, file, table, process), kind + "-" + at));
      }
    }
    threads.forEach(Thread::start);
    System.out.println("working");
    while (!Files.exists(stop) && failure.get() == null) {
      Thread.sleep(1_000);
      System.out.println("so far: " + files.stream().mapToLong(HistoryFile::count).sum() + " operations");
      System.out.flush();
    }
    isOver.set(true);
    for (Thread thread : threads) {
      thread.join();
    }
    for (int at = 0; at < files.size(); at++) {
      if (failure.get() == null) {
        readAll(Kind.values()[at], files.get(at));
      }
    }
    if (failure.get() != null) {
      System.out.println("FAILED: " + failure.get());
      failure.get().printStackTrace(System.out);
      return false;
    }
    for (int at = 0; at < files.size(); at++) {
      files.get(at).end();
      System.out.println("end: " + Kind.values()[at].name().toLowerCase() + ": " + files.get(at));
    }
    return haveShownEnough(files);
  }

  private static boolean haveShownEnough(List<HistoryFile> files) {
    List<String> processes = new ArrayList<>();
    for (int at = 0; at < PROCESSES; at++) {
      processes.add(Worker.name(FIRST + at));
    }
    boolean enough = true;
    for (int at = 0; at < files.size(); at++) {
      Kind kind = Kind.values()[at];
      String fault = files.get(at).fault(processes, Worker.actions(kind, DELETES), LEAST);
      if (fault != null) {
        System.out.println("FAILED: " + kind.name().toLowerCase() + ": " + fault);
        enough = false;
      }
    }
    return enough;
  }

  private Worker worker(Kind kind, HistoryFile file, Table first, Table second, int process) {
    return new Worker(kind, file, first, second, FIRST + process, DELETES, SEED, begunNs);
  }

  private void work(Kind kind, HistoryFile file, String table, int process) {
    TableName name = TableName.valueOf(table);
    try (Table first = patient.getTable(name); Table second = single.getTable(name)) {
      Worker worker = worker(kind, file, first, second, process);
      while (!isOver.get()) {
        worker.step(PERIOD_NS, INTERVAL_NS);
      }
    } catch (Throwable e) { // a process that ends early shows nothing from then on
      failure.compareAndSet(null, e);
    }
  }

  /** The faults are over: each row has an answer. */
  private void readAll(Kind kind, HistoryFile file) {
    TableName name = TableName.valueOf(table(prefix, kind));
    try (Table first = patient.getTable(name); Table second = single.getTable(name)) {
      worker(kind, file, first, second, 0).readAll(file.rows(), LAST_READS_MS);
    } catch (Throwable e) {
      failure.compareAndSet(null, e);
    }
  }
}
