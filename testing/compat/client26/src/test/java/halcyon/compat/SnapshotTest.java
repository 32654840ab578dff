package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotDisabledException;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.snapshot.SnapshotCreationException;
import org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException;
import org.apache.hadoop.hbase.snapshot.SnapshotExistsException;
import org.junit.jupiter.api.Test;

/** Snapshots: what a table held then stays to be had, whatever becomes of the table. */
class SnapshotTest extends CompatTest {
  private static final byte[][] SPLITS = {bytes("30"), bytes("60")};

  private Table load() throws Exception {
    Table table = create(SPLITS, family(F).setMaxVersions(4).build());
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 90; i++) {
      puts.add(put(bytes(String.format("%02d", i)), "f:q", "v" + i));
    }
    table.put(puts.subList(0, 50));
    admin.flush(table.getName());
    table.put(puts.subList(50, 90)); // still in the memstore when the snapshot is taken
    return table;
  }

  private void check(Table table) throws Exception {
    for (int i = 0; i < 90; i++) {
      assertEquals("v" + i, value(table, bytes(String.format("%02d", i)), "f:q"));
    }
    assertTrue(table.get(new Get(bytes("later"))).isEmpty());
  }

  private String name() {
    return "snap_" + freshName().getNameAsString();
  }

  private boolean listed(String name) throws Exception {
    return admin.listSnapshots(Pattern.compile(name)).stream().map(SnapshotDescription::getName).toList()
        .contains(name);
  }

  @Test
  void takenListedAndDeleted() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    assertTrue(listed(name));
    SnapshotDescription seen = admin.listSnapshots(Pattern.compile(name)).get(0);
    assertEquals(table.getName(), seen.getTableName());
    assertTrue(seen.getCreationTime() > 0);
    assertFails(SnapshotExistsException.class, () -> admin.snapshot(name, table.getName()));
    admin.deleteSnapshot(name);
    assertFalse(listed(name));
    assertFails(SnapshotDoesNotExistException.class, () -> admin.deleteSnapshot(name));
    assertFails(SnapshotCreationException.class, () -> admin.snapshot(name, TableName.valueOf("no_such_table")));
  }

  @Test
  void cloned() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    table.put(put(bytes("later"), "f:q", "not in it"));
    table.put(put(bytes("07"), "f:q", "changed"));
    TableName copyName = dropLater(freshName());
    admin.cloneSnapshot(name, copyName);
    Table copy = table(copyName);
    assertEquals(3, admin.getRegions(copyName).size());
    assertEquals(4, admin.getDescriptor(copyName).getColumnFamily(F).getMaxVersions());
    check(copy);
    // the copy is a table of its own
    copy.put(put(bytes("08"), "f:q", "only here"));
    assertEquals("v8", value(table, bytes("08"), "f:q"));
    assertEquals("changed", value(table, bytes("07"), "f:q"));
    FlushCompactTest.majorCompact(admin, copyName);
    assertEquals("only here", value(copy, bytes("08"), "f:q"));
    // and outlives the table it came from, and the snapshot
    admin.disableTable(table.getName());
    admin.deleteTable(table.getName());
    admin.deleteSnapshot(name);
    copy.put(put(bytes("08"), "f:q", "v8"));
    check(copy);
    assertFails(SnapshotDoesNotExistException.class, () -> admin.cloneSnapshot(name, freshName()));
  }

  @Test
  void clonedOverAnExistingTableOrNot() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    assertFails(TableExistsException.class, () -> admin.cloneSnapshot(name, table.getName()));
    admin.deleteSnapshot(name);
  }

  @Test
  void restored() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    table.put(put(bytes("later"), "f:q", "goes away"));
    table.put(put(bytes("07"), "f:q", "goes away"));
    admin.flush(table.getName());
    assertFails(TableNotDisabledException.class, () -> admin.restoreSnapshot(name));
    admin.disableTable(table.getName());
    admin.restoreSnapshot(name);
    admin.enableTable(table.getName());
    check(table);
    table.put(put(bytes("07"), "f:q", "again"));
    assertEquals("again", value(table, bytes("07"), "f:q"));
    // a snapshot serves more than once
    admin.disableTable(table.getName());
    admin.restoreSnapshot(name);
    admin.enableTable(table.getName());
    check(table);
    admin.deleteSnapshot(name);
  }
}
