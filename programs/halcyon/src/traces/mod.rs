//! Traces of calls, for OpenTelemetry: settings, sampling, and the way of spans to a collector.
//!
//! `halcyon-rpc` makes the spans. [`SpanQueue`] keeps them until its thread sends them ([`Collector`]). The queue is bounded,
//! so a collector that is slow or away costs spans and never time. A clean stop sends what is queued, for a bounded time.
//!
//! When you add a setting, also touch `docs/TRACING.md`.

mod otlp;
mod queue;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{Env, spawn_thread};
use halcyon_rpc::CallTracer;
use opentelemetry::KeyValue;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

use otlp::Collector;
pub use queue::SpanCounts;
use queue::{Queueing, SpanQueue};
use settings::Exporter;
pub use settings::{SECTION, TraceSettings, is_in_environment, warn_of_variables, with_environment};

/// How long a clean stop waits for the collector.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
const SERVICE_NAME: &str = "service.name";
const SERVICE_NAME_DEFAULT: &str = "hbase";

/// Traces of a running server. *Thread safety*: all methods from any thread.
pub struct Traces {
    tracer: Arc<CallTracer>,
    queue: Arc<SpanQueue>,
    /// Spans come through it; they are no longer recorded when it is gone.
    _provider: SdkTracerProvider,
}

impl Traces {
    /// `None` if no exporter is set.
    pub fn start(env: &Env, settings: &TraceSettings, server_name: String) -> Result<Option<Traces>, String> {
        if settings.exporter == Exporter::None {
            return Ok(None);
        }
        let queue = SpanQueue::new(settings.queue_spans_max, settings.batch_spans_max);
        let resource = resource(settings, server_name);
        let mut collector = Collector::new(settings.address(), settings.timeout, &resource);
        let (sending, delay) = (Arc::clone(&queue), settings.delay);
        spawn_thread("traces", move || sending.run(delay, |spans| collector.send(spans)))
            .map_err(|error| format!("cannot start threads: {error}"))?;
        let provider = SdkTracerProvider::builder()
            .with_sampler(settings.sampler())
            .with_resource(resource)
            .with_span_processor(Queueing(Arc::clone(&queue)))
            .build();
        let tracer = BoxedTracer::new(Box::new(provider.tracer("halcyon")));
        let tracer = CallTracer::new(tracer, Arc::clone(&env.clock), settings.samples_roots());
        tracing::info!(address = settings.address(), sampler = ?settings.sampler(), "calls are traced");
        Ok(Some(Traces { tracer, queue, _provider: provider }))
    }

    pub fn tracer(&self) -> Arc<CallTracer> {
        Arc::clone(&self.tracer)
    }

    pub fn counts(&self) -> SpanCounts {
        self.queue.counts()
    }

    /// Sends what is queued. *Blocking*.
    pub fn stop(&self) {
        if !self.queue.stop(STOP_TIME_MAX) {
            tracing::warn!("spans are lost: the collector did not take them within {STOP_TIME_MAX:?}");
        }
    }
}

/// What sends the spans. The names of the settings count more than ours.
fn resource(settings: &TraceSettings, server_name: String) -> Resource {
    let mut attributes = BTreeMap::from([
        (SERVICE_NAME.to_string(), SERVICE_NAME_DEFAULT.to_string()),
        ("service.version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ("db.hbase.server.name".to_string(), server_name),
    ]);
    attributes.extend(settings.attributes());
    attributes.extend(settings.service_name.clone().map(|name| (SERVICE_NAME.to_string(), name)));
    let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value));
    Resource::builder_empty().with_attributes(attributes).build()
}
