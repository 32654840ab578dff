package halcyon.compat.nonces;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Increments and appends are applied once, although the server is killed with SIGKILL before the client has their answers
 * and the client sends them again, with the same nonce, to the restarted server.
 *
 * <pre>
 * BINARY DIRECTORY ZOOKEEPER-PORT MASTER-PORT REGIONSERVER-PORT ROUNDS
 * </pre>
 *
 * The server tells clients that it is at 127.0.0.2, where a {@link Relay} takes the answers away in three rounds of four; in
 * the fourth the kill comes while the server works. Each {@link Counter} thread knows what its rows must hold. Exit 1 if any
 * row holds more or less.
 */
public final class NonceKills {
  static final TableName TABLE = TableName.valueOf("nonces");
  static final byte[] F = Bytes.toBytes("f");
  private static final String RELAY = "127.0.0.2";
  private static final int THREADS = 4;
  private static final long FAULT_MS_MAX = 60_000;

  private NonceKills() {}

  public static void main(String[] args) throws Exception {
    if (args.length != 6) {
      System.err.println("BINARY DIRECTORY ZOOKEEPER-PORT MASTER-PORT REGIONSERVER-PORT ROUNDS");
      System.exit(64);
    }
    int[] ports = Arrays.stream(args, 2, 5).mapToInt(Integer::parseInt).toArray();
    ServerProcess server = new ServerProcess(args[0], Path.of(args[1]), RELAY, ports);
    Runtime.getRuntime().addShutdownHook(new Thread(server::kill));
    Relay relay = new Relay(InetAddress.getByName(RELAY), server::killRunning);
    relay.listen(ports[1]);
    relay.listen(ports[2]);
    server.start();
    boolean good;
    try (Connection connection = ConnectionFactory.createConnection(configuration(ports[0]))) {
      good = run(connection, server, relay, Integer.parseInt(args[5]));
    }
    if (server.panicked() || server.diedBefore()) {
      System.out.println("an assertion of the server has failed, or it had ended before it was killed");
      good = false;
    }
    System.exit(good ? 0 : 1);
  }

  /** The client's own retries are what is under test: they must outlast a restart of the server. */
  private static Configuration configuration(int zookeeperPort) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", "127.0.0.1");
    conf.setInt("hbase.zookeeper.property.clientPort", zookeeperPort);
    conf.setInt("hbase.client.retries.number", 1000);
    conf.setInt("hbase.client.pause", 20);
    conf.setInt("hbase.ipc.client.failed.servers.expiry", 20);
    conf.setInt("hbase.rpc.timeout", 10_000);
    conf.setInt("hbase.client.operation.timeout", 120_000);
    conf.setInt("hbase.client.meta.operation.timeout", 120_000);
    return conf;
  }

  private static boolean run(Connection connection, ServerProcess server, Relay relay, int rounds) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(TABLE).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(),
          new byte[][] {Bytes.toBytes("2")});
    }
    List<Counter> counters = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      Counter counter = new Counter(connection, i);
      counters.add(counter);
      counter.start();
    }
    for (int round = 1; round <= rounds; round++) {
      awaitProgress(counters);
      Thread.sleep(ThreadLocalRandom.current().nextInt(100));
      killOnce(relay, round % 4 == 0 ? Relay.Fault.AFTER_REQUEST : Relay.Fault.AFTER_ANSWER);
      server.start();
      if (round % 50 == 0 || round == rounds) {
        System.out.println("round " + round + ": " + summary(relay, counters));
      }
    }
    awaitProgress(counters);
    for (Counter counter : counters) {
      counter.finish(Math.max(1, rounds / 4));
    }
    System.out.println(rounds + " kills: " + summary(relay, counters));
    boolean hasFailed = counters.stream().mapToLong(Counter::failed).sum() > rounds;
    if (hasFailed) {
      System.out.println("more operations ended with an exception than there were kills");
    }
    return !hasFailed && counters.stream().allMatch(counter -> counter.faults() == 0) && relay.swallowed() >= rounds * 3 / 4;
  }

  private static void killOnce(Relay relay, Relay.Fault fault) throws Exception {
    int before = relay.kills();
    relay.arm(fault);
    long deadline = System.currentTimeMillis() + FAULT_MS_MAX;
    while (relay.kills() == before) {
      if (System.currentTimeMillis() > deadline) {
        throw new IOException("no call went through the relay within " + FAULT_MS_MAX + " ms: the server was not killed");
      }
      Thread.sleep(1);
    }
  }

  /** Waits until every thread has had an answer after now. */
  private static void awaitProgress(List<Counter> counters) throws Exception {
    for (Counter counter : counters) {
      counter.awaitAnswer(FAULT_MS_MAX);
    }
  }

  private static String summary(Relay relay, List<Counter> counters) {
    return counters.stream().mapToLong(Counter::answered).sum() + " operations answered, " + relay.swallowed()
        + " answers taken away, " + relay.unanswered() + " calls without an answer at a kill, "
        + counters.stream().mapToLong(Counter::failed).sum() + " ended with an exception, "
        + counters.stream().mapToLong(Counter::faults).sum() + " not applied exactly once";
  }
}
