//! A znode that this session owns, and the lease that it gives to a server.

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_coord::{Lease, Loss};
use halcyon_env::Clock;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};
use zookeeper_client as zk;

use crate::ZooKeeperSettings;
use crate::session::{Answer, Asked, Ended, Session};
use crate::znodes::Change;

/// The lease is renewed so many times in a session timeout. ZooKeeper counts the timeout from the last renewal, so a server may pause
/// for the timeout less a renewal without losing its session: for 5.5 s of 6 s.
const RENEWALS: u32 = 12;
/// An answer is waited for so many periods of renewal.
const ANSWER_PERIODS: u32 = 4;

// An answer that is waited for comes while the lease of the last renewal is valid.
const _: () = assert!(
    ANSWER_PERIODS < RENEWALS * LEASE_PART / LEASE_PARTS,
    "a question takes less time than a lease lasts"
);

/// A check of a znode that has any version.
const ANY_VERSION: i32 = -1;

/// The part of the session timeout that a lease lasts: two of three.
const LEASE_PART: u32 = 2;
const LEASE_PARTS: u32 = 3;

const _: () = assert!(LEASE_PART < LEASE_PARTS, "a lease ends before the session does");

/// The lease lasts for two thirds of the session timeout, from the question on.
pub(crate) fn lease_time(session: &Session) -> Duration {
    session.timeout() * LEASE_PART / LEASE_PARTS
}

