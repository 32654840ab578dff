package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.junit.jupiter.api.Test;

/** Flushes and compactions asked for by a client change nothing that a reader sees. */
class FlushCompactTest extends CompatTest {
  private static final int ROWS = 300;

  /** Number of store files of a table, over all regions. */
  static int storeFiles(Admin admin, TableName name) throws IOException {
    int files = 0;
    for (var server : admin.getRegionServers()) {
      for (var region : admin.getRegionMetrics(server, name)) {
        files += region.getStoreFileCount();
      }
    }
    return files;
  }

  /** Asks for a major compaction and waits for its end; there must be store files to compact. */
  static void majorCompact(Admin admin, TableName name) throws Exception {
    int stores = admin.getDescriptor(name).getColumnFamilyCount() * admin.getRegions(name).size();
    admin.majorCompact(name);
    Thread.sleep(400); // the request is queued: an idle state may also mean that it has not begun
    eventually("major compaction of " + name, () -> admin.getCompactionState(name) == CompactionState.NONE
        && storeFiles(admin, name) <= stores);
  }

  private static String key(int i) {
    return String.format("k%04d", i);
  }

  /** Three generations of cells in three files, the third of them with deletes. */
  private void load(Table table) throws Exception {
    for (int generation = 1; generation <= 2; generation++) {
      List<Put> puts = new java.util.ArrayList<>();
      for (int i = 0; i < ROWS; i++) {
        puts.add(put(bytes(key(i)), "f:q", generation, "v" + generation + "-" + i)
            .addColumn(F, bytes("g" + generation), generation, bytes("x".repeat(i % 50))));
      }
      table.put(puts);
      admin.flush(table.getName());
    }
    for (int i = 0; i < ROWS; i += 3) {
      table.delete(new Delete(bytes(key(i))));
    }
    admin.flush(table.getName());
  }

  private void check(Table table) throws Exception {
    int expected = 0;
    try (ResultScanner scanner = table.getScanner(new Scan())) {
      for (int i = 0; i < ROWS; i++) {
        if (i % 3 != 0) {
          Result result = scanner.next();
          assertEquals(key(i), text(result.getRow()));
          assertEquals(3, result.size());
          assertEquals("v2-" + i, text(result.getValue(F, Q)));
          expected++;
        }
      }
      assertEquals(null, scanner.next());
    }
    assertEquals(200, expected);
    assertEquals("v2-7", value(table, bytes(key(7)), "f:q"));
    assertTrue(table.get(new Get(bytes(key(9)))).isEmpty());
    assertTrue(table.get(new Get(bytes("k0007x"))).isEmpty());
  }

  private void everyStage(ColumnFamilyDescriptor family, byte[][] splits) throws Exception {
    Table table = create(splits, family);
    load(table);
    check(table);
    admin.compact(table.getName());
    check(table);
    majorCompact(admin, table.getName());
    check(table);
    admin.disableTable(table.getName());
    admin.enableTable(table.getName());
    check(table);
  }

  @Test
  void plain() throws Exception {
    everyStage(family(F).build(), new byte[][] {bytes("k0100")});
  }

  @Test
  void encodedAndCompressed() throws Exception {
    everyStage(family(F).setDataBlockEncoding(DataBlockEncoding.FAST_DIFF).setBlocksize(1024)
        .setBloomFilterType(BloomType.ROWCOL).setCompressionType(Compression.Algorithm.SNAPPY).build(), null);
  }

  @Test
  void majorCompactionLeavesOneFile() throws Exception {
    Table table = create(family(F).build());
    // two files: a third would be reason enough for a compaction that nobody asked for
    for (String value : List.of("old", "new")) {
      table.put(put(bytes("r"), "f:q", value));
      admin.flush(table.getName());
    }
    assertEquals(2, storeFiles(admin, table.getName()));
    majorCompact(admin, table.getName());
    eventually("one store file", () -> storeFiles(admin, table.getName()) == 1);
    assertEquals("new", value(table, bytes("r"), "f:q"));
  }

  @Test
  void oneFamilyOrOneRegion() throws Exception {
    Table table = create(new byte[][] {bytes("m")}, family(F).build(), family(G).build());
    table.put(put(bytes("a"), "f:q", "1").addColumn(G, Q, bytes("2")));
    table.put(put(bytes("z"), "f:q", "3"));
    admin.flush(table.getName(), G);
    for (RegionInfo region : admin.getRegions(table.getName())) {
      admin.flushRegion(region.getRegionName());
      admin.compactRegion(region.getRegionName());
      admin.majorCompactRegion(region.getRegionName(), F);
      admin.getCompactionStateForRegion(region.getRegionName());
    }
    admin.compact(table.getName(), F);
    admin.majorCompact(table.getName(), G);
    assertEquals(List.of("f:q=1", "g:q=2"), cells(table.get(new Get(bytes("a"))), false));
    assertEquals("3", value(table, bytes("z"), "f:q"));
  }

  @Test
  void refused() throws Exception {
    assertFails(TableNotFoundException.class, () -> admin.flush(TableName.valueOf("no_such_table")));
    assertFails(TableNotFoundException.class, () -> admin.majorCompact(TableName.valueOf("no_such_table")));
  }
}
