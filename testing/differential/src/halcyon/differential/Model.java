package halcyon.differential;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.util.Bytes;

/** What the generator believes to be there. It decides which steps make sense; it is never compared with anything. */
final class Model {
  /** One table. */
  static final class Shape {
    final TableName name;
    List<byte[]> families = new ArrayList<>();
    TreeSet<byte[]> splits = new TreeSet<>(Bytes.BYTES_COMPARATOR);
    /** What its families have, or had. The report counts steps by it. */
    TreeSet<String> features = new TreeSet<>();
    boolean isEnabled = true;
    /** Whether each mutation is in the WAL when it is acknowledged, whatever the table says. */
    boolean isDurable;

    Shape(TableName name) {
      this.name = name;
    }

    /** A copy that later steps do not change. */
    Shape frozen() {
      Shape copy = new Shape(name);
      copy.families = new ArrayList<>(families);
      copy.splits = new TreeSet<>(splits);
      copy.isEnabled = isEnabled;
      copy.isDurable = isDurable;
      copy.features = new TreeSet<>(features);
      return copy;
    }

    Shape renamed(TableName other) {
      Shape copy = new Shape(other);
      copy.families = new ArrayList<>(families);
      copy.splits = new TreeSet<>(splits);
      copy.features = new TreeSet<>(features);
      return copy;
    }

    /** Whether filters see values. Those of HBase see references to values in MOB files, and Halcyon's the values (docs/COMPATIBILITY.md). */
    boolean showsValues() {
      return !features.contains(Families.MOB_FAMILY);
    }

    byte[] family(Random random) {
      return families.isEmpty() ? Domain.bytes("a") : families.get(random.nextInt(families.size()));
    }

    /** Now and then one that the table does not have. */
    byte[] anyFamily(Random random) {
      return random.nextInt(150) == 0 ? Domain.UNKNOWN_FAMILY : family(random);
    }
  }

  /** A snapshot and the shape its table had. */
  record Snapshot(String name, Shape shape) {}

  final List<Shape> tables = new ArrayList<>();
  final List<Snapshot> snapshots = new ArrayList<>();
  final List<String> namespaces = new ArrayList<>(List.of("default"));
  private int names;

  Shape table(Random random) {
    return tables.get(random.nextInt(tables.size()));
  }

  /** One that is enabled, if there is one. */
  Shape enabled(Random random) {
    List<Shape> enabled = tables.stream().filter(table -> table.isEnabled).toList();
    return enabled.isEmpty() ? table(random) : enabled.get(random.nextInt(enabled.size()));
  }

  String fresh(String prefix) {
    return prefix + ++names;
  }
}
