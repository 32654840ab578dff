//! Which of several masters is the active one.
//!
//! ```text
//! backup-masters/<server>    ephemeral; a master that waits
//! master                     ephemeral; the active master
//! halcyon/master-epoch       how often a master of Halcyon became active, as decimal text
//! ```
//!
//! A master becomes active by one transaction: it creates `master`, writes it once more, raises the epoch and deletes its znode below
//! `backup-masters`. So a leadership is known by two numbers that are equal: the transaction that created `master` and the
//! one that last wrote the epoch. A master whose answer was lost finds its leadership by them.
//!
//! HBase's masters take part: they create the same znodes, and each reads those of the others. They do not raise the epoch, and they write
//! `master` once only: the version of its data is 0, and that of a znode of this program is not. Each deletion names the version, so it
//! never hits the znode of a master of HBase that became active meanwhile.
//!
//! A master that waits need not wait for the session of the active one: it may be told how to notice that the active one's process has
//! ended ([`Candidate::watching`]), or the znode names an earlier process of Halcyon at its own address. Then it replaces the znode `master` in the
//! transaction by which it becomes active. In two transactions another one could come between, which would not know that the first may
//! live. Why that is safe although the notice may be wrong:
//!
//! - Only a znode that a master of Halcyon made is replaced: the transaction that made it also wrote the epoch last. Masters of HBase are
//!   left to their sessions, and so are those of programs that have written their znode once only.
//! - The transaction names the version of the epoch, which another master of Halcyon raises, and that of the znode, which none of HBase
//!   has. If any other master became active meanwhile, nothing is done.
//! - A master that lives learns of it by its watch on the znode, which is to it as if its session had expired: its lease is lost, and
//!   its process ends. Should it not hear of ZooKeeper either, it stops to act when its lease ends.
//! - Whatever it does until then is refused as after an expiry: the epoch refuses what it writes to ZooKeeper, and its WALs are
//!   taken from it before its successor acts. Other files it may change until its lease ends: its successor, which knows that
//!   ([`Leadership::predecessor_lease`]), lets nobody make again what a procedure deletes that it has taken over. How long the lease
//!   lasts says the znode that is replaced (`predecessor.rs`). The new znode says no less, and what is left of it counts when that is gone
//!   soon. A master does not resign before that time is over.
//!
//! What must hold: the epoch grows with every master that becomes active, and it never goes back. The znode must not be deleted
//! while masters run. If it holds something else than a number, no master becomes active.
//!
//! ZooKeeper's data may be lost, or be those of a backup, and files of masters are not: they have names with epochs. So a master becomes
//! active with an epoch above the highest of these as well ([`Candidate::above`]).
//!
//! Checked against `ActiveMasterManager` and `ZKWatcher.createBaseZNodes` of HBase 2.6.4.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_coord::{Lease, LeaseState};
use halcyon_env::Clock;
use halcyon_schema::znode::{self, ActiveMaster};
use halcyon_schema::{NamespaceDescriptor, ServerName};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client as zk;

use crate::cluster::{Runner, ZooKeeperCluster};
use crate::leadership::{Leadership, Raised};
use crate::own::{OwnZnode, lease_time, read_owner};
use crate::predecessor::{Predecessors, ShownLeases, ShownMaster};
use crate::session::{Answer, Session};
use crate::transaction::{Outcome, Write, commit};
use crate::znodes::{Created, SessionZnodes, Znodes, read_data};

/// After an error, before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// After a transaction that came too late, before the next attempt.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// The znode below `backup-masters` may be that of an earlier session, or vanish; so often it is created again.
const ATTEMPTS_MAX: usize = 8;
/// HBase's masters write their znode once. This is the version of its data, and of none that this program has made.
const VERSION_OF_HBASE: i32 = 0;

/// A master that takes part in the election.
///
/// Elections run on the thread of the session. A candidate that is dropped takes part no longer, but stays active if it was
/// elected, until [`Leadership::resign`] or the end of the session.
///
/// *Thread safety*: of several calls of [`Candidate::elected`], one waits for the other.
pub struct Candidate {
    standing: Standing,
    runner: Runner,
    election: Mutex<Election>,
}

