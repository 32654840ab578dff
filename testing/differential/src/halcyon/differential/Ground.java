package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.util.Bytes;

/** A fresh table for one fact, with few words for what is done to it. Cells print as {@code row/qualifier@timestamp=value}. */
final class Ground implements AutoCloseable {
  static final byte[] F = Domain.bytes("f");
  static final byte[] G = Domain.bytes("g");
  final Side side;
  final TableName name;
  final Table table;

  Ground(Side side, String method, Fact fact) throws IOException {
    this.side = side;
    name = TableName.valueOf("fact-" + method);
    drop();
    ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(fact.versions())
        .setMinVersions(fact.minVersions()).setTimeToLive(fact.ttlSeconds()).setKeepDeletedCells(KeepDeletedCells.valueOf(fact.keep()))
        .build();
    TableDescriptor descriptor = TableDescriptorBuilder.newBuilder(name).setColumnFamily(family)
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of(G)).build();
    byte[][] splits = Arrays.stream(fact.splits()).map(Domain::bytes).toArray(byte[][]::new);
    side.admin.createTable(descriptor, splits);
    table = side.table(name);
  }

  static byte[] b(String text) {
    return Domain.bytes(text);
  }

  void put(String row, String qualifier, long timestamp, String value) throws IOException {
    table.put(new Put(b(row)).addColumn(F, b(qualifier), timestamp, b(value)));
  }

  /** Rows with one cell each: f:q at 1. */
  void rows(String... rows) throws IOException {
    for (String row : rows) put(row, "q", 1, row);
  }

  void delete(Delete delete) throws IOException {
    table.delete(delete);
  }

  void flush() throws IOException {
    side.admin.flush(name);
  }

  void compact() throws IOException, InterruptedException {
    Compactions.major(side, name, null);
  }

  String get(String row) throws IOException {
    return get(new Get(b(row)));
  }

  String get(Get get) throws IOException {
    return text(List.of(table.get(get)));
  }

  String all() throws IOException {
    return scan(new Scan().readAllVersions());
  }

  String raw() throws IOException {
    return scan(new Scan().readAllVersions().setRaw(true));
  }

  String scan(Filter filter) throws IOException {
    return scan(new Scan().setFilter(filter));
  }

  String scan(Scan scan) throws IOException {
    List<Result> results = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) results.add(result);
    }
    return text(results);
  }

  /** Only the rows, one word for each result. */
  String rowsOf(Scan scan) throws IOException {
    List<String> rows = new ArrayList<>();
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) rows.add(Domain.text(result.getRow()));
    }
    return String.join(" ", rows);
  }

  private static String text(List<Result> results) {
    List<String> cells = new ArrayList<>();
    for (Result result : results) {
      if (result.isEmpty()) continue;
      for (Cell cell : result.rawCells()) cells.add(text(cell));
    }
    return String.join(" ", cells);
  }

  static String text(Cell cell) {
    String type = cell.getType() == Cell.Type.Put ? "" : "!" + cell.getType();
    return Domain.text(CellUtil.cloneRow(cell)) + "/" + Domain.text(CellUtil.cloneQualifier(cell)) + "@" + Times.text(cell.getTimestamp())
        + type + "=" + Domain.text(CellUtil.cloneValue(cell));
  }

  static long number(Result result, String qualifier) {
    return Bytes.toLong(result.getValue(F, b(qualifier)));
  }

  static void expect(Object expected, Object actual) {
    if (!Objects.equals(expected, actual)) throw new AssertionError("expected <" + expected + "> but was <" + actual + ">");
  }

  /** Something that fails. */
  interface Failing {
    void run() throws Exception;
  }

  /** Expects an error of a class, as the client throws it without what it wraps around. */
  static void expectError(String simpleName, Failing failing) {
    try {
      failing.run();
    } catch (Exception error) {
      expect(simpleName, Answer.root(error).getClass().getSimpleName());
      return;
    }
    throw new AssertionError("expected " + simpleName + " and there was no error");
  }

  private void drop() throws IOException {
    if (!side.admin.tableExists(name)) return;
    if (side.admin.isTableEnabled(name)) side.admin.disableTable(name);
    side.admin.deleteTable(name);
  }

  @Override
  public void close() throws IOException {
    table.close();
    drop();
  }
}
