//! The text pages of the info ports. Both ports answer the same paths: `/`, `/memory`, `/stalls`, `/stalls.json` and
//! `/metrics`. A browser that asks for `/` gets the console (`console/`). HBase's addresses are in `hbase_pages/`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use halcyon_env::{Clock, Env, Stall, Stalls};
use halcyon_regionserver::{MemoryPart, RegionServer};
use halcyon_rpc::{Queues, RpcServer, RpcStatsSnapshot};
use serde_json::{Value, json};

use crate::hbase_pages::{Windows, WindowsNow};
use crate::settings::{ShownSetting, StandaloneSettings};
use crate::surroundings::{Fact, Scope, Surroundings};
use crate::traces::Traces;
use crate::{console, metrics};

/// Reads what a part of the server holds and may hold, in bytes.
type ReadPart = Box<dyn Fn() -> (usize, usize) + Send + Sync>;

/// Reads the counters of a port.
type ReadStats = Box<dyn Fn() -> RpcStatsSnapshot + Send + Sync>;

/// What the pages and metrics are made from. The ports of one process share one.
pub struct Sources {
    pub clock: Arc<dyn Clock>,
    pub stalls: Arc<Stalls>,
    pub started_ms: i64,
    pub cluster_id: String,
    /// The settings as printed.
    pub settings: String,
    /// The settings as the server was started, with their sources.
    pub shown_settings: Vec<ShownSetting>,
    pub region_server: Arc<RegionServer>,
    pub surroundings: Arc<dyn Surroundings>,
    /// `None`: no call is traced.
    pub traces: Option<Arc<Traces>>,
    /// What the calls of all ports hold.
    pub queues: Arc<Queues>,
    /// What the operating system says that the process takes.
    pub resident_bytes: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Of the histograms in the beans.
    pub windows: Windows,
    /// Parts with memory of their own, beside region server and queues.
    parts: Vec<(&'static str, ReadPart)>,
    /// Name of a port and where its counters are read.
    pub rpc: Vec<(&'static str, ReadStats)>,
}

/// What pages show of the start.
pub struct Shown {
    pub settings: Vec<ShownSetting>,
    pub traces: Option<Arc<Traces>>,
}

/// The routes of an info port.
pub fn routes(sources: Arc<Sources>) -> Router {
    type Shared = State<Arc<Sources>>;
    Router::new()
        .route("/", get(root))
        .route("/state", get(|State(sources): Shared| async move { sources.state() }))
        .route("/memory", get(|State(sources): Shared| async move { sources.memory_page() }))
        .route("/stalls", get(|State(sources): Shared| async move { sources.stalls() }))
        .route("/stalls.json", get(|State(sources): Shared| async move { Json(sources.stalls_json()) }))
        .route("/metrics", get(|State(sources): Shared| async move { metrics_page(&sources) }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "There is no such page.\n") })
        .with_state(sources)
}

/// The console for browsers, and the state as text for everything else.
async fn root(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut response =
        if accepted.contains("text/html") { console::page() } else { sources.state().into_response() };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

fn metrics_page(sources: &Arc<Sources>) -> Response {
    match metrics::text(sources) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl Sources {
    /// `ports` are RPC ports with their names.
    pub fn new(
        env: &Env,
        settings: &StandaloneSettings,
        shown: Shown,
        region_server: &Arc<RegionServer>,
        cluster: (String, Arc<dyn Surroundings>),
        queues: Arc<Queues>,
        ports: &[(&'static str, &Arc<RpcServer>)],
    ) -> Sources {
        let (cluster_id, surroundings) = cluster;
        let read_stats = |(name, server): &(&'static str, &Arc<RpcServer>)| -> (&'static str, ReadStats) {
            let server = Arc::downgrade(server);
            let read = move || server.upgrade().map(|server| server.stats().snapshot()).unwrap_or_default();
            (*name, Box::new(read))
        };
        let local = Arc::clone(&env.local);
        Sources {
            clock: env.clock.clone(),
            stalls: env.stalls.clone(),
            started_ms: region_server.server_name().start_code,
            cluster_id,
            settings: settings.to_string(),
            shown_settings: shown.settings,
            traces: shown.traces,
            region_server: Arc::clone(region_server),
            surroundings,
            queues,
            resident_bytes: Box::new(move || halcyon_env::resident_bytes(&*local)),
            windows: Windows::default(),
            parts: Vec::new(),
            rpc: ports.iter().map(read_stats).collect(),
        }
    }

    /// One more part that the page `/memory` shows: what it holds, and may hold.
    pub fn add_part(
        &mut self,
        name: &'static str,
        read: impl Fn() -> (usize, usize) + Send + Sync + 'static,
    ) {
        self.parts.push((name, Box::new(read)));
    }

    pub(crate) fn windows(&self) -> WindowsNow<'_> {
        WindowsNow { windows: &self.windows, now_ns: self.clock.monotonic_ns() }
    }

    pub(crate) fn state(&self) -> String {
        let up_s = (self.clock.now_ms() - self.started_ms).max(0) / 1000;
        let mut out = format!(
            "halcyon {} {}\ncluster {}\nserver {}\nup {up_s} s\n",
            env!("CARGO_PKG_VERSION"),
            self.surroundings.scope().command(),
            self.cluster_id,
            self.region_server.server_name()
        );
        for Fact { name, value, .. } in self.surroundings.facts() {
            let _ = writeln!(out, "{name}: {value}");
        }
        if let Some(failure) = self.region_server.failure() {
            let _ = writeln!(out, "FAILED: {failure}");
        }
        if let Some(failure) = self.region_server.file_tier_failure() {
            let _ = writeln!(out, "the block cache's file is off: {failure}");
        }
        let procedures = self.surroundings.procedures();
        if self.surroundings.scope() != Scope::Server {
            let _ = writeln!(out, "\n{} procedures", procedures.len());
        }
        for one in procedures {
            let locks = one.locks.join(", ");
            let _ = writeln!(
                out,
                "{} {}  owner '{}'  submitted {} ms  locks {locks}  {}",
                one.id, one.name, one.owner, one.submitted_ms, one.state
            );
        }
        if let Some((checked_ms, problems)) = self.surroundings.hbck_report() {
            let _ = writeln!(out, "\n{} problems found by hbck at {checked_ms} ms", problems.len());
            for problem in problems {
                let _ = writeln!(out, "{problem}");
            }
        }
        if self.surroundings.scope() == Scope::Master {
            let _ = write!(out, "\nsettings\n{}", self.settings);
            return out; // its regions are those of other processes
        }
        let mut regions = self.region_server.regions().online();
        regions.sort_by(|a, b| a.region.info().region_name().cmp(b.region.info().region_name()));
        let _ = writeln!(out, "\n{} regions", regions.len());
        for online in regions {
            let (info, stats) = (online.region.info(), online.region.stats());
            let _ = writeln!(
                out,
                "{}  memstore {} B  files {} ({} B)  reads {}  writes {}",
                info.region_name().escape_ascii(),
                stats.memstore.data_bytes,
                stats.store_files,
                stats.store_file_bytes,
                stats.read_requests,
                stats.write_requests
            );
        }
        let _ = write!(out, "\nsettings\n{}", self.settings);
        out
    }

    /// The latest waits over the threshold, then sums by cause.
    pub(crate) fn stalls(&self) -> String {
        let mut out = String::from("ended (ms since 1970)  ms  cause  what\n");
        for stall in self.stalls.recent() {
            let ms = stall.time.as_secs_f64() * 1000.0;
            let _ = writeln!(out, "{}  {ms:.1}  {}  {}", stall.at_ms, stall.cause, stall.detail);
        }
        out.push_str("\ncause  count  total ms  longest ms\n");
        for (cause, sum) in self.stalls.sums() {
            let (total, longest) = (sum.total.as_secs_f64() * 1000.0, sum.longest.as_secs_f64() * 1000.0);
            let _ = writeln!(out, "{cause}  {}  {total:.1}  {longest:.1}", sum.count);
        }
        out
    }

    /// The latest waits over the threshold, for programs.
    fn stalls_json(&self) -> Value {
        let stall = |stall: Stall| {
            let length_ms = stall.time.as_secs_f64() * 1000.0;
            json!({ "ended_ms": stall.at_ms, "length_ms": length_ms, "cause": stall.cause, "what": stall.detail })
        };
        let stalls: Vec<Value> = self.stalls.recent().into_iter().map(stall).collect();
        let count: u64 = self.stalls.sums().iter().map(|(_, sum)| sum.count).sum();
        json!({ "count": count, "stalls": stalls })
    }

    /// What every part of the server holds.
    pub(crate) fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.region_server.memory();
        let limits = self.queues.limits();
        let part = |name, held: usize, limit: usize| MemoryPart {
            name,
            held: held as u64,
            limit: Some(limit as u64),
        };
        parts.push(part("requests", self.queues.request_bytes(), limits.request_bytes_max));
        parts.push(part("answers-waiting", self.queues.response_bytes(), limits.answer_bytes_max));
        let reserved = self.queues.reserved_bytes() as u64;
        parts.push(MemoryPart { name: "answers-being-made", held: reserved, limit: None });
        for (name, read) in &self.parts {
            let (held, limit) = read();
            parts.push(part(*name, held, limit));
        }
        parts
    }

    /// The ledger: who holds how much, and how much it may hold.
    pub(crate) fn memory_page(&self) -> String {
        let mut out = format!("budget {}\n\nheld  limit  part\n", self.region_server.settings().memory_bytes);
        let (mut held, mut limits) = (0, 0);
        for MemoryPart { name, held: bytes, limit } in self.memory() {
            let _ = match limit {
                Some(limit) => writeln!(out, "{bytes}  {limit}  {name}"),
                None => writeln!(out, "{bytes}  (in the limit above)  {name}"),
            };
            held += bytes;
            limits += limit.unwrap_or(0);
        }
        let _ = writeln!(out, "{held}  {limits}  sum");
        if let Some(bytes) = (self.resident_bytes)() {
            let _ = writeln!(out, "\nresident {bytes}");
        }
        out
    }
}
