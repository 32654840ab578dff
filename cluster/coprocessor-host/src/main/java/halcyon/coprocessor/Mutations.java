package halcyon.coprocessor;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellScanner;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.ExtendedCell;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos.MutationProto;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos.MutationProto.MutationType;
import org.apache.hadoop.hbase.util.Bytes;

/** Between HBase's mutations and those of a frame. */
public final class Mutations {
  private Mutations() {
  }

  public static Mutation read(Frame.Part part) throws IOException {
    MutationProto proto = MutationProto.parseFrom(part.message);
    List<Cell> cells = new ArrayList<>(part.cells.size());
    for (byte[] cell : part.cells) cells.add(Frame.cell(cell));
    CellScanner scanner = CellUtil.createCellScanner(cells);
    switch (proto.getMutateType()) {
      case PUT: return ProtobufUtil.toPut(proto, scanner);
      case DELETE: return ProtobufUtil.toDelete(proto, scanner);
      case INCREMENT: return ProtobufUtil.toIncrement(proto, scanner);
      case APPEND: return ProtobufUtil.toAppend(proto, scanner);
      default: throw new DoNotRetryIOException("a mutation of type " + proto.getMutateType());
    }
  }

  public static Frame.Part write(Mutation mutation) throws IOException {
    Frame.Part part = new Frame.Part();
    part.message = ProtobufUtil.toMutationNoData(type(mutation), mutation).toByteArray();
    for (List<Cell> family : mutation.getFamilyCellMap().values()) {
      for (Cell cell : family) part.cells.add(Frame.keyValue(cell));
    }
    return part;
  }

  /**
   * Puts the cells into a mutation that the server has written for it, as HBase does with the objects that a region is handed: the server's time in
   * place of the latest one, the time of the version that a delete takes away, tags of the time to live, families of a delete that names none,
   * and what hooks have changed or added. Without cells nothing was written.
   */
  public static void takeOver(Mutation mutation, List<byte[]> written) throws IOException {
    if (written.isEmpty()) return;
    Map<byte[], List<Cell>> cells = mutation.getFamilyCellMap();
    Map<byte[], List<Cell>> byFamily = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    for (byte[] cell : written) {
      KeyValue made = Frame.cell(cell);
      byFamily.computeIfAbsent(CellUtil.cloneFamily(made), family -> new ArrayList<>()).add(made);
    }
    if (mutation instanceof Increment || mutation instanceof Append) {
      // HBase makes new cells; only a column that had none gets the cell of the mutation itself.
      byFamily.forEach((family, made) -> cells.getOrDefault(family, List.of()).forEach(cell -> stampNew(cell, made)));
      return;
    }
    cells.keySet().retainAll(byFamily.keySet());
    for (Map.Entry<byte[], List<Cell>> family : byFamily.entrySet()) {
      List<Cell> before = cells.get(family.getKey()), made = family.getValue();
      if (before == null || !stampAll(before, made)) cells.put(family.getKey(), made);
    }
  }

  private static void stampNew(Cell cell, List<Cell> made) {
    for (Cell other : made) {
      if (cell.getTimestamp() != HConstants.LATEST_TIMESTAMP || !CellUtil.matchingQualifier(cell, other)) continue;
      setTimestamp(cell, other);
    }
  }

  /** Who holds the cells themselves sees their time as well. False: they are not the same cells but for that. */
  private static boolean stampAll(List<Cell> before, List<Cell> made) {
    if (before.size() != made.size()) return false;
    for (int at = 0; at < made.size(); at++) {
      Cell one = before.get(at), other = made.get(at);
      boolean same = CellUtil.matchingRowColumn(one, other) && one.getType() == other.getType() && CellUtil.matchingValue(one, other)
        && one.getTagsLength() == other.getTagsLength();
      if (!same || !(one instanceof ExtendedCell)) return false;
    }
    for (int at = 0; at < made.size(); at++) setTimestamp(before.get(at), made.get(at));
    return true;
  }

  private static void setTimestamp(Cell cell, Cell of) {
    try {
      if (cell.getTimestamp() != of.getTimestamp()) PrivateCellUtil.setTimestamp(cell, of.getTimestamp());
    } catch (IOException impossible) {
      throw new java.io.UncheckedIOException("the timestamp of a " + cell.getClass().getName(), impossible);
    }
  }

  public static boolean same(Frame.Part one, Frame.Part other) {
    if (!Arrays.equals(one.message, other.message) || one.cells.size() != other.cells.size()) return false;
    for (int at = 0; at < one.cells.size(); at++) {
      if (!Arrays.equals(one.cells.get(at), other.cells.get(at))) return false;
    }
    return true;
  }

  private static MutationType type(Mutation mutation) throws IOException {
    if (mutation instanceof Put) return MutationType.PUT;
    if (mutation instanceof Delete) return MutationType.DELETE;
    if (mutation instanceof Increment) return MutationType.INCREMENT;
    if (mutation instanceof Append) return MutationType.APPEND;
    throw new DoNotRetryIOException("a mutation of class " + mutation.getClass().getName());
  }
}
