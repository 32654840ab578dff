use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use halcyon_cell::Result;
use halcyon_contract::{
    Assignments, ClusterServices, PeerDescription, RegionServerStatus, RegionStateTransition, Standing,
    Unasked,
};
use halcyon_env::{Env, Mutex, RwLock};
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, NamespaceDescriptor, RegionInfo, ServerName, TableDescriptor, TableName};
use tracing::{info, warn};

use crate::balancer_runs::BalancerRuns;
use crate::balancing::Balancing;
use crate::cleaner::Cleaner;
use crate::gathering::wait_for_servers;
use crate::groups::GroupState;
use crate::in_transition::Transitions;
use crate::members::Members;
use crate::meta_batches::MetaBatches;
use crate::mob::cleaner::MobChores;
use crate::moves::Moves;
use crate::normalizer::Normalizer;
use crate::peers::Peers;
use crate::placement::{Place, soon};
use crate::procedure::{
    ChangePeer, CreateTable, DisableTable, Engine, ProcedureTimes, ProcedureView, RegionAction, RemoteLocks,
    Resource, ServerCrash, SplitRegion, Submission, TransitRegion,
};
use crate::quotas::{Observer, QuotaNumbers, QuotaState};
use crate::recovery::recover_all;
use crate::settings::StopRequest;
use crate::state::{MasterState, MetaState, RegionState, TableEntry, TableState, Tables};
use crate::switches::{Switch, Switches};
use crate::timeline::Timelines;
use crate::{
    MasterSettings, bootstrap, descriptors, groups, left_over, master_store, meta, meta_region, namespaces,
    peers, regions, scratch, service,
};

/// A hundred years. A clock that has lost its time shows the year 1970 or 2000. Cells of `hbase:meta` that are further ahead
/// have a timestamp that a client chose, and the master does not go on behind it.
const CLOCK_BEHIND_MAX_MS: i64 = 100 * 366 * 86_400_000;

/// A running master. Dropping it ends its threads between two steps; unfinished procedures go on when the next
/// master starts over the same directory.
///
/// # Thread safety
/// Shared by reference; see `state.rs` for the locks behind it.
pub struct Master {
    pub(crate) core: Arc<MasterState>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) moves: Moves,
    pub(crate) cleaner: Cleaner,
    pub(crate) mob_chores: MobChores,
    pub(crate) normalizer: Normalizer,
    quota_observer: Observer,
    /// As the master's region has them.
    switches_saved: Mutex<Switches>,
    /// The server of `hbase:meta` and the live ones, as the master's region has them.
    servers_noted: Mutex<Option<(ServerName, Vec<ServerName>)>>,
}

/// A procedure that has not ended.
#[derive(Clone, Debug)]
pub struct ProcedureSummary {
    pub id: u64,
    /// HBase's class, without its package.
    pub name: &'static str,
    /// The user who asked for it; empty: the server itself.
    pub owner: String,
    /// Unix time.
    pub submitted_ms: i64,
    /// Namespaces and tables that it locks.
    pub locks: Vec<String>,
    /// Of `locks`, those that others may hold at the same time.
    pub shared_locks: Vec<String>,
    /// Its locks are taken. While they are not, it waits for them.
    pub is_begun: bool,
    /// A step of it fails again and again, or it is set aside.
    pub is_failing: bool,
    /// What it does; of a step that fails again and again the number of attempts, since when, and the last error.
    pub state: String,
}

impl Master {
    /// Makes the root directory if it is new, recovers what dead servers have left, opens `hbase:meta`, loads the tables, opens
    /// the regions of enabled ones that are not open, and goes on with unfinished procedures. Blocks until the regions are
    /// open. There is a region server.
    ///
    /// Invalid if the directory was written by a newer program; Corrupt if its files cannot be read. A region that
    /// does not open is tried again in the background.
    pub fn start(
        env: Env,
        root: &Path,
        settings: MasterSettings,
        cluster: ClusterServices,
    ) -> Result<Arc<Master>> {
        let timelines = Arc::new(Timelines::new(env.clock.clone()));
        Master::start_noting(env, root, settings, cluster, timelines)
    }

