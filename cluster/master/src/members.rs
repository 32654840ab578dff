//! What must be known of region servers before they get regions, and before those of a dead one open elsewhere.
//!
//! - A server gets regions only after the master has seen the directory of its WALs, where the master would take them from it. One
//!   that writes its WALs elsewhere, say to a disk of its own, would lose what it acknowledges when it dies: the master would find
//!   nothing to split, and could not tell that from a server that has left nothing.
//! - It must have a session as well, so that its end is noticed.
//! - A server that was declared dead may live: a packet filter may have refused the master's connections. Its WALs are taken from it,
//!   so it cannot write, but it answers reads while its lease lasts. So its znode is deleted, and its regions open elsewhere when the
//!   lease that it may have is over. If the znode is gone by itself, so are session and lease.
//! - What is noted of such a server goes when it is recovered. If that fails, it is tried again, also by a master after this one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{ClusterServices, Standing};
use halcyon_env::{Clock, Mutex};
use halcyon_schema::{ServerName, layout};
use tracing::{error, info};

use crate::splitters::Splitters;
use crate::{parallel, wal_split};

/// Between two looks for the same directory.
const LOOK_PAUSE_NS: u64 = 20_000_000;
/// A server makes its directory within moments. After this time an operator is told, and again after each such time.
const TELL_PERIOD_NS: u64 = 10_000_000_000;
/// WALs that cannot be split which are named to an operator.
const UNSPLIT_MAX: usize = 1_000;
/// Before the note of a dead server that could not be deleted, or the list of such notes, is tried again.
const FORGET_PAUSE_NS: u64 = 2_000_000_000;
/// Dead servers whose leases are remembered. What is forgotten is asked for again.
const LEASES_MAX: usize = 10_000;

/// *Thread safety*: all methods from any thread. The lock is not held while files or znodes are asked for.
pub(crate) struct Members(Mutex<State>);

#[derive(Default)]
struct State {
    /// Servers whose directories were seen.
    seen: HashSet<ServerName>,
    /// Live servers whose directories were not.
    looks: HashMap<ServerName, Look>,
    /// WALs of dead servers that no live one could split.
    unsplit: BTreeMap<PathBuf, Unsplit>,
    /// How many were split.
    split_count: usize,
    /// Who splits WALs.
    splitters: Splitters,
    /// When the leases of dead servers end (`Clock::boot_ns`).
    lease_ends_ns: HashMap<ServerName, u64>,
    /// Deposed servers that are to be forgotten, and when that is tried (`Clock::boot_ns`).
    to_forget: BTreeMap<ServerName, u64>,
    /// Which servers earlier masters have deposed and not forgotten is asked for then; `None`: it was.
    list_deposed_ns: Option<u64>,
}

/// A WAL that a server is about to split.
pub(crate) struct Splitting<'a> {
    members: &'a Members,
    pub(crate) server: ServerName,
}

impl Drop for Splitting<'_> {
    fn drop(&mut self) {
        self.members.0.lock().splitters.end(&self.server);
    }
}

/// Why a WAL is not split.
struct Unsplit {
    kind: ErrorKind,
    error: String,
}

#[derive(Clone, Copy)]
struct Look {
    first_ns: u64,
    last_ns: u64,
    told_ns: u64,
}

impl Members {
    pub(crate) fn new() -> Arc<Members> {
        Arc::new(Members(Mutex::new(State { list_deposed_ns: Some(0), ..State::default() })))
    }

