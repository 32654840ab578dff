package halcyon.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.protobuf.ByteString;
import com.sun.net.httpserver.HttpServer;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest;
import io.opentelemetry.proto.trace.v1.ResourceSpans;
import io.opentelemetry.proto.trace.v1.ScopeSpans;
import io.opentelemetry.proto.trace.v1.Status;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;
import org.junit.jupiter.api.Test;

/**
 * A trace that a program begins goes on in the server. The server sends its spans to port {@code compat.collector} of this
 * machine, where this test listens; traces.sh starts it so. OpenTelemetry is set once for a JVM, before HBase's client looks for
 * it, so this class needs a JVM of its own.
 */
class TracesTest {
  private static final long PATIENCE_MS = 20_000;

  /** Spans of the client, as it ends them. */
  private final List<SpanData> ofClient = new CopyOnWriteArrayList<>();
  /** Spans of the server by their identifiers. */
  private final Map<String, io.opentelemetry.proto.trace.v1.Span> ofServer = new ConcurrentHashMap<>();

  @Test
  void aTraceGoesOnInTheServer() throws Exception {
    int port = Integer.getInteger("compat.collector", 0);
    assumeTrue(port > 0, "the server sends its spans nowhere");
    HttpServer collector = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
    collector.createContext("/v1/traces", exchange -> {
      keep(ExportTraceServiceRequest.parseFrom(exchange.getRequestBody().readAllBytes()));
      exchange.sendResponseHeaders(200, -1);
      exchange.close();
    });
    collector.start();
    SdkTracerProvider provider =
        SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(new Keeper())).build();
    OpenTelemetrySdk sdk = OpenTelemetrySdk.builder().setTracerProvider(provider)
        .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance())).buildAndRegisterGlobal();
    try {
      Span program = sdk.getTracer("test").spanBuilder("program").startSpan();
      try (Scope ignored = program.makeCurrent(); Connection connection = Target.connection(Registry.RPC)) {
        putAndGet(connection);
      }
      program.end();
      String trace = program.getSpanContext().getTraceId();
      for (String method : List.of("Mutate", "Get")) {
        isContinued(trace, method);
      }
      assertTrue(ofServer.values().stream().anyMatch(span -> span.getName().equals("WAL.sync")), ofServer.toString());
    } finally {
      provider.close();
      collector.stop(0);
    }
  }

  private static void putAndGet(Connection connection) throws Exception {
    TableName name = TableName.valueOf("traces-" + System.nanoTime());
    try (Admin admin = connection.getAdmin(); Table table = connection.getTable(name)) {
      admin.createTable(
          TableDescriptorBuilder.newBuilder(name).setColumnFamily(ColumnFamilyDescriptorBuilder.of("f")).build());
      table.put(new Put(Bytes.toBytes("r")).addColumn(Bytes.toBytes("f"), Bytes.toBytes("q"), Bytes.toBytes("v")));
      assertEquals("v", Bytes.toString(table.get(new Get(Bytes.toBytes("r"))).value()));
      admin.disableTable(name);
      admin.deleteTable(name);
    }
  }

  /** The server's spans of this call are there, below the span of the client. */
  private void isContinued(String trace, String method) throws InterruptedException {
    String name = "hbase.pb.ClientService/" + method;
    SpanData client = ofClient.stream()
        .filter(span -> span.getName().equals(name) && span.getKind() == SpanKind.CLIENT)
        .reduce((first, last) -> last).orElseThrow(() -> new AssertionError("the client made no span " + name + ": " + ofClient));
    assertEquals(trace, client.getTraceId());
    assertEquals("HBASE_RPC", client.getAttributes().get(AttributeKey.stringKey("rpc.system")));
    io.opentelemetry.proto.trace.v1.Span process = child("RpcServer.process", client.getSpanId());
    io.opentelemetry.proto.trace.v1.Span call = child(name, hex(process.getSpanId()));
    for (io.opentelemetry.proto.trace.v1.Span span : List.of(process, call)) {
      assertEquals(trace, hex(span.getTraceId()));
      assertEquals(io.opentelemetry.proto.trace.v1.Span.SpanKind.SPAN_KIND_SERVER, span.getKind());
      assertEquals(Status.StatusCode.STATUS_CODE_OK, span.getStatus().getCode());
      assertTrue(client.getStartEpochNanos() - 5_000_000 <= span.getStartTimeUnixNano(), client + " " + span);
    }
    assertTrue(call.getAttributesList().stream()
        .anyMatch(a -> a.getKey().equals("rpc.method") && a.getValue().getStringValue().equals(method)), call.toString());
  }

  /** Waits for it: the server sends its spans a moment later. */
  private io.opentelemetry.proto.trace.v1.Span child(String name, String parent) throws InterruptedException {
    for (long until = System.currentTimeMillis() + PATIENCE_MS; System.currentTimeMillis() < until; Thread.sleep(20)) {
      for (io.opentelemetry.proto.trace.v1.Span span : ofServer.values()) {
        if (span.getName().equals(name) && hex(span.getParentSpanId()).equals(parent)) {
          return span;
        }
      }
    }
    throw new AssertionError("no span " + name + " of the server below " + parent + ": " + ofServer);
  }

  private void keep(ExportTraceServiceRequest request) {
    for (ResourceSpans resource : request.getResourceSpansList()) {
      for (ScopeSpans scope : resource.getScopeSpansList()) {
        scope.getSpansList().forEach(span -> ofServer.put(hex(span.getSpanId()), span));
      }
    }
  }

  private static String hex(ByteString bytes) {
    return HexFormat.of().formatHex(bytes.toByteArray());
  }

  private final class Keeper implements SpanExporter {
    @Override
    public CompletableResultCode export(Collection<SpanData> spans) {
      ofClient.addAll(spans);
      return CompletableResultCode.ofSuccess();
    }

    @Override
    public CompletableResultCode flush() {
      return CompletableResultCode.ofSuccess();
    }

    @Override
    public CompletableResultCode shutdown() {
      return CompletableResultCode.ofSuccess();
    }
  }
}
