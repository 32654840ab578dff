import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Kills, freezes and disturbs the JVM of coprocessors: {@code Faults ZOOKEEPER JAR SERVER_LOG}. Meanwhile another table, without coprocessors,
 * is written all the time. Fails unless each fault took effect, calls of the table with coprocessors work again, and no call of the other
 * table has failed or taken long.
 */
public class Faults {
  private static final byte[] F = Bytes.toBytes("f"), A = Bytes.toBytes("a");
  private static final long OTHERS_MS_MAX = 1500;
  private static Path log;
  private static Table marks;

  private static long pid() throws Exception {
    Matcher matcher = Pattern.compile("the JVM of coprocessors is running.* pid=(\\d+)").matcher(text());
    long pid = 0;
    while (matcher.find()) pid = Long.parseLong(matcher.group(1));
    return pid;
  }

  private static String text() throws Exception {
    return Files.readString(log).replaceAll("\u001B\\[[;\\d]*m", "");
  }

  private static void signal(String signal, long pid) throws Exception {
    if (new ProcessBuilder("kill", "-" + signal, Long.toString(pid)).inheritIO().start().waitFor() != 0) throw new Exception("kill " + pid);
  }

  private static void check(boolean holds, String what) throws Exception {
    if (!holds) throw new Exception("FAILED: " + what);
  }

  private static String put(String row) {
    try {
      marks.put(new Put(Bytes.toBytes(row)).addColumn(F, A, A));
      return "done";
    } catch (Throwable error) {
      Throwable cause = error;
      while (cause.getCause() != null && !(cause instanceof org.apache.hadoop.hbase.DoNotRetryIOException)) cause = cause.getCause();
      return cause.getClass().getSimpleName() + ": " + String.valueOf(error.getMessage()).replace('\n', ' ');
    }
  }

  /** Whether the server's log output has a text; it may come a little later than the answer. */
  private static boolean says(String what) throws Exception {
    for (int tries = 0; tries < 100; tries++) {
      if (text().contains(what)) return true;
      Thread.sleep(100);
    }
    return false;
  }

  /** A JVM other than `before` has come, and the coprocessor works in it. */
  private static void recovers(long before, String fault) throws Exception {
    long begun = System.nanoTime();
    String said = put("add-" + fault);
    while (!said.equals("done")) {
      check(System.nanoTime() - begun < 40_000_000_000L, fault + ": the table did not come back: " + said);
      said = put("add-" + fault);
    }
    byte[] added = marks.get(new Get(Bytes.toBytes("add-" + fault))).getValue(F, Bytes.toBytes("added"));
    check(added != null && Bytes.toString(added).equals("again"), fault + ": the hook has not run");
    check(pid() != before, fault + ": it is the same JVM");
    check(!ProcessHandle.of(before).isPresent(), fault + ": the old JVM is alive");
    System.out.println(fault + ": back after " + (System.nanoTime() - begun) / 1_000_000 + " ms, JVM " + before + " -> " + pid());
  }

  /**
   * A region with observers of flushes closes although the JVM is gone, or although its scanner gives rows in the wrong order, and nothing is
   * lost.
   */
  private static void closesWithout(Connection connection, Admin admin, String jar, boolean wrong) throws Exception {
    TableName name = TableName.valueOf(wrong ? "wrong" : "storing");
    admin.createTable(TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
      .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Stores").setJarPath("file://" + jar)
        .setProperty("wrong", Boolean.toString(wrong)).build()).build());
    try (Table table = connection.getTable(name)) {
      // The observer would leave these cells out, or add one behind them that sorts before them.
      byte[] column = wrong ? A : Bytes.toBytes("drop");
      for (int row = 0; row < 100; row++) table.put(new Put(Bytes.toBytes("row" + row)).addColumn(F, column, A));
      String region = admin.getRegions(name).get(0).getEncodedName();
      long before = pid();
      if (!wrong) signal("9", before);
      admin.disableTable(name);
      check(says("a flush goes on without its coprocessors, which have failed region=\"" + region), name + ": the coprocessors were not missed");
      for (int tries = 0; pid() == before && !wrong; tries++) {
        check(tries < 300, "no other JVM");
        Thread.sleep(100);
      }
      admin.enableTable(name);
      int rows = 0;
      try (ResultScanner scanner = table.getScanner(new Scan())) {
        while (scanner.next() != null) rows++;
      }
      check(rows == 100, name + ": " + rows + " rows of 100");
      System.out.println("closed without coprocessors (" + name + "): all rows are there");
    }
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    String[] address = arguments[0].split(":");
    configuration.set("hbase.zookeeper.quorum", address[0]);
    configuration.set("hbase.zookeeper.property.clientPort", address[1]);
    configuration.setInt("hbase.client.retries.number", 1);
    log = Path.of(arguments[2]);
    AtomicBoolean ended = new AtomicBoolean();
    AtomicLong calls = new AtomicLong(), longestMs = new AtomicLong();
    Throwable[] failed = new Throwable[1];
    try (Connection connection = ConnectionFactory.createConnection(configuration); Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf("others")).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
      admin.createTable(TableDescriptorBuilder.newBuilder(TableName.valueOf("faulty")).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f"))
        .setCoprocessor(CoprocessorDescriptorBuilder.newBuilder("halcyon.compat.Marks").setJarPath("file://" + arguments[1])
          .setProperty("label", "again").build()).build());
      marks = connection.getTable(TableName.valueOf("faulty"));
      Thread others = new Thread(() -> {
        try (Table table = connection.getTable(TableName.valueOf("others"))) {
          while (!ended.get()) {
            long begun = System.nanoTime();
            byte[] row = Bytes.toBytes("r" + calls.incrementAndGet() % 100);
            table.put(new Put(row).addColumn(F, A, A));
            table.get(new Get(row));
            longestMs.accumulateAndGet((System.nanoTime() - begun) / 1_000_000, Math::max);
            Thread.sleep(2);
          }
        } catch (Throwable error) {
          failed[0] = error;
        }
      });
      others.start();
      check(put("add-before").equals("done"), "the coprocessor does not work");

      long before = pid();
      signal("9", before);
      recovers(before, "killed");

      before = pid();
      signal("STOP", before);
      recovers(before, "frozen");
      check(says("it has not answered for"), "the server has not noticed that the JVM was frozen");

      before = pid();
      String said = put("garbage1");
      check(says("it has sent garbage"), "the server has not noticed garbage: " + said);
      recovers(before, "garbage");

      before = pid();
      put("halt1");
      recovers(before, "halted");

      before = pid();
      said = put("bug1");
      check(says("a coprocessor asks for the end of its server"), "the bug was not noticed: " + said);
      recovers(before, "bug");

      said = put("slow1");
      check(said.contains("has not answered within"), "a slow hook has not run into its limit: " + said);
      System.out.println("slow: " + said.substring(0, Math.min(90, said.length())));
      check(put("add-after").equals("done"), "calls do not work beside a slow one");

      closesWithout(connection, admin, arguments[1], false);
      closesWithout(connection, admin, arguments[1], true);

      ended.set(true);
      others.join();
      check(failed[0] == null, "a call of the table without coprocessors has failed: " + failed[0]);
      check(longestMs.get() < OTHERS_MS_MAX, "a call of the table without coprocessors took " + longestMs + " ms");
      System.out.println(calls + " puts and gets of the table without coprocessors meanwhile, none failed, the longest took " + longestMs + " ms");
    } catch (Throwable error) {
      error.printStackTrace();
      System.out.println(error.getMessage());
      System.exit(1);
    }
    System.exit(0);
  }
}
