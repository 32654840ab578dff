package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Hbck;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableState;
import org.apache.hadoop.hbase.master.RegionState;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** HBase's own interface for repairs, which HBCK2 uses. */
class HbckTest extends CompatTest {
  private static final long NO_PROCEDURE = -1;

  private Table twoRegions() throws Exception {
    Table table = create(new byte[][] {bytes("m")}, family(F).build());
    table.put(put(bytes("a"), "f:q", "first"));
    table.put(put(bytes("z"), "f:q", "second"));
    return table;
  }

  private boolean isOnline(RegionInfo region) throws IOException {
    for (var server : admin.getRegionServers()) {
      if (admin.getRegions(server).contains(region)) {
        return true;
      }
    }
    return false;
  }

  @Test
  void tableStateIsSetAndTheOldOneReturned() throws Exception {
    TableName name = twoRegions().getName();
    try (Hbck hbck = connection.getHbck()) {
      TableState before = hbck.setTableStateInMeta(new TableState(name, TableState.State.DISABLED));
      assertEquals(TableState.State.ENABLED, before.getState());
      assertTrue(admin.isTableDisabled(name));
      before = hbck.setTableStateInMeta(new TableState(name, TableState.State.ENABLED));
      assertEquals(TableState.State.DISABLED, before.getState());
      assertTrue(admin.isTableEnabled(name));
    }
  }

  @Test
  void regionStateIsSetAndTheRegionIsAssigned() throws Exception {
    Table table = twoRegions();
    RegionInfo region = admin.getRegions(table.getName()).get(1);
    String name = region.getEncodedName();
    try (Hbck hbck = connection.getHbck()) {
      List<Long> begun = hbck.unassigns(List.of(name, "0123456789abcdef0123456789abcdef"));
      assertEquals(2, begun.size());
      assertEquals(NO_PROCEDURE, begun.get(1));
      eventually("the region is closed", () -> !isOnline(region));
      Map<String, RegionState.State> before = hbck.setRegionStateInMeta(Map.of(name, RegionState.State.FAILED_OPEN));
      assertEquals(Map.of(name, RegionState.State.CLOSED), before);
      assertTrue(hbck.assigns(List.of(name)).get(0) > 0);
      eventually("the region is open", () -> isOnline(region));
    }
    assertEquals("second", value(table, bytes("z"), "f:q"));
  }

  @Test
  void aRowThatMetaHasLostIsWrittenAgain() throws Exception {
    Assumptions.assumeTrue(Target.isHalcyon(), "HBase fills the hole with an empty region");
    Table table = twoRegions();
    List<RegionInfo> regions = admin.getRegions(table.getName());
    try (Hbck hbck = connection.getHbck(); Table meta = connection.getTable(TableName.META_TABLE_NAME)) {
      meta.delete(new Delete(regions.get(0).getRegionName()));
      assertEquals(1, admin.getRegions(table.getName()).size());
      assertTrue(hbck.runHbckChore());
      hbck.fixMeta();
    }
    eventually("meta has both regions", () -> admin.getRegions(table.getName()).equals(regions));
    assertEquals("first", value(table, bytes("a"), "f:q"));
    assertEquals("second", value(table, bytes("z"), "f:q"));
  }

  @Test
  void aServerOfTheSameProcessHasNoCrashProcedure() throws Exception {
    Assumptions.assumeTrue(Target.isHalcyon(), "HBase has several servers");
    try (Hbck hbck = connection.getHbck()) {
      assertEquals(List.of(), hbck.scheduleSCPsForUnknownServers());
      List<ServerName> servers = List.copyOf(admin.getRegionServers());
      IOException error = assertThrows(IOException.class, () -> hbck.scheduleServerCrashProcedures(servers));
      assertTrue(error.toString().contains("one process"), error.toString());
    }
  }
}
