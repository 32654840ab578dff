//! What a peer's name and configuration may be. Checked against `ReplicationPeerManager` of 2.6.4; what only HBase can do
//! is refused by name.

use std::borrow::Cow;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{ClusterKey, TableName};

use crate::errors::{invalid, unsupported};

type Answer = Result<(), RpcError>;

const OWN_ENDPOINT: &str =
    "org.apache.hadoop.hbase.replication.regionserver.HBaseInterClusterReplicationEndpoint";
const ENTRY_FILTERS: &str = "hbase.replication.source.custom.walentryfilters";

/// A peer's id is the name of its directory, and of its znode in HBase.
pub(crate) fn check_id(id: &str) -> Answer {
    let is_bad = |character: char| matches!(character, '-' | '/' | ':') || character.is_control();
    if id.is_empty() || id.len() > 255 || id.starts_with('.') || id.contains(is_bad) {
        return Err(RpcError::do_not_retry(format!("Found invalid peer name: {id}")));
    }
    Ok(())
}

pub(crate) fn not_found(id: &str) -> RpcError {
    let mut error = RpcError::do_not_retry(format!("Replication peer {id} does not exist"));
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.ReplicationPeerNotFoundException");
    error
}

pub(crate) fn check_config(config: &pb::ReplicationPeer) -> Answer {
    let endpoint = config.replication_endpoint_impl().trim();
    if !endpoint.is_empty() && endpoint != OWN_ENDPOINT {
        return Err(RpcError::do_not_retry(format!(
            "Can not instantiate configured replication endpoint class={endpoint}: classes other than {OWN_ENDPOINT} are not \
             supported"
        )));
    }
    if !config.remote_wal_dir().trim().is_empty() {
        return Err(unsupported("Synchronous replication (a remote WAL directory) is"));
    }
    let filters = config.configuration.iter().find(|pair| pair.name == ENTRY_FILTERS);
    if filters.is_some_and(|filters| !filters.value.is_empty()) {
        return Err(unsupported(&format!("{ENTRY_FILTERS}: WAL entry filters are")));
    }
    let key = ClusterKey::parse(config.clusterkey());
    key.map_err(|_| RpcError::do_not_retry(format!("Invalid cluster key: {}", config.clusterkey())))?;
    if config.bandwidth() < 0 {
        return Err(RpcError::do_not_retry(format!("A bandwidth of {} bytes a second", config.bandwidth())));
    }
    let named = (&config.namespaces, &config.table_cfs);
    let excluded = (&config.exclude_namespaces, &config.exclude_table_cfs);
    let is_empty =
        |(namespaces, tables): (&Vec<Bytes>, &Vec<pb::TableCf>)| namespaces.is_empty() && tables.is_empty();
    if config.replicate_all.unwrap_or(true) {
        if !is_empty(named) {
            return Err(RpcError::do_not_retry(
                "Need clean namespaces or table-cfs config firstly when you want replicate all cluster",
            ));
        }
        check_conflict(excluded)
    } else {
        if !is_empty(excluded) {
            return Err(RpcError::do_not_retry(
                "Need clean exclude-namespaces or exclude-table-cfs config firstly when replicate_all flag is false",
            ));
        }
        check_conflict(named)
    }
}

/// A table cannot be named beside its namespace.
fn check_conflict((namespaces, tables): (&Vec<Bytes>, &Vec<pb::TableCf>)) -> Answer {
    for table in tables {
        let name = TableName::from_pb(&table.table_name.clone().unwrap_or_default()).map_err(invalid)?;
        let namespace = name.namespace();
        if namespaces.iter().any(|other| other == namespace.as_bytes()) {
            return Err(RpcError::do_not_retry(format!(
                "Table-cfs {name} is conflict with namespaces {namespace} in peer config"
            )));
        }
    }
    Ok(())
}

