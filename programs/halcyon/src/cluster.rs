//! What the pages of an active master say of its cluster: one picture of all of it, made at most once a second.
//!
//! Pages and metrics are made from [`Picture`], which is plain data. So they can be tested with clusters of any size.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use halcyon_contract::RegionServers;
use halcyon_coord::ClusterView;
use halcyon_env::Clock;
use halcyon_master::{
    BalancerRun, Master, Noticed, Recovery, RecoveryKind, RegionInTransition, STUCK_MS, Spread, Timelines,
};
use halcyon_schema::ServerName;
use halcyon_servers::{ReportSums, Servers, Sight};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::console::{Finding, Severity};

/// A picture that is not older is not made anew.
const FRESH_MS: i64 = 1000;

/// The cluster of an active master.
pub struct Cluster {
    pub master: Arc<Master>,
    pub servers: Arc<Servers>,
    pub timelines: Arc<Timelines>,
    pub view: ClusterView,
    pub clock: Arc<dyn Clock>,
    pub name: ServerName,
    pub epoch: u64,
    /// When the election was won, in Unix time.
    pub elected_ms: i64,
    /// When the cluster was taken over.
    pub active_ms: i64,
    pub newest: Mutex<Option<Arc<Picture>>>,
}

/// How a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Dead. Its WALs are not split yet.
    Recovering,
    Online,
    /// Online, and gets no more regions.
    Draining,
    /// Dead and recovered, and no other server has come to its address.
    Dead,
}

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerRow {
    pub server: ServerName,
    pub state: ServerState,
    /// Regions that are open there, as `hbase:meta` says.
    pub open_count: usize,
    pub has_meta: bool,
    pub report: Option<ReportSums>,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub at_ms: i64,
    pub active: String,
    pub epoch: u64,
    pub elected_ms: i64,
    pub active_ms: i64,
    pub standby: Vec<ServerName>,
    /// Sorted by name, dead ones too.
    pub servers: Vec<ServerRow>,
    pub spread: Spread,
    pub transitions: Arc<Vec<RegionInTransition>>,
    /// The newest first.
    pub recoveries: Vec<Recovery>,
    pub is_balancer_on: bool,
    /// The newest first.
    pub balancer_runs: Vec<BalancerRun>,
}

impl Cluster {
    /// The cluster now, or a second ago. *Blocking* for some milliseconds in a large cluster.
    pub fn picture(&self) -> Arc<Picture> {
        let mut newest = self.newest.lock();
        let now_ms = self.clock.now_ms();
        match &*newest {
            Some(picture) if (0..FRESH_MS).contains(&(now_ms - picture.at_ms)) => picture.clone(),
            _ => newest.insert(Arc::new(self.look(now_ms))).clone(),
        }
    }

    fn look(&self, at_ms: i64) -> Picture {
        let (spread, recoveries) = (self.master.spread(), self.timelines.recoveries());
        // What a former master has left is recovered as that of a server, but it is none.
        let masters = masters(&recoveries);
        let no_master = |server: &ServerName| !masters.contains(&server.to_string());
        let recovering = self.servers.recovering().into_iter().filter(no_master).collect();
        let dead = self.servers.dead().into_iter().filter(no_master).collect();
        let servers = rows(self.servers.sights(), recovering, dead, &spread);
        Picture {
            at_ms,
            active: self.name.to_string(),
            epoch: self.epoch,
            elected_ms: self.elected_ms,
            active_ms: self.active_ms,
            standby: self.view.backup_masters.present().unwrap_or_default(),
            servers,
            spread,
            transitions: self.master.regions_in_transition(),
            recoveries,
            is_balancer_on: self.master.is_balancer_on(),
            balancer_runs: self.master.balancer_runs(),
        }
    }
}

