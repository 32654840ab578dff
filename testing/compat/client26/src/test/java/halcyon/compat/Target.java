package halcyon.compat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.EnumMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.junit.jupiter.api.Assumptions;

/**
 * The server under test. Addresses come from the system properties {@code compat.zk} and {@code compat.registry}
 * (host:port each); {@code compat.halcyon=true} says that it is Halcyon and not HBase. Connections are made once per
 * registry and live as long as the JVM, as they would in a program.
 */
final class Target {
  private static final Map<Registry, Connection> CONNECTIONS = new EnumMap<>(Registry.class);
  private static final Map<Registry, AsyncConnection> ASYNC_CONNECTIONS = new EnumMap<>(Registry.class);

  private Target() {}

  static boolean isHalcyon() {
    return Boolean.getBoolean("compat.halcyon");
  }

  /** The server's root directory, where {@code compat.root} names it; a test that needs it is skipped elsewhere. */
  static Path rootDirectory() {
    String directory = System.getProperty("compat.root", "");
    Assumptions.assumeFalse(directory.isEmpty(), "compat.root does not name the server's root directory");
    return Path.of(directory);
  }

  static Configuration configuration(Registry registry) {
    Configuration conf = HBaseConfiguration.create();
    switch (registry) {
      case ZOOKEEPER -> {
        String[] address = address("compat.zk").split(":");
        conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.ZKConnectionRegistry");
        conf.set("hbase.zookeeper.quorum", address[0]);
        conf.set("hbase.zookeeper.property.clientPort", address[1]);
        conf.set("hbase.masters", "127.0.0.1:1"); // never another server's default port
      }
      case RPC -> {
        conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
        conf.set("hbase.client.bootstrap.servers", address("compat.registry"));
        conf.set("hbase.zookeeper.quorum", "127.0.0.1");
        conf.set("hbase.zookeeper.property.clientPort", "1"); // nobody answers there
      }
    }
    // An error should show in seconds, not after HBase's patience of many minutes.
    conf.setInt("hbase.client.retries.number", 6);
    conf.setInt("hbase.client.pause", 50);
    conf.setInt("hbase.rpc.timeout", 20_000);
    conf.setInt("hbase.client.operation.timeout", 40_000);
    conf.setInt("hbase.client.meta.operation.timeout", 40_000);
    conf.setInt("hbase.client.sync.wait.timeout.msec", 60_000);
    return conf;
  }

  static synchronized Connection connection(Registry registry) {
    return CONNECTIONS.computeIfAbsent(registry, key -> {
      try {
        return ConnectionFactory.createConnection(configuration(key));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    });
  }

  static synchronized AsyncConnection asyncConnection(Registry registry) {
    return ASYNC_CONNECTIONS.computeIfAbsent(registry,
        key -> ConnectionFactory.createAsyncConnection(configuration(key)).join());
  }

  private static String address(String property) {
    String address = System.getProperty(property, "");
    if (!address.contains(":")) {
      throw new IllegalStateException("say where the server is: -D" + property + "=host:port");
    }
    return address;
  }
}
