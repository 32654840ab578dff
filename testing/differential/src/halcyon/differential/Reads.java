package halcyon.differential;

import java.io.IOException;
import java.util.Random;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.io.TimeRange;

/** Random gets and scans, with every option they have. */
final class Reads {
  private final Random random;
  private final Model.Shape shape;

  Reads(Random random, Model.Shape shape) {
    this.random = random;
    this.shape = shape;
  }

  static CompareOperator operator(Random random) {
    return CompareOperator.values()[random.nextInt(6)];
  }

  static TimeRange timeRange(Random random) {
    long first = Times.bound(random);
    long second = Times.bound(random);
    return TimeRange.between(Math.min(first, second), Math.max(first, second));
  }

  Get get(byte[] row) throws IOException {
    Get get = new Get(row);
    for (int columns = columnCount(); columns > 0; columns--) {
      if (random.nextInt(3) == 0) get.addFamily(shape.anyFamily(random));
      else get.addColumn(shape.anyFamily(random), Domain.qualifier(random));
    }
    if (Domain.chance(random, 40)) get.readVersions(1 + random.nextInt(5));
    else if (Domain.chance(random, 20)) get.readAllVersions();
    if (Domain.chance(random, 20)) time(get);
    if (Domain.chance(random, 10)) familyTime(get);
    if (Domain.chance(random, 35) && shape.showsValues()) get.setFilter(new RandomFilters(random, shape).filter());
    if (Domain.chance(random, 15)) get.setMaxResultsPerColumnFamily(random.nextInt(4));
    if (Domain.chance(random, 15)) get.setRowOffsetPerColumnFamily(random.nextInt(3));
    if (Domain.chance(random, 10)) get.setCheckExistenceOnly(true);
    if (Domain.chance(random, 20)) get.setCacheBlocks(random.nextBoolean());
    if (Domain.chance(random, 5)) get.setLoadColumnFamiliesOnDemand(random.nextBoolean());
    if (Domain.chance(random, 5)) get.setIsolationLevel(IsolationLevel.READ_UNCOMMITTED);
    if (Domain.chance(random, 3)) get.setPriority(random.nextInt(100));
    return get;
  }

  Scan scan() throws IOException {
    Scan scan = new Scan();
    range(scan);
    for (int columns = columnCount(); columns > 0; columns--) {
      if (random.nextInt(3) == 0) scan.addFamily(shape.anyFamily(random));
      else scan.addColumn(shape.anyFamily(random), Domain.qualifier(random));
    }
    if (Domain.chance(random, 15)) scan.setRaw(true);
    if (Domain.chance(random, 40)) scan.readVersions(1 + random.nextInt(5));
    else if (Domain.chance(random, 25)) scan.readAllVersions();
    // HBase did not end a raw scan with a time range.
    if (Domain.chance(random, 20) && !scan.isRaw()) time(scan);
    if (Domain.chance(random, 10) && !scan.isRaw()) familyTime(scan);
    if (Domain.chance(random, 45)) filter(scan);
    if (Domain.chance(random, 20)) scan.setLimit(1 + random.nextInt(6));
    if (Domain.chance(random, 40)) scan.setCaching(1 + random.nextInt(5));
    if (Domain.chance(random, 15)) batch(scan);
    if (Domain.chance(random, 15)) scan.setMaxResultSize(sizeMax());
    if (Domain.chance(random, 15)) scan.setAllowPartialResults(true);
    if (Domain.chance(random, 10)) scan.setMaxResultsPerColumnFamily(random.nextInt(4));
    if (Domain.chance(random, 10)) scan.setRowOffsetPerColumnFamily(random.nextInt(3));
    if (Domain.chance(random, 30)) scan.setReadType(Scan.ReadType.values()[random.nextInt(3)]);
    if (Domain.chance(random, 15)) scan.setLoadColumnFamiliesOnDemand(random.nextBoolean());
    if (Domain.chance(random, 5)) scan.setOneRowLimit();
    if (Domain.chance(random, 10)) scan.setIsolationLevel(IsolationLevel.READ_UNCOMMITTED);
    if (Domain.chance(random, 20)) scan.setCacheBlocks(random.nextBoolean());
    if (Domain.chance(random, 5)) scan.setNeedCursorResult(true);
    if (Domain.chance(random, 30)) scan.setScanMetricsEnabled(true);
    if (scan.isReversed() && scan.getRowOffsetPerColumnFamily() > 0) scan.setFilter(null);
    // HBase forgets the limit if an answer that a size cuts ends with the last row.
    if (scan.getBatch() > 0 && scan.getMaxResultSize() > 0) scan.setLimit(-1);
    return scan;
  }

