import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Proxy;
import org.apache.hadoop.io.compress.BZip2Codec;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.CompressionOutputStream;
import org.apache.hadoop.io.compress.Compressor;
import org.apache.hadoop.io.compress.Decompressor;

/**
 * Hadoop's BZIP2 without its native library. HBase pools compressors and asks them questions, which those of Hadoop's Java streams
 * refuse to answer, so this codec has none.
 */
public class BZip2JavaCodec extends BZip2Codec {
  @Override
  public CompressionOutputStream createOutputStream(OutputStream out, Compressor compressor) throws IOException {
    return super.createOutputStream(out, super.createCompressor());
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
    return super.createInputStream(in, super.createDecompressor());
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
    return nothing();
  }

  /** A decompressor that is asked nothing but whether it is in use: streams of these codecs do the work. */
  static Decompressor nothing() {
    return (Decompressor) Proxy.newProxyInstance(BZip2JavaCodec.class.getClassLoader(), new Class<?>[] {Decompressor.class},
      (proxy, method, arguments) -> {
        switch (method.getName()) {
          case "finished":
            return false;
          case "hashCode":
            return System.identityHashCode(proxy);
          case "equals":
            return proxy == arguments[0];
          case "reset":
          case "end":
            return null;
          default:
            throw new UnsupportedOperationException(method.getName());
        }
      });
  }
}
