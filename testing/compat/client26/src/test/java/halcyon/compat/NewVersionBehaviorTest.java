package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Table;
import org.junit.jupiter.api.Test;

/** Families in which versions and deletes go by the order of writing and not by timestamps alone. */
class NewVersionBehaviorTest extends CompatTest {
  private static final byte[] ROW = bytes("row");

  private interface Look {
    void look() throws Exception;
  }

  /** In the memstore, from a file, and after all files became one. */
  private void everywhere(Table table, Look look) throws Exception {
    look.look();
    admin.flush(table.getName());
    look.look();
    table.put(put(bytes("other"), "f:q", "v"));
    admin.flush(table.getName());
    FlushCompactTest.majorCompact(admin, table.getName());
    look.look();
  }

  private Table made(int versions, boolean newBehavior) throws Exception {
    return create(family(F).setMaxVersions(versions).setNewVersionBehavior(newBehavior).build());
  }

  @Test
  void aPutAfterADeleteIsNotHidden() throws Exception {
    Table table = made(1, true);
    assertTrue(table.getDescriptor().getColumnFamily(F).isNewVersionBehavior());
    table.put(put(ROW, "f:q", 5, "hidden"));
    table.delete(new Delete(ROW).addColumns(F, Q, 10));
    table.put(put(ROW, "f:q", 5, "shown"));
    everywhere(table, () -> assertEquals("shown", value(table, ROW, "f:q")));

    Table old = made(1, false);
    old.delete(new Delete(ROW).addColumns(F, Q, 10));
    old.put(put(ROW, "f:q", 5, "hidden"));
    assertTrue(old.get(new Get(ROW)).isEmpty());
  }

  @Test
  void aDeletedFamilyComesBack() throws Exception {
    Table table = made(3, true);
    table.put(put(ROW, "f:q", 1, "gone"));
    table.delete(new Delete(ROW).addFamily(F, 100));
    table.put(put(ROW, "f:q", 2, "two"));
    table.put(put(ROW, "f:q", 3, "three"));
    everywhere(table, () -> assertEquals(List.of("f:q=three", "f:q=two"),
        cells(table.get(new Get(ROW).readAllVersions()), false)));
  }
}
