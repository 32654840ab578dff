package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.client.Table;
import org.junit.jupiter.api.Test;

/** What the master says about the cluster. */
class ClusterStatusTest extends CompatTest {
  @Test
  void metrics() throws Exception {
    ClusterMetrics metrics = admin.getClusterMetrics();
    assertNotNull(metrics.getHBaseVersion());
    assertNotNull(metrics.getClusterId());
    assertNotNull(metrics.getMasterName());
    assertFalse(metrics.getLiveServerMetrics().isEmpty());
    assertTrue(metrics.getDeadServerNames().isEmpty());
    assertTrue(metrics.getRegionStatesInTransition().isEmpty());
    assertTrue(metrics.getRegionCount() >= 1);
    assertTrue(metrics.getAverageLoad() > 0);
    assertEquals(metrics.getMasterName(), admin.getMaster());
    ClusterMetrics some = admin.getClusterMetrics(EnumSet.of(Option.MASTER));
    assertEquals(metrics.getMasterName(), some.getMasterName());
  }

  @Test
  void servers() throws Exception {
    List<ServerName> servers = List.copyOf(admin.getRegionServers());
    assertFalse(servers.isEmpty());
    Table table = create(new byte[][] {bytes("m")}, family(F).build());
    table.put(put(bytes("a"), "f:q", "v"));
    int regions = 0;
    int online = 0;
    for (ServerName server : servers) {
      for (RegionMetrics region : admin.getRegionMetrics(server, table.getName())) {
        assertNotNull(region.getNameAsString());
        regions++;
      }
      online += (int) admin.getRegions(server).stream()
          .filter(region -> region.getTable().equals(table.getName())).count();
    }
    assertEquals(2, regions);
    assertEquals(2, online);
  }

  @Test
  void switches() throws Exception {
    boolean balancer = admin.balancerSwitch(false, true);
    assertFalse(admin.isBalancerEnabled());
    assertFalse(admin.balancerSwitch(balancer, true));
    boolean split = admin.splitSwitch(false, true);
    assertFalse(admin.isSplitEnabled());
    admin.splitSwitch(split, true);
    boolean merge = admin.mergeSwitch(false, true);
    assertFalse(admin.isMergeEnabled());
    admin.mergeSwitch(merge, true);
    admin.isNormalizerEnabled();
    admin.isCatalogJanitorEnabled();
    admin.isCleanerChoreEnabled();
    assertFalse(admin.isMasterInMaintenanceMode());
    assertTrue(admin.listDecommissionedRegionServers().isEmpty());
  }

  @Test
  void proceduresAndLocksAreListed() throws Exception {
    assertNotNull(admin.getProcedures());
    assertNotNull(admin.getLocks());
  }

  /** Without quotas HBase keeps none of these switches, and says so. */
  @Test
  void switchesOfWhatIsNotThere() throws Exception {
    admin.switchRpcThrottle(true);
    assertFalse(admin.isRpcThrottleEnabled());
    admin.exceedThrottleQuotaSwitch(true);
    assertFalse(admin.exceedThrottleQuotaSwitch(true));
    for (Boolean cleared : admin.clearSlowLogResponses(Set.copyOf(admin.getRegionServers()))) {
      assertFalse(cleared, "there is no slow log");
    }
  }

  /** A normalizer that is off does not run, and it is on to begin with. */
  @Test
  void normalizer() throws Exception {
    boolean before = admin.normalizerSwitch(true);
    try {
      assertTrue(admin.isNormalizerEnabled());
      assertTrue(admin.normalizerSwitch(false));
      assertFalse(admin.isNormalizerEnabled());
      assertFalse(admin.normalize());
    } finally {
      assertFalse(admin.normalizerSwitch(before));
    }
  }
}
