package halcyon.differential;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/** Random filters: each class of HBase but those that draw lots, nested to a few levels. */
final class RandomFilters {
  private static final int DEPTH_MAX = 3;
  private static final CompareOperator[] OPERATORS = CompareOperator.values();
  private final Random random;
  private final Model.Shape shape;
  private boolean mayFail = true;

  RandomFilters(Random random, Model.Shape shape) {
    this.random = random;
    this.shape = shape;
  }

  /** Without what fails on some values: a scan that fails leaves a scanner behind in HBase, for which flushes keep old versions. */
  RandomFilters withoutFailures() {
    mayFail = false;
    return this;
  }

  Filter filter() {
    try {
      if (random.nextInt(8) == 0) return FilterStrings.parsed(random, shape);
      return filter(0);
    } catch (IllegalArgumentException refused) {
      // the filter's own constructor refuses it
      return new FilterList();
    }
  }

  private Filter filter(int depth) {
    if (depth < DEPTH_MAX && random.nextInt(3) == 0) return nested(depth + 1);
    return random.nextBoolean() ? comparing() : plain();
  }

  private Filter nested(int depth) {
    return switch (random.nextInt(6)) {
      case 0 -> skip(filter(depth));
      case 1 -> new WhileMatchFilter(filter(depth));
      default -> list(depth);
    };
  }

  /** HBase's SkipFilter passes no row on, so ranges of rows inside it answer null. */
  private static Filter skip(Filter inner) {
    return hasRanges(inner) ? inner : new SkipFilter(inner);
  }

  private static boolean hasRanges(Filter filter) {
    if (filter instanceof FilterList list) return list.getFilters().stream().anyMatch(RandomFilters::hasRanges);
    if (filter instanceof SkipFilter skip) return hasRanges(skip.getFilter());
    if (filter instanceof WhileMatchFilter match) return hasRanges(match.getFilter());
    return filter instanceof MultiRowRangeFilter;
  }

  private Filter list(int depth) {
    FilterList list = new FilterList(random.nextBoolean() ? FilterList.Operator.MUST_PASS_ALL : FilterList.Operator.MUST_PASS_ONE);
    int count = random.nextInt(4);
    for (int i = 0; i < count; i++) {
      Filter filter = filter(depth);
      // A list refuses a member of the other order.
      list.addFilter(filter);
    }
    return list;
  }

  private Filter plain() {
    return switch (random.nextInt(18)) {
      case 0 -> new PrefixFilter(Domain.prefix(random, Domain.row(random)));
      case 1 -> new PageFilter(1 + random.nextInt(5));
      case 2 -> new ColumnPrefixFilter(Domain.prefix(random, Domain.qualifier(random)));
      case 3 -> new MultipleColumnPrefixFilter(prefixes());
      case 4 -> new ColumnRangeFilter(maybe(Domain.qualifier(random)), random.nextBoolean(), maybe(Domain.qualifier(random)),
          random.nextBoolean());
      case 5 -> new ColumnPaginationFilter(1 + random.nextInt(4), random.nextInt(4));
      case 6 -> new ColumnPaginationFilter(1 + random.nextInt(3), Domain.qualifier(random));
      case 7 -> new ColumnCountGetFilter(1 + random.nextInt(4));
      case 8 -> new FirstKeyOnlyFilter();
      case 9 -> new KeyOnlyFilter(random.nextBoolean());
      case 10 -> new InclusiveStopFilter(Domain.row(random));
      case 11 -> new RandomRowFilter(random.nextBoolean() ? -1f : 2f);
      case 12 -> new TimestampsFilter(timestamps(), random.nextBoolean());
      case 13 -> multiRowRange();
      case 14 -> fuzzy();
      case 15 -> new FirstKeyValueMatchingQualifiersFilter(
          new java.util.TreeSet<byte[]>(Bytes.BYTES_COMPARATOR) {{ addAll(Arrays.asList(prefixes())); }});
      case 16 -> new ColumnValueFilter(shape.family(random), Domain.qualifier(random), operator(), comparator());
      default -> new FilterList();
    };
  }

  private Filter comparing() {
    return switch (random.nextInt(7)) {
      case 0 -> new RowFilter(operator(), rowComparator());
      case 1 -> new FamilyFilter(operator(), familyComparator());
      case 2 -> new QualifierFilter(operator(), qualifierComparator());
      case 3 -> new ValueFilter(operator(), comparator());
      case 4 -> dependent();
      case 5 -> single(new SingleColumnValueFilter(shape.family(random), Domain.qualifier(random), operator(), comparator()));
      default -> single(new SingleColumnValueExcludeFilter(shape.family(random), Domain.qualifier(random), operator(), comparator()));
    };
  }

  private Filter single(SingleColumnValueFilter filter) {
    filter.setFilterIfMissing(random.nextBoolean());
    filter.setLatestVersionOnly(random.nextBoolean());
    return filter;
  }

