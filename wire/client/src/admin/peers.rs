//! Replication peers: the clusters that get this one's edits.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::{ClusterKey, TableDescriptor, TableName};
use pb::replication_state::State;
use tokio::time::Instant;

use super::{Admin, poll_pause};
use crate::cluster::after;
use crate::{ClientError, Cluster, ClusterAddress, ClusterOptions};

/// Attribute of a family: 1 if peers get its edits.
const SCOPE: &str = "REPLICATION_SCOPE";

/// A replication peer, with all that the master tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub id: String,
    /// Where the peer is: `host,host:port:/znode`. Empty for an endpoint that needs none.
    pub cluster_key: String,
    /// Whether edits are sent now. Those of a disabled peer wait.
    pub is_enabled: bool,
    /// The tables whose edits are sent, with the families; no families: all of them. `None`: all tables but
    /// the excluded ones.
    pub tables: Option<Vec<(TableName, Vec<Bytes>)>>,
    /// Namespaces whose edits are sent besides `tables`.
    pub namespaces: Vec<String>,
    /// Tables that are left out where `tables` is `None`, with the families; no families: all of them.
    pub excluded_tables: Vec<(TableName, Vec<Bytes>)>,
    /// Namespaces that are left out where `tables` is `None`.
    pub excluded_namespaces: Vec<String>,
    /// Java class of the endpoint that sends the edits; `None`: that for clusters.
    pub endpoint_class: Option<String>,
    /// Settings of its own.
    pub configuration: BTreeMap<String, String>,
    /// What only the endpoint understands.
    pub data: BTreeMap<Bytes, Bytes>,
    /// Bytes a second that each server sends at most; 0: no limit.
    pub bandwidth: i64,
    /// Whether edits of a region arrive in the order in which they were written, also after it has moved.
    pub is_serial: bool,
    /// Where a synchronous peer writes WALs; `None`: it is asynchronous.
    pub remote_wal_dir: Option<String>,
}

impl Peer {
    /// An enabled peer that gets the edits of all tables.
    pub fn new(id: &str, cluster_key: &str) -> Peer {
        Peer {
            id: id.to_string(),
            cluster_key: cluster_key.to_string(),
            is_enabled: true,
            tables: None,
            namespaces: Vec::new(),
            excluded_tables: Vec::new(),
            excluded_namespaces: Vec::new(),
            endpoint_class: None,
            configuration: BTreeMap::new(),
            data: BTreeMap::new(),
            bandwidth: 0,
            is_serial: false,
            remote_wal_dir: None,
        }
    }

    /// An enabled peer that gets the edits of these tables alone.
    pub fn of_tables(id: &str, cluster_key: &str, tables: impl IntoIterator<Item = TableName>) -> Peer {
        let tables = tables.into_iter().map(|table| (table, Vec::new())).collect();
        Peer { tables: Some(tables), ..Peer::new(id, cluster_key) }
    }

    /// Whether the peer gets edits of some family of the table that has `REPLICATION_SCOPE` 1.
    pub fn gets(&self, table: &TableName) -> bool {
        let is_in = |namespaces: &[String]| namespaces.iter().any(|name| name == table.namespace());
        match &self.tables {
            Some(tables) => tables.iter().any(|(name, _)| name == table) || is_in(&self.namespaces),
            None => {
                let is_out =
                    |(name, families): &(TableName, Vec<Bytes>)| name == table && families.is_empty();
                !is_in(&self.excluded_namespaces) && !self.excluded_tables.iter().any(is_out)
            }
        }
    }

    fn of_pb(id: String, is_enabled: bool, config: pb::ReplicationPeer) -> Result<Peer, ClientError> {
        let tables = tables_of_pb(&config.table_cfs)?;
        // A peer of before HBase 2 has tables and says nothing of the others.
        let gets_all = config.replicate_all.unwrap_or(tables.is_empty() && config.namespaces.is_empty());
        let is_there = |text: &String| !text.trim().is_empty();
        Ok(Peer {
            id,
            cluster_key: config.clusterkey.unwrap_or_default(),
            is_enabled,
            tables: (!gets_all).then_some(tables),
            namespaces: texts(&config.namespaces)?,
            excluded_tables: tables_of_pb(&config.exclude_table_cfs)?,
            excluded_namespaces: texts(&config.exclude_namespaces)?,
            endpoint_class: config.replication_endpoint_impl.filter(is_there),
            configuration: config.configuration.into_iter().map(|pair| (pair.name, pair.value)).collect(),
            data: config.data.into_iter().map(|pair| (pair.first, pair.second)).collect(),
            bandwidth: config.bandwidth.unwrap_or(0),
            is_serial: config.serial.unwrap_or(false),
            remote_wal_dir: config.remote_wal_dir.filter(is_there),
        })
    }

