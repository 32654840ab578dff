use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::znode::{self, ActiveMaster, HBASE_VERSION, MetaLocation, ZnodePaths};
use halcyon_schema::{NamespaceDescriptor, ServerName};
use parking_lot::Mutex;
use prost::Message;

use crate::ZnodeTree;
use pb::table_state::State as TableState;

/// Owner of the znodes that go when the process goes.
const OWN_SESSION: i64 = 1;

/// The cluster as its clients find it: HBase's znodes below one base path.
///
/// Clients go by `meta-region-server` and `master`: set those last, when they can be served.
pub struct ClusterZnodes {
    tree: Arc<ZnodeTree>,
    paths: ZnodePaths,
    /// `master:16000`, written into every znode of the master.
    writer: String,
    /// Copies of `hbase:meta` that have a znode.
    meta_replicas: Mutex<Vec<u32>>,
}

/// A message in the form that HBase's clients expect.
fn data(writer: &str, message: &impl Message) -> Bytes {
    Bytes::from(znode::encode(writer, halcyon_env::random_bytes(), message))
}

fn named(server: &pb::ServerName) -> ServerName {
    ServerName::from_pb(server).expect("a server of this process has a port")
}

impl ClusterZnodes {
    /// Makes the base path (`zookeeper.znode.parent`, usually `/hbase`) and the znodes without content.
    ///
    /// Panics on a path that [`ZnodePaths::new`] refuses.
    pub fn new(tree: Arc<ZnodeTree>, base: &str, master_port: u16) -> ClusterZnodes {
        let paths = ZnodePaths::new(base).expect("the settings were checked");
        for name in znode::EMPTY {
            tree.set(&paths.below(name), Bytes::new());
        }
        let writer = format!("master:{master_port}");
        for name in znode::NAMESPACES {
            let namespace = NamespaceDescriptor::new(*name).to_pb();
            let data = znode::encode_namespace(&writer, halcyon_env::random_bytes(), &namespace);
            tree.set(&paths.namespace(name), Bytes::from(data));
        }
        ClusterZnodes { tree, paths, writer, meta_replicas: Mutex::default() }
    }

    fn set(&self, path: &str, message: &impl Message) {
        self.tree.set(path, data(&self.writer, message));
    }

    /// `hbaseid`: the cluster's id, a UUID of 36 characters.
    pub fn set_cluster_id(&self, cluster_id: &str) {
        self.set(&self.paths.cluster_id(), &pb::ClusterId { cluster_id: cluster_id.to_string() });
    }

    /// `running`: since when, as free text.
    pub fn set_running(&self, start_date: &str) {
        self.set(&self.paths.running(), &pb::ClusterUp { start_date: start_date.to_string() });
    }

    /// `master`: the active one, and the port of its page.
    pub fn set_master(&self, server: &pb::ServerName, info_port: u16) {
        let master = ActiveMaster { server: named(server), info_port }.to_pb();
        self.tree.set_ephemeral(&self.paths.master(), data(&self.writer, &master), OWN_SESSION);
    }

    /// Removes `master`, as its session's end does: clients then find no active master.
    pub fn remove_master(&self) {
        self.tree.remove(&self.paths.master());
    }

    /// `rs/<server name>`: a live region server.
    pub fn set_region_server(&self, server: &pb::ServerName, info_port: u16) {
        let server = named(server);
        let info = znode::region_server_info(info_port, HBASE_VERSION);
        let data = data(&format!("regionserver:{}", server.port), &info);
        self.tree.set_ephemeral(&self.paths.region_server(&server), data, OWN_SESSION);
    }

    pub fn remove_region_server(&self, server: &pb::ServerName) {
        self.tree.remove(&self.paths.region_server(&named(server)));
    }

    /// `meta-region-server`: who serves hbase:meta.
    pub fn set_meta_region_server(&self, server: &pb::ServerName) {
        let meta = MetaLocation { replica: 0, server: named(server), is_open: true };
        self.set(&self.paths.meta(0), &meta.to_pb());
    }

    /// `meta-region-server-1`, ...: who serves copies of hbase:meta. Others are removed.
    pub fn set_meta_replicas(&self, replicas: &BTreeMap<i32, ServerName>) {
        let number = |number: i32| u32::try_from(number).expect("copies are counted from 1");
        let wanted: BTreeMap<u32, &ServerName> =
            replicas.iter().map(|(at, name)| (number(*at), name)).collect();
        let mut known = self.meta_replicas.lock();
        for gone in known.iter().filter(|replica| !wanted.contains_key(replica)) {
            self.tree.remove(&self.paths.meta(*gone));
        }
        for (&replica, &server) in &wanted {
            let meta = MetaLocation { replica, server: server.clone(), is_open: true };
            self.set(&self.paths.meta(replica), &meta.to_pb());
        }
        *known = wanted.into_keys().collect();
    }

