package halcyon.differential;

import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/** Steps on single regions, and the switches that forbid splits and merges. */
final class RegionSteps {
  private static final int TABLES_MAX = 4;
  private final Random random;
  private final Model model;

  RegionSteps(Random random, Model model) {
    this.random = random;
    this.model = model;
  }

  Step any() {
    Model.Shape shape = model.table(random);
    byte[] row = Domain.row(random);
    return switch (random.nextInt(9)) {
      // not move: alone, HBase leaves the region as it is, and Halcyon closes and opens it
      case 0, 1 -> step("close and open", shape.name, row, (side, region, answer) -> {
        side.admin.unassign(region.getRegionName(), false);
        side.admin.assign(region.getRegionName());
      });
      case 2 -> step("empty", shape.name, row, (side, region, answer) -> side.admin.truncateRegion(region.getRegionName()));
      case 3 -> step("flush", shape.name, row, (side, region, answer) -> side.admin.flushRegion(region.getRegionName()));
      case 4, 5 -> step("split where it begins", shape.name, row, (side, region, answer) -> side.admin
          .splitRegionAsync(region.getRegionName(), region.getStartKey().length == 0 ? Domain.EMPTY : region.getStartKey()).get(60, TimeUnit.SECONDS));
      case 6 -> step("split behind its end", shape.name, row, (side, region, answer) -> {
        if (region.getEndKey().length > 0) side.admin.splitRegionAsync(region.getRegionName(), region.getEndKey()).get(60, TimeUnit.SECONDS);
      });
      case 7 -> switches(shape.name, row);
      default -> model.tables.size() < TABLES_MAX ? cloneSchema(shape) : switches(shape.name, row);
    };
  }

  /** What is done to a region. */
  private interface Act {
    void run(Side side, RegionInfo region, Answer answer) throws Exception;
  }

  private static Step step(String verb, TableName table, byte[] row, Act act) {
    return new Step("admin: region", verb + " the region of " + Domain.text(row) + " in " + table, (side, answer) -> {
      try {
        act.run(side, of(side, table, row), answer);
        answer.add("done");
      } finally {
        side.forgetRegions();
      }
    });
  }

  /** From the catalog, so that a disabled table has regions too. */
  private static RegionInfo of(Side side, TableName table, byte[] row) throws java.io.IOException {
    for (RegionInfo region : side.admin.getRegions(table)) if (region.containsRow(row)) return region;
    throw new java.io.IOException("no region has the row");
  }

  private static Step switches(TableName table, byte[] row) {
    return step("forbid splits and split", table, row, (side, region, answer) -> {
      answer.add(side.admin.splitSwitch(false, true) + " " + side.admin.isSplitEnabled());
      try {
        side.admin.splitRegionAsync(region.getRegionName(), Bytes.add(row, row)).get(60, TimeUnit.SECONDS);
      } catch (Exception error) {
        answer.error(error);
      } finally {
        answer.add(side.admin.splitSwitch(true, true) + " " + side.admin.isSplitEnabled());
      }
    });
  }

  private Step cloneSchema(Model.Shape shape) {
    boolean keep = random.nextBoolean();
    TableName name = TableName.valueOf(model.fresh("schema"));
    Model.Shape copy = shape.renamed(name);
    if (!keep) copy.splits.clear();
    model.tables.add(copy);
    return new Step("admin: region", "clone the schema of " + shape.name + " as " + name + (keep ? " with its splits" : ""), (side, answer) -> {
      try {
        side.admin.cloneTableSchema(shape.name, name, keep);
        answer.add("done");
      } finally {
        side.forgetRegions();
      }
    });
  }
}