  private Filter dependent() {
    byte[] family = shape.family(random);
    byte[] qualifier = Domain.qualifier(random);
    if (random.nextInt(3) == 0) return new DependentColumnFilter(family, qualifier, random.nextBoolean());
    return new DependentColumnFilter(family, qualifier, random.nextBoolean(), operator(), comparator());
  }

  private CompareOperator operator() {
    // NO_OP matches nothing or all by class; it is rarer than the others
    CompareOperator operator = OPERATORS[random.nextInt(OPERATORS.length)];
    return operator == CompareOperator.NO_OP && (!mayFail || random.nextInt(3) > 0) ? CompareOperator.EQUAL : operator;
  }

  private ByteArrayComparable rowComparator() {
    byte[] row = Domain.row(random);
    return switch (random.nextInt(6)) {
      case 0 -> new BinaryPrefixComparator(Domain.prefix(random, row));
      case 1 -> regex("^[a-d].*", "row-.", "\\d", "(a|b)+", ".$");
      case 2 -> new SubstringComparator(random.nextBoolean() ? "Ow" : "b");
      case 3 -> component(row);
      case 4 -> comparator();
      default -> new BinaryComparator(row);
    };
  }

  private ByteArrayComparable familyComparator() {
    return switch (random.nextInt(4)) {
      case 0 -> new BinaryPrefixComparator(shape.family(random));
      case 1 -> regex("[ab]", "a?", ".", "x", "^$");
      default -> new BinaryComparator(shape.family(random));
    };
  }

  private ByteArrayComparable qualifierComparator() {
    byte[] qualifier = Domain.qualifier(random);
    return switch (random.nextInt(6)) {
      case 0 -> new BinaryPrefixComparator(Domain.prefix(random, qualifier));
      case 1 -> regex("^a", "b?c", "^.$", "", "[^a]");
      case 2 -> new SubstringComparator("b");
      case 3 -> new NullComparator();
      default -> new BinaryComparator(qualifier);
    };
  }

  ByteArrayComparable comparator() {
    byte[] value = Domain.value(random);
    int kind = random.nextInt(10);
    if (!mayFail && (kind == 5 || kind == 6)) kind = 0;
    return switch (kind) {
      case 0, 1, 2 -> new BinaryComparator(value);
      case 3 -> new BinaryPrefixComparator(Domain.prefix(random, value));
      case 4 -> new BitComparator(value, BitComparator.BitwiseOp.values()[random.nextInt(3)]);
      case 5 -> new LongComparator(random.nextInt(12) - 6);
      case 6 -> new BigDecimalComparator(new java.math.BigDecimal(random.nextBoolean() ? "1.5" : "-3"));
      case 7 -> new NullComparator();
      case 8 -> regex("^v", "\\d$", "(?i)value", "x{5,}", "[a-z]+[0-9]*");
      default -> new SubstringComparator(random.nextBoolean() ? "ALU" : "1");
    };
  }

  /** Within each row: HBase compares with whatever is behind a cell that is shorter. */
  private ByteArrayComparable component(byte[] row) {
    return new BinaryComponentComparator(Arrays.copyOf(row, 1), 0);
  }

  /** With Java's engine only: HBase's other one searches from the offset of a cell to its length. */
  private ByteArrayComparable regex(String... patterns) {
    return new RegexStringComparator(patterns[random.nextInt(patterns.length)]);
  }

  private byte[] maybe(byte[] bytes) {
    return random.nextInt(4) == 0 ? null : bytes;
  }

  private byte[][] prefixes() {
    byte[][] prefixes = new byte[1 + random.nextInt(3)][];
    for (int i = 0; i < prefixes.length; i++) prefixes[i] = Domain.prefix(random, Domain.qualifier(random));
    return prefixes;
  }

  private List<Long> timestamps() {
    List<Long> timestamps = new ArrayList<>();
    for (int count = random.nextInt(6); count > 0; count--) timestamps.add(Times.any(random));
    return timestamps;
  }

  private Filter multiRowRange() {
    List<MultiRowRangeFilter.RowRange> ranges = new ArrayList<>();
    for (int count = 1 + random.nextInt(3); count > 0; count--) {
      byte[] first = Domain.boundary(random);
      byte[] second = Domain.boundary(random);
      if (second.length > 0 && Bytes.compareTo(first, second) > 0) {
        byte[] swapped = first;
        first = second;
        second = swapped;
      }
      // In a reversed scan HBase may show the row of a range that holds none, (a..a].
      boolean isInclusive = random.nextInt(4) > 0 | Bytes.equals(first, second);
      ranges.add(new MultiRowRangeFilter.RowRange(first, isInclusive, second, random.nextBoolean()));
    }
    return new MultiRowRangeFilter(ranges);
  }

  private Filter fuzzy() {
    List<Pair<byte[], byte[]>> keys = new ArrayList<>();
    for (int count = 1 + random.nextInt(2); count > 0; count--) {
      byte[] key = Domain.row(random).clone();
      byte[] mask = new byte[key.length];
      for (int i = 0; i < mask.length; i++) mask[i] = (byte) random.nextInt(2);
      keys.add(new Pair<>(key, mask));
    }
    return new FuzzyRowFilter(keys);
  }
}
