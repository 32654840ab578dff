import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.coprocessor.example.generated.ExampleProtos;
import org.apache.hadoop.hbase.ipc.CoprocessorRpcUtils.BlockingRpcCallback;
import org.apache.hadoop.hbase.ipc.ServerRpcController;
import org.apache.hadoop.hbase.util.Bytes;

/** Microseconds of a call as one client sees them, with and without an observer that does nothing: {@code Cost ZOOKEEPER JAR}. */
public class Cost {
  private static final byte[] F = Bytes.toBytes("f"), A = Bytes.toBytes("a"), VALUE = new byte[100];
  private static final int WARM = 4000, COUNT = 6000, ROUNDS = 5;

  private interface Call {
    void run(byte[] row) throws Exception;
  }

  private static void measure(String what, Call call) throws Exception {
    long[] took = new long[COUNT];
    for (int at = -WARM; at < COUNT; at++) {
      byte[] row = Bytes.toBytes("row" + (at & 1023));
      long begun = System.nanoTime();
      call.run(row);
      if (at >= 0) took[at] = System.nanoTime() - begun;
    }
    Arrays.sort(took);
    System.out.printf("%-24s median %d us, 90%% %d us, 99%% %d us%n", what, took[COUNT / 2] / 1000, took[COUNT * 9 / 10] / 1000, took[COUNT * 99 / 100] / 1000);
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    String[] address = arguments[0].split(":");
    configuration.set("hbase.zookeeper.quorum", address[0]);
    configuration.set("hbase.zookeeper.property.clientPort", address[1]);
    try (Connection connection = ConnectionFactory.createConnection(configuration); Admin admin = connection.getAdmin()) {
      TableDescriptorBuilder plain = TableDescriptorBuilder.newBuilder(TableName.valueOf("cost-plain")).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setDurability(Durability.ASYNC_WAL);
      admin.createTable(plain.build());
      TableDescriptorBuilder observed = TableDescriptorBuilder.newBuilder(TableName.valueOf("cost-observed"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).setDurability(Durability.ASYNC_WAL);
      admin.createTable(observed.setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Empty").setJarPath("file://" + arguments[1])
        .build()).build());
      for (String name : new String[] { "cost-plain", "cost-observed" }) {
        Table table = connection.getTable(TableName.valueOf(name));
        measure(name + " put", row -> table.put(new Put(row).addColumn(F, A, VALUE)));
        measure(name + " get", row -> table.get(new Get(row)));
      }
      Table table = connection.getTable(TableName.valueOf("cost-observed"));
      measure("endpoint", row -> {
        ExampleProtos.RowCountService.Stub stub = ExampleProtos.RowCountService.newStub(table.coprocessorService(row));
        ServerRpcController controller = new ServerRpcController();
        BlockingRpcCallback<ExampleProtos.CountResponse> callback = new BlockingRpcCallback<>();
        stub.getRowCount(controller, ExampleProtos.CountRequest.getDefaultInstance(), callback);
        if (callback.get().getCount() != 1) throw new Exception("no answer");
      });
      for (int round = 0; round < ROUNDS; round++) {
        stores(connection, admin, null, round);
        stores(connection, admin, arguments[1], round);
      }
    }
  }

  /** Seconds of a flush of 300,000 cells of 100 bytes and of a major compaction of three such files; with a jar through an observer. */
  private static void stores(Connection connection, Admin admin, String jar, int round) throws Exception {
    TableName name = TableName.valueOf((jar == null ? "stores-plain" : "stores-observed") + round);
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"));
    if (jar != null) {
      table.setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Passing").setJarPath("file://" + jar).build());
    }
    admin.createTable(table.setDurability(Durability.SKIP_WAL).setCompactionEnabled(false).build());
    double flushed = 0;
    for (int file = 0; file < 3; file++) {
      try (BufferedMutator mutator = connection.getBufferedMutator(name)) {
        for (int row = 0; row < 300_000; row++) mutator.mutate(new Put(Bytes.toBytes(String.format("row%07d", row * 3 + file))).addColumn(F, A, VALUE));
      }
      long begun = System.nanoTime();
      admin.flush(name);
      flushed += (System.nanoTime() - begun) / 3e9;
    }
    admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(name)).setCompactionEnabled(true).build());
    long begun = System.nanoTime();
    admin.majorCompact(name);
    while (admin.getLastMajorCompactionTimestamp(name) == 0) Thread.sleep(20);
    System.out.printf("%-24s flush %.2f s, compaction %.2f s%n", name, flushed, (System.nanoTime() - begun) / 1e9);
    admin.disableTable(name);
    admin.deleteTable(name);
  }
}
