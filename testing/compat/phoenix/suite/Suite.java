import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.phoenix.query.BaseTest;
import org.junit.experimental.categories.Category;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Phoenix's own integration tests against a server that is up.
 *   Suite --list JAR          the classes of the jar that need no cluster of their own, one a line
 *   Suite CLASS NUMBER [TEST...]     runs a class, or tests of it: a line for each, "class test pass|fail|skip milliseconds reason", with tabs.
 *                                    Names that the class makes up begin at NUMBER: those of other classes are in the same cluster
 * JUnit runs classes of NeedsOwnMiniClusterTest in a cluster that the class starts in its process; the others share one, which may be another's.
 */
public final class Suite extends RunListener {
  private final PrintStream out;
  private final String name;
  private long begunNs;
  private String state, reason;

  private Suite(PrintStream out, String name) {
    this.out = out;
    this.name = name;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream out = System.out;
    if (arguments[0].equals("--list")) {
      list(arguments[1]).forEach(out::println);
      return;
    }
    System.setOut(System.err); // tests print as well
    // First: a class may make up names when it is loaded.
    for (String counter : List.of("NAME_SUFFIX", "SEQ_NAME_SUFFIX")) {
      Field field = BaseTest.class.getDeclaredField(counter);
      field.setAccessible(true);
      ((AtomicInteger) field.get(null)).set(Integer.parseInt(arguments[1]));
    }
    JUnitCore core = new JUnitCore();
    core.addListener(new Suite(out, arguments[0]));
    Request request = Request.aClass(Class.forName(arguments[0]));
    List<String> tests = List.of(arguments).subList(2, arguments.length);
    if (!tests.isEmpty()) {
      request = request.filterWith(new Filter() {
        @Override
        public boolean shouldRun(Description description) {
          return description.isTest() ? tests.contains(description.getMethodName()) : description.getChildren().stream().anyMatch(this::shouldRun);
        }

        @Override
        public String describe() {
          return "some tests";
        }
      });
    }
    core.run(request);
    out.flush();
    Runtime.getRuntime().halt(0); // threads of clients would go on
  }

  private static List<String> list(String jar) throws Exception {
    List<String> classes = new ArrayList<>();
    try (JarFile file = new JarFile(jar)) {
      for (JarEntry entry : Collections.list(file.entries())) {
        String path = entry.getName();
        if (!path.endsWith("IT.class") || path.contains("$")) continue;
        Class<?> found = Class.forName(path.substring(0, path.length() - ".class".length()).replace('/', '.'), false, Suite.class.getClassLoader());
        Category category = found.getAnnotation(Category.class);
        if (Modifier.isAbstract(found.getModifiers()) || category == null) continue;
        for (Class<?> of : category.value()) {
          if (of.getSimpleName().startsWith("ParallelStats")) classes.add(found.getName());
        }
      }
    }
    Collections.sort(classes);
    return classes;
  }

  @Override
  public void testStarted(Description test) {
    begunNs = System.nanoTime();
    state = "pass";
    reason = "";
  }

  @Override
  public void testAssumptionFailure(Failure failure) {
    state = "skip";
    reason = text(failure.getException());
  }

  @Override
  public void testFailure(Failure failure) {
    failure.getException().printStackTrace();
    boolean isOfClass = failure.getDescription().getMethodName() == null;
    state = "fail";
    reason = text(failure.getException());
    if (isOfClass) say("*", 0); // before or after all tests
  }

  @Override
  public void testIgnored(Description test) {
    state = "skip";
    reason = "ignored";
    say(test.getMethodName() == null ? "*" : test.getMethodName(), 0);
  }

  @Override
  public void testFinished(Description test) {
    say(test.getMethodName(), (System.nanoTime() - begunNs) / 1_000_000);
  }

  private void say(String test, long ms) {
    out.println(String.join("\t", name, test.replaceAll("\\s", " "), state, String.valueOf(ms), reason));
    out.flush();
  }

  private static String text(Throwable error) {
    String text = error.getClass().getName() + ": " + error.getMessage();
    text = text.replaceAll("\\s+", " ");
    return text.substring(0, Math.min(300, text.length()));
  }
}
