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

/// The lease lasts for two thirds of the session timeout, from the question on.
fn lease_time(session: &Session) -> Duration {
    session.timeout() * 2 / 3
}

/// An ephemeral znode of this session.
#[derive(Clone)]
pub(crate) struct OwnZnode {
    pub(crate) session: Arc<Session>,
    pub(crate) path: String,
    /// Tells it from a later znode of the same path, which this session may own as well (ZooKeeper: `czxid`).
    pub(crate) created: i64,
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
        Ok(Some(OwnZnode { session: session.clone(), path, created: stat.czxid }))
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
    let (period, at) = (session.timeout() / RENEWALS, session.settings());
    let mut changed: Option<Change> = None;
    let mut was_valid = true;
    loop {
        let begun = Instant::now();
        let asked_ns = clock.boot_ns();
        // An answer that comes later is of little use, and the next question may take another connection.
        match timeout(period * ANSWER_PERIODS, ask(own, &mut changed)).await {
            Ok(Ok(found)) => match own.loss(found) {
                None => lease.renew(asked_ns, lease_time(session)),
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
                () = change => changed = None,
            },
        }
    }
}

/// The session that owns a znode, 0 if it is not ephemeral, `None` if there is no such znode.
pub(crate) async fn read_owner(session: &Session, path: &str) -> Result<Option<i64>> {
    match session.call(&format!("read {path}"), |client| read_stat(client, path)).await? {
        Answer::Done(stat) => Ok(stat.map(|stat| stat.ephemeral_owner)),
        _ => Ok(None),
    }
}

/// A znode without its data, `None` if there is none.
///
/// A ZooKeeper server that has lost its leader goes on answering reads for a while, though the session may have expired. It
/// cannot answer `sync`: that is the leader's, which answers it for a live session only.
///
/// A leader that the others have left answers `sync` until it notices, which takes `syncLimit` of ZooKeeper's settings. The others
/// may elect a new leader before, and it starts the timeouts of all sessions anew. So the lease, 2/3 of the timeout, surely ends
/// before the session if the session timeout is three times `syncLimit` or longer.
async fn read_stat(client: zk::Client, path: &str) -> Asked<Option<zk::Stat>> {
    // Both questions are sent at once, and answered in order.
    let (synced, stat) = (client.sync(path), client.check_stat(path));
    synced.await?;
    stat.await
}

/// As [`read_stat`]; the future ends when the znode has changed.
async fn read_and_watch_stat(client: zk::Client, path: &str) -> Asked<(Option<zk::Stat>, Change)> {
    let (synced, stat) = (client.sync(path), client.check_and_watch_stat(path));
    synced.await?;
    let (stat, watch) = stat.await?;
    Ok((stat, Box::pin(async move { drop(watch.changed().await) })))
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
