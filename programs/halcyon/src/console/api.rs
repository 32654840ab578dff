//! `/api/v1/*`: what the console shows, as JSON. `docs/CONSOLE.md` describes every answer.
//!
//! A query parameter that is unknown or makes no sense is answered with 400 and a sentence that names it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use halcyon_regionserver::OnlineRegion;
use halcyon_schema::TableName;
use serde::{Deserialize, Serialize};

use super::health::{self, Evidence, Verdict};
use super::keys::{ROWS_MAX, Requests};
use super::marks::StallMark;
use super::timeline::{Points, Range};
use super::{Console, Role};
use super::{cluster, lists};
use crate::pages::Sources;
use crate::surroundings::{Fact, Scope};

type Shared = State<(Arc<Console>, Role)>;
type Parameters<P> = Result<Query<P>, QueryRejection>;

pub fn routes(console: Arc<Console>, role: Role) -> Router {
    Router::new()
        .route("/api/v1/summary", get(answer(Console::summary)))
        .route("/api/v1/series", get(answer(Console::series)))
        .route("/api/v1/stalls", get(answer(Console::stalls)))
        .route("/api/v1/keys", get(answer(Console::keys)))
        .route("/api/v1/memory", get(answer(lists::memory)))
        .route("/api/v1/tables", get(answer(lists::tables)))
        .route("/api/v1/regions", get(answer(lists::regions)))
        .route("/api/v1/procedures", get(answer(lists::procedures)))
        .route("/api/v1/settings", get(answer(lists::settings)))
        .route("/api/v1/slow-calls", get(answer(lists::slow_calls)))
        .route("/api/v1/cluster", get(answer(cluster::cluster)))
        .route("/api/v1/servers", get(answer(cluster::servers)))
        .route("/api/v1/transitions", get(answer(cluster::transitions)))
        .route("/api/v1/balance", get(answer(cluster::balance)))
        .route("/api/v1/recoveries", get(answer(cluster::recoveries)))
        .route("/api/v1/{*unknown}", get(|| async { Refused::unknown() }))
        .with_state((console, role))
}

/// A handler that reads `P` from the query and answers with what `make` returns, made where blocking is allowed.
fn answer<P, T>(
    make: fn(&Console, Role, P) -> Result<T, Refused>,
) -> impl Fn(Shared, Parameters<P>) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>>
+ Clone
+ Send
+ 'static
where
    P: for<'d> Deserialize<'d> + Send + 'static,
    T: Serialize + Send + 'static,
{
    move |State((console, role)), parameters| {
        Box::pin(async move {
            let parameters = match parameters {
                Ok(Query(parameters)) => parameters,
                Err(rejection) => return Refused::query(&rejection).into_response(),
            };
            let made = tokio::task::spawn_blocking(move || make(&console, role, parameters).map(Json));
            match made.await {
                Ok(Ok(json)) => json.into_response(),
                Ok(Err(refused)) => refused.into_response(),
                Err(_) => Refused::failed().into_response(),
            }
        })
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    sentence: String,
}

impl Refused {
    pub fn invalid(sentence: String) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, sentence }
    }

    /// What is asked for is not on this port.
    pub fn absent(sentence: &str) -> Refused {
        Refused { status: StatusCode::NOT_FOUND, sentence: sentence.to_string() }
    }

    fn query(rejection: &QueryRejection) -> Refused {
        let text = rejection.body_text();
        Refused::invalid(text.trim_start_matches("Failed to deserialize query string: ").to_string())
    }

    fn unknown() -> Refused {
        let sentence = "There is no such path. docs/CONSOLE.md lists all of /api/v1.".to_string();
        Refused { status: StatusCode::NOT_FOUND, sentence }
    }

    fn failed() -> Refused {
        let sentence = "The server could not make this answer; its log says why.".to_string();
        Refused { status: StatusCode::INTERNAL_SERVER_ERROR, sentence }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(serde_json::json!({ "error": self.sentence }))).into_response()
    }
}

/// For paths that take no parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

