package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.NamespaceExistException;
import org.apache.hadoop.hbase.NamespaceNotFoundException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Table;
import org.junit.jupiter.api.Test;

/** Namespaces: made, changed, listed, and dropped only when empty. */
class NamespaceTest extends CompatTest {
  private List<String> namespaces() throws Exception {
    return Arrays.stream(admin.listNamespaceDescriptors()).map(NamespaceDescriptor::getName).toList();
  }

  @Test
  void life() throws Exception {
    String name = "ns_" + registry.name().toLowerCase() + Long.toString(System.nanoTime(), 36);
    admin.createNamespace(NamespaceDescriptor.create(name).addConfiguration("k", "v").build());
    assertTrue(namespaces().containsAll(List.of(name, "default", "hbase")));
    assertTrue(Arrays.asList(admin.listNamespaces()).contains(name));
    assertEquals("v", admin.getNamespaceDescriptor(name).getConfigurationValue("k"));
    assertFails(NamespaceExistException.class,
        () -> admin.createNamespace(NamespaceDescriptor.create(name).build()));

    admin.modifyNamespace(NamespaceDescriptor.create(name).addConfiguration("k", "w").build());
    assertEquals("w", admin.getNamespaceDescriptor(name).getConfigurationValue("k"));

    TableName tableName = TableName.valueOf(name, "t");
    admin.createTable(descriptor(tableName, family(F).build()));
    Table table = table(tableName);
    table.put(put(bytes("r"), "f:q", "v"));
    assertEquals("v", value(table, bytes("r"), "f:q"));
    assertEquals(List.of(tableName), Arrays.asList(admin.listTableNamesByNamespace(name)));
    assertEquals(1, admin.listTableDescriptorsByNamespace(bytes(name)).size());
    // a default table of the same qualifier is another table
    assertFalse(admin.tableExists(TableName.valueOf("t")));

    // a ConstraintException on the server; its class is not on a client's class path
    assertFails(DoNotRetryIOException.class, () -> admin.deleteNamespace(name));
    admin.disableTable(tableName);
    admin.deleteTable(tableName);
    admin.deleteNamespace(name);
    assertFalse(namespaces().contains(name));
    assertFails(NamespaceNotFoundException.class, () -> admin.getNamespaceDescriptor(name));
    assertFails(NamespaceNotFoundException.class, () -> admin.deleteNamespace(name));
    assertFails(NamespaceNotFoundException.class,
        () -> admin.modifyNamespace(NamespaceDescriptor.create(name).build()));
  }

  @Test
  void reservedOnesStay() throws Exception {
    for (String name : List.of("default", "hbase")) {
      assertFails(DoNotRetryIOException.class, () -> admin.deleteNamespace(name));
    }
    assertTrue(namespaces().containsAll(List.of("default", "hbase")));
  }
}
