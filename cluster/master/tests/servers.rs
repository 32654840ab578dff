//! A master with several region servers: where regions go, and what happens when servers die.
//!
//! It is one piece because all of its tests share the double of many servers.
#![allow(clippy::disallowed_methods)] // threads and clocks of the tests themselves

mod barriers;
mod flushes;
mod full_queue;
mod gathering;
mod groups;
mod hbck;
mod in_place;
mod late_openings;
mod left_records;
mod members;
mod reopen;
mod starts;
mod states;
mod transitions;

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{
    Announce, Assignments, CloseRegionRequest, ClusterServices, FlushRegionRequest, MasterCoordination,
    OpenRegionRequest, OpenRegionResponse, RegionInfoRequest, RegionInfoResponse, RegionServerApi,
    RegionServers, ServerReport, SplitWal, Standing, SystemTables, Unasked,
};
use halcyon_env::Env;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::{Master, MasterService, MasterSettings, Recovery, RecoveryKind, Timelines};
use halcyon_proto::pb;
use halcyon_schema::{
    NamespaceDescriptor, RegionInfo, ServerName, TableDescriptor, layout, parse_region_name,
};
use halcyon_testkit::for_each_seed;
use parking_lot::Mutex;

/// The servers of a cluster, which outlive its masters.
struct Servers {
    env: Env,
    /// Cells of system tables, and files.
    disk: Arc<FakeRegionServer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    online: BTreeMap<ServerName, BTreeMap<String, RegionInfo>>,
    recovering: BTreeSet<ServerName>,
    /// Those that clients are shown.
    dead: Vec<ServerName>,
    draining: BTreeSet<ServerName>,
    /// Of these, those that regions are to leave.
    offloading: BTreeSet<ServerName>,
    /// Servers that have no session yet.
    without_session: BTreeSet<ServerName>,
    /// Regions that ever were opened at a server whose WALs are not split yet.
    unsplit: BTreeMap<ServerName, BTreeSet<String>>,
    meta: Option<ServerName>,
    meta_replicas: BTreeMap<i32, ServerName>,
    /// What clients of HBase 1 see; or nothing can be published.
    published: BTreeMap<String, pb::table_state::State>,
    published_namespaces: Vec<String>,
    published_groups: Option<Vec<pb::RsGroupInfo>>,
    cannot_publish: bool,
    /// Servers that cannot open regions of the table.
    refusing: BTreeSet<ServerName>,
    /// Tables of which no server can open a region.
    refused_tables: BTreeSet<String>,
    /// Servers that look for WALs elsewhere than the master.
    elsewhere: BTreeSet<ServerName>,
    /// WALs that no server can read.
    damaged: BTreeSet<String>,
    /// WALs that cannot be sealed: a server finds that out after a long time, and not while `is_sealing`.
    unsealed: BTreeSet<String>,
    is_sealing: bool,
    /// How often servers were asked to split such a WAL.
    seals: usize,
    /// Servers that can split no WAL, and find that out after a long time.
    cannot_split: BTreeSet<ServerName>,
    /// Dead servers whose WALs take a while.
    slow: BTreeSet<ServerName>,
    /// Orders to split a WAL that fail in an assertion.
    assertions: usize,
    /// For how long dead servers go on answering reads, until they are forgotten.
    leases: BTreeMap<ServerName, Duration>,
    cannot_forget: bool,
    /// Servers whose znodes were taken, in order.
    deposed: Vec<ServerName>,
    /// When a region was opened last.
    opened_at: BTreeMap<String, Instant>,
    /// WALs that were split, in order.
    split: Vec<String>,
    opens: usize,
    /// Warm-ups do not end.
    is_stalled: bool,
    /// Servers that carry out no order to close a region, and are not known to be dead.
    frozen: BTreeSet<ServerName>,
    /// Regions, or tables, whose next opening takes longer than the master waits.
    opens_late: BTreeSet<String>,
    /// Those that are being opened so, where. They end late, unless they last.
    opening: BTreeMap<String, (ServerName, RegionInfo)>,
    opening_lasts: bool,
    /// Closes that wait for such an opening.
    waiting_closes: usize,
    /// Each close takes too long.
    cannot_close: bool,
    /// So many openings of copies fail.
    refused_copies: usize,
    /// How often each region was opened.
    opened_times: BTreeMap<String, usize>,
    /// Regions that were warmed up where they were not, in order.
    warmed_up: Vec<(ServerName, String)>,
    /// Regions whose server has died, and its WALs are split. An opening reads what was in memory there.
    unreplayed: BTreeMap<String, RegionInfo>,
    dies_after: Option<DiesAfter>,
    /// So many orders to open `hbase:meta` are carried out and have no answer.
    meta_unanswered: usize,
    /// Joins while such an order waits for its answer.
    joins_meanwhile: Option<ServerName>,
    /// The next write to `hbase:meta` that `hbase:namespace` opens is held, and does not return while `is_held`.
    holds_opening: bool,
    is_held: bool,
    /// With the next close of a region elsewhere this server dies, and leaves a WAL that no server can read.
    dies_with_close: Option<ServerName>,
    /// With the next order to flush a region this server dies. Its WALs are split at once, or there is one that no server can read.
    dies_with_flush: Option<(ServerName, bool)>,
}

/// When a region has got so many orders to open it, that server dies, and its WALs are split.
struct DiesAfter {
    region: RegionInfo,
    orders: usize,
    server: ServerName,
}

impl State {
    fn note_order(&mut self, region: &RegionInfo) {
        let Some(trap) = self.dies_after.as_mut().filter(|trap| trap.region == *region) else { return };
        trap.orders -= 1;
        if trap.orders == 0 {
            let regions = self.online.remove(&trap.server).expect("it lives");
            self.unreplayed.extend(regions);
            self.dies_after = None;
        }
    }
}

fn name(number: u16) -> ServerName {
    ServerName::new("h", 16020 + number, 1)
}

impl Servers {
    fn new(env: Env, count: u16) -> Arc<Servers> {
        env.fs.create_dir_all(Path::new(ROOT)).unwrap();
        let disk = FakeRegionServer::new(env.clone(), Path::new(ROOT), 1);
        let servers = Arc::new(Servers { env, disk, state: Mutex::default() });
        (0..count).for_each(|number| servers.join(&name(number)));
        servers
    }

    fn join(&self, server: &ServerName) {
        let dir = layout::wals_dir(Path::new(ROOT)).join(server.to_string());
        self.env.fs.create_dir_all(&dir).unwrap();
        for wal in ["1", "2.meta"] {
            self.env.fs.replace(&dir.join(format!("{server}.{wal}")), b"edits").unwrap();
        }
        self.state.lock().online.insert(server.clone(), BTreeMap::new());
    }

