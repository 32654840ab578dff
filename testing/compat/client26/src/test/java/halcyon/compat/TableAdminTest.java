package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.InvalidFamilyOperationException;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotDisabledException;
import org.apache.hadoop.hbase.TableNotEnabledException;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Pair;
import org.junit.jupiter.api.Test;

/** Tables: made, described, changed, switched off and on, emptied and dropped. */
class TableAdminTest extends CompatTest {
  private static final byte[][] SPLITS = {bytes("b"), bytes("m"), bytes("t")};

  @Test
  void createWithSplitKeys() throws Exception {
    Table table = create(SPLITS, family(F).build());
    List<RegionInfo> regions = admin.getRegions(table.getName());
    assertEquals(4, regions.size());
    for (int i = 0; i < 4; i++) {
      assertArrayEquals(i == 0 ? new byte[0] : SPLITS[i - 1], regions.get(i).getStartKey());
      assertArrayEquals(i == 3 ? new byte[0] : SPLITS[i], regions.get(i).getEndKey());
    }
    assertTrue(admin.isTableEnabled(table.getName()));
    assertTrue(admin.isTableAvailable(table.getName()));

    for (String row : List.of("a", "b", "c", "m", "s", "t", "z")) {
      table.put(put(bytes(row), "f:q", row + "!"));
    }
    for (String row : List.of("z", "a", "m", "t", "b", "s", "c")) {
      assertEquals(row + "!", value(table, bytes(row), "f:q"));
    }
  }

  @Test
  void proceduresShowTheirParameters() throws Exception {
    Table table = create(SPLITS, family(F).build());
    String qualifier = Base64.getEncoder().encodeToString(table.getName().getQualifier());
    Pattern created = Pattern.compile("CreateTableProcedure\"[^]]*\"stateMessage\":\\[\\{},\\{\"userInfo\":[^]]*\"qualifier\":\"" + Pattern.quote(qualifier));
    assertTrue(created.matcher(admin.getProcedures()).find(), admin.getProcedures());
  }

  @Test
  void createWithStartEndAndCount() throws Exception {
    TableName name = dropLater(freshName());
    admin.createTable(descriptor(name, family(F).build()), bytes("10"), bytes("90"), 5);
    assertEquals(5, admin.getRegions(name).size());
  }

  @Test
  void regionLocations() throws Exception {
    Table table = create(SPLITS, family(F).build());
    try (RegionLocator locator = connection.getRegionLocator(table.getName())) {
      Pair<byte[][], byte[][]> keys = locator.getStartEndKeys();
      assertEquals(4, keys.getFirst().length);
      assertArrayEquals(bytes("m"), keys.getFirst()[2]);
      assertArrayEquals(bytes("m"), keys.getSecond()[1]);
      HRegionLocation location = locator.getRegionLocation(bytes("n"), true);
      assertArrayEquals(bytes("m"), location.getRegion().getStartKey());
      assertTrue(location.getServerName().getPort() > 0);
      assertTrue(location.getServerName().getStartcode() > 0);
      assertEquals(4, locator.getAllRegionLocations().size());
      Set<String> names = new HashSet<>();
      for (HRegionLocation each : locator.getAllRegionLocations()) {
        assertEquals(table.getName(), each.getRegion().getTable());
        names.add(each.getRegion().getEncodedName());
      }
      assertEquals(4, names.size());
    }
  }

  @Test
  void existsAndLists() throws Exception {
    Table table = create(family(F).build(), family(G).build());
    TableName name = table.getName();
    assertTrue(admin.tableExists(name));
    assertFalse(admin.tableExists(TableName.valueOf("no_such_table")));
    assertTrue(Arrays.asList(admin.listTableNames()).contains(name));
    Pattern pattern = Pattern.compile(name.getNameAsString());
    assertEquals(List.of(name), Arrays.asList(admin.listTableNames(pattern)));
    assertEquals(1, admin.listTableDescriptors(pattern).size());
    assertEquals(1, admin.listTableDescriptors(List.of(name)).size());
    assertTrue(admin.listTableDescriptors().stream().anyMatch(each -> each.getTableName().equals(name)));
    assertTrue(Arrays.asList(admin.listTableNames(Pattern.compile("hbase:.*"), true))
        .contains(TableName.META_TABLE_NAME));
    assertFalse(Arrays.asList(admin.listTableNames()).contains(TableName.META_TABLE_NAME));
  }

