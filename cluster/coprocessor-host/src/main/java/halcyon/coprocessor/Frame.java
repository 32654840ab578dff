package halcyon.coprocessor;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.ipc.ServedCall;
import org.apache.hbase.thirdparty.com.google.protobuf.CodedInputStream;
import org.apache.hbase.thirdparty.com.google.protobuf.CodedOutputStream;
import org.apache.hbase.thirdparty.com.google.protobuf.WireFormat;

/**
 * The message of base/proto/proto/Coprocessor.proto, read and written by hand: HBase relocates its protobuf library, so no generated class
 * would fit it.
 */
public final class Frame {
  public static final int CALL = 1, ANSWER = 2, FAILURE = 3;

  public int kind;
  public int method;
  public long region;
  public final List<Part> mutations = new ArrayList<>();
  public final List<Cells> cells = new ArrayList<>();
  public byte[] get, scan, condition, row, value, schema, cursor;
  public long scanner, count, bytesMax, hooks, timeMs, nonceGroup, nonce, readPoint, rowsMax;
  public boolean flag, more, partials;
  public String text, service;
  public final List<String[]> properties = new ArrayList<>();
  public final List<FamilyOptions> options = new ArrayList<>();
  public Failure failure;
  /** Null: the call belongs to the same operation as the one before. */
  public Caller caller;

  /** Who has made the call of a client that an operation is part of; `call` is null where no client has. */
  public static final class Caller {
    public ServedCall call;

    static Caller read(byte[] bytes) throws IOException {
      String[] texts = new String[2];
      long[] numbers = { 0, -1, 0, 0, -1 };
      List<Map<String, byte[]>> attributes = List.of(new HashMap<>(), new HashMap<>());
      fields(bytes, (field, in) -> {
        switch (field) {
          case 1: case 2: texts[field - 1] = in.readString(); return true;
          case 3: case 4: attribute(in.readByteArray(), attributes.get(field - 3)); return true;
          case 5: case 6: case 7: case 8: case 9: numbers[field - 5] = in.readUInt64(); return true;
          default: return false;
        }
      });
      Caller caller = new Caller();
      if (texts[1] != null) {
        caller.call = new ServedCall(numbers[0], texts[0], texts[1], (int) numbers[1], (int) numbers[2], numbers[3] != 0, numbers[4],
          attributes.get(0), attributes.get(1));
      }
      return caller;
    }

    private static void attribute(byte[] bytes, Map<String, byte[]> into) throws IOException {
      String[] name = { "" };
      byte[][] value = { new byte[0] };
      fields(bytes, (field, in) -> {
        switch (field) {
          case 1: name[0] = in.readString(); return true;
          case 2: value[0] = in.readByteArray(); return true;
          default: return false;
        }
      });
      into.put(name[0], value[0]);
    }
  }

  /** A mutation as it is sent. */
  public static final class Part {
    public static final int RUN = 0, DONE = 1, FAILED = 2;
    public byte[] message;
    public List<byte[]> cells = new ArrayList<>();
    public int status;
    public Failure failure;
    public Cells result;
    public final List<Part> added = new ArrayList<>();

    byte[] bytes() throws IOException {
      return encode(out -> {
        if (message != null) out.writeByteArray(1, message);
        for (byte[] cell : cells) out.writeByteArray(2, cell);
        if (status != RUN) out.writeUInt32(3, status);
        if (failure != null) out.writeByteArray(4, failure.bytes());
        if (result != null) out.writeByteArray(5, result.bytes());
        for (Part part : added) out.writeByteArray(6, part.bytes());
      });
    }

    static Part read(byte[] bytes) throws IOException {
      Part part = new Part();
      fields(bytes, (field, in) -> {
        switch (field) {
          case 1: part.message = in.readByteArray(); return true;
          case 2: part.cells.add(in.readByteArray()); return true;
          case 3: part.status = in.readUInt32(); return true;
          case 4: part.failure = Failure.read(in.readByteArray()); return true;
          case 5: part.result = Cells.read(in.readByteArray()); return true;
          default: return false;
        }
      });
      return part;
    }
  }

  /** The cells of one result. */
  public static final class Cells {
    public final List<Cell> list = new ArrayList<>();
    public boolean partial;
    /** The sequence ids are sent as well. */
    public boolean hasSequenceIds;

    public static Cells of(List<? extends Cell> cells) {
      Cells of = new Cells();
      of.list.addAll(cells);
      return of;
    }

