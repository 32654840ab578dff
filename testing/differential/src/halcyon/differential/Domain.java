package halcyon.differential;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.hbase.util.Bytes;

/** Rows, qualifiers and values of a script: few, so that operations meet, and with the odd ones among them. */
final class Domain {
  static final byte[] EMPTY = new byte[0];
  static final byte[] UNKNOWN_FAMILY = bytes("zz");
  private static final byte[][] ROWS = {
    bytes("a"), bytes("a\0"), bytes("ab"), bytes("abc"), bytes("b"), bytes("b1"), bytes("c"), bytes("d-1"), bytes("d-2"),
    bytes("d-3"), bytes("e"), bytes("f"), {'f', (byte) 0xff}, bytes("g"), bytes("m"), bytes("n"), bytes("row-10"),
    bytes("row-11"), bytes("row-20"), {(byte) 0xff}, {(byte) 0xff, (byte) 0xff},
  };
  private static final byte[][] QUALIFIERS = {
    EMPTY, bytes("a"), bytes("ab"), bytes("abc"), bytes("b"), bytes("b1"), bytes("c"), {0}, {(byte) 0xff}, bytes("n"), bytes("n"),
  };
  private static final byte[][] VALUES = {
    EMPTY, bytes("v"), bytes("v1"), bytes("v2"), bytes("value"), bytes("VALUE"), bytes("1"), bytes("10"), Bytes.toBytes(1L),
    Bytes.toBytes(5L), Bytes.toBytes(-7L), Bytes.toBytes(Long.MAX_VALUE), Bytes.toBytes(3), {0}, {(byte) 0xff, 0x0f},
    Bytes.toBytes(new java.math.BigDecimal("1.50")), Bytes.toBytes(new java.math.BigDecimal("-3")), bytes("x".repeat(300)),
  };

  /** Longer than a block, and than the limit from which a value of a MOB family is in a file of its own. */
  private static final byte[][] LARGE_VALUES = {bytes("y".repeat(1_500)), bytes("0123456789".repeat(700)), bytes("z".repeat(20_000)), noise(3_000)};

  private Domain() {}

  /** What does not compress. */
  private static byte[] noise(int length) {
    byte[] noise = new byte[length];
    new Random(length).nextBytes(noise);
    return noise;
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static byte[] row(Random random) {
    return ROWS[random.nextInt(ROWS.length)];
  }

  /** One of the rows with counters. */
  static byte[] countedRow(Random random) {
    byte[] row = row(random);
    while (!isCounted(row)) row = row(random);
    return row;
  }

  /**
   * Whether increments and appends change the row. Its puts are not ahead of the clock then: from such a value HBase makes one that is a
   * millisecond later, and Halcyon one of the same time (docs/decisions/0003-timestamps-around-deletes.md).
   */
  static boolean isCounted(byte[] row) {
    return row.length > 0 && row[row.length - 1] % 2 != 0;
  }

  /** Also rows that are between others, and the empty one. */
  static byte[] boundary(Random random) {
    byte[] row = row(random);
    return switch (random.nextInt(8)) {
      case 0 -> EMPTY;
      case 1 -> Arrays.copyOf(row, row.length + 1);
      case 2 -> Arrays.copyOf(row, Math.max(1, row.length - 1));
      default -> row;
    };
  }

  static byte[] qualifier(Random random) {
    return QUALIFIERS[random.nextInt(QUALIFIERS.length)];
  }

  /** One that a cell of the family can have. */
  static byte[] qualifier(byte[] family, Random random) {
    byte[] qualifier = qualifier(random);
    return qualifier.length > 0 || Families.hasUnnamedColumn(family) ? qualifier : bytes("a");
  }

  static byte[] value(Random random) {
    return VALUES[random.nextInt(VALUES.length)];
  }

  /** One that a cell of the family can have: with several blocks HBase passes over markers in the unnamed column. */
  static byte[] value(byte[] family, Random random) {
    return !Families.hasUnnamedColumn(family) && chance(random, 12) ? LARGE_VALUES[random.nextInt(LARGE_VALUES.length)] : value(random);
  }

  static byte[] prefix(Random random, byte[] whole) {
    return Arrays.copyOf(whole, whole.length == 0 ? 0 : 1 + random.nextInt(whole.length));
  }

  static boolean chance(Random random, int percent) {
    return random.nextInt(100) < percent;
  }

  /** Bytes as a person reads them; long ones by length and hash. */
  static String text(byte[] bytes) {
    if (bytes == null) return "null";
    if (bytes.length > 60) return Bytes.toStringBinary(bytes, 0, 8) + "..." + bytes.length + "#" + Integer.toHexString(Arrays.hashCode(bytes));
    return Bytes.toStringBinary(bytes);
  }
}