    fn kill(&self, server: &ServerName) {
        let mut state = self.state.lock();
        let regions = state.online.remove(server).expect("it lives");
        state.unsplit.insert(server.clone(), regions.into_keys().collect());
        state.recovering.insert(server.clone());
        state.dead.push(server.clone());
    }

    /// The server that is to die with a flush does so.
    fn die_of_flush(&self) {
        let mut state = self.state.lock();
        let Some((dying, is_split)) = state.dies_with_flush.take() else { return };
        let regions = state.online[&dying].clone().into_iter();
        state.unreplayed.extend(regions.filter(|(_, region)| region.table().to_string() == "t"));
        if is_split {
            state.online.remove(&dying);
            return;
        }
        state.damaged.insert(format!("{dying}.1"));
        drop(state);
        self.kill(&dying);
    }

    fn hold_opening(&self) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.holds_opening) {
            return;
        }
        state.is_held = true;
        while state.is_held {
            drop(state);
            std::thread::sleep(Duration::from_millis(1));
            state = self.state.lock();
        }
    }

    fn regions_at(&self, server: &ServerName) -> usize {
        self.state.lock().online[server].values().filter(|region| region.table().to_string() == "t").count()
    }

    fn check_meta_is_at(&self, at: &ServerName) -> Result<()> {
        match self
            .state
            .lock()
            .online
            .get(at)
            .is_some_and(|it| it.contains_key(RegionInfo::meta().encoded_name()))
        {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Moved, format!("hbase:meta is not at {at}"))),
        }
    }
}

/// One server, as a master reaches it.
struct Server {
    name: ServerName,
    all: Arc<Servers>,
}

fn dead() -> Error {
    Error::new(ErrorKind::Moved, "the server is dead")
}

impl RegionServerApi for Server {
    fn server_name(&self) -> ServerName {
        self.name.clone()
    }

    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let region = &request.region;
        let seq = {
            let mut state = self.all.state.lock();
            let encoded = region.encoded_name().to_string();
            if region.table().to_string() == "t" && state.refusing.contains(&self.name) {
                return Err(Error::new(ErrorKind::Moved, "FAILED_OPEN"));
            }
            if state.refused_tables.contains(&region.table().to_string()) {
                return Err(Error::new(ErrorKind::Moved, "FAILED_OPEN"));
            }
            state.refuse_copy(region)?;
            let has_ended_late = state.late_opening(&self.name, region)?;
            for (server, regions) in state.online.iter().filter(|(server, _)| **server != self.name) {
                assert!(!regions.contains_key(&encoded), "{region} is open at {server} and at {}", self.name);
            }
            for (server, _) in state.unsplit.iter().filter(|(_, regions)| regions.contains(&encoded)) {
                // Meta has WALs of its own.
                let is_split = region.is_meta() && state.split.contains(&format!("{server}.2.meta"));
                assert!(
                    is_split || region.is_secondary(),
                    "{region} is opened before the WALs of {server} are split"
                );
            }
            state.unreplayed.remove(&encoded);
            let lacking =
                state.unreplayed.values().find(|old| old.table() == region.table() && old.overlaps(region));
            assert!(lacking.is_none(), "{region} is opened without what was in memory of {lacking:?}");
            state.opened_at.insert(encoded.clone(), Instant::now());
            *state.opened_times.entry(encoded.clone()).or_default() += usize::from(!has_ended_late);
            state.opens += 1;
            let seq = state.opens as u64 * 10;
            let here = state.online.get_mut(&self.name).ok_or_else(dead)?;
            here.insert(encoded, region.clone());
            if region.is_meta() && state.meta_unanswered > 0 {
                state.meta_unanswered -= 1;
                let new = state.joins_meanwhile.take();
                drop(state);
                new.iter().for_each(|server| self.all.join(server));
                return Err(Error::new(ErrorKind::Busy, format!("{} gave no answer in time", self.name)));
            }
            seq
        };
        let announced = announce(seq);
        if announced.is_err()
            && let Some(here) = self.all.state.lock().online.get_mut(&self.name)
        {
            here.remove(region.encoded_name());
        }
        self.all.state.lock().note_order(region);
        announced.map(|()| OpenRegionResponse { open_seq_num: seq })
    }

    fn warm_up_region(&self, region: &RegionInfo) -> Result<()> {
        let mut state = self.all.state.lock();
        if state.is_stalled {
            while state.is_stalled {
                drop(state);
                std::thread::sleep(Duration::from_millis(5));
                state = self.all.state.lock();
            }
            return Err(Error::new(ErrorKind::Io, "it stood still"));
        }
        let elsewhere = state.online.iter().find(|(_, here)| here.contains_key(region.encoded_name()));
        assert!(elsewhere.is_some_and(|(server, _)| *server != self.name), "{region} is not open elsewhere");
        state.warmed_up.push((self.name.clone(), region.encoded_name().to_string()));
        // It does not matter whether it could.
        Err(Error::new(ErrorKind::Io, "nothing can be read"))
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        let mut state = self.all.state.lock();
        while state.frozen.contains(&self.name) && state.online.contains_key(&self.name) {
            drop(state);
            std::thread::sleep(Duration::from_millis(5));
            state = self.all.state.lock();
        }
        if state.cannot_close {
            return Err(Error::new(ErrorKind::Busy, "it was not closed in time"));
        }
        state.waiting_closes += 1;
        while state.is_opening_at(&self.name, &request.region) && state.online.contains_key(&self.name) {
            drop(state);
            std::thread::sleep(Duration::from_millis(5));
            state = self.all.state.lock();
        }
        state.waiting_closes -= 1;
        state.online.get_mut(&self.name).ok_or_else(dead)?.remove(request.region.encoded_name());
        if state.dies_with_close.as_ref().is_some_and(|dying| *dying != self.name) {
            let dying = state.dies_with_close.take().expect("it is there");
            state.damaged.insert(format!("{dying}.1"));
            drop(state);
            self.all.kill(&dying);
        }
        Ok(())
    }

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()> {
        let mut state = self.all.state.lock();
        if state.dies_with_flush.as_ref().is_some_and(|(dying, _)| *dying == self.name) {
            drop(state);
            self.all.die_of_flush();
            state = self.all.state.lock();
        }
        let here = state.online.get(&self.name).ok_or_else(dead)?;
        here.contains_key(request.region.encoded_name()).then_some(()).ok_or_else(dead)
    }

    fn region_info(&self, _: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        Ok(RegionInfoResponse { splittable: true, mergeable: true, best_split_row: None })
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        let state = self.all.state.lock();
        Ok(state.online.get(&self.name).ok_or_else(dead)?.values().cloned().collect())
    }

    fn split_wal(&self, wal: &Path) -> Result<SplitWal> {
        let mut state = self.all.state.lock();
        if !state.online.contains_key(&self.name) {
            return Err(dead());
        }
        assert!(wal.starts_with("WALs"), "{}", wal.display());
        let dir = wal.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert!(dir.ends_with("-splitting"), "{dir}: the server is not fenced");
        assert!(self.all.env.fs.exists(&Path::new(ROOT).join(wal)).unwrap(), "{}", wal.display());
        if state.elsewhere.contains(&self.name) {
            return Ok(SplitWal::NotFound);
        }
        let own = layout::wals_dir(Path::new(ROOT)).join(self.name.to_string());
        assert!(self.all.env.fs.exists(&own).unwrap(), "{} is not ready, and is to split a WAL", self.name);
        let name = wal.file_name().unwrap().to_string_lossy().into_owned();
        if state.unsealed.contains(&name) {
            state.seals += 1;
            while state.is_sealing {
                drop(state);
                std::thread::sleep(Duration::from_millis(5));
                state = self.all.state.lock();
            }
            drop(state);
            self.all.env.clock.sleep(Duration::from_secs(20));
            return Err(Error::new(ErrorKind::Io, format!("{name} is not sealed")));
        }
        if state.cannot_split.contains(&self.name) {
            drop(state);
            self.all.env.clock.sleep(Duration::from_secs(20));
            return Err(Error::new(ErrorKind::Io, format!("{} reaches no DataNode", self.name)));
        }
        if state.slow.iter().any(|dead| dir.starts_with(&dead.to_string())) && !name.ends_with(".meta") {
            drop(state);
            self.all.env.clock.sleep(Duration::from_secs(2));
            state = self.all.state.lock();
        }
        if state.damaged.contains(&name) {
            return Err(Error::corrupt(format!("{name} is damaged")));
        }
        if state.assertions > 0 {
            state.assertions -= 1;
            drop(state);
            panic!("the splitting does not hold");
        }
        state.split.push(name);
        Ok(SplitWal::Done)
    }
}

