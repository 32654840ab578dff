//! Which of several masters is the active one.
//!
//! ```text
//! backup-masters/<server>    ephemeral; a master that waits
//! master                     ephemeral; the active master
//! halcyon/master-epoch       how often a master of Halcyon became active, as decimal text
//! ```
//!
//! A master becomes active by one transaction: it creates `master`, raises the epoch and deletes its znode below
//! `backup-masters`. So a leadership is known by two numbers that are equal: the transaction that created `master` and the
//! one that last wrote the epoch. A master whose answer was lost finds its leadership by them.
//!
//! HBase's masters take part: they create the same znodes, and each reads those of the others. They do not raise the epoch.
//!
//! A master that waits need not wait for the session of the active one: it may be told how to notice that the active one's process has
//! ended ([`Candidate::watching`]), or the znode names an earlier process at its own address. Then it replaces the znode `master` in the
//! transaction by which it becomes active. In two transactions another one could come between, which would not know that the first may
//! live. Why that is safe although the notice may be wrong:
//!
//! - Only a znode that a master of Halcyon made is replaced: the transaction that made it also wrote the epoch last. Masters of HBase are
//!   left to their sessions.
//! - The transaction names the version of the epoch, and that of the znode. If any other master became active meanwhile, nothing is done.
//! - A master that lives learns of it by its watch on the znode, which is to it as if its session had expired: its lease is lost, and
//!   its process ends. Should it not hear of ZooKeeper either, it stops to act when its lease ends.
//! - Whatever it does until then is refused as after an expiry: the epoch refuses what it writes to ZooKeeper, and its WALs are
//!   taken from it before its successor acts. Other files it may change until its lease ends: its successor, which knows that
//!   ([`Leadership::predecessor_lease`]), lets nobody make again what a procedure deletes that it has taken over. How long the lease
//!   lasts says the znode that is replaced, in a field that HBase passes over. The new znode says no less, and a master does not
//!   resign before that time is over: the third master would not know of the first one.
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
use halcyon_proto::pb;
use halcyon_schema::znode::{self, ActiveMaster};
use halcyon_schema::{NamespaceDescriptor, ServerName};
use prost::Message;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client as zk;

use crate::cluster::{Runner, ZooKeeperCluster};
use crate::leadership::{Leadership, Raised};
use crate::own::{OwnZnode, lease_ms, lease_time, read_owner};
use crate::session::{Answer, Session};
use crate::transaction::{Outcome, Write, commit};
use crate::znodes::{Created, SessionZnodes, Znodes, read_data};

/// After an error, before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// After a transaction that came too late, before the next attempt.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// The znode below `backup-masters` may be that of an earlier session, or vanish; so often it is created again.
const ATTEMPTS_MAX: usize = 8;

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

/// The znode of an active master of Halcyon.
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
    /// The end of the process whose znode was created by this transaction.
    process_end: Option<(i64, BoxFuture<'static, ()>)>,
    /// The process whose znode was created by this transaction has ended.
    ended: Option<i64>,
    /// The znode of a master was taken that may live, and for how long that may act: its process has ended as far as this one could see,
    /// or its address was given to another machine. The transaction that replaces it may have been carried out without an answer.
    replaced: Option<Duration>,
}

/// What is done about the `master` znode of another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its master is active.
    Wait,
    /// This master takes its place, in the transaction by which it becomes active.
    Replace,
    /// It is deleted. A transaction that replaced it would not show that no master of Halcyon became active meanwhile.
    Delete,
}

/// `is_of_halcyon`: the transaction that made it also wrote the epoch last. `is_earlier_life`: it names a process before this one at the
/// same address. `has_ended`: its process has ended.
fn verdict(is_of_halcyon: bool, is_earlier_life: bool, has_ended: bool) -> Verdict {
    match (is_of_halcyon, is_earlier_life, has_ended) {
        (true, true, _) | (true, _, true) => Verdict::Replace,
        (false, true, _) => Verdict::Delete,
        (_, false, _) => Verdict::Wait,
    }
}

/// HBase's `Master`, and what a master of Halcyon asks that takes its place. HBase passes over fields that it does not know.
#[derive(Clone, PartialEq, Message)]
struct ShownMaster {
    #[prost(message, required, tag = "1")]
    master: pb::ServerName,
    #[prost(uint32, optional, tag = "2")]
    rpc_version: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    info_port: Option<u32>,
    /// How long the master may act after its znode was deleted, or the one whose znode it has replaced.
    #[prost(uint64, optional, tag = "1000")]
    lease_ms: Option<u64>,
}