#[derive(Serialize)]
struct Summary {
    role: Role,
    scope: Scope,
    /// Where the server stands among others; empty if it is all of the cluster.
    place: Vec<Fact>,
    version: &'static str,
    cluster: String,
    server: String,
    now_ms: i64,
    started_ms: i64,
    up_s: u64,
    health: Verdict,
    regions_count: usize,
    tables_count: usize,
    procedures_count: usize,
    memory_budget_bytes: u64,
    slow_call_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesParameters {
    range: Range,
    /// Only points of intervals that begin after this one.
    after_ms: Option<i64>,
    /// Beginnings of names, separated by commas.
    names: Option<String>,
}

#[derive(Serialize)]
struct Series {
    range: Range,
    now_ms: i64,
    first_ms: i64,
    step_ms: u64,
    count: usize,
    series: Vec<OneSeries>,
}

#[derive(Serialize)]
struct OneSeries {
    name: String,
    unit: &'static str,
    help: &'static str,
    values: Vec<f32>,
}

impl From<Points> for OneSeries {
    fn from(Points { label, values }: Points) -> OneSeries {
        OneSeries { name: label.name, unit: label.unit, help: label.help, values }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StallParameters {
    range: Range,
}

#[derive(Serialize)]
struct StallAnswer {
    range: Range,
    now_ms: i64,
    threshold_ms: u64,
    marks: Vec<StallMark>,
    causes: Vec<Cause>,
}

/// All stalls of one cause since the start.
#[derive(Serialize)]
struct Cause {
    cause: &'static str,
    count: u64,
    total_ms: f64,
    longest_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyParameters {
    range: Range,
    #[serde(default)]
    requests: Requests,
    table: Option<String>,
    rows: Option<usize>,
}

#[derive(Serialize)]
struct KeyAnswer {
    range: Range,
    requests: Requests,
    now_ms: i64,
    first_ms: i64,
    #[serde(flatten)]
    map: super::keys::KeyMap,
}

/// Tables with a state or with an open region.
fn tables_count(sources: &Sources, open: &[Arc<OnlineRegion>]) -> usize {
    let states = sources.surroundings.table_states();
    let open: BTreeSet<&TableName> = open.iter().map(|online| online.region.info().table()).collect();
    states.len() + open.into_iter().filter(|table| !states.contains_key(&table.to_string())).count()
}

impl Console {
    fn summary(&self, role: Role, _: NoParameters) -> Result<Summary, Refused> {
        let sources = &self.sources;
        let now_ms = sources.clock.now_ms();
        let up_s = (now_ms - sources.started_ms).max(0) as u64 / 1000;
        let (procedures, open) =
            (sources.surroundings.procedures(), sources.region_server.regions().online());
        let cluster = sources.surroundings.cluster().map(|cluster| cluster.picture());
        let (regions_count, tables_count) = match &cluster {
            Some(cluster) => (cluster.open_count(), cluster.spread.tables.len()),
            None => (open.len(), tables_count(sources, &open)),
        };
        let findings = cluster.map(|cluster| cluster.findings()).unwrap_or_default();
        Ok(Summary {
            role,
            scope: sources.surroundings.scope(),
            place: sources.surroundings.facts(),
            version: env!("CARGO_PKG_VERSION"),
            cluster: sources.cluster_id.clone(),
            server: sources.region_server.server_name().to_string(),
            now_ms,
            started_ms: sources.started_ms,
            up_s,
            regions_count,
            tables_count,
            procedures_count: procedures.len(),
            memory_budget_bytes: sources.region_server.settings().plan().budget,
            slow_call_ms: sources
                .region_server
                .online_settings()
                .warn
                .time
                .map(|time| time.as_millis() as u64),
            health: health::judge(&self.evidence(up_s, procedures, findings)),
        })
    }

    fn evidence(
        &self,
        up_s: u64,
        procedures: Vec<halcyon_master::ProcedureSummary>,
        cluster: Vec<health::Finding>,
    ) -> Evidence {
        let (region_server, now_s, kept) = (&self.sources.region_server, self.now_s(), self.kept.lock());
        let grown = |name| kept.timeline.grown(name, health::WINDOW_S);
        Evidence {
            up_s,
            failure: region_server.failure(),
            cache_file_failure: region_server.file_tier_failure(),
            long_stalls: kept.stalls.long(Range::Minutes15, now_s),
            procedures,
            cluster,
            refused_calls: grown("calls.refused"),
            refused_writes: grown("writes.refused"),
            held_back_writes: grown("writes.held_back"),
            slow_calls: grown("calls.slow"),
        }
    }

    fn series(&self, _: Role, parameters: SeriesParameters) -> Result<Series, Refused> {
        let SeriesParameters { range, after_ms, names } = parameters;
        let after_s = after_ms.map(|after| (after - self.started_ms).max(0) as u64 / 1000);
        let names: Option<Vec<&str>> = names.as_ref().map(|names| names.split(',').collect());
        let is_wanted =
            |name: &str| names.as_ref().is_none_or(|names| names.iter().any(|start| name.starts_with(start)));
        let kept = self.kept.lock();
        let window = kept.timeline.window(range, after_s, is_wanted);
        if let (Some(names), true) = (&names, window.series.is_empty()) {
            return Err(Refused::invalid(format!("names: no series begins with one of {names:?}")));
        }
        Ok(Series {
            range,
            now_ms: self.sources.clock.now_ms(),
            first_ms: self.unix_ms(window.first_s as i64),
            step_ms: window.step_s * 1000,
            count: window.count,
            series: window.series.into_iter().map(OneSeries::from).collect(),
        })
    }

    fn stalls(&self, _: Role, parameters: StallParameters) -> Result<StallAnswer, Refused> {
        let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
        let causes = self.sources.stalls.sums().into_iter().map(|(cause, sum)| Cause {
            cause,
            count: sum.count,
            total_ms: milliseconds(sum.total),
            longest_ms: milliseconds(sum.longest),
        });
        Ok(StallAnswer {
            range: parameters.range,
            now_ms: self.sources.clock.now_ms(),
            threshold_ms: self.sources.stalls.threshold().as_millis() as u64,
            marks: self.kept.lock().stalls.of(parameters.range, self.now_s()),
            causes: causes.collect(),
        })
    }

    fn keys(&self, _: Role, parameters: KeyParameters) -> Result<KeyAnswer, Refused> {
        let KeyParameters { range, requests, table, rows } = parameters;
        let rows = rows.unwrap_or(ROWS_MAX / 2);
        if !(1..=ROWS_MAX).contains(&rows) {
            return Err(Refused::invalid(format!("rows: {rows} is not between 1 and {ROWS_MAX}")));
        }
        let map = self.kept.lock().keys.map(range, self.now_s(), requests, table.as_deref(), rows);
        let (now_ms, first_ms) = (self.sources.clock.now_ms(), self.unix_ms(map.first_s));
        Ok(KeyAnswer { range, requests, now_ms, first_ms, map })
    }
}
