package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/** Steps that write: single mutations, lists of them, checks, and batches of all kinds of actions. */
final class MutationSteps {
  private MutationSteps() {}

  /** Makes the operation again for each side, because a client may change what it sends. */
  private interface Maker<T> {
    T make(Random random) throws IOException;
  }

  static Step any(Random random, Model.Shape shape) throws IOException {
    long seed = random.nextLong();
    return switch (random.nextInt(20)) {
      case 0, 1, 2, 3, 4 -> put(seed, shape);
      case 5, 6, 7 -> delete(seed, shape);
      case 8 -> append(seed, shape);
      case 9, 10 -> increment(seed, shape);
      case 11 -> rowMutations(seed, shape);
      case 12, 13 -> checkAndMutate(seed, shape);
      case 14 -> checks(seed, shape);
      case 15, 16 -> batch(seed, shape);
      case 17 -> puts(seed, shape);
      case 18 -> deletes(seed, shape);
      default -> incrementColumnValue(seed, shape);
    };
  }

  private static Mutations mutations(Random random, Model.Shape shape) {
    return new Mutations(random, shape, false);
  }

  private static Step put(long seed, Model.Shape shape) throws IOException {
    Maker<Put> maker = random -> mutations(random, shape).put(Domain.row(random));
    return new Step("put", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        table.put(maker.make(new Random(seed)));
        answer.add("done");
      }
    });
  }

  private static Step delete(long seed, Model.Shape shape) throws IOException {
    Maker<Delete> maker = random -> mutations(random, shape).delete(Domain.row(random));
    return new Step("delete", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        table.delete(maker.make(new Random(seed)));
        answer.add("done");
      }
    });
  }

  private static Step append(long seed, Model.Shape shape) throws IOException {
    Maker<Append> maker = random -> mutations(random, shape).append(Domain.countedRow(random));
    return new Step("append", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        answer.add(table.append(maker.make(new Random(seed))));
      }
    });
  }

  private static Step increment(long seed, Model.Shape shape) throws IOException {
    Maker<Increment> maker = random -> mutations(random, shape).increment(Domain.countedRow(random));
    return new Step("increment", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        answer.add(table.increment(maker.make(new Random(seed))));
      }
    });
  }

  private static Step incrementColumnValue(long seed, Model.Shape shape) {
    Random random = new Random(seed);
    byte[] row = Domain.countedRow(random);
    byte[] family = shape.anyFamily(random);
    long amount = random.nextInt(5) == 0 ? Long.MAX_VALUE : random.nextInt(9) - 4;
    return new Step("increment", shape.name + " incrementColumnValue " + Domain.text(row) + "/" + Domain.text(family) + ":n by " + amount,
        (side, answer) -> {
          try (Table table = side.table(shape.name)) {
            answer.add(table.incrementColumnValue(row, family, Domain.bytes("n"), amount));
          }
        });
  }

  private static Step rowMutations(long seed, Model.Shape shape) throws IOException {
    Maker<RowMutations> maker = random -> mutations(random, shape).rowMutations(Domain.row(random));
    return new Step("mutateRow", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        answer.add(table.mutateRow(maker.make(new Random(seed))));
      }
    });
  }

  private static Step checkAndMutate(long seed, Model.Shape shape) throws IOException {
    Maker<CheckAndMutate> maker = random -> mutations(random, shape).checkAndMutate(Domain.row(random));
    return new Step("checkAndMutate", shape.name + " " + StepText.of(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        answer.add(table.checkAndMutate(maker.make(new Random(seed))));
      }
    });
  }

  private static Step checks(long seed, Model.Shape shape) throws IOException {
    Maker<List<CheckAndMutate>> maker = random -> {
      List<CheckAndMutate> checks = new ArrayList<>();
      for (byte[] row : rows(random)) checks.add(new Mutations(random, shape, true).checkAndMutate(row));
      return checks;
    };
    return new Step("checkAndMutate list", shape.name + " " + StepText.list(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        for (CheckAndMutateResult result : table.checkAndMutate(maker.make(new Random(seed)))) answer.add(result);
      }
    });
  }

  private static Step puts(long seed, Model.Shape shape) throws IOException {
    Maker<List<Put>> maker = random -> {
      List<Put> puts = new ArrayList<>();
      for (int count = 1 + random.nextInt(12); count > 0; count--) puts.add(new Mutations(random, shape, true).put(Domain.row(random)));
      return puts;
    };
    return new Step("put list", shape.name + " " + StepText.list(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        table.put(maker.make(new Random(seed)));
        answer.add("done");
      }
    });
  }

  private static Step deletes(long seed, Model.Shape shape) throws IOException {
    Maker<List<Delete>> maker = random -> {
      List<Delete> deletes = new ArrayList<>();
      for (byte[] row : rows(random)) deletes.add(new Mutations(random, shape, true).delete(row));
      return deletes;
    };
    return new Step("delete list", shape.name + " " + StepText.list(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        List<Delete> deletes = maker.make(new Random(seed));
        try {
          table.delete(deletes);
        } finally {
          answer.add(deletes.size() + " not deleted");
        }
      }
    });
  }

  /**
   * Each row once: the order of actions on one row is the client's affair. One row has times of the server: whether a marker goes in a
   * compaction can depend on whether a put to another row is a millisecond younger (HStoreFile.EARLIEST_PUT_TS).
   */
  private static Step batch(long seed, Model.Shape shape) throws IOException {
    Maker<List<Row>> maker = random -> {
      List<Row> actions = new ArrayList<>();
      List<byte[]> rows = rows(random);
      byte[] timed = rows.get(random.nextInt(rows.size()));
      for (byte[] row : rows) {
        Mutations mutations = new Mutations(random, shape, row != timed);
        actions.add(switch (random.nextInt(5)) {
          case 0 -> new Reads(random, shape).get(row);
          case 1 -> mutations.rowMutations(row);
          default -> mutations.any(row);
        });
      }
      return actions;
    };
    return new Step("batch", shape.name + " " + StepText.list(maker.make(new Random(seed))), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        List<Row> actions = maker.make(new Random(seed));
        Object[] results = new Object[actions.size()];
        try {
          table.batch(actions, results);
        } catch (IOException error) {
          answer.error(error);
        }
        for (Object result : results) answer.element(result);
      }
    });
  }

  /** Different ones. */
  static List<byte[]> rows(Random random) {
    Set<String> seen = new HashSet<>();
    List<byte[]> rows = new ArrayList<>();
    for (int count = 1 + random.nextInt(6); count > 0; count--) {
      byte[] row = Domain.row(random);
      if (seen.add(Bytes.toStringBinary(row))) rows.add(row);
    }
    return rows;
  }
}