    /// Of these servers the one that is to split the WAL now, until what is returned is dropped. `None` if there is none.
    pub(crate) fn begin_split(&self, wal: &Path, servers: &[ServerName]) -> Option<Splitting<'_>> {
        let server = self.0.lock().splitters.begin(wal, servers)?;
        Some(Splitting { members: self, server })
    }

    /// That server could not split it: others come first in the next attempts.
    pub(crate) fn note_failed_split(&self, wal: &Path, server: &ServerName) {
        self.0.lock().splitters.note_failed(wal, server);
    }

    /// Those of the live servers that may get regions. *Blocking* if there is one that was not seen yet.
    pub(crate) fn ready(&self, cluster: &ClusterServices) -> Vec<ServerName> {
        let online = cluster.servers.online();
        if cluster.servers.is_one_process() {
            return online;
        }
        self.0.lock().forget_all_but(&online);
        online.into_iter().filter(|server| self.is_ready(cluster, server)).collect()
    }

    /// Refuses an opening at a server that must not get regions yet. `Busy`: it may have the region from an earlier master, so another
    /// one must not get it either.
    pub(crate) fn check(&self, cluster: &ClusterServices, server: &ServerName) -> Result<()> {
        if cluster.servers.is_one_process() || self.is_ready(cluster, server) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, self.lack_of(cluster, server)))
    }

    /// A WAL of a dead server was split by none of the live ones: the regions that it may have edits of stay closed.
    pub(crate) fn note_unsplit(&self, wal: &Path, error: &Error) {
        let mut state = self.0.lock();
        if state.unsplit.len() < UNSPLIT_MAX {
            let unsplit = Unsplit { kind: error.kind(), error: error.to_string() };
            state.unsplit.insert(wal.to_path_buf(), unsplit);
        }
    }

    /// The WALs that a dead server still has are these: an operator has moved the others away.
    pub(crate) fn keep_unsplit(&self, dir: &Path, names: &[String]) {
        let is_there = |wal: &Path| names.iter().any(|name| wal.file_name() == Some(OsStr::new(name)));
        let state = &mut *self.0.lock();
        state.unsplit.retain(|wal, _| wal.parent() != Some(dir) || is_there(wal));
        state.splitters.keep(|wal| wal.parent() != Some(dir) || is_there(wal));
    }

    /// It was split since, or is gone.
    pub(crate) fn forget_unsplit(&self, wal: &Path) {
        let mut state = self.0.lock();
        state.unsplit.remove(wal);
        state.splitters.keep(|other| other != wal);
        state.split_count += 1;
    }

    /// How many WALs were split since the start.
    pub(crate) fn split_count(&self) -> usize {
        self.0.lock().split_count
    }

    /// What an operator has to look at: live servers that get no regions, and WALs that nobody can split.
    pub(crate) fn troubles(&self, cluster: &ClusterServices) -> Vec<String> {
        let lacks = self.lacks(cluster).into_iter().map(|(_, lack)| lack);
        let told = |(wal, Unsplit { kind, error }): (&PathBuf, &Unsplit)| {
            let what = format!("{} cannot be split, and its regions stay closed: {error}", wal.display());
            match kind {
                ErrorKind::Corrupt => {
                    format!("{what}. `halcyon set-wal-aside` gives it up, and says before what is lost")
                }
                _ => format!("{what}. This is tried again"),
            }
        };
        let unsplit: Vec<String> = self.0.lock().unsplit.iter().map(told).collect();
        lacks.chain(unsplit).collect()
    }

    /// What live servers lack that get no regions: for people.
    pub(crate) fn lacks(&self, cluster: &ClusterServices) -> Vec<(ServerName, String)> {
        let ready: HashSet<ServerName> = self.ready(cluster).into_iter().collect();
        let others = cluster.servers.online().into_iter().filter(|server| !ready.contains(server));
        others.map(|server| (server.clone(), self.lack_of(cluster, &server))).collect()
    }

    fn lack_of(&self, cluster: &ClusterServices, server: &ServerName) -> String {
        if !cluster.servers.has_session(server) {
            return format!("{server} has no znode yet");
        }
        let dir = layout::wals_dir(&cluster.wals.root).join(server.to_string());
        format!(
            "this master finds no WALs of {server} in {}: does it have the same hbase.wal.dir?",
            dir.display()
        )
    }

    fn is_ready(&self, cluster: &ClusterServices, server: &ServerName) -> bool {
        if !cluster.servers.has_session(server) {
            return false;
        }
        let now_ns = cluster.wals.env.clock.monotonic_ns();
        {
            let mut state = self.0.lock();
            if state.seen.contains(server) {
                return true;
            }
            let first = Look { first_ns: now_ns, last_ns: 0, told_ns: now_ns };
            let look = state.looks.entry(server.clone()).or_insert(first);
            if look.last_ns > 0 && now_ns.saturating_sub(look.last_ns) < LOOK_PAUSE_NS {
                return false;
            }
            look.last_ns = now_ns;
        }
        let dir = layout::wals_dir(&cluster.wals.root).join(server.to_string());
        // A server that cannot be looked after is not ready.
        let found = cluster.wals.env.fs.exists(&dir);
        let mut state = self.0.lock();
        match found {
            Ok(true) => {
                state.looks.remove(server);
                state.seen.insert(server.clone());
                true
            }
            found => {
                let due = state
                    .looks
                    .get_mut(server)
                    .filter(|look| now_ns.saturating_sub(look.told_ns) >= TELL_PERIOD_NS);
                if let Some(look) = due {
                    look.told_ns = now_ns;
                    let (since_ms, lack) =
                        (now_ns.saturating_sub(look.first_ns) / 1_000_000, self.lack_of(cluster, server));
                    let failed = found.err().map(|error| error.to_string());
                    error!(%server, since_ms, failed, "a region server gets no regions: {lack}");
                }
                false
            }
        }
    }

    /// Takes a dead server's znode, and notes how long it may go on answering reads. May be called again. *Blocking*.
    pub(crate) fn depose(&self, cluster: &ClusterServices, server: &ServerName) -> Result<()> {
        let clock = &cluster.wals.env.clock;
        let left = cluster.coordination.depose(server)?;
        let end_ns = clock.boot_ns().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        if !left.is_zero() {
            info!(%server, lease_left = ?left, "a server that was declared dead has lost its znode; its regions wait for its lease");
        }
        let mut state = self.0.lock();
        if state.lease_ends_ns.len() >= LEASES_MAX {
            let now_ns = clock.boot_ns();
            state.lease_ends_ns.retain(|_, end_ns| *end_ns > now_ns);
        }
        // The first answer: the lease cannot be renewed since.
        state.lease_ends_ns.entry(server.clone()).or_insert(end_ns);
        Ok(())
    }

    /// Deposes dead servers, so that the rests of their leases pass at the same time, however few recoveries are under way. May be
    /// called again. *Blocking*.
    pub(crate) fn depose_all(self: &Arc<Members>, cluster: &ClusterServices, threads: usize) {
        let is_new = |server: &ServerName| !self.0.lock().lease_ends_ns.contains_key(server);
        let dead: Vec<ServerName> = cluster.servers.recovering().into_iter().filter(is_new).collect();
        let (members, cluster) = (Arc::clone(self), cluster.clone());
        let deposed =
            parallel::for_each(threads, dead, move |server| match cluster.servers.standing(&server) {
                Standing::Recovering => members.depose(&cluster, &server),
                Standing::Online | Standing::Gone => Ok(()),
            });
        if let Err(error) = deposed {
            info!(%error, "a dead server is deposed when its recovery begins");
        }
    }

    /// When the lease of a dead server is over, in `Clock::monotonic_ns`; `None`: it is, or nothing is known of it.
    pub(crate) fn lease_until_ns(&self, clock: &dyn Clock, server: &ServerName) -> Option<u64> {
        let end_ns = *self.0.lock().lease_ends_ns.get(server)?;
        let left_ns = end_ns.saturating_sub(clock.boot_ns());
        (left_ns > 0).then(|| clock.monotonic_ns().saturating_add(left_ns))
    }

    /// When a dead server answers nothing any more (`Clock::boot_ns`); deposes it before if that was not done. *Blocking*.
    fn lease_end_ns(&self, cluster: &ClusterServices, server: &ServerName) -> Result<u64> {
        let noted = self.0.lock().lease_ends_ns.get(server).copied();
        if let Some(end_ns) = noted {
            return Ok(end_ns);
        }
        self.depose(cluster, server)?;
        let state = self.0.lock();
        let end_ns = state.lease_ends_ns.get(server);
        Ok(*end_ns.expect("it was noted, and nothing else forgets it before its end"))
    }

    /// `Busy` as long as a dead server may answer reads, until [`Members::lease_until_ns`]; deposes it before if that was not done.
    /// *Blocking*, but does not wait for the lease.
    pub(crate) fn check_lease(&self, cluster: &ClusterServices, server: &ServerName) -> Result<()> {
        let end_ns = self.lease_end_ns(cluster, server)?;
        if end_ns <= cluster.wals.env.clock.boot_ns() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, format!("{server} may answer reads until its lease is over")))
    }

    /// Waits until a dead server answers nothing any more, and deposes it before if that was not done. *Blocking*.
    pub(crate) fn wait_for_lease(&self, cluster: &ClusterServices, server: &ServerName) -> Result<()> {
        let clock = &cluster.wals.env.clock;
        let end_ns = self.lease_end_ns(cluster, server)?;
        loop {
            let left_ns = end_ns.saturating_sub(clock.boot_ns());
            if left_ns == 0 {
                return Ok(());
            }
            clock.sleep(Duration::from_nanos(left_ns));
        }
    }

    /// Nothing of a dead server has to be recovered: its regions may open elsewhere. Its lease must be over.
    pub(crate) fn recovered(&self, cluster: &ClusterServices, server: &ServerName) {
        let end_ns = self.0.lock().lease_ends_ns.remove(server);
        assert!(
            end_ns.is_none_or(|end_ns| end_ns <= cluster.wals.env.clock.boot_ns()),
            "regions of {server} open elsewhere before its lease is over"
        );
        cluster.servers.recovered(server);
        {
            let state = &mut *self.0.lock();
            state.unsplit.retain(|wal, _| !wal_split::is_of(wal, server));
            state.splitters.keep(|wal| !wal_split::is_of(wal, server));
        }
        self.forget(cluster, server);
    }

    /// Forgets servers that were deposed and recovered, where that has failed, and those of earlier masters. To be called now and then.
    /// *Blocking*.
    pub(crate) fn forget_old(&self, cluster: &ClusterServices) {
        let now_ns = cluster.wals.env.clock.boot_ns();
        self.list_deposed(cluster, now_ns);
        let is_due = |(_, at_ns): &(&ServerName, &u64)| **at_ns <= now_ns;
        let due: Vec<ServerName> =
            self.0.lock().to_forget.iter().filter(is_due).map(|(server, _)| server.clone()).collect();
        for server in due {
            match cluster.servers.standing(&server) {
                Standing::Gone => self.forget(cluster, &server),
                // It is forgotten when it is recovered.
                Standing::Online | Standing::Recovering => _ = self.0.lock().to_forget.remove(&server),
            }
        }
    }

    /// Once in the life of a master. What an earlier one has noted is left alone for the time of the lease: should the server not be
    /// recovered, who asks for it has to wait for so long.
    fn list_deposed(&self, cluster: &ClusterServices, now_ns: u64) {
        let is_due = self.0.lock().list_deposed_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !is_due {
            return;
        }
        match cluster.coordination.deposed() {
            Ok(deposed) => {
                let mut state = self.0.lock();
                state.list_deposed_ns = None;
                for (server, lease) in deposed {
                    let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
                    state.to_forget.entry(server).or_insert(now_ns.saturating_add(lease_ns));
                }
            }
            Err(error) => {
                info!(%error, "it is not known which servers earlier masters have deposed");
                self.0.lock().list_deposed_ns = Some(now_ns.saturating_add(FORGET_PAUSE_NS));
            }
        }
    }

    fn forget(&self, cluster: &ClusterServices, server: &ServerName) {
        let forgotten = cluster.coordination.forget_deposed(server);
        let now_ns = cluster.wals.env.clock.boot_ns();
        let to_forget = &mut self.0.lock().to_forget;
        match forgotten {
            Ok(()) => _ = to_forget.remove(server),
            Err(error) => {
                info!(%server, %error, "what was noted of a dead server is deleted later");
                to_forget.insert(server.clone(), now_ns.saturating_add(FORGET_PAUSE_NS));
            }
        }
    }
}

impl State {
    /// Servers come and go, so that the sets do not grow.
    fn forget_all_but(&mut self, online: &[ServerName]) {
        if self.seen.len() + self.looks.len() <= online.len() {
            return;
        }
        let online: HashSet<&ServerName> = online.iter().collect();
        self.seen.retain(|server| online.contains(server));
        self.looks.retain(|server, _| online.contains(server));
        assert!(
            self.seen.len() + self.looks.len() <= online.len(),
            "a server is looked for until its WALs were seen, and not any more then"
        );
    }
}
