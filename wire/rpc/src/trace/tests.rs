use std::collections::HashMap;
use std::sync::Mutex;

use halcyon_env::ManualClock;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanProcessor};

use super::*;
use crate::{CallClass, Connection};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// Keeps spans in memory.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Ended {
    fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A tracer that obeys clients and samples this share of the other calls.
fn tracer(share: f64) -> (Arc<CallTracer>, Arc<ManualClock>, Ended) {
    let (clock, ended) = (Arc::new(ManualClock::at(5_000)), Ended::default());
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
    let provider =
        SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(ended.clone()).build();
    let tracer = BoxedTracer::new(Box::new(provider.tracer("test")));
    (CallTracer::new(tracer, clock.clone(), share > 0.0), clock, ended)
}

fn trace_info(headers: &[(&str, &str)]) -> Bytes {
    let headers: HashMap<_, _> = headers.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    pb::RpctInfo { headers, ..Default::default() }.encode_to_vec().into()
}

fn parent(traceparent: &str) -> Option<SpanContext> {
    remote_parent(&trace_info(&[("traceparent", traceparent)]))
}

fn call<'a>(connection: &'a Connection, param: &'a Bytes) -> NotedCall<'a> {
    NotedCall {
        connection,
        class: CallClass::Read,
        call_id: 1,
        method: "Get",
        param,
        failed: false,
        response_bytes: 1,
        thread_ns: 30_000_000,
        waited_ns: 70_000_000,
        network_ns: 60_000_000,
        is_traced: true,
        batch_ns: 0,
    }
}

fn connection() -> Connection {
    Connection { user: Some("ann".to_string()), ..Connection::new(1, "10.0.0.1:77") }
}

#[test]
fn a_client_s_span_is_the_parent() {
    let found = parent(&format!("00-{TRACE}-{SPAN}-01")).expect("a context");
    assert_eq!((found.trace_id().to_string(), found.span_id().to_string()), (TRACE.into(), SPAN.into()));
    assert!(found.is_sampled() && found.is_remote());
    let later = parent(&format!("7f-{TRACE}-{SPAN}-03-more")).expect("a later version begins alike");
    assert_eq!(later.trace_flags(), TraceFlags::SAMPLED, "other flags are unknown");
    let headers = [("traceparent", &*format!("00-{TRACE}-{SPAN}-00")), ("tracestate", "a=1,b=2")];
    let found = remote_parent(&trace_info(&headers)).expect("a context");
    assert_eq!((found.is_sampled(), &*found.trace_state().header()), (false, "a=1,b=2"));
}

#[test]
fn a_context_without_sense_is_no_context() {
    let long = "0".repeat(100_000);
    let zero = "0".repeat(32);
    for text in [
        String::new(),
        "nonsense".into(),
        "ü".repeat(40),
        format!("00-{TRACE}-{SPAN}"),
        format!("00-{TRACE}-{SPAN}-0"),
        format!("00-{TRACE}-{SPAN}-01-"),
        format!("00-{TRACE}-{SPAN}-010"),
        format!("ff-{TRACE}-{SPAN}-01"),
        format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
        format!("00-{}g-{SPAN}-01", &TRACE[1..]),
        format!("00-+{}-{SPAN}-01", &TRACE[1..]),
        format!("00-{}-{SPAN}-01", &TRACE[1..]),
        format!("00-{TRACE}-{}-01", &SPAN[1..]),
        format!("00_{TRACE}_{SPAN}_01"),
        format!("00-{zero}-{SPAN}-01"),
        format!("00-{TRACE}-{}-01", &zero[16..]),
        format!("00-{TRACE}-{SPAN}-01-{long}"),
        long.clone(),
    ] {
        assert_eq!(parent(&text), None, "{text:.80}");
    }
    let good = format!("00-{TRACE}-{SPAN}-01");
    let state = [("traceparent", &*good), ("tracestate", "no list")];
    assert!(remote_parent(&trace_info(&state)).is_some_and(|found| found.trace_state().header().is_empty()));
    let state = [("traceparent", &*good), ("tracestate", &*long)];
    assert_eq!(remote_parent(&trace_info(&state)), None, "too long");
    let whole = trace_info(&[("traceparent", &good)]);
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0xff;
        remote_parent(&bytes.into()); // not even text any more
        remote_parent(&whole.slice(..at));
    }
}

