package halcyon.differential;

import java.util.stream.Collectors;
import org.apache.hadoop.hbase.filter.*;

/** Filters as a person reads them, deep enough to repeat a difference by hand. */
final class FilterText {
  private FilterText() {}

  static String of(Filter filter) {
    if (filter == null) return "";
    if (filter instanceof FilterList list) {
      return list.getOperator() + list.getFilters().stream().map(FilterText::of).collect(Collectors.joining(", ", "(", ")"));
    }
    if (filter instanceof SkipFilter skip) return "Skip(" + of(skip.getFilter()) + ")";
    if (filter instanceof WhileMatchFilter match) return "WhileMatch(" + of(match.getFilter()) + ")";
    if (filter instanceof DependentColumnFilter dependent) {
      return "Dependent(" + Domain.text(dependent.getFamily()) + ":" + Domain.text(dependent.getQualifier()) + " drop="
          + dependent.getDropDependentColumn() + " " + dependent.getCompareOperator() + " " + comparator(dependent.getComparator()) + ")";
    }
    if (filter instanceof CompareFilter compare) {
      return filter.getClass().getSimpleName() + "(" + compare.getCompareOperator() + " " + comparator(compare.getComparator()) + ")";
    }
    if (filter instanceof SingleColumnValueFilter single) {
      return filter.getClass().getSimpleName() + "(" + Domain.text(single.getFamily()) + ":" + Domain.text(single.getQualifier()) + " "
          + single.getCompareOperator() + " " + comparator(single.getComparator()) + " ifMissing=" + single.getFilterIfMissing()
          + " latestOnly=" + single.getLatestVersionOnly() + ")";
    }
    if (filter instanceof ColumnValueFilter value) {
      return "ColumnValue(" + Domain.text(value.getFamily()) + ":" + Domain.text(value.getQualifier()) + " " + value.getCompareOperator() + " "
          + comparator(value.getComparator()) + ")";
    }
    if (filter instanceof TimestampsFilter stamps) {
      return "Timestamps(" + stamps.getTimestamps().stream().map(Times::text).collect(Collectors.joining(",")) + ")";
    }
    if (filter instanceof MultiRowRangeFilter ranges) {
      return "MultiRowRange(" + ranges.getRowRanges().stream().map(range -> (range.isStartRowInclusive() ? "[" : "(")
          + Domain.text(range.getStartRow()) + ".." + Domain.text(range.getStopRow()) + (range.isStopRowInclusive() ? "]" : ")"))
          .collect(Collectors.joining(",")) + ")";
    }
    return filter.toString();
  }

  private static String comparator(ByteArrayComparable comparator) {
    if (comparator == null) return "none";
    String more = "";
    if (comparator instanceof BitComparator bits) more = " " + bits.getOperator();
    byte[] value = comparator.getValue();
    return comparator.getClass().getSimpleName().replace("Comparator", "") + " " + Domain.text(value) + more;
  }
}
