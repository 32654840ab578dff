// A codec that writes and reads plain zstd streams, as Hadoop's native ZStandardCodec does. That one needs libhadoop, which is in no jar.

import com.github.luben.zstd.ZstdInputStream;
import com.github.luben.zstd.ZstdOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.CompressionOutputStream;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;

public class ZstdStreams implements CompressionCodec {
  @Override
  public CompressionOutputStream createOutputStream(OutputStream out) throws IOException {
    return new Output(out);
  }

  @Override
  public CompressionOutputStream createOutputStream(OutputStream out, Compressor compressor) throws IOException {
    return createOutputStream(out);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in) throws IOException {
    return new Input(in);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
    return createInputStream(in);
  }

  @Override
  public Class<? extends Compressor> getCompressorType() {
    return null;
  }

  @Override
  public Compressor createCompressor() {
    return null;
  }

  @Override
  public Class<? extends Decompressor> getDecompressorType() {
    return null;
  }

  @Override
  public Decompressor createDecompressor() {
    return null;
  }

  @Override
  public String getDefaultExtension() {
    return ".zst";
  }

  private static class Output extends CompressionOutputStream {
    private ZstdOutputStream stream;

    Output(OutputStream out) throws IOException {
      super(out);
      resetState();
    }

    @Override
    public void write(int value) throws IOException {
      stream.write(value);
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      stream.write(bytes, from, length);
    }

    @Override
    public void finish() throws IOException {
      stream.close(); // the file below stays open
    }

    @Override
    public void resetState() throws IOException {
      stream = new ZstdOutputStream(new FilterOutputStream(out) {
        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
          out.write(bytes, from, length);
        }

        @Override
        public void close() {
        }
      });
    }
  }

  private static class Input extends CompressionInputStream {
    private final ZstdInputStream stream;

    Input(InputStream in) throws IOException {
      super(in);
      stream = new ZstdInputStream(in);
    }

    @Override
    public int read() throws IOException {
      return stream.read();
    }

    @Override
    public int read(byte[] bytes, int from, int length) throws IOException {
      return stream.read(bytes, from, length);
    }

    @Override
    public void resetState() {
    }
  }
}
