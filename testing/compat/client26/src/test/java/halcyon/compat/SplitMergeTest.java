package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** Regions that are split and merged while clients use them. */
class SplitMergeTest extends CompatTest {
  private static String key(int i) {
    return String.format("k%05d", i);
  }

  private List<RegionInfo> regions(Table table) throws Exception {
    return admin.getRegions(table.getName());
  }

  private void split(RegionInfo region, String at) throws Exception {
    get(admin.splitRegionAsync(region.getRegionName(), bytes(at)));
  }

  private void merge(RegionInfo... regions) throws Exception {
    byte[][] names = new byte[regions.length][];
    for (int i = 0; i < regions.length; i++) {
      names[i] = regions[i].getEncodedNameAsBytes();
    }
    get(admin.mergeRegionsAsync(names, false));
  }

  /** Compactions take references away; until then a region can be neither split nor merged. */
  private void settle(TableName name, Action action) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (true) {
      try {
        action.run();
        return;
      } catch (Exception e) {
        boolean early = String.valueOf(e.getMessage()).matches("(?s).*(NOT splittable|not mergeable).*");
        if (!early || System.nanoTime() > end) {
          throw e;
        }
        admin.compact(name);
        Thread.sleep(50);
      }
    }
  }

  private void load(Table table, int rows) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < rows; i++) {
      puts.add(put(bytes(key(i)), "f:q", "v" + i));
    }
    table.put(puts);
  }

  private void check(Table table, int rows) throws Exception {
    for (boolean reversed : new boolean[] {false, true}) {
      try (ResultScanner scanner = table.getScanner(new Scan().setReversed(reversed).setCaching(7))) {
        for (int i = 0; i < rows; i++) {
          Result result = scanner.next();
          int at = reversed ? rows - 1 - i : i;
          assertEquals(key(at), text(result.getRow()));
          assertEquals("v" + at, text(result.getValue(F, Q)));
        }
        assertEquals(null, scanner.next());
      }
    }
    for (int i = 0; i < rows; i += 37) {
      assertEquals("v" + i, value(table, bytes(key(i)), "f:q"));
    }
  }

  @Test
  void splitsAtARowAndInTheMiddle() throws Exception {
    Table table = create(family(F).setBlocksize(1024).build());
    load(table, 500);
    split(regions(table).get(0), key(100)); // all of it in memory
    assertEquals(2, regions(table).size());
    check(table, 500);
    settle(table.getName(), () -> get(admin.splitRegionAsync(regions(table).get(1).getRegionName())));
    List<RegionInfo> regions = regions(table);
    assertEquals(3, regions.size());
    String middle = text(regions.get(2).getStartKey());
    assertTrue(middle.compareTo(key(200)) > 0 && middle.compareTo(key(400)) < 0, middle);
    assertEquals(List.of(), regions.stream().filter(RegionInfo::isSplit).toList());
    check(table, 500);
    admin.disableTable(table.getName());
    admin.enableTable(table.getName());
    check(table, 500);
    FlushCompactTest.majorCompact(admin, table.getName());
    check(table, 500);
  }

  @Test
  void mergesNeighbours() throws Exception {
    Table table = create(new byte[][] {bytes(key(100)), bytes(key(200)), bytes(key(300))}, family(F).build());
    load(table, 500);
    admin.flush(table.getName());
    List<RegionInfo> before = regions(table);
    assertFails(DoNotRetryIOException.class, () -> merge(before.get(0), before.get(2)));
    // each has to be the neighbour of the one that is named before it
    assertFails(DoNotRetryIOException.class, () -> merge(before.get(2), before.get(0), before.get(1)));
    merge(before.get(2), before.get(1), before.get(0));
    List<RegionInfo> regions = regions(table);
    assertEquals(2, regions.size());
    assertArrayEquals(bytes(key(300)), regions.get(0).getEndKey());
    check(table, 500);
    table.delete(new Delete(bytes(key(250))));
    table.put(put(bytes(key(250)), "f:q", "v250"));
    settle(table.getName(), () -> merge(regions.get(0), regions.get(1)));
    assertEquals(1, regions(table).size());
    check(table, 500);
  }

  @Test
  void switchesAndFlags() throws Exception {
    Table table = create(new byte[][] {bytes("m")}, family(F).build());
    List<RegionInfo> regions = regions(table);
    assertTrue(admin.splitSwitch(false, true));
    try {
      assertFails(DoNotRetryIOException.class, () -> split(regions.get(0), "c"));
    } finally {
      assertFalse(admin.splitSwitch(true, true));
    }
    assertTrue(admin.mergeSwitch(false, true));
    try {
      assertFails(DoNotRetryIOException.class, () -> merge(regions.get(0), regions.get(1)));
    } finally {
      assertFalse(admin.mergeSwitch(true, true));
    }
    TableDescriptor closed = TableDescriptorBuilder.newBuilder(admin.getDescriptor(table.getName()))
        .setSplitEnabled(false).setMergeEnabled(false).build();
    admin.modifyTable(closed);
    assertFails(DoNotRetryIOException.class, () -> split(regions.get(0), "c"));
    assertFails(DoNotRetryIOException.class, () -> merge(regions.get(0), regions.get(1)));
    assertEquals(2, regions(table).size());
  }

  @Test
  void aTableThatGrows() throws Exception {
    TableName name = freshName();
    // the smallest sizes that the sanity checks let pass
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family(F).setBlocksize(4096).build())
        .setMaxFileSize(2 << 20).setMemStoreFlushSize(1 << 20)
        .setRegionSplitPolicyClassName("org.apache.hadoop.hbase.regionserver.ConstantSizeRegionSplitPolicy").build());
    Table table = table(name);
    byte[] value = new byte[4000];
    new Random(1).nextBytes(value);
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 2000; i++) {
      puts.add(new Put(bytes(key(i))).addColumn(F, Q, value));
      if (puts.size() == 100) {
        table.put(puts);
        puts.clear();
      }
    }
    admin.flush(name);
    eventually("a table of 8 MB in regions of at most 2", () -> admin.getRegions(name).size() >= 4);
    int rows = 0;
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      for (Result result : scanner) {
        assertEquals(key(rows), text(result.getRow()));
        assertArrayEquals(value, result.getValue(F, Q));
        rows++;
      }
    }
    assertEquals(2000, rows);
    drop(name);
  }

  @Test
  void snapshotOfReferences() throws Exception {
    Table table = create(family(F).build());
    load(table, 300);
    admin.flush(table.getName());
    admin.compactionSwitch(false, new ArrayList<>(admin.getRegionServers().stream().map(s -> s.getServerName()).toList()));
    TableName clone = freshName();
    String snapshot = "s_" + clone.getNameAsString();
    try {
      split(regions(table).get(0), key(120));
      admin.snapshot(snapshot, table.getName());
      table.put(put(bytes(key(7)), "f:q", "later"));
      admin.cloneSnapshot(snapshot, clone);
      assertEquals(2, admin.getRegions(clone).size());
      check(table(clone), 300);
    } finally {
      admin.compactionSwitch(true, new ArrayList<>(admin.getRegionServers().stream().map(s -> s.getServerName()).toList()));
      admin.deleteSnapshots(java.util.regex.Pattern.compile(snapshot));
      if (admin.tableExists(clone)) {
        drop(clone);
      }
    }
    assertEquals("later", value(table, bytes(key(7)), "f:q"));
  }

  /** Writers, counters and readers go on while regions come and go; afterwards everything is there once. */
  @Test
  void writersSeeNothingOfIt() throws Exception {
    final int writers = 3;
    final int counters = 20;
    Table table = create(family(F).build());
    // As often as HBase's client tries by itself: a busy disk makes a change take more than a second, and the next follows.
    Configuration patient = Target.configuration(registry);
    patient.setInt("hbase.client.retries.number", HConstants.DEFAULT_HBASE_CLIENT_RETRIES_NUMBER);
    Connection users = ConnectionFactory.createConnection(patient);
    AtomicBoolean stop = new AtomicBoolean();
    ExecutorService threads = Executors.newFixedThreadPool(writers + 2);
    List<Future<Integer>> written = new ArrayList<>();
    for (int w = 0; w < writers; w++) {
      final int writer = w;
      written.add(threads.submit(() -> {
        Table mine = users.getTable(table.getName());
        int i = 0;
        for (; !stop.get(); i++) {
          mine.put(put(bytes(String.format("k%05d-%d", i * 31 % 10000, writer)), "f:" + i, "v" + i));
        }
        return i;
      }));
    }
    Future<Integer> counted = threads.submit(() -> {
      Table mine = users.getTable(table.getName());
      int i = 0;
      for (; !stop.get(); i++) {
        mine.incrementColumnValue(bytes("k" + String.format("%05d", i % counters * 500)), F, bytes("n"), 1);
      }
      return i;
    });
    Future<Integer> scanned = threads.submit(() -> {
      Table mine = users.getTable(table.getName());
      int scans = 0;
      while (!stop.get()) {
        String last = "";
        try (ResultScanner scanner = mine.getScanner(new Scan().setCaching(50))) {
          for (Result result : scanner) {
            String row = text(result.getRow());
            assertTrue(row.compareTo(last) > 0, row + " behind " + last);
            last = row;
          }
        }
        scans++;
      }
      return scans;
    });
    Random random = new Random(7);
    int splits = 0;
    int merges = 0;
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (System.nanoTime() < end) {
      Thread.sleep(100); // a client is not to meet a change at each try
      List<RegionInfo> regions = regions(table);
      int at = random.nextInt(regions.size());
      try {
        if (regions.size() < 6 && random.nextInt(3) > 0) {
          split(regions.get(at), key(random.nextInt(10000)));
          splits++;
        } else if (regions.size() > 1) {
          at = Math.min(at, regions.size() - 2);
          merge(regions.get(at), regions.get(at + 1));
          merges++;
        }
      } catch (DoNotRetryIOException e) {
        admin.compact(table.getName()); // a row outside, or references: the next try may do
        Thread.sleep(20);
      }
    }
    stop.set(true);
    int cells = 0;
    for (Future<Integer> one : written) {
      cells += one.get(60, TimeUnit.SECONDS);
    }
    int increments = counted.get(60, TimeUnit.SECONDS);
    int scans = scanned.get(60, TimeUnit.SECONDS);
    threads.shutdown();
    users.close();
    System.out.printf("%s: %d splits, %d merges, %d puts, %d increments, %d scans%n", registry, splits, merges, cells,
        increments, scans);
    assertTrue(splits >= 3 && merges >= 3, splits + " splits, " + merges + " merges");
    long found = 0;
    long sum = 0;
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      for (Result result : scanner) {
        byte[] counter = result.getValue(F, bytes("n"));
        found += result.size() - (counter == null ? 0 : 1);
        sum += counter == null ? 0 : Bytes.toLong(counter);
      }
    }
    assertEquals(cells, found);
    assertEquals(increments, sum);
    assertEquals("v0", value(table, bytes("k00000-0"), "f:0"));
    assertFalse(table.get(new Get(bytes("k00000-0"))).isEmpty());
  }
}
