package halcyon.differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;

/** Steps that change one table: its regions, files, families and state. */
final class TableSteps {
  private static final int TABLES_MAX = 4;
  private static final int REGIONS_MAX = 6;
  private final Random random;
  private final Model model;

  TableSteps(Random random, Model model) {
    this.random = random;
    this.model = model;
  }

  Step any() {
    Model.Shape shape = model.table(random);
    if (!shape.isEnabled && random.nextInt(3) > 0) return enable(shape);
    return switch (random.nextInt(28)) {
      case 0, 1, 2, 3, 4, 5 -> flush(shape);
      case 6, 7, 8, 9 -> major(shape);
      case 10 -> split(shape);
      case 11 -> merge(shape);
      case 12 -> model.tables.size() < TABLES_MAX ? create() : drop(shape);
      case 13 -> truncate(shape);
      case 14 -> disable(shape);
      case 15 -> enable(shape);
      case 16 -> addFamily(shape);
      case 17 -> deleteFamily(shape);
      case 18, 19 -> modifyFamily(shape);
      case 20 -> modifyTable(shape);
      case 21, 22, 23, 24 -> minor(shape);
      default -> look(shape);
    };
  }

  /** A step that changes where regions are or what they are. */
  private Step admin(String kind, String text, Step.Act act) {
    return new Step("admin: " + kind, text, (side, answer) -> {
      try {
        act.run(side, answer);
        answer.add("done");
      } finally {
        side.forgetRegions();
      }
    });
  }

  Step create() {
    boolean isOld = !model.tables.isEmpty() && random.nextInt(8) == 0;
    String namespace = model.namespaces.get(random.nextInt(model.namespaces.size()));
    TableName name = isOld ? model.table(random).name : TableName.valueOf(namespace, model.fresh("t"));
    Model.Shape shape = new Model.Shape(name);
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
    List<String> families = new ArrayList<>(List.of("a", "b", "c").subList(0, 1 + random.nextInt(3)));
    if (random.nextInt(4) == 0) families.add(Domain.text(Families.MOB));
    for (String each : families) {
      ColumnFamilyDescriptor family = Families.random(Domain.bytes(each), random);
      table.setColumnFamily(family);
      shape.families.add(family.getName());
      shape.features.addAll(Families.features(family));
    }
    for (int splits = random.nextInt(4); splits > 0; splits--) shape.splits.add(Domain.row(random));
    byte[][] splits = shape.splits.toArray(new byte[0][]);
    TableDescriptor descriptor = table.build();
    if (!isOld) model.tables.add(shape);
    return admin("create", descriptor + " splits " + keys(splits), (side, answer) -> side.admin.createTable(descriptor, splits));
  }

  private Step drop(Model.Shape shape) {
    if (shape.isEnabled) {
      if (random.nextInt(3) > 0) return disable(shape);
      return admin("delete", "delete enabled " + shape.name, (side, answer) -> side.admin.deleteTable(shape.name));
    }
    // an episode always has a table
    if (model.tables.size() < 2) return enable(shape);
    model.tables.remove(shape);
    return admin("delete", "delete " + shape.name, (side, answer) -> side.admin.deleteTable(shape.name));
  }

  private Step flush(Model.Shape shape) {
    if (random.nextInt(5) == 0) {
      byte[] family = shape.anyFamily(random);
      return admin("flush", "flush " + shape.name + " " + Domain.text(family), (side, answer) -> side.admin.flush(shape.name, family));
    }
    return admin("flush", "flush " + shape.name, (side, answer) -> side.admin.flush(shape.name));
  }

  private Step major(Model.Shape shape) {
    byte[] family = random.nextInt(4) == 0 ? shape.family(random) : null;
    return admin("compact", "major compact " + shape.name + (family == null ? "" : " " + Domain.text(family)),
        (side, answer) -> Compactions.major(side, shape.name, family));
  }

  private Step minor(Model.Shape shape) {
    return admin("minor compaction", "compact " + shape.name, (side, answer) -> Compactions.minor(side, shape.name));
  }

  private Step split(Model.Shape shape) {
    byte[] at = random.nextInt(6) == 0 ? Domain.boundary(random) : Domain.row(random);
    if (shape.isEnabled && at.length > 0 && shape.splits.size() < REGIONS_MAX) {
      shape.splits.add(at);
    }
    return admin("split", "split " + shape.name + " at " + Domain.text(at), (side, answer) -> {
      try (RegionLocator locator = side.connection.getRegionLocator(shape.name)) {
        HRegionLocation location = locator.getRegionLocation(at, true);
        side.admin.splitRegionAsync(location.getRegion().getRegionName(), at).get(60, TimeUnit.SECONDS);
      }
      side.forgetRegions();
      Compactions.withoutReferences(side, shape.name);
      Compactions.settle(side);
    });
  }

