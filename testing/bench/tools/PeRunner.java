// Many runs of HBase's PerformanceEvaluation (PE) and RowCounter in one JVM, since a JVM start costs seconds.
//   java PeRunner.java CASES LOG_DIR
// CASES is a file with one run a line, fields apart by tabs:
//   pe     NAME  SECONDS_MAX  SERVER  arguments of PE apart by spaces
//   count  NAME  SECONDS_MAX  SERVER  TABLE ROWS        RowCounter must find ROWS rows; "N-M" is a range
//   cells  NAME  SECONDS_MAX  SERVER  TABLE ROWS CELLS BYTES    a scan must find so many rows, cells, and bytes of values
// SERVER is host:port of the cluster's ZooKeeper, or host:port/PID to see what the server's process PID consumes meanwhile.
// What a run prints goes to LOG_DIR/NAME.log. A run passes when it returns 0 and printed no exception. Prints a line for
// each run, writes its figures to LOG_DIR/results.tsv (see Figures), and ends with 1 if any run failed. A run that does not
// end in time fails the rest too: its threads would go on working beside them.
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
import java.util.function.ToDoubleFunction;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.PerformanceEvaluation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.mapreduce.RowCounter;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.util.ToolRunner;

public class PeRunner {
  private static final Pattern TROUBLE = Pattern.compile("Exception|java\\.lang\\.\\w*Error|^\\s+at \\w", Pattern.MULTILINE);
  private static final ExecutorService POOL = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task, "run");
    thread.setDaemon(true);
    return thread;
  });

  public static void main(String[] args) throws Exception {
    PrintStream report = System.out;
    Switch output = new Switch();
    System.setOut(new PrintStream(output, true));
    System.setErr(new PrintStream(output, true));
    Path logs = Path.of(args[1]);
    PrintStream results = new PrintStream(Files.newOutputStream(logs.resolve("results.tsv")), true);
    results.println(Figures.HEAD);
    int failed = 0;
    boolean stuck = false;
    for (String line : Files.readAllLines(Path.of(args[0]))) {
      if (line.isBlank()) {
        continue;
      }
      String[] fields = line.split("\t");
      String kind = fields[0], name = fields[1], server = fields[3], arguments = fields[4];
      if (stuck) {
        report.printf("FAILED %-28s not run%n", name);
        failed++;
        continue;
      }
      Configuration conf = configuration(logs, server.split("/")[0]);
      Consumption consumption = new Consumption(server.contains("/") ? server.split("/")[1] : "");
      String complaint;
      Future<String> run = POOL.submit(() -> switch (kind) {
        case "count" -> count(arguments, conf);
        case "cells" -> cells(arguments, conf);
        default -> evaluate(arguments, conf);
      });
      try {
        complaint = run.get(Long.parseLong(fields[2]), TimeUnit.SECONDS);
      } catch (TimeoutException e) {
        complaint = "did not end within " + fields[2] + " s";
        stuck = true;
        printThreads();
      } catch (Exception e) {
        Throwable cause = e.getCause() == null ? e : e.getCause();
        cause.printStackTrace();
        complaint = cause.toString();
      }
      consumption.end();
      String text = output.take();
      Files.writeString(logs.resolve(name + ".log"), "+ " + arguments + "\n" + text);
      String printed = withoutItsEnd(text);
      Matcher trouble = TROUBLE.matcher(printed);
      if (complaint.isEmpty() && trouble.find()) {
        complaint = printed.substring(printed.lastIndexOf('\n', trouble.start()) + 1).lines().findFirst().orElse("");
      }
      if (complaint.isEmpty()) {
        Figures figures = new Figures(text, arguments);
        report.printf("ok     %-28s %6.1f s  %s %s%n", name, consumption.seconds, figures.line(consumption), arguments);
        if (kind.equals("pe")) {
          results.println(name + "\t" + figures.row(consumption));
        }
      } else {
        failed++;
        report.printf("FAILED %-28s %6.1f s  %s%n       %s%n", name, consumption.seconds, arguments,
            complaint.lines().findFirst().orElse(complaint));
      }
      report.flush();
    }
    results.close();
    Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
  }

  private static Configuration configuration(Path logs, String zookeeper) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", zookeeper);
    conf.set("hadoop.tmp.dir", logs.resolve("hadoop").toAbsolutePath().toString());
    return conf;
  }

  /** Empty if all went well, else what is wrong. */
  private static String evaluate(String arguments, Configuration conf) throws Exception {
    int code = ToolRunner.run(conf, new PerformanceEvaluation(conf), arguments.split(" +"));
    return code == 0 ? "" : "PerformanceEvaluation returned " + code;
  }

  private static String cells(String arguments, Configuration conf) throws Exception {
    String[] fields = arguments.split(" ", 2);
    long rows = 0, cells = 0, bytes = 0;
    try (Connection connection = ConnectionFactory.createConnection(conf);
        Table table = connection.getTable(TableName.valueOf(fields[0]));
        ResultScanner scanner = table.getScanner(new Scan().setCaching(100))) {
      for (Result row : scanner) {
        rows++;
        for (Cell cell : row.rawCells()) {
          cells++;
          bytes += cell.getValueLength();
        }
      }
    }
    String found = rows + " " + cells + " " + bytes;
    return found.equals(fields[1]) ? "" : "found " + found + " and not " + fields[1] + " rows, cells, bytes";
  }

  private static String count(String arguments, Configuration conf) throws Exception {
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

  /** PE closes its connection while scans that prefetch still run; the client logs that they were stopped. */
  private static String withoutItsEnd(String text) {
    return Arrays.stream(text.split("(?m)^(?=\\d\\d:\\d\\d:\\d\\d )"))
        .filter(entry -> !entry.contains("StoppedRpcClientException")).collect(Collectors.joining());
  }

  private static void printThreads() {
    Thread.getAllStackTraces().forEach((thread, frames) -> {
      System.err.println("thread " + thread.getName() + " " + thread.getState());
      Arrays.stream(frames).limit(25).forEach(frame -> System.err.println("    " + frame));
    });
  }

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

  /** What server, client and everybody else consumed during a run, in CPU seconds. The kernel counts in 10 ms. */
  private static final class Consumption {
    private static final double TICKS_PER_SECOND = 100;
    private final String server;
    private final long startedNs = System.nanoTime();
    private final double serverBefore, clientBefore, allBefore;
    double seconds, serverCpu, clientCpu, othersCpu;
    long serverRssKb, serverRssPeakKb;

    Consumption(String server) throws Exception {
      this.server = server;
      serverBefore = process(server);
      clientBefore = process("self");
      allBefore = machine();
    }

    void end() throws Exception {
      seconds = (System.nanoTime() - startedNs) / 1e9;
      serverCpu = process(server) - serverBefore;
      clientCpu = process("self") - clientBefore;
      othersCpu = Math.max(0, machine() - allBefore - serverCpu - clientCpu);
      serverRssKb = memory("VmRSS:");
      serverRssPeakKb = memory("VmHWM:");
    }

    private static double process(String pid) throws Exception {
      if (pid.isEmpty()) {
        return 0;
      }
      String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
      return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS_PER_SECOND;
    }

    private static double machine() throws Exception {
      String[] fields = Files.readAllLines(Path.of("/proc/stat")).get(0).split(" +");
      long busy = 0;
      for (int i : new int[] {1, 2, 3, 6, 7}) { // user, nice, system, irq, softirq
        busy += Long.parseLong(fields[i]);
      }
      return busy / TICKS_PER_SECOND;
    }

    private long memory(String key) throws Exception {
      if (server.isEmpty()) {
        return 0;
      }
      return Files.readAllLines(Path.of("/proc/" + server + "/status")).stream().filter(line -> line.startsWith(key))
          .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", ""))).findFirst().orElse(0);
    }
  }

  /**
   * What PE told at its end. Latencies are in microseconds, the median of the clients' medians and the worst client's others;
   * PE rounds each call down. For writes without autoFlush a call is an append to the client's buffer: only the greatest
   * means something, as the longest time that a client had to wait.
   */
  private static final class Figures {
    static final String HEAD = "name\tseconds\tops\tms\tp50_us\tp99_us\tp999_us\tmax_us\tserver_cpu_s\tclient_cpu_s"
        + "\tothers_cpu_s\tserver_rss_kb\tserver_rss_peak_kb\targuments";
    private static final Pattern FINISHED = Pattern.compile("Finished TestClient-\\d+ in (\\d+)ms over (\\d+) rows");
    private static final Pattern LATENCY = Pattern.compile("Latency \\(us\\) : (.*)");
    private final String arguments;
    private final long ops, milliseconds;
    private final double p50, p99, p999, max;

    Figures(String text, String arguments) {
      this.arguments = arguments;
      Matcher sample = Pattern.compile("--sampleRate=([\\d.]+)").matcher(arguments);
      double rate = sample.find() ? Double.parseDouble(sample.group(1)) : 1;
      List<MatchResult> finished = FINISHED.matcher(text).results().collect(Collectors.toList());
      ops = Math.round(rate * finished.stream().mapToLong(match -> Long.parseLong(match.group(2))).sum());
      milliseconds = finished.stream().mapToLong(match -> Long.parseLong(match.group(1))).max().orElse(0);
      List<String> latencies = LATENCY.matcher(text).results().map(match -> match.group(1)).collect(Collectors.toList());
      double[] medians = latencies.stream().mapToDouble(of("50th")).sorted().toArray();
      p50 = medians.length == 0 ? 0 : medians[medians.length / 2];
      p99 = latencies.stream().mapToDouble(of("99th")).max().orElse(0);
      p999 = latencies.stream().mapToDouble(of("99.9th")).max().orElse(0);
      max = latencies.stream().mapToDouble(of("max")).max().orElse(0);
    }

    private static ToDoubleFunction<String> of(String word) {
      Pattern pattern = Pattern.compile("(?:^|[ ,])" + Pattern.quote(word) + "=([\\d.]+)");
      return line -> {
        Matcher matcher = pattern.matcher(line);
        return matcher.find() ? Double.parseDouble(matcher.group(1)) : 0;
      };
    }

    String line(Consumption used) {
      if (ops == 0 || used.server.isEmpty()) {
        return "";
      }
      return String.format("%8d ops %8.0f/s  p99 %.2f ms  p99.9 %.2f ms  max %.0f ms  server %.1f us/op  RSS %d MiB  ", ops,
          ops * 1000.0 / Math.max(1, milliseconds), p99 / 1000, p999 / 1000, max / 1000, used.serverCpu * 1e6 / ops,
          used.serverRssKb / 1024);
    }

    String row(Consumption used) {
      return String.format("%.2f\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%s", used.seconds, ops, milliseconds,
          p50, p99, p999, max, used.serverCpu, used.clientCpu, used.othersCpu, used.serverRssKb, used.serverRssPeakKb, arguments);
    }
  }
}
