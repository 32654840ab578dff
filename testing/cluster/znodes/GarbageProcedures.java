import java.nio.charset.StandardCharsets;
import org.apache.hadoop.hbase.errorhandling.ForeignException;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZKUtil;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * Stands in for HBase's master, which coordinates procedures through znodes, and writes garbage. Reads the aborts of the servers
 * with HBase's own class. HBase's servers write none for garbage.
 *
 * <pre>
 * java GarbageProcedures.java HOST:PORT TABLE
 * </pre>
 */
public final class GarbageProcedures {
  private static final String MAGIC = "PBUF";
  private static final long SECONDS_MAX = 20;

  private GarbageProcedures() {}

  public static void main(String[] args) throws Exception {
    ZooKeeper zookeeper = new ZooKeeper(args[0], 30_000, event -> {});
    byte[] noMagic = "garbage".getBytes(StandardCharsets.UTF_8);
    byte[] noMessage = (MAGIC + "\377\377\377").getBytes(StandardCharsets.ISO_8859_1);
    expectAbort(zookeeper, "online-snapshot", "garbage1", noMagic, "not \"PBUF\"");
    expectAbort(zookeeper, "flush-table-proc", args[1], noMessage, "cannot be decoded");
    expectAbort(zookeeper, "rolllog-proc", "rolllog", MAGIC.getBytes(StandardCharsets.UTF_8), "backup:system");
    zookeeper.close();
  }

  private static void expectAbort(ZooKeeper zookeeper, String signature, String instance, byte[] data, String why)
      throws Exception {
    String base = "/hbase/" + signature;
    for (String part : new String[] {base, base + "/acquired", base + "/reached", base + "/abort"}) {
      if (zookeeper.exists(part, false) == null) {
        zookeeper.create(part, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
      }
    }
    String acquired = base + "/acquired/" + instance;
    String abort = base + "/abort/" + instance;
    zookeeper.create(acquired, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
    long until = System.nanoTime() + SECONDS_MAX * 1_000_000_000;
    while (zookeeper.exists(abort, false) == null) {
      check(System.nanoTime() < until, abort + " was not created");
      Thread.sleep(50);
    }
    byte[] bytes = zookeeper.getData(abort, false, null);
    String text = new String(bytes, StandardCharsets.ISO_8859_1);
    byte[] message = text.substring(text.indexOf(MAGIC) + MAGIC.length()).getBytes(StandardCharsets.ISO_8859_1);
    ForeignException read = ForeignException.deserialize(message);
    System.out.println(abort + ": " + read);
    check(read.toString().contains(why), abort + ": " + read);
    Thread.sleep(500); // servers of HBase may still join
    ZKUtil.deleteRecursive(zookeeper, acquired);
    ZKUtil.deleteRecursive(zookeeper, abort);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
