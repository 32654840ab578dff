package halcyon.compat;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.regionserver.Region;
import org.apache.hadoop.hbase.util.Bytes;

/** The times that mutations have once a region has written them: HBase puts them into the very objects that it was handed. */
final class Times {
  private static final byte[] F = Bytes.toBytes("f"), Q = Bytes.toBytes("q");

  private Times() {
  }

  /** Row, column, type and time of each cell. */
  static String of(Mutation... mutations) {
    StringBuilder text = new StringBuilder();
    for (Mutation mutation : mutations) {
      for (Map.Entry<byte[], List<Cell>> family : mutation.getFamilyCellMap().entrySet()) {
        for (Cell cell : family.getValue()) text.append(of(cell)).append(' ');
      }
      text.append("| ");
    }
    return text.toString().trim();
  }

  private static String of(Cell cell) {
    long time = cell.getTimestamp();
    boolean isNow = Math.abs(System.currentTimeMillis() - time) < 60_000;
    String shown = time == HConstants.LATEST_TIMESTAMP ? "latest" : isNow ? "now" : String.valueOf(time);
    String row = Bytes.toString(cell.getRowArray(), cell.getRowOffset(), cell.getRowLength());
    String family = Bytes.toString(cell.getFamilyArray(), cell.getFamilyOffset(), cell.getFamilyLength());
    String qualifier = Bytes.toString(cell.getQualifierArray(), cell.getQualifierOffset(), cell.getQualifierLength());
    boolean hasTags = PrivateCellUtil.tagsIterator(cell).hasNext();
    return row + "/" + family + ":" + qualifier + "/" + cell.getType() + (hasTags ? " with tags" : "") + "@" + shown;
  }

  private static Put put(String row) {
    return new Put(Bytes.toBytes(row)).addColumn(F, Q, Bytes.toBytes("v"));
  }

  private static Delete delete(String row) {
    return new Delete(Bytes.toBytes(row));
  }

  /** Writes through a region in all its ways. */
  static String afterWrites(Region region) throws IOException {
    StringBuilder text = new StringBuilder();
    Put old = new Put(Bytes.toBytes("stamp1")).addColumn(F, Q, 5, Q), put = put("stamp1");
    region.put(old);
    region.put(put);
    note(text, "puts", old, put);
    Put brief = put("stamp2");
    brief.setTTL(600_000);
    region.put(brief);
    note(text, "put with a time to live", brief);
    Cell held = put("stamp3").getFamilyCellMap().get(F).get(0);
    Put holding = new Put(Bytes.toBytes("stamp3")).add(held);
    region.put(holding);
    text.append("the cell itself ").append(of(held)).append("; ");
    Delete column = delete("stamp3").addColumns(F, Q), family = delete("stamp3").addFamily(F), row = delete("stamp3");
    for (Delete each : Arrays.asList(column, family, row)) region.delete(each);
    note(text, "deletes", column, family, row);
    Delete version = delete("stamp1").addColumn(F, Q), older = delete("stamp1").addColumn(F, Q), none = delete("stamp1").addColumn(F, Q);
    for (Delete each : Arrays.asList(version, older, none)) region.delete(each);
    note(text, "deletes of the newest version", older, none);
    Put added = put("seenindexstamp");
    region.put(added);
    note(text, "put with what a hook adds", added);
    Put first = put("stamp4");
    Delete second = delete("stamp5").addFamily(F);
    region.batchMutate(new Mutation[] { first, second });
    note(text, "batch", first, second);
    Put one = put("stamp6");
    Delete two = delete("stamp7").addFamily(F);
    region.mutateRowsWithLocks(Arrays.asList(one, two), Arrays.asList(one.getRow(), two.getRow()), HConstants.NO_NONCE, HConstants.NO_NONCE);
    note(text, "rows with locks", one, two);
    Put part = put("stamp8");
    Delete other = delete("stamp8").addColumns(F, Bytes.toBytes("other"));
    region.mutateRow(RowMutations.of(Arrays.asList(part, other)));
    note(text, "row mutations", part, other);
    for (int at = 0; at < 2; at++) {
      Increment increment = new Increment(Bytes.toBytes("stamp9")).addColumn(F, Q, 1);
      Append append = new Append(Bytes.toBytes("stamp10")).addColumn(F, Q, Q);
      region.increment(increment);
      region.append(append);
      note(text, "increment and append", increment, append);
    }
    Put checked = put("stamp11"), refused = put("stamp11");
    for (Put each : Arrays.asList(checked, refused)) {
      region.checkAndMutate(CheckAndMutate.newBuilder(each.getRow()).ifNotExists(F, Q).build(each));
    }
    note(text, "checks", checked, refused);
    return text.toString();
  }

  private static void note(StringBuilder text, String what, Mutation... mutations) {
    text.append(what).append(' ').append(of(mutations)).append("; ");
  }
}
