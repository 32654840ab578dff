package halcyon.differential;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** The steps of one episode: they depend on the seed alone, so that any of them may be left out of a repetition. */
final class Script {
  private static final int ADMIN_PERCENT = Integer.getInteger("admin", 7);
  private static final int STATE_EVERY = 15;
  private final List<Step> steps = new ArrayList<>();
  private final Model model = new Model();

  Script(long seed, int count) throws IOException {
    Random random = new Random(seed * 0x9E3779B97F4A7C15L);
    steps.add(new TableSteps(random, model).create());
    steps.add(new TableSteps(random, model).create());
    while (steps.size() < count) {
      Random own = new Random(random.nextLong());
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
    return random.nextInt(100) < 45 ? MutationSteps.any(random, shape) : ReadSteps.any(random, shape);
  }

  /** Compares all tables. */
  private void everything() {
    for (Model.Shape shape : model.tables) if (shape.isEnabled) steps.add(ReadSteps.everything(shape.frozen()));
  }
}
