package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.junit.jupiter.api.Test;

/** Tables and families that say how their files are compacted. */
class CompactionPolicyTest extends CompatTest {
  private static final String ENGINE = "hbase.hstore.engine.class";
  private static final String POLICY = "hbase.hstore.defaultengine.compactionpolicy.class";
  private static final String POLICIES = "org.apache.hadoop.hbase.regionserver.compactions.";
  private static final String FILES_MIN = "hbase.hstore.compaction.min";
  private static final String TIERED = "hbase.hstore.compaction.date.tiered.";

  private int files(Table table) throws Exception {
    return FlushCompactTest.storeFiles(admin, table.getName());
  }

  private void putAndFlush(Table table, String row, long timestamp, String value) throws Exception {
    table.put(put(bytes(row), "f:q", timestamp, value));
    admin.flush(table.getName());
  }

  private static List<String> rows(Table table, Scan scan) throws Exception {
    List<String> rows = new java.util.ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        rows.add(text(result.getRow()));
      }
    }
    return rows;
  }

  @Test
  void dateTieredByTheTable() throws Exception {
    TableName name = dropLater(freshName());
    admin.createTable(TableDescriptorBuilder.newBuilder(name)
        .setColumnFamily(family(F).setMaxVersions(5)
            .setConfiguration(TIERED + "single.output.for.minor.compaction", "false")
            .setConfiguration(TIERED + "base.window.millis", Long.toString(TimeUnit.HOURS.toMillis(1))).build())
        .setValue(ENGINE, "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine")
        .setValue(FILES_MIN, "100").build());
    Table table = table(name);
    long now = System.currentTimeMillis();
    long[] ages = {100, 30, 5, 0};
    for (int i = 0; i < ages.length; i++) {
      long timestamp = now - TimeUnit.HOURS.toMillis(ages[i]);
      putAndFlush(table, "row" + i, timestamp, "of " + ages[i]);
      putAndFlush(table, "same", timestamp, "of " + ages[i]);
    }
    table.delete(new Delete(bytes("same")).addColumns(F, Q, now - TimeUnit.HOURS.toMillis(30)));
    admin.flush(name);
    assertEquals(9, files(table));
    admin.majorCompact(name);
    eventually("a file for each window", () -> files(table) == ages.length);
    assertEquals(List.of("row0", "row1", "row2", "row3", "same"), rows(table, new Scan()));
    Result versions = table.get(new Get(bytes("same")).readAllVersions());
    assertEquals(List.of("f:q=of 0", "f:q=of 5"), cells(versions, false));
    long middle = now - TimeUnit.HOURS.toMillis(20);
    assertEquals(List.of("row2", "row3", "same"), rows(table, new Scan().setTimeRange(middle, Long.MAX_VALUE)));
    assertEquals(List.of("row0", "row1"), rows(table, new Scan().setTimeRange(0, middle)));
  }

  @Test
  void fifoDropsFilesThatHaveExpired() throws Exception {
    Table table = create(family(F).setTimeToLive(3).setConfiguration(POLICY, POLICIES + "FIFOCompactionPolicy")
        .setConfiguration("hbase.hstore.blockingStoreFiles", "1000").build());
    for (int i = 0; i < 4; i++) {
      table.put(put(bytes("row" + i), "f:q", "v" + i));
      admin.flush(table.getName());
    }
    assertEquals("v3", value(table, bytes("row3"), "f:q"));
    eventually("the cells expire", () -> rows(table, new Scan()).isEmpty());
    eventually("the files go", () -> {
      admin.compact(table.getName());
      return files(table) <= 1;
    });
    table.put(put(bytes("new"), "f:q", "v"));
    admin.flush(table.getName());
    assertEquals("v", value(table, bytes("new"), "f:q"));
  }

  @Test
  void fifoNeedsATimeToLive() throws Exception {
    ColumnFamilyDescriptor family = family(F).setConfiguration(POLICY, POLICIES + "FIFOCompactionPolicy")
        .setConfiguration("hbase.hstore.blockingStoreFiles", "1000").build();
    TableName name = dropLater(freshName());
    assertFails(DoNotRetryIOException.class, () -> admin.createTable(descriptor(name, family)));
  }

  @Test
  void stripes() throws Exception {
    TableName name = dropLater(freshName());
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family(F).setMaxVersions(2).build())
        .setValue(ENGINE, "org.apache.hadoop.hbase.regionserver.StripeStoreEngine")
        .setValue("hbase.store.stripe.initialStripeCount", "3")
        .setValue("hbase.hstore.blockingStoreFiles", "100").build());
    Table table = table(name);
    List<String> expected = new java.util.ArrayList<>();
    for (int flush = 0; flush < 2; flush++) {
      for (int row = 0; row < 300; row++) {
        table.put(put(bytes(String.format("row%03d", row)), "f:q", "v" + flush));
        if (flush == 0) {
          expected.add(String.format("row%03d", row));
        }
      }
      admin.flush(name);
    }
    assertEquals(6, files(table), "each flush wrote a file for each stripe");
    assertEquals(expected, rows(table, new Scan()));
    assertEquals(2, table.get(new Get(bytes("row150")).readAllVersions()).size());
    // What is flushed from here on belongs to the stripes; a delete goes when its stripe is compacted as a whole.
    table.delete(new Delete(bytes("row007")));
    putAndFlush(table, "row299", System.currentTimeMillis(), "late");
    expected.remove("row007");
    assertEquals(expected, rows(table, new Scan()));
    admin.majorCompact(name);
    eventually("a file for each stripe", () -> files(table) == 3);
    assertEquals(expected, rows(table, new Scan()));
    assertEquals("late", value(table, bytes("row299"), "f:q"));
  }

  @Test
  void aFamilyChangesItsMind() throws Exception {
    ColumnFamilyDescriptorBuilder family = family(F).setConfiguration(FILES_MIN, "100")
        .setConfiguration(POLICY, POLICIES + "RatioBasedCompactionPolicy");
    Table table = create(family.build());
    for (int i = 0; i < 5; i++) {
      putAndFlush(table, "row" + i, 7, "v" + i);
    }
    Thread.sleep(500);
    assertEquals(5, files(table));
    admin.modifyColumnFamily(table.getName(), family.setConfiguration(FILES_MIN, "2").build());
    eventually("compacted without being asked", () -> files(table) == 1);
    assertEquals(5, rows(table, new Scan()).size());
  }

  @Test
  void theSwitch() throws Exception {
    Table table = create(family(F).setConfiguration(FILES_MIN, "100").build());
    for (int i = 0; i < 3; i++) {
      putAndFlush(table, "row" + i, 7, "v" + i);
    }
    try {
      assertTrue(admin.compactionSwitch(false, List.of()).values().stream().allMatch(before -> before));
      admin.majorCompact(table.getName());
      Thread.sleep(1000);
      assertEquals(3, files(table));
    } finally {
      assertTrue(admin.compactionSwitch(true, List.of()).values().stream().noneMatch(before -> before));
    }
    FlushCompactTest.majorCompact(admin, table.getName());
    assertEquals(1, files(table));
    assertEquals(3, rows(table, new Scan()).size());
  }
}
