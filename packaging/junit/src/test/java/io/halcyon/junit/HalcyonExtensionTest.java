package io.halcyon.junit;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Uses the extension as a test of an application does. */
@ExtendWith(HalcyonExtension.class)
class HalcyonExtensionTest {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final byte[] ROW = Bytes.toBytes("row");
  private static final byte[] VALUE = Bytes.toBytes("value");

  private static void write(Connection connection, String name) throws IOException {
    TableName table = TableName.valueOf(name);
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(table)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY)).build());
    }
    try (Table rows = connection.getTable(table)) {
      rows.put(new Put(ROW).addColumn(FAMILY, null, VALUE));
    }
  }

  private static byte[] read(Connection connection, String name) throws IOException {
    try (Table rows = connection.getTable(TableName.valueOf(name))) {
      return rows.get(new Get(ROW)).getValue(FAMILY, null);
    }
  }

  @Test
  void aRowIsWrittenAndRead(Connection connection) throws IOException {
    write(connection, "a");
    assertArrayEquals(VALUE, read(connection, "a"));
  }

  @Test
  void testsOfAClassShareServerAndConnection(HalcyonServer server, Connection one, Connection other) {
    assertSame(one, other);
    assertTrue(server.log().contains("ready"), server.log());
  }

  @Nested
  class Inner {
    @Test
    void aNestedClassHasTheSameServer(HalcyonServer server, Connection connection) {
      assertTrue(Files.isDirectory(server.dataDirectory()));
      assertFalse(connection.isClosed());
    }
  }

  @Test
  void acknowledgedRowsSurviveACrash() throws IOException {
    Path data;
    try (HalcyonServer server = HalcyonServer.start("--memory", "300m")) {
      data = server.dataDirectory();
      try (Connection connection = connect(server)) {
        write(connection, "b");
      }
      server.kill();
      server.restart();
      try (Connection connection = connect(server)) {
        assertArrayEquals(VALUE, read(connection, "b"));
      }
    }
    assertFalse(Files.exists(data), "close deletes the data");
  }

  @Test
  void anOptionThatTheServerRefusesIsShown() {
    IllegalStateException e =
        assertThrows(IllegalStateException.class, () -> HalcyonServer.start("--no-such-option"));
    assertTrue(e.getMessage().contains("--no-such-option"), e.getMessage());
  }

  @Test
  void aMissingProgramIsNamed() {
    String before = System.setProperty("halcyon.binary", "/no/such/halcyon");
    try {
      IllegalStateException e = assertThrows(IllegalStateException.class, HalcyonServer::start);
      assertEquals("cannot start /no/such/halcyon: set the system property halcyon.binary or the environment variable"
          + " HALCYON to the program", e.getMessage());
    } finally {
      if (before == null) {
        System.clearProperty("halcyon.binary");
      } else {
        System.setProperty("halcyon.binary", before);
      }
    }
  }

  private static Connection connect(HalcyonServer server) throws IOException {
    Configuration configuration = new Configuration();
    server.clientProperties().forEach(configuration::set);
    return ConnectionFactory.createConnection(configuration);
  }
}
