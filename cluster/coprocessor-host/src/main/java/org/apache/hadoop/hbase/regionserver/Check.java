package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import halcyon.coprocessor.Mutations;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ClientProtos;

/** A check and its mutations, from the first hook to the last. Hooks may change the mutations, and find the times in them with which they were written. */
final class Check {
  final CheckAndMutate check;
  private final List<Mutation> mutations;
  private final Frame.Part[] asked;

  Check(Frame call) throws IOException {
    this.check = ProtobufUtil.toCheckAndMutate(ClientProtos.Condition.parseFrom(call.condition), ServedHost.mutations(call));
    this.mutations = mutations(check);
    this.asked = new Frame.Part[mutations.size()];
    for (int at = 0; at < asked.length; at++) asked[at] = Mutations.write(mutations.get(at));
  }

  /** What is to be done if the condition holds. */
  static List<Mutation> mutations(CheckAndMutate check) {
    return check.getAction() instanceof RowMutations ? ((RowMutations) check.getAction()).getMutations() : List.of((Mutation) check.getAction());
  }

  /** Adds the mutations that a hook has changed since the last answer to this one. */
  Frame withChanges(Frame answer) throws IOException {
    for (int at = 0; at < asked.length; at++) {
      Frame.Part part = Mutations.write(mutations.get(at)), sent = new Frame.Part();
      if (!Mutations.same(part, asked[at])) {
        asked[at] = part;
        sent.message = part.message;
        sent.cells = part.cells;
      }
      answer.mutations.add(sent);
    }
    return answer;
  }

  /** `call` has the cells if they were written. */
  void takeOver(Frame call) throws IOException {
    for (int at = 0; at < call.mutations.size(); at++) Mutations.takeOver(mutations.get(at), call.mutations.get(at).cells);
  }
}
