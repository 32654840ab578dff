package halcyon.conformance;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.client.ClusterConnection;
import org.apache.hadoop.hbase.master.MasterRpcServices;
import org.apache.hadoop.hbase.regionserver.RSRpcServices;
import org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/** The RPC services of an external server: a call of their methods is a call over the network. */
final class Stubs {
  private Stubs() {
  }

  static RSRpcServices regionServer(HBaseTestingUtility u, ServerName server) {
    return Mockito.mock(RSRpcServices.class, Mockito.withSettings().stubOnly().defaultAnswer(
      i -> call(i, connection(u).getAdmin(server), connection(u).getClient(server))));
  }

  static MasterRpcServices master(HBaseTestingUtility u) {
    return Mockito.mock(MasterRpcServices.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> call(i, connection(u).getMaster())));
  }

  static MasterProtos.MasterService.BlockingInterface masterStub(HBaseTestingUtility u) throws IOException {
    return connection(u).getMaster();
  }

  private static ClusterConnection connection(HBaseTestingUtility u) throws IOException {
    return (ClusterConnection) u.getConnection();
  }

  private static Object call(InvocationOnMock i, Object... stubs) throws Throwable {
    Method wanted = i.getMethod();
    for (Object stub : stubs) {
      for (Class<?> service : stub.getClass().getInterfaces()) {
        try {
          Method method = service.getMethod(wanted.getName(), wanted.getParameterTypes());
          return method.invoke(stub, i.getRawArguments());
        } catch (NoSuchMethodException e) {
          continue;
        } catch (InvocationTargetException e) {
          throw e.getCause();
        }
      }
    }
    External.internals(wanted.getDeclaringClass().getSimpleName() + "." + wanted.getName());
    return null;
  }
}
