package halcyon.differential;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.ExtendedCellBuilderFactory;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Random mutations. With {@code ownTimes} no timestamp is the server's: two that the server sets within a millisecond
 * hide each other, and whether they do depends on the clock.
 */
final class Mutations {
  /** HBase's own types are below this one. */
  private static final byte OWN_TAG = 70;
  private final Random random;
  private final Model.Shape shape;
  private final boolean ownTimes;
  /** HBase writes files without tags from memstores with in-memory flushes. A time to live is one. */
  private final boolean keepsTags;

  Mutations(Random random, Model.Shape shape, boolean ownTimes) {
    this.random = random;
    this.shape = shape;
    this.ownTimes = ownTimes;
    keepsTags = !shape.features.contains(Families.IN_MEMORY_FLUSHES);
  }

  Mutation any(byte[] row) throws IOException {
    return random.nextInt(7) < 5 || !mayCount(row) ? putOrDelete(row) : counting(row);
  }

  private boolean mayCount(byte[] row) {
    return !ownTimes && Domain.isCounted(row);
  }

  private Mutation putOrDelete(byte[] row) {
    return random.nextInt(5) < 3 ? put(row) : delete(row);
  }

  private Mutation counting(byte[] row) throws IOException {
    return random.nextBoolean() ? append(row) : increment(row);
  }

  Put put(byte[] row) {
    Put put = new Put(row);
    for (int cells = 1 + random.nextInt(4); cells > 0; cells--) {
      byte[] family = shape.anyFamily(random);
      byte[] qualifier = Domain.qualifier(family, random);
      byte[] value = Domain.chance(random, 40) ? Bytes.toBytes((long) random.nextInt(9)) : Domain.value(family, random);
      long timestamp = isServerTime() ? HConstants.LATEST_TIMESTAMP : Domain.isCounted(row) ? Times.past(random) : Times.any(random);
      if (keepsTags && Domain.chance(random, 10)) add(put, tagged(row, family, qualifier, timestamp, value));
      else put.addColumn(family, qualifier, timestamp, value);
    }
    if (keepsTags && Domain.chance(random, 12)) put.setTTL(timeToLive());
    return attributes(put);
  }

