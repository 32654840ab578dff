package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.UserMetrics;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.junit.jupiter.api.Test;

/**
 * The numbers of {@code status 'detailed'}, hbtop and balancers count what happened. HBase's servers report each few seconds,
 * so that each number is waited for.
 */
class LoadNumbersTest extends CompatTest {
  private static final int ROWS = 40;

  private Table filled() throws IOException {
    Table table = create(family(F).build());
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      puts.add(put(bytes(String.format("%02d", i)), "f:q", i % 4 == 0 ? "wanted" : "other"));
    }
    table.put(puts);
    return table;
  }

  private ServerMetrics server() throws IOException {
    return admin.getClusterMetrics().getLiveServerMetrics().values().iterator().next();
  }

  private RegionMetrics region(TableName table) throws IOException {
    return admin.getRegionMetrics(admin.getRegionServers().iterator().next(), table).get(0);
  }

  private static int scan(Table table, Scan scan) throws IOException {
    int rows = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (var result : scanner) {
        rows += result.isEmpty() ? 0 : 1;
      }
    }
    return rows;
  }

  @Test
  void getsAndScansAreReads() throws Exception {
    Table table = filled();
    long before = region(table.getName()).getReadRequestCount();
    for (int i = 0; i < 10; i++) {
      table.get(new Get(bytes("07")));
    }
    eventually("10 gets", () -> region(table.getName()).getReadRequestCount() == before + 10);
    assertEquals(ROWS, scan(table, new Scan()));
    // HBase also counts a call of RegionScanner.next that finds nothing
    eventually("a scan counts each of its rows", () -> region(table.getName()).getReadRequestCount() >= before + 10 + ROWS);
    assertTrue(region(table.getName()).getReadRequestCount() <= before + 10 + ROWS + 2);
    assertTrue(region(table.getName()).getWriteRequestCount() >= ROWS);
  }

  @Test
  void rowsThatAFilterDropsAreFilteredReads() throws Exception {
    Table table = filled();
    assertEquals(0, region(table.getName()).getFilteredReadRequestCount());
    Scan scan = new Scan().setFilter(new SingleColumnValueFilter(F, Q, CompareOperator.EQUAL, bytes("wanted")));
    assertEquals(ROWS / 4, scan(table, scan));
    eventually("the rows that were dropped", () -> region(table.getName()).getFilteredReadRequestCount() == ROWS * 3 / 4);
  }

  /** A server counts its calls, and the sum does not fall when a region closes. */
  @Test
  void sumOfTheServerDoesNotFall() throws Exception {
    long before = server().getRequestCount();
    Table table = filled();
    for (int i = 0; i < ROWS; i++) {
      assertEquals(1, scan(table, new Scan().withStartRow(bytes("07")).setLimit(1)));
    }
    eventually("a call for each scan", () -> server().getRequestCount() >= before + ROWS);
    long after = server().getRequestCount();
    admin.disableTable(table.getName());
    for (int i = 0; i < 5; i++) {
      assertTrue(server().getRequestCount() >= after, "fell from " + after);
      Thread.sleep(200);
    }
    admin.enableTable(table.getName());
  }

  @Test
  void requestsPerSecond() throws Exception {
    Table table = filled();
    eventually("a rate", () -> {
      for (int i = 0; i < 200; i++) {
        table.get(new Get(bytes("07")));
      }
      return server().getRequestCountPerSecond() > 0;
    });
    // it is a rate over a fixed window: who asks first does not take it from who asks next
    for (int i = 0; i < 200; i++) {
      table.get(new Get(bytes("07")));
    }
    assertTrue(server().getRequestCountPerSecond() > 0);
    assertTrue(server().getRequestCountPerSecond() > 0);
  }

  @Test
  void loadOfUsersAndClients() throws Exception {
    Table table = filled();
    assertEquals(ROWS, scan(table, new Scan()));
    String user = System.getProperty("user.name");
    eventually("the load of " + user, () -> {
      UserMetrics mine = server().getUserMetrics().get(bytes(user));
      return mine != null && mine.getReadRequestCount() > 0 && mine.getWriteRequestCount() > 0
          && !mine.getClientMetrics().isEmpty();
    });
  }

  @Test
  void sizesOfIndexesAndBloomFilters() throws Exception {
    Table table = filled();
    admin.flush(table.getName());
    eventually("the sizes of a store file", () -> {
      RegionMetrics region = region(table.getName());
      return region.getStoreFileCount() == 1 && region.getStoreFileUncompressedDataIndexSize().get(Size.Unit.BYTE) > 0
          && region.getBloomFilterSize().get(Size.Unit.BYTE) > 0;
    });
  }

  @Test
  void progressOfACompaction() throws Exception {
    Table table = create(family(F).setBlocksize(1024).build());
    for (int file = 0; file < 2; file++) {
      for (int part = 0; part < 20; part++) {
        List<Put> puts = new ArrayList<>();
        for (int i = 0; i < 2_500; i++) {
          puts.add(put(bytes(String.format("%d-%05d-%d", part, i, file)), "f:q", "v".repeat(20)));
        }
        table.put(puts);
      }
      admin.flush(table.getName());
    }
    boolean seen = false;
    for (int tries = 0; tries < 20 && !seen; tries++) {
      admin.majorCompact(table.getName());
      do {
        RegionMetrics region = region(table.getName());
        assertTrue(region.getCompactedCellCount() <= region.getCompactingCellCount());
        seen |= region.getCompactingCellCount() > 0;
      } while (admin.getCompactionState(table.getName()) != CompactionState.NONE);
    }
    assertTrue(seen, "no number of cells to compact in 20 compactions");
  }

  @Test
  void pagesAreWhereTheServersSay() throws Exception {
    assumeTrue(Target.isHalcyon(), "HBase's pages are off in tests");
    int master = admin.getClusterMetrics().getMasterInfoPort();
    int regionServer = server().getInfoServerPort();
    for (int port : new int[] {master, regionServer}) {
      assertTrue(port > 0, "master " + master + ", region server " + regionServer);
      try (InputStream page = URI.create("http://127.0.0.1:" + port + "/").toURL().openStream()) {
        assertNotNull(page);
        assertTrue(page.readAllBytes().length > 0);
      }
    }
  }
}
