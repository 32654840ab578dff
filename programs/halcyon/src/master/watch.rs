//! What an active master follows: the lives of region servers, and what others read of its tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind};
use halcyon_contract::{MasterCoordination, RegionServers};
use halcyon_coord::{ClusterView, Seen};
use halcyon_master::{Master, Noticed, Timelines};
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, ServerName};
use halcyon_servers::{ClusterSources, Servers};
use halcyon_zookeeper::Leadership;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::CHORE_PERIOD;
use super::late::LateAssignments;

/// A server that has joined and has no znode after this time is dead.
const ZNODE_GRACE: Duration = Duration::from_secs(60);

/// How often an active master looks what dead servers have left for replication peers.
const SHARE_PERIOD: Duration = Duration::from_secs(2);

/// The znodes of the cluster. For threads that may block.
pub struct Znodes {
    pub leadership: Leadership,
    pub view: ClusterView,
    pub runtime: Handle,
}

impl MasterCoordination for Znodes {
    fn meta_last(&self) -> halcyon_cell::Result<Option<ServerName>> {
        let seen = self.view.meta.seen();
        if seen == Seen::Absent {
            return Ok(None);
        }
        // Garbage may be put right, and so is tried again.
        let locations = seen
            .get("znode of hbase:meta")
            .map_err(|error| Error::new(ErrorKind::Busy, error.to_string()))?;
        let first = locations.iter().find(|location| location.replica == 0);
        Ok(first.map(|location| location.server.clone()))
    }

    fn meta_opening(&self, server: &ServerName) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_meta_opening(server))
    }

    fn meta_opened(&self, server: &ServerName) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_meta(server))
    }

    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName> {
        let locations = self.view.meta.present().unwrap_or_default().into_iter();
        let copies = locations.filter(|location| location.replica > 0);
        copies.filter_map(|copy| Some((i32::try_from(copy.replica).ok()?, copy.server))).collect()
    }

    fn meta_replicas_opened(&self, replicas: &BTreeMap<i32, ServerName>) -> halcyon_cell::Result<()> {
        let known = self.view.meta.present().unwrap_or_default().into_iter().map(|location| location.replica);
        let known: Vec<u32> = known.filter(|replica| *replica > 0).collect();
        let copies =
            replicas.iter().filter_map(|(number, at)| Some((u32::try_from(*number).ok()?, at.clone())));
        self.runtime.block_on(self.leadership.publish_meta_replicas(copies.collect(), known))
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        self.view.backup_masters.present().unwrap_or_default()
    }

    fn depose(&self, server: &ServerName) -> halcyon_cell::Result<Duration> {
        self.runtime.block_on(self.leadership.depose(server))
    }

    fn deposed(&self) -> halcyon_cell::Result<Vec<(ServerName, Duration)>> {
        self.runtime.block_on(self.leadership.deposed())
    }

    fn forget_deposed(&self, server: &ServerName) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.forget_deposed(server))
    }

    fn set_draining(&self, server: &ServerName, is_draining: bool) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.set_draining(server, is_draining))
    }

    fn begin_offload(&self, server: &ServerName) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.begin_offload(server))
    }

    fn offloading(&self, draining: &[ServerName]) -> halcyon_cell::Result<Vec<ServerName>> {
        self.runtime.block_on(self.leadership.offloading(draining))
    }

    fn publish_throttle(&self, is_on: bool) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_throttle(is_on))
    }

    fn publish_table_states(
        &self,
        states: &BTreeMap<String, pb::table_state::State>,
    ) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_table_states(states))
    }

    fn cluster_id_of(&self, cluster_key: &str) -> halcyon_cell::Result<Option<ClusterId>> {
        self.runtime.block_on(halcyon_regionserver::cluster_id_of(cluster_key))
    }

    fn publish_namespaces(&self, namespaces: &[pb::NamespaceDescriptor]) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_namespaces(namespaces.to_vec()))
    }

    fn publish_groups(&self, groups: &[pb::RsGroupInfo]) -> halcyon_cell::Result<()> {
        self.runtime.block_on(self.leadership.publish_groups(groups.to_vec()))
    }

    fn groups_last(&self) -> halcyon_cell::Result<Option<Vec<pb::RsGroupInfo>>> {
        self.runtime.block_on(self.leadership.groups())
    }
}

