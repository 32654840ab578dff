//! The servers of a cluster.

use serde::{Deserialize, Serialize};

use super::{Page, picture};
use crate::cluster::{Picture, ServerRow, ServerState};
use crate::console::api::Refused;
use crate::console::{Console, Role};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// What needs attention first, then by name.
    #[default]
    State,
    Name,
    /// The most regions first.
    Regions,
    /// The most reads and writes per second first.
    Requests,
    /// The largest store files first.
    Size,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    state: Option<ServerState>,
    /// Part of a name.
    name: Option<String>,
    #[serde(default)]
    order: Order,
    limit: Option<usize>,
    offset: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Server {
    name: String,
    host: String,
    port: u16,
    /// When it started: its start code, in milliseconds since 1970.
    start_code: i64,
    state: ServerState,
    /// Address of its own pages.
    link: Option<String>,
    version: Option<String>,
    /// Regions that are open there by `hbase:meta`.
    regions_count: usize,
    has_meta: bool,
    reads_per_s: Option<f64>,
    writes_per_s: Option<f64>,
    memstore_bytes: Option<u64>,
    file_bytes: Option<u64>,
    locality: Option<f64>,
    /// How long ago it reported.
    report_age_ms: Option<i64>,
}

#[derive(Debug, Serialize)]
pub struct Servers {
    /// All that were asked for, those that are left out too.
    count: usize,
    /// The most regions of one server that is online.
    regions_max: usize,
    servers: Vec<Server>,
}

pub fn servers(console: &Console, _: Role, parameters: Parameters) -> Result<Servers, Refused> {
    answer(&*picture(console)?, &parameters)
}

pub(super) fn answer(picture: &Picture, asked: &Parameters) -> Result<Servers, Refused> {
    let (offset, limit) = Page { limit: asked.limit, offset: asked.offset }.checked()?;
    let name = asked.name.as_deref().unwrap_or_default();
    let is_wanted = |row: &&ServerRow| {
        asked.state.is_none_or(|state| row.state == state) && row.server.to_string().contains(name)
    };
    let mut rows: Vec<&ServerRow> = picture.servers.iter().filter(is_wanted).collect();
    let requests = |row: &ServerRow| {
        let report = row.report.as_ref();
        report.map_or(-1.0, |it| it.reads_per_s.unwrap_or(0.0) + it.writes_per_s.unwrap_or(0.0))
    };
    match asked.order {
        Order::Name => {} // that is how they come
        Order::State => rows.sort_by_key(|row| match row.state {
            ServerState::Recovering => 0,
            ServerState::Draining => 1,
            ServerState::Online => 2,
            ServerState::Dead => 3,
        }),
        Order::Regions => rows.sort_by_key(|row| std::cmp::Reverse(row.open_count)),
        Order::Requests => rows.sort_by(|a, b| requests(b).total_cmp(&requests(a))),
        Order::Size => {
            rows.sort_by_key(|row| std::cmp::Reverse(row.report.as_ref().map_or(0, |it| it.file_bytes)));
        }
    }
    let regions_max = picture.online().map(|row| row.open_count).max().unwrap_or(0);
    let shown = rows.iter().skip(offset).take(limit).map(|row| server(row, picture.at_ms));
    Ok(Servers { count: rows.len(), regions_max, servers: shown.collect() })
}

fn server(row: &ServerRow, now_ms: i64) -> Server {
    let report = row.report.as_ref();
    Server {
        name: row.server.to_string(),
        host: row.server.host.clone(),
        port: row.server.port,
        start_code: row.server.start_code,
        state: row.state,
        link: row.link(),
        version: report.and_then(|it| it.version).map(|(major, minor)| format!("{major}.{minor}")),
        regions_count: row.open_count,
        has_meta: row.has_meta,
        reads_per_s: report.and_then(|it| it.reads_per_s),
        writes_per_s: report.and_then(|it| it.writes_per_s),
        memstore_bytes: report.map(|it| it.memstore_bytes),
        file_bytes: report.map(|it| it.file_bytes),
        locality: report.and_then(|it| it.locality),
        report_age_ms: report.map(|it| (now_ms - it.reported_ms).max(0)),
    }
}
