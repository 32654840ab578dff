package halcyon.conformance;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.regionserver.wal.FSHLog;
import org.apache.hadoop.hbase.regionserver.wal.WALActionsListener;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.wal.WAL;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;

/** The WAL of an external server: a client can roll it, and sees its files. */
final class Wals {
  private static final int TRIES = 600;

  private Wals() {
  }

  static WAL of(HBaseTestingUtility u, ServerName server) {
    return Mockito.mock(FSHLog.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "rollWriter" -> {
          u.getAdmin().rollWALWriter(server);
          return null;
        }
        case "getCurrentFileName" -> {
          return files(u, server).stream().max(Comparator.comparing(Path::getName)).orElse(null);
        }
        case "registerWALActionsListener" -> {
          follow(u, server, i.getArgument(0));
          return null;
        }
        case "unregisterWALActionsListener" -> {
          return true;
        }
        case "toString" -> {
          return "WAL of " + server;
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: WAL." + i.getMethod().getName());
        }
      }
    }));
  }

  /** Tells a listener of the next roll. Nothing else that a listener may ask for is known here. */
  private static void follow(HBaseTestingUtility u, ServerName server, WALActionsListener listener) throws IOException {
    for (Method m : listener.getClass().getDeclaredMethods()) {
      if (!m.isSynthetic() && !m.getName().equals("postLogRoll")) {
        External.internals("WALActionsListener." + m.getName());
      }
    }
    Set<Path> before = files(u, server);
    Thread thread = new Thread(() -> {
      try {
        for (int i = 0; i < TRIES; i++) {
          Set<Path> now = files(u, server);
          now.removeAll(before);
          if (!now.isEmpty()) {
            listener.postLogRoll(before.isEmpty() ? null : before.iterator().next(), now.iterator().next());
            return;
          }
          External.pause();
        }
      } catch (IOException e) {
        e.printStackTrace();
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  private static Set<Path> files(HBaseTestingUtility u, ServerName server) throws IOException {
    Path dir = new Path(new Path(CommonFSUtils.getWALRootDir(u.getConfiguration()), HConstants.HREGION_LOGDIR_NAME), server.toString());
    FileSystem fs = dir.getFileSystem(u.getConfiguration());
    Set<Path> files = new HashSet<>();
    for (FileStatus f : fs.exists(dir) ? fs.listStatus(dir) : new FileStatus[0]) {
      files.add(f.getPath());
    }
    return files;
  }
}