    /// `table/<name>`: the state of each table. Clients of HBase 1 look for it here; HBase 2 mirrors it for them.
    ///
    /// `states` is asked whenever one is read, so that a client that has waited for a change sees it. So it is with the others below.
    pub fn mirror_tables(&self, states: impl Fn() -> BTreeMap<String, TableState> + Send + Sync + 'static) {
        self.mirror(self.paths.tables(), Mirrored::Message, move || {
            let bytes = |state: TableState| znode::mirrored_table_state(state).encode_to_vec();
            states().into_iter().map(|(name, state)| (name, bytes(state))).collect()
        });
    }

    /// `namespace/<name>`: each namespace. HBase writes them for its region servers and for tools.
    pub fn mirror_namespaces(
        &self,
        namespaces: impl Fn() -> Vec<pb::NamespaceDescriptor> + Send + Sync + 'static,
    ) {
        self.mirror(self.paths.namespaces(), Mirrored::Bare, move || {
            let name =
                |namespace: &pb::NamespaceDescriptor| String::from_utf8_lossy(&namespace.name).into_owned();
            namespaces().iter().map(|namespace| (name(namespace), namespace.encode_to_vec())).collect()
        });
    }

    /// `replication/peers/<id>` and `.../<id>/peer-state`: each peer, and whether it is enabled. HBase's tools that are given the
    /// id of a peer read it here.
    pub fn mirror_peers(
        &self,
        peers: impl Fn() -> Vec<(String, pb::ReplicationPeer, bool)> + Send + Sync + 'static,
    ) {
        self.mirror(self.paths.peers(), Mirrored::Message, move || {
            let mut wanted = BTreeMap::new();
            for (id, config, is_enabled) in peers() {
                let state = format!("{id}/{}", znode::PEER_STATE);
                wanted.insert(state, znode::peer_state(is_enabled).encode_to_vec());
                wanted.insert(id, config.encode_to_vec());
            }
            wanted
        });
    }

    /// Makes the znodes below `base` what `wanted` says by their paths from there, before each read.
    fn mirror(
        &self,
        base: String,
        form: Mirrored,
        wanted: impl Fn() -> BTreeMap<String, Vec<u8>> + Send + Sync + 'static,
    ) {
        let writer = self.writer.clone();
        let mirrored: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::default();
        self.tree.refresh_before_reads(&base.clone(), move |tree| {
            // The lock comes first: of two threads that ask, the one with the older answer must not come last.
            let mut mirrored = mirrored.lock();
            let wanted = wanted();
            for name in mirrored.keys().filter(|name| !wanted.contains_key(*name)) {
                tree.remove(&format!("{base}/{name}"));
            }
            for (name, bytes) in wanted.iter().filter(|(name, bytes)| mirrored.get(*name) != Some(*bytes)) {
                tree.set(&format!("{base}/{name}"), form.data(&writer, bytes));
            }
            *mirrored = wanted;
        });
    }
}

/// Whether a znode has the magic before its message.
#[derive(Clone, Copy)]
enum Mirrored {
    Message,
    Bare,
}

