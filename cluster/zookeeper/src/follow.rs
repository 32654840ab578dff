//! Znodes that are read again whenever they change.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use halcyon_cell::Result;
use halcyon_coord::{ClusterPublisher, Publisher, Seen};
use halcyon_schema::ServerName;
use halcyon_schema::znode::{self, ActiveMaster, MetaLocation, ZnodePaths};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};
use zookeeper_client as zk;

use crate::session::Session;
use crate::znodes::{read_children, read_data};

/// After an error, before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// More replicas of `hbase:meta` than anybody has; further znodes are not read.
const META_REPLICAS_MAX: usize = 16;

/// Starts a task for each part of the view. They end with the session.
pub(crate) fn follow_cluster(
    session: &Arc<Session>,
    publisher: ClusterPublisher,
    tasks: &mut JoinSet<()>,
    runtime: &Handle,
) {
    let paths = &session.settings().paths;
    let ClusterPublisher {
        cluster_id,
        running,
        master,
        master_epoch,
        backup_masters,
        meta,
        region_servers,
        draining,
    } = publisher;
    let part = Data { path: paths.cluster_id(), decode: znode::decode_cluster_id };
    tasks.spawn_on(follow(session.clone(), part, cluster_id), runtime);
    let part = Data { path: paths.running(), decode: znode::decode_running };
    tasks.spawn_on(follow(session.clone(), part, running), runtime);
    let part = Data { path: paths.master(), decode: ActiveMaster::decode };
    tasks.spawn_on(follow(session.clone(), part, master), runtime);
    let part = Data { path: paths.master_epoch(), decode: znode::decode_epoch };
    tasks.spawn_on(follow(session.clone(), part, master_epoch), runtime);
    let backups = Servers(paths.backup_masters());
    tasks.spawn_on(follow(session.clone(), backups, backup_masters), runtime);
    tasks.spawn_on(follow(session.clone(), Servers(paths.region_servers()), region_servers), runtime);
    tasks.spawn_on(follow(session.clone(), Servers(paths.draining()), draining), runtime);
    tasks.spawn_on(follow(session.clone(), Meta(paths.clone()), meta), runtime);
}

/// A part of the view: one or several znodes.
trait Part: Send + Sync {
    type Value: PartialEq + Send + Sync;

    /// What there is, and watches of which one fires when this has changed.
    fn read(
        &self,
        session: &Session,
    ) -> impl Future<Output = Result<(Seen<Self::Value>, Vec<zk::OneshotWatcher>)>> + Send;
}

/// The data of one znode.
struct Data<T> {
    path: String,
    decode: fn(&str, &[u8]) -> Result<T>,
}

impl<T: PartialEq + Send + Sync> Part for Data<T> {
    type Value = T;

    async fn read(&self, session: &Session) -> Result<(Seen<T>, Vec<zk::OneshotWatcher>)> {
        let (found, changed) = read_data(session, &self.path).await?;
        Ok((seen(found, |(data, _)| (self.decode)(&self.path, &data)), vec![changed]))
    }
}

/// The children of a znode, which are names of servers.
struct Servers(String);

impl Part for Servers {
    type Value = Vec<ServerName>;

    async fn read(&self, session: &Session) -> Result<(Seen<Vec<ServerName>>, Vec<zk::OneshotWatcher>)> {
        let (names, changed) = read_children(session, &self.0).await?;
        Ok((seen(names, |names| servers(&self.0, &names)), vec![changed]))
    }
}

fn servers(path: &str, names: &[String]) -> Result<Vec<ServerName>> {
    let mut servers =
        names.iter().map(|name| znode::decode_server(path, name)).collect::<Result<Vec<ServerName>>>()?;
    servers.sort_unstable();
    Ok(servers)
}

/// The znodes of all replicas of `hbase:meta`.
struct Meta(ZnodePaths);

impl Part for Meta {
    type Value = Vec<MetaLocation>;

    async fn read(&self, session: &Session) -> Result<(Seen<Vec<MetaLocation>>, Vec<zk::OneshotWatcher>)> {
        let (names, changed) = read_children(session, self.0.base()).await?;
        let mut changes = vec![changed];
        let names = names.unwrap_or_default();
        let mut replicas: Vec<u32> = names.iter().filter_map(|name| ZnodePaths::meta_replica(name)).collect();
        replicas.sort_unstable();
        replicas.truncate(META_REPLICAS_MAX);
        let mut locations = Vec::new();
        for replica in replicas {
            let path = self.0.meta(replica);
            let (data, changed) = read_data(session, &path).await?;
            changes.push(changed);
            match data.map(|(data, _)| MetaLocation::decode(&path, replica, &data)) {
                Some(Ok(location)) => locations.push(location),
                // The region itself can be found without its copies.
                Some(Err(error)) if replica > 0 => {
                    warn!("{}: a copy of hbase:meta is left out: {error}", session.settings());
                }
                Some(Err(error)) => return Ok((Seen::Malformed(error), changes)),
                None => {}
            }
        }
        Ok((if locations.is_empty() { Seen::Absent } else { Seen::Present(locations) }, changes))
    }
}

/// Publishes what is read of a part, and reads again when one of its watches fires, until the session ends.
async fn follow<P: Part>(session: Arc<Session>, part: P, publisher: Publisher<P::Value>) {
    // A watch also fires when the library gives up. The next read waits for the session to be taken up again.
    while !session.has_ended() {
        match part.read(&session).await {
            Ok((seen, changes)) => {
                if let Seen::Malformed(error) = &seen {
                    warn!("{}: {error}", session.settings());
                }
                publisher.publish(seen);
                select_all(changes.into_iter().map(|change| Box::pin(change.changed()))).await;
            }
            Err(error) => {
                debug!("{error}");
                sleep(PAUSE).await;
            }
        }
    }
}

fn seen<R, T>(read: Option<R>, decode: impl FnOnce(R) -> Result<T>) -> Seen<T> {
    match read.map(decode) {
        None => Seen::Absent,
        Some(Ok(value)) => Seen::Present(value),
        Some(Err(error)) => Seen::Malformed(error),
    }
}
