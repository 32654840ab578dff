package io.halcyon.junit;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * A Halcyon server on free ports of the loopback interface, for tests without JUnit as well. It keeps its data in a
 * directory of its own, which {@link #close()} deletes together with the process. The server also ends with this JVM.
 *
 * <p>The program is, in this order: the system property {@code halcyon.binary}, the environment variable
 * {@code HALCYON}, or {@code halcyon} in {@code PATH}.
 *
 * <p>Thread-safe: {@link #restart()}, {@link #kill()} and {@link #close()} exclude each other.
 */
public final class HalcyonServer implements AutoCloseable {
  private static final Duration START_TIMEOUT = Duration.ofSeconds(60);
  private static final Duration STOP_TIMEOUT = Duration.ofSeconds(30);
  private static final int LOG_LINES_SHOWN = 30;

  private final Path directory;
  private final List<String> options;
  private final Thread shutdownHook = new Thread(this::endAtExit, "halcyon-shutdown");
  private volatile Process process;
  private volatile String zooKeeper;
  private volatile String master;

  private HalcyonServer(Path directory, List<String> options) {
    this.directory = directory;
    this.options = options;
  }

  /**
   * Starts a server and waits until it takes requests, for a minute at most.
   *
   * @param options more options of {@code halcyon standalone}, such as {@code --memory}, {@code 1g}
   * @throws IllegalStateException if there is no program, or the server does not become ready; the message has the end
   *     of its log
   */
  public static HalcyonServer start(String... options) {
    try {
      HalcyonServer server = new HalcyonServer(Files.createTempDirectory("halcyon-junit"), List.of(options));
      Runtime.getRuntime().addShutdownHook(server.shutdownHook);
      try {
        server.startProcess();
      } catch (RuntimeException e) {
        server.close();
        throw e;
      }
      return server;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The ZooKeeper endpoint as {@code host:port}. */
  public String zooKeeper() {
    return zooKeeper;
  }

  /** The master as {@code host:port}, for HBase's RPC connection registry. */
  public String master() {
    return master;
  }

  /** The properties that an HBase client needs to find this server: {@code configuration.set(name, value)} each. */
  public Map<String, String> clientProperties() {
    int colon = zooKeeper.lastIndexOf(':');
    return Map.of(
        "hbase.zookeeper.quorum", zooKeeper.substring(0, colon),
        "hbase.zookeeper.property.clientPort", zooKeeper.substring(colon + 1),
        "hbase.masters", master);
  }

  /** Where the server keeps its tables. */
  public Path dataDirectory() {
    return directory.resolve("data");
  }

  /** What the server has logged so far. */
  public String log() {
    try {
      return Files.readString(logFile(), StandardCharsets.UTF_8);
    } catch (NoSuchFileException e) {
      return "";
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Ends the process at once, as a crash would ({@code SIGKILL}). {@link #restart()} brings the server back. */
  public synchronized void kill() {
    process.destroyForcibly();
    awaitEnd(process);
  }

  /** Stops the server if it runs, and starts it on the same data. The ports are new ones. */
  public synchronized void restart() {
    stop();
    startProcess();
  }

  /** Stops the server and deletes its data. */
  @Override
  public synchronized void close() {
    stop();
    try {
      Runtime.getRuntime().removeShutdownHook(shutdownHook);
    } catch (IllegalStateException e) {
      // This JVM is ending: the hook runs.
    }
    delete(directory);
  }

  private void startProcess() {
    List<String> command = new ArrayList<>(List.of(program(), "standalone", "--data", dataDirectory().toString(),
        "--bind", "127.0.0.1", "--memory", "256m", "--zookeeper-port", "0", "--master-port", "0",
        "--regionserver-port", "0", "--master-info-port", "0", "--regionserver-info-port", "0"));
    // The server takes an option once: what the caller sets replaces what stands here.
    for (String option : options) {
      int at = command.indexOf(option.split("=", 2)[0]);
      if (at > 0 && option.startsWith("--")) {
        command.subList(at, at + 2).clear();
      }
    }
    command.addAll(options);
    try {
      Files.deleteIfExists(logFile());
      process = new ProcessBuilder(command).redirectErrorStream(true)
          .redirectOutput(logFile().toFile()).redirectInput(new File("/dev/null"))
          .start();
    } catch (IOException e) {
      throw new IllegalStateException("cannot start " + command.get(0)
          + ": set the system property halcyon.binary or the environment variable HALCYON to the program", e);
    }
    awaitReady();
  }

  private void awaitReady() {
    long end = System.nanoTime() + START_TIMEOUT.toNanos();
    while (!log().lines().anyMatch(line -> line.startsWith("ready"))) {
      if (!process.isAlive()) {
        throw new IllegalStateException("the server ended with " + process.exitValue() + ":\n" + endOfLog());
      }
      if (System.nanoTime() > end) {
        throw new IllegalStateException("not ready within " + START_TIMEOUT.toSeconds() + " s:\n" + endOfLog());
      }
      pause();
    }
    zooKeeper = address("zookeeper");
    master = address("master");
  }

  private String address(String role) {
    Matcher line = Pattern.compile("^" + role + " (\\S+:\\d+)", Pattern.MULTILINE).matcher(log());
    if (!line.find()) {
      throw new IllegalStateException("the server does not say where its " + role + " is:\n" + endOfLog());
    }
    return line.group(1);
  }

  private void stop() {
    Process running = process;
    if (running == null || !running.isAlive()) {
      return;
    }
    running.destroy(); // SIGTERM
    try {
      if (running.waitFor(STOP_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    running.destroyForcibly();
    awaitEnd(running);
  }

  private static void awaitEnd(Process process) {
    try {
      process.waitFor();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void endAtExit() {
    if (process != null) {
      process.destroyForcibly();
      awaitEnd(process);
    }
    delete(directory);
  }

  private Path logFile() {
    return directory.resolve("server.log");
  }

  private String endOfLog() {
    List<String> lines = log().lines().collect(Collectors.toList());
    return String.join("\n", lines.subList(Math.max(0, lines.size() - LOG_LINES_SHOWN), lines.size()));
  }

  private static String program() {
    return Optional.ofNullable(System.getProperty("halcyon.binary"))
        .or(() -> Optional.ofNullable(System.getenv("HALCYON"))).orElse("halcyon");
  }

  private static void pause() {
    try {
      Thread.sleep(20);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while the server starts", e);
    }
  }

  private static void delete(Path directory) {
    try (Stream<Path> all = Files.walk(directory)) {
      for (Path path : all.sorted(Comparator.reverseOrder()).collect(Collectors.toList())) {
        Files.deleteIfExists(path);
      }
    } catch (NoSuchFileException e) {
      // Deleted before.
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
