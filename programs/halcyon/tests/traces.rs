//! Traces of a running server, at a collector of the test's own: a client's trace is continued, nonsense fails no call, and a
//! collector that is away delays nobody.
#![allow(clippy::disallowed_methods)] // clocks and threads from outside

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, family, fresh_dir, get, put, site, specifier};
use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes what is posted, and answers as a collector does.
struct FakeCollector {
    address: SocketAddr,
    requests: Receiver<ExportTraceServiceRequest>,
}

impl FakeCollector {
    fn start() -> FakeCollector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                while let Some(body) = request(&mut stream) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
                    stream.get_mut().write_all(answer).unwrap();
                    if send.send(ExportTraceServiceRequest::decode(&body[..]).unwrap()).is_err() {
                        return;
                    }
                }
            }
        });
        FakeCollector { address, requests }
    }

    /// Spans that arrive until `enough` of them are there; with each the resource's attributes.
    fn spans(&self, enough: impl Fn(&[Span]) -> bool) -> (Vec<Span>, HashMap<String, String>) {
        let (mut spans, mut resource, deadline) = (Vec::new(), HashMap::new(), Instant::now() + PATIENCE);
        while !enough(&spans) {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = self.requests.recv_timeout(left);
            for of_resource in request.unwrap_or_else(|_| panic!("{spans:#?}")).resource_spans {
                resource = attributes(&of_resource.resource.unwrap().attributes);
                spans.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        (spans, resource)
    }
}

/// The body of an HTTP request for spans. `None` at the end of the connection.
fn request(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|len| *len > 0)?;
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_string()),
            None => break,
        };
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some(body)
}

fn attributes(attributes: &[KeyValue]) -> HashMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(array) => format!("{:?}", array.values),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// A connection to `ClientService` that says what stands in the header of a call.
struct Caller {
    stream: TcpStream,
    call_id: u32,
}

impl Caller {
    fn connect(server: &Server) -> Caller {
        let mut stream = TcpStream::connect(server.address("regionserver")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let header = pb::ConnectionHeader {
            user_info: Some(pb::UserInformation { effective_user: "ann".into(), real_user: None }),
            service_name: Some("ClientService".into()),
            ..Default::default()
        };
        let mut opening = b"HBas\x00\x50".to_vec();
        opening.extend((header.encoded_len() as u32).to_be_bytes());
        header.encode(&mut opening).unwrap();
        stream.write_all(&opening).unwrap();
        Caller { stream, call_id: 0 }
    }

    /// Whether the call ended without an exception.
    fn call(&mut self, method: &str, param: &impl Message, trace_info: Option<Bytes>) -> bool {
        self.call_id += 1;
        let header = pb::RequestHeader {
            call_id: Some(self.call_id),
            trace_info,
            method_name: Some(method.to_string()),
            request_param: Some(true),
            ..Default::default()
        };
        let mut body = header.encode_length_delimited_to_vec();
        body.extend(param.encode_length_delimited_to_vec());
        self.stream.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        self.stream.write_all(&body).unwrap();
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut answer).unwrap();
        let answer = pb::ResponseHeader::decode_length_delimited(&answer[..]).unwrap();
        assert_eq!(answer.call_id, Some(self.call_id));
        answer.exception.is_none()
    }
}

fn trace_info(traceparent: &str) -> Bytes {
    let headers = HashMap::from([("traceparent".to_string(), traceparent.to_string())]);
    pb::RpctInfo { headers, ..Default::default() }.encode_to_vec().into()
}

fn put_request(region: &RegionInfo) -> pb::MutateRequest {
    use pb::mutation_proto::{ColumnValue, column_value::QualifierValue};
    let value = QualifierValue { qualifier: Some("q".into()), value: Some("v".into()), ..Default::default() };
    let column = ColumnValue { family: "f".into(), qualifier_value: vec![value] };
    let mutation = pb::MutationProto {
        row: Some("r".into()),
        column_value: vec![column],
        associated_cell_count: None,
        ..put(1)
    };
    pb::MutateRequest { region: specifier(region), mutation, ..Default::default() }
}