/// Ends when the process of a server has certainly ended: nothing listens at its address.
type ProcessEnd = dyn Fn(ServerName) -> BoxFuture<'static, ()> + Send + Sync;

/// The highest epoch of a master that has left something elsewhere than in ZooKeeper.
type HighestEpoch = dyn Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync;

/// What this candidate does. The set holds one election at most.
#[derive(Default)]
struct Election {
    running: JoinSet<Result<Leadership>>,
    won: Option<Leadership>,
}

/// A candidate as its tasks know it.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runner: Runner,
    pub(crate) master: ActiveMaster,
    process_end: Option<Arc<ProcessEnd>>,
    highest_epoch: Option<Arc<HighestEpoch>>,
}

impl ZooKeeperCluster {
    /// Makes `master` known as one that waits to become active. Znodes of HBase that are missing are created.
    pub async fn stand(&self, master: &ServerName, info_port: u16) -> Result<Candidate> {
        let (session, clock, runner) = self.parts();
        let master = ActiveMaster { server: master.clone(), info_port };
        let (process_end, highest_epoch) = (None, None);
        let standing =
            Standing { session, clock, runner: runner.clone(), master, process_end, highest_epoch };
        let begins = standing.clone();
        let begun = async move {
            begins.create_base().await?;
            begins.create_backup().await
        };
        runner.clone().run(begun).await?;
        Ok(Candidate { standing, runner, election: Mutex::default() })
    }
}

impl Candidate {
    /// With a way to notice that the process of the active master has ended. Its place is taken then, before its session expires.
    /// To be called before the first election.
    pub fn watching(
        mut self,
        process_end: impl Fn(ServerName) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Candidate {
        self.standing.process_end = Some(Arc::new(process_end));
        self
    }

    /// With a look for the highest epoch of a master that has left something elsewhere, which the epoch of this one is to be above.
    /// While that fails, nobody becomes active. To be called before the first election.
    pub fn above(
        mut self,
        highest_epoch: impl Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync + 'static,
    ) -> Candidate {
        self.standing.highest_epoch = Some(Arc::new(highest_epoch));
        self
    }

    /// Waits until this master is the active one. While it is, each call gives the same leadership. After a loss it stands again.
    ///
    /// An error of kind `Expired`: the session has ended. `Corrupt`: the epoch cannot be read.
    ///
    /// Cancel safe: the election continues, and the next call waits for it.
    pub async fn elected(&self) -> Result<Leadership> {
        let mut election = self.election.lock().await;
        if let Some(leadership) = &election.won
            && !matches!(leadership.lease().state(), LeaseState::Lost(_))
        {
            return Ok(leadership.clone());
        }
        election.won = None;
        assert!(election.running.len() <= 1, "a candidate stands once: two of it would depose each other");
        if election.running.is_empty() {
            election.running.spawn_on(self.standing.clone().run(), &self.runner.0);
        }
        let elected = match election.running.join_next().await.expect("an election is running") {
            Ok(elected) => elected,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::new(ErrorKind::Stopping, "the session with ZooKeeper was closed")),
        };
        election.won = elected.as_ref().ok().cloned();
        elected
    }
}

/// What an attempt to become active has come to.
enum Attempt {
    Elected(Leadership),
    /// Something has changed meanwhile.
    Again,
    /// Another master is active, until the watch fires. With its znode, if the end of its process is looked for.
    Wait(zk::OneshotWatcher, Option<Rival>),
}

/// What a look at `master` and the epoch has found.
enum Sight {
    /// This session has `master`.
    Own,
    /// Another master is active: as in [`Attempt::Wait`].
    Another(zk::OneshotWatcher, Option<Rival>),
    /// This master may become active, with an epoch above this one, which has this version. `replaces`: the version of the `master` that
    /// is there.
    Free { epoch: u64, version: i32, replaces: Option<i32> },
}

/// The znode of an active master of Halcyon, which may be replaced.
struct Rival {
    server: ServerName,
    /// Tells it from other znodes of the path.
    created: i64,
}

