//! Settings of traces. Their names are the system properties of OpenTelemetry for Java, which HBase uses. The variable of
//! the environment has the same name in capitals: `otel.traces.exporter` is `OTEL_TRACES_EXPORTER`.

use std::time::Duration;

use halcyon_settings::Effect::Restart;
use halcyon_settings::{Codec, Maybe, Millis, Positive, Section, Share, Text, settings};
use opentelemetry_sdk::trace::Sampler;

use crate::settings::StandaloneSettings;
use crate::site::Property;

/// Where spans go, and which. Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    pub exporter: Exporter,
    /// Base address of the collector; `/v1/traces` is added.
    pub endpoint: String,
    /// Address for traces, used as it is.
    pub traces_endpoint: Option<String>,
    pub protocol: Protocol,
    /// How long one request to the collector may take.
    pub timeout: Duration,
    pub service_name: Option<String>,
    /// `name=value,name=value`
    pub resource_attributes: String,
    pub sampler: SamplerName,
    pub sampler_share: f64,
    pub queue_spans_max: usize,
    pub batch_spans_max: usize,
    /// How long spans wait for others.
    pub delay: Duration,
}

impl Default for TraceSettings {
    fn default() -> TraceSettings {
        TraceSettings {
            exporter: Exporter::None,
            endpoint: "http://localhost:4318".to_string(),
            traces_endpoint: None,
            protocol: Protocol::HttpProtobuf,
            timeout: Duration::from_secs(10),
            service_name: None,
            resource_attributes: String::new(),
            sampler: SamplerName::ParentBasedShare,
            sampler_share: 0.0,
            queue_spans_max: 2048,
            batch_spans_max: 512,
            delay: Duration::from_secs(5),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exporter {
    #[default]
    None,
    Otlp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    HttpProtobuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerName {
    AlwaysOn,
    AlwaysOff,
    Share,
    ParentBasedAlwaysOn,
    ParentBasedAlwaysOff,
    ParentBasedShare,
}

impl SamplerName {
    const ALL: [(SamplerName, &str); 6] = [
        (SamplerName::AlwaysOn, "always_on"),
        (SamplerName::AlwaysOff, "always_off"),
        (SamplerName::Share, "traceidratio"),
        (SamplerName::ParentBasedAlwaysOn, "parentbased_always_on"),
        (SamplerName::ParentBasedAlwaysOff, "parentbased_always_off"),
        (SamplerName::ParentBasedShare, "parentbased_traceidratio"),
    ];
}

impl TraceSettings {
    pub fn address(&self) -> String {
        let joined = || format!("{}/v1/traces", self.endpoint.trim_end_matches('/'));
        self.traces_endpoint.clone().unwrap_or_else(joined)
    }

    pub fn sampler(&self) -> Sampler {
        let obeying = |root| Sampler::ParentBased(Box::new(root));
        match self.sampler {
            SamplerName::AlwaysOn => Sampler::AlwaysOn,
            SamplerName::AlwaysOff => Sampler::AlwaysOff,
            SamplerName::Share => Sampler::TraceIdRatioBased(self.sampler_share),
            SamplerName::ParentBasedAlwaysOn => obeying(Sampler::AlwaysOn),
            SamplerName::ParentBasedAlwaysOff => obeying(Sampler::AlwaysOff),
            SamplerName::ParentBasedShare => obeying(Sampler::TraceIdRatioBased(self.sampler_share)),
        }
    }

    /// Whether a call may be sampled whose client sent no context.
    pub fn samples_roots(&self) -> bool {
        match self.sampler {
            SamplerName::AlwaysOn | SamplerName::ParentBasedAlwaysOn => true,
            SamplerName::AlwaysOff | SamplerName::ParentBasedAlwaysOff => false,
            SamplerName::Share | SamplerName::ParentBasedShare => self.sampler_share > 0.0,
        }
    }

    /// Names and values of the resource that sends spans, without its service name.
    pub fn attributes(&self) -> Vec<(String, String)> {
        let pairs = self.resource_attributes.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.trim().to_string(), value.trim().to_string())).collect()
    }
}

pub const SECTION: Section<StandaloneSettings> = Section {
    title: "Traces",
    settings: settings!(StandaloneSettings:
        Restart, "otel.traces.exporter", "none, otlp", ExporterCodec, traces.exporter,
            "Where spans of traced calls go (`OTEL_TRACES_EXPORTER`). Each setting here has a variable of its name in capitals, \
             which counts more than `hbase-site.xml`.";
        Restart, "otel.exporter.otlp.endpoint", "URL", HttpUrl, traces.endpoint,
            "Address of the OpenTelemetry collector, without TLS; `/v1/traces` is added.";
        Restart, "otel.exporter.otlp.traces.endpoint", "URL", Maybe<HttpUrl>, traces.traces_endpoint,
            "The same for traces alone; nothing is added.";
        Restart, "otel.exporter.otlp.protocol", "http/protobuf", ProtocolCodec, traces.protocol,
            "How spans are sent. OpenTelemetry also knows `grpc` and `http/json`.";
        Restart, "otel.exporter.otlp.timeout", "ms", Millis, traces.timeout,
            "Time for one request to the collector. Calls of clients never wait for it.";
        Restart, "otel.service.name", "text", Maybe<Text>, traces.service_name,
            "Name of the service in traces. Not set: `service.name` of the resource attributes, else `hbase`.";
        Restart, "otel.resource.attributes", "name=value,...", Attributes, traces.resource_attributes,
            "Attributes of every span that this server sends.";
        Restart, "otel.traces.sampler", "sampler", SamplerCodec, traces.sampler,
            "Which calls are traced: `always_on`, `always_off`, `traceidratio`, or one of them after `parentbased_`, which \
             does what the client decided and samples only calls without a context.";
        Restart, "otel.traces.sampler.arg", "share", Share, traces.sampler_share,
            "Share that the samplers with `traceidratio` take. OpenTelemetry: 1.";
        Restart, "otel.bsp.max.queue.size", "spans", Positive, traces.queue_spans_max,
            "Spans that may wait for the collector. More are dropped and counted.";
        Restart, "otel.bsp.max.export.batch.size", "spans", Positive, traces.batch_spans_max,
            "Spans in one request to the collector.";
        Restart, "otel.bsp.schedule.delay", "ms", Millis, traces.delay,
            "How long spans wait for others before they are sent.";
    ),
};

/// The setting's variable.
fn variable(name: &str) -> String {
    name.to_uppercase().replace('.', "_")
}

/// Properties, and behind them what the environment says of traces.
pub fn with_environment(mut properties: Vec<Property>) -> Vec<Property> {
    properties.extend(of_environment(|name| std::env::var(name).ok()));
    properties
}

/// Tells of variables that look as if they had an effect.
pub fn warn_of_variables(settings: &TraceSettings) {
    if settings.exporter == Exporter::None {
        if is_in_environment("otel.exporter.otlp.endpoint") {
            tracing::info!("no call is traced: OTEL_TRACES_EXPORTER is not otlp");
        }
        return;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in unknown_variables(names) {
        tracing::warn!(name, "this variable has no effect");
    }
}

/// The settings that the environment has, as properties. An empty variable counts as none.
fn of_environment(value: impl Fn(&str) -> Option<String>) -> Vec<Property> {
    let names = SECTION.settings.iter().map(|setting| setting.name);
    let set = names.filter_map(|name| Some((name, value(&variable(name)).filter(|text| !text.is_empty())?)));
    set.map(|(name, value)| Property { name: name.to_string(), value }).collect()
}

/// Whether the environment has this setting.
pub fn is_in_environment(name: &str) -> bool {
    name.starts_with("otel.") && std::env::var_os(variable(name)).is_some_and(|value| !value.is_empty())
}

/// Variables of OpenTelemetry about traces that have no effect here.
fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known = |name: &str| SECTION.settings.iter().any(|setting| variable(setting.name) == name);
    let others = ["OTEL_METRICS_", "OTEL_LOGS_", "OTEL_JAVAAGENT_"];
    let is_other = |name: &str| others.iter().any(|other| name.starts_with(other));
    let of_traces = names.filter(|name| name.starts_with("OTEL_") && !is_other(name));
    of_traces.filter(|name| !is_known(name)).collect()
}

struct ExporterCodec;

impl Codec<Exporter> for ExporterCodec {
    fn parse(text: &str) -> Option<Exporter> {
        match text {
            "none" => Some(Exporter::None),
            "otlp" => Some(Exporter::Otlp),
            _ => None,
        }
    }

    fn print(exporter: &Exporter) -> Option<String> {
        let text = match exporter {
            Exporter::None => "none",
            Exporter::Otlp => "otlp",
        };
        Some(text.to_string())
    }

    fn refused(_: &Exporter) -> &'static str {
        "is an exporter that is not supported: none or otlp"
    }
}

struct ProtocolCodec;

impl Codec<Protocol> for ProtocolCodec {
    fn parse(text: &str) -> Option<Protocol> {
        (text == "http/protobuf").then_some(Protocol::HttpProtobuf)
    }

