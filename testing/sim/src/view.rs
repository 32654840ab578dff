//! What one master is given: the servers as it knows them, their orders, rows of system tables, and znodes.
//!
//! A call of a server takes simulated time. It waits while the server does not answer, until the master has declared the server dead or
//! the time is over. While there are faults an order may be lost, come late, or be carried out without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellComparator, Error, ErrorKind, LATEST_TIMESTAMP, Result};
use halcyon_contract::{
    Announce, CloseRegionRequest, ClusterServices, FlushRegionRequest, MasterCoordination, OpenRegionRequest,
    OpenRegionResponse, RegionFiles, RegionInfoRequest, RegionInfoResponse, RegionServerApi, RegionServers,
    ServerReport, SplitWal, Standing, SystemTables, WalFiles,
};
use halcyon_env::sim::{SimFileSystem, SimThreads};
use halcyon_env::{Clock, Env, FileSystem, ReadableFile};
use halcyon_memstore::ChunkPool;
use halcyon_region::{MobFileCache, Region, RegionServices, RegionSettings};
use halcyon_schema::{FamilyDescriptor, RegionInfo, ServerName, TableDescriptor};
use halcyon_servers::{RemoteTables, Servers, ServersSettings};
use halcyon_wal::{Wal, WalConfig};
use parking_lot::Mutex;

use crate::process_fs::ProcessFs;
use crate::real::LEASE;
use crate::remote::ToServers;
use crate::rows;
use crate::server::{Life, Order};
use crate::world::{Event, Flaw, World};

/// How long a master waits for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long an opening may take.
const OPEN_TIME: Duration = Duration::from_secs(20);
/// So long a server may be online without a znode.
const ZNODE_GRACE: Duration = Duration::from_secs(10);
/// Between two looks whether a server answers.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The way of a message.
const WAY_MAX: Duration = Duration::from_millis(3);
/// Of what the files of closed regions are worked on with.
const CACHE_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;
const MOB_FILES_MAX: usize = 10;

/// *Thread safety*: as [`World`]'s.
pub(crate) struct View {
    pub(crate) world: Arc<World>,
    pub(crate) epoch: u64,
    pub(crate) env: Env,
    known: Mutex<Known>,
    /// Real ones, in the place of what is known.
    servers: Option<Arc<Servers>>,
    this: Weak<View>,
}

#[derive(Default)]
struct Known {
    online: BTreeSet<ServerName>,
    /// With whether their WALs have to be split.
    dead: BTreeMap<ServerName, bool>,
}

enum Fate {
    Done,
    NotDone,
    AnswerLost,
    Late,
}

impl View {
    pub(crate) fn new(world: &Arc<World>, epoch: u64, clock: Arc<dyn Clock>) -> Arc<View> {
        let fs: Arc<dyn FileSystem> = Arc::new(ProcessFs { world: world.clone(), epoch });
        let keys = Arc::new(halcyon_env::Keys::none());
        let env = Env { fs: fs.clone(), local: fs, clock, stalls: Arc::default(), keys };
        let online = world.lock().znodes.clone();
        let known = Mutex::new(Known { online, ..Known::default() });
        let servers = world.options.is_real.then(|| {
            let network = Arc::new(ToServers { world: world.clone(), epoch });
            let settings = ServersSettings {
                epoch: Some(epoch),
                call_timeout: ANSWER_TIME,
                open_timeout: OPEN_TIME,
                ..ServersSettings::new(ServerName::new("m", 16000, epoch as i64), env.clock.now_ms())
            };
            Servers::simulated(network, env.clock.clone(), settings)
        });
        let world = world.clone();
        Arc::new_cyclic(|this| View { world, epoch, env, known, servers, this: this.clone() })
    }

    /// Real ones, if they are wanted.
    pub(crate) fn servers(&self) -> Option<Arc<Servers>> {
        self.servers.clone()
    }

