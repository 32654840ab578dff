//! What the active master writes.
//!
//! Each write is a transaction that checks the epoch first. Another master that becomes active raises the epoch, so ZooKeeper
//! refuses every later write of this one, also of one that was frozen and knows nothing yet. The transaction also checks that
//! there is a `master` znode.
//!
//! Every write may be made twice: an answer that is lost is asked for again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_coord::{Lease, LeaseState, Loss};
use halcyon_proto::pb;
use halcyon_schema::znode::{self, MetaLocation};
use halcyon_schema::{ClusterId, ServerName};
use pb::table_state::State as TableState;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::{error, info, warn};
use zookeeper_client as zk;

use crate::election::Standing;
use crate::own::{OwnZnode, find_stat};
use crate::transaction::{Outcome, Write, commit};
use crate::znodes::{read_children, read_data};

/// Checks that every transaction begins with.
const CHECKS: usize = 2;
/// Writes of one transaction. Their names and data are far less than the megabyte that ZooKeeper takes at once.
const BATCH_MAX: usize = 100;
/// After an error, before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// A znode that others create and delete at the same time is written so often.
const ATTEMPTS_MAX: usize = 8;

/// This master is the active one. Cheap to clone.
///
/// The leadership ends by [`Leadership::resign`], with the session, or when the `master` znode is deleted. The lease tells of it.
/// Dropping does not end it.
///
/// *Thread safety*: all methods may be called from any thread and any runtime. A write that was begun is made although its
/// future is dropped.
#[derive(Clone)]
pub struct Leadership(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) standing: Standing,
    pub(crate) own: OwnZnode,
    lease: Arc<Lease>,
    raised: Raised,
    /// The states of tables that this master has written; `None` before the first time and after an error. Held while they are
    /// written, so that of two calls the later one counts.
    mirrored: Mutex<Option<BTreeMap<String, TableState>>>,
    /// The namespaces that this master has written. Held while they are written.
    namespaces: Mutex<BTreeMap<String, pb::NamespaceDescriptor>>,
}

/// The epoch as this master has raised it.
#[derive(Clone, Copy)]
pub(crate) struct Raised {
    pub(crate) epoch: u64,
    /// Of the data of the znode: every other write changes it.
    pub(crate) version: i32,
    /// The znode of another master may have been taken, which may act for so long.
    pub(crate) predecessor_lease: Option<Duration>,
}

impl Leadership {
    pub(crate) fn new(standing: Standing, own: OwnZnode, lease: Arc<Lease>, raised: Raised) -> Leadership {
        assert!(raised.version > 0, "the znode was created with epoch 0 and then raised");
        let (mirrored, namespaces) = (Mutex::default(), Mutex::default());
        Leadership(Arc::new(Inner { standing, own, lease, raised, mirrored, namespaces }))
    }

    /// Waits until the master before this one cannot act any more, and shows that in the znode (`predecessor.rs`). Another master that
    /// follows soon need not wait for it.
    pub(crate) async fn outlive_predecessor(self, predecessor: Duration) {
        tokio::select! {
            () = sleep(predecessor) => {}
            _ = self.0.lease.lost() => return,
        }
        while let Err(error) = self.0.show_own_lease().await {
            if matches!(self.0.lease.state(), LeaseState::Lost(_)) {
                return;
            }
            warn!("{error}");
            sleep(PAUSE).await;
        }
    }

    /// How many masters became active before this one and it. Grows with each of them.
    pub fn epoch(&self) -> u64 {
        self.0.raised.epoch
    }

    /// How long the master before this one may go on, from the election on, should it live after all; `None` if its session had ended.
    pub fn predecessor_lease(&self) -> Option<Duration> {
        self.0.raised.predecessor_lease
    }

