//! What a starting master recovers before it opens anything: what dead servers, and the master before it, have left.
//!
//! All of them at the same time, because most of it is waiting for HDFS. A WAL that nobody can read, or whose DataNodes are away, is of
//! concern to the regions that it has edits of, and to no others: so a start that waits for nothing else ends after [`PATIENCE`]. What is
//! not split by then is left to `ServerCrash`, and its regions stay closed meanwhile. Without what is left of `hbase:meta` there is no
//! start: that is waited for as long as it takes.
//!
//! What is left of it are all WALs of `hbase:meta` of the server that had it last. Where it was last is noted before it is opened there,
//! and that is ordered only when it was closed at the server before, or when all of its WALs there are split. So WALs of `hbase:meta` of
//! other servers have nothing that is not in its files, and are waited for like all others. If it is not known who had it last, all of
//! them count.
//!
//! A server is given up only while its WALs are split. Orders that are under way then have no effect but to split a WAL once more, as
//! those of a master before this one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::ClusterServices;
use halcyon_env::{Condvar, Mutex, spawn_thread};
use halcyon_schema::ServerName;
use tracing::error;

use crate::members::Members;
use crate::timeline::{Noticed, Timelines};
use crate::wal_split;

/// How long a start waits while no WAL is split, if those that are left have nothing of `hbase:meta`.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether it is over.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Recovers all dead servers; returns those that are recovered. Where one is not, its regions stay closed, and `recover_dead_servers`
/// tries again. An error if there is no start without it. `first` had `hbase:meta`: it does not wait behind the others.
pub(crate) fn recover_all(
    cluster: &ClusterServices,
    members: &Arc<Members>,
    first: Option<&ServerName>,
    threads: usize,
    timelines: &Arc<Timelines>,
) -> Result<Vec<ServerName>> {
    let mut dead = cluster.servers.recovering();
    dead.sort_by_key(|server| Some(server) != first);
    for server in &dead {
        timelines.noticed(server, Noticed::FoundAtTakeover, None);
    }
    // Before the first of them is waited for, so that the rests of their leases pass at the same time.
    members.depose_all(cluster, threads);
    let recovery = Arc::new(Recovery {
        meta_last: first.cloned(),
        cluster: cluster.clone(),
        members: Arc::clone(members),
        timelines: Arc::clone(timelines),
        threads,
        state: Mutex::new(State { count: dead.len(), waiting: dead.into(), ..State::default() }),
        changed: Condvar::new(),
    });
    let count = threads.max(1).min(recovery.state.lock().waiting.len());
    for _ in 0..count {
        let worker = Worker::of(&recovery);
        spawn_thread("master-recovers", move || worker.0.work())?;
    }
    recovery.wait()
}

struct Recovery {
    /// Who had `hbase:meta` last, if that is known.
    meta_last: Option<ServerName>,
    cluster: ClusterServices,
    members: Arc<Members>,
    timelines: Arc<Timelines>,
    /// Threads that split the WALs of one server.
    threads: usize,
    state: Mutex<State>,
    /// A server has ended, or a thread.
    changed: Condvar,
}

/// *Invariants*: each dead server is in one of these.
#[derive(Default)]
struct State {
    /// All of them.
    count: usize,
    waiting: VecDeque<ServerName>,
    splitting: BTreeSet<ServerName>,
    /// Their WALs are split. They are waited for.
    ending: BTreeSet<ServerName>,
    ended: Vec<Result<Option<ServerName>>>,
    /// The start does not wait for them. Some of them may be under way.
    given_up: BTreeSet<ServerName>,
    workers: usize,
}

impl State {
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.splitting.is_empty() && self.ending.is_empty()
    }

    fn check(&self) {
        let under_way = self.waiting.len() + self.splitting.len() + self.ending.len();
        assert_eq!(
            under_way + self.ended.len() + self.given_up.len(),
            self.count,
            "each dead server is recovered, or it is known why not: its regions would open without its edits"
        );
    }

    /// Unless its WALs were split meanwhile.
    fn give_up(&mut self, server: ServerName) {
        let count = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != server);
        if self.waiting.len() < count || self.splitting.remove(&server) {
            error!(%server, waited = ?PATIENCE, "the WALs of a dead server are not split yet: its regions stay closed for now");
            self.given_up.insert(server);
        }
    }
}