  @Test
  void createRefused() throws Exception {
    Table table = create(family(F).build());
    assertFails(TableExistsException.class, () -> admin.createTable(descriptor(table.getName(), family(G).build())));
    assertFails(NamespaceNotFoundException.class,
        () -> admin.createTable(descriptor(TableName.valueOf("no_such_namespace", "t"), family(F).build())));
    assertFails(DoNotRetryIOException.class,
        () -> admin.createTable(TableDescriptorBuilder.newBuilder(freshName()).build()));
    // VERSIONS below MIN_VERSIONS makes no sense
    assertFails(IllegalArgumentException.class, () -> family(F).setMinVersions(3).setMaxVersions(0).build());
    assertFails(DoNotRetryIOException.class, () -> admin.createTable(
        TableDescriptorBuilder.newBuilder(freshName()).setColumnFamily(family(F).build())
            .setMaxFileSize(1000).build()));
  }

  @Test
  void describeKeepsEveryAttribute() throws Exception {
    ColumnFamilyDescriptor f = family(F).setMaxVersions(7).setMinVersions(2).setTimeToLive(86_400)
        .setBloomFilterType(BloomType.ROWCOL).setBlocksize(8192).setInMemory(true).setBlockCacheEnabled(false)
        .setDataBlockEncoding(DataBlockEncoding.FAST_DIFF).setCompressionType(Compression.Algorithm.SNAPPY)
        .setKeepDeletedCells(KeepDeletedCells.TRUE).setScope(1).setValue("mine", "own value")
        .setConfiguration("some.setting", "17").build();
    TableName name = dropLater(freshName());
    TableDescriptor wanted = TableDescriptorBuilder.newBuilder(name).setColumnFamily(f)
        .setColumnFamily(family(G).build()).setMaxFileSize(3L << 30).setMemStoreFlushSize(64 << 20)
        .setDurability(Durability.ASYNC_WAL).setValue("OWNER_TEAM", "people").setCompactionEnabled(false).build();
    admin.createTable(wanted);
    TableDescriptor seen = admin.getDescriptor(name);
    assertEquals(f, seen.getColumnFamily(F));
    assertEquals(wanted.getColumnFamily(G), seen.getColumnFamily(G));
    assertEquals(3L << 30, seen.getMaxFileSize());
    assertEquals(64 << 20, seen.getMemStoreFlushSize());
    assertEquals(Durability.ASYNC_WAL, seen.getDurability());
    assertEquals("people", seen.getValue("OWNER_TEAM"));
    assertFalse(seen.isCompactionEnabled());
    assertFails(TableNotFoundException.class, () -> admin.getDescriptor(TableName.valueOf("no_such_table")));
  }

  @Test
  void describeMeta() throws Exception {
    TableDescriptor meta = admin.getDescriptor(TableName.META_TABLE_NAME);
    assertTrue(meta.hasColumnFamily(bytes("info")));
    assertTrue(meta.isMetaTable());
    assertEquals(1, admin.getRegions(TableName.META_TABLE_NAME).size());
  }

  @Test
  void disableAndEnable() throws Exception {
    Table table = create(SPLITS, family(F).build());
    TableName name = table.getName();
    table.put(put(bytes("n"), "f:q", "kept"));
    admin.disableTable(name);
    assertTrue(admin.isTableDisabled(name));
    assertFalse(admin.isTableEnabled(name));
    assertFails(TableNotEnabledException.class, () -> table.get(new Get(bytes("n"))));
    assertFails(TableNotEnabledException.class, () -> admin.disableTable(name));
    admin.enableTable(name);
    assertTrue(admin.isTableEnabled(name));
    assertEquals("kept", value(table, bytes("n"), "f:q"));
    assertFails(TableNotDisabledException.class, () -> admin.enableTable(name));
  }

