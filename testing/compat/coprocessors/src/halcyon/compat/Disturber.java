package halcyon.compat;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/** Writes what is no frame on the connection of the present call. */
final class Disturber {
  private Disturber() {
  }

  static void writeGarbage() throws IOException {
    try {
      Class<?> type = Class.forName("halcyon.coprocessor.Lane");
      Object lane = type.getMethod("current").invoke(null);
      Field channel = type.getDeclaredField("channel");
      channel.setAccessible(true);
      ByteBuffer garbage = ByteBuffer.wrap("this is no frame at all".getBytes());
      ((SocketChannel) channel.get(lane)).write(garbage);
    } catch (ReflectiveOperationException error) {
      throw new IOException(error);
    }
  }
}