    /// Valid while the `master` znode is ours and ZooKeeper answers.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.0.lease
    }

    /// `hbaseid`.
    pub async fn publish_cluster_id(&self, id: &ClusterId) -> Result<()> {
        let message = pb::ClusterId { cluster_id: id.0.clone() };
        self.run(move |inner| async move {
            let path = inner.own.session.settings().paths.cluster_id();
            let data = inner.encode(&message);
            inner.put(path, data).await
        })
        .await
    }

    /// `running`: the cluster is up. If it is already, the time of its start stays.
    pub async fn publish_running(&self) -> Result<()> {
        self.run(|inner| async move { inner.publish_running().await }).await
    }

    /// Deletes `running`: the cluster is to stop as a whole.
    pub async fn remove_running(&self) -> Result<()> {
        self.run(|inner| async move { inner.remove(inner.own.session.settings().paths.running()).await })
            .await
    }

    /// `meta-region-server`: who has `hbase:meta` open.
    pub async fn publish_meta(&self, server: &ServerName) -> Result<()> {
        self.publish_meta_as(MetaLocation { replica: 0, server: server.clone(), is_open: true }).await
    }

    /// `meta-region-server`: who is about to open `hbase:meta`.
    pub async fn publish_meta_opening(&self, server: &ServerName) -> Result<()> {
        self.publish_meta_as(MetaLocation { replica: 0, server: server.clone(), is_open: false }).await
    }

    async fn publish_meta_as(&self, location: MetaLocation) -> Result<()> {
        self.run(move |inner| async move {
            let path = inner.own.session.settings().paths.meta(0);
            let data = inner.encode(&location.to_pb());
            inner.put(path, data).await
        })
        .await
    }

    /// `meta-region-server-1`, ...: who has copies of `hbase:meta` open. Those of `known` that are not among them are deleted.
    pub async fn publish_meta_replicas(
        &self,
        replicas: BTreeMap<u32, ServerName>,
        known: Vec<u32>,
    ) -> Result<()> {
        self.run(move |inner| async move {
            let paths = inner.own.session.settings().paths.clone();
            for replica in known.into_iter().filter(|replica| !replicas.contains_key(replica)) {
                inner.remove(paths.meta(replica)).await?;
            }
            for (replica, server) in replicas {
                let data = inner.encode(&MetaLocation { replica, server, is_open: true }.to_pb());
                inner.put(paths.meta(replica), data).await?;
            }
            Ok(())
        })
        .await
    }

    /// `draining/<server>`: whether a region server gets no more regions.
    pub async fn set_draining(&self, server: &ServerName, is_draining: bool) -> Result<()> {
        let server = server.clone();
        self.run(move |inner| async move {
            let path = inner.own.session.settings().paths.draining_server(&server);
            if is_draining { inner.create_empty(path).await } else { inner.remove(path).await }
        })
        .await
    }

    /// `draining/<server>`: that a region server gets no more regions, and that those it has are to leave it (`draining.rs`).
    pub async fn begin_offload(&self, server: &ServerName) -> Result<()> {
        let server = server.clone();
        self.run(move |inner| async move { inner.begin_offload(&server).await }).await
    }

    /// Those of these region servers that regions are to leave.
    pub async fn offloading(&self, servers: &[ServerName]) -> Result<Vec<ServerName>> {
        let servers = servers.to_vec();
        self.run(move |inner| async move { inner.offloading(servers).await }).await
    }

    /// Deletes the znode of a region server that was declared dead, in a transaction, so that its lease is not renewed any more. Returns
    /// how long it may go on answering reads from now on: zero if its session has ended by itself (`deposed.rs`).
    pub async fn depose(&self, server: &ServerName) -> Result<Duration> {
        let server = server.clone();
        self.run(move |inner| async move { inner.depose(&server).await }).await
    }

    /// The servers that were deposed and are not forgotten, with their leases.
    pub async fn deposed(&self) -> Result<Vec<(ServerName, Duration)>> {
        self.run(|inner| async move { inner.deposed().await }).await
    }

    /// Nobody asks for the lease of a server that was deposed any more.
    pub async fn forget_deposed(&self, server: &ServerName) -> Result<()> {
        let server = server.clone();
        self.run(move |inner| async move { inner.forget_deposed(&server).await }).await
    }

    /// `table/<name>`: the states of all tables, for clients of HBase 1. Znodes of tables that are not in `states` are deleted.
    ///
    /// Only what has changed since the last call is written. After an error some of it may have been.
    pub async fn publish_table_states(&self, states: &BTreeMap<String, TableState>) -> Result<()> {
        let states = states.clone();
        self.run(move |inner| async move { inner.publish_table_states(states).await }).await
    }

    /// `namespace/<name>`: all namespaces, for HBase's servers and tools (`ZKNamespaceManager`). Znodes of namespaces that are not
    /// in `namespaces` are deleted.
    pub async fn publish_namespaces(&self, namespaces: Vec<pb::NamespaceDescriptor>) -> Result<()> {
        self.run(|inner| async move { inner.publish_namespaces(namespaces).await }).await
    }

    /// `rsgroup/<name>`: all region server groups, for HBase's master (`RSGroupInfoManagerImpl.flushConfig`). Znodes of groups
    /// that are not in `groups` are deleted.
    pub async fn publish_groups(&self, groups: Vec<pb::RsGroupInfo>) -> Result<()> {
        self.run(|inner| async move { inner.publish_groups(groups).await }).await
    }

    /// What [`Leadership::publish_groups`] has written last, also that of a master before; `None`: there is no znode. One with other bytes
    /// than a group's is named in the log and left out.
    pub async fn groups(&self) -> Result<Option<Vec<pb::RsGroupInfo>>> {
        self.run(|inner| async move { inner.groups().await }).await
    }

    /// `rpc-throttle`: whether region servers throttle requests, one byte as HBase writes it (`RpcThrottleStorage`).
    pub async fn publish_throttle(&self, is_on: bool) -> Result<()> {
        self.run(move |inner| async move {
            let data = [if is_on { 0xff } else { 0 }];
            let data = znode::encode_payload(&inner.standing.writer(), halcyon_env::random_bytes(), &data);
            inner.put(inner.own.session.settings().paths.rpc_throttle(), data).await
        })
        .await
    }

    /// Gives the leadership up, so that a master that waits becomes active at once. The lease is lost whether or not ZooKeeper
    /// answers.
    pub async fn resign(&self) -> Result<()> {
        self.0.lease.lose(Loss::Left);
        self.run(|inner| async move { inner.delete_master().await }).await
    }

    /// Runs on the thread of the session.
    async fn run<F, T>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        self.0.standing.runner.clone().run(work(self.0.clone())).await
    }
}