    /// What has a znode is online. To be called in the master's process.
    pub(crate) fn look_for_servers(&self) {
        let znodes = self.world.lock().znodes.clone();
        znodes.iter().for_each(|server| self.add_online(server));
    }

    /// Declares servers dead that have had no znode for a while: a late report of one that had died has brought it in. The real
    /// master does the same.
    pub(crate) fn expire_without_znode(&self, without: &mut BTreeMap<ServerName, u64>) {
        let (znodes, now_ns) = (self.world.lock().znodes.clone(), self.world.now_ns());
        let online = self.online();
        without.retain(|server, _| online.contains(server) && !znodes.contains(server));
        for server in online.into_iter().filter(|server| !znodes.contains(server)) {
            let since_ns = *without.entry(server.clone()).or_insert(now_ns);
            if now_ns - since_ns > ZNODE_GRACE.as_nanos() as u64 {
                self.expire(&server);
            }
        }
    }

    pub(crate) fn services(self: &Arc<View>) -> ClusterServices {
        let (servers, system_tables): (Arc<dyn RegionServers>, Arc<dyn SystemTables>) = match &self.servers {
            Some(servers) => (servers.clone(), Arc::new(RemoteTables::new(servers.clone()))),
            None => (self.clone(), self.clone()),
        };
        ClusterServices {
            servers,
            files: self.clone(),
            system_tables,
            wals: WalFiles { env: self.env.clone(), root: self.world.root.clone(), is_root: true },
            replication: None,
            quotas: None,
            coordination: self.clone(),
        }
    }

    /// A server has a znode. What was declared dead stays dead.
    pub(crate) fn add_online(&self, server: &ServerName) {
        if let Some(servers) = &self.servers {
            return servers.add_online(server);
        }
        let mut known = self.known.lock();
        let returns = self.world.has(Flaw::DeadServersReturn);
        if !known.dead.contains_key(server) || returns {
            known.online.insert(server.clone());
        }
    }

    pub(crate) fn expire(&self, server: &ServerName) {
        if let Some(servers) = &self.servers {
            servers.expire(server);
            return;
        }
        let mut known = self.known.lock();
        known.online.remove(server);
        known.dead.entry(server.clone()).or_insert(true);
    }

    pub(crate) fn add_recovering(&self, server: &ServerName) {
        if let Some(servers) = &self.servers {
            return servers.add_recovering(server);
        }
        let mut known = self.known.lock();
        known.online.remove(server);
        known.dead.insert(server.clone(), true);
    }

    pub(crate) fn is_online(&self, server: &ServerName) -> bool {
        if let Some(servers) = &self.servers {
            return servers.standing(server) == Standing::Online;
        }
        self.known.lock().online.contains(server)
    }

    pub(crate) fn is_dead(&self, server: &ServerName) -> bool {
        self.known.lock().dead.contains_key(server)
    }

    /// Waits until the server answers. `Moved` if the master has declared it dead; `Busy` if the time is over.
    fn reach(&self, server: &ServerName) -> Result<()> {
        let begun = self.world.clock.monotonic_ns();
        self.world.delay(WAY_MAX);
        loop {
            SimThreads::step();
            if !self.is_online(server) {
                return Err(Error::new(ErrorKind::Moved, format!("{server} died before the order ended")));
            }
            if self.world.lock().servers.get(server).is_some_and(|server| server.life == Life::Up) {
                return Ok(());
            }
            if self.world.clock.monotonic_ns() - begun > ANSWER_TIME.as_nanos() as u64 {
                return Err(no_answer(server));
            }
            self.world.clock.sleep(LOOK_PAUSE);
        }
    }

    fn fate(&self) -> Fate {
        let mut state = self.world.lock();
        if !state.fault(self.world.rates.order_fault_one_in) {
            return Fate::Done;
        }
        match state.dice.below(3) {
            0 => Fate::NotDone,
            1 => Fate::AnswerLost,
            _ => Fate::Late,
        }
    }

