package halcyon.conformance;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import javassist.CannotCompileException;
import javassist.ClassPool;
import javassist.CtClass;
import javassist.CtMethod;
import javassist.LoaderClassPath;
import javassist.expr.ExprEditor;
import javassist.expr.MethodCall;
import javassist.expr.NewExpr;

/**
 * Rewrites HBase's testing utilities while they load, so that "start a mini cluster" means "use the
 * server named by the conformance.* system properties". Nothing of HBase is copied: only method bodies
 * of the loaded class are replaced, by calls of {@link External}.
 */
public final class Agent implements ClassFileTransformer {
  private static final String HTU = "org/apache/hadoop/hbase/HBaseTestingUtility";
  private static final String ZTU = "org/apache/hadoop/hbase/HBaseZKTestingUtility";
  private static final String QTU = "org/apache/hadoop/hbase/quotas/ThrottleQuotaTestUtil";
  private static final String REPLICATION_TESTS = "org/apache/hadoop/hbase/replication/";

  public static void premain(String args, Instrumentation inst) {
    inst.addTransformer(new Agent());
  }

  @Override
  public byte[] transform(ClassLoader loader, String name, Class<?> c, ProtectionDomain d,
    byte[] bytes) {
    boolean ofReplication = name != null && name.startsWith(REPLICATION_TESTS) && isTest(name);
    if (!HTU.equals(name) && !ZTU.equals(name) && !QTU.equals(name) && !ofReplication) {
      return null;
    }
    try {
      ClassPool pool = new ClassPool(true);
      pool.appendClassPath(new LoaderClassPath(loader));
      CtClass ct = pool.get(name.replace('/', '.'));
      for (CtMethod m : ct.getDeclaredMethods()) {
        if (ofReplication) {
          m.instrument(new Peers());
          continue;
        }
        String body = HTU.equals(name) ? htu(m) : ZTU.equals(name) ? ztu(m) : qtu(m);
        if (body != null) {
          m.setBody(body);
        } else if (HTU.equals(name) && m.getName().equals("createTable")) {
          m.instrument(new Tables());
        } else if (HTU.equals(name) && m.getName().equals("getDefaultRootDirPath")) {
          m.insertBefore("if (halcyon.conformance.External.hasOwnServer()) " + returns("rootDir(this)"));
        } else if (HTU.equals(name) && m.getName().equals("createWALRootDir")) {
          m.insertBefore("if (halcyon.conformance.External.hasOwnServer()) " + returns("walRootDir(this)"));
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

  /** The new body of a method of HBaseTestingUtility; null leaves the method as it is. */
  private static String htu(CtMethod m) throws Exception {
    return switch (m.getName()) {
      // the overloads call those with options
      case "startMiniCluster" -> hasOptions(m) ? returns("start(this, $1)") : null;
      case "startMiniHBaseCluster" -> hasOptions(m) ? returns("startAgain(this, $1)") : null;
      case "startMiniDFSCluster", "startMiniDFSClusterForTestWAL" -> "{" + call("local(this)") + "return " + call("dfs()") + "}";
      case "getDFSCluster" -> returns("dfs()");
      case "startMiniMapReduceCluster" ->
          "{" + call("local(this)") + (m.getReturnType() == CtClass.voidType ? "}" : "return null; }");
      case "shutdownMiniCluster", "shutdownMiniHBaseCluster" -> "{" + call("stop(this)") + "}";
      case "shutdownMiniMapReduceCluster", "shutdownMiniDFSCluster", "setHBaseCluster" -> "{}";
      case "killMiniHBaseCluster" -> "{" + call("kill(this)") + "}";
      case "expireMasterSession", "expireRegionServerSession", "expireSession" ->
          "{" + internals(m) + "}";
      case "restartHBaseCluster" -> "{" + call("restart(this)") + "}";
      case "getOtherRegionServer", "getSplittableRegion" -> "{" + internals(m) + "return null; }";
      case "invalidateConnection" -> "{ closeConnection(); }";
      case "getMiniHBaseCluster", "getHBaseCluster", "getHBaseClusterInterface" -> returns("mini(this)");
      case "waitUntilNoRegionsInTransition" ->
          "{" + call("waitNoRit(this, " + (m.getParameterTypes().length == 1 ? "$1" : "900000L") + ")") + "}";
      case "getRSForFirstRegionInTable" -> returns("server(this, $1)");
      case "ensureSomeRegionServersAvailable", "ensureSomeNonStoppedRegionServersAvailable" -> returns("ensureServers(this, $1)");
      case "moveRegionAndWait" -> "{" + call("moveAndWait(this, $1, $2)") + "}";
      default -> null;
    };
  }

  private static boolean hasOptions(CtMethod m) throws Exception {
    CtClass[] types = m.getParameterTypes();
    return types.length == 1 && types[0].getSimpleName().equals("StartMiniClusterOption");
  }

  /** The same for HBaseZKTestingUtility. */
  private static String ztu(CtMethod m) {
    return switch (m.getName()) {
      case "startMiniZKCluster" -> "{" + call("local(this)") + "return " + call("zk(this)") + "}";
      case "shutdownMiniZKCluster", "setZkCluster" -> "{}"; // each server has its own
      case "getZkCluster" -> returns("zk(this)");
      default -> null;
    };
  }

  /** The same for ThrottleQuotaTestUtil. */
  private static String qtu(CtMethod m) {
    return switch (m.getName()) {
      case "triggerCacheRefresh" -> "{" + call("readQuotas()") + "}";
      case "clearQuotaCache" -> "{}";
      case "waitMinuteQuota" -> "{" + internals(m) + "}"; // it turns the server's clock
      default -> null;
    };
  }

  /** Gives the tables of a test the endpoints that its configuration names. */
  private static final class Tables extends ExprEditor {
    @Override
    public void edit(MethodCall call) throws CannotCompileException {
      if (call.getMethodName().equals("createTable") && call.getClassName().endsWith(".Admin")) {
        call.replace("{ $1 = halcyon.conformance.External.withEndpoints(this, $1); $proceed($$); }");
      }
    }
  }

  private static boolean isTest(String name) {
    String simple = name.substring(name.lastIndexOf('/') + 1);
    return simple.startsWith("Test") || simple.endsWith("TestBase");
  }

  /**
   * Tests of replication make the znodes of a cluster before they start it; a server makes its own. Their endpoint is HBase's
   * with a count.
   */
  private static final class Peers extends ExprEditor {
    @Override
    public void edit(NewExpr made) throws CannotCompileException {
      if (made.getClassName().endsWith(".ZKWatcher") && made.getSignature().endsWith("Z)V")) {
        made.replace("$_ = $4 ? null : $proceed($$);");
      }
    }

    @Override
    public void edit(MethodCall call) throws CannotCompileException {
      if (call.getMethodName().equals("setReplicationEndpointImpl")) {
        call.replace("$_ = $proceed(halcyon.conformance.External.endpoint($1));");
      }
    }
  }

  private static String returns(String expression) {
    return "{ return " + call(expression) + "}";
  }

  private static String call(String expression) {
    return "halcyon.conformance.External." + expression + "; ";
  }

  private static String internals(CtMethod m) {
    return call("internals(\"" + m.getName() + "\")");
  }
}
