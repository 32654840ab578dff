import halcyon.compat.FirstCells;
import java.io.File;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.coprocessor.Export;
import org.apache.hadoop.hbase.coprocessor.example.generated.BulkDeleteProtos;
import org.apache.hadoop.hbase.coprocessor.example.generated.ExampleProtos;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.ipc.CoprocessorRpcUtils.BlockingRpcCallback;
import org.apache.hadoop.hbase.ipc.ServerRpcController;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.security.UserGroupInformation;

/** Prints what clients see of coprocessors: {@code Coprocessors ZOOKEEPER JAR DIRECTORY}. */
public class Coprocessors {
  private static final byte[] F = Bytes.toBytes("f");
  private static final byte[] A = Bytes.toBytes("a");
  private static Table table;

  interface Answer {
    Object get() throws Throwable;
  }

  static void say(String what, Answer answer) {
    String said;
    try {
      said = String.valueOf(answer.get());
    } catch (Throwable error) {
      Throwable cause = error;
      while (cause instanceof RetriesExhaustedException && cause.getCause() != null) cause = cause.getCause();
      if (cause instanceof RetriesExhaustedWithDetailsException) cause = ((RetriesExhaustedWithDetailsException) cause).getCause(0);
      said = cause.getClass().getName() + ": " + String.valueOf(cause.getMessage()).split("\n")[0];
    }
    System.out.println((what + " | " + said.replaceAll("[0-9]{13}\\.[0-9a-f]{32}", "ID")).stripTrailing());
  }

  private static String show(Result result) {
    if (result == null) return "null";
    if (result.isEmpty()) return "empty" + (result.getExists() == null ? "" : result.getExists());
    StringBuilder text = new StringBuilder();
    for (Cell cell : result.rawCells()) {
      String value = Bytes.toStringBinary(CellUtil.cloneValue(cell));
      text.append(Bytes.toString(CellUtil.cloneRow(cell))).append('/').append(Bytes.toString(CellUtil.cloneQualifier(cell))).append('=')
        .append(value).append(' ');
    }
    return text.toString().trim();
  }

  private static byte[] row(String row) {
    return Bytes.toBytes(row);
  }

  private static Put put(String row) {
    return new Put(row(row)).addColumn(F, A, Bytes.toBytes("v-" + row));
  }

  private static Object get(String row) throws Exception {
    return show(table.get(new Get(row(row))));
  }

