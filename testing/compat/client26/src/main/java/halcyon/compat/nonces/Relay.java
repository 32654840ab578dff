package halcyon.compat.nonces;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.hbase.shaded.protobuf.generated.RPCProtos.RequestHeader;
import org.apache.hadoop.hbase.shaded.protobuf.generated.RPCProtos.ResponseHeader;

/**
 * Stands between the client and the server, understands HBase's RPC frames, and kills the server around the answer of a
 * {@code Mutate} or {@code Multi} call.
 *
 * <p>{@link Fault#AFTER_ANSWER}: the first answer that arrives is not passed on, nor are those that follow within
 * {@link #SWALLOW_MS}. Then the server is killed and all connections end. The server has done the work, and the client
 * cannot know. {@link Fault#AFTER_REQUEST}: the server is killed within two milliseconds after it got a request, so that
 * it may or may not have done the work.
 */
final class Relay {
  /** How long further answers are collected, so that one kill takes the answers of several threads. */
  private static final long SWALLOW_MS = 15;
  private static final Set<String> METHODS = Set.of("Mutate", "Multi");
  private static final int PREAMBLE_BYTES = 6;
  private static final int FRAME_BYTES_MAX = 1 << 20;

  enum Fault { NONE, AFTER_ANSWER, AFTER_REQUEST, SWALLOWING }

  private final InetAddress address;
  private final Runnable kill;
  private final AtomicReference<Fault> fault = new AtomicReference<>(Fault.NONE);
  private final AtomicInteger swallowed = new AtomicInteger();
  private final AtomicInteger unanswered = new AtomicInteger();
  private final AtomicInteger kills = new AtomicInteger();
  private final Set<Pipe> pipes = ConcurrentHashMap.newKeySet();

  /** @param kill ends the server at once and returns when it is gone */
  Relay(InetAddress address, Runnable kill) {
    this.address = address;
    this.kill = kill;
  }

  /** Accepts connections on {@code address:port} and passes them on to {@code 127.0.0.1:port}. */
  void listen(int port) throws IOException {
    ServerSocket server = new ServerSocket(port, 100, address);
    daemon("relay " + port, () -> {
      while (true) {
        Socket client = server.accept();
        daemon("relay to server", () -> new Pipe(client, port).run());
      }
    });
  }

  /** Makes the next matching moment fatal for the server. */
  void arm(Fault next) {
    fault.set(next);
  }

  /** Kills so far: one more than before when the fault of {@link #arm} took effect. */
  int kills() {
    return kills.get();
  }

  /** Answers that the server gave and the client did not get. */
  int swallowed() {
    return swallowed.get();
  }

  /** Calls that the server had got and not yet answered when it was killed. */
  int unanswered() {
    return unanswered.get();
  }

  private void killServer() {
    pipes.forEach(pipe -> unanswered.addAndGet(pipe.open.size()));
    kill.run();
    pipes.forEach(Pipe::close);
    fault.set(Fault.NONE);
    kills.incrementAndGet();
  }

  private interface Task {
    void run() throws Exception;
  }

  private static void daemon(String name, Task task) {
    Thread thread = new Thread(() -> {
      try {
        task.run();
      } catch (Exception e) {
        // a connection that ended; the client looks for another
      }
    }, name);
    thread.setDaemon(true);
    thread.start();
  }

  /** One connection and its calls that have no answer yet. */
  private final class Pipe {
    private final Socket client;
    private final int port;
    private final Map<Integer, String> open = new ConcurrentHashMap<>();
    private volatile Socket server;

    Pipe(Socket client, int port) {
      this.client = client;
      this.port = port;
    }

    void run() throws Exception {
      pipes.add(this);
      try {
        server = connect();
        client.setTcpNoDelay(true);
        server.setTcpNoDelay(true);
        daemon("relay to client", () -> {
          try {
            answers();
          } finally {
            close();
          }
        });
        requests();
      } finally {
        close();
      }
    }

    /** The server may be on its way up: the connection waits for it. */
    private Socket connect() throws Exception {
      for (int tries = 0;; tries++) {
        Socket socket = new Socket();
        try {
          socket.connect(new InetSocketAddress("127.0.0.1", port), 5_000);
          return socket;
        } catch (IOException e) {
          socket.close();
          if (tries == 1000) {
            throw e;
          }
          Thread.sleep(10);
        }
      }
    }

    private void requests() throws IOException {
      DataInputStream in = new DataInputStream(client.getInputStream());
      DataOutputStream out = new DataOutputStream(server.getOutputStream());
      out.write(read(in, PREAMBLE_BYTES));
      frame(in, out); // the connection header
      while (true) {
        byte[] frame = read(in, length(in));
        RequestHeader header = RequestHeader.parseDelimitedFrom(new ByteArrayInputStream(frame));
        boolean counts = METHODS.contains(header.getMethodName());
        if (counts) {
          open.put(header.getCallId(), header.getMethodName());
        }
        write(out, frame);
        if (counts && fault.compareAndSet(Fault.AFTER_REQUEST, Fault.NONE)) {
          pause(ThreadLocalRandom.current().nextInt(2_000_000));
          killServer();
        }
      }
    }

    private void answers() throws IOException {
      DataInputStream in = new DataInputStream(server.getInputStream());
      DataOutputStream out = new DataOutputStream(client.getOutputStream());
      while (true) {
        byte[] frame = read(in, length(in));
        int call = ResponseHeader.parseDelimitedFrom(new ByteArrayInputStream(frame)).getCallId();
        if (open.remove(call) == null) {
          write(out, frame);
        } else if (fault.compareAndSet(Fault.AFTER_ANSWER, Fault.SWALLOWING)) {
          swallowed.incrementAndGet();
          daemon("kill", () -> {
            Thread.sleep(SWALLOW_MS);
            killServer();
          });
        } else if (fault.get() == Fault.SWALLOWING) {
          swallowed.incrementAndGet();
        } else {
          write(out, frame);
        }
      }
    }

    void close() {
      pipes.remove(this);
      for (Socket socket : new Socket[] {client, server}) {
        try {
          if (socket != null) {
            socket.close();
          }
        } catch (IOException e) {
          // it is closed either way
        }
      }
    }
  }

  private static void pause(int nanos) {
    long end = System.nanoTime() + nanos;
    while (System.nanoTime() < end) {
      Thread.onSpinWait();
    }
  }

  private static int length(DataInputStream in) throws IOException {
    int length = in.readInt();
    if (length < 0 || length > FRAME_BYTES_MAX) {
      throw new IOException("a frame of " + length + " bytes");
    }
    return length;
  }

  private static byte[] read(InputStream in, int length) throws IOException {
    byte[] bytes = in.readNBytes(length);
    if (bytes.length < length) {
      throw new IOException("end of stream");
    }
    return bytes;
  }

  private static void frame(DataInputStream in, DataOutputStream out) throws IOException {
    write(out, read(in, length(in)));
  }

  /** A frame in one piece, so that it does not wait for an acknowledgement of its length. */
  private static void write(DataOutputStream out, byte[] frame) throws IOException {
    byte[] whole = new byte[4 + frame.length];
    java.nio.ByteBuffer.wrap(whole).putInt(frame.length).put(frame);
    out.write(whole);
    out.flush();
  }
}
