package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Table;

/** The steps of one episode: they depend on the seed alone, so that any of them may be left out of a repetition. */
final class Script {
  private static final int ADMIN_PERCENT = Integer.getInteger("admin", 7);
  private static final int STATE_EVERY = 15;
  /** One episode in so many has a kill in its middle; 0: none has. */
  private static final int KILL_ONE_IN = Integer.getInteger("kill", 12);
  private static final int STEPS_BEFORE_KILL = 25;
  private final List<Step> steps = new ArrayList<>();
  private final Model model = new Model();

  Script(long seed, int count) throws IOException {
    Random random = new Random(seed * 0x9E3779B97F4A7C15L);
    steps.add(new TableSteps(random, model).create());
    steps.add(new TableSteps(random, model).create());
    boolean hasKill = KILL_ONE_IN > 0 && random.nextInt(KILL_ONE_IN) == 0;
    while (steps.size() < count) {
      Random own = new Random(random.nextLong());
      if (hasKill && steps.size() >= count / 2) {
        kill(own);
        hasKill = false;
      }
      Step step = next(own);
      steps.add(step);
      boolean isChange = step.kind().startsWith("admin") && !step.kind().contains("look");
      if (isChange || steps.size() % STATE_EVERY == 0) everything();
    }
    everything();
  }

  List<Step> steps() {
    return steps;
  }

  private Step next(Random random) throws IOException {
    if (Domain.chance(random, ADMIN_PERCENT)) {
      return switch (random.nextInt(7)) {
        case 0, 1 -> new ClusterSteps(random, model).any();
        case 2 -> new RegionSteps(random, model).any();
        default -> new TableSteps(random, model).any();
      };
    }
    Model.Shape shape = (random.nextInt(60) == 0 ? model.table(random) : model.enabled(random)).frozen();
    if (random.nextInt(400) == 0) shape = new Model.Shape(org.apache.hadoop.hbase.TableName.valueOf("missing"));
    return work(random, shape);
  }

  private static Step work(Random random, Model.Shape shape) throws IOException {
    if (random.nextInt(30) == 0) return TwoClients.any(random, shape).with(shape.features);
    Step step = random.nextInt(100) < 45 ? MutationSteps.any(random, shape) : ReadSteps.any(random, shape);
    step = step.with(shape.features);
    return Domain.chance(random, 12) ? step.bySecondClient() : step;
  }

  /** Those that are there: the model may be wrong. */
  private static List<TableName> enabledTables(Side side) throws IOException {
    List<TableName> tables = new ArrayList<>();
    for (TableName table : side.admin.listTableNames()) if (side.admin.isTableEnabled(table)) tables.add(table);
    return tables;
  }

  private static Answer visible(Side side) throws IOException {
    Answer answer = new Answer();
    for (TableName name : enabledTables(side)) {
      answer.add(name);
      try (Table table = side.table(name)) {
        ReadSteps.all(table, false, answer);
      }
    }
    return answer;
  }

  /**
   * Both servers are killed, and start again. What was written shortly before is in the WAL alone, and has to be: what a client does not
   * want to be there is in files before.
   */
  private void kill(Random random) throws IOException {
    List<Model.Shape> enabled = model.tables.stream().filter(shape -> shape.isEnabled).map(Model.Shape::frozen).toList();
    steps.add(new Step("admin: flush", "flush all tables", (side, answer) -> {
      for (TableName table : enabledTables(side)) side.admin.flush(table);
      answer.add("done");
    }));
    for (int count = 0; count < STEPS_BEFORE_KILL && !enabled.isEmpty(); count++) {
      Model.Shape shape = enabled.get(random.nextInt(enabled.size()));
      shape.isDurable = true;
      steps.add(work(new Random(random.nextLong()), shape));
    }
    everything();
    Set<String> features = new TreeSet<>();
    enabled.forEach(shape -> features.addAll(shape.features));
    steps.add(new Step("kill", "kill both servers and start them again", (side, answer) -> {
      Answer before = visible(side);
      side.kill();
      Answer after = visible(side);
      answer.addAll(after);
      // Both may have lost the same.
      int at = before.firstDifference(after);
      if (!before.sameAs(after)) {
        answer.note(Answer.WRONG + "not what it was before the kill: " + (at < before.lines.size() ? before.lines.get(at) : "more"));
      }
      // HBase leaves out hidden cells of what it replays, and Halcyon keeps them. A raw scan would show that.
      for (TableName table : enabledTables(side)) Compactions.major(side, table, null);
    }).with(features));
    everything();
  }

  /** Compares all tables. */
  private void everything() {
    for (Model.Shape shape : model.tables) if (shape.isEnabled) steps.add(ReadSteps.everything(shape.frozen()).with(shape.features));
  }
}
