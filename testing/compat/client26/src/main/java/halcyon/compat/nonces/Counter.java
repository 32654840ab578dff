package halcyon.compat.nonces;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A thread with a counter and a list of its own, which nobody else changes: each answer must be what the thread expects. In
 * turn it increments, appends a number to the list, and does both in one batch. An operation that ends in an exception may be
 * applied or not: the rows are read again, and must be those before it or those after it.
 */
final class Counter extends Thread {
  private static final byte[] F = NonceKills.F;
  private static final byte[] Q = Bytes.toBytes("q");
  private static final String[] KINDS = {"increments", "appends", "both in a batch"};

  private final Connection connection;
  private final byte[] counterRow;
  private final int id;
  private byte[] listRow;
  private long count;
  private final StringBuilder list = new StringBuilder();
  private volatile boolean stop;
  private volatile long answered;
  /** Of each kind of operation: an increment and an append, an append, an increment. */
  private final AtomicLongArray answeredOfKind = new AtomicLongArray(KINDS.length);
  private volatile long failed;
  private volatile long faults;
  private volatile Throwable end;

  Counter(Connection connection, int id) {
    super("counter " + id);
    this.connection = connection;
    this.id = id;
    counterRow = Bytes.toBytes(id + "-counter");
    listRow = Bytes.toBytes(id + "-list");
    setDaemon(true);
  }

  long answered() {
    return answered;
  }

  long failed() {
    return failed;
  }

  /** Rows that held something else than what the answers say. */
  long faults() {
    return faults;
  }

  void awaitAnswer(long msMax) throws Exception {
    long before = answered;
    long deadline = System.currentTimeMillis() + msMax;
    while (answered == before) {
      if (end != null || System.currentTimeMillis() > deadline) {
        throw new IOException(getName() + " gets no answers", end);
      }
      Thread.sleep(2);
    }
  }

  /**
   * Ends the thread and reads its rows for the last time. An exception if it ended before, or does not end, or had fewer answers of
   * one kind than {@code least}.
   */
  void finish(long least) throws Exception {
    stop = true;
    join(130_000);
    if (end != null || isAlive()) {
      throw new IOException(getName() + (isAlive() ? " does not end" : " ended early"), end);
    }
    for (int kind = 0; kind < KINDS.length; kind++) {
      if (answeredOfKind.get(kind) < least) {
        throw new IOException(getName() + " had " + answeredOfKind.get(kind) + " answers to " + KINDS[kind] + ", and " + least
            + " are the least");
      }
    }
    try (Table table = connection.getTable(NonceKills.TABLE)) {
      compare("at the end", readCount(table), readList(table));
    }
  }

  @Override
  public void run() {
    try (Table table = connection.getTable(NonceKills.TABLE)) {
      for (long number = 0; !stop; number++) {
        boolean increments = number % 3 != 1;
        boolean appends = number % 3 != 0;
        String item = number + ";";
        try {
          apply(table, increments, appends, item);
          answered++;
          answeredOfKind.incrementAndGet((int) (number % 3));
        } catch (IOException e) {
          failed++;
          resolve(table, increments, appends, item, e);
        }
      }
    } catch (Throwable t) {
      end = t;
    }
  }

  /** One operation; its answer must have the value that follows from all before it. */
  private void apply(Table table, boolean increments, boolean appends, String item) throws IOException {
    Increment increment = new Increment(counterRow).addColumn(F, Q, 1);
    Append append = new Append(listRow).addColumn(F, Q, Bytes.toBytes(item));
    Result counted = null;
    Result appended = null;
    if (increments && appends) {
      Object[] results = new Object[2];
      try {
        table.batch(List.<Row>of(increment, append), results);
      } catch (InterruptedException e) {
        throw new IOException(e);
      }
      counted = (Result) results[0];
      appended = (Result) results[1];
    } else if (increments) {
      counted = table.increment(increment);
    } else {
      appended = table.append(append);
    }
    if (counted != null) {
      count++;
    }
    if (appended != null) {
      list.append(item);
    }
    // an answer to a repeated call is what the row holds now
    compare("answer " + answered, counted == null ? count : Bytes.toLong(counted.getValue(F, Q)),
        appended == null ? list.toString() : Bytes.toString(appended.getValue(F, Q)));
    if (list.length() > 10_000) {
      renewList(table);
    }
  }

  /** A new list before the old one makes every call slow. */
  private void renewList(Table table) throws IOException {
    compare("in a full list", readCount(table), readList(table));
    list.setLength(0);
    listRow = Bytes.toBytes(id + "-list-" + answered);
  }

  private void resolve(Table table, boolean increments, boolean appends, String item, IOException cause) throws IOException {
    System.out.println(getName() + ": " + cause);
    long found = readCount(table);
    String items = readList(table);
    if (increments && found == count + 1) {
      count++;
    }
    if (appends && items.equals(list + item)) {
      list.append(item);
    }
    compare("after " + cause, found, items);
  }

  private void compare(String when, long found, String items) {
    if (found != count || !items.contentEquals(list)) {
      faults++;
      System.out.println("WRONG " + getName() + " " + when + ": counter " + found + " instead of " + count
          + (items.contentEquals(list) ? "" : ", list ends ..." + tail(items) + " instead of ..." + tail(list.toString())));
      count = found;
      list.setLength(0);
      list.append(items);
    }
  }

  private static String tail(String items) {
    return items.substring(Math.max(0, items.length() - 20));
  }

  private long readCount(Table table) throws IOException {
    byte[] value = table.get(new Get(counterRow)).getValue(F, Q);
    return value == null ? 0 : Bytes.toLong(value);
  }

  private String readList(Table table) throws IOException {
    byte[] value = table.get(new Get(listRow)).getValue(F, Q);
    return value == null ? "" : Bytes.toString(value);
  }
}
