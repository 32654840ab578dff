package halcyon.compat.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.AsyncAdmin;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * When a region can be written and read again, without the pauses of HBase's client: a write and a read of each region each 50 ms, and a
 * question to the master.
 *
 * <p>HBase's client waits 0.1, 0.2, 0.3, 0.5, 1, 2, 4, 10, 10 ... s between its attempts, so it finds a region at the end of such a pause.
 * Here each attempt is one for itself: it does not wait for the others, and is not repeated. Each region has a connection of its own, whose
 * locations are forgotten after each attempt that failed. Attempts and look-ups in hbase:meta have short timeouts, so a frozen server
 * holds up those that it has, and no later ones for more than {@link #META_MS}.
 */
final class Probes implements AutoCloseable {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] Q = Bytes.toBytes("probe");
  private static final long INTERVAL_MS = 50;
  private static final int ATTEMPT_MS = 1_000;
  private static final int META_MS = 500;
  /** Attempts of one probe that have no answer yet; the timeout alone keeps them below 20. */
  private static final int PENDING_MAX = 40;

  private interface Attempt {
    CompletableFuture<?> begin();
  }

  /** One kind of attempt. */
  private static final class Probe implements Runnable {
    final Attempt attempt;
    final Runnable forgetLocations;
    final AtomicInteger pending = new AtomicInteger();
    /** Of the last attempt that succeeded. */
    private long begunNs;
    private long endedNs = System.nanoTime();
    private long longestGapNs;
    private long failed;

    Probe(Attempt attempt, Runnable forgetLocations) {
      this.attempt = attempt;
      this.forgetLocations = forgetLocations;
    }

    @Override
    public void run() {
      if (pending.get() >= PENDING_MAX) {
        return;
      }
      pending.incrementAndGet();
      long begun = System.nanoTime();
      CompletableFuture<?> answer;
      try {
        answer = attempt.begin();
      } catch (RuntimeException error) { // an exception would end the schedule
        answer = CompletableFuture.failedFuture(error);
      }
      answer.whenComplete((value, error) -> {
        pending.decrementAndGet();
        if (error == null) {
          succeeded(begun, System.nanoTime());
        } else {
          hasFailed();
          forgetLocations.run();
        }
      });
    }

    private synchronized void succeeded(long begun, long ended) {
      longestGapNs = Math.max(longestGapNs, ended - endedNs);
      endedNs = Math.max(endedNs, ended);
      begunNs = Math.max(begunNs, begun);
    }

    private synchronized void hasFailed() {
      failed++;
    }

    synchronized void forget(long nowNs) {
      endedNs = nowNs;
      longestGapNs = 0;
      failed = 0;
    }

    synchronized boolean hasSucceededSince(long ns) {
      return begunNs != 0 && begunNs - ns >= 0;
    }

    synchronized long longestGapNs() {
      return longestGapNs;
    }

    synchronized long failed() {
      return failed;
    }
  }

  private final List<AsyncConnection> connections = new ArrayList<>();
  private final List<Probe> writes = new ArrayList<>();
  private final List<Probe> reads = new ArrayList<>();
  private final Probe master;
  private final List<Probe> all = new ArrayList<>();
  private final AtomicLong wrong = new AtomicLong();
  private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(4);

  /** Of a table that is there. {@code rows} has a row of each region, which nothing else writes. */
  Probes(Configuration client, TableName table, List<byte[]> rows) throws Exception {
    Configuration conf = configuration(client);
    for (byte[] row : rows) {
      AsyncConnection connection = ConnectionFactory.createAsyncConnection(conf).get();
      connections.add(connection);
      addRow(connection, table, row);
    }
    AsyncConnection connection = ConnectionFactory.createAsyncConnection(conf).get();
    connections.add(connection);
    AsyncAdmin admin = connection.getAdminBuilder().setMaxAttempts(1).setOperationTimeout(ATTEMPT_MS, TimeUnit.MILLISECONDS)
        .setRpcTimeout(ATTEMPT_MS, TimeUnit.MILLISECONDS).build();
    master = new Probe(admin::isBalancerEnabled, () -> { });
    all.addAll(writes);
    all.addAll(reads);
    all.add(master);
    for (int at = 0; at < all.size(); at++) {
      clock.scheduleAtFixedRate(all.get(at), at * INTERVAL_MS / all.size(), INTERVAL_MS, TimeUnit.MILLISECONDS);
    }
  }

  private static Configuration configuration(Configuration client) {
    Configuration conf = new Configuration(client);
    conf.setInt("hbase.client.retries.number", 0);
    for (String kind : new String[] {"", "read.", "write."}) {
      conf.setInt("hbase.rpc." + kind + "timeout", ATTEMPT_MS);
    }
    conf.setInt("hbase.client.operation.timeout", ATTEMPT_MS);
    conf.setInt("hbase.client.meta.operation.timeout", META_MS);
    conf.setInt("hbase.client.meta.read.rpc.timeout", META_MS);
    conf.setInt("hbase.client.meta.scanner.timeout.period", META_MS);
    conf.setInt("hbase.ipc.client.socket.timeout.connect", META_MS);
    conf.setInt("hbase.ipc.client.failed.servers.expiry", 0); // else a server that refused once is not asked again for 2 s
    return conf;
  }

  private void addRow(AsyncConnection connection, TableName name, byte[] row) {
    AsyncTable<?> table = connection.getTableBuilder(name).setMaxAttempts(1).setOperationTimeout(ATTEMPT_MS, TimeUnit.MILLISECONDS).build();
    AtomicLong begun = new AtomicLong();
    writes.add(new Probe(() -> table.put(new Put(row).addColumn(F, Q, Bytes.toBytes(begun.incrementAndGet()))),
        connection::clearRegionLocationCache));
    reads.add(new Probe(() -> table.get(new Get(row).addColumn(F, Q)).thenAccept(found -> {
      long value = found.isEmpty() ? 0 : Bytes.toLong(found.value());
      if (value < 0 || value > begun.get()) {
        wrong.incrementAndGet();
        System.err.println(Bytes.toString(row) + " has " + value + ", and " + begun.get() + " are the newest");
      }
    }), connection::clearRegionLocationCache));
  }

  void forget(long nowNs) {
    wrong.set(0);
    all.forEach(probe -> probe.forget(nowNs));
  }

  /** Whether each probe had an answer to an attempt that began after this time. */
  boolean haveSucceededSince(long ns) {
    return all.stream().allMatch(probe -> probe.hasSucceededSince(ns));
  }

  /** Values that nothing has written. */
  long wrong() {
    return wrong.get();
  }

  /** The longest time without a write to some region, without a read, without an answer of the master, in ms; attempts that failed. */
  String figures() {
    return String.join("\t", longestMs(writes), longestMs(reads), longestMs(List.of(master)),
        Long.toString(all.stream().mapToLong(Probe::failed).sum()));
  }

  private static String longestMs(List<Probe> probes) {
    return Long.toString(probes.stream().mapToLong(Probe::longestGapNs).max().orElse(0) / 1_000_000);
  }

  @Override
  public void close() throws Exception {
    clock.shutdownNow();
    for (AsyncConnection connection : connections) {
      connection.close();
    }
  }
}
