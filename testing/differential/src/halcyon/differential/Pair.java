package halcyon.differential;

import java.io.IOException;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.SnapshotDescription;

/** Both systems, asked at the same time. */
final class Pair implements AutoCloseable {
  private static final long STEP_SECONDS_MAX = 300;
  /** As in run.sh. */
  private static final long LEASE_MS = 5000;
  /** On a busy machine 50 were too few. */
  private static final long CLOSE_MS = 300;
  /** Steps that write no store files. */
  private static final Set<String> QUIET = Set.of("admin: look", "admin: namespace", "admin: wrong");
  final Side reference;
  final Side tested;
  private final ExecutorService threads = Executors.newFixedThreadPool(2, work -> {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  });

  Pair(Side reference, Side tested) {
    this.reference = reference;
    this.tested = tested;
  }

  Answer[] run(Step step) throws InterruptedException {
    // The client does not wait for the end of a scanner that it closes. Flushes and compactions keep what an open one might see.
    if (rewritesFiles(step)) Thread.sleep(CLOSE_MS);
    Future<Answer> first = threads.submit(() -> step.on(reference));
    Future<Answer> second = threads.submit(() -> step.on(tested));
    Answer[] answers = {await(first), await(second)};
    if (leavesScanner(answers[0])) Thread.sleep(LEASE_MS + 1000);
    // what the server sets as time differs between steps
    Thread.sleep(3);
    return answers;
  }

  private static boolean rewritesFiles(Step step) {
    return step.kind().startsWith("admin") && !QUIET.contains(step.kind());
  }

  /**
   * Whether HBase keeps the scanner of this step open until its lease is over: it does after an exception that is no IOException. A
   * compaction keeps then what the scanner might see.
   */
  private static boolean leavesScanner(Answer answer) {
    return answer.lines.stream().anyMatch(line -> line.startsWith("error IOException: Index ") || line.startsWith("error IOException: Cannot "));
  }

  private static Answer await(Future<Answer> work) throws InterruptedException {
    try {
      return work.get(STEP_SECONDS_MAX, TimeUnit.SECONDS);
    } catch (TimeoutException | ExecutionException error) {
      Answer answer = new Answer();
      answer.add("no answer: " + error);
      return answer;
    }
  }

  /** Removes all tables, snapshots and namespaces. */
  void clear() throws Exception {
    Future<?> first = threads.submit(() -> { clear(reference); return null; });
    Future<?> second = threads.submit(() -> { clear(tested); return null; });
    first.get(STEP_SECONDS_MAX, TimeUnit.SECONDS);
    second.get(STEP_SECONDS_MAX, TimeUnit.SECONDS);
  }

  private static void clear(Side side) throws IOException {
    for (TableName table : side.admin.listTableNames()) {
      if (side.admin.isTableEnabled(table)) side.admin.disableTable(table);
      side.admin.deleteTable(table);
    }
    for (SnapshotDescription snapshot : side.admin.listSnapshots()) side.admin.deleteSnapshot(snapshot.getName());
    for (NamespaceDescriptor namespace : side.admin.listNamespaceDescriptors()) {
      if (!namespace.getName().equals("default") && !namespace.getName().equals("hbase")) side.admin.deleteNamespace(namespace.getName());
    }
    side.forgetRegions();
    // From here on only when a step asks for it.
    side.admin.compactionSwitch(false, java.util.List.of());
  }

  @Override
  public void close() {
    threads.shutdownNow();
  }
}