/// What an election need not do twice.
#[derive(Default)]
struct Progress {
    /// The znode below `backup-masters` is there.
    is_listed: bool,
    /// The transaction that last wrote the znode of another master, which is in the log.
    logged: Option<i64>,
    /// The transaction that created the znode of which the log says why it is replaced.
    logged_end: Option<i64>,
    /// The end of the process whose znode was created by this transaction.
    process_end: Option<(i64, BoxFuture<'static, ()>)>,
    /// The process whose znode was created by this transaction has ended.
    ended: Option<i64>,
    /// Masters that may act though they are not active.
    predecessors: Predecessors,
}

/// What is done about the `master` znode of another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its master is active.
    Wait,
    /// This master takes its place, in the transaction by which it becomes active.
    Replace,
}

/// `is_replaceable`: the transaction that made it also wrote the epoch last, and the version of its data says that it is of no master of
/// HBase. `is_earlier_life`: it names a process before this one at the same address. `has_ended`: its process has ended.
///
/// HBase's masters delete the znode of an earlier life at their address, whosever it is by then. Here it goes with its session.
fn verdict(is_replaceable: bool, is_earlier_life: bool, has_ended: bool) -> Verdict {
    if is_replaceable && (is_earlier_life || has_ended) { Verdict::Replace } else { Verdict::Wait }
}

impl Progress {
    /// Looks for the end of the process of this master, and of no other.
    fn look_for_end(&mut self, rival: Option<Rival>, process_end: Option<&Arc<ProcessEnd>>) {
        let is_known = |known: &(i64, _)| rival.as_ref().is_some_and(|rival| rival.created == known.0);
        if self.process_end.as_ref().is_some_and(is_known) {
            return;
        }
        self.process_end = rival.zip(process_end).map(|(rival, end)| (rival.created, end(rival.server)));
    }

    /// Waits for the end that is looked for.
    async fn process_ended(&mut self) {
        match &mut self.process_end {
            Some((created, ended)) => {
                ended.await;
                self.ended = Some(*created);
                self.process_end = None;
            }
            None => std::future::pending().await,
        }
    }
}