/// Expires servers whose znode is gone, and lets others in.
pub async fn watch_servers(view: ClusterView, servers: Weak<Servers>, timelines: Arc<Timelines>) {
    let (mut followed, mut draining) = (view.region_servers.clone(), view.draining.clone());
    let (mut known_draining, mut sentinels) = (Vec::new(), HashMap::new());
    let mut joined = servers.upgrade().map(|servers| servers.changes());
    let mut with_znode: HashSet<ServerName> = HashSet::new();
    let mut without: HashMap<ServerName, Instant> = HashMap::new();
    loop {
        let Some(servers) = servers.upgrade() else { return };
        let seen: Option<HashSet<ServerName>> = match followed.seen_now() {
            Seen::Present(names) => Some(names.into_iter().collect()),
            Seen::Absent => Some(HashSet::new()),
            Seen::Unknown | Seen::Malformed(_) => None,
        };
        if let Some(seen) = seen {
            for gone in with_znode.difference(&seen) {
                tracing::info!(server = %gone, "the znode of a region server is gone");
                expire(&servers, &timelines, gone, Noticed::ZnodeGone);
            }
            for new in seen.difference(&with_znode) {
                servers.add_online(new);
            }
            without.retain(|server, _| !seen.contains(server));
            for server in servers.online().into_iter().filter(|server| !seen.contains(server)) {
                let since = without.entry(server.clone()).or_insert_with(Instant::now);
                if since.elapsed() > ZNODE_GRACE {
                    tracing::warn!(%server, "a region server has joined and made no znode");
                    expire(&servers, &timelines, &server, Noticed::NoZnode);
                }
            }
            with_znode = seen;
        }
        let online = servers.online();
        sentinels.retain(|server, sentinel: &mut AbortOnDrop| {
            online.contains(server) && !sentinel.0.is_finished()
        });
        for server in online {
            sentinels.entry(server.clone()).or_insert_with(|| {
                let (servers, timelines) = (Arc::downgrade(&servers), Arc::clone(&timelines));
                AbortOnDrop(tokio::spawn(expire_with_process(server, servers, timelines)))
            });
        }
        let drained = draining.seen_now().present().cloned().unwrap_or_default();
        if drained != known_draining {
            servers.set_draining(drained.clone());
            known_draining = drained;
        }
        drop(servers);
        tokio::select! {
            changed = followed.changed() => if changed.is_err() { return },
            changed = draining.changed() => if changed.is_err() { return },
            () = change_of(&mut joined) => {}
            () = tokio::time::sleep(CHORE_PERIOD) => {}
        }
    }
}

async fn change_of(changes: &mut Option<watch::Receiver<u64>>) {
    let news = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !news {
        std::future::pending::<()>().await;
    }
}

/// A task that ends with its handle.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The end of a server's process is known long before its session expires.
async fn expire_with_process(server: ServerName, servers: Weak<Servers>, timelines: Arc<Timelines>) {
    halcyon_servers::process_ended(&server).await;
    if let Some(servers) = servers.upgrade() {
        tracing::info!(%server, "no process listens at the address of a region server");
        expire(&servers, &timelines, &server, Noticed::ProcessEnded);
    }
}

/// Declares a server dead, and notes who has seen it.
fn expire(servers: &Servers, timelines: &Timelines, server: &ServerName, how: Noticed) {
    let heard_ms = servers.last_reported_ms(server);
    if servers.expire(server) {
        timelines.noticed(server, how, heard_ms);
    }
}

/// Has dead servers recovered: after each change of the servers, and each [`CHORE_PERIOD`] for what did not work out.
pub async fn recover(
    mut changes: watch::Receiver<u64>,
    master: Weak<Master>,
    _assignments: Arc<LateAssignments>, // lives as long as the master
) {
    loop {
        let Some(master) = master.upgrade() else { return };
        let _ = tokio::task::spawn_blocking(move || master.recover_dead_servers()).await;
        if let Ok(Err(_)) = tokio::time::timeout(CHORE_PERIOD, changes.changed()).await {
            return;
        }
    }
}

/// Has region servers send to replication peers what dead ones have left, as long as the master is there.
pub async fn share_queues(master: Weak<Master>, sources: Arc<ClusterSources>) {
    loop {
        tokio::time::sleep(SHARE_PERIOD).await;
        if master.strong_count() == 0 {
            return;
        }
        let sources = sources.clone();
        let _ = tokio::task::spawn_blocking(move || sources.share_queues()).await;
    }
}

/// Moves regions to where there is less to do, now and then. A period of 0: never.
pub async fn balance(period: Duration, master: Weak<Master>) {
    while !period.is_zero() {
        tokio::time::sleep(period).await;
        let Some(master) = master.upgrade() else { return };
        let _ = tokio::task::spawn_blocking(move || master.balance(false)).await;
    }
}

/// Keeps what others read of tables and servers up to date: the znodes of tables and namespaces, where they could not be written when one
/// changed, and what HBase's master would have to know.
pub async fn follow_tables(master: Weak<Master>) {
    loop {
        tokio::time::sleep(CHORE_PERIOD).await;
        let Some(master) = master.upgrade() else { return };
        let noted = tokio::task::spawn_blocking(move || {
            master.publish_names();
            master.look_at_transitions();
            master.note_servers()
        });
        let noted = noted.await;
        if let Ok(Err(error)) = noted {
            tracing::warn!(%error, "it could not be noted which servers there are");
        }
    }
}