fn get_request(region: &RegionInfo) -> pb::GetRequest {
    pb::GetRequest { region: specifier(region), get: get(b"r") }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The server's settings for a collector at this address.
fn settings(address: &SocketAddr) -> [(&'static str, String); 4] {
    [
        ("otel.traces.exporter", "otlp".to_string()),
        ("otel.exporter.otlp.endpoint", format!("http://{address}")),
        ("otel.resource.attributes", "service.name=shop,rack=7".to_string()),
        ("otel.bsp.schedule.delay", "20".to_string()),
    ]
}

async fn start(name: &str, address: &SocketAddr) -> (Server, RegionInfo) {
    let data = fresh_dir(name);
    let settings = settings(address);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let config = site(&data, &settings);
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
    (server, region)
}

fn dropped(server: &Server) -> u64 {
    let mut stream = TcpStream::connect(server.address("regionserver-info")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("# HELP halcyon_traces_spans_dropped Spans dropped "), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("halcyon_traces_spans_dropped_total "));
    line.expect("a line").parse().unwrap()
}

const PUTS: usize = 20;

#[tokio::test]
async fn a_client_s_trace_is_continued() {
    let collector = FakeCollector::start();
    let (server, region) = start("traces", &collector.address).await;
    let mut caller = Caller::connect(&server);
    let of_client = trace_info(&format!("00-{TRACE}-{SPAN}-01"));
    // A put whose WAL is synced before it would wait has no span for that.
    for _ in 0..PUTS {
        assert!(caller.call("Mutate", &put_request(&region), Some(of_client.clone())));
    }
    assert!(caller.call("Get", &get_request(&region), Some(of_client.clone())));
    let mut unknown = get_request(&region);
    unknown.region.value = "t,,1.00000000000000000000000000000000.".into();
    assert!(!caller.call("Get", &unknown, Some(of_client)), "there is no such region");
    // Not sampled, or without a context.
    assert!(caller.call("Get", &get_request(&region), Some(trace_info(&format!("00-{TRACE}-{SPAN}-00")))));
    assert!(caller.call("Get", &get_request(&region), None));
    let processes = |spans: &[Span]| spans.iter().filter(|span| span.name == "RpcServer.process").count();
    let (mut spans, resource) = collector.spans(|spans| processes(spans) >= PUTS + 2);
    let before_stop = spans.len();
    assert!(caller.call("Get", &get_request(&region), Some(trace_info(&format!("00-{TRACE}-{SPAN}-01")))));
    server.stop();
    spans.extend(collector.spans(|spans| processes(spans) >= 1).0);
    assert!(spans.len() > before_stop, "the last ones come at the stop");
    assert_eq!(processes(&spans), PUTS + 3, "nothing else was traced: {spans:#?}");

    assert_eq!((&*resource["service.name"], &*resource["rack"]), ("shop", "7"));
    assert!(resource["db.hbase.server.name"].contains(','));
    let by_id: HashMap<_, _> = spans.iter().map(|span| (span.span_id.clone(), span)).collect();
    for span in &spans {
        assert_eq!(hex(&span.trace_id), TRACE, "{span:?}");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
        match by_id.get(&span.parent_span_id) {
            None => assert_eq!((&*span.name, &*hex(&span.parent_span_id)), ("RpcServer.process", SPAN)),
            Some(parent) => {
                assert!(span.start_time_unix_nano >= parent.start_time_unix_nano, "{span:?} {parent:?}");
                assert!(span.end_time_unix_nano <= parent.end_time_unix_nano, "{span:?} {parent:?}");
            }
        }
    }
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (gets, puts) = (named("hbase.pb.ClientService/Get"), named("hbase.pb.ClientService/Mutate"));
    assert_eq!((gets.len(), puts.len()), (3, PUTS));
    let sync = named("WAL.sync");
    let of_a_put = |sync: &&Span| puts.iter().any(|put| put.span_id == sync.parent_span_id);
    assert!(!sync.is_empty() && sync.iter().all(of_a_put), "{spans:#?}");
    let of_put = attributes(&puts[0].attributes);
    let expected = [
        ("rpc.system", "HBASE_RPC"),
        ("rpc.service", "hbase.pb.ClientService"),
        ("rpc.method", "Mutate"),
        ("db.hbase.table", "t"),
    ];
    assert!(expected.iter().all(|(key, value)| of_put[*key] == *value), "{of_put:?}");
    assert!(of_put["db.hbase.regions"].contains(region.encoded_name()), "{of_put:?}");
    assert_eq!(puts[0].kind, SpanKind::Server as i32);
    assert_eq!(attributes(&by_id[&puts[0].parent_span_id].attributes)["db.user"], "ann");
    let failed: Vec<_> =
        gets.iter().filter(|span| span.status.as_ref().unwrap().code() == StatusCode::Error).collect();
    assert_eq!((failed.len(), &*failed[0].events[0].name), (1, "exception"));
}

#[tokio::test]
async fn nonsense_and_an_absent_collector_fail_no_call() {
    // Nobody listens there any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (server, region) = start("traces-away", &address).await;
    let mut caller = Caller::connect(&server);
    let long = "0".repeat(30_000); // a header has 64 KiB at most
    let contexts = [
        Bytes::new(),
        Bytes::from_static(b"\xff\xff\xff\xff"),
        Bytes::from(vec![0x1a, 4, 0x0a, 2, 0xff, 0xfe]), // a header whose name is no text
        Bytes::from(long.clone()),
        trace_info(""),
        trace_info(&long),
        trace_info("00-00000000000000000000000000000000-0000000000000000-01"),
        trace_info(&format!("00-{TRACE}-{SPAN}-zz")),
        trace_info(&format!("00-{TRACE}-{SPAN}-01")),
    ];
    for context in contexts {
        assert!(caller.call("Mutate", &put_request(&region), Some(context.clone())), "{context:?}");
        assert!(caller.call("Get", &get_request(&region), Some(context)));
    }
    let deadline = Instant::now() + PATIENCE;
    while dropped(&server) == 0 {
        assert!(Instant::now() < deadline, "the spans of the last context were not dropped");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.log().matches("the collector takes no spans").count(), 1, "{}", server.log());
    server.stop();
}

#[test]
fn what_cannot_be_exported_to_is_an_error_at_the_start() {
    let refused = |variable: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
        command.args(["standalone", "--data"]).arg(fresh_dir("traces-refused")).stdout(Stdio::null());
        let output = command.env("OTEL_TRACES_EXPORTER", "otlp").env(variable, value).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused("OTEL_TRACES_EXPORTER", "zipkin");
    assert!(
        error.contains("otel.traces.exporter: \"zipkin\" is an exporter that is not supported"),
        "{error}"
    );
    let error = refused("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert!(error.contains("http/protobuf, which collectors take at port 4318"), "{error}");
}