  private void range(Scan scan) {
    if (Domain.chance(random, 50)) scan.withStartRow(Domain.boundary(random), random.nextInt(3) > 0);
    if (Domain.chance(random, 50)) scan.withStopRow(Domain.boundary(random), random.nextInt(3) == 0);
    if (Domain.chance(random, 5)) scan.setStartStopRowForPrefixScan(Domain.prefix(random, Domain.row(random)));
    if (Domain.chance(random, 25)) scan.setReversed(true);
  }

  private void filter(Scan scan) {
    Filter filter = new RandomFilters(random, shape).withoutFailures().filter();
    if (shape.showsValues() && isComparable(scan, FilterText.of(filter))) scan.setFilter(filter);
  }

  /** docs/DIFFERENTIAL.md says what is left out and why. */
  private static boolean isComparable(Scan scan, String filter) {
    if (scan.isReversed() && filter.contains("FuzzyRow")) return false;
    // HBase does not tell the filter inside that the scan is reversed.
    if (scan.isReversed() && (filter.contains("WhileMatch") || filter.contains("Skip"))) return false;
    // With a ROWCOL bloom filter, HBase shows the filter the row where the scan starts, whether there is such a row or not.
    if (filter.contains("WhileMatch") && scan.getFamilyMap().values().stream().anyMatch(java.util.Objects::nonNull)) return false;
    // HBase takes a range without an end for the lowest, and loses the rows of others.
    if (scan.isReversed() && filter.matches("(?s).*MultiRowRange.*\\.\\.[\\])].*")) return false;
    // HBase compares a row that is shorter than the prefix with the bytes behind it, and ends the scan too early.
    if (filter.matches("(?s).*PrefixFilter \\S*\\\\x00.*")) return false;
    // HBase did not end such a scan.
    if (scan.isRaw() && filter.contains("Timestamps")) return false;
    return !filter.contains("ColumnCountGet");
  }

  private void batch(Scan scan) {
    try {
      scan.setBatch(1 + random.nextInt(3));
    } catch (RuntimeException refused) {
      // the client has no batches with some filters
      scan.setCaching(2);
    }
  }

  private long sizeMax() {
    return switch (random.nextInt(4)) {
      case 0 -> 1;
      case 1 -> 200;
      case 2 -> 1000;
      default -> 5000;
    };
  }

  private int columnCount() {
    return Domain.chance(random, 60) ? 0 : 1 + random.nextInt(3);
  }

  private void familyTime(Query query) {
    TimeRange range = timeRange(random);
    query.setColumnFamilyTimeRange(shape.family(random), range.getMin(), range.getMax());
  }

  private void time(Get get) throws IOException {
    if (random.nextInt(3) == 0) {
      get.setTimestamp(Times.any(random));
    } else {
      TimeRange range = timeRange(random);
      get.setTimeRange(range.getMin(), range.getMax());
    }
  }

  private void time(Scan scan) throws IOException {
    if (random.nextInt(3) == 0) {
      scan.setTimestamp(Times.any(random));
    } else {
      TimeRange range = timeRange(random);
      scan.setTimeRange(range.getMin(), range.getMax());
    }
  }
}
