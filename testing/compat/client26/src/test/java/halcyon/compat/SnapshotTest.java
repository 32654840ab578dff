package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotDisabledException;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.SnapshotDescription;
import org.apache.hadoop.hbase.client.SnapshotType;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.snapshot.SnapshotCreationException;
import org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException;
import org.apache.hadoop.hbase.snapshot.SnapshotExistsException;
import org.apache.hadoop.hbase.snapshot.SnapshotTTLExpiredException;
import org.apache.hadoop.hbase.snapshot.UnknownSnapshotException;
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

  private static SnapshotDescription withProperties(String name, TableName table, Map<String, Object> properties) {
    return new SnapshotDescription(name, table, SnapshotType.FLUSH, null, -1, -1, properties);
  }

  @Test
  void expiredSnapshotIsRefused() throws Exception {
    Table table = load();
    String name = name();
    boolean before = admin.isSnapshotCleanupEnabled();
    admin.snapshotCleanupSwitch(false, true);
    try {
      // long enough to take it on a busy machine: HBase refuses one that has expired by then
      admin.snapshot(withProperties(name, table.getName(), Map.of("TTL", 5L)));
      assertEquals(5, admin.listSnapshots(Pattern.compile(name)).get(0).getTtl());
      Thread.sleep(6100);
      TableName copy = dropLater(freshName());
      assertFails(SnapshotTTLExpiredException.class, () -> admin.cloneSnapshot(name, copy));
      assertFalse(admin.tableExists(copy));
      admin.disableTable(table.getName());
      assertFails(SnapshotTTLExpiredException.class, () -> admin.restoreSnapshot(name));
      admin.enableTable(table.getName());
      check(table);
      assertTrue(listed(name), "the cleanup is off");
      admin.deleteSnapshot(name);
    } finally {
      admin.snapshotCleanupSwitch(before, true);
    }
  }

  @Test
  void expiredSnapshotIsDeleted() throws Exception {
    assumeTrue(registry == Registry.ZOOKEEPER, "once is enough: the server looks each minute");
    Table table = load();
    String expires = name();
    String stays = name();
    admin.snapshot(stays, table.getName());
    admin.snapshot(withProperties(expires, table.getName(), Map.of("TTL", 5L)));
    assertTrue(admin.isSnapshotCleanupEnabled());
    eventually("the cleanup of " + expires, 90, () -> !listed(expires));
    assertTrue(listed(stays));
    admin.deleteSnapshot(stays);
  }

  @Test
  void maxFileSizeOfASnapshotIsThatOfItsClones() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(withProperties(name, table.getName(), Map.of(TableDescriptorBuilder.MAX_FILESIZE, 3L << 30)));
    assertEquals(3L << 30, admin.listSnapshots(Pattern.compile(name)).get(0).getMaxFileSize());
    TableName copy = dropLater(freshName());
    admin.cloneSnapshot(name, copy);
    assertEquals(3L << 30, admin.getDescriptor(copy).getMaxFileSize());
    assertEquals(-1, admin.getDescriptor(table.getName()).getMaxFileSize());
    admin.deleteSnapshot(name);
  }

  @Test
  void storeFileTrackerOfAClone() throws Exception {
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    TableName copy = dropLater(freshName());
    admin.cloneSnapshot(name, copy, false, "DEFAULT");
    assertEquals("DEFAULT", admin.getDescriptor(copy).getValue("hbase.store.file-tracker.impl"));
    check(table(copy));
    TableName listed = dropLater(freshName());
    admin.cloneSnapshot(name, listed, false, "FILE");
    assertEquals("FILE", admin.getDescriptor(listed).getValue("hbase.store.file-tracker.impl"));
    check(table(listed));
    if (Target.isHalcyon()) {
      TableName other = dropLater(freshName());
      assertFails(DoNotRetryIOException.class, () -> admin.cloneSnapshot(name, other, false, "NONE"));
      assertFalse(admin.tableExists(other));
    }
    admin.deleteSnapshot(name);
  }

  @Test
  void finishedOrUnknown() throws Exception {
    Table table = load();
    String name = name();
    SnapshotDescription taken = new SnapshotDescription(name, table.getName());
    assertFails(UnknownSnapshotException.class, () -> admin.isSnapshotFinished(taken));
    SnapshotDescription unknown = new SnapshotDescription(name(), table.getName());
    Future<Void> taking = admin.snapshotAsync(taken);
    // while one is being taken, a name that nobody knows is still unknown
    assertFails(UnknownSnapshotException.class, () -> admin.isSnapshotFinished(unknown));
    get(taking);
    assertTrue(admin.isSnapshotFinished(taken));
    admin.deleteSnapshot(name);
  }

  /** The store files of a table below a directory of the server's, which runs on this machine. */
  private static List<Path> storeFiles(Path below, TableName table) throws Exception {
    Path directory = below.resolve("data/default").resolve(table.getQualifierAsString());
    if (!Files.isDirectory(directory)) {
      return List.of();
    }
    try (Stream<Path> files = Files.walk(directory)) {
      return files.filter(file -> file.getParent().getFileName().toString().equals("f") && Files.isRegularFile(file)).toList();
    }
  }

  @Test
  void damagedSnapshotLeavesTheTableWhole() throws Exception {
    assumeTrue(Target.isHalcyon(), "a promise of Halcyon's: it looks at the whole snapshot first");
    Path root = Target.rootDirectory();
    Table table = load();
    String name = name();
    admin.snapshot(name, table.getName());
    Path lost = storeFiles(root, table.getName()).get(0);
    // the files of the snapshot leave the table and stay in the archive; one of them is lost there
    for (int i = 0; i < 90; i++) {
      table.put(put(bytes(String.format("%02d", i)), "f:later", "kept"));
    }
    admin.flush(table.getName());
    FlushCompactTest.majorCompact(admin, table.getName());
    Path archived = root.resolve("archive").resolve(root.relativize(lost));
    eventually(archived + " is there", () -> Files.exists(archived));
    Files.delete(archived);

    admin.disableTable(table.getName());
    assertFails(IOException.class, () -> admin.restoreSnapshot(name));
    assertEquals(3, admin.getRegions(table.getName()).size());
    admin.enableTable(table.getName());
    for (int i = 0; i < 90; i++) {
      assertEquals("v" + i, value(table, bytes(String.format("%02d", i)), "f:q"));
      assertEquals("kept", value(table, bytes(String.format("%02d", i)), "f:later"));
    }
    TableName copy = dropLater(freshName());
    assertFails(IOException.class, () -> admin.cloneSnapshot(name, copy));
    assertFalse(admin.tableExists(copy));
    admin.deleteSnapshot(name);
  }
}
