//! `/prometheus`: the numbers of `/jmx` in Prometheus' text form, with the names of HBase's `PrometheusHadoopServlet`.
//!
//! `/metrics` has more, with names of its own (docs/METRICS.md).

use std::fmt::Write;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::beans::Bean;
use super::{Shows, made, text};

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Deserialize)]
pub struct Parameters {
    /// A part of a name.
    qry: Option<String>,
    description: Option<String>,
}

pub async fn answer<S: Shows>(
    State(pages): State<S>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let Ok(Query(parameters)) = parameters else {
        return text(StatusCode::BAD_REQUEST, "The query cannot be read.\n");
    };
    made(move || {
        let describe = parameters.description.as_deref() == Some("true");
        let body = page(&pages.beans(), parameters.qry.as_deref(), describe);
        ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], body).into_response()
    })
    .await
}

fn page(beans: &[Bean], part: Option<&str>, describe: bool) -> String {
    let mut out = String::new();
    for bean in beans.iter().filter(|bean| !bean.record.is_empty()) {
        let tags =
            bean.attributes.iter().filter_map(|it| Some((it.name.strip_prefix("tag.")?, it.value.as_str()?)));
        let labels: Vec<String> =
            tags.map(|(name, value)| format!("{}=\"{}\"", name.to_lowercase(), escaped(value))).collect();
        for it in bean.attributes.iter().filter(|it| it.value.is_number()) {
            let name = prometheus_name(bean.record, &it.name);
            if part.is_some_and(|part| !name.contains(part)) {
                continue;
            }
            if describe && !it.help.is_empty() {
                let _ = writeln!(out, "# HELP {name} {}", it.help);
            }
            let kind = if it.is_counter { "counter" } else { "gauge" };
            let _ = writeln!(out, "# TYPE {name} {kind}\n{name}{{{}}} {}", labels.join(","), it.value);
        }
    }
    out
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `Server`, `readRequestCount`: `server_read_request_count`.
fn prometheus_name(record: &str, attribute: &str) -> String {
    let mut capitalized = attribute.to_string();
    if let Some(first) = capitalized.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let all: Vec<char> = format!("{record}{capitalized}").chars().collect();
    let mut name = String::with_capacity(all.len() + 8);
    for (at, letter) in all.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| all.get(before));
        let after = all.get(at + 1);
        let begins_word = letter.is_ascii_uppercase()
            && (before.is_some_and(char::is_ascii_lowercase)
                || before.is_some_and(char::is_ascii_uppercase)
                    && after.is_some_and(char::is_ascii_lowercase));
        if !letter.is_ascii_alphanumeric() {
            if !name.ends_with('_') {
                name.push('_');
            }
            continue;
        }
        if begins_word && !name.ends_with('_') {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hbase() {
        for (record, attribute, expected) in [
            ("Server", "readRequestCount", "server_read_request_count"),
            ("IPC", "TotalCallTime_num_ops", "ipc_total_call_time_num_ops"),
            ("WAL", "SyncTime_99.9th_percentile", "wal_sync_time_99_9th_percentile"),
            ("JvmMetrics", "MemHeapUsedM", "jvm_metrics_mem_heap_used_m"),
            ("Server", "hlogFileCount", "server_hlog_file_count"),
        ] {
            assert_eq!(prometheus_name(record, attribute), expected);
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut bean = Bean::of_hbase("RegionServer", Some("Server"), "region\"server\n", "h\\");
        bean.counter("readRequestCount", 7, "Reads");
        bean.gauge("regionCount", 2, "");
        let all = page(&[bean.clone()], None, true);
        let labels = "{context=\"region\\\"server\\n\",hostname=\"h\\\\\"}";
        assert_eq!(
            all,
            format!(
                "# HELP server_read_request_count Reads\n# TYPE server_read_request_count counter\n\
                 server_read_request_count{labels} 7\n# TYPE server_region_count gauge\nserver_region_count{labels} 2\n"
            )
        );
        assert_eq!(page(&[bean], Some("region_c"), false).lines().count(), 2);
    }
}