/// What a master is given. Each master has its own, over the same servers.
struct View(Arc<Servers>);

impl RegionServers for View {
    fn online(&self) -> Vec<ServerName> {
        self.0.state.lock().online.keys().cloned().collect()
    }

    fn draining(&self) -> Vec<ServerName> {
        self.0.state.lock().draining.iter().cloned().collect()
    }

    fn has_session(&self, server: &ServerName) -> bool {
        !self.0.state.lock().without_session.contains(server)
    }

    fn standing(&self, server: &ServerName) -> Standing {
        let state = self.0.state.lock();
        match (state.online.contains_key(server), state.recovering.contains(server)) {
            (true, _) => Standing::Online,
            (false, true) => Standing::Recovering,
            (false, false) => Standing::Gone,
        }
    }

    fn declare_dead(&self, server: &ServerName) {
        let is_online = self.0.state.lock().online.contains_key(server);
        if is_online {
            self.0.kill(server);
        } else {
            self.0.state.lock().recovering.insert(server.clone());
        }
    }

    fn recovering(&self) -> Vec<ServerName> {
        self.0.state.lock().recovering.iter().cloned().collect()
    }

    fn recovered(&self, server: &ServerName) {
        let mut state = self.0.state.lock();
        let is_split = |wal: &str| state.split.contains(&format!("{server}.{wal}"));
        assert!(
            is_split("1") && is_split("2.meta"),
            "{server} is recovered without its WALs: {:?}",
            state.split
        );
        state.recovering.remove(server);
        state.unsplit.remove(server);
    }

    fn dead(&self) -> Vec<ServerName> {
        self.0.state.lock().dead.clone()
    }

    fn forget_dead(&self, server: &ServerName) {
        self.0.state.lock().dead.retain(|other| other != server);
    }

    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>> {
        let lives = self.0.state.lock().online.contains_key(server);
        lives.then(|| {
            Arc::new(Server { name: server.clone(), all: self.0.clone() }) as Arc<dyn RegionServerApi>
        })
    }

    fn reports(&self) -> Vec<ServerReport> {
        Vec::new()
    }

    fn is_one_process(&self) -> bool {
        false
    }
}

impl MasterCoordination for View {
    fn meta_last(&self) -> Result<Option<ServerName>> {
        Ok(self.0.state.lock().meta.clone())
    }

    fn meta_opening(&self, server: &ServerName) -> Result<()> {
        self.0.state.lock().meta = Some(server.clone());
        Ok(())
    }

    fn meta_opened(&self, server: &ServerName) -> Result<()> {
        self.0.state.lock().meta = Some(server.clone());
        Ok(())
    }

    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName> {
        self.0.state.lock().meta_replicas.clone()
    }

    fn meta_replicas_opened(&self, replicas: &BTreeMap<i32, ServerName>) -> Result<()> {
        self.0.state.lock().meta_replicas.clone_from(replicas);
        Ok(())
    }

    fn publish_table_states(&self, states: &BTreeMap<String, pb::table_state::State>) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.cannot_publish {
            return Err(Error::new(ErrorKind::Busy, "the coordination service is away"));
        }
        state.published.clone_from(states);
        Ok(())
    }

    fn publish_namespaces(&self, namespaces: &[pb::NamespaceDescriptor]) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.cannot_publish {
            return Err(Error::new(ErrorKind::Busy, "the coordination service is away"));
        }
        let name =
            |namespace: &pb::NamespaceDescriptor| String::from_utf8_lossy(&namespace.name).into_owned();
        state.published_namespaces = namespaces.iter().map(name).collect();
        Ok(())
    }

    fn publish_groups(&self, groups: &[pb::RsGroupInfo]) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.cannot_publish {
            return Err(Error::new(ErrorKind::Busy, "the coordination service is away"));
        }
        state.published_groups = Some(groups.to_vec());
        Ok(())
    }

    fn groups_last(&self) -> Result<Option<Vec<pb::RsGroupInfo>>> {
        Ok(self.0.state.lock().published_groups.clone())
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn depose(&self, server: &ServerName) -> Result<Duration> {
        let mut state = self.0.state.lock();
        assert!(!state.online.contains_key(server), "{server} was not declared dead");
        state.deposed.push(server.clone());
        Ok(state.leases.get(server).copied().unwrap_or_default())
    }

    fn deposed(&self) -> Result<Vec<(ServerName, Duration)>> {
        Ok(self.0.state.lock().leases.clone().into_iter().collect())
    }

    fn forget_deposed(&self, server: &ServerName) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.cannot_forget {
            return Err(Error::new(ErrorKind::Busy, "the coordination service is away"));
        }
        state.leases.remove(server);
        Ok(())
    }

    fn begin_offload(&self, server: &ServerName) -> Result<()> {
        self.0.state.lock().offloading.insert(server.clone());
        self.set_draining(server, true)
    }

    fn offloading(&self, draining: &[ServerName]) -> Result<Vec<ServerName>> {
        let state = self.0.state.lock();
        Ok(draining.iter().filter(|server| state.offloading.contains(*server)).cloned().collect())
    }

    fn set_draining(&self, server: &ServerName, is_draining: bool) -> Result<()> {
        let mut state = self.0.state.lock();
        if is_draining {
            state.draining.insert(server.clone());
        } else {
            state.draining.remove(server);
            state.offloading.remove(server);
        }
        Ok(())
    }
}

