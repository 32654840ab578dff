package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Hbck;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Table;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Test;

/** A region that an administrator has unassigned does not hold up what is asked for its table. */
class UnassignedRegionTest extends CompatTest {
  private static final Duration SOON = Duration.ofSeconds(20);

  /** A table of two regions, the second of which is not open. */
  private Table halfOpen() throws Exception {
    Table table = create(new byte[][] {bytes("m")}, family(F).build());
    table.put(put(bytes("a"), "f:q", "open"));
    table.put(put(bytes("z"), "f:q", "unassigned"));
    admin.unassign(second(table).getRegionName(), true);
    eventually("the region is closed", () -> !isOnline(second(table)));
    return table;
  }

  private RegionInfo second(Table table) throws IOException {
    return admin.getRegions(table.getName()).get(1);
  }

  private boolean isOnline(RegionInfo region) throws IOException {
    for (var server : admin.getRegionServers()) {
      if (admin.getRegions(server).contains(region)) {
        return true;
      }
    }
    return false;
  }

  private void openAgain(Table table) throws Exception {
    soon("the assignment", () -> admin.assign(second(table).getRegionName()));
    eventually("the region is open", () -> isOnline(second(table)));
    assertEquals("open", value(table, bytes("a"), "f:q"));
    assertEquals("unassigned", value(table, bytes("z"), "f:q"));
  }

  private static void soon(String what, Action action) {
    Assertions.assertTimeoutPreemptively(SOON, action::run, what + " does not end");
  }

  @Test
  void flushEnds() throws Exception {
    Table table = halfOpen();
    soon("the flush", () -> admin.flush(table.getName()));
    assertEquals(1, FlushCompactTest.storeFiles(admin, table.getName()), "store files of the region that is open");
    openAgain(table);
  }

  @Test
  void snapshotEndsAndIsWhole() throws Exception {
    Table table = halfOpen();
    String name = "snap_" + freshName().getNameAsString();
    soon("the snapshot", () -> admin.snapshot(name, table.getName()));
    openAgain(table);
    TableName copyName = dropLater(freshName());
    admin.cloneSnapshot(name, copyName);
    assertEquals("open", value(table(copyName), bytes("a"), "f:q"));
    assertEquals("unassigned", value(table(copyName), bytes("z"), "f:q"));
    admin.deleteSnapshot(name);
  }

  @Test
  void disableAlterAndEnableEnd() throws Exception {
    Table table = halfOpen();
    soon("the alteration", () -> admin.addColumnFamily(table.getName(), family(G).build()));
    soon("the disabling", () -> admin.disableTable(table.getName()));
    soon("the enabling", () -> admin.enableTable(table.getName()));
    // a table that is enabled has all its regions open
    assertEquals("open", value(table, bytes("a"), "f:q"));
    assertEquals("unassigned", value(table, bytes("z"), "f:q"));
    assertTrue(table.get(new Get(bytes("b"))).isEmpty());
  }

  @Test
  void unknownProceduresAreNeitherAbortedNorBypassed() throws Exception {
    long nobody = Long.MAX_VALUE / 2;
    assertFalse(get(admin.abortProcedureAsync(nobody, true)));
    try (Hbck hbck = connection.getHbck()) {
      assertEquals(List.of(false), hbck.bypassProcedure(List.of(nobody), 1000, false, false));
    }
  }
}