impl Recovery {
    fn work(&self) {
        loop {
            let server = {
                let state = &mut *self.state.lock();
                let Some(server) = state.waiting.pop_front() else { return };
                state.splitting.insert(server.clone());
                server
            };
            let result = match self.recover(&server) {
                Ok(()) => Ok(Some(server.clone())),
                Err(error) => self.not_recovered(&server, error),
            };
            let mut state = self.state.lock();
            if state.splitting.remove(&server) || state.ending.remove(&server) {
                state.ended.push(result);
            }
            state.check();
            self.changed.notify_all();
        }
    }

    fn recover(&self, server: &ServerName) -> Result<()> {
        let (cluster, members) = (&self.cluster, &self.members);
        let dir = wal_split::split_all(cluster, members, server, self.threads, &self.timelines)?;
        {
            let state = &mut *self.state.lock();
            if !state.splitting.remove(server) {
                assert!(state.given_up.contains(server), "{server} is not in recovery");
                return Err(Error::new(ErrorKind::Busy, "this start does not wait for it any more"));
            }
            state.ending.insert(server.clone());
        }
        wal_split::end(cluster, members, server, dir.as_deref())
    }

    fn not_recovered(&self, server: &ServerName, error: Error) -> Result<Option<ServerName>> {
        // Without a server nothing can be opened either, and soon there is one.
        if self.members.ready(&self.cluster).is_empty() || self.has_meta_edits(server)? {
            return Err(error);
        }
        error!(%server, %error, "a dead server is not recovered: its regions stay closed for now");
        Ok(None)
    }

    fn wait(&self) -> Result<Vec<ServerName>> {
        let clock = &self.cluster.wals.env.clock;
        let (mut split_count, mut since_ns) = (self.members.split_count(), clock.monotonic_ns());
        let mut state = self.state.lock();
        while !state.is_over() {
            if state.workers == 0 {
                return Err(Error::new(ErrorKind::Io, "a thread that recovers dead servers ended early"));
            }
            self.changed.wait_for(&mut state, LOOK_PAUSE);
            let (count, now_ns) = (self.members.split_count(), clock.monotonic_ns());
            // Once it has failed, the next start is not held up by what others still have to do.
            let has_failed = state.ended.iter().any(Result::is_err);
            if count != split_count && !has_failed {
                (split_count, since_ns) = (count, now_ns);
            }
            if now_ns.saturating_sub(since_ns) < PATIENCE.as_nanos() as u64 {
                continue;
            }
            let late: Vec<_> = state.waiting.iter().chain(&state.splitting).cloned().collect();
            drop(state);
            let without_meta = self.without_meta(late);
            state = self.state.lock();
            for server in without_meta? {
                state.give_up(server);
            }
            state.check();
        }
        let recovered: Result<Vec<_>> = state.ended.iter().cloned().collect(); // others may end yet
        let recovered: Vec<ServerName> = recovered?.into_iter().flatten().collect();
        assert!(
            recovered.iter().all(|server| !state.given_up.contains(server)),
            "a server that is given up has WALs that are not split"
        );
        Ok(recovered)
    }

    fn without_meta(&self, servers: Vec<ServerName>) -> Result<Vec<ServerName>> {
        let mut found = Vec::with_capacity(servers.len());
        for server in servers {
            if !self.has_meta_edits(&server)? {
                found.push(server);
            }
        }
        Ok(found)
    }

    /// Whether `hbase:meta` may have edits that are only in WALs of this server.
    fn has_meta_edits(&self, server: &ServerName) -> Result<bool> {
        let may_have = self.meta_last.as_ref().is_none_or(|last| last == server);
        Ok(may_have && wal_split::has_meta_wal(&self.cluster, server)?)
    }
}

/// A thread, which counts until it ends, however that is.
struct Worker(Arc<Recovery>);

impl Worker {
    fn of(recovery: &Arc<Recovery>) -> Worker {
        recovery.state.lock().workers += 1;
        Worker(recovery.clone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.state.lock().workers -= 1;
        self.0.changed.notify_all();
    }
}