impl SystemTables for View {
    fn meta_put(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        let opens = |cell: &Cell| {
            let is_state = cell.qualifier() == b"state" && cell.value() == b"OPENING";
            is_state && cell.row().starts_with(b"hbase:namespace,")
        };
        if cells.iter().any(opens) {
            self.0.hold_opening();
        }
        self.0.check_meta_is_at(at)?;
        self.0.disk.meta_put(cells)
    }

    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.meta_put(at, cells)
    }

    fn meta_scan(&self, at: &ServerName, _: &[u8], _: &[u8]) -> Result<Vec<Vec<Cell>>> {
        self.0.check_meta_is_at(at)?;
        Ok(self.0.disk.meta_rows())
    }

    fn put_rows(&self, _: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.0.disk.put_rows(region.encoded_name(), cells)
    }

    fn put_rows_together(&self, _: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.0.disk.put_rows(region.encoded_name(), cells)
    }

    fn scan_rows(&self, _: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        self.0.disk.scan_rows(region.encoded_name())
    }
}

struct Many {
    servers: Arc<Servers>,
    master: Arc<Master>,
    service: MasterService,
    timelines: Arc<Timelines>,
}

impl Many {
    fn new(env: Env, count: u16) -> Many {
        Many::over(Servers::new(env, count))
    }

    /// A master that takes the cluster over.
    fn over(servers: Arc<Servers>) -> Many {
        Many::over_with(servers, settings())
    }

    fn over_with(servers: Arc<Servers>, settings: MasterSettings) -> Many {
        let view = Arc::new(View(servers.clone()));
        let services = ClusterServices {
            servers: view.clone(),
            system_tables: view.clone(),
            coordination: view,
            ..services(&servers.disk)
        };
        let timelines = Arc::new(Timelines::new(servers.env.clock.clone()));
        timelines.takeover_began(&settings.server_name, 1, None);
        // Again after an error that passes, as the process does.
        let begun = Instant::now();
        let master = loop {
            let (env, services, noting) = (servers.env.clone(), services.clone(), timelines.clone());
            match Master::start_noting(env, Path::new(ROOT), settings.clone(), services, noting) {
                Ok(master) => break master,
                Err(error) => assert!(
                    !error.kind().is_permanent() && begun.elapsed() < Duration::from_secs(20),
                    "no master starts: {error}"
                ),
            }
        };
        timelines.takeover_ended();
        let service = MasterService::new(master.clone()).unwrap();
        Many { servers, master, service, timelines }
    }

    fn call<R: prost::Message + Default>(&self, method: &str, request: &impl prost::Message) -> R {
        answer(&self.service, method, request).unwrap()
    }