    byte[] bytes() throws IOException {
      return encode(out -> {
        for (Cell cell : list) out.writeByteArray(1, keyValue(cell));
        if (partial) out.writeBool(2, true);
        if (hasSequenceIds && !list.isEmpty()) out.writeByteArray(3, encode(ids -> {
          for (Cell cell : list) ids.writeUInt64NoTag(cell.getSequenceId());
        }));
      });
    }

    static Cells read(byte[] bytes) throws IOException {
      Cells cells = new Cells();
      byte[][] ids = { null };
      fields(bytes, (field, in) -> {
        switch (field) {
          case 1: cells.list.add(cell(in.readByteArray())); return true;
          case 2: cells.partial = in.readBool(); return true;
          case 3: ids[0] = in.readByteArray(); return true;
          default: return false;
        }
      });
      if (ids[0] != null) {
        CodedInputStream in = CodedInputStream.newInstance(ids[0]);
        for (Cell cell : cells.list) ((KeyValue) cell).setSequenceId(in.readUInt64());
      }
      return cells;
    }
  }

  /** What a family keeps (ScanOptions). */
  public static final class FamilyOptions {
    public byte[] family;
    public int maxVersions, minVersions;
    /** Long.MAX_VALUE: for ever. */
    public long ttlMs, purgeDeletesAfterMs;
    public String keepDeleted;

    byte[] bytes() throws IOException {
      return encode(out -> {
        out.writeByteArray(1, family);
        out.writeUInt32(2, maxVersions);
        out.writeUInt32(3, minVersions);
        if (ttlMs != Long.MAX_VALUE) out.writeUInt64(4, ttlMs);
        out.writeString(5, keepDeleted);
        out.writeUInt64(6, purgeDeletesAfterMs);
      });
    }
  }

  /** A Java exception. */
  public static final class Failure {
    public String name;
    public String message;
    public boolean doNotRetry;
    public boolean abort;

    public static Failure of(Throwable error) {
      Failure failure = new Failure();
      StringWriter trace = new StringWriter();
      error.printStackTrace(new PrintWriter(trace));
      failure.abort = error instanceof JvmAborts;
      // Clients do not have the class, and the same call would end the next JVM as well.
      Class<?> shown = failure.abort ? DoNotRetryIOException.class : error.getClass();
      failure.name = shown.getName();
      failure.message = trace.toString();
      failure.doNotRetry = DoNotRetryIOException.class.isAssignableFrom(shown);
      return failure;
    }

    /** As HBase's client makes an exception of what a server sends (RemoteWithExtrasException). */
    public IOException toException() {
      try {
        Class<?> found = Class.forName(name);
        if (IOException.class.isAssignableFrom(found)) {
          return (IOException) found.getConstructor(String.class).newInstance(message);
        }
      } catch (ClassNotFoundException | NoSuchMethodException | InstantiationException | IllegalAccessException
        | InvocationTargetException unknown) {
        // The next best class does.
      }
      return doNotRetry ? new DoNotRetryIOException(name + ": " + message) : new IOException(name + ": " + message);
    }

    byte[] bytes() throws IOException {
      return encode(out -> {
        out.writeString(1, name);
        out.writeString(2, message);
        if (doNotRetry) out.writeBool(3, true);
        if (abort) out.writeBool(4, true);
      });
    }

    static Failure read(byte[] bytes) throws IOException {
      Failure failure = new Failure();
      fields(bytes, (field, in) -> {
        switch (field) {
          case 1: failure.name = in.readString(); return true;
          case 2: failure.message = in.readString(); return true;
          case 3: failure.doNotRetry = in.readBool(); return true;
          case 4: failure.abort = in.readBool(); return true;
          default: return false;
        }
      });
      return failure;
    }
  }

  public static Frame call(int method, long region) {
    Frame frame = new Frame();
    frame.kind = CALL;
    frame.method = method;
    frame.region = region;
    return frame;
  }

  public static Frame answer() {
    Frame frame = new Frame();
    frame.kind = ANSWER;
    return frame;
  }

  public static Frame failure(Throwable error) {
    Frame frame = new Frame();
    frame.kind = FAILURE;
    frame.failure = Failure.of(error);
    return frame;
  }

  /** A cell of its bytes. KeyValue's shorter constructor takes them for those of a cell without tags, and leaves tags out. */
  static KeyValue cell(byte[] bytes) {
    return new KeyValue(bytes, 0, bytes.length);
  }

  /** The bytes of a cell with its tags. */
  public static byte[] keyValue(Cell cell) {
    return KeyValueUtil.copyToNewByteArray(cell);
  }

