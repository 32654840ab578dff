package halcyon.compat;

import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.filter.FilterBase;
import org.apache.hadoop.hbase.util.Bytes;

/** A filter that no server has built in: the first cells of each family of a row. It takes its time for each row. */
public class FirstCells extends FilterBase {
  private final int limit;
  private final int pauseMs;
  private int count;
  private byte[] family = new byte[0];

  public FirstCells(int limit, int pauseMs) {
    this.limit = limit;
    this.pauseMs = pauseMs;
  }

  @Override
  public void reset() {
    count = 0;
    family = new byte[0];
  }

  @Override
  public ReturnCode filterCell(Cell cell) {
    byte[] of = Bytes.copy(cell.getFamilyArray(), cell.getFamilyOffset(), cell.getFamilyLength());
    if (!Bytes.equals(of, family)) {
      count = 0;
      family = of;
      pause();
    }
    count++;
    return count > limit ? ReturnCode.NEXT_ROW : ReturnCode.INCLUDE;
  }

  private void pause() {
    if (pauseMs == 0) return;
    try {
      Thread.sleep(pauseMs);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public byte[] toByteArray() {
    return Bytes.add(Bytes.toBytes(limit), Bytes.toBytes(pauseMs));
  }

  public static FirstCells parseFrom(byte[] bytes) {
    return new FirstCells(Bytes.toInt(bytes), Bytes.toInt(bytes, 4));
  }
}