impl Inner {
    fn encode(&self, message: &impl prost::Message) -> Vec<u8> {
        znode::encode(&self.standing.writer(), halcyon_env::random_bytes(), message)
    }

    /// Makes these writes if this master is the active one. The index of a refusal is that in `writes`.
    pub(crate) async fn write(&self, what: &str, writes: &[Write]) -> Result<Outcome> {
        if let LeaseState::Lost(loss) = self.lease.state() {
            return Err(self.lost_error(what, &loss));
        }
        let mut all = self.checks().to_vec();
        assert_eq!(all.len(), CHECKS);
        all.extend_from_slice(writes);
        let outcome = commit(&self.own.session, what, &all).await;
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Expired) {
            self.lease.lose(Loss::SessionExpired);
        }
        let loss = match outcome? {
            Outcome::Refused { index: 0, why: zk::Error::BadVersion | zk::Error::NoNode } => Loss::Deposed,
            Outcome::Refused { index: 1, why: zk::Error::NoNode } => Loss::ZnodeDeleted,
            Outcome::Refused { index, why } if index < CHECKS => {
                return Err(self.own.session.error(ErrorKind::Io, what, &why.to_string()));
            }
            Outcome::Refused { index, why } => return Ok(Outcome::Refused { index: index - CHECKS, why }),
            Outcome::Done => return Ok(Outcome::Done),
        };
        let error = self.lost_error(what, &loss);
        warn!("{error}");
        self.lease.lose(loss);
        Err(error)
    }

    /// Both fail when another master became active. The second fails as soon as the znode is gone, before that.
    fn checks(&self) -> [Write; CHECKS] {
        let epoch = self.own.session.settings().paths.master_epoch();
        [
            Write::Check { path: epoch, version: Some(self.raised.version) },
            Write::Check { path: self.own.path.clone(), version: None },
        ]
    }

    /// Writes `master` without a predecessor, if nobody has written it since.
    async fn show_own_lease(&self) -> Result<()> {
        let path = self.own.path.clone();
        let what = format!("write {path} without a predecessor");
        let set = Write::Set { path, data: self.standing.data(None), version: Some(self.own.version) };
        match self.write(&what, &[set]).await? {
            // An earlier attempt may have been carried out.
            Outcome::Done | Outcome::Refused { why: zk::Error::BadVersion | zk::Error::NoNode, .. } => Ok(()),
            Outcome::Refused { why, .. } => Err(self.refused(&what, &why)),
        }
    }

    fn lost_error(&self, what: &str, loss: &Loss) -> Error {
        let why = format!("{} is not the active master any more: {loss}", self.lease.server());
        self.own.session.error(ErrorKind::Expired, what, &why)
    }

    pub(crate) fn refused(&self, what: &str, why: &zk::Error) -> Error {
        self.own.session.error(ErrorKind::Io, what, &why.to_string())
    }

    /// Sets a znode's data; creates it if there is none.
    pub(crate) async fn put(&self, path: String, data: Vec<u8>) -> Result<()> {
        let what = format!("write {path}");
        for _ in 0..ATTEMPTS_MAX {
            let set = Write::Set { path: path.clone(), data: data.clone(), version: None };
            match self.write(&what, &[set]).await? {
                Outcome::Done => return Ok(()),
                Outcome::Refused { why: zk::Error::NoNode, .. } => {}
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
            let mode = zk::CreateMode::Persistent;
            let create = Write::Create { path: path.clone(), data: data.clone(), mode };
            match self.write(&what, &[create]).await? {
                Outcome::Done => return Ok(()),
                Outcome::Refused { why: zk::Error::NodeExists, .. } => {}
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
        }
        Err(self.own.session.error(ErrorKind::Busy, &what, "the znode comes and goes"))
    }

    pub(crate) async fn create_empty(&self, path: String) -> Result<()> {
        let what = format!("create {path}");
        let create = Write::Create { path, data: Vec::new(), mode: zk::CreateMode::Persistent };
        match self.write(&what, &[create]).await? {
            Outcome::Done | Outcome::Refused { why: zk::Error::NodeExists, .. } => Ok(()),
            Outcome::Refused { why, .. } => Err(self.refused(&what, &why)),
        }
    }

    pub(crate) async fn remove(&self, path: String) -> Result<()> {
        let what = format!("delete {path}");
        match self.write(&what, &[Write::Delete { path, version: None }]).await? {
            Outcome::Done | Outcome::Refused { why: zk::Error::NoNode, .. } => Ok(()),
            Outcome::Refused { why, .. } => Err(self.refused(&what, &why)),
        }
    }

    async fn publish_running(&self) -> Result<()> {
        let path = self.own.session.settings().paths.running();
        let (found, _) = read_data(&self.own.session, &path).await?;
        if found.is_some_and(|(data, _)| znode::decode_running(&path, &data).is_ok()) {
            return self.write(&format!("check {path}"), &[]).await.map(drop);
        }
        let start_date = znode::start_date(self.standing.clock.now_ms());
        let data = self.encode(&pb::ClusterUp { start_date });
        self.put(path, data).await
    }

    async fn publish_table_states(&self, states: BTreeMap<String, TableState>) -> Result<()> {
        let mut mirrored = self.mirrored.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let known = match mirrored.take() {
                Some(known) => known.into_iter().map(|(name, state)| (name, Some(state))).collect(),
                None => self.mirrored_names().await?,
            };
            if self.mirror(&known, &states).await? {
                *mirrored = Some(states);
                return Ok(());
            }
        }
        let path = self.own.session.settings().paths.tables();
        Err(self.own.session.error(ErrorKind::Busy, &format!("write {path}"), "its znodes come and go"))
    }

    async fn publish_namespaces(&self, namespaces: Vec<pb::NamespaceDescriptor>) -> Result<()> {
        let paths = &self.own.session.settings().paths;
        let mut written = self.namespaces.lock().await;
        let (known, _) = read_children(&self.own.session, &paths.namespaces()).await?;
        let known = known.unwrap_or_default();
        let named: BTreeMap<String, pb::NamespaceDescriptor> = namespaces
            .into_iter()
            .map(|namespace| (String::from_utf8_lossy(&namespace.name).into_owned(), namespace))
            .collect();
        for (name, namespace) in &named {
            if !known.contains(name) || written.get(name) != Some(namespace) {
                let unique = halcyon_env::random_bytes();
                let data = znode::encode_namespace(&self.standing.writer(), unique, namespace);
                self.put(paths.namespace(name), data).await?;
            }
        }
        for gone in known.into_iter().filter(|name| !named.contains_key(name)) {
            self.remove(paths.namespace(&gone)).await?;
        }
        *written = named;
        Ok(())
    }

    async fn publish_groups(&self, groups: Vec<pb::RsGroupInfo>) -> Result<()> {
        let paths = &self.own.session.settings().paths;
        let unique = halcyon_env::random_bytes();
        let head = znode::encode_payload(&self.standing.writer(), unique, b"");
        self.put(paths.groups(), head).await?;
        let (known, _) = read_children(&self.own.session, &paths.groups()).await?;
        for group in &groups {
            self.put(paths.group(&group.name), self.encode(group)).await?;
        }
        let is_gone = |name: &String| !groups.iter().any(|group| group.name == *name);
        for name in known.unwrap_or_default().into_iter().filter(is_gone) {
            self.remove(paths.group(&name)).await?;
        }
        Ok(())
    }

    async fn groups(&self) -> Result<Option<Vec<pb::RsGroupInfo>>> {
        let (session, paths) = (&self.own.session, &self.own.session.settings().paths);
        let (Some(names), _) = read_children(session, &paths.groups()).await? else { return Ok(None) };
        let mut groups = Vec::with_capacity(names.len());
        for name in names {
            let path = paths.group(&name);
            if let (Some((data, _)), _) = read_data(session, &path).await? {
                groups.extend(group_of(&name, &path, &data));
            }
        }
        Ok(Some(groups))
    }

    /// The tables that have a znode, of which the state is not known.
    async fn mirrored_names(&self) -> Result<BTreeMap<String, Option<TableState>>> {
        let path = self.own.session.settings().paths.tables();
        let (names, _) = read_children(&self.own.session, &path).await?;
        let names = names
            .ok_or_else(|| Error::invalid(format!("{}: there is no {path}", self.own.session.settings())))?;
        Ok(names.into_iter().map(|name| (name, None)).collect())
    }

    /// Makes `states` out of `known`. False: others have created or deleted some of the znodes.
    async fn mirror(
        &self,
        known: &BTreeMap<String, Option<TableState>>,
        states: &BTreeMap<String, TableState>,
    ) -> Result<bool> {
        let paths = &self.own.session.settings().paths;
        let changed = |(name, state): &(&String, &TableState)| known.get(*name) != Some(&Some(**state));
        let writes = states.iter().filter(changed).map(|(name, state)| {
            let (path, data) = (paths.table(name), self.encode(&znode::mirrored_table_state(*state)));
            match known.get(name) {
                Some(_) => Write::Set { path, data, version: None },
                None => Write::Create { path, data, mode: zk::CreateMode::Persistent },
            }
        });
        let writes: Vec<Write> = writes.collect();
        let what = format!("write the states of tables below {}", paths.tables());
        for batch in writes.chunks(BATCH_MAX) {
            match self.write(&what, batch).await? {
                Outcome::Done => {}
                Outcome::Refused { why: zk::Error::NoNode | zk::Error::NodeExists, .. } => return Ok(false),
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
        }
        for name in known.keys().filter(|name| !states.contains_key(*name)) {
            let path = paths.table(name);
            let what = format!("delete {path}");
            match self.write(&what, &[Write::Delete { path: path.clone(), version: None }]).await? {
                Outcome::Done | Outcome::Refused { why: zk::Error::NoNode, .. } => {}
                // No version of HBase makes such a znode; it is of no concern to clients.
                Outcome::Refused { why: zk::Error::NotEmpty, .. } => warn!("{path} has children; it stays"),
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
        }
        Ok(true)
    }

    /// Deletes `master` if it is ours.
    async fn delete_master(&self) -> Result<()> {
        let (session, path) = (&self.own.session, &self.own.path);
        let what = format!("delete {path}");
        for _ in 0..ATTEMPTS_MAX {
            // A master of HBase's raises no epoch, so the owner is looked at as well. The version is that of no znode of HBase.
            let own = find_stat(session, path).await?.filter(|stat| stat.ephemeral_owner == session.id());
            let Some(own) = own else { return Ok(()) };
            let [epoch, _] = self.checks();
            let writes = [epoch, Write::Delete { path: path.clone(), version: Some(own.version) }];
            match commit(session, &what, &writes).await? {
                Outcome::Done => {
                    info!("{}: {} has resigned", session.settings(), self.lease.server());
                    return Ok(());
                }
                // It was written meanwhile, as when its master has outlived its predecessor.
                Outcome::Refused { index: 1, why: zk::Error::BadVersion } => {}
                Outcome::Refused { why: zk::Error::NoNode | zk::Error::BadVersion, .. } => return Ok(()),
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
        }
        Err(session.error(ErrorKind::Busy, &what, "it is written all the time"))
    }
}

/// The group of a znode; `None`, and an error in the log, if it has other bytes: anybody may write them, and others are of use without it.
fn group_of(name: &str, path: &str, data: &[u8]) -> Option<pb::RsGroupInfo> {
    let decoded = znode::message(path, data).and_then(|group: pb::RsGroupInfo| match group.name == name {
        true => Ok(group),
        false => Err(Error::corrupt(format!("{path} is of the group '{}'", group.name.escape_debug()))),
    });
    decoded.inspect_err(|error| error!("a znode of a region server group is left out: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start that had to go by the znodes failed, and so did that of each other master.
    #[test]
    fn a_znode_of_a_group_that_makes_no_sense_is_left_out() {
        let group = pb::RsGroupInfo { name: "g".to_string(), ..Default::default() };
        let data = znode::encode("master", [7; 8], &group);
        assert_eq!(group_of("g", "/hbase/rsgroup/g", &data), Some(group));
        assert_eq!(group_of("h", "/hbase/rsgroup/h", &data), None, "of another one");
        for bad in [&b""[..], b"\xff", b"garbage", &data[..data.len() - 1], &[0xff; 64]] {
            assert_eq!(group_of("g", "/hbase/rsgroup/g", bad), None, "{}", bad.escape_ascii());
        }
    }
}
