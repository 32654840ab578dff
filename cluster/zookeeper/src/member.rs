//! A region server's own znode, and its lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_coord::{Lease, Loss, Membership};
use halcyon_env::Clock;
use halcyon_schema::ServerName;
use halcyon_schema::znode;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};
use zookeeper_client as zk;

use crate::ZooKeeperSettings;
use crate::cluster::Runner;
use crate::session::{Answer, Asked, Ended, Session};

/// The lease is renewed so many times in a session timeout.
const RENEWALS: u32 = 6;

/// The lease lasts for two thirds of the session timeout, from the question on.
fn lease_time(session: &Session) -> Duration {
    session.timeout() * 2 / 3
}

pub(crate) struct Member {
    session: Arc<Session>,
    path: String,
    lease: Arc<Lease>,
    runner: Runner,
}

/// What the znode of a server says.
pub(crate) struct Shown {
    pub(crate) server: ServerName,
    pub(crate) info_port: u16,
    pub(crate) hbase_version: String,
}

impl Member {
    /// Creates the znode and renews the lease for the first time.
    pub(crate) async fn join(
        session: Arc<Session>,
        clock: Arc<dyn Clock>,
        runner: Runner,
        shown: Shown,
    ) -> Result<Member> {
        let path = session.settings().paths.region_server(&shown.server);
        create_ephemeral(&session, &path, &shown).await?;
        let lease = Arc::new(Lease::new(shown.server, clock.clone()));
        let (asked, what) = (clock.boot_ns(), format!("read {path} for the first time"));
        match session.call(&what, |client| read_own(client, &path)).await? {
            Answer::Done(Some(owner)) if owner == session.id() => lease.renew(asked, lease_time(&session)),
            _ => {
                let text = format!("{}: {path} is not there after it was created", session.settings());
                return Err(Error::new(ErrorKind::Expired, text));
            }
        }
        info!("{}: created {path}", session.settings());
        Ok(Member { session, path, lease, runner })
    }

    /// Renews the lease until it is lost.
    pub(crate) fn renewals(&self, clock: Arc<dyn Clock>) -> impl Future<Output = ()> + Send + 'static {
        let (session, path, lease) = (self.session.clone(), self.path.clone(), self.lease.clone());
        async move {
            tokio::select! {
                loss = lease.lost() => debug!("{path}: {loss}"),
                () = renew(&session, &path, &lease, &*clock) => {}
                ended = session.ended() => lease.lose(match ended {
                    Ended::Expired => Loss::SessionExpired,
                    Ended::Closed => Loss::Left,
                }),
            }
        }
    }
}

impl Membership for Member {
    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    fn leave(&self) -> BoxFuture<'_, Result<()>> {
        self.lease.lose(Loss::Left);
        let (session, path) = (self.session.clone(), self.path.clone());
        Box::pin(self.runner.clone().run(async move {
            let ask = |client: zk::Client| client.delete(&path, None);
            session.call(&format!("delete {path}"), ask).await?;
            info!("{}: deleted {path}", session.settings());
            Ok(())
        }))
    }
}

/// Creates the znode of a server with HBase's bytes, and with the permissions of HBase's servers without Kerberos.
async fn create_ephemeral(session: &Session, path: &str, shown: &Shown) -> Result<()> {
    let info = znode::region_server_info(shown.info_port, &shown.hbase_version);
    let writer = format!("regionserver:{}", shown.server.port);
    let data = znode::encode(&writer, halcyon_env::random_bytes(), &info);
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    let ask = |client: zk::Client| {
        let (data, options) = (&data, &options);
        async move { client.create(path, data, options).await.map(drop) }
    };
    let at = session.settings();
    match session.call(&format!("create {path}"), ask).await? {
        Answer::Done(()) => Ok(()),
        Answer::NoNode => Err(Error::invalid(format!(
            "{at}: create {path}: there is no {}; HBase's master makes it when it starts for the first time",
            at.paths.region_servers()
        ))),
        // The answer to an earlier attempt may have been lost.
        Answer::NodeExists => match session
            .call(&format!("read {path}"), |client| read_own(client, path))
            .await?
        {
            Answer::Done(Some(owner)) if owner == session.id() => Ok(()),
            Answer::Done(Some(owner)) => Err(Error::invalid(format!(
                "{at}: create {path}: it is there already, in session {owner:#x}; another server of this name runs"
            ))),
            _ => Err(Error::new(ErrorKind::Busy, format!("{at}: create {path}: it was there, and is gone"))),
        },
    }
}

/// The session that owns a znode, `None` if there is no such znode.
///
/// A ZooKeeper server that has lost its leader goes on answering reads for a while, though the session may have expired. It
/// cannot answer `sync`: that is the leader's, which answers it for a live session only.
///
/// A leader that the others have left answers `sync` until it notices, which takes `syncLimit` of ZooKeeper's settings. The others
/// may elect a new leader before, and it starts the timeouts of all sessions anew. So the lease, 2/3 of the timeout, surely ends
/// before the session if the session timeout is three times `syncLimit` or longer.
async fn read_own(client: zk::Client, path: &str) -> Asked<Option<i64>> {
    // Both questions are sent at once, and answered in order.
    let (synced, stat) = (client.sync(path), client.check_stat(path));
    synced.await?;
    Ok(stat.await?.map(|stat| stat.ephemeral_owner))
}

/// As [`read_own`]; the future ends when the znode has changed.
async fn read_and_watch_own(client: zk::Client, path: &str) -> Asked<(Option<i64>, Change)> {
    let (synced, stat) = (client.sync(path), client.check_and_watch_stat(path));
    synced.await?;
    let (stat, watch) = stat.await?;
    Ok((stat.map(|stat| stat.ephemeral_owner), Box::pin(async move { drop(watch.changed().await) })))
}

type Change = BoxFuture<'static, ()>;

/// Renews the lease as long as the znode is there; returns when it is lost.
async fn renew(session: &Session, path: &str, lease: &Lease, clock: &dyn Clock) {
    let (period, at) = (session.timeout() / RENEWALS, session.settings());
    let mut changed: Option<Change> = None;
    let mut was_valid = true;
    loop {
        let begun = Instant::now();
        let asked_ns = clock.boot_ns();
        // An answer that comes later is of little use, and the next question may take another connection.
        match timeout(period * 2, owner(session, path, &mut changed)).await {
            Ok(Ok(Some(owner))) if owner == session.id() => lease.renew(asked_ns, lease_time(session)),
            Ok(Ok(Some(session))) => return lose(at, lease, Loss::ZnodeTaken { session }),
            Ok(Ok(None)) => return lose(at, lease, Loss::ZnodeDeleted),
            Ok(Err(error)) => debug!("{at}: read {path}: {error}"),
            Err(_) => debug!("{at}: read {path}: no answer within {:?}", period * 2),
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

/// Asks who owns the znode; sets a watch on it if there is none.
async fn owner(session: &Session, path: &str, changed: &mut Option<Change>) -> Asked<Option<i64>> {
    // Where there is no session any more, somebody else ends the renewals.
    let client = session.client().await.map_err(|_| zk::Error::SessionExpired)?;
    if changed.is_some() {
        return read_own(client, path).await;
    }
    let (owner, change) = read_and_watch_own(client, path).await?;
    *changed = Some(change);
    Ok(owner)
}

fn lose(at: &ZooKeeperSettings, lease: &Lease, loss: Loss) {
    warn!("{at}: {} is no member of the cluster any more: {loss}", lease.server());
    lease.lose(loss);
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
