package org.apache.hadoop.hbase.ipc;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.hbase.CellScanner;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.shaded.protobuf.generated.HBaseProtos;
import org.apache.hadoop.hbase.shaded.protobuf.generated.RPCProtos;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hbase.thirdparty.com.google.protobuf.BlockingService;
import org.apache.hbase.thirdparty.com.google.protobuf.ByteString;
import org.apache.hbase.thirdparty.com.google.protobuf.Descriptors.MethodDescriptor;
import org.apache.hbase.thirdparty.com.google.protobuf.Message;

/**
 * What a coprocessor sees of the call of a client that its server is doing: who calls, and what the client has said of the connection and of the
 * request (ServerCall). The message and its cells stay in the server.
 */
public final class ServedCall implements RpcCall {
  private final long id;
  private final String user;
  private final String address;
  private final int port;
  private final int versionMajor, versionMinor;
  private final Map<String, byte[]> connectionAttributes;
  private final Map<String, byte[]> requestAttributes;
  private final boolean takesCellBlocks;
  private final long receiveTime = System.currentTimeMillis();
  private final long timeMs;
  private long startTime = receiveTime;
  private long cellSize, blockBytes, exceptionSize;
  private User known;

  /** `address` is host:port; `versionMajor` is negative if the client has not named its version, and `timeMs` if it waits for ever. */
  public ServedCall(long id, String user, String address, int versionMajor, int versionMinor, boolean takesCellBlocks, long timeMs,
    Map<String, byte[]> connectionAttributes, Map<String, byte[]> requestAttributes) {
    int colon = address.lastIndexOf(':');
    this.id = id;
    this.user = user;
    this.address = colon < 0 ? address : address.substring(0, colon).replaceAll("[\\[\\]]", "");
    this.port = colon < 0 ? 0 : Integer.parseInt(address.substring(colon + 1));
    this.versionMajor = versionMajor;
    this.versionMinor = versionMinor;
    this.takesCellBlocks = takesCellBlocks;
    this.timeMs = timeMs;
    this.connectionAttributes = Collections.unmodifiableMap(new HashMap<>(connectionAttributes));
    this.requestAttributes = Collections.unmodifiableMap(new HashMap<>(requestAttributes));
  }

  /** The call of the present thread from now on; null: none. */
  public static void enter(ServedCall call) {
    RpcServer.CurCall.set(call);
  }

  private static UnsupportedOperationException unsupported(String method) {
    return new UnsupportedOperationException("RpcCall." + method + " in the JVM of coprocessors");
  }

  @Override
  public Map<String, byte[]> getConnectionAttributes() {
    return connectionAttributes;
  }

  @Override
  public Map<String, byte[]> getRequestAttributes() {
    return requestAttributes;
  }

  @Override
  public byte[] getRequestAttribute(String key) {
    return requestAttributes.get(key);
  }

  @Override
  public synchronized Optional<User> getRequestUser() {
    if (known == null && user != null) known = User.create(UserGroupInformation.createRemoteUser(user));
    return Optional.ofNullable(known);
  }

  @Override
  public InetAddress getRemoteAddress() {
    try {
      return InetAddress.getByName(address); // digits: nobody is asked
    } catch (UnknownHostException unknown) {
      return null;
    }
  }

  @Override
  public int getRemotePort() {
    return port;
  }

  @Override
  public HBaseProtos.VersionInfo getClientVersionInfo() {
    if (versionMajor < 0) return null;
    String unknown = "";
    return HBaseProtos.VersionInfo.newBuilder().setVersion(versionMajor + "." + versionMinor).setVersionMajor(versionMajor)
      .setVersionMinor(versionMinor).setUrl(unknown).setRevision(unknown).setUser(unknown).setDate(unknown).setSrcChecksum(unknown).build();
  }

  /** With the number and the attributes of the call. */
  @Override
  public RPCProtos.RequestHeader getHeader() {
    RPCProtos.RequestHeader.Builder header = RPCProtos.RequestHeader.newBuilder().setCallId((int) id);
    requestAttributes.forEach((name, value) -> header.addAttribute(HBaseProtos.NameBytesPair.newBuilder().setName(name)
      .setValue(ByteString.copyFrom(value))));
    return header.build();
  }

  @Override
  public Optional<X509Certificate[]> getClientCertificateChain() {
    return Optional.empty();
  }

  @Override
  public long getReceiveTime() {
    return receiveTime;
  }

  @Override
  public long getStartTime() {
    return startTime;
  }

  @Override
  public void setStartTime(long time) {
    startTime = time;
  }

  @Override
  public int getTimeout() {
    return timeMs < 0 ? 0 : (int) Math.min(timeMs, Integer.MAX_VALUE);
  }

  @Override
  public long getDeadline() {
    return timeMs < 0 ? Long.MAX_VALUE : receiveTime + timeMs;
  }

  @Override
  public int getPriority() {
    return 0;
  }

  @Override
  public long disconnectSince() {
    return -1; // the server ends the calls of clients that are gone
  }

  @Override
  public boolean isClientCellBlockSupported() {
    return takesCellBlocks;
  }

  @Override
  public boolean isRetryImmediatelySupported() {
    return versionMajor > 1 || (versionMajor == 1 && versionMinor >= 2);
  }

  @Override
  public long getResponseCellSize() {
    return cellSize;
  }

  @Override
  public void incrementResponseCellSize(long size) {
    cellSize += size;
  }

  @Override
  public long getBlockBytesScanned() {
    return blockBytes;
  }

  @Override
  public void incrementBlockBytesScanned(long size) {
    blockBytes += size;
  }

  @Override
  public long getResponseExceptionSize() {
    return exceptionSize;
  }

  @Override
  public void incrementResponseExceptionSize(long size) {
    exceptionSize += size;
  }

  @Override
  public String toShortString() {
    return "callId: " + id + " user: " + user + " connection: " + address + ":" + port;
  }

  @Override
  public String toString() {
    return toShortString();
  }

  // What only the server has

  @Override
  public BlockingService getService() {
    throw unsupported("getService");
  }

  @Override
  public MethodDescriptor getMethod() {
    throw unsupported("getMethod");
  }

  @Override
  public Message getParam() {
    throw unsupported("getParam");
  }

  @Override
  public CellScanner getCellScanner() {
    throw unsupported("getCellScanner");
  }

  @Override
  public long getSize() {
    throw unsupported("getSize");
  }

  @Override
  public void setCallBack(RpcCallback callback) {
    throw unsupported("setCallBack");
  }

  @Override
  public void setResponse(Message message, CellScanner cells, Throwable thrown, String error) {
    throw unsupported("setResponse");
  }

  @Override
  public void sendResponseIfReady() throws IOException {
    throw unsupported("sendResponseIfReady");
  }

  @Override
  public void cleanup() {
    // There is nothing here.
  }
}
