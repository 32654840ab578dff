package halcyon.conformance;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import javassist.ClassPool;
import javassist.CtClass;
import javassist.CtMethod;
import javassist.LoaderClassPath;

/**
 * Rewrites HBase's testing utilities while they load, so that "start a mini cluster" means "use the
 * server named by the conformance.* system properties". Nothing of HBase is copied: only method bodies
 * of the loaded class are replaced, by calls of {@link External}.
 */
public final class Agent implements ClassFileTransformer {
  private static final String HTU = "org/apache/hadoop/hbase/HBaseTestingUtility";
  private static final String ZTU = "org/apache/hadoop/hbase/HBaseZKTestingUtility";

  public static void premain(String args, Instrumentation inst) {
    inst.addTransformer(new Agent());
  }

  @Override
  public byte[] transform(ClassLoader loader, String name, Class<?> c, ProtectionDomain d,
    byte[] bytes) {
    if (!HTU.equals(name) && !ZTU.equals(name)) {
      return null;
    }
    try {
      ClassPool pool = new ClassPool(true);
      pool.appendClassPath(new LoaderClassPath(loader));
      CtClass ct = pool.get(name.replace('/', '.'));
      for (CtMethod m : ct.getDeclaredMethods()) {
        String body = HTU.equals(name) ? htu(m) : ztu(m);
        if (body != null) {
          m.setBody(body);
        }
      }
      byte[] out = ct.toBytecode();
      ct.detach();
      return out;
    } catch (Throwable t) {
      t.printStackTrace();
      System.exit(70);
      return null;
    }
  }

  private static String htu(CtMethod m) throws Exception {
    int n = m.getParameterTypes().length;
    switch (m.getName()) {
      case "startMiniCluster":
      case "startMiniHBaseCluster":
        // every overload ends in one place; the options (how many servers, WAL dir) are not ours
        return "{ return halcyon.conformance.External.start(this); }";
      case "startMiniDFSCluster":
      case "startMiniDFSClusterForTestWAL":
        return "{ halcyon.conformance.External.local(this); return halcyon.conformance.External.dfs(); }";
      case "getDFSCluster":
        return "{ return halcyon.conformance.External.dfs(); }";
      case "startMiniMapReduceCluster":
        return m.getReturnType() == CtClass.voidType ? "{ halcyon.conformance.External.local(this); }"
          : "{ halcyon.conformance.External.local(this); return null; }";
      case "shutdownMiniMapReduceCluster":
        return "{}";
      case "shutdownMiniCluster":
      case "shutdownMiniHBaseCluster":
        return "{ halcyon.conformance.External.stop(this); }";
      case "shutdownMiniDFSCluster":
        return "{}";
      case "killMiniHBaseCluster":
      case "restartHBaseCluster":
      case "expireMasterSession":
      case "expireRegionServerSession":
      case "expireSession":
        return "{ halcyon.conformance.External.internals(\"" + m.getName() + "\"); }";
      case "invalidateConnection":
        return "{ closeConnection(); }";
      case "getMiniHBaseCluster":
      case "getHBaseCluster":
        return "{ return halcyon.conformance.External.mini(); }";
      case "getHBaseClusterInterface":
        return "{ return halcyon.conformance.External.mini(); }";
      case "setHBaseCluster":
        return "{}";
      case "waitUntilNoRegionsInTransition":
        return n == 1 ? "{ halcyon.conformance.External.waitNoRit(this, $1); }"
          : "{ halcyon.conformance.External.waitNoRit(this, 900000L); }";
      case "getRSForFirstRegionInTable":
        return "{ return halcyon.conformance.External.server(this, $1); }";
      case "getOtherRegionServer":
      case "getSplittableRegion":
        return "{ halcyon.conformance.External.internals(\"" + m.getName() + "\"); return null; }";
      case "ensureSomeRegionServersAvailable":
      case "ensureSomeNonStoppedRegionServersAvailable":
        return "{ return halcyon.conformance.External.ensureServers(this, $1); }";
      case "moveRegionAndWait":
        return "{ halcyon.conformance.External.moveAndWait(this, $1, $2); }";
      default:
        return null;
    }
  }

  private static String ztu(CtMethod m) throws Exception {
    switch (m.getName()) {
      case "startMiniZKCluster":
        return "{ halcyon.conformance.External.local(this); return halcyon.conformance.External.zk(); }";
      case "shutdownMiniZKCluster":
        return "{}";
      case "getZkCluster":
        return "{ return halcyon.conformance.External.zk(); }";
      default:
        return null;
    }
  }
}
