package halcyon.compat;

import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.filter.FilterBase;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Sends each family to rows of its own, as skip scans of Phoenix do: family f to those whose number is a multiple of a step, others to multiples of
 * twice that. It throws if a family shows it a cell before the one that it was sent to. Rows are two digits.
 */
public class Jumps extends FilterBase {
  private final int step;
  /** Whether rows are refused by their key as well. */
  private final boolean byKey;
  private final Map<byte[], byte[]> sent = new TreeMap<>(Bytes.BYTES_COMPARATOR);

  public Jumps(int step, boolean byKey) {
    this.step = step;
    this.byKey = byKey;
  }

  private static int number(Cell cell) {
    return Integer.parseInt(Bytes.toString(CellUtil.cloneRow(cell)));
  }

  private int step(Cell cell) {
    return cell.getFamilyArray()[cell.getFamilyOffset()] == 'f' ? step : 2 * step;
  }

  @Override
  public boolean filterRowKey(Cell cell) {
    return byKey && number(cell) % step != 0;
  }

  @Override
  public ReturnCode filterCell(Cell cell) {
    byte[] to = sent.get(CellUtil.cloneFamily(cell));
    if (to != null) {
      int order = Bytes.compareTo(CellUtil.cloneRow(cell), to);
      if (isReversed() ? order > 0 : order < 0) throw new IllegalStateException("a cell of " + number(cell) + " after " + Bytes.toString(to));
    }
    return number(cell) % step(cell) == 0 ? ReturnCode.INCLUDE : ReturnCode.SEEK_NEXT_USING_HINT;
  }

  @Override
  public Cell getNextCellHint(Cell cell) {
    int of = step(cell), next = (number(cell) / of + (isReversed() ? 0 : 1)) * of;
    byte[] to = Bytes.toBytes(String.format("%02d", next)), before = sent.put(CellUtil.cloneFamily(cell), to);
    if (before != null && (isReversed() ? Bytes.compareTo(to, before) >= 0 : Bytes.compareTo(to, before) <= 0)) {
      throw new IllegalStateException("The next hint must come after the previous one: " + Bytes.toString(to) + " " + Bytes.toString(before));
    }
    return KeyValueUtil.createFirstOnRow(to);
  }

  @Override
  public byte[] toByteArray() {
    return Bytes.add(Bytes.toBytes(step), Bytes.toBytes(byKey));
  }

  public static Jumps parseFrom(byte[] bytes) {
    return new Jumps(Bytes.toInt(bytes), bytes[4] != 0);
  }
}
