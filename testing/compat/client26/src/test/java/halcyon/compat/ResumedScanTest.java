package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/**
 * Rows that are there all the time are in every scan, with both families, while regions split, merge, move and flush under
 * writers. A client that loses its scanner names the read point of it when it opens the next one. HBase 2.6.4 reads at that
 * point although nobody has held it, and may lose rows.
 */
class ResumedScanTest extends CompatTest {
  private static final int ROWS = 24;
  private static final int WRITERS = 4;
  private static final int SECONDS = 4;

  private static byte[] key(int i) {
    return bytes(String.format("k%02d", i));
  }

  private static Put write(int row, long value) {
    byte[] bytes = Bytes.toBytes(value);
    return new Put(key(row)).addColumn(F, Q, bytes).addColumn(G, Q, bytes);
  }

  private void scan(Table table, Random random) throws Exception {
    Scan scan = new Scan().setReversed(random.nextBoolean()).setCaching(1 + random.nextInt(4));
    List<String> expected = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      expected.add(text(key(i)));
    }
    if (scan.isReversed()) {
      Collections.reverse(expected);
    }
    List<String> found = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        found.add(text(result.getRow()));
        assertArrayEquals(result.getValue(F, Q), result.getValue(G, Q), "a row of two moments: " + result);
      }
    }
    assertEquals(expected, found, "reversed: " + scan.isReversed());
  }

  /** One change; those that are refused, because a region has just changed, do not count. */
  private boolean disturb(Table table, Random random) throws Exception {
    List<RegionInfo> regions = new ArrayList<>(admin.getRegions(table.getName()));
    regions.sort(RegionInfo.COMPARATOR);
    RegionInfo region = regions.get(random.nextInt(regions.size()));
    try {
      switch (random.nextInt(7)) {
        case 0, 1 -> {
          if (regions.size() < 5) {
            byte[] at = key(random.nextInt(ROWS));
            for (RegionInfo each : regions) {
              if (each.containsRow(at)) {
                admin.splitRegionAsync(each.getRegionName(), at).get(20, TimeUnit.SECONDS);
              }
            }
          }
        }
        case 2, 3 -> {
          if (regions.size() > 1) {
            int first = random.nextInt(regions.size() - 1);
            byte[][] names = {regions.get(first).getEncodedNameAsBytes(), regions.get(first + 1).getEncodedNameAsBytes()};
            admin.mergeRegionsAsync(names, false).get(20, TimeUnit.SECONDS);
          }
        }
        case 4 -> admin.move(region.getEncodedNameAsBytes());
        case 5 -> admin.majorCompact(table.getName());
        default -> admin.flush(table.getName());
      }
      return true;
    } catch (Exception refused) {
      return false;
    }
  }

  @Test
  void noRowIsLost() throws Exception {
    Table table = create(new byte[][] {key(8), key(16)}, family(F).setMaxVersions(1).build(), family(G).setMaxVersions(1).build());
    for (int i = 0; i < ROWS; i++) {
      table.put(write(i, 0));
    }
    // As often as HBase's client tries by itself: a busy disk makes a change take more than a second, and the next follows.
    Configuration patient = Target.configuration(registry);
    patient.setInt("hbase.client.retries.number", HConstants.DEFAULT_HBASE_CLIENT_RETRIES_NUMBER);
    AtomicBoolean stop = new AtomicBoolean();
    ExecutorService threads = Executors.newFixedThreadPool(WRITERS + 1);
    List<Future<Integer>> users = new ArrayList<>();
    int changes = 0;
    try (Connection clients = ConnectionFactory.createConnection(patient)) {
      for (int w = 0; w <= WRITERS; w++) {
        final int user = w;
        users.add(threads.submit(() -> {
          Random random = new Random(user);
          int count = 0;
          try (Table mine = clients.getTable(table.getName())) {
            for (; !stop.get(); count++) {
              if (user == WRITERS) {
                scan(mine, random);
              } else {
                mine.put(write(random.nextInt(ROWS), random.nextLong()));
              }
            }
          }
          return count;
        }));
      }
      Random random = new Random(7);
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
      while (System.nanoTime() < end && users.stream().noneMatch(Future::isDone)) {
        changes += disturb(table, random) ? 1 : 0;
        Thread.sleep(random.nextInt(50));
      }
      stop.set(true);
      for (Future<Integer> user : users) {
        assertTrue(user.get(60, TimeUnit.SECONDS) > 0);
      }
    } finally {
      stop.set(true);
      threads.shutdownNow();
    }
    assertTrue(changes > 0);
  }
}
