// Many runs of HBase's PerformanceEvaluation and RowCounter in one JVM, since a JVM start costs seconds.
//   java PeRunner.java CASES LOG_DIR [-Dkey=value ...]
// CASES is a file with one run a line, fields apart by tabs:
//   pe     NAME  SECONDS_MAX  arguments of PerformanceEvaluation apart by spaces
//   count  NAME  SECONDS_MAX  TABLE ROWS        RowCounter must find ROWS rows; "N-M" is a range
// What a run prints goes to LOG_DIR/NAME.log. A run passes when it returns 0 and printed no exception.
// Prints a line for each run and ends with 1 if any failed. A run that does not end in time fails the rest too:
// its threads would go on working beside them.
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.PerformanceEvaluation;
import org.apache.hadoop.hbase.mapreduce.RowCounter;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.util.ToolRunner;

public class PeRunner {
  private static final Pattern TROUBLE = Pattern.compile("Exception|java\\.lang\\.\\w*Error|^\\s+at \\w", Pattern.MULTILINE);
  private static final Pattern SUMMARY = Pattern.compile("Summary of timings \\(ms\\): \\[([\\d, ]+)\\]");
  private static final ExecutorService POOL = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task, "run");
    thread.setDaemon(true);
    return thread;
  });

  /** Where stdout and stderr go; loggers keep the stream they met first, so that one stream has to switch. */
  private static final class Switch extends OutputStream {
    private ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    @Override public synchronized void write(int b) { bytes.write(b); }
    @Override public synchronized void write(byte[] b, int from, int count) { bytes.write(b, from, count); }

    synchronized String take() {
      String text = bytes.toString();
      bytes = new ByteArrayOutputStream();
      return text;
    }
  }

  public static void main(String[] args) throws Exception {
    PrintStream report = System.out;
    Switch output = new Switch();
    System.setOut(new PrintStream(output, true));
    System.setErr(new PrintStream(output, true));
    List<String> cases = Files.readAllLines(Path.of(args[0]));
    Path logs = Path.of(args[1]);
    List<String> settings = Arrays.asList(args).subList(2, args.length);
    int failed = 0;
    boolean stuck = false;
    for (String line : cases) {
      if (line.isBlank()) {
        continue;
      }
      String[] fields = line.split("\t");
      if (stuck) {
        report.printf("FAILED %-28s not run%n", fields[1]);
        failed++;
        continue;
      }
      long started = System.nanoTime();
      String complaint;
      Future<String> run = POOL.submit(() -> fields[0].equals("count") ? count(fields[3], settings) : evaluate(fields[3], settings));
      try {
        complaint = run.get(Long.parseLong(fields[2]), TimeUnit.SECONDS);
      } catch (TimeoutException e) {
        complaint = "did not end within " + fields[2] + " s";
        stuck = true;
        Thread.getAllStackTraces().forEach((thread, frames) -> {
          System.err.println("thread " + thread.getName() + " " + thread.getState());
          Arrays.stream(frames).limit(25).forEach(frame -> System.err.println("    " + frame));
        });
      } catch (Exception e) {
        (e.getCause() == null ? e : e.getCause()).printStackTrace();
        complaint = "" + (e.getCause() == null ? e : e.getCause());
      }
      double seconds = (System.nanoTime() - started) / 1e9;
      String text = output.take();
      Files.writeString(logs.resolve(fields[1] + ".log"), "+ " + fields[3] + "\n" + text);
      Matcher trouble = TROUBLE.matcher(text);
      if (complaint.isEmpty() && trouble.find()) {
        complaint = text.substring(text.lastIndexOf('\n', trouble.start()) + 1).lines().findFirst().orElse("");
      }
      Matcher summary = SUMMARY.matcher(text);
      String worked = summary.find() ? "[" + summary.group(1) + "] ms a client" : "";
      if (complaint.isEmpty()) {
        report.printf("ok     %-28s %6.1f s  %s  %s%n", fields[1], seconds, fields[3], worked);
      } else {
        failed++;
        report.printf("FAILED %-28s %6.1f s  %s%n       %s%n", fields[1], seconds, fields[3],
            complaint.lines().findFirst().orElse(complaint));
      }
      report.flush();
    }
    Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
  }

  private static Configuration configuration(List<String> settings) {
    Configuration conf = HBaseConfiguration.create();
    for (String setting : settings) {
      int equals = setting.indexOf('=');
      conf.set(setting.substring(2, equals), setting.substring(equals + 1));
    }
    return conf;
  }

  /** Empty if all went well, else what is wrong. */
  private static String evaluate(String arguments, List<String> settings) throws Exception {
    Configuration conf = configuration(settings);
    int code = ToolRunner.run(conf, new PerformanceEvaluation(conf), arguments.split(" +"));
    return code == 0 ? "" : "PerformanceEvaluation returned " + code;
  }

  private static String count(String arguments, List<String> settings) throws Exception {
    Configuration conf = configuration(settings);
    conf.set("mapreduce.framework.name", "local");
    conf.set("hbase.client.scanner.caching", "100");
    conf.set("mapreduce.client.completion.pollinterval", "100"); // not five seconds
    String[] words = arguments.split(" +");
    Job job = RowCounter.createSubmittableJob(conf, new String[] {words[0]});
    if (!job.waitForCompletion(false)) {
      return "the job of RowCounter failed";
    }
    long rows = job.getCounters()
        .findCounter("org.apache.hadoop.hbase.mapreduce.RowCounter$RowCounterMapper$Counters", "ROWS").getValue();
    System.err.println("RowCounter: " + rows + " rows");
    String[] range = words[1].split("-");
    long least = Long.parseLong(range[0]);
    long most = Long.parseLong(range[range.length - 1]);
    return rows >= least && rows <= most ? "" : "RowCounter found " + rows + " rows";
  }
}