    /// As [`Master::start`]; `timelines` gets the times of recoveries.
    pub fn start_noting(
        env: Env,
        root: &Path,
        settings: MasterSettings,
        cluster: ClusterServices,
        timelines: Arc<Timelines>,
    ) -> Result<Arc<Master>> {
        let cluster_id = bootstrap::root_dir(&env, root)?;
        master_store::take_over(&env, root, &cluster)?;
        timelines.load(&env, root);
        let members = Members::new();
        let meta_last = cluster.coordination.meta_last()?;
        let dead = recover_all(&cluster, &members, meta_last.as_ref(), settings.split_threads, &timelines)?;
        let meta_descriptor = meta_region::prepare(&env, root, &cluster, &settings.store_file_tracker)?;
        let is_online = |last| cluster.servers.standing(last) == Standing::Online;
        let meta_stayed = meta_last.as_ref().is_some_and(is_online);
        let threads = settings.split_threads;
        let last = meta_last.as_ref();
        let meta_place =
            meta_region::open_first(&cluster, &members, &meta_descriptor, last, threads, &timelines)?;
        timelines.meta_opened_first();
        if !cluster.servers.is_one_process() {
            master_store::show_servers(&env, root, &cluster, &meta_place.server, &cluster.servers.online())?;
        }
        let meta_rows = soon(&*env.clock, || cluster.system_tables.meta_scan(&meta_place.server, b"", b""))?;
        let limit_ms = env.clock.now_ms().saturating_add(CLOCK_BEHIND_MAX_MS);
        let newest_timestamp = meta::newest_timestamp(&meta_rows, limit_ms);
        let LoadedTables { tables, stateless } = load_tables(&env, root, meta::read(&meta_rows))?;
        info!(tables = tables.by_name.len(), "hbase:meta is loaded");
        let switches = Mutex::new(Switches::load(&env, root)?);
        let own_snapshots_dir = scratch::first_snapshots_dir(root, settings.epoch, &settings.server_name);
        let core = Arc::new_cyclic(|this| MasterState {
            root: root.to_path_buf(),
            own_snapshots_dir: Mutex::new(own_snapshots_dir),
            cluster_id,
            members,
            meta_place: RwLock::new(meta_place),
            meta_descriptor: RwLock::new(meta_descriptor),
            targets: Mutex::default(),
            meta_replicas: RwLock::new(cluster.coordination.meta_replicas_last()),
            meta_replicas_changing: Mutex::new(()),
            meta_opening: Mutex::new(()),
            meta_replicas_callback: Mutex::new(None),
            published_states: Mutex::new(None),
            published_namespaces: Mutex::new(None),
            tables: RwLock::new(tables),
            namespaces: RwLock::default(),
            switches,
            switches_file: Mutex::new(()),
            stop_callback: Mutex::new(None),
            hbck_report: Mutex::new(None),
            stopped: AtomicBool::new(false),
            // Also if it is ahead of the clock: what is written below it is hidden.
            meta_timestamp_ms: AtomicI64::new(newest_timestamp),
            balancing: Balancing::default(),
            balancer_runs: BalancerRuns::default(),
            timelines,
            transitions: Transitions::default(),
            groups: GroupState::default(),
            peers: Peers::default(),
            quotas: QuotaState::default(),
            remote_locks: RemoteLocks::default(),
            meta_batches: MetaBatches::default(),
            this: this.clone(),
            env,
            settings,
            cluster,
        });
        if !meta_stayed {
            wait_for_servers(&core); // the next line may open a region
        }
        namespaces::load_at_start(&core)?;
        if core.has_groups() {
            groups::load_at_start(&core)?;
        }
        let switches_at_start = core.switches.lock().clone();
        let engine = Arc::new(Engine::load(core.clone())?);
        peers::load(&core, &ChangePeer::being_added(&engine.views()))?;
        write_lost_states(&core, &engine, stateless);
        note_orphans(&core, &dead);
        let failed = open_enabled(&core, &engine)?;
        engine.start()?;
        if core.settings.slow_log_table {
            create_if_absent(&core, &engine, halcyon_contract::slow_log_table());
        }
        if core.settings.quotas.enabled {
            create_if_absent(&core, &engine, halcyon_contract::quota_table());
        }
        if let Err(error) = meta_region::fit_replicas(&core) {
            warn!(%error, "not all copies of hbase:meta are open");
        }
        for region in failed {
            let again = TransitRegion::new(region, RegionAction::Assign, true);
            drop(engine.submit(Box::new(again), Submission::default()));
        }
        let moves = Moves::start(core.clone(), engine.clone())?;
        let cleaner = Cleaner::start(core.clone(), engine.clone())?;
        let mob_chores = MobChores::start(core.clone(), engine.clone())?;
        let normalizer = Normalizer::start(core.clone(), engine.clone())?;
        let quota_observer = Observer::start(core.clone(), engine.clone())?;
        let (switches_saved, servers_noted) = (Mutex::new(switches_at_start), Mutex::new(None));
        let master = Arc::new(Master {
            core,
            engine,
            moves,
            cleaner,
            mob_chores,
            normalizer,
            quota_observer,
            switches_saved,
            servers_noted,
        });
        // Tables of the system, say, which are opened before the groups are known.
        groups::move_misplaced(&master, |_, _| true);
        Ok(master)
    }

