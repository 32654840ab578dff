package halcyon.compat;

import java.io.IOException;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.regionserver.FlushLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;

/** All cells of flushes and compactions go through it unchanged, for what that costs. */
public class Passing implements RegionCoprocessor, RegionObserver {
  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public InternalScanner preFlush(ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner,
    FlushLifeCycleTracker tracker) {
    return new Through(scanner);
  }

  @Override
  public InternalScanner preCompact(ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner, ScanType type,
    CompactionLifeCycleTracker tracker, CompactionRequest request) {
    return new Through(scanner);
  }

  private static final class Through implements InternalScanner {
    private final InternalScanner from;

    Through(InternalScanner from) {
      this.from = from;
    }

    @Override
    public boolean next(List<Cell> out, ScannerContext context) throws IOException {
      return from.next(out, context);
    }

    @Override
    public void close() throws IOException {
      from.close();
    }
  }
}
