package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Lane;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;
import org.apache.hadoop.hbase.wal.WALEdit;

/** Row processors with a limit of their time (HRegion.doProcessRowWithTimeout). */
final class RowProcessing {
  private RowProcessing() {
  }

  /** Lets a processor make its mutations. A negative timeout, in milliseconds, is none. TimeoutException's message if it takes longer. */
  static void run(RowProcessor<?, ?> processor, HRegion region, List<Mutation> mutations, WALEdit edit, long timeout) throws IOException {
    long now = EnvironmentEdgeManager.currentTime();
    if (timeout < 0) {
      processor.process(now, region, mutations, edit);
      return;
    }
    FutureTask<Void> task = new FutureTask<>(() -> {
      try {
        processor.process(now, region, mutations, edit);
      } finally {
        Lane.end();
      }
      return null;
    });
    Thread thread = new Thread(task, "row-processor");
    thread.setDaemon(true);
    thread.start();
    try {
      task.get(timeout, TimeUnit.MILLISECONDS);
    } catch (InterruptedException stopped) {
      throw (IOException) new java.io.InterruptedIOException().initCause(stopped);
    } catch (TimeoutException late) {
      throw new IOException("a row processor of class " + processor.getClass().getName() + " took longer than " + timeout + " ms", late);
    } catch (ExecutionException failed) {
      throw failed.getCause() instanceof IOException ? (IOException) failed.getCause() : new IOException(failed.getCause());
    }
  }
}
