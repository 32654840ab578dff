//! All that is there besides masters: region servers, their WALs and regions' files, the coordination service, and what clients
//! were told.
//!
//! *Thread safety*: one lock, which is held across no point at which a turn passes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::sim::{Dice, SimFileSystem, SimThreads};
use halcyon_env::{Clock, FileSystem};
use halcyon_schema::{RegionInfo, ServerName, layout};
use parking_lot::{Mutex, MutexGuard};

use crate::Options;
use crate::entries::Entry;
use crate::server::{Life, ModelServer, Order};

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
    /// An order to open a region arrives late.
    OpenLate {
        server: ServerName,
        region: RegionInfo,
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
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) dice: Dice,
    pub(crate) faults: bool,
    pub(crate) servers: BTreeMap<ServerName, ModelServer>,
    /// Region servers that have a znode.
    pub(crate) znodes: BTreeSet<ServerName>,
    pub(crate) draining: BTreeSet<ServerName>,
    /// The epoch of the newest master.
    pub(crate) epoch: u64,
    /// That of the newest master that has loaded what there is.
    pub(crate) epoch_loaded: u64,
    pub(crate) meta_at: Option<ServerName>,
    /// What the master keeps in its own region.
    pub(crate) store: Vec<Cell>,
    pub(crate) history: History,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    events_count: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    next_id: u64,
}

/// What must not be forgotten.
#[derive(Default)]
pub(crate) struct History {
    /// Acknowledged writes of each region.
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
            faults: false,
            servers: BTreeMap::new(),
            znodes: BTreeSet::new(),
            draining: BTreeSet::new(),
            epoch: 0,
            epoch_loaded: 0,
            meta_at: None,
            store: Vec::new(),
            history: History::default(),
            events: BTreeMap::new(),
            events_count: 0,
            counts: BTreeMap::new(),
            next_id: 0,
        };
        let (threads, clock, state) = (threads.clone(), threads.clock(0), Mutex::new(state));
        Arc::new(World { threads, clock, fs, root, options, state })
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
    pub(crate) fn meta_entries(&self) -> Vec<Entry> {
        let meta = RegionInfo::meta();
        let state = self.lock();
        let open = state.servers.values().filter(|it| it.life != Life::Dead);
        let open = open.filter_map(|server| server.regions.get(meta.encoded_name())).max_by_key(|it| it.seq);
        open.map(|open| open.entries.values().cloned().collect()).unwrap_or_default()
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
