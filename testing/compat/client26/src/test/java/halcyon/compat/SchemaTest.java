package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.ExtendedCellBuilderFactory;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.junit.jupiter.api.Test;

/** What a family's settings do to the cells in it: before a flush, after it, and after a major compaction. */
class SchemaTest extends CompatTest {
  /** Runs the check on the memstore, on store files, and on one compacted file. */
  private void onEveryStage(Table table, Action check) throws Exception {
    check.run();
    admin.flush(table.getName());
    check.run();
    FlushCompactTest.majorCompact(admin, table.getName());
    check.run();
  }

  private static List<String> all(Table table, Get get) throws Exception {
    return cells(table.get(get.readAllVersions()), true);
  }

  @Test
  void versions() throws Exception {
    Table table = create(family(F).setMaxVersions(2).build(), family(G).build());
    for (int i = 1; i <= 4; i++) {
      table.put(put(bytes("r"), "f:q", i, "v" + i).addColumn(G, Q, i, bytes("g" + i)));
    }
    onEveryStage(table, () -> {
      assertEquals(List.of("f:q@4=v4", "f:q@3=v3", "g:q@4=g4"), all(table, new Get(bytes("r"))));
    });
  }

  @Test
  void timeToLive() throws Exception {
    Table table = create(family(F).setTimeToLive(3600).setMaxVersions(5).build());
    long now = System.currentTimeMillis();
    table.put(put(bytes("r"), "f:q", now, "young"));
    table.put(put(bytes("r"), "f:q", now - 3_700_000, "old"));
    table.put(put(bytes("s"), "f:q", now - 7_200_000, "old"));
    onEveryStage(table, () -> {
      assertEquals(List.of("f:q@" + now + "=young"), all(table, new Get(bytes("r"))));
      assertTrue(table.get(new Get(bytes("s"))).isEmpty());
    });
  }

  @Test
  void minVersions() throws Exception {
    Table table = create(family(F).setTimeToLive(3600).setMinVersions(2).setMaxVersions(5).build());
    long old = System.currentTimeMillis() - 7_200_000;
    for (int i = 1; i <= 4; i++) {
      table.put(put(bytes("r"), "f:q", old + i, "v" + i));
    }
    onEveryStage(table, () -> {
      assertEquals(List.of("f:q@" + (old + 4) + "=v4", "f:q@" + (old + 3) + "=v3"),
          all(table, new Get(bytes("r"))));
    });
  }

  @Test
  void keepDeletedCells() throws Exception {
    Table table = create(family(F).setKeepDeletedCells(KeepDeletedCells.TRUE).setMaxVersions(5).build(),
        family(G).setMaxVersions(5).build());
    table.put(put(bytes("r"), "f:q", 1, "v1").addColumn(G, Q, 1, bytes("g1")));
    table.put(put(bytes("r"), "f:q", 3, "v3").addColumn(G, Q, 3, bytes("g3")));
    table.delete(new Delete(bytes("r")).addColumns(F, Q, 5).addColumns(G, Q, 5));
    onEveryStage(table, () -> {
      assertTrue(table.get(new Get(bytes("r")).readAllVersions()).isEmpty());
      // a time range that ends before the marker looks behind it, where deleted cells are kept
      assertEquals(List.of("f:q@3=v3", "f:q@1=v1"), all(table, new Get(bytes("r")).setTimeRange(0, 5))
          .stream().filter(cell -> cell.startsWith("f:")).toList());
    });
    List<String> raw = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(new Scan().setRaw(true).readAllVersions())) {
      for (Cell cell : scanner.next().rawCells()) {
        raw.add(text(org.apache.hadoop.hbase.CellUtil.cloneFamily(cell)) + " " + cell.getType());
      }
    }
    // the major compaction has taken the deleted cells and the marker out of family g only
    assertEquals(List.of("f DeleteColumn", "f Put", "f Put"), raw);
  }

  @Test
  void deletesGoWithMajorCompaction() throws Exception {
    Table table = create(family(F).setMaxVersions(3).build());
    table.put(put(bytes("r"), "f:q", 1, "v1"));
    table.delete(new Delete(bytes("r")).addColumns(F, Q, 2));
    onEveryStage(table, () -> assertTrue(table.get(new Get(bytes("r"))).isEmpty()));
    // the marker is gone: what it would have hidden is seen
    table.put(put(bytes("r"), "f:q", 1, "again"));
    assertEquals("again", value(table, bytes("r"), "f:q"));
  }

  @Test
  void cellTimeToLive() throws Exception {
    Table table = create(family(F).build());
    table.put(put(bytes("long"), "f:q", "kept").setTTL(3_600_000));
    table.put(put(bytes("short"), "f:q", "gone").setTTL(800));
    assertEquals("gone", value(table, bytes("short"), "f:q"));
    Thread.sleep(1100);
    onEveryStage(table, () -> {
      assertNull(value(table, bytes("short"), "f:q"));
      assertEquals("kept", value(table, bytes("long"), "f:q"));
    });
  }

  @Test
  void tagsDoNotDisturb() throws Exception {
    // with the client's usual codec tags are dropped on the way; they must not shift what comes after them
    Table table = create(family(F).build());
    Cell tagged = ExtendedCellBuilderFactory.create(CellBuilderType.DEEP_COPY).setRow(bytes("r")).setFamily(F)
        .setQualifier(Q).setTimestamp(5).setType(Cell.Type.Put).setValue(bytes("v"))
        .setTags(List.of(new ArrayBackedTag((byte) 70, "a tag"))).build();
    table.put(new Put(bytes("r")).add(tagged).addColumn(F, bytes("z"), 6, bytes("w")));
    onEveryStage(table, () -> {
      Result result = table.get(new Get(bytes("r")));
      assertEquals(List.of("f:q@5=v", "f:z@6=w"), cells(result, true));
    });
  }

  @Test
  void newVersionBehavior() throws Exception {
    Table table = create(family(F).setMaxVersions(3).setNewVersionBehavior(true).build());
    table.delete(new Delete(bytes("r")).addColumns(F, Q, 10));
    table.put(put(bytes("r"), "f:q", 5, "written after the marker"));
    assertEquals("written after the marker", value(table, bytes("r"), "f:q"));
  }
}
