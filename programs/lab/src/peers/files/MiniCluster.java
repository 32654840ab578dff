// MiniCluster DIRECTORY ZOOKEEPER_PORT NATIVE_DIRECTORY|none TSERVER_HEAP_MB SITE_PROPERTIES CLIENT_PROPERTIES
//
// An Accumulo mini cluster with one tablet server. Says "ready" when a first mutation was acknowledged, and runs until it
// is told to end.

import java.io.File;
import java.io.Reader;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.accumulo.core.client.Accumulo;
import org.apache.accumulo.core.client.AccumuloClient;
import org.apache.accumulo.core.client.BatchWriter;
import org.apache.accumulo.core.data.Mutation;
import org.apache.accumulo.minicluster.MemoryUnit;
import org.apache.accumulo.minicluster.MiniAccumuloCluster;
import org.apache.accumulo.minicluster.MiniAccumuloConfig;
import org.apache.accumulo.minicluster.ServerType;

public class MiniCluster {
  public static void main(String[] arguments) throws Exception {
    var directory = new File(arguments[0]);
    var config = new MiniAccumuloConfig(directory, "lab");
    config.setInstanceName("lab");
    config.setZooKeeperPort(Integer.parseInt(arguments[1]));
    config.setZooKeeperStartupTime(60_000);
    config.setNumTservers(1);
    config.setMemory(ServerType.TABLET_SERVER, Long.parseLong(arguments[3]), MemoryUnit.MEGABYTE);
    if (!arguments[2].equals("none")) {
      config.setNativeLibPaths(arguments[2]);
    }
    config.setSiteConfig(read(Path.of(arguments[4])));
    var cluster = new MiniAccumuloCluster(config);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(cluster)));
    cluster.start();
    Properties client = cluster.getClientProperties();
    firstMutation(client);
    try (Writer file = Files.newBufferedWriter(Path.of(arguments[5]))) {
      client.store(file, null);
    }
    System.out.println("ready");
    System.out.flush();
    Thread.sleep(Long.MAX_VALUE);
  }

  private static Map<String, String> read(Path file) throws Exception {
    var properties = new Properties();
    try (Reader reader = Files.newBufferedReader(file)) {
      properties.load(reader);
    }
    var map = new TreeMap<String, String>();
    properties.stringPropertyNames().forEach(name -> map.put(name, properties.getProperty(name)));
    return map;
  }

  private static void firstMutation(Properties properties) throws Exception {
    try (AccumuloClient client = Accumulo.newClient().from(properties).build()) {
      client.tableOperations().create("LabReady");
      try (BatchWriter writer = client.createBatchWriter("LabReady")) {
        var mutation = new Mutation("row");
        mutation.put("f", "q", "value");
        writer.addMutation(mutation);
      }
    }
  }

  private static void stop(MiniAccumuloCluster cluster) {
    try {
      cluster.stop();
    } catch (Exception e) {
      e.printStackTrace();
    }
  }
}