    fn to_pb(&self) -> pb::ReplicationPeer {
        let bytes =
            |names: &[String]| names.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
        let setting = |(name, value): (&String, &String)| pb::NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        let data =
            |(key, value): (&Bytes, &Bytes)| pb::BytesBytesPair { first: key.clone(), second: value.clone() };
        pb::ReplicationPeer {
            clusterkey: Some(self.cluster_key.clone()),
            replication_endpoint_impl: self.endpoint_class.clone(),
            data: self.data.iter().map(data).collect(),
            configuration: self.configuration.iter().map(setting).collect(),
            table_cfs: self.tables.as_deref().map(tables_to_pb).unwrap_or_default(),
            namespaces: bytes(&self.namespaces),
            bandwidth: Some(self.bandwidth),
            replicate_all: Some(self.tables.is_none()),
            exclude_table_cfs: tables_to_pb(&self.excluded_tables),
            exclude_namespaces: bytes(&self.excluded_namespaces),
            serial: Some(self.is_serial),
            remote_wal_dir: self.remote_wal_dir.clone(),
        }
    }
}

fn tables_of_pb(tables: &[pb::TableCf]) -> Result<Vec<(TableName, Vec<Bytes>)>, ClientError> {
    let table = |one: &pb::TableCf| {
        let name =
            one.table_name.as_ref().ok_or_else(|| ClientError::malformed("a peer's table has no name"))?;
        Ok((TableName::from_pb(name).map_err(ClientError::malformed)?, one.families.clone()))
    };
    tables.iter().map(table).collect()
}

fn tables_to_pb(tables: &[(TableName, Vec<Bytes>)]) -> Vec<pb::TableCf> {
    let table = |(name, families): &(TableName, Vec<Bytes>)| pb::TableCf {
        table_name: Some(name.to_pb()),
        families: families.clone(),
    };
    tables.iter().map(table).collect()
}

/// Names of namespaces. They are written back, so none may change.
fn texts(names: &[Bytes]) -> Result<Vec<String>, ClientError> {
    let text = |name: &Bytes| match std::str::from_utf8(name) {
        Ok(text) => Ok(text.to_string()),
        Err(error) => Err(ClientError::malformed(format!("a peer's namespace: {error}"))),
    };
    names.iter().map(text).collect()
}

/// Whether two tables are the same but for the families whose edits peers get.
fn is_alike(one: &TableDescriptor, other: &TableDescriptor) -> bool {
    let comparable = |table: &TableDescriptor| {
        // Java clients write `IS_META` into each table, others into none.
        let mut changed = table.clone().without(b"IS_META");
        for family in table.families() {
            changed = changed.with_family(family.clone().with_defaults().without(SCOPE.as_bytes()));
        }
        changed
    };
    comparable(one) == comparable(other)
}

impl Admin {
    /// All replication peers.
    pub async fn peers(&self) -> Result<Vec<Peer>, ClientError> {
        let answer: pb::ListReplicationPeersResponse =
            self.call("ListReplicationPeers", &pb::ListReplicationPeersRequest::default()).await?;
        let peer = |found: pb::ReplicationPeerDescription| {
            let is_enabled = found.state.state() == State::Enabled;
            Peer::of_pb(found.id, is_enabled, found.config)
        };
        answer.peer_desc.into_iter().map(peer).collect()
    }

    /// One peer; an error if there is none of this id.
    pub async fn peer(&self, id: &str) -> Result<Peer, ClientError> {
        let request = pb::GetReplicationPeerConfigRequest { peer_id: id.to_string() };
        let answer: pb::GetReplicationPeerConfigResponse =
            self.call("GetReplicationPeerConfig", &request).await?;
        // The answer does not have the state.
        let is_enabled = self.peers().await?.iter().any(|peer| peer.id == id && peer.is_enabled);
        Peer::of_pb(answer.peer_id, is_enabled, answer.peer_config)
    }