  @Test
  void deleteTable() throws Exception {
    Table table = create(family(F).build());
    TableName name = table.getName();
    table.put(put(bytes("r"), "f:q", "gone"));
    assertFails(TableNotDisabledException.class, () -> admin.deleteTable(name));
    admin.disableTable(name);
    admin.deleteTable(name);
    assertFalse(admin.tableExists(name));
    assertFails(TableNotFoundException.class, () -> table.get(new Get(bytes("r"))));
    assertFails(TableNotFoundException.class, () -> admin.deleteTable(name));
    assertFails(TableNotFoundException.class, () -> admin.disableTable(name));
    assertFails(TableNotFoundException.class, () -> admin.enableTable(name));
    // the same name again starts empty
    admin.createTable(descriptor(name, family(F).build()));
    assertTrue(table.get(new Get(bytes("r"))).isEmpty());
  }

  @Test
  void truncate() throws Exception {
    for (boolean preserveSplits : new boolean[] {true, false}) {
      Table table = create(SPLITS, family(F).setMaxVersions(4).build());
      TableName name = table.getName();
      table.put(put(bytes("a"), "f:q", "1"));
      table.put(put(bytes("z"), "f:q", "2"));
      assertFails(TableNotDisabledException.class, () -> admin.truncateTable(name, preserveSplits));
      admin.disableTable(name);
      admin.truncateTable(name, preserveSplits);
      assertTrue(admin.isTableEnabled(name));
      assertEquals(preserveSplits ? 4 : 1, admin.getRegions(name).size());
      assertEquals(4, admin.getDescriptor(name).getColumnFamily(F).getMaxVersions());
      try (var scanner = table.getScanner(new Scan())) {
        assertFalse(scanner.iterator().hasNext());
      }
      table.put(put(bytes("a"), "f:q", "3"));
      assertEquals("3", value(table, bytes("a"), "f:q"));
    }
  }

  @Test
  void families() throws Exception {
    Table table = create(family(F).build());
    TableName name = table.getName();
    table.put(put(bytes("r"), "f:q", "1"));

    admin.addColumnFamily(name, family(G).build());
    table.put(put(bytes("r"), "g:q", "2"));
    assertEquals(List.of("f:q=1", "g:q=2"), cells(table.get(new Get(bytes("r"))), false));
    assertFails(InvalidFamilyOperationException.class, () -> admin.addColumnFamily(name, family(G).build()));

    admin.modifyColumnFamily(name, family(G).setMaxVersions(3).build());
    assertEquals(3, admin.getDescriptor(name).getColumnFamily(G).getMaxVersions());
    for (int i = 1; i <= 5; i++) {
      table.put(put(bytes("v"), "g:q", i, "v" + i));
    }
    Result versions = table.get(new Get(bytes("v")).readAllVersions());
    assertEquals(List.of("g:q@5=v5", "g:q@4=v4", "g:q@3=v3"), cells(versions, true));
    assertFails(InvalidFamilyOperationException.class,
        () -> admin.modifyColumnFamily(name, family(bytes("nope")).build()));

    admin.deleteColumnFamily(name, G);
    assertFalse(admin.getDescriptor(name).hasColumnFamily(G));
    assertEquals(List.of("f:q=1"), cells(table.get(new Get(bytes("r"))), false));
    assertFails(InvalidFamilyOperationException.class, () -> admin.deleteColumnFamily(name, G));
    assertFails(InvalidFamilyOperationException.class, () -> admin.deleteColumnFamily(name, F));

    // what the dropped family held does not come back with it
    admin.addColumnFamily(name, family(G).build());
    assertEquals(List.of("f:q=1"), cells(table.get(new Get(bytes("r"))), false));
  }