    fn create(&self, splits: &[&'static str]) {
        let _: pb::CreateTableResponse = self.call("CreateTable", &create(&table("t", &["f"]), splits));
        self.settles("t", splits.len() + 1);
        self.quiet();
    }

    /// Regions of the table by meta: server and state.
    fn places(&self) -> BTreeMap<String, (String, String)> {
        let text = |cell: &Cell| String::from_utf8_lossy(cell.value()).into_owned();
        let column = |row: &[Cell], name: &[u8]| {
            row.iter().find(|cell| cell.qualifier() == name).map(text).unwrap_or_default()
        };
        let rows = self.servers.disk.meta_rows();
        let of_table = rows.iter().filter(|row| row[0].row().starts_with(b"t,"));
        of_table
            .map(|row| {
                let key = String::from_utf8_lossy(row[0].row()).into_owned();
                (key, (column(row, b"sn"), column(row, b"state")))
            })
            .collect()
    }

    /// Waits until so many regions are open where meta says, on live servers.
    fn settles(&self, table: &str, count: usize) {
        let begun = Instant::now();
        loop {
            let looked = Instant::now();
            if begun.elapsed() > Duration::from_secs(5) {
                self.master.recover_dead_servers(); // what a start on a busy machine did not wait for, as the process does now and then
            }
            let places = self.places();
            let state = self.servers.state.lock();
            let open = places.values().filter(|(server, region_state)| {
                let server = ServerName::parse(server).ok();
                region_state == "OPEN" && server.is_some_and(|server| state.online.contains_key(&server))
            });
            let here =
                state.online.values().flat_map(BTreeMap::values).filter(|it| it.table().to_string() == table);
            let (open, here) = (open.count(), here.count());
            drop(state);
            if (open, here) == (count, count) {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{open} regions are open, {here} on servers: {places:?} {:#?}",
                self.master.procedures()
            );
            pause_after(looked.elapsed());
        }
    }

    fn create_with_copies(&self, replication: usize, splits: &[&'static str]) {
        let table = table("t", &["f"]).with("REGION_REPLICATION", replication.to_string());
        let _: pb::CreateTableResponse = self.call("CreateTable", &create(&table, splits));
        self.settles_with_copies(replication, splits.len() + 1);
        self.quiet();
    }

    /// Waits until each of so many regions is open as often as it is to be, where meta says.
    fn settles_with_copies(&self, replication: usize, count: usize) {
        let begun = Instant::now();
        while self.copies_by_meta() != self.copies_at_servers()
            || self.copies_at_servers().len() != replication * count
        {
            let (by_meta, at_servers) = (self.copies_by_meta(), self.copies_at_servers());
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "meta: {by_meta:#?}\nservers: {at_servers:#?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Start key and number of each region that meta shows open, with its server.
    fn copies_by_meta(&self) -> BTreeMap<(String, i32), ServerName> {
        let mut found = BTreeMap::new();
        let rows = self.servers.disk.meta_rows();
        for row in rows.iter().filter(|row| row[0].row().starts_with(b"t,")) {
            let key = parse_region_name(row[0].row()).unwrap().start_key;
            let value = |name: String| {
                let cell = row.iter().find(|cell| cell.qualifier() == name.as_bytes())?;
                Some(String::from_utf8_lossy(cell.value()).into_owned())
            };
            for number in 0..5 {
                let suffix = if number == 0 { String::new() } else { format!("_{number:04X}") };
                if value(format!("state{suffix}")).as_deref() != Some("OPEN") {
                    continue;
                }
                let server = ServerName::parse(&value(format!("sn{suffix}")).unwrap()).unwrap();
                assert_eq!(value(format!("server{suffix}")).unwrap(), server.address());
                found.insert((String::from_utf8_lossy(&key).into_owned(), number), server);
            }
        }
        found
    }

    /// The same as the servers have them.
    fn copies_at_servers(&self) -> BTreeMap<(String, i32), ServerName> {
        let state = self.servers.state.lock();
        let all =
            state.online.iter().flat_map(|(server, regions)| regions.values().map(move |it| (server, it)));
        let of_table = all.filter(|(_, region)| region.table().to_string() == "t");
        of_table
            .map(|(server, region)| {
                let key = String::from_utf8_lossy(region.start_key()).into_owned();
                ((key, region.replica_id()), server.clone())
            })
            .collect()
    }

    /// Each region and its copies are on servers of their own.
    fn check_apart(&self, replication: usize) {
        let mut servers: BTreeMap<String, BTreeSet<ServerName>> = BTreeMap::new();
        for ((key, _), server) in self.copies_at_servers() {
            servers.entry(key).or_default().insert(server);
        }
        assert!(servers.values().all(|of_region| of_region.len() == replication), "{servers:#?}");
    }

    fn alter_replication(&self, replication: usize) {
        let table = table("t", &["f"]).with("REGION_REPLICATION", replication.to_string());
        let _: pb::ModifyTableResponse = self.call("ModifyTable", &modify(&table));
        self.quiet();
    }

    fn die(&self, server: &ServerName) {
        self.servers.kill(server);
        self.master.recover_dead_servers();
    }

    /// The procedures have ended.
    fn quiet(&self) {
        let begun = Instant::now();
        loop {
            let looked = Instant::now();
            let left = self.master.procedures();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{left:?}");
            pause_after(looked.elapsed());
        }
    }
}

/// Before the next look, after one that took so long: who waits leaves most of a processor to those that work.
fn pause_after(look: Duration) {
    std::thread::sleep(Duration::from_millis(1).max(look * 4));
}

fn env() -> Env {
    with_real_clock(SimFileSystem::new().env())
}

const KEYS: [&str; 8] = ["b", "c", "d", "e", "f", "g", "h", "i"];

#[test]
fn regions_are_spread() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    for number in 0..3 {
        let count = c.servers.regions_at(&name(number));
        assert!((2..=4).contains(&count), "{count} regions at {}", name(number));
    }
}

#[test]
fn regions_of_a_dead_server_are_opened_elsewhere() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let meta = c.servers.state.lock().meta.clone().unwrap();
    // First the one with meta, then another one.
    let other = (0..3).map(name).find(|server| *server != meta).unwrap();
    for (at, server) in [meta, other].into_iter().enumerate() {
        c.die(&server);
        c.settles("t", 9);
        c.quiet();
        let wals = layout::wals_dir(Path::new(ROOT));
        for left in [wals.join(server.to_string()), wals.join(format!("{server}-splitting"))] {
            assert!(!c.servers.env.fs.exists(&left).unwrap(), "{}", left.display());
        }
        let old = c.servers.env.fs.list(&layout::old_wals_dir(Path::new(ROOT))).unwrap();
        assert_eq!(old.len(), 2 * (at + 1), "{old:?}");
        let it = c.timelines.recoveries().remove(0);
        assert_eq!((it.server.as_str(), it.wals_count), (server.to_string().as_str(), 2), "{it:?}");
        assert!(it.wal_bytes == 10 && it.opened_count == it.regions_count, "{it:?}");
        let times = [it.fenced_ms, it.meta_opened_ms.filter(|_| at == 0), it.split_ms, it.last_opened_ms];
        let times: Vec<i64> = times.into_iter().flatten().chain(it.ended_ms).collect();
        assert!(times.len() == 5 - at && times.is_sorted() && times[0] >= it.noticed_ms, "{it:?}");
    }
    c.master.look_at_transitions();
    assert_eq!(*c.master.regions_in_transition(), []);
    assert!(c.servers.env.fs.exists(&layout::master_dir(Path::new(ROOT)).join("recoveries")).unwrap());
    // Meta's WAL goes first, because nothing can be assigned without it.
    assert!(c.servers.state.lock().split[0].ends_with(".meta"));
}

#[test]
fn a_master_that_takes_over_leaves_regions_open() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let (servers, before) = (c.servers.clone(), c.places());
    c.master.stop();
    let opens = servers.state.lock().opens;
    let c = Many::over(servers);
    c.settles("t", 9);
    assert_eq!(c.places(), before);
    // Meta and the table of namespaces are asked for, and stay as they are.
    assert!(c.servers.state.lock().opens <= opens + 2);
}

#[test]
fn servers_that_died_with_the_master_are_recovered() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let servers = c.servers.clone();
    c.master.stop();
    let meta = servers.state.lock().meta.clone().unwrap();
    servers.kill(&meta);
    let c = Many::over(servers);
    c.settles("t", 9);
    let all = c.timelines.recoveries();
    let [dead, takeover] = &all[..] else { panic!("{all:?}") };
    assert_eq!((dead.kind(), takeover.kind()), (RecoveryKind::Server, RecoveryKind::Takeover));
    assert!(all.iter().all(|it| it.ended_ms.is_some() && it.wals_count == 2), "{all:?}");
    assert!(dead.regions_count > 0 && dead.opened_count == dead.regions_count, "{dead:?}");
    assert!(takeover.meta_opened_ms.is_some() && takeover.opened_count >= dead.opened_count, "{takeover:?}");
}

#[test]
fn a_region_moves_to_the_server_that_is_named() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let region = c.servers.disk.meta_rows().into_iter().find(|row| row[0].row().starts_with(b"t,")).unwrap();
    let row = region[0].row().to_vec();
    let at = |c: &Many| c.places()[&String::from_utf8_lossy(&row).into_owned()].0.clone();
    for number in [0, 1, 2, 2] {
        let request = pb::MoveRegionRequest {
            region: pb::RegionSpecifier { r#type: 1, value: row.clone().into() },
            dest_server_name: Some(name(number).to_pb()),
        };
        let _: pb::MoveRegionResponse = c.call("MoveRegion", &request);
        assert_eq!(at(&c), name(number).to_string());
    }
    let warmed_up = std::mem::take(&mut c.servers.state.lock().warmed_up);
    let servers: Vec<_> = warmed_up.iter().map(|(server, _)| server.clone()).collect();
    assert!(servers.ends_with(&[name(1), name(2)]), "{servers:?}"); // it may have been at the first one
    // Without a destination to any other server.
    let region = pb::RegionSpecifier { r#type: 1, value: row.clone().into() };
    let request = pb::MoveRegionRequest { region, dest_server_name: None };
    let _: pb::MoveRegionResponse = c.call("MoveRegion", &request);
    assert_ne!(at(&c), name(2).to_string());
    let warmed_up = std::mem::take(&mut c.servers.state.lock().warmed_up);
    let [(server, _)] = &warmed_up[..] else { panic!("{warmed_up:?}") };
    assert_eq!(at(&c), server.to_string(), "it goes where it was warmed up");
    let region = pb::RegionSpecifier { r#type: 1, value: row.clone().into() };
    let request = pb::MoveRegionRequest { region, dest_server_name: Some(name(9).to_pb()) };
    let refused = answer::<pb::MoveRegionResponse>(&c.service, "MoveRegion", &request).unwrap_err();
    assert!(refused.message.contains("is not a live region server"), "{}", refused.message);
    c.settles("t", 9);
}

#[test]
fn a_new_server_gets_its_share_and_a_drained_one_none() {
    let c = Many::new(env(), 2);
    c.create(&KEYS);
    c.servers.join(&name(2));
    let answer: pb::BalanceResponse = c.call("Balance", &pb::BalanceRequest::default());
    assert!(answer.balancer_ran && answer.moves_executed() > 0, "{answer:?}");
    c.quiet();
    c.settles("t", 9);
    assert!((2..=4).contains(&c.servers.regions_at(&name(2))));
    let log = pb::LogRequest {
        log_class_name: "org.apache.hadoop.hbase.shaded.protobuf.generated.BalancerDecisionsRequest"
            .to_string(),
        log_message: Default::default(),
    };
    let log: pb::LogEntry = c.call("GetLogEntries", &log);
    let decisions = <pb::BalancerDecisionsResponse as prost::Message>::decode(log.log_message).unwrap();
    assert_eq!(decisions.balancer_decision[0].region_plans.len(), answer.moves_executed() as usize);

    let meta = c.servers.state.lock().meta.clone().unwrap();
    let request = pb::DecommissionRegionServersRequest { server_name: vec![meta.to_pb()], offload: true };
    c.servers.state.lock().warmed_up.clear();
    let before = c.servers.state.lock().online[&meta].len();
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
    c.quiet();
    c.settles("t", 9);
    assert_eq!(c.servers.state.lock().online[&meta].len(), 0, "hbase:meta leaves it too");
    // A step that failed because hbase:meta had moved has done it twice.
    let warmed_up: BTreeSet<_> = std::mem::take(&mut c.servers.state.lock().warmed_up).into_iter().collect();
    assert_eq!(warmed_up.len(), before - 1, "all but hbase:meta");
    for (server, region) in &warmed_up {
        let state = c.servers.state.lock();
        assert!(state.online[server].contains_key(region), "{region} was warmed up at {server}");
    }
    // Moves at the same time do not all go to the server with the fewest regions.
    let others = [name(0), name(1), name(2)].into_iter().filter(|server| *server != meta);
    let [a, b] = others.map(|server| c.servers.regions_at(&server)).collect::<Vec<_>>()[..] else { panic!() };
    assert!(a.abs_diff(b) <= 2, "{a} and {b} regions");
    let listed: pb::ListDecommissionedRegionServersResponse =
        c.call("ListDecommissionedRegionServers", &pb::ListDecommissionedRegionServersRequest {});
    assert_eq!(listed.server_name, [meta.to_pb()]);
    let request = pb::RecommissionRegionServerRequest { server_name: meta.to_pb(), region: Vec::new() };
    let _: pb::RecommissionRegionServerResponse = c.call("RecommissionRegionServer", &request);
    let _: pb::BalanceResponse = c.call("Balance", &pb::BalanceRequest::default());
    c.quiet();
    assert!(c.servers.regions_at(&meta) >= 2);

    let request = pb::DecommissionRegionServersRequest { server_name: vec![name(2).to_pb()], offload: false };
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
    assert_eq!(c.servers.state.lock().draining.len(), 1);
    c.die(&name(2));
    c.quiet();
    assert_eq!(c.servers.state.lock().draining, BTreeSet::new(), "it is forgotten with its death");
}

/// The server with the fewest regions was asked again and again.
#[test]
fn what_a_server_cannot_open_another_one_opens() {
    let c = Many::new(env(), 3);
    c.servers.state.lock().refusing.insert(name(1));
    c.create(&KEYS);
    assert_eq!(c.servers.regions_at(&name(1)), 0);
    let mut state = c.servers.state.lock();
    state.refusing = [name(0), name(1), name(2)].into();
    drop(state);
    c.die(&name(2));
    let (begun, is_stuck) = (Instant::now(), |it: &Recovery| it.split_ms.is_some() && it.ended_ms.is_none());
    while !c.timelines.recoveries().first().is_some_and(is_stuck) || !has_failed(&c) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.master.regions_in_transition());
        std::thread::sleep(Duration::from_millis(20));
    }
    c.servers.state.lock().refusing.remove(&name(1));
    c.settles("t", 9);
    c.quiet();
    assert!(c.timelines.recoveries()[0].ended_ms.is_some());
    assert!(c.servers.regions_at(&name(1)) > 0);
}

/// A region is shown as one that could not be opened, with the procedure that goes on trying, or that there is none.
fn has_failed(c: &Many) -> bool {
    let all = c.master.regions_in_transition();
    all.iter().any(|it| it.state == "FAILED_OPEN" && it.reason.contains("could not be opened at h,"))
}

/// Operators look at the number of dead servers. HBase shows one until it is started again, or cleared.
#[test]
fn a_dead_server_is_shown_until_it_is_cleared() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let shown = || {
        let options = vec![pb::Option::DeadServers as i32];
        let request = pb::GetClusterStatusRequest { options };
        c.call::<pb::GetClusterStatusResponse>("GetClusterStatus", &request).cluster_status.dead_servers
    };
    let clear = |names: &[ServerName]| {
        let request =
            pb::ClearDeadServersRequest { server_name: names.iter().map(ServerName::to_pb).collect() };
        c.call::<pb::ClearDeadServersResponse>("ClearDeadServers", &request).server_name
    };
    assert_eq!(shown(), []);
    c.die(&name(2));
    c.settles("t", 9);
    c.quiet();
    assert_eq!(shown(), [name(2).to_pb()]);
    assert_eq!(clear(&[name(1), name(2)]), [name(1).to_pb()]);
    assert_eq!(shown(), []);
    assert_eq!(clear(&[name(2)]), [name(2).to_pb()]);
    // Nothing is cleared while a server is recovered.
    c.servers.kill(&name(1));
    assert_eq!(clear(&[name(1)]), [name(1).to_pb()]);
    assert_eq!(shown(), [name(1).to_pb()]);
}

