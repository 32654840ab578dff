package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.exceptions.UnknownProtocolException;
import org.apache.hadoop.hbase.protobuf.generated.AccessControlProtos.AccessControlService;
import org.apache.hadoop.hbase.protobuf.generated.AccessControlProtos.GetUserPermissionsRequest;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/** Connections that are set up in other ways: codecs, compression, the third registry, many at once. */
class ConnectionTest extends CompatTest {
  private static final String CODECS = "org.apache.hadoop.hbase.codec.";

  /** All main verbs over one connection. */
  private void useAll(Connection own, String prefix) throws Exception {
    try (Table table = own.getTable(shared().getName())) {
      byte[] row = row(prefix);
      table.put(put(row, "f:q", 7, "v").addColumn(G, Q, 8, bytes("w")));
      assertEquals(List.of("f:q@7=v", "g:q@8=w"), cells(table.get(new Get(row)), true));
      assertTrue(table.exists(new Get(row)));
      assertEquals(4, Bytes.toLong(table.increment(new Increment(row).addColumn(F, bytes("n"), 4))
          .getValue(F, bytes("n"))));
      assertEquals("x", text(table.append(new Append(row).addColumn(F, bytes("t"), bytes("x")))
          .getValue(F, bytes("t"))));
      assertTrue(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, Q, bytes("v"))
          .build(new Put(row).addColumn(F, bytes("c"), bytes("1")))).isSuccess());
      table.mutateRow(RowMutations.of(List.of(new Delete(row).addColumns(F, bytes("n")),
          new Put(row).addColumn(F, bytes("d"), bytes("2")))));
      List<Row> actions = new ArrayList<>();
      for (int i = 0; i < 30; i++) {
        actions.add(put(row(prefix + "-" + i), "f:q", "v" + i));
      }
      actions.add(new Get(row));
      Object[] results = new Object[actions.size()];
      table.batch(actions, results);
      assertEquals(List.of("f:c=1", "f:d=2", "f:q=v", "f:t=x", "g:q=w"), cells((Result) results[30], false));
      int count = 0;
      try (ResultScanner scanner = table.getScanner(
          new Scan().setStartStopRowForPrefixScan(row(prefix + "-")).setCaching(7))) {
        for (Result result : scanner) {
          assertTrue(text(result.getValue(F, Q)).startsWith("v"));
          count++;
        }
      }
      assertEquals(30, count);
      table.delete(new Delete(row));
      assertTrue(table.get(new Get(row)).isEmpty());
    }
  }

  private void useWith(String name, Map<String, String> settings) throws Exception {
    Configuration conf = Target.configuration(registry);
    settings.forEach(conf::set);
    try (Connection own = ConnectionFactory.createConnection(conf)) {
      useAll(own, name);
    }
  }

  @Test
  void codecs() throws Exception {
    for (String codec : List.of("KeyValueCodec", "KeyValueCodecWithTags", "CellCodec", "CellCodecWithTags")) {
      useWith(codec, Map.of("hbase.client.rpc.codec", CODECS + codec));
    }
    // no codec at all: every cell travels inside the protobuf message
    useWith("none", Map.of("hbase.client.default.rpc.codec", "", "hbase.client.rpc.codec", ""));
  }

  @Test
  void compressedCellBlocks() throws Exception {
    for (String codec : List.of("GzipCodec", "DefaultCodec")) {
      useWith(codec, Map.of("hbase.client.rpc.compressor", "org.apache.hadoop.io.compress." + codec));
    }
  }

  @Test
  @SuppressWarnings("deprecation")
  void masterRegistry() throws Exception {
    useWith("masters", Map.of("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.MasterRegistry",
        "hbase.masters", System.getProperty("compat.registry")));
  }

  @Test
  void manyConnectionsAtOnce() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try {
      List<Future<?>> futures = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        String name = "c" + i;
        futures.add(threads.submit(() -> {
          useWith(name, Map.of());
          return null;
        }));
      }
      for (Future<?> future : futures) {
        future.get();
      }
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void manyThreadsOnOneConnection() throws Exception {
    Table table = shared();
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try {
      List<Future<?>> futures = new ArrayList<>();
      for (int t = 0; t < 8; t++) {
        int id = t;
        futures.add(threads.submit(() -> {
          try (Table own = connection.getTable(table.getName())) {
            for (int i = 0; i < 100; i++) {
              byte[] row = row(id + "-" + i);
              byte[] value = bytes(id + ":" + i + "x".repeat(i * 20));
              own.put(new Put(row).addColumn(F, Q, value));
              assertArrayEquals(value, own.get(new Get(row)).getValue(F, Q));
            }
          }
          return null;
        }));
      }
      for (Future<?> future : futures) {
        future.get();
      }
    } finally {
      threads.shutdownNow();
    }
  }

  @Test
  void unknownCoprocessorService() throws Exception {
    Table table = shared();
    assertFails(UnknownProtocolException.class,
        () -> AccessControlService.newBlockingStub(table.coprocessorService(row("r")))
            .getUserPermissions(null, GetUserPermissionsRequest.getDefaultInstance()));
    table.put(put(row("r"), "f:q", "v"));
    assertEquals("v", value(table, row("r"), "f:q"));
    assertFalse(connection.isClosed());
  }
}
