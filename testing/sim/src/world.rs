//! All that is there besides masters: region servers, their WALs and regions' files, the coordination service, and what clients
//! were told.
//!
//! *Thread safety*: one lock, which is held across no point at which a turn passes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_contract::OpenRegionRequest;
use halcyon_env::sim::{Dice, SimFileSystem, SimThreads};
use halcyon_env::{Clock, FileSystem};
use halcyon_schema::{RegionInfo, ServerName, layout};
use parking_lot::{Mutex, MutexGuard};

use crate::Options;
use crate::process_fs::no_answer;
use crate::rates::Rates;
use crate::real::RealServer;
use crate::remote::Reached;
use crate::rows;
use crate::server::{Life, ModelServer, Order};
use crate::told::Told;

/// So long a call of the NameNode may take.
const CALL_TIME: Duration = Duration::from_secs(1);
pub(crate) const ROOT: &str = "/hbase";

/// A deliberate bug of the models, to see that the invariants find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Servers obey masters that were deposed, and take their writes to `hbase:meta`.
    NoEpochCheck,
    /// A server that was declared dead is let in again.
    DeadServersReturn,
    /// The WALs of a dead server are not sealed before they are read.
    NoSeal,
    /// A server acknowledges before its WAL is synced.
    AcknowledgesUnsynced,
    /// An order to open a region is carried out behind a later one to close it.
    LateOrdersCount,
    /// Servers answer although their leases are over.
    LeaseIgnored,
    /// Regions open elsewhere while a server that was declared dead may answer reads.
    LeaseNotAwaited,
}

/// What happens at a time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Thaw(ServerName),
    /// The session of a server has expired.
    Expire(ServerName),
    /// The master of this epoch learns that a server is gone.
    SeesDeath(u64, ServerName),
    SeesJoin(u64, ServerName),
    /// A server whose session has expired ends itself.
    Abort(ServerName),
    /// The process of a server that gave up is gone.
    Exit(ServerName),
    /// A DataNode that was dead is back.
    DataNodeBack(usize),
    /// One that was frozen goes on.
    DataNodeThaws,
    /// A server reaches the coordination service again.
    CutEnds(ServerName),
    KillMaster,
    /// An order to open a region arrives late.
    OpenLate {
        server: ServerName,
        request: OpenRegionRequest,
        order: Order,
    },
    /// The report of an opening has no answer yet: the server repeats it, also to the next master.
    Unanswered {
        server: ServerName,
        region: RegionInfo,
        seq: u64,
    },
    /// A server reports that it has opened a region.
    Report {
        server: ServerName,
        region: RegionInfo,
        seq: u64,
    },
    ThawMaster(u64),
    /// The session of a master has expired: another one becomes active.
    ExpireMaster(u64),
    /// A master that was deposed ends itself.
    ExitMaster(u64),
}

pub(crate) struct World {
    pub(crate) threads: SimThreads,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fs: SimFileSystem,
    pub(crate) root: PathBuf,
    pub(crate) options: Options,
    pub(crate) rates: Rates,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) dice: Dice,
    /// Which WALs models do not find.
    pub(crate) doubts: Dice,
    pub(crate) faults: bool,
    pub(crate) servers: BTreeMap<ServerName, ModelServer>,
    /// The processes of those that are real.
    pub(crate) real: BTreeMap<ServerName, RealServer>,
    /// Region servers that have a znode.
    pub(crate) znodes: BTreeSet<ServerName>,
    /// Those of which a master has deleted it.
    pub(crate) deposed: BTreeSet<ServerName>,
    pub(crate) draining: BTreeSet<ServerName>,
    /// Servers that do not reach the coordination service.
    pub(crate) cut: BTreeSet<ServerName>,
    /// The epoch of the newest master.
    pub(crate) epoch: u64,
    /// That of the newest master that has loaded what there is.
    pub(crate) epoch_loaded: u64,
    /// The active master, as real servers reach it.
    pub(crate) master: Option<Reached>,
    pub(crate) meta_at: Option<ServerName>,
    /// What the master keeps in its own region.
    pub(crate) store: Vec<Cell>,
    pub(crate) history: History,
    /// What clients of real servers were told.
    pub(crate) told: Told,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    events_count: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Until then the NameNode answers nobody.
    pub(crate) away_until_ns: u64,
    /// Files that are made now lie on fewer DataNodes than they should.
    pub(crate) data_node_down: bool,
    /// Syncs of real servers' files on it wait.
    pub(crate) data_node_frozen: Option<usize>,
    /// It was late for a writer, and new WALs lie elsewhere.
    pub(crate) data_node_avoided: Option<usize>,
    /// Changes that HDFS carries out later, with their times.
    late: BTreeMap<(u64, u64), LateChange>,
    next_id: u64,
}

pub(crate) type LateChange = Box<dyn FnOnce(&SimFileSystem) -> std::io::Result<()> + Send>;

/// What must not be forgotten.
#[derive(Default)]
pub(crate) struct History {
    /// Acknowledged writes of each region of a model.
    pub(crate) acknowledged: BTreeMap<String, BTreeSet<u64>>,
    /// The last open sequence number of each region.
    pub(crate) open_seqs: BTreeMap<String, u64>,
}