    /// Lets no procedure begin another step. Does not wait for those under way.
    pub fn stop_soon(&self) {
        self.core.stopped.store(true, Ordering::SeqCst);
        self.engine.stop_soon();
    }

    /// Notes which servers there are, so that HBase's master could take the cluster over, and opens copies of `hbase:meta`
    /// that lost theirs. *Blocking* if there is news.
    pub fn note_servers(&self) -> Result<()> {
        if !meta_region::has_replicas(&self.core) {
            meta_region::fit_replicas(&self.core)?;
        }
        let (meta, online) = (self.core.meta_server(), self.core.cluster.servers.online());
        let news = Some((meta.clone(), online.clone()));
        let mut noted = self.servers_noted.lock();
        if *noted != news && !online.is_empty() {
            master_store::show_servers(&self.core.env, &self.core.root, &self.core.cluster, &meta, &online)?;
            *noted = news;
        }
        Ok(())
    }

    /// Has procedures recover the dead servers of which there are none yet, and open their regions elsewhere. To be called
    /// after each death, and now and then: what was refused or ended by force is begun again, also openings.
    pub fn recover_dead_servers(&self) {
        let views = self.engine.views();
        let is_begun = |server: &ServerName| {
            let lock = Resource::Server(server.clone());
            views.iter().any(|view| view.locks.iter().any(|it| it.resource == lock))
        };
        for server in self.core.cluster.servers.recovering().into_iter().filter(|server| !is_begun(server)) {
            drop(self.engine.submit(Box::new(ServerCrash::new(server)), Submission::default()));
        }
        self.core.members.depose_all(&self.core.cluster, self.core.settings.split_threads);
        namespaces::load_late(&self.core);
        if groups::load_late(&self.core) {
            groups::move_misplaced(self, |_, _| true); // the znodes may have said something else
        }
        self.core.members.forget_old(&self.core.cluster);
        self.open_left_over();
        self.go_on_offloading();
        self.sweep_timelines();
    }

    /// Ends the master's threads between two steps. Calls that wait, and all that come later, are refused; the region
    /// server goes on. Idempotent. *Blocking.*
    pub fn stop(&self) {
        self.core.stopped.store(true, Ordering::SeqCst);
        self.cleaner.stop();
        self.mob_chores.stop();
        self.normalizer.stop();
        self.quota_observer.stop();
        self.moves.stop();
        self.engine.stop();
        let (mut saved, switches) = (self.switches_saved.lock(), self.core.switches.lock().clone());
        if *saved != switches {
            match master_store::save_switches(&self.core.env, &self.core.root, &self.core.cluster, &switches)
            {
                Ok(()) => *saved = switches,
                Err(error) => {
                    warn!(%error, "HBase would not learn of what was switched; the next start sees to it")
                }
            }
        }
    }

