package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.junit.jupiter.api.Test;

/** Single rows: written, read in every way a Get knows, and deleted in the four ways there are. */
class PutGetDeleteTest extends CompatTest {
  @Test
  void putAndGet() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(new Put(row).addColumn(F, bytes("a"), bytes("1")).addColumn(G, bytes("b"), bytes("2"))
        .addColumn(F, HConstants.EMPTY_BYTE_ARRAY, bytes("no qualifier")).addColumn(F, bytes("empty"), new byte[0]));
    Result result = table.get(new Get(row));
    assertArrayEquals(row, result.getRow());
    assertEquals(List.of("f:=no qualifier", "f:a=1", "f:empty=", "g:b=2"), cells(result, false));
    assertTrue(table.get(new Get(row("missing"))).isEmpty());
    assertNull(table.get(new Get(row("missing"))).getRow());

    table.put(put(row, "f:a", "changed"));
    assertEquals("changed", value(table, row, "f:a"));
    assertTrue(result.rawCells()[0].getTimestamp() > 1_600_000_000_000L);
  }

  @Test
  void columnsAndFamilies() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", "1").addColumn(F, bytes("b"), bytes("2")).addColumn(G, bytes("a"), bytes("3")));
    assertEquals(List.of("f:a=1", "f:b=2"), cells(table.get(new Get(row).addFamily(F)), false));
    assertEquals(List.of("f:b=2"), cells(table.get(new Get(row).addColumn(F, bytes("b"))), false));
    assertEquals(List.of("f:b=2", "g:a=3"),
        cells(table.get(new Get(row).addColumn(F, bytes("b")).addFamily(G)), false));
    assertTrue(table.get(new Get(row).addColumn(F, bytes("z"))).isEmpty());
    assertFails(NoSuchColumnFamilyException.class, () -> table.get(new Get(row).addFamily(bytes("nope"))));
    assertFails(NoSuchColumnFamilyException.class, () -> table.put(put(row, "nope:q", "x")));
    assertFails(NoSuchColumnFamilyException.class, () -> table.delete(new Delete(row).addFamily(bytes("nope"))));
  }

  @Test
  void versions() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    for (int i = 1; i <= 8; i++) {
      table.put(put(row, "f:q", i * 10, "v" + i));
    }
    assertEquals(List.of("f:q@80=v8"), cells(table.get(new Get(row)), true));
    assertEquals(List.of("f:q@80=v8", "f:q@70=v7", "f:q@60=v6"),
        cells(table.get(new Get(row).readVersions(3)), true));
    assertEquals(5, table.get(new Get(row).readAllVersions()).size());
    assertEquals(List.of("f:q@60=v6", "f:q@50=v5"),
        cells(table.get(new Get(row).readAllVersions().setTimeRange(45, 70)), true));
    assertEquals(List.of("f:q@50=v5"), cells(table.get(new Get(row).setTimestamp(50)), true));
    assertTrue(table.get(new Get(row).setTimestamp(55)).isEmpty());
    // the later of two puts with one timestamp wins
    table.put(put(row, "f:q", 80, "again"));
    assertEquals(List.of("f:q@80=again"), cells(table.get(new Get(row)), true));
    // an older timestamp does not
    table.put(put(row, "f:q", 75, "late"));
    assertEquals(List.of("f:q@80=again", "f:q@75=late"), cells(table.get(new Get(row).readVersions(2)), true));
  }

  @Test
  void limitsPerFamily() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    Put put = new Put(row);
    for (int i = 0; i < 5; i++) {
      put.addColumn(F, bytes("q" + i), bytes("f" + i)).addColumn(G, bytes("q" + i), bytes("g" + i));
    }
    table.put(put);
    assertEquals(List.of("f:q0=f0", "f:q1=f1", "g:q0=g0", "g:q1=g1"),
        cells(table.get(new Get(row).setMaxResultsPerColumnFamily(2)), false));
    assertEquals(List.of("f:q3=f3", "g:q3=g3"),
        cells(table.get(new Get(row).setMaxResultsPerColumnFamily(1).setRowOffsetPerColumnFamily(3)), false));
  }

  @Test
  void exists() throws Exception {
    Table table = shared();
    table.put(put(row("a"), "f:q", "1"));
    assertTrue(table.exists(new Get(row("a"))));
    assertFalse(table.exists(new Get(row("b"))));
    assertFalse(table.exists(new Get(row("a")).addFamily(G)));
    boolean[] all = table.exists(List.of(new Get(row("b")), new Get(row("a"))));
    assertArrayEquals(new boolean[] {false, true}, all);
    Result only = table.get(new Get(row("a")).setCheckExistenceOnly(true));
    assertTrue(only.getExists());
  }

  @Test
  void listsKeepTheirOrder() throws Exception {
    Table table = create(new byte[][] {bytes("3"), bytes("6")}, family(F).build());
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    for (int i : new int[] {9, 0, 5, 3, 8, 2, 6, 1, 7, 4}) {
      puts.add(put(bytes("" + i), "f:q", "v" + i));
      gets.add(new Get(bytes("" + i)));
    }
    gets.add(4, new Get(bytes("missing")));
    table.put(puts);
    Result[] results = table.get(gets);
    assertEquals(11, results.length);
    for (int i = 0; i < results.length; i++) {
      if (i == 4) {
        assertTrue(results[i].isEmpty());
      } else {
        assertEquals("v" + text(gets.get(i).getRow()), text(results[i].getValue(F, Q)));
      }
    }
    List<Delete> deletes = new ArrayList<>();
    for (int i = 0; i < 10; i += 2) {
      deletes.add(new Delete(bytes("" + i)));
    }
    table.delete(deletes);
    for (int i = 0; i < 10; i++) {
      assertEquals(i % 2 == 1, table.exists(new Get(bytes("" + i))));
    }
  }

  @Test
  void deleteRow() throws Exception {
    Table table = shared();
    table.put(put(row("r"), "f:a", "1").addColumn(G, Q, bytes("2")));
    table.put(put(row("s"), "f:a", "1"));
    table.delete(new Delete(row("r")));
    assertTrue(table.get(new Get(row("r"))).isEmpty());
    assertEquals("1", value(table, row("s"), "f:a"));
    tick();
    table.put(put(row("r"), "f:a", "again"));
    assertEquals(List.of("f:a=again"), cells(table.get(new Get(row("r"))), false));
    table.delete(new Delete(row("never there")));
  }

  @Test
  void deleteColumnVersion() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    for (int i = 1; i <= 4; i++) {
      table.put(put(row, "f:q", i, "v" + i));
    }
    table.delete(new Delete(row).addColumn(F, Q, 2));
    assertEquals(List.of("f:q@4=v4", "f:q@3=v3", "f:q@1=v1"), cells(table.get(new Get(row).readAllVersions()), true));
    table.delete(new Delete(row).addColumn(F, Q)); // the newest one
    assertEquals(List.of("f:q@3=v3", "f:q@1=v1"), cells(table.get(new Get(row).readAllVersions()), true));
  }

  @Test
  void deleteColumns() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    for (int i = 1; i <= 4; i++) {
      table.put(put(row, "f:q", i, "v" + i).addColumn(F, bytes("other"), i, bytes("o" + i)));
    }
    table.delete(new Delete(row).addColumns(F, Q, 3));
    assertEquals(List.of("f:other@4=o4", "f:q@4=v4"), cells(table.get(new Get(row)), true));
    assertEquals(5, table.get(new Get(row).readAllVersions()).size());
    table.delete(new Delete(row).addColumns(F, bytes("other")));
    assertEquals(List.of("f:q@4=v4"), cells(table.get(new Get(row).readAllVersions()), true));
    // a marker hides what is written behind it as well
    table.put(put(row, "f:q", 2, "hidden"));
    assertEquals(List.of("f:q@4=v4"), cells(table.get(new Get(row).readAllVersions()), true));
  }

  @Test
  void deleteFamily() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    for (int i = 1; i <= 3; i++) {
      table.put(put(row, "f:a", i, "a" + i).addColumn(F, bytes("b"), i, bytes("b" + i))
          .addColumn(G, bytes("a"), i, bytes("g" + i)));
    }
    table.delete(new Delete(row).addFamily(F, 2));
    assertEquals(List.of("f:a@3=a3", "f:b@3=b3", "g:a@3=g3", "g:a@2=g2", "g:a@1=g1"),
        cells(table.get(new Get(row).readAllVersions()), true));
    table.delete(new Delete(row).addFamily(G));
    assertEquals(List.of("f:a@3=a3", "f:b@3=b3"), cells(table.get(new Get(row).readAllVersions()), true));
  }

  @Test
  void deleteFamilyVersion() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    for (int i = 1; i <= 3; i++) {
      table.put(put(row, "f:a", i, "a" + i).addColumn(F, bytes("b"), i, bytes("b" + i)));
    }
    table.delete(new Delete(row).addFamilyVersion(F, 2));
    assertEquals(List.of("f:a@3=a3", "f:a@1=a1", "f:b@3=b3", "f:b@1=b1"),
        cells(table.get(new Get(row).readAllVersions()), true));
  }

  @Test
  void deleteSeveralAtOnce() throws Exception {
    Table table = shared();
    byte[] row = row("r");
    table.put(put(row, "f:a", 1, "1").addColumn(F, bytes("b"), 1, bytes("2")).addColumn(F, bytes("c"), 1, bytes("3"))
        .addColumn(G, Q, 1, bytes("4")));
    table.delete(new Delete(row).addColumns(F, bytes("a")).addColumn(F, bytes("b")).addFamily(G));
    assertEquals(List.of("f:c@1=3"), cells(table.get(new Get(row)), true));
    table.put(put(row, "f:c", 5, "young"));
    table.delete(new Delete(row, 3)); // the whole row up to a time
    assertEquals(List.of("f:c@5=young"), cells(table.get(new Get(row).readAllVersions()), true));
  }

  @Test
  void anyBytes() throws Exception {
    Table table = shared();
    Random random = new Random(7);
    byte[] row = new byte[300];
    byte[] qualifier = new byte[500];
    byte[] value = new byte[3_000_000];
    random.nextBytes(row);
    random.nextBytes(qualifier);
    random.nextBytes(value);
    table.put(new Put(row).addColumn(F, qualifier, value));
    assertArrayEquals(value, table.get(new Get(row)).getValue(F, qualifier));
    table.delete(new Delete(row));
  }

  @Test
  void unknownTable() throws Exception {
    Table table = table(TableName.valueOf("no_such_table"));
    assertFails(TableNotFoundException.class, () -> table.get(new Get(row("r"))));
    assertFails(TableNotFoundException.class, () -> table.put(put(row("r"), "f:q", "v")));
  }
}