    /// A call that is done or not, and of which the answer may be lost.
    fn call<T>(&self, server: &ServerName, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.reach(server)?;
        match self.fate() {
            Fate::Done => {
                let result = call();
                self.world.delay(WAY_MAX);
                result
            }
            Fate::NotDone | Fate::Late => {
                self.world.delay(ANSWER_TIME);
                Err(no_answer(server))
            }
            Fate::AnswerLost => {
                let result = call();
                self.world.delay(ANSWER_TIME);
                result.and(Err(no_answer(server)))
            }
        }
    }

    fn order(&self) -> Order {
        Order { epoch: self.epoch, number: self.world.lock().next_id() }
    }

    fn put(&self, server: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        let now_ms = self.env.clock.now_ms();
        let stamped = |cell: Cell| match cell.timestamp() {
            LATEST_TIMESTAMP => cell.with_timestamp(now_ms),
            _ => cell,
        };
        let cells: Vec<Cell> = cells.into_iter().map(stamped).collect();
        let result = self.call(server, || self.world.write_as(server, region, cells.clone(), self.epoch));
        self.world
            .tell(|| format!("master {} writes at {server}: {result:?}: {}", self.epoch, rows::told(&cells)));
        result
    }

    fn scan(&self, server: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        self.call(server, || self.world.scan(server, region, self.epoch))
    }

    /// Znodes are written by the newest master alone.
    fn check_epoch(&self) -> Result<()> {
        SimThreads::step();
        if self.world.lock().epoch > self.epoch && !self.world.has(Flaw::NoEpochCheck) {
            return Err(Error::new(ErrorKind::Expired, "another master is active"));
        }
        Ok(())
    }
}

fn no_answer(server: &ServerName) -> Error {
    Error::new(ErrorKind::Busy, format!("{server} gave no answer in time"))
}

impl RegionServers for View {
    fn online(&self) -> Vec<ServerName> {
        if let Some(servers) = &self.servers {
            return servers.online();
        }
        self.known.lock().online.iter().cloned().collect()
    }

    fn draining(&self) -> Vec<ServerName> {
        let state = self.world.lock();
        state.draining.iter().filter(|server| self.is_online(server)).cloned().collect()
    }

    fn standing(&self, server: &ServerName) -> Standing {
        let known = self.known.lock();
        match (known.online.contains(server), known.dead.get(server)) {
            (true, _) => Standing::Online,
            (false, Some(true)) => Standing::Recovering,
            (false, _) => Standing::Gone,
        }
    }

    fn declare_dead(&self, server: &ServerName) {
        self.expire(server);
    }

    fn recovering(&self) -> Vec<ServerName> {
        let known = self.known.lock();
        known.dead.iter().filter(|(_, recovers)| **recovers).map(|(server, _)| server.clone()).collect()
    }

    fn recovered(&self, server: &ServerName) {
        if let Some(recovers) = self.known.lock().dead.get_mut(server) {
            *recovers = false;
        }
    }

    fn dead(&self) -> Vec<ServerName> {
        self.known.lock().dead.keys().cloned().collect()
    }

