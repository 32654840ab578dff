package halcyon.coprocessor;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.ipc.ServedCall;
import org.apache.hadoop.hbase.regionserver.RegionCoprocessorHost;
import org.apache.hadoop.hbase.regionserver.ServedHost;
import org.apache.hadoop.hbase.regionserver.ServedRegion;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.HBaseProtos;

/**
 * The program: {@code Host DIRECTORY FRAME_BYTES_MAX}. DIRECTORY has the server's socket, and gets the one at which this process is called.
 * It ends when its first connection ends, or its standard input, which the server holds open.
 */
public final class Host {
  private static final ConcurrentHashMap<Long, ServedHost> REGIONS = new ConcurrentHashMap<>();
  private static Path server;
  private static int frameBytesMax;
  private static volatile Configuration configuration;
  private static volatile ServerStub stub;

  private Host() {
  }

  public static void main(String[] arguments) throws Exception {
    Path directory = Path.of(arguments[0]);
    frameBytesMax = Integer.parseInt(arguments[1]);
    server = directory.resolve("server");
    endWithInput();
    ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(directory.resolve("jvm")));
    Lane first = Lane.open(server, frameBytesMax, Host::dispatch);
    thread("first", () -> {
      try {
        first.serve();
      } finally {
        Runtime.getRuntime().halt(0);
      }
    });
    for (int number = 1;; number++) {
      SocketChannel channel = listener.accept();
      thread("call-" + number, () -> new Lane(channel, frameBytesMax, Host::dispatch).serve());
    }
  }

  /** A connection for a thread that the server has not called. */
  static Lane connect() throws IOException {
    return Lane.open(server, frameBytesMax, Host::dispatch);
  }

  public static Iterable<ServedHost> regions() {
    return REGIONS.values();
  }

  private static void endWithInput() {
    thread("end", () -> {
      while (System.in.read() >= 0) {
        // Nothing is ever sent.
      }
      Runtime.getRuntime().halt(0);
    });
  }

  private interface Body {
    void run() throws Exception;
  }

  private static void thread(String name, Body body) {
    Thread thread = new Thread(() -> {
      try {
        body.run();
      } catch (Exception error) {
        System.err.println(name + ": " + error);
      }
    }, name);
    thread.setDaemon(true);
    thread.start();
  }

  private static Frame dispatch(Frame call, CallState state) throws Exception {
    if (call.caller != null) ServedCall.enter(call.caller.call);
    state.enter();
    try {
      switch (call.method) {
        case Methods.CONFIGURE: return configure(call);
        case Methods.PING: return Frame.answer();
        case Methods.CHECK_TABLE:
          RegionCoprocessorHost.testTableCoprocessorAttrs(configuration, table(call.schema));
          return Frame.answer();
        case Methods.LOAD: return load(call);
        default: return region(call).dispatch(call, state);
      }
    } finally {
      state.leave();
    }
  }

  private static ServedHost region(Frame call) throws IOException {
    ServedHost region = REGIONS.get(call.region);
    if (region == null) throw new IOException("region " + call.region + " is not loaded in the JVM of coprocessors");
    if (call.method == Methods.UNLOAD) REGIONS.remove(call.region);
    return region;
  }

  private static Frame configure(Frame call) {
    Configuration configured = HBaseConfiguration.create();
    for (String[] property : call.properties) configured.set(property[0], property[1]);
    configuration = configured;
    stub = new ServerStub(configured, ServerName.valueOf(call.text));
    return Frame.answer();
  }

  private static Frame load(Frame call) throws IOException {
    RegionInfo info = ProtobufUtil.toRegionInfo(HBaseProtos.RegionInfo.parseFrom(call.value));
    ServedRegion region = new ServedRegion(call.region, info, table(call.schema), configuration, stub);
    ServedHost host;
    try {
      host = new ServedHost(region, stub.services(), region.configuration());
    } catch (JvmAborts failed) {
      // The JVM lives on: this region does not open.
      Throwable cause = failed.getCause() == null ? failed : failed.getCause();
      throw new DoNotRetryIOException(failed.getMessage() + ": " + cause, cause);
    }
    region.setCoprocessorHost(host);
    REGIONS.put(call.region, host);
    try {
      host.preOpen();
      host.postOpen();
    } catch (Throwable failed) {
      REGIONS.remove(call.region);
      throw failed;
    }
    Frame answer = Frame.answer();
    answer.hooks = host.hooks();
    if (!host.uncalled().isEmpty()) answer.service = String.join(", ", host.uncalled());
    answer.text = String.join(",", host.getCoprocessors());
    return answer;
  }

  private static TableDescriptor table(byte[] schema) throws IOException {
    return ProtobufUtil.toTableDescriptor(HBaseProtos.TableSchema.parseFrom(schema));
  }
}
