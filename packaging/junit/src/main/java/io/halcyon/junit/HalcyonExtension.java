package io.halcyon.junit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Starts one {@link HalcyonServer} for a test class and stops it afterwards. Tests and life-cycle methods may have
 * parameters of these types: {@link HalcyonServer}, {@link Configuration} (of a client, ready to use) and
 * {@link Connection} (one for the class; the extension closes it).
 *
 * <pre>{@code
 * @ExtendWith(HalcyonExtension.class)
 * class OrdersTest {
 *   @Test
 *   void aRowIsThere(Connection connection) throws IOException { ... }
 * }
 * }</pre>
 *
 * <p>With options: {@code @RegisterExtension static HalcyonExtension halcyon = new HalcyonExtension("--memory", "1g");}
 */
public final class HalcyonExtension implements BeforeAllCallback, AfterAllCallback, ParameterResolver {
  private final String[] options;
  private final List<Connection> connections = new ArrayList<>();
  private HalcyonServer server;

  public HalcyonExtension() {
    this(new String[0]);
  }

  /** Options of {@code halcyon standalone}. */
  public HalcyonExtension(String... options) {
    this.options = options.clone();
  }

  /** The server of the test class. */
  public HalcyonServer server() {
    if (server == null) {
      throw new IllegalStateException("the server starts before the first test of a class; is the field static?");
    }
    return server;
  }

  @Override
  public synchronized void beforeAll(ExtensionContext context) {
    if (server == null) {
      server = HalcyonServer.start(options);
    }
  }

  @Override
  public synchronized void afterAll(ExtensionContext context) throws IOException {
    if (context.getParent().flatMap(ExtensionContext::getTestClass).isPresent()) {
      return; // a nested class: the server is the outer one's
    }
    for (Connection connection : connections) {
      connection.close();
    }
    connections.clear();
    if (server != null) {
      server.close();
      server = null;
    }
  }

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
    Class<?> type = parameter.getParameter().getType();
    return type == HalcyonServer.class || type == Configuration.class || type == Connection.class;
  }

  @Override
  public synchronized Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
    Class<?> type = parameter.getParameter().getType();
    if (type == HalcyonServer.class) {
      return server();
    }
    return type == Configuration.class ? configuration() : connection();
  }

  private Configuration configuration() {
    Configuration configuration = HBaseConfiguration.create();
    server().clientProperties().forEach(configuration::set);
    return configuration;
  }

  private Connection connection() {
    if (connections.isEmpty()) {
      try {
        connections.add(ConnectionFactory.createConnection(configuration()));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
    return connections.get(0);
  }
}