    /// No client of a simulation asks for it.
    fn forget_dead(&self, _server: &ServerName) {}

    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>> {
        self.is_online(server).then(|| {
            let view = self.this.upgrade().expect("the caller holds it");
            Arc::new(Reached { view, server: server.clone() }) as Arc<dyn RegionServerApi>
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
        SimThreads::step();
        Ok(self.world.lock().meta_at.clone())
    }

    fn meta_opening(&self, server: &ServerName) -> Result<()> {
        self.meta_opened(server)
    }

    fn meta_opened(&self, server: &ServerName) -> Result<()> {
        self.check_epoch()?;
        self.world.lock().meta_at = Some(server.clone());
        Ok(())
    }

    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName> {
        BTreeMap::new() // hbase:meta has one copy here
    }

    fn meta_replicas_opened(&self, replicas: &BTreeMap<i32, ServerName>) -> Result<()> {
        self.check_epoch()?;
        assert!(replicas.is_empty(), "hbase:meta has one copy here, not {replicas:?} beside it");
        Ok(())
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        Vec::new()
    }

    /// The server learns of it when it asks for its lease again. That may be late, if it does not reach the coordination service.
    fn depose(&self, server: &ServerName) -> Result<Duration> {
        self.check_epoch()?;
        let mut state = self.world.lock();
        if state.znodes.remove(server) {
            state.deposed.insert(server.clone());
            if let Some(known) = state.servers.get_mut(server) {
                known.is_expired = true;
            }
            let noticed = if state.dice.one_in(2) { LEASE / 8 } else { LEASE * 2 };
            self.world.within(&mut state, noticed, Event::Abort(server.clone()));
            state.count("servers deposed");
        }
        let is_noted = state.deposed.contains(server) && !self.world.has(Flaw::LeaseNotAwaited);
        Ok(if is_noted { LEASE } else { Duration::ZERO })
    }

    fn forget_deposed(&self, server: &ServerName) -> Result<()> {
        self.check_epoch()?;
        self.world.lock().deposed.remove(server);
        Ok(())
    }

    fn set_draining(&self, server: &ServerName, is_draining: bool) -> Result<()> {
        self.check_epoch()?;
        let mut state = self.world.lock();
        match is_draining {
            true => state.draining.insert(server.clone()),
            false => state.draining.remove(server),
        };
        Ok(())
    }
}

impl SystemTables for View {
    fn meta_put(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put(at, &RegionInfo::meta(), cells)
    }

    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.meta_put(at, cells)
    }

    fn meta_scan(&self, at: &ServerName, _: &[u8], _: &[u8]) -> Result<Vec<Vec<Cell>>> {
        self.scan(at, &RegionInfo::meta())
    }

    fn put_rows(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put(at, region, cells)
    }

    fn put_rows_together(&self, at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        self.put(at, region, cells)
    }

    fn scan_rows(&self, at: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        self.scan(at, region)
    }
}

fn not_simulated<T>(what: &str) -> Result<T> {
    Err(Error::invalid(format!("{what} is not simulated")))
}

impl View {
    /// For files of regions that are closed: nothing is written to this WAL.
    fn file_services(&self) -> Result<RegionServices> {
        let wal = WalConfig::new(PathBuf::from("/WALs"), PathBuf::from("/oldWALs"), "files");
        Ok(RegionServices {
            env: self.env.clone(),
            wal: Wal::open(SimFileSystem::new().env(), wal)?,
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
            mob_files: MobFileCache::new(MOB_FILES_MAX, 0.5),
            chunks: ChunkPool::new(CHUNK_BYTES, 0),
            settings: RegionSettings::default(),
            wal_root: None,
        })
    }
}

impl RegionFiles for View {
    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        if self.world.options.is_real {
            return Region::create_on_disk(&self.env, &self.world.root, region, table.families());
        }
        Ok(self.env.fs.create_dir_all(&region.dir(&self.world.root))?)
    }

    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        Region::split_files(&self.file_services()?, &self.world.root, table, parent, daughters)?;
        self.world.lock().count("splits");
        Ok(())
    }

    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        Region::merge_files(&self.file_services()?, &self.world.root, table, parents, merged)?;
        self.world.lock().count("merges");
        Ok(())
    }

    fn copy_file(&self, _: &dyn ReadableFile, _: &Path) -> Result<()> {
        not_simulated("a copy of a file")
    }

    fn make_link(&self, _: &Path) -> Result<()> {
        not_simulated("a link to a file")
    }

    fn list_store_files(&self, _: &RegionInfo, _: &TableDescriptor) -> Result<()> {
        not_simulated("a list of store files")
    }

    fn listed_store_files(
        &self,
        _: &RegionInfo,
        _: &TableDescriptor,
        _: &FamilyDescriptor,
    ) -> Result<Option<Vec<(String, u64)>>> {
        not_simulated("a list of store files")
    }

    fn copy_rows(&self, _: &TableDescriptor, _: &RegionInfo, _: &Path, _: &Path) -> Result<()> {
        not_simulated("a copy of rows")
    }

    /// A log of the newest master alone, as `MasterData/WALs` are.
    fn visit_region(
        &self,
        _: &Path,
        _: &RegionInfo,
        _: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()> {
        let rows = rows::rows(self.world.lock().store.iter().cloned(), CellComparator::Default);
        let cells = visit(rows)?;
        self.check_epoch()?;
        let mut state = self.world.lock();
        let last = state.store.iter().map(Cell::timestamp).max().unwrap_or(0);
        state.store.extend(cells.iter().map(|cell| cell.with_timestamp(last + 1)));
        Ok(())
    }
}