/// A server may open `hbase:meta` behind the time that the master waits. So it is asked again, and no other, also one that has fewer
/// regions; the same by the next master.
#[test]
fn meta_is_opened_where_it_may_be_open() {
    let new = ServerName::new("first-by-name", 16020, 1);
    for takes_over in [false, true] {
        let mut c = Many::new(env(), 3);
        c.create(&KEYS);
        let before = c.servers.state.lock().meta.clone().unwrap();
        {
            let mut state = c.servers.state.lock();
            state.meta_unanswered = if takes_over { usize::MAX } else { 1 };
            state.joins_meanwhile = Some(new.clone());
        }
        c.die(&before);
        if takes_over {
            let begun = Instant::now();
            while c.servers.state.lock().joins_meanwhile.is_some() {
                assert!(begun.elapsed() < Duration::from_secs(30), "nobody was asked to open hbase:meta");
                std::thread::sleep(Duration::from_millis(1));
            }
            c.master.stop();
            c.servers.state.lock().meta_unanswered = 0;
            c = Many::over(c.servers.clone());
        }
        c.settles("t", 9);
        c.quiet();
        let state = c.servers.state.lock();
        assert!(state.joins_meanwhile.is_none() && state.meta_unanswered == 0);
        let has_meta = |regions: &BTreeMap<String, RegionInfo>| regions.values().any(RegionInfo::is_meta);
        let at: Vec<_> =
            state.online.iter().filter(|(_, it)| has_meta(it)).map(|(server, _)| server).collect();
        assert!(at.len() == 1 && *at[0] != new, "{at:?}");
    }
}

