package halcyon.differential;

import static halcyon.differential.Ground.F;
import static halcyon.differential.Ground.b;
import static halcyon.differential.Ground.expect;
import static halcyon.differential.Ground.expectError;

import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;

/** Tables, their states, snapshots and namespaces. */
final class AdminFacts {
  private AdminFacts() {}

  @Fact("a disabled table is not read, and has its rows when it is enabled again")
  static void disableAndEnable(Ground g) throws Exception {
    g.rows("a");
    g.side.admin.disableTable(g.name);
    expect(true, g.side.admin.isTableDisabled(g.name));
    expectError("TableNotEnabledException", () -> g.side.admin.disableTable(g.name));
    g.side.admin.enableTable(g.name);
    expectError("TableNotDisabledException", () -> g.side.admin.enableTable(g.name));
    g.side.forgetRegions();
    expect("a/q@1=a", g.all());
  }

  @Fact("only a disabled table is deleted")
  static void deleteNeedsDisabled(Ground g) throws Exception {
    expectError("TableNotDisabledException", () -> g.side.admin.deleteTable(g.name));
    expectError("TableNotFoundException", () -> g.side.admin.deleteTable(TableName.valueOf("fact-missing")));
    expectError("TableExistsException", () -> g.side.admin.createTable(g.side.admin.getDescriptor(g.name)));
  }

  @Fact(value = "a truncated table keeps its regions if asked, and no rows", splits = {"m"})
  static void truncate(Ground g) throws Exception {
    g.rows("a", "x");
    g.side.admin.disableTable(g.name);
    g.side.admin.truncateTable(g.name, true);
    g.side.forgetRegions();
    expect("", g.all());
    expect(2, g.side.admin.getRegions(g.name).size());
    g.side.admin.disableTable(g.name);
    g.side.admin.truncateTable(g.name, false);
    expect(1, g.side.admin.getRegions(g.name).size());
  }

  @Fact("a split puts rows on both sides, a merge brings them together")
  static void splitAndMerge(Ground g) throws Exception {
    g.rows("a", "m", "z");
    g.side.admin.splitRegionAsync(g.side.admin.getRegions(g.name).get(0).getRegionName(), b("m")).get(60, TimeUnit.SECONDS);
    g.side.forgetRegions();
    expect(2, g.side.admin.getRegions(g.name).size());
    expect("a m z", g.rowsOf(new Scan()));
    expect("z m a", g.rowsOf(new Scan().setReversed(true)));
    g.compact();
    Compactions.settle(g.side);
    byte[][] names = g.side.admin.getRegions(g.name).stream().map(RegionInfo::getRegionName).toArray(byte[][]::new);
    g.side.admin.mergeRegionsAsync(names, false).get(60, TimeUnit.SECONDS);
    g.side.forgetRegions();
    expect(1, g.side.admin.getRegions(g.name).size());
    expect("a m z", g.rowsOf(new Scan()));
  }

  @Fact(value = "a change of VERSIONS shows at once, and brings back what is still stored", versions = 1)
  static void moreVersions(Ground g) throws Exception {
    g.put("r", "q", 1, "old");
    g.flush();
    g.put("r", "q", 2, "new");
    expect("r/q@2=new", g.all());
    ColumnFamilyDescriptor family = g.side.admin.getDescriptor(g.name).getColumnFamily(F);
    g.side.admin.modifyColumnFamily(g.name, ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(2).build());
    g.side.forgetRegions();
    expect("r/q@2=new r/q@1=old", g.all());
  }

  @Fact("a family that is deleted takes its cells with it")
  static void deleteFamily(Ground g) throws Exception {
    g.rows("a");
    g.table.put(new Put(b("a")).addColumn(Ground.G, b("x"), 1, b("v")));
    g.side.admin.deleteColumnFamily(g.name, Ground.G);
    g.side.forgetRegions();
    expect("a/q@1=a", g.all());
    g.side.admin.addColumnFamily(g.name, ColumnFamilyDescriptorBuilder.of("g"));
    g.side.forgetRegions();
    expect("a/q@1=a", g.all());
    expectError("InvalidFamilyOperationException", () -> g.side.admin.addColumnFamily(g.name, ColumnFamilyDescriptorBuilder.of("g")));
  }

  @Fact("a snapshot is restored with the rows of its time, and cloned into another table")
  static void snapshot(Ground g) throws Exception {
    g.rows("a");
    String snapshot = "snapshot-" + g.name.getNameAsString();
    g.side.admin.snapshot(snapshot, g.name);
    try {
      g.rows("b");
      g.side.admin.disableTable(g.name);
      g.side.admin.restoreSnapshot(snapshot);
      g.side.admin.enableTable(g.name);
      g.side.forgetRegions();
      expect("a", g.rowsOf(new Scan()));
    } finally {
      g.side.admin.deleteSnapshot(snapshot);
    }
  }

  @Fact("a namespace with a table is not deleted")
  static void namespace(Ground g) throws Exception {
    TableName name = TableName.valueOf("facts", "t");
    g.side.admin.createNamespace(NamespaceDescriptor.create("facts").build());
    expectError("NamespaceExistException", () -> g.side.admin.createNamespace(NamespaceDescriptor.create("facts").build()));
    g.side.admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
    expectError("ConstraintException", () -> g.side.admin.deleteNamespace("facts"));
    g.side.admin.disableTable(name);
    g.side.admin.deleteTable(name);
    g.side.admin.deleteNamespace("facts");
    expectError("NamespaceNotFoundException", () -> g.side.admin.getNamespaceDescriptor("facts"));
  }

  @Fact("a table that asks for the impossible is refused")
  static void impossibleTables(Ground g) throws Exception {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(TableName.valueOf("fact-impossible"));
    expectError("DoNotRetryIOException", () -> g.side.admin.createTable(table.build()));
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(F);
    expectError("DoNotRetryIOException",
        () -> g.side.admin.createTable(table.setColumnFamily(family.setMaxVersions(1).setMinVersions(2).build()).build()));
    expectError("NamespaceNotFoundException", () -> g.side.admin
        .createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf("missing:t")).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build()));
  }
}
