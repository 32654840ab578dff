package halcyon.differential;

import java.util.List;
import java.util.Random;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;

/** Steps on snapshots, namespaces and lists of tables, and calls that are wrong. */
final class ClusterSteps {
  private static final int TABLES_MAX = 5;
  private static final int SNAPSHOTS_MAX = 3;
  private final Random random;
  private final Model model;

  ClusterSteps(Random random, Model model) {
    this.random = random;
    this.model = model;
  }

  Step any() {
    return switch (random.nextInt(14)) {
      case 0, 1 -> snapshot();
      case 2 -> model.tables.size() < TABLES_MAX ? cloneSnapshot() : deleteSnapshot();
      case 3, 4 -> restore();
      case 5 -> deleteSnapshot();
      case 6 -> createNamespace();
      case 7 -> modifyNamespace();
      case 8 -> deleteNamespace();
      case 9 -> namespaces();
      case 10, 11 -> lists();
      default -> wrong();
    };
  }

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

  private String snapshotName() {
    if (model.snapshots.isEmpty() || random.nextInt(8) == 0) return "missing";
    return model.snapshots.get(random.nextInt(model.snapshots.size())).name();
  }

  private Step snapshot() {
    if (model.snapshots.size() >= SNAPSHOTS_MAX) return deleteSnapshot();
    Model.Shape shape = model.table(random);
    boolean isOld = random.nextInt(8) == 0 && !model.snapshots.isEmpty();
    String name = isOld ? model.snapshots.get(random.nextInt(model.snapshots.size())).name() : model.fresh("s");
    if (!isOld) model.snapshots.add(new Model.Snapshot(name, shape.frozen()));
    return admin("snapshot", "snapshot " + name + " of " + shape.name, (side, answer) -> side.admin.snapshot(name, shape.name));
  }

  private Model.Shape shapeOf(String snapshot) {
    return model.snapshots.stream().filter(each -> each.name().equals(snapshot)).map(Model.Snapshot::shape).findAny().orElse(null);
  }

  private Step cloneSnapshot() {
    String snapshot = snapshotName();
    boolean isOld = random.nextInt(8) == 0;
    TableName name = isOld ? model.table(random).name : TableName.valueOf(model.fresh("clone"));
    Model.Shape shape = shapeOf(snapshot);
    if (!isOld && shape != null) model.tables.add(shape.renamed(name));
    return admin("snapshot", "clone " + snapshot + " as " + name, (side, answer) -> side.admin.cloneSnapshot(snapshot, name));
  }

  private Step restore() {
    String snapshot = snapshotName();
    Model.Shape shape = shapeOf(snapshot);
    Model.Shape table = shape == null ? null
        : model.tables.stream().filter(each -> each.name.equals(shape.name)).findAny().orElse(null);
    if (table != null && table.isEnabled && random.nextInt(4) > 0) {
      table.isEnabled = false;
      return admin("disable", "disable " + table.name, (side, answer) -> side.admin.disableTable(table.name));
    }
    if (table != null && !table.isEnabled) {
      table.families = new java.util.ArrayList<>(shape.families);
      table.splits.clear();
      table.splits.addAll(shape.splits);
    }
    if (table == null && shape != null && model.namespaces.contains(shape.name.getNamespaceAsString())) {
      // a restore of a table that is gone makes it again
      model.tables.add(shape.renamed(shape.name));
    }
    return admin("snapshot", "restore " + snapshot, (side, answer) -> side.admin.restoreSnapshot(snapshot));
  }

  private Step deleteSnapshot() {
    String snapshot = snapshotName();
    model.snapshots.removeIf(each -> each.name().equals(snapshot));
    return admin("snapshot", "delete snapshot " + snapshot, (side, answer) -> side.admin.deleteSnapshot(snapshot));
  }

  private Step createNamespace() {
    boolean isOld = random.nextInt(4) == 0;
    String name = isOld ? model.namespaces.get(random.nextInt(model.namespaces.size())) : model.fresh("n");
    if (!isOld) model.namespaces.add(name);
    return admin("namespace", "create namespace " + name,
        (side, answer) -> side.admin.createNamespace(NamespaceDescriptor.create(name).addConfiguration("k", "v").build()));
  }

