//! Traces of calls: a client's trace is continued, and the times of a call become spans when it has ended.
//!
//! HBase's clients put a W3C trace context into the header of a request (`RPCTInfo`). A call of a sampled trace has a
//! [`CallSpan`] until the socket has taken its answer. Then the times that are measured of every call become spans.
//! Their names are HBase's where HBase has one:
//!
//! ```text
//! RpcServer.process              received ------------------------------- taken by the socket
//!   RpcServer.queue                       ---
//!   hbase.pb.ClientService/Get               ---------------------
//!     HFile.read, WAL.sync ...               --------
//!   RpcServer.response                                            -----
//! ```
//!
//! Of the parts within a call only sums are measured. Their spans follow each other in the order of a call's life.
//!
//! Without a [`CallTracer`] a call pays one comparison. The context is decoded only with one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use halcyon_env::Clock;
use halcyon_proto::pb;
use opentelemetry::global::{BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use prost::Message;

use crate::{Dropped, NotedCall, RpcError};

/// A trace context is some hundred bytes long. A longer one is ignored.
const TRACE_INFO_BYTES_MAX: usize = 8 << 10;
/// Length of a `traceparent` of version 00, and how far later versions are the same.
const TRACEPARENT_BYTES: usize = 55;

/// Begins the spans of calls. *Thread safety*: all methods from any thread.
pub struct CallTracer {
    tracer: BoxedTracer,
    clock: Arc<dyn Clock>,
    samples_roots: bool,
}

/// Spans of one call. A call that ends without an answer ends its first span when this is dropped.
pub(crate) struct CallSpan {
    tracer: Arc<CallTracer>,
    process: BoxedSpan,
    started: SystemTime,
    /// Exception class and message, if the call failed.
    failure: Option<(String, String)>,
    /// How long the service worked for all calls that arrived together, after it had begun this one.
    pub batch_ns: u64,
}

/// What a service tells of a traced call.
#[derive(Debug, Default, PartialEq)]
pub struct CallParts {
    /// Waits before the call began.
    pub before: Vec<Part>,
    /// Waits within the call.
    pub within: Vec<Part>,
    /// Attributes of the span of the call.
    pub attributes: Vec<KeyValue>,
}

/// A part of a call's time, which becomes a span. A part without time becomes none.
#[derive(Debug, PartialEq)]
pub struct Part {
    pub name: &'static str,
    pub time: Duration,
    pub attributes: Vec<KeyValue>,
}

impl Part {
    pub fn new(name: &'static str, time: Duration) -> Part {
        Part { name, time, attributes: Vec::new() }
    }
}

impl CallTracer {
    /// `tracer` decides what is sampled. `samples_roots`: whether that may be a call whose client sent no context.
    pub fn new(tracer: BoxedTracer, clock: Arc<dyn Clock>, samples_roots: bool) -> Arc<CallTracer> {
        Arc::new(CallTracer { tracer, clock, samples_roots })
    }

    /// `None` if the call is not sampled.
    pub(crate) fn begin(
        self: &Arc<CallTracer>,
        trace_info: Option<&Bytes>,
        received_ns: u64,
    ) -> Option<Box<CallSpan>> {
        let context = match trace_info.and_then(remote_parent) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None if self.samples_roots => Context::new(),
            None => return None,
        };
        let started = self.wall_time(received_ns);
        let builder = SpanBuilder::from_name("RpcServer.process");
        let builder = builder.with_kind(SpanKind::Server).with_start_time(started);
        let process = self.tracer.build_with_context(builder, &context);
        let tracer = Arc::clone(self);
        process
            .is_recording()
            .then(|| Box::new(CallSpan { tracer, process, started, failure: None, batch_ns: 0 }))
    }

    /// The time of day at this point of the monotonic clock.
    fn wall_time(&self, monotonic_ns: u64) -> SystemTime {
        let ago_ns = self.clock.monotonic_ns().saturating_sub(monotonic_ns);
        UNIX_EPOCH + Duration::from_nanos(self.clock.now_ns().saturating_sub(ago_ns))
    }
}

impl CallSpan {
    /// The call ends in an exception.
    pub fn fail(&mut self, error: &RpcError) {
        self.failure = Some((error.class.to_string(), error.message.clone()));
    }

    /// The call is dropped without an answer. The words are HBase's.
    pub fn drop_call(mut self, why: Dropped) {
        let event = match why {
            Dropped::Abandoned => "Client disconnect detected",
            Dropped::Expired => "Call deadline exceeded",
        };
        self.process.add_event(event, Vec::new());
        self.process.set_status(Status::Ok);
    }

    /// The call is refused before the service saw it.
    pub fn refuse(mut self, error: &RpcError) {
        self.fail(error);
        set_status(&mut self.process, self.failure.as_ref());
    }