    /// Adds a peer. It gets what is written from now on. A peer that is not enabled gets it when it is.
    pub async fn add_peer(&self, peer: &Peer) -> Result<(), ClientError> {
        let state = if peer.is_enabled { State::Enabled } else { State::Disabled };
        let request = pb::AddReplicationPeerRequest {
            peer_id: peer.id.clone(),
            peer_config: peer.to_pb(),
            peer_state: pb::ReplicationState { state: state as i32 },
        };
        let answer: pb::AddReplicationPeerResponse = self.call("AddReplicationPeer", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Changes the peer of this id to what `peer` says. It stays enabled or disabled, and keeps settings that
    /// `peer` does not name. Masters refuse another cluster key or endpoint.
    pub async fn update_peer(&self, peer: &Peer) -> Result<(), ClientError> {
        let request =
            pb::UpdateReplicationPeerConfigRequest { peer_id: peer.id.clone(), peer_config: peer.to_pb() };
        let answer: pb::UpdateReplicationPeerConfigResponse =
            self.call("UpdateReplicationPeerConfig", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Removes a peer. It does not get what it has not got.
    pub async fn remove_peer(&self, id: &str) -> Result<(), ClientError> {
        let request = pb::RemoveReplicationPeerRequest { peer_id: id.to_string() };
        let answer: pb::RemoveReplicationPeerResponse = self.call("RemoveReplicationPeer", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Sends a peer its edits from now on, first those that have waited.
    pub async fn enable_peer(&self, id: &str) -> Result<(), ClientError> {
        let request = pb::EnableReplicationPeerRequest { peer_id: id.to_string() };
        let answer: pb::EnableReplicationPeerResponse = self.call("EnableReplicationPeer", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Has the edits of a peer wait.
    pub async fn disable_peer(&self, id: &str) -> Result<(), ClientError> {
        let request = pb::DisableReplicationPeerRequest { peer_id: id.to_string() };
        let answer: pb::DisableReplicationPeerResponse =
            self.call("DisableReplicationPeer", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Whether peers may be changed.
    pub async fn is_peer_modification_enabled(&self) -> Result<bool, ClientError> {
        let request = pb::IsReplicationPeerModificationEnabledRequest {};
        let answer: pb::IsReplicationPeerModificationEnabledResponse =
            self.call("IsReplicationPeerModificationEnabled", &request).await?;
        Ok(answer.enabled)
    }

    /// Allows or forbids changes of peers, and returns whether they were allowed before. `drain`: if they are
    /// forbidden, waits for those under way.
    pub async fn set_peer_modification(&self, on: bool, drain: bool) -> Result<bool, ClientError> {
        let request = pb::ReplicationPeerModificationSwitchRequest { on };
        let answer: pb::ReplicationPeerModificationSwitchResponse =
            self.call("ReplicationPeerModificationSwitch", &request).await?;
        if drain && !on {
            self.peer_modifications_ended().await?;
        }
        Ok(answer.previous_value)
    }

    async fn peer_modifications_ended(&self) -> Result<(), ClientError> {
        let limit = self.cluster.inner.options.procedure_timeout;
        let (deadline, mut polls) = (after(limit), 0);
        loop {
            let request = pb::GetReplicationPeerModificationProceduresRequest {};
            let answer: pb::GetReplicationPeerModificationProceduresResponse =
                self.call("GetReplicationPeerModificationProcedures", &request).await?;
            if answer.procedure.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let count = answer.procedure.len();
                return Err(ClientError::timed_out(format!(
                    "{count} changes of peers have not ended within {limit:?}"
                )));
            }
            poll_pause(polls).await;
            polls += 1;
        }
    }

    /// Has the edits of all families of a table sent to the peers that get it. Connects to each of them: one
    /// without the table gets an empty one with the same regions, and it is an error if its table differs.
    pub async fn enable_table_replication(&self, table: &TableName) -> Result<(), ClientError> {
        let descriptor = self.describe(table).await?;
        let splits = self.splits(table).await?;
        let peers = self.peers().await?;
        if peers.is_empty() {
            return Err(refused("there is no peer that could get the edits"));
        }
        for peer in peers.iter().filter(|peer| peer.gets(table)) {
            self.bring_to_peer(peer, &descriptor, &splits).await?;
        }
        self.set_scopes(table, 1).await
    }

    /// Has the edits of a table sent to no peer any more. The peers keep their tables.
    pub async fn disable_table_replication(&self, table: &TableName) -> Result<(), ClientError> {
        self.set_scopes(table, 0).await
    }

    /// Creates a table at a peer; one that is there must be alike.
    async fn bring_to_peer(
        &self,
        peer: &Peer,
        table: &TableDescriptor,
        splits: &[Bytes],
    ) -> Result<(), ClientError> {
        let key = ClusterKey::parse(&peer.cluster_key)
            .map_err(|error| refused(format_args!("the peer {}: {error}", peer.id)))?;
        let address = ClusterAddress::ZooKeeper { quorum: key.quorum, base: key.base };
        let options = ClusterOptions { status: None, ..self.cluster.inner.options.clone() };
        let admin = Cluster::connect(address, options).await?.admin().await?;
        match admin.descriptor(table.name()).await? {
            None => admin.create_table(table, splits.to_vec()).await,
            Some(found) if is_alike(table, &found) => Ok(()),
            Some(_) => {
                let (name, id) = (table.name(), &peer.id);
                Err(refused(format_args!("the table {name} of the peer {id} has other attributes")))
            }
        }
    }

    async fn set_scopes(&self, table: &TableName, scope: i32) -> Result<(), ClientError> {
        let found = self.describe(table).await?;
        if found.families().iter().all(|family| family.scope() == scope) {
            return Ok(());
        }
        let mut changed = found.clone();
        for family in found.families() {
            changed = changed.with_family(family.clone().with(SCOPE, scope.to_string()));
        }
        self.modify_table(&changed).await
    }
}

/// What the cluster is not even asked for.
fn refused(why: impl std::fmt::Display) -> ClientError {
    ClientError::exception("DoNotRetryIOException", why)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::FamilyDescriptor;

    use super::*;

    fn name(text: &str) -> TableName {
        TableName::parse(text.as_bytes()).unwrap()
    }

    fn again(peer: &Peer) -> Peer {
        Peer::of_pb(peer.id.clone(), peer.is_enabled, peer.to_pb()).unwrap()
    }

    #[test]
    fn a_peer_says_which_tables_it_gets() {
        let some = Peer::of_tables("p", "h:2181:/hbase", [name("n:t")]);
        assert!(some.gets(&name("n:t")) && !some.gets(&name("t")) && !some.gets(&name("n:u")));
        let all = Peer { tables: None, excluded_tables: vec![(name("t"), Vec::new())], ..some.clone() };
        assert!(all.gets(&name("n:u")) && !all.gets(&name("t")));
        let partly =
            Peer { excluded_tables: vec![(name("t"), vec![Bytes::from_static(b"f")])], ..all.clone() };
        assert!(partly.gets(&name("t")));
        let namespace = Peer { namespaces: vec!["n".to_string()], ..some.clone() };
        assert!(namespace.gets(&name("n:u")));
        for peer in [some, all, partly, namespace] {
            assert_eq!(again(&peer), peer);
        }
    }

    #[test]
    fn a_peer_keeps_all_that_it_has() {
        let peer = Peer {
            is_enabled: false,
            endpoint_class: Some("a.B".to_string()),
            configuration: BTreeMap::from([("k".to_string(), "v".to_string())]),
            data: BTreeMap::from([(Bytes::from_static(b"d"), Bytes::from_static(b"\xff\0"))]),
            bandwidth: 1 << 20,
            is_serial: true,
            remote_wal_dir: Some("hdfs://n/w".to_string()),
            excluded_namespaces: vec!["n".to_string()],
            ..Peer::new("p", "h:2181:/hbase")
        };
        assert_eq!(again(&peer), peer);
    }

    #[test]
    fn what_a_peer_does_not_say_is_the_default() {
        let key =
            || pb::ReplicationPeer { clusterkey: Some("h:2181:/hbase".to_string()), ..Default::default() };
        let peer = |config| Peer::of_pb("p".to_string(), true, config).unwrap();
        assert_eq!(peer(key()), Peer::new("p", "h:2181:/hbase"));
        let blank = pb::ReplicationPeer { replication_endpoint_impl: Some(" ".to_string()), ..key() };
        assert_eq!(peer(blank).endpoint_class, None);
        let named = pb::ReplicationPeer { namespaces: vec![Bytes::from_static(b"n")], ..key() };
        assert_eq!(peer(named).tables, Some(Vec::new()));
        let bad = pb::ReplicationPeer { namespaces: vec![Bytes::from_static(b"\xff")], ..key() };
        assert!(matches!(Peer::of_pb("p".to_string(), true, bad), Err(ClientError::Malformed(_))));
        let bad = pb::ReplicationPeer { table_cfs: vec![pb::TableCf::default()], ..key() };
        assert!(matches!(Peer::of_pb("p".to_string(), true, bad), Err(ClientError::Malformed(_))));
    }

    #[test]
    fn tables_are_alike_whichever_families_go_to_peers() {
        let table = |family: FamilyDescriptor| TableDescriptor::new(name("t")).with_family(family);
        let family = || FamilyDescriptor::new("f").unwrap();
        let here = table(family());
        assert!(is_alike(&here, &table(family().with(SCOPE, "1")).with("IS_META", "false")));
        assert!(is_alike(&here, &table(family().with_defaults())));
        assert!(!is_alike(&here, &table(family().with("VERSIONS", "3"))));
        assert!(!is_alike(&here, &table(family()).with("MAX_FILESIZE", "1")));
        assert!(!is_alike(&here, &table(family()).with_family(FamilyDescriptor::new("g").unwrap())));
    }
}