/// Names of those that are or were active masters, as far as is known.
fn masters(recoveries: &[Recovery]) -> HashSet<String> {
    let names = recoveries.iter().flat_map(|it| match it.kind() {
        RecoveryKind::Takeover => vec![it.server.clone(), it.master.clone()],
        RecoveryKind::FormerMaster => vec![it.server.clone()],
        RecoveryKind::Server => Vec::new(),
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// All servers in the order of their names, each once.
fn rows(
    online: Vec<Sight>,
    recovering: Vec<ServerName>,
    dead: Vec<ServerName>,
    spread: &Spread,
) -> Vec<ServerRow> {
    let mut counts = vec![0; spread.servers.len()];
    for (at, count) in spread.tables.iter().flat_map(|table| &table.by_server) {
        counts[*at] += count;
    }
    let places: HashMap<&ServerName, usize> =
        spread.servers.iter().enumerate().map(|(at, server)| (server, at)).collect();
    let of_meta = spread.tables.iter().find(|table| table.table.is_meta());
    let has_meta = of_meta.and_then(|table| table.by_server.first()).map(|(at, _)| *at);
    let row = |server: ServerName, state, report| {
        let place = places.get(&server).copied();
        let open_count = place.map_or(0, |at| counts[at]);
        ServerRow { server, state, open_count, has_meta: place.is_some() && place == has_meta, report }
    };
    let online = online.into_iter().map(|Sight { server, is_draining, report }| {
        let state = if is_draining { ServerState::Draining } else { ServerState::Online };
        row(server, state, report)
    });
    let dead: Vec<ServerName> = dead.into_iter().filter(|server| !recovering.contains(server)).collect();
    let recovering = recovering.into_iter().map(|server| row(server, ServerState::Recovering, None));
    let dead = dead.into_iter().map(|server| row(server, ServerState::Dead, None));
    let mut all: Vec<ServerRow> = online.chain(recovering).chain(dead).collect();
    all.sort_by(|a, b| a.server.cmp(&b.server).then(a.state.cmp(&b.state)));
    all.dedup_by(|later, first| later.server == first.server);
    all
}

impl ServerRow {
    pub fn is_online(&self) -> bool {
        matches!(self.state, ServerState::Online | ServerState::Draining)
    }

    /// Address of its own pages.
    pub fn link(&self) -> Option<String> {
        let report = self.report.as_ref().filter(|report| report.info_port != 0)?;
        Some(page_link(&self.server, report.info_port))
    }
}

/// The address of a server's pages.
pub fn page_link(server: &ServerName, info_port: u16) -> String {
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    format!("http://{host}:{info_port}/")
}

impl Picture {
    pub fn in_state(&self, state: ServerState) -> impl Iterator<Item = &ServerRow> {
        self.servers.iter().filter(move |row| row.state == state)
    }

    pub fn online(&self) -> impl Iterator<Item = &ServerRow> {
        self.servers.iter().filter(|row| row.is_online())
    }

    pub fn open_count(&self) -> usize {
        self.spread.tables.iter().map(|table| table.open_count).sum()
    }

    /// Regions of each server that is online.
    pub fn average_load(&self) -> f64 {
        let online = self.online().count();
        if online == 0 { 0.0 } else { self.open_count() as f64 / online as f64 }
    }

    /// Requests to all servers since their starts.
    pub fn requests_count(&self) -> u64 {
        self.online().filter_map(|row| row.report.as_ref()).map(|report| report.requests_count).sum()
    }

    /// Reads and writes per second at all servers; `None` before two reports of one.
    pub fn rates(&self) -> Option<(f64, f64)> {
        let reports = self.online().filter_map(|row| row.report.as_ref());
        let known: Vec<_> = reports.filter_map(|it| Some((it.reads_per_s?, it.writes_per_s?))).collect();
        let sum = |sum: (f64, f64), one: &(f64, f64)| (sum.0 + one.0, sum.1 + one.1);
        (!known.is_empty()).then(|| known.iter().fold((0.0, 0.0), sum))
    }

    /// Ages of the regions in transition, in milliseconds.
    pub fn transition_ages(&self) -> impl Iterator<Item = i64> {
        self.transitions.iter().map(|it| (self.at_ms - it.since_ms).max(0))
    }

    pub fn stuck_count(&self) -> usize {
        self.transition_ages().filter(|age_ms| *age_ms > STUCK_MS).count()
    }

    /// Parts of the last recovery of a region server that has ended, with the seconds from its notice to their ends. Empty
    /// without one.
    pub fn last_recovery(&self) -> Vec<(&'static str, f64)> {
        let is_it = |it: &&Recovery| it.kind() == RecoveryKind::Server && it.ended_ms.is_some();
        let Some(last) = self.recoveries.iter().find(is_it) else { return Vec::new() };
        let parts = [
            ("fenced", last.fenced_ms),
            ("meta_opened", last.meta_opened_ms),
            ("split", last.split_ms),
            ("ended", last.ended_ms),
        ];
        let since =
            |(part, at_ms): (_, Option<i64>)| Some((part, (at_ms? - last.noticed_ms) as f64 / 1000.0));
        parts.into_iter().filter_map(since).collect()
    }

    /// What an operator should know.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |severity, sentence| findings.push(Finding { severity, sentence });
        let counted = |count: usize, one: &str, many: &str| {
            if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
        };
        if self.online().next().is_none() {
            find(Severity::Bad, "No region server is online.".to_string());
        }
        let recovering = self.in_state(ServerState::Recovering).count();
        if recovering > 0 {
            let who = counted(recovering, "dead region server is", "dead region servers are");
            find(Severity::Warning, format!("{who} being recovered."));
        }
        let stuck = self.stuck_count();
        if stuck > 0 {
            let who = counted(stuck, "region has", "regions have");
            let limit_s = STUCK_MS / 1000;
            find(Severity::Bad, format!("{who} been in transition for more than {limit_s} s."));
        }
        if self.standby.is_empty() {
            find(Severity::Warning, "There is no standby master.".to_string());
        }
        findings
    }
}

/// How the master learned of it, for people.
pub fn noticed_text(recovery: &Recovery) -> &'static str {
    match recovery.noticed() {
        Noticed::Replaced => "a newer server has come to its address",
        Noticed::ProcessEnded => "no process listens at its address",
        Noticed::ZnodeGone => "its znode is gone: its session has expired, or it has stopped in order",
        Noticed::NoZnode => "it has joined and made no znode",
        Noticed::FoundAtTakeover => "a master that took over has found its WALs",
        Noticed::Elected => "the election was won",
    }
}

/// What was recovered from, for people.
pub fn kind_text(kind: RecoveryKind) -> &'static str {
    match kind {
        RecoveryKind::Server => "region server",
        RecoveryKind::FormerMaster => "former master",
        RecoveryKind::Takeover => "takeover",
    }
}