impl Mirrored {
    fn data(self, writer: &str, message: &[u8]) -> Bytes {
        let unique = halcyon_env::random_bytes();
        Bytes::from(match self {
            Mirrored::Message => znode::encode_payload(writer, unique, message),
            Mirrored::Bare => znode::encode_bare(writer, unique, message),
        })
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::SystemClock;
    use halcyon_proto::PB_MAGIC;
    use pb::deprecated_table_state::State as MirroredState;

    use super::*;

    /// Reads as gohbase and asynchbase do: skip the id blindly, then want the magic.
    fn message_bytes(data: &[u8]) -> &[u8] {
        assert_eq!(data[0], 0xff);
        let id_len = u32::from_be_bytes(data[1..5].try_into().unwrap()) as usize;
        assert!((1..=65_000).contains(&id_len) && data.len() < 32_767);
        data[5 + id_len..].strip_prefix(PB_MAGIC).unwrap()
    }

    #[test]
    fn a_cluster_can_be_found() {
        let tree = Arc::new(ZnodeTree::new(Arc::new(SystemClock::new())));
        let znodes = ClusterZnodes::new(Arc::clone(&tree), "/hbase", 16000);
        let server = pb::ServerName { host_name: "h".to_string(), port: Some(16020), start_code: Some(17) };
        znodes.set_cluster_id("01234567-89ab-cdef-0123-456789abcdef");
        znodes.set_running("Fri Nov 20 2026");
        znodes.set_master(&server, 16010);
        znodes.set_region_server(&server, 16030);
        znodes.set_meta_region_server(&server);

        let (data, _) = tree.get("/hbase/meta-region-server").unwrap();
        let meta = pb::MetaRegionServer::decode(message_bytes(&data)).unwrap();
        assert_eq!((meta.server.port, meta.state), (Some(16020), Some(3)));
        let (data, stat) = tree.get("/hbase/rs/h,16020,17").unwrap();
        pb::RegionServerInfo::decode(message_bytes(&data)).unwrap();
        assert_ne!(stat.ephemeral_owner, 0);
        assert_eq!(tree.children("/hbase/backup-masters").unwrap().0.len(), 0);
        assert!(
            tree.get("/hbase/root-region-server").is_none(),
            "asynchbase takes it for a very old cluster"
        );
        znodes.remove_master();
        assert!(tree.get("/hbase/master").is_none() && tree.get("/hbase/meta-region-server").is_some());
        znodes.remove_region_server(&server);
        assert_eq!(tree.children("/hbase/rs").unwrap().0.len(), 0);
    }

    #[test]
    fn peers_and_namespaces_are_those_of_the_moment() {
        let tree = Arc::new(ZnodeTree::new(Arc::new(SystemClock::new())));
        let znodes = ClusterZnodes::new(Arc::clone(&tree), "/hbase", 16000);
        let peers: Arc<Mutex<Vec<(String, pb::ReplicationPeer, bool)>>> = Arc::default();
        let namespaces = Arc::new(Mutex::new(vec![NamespaceDescriptor::new("default").to_pb()]));
        let (of_peers, of_namespaces) = (Arc::clone(&peers), Arc::clone(&namespaces));
        znodes.mirror_peers(move || of_peers.lock().clone());
        znodes.mirror_namespaces(move || of_namespaces.lock().clone());

        let config =
            |key: &str| pb::ReplicationPeer { clusterkey: Some(key.to_string()), ..Default::default() };
        let key = |path: &str| {
            let (data, _) = tree.get(path)?;
            pb::ReplicationPeer::decode(message_bytes(&data)).unwrap().clusterkey
        };
        let is_enabled = |path: &str| {
            let (data, _) = tree.get(path)?;
            let state = pb::ReplicationState::decode(message_bytes(&data)).unwrap().state();
            Some(state == pb::replication_state::State::Enabled)
        };
        assert!(tree.children("/hbase/replication/peers").unwrap().0.is_empty());
        *peers.lock() =
            vec![("1".to_string(), config("a:1:/x"), true), ("2".to_string(), config("b:2:/x"), false)];
        assert_eq!(key("/hbase/replication/peers/1").as_deref(), Some("a:1:/x"));
        assert_eq!(is_enabled("/hbase/replication/peers/1/peer-state"), Some(true));
        assert_eq!(is_enabled("/hbase/replication/peers/2/peer-state"), Some(false));
        peers.lock().remove(0);
        assert_eq!(tree.children("/hbase/replication/peers").unwrap().0, ["2"]);
        assert_eq!(is_enabled("/hbase/replication/peers/1/peer-state"), None);

        namespaces.lock().push(NamespaceDescriptor::new("n").to_pb());
        assert_eq!(tree.children("/hbase/namespace").unwrap().0, ["default", "hbase", "n"]);
        let (data, _) = tree.get("/hbase/namespace/n").unwrap();
        let id_len = u32::from_be_bytes(data[1..5].try_into().unwrap()) as usize;
        assert_eq!(pb::NamespaceDescriptor::decode(&data[5 + id_len..]).unwrap().name, "n");
        namespaces.lock().pop();
        assert!(tree.get("/hbase/namespace/n").is_none());
    }

    #[test]
    fn the_states_of_tables_are_those_of_the_moment() {
        let tree = Arc::new(ZnodeTree::new(Arc::new(SystemClock::new())));
        let znodes = ClusterZnodes::new(Arc::clone(&tree), "/hbase", 16000);
        let states: Arc<Mutex<BTreeMap<String, TableState>>> = Arc::default();
        let read = Arc::clone(&states);
        znodes.mirror_tables(move || read.lock().clone());
        let state = |path: &str| {
            let (data, _) = tree.get(path)?;
            Some(pb::DeprecatedTableState::decode(message_bytes(&data)).unwrap().state())
        };
        assert_eq!(state("/hbase/table/t"), None);
        states.lock().insert("t".to_string(), TableState::Enabled);
        states.lock().insert("n:t".to_string(), TableState::Disabling);
        assert_eq!(state("/hbase/table/t"), Some(MirroredState::Enabled));
        assert_eq!(tree.children("/hbase/table").unwrap().0, ["n:t", "t"]);
        let before = tree.stat("/hbase/table/t").unwrap();
        states.lock().insert("t".to_string(), TableState::Disabled);
        states.lock().remove("n:t");
        assert_eq!(state("/hbase/table/t"), Some(MirroredState::Disabled));
        assert_eq!(tree.stat("/hbase/table/t").unwrap().version, before.version + 1);
        assert_eq!(tree.children("/hbase/table").unwrap().0, ["t"]);
        assert!(tree.get("/hbase/table-lock").is_some());
    }
}
