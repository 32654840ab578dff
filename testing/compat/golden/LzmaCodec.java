import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.io.compress.CompressionCodec;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.CompressionOutputStream;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;
import org.tukaani.xz.LZMA2Options;
import org.tukaani.xz.LZMAInputStream;
import org.tukaani.xz.LZMAOutputStream;

/**
 * LZMA as HBase's module hbase-compression-xz has it, with the same library, for HBase's classes: mirrors of Maven Central lack the
 * module. A flush ends a record of Hadoop's block framing: raw length, compressed length, a stream of the .lzma format that says how
 * long its content is.
 */
public class LzmaCodec extends Configured implements CompressionCodec {
  @Override
  public CompressionOutputStream createOutputStream(OutputStream out) {
    return new Output(out);
  }

  @Override
  public CompressionOutputStream createOutputStream(OutputStream out, Compressor compressor) {
    return new Output(out);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in) throws IOException {
    return new Input(in);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
    return new Input(in);
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
    return BZip2JavaCodec.nothing();
  }

  @Override
  public String getDefaultExtension() {
    return ".lzma";
  }

  private static final class Output extends CompressionOutputStream {
    private final ByteArrayOutputStream raw = new ByteArrayOutputStream();

    Output(OutputStream out) {
      super(out);
    }

    @Override
    public void write(int value) {
      raw.write(value);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) {
      raw.write(bytes, offset, length);
    }

    @Override
    public void finish() throws IOException {
      if (raw.size() == 0) {
        return;
      }
      ByteArrayOutputStream packed = new ByteArrayOutputStream();
      try (LZMAOutputStream stream = new LZMAOutputStream(packed, new LZMA2Options(6), raw.size())) {
        raw.writeTo(stream);
      }
      DataOutputStream record = new DataOutputStream(out);
      record.writeInt(raw.size());
      record.writeInt(packed.size());
      packed.writeTo(record);
      record.flush();
      raw.reset();
    }

    @Override
    public void resetState() {
      raw.reset();
    }
  }

  private static final class Input extends CompressionInputStream {
    private final DataInputStream records;
    private int left;
    private InputStream piece = InputStream.nullInputStream();

    Input(InputStream in) throws IOException {
      super(in);
      records = new DataInputStream(in);
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] bytes, int offset, int length) throws IOException {
      while (true) {
        int count = piece.read(bytes, offset, length);
        if (count > 0) {
          left -= count;
          return count;
        }
        if (left == 0) {
          int first = records.read();
          if (first < 0) {
            return -1;
          }
          left = first << 24 | records.readUnsignedByte() << 16 | records.readUnsignedShort();
        }
        byte[] packed = new byte[records.readInt()];
        records.readFully(packed);
        piece = new LZMAInputStream(new ByteArrayInputStream(packed));
      }
    }

    @Override
    public void resetState() {
      left = 0;
      piece = InputStream.nullInputStream();
    }
  }
}