  private String namespace() {
    return random.nextInt(5) == 0 ? "missing" : model.namespaces.get(random.nextInt(model.namespaces.size()));
  }

  private Step modifyNamespace() {
    String name = namespace();
    return admin("namespace", "modify namespace " + name,
        (side, answer) -> side.admin.modifyNamespace(NamespaceDescriptor.create(name).addConfiguration("k2", "w").build()));
  }

  private Step deleteNamespace() {
    String name = namespace();
    boolean isEmpty = model.tables.stream().noneMatch(table -> table.name.getNamespaceAsString().equals(name));
    if (isEmpty && !name.equals("default")) model.namespaces.remove(name);
    return admin("namespace", "delete namespace " + name, (side, answer) -> side.admin.deleteNamespace(name));
  }

  private Step namespaces() {
    String name = namespace();
    return new Step("admin: look", "namespaces, and " + name, (side, answer) -> {
      for (NamespaceDescriptor each : side.admin.listNamespaceDescriptors()) answer.note(each.toString());
      answer.add(List.of(side.admin.listNamespaces()));
      answer.add(List.of(side.admin.listTableNamesByNamespace(name)));
      answer.add(side.admin.getNamespaceDescriptor(name));
    });
  }

  private Step lists() {
    String pattern = List.of(".*", "t.*", "n.*:t.*", "clone.*", "none", "s.*", "default:.*").get(random.nextInt(7));
    boolean system = random.nextInt(4) == 0;
    return new Step("admin: look", "tables and snapshots like " + pattern + (system ? " with those of the system" : ""), (side, answer) -> {
      answer.add(List.of(side.admin.listTableNames(Pattern.compile(pattern), false)));
      answer.add(side.admin.listTableDescriptors(Pattern.compile(pattern), false));
      if (system) answer.add(List.of(side.admin.listTableNames(Pattern.compile(pattern), true)));
      answer.add(side.admin.listSnapshots(Pattern.compile(pattern)).stream()
          .map(each -> each.getName() + " " + each.getTableName() + " " + each.getType()).sorted().toList());
      answer.add(side.admin.listTableNamesByState(true));
      answer.add(side.admin.listTableNamesByState(false));
    });
  }

  private Step wrong() {
    TableName missing = TableName.valueOf("missing");
    TableName old = model.table(random).name;
    int kind = random.nextInt(16);
    return new Step("admin: wrong", "wrong call " + kind + " with " + old, (side, answer) -> {
      ColumnFamilyDescriptor family = ColumnFamilyDescriptorBuilder.of("a");
      TableDescriptorBuilder bad = TableDescriptorBuilder.newBuilder(TableName.valueOf("bad"));
      switch (kind) {
        case 0 -> side.admin.disableTable(missing);
        case 1 -> side.admin.enableTable(missing);
        case 2 -> side.admin.deleteTable(missing);
        case 3 -> side.admin.truncateTable(missing, true);
        case 4 -> side.admin.flush(missing);
        case 5 -> side.admin.addColumnFamily(missing, family);
        case 6 -> side.admin.createTable(bad.build());
        case 7 -> side.admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf("missing:t")).setColumnFamily(family).build());
        case 8 -> side.admin.createTable(bad.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setMinVersions(5).build()).build());
        case 9 -> side.admin.createTable(bad.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setTimeToLive(-5).build()).build());
        case 10 -> side.admin.createTable(bad.setColumnFamily(family).build(), new byte[][] {Domain.bytes("x"), Domain.bytes("x")});
        case 11 -> side.admin.snapshot("bad", missing);
        case 12 -> answer.add(side.admin.getDescriptor(missing));
        case 13 -> side.admin.createTable(bad.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setBlocksize(100).build()).build());
        case 14 -> side.admin.createTable(bad.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(2).setMinVersions(2).build()).build());
        default -> side.admin.createTable(bad.setColumnFamily(family).setRegionReplication(0).build());
      }
      answer.add("done");
    });
  }
}