#[test]
fn only_sampled_calls_have_spans() {
    let of_client = |flags| trace_info(&[("traceparent", &format!("00-{TRACE}-{SPAN}-{flags}"))]);
    let is_traced = |share, info: Option<&Bytes>| tracer(share).0.begin(info, 0).is_some();
    assert!(is_traced(0.0, Some(&of_client("01"))) && is_traced(1.0, Some(&of_client("01"))));
    assert!(!is_traced(0.0, Some(&of_client("00"))) && !is_traced(1.0, Some(&of_client("00"))));
    for none in [None, Some(Bytes::new()), Some(Bytes::from_static(b"\xff\xff"))] {
        assert!(!is_traced(0.0, none.as_ref()) && is_traced(1.0, none.as_ref()));
    }
}

#[test]
fn the_parts_of_a_call_become_spans() {
    let (tracer, clock, ended) = tracer(0.0);
    let info = trace_info(&[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))]);
    clock.advance(Duration::from_millis(10));
    let span = tracer.begin(Some(&info), 0).expect("a traced call");
    let ms = Duration::from_millis;
    let parts = CallParts {
        before: vec![Part::new("RpcServer.queue", ms(50))],
        within: vec![
            Part::new("HFile.read", ms(20)),
            Part::new("no time", ms(0)),
            Part::new("WAL.sync", ms(9_000)),
        ],
        attributes: vec![KeyValue::new("db.hbase.table", "t")],
    };
    let (connection, param) = (connection(), Bytes::new());
    span.end(&call(&connection, &param), "ClientService", parts);
    let spans = ended.take();
    let times: Vec<_> = spans
        .iter()
        .map(|span| {
            let at = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_millis() - 5_000;
            (&*span.name, at(span.start_time), at(span.end_time))
        })
        .collect();
    let expected = [
        ("RpcServer.queue", 0, 50),
        ("HFile.read", 50, 70),
        ("WAL.sync", 70, 100), // no longer than the call
        ("hbase.pb.ClientService/Get", 50, 100),
        ("RpcServer.response", 100, 160),
        ("RpcServer.process", 0, 160),
    ];
    assert_eq!(times, expected);
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("it is there");
    let (process, get) = (named("RpcServer.process"), named("hbase.pb.ClientService/Get"));
    assert_eq!((process.parent_span_id.to_string(), process.parent_span_is_remote), (SPAN.into(), true));
    assert_eq!(get.parent_span_id, process.span_context.span_id());
    assert_eq!(named("WAL.sync").parent_span_id, get.span_context.span_id());
    assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == TRACE));
    assert_eq!((&process.span_kind, &get.span_kind), (&SpanKind::Server, &SpanKind::Server));
    assert_eq!((&process.status, &get.status), (&Status::Ok, &Status::Ok));
    for (span, key, value) in [
        (get, "rpc.system", "HBASE_RPC"),
        (get, "rpc.service", "hbase.pb.ClientService"),
        (get, "rpc.method", "Get"),
        (get, "db.hbase.table", "t"),
        (process, "net.peer.name", "10.0.0.1"),
        (process, "net.peer.port", "77"),
        (process, "db.user", "ann"),
    ] {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        assert_eq!(found.expect(key).value.to_string(), value, "{key}");
    }
}

#[test]
fn calls_that_fail_or_are_dropped_say_so() {
    let (tracer, _, ended) = tracer(1.0);
    let begin = || tracer.begin(None, 0).expect("all are sampled");
    let (connection, param) = (connection(), Bytes::new());
    let mut span = begin();
    span.fail(&RpcError::io("the disk is gone"));
    span.end(&call(&connection, &param), "ClientService", CallParts::default());
    let spans = ended.take();
    assert_eq!(spans.len(), 3);
    for span in spans.iter().filter(|span| span.span_kind == SpanKind::Server) {
        assert_eq!(span.status, Status::error("java.io.IOException"));
        let event = span.events.iter().next().expect("an event");
        assert_eq!(
            (&*event.name, event.attributes[1].value.to_string()),
            ("exception", "the disk is gone".into())
        );
    }
    begin().refuse(&RpcError::call_queue_too_big("full"));
    assert!(matches!(&ended.take()[..], [span] if matches!(span.status, Status::Error { .. })));
    for (why, event) in
        [(Dropped::Expired, "Call deadline exceeded"), (Dropped::Abandoned, "Client disconnect detected")]
    {
        begin().drop_call(why);
        let spans = ended.take();
        assert_eq!((spans.len(), &*spans[0].events.iter().next().expect("one").name), (1, event));
    }
    drop(begin());
    assert_eq!(ended.take().len(), 1, "a call whose connection broke ends as well");
}
