// For testing/bench/replication.sh.
//
//   java -cp JARS Bench create ZOOKEEPER TABLE
//   java ... load ZOOKEEPER TABLE ROWS                     rows of one cell, 100 bytes, of several threads; a last row at the end
//   java ... peer ZOOKEEPER ID CLUSTER_KEY                 rolls the WALs, and adds a peer that is disabled
//   java ... remove ZOOKEEPER ID
//   java ... catchup SOURCE PEER ID TABLE ROWS             enables the peer; prints the seconds until the last row is there, checks all
//   java ... lag SOURCE PEER TABLE RATE SECONDS            prints p50, p99 and the number of samples, in milliseconds

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.util.Bytes;

public class Bench {
  static final byte[] F = Bytes.toBytes("f"), Q = Bytes.toBytes("q"), LAST = Bytes.toBytes("~last");
  static final int THREADS = 4, BATCH = 200, PROBES = 16;

  static Connection connect(String zookeeper) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper.substring(0, zookeeper.lastIndexOf(':')));
    conf.set("hbase.zookeeper.property.clientPort", zookeeper.substring(zookeeper.lastIndexOf(':') + 1));
    return ConnectionFactory.createConnection(conf);
  }

  public static void main(String[] args) throws Exception {
    try (Connection c = connect(args[1]); Admin admin = c.getAdmin()) {
      switch (args[0]) {
        case "create":
          admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf(args[2]))
            .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setScope(1).build()).build());
          break;
        case "load": load(c, TableName.valueOf(args[2]), Integer.parseInt(args[3])); break;
        case "peer":
          for (ServerName server : admin.getRegionServers()) admin.rollWALWriter(server);
          admin.addReplicationPeer(args[2], ReplicationPeerConfig.newBuilder().setClusterKey(args[3]).build(), false);
          break;
        case "remove": admin.removeReplicationPeer(args[2]); break;
        case "catchup":
          try (Connection peer = connect(args[2])) { catchUp(admin, peer, args[3], TableName.valueOf(args[4]), Integer.parseInt(args[5])); }
          break;
        case "lag":
          try (Connection peer = connect(args[2])) { lag(c, peer, TableName.valueOf(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5])); }
          break;
        default: throw new IllegalArgumentException(args[0]);
      }
    }
  }

  static byte[] row(int number) { return Bytes.toBytes(String.format("%08x-%08d", Integer.reverse(number), number)); }

  static void load(Connection c, TableName name, int rows) throws Exception {
    List<Thread> threads = new ArrayList<>();
    for (int thread = 0; thread < THREADS; thread++) {
      int first = thread;
      threads.add(new Thread(() -> {
        byte[] value = new byte[100];
        new Random(first).nextBytes(value);
        try (Table table = c.getTable(name)) {
          List<Put> puts = new ArrayList<>();
          for (int i = first; i < rows; i += THREADS) {
            puts.add(new Put(row(i)).addColumn(F, Q, value));
            if (puts.size() == BATCH) { table.put(puts); puts = new ArrayList<>(); }
          }
          table.put(puts);
        } catch (IOException error) {
          error.printStackTrace();
          System.exit(1);
        }
      }));
    }
    for (Thread thread : threads) thread.start();
    for (Thread thread : threads) thread.join();
    try (Table table = c.getTable(name)) { table.put(new Put(LAST).addColumn(F, Q, LAST)); }
  }

  static void catchUp(Admin admin, Connection peer, String id, TableName name, int rows) throws Exception {
    try (Table table = peer.getTable(name)) {
      if (table.exists(new Get(LAST))) throw new AssertionError("the peer has the rows already");
      long began = System.nanoTime();
      admin.enableReplicationPeer(id);
      while (!table.exists(new Get(LAST))) Thread.sleep(10);
      double seconds = (System.nanoTime() - began) / 1e9;
      int count = 0;
      for (int attempt = 0; attempt < 50 && count != rows + 1; attempt++) { // batches may overtake each other
        count = 0;
        try (ResultScanner scanner = table.getScanner(new Scan().setCaching(5000).setFilter(new FirstKeyOnlyFilter()))) {
          while (scanner.next() != null) count++;
        }
        if (count != rows + 1) seconds = (System.nanoTime() - began) / 1e9;
      }
      if (count != rows + 1) throw new AssertionError("the peer has " + count + " rows");
      System.out.printf("%.2f%n", seconds);
    }
  }

  static void lag(Connection source, Connection peer, TableName name, int rate, int seconds) throws Exception {
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    Thread load = new Thread(() -> {
      byte[] value = new byte[100];
      long began = System.nanoTime();
      try (Table table = source.getTable(name)) {
        for (int i = 0; System.nanoTime() < end; i++) {
          table.put(new Put(Bytes.toBytes("load-" + i % 10000)).addColumn(F, Q, value));
          long ahead = began + i * 1_000_000_000L / rate - System.nanoTime();
          if (ahead > 0) Thread.sleep(ahead / 1_000_000, (int) (ahead % 1_000_000));
        }
      } catch (Exception error) {
        error.printStackTrace();
        System.exit(1);
      }
    });
    load.start();
    // Puts at times of their own: one thread would put again when the source has just woken up.
    List<Long> lags = Collections.synchronizedList(new ArrayList<>());
    List<Thread> probes = new ArrayList<>();
    for (int probe = 0; probe < PROBES; probe++) {
      int number = probe;
      probes.add(new Thread(() -> {
        Random random = new Random(number);
        try (Table from = source.getTable(name); Table to = peer.getTable(name)) {
          for (int i = 0; ; i++) {
            Thread.sleep(random.nextInt(1000));
            if (System.nanoTime() > end) break;
            byte[] row = Bytes.toBytes("probe-" + number + "-" + i);
            from.put(new Put(row).addColumn(F, Q, row));
            long began = System.nanoTime();
            while (!to.exists(new Get(row))) Thread.sleep(5);
            lags.add(System.nanoTime() - began);
          }
        } catch (Exception error) {
          error.printStackTrace();
          System.exit(1);
        }
      }));
    }
    for (Thread probe : probes) probe.start();
    for (Thread probe : probes) probe.join();
    load.join();
    long[] sorted = lags.stream().mapToLong(Long::longValue).sorted().toArray();
    System.out.printf("%.0f %.0f %d%n", sorted[sorted.length / 2] / 1e6, sorted[Math.min(sorted.length - 1, sorted.length * 99 / 100)] / 1e6,
      sorted.length);
  }
}
