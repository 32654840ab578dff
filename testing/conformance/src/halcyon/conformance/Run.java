package halcyon.conformance;

import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.AssumptionViolatedException;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Runner;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.manipulation.NoTestsRemainException;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs JUnit 4 classes and writes one line a test: class, test, pass|fail|skip, milliseconds, why.
 * Arguments: results file, class name. Properties: conformance.only = file of "class test" lines to run,
 * conformance.except = file of such lines to leave out, conformance.testSeconds = limit for one test.
 */
public final class Run {
  private static final Map<Description, Long> STARTED = new ConcurrentHashMap<>();
  private static final Set<Description> DONE = ConcurrentHashMap.newKeySet();
  private static PrintStream out;
  static String testClass = "";

  private static String className(Description d) {
    return d.getClassName();
  }

  private static String test(Description d) {
    return d.getMethodName() == null ? "(class)" : d.getMethodName().replaceAll("\\s+", "_");
  }

  /** The test's name without what differs from run to run, such as the hash in a parameter's text. */
  private static String key(Description d) {
    return className(d) + " " + stable(test(d));
  }

  static String stable(String s) {
    return s.replaceAll("@[0-9a-f]{3,}", "@").replaceAll("\\$\\$Lambda[^,\\]]*", "Lambda");
  }

  private static void line(Description d, String status, String why) {
    Long t = STARTED.get(d);
    String w = why == null ? "" : why.replaceAll("\\s+", " ");
    synchronized (out) {
      out.println(className(d) + "\t" + stable(test(d)) + "\t" + status + "\t"
        + (t == null ? 0 : System.currentTimeMillis() - t) + "\t"
        + (w.length() > 300 ? w.substring(0, 300) : w));
      out.flush();
    }
  }

  private static Set<String> read(String property) throws Exception {
    String f = System.getProperty(property, "");
    Set<String> s = f.isEmpty() ? null : new HashSet<>();
    if (s != null && Files.exists(Paths.get(f))) {
      for (String l : Files.readAllLines(Paths.get(f), StandardCharsets.UTF_8)) {
        s.add(l.trim());
      }
    }
    return s;
  }

  private static boolean assumption(Throwable t) {
    for (; t != null; t = t.getCause()) {
      // a test may have caught it, and failed with its text
      if (t instanceof AssumptionViolatedException || String.valueOf(t.getMessage()).contains("JVM internals: ")) {
        return true;
      }
      if (t instanceof org.junit.runners.model.MultipleFailureException) {
        for (Throwable u : ((org.junit.runners.model.MultipleFailureException) t).getFailures()) {
          if (assumption(u)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  private static void count(Description d, String status, String why) {
    if (d.isTest()) {
      if (DONE.add(d)) {
        line(d, status, why);
      }
    } else {
      for (Description c : d.getChildren()) {
        count(c, status, why);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    out = new PrintStream(new FileOutputStream(args[0], true), true, "UTF-8");
    testClass = args[1];
    Set<String> only = read("conformance.only");
    Set<String> except = read("conformance.except");
    Runner runner = Request.aClass(Class.forName(args[1])).getRunner();
    try {
      new org.junit.runner.manipulation.Filterable[] { (org.junit.runner.manipulation.Filterable) runner }[0]
        .filter(new Filter() {
          @Override
          public boolean shouldRun(Description d) {
            if (d.isTest()) {
              return (only == null || only.contains(key(d)))
                && (except == null || !except.contains(key(d)));
            }
            for (Description c : d.getChildren()) {
              if (shouldRun(c)) {
                return true;
              }
            }
            return false;
          }

          @Override
          public String describe() {
            return "listed";
          }
        });
    } catch (NoTestsRemainException e) {
      System.exit(0);
    } catch (ClassCastException e) {
      System.err.println("conformance: not filterable: " + runner);
    }
    if (Boolean.getBoolean("conformance.list")) {
      count(runner.getDescription(), "list", "");
      System.exit(0);
    }
    long limit = Long.getLong("conformance.testSeconds", 120) * 1000;
    long classLimit = Long.getLong("conformance.classSeconds", 600) * 1000;
    long begun = System.currentTimeMillis();
    Set<Description> running = ConcurrentHashMap.newKeySet();
    Thread watchdog = new Thread(() -> {
      while (true) {
        try {
          Thread.sleep(500);
        } catch (InterruptedException e) {
          return;
        }
        long now = System.currentTimeMillis();
        for (Description d : running) {
          if (now - STARTED.get(d) > limit) {
            line(d, "fail", "conformance: no end within " + limit / 1000 + " s");
            quit(75);
          }
        }
        if (now - begun > classLimit) {
          count(runner.getDescription(), "fail",
            "conformance: class not done within " + classLimit / 1000 + " s");
          quit(76);
        }
      }
    });
    watchdog.setDaemon(true);
    watchdog.start();
    JUnitCore core = new JUnitCore();
    core.addListener(new RunListener() {
      @Override
      public void testStarted(Description d) {
        External.asked = null;
        STARTED.put(d, System.currentTimeMillis());
        running.add(d);
      }

      @Override
      public void testFinished(Description d) {
        running.remove(d);
        if (DONE.add(d)) {
          line(d, "pass", External.asked == null ? "" : "not judged: asked for JVM internals: " + External.asked);
        }
      }

      @Override
      public void testFailure(Failure f) {
        boolean a = assumption(f.getException());
        if ((!a || Boolean.getBoolean("conformance.allTraces"))
          && System.getProperty("conformance.traces") != null) {
          System.err.println("conformance: " + f.getDescription() + "\n" + f.getTrace());
        }
        if (f.getDescription().isTest() && !DONE.add(f.getDescription())) {
          return;
        }
        if (f.getDescription().isTest()) {
          line(f.getDescription(), a ? "skip" : "fail", String.valueOf(f.getException()));
        } else {
          count(f.getDescription(), a ? "skip" : "fail",
            "(class) " + f.getException());
        }
      }

      @Override
      public void testAssumptionFailure(Failure f) {
        testFailure(f);
      }

      @Override
      public void testIgnored(Description d) {
        count(d, "skip", "@Ignore");
      }
    });
    core.run(runner);
    count(runner.getDescription(), "skip", "not reached");
    if (External.util == null) {
      out.println(args[1] + "\t(class)\tunit\t0\tnever asked for a cluster");
    }
    quit(0);
  }

  @SuppressWarnings("removal")
  private static void quit(int rc) {
    out.flush();
    OwnServer.stopAll();
    try {
      System.setSecurityManager(null);
    } catch (Throwable t) {
      // there was none
    }
    Runtime.getRuntime().halt(rc);
  }
}
