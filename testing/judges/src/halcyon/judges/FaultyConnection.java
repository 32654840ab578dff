package halcyon.judges;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableBuilder;
import org.apache.hadoop.hbase.security.User;

/**
 * HBase's connection, and a {@link Fault} in the calls of its tables. {@code conf/hbase-site.xml} names it, so a program with that
 * directory on its class path gets it without knowing.
 */
public final class FaultyConnection implements Connection {
  private static final String IMPLEMENTATION = "hbase.client.connection.impl";

  private static final AtomicInteger CONNECTIONS = new AtomicInteger();

  private final Connection connection;
  private final int number;

  /** What ConnectionFactory looks for. */
  FaultyConnection(Configuration conf, ExecutorService pool, User user, Map<String, byte[]> attributes) throws IOException {
    Configuration own = new Configuration(conf);
    own.unset(IMPLEMENTATION);
    connection = ConnectionFactory.createConnection(own, pool, user, attributes);
    number = CONNECTIONS.incrementAndGet();
  }

  private Table faulty(Table table) {
    return (Table) Proxy.newProxyInstance(Table.class.getClassLoader(), new Class<?>[] {Table.class}, (proxy, method, arguments) -> {
      Fault.Call call = () -> {
        try {
          return method.invoke(table, arguments);
        } catch (InvocationTargetException e) {
          throw e.getCause();
        }
      };
      return switch (Fault.CHOSEN) {
        case FIRST_IS_BROKEN, FIRST_IS_BROKEN_SECOND_DOES_MORE ->
            method.getName().equals("put") ? Fault.CHOSEN.ofPair(number, table, arguments, call) : call.answer();
        case PUTS_SKIP_THE_WAL -> {
          if (arguments != null && arguments.length == 1 && arguments[0] instanceof Put put) {
            put.setDurability(Durability.SKIP_WAL);
          }
          yield call.answer();
        }
        default -> Fault.CHOSEN.around(method.getName(), call);
      };
    });
  }

  @Override
  public Table getTable(TableName name) throws IOException {
    return faulty(connection.getTable(name));
  }

  @Override
  public Table getTable(TableName name, ExecutorService pool) throws IOException {
    return faulty(connection.getTable(name, pool));
  }

  @Override
  public TableBuilder getTableBuilder(TableName name, ExecutorService pool) {
    return connection.getTableBuilder(name, pool);
  }

  @Override
  public Configuration getConfiguration() {
    return connection.getConfiguration();
  }

  @Override
  public BufferedMutator getBufferedMutator(TableName name) throws IOException {
    return connection.getBufferedMutator(name);
  }

  @Override
  public BufferedMutator getBufferedMutator(BufferedMutatorParams params) throws IOException {
    return connection.getBufferedMutator(params);
  }

  @Override
  public RegionLocator getRegionLocator(TableName name) throws IOException {
    return connection.getRegionLocator(name);
  }

  @Override
  public void clearRegionLocationCache() {
    connection.clearRegionLocationCache();
  }

  @Override
  public Admin getAdmin() throws IOException {
    return connection.getAdmin();
  }

  @Override
  public String getClusterId() {
    return connection.getClusterId();
  }

  @Override
  public boolean isClosed() {
    return connection.isClosed();
  }

  @Override
  public void abort(String why, Throwable error) {
    connection.abort(why, error);
  }

  @Override
  public boolean isAborted() {
    return connection.isAborted();
  }

  @Override
  public void close() throws IOException {
    connection.close();
  }
}
