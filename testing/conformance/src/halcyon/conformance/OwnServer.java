package halcyon.conformance;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HBaseZKTestingUtility;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.StartMiniClusterOption;
import org.apache.hadoop.hbase.io.crypto.KeyProviderForTesting;
import org.apache.hadoop.hbase.io.crypto.KeyStoreKeyProvider;
import org.apache.hadoop.hbase.security.User;

/**
 * A server for each mini cluster that a class starts, in a process of its own, with the properties that the test has set.
 * conformance.own is the command that starts one: it reads DIR/properties.xml, prints addresses and "ready", and ends with its
 * standard input.
 */
final class OwnServer {
  private static final String COMMAND = System.getProperty("conformance.own", "");
  static final boolean ON = !COMMAND.isEmpty();

  /** Properties of files, ports and clients: what the server gets from its script, or never reads. */
  private static final String[] NOT_THE_SERVERS = {"hbase.rootdir", "hbase.tmp.dir", "hbase.wal.dir", "hbase.fs.tmp.dir",
    "hbase.bulkload.staging.dir", "hbase.local.dir", "hbase.zookeeper.", "zookeeper.", "hbase.masters", "hbase.cluster.distributed",
    "hbase.client.bootstrap", "hbase.client.registry", "hbase.client.connection", "hbase.client.async", "hbase.client.retries",
    "hbase.client.pause", "hbase.client.operation", "hbase.rpc.", "hbase.testing.", "hbase.testcluster.", "hbase.status.multicast",
    "hbase.master.hostname", "hbase.regionserver.hostname", "hbase.defaults.", "hbase.unsafe.stream", "test.", "conformance.",
    "hbase.regionserver.impl", "hbase.master.impl", "hbase.dynamic.jars.dir", "hbase.localcluster."};
  private static final String PASSWORD = "password";
  private static final Map<HBaseZKTestingUtility, OwnServer> SERVERS = new IdentityHashMap<>();
  private static int started;

  private final File dir;
  private Process process;
  private BufferedReader answers;
  private String zooKeeper = "";
  private String master = "";
  /** In a cluster; with all region servers that have been started since. */
  private final List<ServerName> masterNames = new ArrayList<>();
  private final List<ServerName> serverNames = new ArrayList<>();
  private int masters = 1;
  private int regionServers = 1;

  private OwnServer(File dir) {
    this.dir = dir;
  }

  static String zooKeeper(HBaseZKTestingUtility u) {
    OwnServer server = SERVERS.get(u);
    if (server == null) {
      External.internals("ZooKeeper before the server");
    }
    return server.zooKeeper;
  }

  /** Starts the server of a test. With keep it has the files of the one before. Without an option it has as many servers as before. */
  static synchronized void start(HBaseTestingUtility u, boolean keep, StartMiniClusterOption option) throws IOException {
    OwnServer server = SERVERS.get(u);
    if (server != null) {
      server.end(false);
    }
    if (server == null || !keep) {
      File dir = new File(System.getProperty("conformance.dir", "."), "server" + started++).getAbsoluteFile();
      server = new OwnServer(dir);
      SERVERS.put(u, server);
    }
    if (option != null) {
      // those that are always on standby do nothing
      server.masters = option.getNumMasters();
      server.regionServers = Math.max(option.getNumRegionServers(), 1);
    }
    server.begin(u.getConfiguration());
    if (isCluster()) {
      Masters.started(u, server.masterNames);
    }
  }

  static synchronized void stop(HBaseTestingUtility u) {
    OwnServer server = SERVERS.get(u);
    if (server != null) {
      server.end(false);
    }
  }

  static synchronized void kill(HBaseTestingUtility u) {
    OwnServer server = SERVERS.get(u);
    if (server != null) {
      server.end(true);
    }
  }

  static synchronized void stopAll() {
    SERVERS.values().forEach(server -> server.end(true));
  }

