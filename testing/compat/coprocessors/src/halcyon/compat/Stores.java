package halcyon.compat;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CoprocessorEnvironment;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.regionserver.FlushLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScanOptions;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.StoreFile;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/**
 * An observer of flushes and compactions. Cells of column "drop" go, values of column "mark" get a letter. The row "seen" has what was called
 * since it was read last. With the argument "keep" deleted cells and five versions are kept; with "wrong" a flush gives rows in the wrong order.
 */
public class Stores implements RegionCoprocessor, RegionObserver {
  private static final byte[] F = Bytes.toBytes("f");
  private final TreeMap<String, Integer> seen = new TreeMap<>();
  private boolean keeps, isWrong;

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public void start(CoprocessorEnvironment environment) {
    keeps = environment.getConfiguration().getBoolean("keep", false);
    isWrong = environment.getConfiguration().getBoolean("wrong", false);
  }

  private synchronized void note(String what) {
    seen.merge(what, 1, Integer::sum);
  }

  @Override
  public synchronized void preGetOp(ObserverContext<RegionCoprocessorEnvironment> context, Get get, List<Cell> results) {
    if (!Bytes.toString(get.getRow()).equals("seen")) return;
    results.add(new KeyValue(get.getRow(), F, Bytes.toBytes("seen"), Bytes.toBytes(seen.toString())));
    seen.clear();
    context.bypass();
  }

  private static String shown(Store store, ScanOptions options) {
    return store.getColumnFamilyName() + " of " + store.getTableName() + " versions " + options.getMaxVersions() + " min " + options.getMinVersions()
      + " ttl " + options.getTTL() + " deleted " + options.getKeepDeletedCells() + " purged " + options.getTimeToPurgeDeletes() + ' '
      + store.getColumnFamilyDescriptor().getBlocksize();
  }

  private void change(ScanOptions options) {
    if (!keeps) return;
    options.setMaxVersions(5);
    options.setKeepDeletedCells(KeepDeletedCells.TRUE);
  }

  /** Where a file is, without its name. */
  private static String shown(StoreFile file) {
    return file == null ? "no file" : "a file of " + file.getPath().getParent().getName();
  }

  @Override
  public void preFlush(ObserverContext<RegionCoprocessorEnvironment> context, FlushLifeCycleTracker tracker) {
    note("preFlush");
  }

  @Override
  public void postFlush(ObserverContext<RegionCoprocessorEnvironment> context, FlushLifeCycleTracker tracker) {
    note("postFlush");
  }

  @Override
  public void preFlushScannerOpen(ObserverContext<RegionCoprocessorEnvironment> context, Store store, ScanOptions options,
    FlushLifeCycleTracker tracker) {
    note("preFlushScannerOpen " + shown(store, options));
    change(options);
  }

  @Override
  public InternalScanner preFlush(ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner,
    FlushLifeCycleTracker tracker) {
    note("preFlush " + store.getColumnFamilyName());
    return store.getColumnFamilyName().equals("plain") ? scanner : new Changed(scanner, "f", isWrong);
  }

  @Override
  public void postFlush(ObserverContext<RegionCoprocessorEnvironment> context, Store store, StoreFile file, FlushLifeCycleTracker tracker) {
    note("postFlush " + store.getColumnFamilyName() + " " + shown(file));
  }

  private static String shown(ScanType type, CompactionRequest request) {
    return type + (request.isMajor() ? " major" : " minor") + (request.isAllFiles() ? " all" : " some");
  }

  @Override
  public void preCompactScannerOpen(ObserverContext<RegionCoprocessorEnvironment> context, Store store, ScanType type, ScanOptions options,
    CompactionLifeCycleTracker tracker, CompactionRequest request) {
    note("preCompactScannerOpen " + shown(type, request) + " " + shown(store, options));
    change(options);
  }

  @Override
  public InternalScanner preCompact(ObserverContext<RegionCoprocessorEnvironment> context, Store store, InternalScanner scanner, ScanType type,
    CompactionLifeCycleTracker tracker, CompactionRequest request) {
    note("preCompact " + store.getColumnFamilyName() + " " + shown(type, request));
    return store.getColumnFamilyName().equals("plain") ? scanner : new Changed(scanner, "c", false);
  }

  @Override
  public void postCompact(ObserverContext<RegionCoprocessorEnvironment> context, Store store, StoreFile file, CompactionLifeCycleTracker tracker,
    CompactionRequest request) {
    note("postCompact " + store.getColumnFamilyName() + " " + shown(file));
  }

  @Override
  public void preStoreScannerOpen(ObserverContext<RegionCoprocessorEnvironment> context, Store store, ScanOptions options) throws IOException {
    note("preStoreScannerOpen " + shown(store, options));
    byte[] versions = options.getScan().getAttribute("versions");
    if (versions != null) options.setMaxVersions(Bytes.toInt(versions));
    if (options.getScan().getAttribute("refused") != null) throw new org.apache.hadoop.hbase.DoNotRetryIOException("preStoreScannerOpen refuses");
  }

  @Override
  public void preBulkLoadHFile(ObserverContext<RegionCoprocessorEnvironment> context, List<Pair<byte[], String>> files) throws IOException {
    for (Pair<byte[], String> file : files) {
      note("preBulkLoadHFile " + Bytes.toString(file.getFirst()) + ' ' + new Path(file.getSecond()).getName());
      if (file.getSecond().contains("refused")) throw new org.apache.hadoop.hbase.DoNotRetryIOException("preBulkLoadHFile refuses");
    }
    files.removeIf(file -> new Path(file.getSecond()).getName().contains("left"));
  }

  @Override
  public void postBulkLoadHFile(ObserverContext<RegionCoprocessorEnvironment> context, List<Pair<byte[], String>> staged,
    Map<byte[], List<Path>> loaded) {
    loaded.forEach((family, files) -> note("postBulkLoadHFile " + Bytes.toString(family) + ' ' + files.size() + " of " + staged.size() + " in "
      + files.get(0).getParent().getName()));
  }

  private static final class Changed implements InternalScanner {
    private final InternalScanner from;
    private final String letter;
    private final boolean isWrong;

    Changed(InternalScanner from, String letter, boolean isWrong) {
      this.from = from;
      this.letter = letter;
      this.isWrong = isWrong;
    }

    @Override
    public boolean next(List<Cell> out, ScannerContext context) throws IOException {
      List<Cell> cells = new ArrayList<>();
      boolean more = from.next(cells, context);
      for (Iterator<Cell> each = cells.iterator(); each.hasNext();) {
        Cell cell = each.next();
        if (CellUtil.matchingQualifier(cell, Bytes.toBytes("drop"))) {
          continue;
        } else if (CellUtil.matchingQualifier(cell, Bytes.toBytes("mark")) && cell.getType() == Cell.Type.Put) {
          KeyValue changed = new KeyValue(CellUtil.cloneRow(cell), CellUtil.cloneFamily(cell), CellUtil.cloneQualifier(cell), cell.getTimestamp(),
            Bytes.add(CellUtil.cloneValue(cell), Bytes.toBytes(letter)));
          changed.setSequenceId(cell.getSequenceId());
          out.add(changed);
        } else {
          out.add(cell);
        }
      }
      if (isWrong && !more) out.add(new KeyValue(Bytes.toBytes("a"), F, Bytes.toBytes("a"), 1L, F));
      return more;
    }

    @Override
    public void close() throws IOException {
      from.close();
    }
  }
}
