package halcyon.compat.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Writes values of 8 KiB to random rows of a table, whose keys are eight hexadecimal digits and more.
 *
 * <pre>
 * HOST:PORT,... TABLE MIB     writes so much, and ends
 * </pre>
 */
public final class Fill {
  private static final int VALUE_BYTES = 8 << 10;
  private static final int THREADS = 4;

  private Fill() {}

  public static void main(String[] args) throws Exception {
    long rows = Long.parseLong(args[2]) * (1 << 20) / VALUE_BYTES;
    BufferedMutatorParams params = new BufferedMutatorParams(TableName.valueOf(args[1])).writeBufferSize(4 << 20);
    try (Connection connection = Load.connect(args[0])) {
      List<Thread> threads = new ArrayList<>();
      List<Throwable> failures = new ArrayList<>();
      for (int number = 0; number < THREADS; number++) {
        Thread thread = new Thread(() -> write(connection, params, rows / THREADS));
        thread.setUncaughtExceptionHandler((failed, failure) -> {
          synchronized (failures) {
            failures.add(failure);
          }
        });
        thread.start();
        threads.add(thread);
      }
      for (Thread thread : threads) thread.join();
      if (!failures.isEmpty()) throw new IllegalStateException(failures.get(0));
    }
  }

  private static void write(Connection connection, BufferedMutatorParams params, long rows) {
    Random random = new Random();
    byte[] value = new byte[VALUE_BYTES];
    try (BufferedMutator mutator = connection.getBufferedMutator(params)) {
      for (long row = 0; row < rows; row++) {
        random.nextBytes(value);
        byte[] key = Bytes.toBytes(String.format("%08x%08x", random.nextInt(), random.nextInt()));
        mutator.mutate(new Put(key).addColumn(Load.F, Load.Q, value.clone()));
      }
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
  }
}