  private static String scan(Scan scan) throws Exception {
    List<String> rows = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) rows.add(show(result));
    }
    return rows.toString();
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    String[] address = arguments[0].split(":");
    configuration.set("hbase.zookeeper.quorum", address[0]);
    configuration.set("hbase.zookeeper.property.clientPort", address[1]);
    configuration.setInt("hbase.client.retries.number", 6);
    String jar = "file://" + arguments[1];
    try (Connection connection = ConnectionFactory.createConnection(configuration); Admin admin = connection.getAdmin()) {
      refusals(admin, jar);
      observers(connection, admin, jar);
      endpoints(connection, admin, configuration, arguments[2]);
      increments(connection, admin);
      callers(configuration);
      limits(connection, admin, configuration);
      TimesAndJumps.run(connection, admin);
      StoreAnswers.run(connection, admin, jar, arguments[2]);
    }
  }

  private static TableDescriptorBuilder builder(String name) {
    return TableDescriptorBuilder.newBuilder(TableName.valueOf(name)).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"));
  }

  private static void refusals(Admin admin, String jar) {
    say("no class", () -> {
      admin.createTable(builder("bad1").setCoprocessor("no.such.Coprocessor").build());
      return "created";
    });
    say("no class in the jar", () -> {
      admin.createTable(builder("bad2").setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("no.such.Other").setJarPath(jar).build()).build());
      return "created";
    });
  }

  private static void observers(Connection connection, Admin admin, String jar) throws Exception {
    TableName name = TableName.valueOf("marks");
    admin.createTable(builder("marks").setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Marks").setJarPath(jar)
      .setPriority(1001).setProperty("label", "hello").build()).build(), new byte[][] { row("m") });
    table = connection.getTable(name);
    for (String row : Arrays.asList("plain", "bypass1", "fail1", "add1", "index1", "latefail1", "log1", "narrow1", "more1", "hide1", "keep1",
      "not1", "scanhidden1", "scanshown1")) {
      say("put " + row, () -> {
        table.put(put(row).addColumn(F, Bytes.toBytes("b"), Bytes.toBytes("w")));
        return "done";
      });
      say("get " + row, () -> get(row));
    }
    say("put with an attribute", () -> {
      Put put = put("add2");
      put.setAttribute("attribute", Bytes.toBytes("seen"));
      table.put(put);
      return get("add2");
    });
    say("what was added", () -> get("entry-index1"));
    say("hooks of a put and a get", () -> get("log-log1"));
    say("get made", () -> get("made1"));
    say("exists", () -> Arrays.toString(table.exists(Arrays.asList(new Get(row("plain")), new Get(row("none")), new Get(row("ghost1")),
      new Get(row("not1")), new Get(row("not2"))))));
    say("exists alone", () -> table.exists(new Get(row("ghost1"))) + " " + table.exists(new Get(row("not1"))) + " " + table.exists(new Get(row("none"))));
    say("a batch of puts", () -> {
      Object[] results = new Object[4];
      try {
        table.batch(Arrays.asList(put("batch1"), put("bypass2"), put("log2"), put("batch2")), results);
      } catch (RetriesExhaustedWithDetailsException error) {
        return error.getNumExceptions() + " " + error.getCause(0).getClass().getSimpleName();
      }
      return get("batch1") + " " + get("bypass2") + " " + get("batch2") + " " + get("log-log2");
    });
    say("a batch with one that fails", () -> {
      Object[] results = new Object[2];
      try {
        table.batch(Arrays.asList(put("batch3"), put("fail2")), results);
        return "done";
      } catch (RetriesExhaustedWithDetailsException error) {
        return error.getNumExceptions() + " " + get("batch3");
      }
    });
    say("delete keep1", () -> {
      table.delete(new Delete(row("keep1")));
      return get("keep1");
    });
    say("delete plain", () -> {
      table.delete(new Delete(row("plain")).addColumns(F, A));
      return get("plain");
    });
    say("delete log1", () -> {
      table.delete(new Delete(row("log1")));
      return get("log-log1");
    });
    say("increment", () -> show(table.increment(new Increment(row("count1")).addColumn(F, Bytes.toBytes("n"), 5))));
    say("increment again", () -> show(table.increment(new Increment(row("count1")).addColumn(F, Bytes.toBytes("n"), 5))));
    say("increment bypassed", () -> show(table.increment(new Increment(row("bypass3")).addColumn(F, Bytes.toBytes("n"), 5))) + " " + get("bypass3"));
    say("increment changed", () -> show(table.increment(new Increment(row("change1")).addColumn(F, Bytes.toBytes("n"), 5))) + " " + get("change1"));
    say("append", () -> show(table.append(new Append(row("append1")).addColumn(F, A, Bytes.toBytes("x")))));
    say("append bypassed", () -> show(table.append(new Append(row("bypass4")).addColumn(F, A, Bytes.toBytes("x")))) + " " + get("bypass4"));
    for (String row : Arrays.asList("check1", "bypass5", "turn1", "log3")) {
      say("check " + row, () -> table.checkAndMutate(CheckAndMutate.newBuilder(row(row)).ifNotExists(F, A).build(put(row))).isSuccess() + " " + get(row));
      say("check again " + row, () -> table.checkAndMutate(CheckAndMutate.newBuilder(row(row)).ifNotExists(F, A).build(put(row))).isSuccess());
      say("check value " + row, () -> table.checkAndMutate(CheckAndMutate.newBuilder(row(row))
        .ifMatches(F, A, CompareOperator.EQUAL, Bytes.toBytes("v-" + row)).build(new Delete(row(row)))).isSuccess() + " " + get(row));
    }
    say("hooks of checks", () -> get("log-log3"));
    say("row mutations", () -> {
      table.mutateRow(RowMutations.of(Arrays.asList(new Put(row("log4")).addColumn(F, A, A), new Delete(row("log4")).addColumns(F, Bytes.toBytes("b")))));
      return get("log4") + " " + get("log-log4");
    });
    say("check with row mutations", () -> {
      RowMutations mutations = RowMutations.of(Arrays.asList(new Put(row("count1")).addColumn(F, A, A),
        new Increment(row("count1")).addColumn(F, Bytes.toBytes("n"), 1)));
      CheckAndMutateResult result = table.checkAndMutate(CheckAndMutate.newBuilder(row("count1")).ifNotExists(F, A).build(mutations));
      return result.isSuccess() + " " + show(result.getResult());
    });
    say("scan", () -> scan(new Scan()));
    say("scan reversed", () -> scan(new Scan().setReversed(true).setLimit(5)));
    say("scan with a filter", () -> scan(new Scan().setFilter(new PrefixFilter(row("scan")))));
    say("scan with a limit", () -> scan(new Scan().setLimit(3)));
    say("scan with batches", () -> scan(new Scan().withStartRow(row("add")).withStopRow(row("c")).setBatch(1)));
    say("scan of one column", () -> {
      Scan scan = new Scan();
      scan.setAttribute("only", Bytes.toBytes("added"));
      return scan(scan);
    });
    say("scan refused", () -> {
      Scan scan = new Scan();
      scan.setAttribute("fail", A);
      return scan(scan);
    });
    say("after a flush", () -> {
      admin.flush(name);
      return get("add1") + scan(new Scan().setFilter(new PrefixFilter(row("add"))));
    });
    table.close();
  }

  private static void endpoints(Connection connection, Admin admin, Configuration configuration, String directory) throws Exception {
    TableName name = TableName.valueOf("rows");
    admin.createTable(builder("rows").setCoprocessor("org.apache.hadoop.hbase.coprocessor.example.RowCountEndpoint")
      .setCoprocessor("org.apache.hadoop.hbase.coprocessor.Export").build(), new byte[][] { row("row300"), row("row600") });
    table = connection.getTable(name);
    List<Put> puts = new ArrayList<>();
    for (int at = 0; at < 1000; at++) puts.add(put(String.format("row%03d", at)).addColumn(F, Bytes.toBytes("b"), Bytes.toBytes(at)));
    table.put(puts);
    for (String method : Arrays.asList("getRowCount", "getKeyValueCount")) {
      say(method, () -> {
        Map<byte[], Long> counts = table.coprocessorService(ExampleProtos.RowCountService.class, null, null, counter -> {
          ServerRpcController controller = new ServerRpcController();
          BlockingRpcCallback<ExampleProtos.CountResponse> callback = new BlockingRpcCallback<>();
          ExampleProtos.CountRequest request = ExampleProtos.CountRequest.getDefaultInstance();
          if (method.equals("getRowCount")) counter.getRowCount(controller, request, callback);
          else counter.getKeyValueCount(controller, request, callback);
          ExampleProtos.CountResponse response = callback.get();
          if (controller.failedOnException()) throw controller.getFailedOn();
          return response.getCount();
        });
        return new ArrayList<>(counts.values());
      });
    }
    say("a batch of calls", () -> {
      Map<byte[], ExampleProtos.CountResponse> counts = new TreeMap<>(Bytes.BYTES_COMPARATOR);
      counts.putAll(table.batchCoprocessorService(ExampleProtos.RowCountService.getDescriptor().findMethodByName("getRowCount"),
        ExampleProtos.CountRequest.getDefaultInstance(), null, null, ExampleProtos.CountResponse.getDefaultInstance()));
      long sum = 0;
      for (ExampleProtos.CountResponse response : counts.values()) sum += response.getCount();
      return counts.size() + " " + sum;
    });
    say("no such service", () -> {
      BulkDeleteProtos.BulkDeleteService.Stub stub = BulkDeleteProtos.BulkDeleteService.newStub(table.coprocessorService(row("row1")));
      ServerRpcController controller = new ServerRpcController();
      BlockingRpcCallback<BulkDeleteProtos.BulkDeleteResponse> callback = new BlockingRpcCallback<>();
      stub.delete(controller, BulkDeleteProtos.BulkDeleteRequest.getDefaultInstance(), callback);
      callback.get();
      if (controller.failedOnException()) throw controller.getFailedOn();
      return "answered";
    });
    say("Export", () -> {
      String out = directory + "/export";
      Method run = Export.class.getDeclaredMethod("run", Configuration.class, String[].class);
      run.setAccessible(true);
      @SuppressWarnings("unchecked")
      Map<byte[], Export.Response> exported =
        (Map<byte[], Export.Response>) run.invoke(null, configuration, new String[] { "rows", "file://" + out });
      long rows = 0, cells = 0;
      for (Export.Response response : exported.values()) {
        rows += response.getRowCount();
        cells += response.getCellCount();
      }
      int files = 0;
      for (File file : new File(out).listFiles()) files += file.getName().startsWith("part") ? 1 : 0;
      return exported.size() + " regions " + rows + " rows " + cells + " cells " + files + " files";
    });
    table.close();
  }

  private static void increments(Connection connection, Admin admin) throws Exception {
    TableName name = TableName.valueOf("heavy");
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(Integer.MAX_VALUE)
      .build()).setCoprocessor("org.apache.hadoop.hbase.coprocessor.example.WriteHeavyIncrementObserver").build());
    table = connection.getTable(name);
    say("100 increments", () -> {
      for (int at = 0; at < 100; at++) table.increment(new Increment(row("r" + at % 3)).addColumn(F, A, at));
      List<Long> sums = new ArrayList<>();
      for (int at = 0; at < 3; at++) sums.add(Bytes.toLong(table.get(new Get(row("r" + at)).addColumn(F, A)).getValue(F, A)));
      return sums;
    });
    table.close();
  }

  /** What a hook knows of the client's call. */
  private static void callers(Configuration configuration) throws Exception {
    User ann = User.create(UserGroupInformation.createRemoteUser("ann"));
    Map<String, byte[]> attributes = Map.of("where", row("here"), "empty", new byte[0]);
    try (Connection connection = ConnectionFactory.createConnection(configuration, null, ann, attributes)) {
      TableName name = TableName.valueOf("marks");
      table = connection.getTableBuilder(name, null).setRequestAttribute("a", row("1")).setRequestAttribute("b", row("2")).build();
      say("who gets", () -> get("askcaller1"));
      say("who gets two", () -> show(table.get(Arrays.asList(new Get(row("askcaller1")), new Get(row("askcaller2"))))[1]));
      say("who puts", () -> {
        table.put(put("caller1"));
        return get("caller1");
      });
      say("who puts two", () -> {
        table.put(Arrays.asList(put("caller2"), put("caller3")));
        return get("caller2") + " " + get("caller3");
      });
      say("who checks", () -> table.checkAndMutate(CheckAndMutate.newBuilder(row("caller4")).ifNotExists(F, A).build(put("caller4"))).isSuccess()
        + " " + get("caller4"));
      say("who scans", () -> {
        Scan scan = new Scan();
        scan.setAttribute("caller", A);
        return scan(scan);
      });
      table = connection.getTable(name);
      say("who gets without attributes", () -> get("askcaller1"));
    }
  }

  private static String parts(Scan scan) throws Exception {
    StringBuilder text = new StringBuilder();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) text.append(show(result)).append(result.mayHaveMoreCellsInRow() ? " and more, " : ", ");
    }
    return text.toString();
  }

  /** Limits of scans whose filter only a JVM has, and of one whose hooks do. */
  private static void limits(Connection connection, Admin admin, Configuration configuration) throws Exception {
    TableName name = TableName.valueOf("limits");
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
      .setColumnFamily(ColumnFamilyDescriptorBuilder.of("g")).build());
    table = connection.getTable(name);
    for (int at = 0; at < 6; at++) {
      Put put = new Put(row("r" + at));
      for (String column : Arrays.asList("a", "b", "c", "d")) {
        put.addColumn(F, row(column), row(column + at));
        if (at % 2 == 0) put.addColumn(row("g"), row("g" + column), row(column + at));
      }
      table.put(put);
    }
    for (int batch : new int[] { -1, 1, 2, 3 }) {
      for (long size : new long[] { -1, 1, 400 }) {
        for (boolean partial : new boolean[] { false, true }) {
          for (boolean reversed : new boolean[] { false, true }) {
            String how = "batch " + batch + " size " + size + (partial ? " partial" : "") + (reversed ? " reversed" : "");
            Scan scan = new Scan().setFilter(new FirstCells(3, 0)).setLimit(3).setReversed(reversed).setAllowPartialResults(partial);
            if (batch > 0) scan.setBatch(batch);
            if (size > 0) scan.setMaxResultSize(size);
            say("first cells, " + how, () -> parts(scan));
            say("first cells of a family, " + how, () -> parts(new Scan(scan).addFamily(F).setLimit(2)));
          }
        }
      }
    }
    say("one row of each call", () -> parts(new Scan().setFilter(new FirstCells(1, 0)).setCaching(1)));
    table.close();
    table = connection.getTable(TableName.valueOf("marks"));
    say("parts of rows with hooks", () -> parts(new Scan().setMaxResultSize(1).setAllowPartialResults(true).setLimit(3)));
    say("batches with hooks", () -> parts(new Scan().setMaxResultSize(1).setBatch(2).setLimit(3)));
    table.close();
    Configuration impatient = new Configuration(configuration);
    impatient.setInt("hbase.rpc.timeout", 2000);
    impatient.setInt("hbase.client.scanner.timeout.period", 2000);
    try (Connection hasty = ConnectionFactory.createConnection(impatient)) {
      table = hasty.getTable(name);
      for (boolean reversed : new boolean[] { false, true }) {
        say("cursors" + (reversed ? " reversed" : ""), () -> {
          int cursors = 0;
          StringBuilder rows = new StringBuilder();
          Scan scan = new Scan().addFamily(F).setFilter(new FirstCells(0, 600)).setNeedCursorResult(true).setReversed(reversed);
          try (ResultScanner scanner = table.getScanner(scan)) {
            for (Result result : scanner) {
              if (result.isCursor()) {
                cursors++;
                rows.append(Bytes.toString(result.getCursor().getRow())).append(' ');
              }
            }
          }
          return cursors + " cursors: " + rows;
        });
      }
      table.close();
    }
  }
}