    /// The procedures that have not ended, by number: what an operator looks at first when an action does not end.
    pub fn procedures(&self) -> Vec<ProcedureSummary> {
        let summary = |view: ProcedureView| ProcedureSummary {
            id: view.id,
            name: view.class_name.rsplit('.').next().unwrap_or_default(),
            owner: view.owner,
            submitted_ms: view.submitted_ms,
            locks: view.locks.iter().map(|lock| lock.resource.to_string()).collect(),
            shared_locks: view
                .locks
                .iter()
                .filter(|it| it.shared)
                .map(|it| it.resource.to_string())
                .collect(),
            is_begun: view.begun,
            is_failing: view.trouble.is_some() || view.set_aside.is_some(),
            state: match (&view.set_aside, &view.trouble, view.begun) {
                (Some(why), ..) => format!("is set aside: {why}"),
                (None, Some(trouble), _) => trouble.to_string(),
                (None, None, true) => format!("runs step '{}'", view.step),
                (None, None, false) => "waits for its locks".to_string(),
            },
        };
        self.engine.views().into_iter().map(summary).collect()
    }

    /// Procedures since the start by the words of HBase's metrics, such as `Split` and `SnapshotClone`.
    pub fn procedure_times(&self) -> BTreeMap<&'static str, ProcedureTimes> {
        self.engine.times()
    }

    /// Space quotas as of the last time that they were compared with what tables use.
    pub fn quota_numbers(&self) -> QuotaNumbers {
        self.core.quotas.numbers()
    }

    /// When meta, memory, the region server and the directories were compared last (HBCK2: `runHbckChore`), in Unix time
    /// in ms, and what was found.
    pub fn hbck_report(&self) -> Option<(i64, Vec<String>)> {
        let report = self.core.hbck_report.lock();
        report.as_ref().map(|report| {
            let problems = report.problems.iter().map(ToString::to_string);
            (report.checked_ms, problems.chain(report.servers.iter().cloned()).collect())
        })
    }

    pub fn cluster_id(&self) -> &ClusterId {
        &self.core.cluster_id
    }

    /// What to do when copies of `hbase:meta` are opened or closed, where clients are told by other means than
    /// `ClusterServices::coordination`. Called at once, and after each change.
    pub fn on_meta_replicas(&self, callback: impl Fn(&BTreeMap<i32, ServerName>) + Send + Sync + 'static) {
        let _no_change = self.core.meta_replicas_changing.lock();
        callback(&self.core.meta_replicas.read());
        *self.core.meta_replicas_callback.lock() = Some(Box::new(callback));
    }

    /// Regions that open, close, split or merge, and those that could not open.
    pub fn regions_in_transition_count(&self) -> usize {
        service::regions_in_transition_count(&self.core)
    }

    /// Whether the switch is on; there is nothing to balance between.
    pub fn is_balancer_on(&self) -> bool {
        self.core.switches.lock().get(Switch::Balancer)
    }

    /// Every table's state by its name, but of `hbase:meta`.
    pub fn table_states(&self) -> BTreeMap<String, TableState> {
        self.core.tables.read().states()
    }

    /// Every namespace.
    pub fn namespaces(&self) -> Vec<pb::NamespaceDescriptor> {
        self.core.namespaces.read().iter().map(NamespaceDescriptor::to_pb).collect()
    }

    /// Every replication peer.
    pub fn peers(&self) -> Vec<PeerDescription> {
        self.core.peers.all()
    }

    /// Takes barriers away that no serial peer needs any more, as a chore does each hour. Returns how many went. *Blocking*.
    pub fn clean_barriers(&self) -> Result<usize> {
        crate::peers::barriers::clean(&self.core)
    }

    /// Shows tables and namespaces in the coordination service, if that has failed when they changed. *Blocking*.
    pub fn publish_names(&self) {
        self.core.publish_names();
    }

    /// What to do when a client asks the process to end (`Shutdown`, `StopMaster`). Called on a network thread:
    /// must not block. Without one such calls are refused.
    pub fn on_stop_request(&self, callback: impl Fn(StopRequest) + Send + Sync + 'static) {
        *self.core.stop_callback.lock() = Some(Box::new(callback));
    }
}