  @Test
  void modifyTable() throws Exception {
    Table table = create(SPLITS, family(F).build());
    TableName name = table.getName();
    table.put(put(bytes("n"), "f:q", "kept"));
    TableDescriptor changed = TableDescriptorBuilder.newBuilder(admin.getDescriptor(name)).setMaxFileSize(5L << 30)
        .modifyColumnFamily(family(F).setMaxVersions(9).setTimeToLive(1000).build())
        .setColumnFamily(family(G).build()).build();
    admin.modifyTable(changed);
    TableDescriptor seen = admin.getDescriptor(name);
    assertEquals(5L << 30, seen.getMaxFileSize());
    assertEquals(9, seen.getColumnFamily(F).getMaxVersions());
    assertEquals(1000, seen.getColumnFamily(F).getTimeToLive());
    assertTrue(seen.hasColumnFamily(G));
    assertEquals("kept", value(table, bytes("n"), "f:q"));
    table.put(put(bytes("n"), "g:q", "new"));
    assertEquals("new", value(table, bytes("n"), "g:q"));
    assertFails(TableNotFoundException.class,
        () -> admin.modifyTable(descriptor(TableName.valueOf("no_such_table"), family(F).build())));

    admin.disableTable(name);
    admin.modifyTable(TableDescriptorBuilder.newBuilder(seen).setMaxFileSize(6L << 30).build());
    assertTrue(admin.isTableDisabled(name));
    admin.enableTable(name);
    assertEquals(6L << 30, admin.getDescriptor(name).getMaxFileSize());
    assertEquals("kept", value(table, bytes("n"), "f:q"));
  }

  @Test
  void readOnlyTable() throws Exception {
    Table table = create(family(F).build());
    table.put(put(bytes("r"), "f:q", "before"));
    TableDescriptor before = admin.getDescriptor(table.getName());
    admin.modifyTable(TableDescriptorBuilder.newBuilder(before).setReadOnly(true).build());
    assertFails(java.io.IOException.class, () -> table.put(put(bytes("r"), "f:q", "after")));
    assertEquals("before", value(table, bytes("r"), "f:q"));
  }

  @Test
  void asyncForms() throws Exception {
    TableName name = dropLater(freshName());
    get(admin.createTableAsync(descriptor(name, family(F).build())));
    assertTrue(admin.tableExists(name));
    get(admin.disableTableAsync(name));
    assertTrue(admin.isTableDisabled(name));
    get(admin.enableTableAsync(name));
    assertTrue(admin.isTableEnabled(name));
    get(admin.disableTableAsync(name));
    get(admin.deleteTableAsync(name));
    assertFalse(admin.tableExists(name));
  }

  @Test
  void cloneSchema() throws Exception {
    Table table = create(SPLITS, family(F).setMaxVersions(6).build());
    TableName copy = dropLater(freshName());
    admin.cloneTableSchema(table.getName(), copy, true);
    assertEquals(4, admin.getRegions(copy).size());
    assertEquals(6, admin.getDescriptor(copy).getColumnFamily(F).getMaxVersions());
    assertNotNull(table(copy).getDescriptor());
  }

  @Test
  void rowsOfEqualPrefixTablesStayApart() throws Exception {
    // hbase:meta orders its rows by table name first: names that extend one another are the hard case
    TableName base = dropLater(freshName());
    TableName longer = dropLater(TableName.valueOf(base.getNameAsString() + "-x"));
    TableName dotted = dropLater(TableName.valueOf(base.getNameAsString() + ".x"));
    for (TableName each : List.of(longer, base, dotted)) {
      admin.createTable(descriptor(each, family(F).build()), new byte[][] {bytes("\u0001,"), bytes("k,k"), bytes("x")});
    }
    for (TableName each : List.of(dotted, base, longer)) {
      assertEquals(4, admin.getRegions(each).size());
      for (String row : List.of("\u0000", "\u0001,1", "k", "k,k", "k,kk", "x,", "zz")) {
        table(each).put(new Put(bytes(row)).addColumn(F, Q, bytes(each + row)));
        assertEquals(each + row, value(table(each), bytes(row), "f:q"));
      }
    }
  }
}