#[cfg(test)]
pub mod tests {
    use halcyon_master::TableSpread;
    use halcyon_schema::{RegionInfo, TableName};

    use super::*;

    pub const NOW_MS: i64 = 1_700_000_000_000;

    pub fn server(number: usize) -> ServerName {
        ServerName::new(format!("h{number:04}"), 16020, 1)
    }

    /// Servers with a report each, and one table with so many regions on each server.
    pub fn picture(servers_count: usize, regions_each: usize) -> Picture {
        let servers: Vec<ServerName> = (0..servers_count).map(server).collect();
        let meta = TableSpread {
            table: TableName::META,
            state: "ENABLED",
            regions_count: 1,
            open_count: servers_count.min(1),
            by_server: (0..servers_count.min(1)).map(|at| (at, 1)).collect(),
        };
        let orders = TableSpread {
            table: TableName::parse(b"orders").unwrap(),
            state: "ENABLED",
            regions_count: servers_count * regions_each,
            open_count: servers_count * regions_each,
            by_server: (0..servers_count).map(|at| (at, regions_each)).collect(),
        };
        let spread = Spread { servers: servers.clone(), tables: vec![meta, orders] };
        let sights = servers.into_iter().enumerate().map(|(at, server)| {
            let report = ReportSums {
                reported_ms: NOW_MS - 500,
                version: Some((2, 6)),
                info_port: 16030,
                regions_count: regions_each,
                requests_count: 100,
                reads_per_s: Some(at as f64),
                writes_per_s: Some(1.0),
                ..ReportSums::default()
            };
            Sight { server, is_draining: false, report: Some(report) }
        });
        let servers = rows(sights.collect(), Vec::new(), Vec::new(), &spread);
        Picture {
            at_ms: NOW_MS,
            active: "m1,16000,1".to_string(),
            epoch: 3,
            standby: vec![ServerName::new("m2", 16000, 1)],
            servers,
            spread,
            ..Picture::default()
        }
    }