impl Assignments for Master {
    fn opened_unasked(&self, server: &ServerName, region: &RegionInfo, open_seq_num: u64) -> Unasked {
        if region.is_meta() && region.is_secondary() {
            let copies = self.core.meta_replicas.read();
            let is_there = copies.get(&region.replica_id()) == Some(server);
            // No order waits for it. One that was given up may have been followed by one to another server.
            return if is_there { Unasked::Accepted } else { Unasked::Refused };
        }
        if region.is_meta() {
            let place = self.core.meta_place.read();
            return match place.state {
                MetaState::Open if place.server == *server => Unasked::Accepted,
                MetaState::Opening if place.server == *server => Unasked::Later,
                _ => Unasked::Refused,
            };
        }
        if regions::is_open_at(&self.core, region, server, open_seq_num) {
            return Unasked::Accepted;
        }
        // A procedure of this master orders it soon, if it is to be open there. One that is to be closed there is not waited for:
        // a server closes no region whose opening has no answer.
        match self.core.place_of(region) {
            Place::At(at) if at == *server && !self.core.is_closing(region) => {
                left_over::note_opening(&self.core, region, server, open_seq_num);
                Unasked::Later
            }
            _ => Unasked::Refused,
        }
    }
}

impl RegionServerStatus for Master {
    fn report_region_state_transition(&self, _server: &ServerName, transition: RegionStateTransition) {
        match transition {
            // Checked like a client's request when its turn comes.
            RegionStateTransition::ReadyToSplit { parent, split_row } => {
                if self.core.switches.lock().get(Switch::Split) {
                    // A server proposes it again until the region is split.
                    let key = format!("split {}", parent.encoded_name());
                    self.engine.propose(key, Box::new(SplitRegion::new(parent, Some(split_row))));
                }
            }
        }
    }
}

/// Makes a system table in the background, unless it is there or an earlier start has begun it.
fn create_if_absent(core: &MasterState, engine: &Engine, descriptor: TableDescriptor) {
    let lock = Resource::Table(descriptor.name().clone());
    let is_begun = engine.views().iter().any(|view| view.locks.iter().any(|it| it.resource == lock));
    if !is_begun && !core.tables.read().by_name.contains_key(descriptor.name()) {
        info!(table = %descriptor.name(), "a system table is missing and is made");
        drop(engine.submit(Box::new(CreateTable::new(descriptor, Vec::new())), Submission::default()));
    }
}

struct LoadedTables {
    tables: Tables,
    /// Those of which meta has regions and no state.
    stateless: Vec<TableName>,
}

/// Brings together what meta and the descriptors' files say. A table that has a descriptor and regions and no state counts as
/// ENABLED, as in HBase (`TableStateManager.fixTableStates`).
fn load_tables(env: &Env, root: &Path, mut content: meta::MetaContent) -> Result<LoadedTables> {
    let mut descriptors = descriptors::read_all(env, root)?;
    let mut by_name: BTreeMap<TableName, TableEntry> = BTreeMap::new();
    let of_regions: BTreeSet<TableName> =
        content.regions.iter().map(|(region, _)| region.table().clone()).collect();
    let is_lost = |name: &TableName| !content.states.contains_key(name) && descriptors.contains_key(name);
    let stateless: Vec<TableName> = of_regions.into_iter().filter(is_lost).collect();
    content.states.extend(stateless.iter().map(|name| (name.clone(), TableState::Enabled)));
    for (name, state) in content.states.into_iter().filter(|(name, _)| !name.is_meta()) {
        let Some((descriptor, descriptor_sequence)) = descriptors.remove(&name) else {
            warn!(table = %name, "hbase:meta has a table without a descriptor; it is left out");
            continue;
        };
        let (descriptor, regions, replicas) = (Arc::new(descriptor), BTreeMap::new(), BTreeMap::new());
        by_name.insert(name, TableEntry { descriptor, descriptor_sequence, state, regions, replicas });
    }
    for (region, entry) in content.regions {
        match by_name.get_mut(region.table()) {
            Some(table) => drop(table.regions.insert(region, entry)),
            None => warn!(%region, "hbase:meta has a region of no table; it is left out"),
        }
    }
    for (copy, entry) in content.replicas {
        if let Some(table) = by_name.get_mut(copy.table()) {
            table.replicas.insert(copy, entry);
        }
    }
    let mut tables = Tables::default();
    by_name.into_values().for_each(|entry| tables.put(entry));
    Ok(LoadedTables { tables, stateless })
}

