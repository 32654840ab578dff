package halcyon.differential;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/**
 * Checks the written facts on both systems.
 *
 *   Semantics HBASE-ZOOKEEPER HALCYON-ZOOKEEPER
 *
 * Property fact: only methods whose names contain it.
 */
public final class Semantics {
  private static final List<Class<?>> CLASSES = List.of(VersionFacts.class, DeleteFacts.class, AtomicFacts.class, ScanFacts.class,
      FilterFacts.class, AdminFacts.class);

  private Semantics() {}

  public static void main(String[] args) throws Exception {
    String only = System.getProperty("fact", "");
    List<Method> facts = new ArrayList<>();
    for (Class<?> each : CLASSES) {
      Arrays.stream(each.getDeclaredMethods()).filter(method -> method.isAnnotationPresent(Fact.class))
          .filter(method -> method.getName().contains(only)).sorted(Comparator.comparing(Method::getName)).forEach(facts::add);
    }
    int failures = 0;
    for (String system : List.of("HBase", "Halcyon")) {
      try (Side side = new Side(system, args[system.equals("HBase") ? 0 : 1])) {
        for (Method fact : facts) if (!holds(side, fact)) failures++;
      }
    }
    System.out.println(facts.size() + " facts on both systems, " + failures + " failures");
    System.exit(failures == 0 && !facts.isEmpty() ? 0 : 1);
  }

  private static boolean holds(Side side, Method method) {
    Fact fact = method.getAnnotation(Fact.class);
    try (Ground ground = new Ground(side, method.getName(), fact)) {
      method.invoke(null, ground);
      return true;
    } catch (InvocationTargetException failed) {
      System.out.println(side.name + ": " + method.getName() + " (" + fact.value() + "): " + failed.getCause());
    } catch (Exception failed) {
      System.out.println(side.name + ": " + method.getName() + ": " + failed);
    }
    return false;
  }
}
