//! Replication peers: the clusters that get this one's edits.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::TableName;
use pb::replication_state::State;

use super::Admin;
use crate::ClientError;

/// A replication peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub id: String,
    /// Where the peer is: `host,host:port:/znode`. Empty for an endpoint that needs none.
    pub cluster_key: String,
    /// Whether edits are sent now. Those of a disabled peer wait.
    pub is_enabled: bool,
    /// The tables whose edits are sent, with the families; no families: all of them. `None`: all tables but the excluded ones.
    pub tables: Option<Vec<(TableName, Vec<Bytes>)>>,
    /// Namespaces whose edits are sent besides `tables`.
    pub namespaces: Vec<String>,
    /// Tables that are left out where `tables` is `None`, with the families; no families: all of them.
    pub excluded_tables: Vec<(TableName, Vec<Bytes>)>,
    /// Namespaces that are left out where `tables` is `None`.
    pub excluded_namespaces: Vec<String>,
}

impl Peer {
    /// An enabled peer that gets the edits of these tables alone.
    pub fn of_tables(id: &str, cluster_key: &str, tables: impl IntoIterator<Item = TableName>) -> Peer {
        Peer {
            id: id.to_string(),
            cluster_key: cluster_key.to_string(),
            is_enabled: true,
            tables: Some(tables.into_iter().map(|table| (table, Vec::new())).collect()),
            namespaces: Vec::new(),
            excluded_tables: Vec::new(),
            excluded_namespaces: Vec::new(),
        }
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

    fn of_pb(message: pb::ReplicationPeerDescription) -> Result<Peer, ClientError> {
        let config = message.config;
        let tables = tables_of_pb(&config.table_cfs)?;
        // A peer of before HBase 2 has tables and says nothing of the others.
        let gets_all = config.replicate_all.unwrap_or(tables.is_empty() && config.namespaces.is_empty());
        Ok(Peer {
            id: message.id,
            cluster_key: config.clusterkey.unwrap_or_default(),
            is_enabled: message.state.state() == State::Enabled,
            tables: (!gets_all).then_some(tables),
            namespaces: texts(&config.namespaces),
            excluded_tables: tables_of_pb(&config.exclude_table_cfs)?,
            excluded_namespaces: texts(&config.exclude_namespaces),
        })
    }

    fn to_pb(&self) -> pb::ReplicationPeer {
        let bytes =
            |names: &[String]| names.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
        pb::ReplicationPeer {
            clusterkey: Some(self.cluster_key.clone()),
            replicate_all: Some(self.tables.is_none()),
            table_cfs: self.tables.as_deref().map(tables_to_pb).unwrap_or_default(),
            namespaces: bytes(&self.namespaces),
            exclude_table_cfs: tables_to_pb(&self.excluded_tables),
            exclude_namespaces: bytes(&self.excluded_namespaces),
            ..Default::default()
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

fn texts(names: &[Bytes]) -> Vec<String> {
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

impl Admin {
    /// All replication peers.
    pub async fn peers(&self) -> Result<Vec<Peer>, ClientError> {
        let answer: pb::ListReplicationPeersResponse =
            self.call("ListReplicationPeers", &pb::ListReplicationPeersRequest::default()).await?;
        answer.peer_desc.into_iter().map(Peer::of_pb).collect()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TableName {
        TableName::parse(text.as_bytes()).unwrap()
    }

    fn described(peer: &Peer) -> pb::ReplicationPeerDescription {
        let state = if peer.is_enabled { State::Enabled } else { State::Disabled };
        pb::ReplicationPeerDescription {
            id: peer.id.clone(),
            state: pb::ReplicationState { state: state as i32 },
            config: peer.to_pb(),
            sync_replication_state: None,
        }
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
            assert_eq!(Peer::of_pb(described(&peer)).unwrap(), peer);
        }
    }
}