/// Gives tables their state back that have lost it. Those that a procedure is making or deleting have none yet, or none any more.
fn write_lost_states(core: &MasterState, engine: &Engine, stateless: Vec<TableName>) {
    let mut tables: BTreeSet<TableName> = stateless.into_iter().collect();
    for view in engine.views().into_iter().filter(|view| view.comes_or_goes) {
        for lock in view.locks.iter().filter(|lock| !lock.shared) {
            if let Resource::Table(name) = &lock.resource
                && tables.remove(name)
            {
                core.tables.write().remove(name);
            }
        }
    }
    for table in tables {
        warn!(%table, "hbase:meta has no state of a table whose descriptor and regions are there: it is taken for ENABLED");
        if let Err(error) = regions::set_table_state(core, &table, TableState::Enabled) {
            warn!(%table, %error, "the state of a table could not be written: the next start does it again");
        }
    }
}

/// Notes which regions the dead servers had that a starting master has recovered.
fn note_orphans(core: &MasterState, dead: &[ServerName]) {
    let tables = core.tables.read();
    let all: Vec<_> = tables.by_name.values().filter(|entry| entry.state == TableState::Enabled).collect();
    for server in dead {
        let was_there = |entry: &&TableEntry| -> Vec<RegionInfo> {
            let mut live = entry.live_regions();
            live.retain(|region| entry.regions[region].server.as_ref() == Some(server));
            live
        };
        core.timelines.assigning(server, all.iter().flat_map(was_there));
    }
}

/// Opens the regions of enabled tables that are not open; returns those that did not open. A table that was being enabled or
/// disabled is left to its procedure; should there be none, it gets where it was going.
fn open_enabled(core: &MasterState, engine: &Engine) -> Result<Vec<RegionInfo>> {
    let busy: HashSet<Resource> =
        engine.views().into_iter().flat_map(|view| view.locks).map(|lock| lock.resource).collect();
    let (online, one_process) = (regions_at_servers(core)?, core.cluster.servers.is_one_process());
    let entries: Vec<TableEntry> = core.tables.read().by_name.values().cloned().collect();
    let mut to_open = Vec::new();
    for entry in entries {
        let name = entry.descriptor.name();
        let left_over = !busy.contains(&Resource::Table(name.clone()));
        match entry.state {
            TableState::Enabling if left_over => regions::set_table_state(core, name, TableState::Enabled)?,
            TableState::Disabling if left_over => {
                // Else a region that cannot be closed now would keep a master from starting.
                drop(engine.submit(Box::new(DisableTable::left(name)), Submission::default()));
                continue;
            }
            TableState::Enabled => {}
            _ => continue,
        }
        let (mut regions, mut unsure) = (entry.to_be_open(), Vec::new());
        regions.retain(|region| {
            let Some(known) = entry.known(region) else { return false };
            let is_open = known.state == RegionState::Open
                && known
                    .server
                    .as_ref()
                    .is_some_and(|server| online.contains(&(server.clone(), region.clone())));
            let is_busy = busy.contains(&Resource::Region(region.encoded_name().to_string()));
            if !is_open && is_busy && !one_process && known.state == RegionState::Open {
                unsure.push(region.clone());
            }
            // The recovery of its server opens it.
            let waits = !one_process && matches!(core.place_of(region), Place::Recovering(_));
            !is_open && !is_busy && !waits
        });
        // A master wrote that it is open, had no answer, and refused the opening. The procedure must not take it for done.
        regions::mark(core, name, &unsure, RegionState::Opening);
        to_open.extend(regions.into_iter().map(|region| (region, entry.descriptor.clone())));
    }
    regions::open_at_start(core, to_open)
}

/// What each server has open. Not asked for where all regions are closed when the master starts.
fn regions_at_servers(core: &MasterState) -> Result<HashSet<(ServerName, RegionInfo)>> {
    let mut found = HashSet::new();
    if core.cluster.servers.is_one_process() {
        return Ok(found);
    }
    for name in core.cluster.servers.online() {
        let Some(server) = core.cluster.servers.get(&name) else { continue };
        match server.online_regions() {
            Ok(regions) => found.extend(regions.into_iter().map(|region| (name.clone(), region))),
            // Its regions are ordered to be opened there; those that are open stay so.
            Err(error) => warn!(server = %name, %error, "a server does not tell its regions"),
        }
    }
    Ok(found)
}
