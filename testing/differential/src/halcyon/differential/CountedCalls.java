package halcyon.differential;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CellScannable;
import org.apache.hadoop.hbase.CellScanner;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.ipc.DelegatingHBaseRpcController;
import org.apache.hadoop.hbase.ipc.HBaseRpcController;
import org.apache.hadoop.hbase.ipc.RpcControllerFactory;

/**
 * Counts the calls of a side that fail, by the class of their error: the client repeats most of them, and an error that goes away is in no
 * answer. HBase's client makes this by itself, because {@link #configure} names it.
 */
public final class CountedCalls extends RpcControllerFactory {
  private static final String SIDE = "halcyon.differential.side";
  private static final Map<String, Map<String, AtomicLong>> SIDES = new ConcurrentHashMap<>();
  private final Map<String, AtomicLong> failed;

  /** What the client looks for. */
  public CountedCalls(Configuration conf) {
    super(conf);
    failed = of(conf.get(SIDE));
  }

  static void configure(Configuration conf, String side) {
    conf.set(SIDE, side);
    conf.set(CUSTOM_CONTROLLER_CONF_KEY, CountedCalls.class.getName());
  }

  private static Map<String, AtomicLong> of(String side) {
    return SIDES.computeIfAbsent(side, name -> new ConcurrentHashMap<>());
  }

  /** How many calls of the side have failed so far, by the class of their error. */
  static Map<String, Long> failed(String side) {
    Map<String, Long> counts = new TreeMap<>();
    of(side).forEach((error, count) -> counts.put(error, count.get()));
    return counts;
  }

  private HBaseRpcController counted(HBaseRpcController controller) {
    return new DelegatingHBaseRpcController(controller) {
      @Override
      public void setFailed(IOException error) {
        failed.computeIfAbsent(Answer.root(error).getClass().getSimpleName(), name -> new AtomicLong()).incrementAndGet();
        super.setFailed(error);
      }
    };
  }

  @Override
  public HBaseRpcController newController() {
    return counted(super.newController());
  }

  @Override
  public HBaseRpcController newController(CellScanner cells) {
    return counted(super.newController(cells));
  }

  @Override
  public HBaseRpcController newController(RegionInfo region, CellScanner cells) {
    return counted(super.newController(region, cells));
  }

  @Override
  public HBaseRpcController newController(List<CellScannable> cells) {
    return counted(super.newController(cells));
  }

  @Override
  public HBaseRpcController newController(RegionInfo region, List<CellScannable> cells) {
    return counted(super.newController(region, cells));
  }
}
