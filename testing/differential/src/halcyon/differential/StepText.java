package halcyon.differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeMap;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.io.TimeRange;

/** Operations as a person reads them. Only what differs from the default is printed. */
final class StepText {
  private StepText() {}

  static String of(Row row) {
    if (row instanceof Get get) return of(get);
    if (row instanceof RowMutations mutations) return "RowMutations" + list(mutations.getMutations());
    if (row instanceof CheckAndMutate check) return of(check);
    return of((Mutation) row);
  }

  static String list(List<? extends Row> rows) {
    List<String> texts = new ArrayList<>();
    for (Row row : rows) texts.add(of(row));
    return texts.toString();
  }

  static String of(Mutation mutation) {
    StringBuilder text = new StringBuilder(mutation.getClass().getSimpleName()).append(' ').append(Domain.text(mutation.getRow()));
    for (List<Cell> cells : mutation.getFamilyCellMap().values()) {
      for (Cell cell : cells) text.append(' ').append(Answer.text(cell).replaceFirst("^[^/]*/", ""));
    }
    if (mutation.isEmpty()) text.append(" whole row at ").append(Times.text(mutation.getTimestamp()));
    if (mutation.getTTL() != Long.MAX_VALUE) text.append(" ttl=").append(mutation.getTTL());
    if (mutation.getDurability() != Durability.USE_DEFAULT) text.append(' ').append(mutation.getDurability());
    if (mutation instanceof Append append) {
      if (!append.isReturnResults()) text.append(" noResults");
      text.append(of(append.getTimeRange()));
    }
    if (mutation instanceof Increment increment) {
      if (!increment.isReturnResults()) text.append(" noResults");
      text.append(of(increment.getTimeRange()));
    }
    return text.toString();
  }

  static String of(CheckAndMutate check) {
    String condition = check.hasFilter() ? FilterText.of(check.getFilter())
        : Domain.text(check.getFamily()) + ":" + Domain.text(check.getQualifier()) + " " + check.getCompareOp() + " "
            + Domain.text(check.getValue());
    return "if " + Domain.text(check.getRow()) + "/" + condition + of(check.getTimeRange()) + " then " + of(check.getAction());
  }

  static String of(Get get) {
    StringBuilder text = new StringBuilder("Get ").append(Domain.text(get.getRow())).append(columns(get.getFamilyMap()));
    if (get.getMaxVersions() != 1) text.append(" versions=").append(versions(get.getMaxVersions()));
    text.append(of(get.getTimeRange())).append(familyTimes(get.getColumnFamilyTimeRange()));
    text.append(perFamily(get.getMaxResultsPerColumnFamily(), get.getRowOffsetPerColumnFamily()));
    if (get.isCheckExistenceOnly()) text.append(" existenceOnly");
    if (get.getFilter() != null) text.append(" filter=").append(FilterText.of(get.getFilter()));
    return text.toString();
  }

  static String of(Scan scan) {
    StringBuilder text = new StringBuilder("Scan ").append(scan.includeStartRow() ? '[' : '(').append(Domain.text(scan.getStartRow()))
        .append("..").append(Domain.text(scan.getStopRow())).append(scan.includeStopRow() ? ']' : ')').append(columns(scan.getFamilyMap()));
    if (scan.isReversed()) text.append(" reversed");
    if (scan.isRaw()) text.append(" raw");
    if (scan.getMaxVersions() != 1) text.append(" versions=").append(versions(scan.getMaxVersions()));
    text.append(of(scan.getTimeRange())).append(familyTimes(scan.getColumnFamilyTimeRange()));
    text.append(perFamily(scan.getMaxResultsPerColumnFamily(), scan.getRowOffsetPerColumnFamily()));
    if (scan.getLimit() > 0) text.append(" limit=").append(scan.getLimit());
    if (scan.getCaching() > 0) text.append(" caching=").append(scan.getCaching());
    if (scan.getBatch() > 0) text.append(" batch=").append(scan.getBatch());
    if (scan.getMaxResultSize() > 0) text.append(" maxResultSize=").append(scan.getMaxResultSize());
    if (scan.getAllowPartialResults()) text.append(" allowPartial");
    if (scan.getReadType() != Scan.ReadType.DEFAULT) text.append(' ').append(scan.getReadType());
    if (scan.getLoadColumnFamiliesOnDemandValue() != null) text.append(" onDemand=").append(scan.getLoadColumnFamiliesOnDemandValue());
    if (scan.isNeedCursorResult()) text.append(" cursor");
    if (scan.isScanMetricsEnabled()) text.append(" metrics");
    if (scan.getIsolationLevel() != IsolationLevel.READ_COMMITTED) text.append(" uncommitted");
    if (scan.getFilter() != null) text.append(" filter=").append(FilterText.of(scan.getFilter()));
    return text.toString();
  }

  private static String versions(int versions) {
    return versions == Integer.MAX_VALUE ? "all" : Integer.toString(versions);
  }

  private static String columns(Map<byte[], NavigableSet<byte[]>> families) {
    StringBuilder text = new StringBuilder();
    families.forEach((family, qualifiers) -> {
      if (qualifiers == null) text.append(' ').append(Domain.text(family));
      else qualifiers.forEach(qualifier -> text.append(' ').append(Domain.text(family)).append(':').append(Domain.text(qualifier)));
    });
    return text.toString();
  }

  private static String of(TimeRange range) {
    if (range == null || range.isAllTime()) return "";
    return " time=[" + Times.text(range.getMin()) + "," + Times.text(range.getMax()) + ")";
  }

  private static String familyTimes(Map<byte[], TimeRange> ranges) {
    Map<String, String> texts = new TreeMap<>();
    ranges.forEach((family, range) -> texts.put(Domain.text(family), of(range)));
    return texts.isEmpty() ? "" : " familyTimes=" + texts;
  }

  private static String perFamily(int max, int offset) {
    return (max >= 0 ? " perFamily=" + max : "") + (offset > 0 ? " offset=" + offset : "");
  }
}
