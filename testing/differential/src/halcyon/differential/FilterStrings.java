package halcyon.differential;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.Random;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.ParseFilter;

/** Filters in the language of the shell, as the client parses them. */
final class FilterStrings {
  private static final String[] OPERATORS = {"=", "!=", "<", "<=", ">", ">="};
  private static final String[] COMPARATORS = {
    "binary:v1", "binary:b", "binaryprefix:v", "binaryprefix:a", "regexstring:^[a-v]", "substring:1", "binary:",
  };

  private FilterStrings() {}

  static Filter parsed(Random random, Model.Shape shape) {
    String text = expression(random, shape, 0);
    try {
      return new ParseFilter().parseFilterString(text);
    } catch (CharacterCodingException | IllegalArgumentException error) {
      // a list within a list of the other direction; not a matter of the server
      return new FilterList();
    }
  }

  private static String expression(Random random, Model.Shape shape, int depth) {
    if (depth < 2 && random.nextInt(2) == 0) {
      String left = expression(random, shape, depth + 1);
      String right = expression(random, shape, depth + 1);
      return switch (random.nextInt(4)) {
        case 0 -> "SKIP (" + left + ")";
        case 1 -> "WHILE (" + left + ")";
        case 2 -> "(" + left + " AND " + right + ")";
        default -> "(" + left + " OR " + right + ")";
      };
    }
    return term(random, shape);
  }

  private static String term(Random random, Model.Shape shape) {
    String family = new String(shape.family(random));
    String operator = OPERATORS[random.nextInt(OPERATORS.length)];
    String comparator = COMPARATORS[random.nextInt(COMPARATORS.length)];
    if (comparator.startsWith("regex") || comparator.startsWith("substring")) operator = random.nextBoolean() ? "=" : "!=";
    return switch (random.nextInt(16)) {
      case 0 -> "KeyOnlyFilter ()";
      case 1 -> "FirstKeyOnlyFilter ()";
      case 2 -> "PrefixFilter ('d-')";
      case 3 -> "ColumnPrefixFilter ('a')";
      case 4 -> "MultipleColumnPrefixFilter ('ab', 'b')";
      case 5 -> "ColumnCountGetFilter (" + (1 + random.nextInt(3)) + ")";
      case 6 -> "PageFilter (" + (1 + random.nextInt(3)) + ")";
      case 7 -> "ColumnPaginationFilter (" + (1 + random.nextInt(3)) + ", " + random.nextInt(3) + ")";
      case 8 -> "InclusiveStopFilter ('d-2')";
      case 9 -> "TimestampsFilter (1, 3, 5, 7)";
      case 10 -> "RowFilter (" + operator + ", '" + comparator + "')";
      case 11 -> "QualifierFilter (" + operator + ", '" + comparator + "')";
      case 12 -> "ValueFilter (" + operator + ", '" + comparator + "')";
      case 13 -> "DependentColumnFilter ('" + family + "', 'b', " + random.nextBoolean() + ", " + operator + ", '" + comparator + "')";
      case 14 -> "SingleColumnValueFilter ('" + family + "', 'a', " + operator + ", '" + comparator + "', " + random.nextBoolean() + ", "
          + random.nextBoolean() + ")";
      default -> "ColumnRangeFilter ('a', true, 'b1', " + random.nextBoolean() + ")";
    };
  }
}
