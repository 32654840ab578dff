package halcyon.judges.late;

import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;

/** A coprocessor with which a region of HBase opens five seconds later. */
public final class LateOpen implements RegionCoprocessor, RegionObserver {
  private static final long LATE_MS = 5_000;

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public void preOpen(ObserverContext<RegionCoprocessorEnvironment> context) throws IOException {
    try {
      Thread.sleep(LATE_MS);
    } catch (InterruptedException error) {
      throw new IOException(error);
    }
  }
}