/// Whether a peer's configuration may become `new`.
pub(crate) fn check_update(id: &str, old: &pb::ReplicationPeer, new: &pb::ReplicationPeer) -> Answer {
    check_config(new)?;
    let fixed = [
        ("cluster key", "key", old.clusterkey(), new.clusterkey()),
        (
            "replication endpoint implementation class",
            "class",
            old.replication_endpoint_impl(),
            new.replication_endpoint_impl(),
        ),
    ];
    for (what, word, old, new) in fixed {
        if old.trim() != new.trim() {
            return Err(RpcError::do_not_retry(format!(
                "Changing the {what} on an existing peer is not allowed. Existing {word} '{old}' for peer {id} does not \
                 match new {word} '{new}'"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> pb::ReplicationPeer {
        pb::ReplicationPeer { clusterkey: Some("h:2181:/hbase".to_string()), ..Default::default() }
    }

    fn message(config: pb::ReplicationPeer) -> String {
        check_config(&config).unwrap_err().message
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused_by_name() {
        check_config(&good()).unwrap();
        check_config(&pb::ReplicationPeer { replication_endpoint_impl: Some(OWN_ENDPOINT.into()), ..good() })
            .unwrap();
        check_config(&pb::ReplicationPeer { serial: Some(true), ..good() }).unwrap();
        let sync = message(pb::ReplicationPeer { remote_wal_dir: Some("hdfs://n/w".into()), ..good() });
        assert!(sync.contains("Synchronous replication"), "{sync}");
        let endpoint =
            message(pb::ReplicationPeer { replication_endpoint_impl: Some("a.B".into()), ..good() });
        assert!(endpoint.contains("class=a.B") && endpoint.ends_with("are not supported"), "{endpoint}");
        let pair = pb::NameStringPair { name: ENTRY_FILTERS.into(), value: "a.F".into() };
        assert!(message(pb::ReplicationPeer { configuration: vec![pair], ..good() }).contains("filters"));
        let key = message(pb::ReplicationPeer { clusterkey: Some("h".into()), ..good() });
        assert_eq!(key, "Invalid cluster key: h");
        assert!(message(pb::ReplicationPeer { bandwidth: Some(-1), ..good() }).contains("-1"));
    }

    #[test]
    fn lists_must_fit_each_other() {
        let namespaces = || vec![Bytes::from_static(b"n")];
        let table = || {
            vec![pb::TableCf {
                table_name: Some(TableName::parse(b"n:t").unwrap().to_pb()),
                families: vec![],
            }]
        };
        assert!(
            message(pb::ReplicationPeer { namespaces: namespaces(), ..good() }).contains("replicate all")
        );
        let some = pb::ReplicationPeer { replicate_all: Some(false), ..good() };
        check_config(&pb::ReplicationPeer { namespaces: namespaces(), ..some.clone() }).unwrap();
        assert!(
            message(pb::ReplicationPeer { exclude_table_cfs: table(), ..some.clone() }).contains("exclude")
        );
        let both = pb::ReplicationPeer { namespaces: namespaces(), table_cfs: table(), ..some };
        assert!(message(both).contains("conflict"));
        let both =
            pb::ReplicationPeer { exclude_namespaces: namespaces(), exclude_table_cfs: table(), ..good() };
        assert!(message(both).contains("conflict"));
    }

    #[test]
    fn ids_are_names_of_files() {
        for good in ["1", "east", "a_b.c"] {
            check_id(good).unwrap();
        }
        for bad in ["", "a-b", "a/b", "..", ".x", "a\n"] {
            assert!(check_id(bad).is_err(), "{bad:?}");
        }
        let update = pb::ReplicationPeer { clusterkey: Some("i:2181:/hbase".into()), ..good() };
        assert!(check_update("p", &good(), &update).unwrap_err().message.contains("cluster key"));
        check_update("p", &good(), &pb::ReplicationPeer { bandwidth: Some(5), ..good() }).unwrap();
    }
}