impl World {
    pub(crate) fn new(threads: &SimThreads, seed: u64, options: Options) -> Arc<World> {
        let fs = SimFileSystem::hdfs(seed);
        let root = PathBuf::from(ROOT);
        fs.create_dir_all(&layout::wals_dir(&root)).expect("an empty file system");
        let state = State {
            dice: Dice::new(seed ^ 0x5eed),
            doubts: Dice::new(seed ^ 0x3a1),
            faults: false,
            servers: BTreeMap::new(),
            real: BTreeMap::new(),
            znodes: BTreeSet::new(),
            deposed: BTreeSet::new(),
            draining: BTreeSet::new(),
            cut: BTreeSet::new(),
            epoch: 0,
            epoch_loaded: 0,
            master: None,
            meta_at: None,
            store: Vec::new(),
            history: History::default(),
            told: Told::default(),
            events: BTreeMap::new(),
            events_count: 0,
            counts: BTreeMap::new(),
            away_until_ns: 0,
            data_node_down: false,
            data_node_frozen: None,
            data_node_avoided: None,
            late: BTreeMap::new(),
            next_id: 0,
        };
        let (threads, clock, state) = (threads.clone(), threads.clock(0), Mutex::new(state));
        let rates = Rates::of(seed, options.is_real);
        if options.is_real {
            fs.set_waits_within(rates.waits_within);
        }
        Arc::new(World { threads, clock, fs, root, options, rates, state })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.options.flaw == Some(flaw)
    }

    /// Prints what happens, if that was asked for.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.options.is_told {
            println!("{:>12.6} {}", self.threads.now().as_secs_f64(), what());
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Waits for up to so long.
    pub(crate) fn delay(&self, max: Duration) {
        let time = self.lock().dice.below(max.as_micros() as usize + 1) as u64;
        self.clock.sleep(Duration::from_micros(time));
    }

    pub(crate) fn at(&self, state: &mut State, after: Duration, event: Event) {
        let at_ns = self.now_ns() + after.as_nanos() as u64;
        state.events_count += 1;
        let number = state.events_count;
        state.events.insert((at_ns, number), event);
    }

    /// As [`World::at`], at a time that chance gives.
    pub(crate) fn within(&self, state: &mut State, max: Duration, event: Event) {
        let after = Duration::from_micros(state.dice.below(max.as_micros() as usize + 1) as u64);
        self.at(state, after, event);
    }

    /// A call of the NameNode. An error if that is away for longer than the caller waits.
    pub(crate) fn reach_name_node(&self, path: &Path) -> std::io::Result<()> {
        let away_ns = self.lock().away_until_ns.saturating_sub(self.now_ns());
        if away_ns > 0 {
            self.clock.sleep(Duration::from_nanos(away_ns).min(CALL_TIME));
        }
        if away_ns > CALL_TIME.as_nanos() as u64 {
            return Err(no_answer(path));
        }
        Ok(())
    }

    /// Asks a file while the frozen DataNode is frozen. It never is when a file syncs, which would wait with the turn in its hands.
    pub(crate) fn while_frozen<T>(&self, ask: impl FnOnce() -> T) -> T {
        let frozen = self.lock().data_node_frozen;
        let set = |is_frozen| frozen.iter().for_each(|number| self.fs.freeze_data_node(*number, is_frozen));
        set(true);
        let answer = ask();
        set(false);
        answer
    }

    /// A change that HDFS has the order for, and carries out later.
    pub(crate) fn change_late(&self, max: Duration, change: LateChange) {
        let mut state = self.lock();
        let number = state.next_id();
        let at_ns = self.now_ns() + state.dice.below(max.as_nanos() as usize) as u64;
        state.late.insert((at_ns, number), change);
    }

    /// Those that are due.
    pub(crate) fn make_late_changes(&self) {
        loop {
            let due = {
                let mut state = self.lock();
                let first = state.late.first_entry().filter(|first| first.key().0 <= self.now_ns());
                first.map(|first| first.remove())
            };
            let Some(change) = due else { return };
            let what = if change(&self.fs).is_ok() { "late changes" } else { "late changes, refused" };
            self.lock().count(what);
        }
    }

    pub(crate) fn wal_dir(&self, server: &ServerName) -> PathBuf {
        layout::wals_dir(&self.root).join(server.to_string())
    }

    /// Whether the WALs of a server were taken from it.
    pub(crate) fn is_fenced(&self, server: &ServerName) -> bool {
        !self.exists(&self.wal_dir(server))
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.fs.exists(path).expect("the simulated files are asked without disturbance")
    }

    /// The rows of `hbase:meta`, as far as they are acknowledged, wherever it is.
    pub(crate) fn meta_rows(self: &Arc<World>) -> Vec<Vec<Cell>> {
        let meta = RegionInfo::meta();
        if self.options.is_real {
            let at = {
                let state = self.lock();
                let open = state.servers.iter().filter(|(_, it)| it.life == Life::Up);
                let open = open.filter_map(|(name, it)| Some((name, it.regions.get(meta.encoded_name())?)));
                open.max_by_key(|(_, open)| open.seq).map(|(name, _)| name.clone())
            };
            return at.and_then(|at| self.scan_real(&at, &meta).ok()).unwrap_or_default();
        }
        let state = self.lock();
        let open = state.servers.values().filter(|it| it.life != Life::Dead);
        let open = open.filter_map(|server| server.regions.get(meta.encoded_name())).max_by_key(|it| it.seq);
        let entries = open.into_iter().flat_map(|open| open.entries.values());
        rows::rows(entries.flat_map(|entry| rows::decode(&entry.payload)), meta.comparator())
    }
}

impl State {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// True one time in `n`, while there are faults.
    pub(crate) fn fault(&mut self, n: usize) -> bool {
        self.faults && self.dice.one_in(n)
    }
}
