package halcyon.coprocessor;

import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/**
 * One connection with the server: a stack of calls, for one thread. A thread that the server has called keeps to the connection of that call.
 * Another thread, which a coprocessor has started, opens a connection of its own.
 */
public final class Lane implements AutoCloseable {
  private static final ThreadLocal<Lane> CURRENT = new ThreadLocal<>();

  private final SocketChannel channel;
  private final int frameBytesMax;
  private final Dispatcher dispatcher;
  /** What the calls of this connection keep from one to the next. */
  public final CallState state = new CallState();
  private ByteBuffer buffer = ByteBuffer.allocateDirect(64 << 10);

  public Lane(SocketChannel channel, int frameBytesMax, Dispatcher dispatcher) {
    this.channel = channel;
    this.frameBytesMax = frameBytesMax;
    this.dispatcher = dispatcher;
    buffer.limit(0);
  }

  /** The connection of the present thread. */
  public static Lane current() throws IOException {
    Lane lane = CURRENT.get();
    if (lane == null || !lane.channel.isOpen()) {
      lane = Host.connect();
      CURRENT.set(lane);
    }
    return lane;
  }

  /** Closes the connection that the present thread has opened, if any. For a thread that ends; not for one that the server has called. */
  public static void end() {
    Lane lane = CURRENT.get();
    if (lane == null) return;
    CURRENT.remove();
    lane.close();
  }

  static Lane open(Path server, int frameBytesMax, Dispatcher dispatcher) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    channel.connect(UnixDomainSocketAddress.of(server));
    return new Lane(channel, frameBytesMax, dispatcher);
  }

  /** Answers calls until the server closes the connection. */
  void serve() throws IOException {
    CURRENT.set(this);
    try {
      for (Frame call = read(); call != null; call = read()) {
        state.begin();
        answer(call);
      }
    } finally {
      CURRENT.remove();
      close();
    }
  }

  /** Calls the server, and answers what it calls meanwhile. */
  public Frame call(Frame call) throws IOException {
    try {
      write(call);
      for (;;) {
        Frame frame = read();
        if (frame == null) throw new EOFException("the region server has closed the connection");
        switch (frame.kind) {
          case Frame.ANSWER: return frame;
          case Frame.FAILURE: throw frame.failure.toException();
          default: answer(frame);
        }
      }
    } catch (Broken broken) {
      close();
      throw broken;
    }
  }

  private void answer(Frame call) throws IOException {
    Frame answer;
    try {
      if (call.kind != Frame.CALL) throw new Broken("a frame of kind " + call.kind + " that nobody waits for");
      answer = dispatcher.dispatch(call, state);
    } catch (Broken broken) {
      throw broken;
    } catch (Throwable error) {
      answer = Frame.failure(error);
    }
    byte[] bytes = answer.bytes();
    if (bytes.length > frameBytesMax) {
      bytes = Frame.failure(new org.apache.hadoop.hbase.DoNotRetryIOException(
        "the answer of a coprocessor has " + bytes.length + " bytes, and a frame at most " + frameBytesMax)).bytes();
    }
    write(bytes);
  }

  private void write(Frame frame) throws IOException {
    byte[] bytes = frame.bytes();
    if (bytes.length > frameBytesMax) {
      throw new org.apache.hadoop.hbase.DoNotRetryIOException(
        "a call of a coprocessor has " + bytes.length + " bytes, and a frame at most " + frameBytesMax);
    }
    write(bytes);
  }

  private void write(byte[] bytes) throws IOException {
    ByteBuffer out = ByteBuffer.allocate(4 + bytes.length).putInt(bytes.length).put(bytes).flip();
    try {
      while (out.hasRemaining()) channel.write(out);
    } catch (IOException error) {
      throw new Broken("the connection with the region server is gone: " + error.getMessage());
    }
  }

  /** Null: the server has closed the connection. */
  private Frame read() throws IOException {
    if (!fill(4)) return null;
    int length = buffer.getInt();
    if (length < 0 || length > frameBytesMax) throw new Broken("a frame of " + length + " bytes; at most " + frameBytesMax);
    byte[] bytes = new byte[length];
    int have = Math.min(length, buffer.remaining());
    buffer.get(bytes, 0, have);
    ByteBuffer rest = ByteBuffer.wrap(bytes, have, length - have);
    try {
      while (rest.hasRemaining()) {
        if (channel.read(rest) < 0) throw new Broken("the region server has closed the connection in a frame");
      }
    } catch (Broken broken) {
      throw broken;
    } catch (IOException error) {
      throw new Broken("the connection with the region server is gone: " + error.getMessage());
    }
    return Frame.read(bytes);
  }

  private boolean fill(int count) throws IOException {
    while (buffer.remaining() < count) {
      buffer.compact();
      int read;
      try {
        read = channel.read(buffer);
      } catch (IOException error) {
        buffer.flip();
        return false;
      }
      buffer.flip();
      if (read < 0) return false;
    }
    return true;
  }

  @Override
  public void close() {
    try {
      channel.close();
    } catch (IOException error) {
      // It is of no use any more in any case.
    }
  }

  /** The connection is of no use any more. */
  static final class Broken extends IOException {
    private static final long serialVersionUID = 1;

    Broken(String why) {
      super(why);
    }
  }

  /** What answers calls. */
  interface Dispatcher {
    Frame dispatch(Frame call, CallState state) throws Exception;
  }
}