/// One server, as a master reaches it.
struct Reached {
    view: Arc<View>,
    server: ServerName,
}

impl RegionServerApi for Reached {
    fn server_name(&self) -> ServerName {
        self.server.clone()
    }

    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let (view, world, region) = (&self.view, &self.view.world, &request.region);
        let order = view.order();
        view.reach(&self.server)?;
        match view.fate() {
            Fate::Done | Fate::AnswerLost => {}
            Fate::NotDone => {
                world.delay(ANSWER_TIME);
                return Err(no_answer(&self.server));
            }
            Fate::Late => {
                let event = Event::OpenLate { server: self.server.clone(), request: request.clone(), order };
                world.within(&mut world.lock(), ANSWER_TIME * 3, event);
                world.delay(ANSWER_TIME);
                return Err(no_answer(&self.server));
            }
        }
        let opened = world.open(&self.server, request, order);
        world.tell(|| format!("{order:?} to open {region} at {}: {opened:?}", self.server));
        let seq = opened?;
        let unanswered = Event::Unanswered { server: self.server.clone(), region: region.clone(), seq };
        world.at(&mut world.lock(), ANSWER_TIME * 4, unanswered);
        world.delay(WAY_MAX);
        if let Err(error) = announce(seq) {
            world.refuse_order(&self.server, region, seq, order);
            return Err(error);
        }
        world.delay(WAY_MAX);
        let (is_lost, is_repeated) = {
            let mut state = world.lock();
            let one_in = world.rates.order_fault_one_in;
            (state.fault(one_in), state.fault(one_in))
        };
        if is_lost || is_repeated {
            let event = Event::Report { server: self.server.clone(), region: region.clone(), seq };
            world.within(&mut world.lock(), ANSWER_TIME * 2, event);
        }
        if !is_lost {
            world.grant(&self.server, region, seq);
        }
        match view.is_online(&self.server) {
            true => Ok(OpenRegionResponse { open_seq_num: seq }),
            false => {
                Err(Error::new(ErrorKind::Moved, format!("{} died before the order ended", self.server)))
            }
        }
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        let (view, world) = (&self.view, &self.view.world);
        let order = view.order();
        let result = view.call(&self.server, || world.close(&self.server, &request.region, order));
        world.tell(|| format!("{order:?} to close {} at {}: {result:?}", request.region, self.server));
        result
    }

    fn flush_region(&self, _: &FlushRegionRequest) -> Result<()> {
        self.view.call(&self.server, || Ok(()))
    }

    /// A model's region is neither split nor merged.
    fn region_info(&self, _: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        self.view.call(&self.server, || Ok(RegionInfoResponse::default()))
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        let (view, world) = (&self.view, &self.view.world);
        view.call(&self.server, || world.online_regions(&self.server, view.epoch))
    }

    fn split_wal(&self, wal: &Path) -> Result<SplitWal> {
        let (view, world) = (&self.view, &self.view.world);
        view.call(&self.server, || world.split_wal(&self.server, wal, view.epoch))
    }
}
