package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/**
 * Two clients that write at the same time, each its own rows, so that the order does not matter. Then each reads at once what the other one
 * has finished.
 */
final class TwoClients {
  private static final int MUTATIONS_MAX = 3;
  private final Model.Shape shape;
  private final long seed;

  private TwoClients(Model.Shape shape, long seed) {
    this.shape = shape;
    this.seed = seed;
  }

  static Step any(Random random, Model.Shape shape) throws IOException {
    TwoClients clients = new TwoClients(shape, random.nextLong());
    String text = shape.name + " " + StepText.list(clients.mutations(0)) + " and " + StepText.list(clients.mutations(1));
    return new Step("two clients", text, clients::run);
  }

  /** The rows of one of them. */
  private List<byte[]> rows(int client) {
    Random random = new Random(seed);
    List<byte[]> all = MutationSteps.rows(random);
    while (all.size() < 2) all = MutationSteps.rows(random);
    List<byte[]> rows = new ArrayList<>();
    for (int i = client; i < all.size(); i += 2) rows.add(all.get(i));
    return rows;
  }

  /** Made again for each side, because a client may change what it sends. */
  private List<Mutation> mutations(int client) throws IOException {
    Random random = new Random(seed + 1 + client);
    List<Mutation> mutations = new ArrayList<>();
    for (byte[] row : rows(client)) {
      for (int count = 1 + random.nextInt(MUTATIONS_MAX); count > 0; count--) mutations.add(new Mutations(random, shape, true).any(row));
    }
    return mutations;
  }

  private void run(Side side, Answer answer) throws Exception {
    Side[] clients = {side, side.second()};
    List<CompletableFuture<Answer>> writes = new ArrayList<>();
    for (int client = 0; client < 2; client++) {
      int number = client;
      writes.add(CompletableFuture.supplyAsync(() -> write(clients[number], number)));
    }
    for (CompletableFuture<Answer> write : writes) answer.addAll(write.get());
    for (int client = 0; client < 2; client++) {
      for (byte[] row : rows(1 - client)) {
        try (Table table = clients[client].table(shape.name)) {
          answer.add(table.get(new Get(row).readAllVersions()));
        }
      }
    }
  }

  private Answer write(Side side, int client) {
    Answer answer = new Answer();
    try (Table table = side.table(shape.name)) {
      for (Mutation mutation : mutations(client)) {
        try {
          if (mutation instanceof Put put) table.put(put);
          else table.delete((Delete) mutation);
          answer.add("done");
        } catch (IOException | RuntimeException error) {
          answer.error(error);
        }
      }
    } catch (IOException error) {
      answer.error(error);
    }
    return answer;
  }
}
