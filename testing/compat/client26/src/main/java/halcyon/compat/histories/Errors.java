package halcyon.compat.histories;

import java.util.Set;
import org.apache.hadoop.hbase.client.RetriesExhaustedException;

/** What an error says about a write. */
final class Errors {
  /** Servers send these before they write anything. */
  private static final Set<String> BEFORE_WRITING = Set.of("NotServingRegionException", "RegionMovedException",
      "RegionOpeningException", "RegionTooBusyException", "CallQueueTooBigException", "CallDroppedException",
      "ServerNotRunningYetException", "NoSuchColumnFamilyException", "FailedSanityCheckException",
      "TableNotFoundException", "TableNotEnabledException");

  private Errors() {}

  /** Only the answer of a first attempt is certain; {@code isFirst} says that there was no other. */
  static String result(Throwable error, boolean isFirst) {
    Throwable answer = error;
    while (answer instanceof RetriesExhaustedException && answer.getCause() != null) {
      answer = answer.getCause();
    }
    boolean isBefore = BEFORE_WRITING.contains(answer.getClass().getSimpleName());
    return isFirst && isBefore ? HistoryFile.REFUSED : HistoryFile.UNKNOWN;
  }
}
