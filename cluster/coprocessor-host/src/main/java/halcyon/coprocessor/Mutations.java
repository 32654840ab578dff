package halcyon.coprocessor;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellScanner;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos.MutationProto;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos.MutationProto.MutationType;

/** Between HBase's mutations and those of a frame. */
public final class Mutations {
  private Mutations() {
  }

  public static Mutation read(Frame.Part part) throws IOException {
    MutationProto proto = MutationProto.parseFrom(part.message);
    List<Cell> cells = new ArrayList<>(part.cells.size());
    for (byte[] cell : part.cells) cells.add(new KeyValue(cell));
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
