package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.client.metrics.ScanMetrics;

/** Steps that read. */
final class ReadSteps {
  private static final int RESULTS_MAX = 2000;

  private ReadSteps() {}

  static Step any(Random random, Model.Shape shape) throws IOException {
    long seed = random.nextLong();
    return switch (random.nextInt(12)) {
      case 0, 1, 2 -> get(seed, shape);
      case 3 -> gets(seed, shape);
      case 4 -> exists(seed, shape);
      case 5 -> interrupted(seed, shape);
      default -> scan(seed, shape);
    };
  }

  private static Step get(long seed, Model.Shape shape) throws IOException {
    return new Step("get", shape.name + " " + StepText.of(oneGet(seed, shape)), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        answer.add(table.get(oneGet(seed, shape)));
      }
    });
  }

  private static Get oneGet(long seed, Model.Shape shape) throws IOException {
    Random random = new Random(seed);
    return new Reads(random, shape).get(Domain.row(random));
  }

  private static List<Get> manyGets(long seed, Model.Shape shape) throws IOException {
    Random random = new Random(seed);
    List<Get> gets = new ArrayList<>();
    for (int count = 1 + random.nextInt(6); count > 0; count--) gets.add(new Reads(random, shape).get(Domain.row(random)));
    return gets;
  }

  private static Step gets(long seed, Model.Shape shape) throws IOException {
    return new Step("get list", shape.name + " " + StepText.list(manyGets(seed, shape)), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        for (Result result : table.get(manyGets(seed, shape))) answer.add(result);
      }
    });
  }

  private static Step exists(long seed, Model.Shape shape) throws IOException {
    return new Step("exists", shape.name + " " + StepText.list(manyGets(seed, shape)), (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        List<Get> gets = manyGets(seed, shape);
        if (gets.size() == 1) {
          answer.add(table.exists(gets.get(0)));
        } else {
          for (boolean exists : table.exists(gets)) answer.add(exists);
        }
      }
    });
  }

  private static Scan oneScan(long seed, Model.Shape shape) throws IOException {
    return new Reads(new Random(seed), shape).scan();
  }

  private static Step scan(long seed, Model.Shape shape) throws IOException {
    return new Step("scan", shape.name + " " + StepText.of(oneScan(seed, shape)), (side, answer) -> {
      try (Table table = side.table(shape.name); ResultScanner scanner = table.getScanner(oneScan(seed, shape))) {
        answer.answers++;
        Scan scan = oneScan(seed, shape);
        if (isCutBySize(scan)) {
          for (Result result : whole(scanner)) answer.note(result);
          return;
        }
        int results = 0;
        for (Result result = scanner.next(); result != null && results < RESULTS_MAX; result = scanner.next()) {
          if (result.isCursor()) continue; // how many there are depends on sizes
          answer.note(withoutHint(scan, result));
          results++;
        }
        answer.note(results + " results");
        metrics(scan, scanner.getScanMetrics(), answer);
      }
    });
  }

  /**
   * Where a row is cut into results depends on what a cell weighs in the server's memory. HBase also cuts one when it has read so much with
   * positioned reads that it goes over to a stream.
   */
  private static boolean isCutBySize(Scan scan) {
    return scan.getAllowPartialResults() && scan.getMaxResultSize() != 1;
  }

  /** The rows of a scan whose results may be parts of rows. */
  private static List<Result> whole(ResultScanner scanner) throws IOException {
    List<Result> rows = new ArrayList<>();
    List<Cell> cells = new ArrayList<>();
    for (Result result : scanner) {
      if (result.isCursor() || result.isEmpty()) continue;
      if (!cells.isEmpty() && !CellUtil.matchingRows(cells.get(0), result.rawCells()[0])) {
        rows.add(Result.create(cells));
        cells = new ArrayList<>();
      }
      cells.addAll(result.listCells());
    }
    if (!cells.isEmpty()) rows.add(Result.create(cells));
    return rows;
  }

  /**
   * How many rows a server has looked at depends on the files and parts of the memstore that it can leave out. So does how many regions, if a
   * filter may end the scan with a row.
   */
  private static void metrics(Scan scan, ScanMetrics metrics, Answer answer) {
    if (metrics != null && !scan.hasFilter()) answer.note("regions " + metrics.countOfRegions.get());
  }

  /** A scanner that is open while the table is written. A flush then keeps other cells for the scanner than HBase's does. */
  private static Step interrupted(long seed, Model.Shape shape) throws IOException {
    Random random = new Random(seed);
    long scanSeed = random.nextLong();
    long putSeed = random.nextLong();
    int before = 1 + random.nextInt(4);
    boolean isSecond = random.nextBoolean();
    String text = shape.name + " " + before + " results of " + StepText.of(oneScan(scanSeed, shape)) + " then "
        + (isSecond ? "another client " : "") + StepText.of(onePut(putSeed, shape));
    Step step = new Step("scan with changes", text, (side, answer) -> {
      boolean isWritten = false;
      Scan scan = interrupting(scanSeed, shape);
      try (Table table = side.table(shape.name); ResultScanner scanner = table.getScanner(scan)) {
        answer.answers++;
        for (int i = 0; i < before; i++) {
          Result result = scanner.next();
          while (result != null && result.isCursor()) result = scanner.next(); // a busy server sends them
          answer.note(withoutHint(scan, result));
        }
        isWritten = true;
        change(isSecond ? side.second() : side, shape, putSeed);
        int results = 0;
        for (Result result = scanner.next(); result != null && results < RESULTS_MAX; result = scanner.next()) {
          if (!result.isCursor()) answer.note(withoutHint(scan, result));
          results++;
        }
      } catch (IOException | RuntimeException e) {
        if (isWritten) throw e;
        answer.error(e);
        change(side, shape, putSeed); // both sides are to have it
      }
    });
    return isSecond ? step.with(Set.of(Step.SECOND_CLIENT)) : step;
  }

  private static void change(Side side, Model.Shape shape, long putSeed) throws IOException {
    try (Table table = side.table(shape.name)) {
      table.put(onePut(putSeed, shape));
    }
  }

  /** Whether a row may go on behind a part depends on cells that are there and hidden, unless their file or memstore is left out. */
  private static Result withoutHint(Scan scan, Result result) {
    boolean isHint = scan.getBatch() > 0 || scan.getAllowPartialResults();
    if (result == null || result.isEmpty() || !isHint) return result;
    return Result.create(result.rawCells());
  }

  /** Reads what is committed: HBase's other isolation level shows what is written meanwhile. */
  private static Scan interrupting(long seed, Model.Shape shape) throws IOException {
    return oneScan(seed, shape).setCaching(1).setMaxResultSize(-1).setAllowPartialResults(false)
        .setIsolationLevel(IsolationLevel.READ_COMMITTED);
  }

  private static Put onePut(long seed, Model.Shape shape) {
    Random random = new Random(seed);
    return new Mutations(random, shape, true).put(Domain.row(random));
  }

  /** Everything a table has. Two systems that agree here agree on what follows. */
  static Step everything(Model.Shape shape) {
    return new Step("state", shape.name + " every cell", (side, answer) -> {
      try (Table table = side.table(shape.name)) {
        for (boolean raw : new boolean[] {false, true}) {
          answer.add(raw ? "raw" : "visible");
          all(table, raw, answer);
        }
      }
    });
  }

  /** Every cell of a table that a scan can show, or a raw one. */
  static void all(Table table, boolean raw, Answer answer) throws IOException {
    try (ResultScanner scanner = table.getScanner(new Scan().readAllVersions().setRaw(raw).setCaching(100))) {
      for (Result result : scanner) answer.note(result);
    }
  }
}