  private static void add(Put put, Cell cell) {
    try {
      put.add(cell);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A cell with a tag of the client's own. HBase keeps tags whose types it does not know. */
  private Cell tagged(byte[] row, byte[] family, byte[] qualifier, long timestamp, byte[] value) {
    List<Tag> tags = new ArrayList<>();
    for (int count = 1 + random.nextInt(2); count > 0; count--) {
      tags.add(new ArrayBackedTag((byte) (OWN_TAG + random.nextInt(2)), Domain.bytes("tag" + random.nextInt(3))));
    }
    return ExtendedCellBuilderFactory.create(CellBuilderType.DEEP_COPY).setRow(row).setFamily(family).setQualifier(qualifier)
        .setTimestamp(timestamp).setType(Cell.Type.Put).setValue(value).setTags(tags).build();
  }

  /** Of all kinds: a version, the latest one, a column, a family, the versions of a family at a time, a row. */
  Delete delete(byte[] row) {
    Delete delete = isServerTime() || Domain.chance(random, 50) ? new Delete(row) : new Delete(row, Times.any(random));
    int parts = random.nextInt(10) == 0 ? 0 : 1 + random.nextInt(2);
    for (; parts > 0; parts--) {
      byte[] family = shape.anyFamily(random);
      byte[] qualifier = Domain.qualifier(family, random);
      boolean serverTime = isServerTime();
      switch (random.nextInt(8)) {
        case 0, 1 -> delete.addColumn(family, qualifier, Times.any(random));
        case 2 -> {
          // the latest version has a timestamp that is read, not the clock's
          delete.addColumn(family, qualifier);
        }
        case 3, 4 -> {
          if (serverTime) delete.addColumns(family, qualifier);
          else delete.addColumns(family, qualifier, Times.any(random));
        }
        case 5 -> {
          if (serverTime) delete.addFamily(family);
          else delete.addFamily(family, Times.any(random));
        }
        default -> delete.addFamilyVersion(family, Times.any(random));
      }
    }
    if (parts == 0 && delete.isEmpty() && ownTimes) delete.setTimestamp(Times.any(random));
    return attributes(delete);
  }

  Append append(byte[] row) throws IOException {
    Append append = new Append(row);
    for (int cells = 1 + random.nextInt(keepsTags ? 2 : 1); cells > 0; cells--) {
      byte[] family = shape.anyFamily(random);
      append.addColumn(family, Domain.qualifier(family, random), Domain.value(family, random));
    }
    if (Domain.chance(random, 25)) append.setReturnResults(false);
    if (Domain.chance(random, 15)) append.setTimeRange(0, 1 + Times.any(random));
    if (keepsTags && Domain.chance(random, 10)) append.setTTL(timeToLive());
    return attributes(append);
  }

  Increment increment(byte[] row) throws IOException {
    Increment increment = new Increment(row);
    // Of two values of one column with in-memory flushes HBase writes the first one.
    for (int cells = 1 + random.nextInt(keepsTags ? 2 : 1); cells > 0; cells--) {
      byte[] family = shape.anyFamily(random);
      byte[] qualifier = Domain.chance(random, 70) ? Domain.bytes("n") : Domain.qualifier(family, random);
      increment.addColumn(family, qualifier, random.nextInt(7) - 3);
    }
    if (Domain.chance(random, 25)) increment.setReturnResults(false);
    if (Domain.chance(random, 15)) increment.setTimeRange(0, 1 + Times.any(random));
    if (keepsTags && Domain.chance(random, 10)) increment.setTTL(timeToLive());
    return attributes(increment);
  }

  RowMutations rowMutations(byte[] row) throws IOException {
    RowMutations mutations = new RowMutations(row);
    for (int count = 1 + random.nextInt(3); count > 0; count--) mutations.add(any(row));
    return mutations;
  }

  /** A condition and what happens if it holds. */
  CheckAndMutate checkAndMutate(byte[] row) throws IOException {
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row);
    if (Domain.chance(random, 35) && shape.showsValues()) {
      builder.ifMatches(new RandomFilters(random, shape).filter());
    } else {
      byte[] family = shape.anyFamily(random);
      byte[] qualifier = Domain.qualifier(family, random);
      switch (random.nextInt(4)) {
        case 0 -> builder.ifNotExists(family, qualifier);
        case 1 -> builder.ifEquals(family, qualifier, Domain.value(random));
        default -> builder.ifMatches(family, qualifier, Reads.operator(random), Domain.value(random));
      }
    }
    if (Domain.chance(random, 25)) builder.timeRange(Reads.timeRange(random));
    return switch (random.nextInt(mayCount(row) ? 7 : 5)) {
      case 0, 1 -> builder.build(put(row));
      case 2 -> builder.build(delete(row));
      case 3, 4 -> builder.build(conditional(row));
      case 5 -> builder.build(append(row));
      default -> builder.build(increment(row));
    };
  }

  /**
   * What a condition guards. HBase asks for the time twice, first for puts and then for increments and appends
   * (HRegion.checkAndMutateInternal), so both only come together if the puts have times of their own.
   */
  private RowMutations conditional(byte[] row) throws IOException {
    boolean counts = mayCount(row) && random.nextBoolean();
    Mutations written = new Mutations(random, shape, ownTimes || counts);
    RowMutations mutations = new RowMutations(row);
    for (int count = 1 + random.nextInt(3); count > 0; count--) {
      mutations.add(counts && random.nextInt(3) == 0 ? counting(row) : written.putOrDelete(row));
    }
    return mutations;
  }

  private boolean isServerTime() {
    return !ownTimes && random.nextInt(6) == 0;
  }

  /** Over before the next step, or at a time that no run comes near. */
  private long timeToLive() {
    return switch (random.nextInt(5)) {
      case 0 -> 1;
      case 1 -> 6 * 3_600_000L;
      case 2 -> 30 * Times.DAY;
      case 3 -> Long.MAX_VALUE;
      default -> 60 * Times.DAY;
    };
  }

  private <M extends Mutation> M attributes(M mutation) {
    if (shape.isDurable) mutation.setDurability(Durability.SYNC_WAL);
    else if (Domain.chance(random, 20)) mutation.setDurability(Durability.values()[random.nextInt(Durability.values().length)]);
    if (Domain.chance(random, 5)) mutation.setAttribute("note", Domain.bytes("ignored"));
    if (Domain.chance(random, 5)) mutation.setId("id");
    if (Domain.chance(random, 3)) mutation.setPriority(random.nextInt(200));
    return mutation;
  }
}
