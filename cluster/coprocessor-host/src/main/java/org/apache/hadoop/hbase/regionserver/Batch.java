package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Mutations;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HConstants.OperationStatusCode;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;
import org.apache.hadoop.hbase.wal.WALEdit;

/** Mutations that are done together, from their first hook to their last (HRegion.MutationBatchOperation of 2.6.4). */
final class Batch {
  private final ServedHost host;
  private final Mutation[] mutations;
  private final Frame.Part[] asked;
  private final OperationStatus[] statuses;
  private final WALEdit[] edits;
  private final Result[] results;
  private final MiniBatchOperationInProgress<Mutation> mini;

  Batch(ServedHost host, List<Mutation> mutations) throws IOException {
    this.host = host;
    this.mutations = mutations.toArray(new Mutation[0]);
    int count = this.mutations.length;
    this.asked = new Frame.Part[count];
    for (int at = 0; at < count; at++) asked[at] = Mutations.write(this.mutations[at]);
    this.statuses = new OperationStatus[count];
    Arrays.fill(statuses, OperationStatus.NOT_RUN);
    this.edits = new WALEdit[count];
    this.results = new Result[count];
    this.mini = new MiniBatchOperationInProgress<>(this.mutations, statuses, edits, 0, count, count);
  }

  private boolean isPending(int at) {
    return statuses[at].getOperationStatusCode() == OperationStatusCode.NOT_RUN;
  }

  /** callPreMutateCPHook for each. */
  void beforeEach() throws IOException {
    for (int at = 0; at < mutations.length; at++) {
      WALEdit edit = new WALEdit();
      Mutation mutation = mutations[at];
      if (mutation instanceof Put) {
        if (host.prePut((Put) mutation, edit)) statuses[at] = OperationStatus.SUCCESS;
      } else if (mutation instanceof Delete) {
        prepareDelete((Delete) mutation);
        if (host.preDelete((Delete) mutation, edit)) statuses[at] = OperationStatus.SUCCESS;
      } else if (mutation instanceof Increment) {
        done(at, host.preIncrement((Increment) mutation, edit));
      } else if (mutation instanceof Append) {
        done(at, host.preAppend((Append) mutation, edit));
      }
      keep(at, edit);
    }
  }

  /** A delete without families is one of all families (HRegion.prepareDelete). */
  private void prepareDelete(Delete delete) {
    if (!delete.getFamilyCellMap().isEmpty()) return;
    for (byte[] family : host.region().getTableDescriptor().getColumnFamilyNames()) delete.addFamily(family, delete.getTimestamp());
  }

  private void done(int at, Result result) {
    if (result == null) return;
    results[at] = result;
    statuses[at] = new OperationStatus(OperationStatusCode.SUCCESS, result);
  }

  private void keep(int at, WALEdit edit) {
    if (!edit.isEmpty()) throw new UnsupportedOperationException("WALEdit.add in a hook, in the JVM of coprocessors");
    edits[at] = null;
  }

  /** Under the locks of the rows. */
  void runBatchHooks() throws IOException {
    try {
      tryBatchHooks();
    } catch (Throwable failed) {
      host.postBatchMutateIndispensably(mini, false);
      throw failed;
    }
  }

  private void tryBatchHooks() throws IOException {
    byte[] now = Bytes.toBytes(EnvironmentEdgeManager.currentTime());
    for (int at = 0; at < mutations.length; at++) {
      if (!isPending(at)) continue;
      if (mutations[at] instanceof Put) {
        stamp(mutations[at], now, true);
        mini.incrementNumOfPuts();
      } else if (mutations[at] instanceof Delete) {
        stamp(mutations[at], now, false);
        mini.incrementNumOfDeletes();
      } else if (mutations[at] instanceof Increment) {
        mini.incrementNumOfIncrements();
        done(at, host.preIncrementAfterRowLock((Increment) mutations[at]));
      } else {
        mini.incrementNumOfAppends();
        done(at, host.preAppendAfterRowLock((Append) mutations[at]));
      }
      mini.addCellCount(mutations[at].size());
    }
    host.preBatchMutate(mini);
    for (int at = 0; at < mutations.length; at++) {
      if (mini.getWalEdit(at) != null) keep(at, mini.getWalEdit(at));
    }
  }

