package halcyon.compat.nonces;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The server under test: started on fixed ports and one directory, killed with SIGKILL, started again. */
final class ServerProcess {
  private static final long READY_MS_MAX = 60_000;

  private final List<String> command = new ArrayList<>();
  private final Path log;
  private volatile Process process;
  private volatile boolean diedBefore;

  /**
   * @param advertised the address that clients are told, where the {@link Relay} listens
   * @param ports      of ZooKeeper, master and region server
   */
  ServerProcess(String binary, Path directory, String advertised, int[] ports) {
    log = directory.resolve("server.log");
    command.addAll(List.of(binary, "standalone", "--data", directory.resolve("data").toString(), "--memory", "256m",
        "--bind", "127.0.0.1", "--hostname", advertised, "--zookeeper-port", "" + ports[0], "--master-port", "" + ports[1],
        "--regionserver-port", "" + ports[2], "--master-info-port", "0", "--regionserver-info-port", "0"));
  }

  /** Starts the server and waits until it says that it is ready. */
  void start() throws IOException, InterruptedException {
    Files.writeString(log, "", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    long before = Files.size(log);
    process = new ProcessBuilder(command).redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
    long deadline = System.currentTimeMillis() + READY_MS_MAX;
    while (!output(before).contains("\nready") && !output(before).startsWith("ready")) {
      if (!process.isAlive() || System.currentTimeMillis() > deadline) {
        kill();
        throw new IOException("the server did not become ready:\n" + output(before));
      }
      Thread.sleep(10);
    }
  }

  private String output(long from) throws IOException {
    byte[] all = Files.readAllBytes(log);
    return new String(all, (int) from, all.length - (int) from, StandardCharsets.UTF_8);
  }

  /** SIGKILL to a server that has to be there. */
  void killRunning() {
    diedBefore |= !process.isAlive();
    kill();
  }

  /** Whether it had ended before it was killed. */
  boolean diedBefore() {
    return diedBefore;
  }

  /** SIGKILL; returns when the process is gone. */
  void kill() {
    process.destroyForcibly();
    try {
      process.waitFor(30, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  boolean panicked() throws IOException {
    return output(0).contains("panicked");
  }
}