    fn print(_: &Protocol) -> Option<String> {
        Some("http/protobuf".to_string())
    }

    fn refused(_: &Protocol) -> &'static str {
        "is a protocol that is not supported: http/protobuf, which collectors take at port 4318"
    }
}

struct SamplerCodec;

impl Codec<SamplerName> for SamplerCodec {
    fn parse(text: &str) -> Option<SamplerName> {
        SamplerName::ALL.iter().find(|(_, name)| *name == text).map(|(sampler, _)| *sampler)
    }

    fn print(sampler: &SamplerName) -> Option<String> {
        SamplerName::ALL.iter().find(|(known, _)| known == sampler).map(|(_, name)| name.to_string())
    }

    fn refused(_: &SamplerName) -> &'static str {
        "is a sampler that is not supported: always_on, always_off, traceidratio, or one of them after parentbased_"
    }
}

/// An address without TLS.
struct HttpUrl;

impl Codec<String> for HttpUrl {
    fn parse(text: &str) -> Option<String> {
        let host = text.strip_prefix("http://")?;
        let is_sane = !host.is_empty() && !host.starts_with('/') && !text.contains(char::is_whitespace);
        is_sane.then(|| text.to_string())
    }

    fn print(url: &String) -> Option<String> {
        Some(url.clone())
    }