  byte[] bytes() throws IOException {
    return encode(out -> {
      out.writeUInt32(1, kind);
      if (method != 0) out.writeUInt32(2, method);
      if (region != 0) out.writeUInt64(3, region);
      for (Part part : mutations) out.writeByteArray(4, part.bytes());
      for (Cells list : cells) out.writeByteArray(5, list.bytes());
      if (get != null) out.writeByteArray(6, get);
      if (scan != null) out.writeByteArray(7, scan);
      if (condition != null) out.writeByteArray(8, condition);
      if (scanner != 0) out.writeUInt64(9, scanner);
      if (count != 0) out.writeUInt64(10, count);
      if (bytesMax != 0) out.writeUInt64(11, bytesMax);
      if (flag) out.writeBool(12, true);
      if (more) out.writeBool(13, true);
      if (row != null) out.writeByteArray(14, row);
      if (text != null) out.writeString(15, text);
      if (value != null) out.writeByteArray(16, value);
      for (String[] property : properties) out.writeByteArray(17, bytes(property));
      if (hooks != 0) out.writeUInt64(18, hooks);
      if (schema != null) out.writeByteArray(19, schema);
      if (failure != null) out.writeByteArray(20, failure.bytes());
      if (service != null) out.writeString(21, service);
      if (timeMs != 0) out.writeUInt64(22, timeMs);
      if (nonceGroup != 0) out.writeUInt64(23, nonceGroup);
      if (nonce != 0) out.writeUInt64(24, nonce);
      if (readPoint != 0) out.writeUInt64(25, readPoint);
      if (cursor != null) out.writeByteArray(29, cursor);
      for (FamilyOptions family : options) out.writeByteArray(30, family.bytes());
    });
  }

  static Frame read(byte[] bytes) throws IOException {
    Frame frame = new Frame();
    fields(bytes, (field, in) -> {
      switch (field) {
        case 1: frame.kind = in.readUInt32(); return true;
        case 2: frame.method = in.readUInt32(); return true;
        case 3: frame.region = in.readUInt64(); return true;
        case 4: frame.mutations.add(Part.read(in.readByteArray())); return true;
        case 5: frame.cells.add(Cells.read(in.readByteArray())); return true;
        case 6: frame.get = in.readByteArray(); return true;
        case 7: frame.scan = in.readByteArray(); return true;
        case 8: frame.condition = in.readByteArray(); return true;
        case 9: frame.scanner = in.readUInt64(); return true;
        case 10: frame.count = in.readUInt64(); return true;
        case 11: frame.bytesMax = in.readUInt64(); return true;
        case 12: frame.flag = in.readBool(); return true;
        case 13: frame.more = in.readBool(); return true;
        case 14: frame.row = in.readByteArray(); return true;
        case 15: frame.text = in.readString(); return true;
        case 16: frame.value = in.readByteArray(); return true;
        case 17: frame.properties.add(property(in.readByteArray())); return true;
        case 18: frame.hooks = in.readUInt64(); return true;
        case 19: frame.schema = in.readByteArray(); return true;
        case 20: frame.failure = Failure.read(in.readByteArray()); return true;
        case 21: frame.service = in.readString(); return true;
        case 22: frame.timeMs = in.readUInt64(); return true;
        case 23: frame.nonceGroup = in.readUInt64(); return true;
        case 24: frame.nonce = in.readUInt64(); return true;
        case 25: frame.readPoint = in.readUInt64(); return true;
        case 26: frame.caller = Caller.read(in.readByteArray()); return true;
        case 27: frame.rowsMax = in.readUInt64(); return true;
        case 28: frame.partials = in.readBool(); return true;
        default: return false;
      }
    });
    return frame;
  }

  private static byte[] bytes(String[] property) throws IOException {
    return encode(out -> {
      out.writeString(1, property[0]);
      out.writeString(2, property[1]);
    });
  }

  private static String[] property(byte[] bytes) throws IOException {
    String[] property = new String[2];
    fields(bytes, (field, in) -> {
      if (field != 1 && field != 2) return false;
      property[field - 1] = in.readString();
      return true;
    });
    return property;
  }

  private interface Writer {
    void write(CodedOutputStream out) throws IOException;
  }

  private interface Reader {
    /** False: the field is not known. */
    boolean read(int field, CodedInputStream in) throws IOException;
  }

  private static byte[] encode(Writer writer) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    writer.write(out);
    out.flush();
    return bytes.toByteArray();
  }

  private static void fields(byte[] bytes, Reader reader) throws IOException {
    CodedInputStream in = CodedInputStream.newInstance(bytes);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      if (!reader.read(WireFormat.getTagFieldNumber(tag), in)) in.skipField(tag);
    }
  }
}