  /** Hooks see the time of the server. A delete of the newest version finds its time when it is written. */
  private static void stamp(Mutation mutation, byte[] now, boolean isPut) throws IOException {
    for (List<Cell> cells : mutation.getFamilyCellMap().values()) {
      for (Cell cell : cells) {
        if (isPut || !PrivateCellUtil.isDeleteType(cell)) PrivateCellUtil.updateLatestStamp(cell, now);
      }
    }
  }

  Frame beforeBatch() throws IOException {
    runBatchHooks();
    return answer();
  }

  Frame answer() throws IOException {
    Frame answer = Frame.answer();
    for (int at = 0; at < mutations.length; at++) answer.mutations.add(answer(at));
    return answer;
  }

  private Frame.Part answer(int at) throws IOException {
    if (!isPending(at)) return ended(at);
    Frame.Part part = Mutations.write(mutations[at]);
    if (Mutations.same(part, asked[at])) {
      part = new Frame.Part();
    } else {
      asked[at] = part;
      part = copy(part);
    }
    Mutation[] added = mini.getOperationsFromCoprocessors(at);
    if (added != null) {
      for (Mutation mutation : added) part.added.add(Mutations.write(mutation));
    }
    return part;
  }

  private static Frame.Part copy(Frame.Part from) {
    Frame.Part part = new Frame.Part();
    part.message = from.message;
    part.cells = from.cells;
    return part;
  }

  private Frame.Part ended(int at) {
    Frame.Part part = new Frame.Part();
    OperationStatus status = statuses[at];
    if (status.getOperationStatusCode() == OperationStatusCode.SUCCESS) {
      part.status = Frame.Part.DONE;
      if (results[at] != null) part.result = Frame.Cells.of(ServedHost.cells(results[at]));
    } else {
      part.status = Frame.Part.FAILED;
      part.failure = Frame.Failure.of(new DoNotRetryIOException(status.getExceptionMsg()));
    }
    return part;
  }

  /** The write is over: the hooks behind it. `flag`: it was done. */
  Frame after(Frame call) throws IOException {
    for (int at = 0; at < mutations.length; at++) {
      if (!isPending(at)) continue;
      Frame.Part part = call.mutations.get(at);
      boolean failed = part.status == Frame.Part.FAILED;
      if (part.result != null) results[at] = Result.create(part.result.list);
      if (!failed) Mutations.takeOver(mutations[at], part.cells);
      statuses[at] = failed ? new OperationStatus(OperationStatusCode.FAILURE, part.failure.message)
        : new OperationStatus(OperationStatusCode.SUCCESS, results[at]);
    }
    try {
      if (call.flag) host.postBatchMutate(mini);
      afterEach();
    } finally {
      host.postBatchMutateIndispensably(mini, call.flag);
    }
    Frame answer = Frame.answer();
    for (int at = 0; at < mutations.length; at++) answer.mutations.add(ended(at));
    return answer;
  }

  private void afterEach() throws IOException {
    for (int at = 0; at < mutations.length; at++) {
      if (statuses[at].getOperationStatusCode() != OperationStatusCode.SUCCESS) continue;
      WALEdit edit = new WALEdit();
      Mutation mutation = mutations[at];
      if (mutation instanceof Put) host.postPut((Put) mutation, edit);
      if (mutation instanceof Delete) host.postDelete((Delete) mutation, edit);
      if (mutation instanceof Increment) results[at] = host.postIncrement((Increment) mutation, results[at], edit);
      if (mutation instanceof Append) results[at] = host.postAppend((Append) mutation, results[at], edit);
    }
  }
}