    /// The socket has taken the answer: now all times are known.
    pub fn end(mut self, call: &NotedCall<'_>, service: &str, parts: CallParts) {
        let after = |ns: u64| self.started + Duration::from_nanos(ns);
        let (answered, taken) = (after(call.thread_ns + call.waited_ns), after(call.took_ns()));
        let context = self.process.span_context().clone();
        let begun = self.draw(&context, parts.before, self.started, answered);
        self.draw_call(&context, (call, service), (begun, answered), (parts.within, parts.attributes));
        let response = Part::new("RpcServer.response", Duration::from_nanos(call.network_ns));
        self.draw(&context, vec![response], answered, taken);
        for attribute in of_connection(call) {
            self.process.set_attribute(attribute);
        }
        set_status(&mut self.process, self.failure.as_ref());
        self.process.end_with_timestamp(taken);
    }

    /// The span of the call itself and those within it.
    fn draw_call(
        &self,
        parent: &SpanContext,
        (call, service): (&NotedCall<'_>, &str),
        (begun, answered): (SystemTime, SystemTime),
        (within, mut attributes): (Vec<Part>, Vec<KeyValue>),
    ) {
        let service = format!("hbase.pb.{service}");
        let name = format!("{service}/{}", call.method);
        attributes.extend([
            KeyValue::new("rpc.system", "HBASE_RPC"),
            KeyValue::new("rpc.service", service),
            KeyValue::new("rpc.method", call.method.to_string()),
        ]);
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_attributes(attributes);
        let mut span = self.build(parent, builder.with_start_time(begun));
        self.draw(span.span_context(), within, begun, answered);
        set_status(&mut span, self.failure.as_ref());
        span.end_with_timestamp(answered);
    }

    /// Spans for these parts, one after another, none beyond `until`. Returns where the last one ends.
    fn draw(
        &self,
        parent: &SpanContext,
        parts: Vec<Part>,
        from: SystemTime,
        until: SystemTime,
    ) -> SystemTime {
        let mut at = from;
        for Part { name, time, attributes } in parts.into_iter().filter(|part| !part.time.is_zero()) {
            let builder = SpanBuilder::from_name(name).with_start_time(at).with_attributes(attributes);
            at = (at + time).min(until);
            self.build(parent, builder).end_with_timestamp(at);
        }
        at
    }

    fn build(&self, parent: &SpanContext, builder: SpanBuilder) -> BoxedSpan {
        let context = Context::new().with_remote_span_context(parent.clone());
        self.tracer.tracer.build_with_context(builder, &context)
    }
}

/// Who made the call, with the names of the OpenTelemetry version that HBase uses.
fn of_connection(call: &NotedCall<'_>) -> Vec<KeyValue> {
    let (host, port) = call.connection.peer.rsplit_once(':').unwrap_or((&call.connection.peer, ""));
    let mut attributes = vec![KeyValue::new("net.peer.name", host.to_string())];
    attributes.extend(port.parse::<i64>().ok().map(|port| KeyValue::new("net.peer.port", port)));
    attributes.extend(call.connection.user.clone().map(|user| KeyValue::new("db.user", user)));
    attributes
}

/// As HBase: the exception is an event of the span.
fn set_status(span: &mut BoxedSpan, failure: Option<&(String, String)>) {
    let Some((class, message)) = failure else { return span.set_status(Status::Ok) };
    let exception = [("exception.type", class.clone()), ("exception.message", message.clone())];
    span.add_event("exception", exception.map(|(key, value)| KeyValue::new(key, value)).to_vec());
    span.set_status(Status::error(class.clone()));
}

/// The span of the client that made the call. `None` if there is none, or if what was sent makes no sense.
fn remote_parent(trace_info: &Bytes) -> Option<SpanContext> {
    if trace_info.is_empty() || trace_info.len() > TRACE_INFO_BYTES_MAX {
        return None;
    }
    let info = pb::RpctInfo::decode(trace_info.clone()).ok()?;
    let state = info.headers.get("tracestate").and_then(|state| TraceState::from_str(state).ok());
    span_context(info.headers.get("traceparent")?.as_bytes(), state.unwrap_or_default())
}

/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`
fn span_context(traceparent: &[u8], state: TraceState) -> Option<SpanContext> {
    let (known, later) = traceparent.split_at_checked(TRACEPARENT_BYTES)?;
    let [version] = hex(&known[..2])?;
    let is_sane = match version {
        0 => later.is_empty(),
        0xff => false,
        _ => later.is_empty() || later[0] == b'-',
    };
    if !is_sane || [2, 35, 52].iter().any(|at| known[*at] != b'-') {
        return None;
    }
    let (trace, span) = (TraceId::from_bytes(hex(&known[3..35])?), SpanId::from_bytes(hex(&known[36..52])?));
    let [flags] = hex(&known[53..])?;
    let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}

/// Bytes from their hexadecimal digits, of which letters are small.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