/// A lease as znodes show it, not rounded down.
pub(crate) fn lease_ms(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

/// An ephemeral znode of this session.
#[derive(Clone)]
pub(crate) struct OwnZnode {
    pub(crate) session: Arc<Session>,
    pub(crate) path: String,
    /// Tells it from a later znode of the same path, which this session may own as well (ZooKeeper: `czxid`).
    pub(crate) created: i64,
    /// Of its data, when it was found.
    pub(crate) version: i32,
}

impl OwnZnode {
    /// The znode, if there is one and the session owns it. Then the lease is renewed for the first time.
    pub(crate) async fn find(
        session: &Arc<Session>,
        path: String,
        lease: &Lease,
        clock: &dyn Clock,
    ) -> Result<Option<OwnZnode>> {
        let asked_ns = clock.boot_ns();
        let ask = |client| read_stat(client, &path);
        let Answer::Done(Some(stat)) = session.call(&format!("read {path}"), ask).await? else {
            return Ok(None);
        };
        if stat.ephemeral_owner != session.id() {
            return Ok(None);
        }
        lease.renew(asked_ns, lease_time(session));
        Ok(Some(OwnZnode { session: session.clone(), path, created: stat.czxid, version: stat.version }))
    }

    /// Renews the lease until it is lost.
    pub(crate) async fn renewals(self, lease: Arc<Lease>, clock: Arc<dyn Clock>) {
        tokio::select! {
            loss = lease.lost() => debug!("{}: {loss}", self.path),
            () = renew(&self, &lease, &*clock) => {}
            ended = self.session.ended() => lease.lose(match ended {
                Ended::Expired => Loss::SessionExpired,
                Ended::Closed => Loss::Left,
            }),
        }
    }

    /// Why this is no longer the znode of its path, if `found` is what is there now.
    fn loss(&self, found: Option<zk::Stat>) -> Option<Loss> {
        match found {
            Some(stat) if stat.ephemeral_owner != self.session.id() => {
                Some(Loss::ZnodeTaken { session: stat.ephemeral_owner })
            }
            Some(stat) if stat.czxid == self.created => None,
            _ => Some(Loss::ZnodeDeleted),
        }
    }
}

/// Renews the lease as long as the znode is there; returns when it is lost.
async fn renew(own: &OwnZnode, lease: &Lease, clock: &dyn Clock) {
    let (session, path) = (&own.session, &own.path);
    let at = session.settings();
    let mut changed: Option<Change> = None;
    let (mut was_valid, mut renewed_ns) = (true, clock.boot_ns());
    loop {
        let period = session.timeout() / RENEWALS;
        let begun = Instant::now();
        let asked_ns = clock.boot_ns();
        // An answer that comes later is of little use, and the next question may take another connection.
        match timeout(period * ANSWER_PERIODS, ask(own, &mut changed)).await {
            Ok(Ok(found)) => match own.loss(found) {
                None => {
                    assert!(asked_ns >= renewed_ns, "a later question begins a later lease");
                    lease.renew(asked_ns, lease_time(session));
                    renewed_ns = asked_ns;
                }
                Some(loss) => {
                    warn!("{at}: {} has lost {path}: {loss}", lease.server());
                    return lease.lose(loss);
                }
            },
            Ok(Err(error)) => debug!("{at}: read {path}: {error}"),
            Err(_) => debug!("{at}: read {path}: no answer within {:?}", period * ANSWER_PERIODS),
        }
        if was_valid != lease.is_valid() {
            was_valid = !was_valid;
            log_change(at, lease, was_valid);
        }
        let pause = sleep(period.saturating_sub(begun.elapsed()).max(period / 10));
        match &mut changed {
            None => pause.await,
            Some(change) => tokio::select! {
                () = pause => {}
                () = session.less_granted() => {}
                () = change => changed = None,
            },
        }
        // A connection that was granted less began after the last renewal.
        lease.shorten(renewed_ns, lease_time(session));
    }
}

/// The session that owns a znode, 0 if it is not ephemeral, `None` if there is no such znode.
pub(crate) async fn read_owner(session: &Session, path: &str) -> Result<Option<i64>> {
    Ok(find_stat(session, path).await?.map(|stat| stat.ephemeral_owner))
}

/// A znode without its data, for certain (`read_stat`); `None` if there is no such znode.
pub(crate) async fn find_stat(session: &Session, path: &str) -> Result<Option<zk::Stat>> {
    match session.call(&format!("read {path}"), |client| read_stat(client, path)).await? {
        Answer::Done(stat) => Ok(stat),
        _ => Ok(None),
    }
}

/// A znode without its data, `None` if there is none, as a majority of ZooKeeper's members knows it, for a session that lives.
///
/// A member that has lost its leader goes on answering reads for a while, though the session may have expired. So does a leader that
/// the others have left, for `syncLimit` of ZooKeeper's settings (10 s by default), also to `sync`: the others elect a new one
/// meanwhile, and it ends the session. So a transaction is asked for, which a majority has to accept, and which the leader accepts
/// for a live session only. It checks that the znode is there, and changes nothing: no watch is set off.
async fn read_stat(client: zk::Client, path: &str) -> Asked<Option<zk::Stat>> {
    // Both questions are sent at once, and answered in order.
    let mut check = client.new_multi_writer();
    check.add_check_version(path, ANY_VERSION)?;
    let (accepted, stat) = (check.commit(), client.check_stat(path));
    confirm(accepted.await)?;
    stat.await
}

/// As [`read_stat`]; the future ends when the znode has changed.
async fn read_and_watch_stat(client: zk::Client, path: &str) -> Asked<(Option<zk::Stat>, Change)> {
    let mut check = client.new_multi_writer();
    check.add_check_version(path, ANY_VERSION)?;
    let (accepted, stat) = (check.commit(), client.check_and_watch_stat(path));
    confirm(accepted.await)?;
    let (stat, watch) = stat.await?;
    Ok((stat, Box::pin(async move { drop(watch.changed().await) })))
}

/// A znode that is gone is an answer as well: what is read behind it says the same.
fn confirm(accepted: std::result::Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>) -> Asked<()> {
    match accepted {
        Ok(_) | Err(zk::MultiWriteError::OperationFailed { source: zk::Error::NoNode, .. }) => Ok(()),
        Err(
            zk::MultiWriteError::OperationFailed { source, .. }
            | zk::MultiWriteError::RequestFailed { source },
        ) => Err(source),
    }
}

/// The znode `own`, whoever has it now; sets a watch on it if there is none.
async fn ask(own: &OwnZnode, changed: &mut Option<Change>) -> Asked<Option<zk::Stat>> {
    // Where there is no session any more, `renewals` ends.
    let client = own.session.client().await.map_err(|_| zk::Error::SessionExpired)?;
    if changed.is_some() {
        return read_stat(client, &own.path).await;
    }
    let (stat, change) = read_and_watch_stat(client, &own.path).await?;
    *changed = Some(change);
    Ok(stat)
}

fn log_change(at: &ZooKeeperSettings, lease: &Lease, is_valid: bool) {
    if is_valid {
        info!("{at}: the lease of {} is valid again", lease.server());
    } else {
        warn!(
            "{at}: the lease of {} has expired; the server must not answer until it is renewed",
            lease.server()
        );
    }
}