#[test]
fn an_opening_that_is_not_waited_for() {
    let c = Many::new(env(), 2);
    c.create(&[]);
    let state = c.servers.state.lock();
    let (at, regions) =
        state.online.iter().find(|(_, it)| it.values().any(|it| it.table().to_string() == "t")).unwrap();
    let region = regions.values().find(|it| it.table().to_string() == "t").unwrap().clone();
    let (at, other) = (at.clone(), state.online.keys().find(|it| *it != at).unwrap().clone());
    drop(state);
    assert_eq!(c.master.opened_unasked(&at, &region, 1), Unasked::Accepted);
    assert_eq!(c.master.opened_unasked(&other, &region, 1), Unasked::Refused);
    let meta = c.servers.state.lock().meta.clone().unwrap();
    assert_eq!(c.master.opened_unasked(&meta, &RegionInfo::meta(), 1), Unasked::Accepted);
}

/// Servers and masters die in an order that a seed gives, also while the death before is worked on. The double asserts that no
/// region is open twice, and none is opened before the WALs of its last server are split.
#[test]
fn deaths_in_any_order() {
    let test = "-p halcyon-master --test all servers::deaths_in_any_order";
    for_each_seed(test, 0..100, |seed| {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut c = Many::new(env(), 3);
        c.create(&KEYS);
        for lives in 3..9 {
            let online: Vec<ServerName> = c.servers.state.lock().online.keys().cloned().collect();
            match next(4) {
                0 => {
                    c.master.stop();
                    c = Many::over(c.servers.clone());
                }
                1 if online.len() > 1 => {
                    let victim = online[next(online.len() as u64) as usize].clone();
                    let region = c.places().into_keys().next().unwrap();
                    let region = pb::RegionSpecifier { r#type: 1, value: region.into_bytes().into() };
                    let request = pb::MoveRegionRequest { region, dest_server_name: Some(victim.to_pb()) };
                    std::thread::scope(|scope| {
                        // It may be refused, or end where the region is open by then.
                        scope.spawn(|| {
                            drop(answer::<pb::MoveRegionResponse>(&c.service, "MoveRegion", &request))
                        });
                        c.die(&victim);
                    });
                }
                _ if online.len() > 1 => c.die(&online[next(online.len() as u64) as usize]),
                _ => {}
            }
            c.servers.join(&ServerName::new("h", 16020 + lives, 1));
        }
        c.settles("t", 9);
        c.quiet();
        assert!(c.servers.state.lock().recovering.is_empty(), "seed {seed}");
    });
}

#[test]
fn copies_are_on_servers_of_their_own_and_return_after_a_death() {
    let c = Many::new(env(), 4);
    c.create_with_copies(3, &["b", "c"]);
    c.check_apart(3);
    for number in [0, 2] {
        c.die(&name(number));
        c.settles_with_copies(3, 3);
        c.quiet();
        if number == 0 {
            c.check_apart(3);
        }
    }
}

#[test]
fn one_server_has_all_copies_until_there_are_others() {
    let c = Many::new(env(), 1);
    c.create_with_copies(2, &["b"]);
    assert_eq!(c.servers.regions_at(&name(0)), 4);
    c.servers.join(&name(1));
    let begun = Instant::now();
    while c.copies_at_servers().iter().any(|((key, number), server)| {
        *number == 0 && c.copies_at_servers().get(&(key.clone(), 1)) == Some(server)
    }) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.copies_at_servers());
        c.master.balance(false);
        c.quiet();
    }
    c.settles_with_copies(2, 2);
    c.check_apart(2);
}

