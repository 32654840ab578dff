//! Sends spans to a collector: OTLP over HTTP, as protobuf.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use ureq::Agent;

/// A collector answers with a few words.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Where spans are sent. *Thread safety*: for one thread.
pub struct Collector {
    agent: Agent,
    address: String,
    resource: ResourceAttributesWithSchema,
    /// The last request failed, and the log says so.
    is_away: bool,
}

impl Collector {
    pub fn new(address: String, timeout: Duration, resource: &Resource) -> Collector {
        let config = Agent::config_builder().timeout_global(Some(timeout)).build();
        let agent = Agent::new_with_config(config);
        Collector { agent, address, resource: resource.into(), is_away: false }
    }

    /// Sends spans, once. Returns how many the collector did not take. *Blocking* for at most the timeout.
    pub fn send(&mut self, spans: Vec<SpanData>) -> u64 {
        let count = spans.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        match self.post(&request.encode_to_vec()) {
            Ok((lost, message)) => {
                if std::mem::take(&mut self.is_away) {
                    tracing::info!(address = self.address, "the collector takes spans again");
                }
                if lost > 0 {
                    tracing::warn!(lost, message, "the collector refused spans");
                }
                lost
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(address = self.address, %error, "the collector takes no spans: they are dropped");
                }
                count
            }
        }
    }

    /// Spans that the collector refused, and why.
    fn post(&self, body: &[u8]) -> Result<(u64, String), ureq::Error> {
        let request = self.agent.post(&self.address).header("content-type", "application/x-protobuf");
        let mut answer = request.send(body)?;
        let answer = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        let partial =
            ExportTraceServiceResponse::decode(&answer[..]).ok().and_then(|answer| answer.partial_success);
        let partial = partial.unwrap_or_default(); // an answer that is no message took them all
        Ok((u64::try_from(partial.rejected_spans).unwrap_or(0), partial.error_message))
    }
}