    /// A region of the table `orders` that is on its way for so long.
    pub fn transition(number: u64, age_ms: i64) -> RegionInTransition {
        let table = TableName::parse(b"orders").unwrap();
        RegionInTransition {
            region: RegionInfo::new(table, format!("<{number}>").into(), "".into(), number),
            state: "OPENING",
            server: Some(server(0)),
            since_ms: NOW_MS - age_ms,
            procedure: Some((number, "ServerCrashProcedure".to_string())),
            reason: "opens".to_string(),
        }
    }

    #[test]
    fn a_server_is_listed_once_and_the_worst_state_wins() {
        let spread = picture(2, 3).spread;
        let sight = |number, is_draining| Sight { server: server(number), is_draining, report: None };
        let online = vec![sight(0, false), sight(1, true)];
        let found = rows(online, vec![server(7), server(1)], vec![server(7), server(8)], &spread);
        let states: Vec<_> = found.iter().map(|row| (row.server.host.as_str(), row.state)).collect();
        use ServerState::{Dead, Online, Recovering};
        assert_eq!(
            states,
            [("h0000", Online), ("h0001", Recovering), ("h0007", Recovering), ("h0008", Dead)]
        );
        assert_eq!(found.iter().map(|row| row.open_count).collect::<Vec<_>>(), [4, 3, 0, 0]);
        assert_eq!(found.iter().filter(|row| row.has_meta).count(), 1);
    }

    #[test]
    fn former_masters_are_known() {
        let of = |kind: RecoveryKind, server: &str| Recovery {
            kind: kind as i32,
            server: server.to_string(),
            master: "new".to_string(),
            ..Recovery::default()
        };
        let recoveries = [
            of(RecoveryKind::Takeover, ""),
            of(RecoveryKind::FormerMaster, "old"),
            of(RecoveryKind::Server, "dead"),
        ];
        assert_eq!(masters(&recoveries), HashSet::from(["new".to_string(), "old".to_string()]));
    }

    #[test]
    fn findings_name_what_is_wrong() {
        let mut picture = picture(2, 3);
        assert_eq!(picture.findings(), []);
        picture.transitions = Arc::new(vec![transition(1, 5), transition(2, STUCK_MS + 1)]);
        picture.standby.clear();
        picture.servers[0].state = ServerState::Recovering;
        let sentences: Vec<String> = picture.findings().into_iter().map(|it| it.sentence).collect();
        assert_eq!(
            sentences,
            [
                "1 dead region server is being recovered.",
                "1 region has been in transition for more than 60 s.",
                "There is no standby master.",
            ]
        );
        picture.servers.clear();
        assert_eq!(picture.findings()[0].sentence, "No region server is online.");
        assert_eq!((picture.average_load(), picture.rates()), (0.0, None));
    }

    #[test]
    fn links_are_addresses() {
        let mut picture = picture(1, 1);
        assert_eq!(picture.servers[0].link().as_deref(), Some("http://h0000:16030/"));
        picture.servers[0].report.as_mut().unwrap().info_port = 0;
        assert_eq!(picture.servers[0].link(), None);
        assert_eq!(page_link(&ServerName::new("::1", 1, 1), 2), "http://[::1]:2/");
    }
}