#[test]
fn the_number_of_copies_changes() {
    let c = Many::new(env(), 3);
    c.create_with_copies(1, &["b"]);
    for replication in [2, 3, 1, 2] {
        c.alter_replication(replication);
        c.settles_with_copies(replication, 2);
        c.check_apart(replication);
    }
    let _: pb::DisableTableResponse = c.call(
        "DisableTable",
        &pb::DisableTableRequest { table_name: common::name("t").to_pb(), ..Default::default() },
    );
    c.quiet();
    assert_eq!(c.copies_at_servers(), BTreeMap::new());
    assert_eq!(c.copies_by_meta(), BTreeMap::new());
}

#[test]
fn a_master_that_takes_over_finds_the_copies() {
    let c = Many::new(env(), 3);
    c.create_with_copies(2, &["b", "c"]);
    let (servers, before) = (c.servers.clone(), c.copies_at_servers());
    c.master.stop();
    let dead = before[&(String::new(), 1)].clone();
    let c = Many::over(servers.clone());
    assert_eq!(c.copies_at_servers(), before);
    c.master.stop();
    servers.kill(&dead);
    let c = Many::over(servers);
    c.settles_with_copies(2, 3);
    c.check_apart(2);
}

/// `hbase:meta` can have copies too. They have znodes instead of columns.
#[test]
fn copies_of_meta_follow_its_descriptor() {
    let c = Many::new(env(), 4);
    let alter = |replication: usize| {
        let meta = TableDescriptor::meta()
            .with_family_defaults()
            .with("REGION_REPLICATION", replication.to_string());
        let _: pb::ModifyTableResponse = c.call("ModifyTable", &modify(&meta));
        c.quiet();
        c.servers.state.lock().meta_replicas.clone()
    };
    let at_servers = || {
        let state = c.servers.state.lock();
        let all =
            state.online.iter().flat_map(|(server, regions)| regions.values().map(move |it| (server, it)));
        let copies = all.filter(|(_, region)| region.is_meta() && region.is_secondary());
        copies.map(|(server, region)| (region.replica_id(), server.clone())).collect::<BTreeMap<_, _>>()
    };
    let three = alter(3);
    assert_eq!((three.len(), at_servers()), (2, three.clone()));
    // One is moved by its encoded name, to any other server.
    let copy = RegionInfo::meta().replica(2);
    let region = pb::RegionSpecifier { r#type: 2, value: copy.encoded_name().as_bytes().to_vec().into() };
    let request = pb::MoveRegionRequest { region, dest_server_name: None };
    let _: pb::MoveRegionResponse = c.call("MoveRegion", &request);
    c.quiet();
    let moved = c.servers.state.lock().meta_replicas.clone();
    assert!(moved[&1] == three[&1] && moved[&2] != three[&2], "{three:?} {moved:?}");
    assert_eq!(at_servers(), moved);
    let three = moved;
    let meta = c.servers.state.lock().meta.clone().unwrap();
    assert!(three[&1] != three[&2] && three.values().all(|server| *server != meta));
    c.die(&three[&1]);
    c.quiet();
    let after = c.servers.state.lock().meta_replicas.clone();
    assert!(after[&1] != three[&1] && after[&2] == three[&2], "{after:?}");
    assert_eq!(at_servers(), after);
    assert_eq!(alter(2).len(), 1);
    assert_eq!(at_servers().len(), 1);
    assert_eq!(alter(1), BTreeMap::new());
    assert_eq!(at_servers(), BTreeMap::new());
    let odd = TableDescriptor::meta().with("MAX_FILESIZE", "1");
    assert!(answer::<pb::ModifyTableResponse>(&c.service, "ModifyTable", &modify(&odd)).is_err());
    let many = TableDescriptor::meta().with("REGION_REPLICATION", "11");
    assert!(answer::<pb::ModifyTableResponse>(&c.service, "ModifyTable", &modify(&many)).is_err());
}

/// A server died between the order to open a region and the order to close it, and its WALs were split in between. The region was taken for
/// closed, and what was in its memory was in no file of the merged region.
#[test]
fn a_death_before_the_close_of_a_merge_or_split_loses_nothing() {
    for is_merge in [true, false] {
        let cluster = Many::new(env(), 3);
        cluster.create(&["m"]);
        let open = || -> BTreeMap<RegionInfo, ServerName> {
            let state = cluster.servers.state.lock();
            let all = state
                .online
                .iter()
                .flat_map(|(at, regions)| regions.values().map(move |it| (it.clone(), at.clone())));
            all.filter(|(region, _)| region.table().to_string() == "t").collect()
        };
        let regions: Vec<RegionInfo> = open().into_keys().collect();
        assert!(open()[&regions[0]] != open()[&regions[1]], "they are at different servers");
        // The second order comes before the close; the first one before the flush.
        let last = if is_merge { &regions[1] } else { &regions[0] };
        let trap = DiesAfter { region: last.clone(), orders: 2, server: open()[&regions[0]].clone() };
        cluster.servers.state.lock().dies_after = Some(trap);
        if is_merge {
            let _: pb::MergeTableRegionsResponse = cluster.call("MergeTableRegions", &merge(&regions));
        } else {
            let _: pb::SplitTableRegionResponse = cluster.call("SplitRegion", &split(&regions[0], Some("f")));
        }
        cluster.quiet();
        let state = cluster.servers.state.lock();
        assert!(state.dies_after.is_none() && state.unreplayed.is_empty(), "{:?}", state.unreplayed);
        drop(state);
        assert_eq!(open().len(), if is_merge { 1 } else { 3 });
    }
}

/// A snapshot of the disabled table would lack what no file has.
#[test]
fn a_table_that_is_disabled_after_a_death_is_in_its_files() {
    let cluster = Many::new(env(), 3);
    cluster.create(&["m"]);
    {
        let mut state = cluster.servers.state.lock();
        let has_table = |regions: &BTreeMap<String, RegionInfo>| {
            regions.values().any(|it| it.table().to_string() == "t")
                && !regions.values().any(RegionInfo::is_meta)
        };
        let dead = state.online.iter().find(|(_, regions)| has_table(regions));
        let dead = dead.expect("there are two regions").0.clone();
        let regions = state.online.remove(&dead).expect("it is there");
        state.unreplayed.extend(regions.into_iter().filter(|(_, region)| region.table().to_string() == "t"));
        assert!(!state.unreplayed.is_empty());
    }
    let _: pb::DisableTableResponse = cluster.call("DisableTable", &disable("t"));
    cluster.quiet();
    let state = cluster.servers.state.lock();
    assert!(state.unreplayed.is_empty(), "{:?}", state.unreplayed);
    let mut open = state.online.values().flat_map(BTreeMap::values);
    assert!(open.all(|region| region.table().to_string() != "t"), "all are closed");
}