  private Step merge(Model.Shape shape) {
    int count = random.nextInt(5) == 0 ? 1 : 2 + random.nextInt(2);
    int first = random.nextInt(Math.max(1, shape.splits.size()));
    boolean isSkipping = random.nextInt(6) == 0;
    if (shape.isEnabled && !isSkipping && count > 1 && first + count <= shape.splits.size() + 1) {
      byte[][] keys = shape.splits.toArray(new byte[0][]);
      for (int i = first; i < first + count - 1; i++) shape.splits.remove(keys[i]);
    }
    return admin("merge", "merge " + shape.name + " regions " + first + " and " + (count - 1) + " more" + (isSkipping ? ", not neighbours" : ""),
        (side, answer) -> {
          List<RegionInfo> regions = side.admin.getRegions(shape.name).stream().sorted(RegionInfo.COMPARATOR).toList();
          byte[][] names = new byte[Math.max(0, Math.min(count, regions.size() - first))][];
          for (int i = 0; i < names.length; i++) names[i] = regions.get(Math.min(regions.size() - 1, first + (isSkipping ? 2 * i : i))).getRegionName();
          side.admin.mergeRegionsAsync(names, false).get(60, TimeUnit.SECONDS);
          side.forgetRegions();
          Compactions.withoutReferences(side, shape.name);
          Compactions.settle(side);
        });
  }

  private Step truncate(Model.Shape shape) {
    boolean keep = random.nextBoolean();
    if (shape.isEnabled && random.nextInt(4) > 0) return disable(shape);
    if (!shape.isEnabled) {
      if (!keep) shape.splits.clear();
      shape.isEnabled = true;
    }
    return admin("truncate", "truncate " + shape.name + (keep ? " and keep splits" : ""),
        (side, answer) -> side.admin.truncateTable(shape.name, keep));
  }

  private Step disable(Model.Shape shape) {
    shape.isEnabled = false;
    return admin("disable", "disable " + shape.name, (side, answer) -> side.admin.disableTable(shape.name));
  }

  private Step enable(Model.Shape shape) {
    shape.isEnabled = true;
    return admin("enable", "enable " + shape.name, (side, answer) -> side.admin.enableTable(shape.name));
  }

  private Step addFamily(Model.Shape shape) {
    byte[] name = Domain.bytes(List.of("a", "b", "c", "d", "m").get(random.nextInt(5)));
    ColumnFamilyDescriptor family = Families.random(name, random);
    shape.features.addAll(Families.features(family));
    if (shape.families.stream().noneMatch(each -> Bytes.equals(each, name))) shape.families.add(name);
    return admin("alter", "add to " + shape.name + " " + family, (side, answer) -> side.admin.addColumnFamily(shape.name, family));
  }

  private Step deleteFamily(Model.Shape shape) {
    byte[] name = shape.anyFamily(random);
    if (shape.families.size() > 1) shape.families.removeIf(each -> Bytes.equals(each, name));
    return admin("alter", "delete from " + shape.name + " family " + Domain.text(name),
        (side, answer) -> side.admin.deleteColumnFamily(shape.name, name));
  }

  private Step modifyFamily(Model.Shape shape) {
    ColumnFamilyDescriptor family = Families.random(shape.anyFamily(random), random);
    shape.features.addAll(Families.features(family));
    return admin("alter", "modify in " + shape.name + " " + family, (side, answer) -> side.admin.modifyColumnFamily(shape.name, family));
  }

  private Step modifyTable(Model.Shape shape) {
    int kind = random.nextInt(5);
    if (kind == 4 && shape.families.size() > 1) shape.families.removeIf(each -> Bytes.equals(each, Domain.bytes("a")));
    return admin("alter", "modify " + shape.name + " kind " + kind, (side, answer) -> {
      TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(side.admin.getDescriptor(shape.name));
      switch (kind) {
        case 0 -> table.setValue("OWNER", "me");
        case 1 -> table.setMaxFileSize(1L << 40);
        case 2 -> table.setDurability(Durability.ASYNC_WAL);
        case 3 -> table.setMemStoreFlushSize(1000);
        default -> table.removeColumnFamily(Domain.bytes("a"));
      }
      if (kind == 4 && table.build().getColumnFamilyCount() == 0) return;
      side.admin.modifyTable(table.build());
    });
  }

  private Step look(Model.Shape shape) {
    return new Step("admin: look", "descriptor, state and regions of " + shape.name, (side, answer) -> {
      answer.add(side.admin.getDescriptor(shape.name));
      answer.add(side.admin.isTableEnabled(shape.name) + " " + side.admin.isTableDisabled(shape.name) + " "
          + side.admin.isTableAvailable(shape.name) + " " + side.admin.tableExists(shape.name));
      try (RegionLocator locator = side.connection.getRegionLocator(shape.name)) {
        Pair<byte[][], byte[][]> keys = locator.getStartEndKeys();
        answer.add(keys(keys.getFirst()) + " " + keys(keys.getSecond()));
      }
      answer.add(side.admin.getRegions(shape.name).size() + " regions");
    });
  }

  static String keys(byte[][] keys) {
    return java.util.Arrays.stream(keys).map(Domain::text).toList().toString();
  }
}
