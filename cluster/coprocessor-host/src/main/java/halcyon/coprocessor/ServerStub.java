package halcyon.coprocessor;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.regionserver.Region;
import org.apache.hadoop.hbase.regionserver.RegionServerServices;
import org.apache.hadoop.hbase.regionserver.ServedHost;

/** What of a region server a coprocessor can reach (RegionServerServices). Methods that are not below throw and name themselves. */
public final class ServerStub implements InvocationHandler {
  private final Configuration configuration;
  private final ServerName name;
  private final RegionServerServices services;
  private ClusterConnection connection;

  ServerStub(Configuration configuration, ServerName name) {
    this.configuration = configuration;
    this.name = name;
    this.services = (RegionServerServices) Proxy.newProxyInstance(RegionServerServices.class.getClassLoader(),
      new Class<?>[] { RegionServerServices.class }, this);
  }

  public RegionServerServices services() {
    return services;
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    Method own;
    try {
      own = ServerStub.class.getMethod(method.getName(), method.getParameterTypes());
    } catch (NoSuchMethodException unknown) {
      throw new UnsupportedOperationException("RegionServerServices." + method.getName() + " in the JVM of coprocessors");
    }
    try {
      return own.invoke(this, arguments);
    } catch (InvocationTargetException failed) {
      throw failed.getCause();
    }
  }

  public Configuration getConfiguration() {
    return configuration;
  }

  public ServerName getServerName() {
    return name;
  }

  public boolean isAborted() {
    return false;
  }

  public boolean isStopped() {
    return false;
  }

  public boolean isStopping() {
    return false;
  }

  public void abort(String why, Throwable cause) {
    throw new JvmAborts(why, cause);
  }

  public void abort(String why) {
    throw new JvmAborts(why, null);
  }

  public synchronized Connection getConnection() throws IOException {
    if (connection == null || connection.isClosed()) {
      connection = (ClusterConnection) ConnectionFactory.createConnection(configuration);
    }
    return connection;
  }

  public ClusterConnection getClusterConnection() throws IOException {
    return (ClusterConnection) getConnection();
  }

  public Connection createConnection(Configuration of) throws IOException {
    return ConnectionFactory.createConnection(of);
  }

  public Region getRegion(String encodedName) {
    for (ServedHost host : Host.regions()) {
      if (host.region().getRegionInfo().getEncodedName().equals(encodedName)) return host.region();
    }
    return null;
  }

  /** Those that have coprocessors. */
  public List<Region> getRegions() {
    List<Region> regions = new ArrayList<>();
    for (ServedHost host : Host.regions()) regions.add(host.region());
    return regions;
  }

  public List<Region> getRegions(TableName table) {
    List<Region> regions = getRegions();
    regions.removeIf(region -> !region.getTableDescriptor().getTableName().equals(table));
    return regions;
  }

  public Object getRegionServerRpcQuotaManager() {
    return null;
  }

  public Object getRegionServerSpaceQuotaManager() {
    return null;
  }

  public Object getRegionServerAccounting() {
    return null;
  }

  public Optional<?> getBlockCache() {
    return Optional.empty();
  }

  public Optional<?> getMobFileCache() {
    return Optional.empty();
  }

  @Override
  public String toString() {
    return name.toString();
  }

  @Override
  public int hashCode() {
    return System.identityHashCode(this);
  }

  @Override
  public boolean equals(Object other) {
    return other == this || other == services;
  }
}