impl ShownMaster {
    fn of(master: &ActiveMaster, lease: Duration) -> ShownMaster {
        let pb::Master { master, rpc_version, info_port } = master.to_pb();
        ShownMaster { master, rpc_version, info_port, lease_ms: Some(lease_ms(lease)) }
    }
}

/// How long the master with these data may act after its znode was deleted: at least as long as `own`, which is known of those that do
/// not say it.
fn lease_of(path: &str, data: &[u8], own: Duration) -> Duration {
    let shown: Result<ShownMaster> = znode::message(path, data);
    let shown = shown.ok().and_then(|shown| shown.lease_ms).map(Duration::from_millis);
    shown.map_or(own, |shown| shown.max(own))
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
        let (at, path) = (self.session.settings(), self.session.settings().paths.master());
        // The epoch comes first: if it is still the same later, no other master of Halcyon became active.
        let (epoch, written) = self.read_epoch().await?;
        let (found, changed) = read_data(&self.session, &path).await?;
        let Some((data, stat)) = found else {
            return self.become_active(epoch, written.version, None, progress.replaced).await;
        };
        if stat.ephemeral_owner == self.session.id() {
            return self.take_up(progress.replaced).await;
        }
        let active = ActiveMaster::decode(&path, &data);
        let is_of_halcyon = stat.czxid == written.mzxid;
        let earlier = active.as_ref().ok().filter(|active| self.is_earlier_life(&active.server));
        let verdict = verdict(is_of_halcyon, earlier.is_some(), progress.ended == Some(stat.czxid));
        if verdict != Verdict::Wait {
            match earlier {
                Some(it) => info!("{at}: {path} names {}, an earlier life of this master", it.server),
                None => info!("{at}: the process of the active master has ended"),
            }
            let lease = lease_of(&path, &data, lease_time(&self.session));
            progress.replaced = progress.replaced.max(Some(lease));
            if verdict == Verdict::Delete {
                self.delete_master(written.version).await?;
                return Ok(Attempt::Again);
            }
            let replaces = Some(stat.version);
            return self.become_active(epoch, written.version, replaces, progress.replaced).await;
        }
        if !progress.is_listed {
            self.create_backup().await?;
            progress.is_listed = true;
        }
        if progress.logged.replace(stat.mzxid) != Some(stat.mzxid) {
            self.log_active(&active, &stat);
        }
        let rival = active.ok().filter(|_| is_of_halcyon);
        let rival = rival.map(|active| Rival { server: active.server, created: stat.czxid });
        Ok(Attempt::Wait(changed, rival))
    }

    fn log_active(&self, active: &Result<ActiveMaster>, stat: &zk::Stat) {
        let (at, waits) = (self.session.settings(), &self.master.server);
        match active {
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

    /// `replaces` is the version of the data of a `master` znode that is there. `replaced`: as in [`Standing::take_up`].
    async fn become_active(
        &self,
        epoch: u64,
        version: i32,
        replaces: Option<i32>,
        replaced: Option<Duration>,
    ) -> Result<Attempt> {
        assert!(
            replaces.is_none() || replaced.is_some(),
            "a master whose znode is replaced may live, and its lease counts"
        );
        let paths = &self.session.settings().paths;
        let epoch = self.highest_epoch(epoch).await?;
        let next = epoch
            .checked_add(1)
            .ok_or_else(|| Error::corrupt(format!("{}: {epoch} cannot be raised", paths.master_epoch())))?;
        let backup = paths.backup_master(&self.master.server);
        let delete = replaces.map(|version| Write::Delete { path: paths.master(), version: Some(version) });
        let deletes = usize::from(delete.is_some());
        let creates = [
            Write::Create {
                path: paths.master(),
                data: self.data(replaced),
                mode: zk::CreateMode::Ephemeral,
            },
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
        let Outcome::Refused { index, why } = outcome else { return self.take_up(replaced).await };
        match (index.checked_sub(deletes), why) {
            // Another master was faster, or an earlier attempt was carried out.
            (None, zk::Error::BadVersion | zk::Error::NoNode)
            | (Some(0), zk::Error::NodeExists)
            | (Some(1), zk::Error::BadVersion | zk::Error::NoNode) => Ok(Attempt::Again),
            (Some(2), zk::Error::NoNode) => {
                info!("{}: {backup} was deleted; creating it again", self.session.settings());
                self.create_backup().await?;
                Ok(Attempt::Again)
            }
            (_, why) => Err(self.session.error(ErrorKind::Io, &what, &why.to_string())),
        }
    }

    /// The highest epoch of all masters: that of ZooKeeper, unless its data were lost.
    async fn highest_epoch(&self, epoch: u64) -> Result<u64> {
        let Some(look) = &self.highest_epoch else { return Ok(epoch) };
        let what = "find the highest epoch of earlier masters";
        // Whatever is wrong there, it is looked for again.
        let left = look().await;
        let left = left.map_err(|error| self.session.error(ErrorKind::Io, what, error.message()))?;
        if left > epoch {
            let (at, path) = (self.session.settings(), self.session.settings().paths.master_epoch());
            warn!(
                "{at}: {path} says {epoch}, and a master has left files with epoch {left}: were data of ZooKeeper lost?"
            );
        }
        Ok(epoch.max(left))
    }

    /// The leadership of the `master` znode that this session owns.
    ///
    /// Again if it is gone, or the epoch was written by others since. Then the znode is deleted, because it would keep every
    /// master from becoming active. `replaced`: as in [`Progress`].
    async fn take_up(&self, replaced: Option<Duration>) -> Result<Attempt> {
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
            self.delete_master(stat.version).await?;
            return Ok(Attempt::Again);
        }
        let epoch = znode::decode_epoch(&path, &data)?;
        info!("{at}: {} is the active master, with epoch {epoch}", self.master.server);
        tokio::spawn(own.clone().renewals(lease.clone(), self.clock.clone()));
        let raised = Raised { epoch, version: stat.version, predecessor_lease: replaced };
        Ok(Attempt::Elected(Leadership::new(self.clone(), own, lease, raised)))
    }

    /// Deletes `master` if the epoch has this version still.
    async fn delete_master(&self, version: i32) -> Result<()> {
        let paths = &self.session.settings().paths;
        let writes = [
            Write::Check { path: paths.master_epoch(), version: Some(version) },
            Write::Delete { path: paths.master(), version: None },
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

    /// What `master` and the znode below `backup-masters` say. `replaced`: as in [`Progress`]. Whoever follows this master soon follows
    /// that one, too.
    fn data(&self, replaced: Option<Duration>) -> Vec<u8> {
        let lease = lease_time(&self.session);
        let shown = ShownMaster::of(&self.master, replaced.map_or(lease, |replaced| replaced.max(lease)));
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

    /// A master deleted the znode of an earlier process at its address, and another one, which waited, became active before it. That one knew
    /// of no predecessor that may act.
    #[test]
    fn only_znodes_of_others_are_deleted_before_an_election() {
        for has_ended in [false, true] {
            assert_eq!(verdict(true, true, has_ended), Verdict::Replace, "nobody comes between");
            assert_eq!(verdict(false, true, has_ended), Verdict::Delete);
            assert_eq!(verdict(false, false, has_ended), Verdict::Wait, "HBase's are left to their sessions");
        }
        assert_eq!(verdict(true, false, true), Verdict::Replace);
        assert_eq!(verdict(true, false, false), Verdict::Wait);
    }

    #[test]
    fn a_master_shows_how_long_it_may_act() {
        let (path, second) = ("/hbase/master", Duration::from_secs(1));
        let master = ActiveMaster { server: ServerName::new("m", 16000, 7), info_port: 16010 };
        let encoded =
            |lease: Duration| znode::encode("master:16000", [7; 8], &ShownMaster::of(&master, lease));
        let data = encoded(60 * second);
        assert_eq!(ActiveMaster::decode(path, &data).unwrap(), master, "HBase reads it as its own");
        let lease = lease_of(path, &data, 40 * second);
        assert!(lease >= 60 * second && lease < 61 * second, "{lease:?}: its session is longer than ours");
        assert_eq!(lease_of(path, &encoded(20 * second), 40 * second), 40 * second);
        // An earlier program, or HBase.
        let of_hbase = znode::encode("master:16000", [7; 8], &master.to_pb());
        for data in [&of_hbase[..], b"?"] {
            assert_eq!(lease_of(path, data, 40 * second), 40 * second);
        }
    }
}