    fn refused(_: &String) -> &'static str {
        "is no address that begins with http:// (TLS is not supported; a collector on this machine can add it)"
    }
}

/// `name=value` pairs.
struct Attributes;

impl Codec<String> for Attributes {
    fn parse(text: &str) -> Option<String> {
        let is_pair = |pair: &str| {
            pair.split_once('=').is_some_and(|(name, value)| !name.trim().is_empty() && !value.is_empty())
        };
        (text.is_empty() || text.split(',').all(is_pair)).then(|| text.to_string())
    }

    fn print(text: &String) -> Option<String> {
        Some(text.clone())
    }

    fn refused(_: &String) -> &'static str {
        "is not name=value,name=value"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<TraceSettings, String> {
        let mut settings = StandaloneSettings::default();
        assert!(settings.set(name, value)?, "{name} is known");
        Ok(settings.traces)
    }

    #[test]
    fn nothing_is_traced_unless_it_is_asked_for() {
        let settings = TraceSettings::default();
        assert_eq!((settings.exporter, settings.samples_roots()), (Exporter::None, false));
        assert_eq!(settings.address(), "http://localhost:4318/v1/traces");
        assert_eq!(set("otel.traces.exporter", "otlp").unwrap().exporter, Exporter::Otlp);
        let settings = set("otel.exporter.otlp.endpoint", "http://c:1/").unwrap();
        assert_eq!(settings.address(), "http://c:1/v1/traces");
        let settings = set("otel.exporter.otlp.traces.endpoint", "http://c:1/mine").unwrap();
        assert_eq!(settings.address(), "http://c:1/mine");
        assert!(set("otel.traces.sampler.arg", "0.01").unwrap().samples_roots());
        assert!(set("otel.traces.sampler", "parentbased_always_on").unwrap().samples_roots());
        let settings = set("otel.resource.attributes", "service.name=x, rack = 7").unwrap();
        let text = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
        assert_eq!(settings.attributes(), [("service.name", "x"), ("rack", "7")].map(text));
    }

    #[test]
    fn what_is_not_supported_is_refused_with_what_is() {
        for (name, value, told) in [
            ("otel.traces.exporter", "jaeger", "none or otlp"),
            ("otel.traces.exporter", "logging,otlp", "none or otlp"),
            ("otel.exporter.otlp.protocol", "grpc", "http/protobuf"),
            ("otel.exporter.otlp.endpoint", "https://c:1", "TLS is not supported"),
            ("otel.exporter.otlp.endpoint", "c:4318", "begins with http://"),
            ("otel.exporter.otlp.traces.endpoint", "http://", "begins with http://"),
            ("otel.traces.sampler", "jaeger_remote", "traceidratio"),
            ("otel.traces.sampler.arg", "2", "between 0 and 1"),
            ("otel.bsp.max.queue.size", "0", "above 0"),
            ("otel.resource.attributes", "x", "name=value"),
        ] {
            let error = set(name, value).unwrap_err();
            assert!(error.starts_with(&format!("{name}: {value:?} ")) && error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_environment_has_the_same_names_in_capitals() {
        let value = |name: &str| match name {
            "OTEL_TRACES_EXPORTER" => Some("otlp".to_string()),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => Some("http://c:1/x".to_string()),
            "OTEL_SERVICE_NAME" => Some(String::new()),
            _ => None,
        };
        let found: Vec<_> = of_environment(value).into_iter().map(|p| (p.name, p.value)).collect();
        let text = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
        let expected =
            [("otel.traces.exporter", "otlp"), ("otel.exporter.otlp.traces.endpoint", "http://c:1/x")];
        assert_eq!(found, expected.map(text));
        let names = ["PATH", "OTEL_SERVICE_NAME", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_HEADERS"];
        assert_eq!(unknown_variables(names.into_iter().map(String::from)), ["OTEL_EXPORTER_OTLP_HEADERS"]);
    }
}