  private void begin(Configuration conf) throws IOException {
    dir.mkdirs();
    Files.write(dir.toPath().resolve("properties.xml"), properties(conf).getBytes(StandardCharsets.UTF_8));
    File errors = new File(dir, "start.log");
    process = new ProcessBuilder(COMMAND, dir.getPath(), String.valueOf(masters), String.valueOf(regionServers)).redirectError(errors).start();
    String root = Path.of(dir.getPath(), "data").toUri().toString().replaceAll("/$", "");
    String znode = "/hbase";
    masterNames.clear();
    serverNames.clear();
    answers = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    while (true) {
      String line = answers.readLine();
      if (line == null) {
        throw new IOException("the server did not start: " + reason(errors.toPath()));
      }
      String[] words = line.split(" ");
      switch (words[0]) {
        case "zookeeper" -> zooKeeper = words[1];
        case "master" -> master = words[1];
        case "master-name" -> masterNames.add(ServerName.valueOf(words[1]));
        case "server-name" -> serverNames.add(ServerName.valueOf(words[1]));
        case "root" -> root = words[1];
        case "znode" -> znode = words[1];
        default -> {
        }
      }
      if (line.equals("ready")) {
        break;
      }
    }
    int colon = zooKeeper.lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", zooKeeper.substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", zooKeeper.substring(colon + 1));
    conf.set("zookeeper.znode.parent", znode);
    conf.set("hbase.masters", master);
    conf.set("hbase.rootdir", root);
    if (root.startsWith("hdfs:")) {
      conf.set("fs.defaultFS", URI.create(root).resolve("/").toString()); // tests look for files there
    }
  }

  /** The end of what the server printed, without notices of properties that it does not read. */
  private static String reason(Path log) throws IOException {
    List<String> lines = Files.readAllLines(log);
    lines.removeIf(line -> line.contains(" is not used: ") || line.contains(" INFO ") || line.startsWith("\tat "));
    return String.join(" ", lines.subList(0, Math.min(lines.size(), 12))).trim();
  }

  /** Whether single masters and region servers can be started, stopped and killed. */
  static boolean isCluster() {
    return ON && "cluster".equals(System.getenv("CONFORMANCE_SERVER"));
  }

  /** Tells the script of a test's cluster "start", "start-master" on a port or on any (0), or "kill", "stop" or "state" of the server with this port, for a method of the test. */
  static synchronized String order(HBaseZKTestingUtility u, String method, String order, int port) throws IOException {
    OwnServer server = SERVERS.get(u);
    if (!isCluster() || server == null || server.process == null) {
      External.internals(method);
    }
    server.process.getOutputStream().write(("server-" + order + " " + port + "\n").getBytes(StandardCharsets.UTF_8));
    server.process.getOutputStream().flush();
    String answer = "";
    while (true) {
      String line = server.answers.readLine();
      if (line == null) {
        throw new IOException("the script of the servers has ended: see start.log");
      }
      if (line.equals("done")) {
        return answer;
      }
      answer = line;
    }
  }

  static synchronized ServerName startRegionServer(HBaseZKTestingUtility u) throws IOException {
    String answer = order(u, "MiniHBaseCluster.startRegionServer", "start", 0);
    ServerName name = ServerName.valueOf(answer.replace("server-name ", ""));
    SERVERS.get(u).serverNames.add(name);
    return name;
  }

  /** All region servers of a test's cluster, also those that have ended. */
  static synchronized List<ServerName> regionServers(HBaseZKTestingUtility u) {
    return new ArrayList<>(SERVERS.get(u).serverNames);
  }

  private void end(boolean kill) {
    if (process == null) {
      return;
    }
    try {
      if (kill) {
        process.getOutputStream().write("kill\n".getBytes(StandardCharsets.UTF_8));
      }
      process.getOutputStream().close();
      if (!process.waitFor(60, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (IOException | InterruptedException e) {
      process.destroyForcibly();
    }
    process = null;
  }

  /** What the test changed, as the properties of an hbase-site.xml. */
  private String properties(Configuration conf) throws IOException {
    Configuration defaults = new Configuration(false);
    defaults.addResource("hbase-default.xml");
    Map<String, String> changed = new TreeMap<>();
    for (Map.Entry<String, String> e : conf) {
      String name = e.getKey();
      String value = conf.get(name);
      if (value != null && !value.equals(defaults.get(name)) && isTheServers(name)) {
        changed.put(name, value);
      }
    }
    if (changed.getOrDefault(HConstants.CRYPTO_KEYPROVIDER_CONF_KEY, "").equals(KeyProviderForTesting.class.getName())) {
      changed.put(HConstants.CRYPTO_KEYPROVIDER_CONF_KEY, KeyStoreKeyProvider.class.getName());
      changed.put(HConstants.CRYPTO_KEYPROVIDER_PARAMETERS_KEY, "jceks://" + keys(conf) + "?password=" + PASSWORD);
    }
    StringBuilder xml = new StringBuilder();
    changed.forEach((name, value) -> xml.append("<property><name>").append(escaped(name)).append("</name><value>")
      .append(escaped(value)).append("</value></property>\n"));
    return xml.toString();
  }

  /** A key store with the keys that HBase's provider for tests makes of their names. */
  private String keys(Configuration conf) throws IOException {
    File file = new File(dir, "keys.jceks");
    KeyProviderForTesting provider = new KeyProviderForTesting();
    try (OutputStream out = new FileOutputStream(file)) {
      KeyStore store = KeyStore.getInstance("JCEKS");
      store.load(null, null);
      for (String name : new String[] {"hbase", "other", "hbase.wal.key", User.getCurrent().getShortName(),
        conf.get(HConstants.CRYPTO_MASTERKEY_NAME_CONF_KEY), conf.get(HConstants.CRYPTO_MASTERKEY_ALTERNATE_NAME_CONF_KEY),
        conf.get(HConstants.CRYPTO_WAL_KEY_NAME_CONF_KEY)}) {
        if (name != null) {
          store.setKeyEntry(name, provider.getKey(name), PASSWORD.toCharArray(), null);
        }
      }
      store.store(out, PASSWORD.toCharArray());
    } catch (GeneralSecurityException e) {
      throw new IOException(e);
    }
    return file.getPath();
  }

  private static boolean isTheServers(String name) {
    if (name.endsWith(".port") || name.endsWith(".port.auto") || name.endsWith(".ipc.address")) {
      return false;
    }
    for (String prefix : NOT_THE_SERVERS) {
      if (name.startsWith(prefix)) {
        return false;
      }
    }
    return !name.matches("(fs|dfs|hadoop|mapreduce|mapred|yarn|io|ipc|net|file|ftp|ha|nfs|s3|s3a|rpc|seq|map|tfile|adl|wasb|httpfs|original|s3native)\\..*");
  }

  private static String escaped(String text) {
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;");
  }
}
