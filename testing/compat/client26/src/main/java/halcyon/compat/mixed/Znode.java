package halcyon.compat.mixed;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.shaded.org.apache.zookeeper.Watcher;
import org.apache.hadoop.hbase.shaded.org.apache.zookeeper.ZooKeeper;

/**
 * What an operator's mistake does to a znode.
 *
 * <pre>
 * HOST:PORT,... garbage PATH SECONDS    writes text into it, and what was there after so many seconds; prints both
 * HOST:PORT,... delete PATH
 * </pre>
 */
public final class Znode {
  private Znode() {}

  public static void main(String[] args) throws Exception {
    if (args.length < 3) {
      System.err.println("HOST:PORT,... garbage|delete PATH [SECONDS]");
      System.exit(64);
    }
    CountDownLatch connected = new CountDownLatch(1);
    ZooKeeper client = new ZooKeeper(args[0], 30_000, event -> {
      if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
        connected.countDown();
      }
    });
    if (!connected.await(20, TimeUnit.SECONDS)) {
      throw new IllegalStateException("no answer of ZooKeeper at " + args[0]);
    }
    if (args[1].equals("delete")) {
      client.delete(args[2], -1);
      System.out.println("deleted " + args[2]);
    } else {
      byte[] before = client.getData(args[2], false, null);
      byte[] garbage = "this is no znode of HBase".getBytes(StandardCharsets.UTF_8);
      int version = client.setData(args[2], garbage, -1).getVersion();
      System.out.println("wrote " + garbage.length + " bytes of text into " + args[2]);
      System.out.flush();
      Thread.sleep(Long.parseLong(args[3]) * 1000);
      // Somebody else may have put it right: then this fails, and the new value stays.
      client.setData(args[2], before, version);
      System.out.println("wrote back " + before.length + " bytes");
    }
    client.close();
  }
}
