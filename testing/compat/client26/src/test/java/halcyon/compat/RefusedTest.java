package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.CoprocessorDescriptorBuilder;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.ThrottleType;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * What Halcyon does not have is refused at once, with an exception that tells a client not to try again, and the
 * connection goes on working. HBase has these features, so that the tests run against Halcyon only.
 */
class RefusedTest extends CompatTest {
  @BeforeEach
  void halcyonOnly() {
    assumeTrue(Target.isHalcyon(), "a test of Halcyon's limits");
  }

  private void refused(Action action) throws Exception {
    long start = System.nanoTime();
    assertFails(DoNotRetryIOException.class, action);
    long ms = (System.nanoTime() - start) / 1_000_000;
    assertTrue(ms < 10_000, "refused only after " + ms + " ms");
    // the same connection still serves
    Table table = shared();
    table.put(put(row("after"), "f:q", "v"));
    assertEquals("v", value(table, row("after"), "f:q"));
  }

  @Test
  void quotas() throws Exception {
    TableName name = shared().getName();
    refused(() -> admin.setQuota(QuotaSettingsFactory.throttleTable(name, ThrottleType.REQUEST_NUMBER, 10,
        java.util.concurrent.TimeUnit.SECONDS)));
  }

  @Test
  void replicationPeersWithAnEndpoint() throws Exception {
    refused(() -> admin.addReplicationPeer("p",
        ReplicationPeerConfig.newBuilder().setClusterKey("h:2181:/hbase").setReplicationEndpointImpl("no.such.Endpoint").build()));
  }

  @Test
  void unknownCoprocessorOnATable() throws Exception {
    refused(() -> admin.createTable(TableDescriptorBuilder.newBuilder(freshName()).setColumnFamily(family(F).build())
        .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("no.such.Coprocessor").build()).build()));
  }

  /** The sanity checks look at values; they are not what finds a class that would never run. */
  @Test
  void unknownCoprocessorWithoutSanityChecks() throws Exception {
    TableName name = dropLater(freshName());
    refused(() -> admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(family(F).build())
        .setValue("hbase.table.sanity.checks", "false")
        .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("no.such.Coprocessor").build()).build()));
    assertFalse(admin.tableExists(name));
  }

  @Test
  void unknownCoprocessorOfAnExistingTable() throws Exception {
    Table table = create(family(F).build());
    refused(() -> admin.modifyTable(TableDescriptorBuilder.newBuilder(admin.getDescriptor(table.getName()))
        .setValue("hbase.table.sanity.checks", "false")
        .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("no.such.Coprocessor").build()).build()));
    assertTrue(admin.getDescriptor(table.getName()).getCoprocessorDescriptors().isEmpty());
  }
}