impl Standing {
    /// Runs until this master is active, or can never be.
    async fn run(self) -> Result<Leadership> {
        let mut progress = Progress::default();
        loop {
            match self.attempt(&mut progress).await {
                Ok(Attempt::Elected(leadership)) => return Ok(leadership),
                Ok(Attempt::Again) => sleep(SHORT_PAUSE).await,
                Ok(Attempt::Wait(changed, rival)) => {
                    progress.look_for_end(rival, self.process_end.as_ref());
                    tokio::select! {
                        // Should a watch be lost, the cluster must not be without a master for long.
                        _ = timeout(self.session.timeout(), changed.changed()) => {}
                        _ = self.session.ended() => {}
                        () = progress.process_ended() => {}
                    }
                }
                // ZooKeeper is away, for example; the session may live.
                Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy) => {
                    warn!("{error}");
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&self, progress: &mut Progress) -> Result<Attempt> {
        let mut left_epoch = self.highest_epoch.is_none().then_some(0);
        loop {
            let sight = self.look(progress).await?;
            let (epoch, version, replaces) = match sight {
                Sight::Own => return self.take_up(&progress.predecessors).await,
                Sight::Another(changed, rival) => return Ok(Attempt::Wait(changed, rival)),
                Sight::Free { epoch, version, replaces } => (epoch, version, replaces),
            };
            let Some(left) = left_epoch else {
                // It may take long. What was seen is old then.
                left_epoch = Some(self.left_epoch().await?);
                continue;
            };
            let epoch = self.above(epoch, left);
            return self.become_active(epoch, version, replaces, &progress.predecessors).await;
        }
    }

    /// Looks who is active, and decides what is to be done about it.
    async fn look(&self, progress: &mut Progress) -> Result<Sight> {
        let (at, path) = (self.session.settings(), self.session.settings().paths.master());
        // The epoch comes first: if it is still the same later, no other master of Halcyon became active.
        let (epoch, written) = self.read_epoch().await?;
        let (found, changed) = read_data(&self.session, &path).await?;
        let now_ns = self.clock.boot_ns();
        let Some((data, stat)) = found else {
            progress.predecessors.gone(now_ns);
            return Ok(Sight::Free { epoch, version: written.version, replaces: None });
        };
        if stat.ephemeral_owner == self.session.id() {
            return Ok(Sight::Own);
        }
        let shown = ShownLeases::of(&path, &data, lease_time(&self.session));
        progress.predecessors.saw((stat.czxid, stat.mzxid), &shown, now_ns);
        let active = ActiveMaster::decode(&path, &data);
        let is_replaceable = stat.czxid == written.mzxid && stat.version > VERSION_OF_HBASE;
        let earlier = active.as_ref().ok().filter(|active| self.is_earlier_life(&active.server));
        if verdict(is_replaceable, earlier.is_some(), progress.ended == Some(stat.czxid)) == Verdict::Replace
        {
            if progress.logged_end.replace(stat.czxid) != Some(stat.czxid) {
                match earlier {
                    Some(it) => info!("{at}: {path} names {}, an earlier life of this master", it.server),
                    None => info!("{at}: the process of the active master has ended"),
                }
            }
            progress.predecessors.replaces(stat.czxid, shown.lease);
            return Ok(Sight::Free { epoch, version: written.version, replaces: Some(stat.version) });
        }
        if !progress.is_listed {
            self.create_backup().await?;
            progress.is_listed = true;
        }
        if progress.logged.replace(stat.mzxid) != Some(stat.mzxid) {
            self.log_active(&active, &stat);
        }
        let rival = active.ok().filter(|_| is_replaceable);
        let rival = rival.map(|active| Rival { server: active.server, created: stat.czxid });
        Ok(Sight::Another(changed, rival))
    }

    fn log_active(&self, active: &Result<ActiveMaster>, stat: &zk::Stat) {
        let (at, waits) = (self.session.settings(), &self.master.server);
        match active {
            Ok(active) if self.is_earlier_life(&active.server) => {
                info!(
                    "{at}: {}, an earlier life of {waits}, is the active master until its session ends",
                    active.server
                );
            }
            Ok(active) => info!("{at}: {} is the active master; {waits} waits", active.server),
            Err(error) => warn!("{at}: {error}; {waits} waits until it is gone"),
        }
        if stat.ephemeral_owner == 0 {
            warn!("{at}: the znode of the active master belongs to no session; delete it if no master runs");
        }
    }

    /// Whether this process, or one before it at the same address, wrote the name. One that began later is none of them.
    fn is_earlier_life(&self, active: &ServerName) -> bool {
        let own = &self.master.server;
        active.host == own.host && active.port == own.port && active.start_code <= own.start_code
    }

    /// `replaces` is the version of the data of a `master` znode that is there. `before`: as in [`Standing::take_up`].
    async fn become_active(
        &self,
        epoch: u64,
        version: i32,
        replaces: Option<i32>,
        before: &Predecessors,
    ) -> Result<Attempt> {
        let predecessor = before.left(self.clock.boot_ns());
        assert!(
            replaces.is_none() || predecessor.is_some(),
            "a master whose znode is replaced may live, and its lease counts"
        );
        assert!(
            replaces.is_none_or(|version| version > VERSION_OF_HBASE),
            "it could be the znode of a master of HBase"
        );
        let paths = &self.session.settings().paths;
        let next = epoch
            .checked_add(1)
            .ok_or_else(|| Error::corrupt(format!("{}: {epoch} cannot be raised", paths.master_epoch())))?;
        let backup = paths.backup_master(&self.master.server);
        let delete = replaces.map(|version| Write::Delete { path: paths.master(), version: Some(version) });
        let deletes = usize::from(delete.is_some());
        let data = self.data(predecessor);
        let creates = [
            Write::Create { path: paths.master(), data: data.clone(), mode: zk::CreateMode::Ephemeral },
            // From here on its version is none of HBase's.
            Write::Set { path: paths.master(), data, version: Some(VERSION_OF_HBASE) },
            Write::Set {
                path: paths.master_epoch(),
                data: znode::encode_epoch(next),
                version: Some(version),
            },
            Write::Delete { path: backup.clone(), version: None },
        ];
        let what = format!("create {} with epoch {next}", paths.master());
        let writes: Vec<Write> = delete.into_iter().chain(creates).collect();
        let outcome = commit(&self.session, &what, &writes).await?;
        let Outcome::Refused { index, why } = outcome else { return self.take_up(before).await };
        match (index.checked_sub(deletes), why) {
            // Another master was faster, or an earlier attempt was carried out.
            (None, zk::Error::BadVersion | zk::Error::NoNode)
            | (Some(0), zk::Error::NodeExists)
            | (Some(2), zk::Error::BadVersion | zk::Error::NoNode) => Ok(Attempt::Again),
            (Some(3), zk::Error::NoNode) => {
                info!("{}: {backup} was deleted; creating it again", self.session.settings());
                self.create_backup().await?;
                Ok(Attempt::Again)
            }
            (_, why) => Err(self.session.error(ErrorKind::Io, &what, &why.to_string())),
        }
    }

    /// The highest epoch of a master that has left something elsewhere.
    async fn left_epoch(&self) -> Result<u64> {
        let Some(look) = &self.highest_epoch else { return Ok(0) };
        let what = "find the highest epoch of earlier masters";
        // Whatever is wrong there, it is looked for again.
        look().await.map_err(|error| self.session.error(ErrorKind::Io, what, error.message()))
    }

    /// The highest epoch of all masters: that of ZooKeeper, unless its data were lost.
    fn above(&self, epoch: u64, left: u64) -> u64 {
        if left > epoch {
            let (at, path) = (self.session.settings(), self.session.settings().paths.master_epoch());
            warn!(
                "{at}: {path} says {epoch}, and a master has left files with epoch {left}: were data of ZooKeeper lost?"
            );
        }
        epoch.max(left)
    }

    /// The leadership of the `master` znode that this session owns.
    ///
    /// Again if it is gone, or the epoch was written by others since. Then the znode is deleted, because it would keep every
    /// master from becoming active. `before`: what is known of masters before this one.
    async fn take_up(&self, before: &Predecessors) -> Result<Attempt> {
        let (at, paths) = (self.session.settings(), &self.session.settings().paths);
        let lease = Arc::new(Lease::new(self.master.server.clone(), self.clock.clone()));
        let Some(own) = OwnZnode::find(&self.session, paths.master(), &lease, &*self.clock).await? else {
            return Ok(Attempt::Again);
        };
        let path = paths.master_epoch();
        let ask = |client: zk::Client| {
            let path = &path;
            async move { client.get_data(path).await }
        };
        let Answer::Done((data, stat)) = self.session.call(&format!("read {path}"), ask).await? else {
            return Err(self.session.error(ErrorKind::Corrupt, "read the epoch", &format!("{path} is gone")));
        };
        if stat.mzxid != own.created {
            warn!("{at}: {path} was written by others than this active master; it gives up {}", own.path);
            self.delete_master(&own, stat.version).await?;
            return Ok(Attempt::Again);
        }
        let epoch = znode::decode_epoch(&path, &data)?;
        let predecessor_lease = before.left(self.clock.boot_ns());
        info!("{at}: {} is the active master, with epoch {epoch}", self.master.server);
        tokio::spawn(own.clone().renewals(lease.clone(), self.clock.clone()));
        let raised = Raised { epoch, version: stat.version, predecessor_lease };
        let leadership = Leadership::new(self.clone(), own, lease, raised);
        if let Some(left) = predecessor_lease {
            tokio::spawn(leadership.clone().outlive_predecessor(left));
        }
        Ok(Attempt::Elected(leadership))
    }

    /// Deletes the own znode `master` if the epoch has this version still.
    async fn delete_master(&self, own: &OwnZnode, version: i32) -> Result<()> {
        let paths = &self.session.settings().paths;
        let writes = [
            Write::Check { path: paths.master_epoch(), version: Some(version) },
            Write::Delete { path: paths.master(), version: Some(own.version) },
        ];
        // Whatever is refused here is looked at again.
        commit(&self.session, &format!("delete {}", paths.master()), &writes).await.map(drop)
    }

    /// The epoch and its znode, which is created if it is missing.
    async fn read_epoch(&self) -> Result<(u64, zk::Stat)> {
        let path = self.session.settings().paths.master_epoch();
        for _ in 0..ATTEMPTS_MAX {
            let ask = |client: zk::Client| {
                let path = &path;
                async move { client.get_data(path).await }
            };
            if let Answer::Done((data, stat)) = self.session.call(&format!("read {path}"), ask).await? {
                return Ok((znode::decode_epoch(&path, &data)?, stat));
            }
            self.create_persistent(&path, &znode::encode_epoch(0)).await?;
        }
        Err(self.session.error(ErrorKind::Busy, "read the epoch", &format!("{path} comes and goes")))
    }

    /// What `master` and the znode below `backup-masters` say. `predecessor`: so long one before this master may act.
    pub(crate) fn data(&self, predecessor: Option<Duration>) -> Vec<u8> {
        let shown = ShownMaster::of(&self.master, lease_time(&self.session), predecessor);
        znode::encode(&self.writer(), halcyon_env::random_bytes(), &shown)
    }

    /// Who writes, as HBase's master says it.
    pub(crate) fn writer(&self) -> String {
        format!("master:{}", self.master.server.port)
    }

    async fn create_base(&self) -> Result<()> {
        let paths = &self.session.settings().paths;
        for name in znode::EMPTY {
            self.create_persistent(&paths.below(name), b"").await?;
        }
        for name in znode::NAMESPACES {
            let namespace = NamespaceDescriptor::new(*name).to_pb();
            let data = znode::encode_namespace(&self.writer(), halcyon_env::random_bytes(), &namespace);
            self.create_persistent(&paths.namespace(name), &data).await?;
        }
        Ok(())
    }

    /// Creates a znode and its parents, those of them that are missing.
    async fn create_persistent(&self, path: &str, data: &[u8]) -> Result<()> {
        let znodes = SessionZnodes(self.session.clone());
        if znodes.create(path, data).await? != Created::NoParent {
            return Ok(());
        }
        for (end, _) in path.match_indices('/').skip(1) {
            znodes.create(&path[..end], b"").await?;
        }
        znodes.create(path, data).await.map(drop)
    }

    /// Creates the znode below `backup-masters`.
    async fn create_backup(&self) -> Result<()> {
        let path = self.session.settings().paths.backup_master(&self.master.server);
        let (data, options) = (self.data(None), zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all()));
        for _ in 0..ATTEMPTS_MAX {
            let ask = |client: zk::Client| {
                let (path, data, options) = (&path, &data, &options);
                async move { client.create(path, data, options).await.map(drop) }
            };
            match self.session.call(&format!("create {path}"), ask).await? {
                Answer::Done(()) => return Ok(()),
                Answer::NoNode => self.create_base().await?,
                // The name has the start code of this process: the znode is its own, perhaps of a session that was lost.
                Answer::NodeExists => match read_owner(&self.session, &path).await? {
                    Some(owner) if owner == self.session.id() => return Ok(()),
                    Some(_) => {
                        self.session
                            .call(&format!("delete {path}"), |client| client.delete(&path, None))
                            .await?;
                    }
                    None => {}
                },
            }
        }
        Err(self.session.error(ErrorKind::Busy, "stand for election", &format!("{path} comes and goes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The znode of an earlier process at the own address was deleted in a transaction of its own. Another master, which waited, became
    /// active before this one, and knew of no predecessor. Or the znode was that of a master of HBase that had just become active.
    #[test]
    fn a_znode_is_replaced_or_left_to_its_session() {
        for (is_earlier_life, has_ended) in [(false, false), (false, true), (true, false), (true, true)] {
            let own = verdict(true, is_earlier_life, has_ended);
            assert_eq!(own == Verdict::Replace, is_earlier_life || has_ended);
            assert_eq!(verdict(false, is_earlier_life, has_ended), Verdict::Wait);
        }
    }
}
