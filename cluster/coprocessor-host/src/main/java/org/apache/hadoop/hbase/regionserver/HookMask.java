package org.apache.hadoop.hbase.regionserver;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;

/** Which hooks an observer overrides: one bit for what the server has to know. The bits are those of coprocessors/hooks.rs. */
final class HookMask {
  static final long PRE_GET = 1, POST_GET = 1 << 1, PRE_EXISTS = 1 << 2, POST_EXISTS = 1 << 3, PRE_MUTATE = 1 << 4, PRE_BATCH = 1 << 5,
    POST_BATCH = 1 << 6, POST_MUTATE = 1 << 7, PRE_CHECK = 1 << 8, PRE_CHECK_LOCKED = 1 << 9, POST_CHECK = 1 << 10,
    PRE_SCANNER_OPEN = 1 << 11, SCANNER = 1 << 12, FLUSH = 1 << 13, STORE_FLUSH = 1 << 14, STORE_COMPACT = 1 << 15,
    STORE_SCANNER = 1 << 16, BULK_LOAD = 1 << 17;
  static final long AFTER_WRITE = POST_BATCH | POST_MUTATE;

  private static final Map<String, Long> BITS = Map.ofEntries(
    Map.entry("preGetOp", PRE_GET), Map.entry("postGetOp", POST_GET), Map.entry("preExists", PRE_EXISTS),
    Map.entry("postExists", POST_EXISTS),
    Map.entry("prePut", PRE_MUTATE), Map.entry("preDelete", PRE_MUTATE), Map.entry("preIncrement", PRE_MUTATE),
    Map.entry("preAppend", PRE_MUTATE),
    Map.entry("preBatchMutate", PRE_BATCH), Map.entry("preIncrementAfterRowLock", PRE_BATCH),
    Map.entry("preAppendAfterRowLock", PRE_BATCH),
    Map.entry("postBatchMutate", POST_BATCH),
    Map.entry("postBatchMutateIndispensably", POST_MUTATE), Map.entry("postPut", POST_MUTATE), Map.entry("postDelete", POST_MUTATE),
    Map.entry("postIncrement", POST_MUTATE), Map.entry("postAppend", POST_MUTATE),
    Map.entry("preCheckAndPut", PRE_CHECK), Map.entry("preCheckAndDelete", PRE_CHECK), Map.entry("preCheckAndMutate", PRE_CHECK),
    Map.entry("preCheckAndPutAfterRowLock", PRE_CHECK_LOCKED), Map.entry("preCheckAndDeleteAfterRowLock", PRE_CHECK_LOCKED),
    Map.entry("preCheckAndMutateAfterRowLock", PRE_CHECK_LOCKED),
    Map.entry("postCheckAndPut", POST_CHECK), Map.entry("postCheckAndDelete", POST_CHECK), Map.entry("postCheckAndMutate", POST_CHECK),
    Map.entry("preScannerOpen", PRE_SCANNER_OPEN),
    Map.entry("postScannerOpen", SCANNER), Map.entry("preScannerNext", SCANNER), Map.entry("postScannerNext", SCANNER),
    Map.entry("postScannerFilterRow", SCANNER), Map.entry("preScannerClose", SCANNER), Map.entry("postScannerClose", SCANNER),
    Map.entry("preFlush", FLUSH), Map.entry("postFlush", FLUSH), Map.entry("preFlushScannerOpen", STORE_FLUSH),
    Map.entry("preCompactScannerOpen", STORE_COMPACT), Map.entry("preCompact", STORE_COMPACT), Map.entry("postCompact", STORE_COMPACT),
    Map.entry("preStoreScannerOpen", STORE_SCANNER), Map.entry("preBulkLoadHFile", BULK_LOAD), Map.entry("postBulkLoadHFile", BULK_LOAD));

  /** Called without a bit. */
  private static final Set<String> WITHOUT_BIT = Set.of("preOpen", "postOpen", "preClose", "postClose");

  private HookMask() {
  }

  static long of(RegionObserver observer) {
    long mask = 0;
    for (Method method : observer.getClass().getMethods()) {
      Long bit = BITS.get(method.getName());
      if (bit == null || method.getDeclaringClass() == RegionObserver.class) continue;
      // Two hooks have each of these names: that of a region, and that of a store.
      boolean ofStore = bit == FLUSH && Arrays.asList(method.getParameterTypes()).contains(Store.class);
      mask |= ofStore ? STORE_FLUSH : bit;
    }
    return mask;
  }

  /** Hooks that the observer overrides and that nobody calls here. */
  static Set<String> uncalled(RegionObserver observer) {
    Set<String> known = new TreeSet<>();
    for (Method method : RegionObserver.class.getMethods()) known.add(method.getName());
    known.removeAll(BITS.keySet());
    known.removeAll(WITHOUT_BIT);
    Set<String> uncalled = new TreeSet<>();
    for (Method method : observer.getClass().getMethods()) {
      if (known.contains(method.getName()) && method.getDeclaringClass() != RegionObserver.class) uncalled.add(method.getName());
    }
    return uncalled;
  }
}
