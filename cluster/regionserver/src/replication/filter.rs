//! Which cells a peer gets.
//!
//! Those of families with `REPLICATION_SCOPE` 1, of tables and families that the peer's configuration names, unless the peer
//! has the edit already. Tables of namespace `hbase` stay here. Checked against `ScopeWALEntryFilter`,
//! `NamespaceTableCfWALEntryFilter`, `SystemTableWALEntryFilter`, `ClusterMarkingEntryFilter` and
//! `ReplicationPeerConfig.needToReplicate` of 2.6.4.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use halcyon_cell::{Cell, Result};
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, ClusterUuid, TableName};
use halcyon_wal::META_FAMILY;
use prost::Message;

use super::BULK_LOAD;

const SYSTEM_NAMESPACE: &str = "hbase";

/// Of one state of a peer's configuration.
#[derive(Clone, Debug)]
pub(super) struct PeerFilter {
    /// The peer gets bulk loads, too (`hbase.replication.bulkload.enabled`).
    loads: bool,
    /// The lists name what stays here; else they name what the peer gets.
    all_but: bool,
    namespaces: HashSet<String>,
    /// Families of tables; an empty set stands for all of them.
    tables: HashMap<TableName, HashSet<Bytes>>,
}

impl PeerFilter {
    /// `Invalid` for a name that no table can have.
    pub(super) fn new(config: &pb::ReplicationPeer, loads: bool) -> Result<PeerFilter> {
        let all_but = config.replicate_all.unwrap_or(true);
        let (namespaces, tables) = match all_but {
            true => (&config.exclude_namespaces, &config.exclude_table_cfs),
            false => (&config.namespaces, &config.table_cfs),
        };
        let mut by_table = HashMap::new();
        for table in tables {
            let name = TableName::from_pb(&table.table_name.clone().unwrap_or_default())?;
            by_table.insert(name, table.families.iter().cloned().collect());
        }
        let namespaces = namespaces.iter().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(PeerFilter { loads, all_but, namespaces: namespaces.collect(), tables: by_table })
    }

    /// Whether the peer gets bulk loads of a family with `REPLICATION_SCOPE` 1.
    pub(super) fn passes_loads(&self, table: &TableName, family: &[u8]) -> bool {
        self.loads && table.namespace() != SYSTEM_NAMESPACE && self.passes(table, family)
    }

    fn passes(&self, table: &TableName, family: &[u8]) -> bool {
        let is_listed = self.namespaces.contains(table.namespace())
            || self
                .tables
                .get(table)
                .is_some_and(|families| families.is_empty() || families.contains(family));
        is_listed != self.all_but
    }

    /// The cells of an entry that the peer gets, as an entry of a request. The key names the cluster that sends. `None` if
    /// there are no such cells.
    pub(super) fn apply(
        &self,
        key: &pb::WalKey,
        cells: Vec<Cell>,
        (own, peer): (ClusterUuid, ClusterUuid),
    ) -> Option<(pb::WalEntry, Vec<Cell>)> {
        let global = pb::ScopeType::ReplicationScopeGlobal as i32;
        let scopes: Vec<&Bytes> =
            key.scopes.iter().filter(|scope| scope.scope_type == global).map(|scope| &scope.family).collect();
        if scopes.is_empty() || key.cluster_ids.iter().any(|id| ClusterUuid::from_pb(id) == peer) {
            return None;
        }
        let table = TableName::parse(&key.table_name).ok()?;
        if table.namespace() == SYSTEM_NAMESPACE {
            return None;
        }
        let passes =
            |family: &[u8]| scopes.iter().any(|scope| *scope == family) && self.passes(&table, family);
        let filtered = |cell: Cell| match cell.family() {
            META_FAMILY => self.filter_marker(cell, peer, &passes),
            family => passes(family).then_some(cell),
        };
        let cells: Vec<Cell> = cells.into_iter().filter_map(filtered).collect();
        if cells.is_empty() {
            return None;
        }
        let mut cluster_ids = key.cluster_ids.clone();
        if !cluster_ids.iter().any(|id| ClusterUuid::from_pb(id) == own) {
            cluster_ids.push(own.to_pb());
        }
        let sent = pb::WalKey {
            encoded_region_name: key.encoded_region_name.clone(),
            table_name: key.table_name.clone(),
            log_sequence_number: key.log_sequence_number,
            write_time: key.write_time,
            cluster_ids,
            ..Default::default()
        };
        let count = i32::try_from(cells.len()).expect("an entry has fewer cells than bytes");
        Some((pb::WalEntry { key: sent, associated_cell_count: Some(count), ..Default::default() }, cells))
    }

    /// The marker of a bulk load, without the families that the peer does not get. HBase sends one of whose clusters the peer is,
    /// which then loads nothing.
    fn filter_marker(&self, cell: Cell, peer: ClusterUuid, passes: &dyn Fn(&[u8]) -> bool) -> Option<Cell> {
        let mut load = load_of(&cell).filter(|load| self.loads && load.replicate())?;
        if load.cluster_ids.iter().any(|id| ClusterId(id.clone()).uuid() == Some(peer)) {
            return None;
        }
        let count = load.stores.len();
        load.stores.retain(|store| passes(&store.family_name));
        match load.stores.len() {
            0 => None,
            left if left == count => Some(cell),
            _ => Some(with_load(&cell, &load)),
        }
    }
}

/// The bulk load that a cell tells of.
pub(super) fn load_of(cell: &Cell) -> Option<pb::BulkLoadDescriptor> {
    if cell.family() != META_FAMILY || cell.qualifier() != BULK_LOAD {
        return None;
    }
    match pb::BulkLoadDescriptor::decode(cell.value()) {
        Ok(load) => Some(load),
        Err(error) => {
            tracing::error!(%error, "a bulk load in a WAL cannot be decoded, and no peer gets it");
            None
        }
    }
}

/// The marker with another bulk load in it.
pub(super) fn with_load(marker: &Cell, load: &pb::BulkLoadDescriptor) -> Cell {
    let (row, timestamp, kind) = (marker.row(), marker.timestamp(), marker.cell_type());
    Cell::build(row, META_FAMILY, BULK_LOAD, timestamp, kind, &load.encode_to_vec(), b"", 0)
}

#[cfg(test)]
mod tests {
    use halcyon_cell::CellType;

    use super::*;

    const OWN: ClusterUuid = ClusterUuid { most: 1, least: 1 };
    const PEER: ClusterUuid = ClusterUuid { most: 2, least: 2 };
    const OTHER: ClusterUuid = ClusterUuid { most: 3, least: 3 };

    fn key(table: &'static str, scopes: &[&'static str], ids: &[ClusterUuid]) -> pb::WalKey {
        let scope = |family: &&'static str| pb::FamilyScope {
            family: Bytes::from_static(family.as_bytes()),
            scope_type: pb::ScopeType::ReplicationScopeGlobal as i32,
        };
        pb::WalKey {
            encoded_region_name: Bytes::from_static(b"r"),
            table_name: Bytes::from_static(table.as_bytes()),
            write_time: 7,
            scopes: scopes.iter().map(scope).collect(),
            cluster_ids: ids.iter().map(|id| id.to_pb()).collect(),
            ..Default::default()
        }
    }

    fn cells() -> Vec<Cell> {
        let cell = |family: &[u8]| Cell::build(b"r", family, b"q", 1, CellType::Put, b"v", b"", 0);
        vec![cell(b"a"), cell(b"b"), cell(META_FAMILY)]
    }

    fn families(config: &pb::ReplicationPeer, table: &'static str) -> Vec<String> {
        let filter = PeerFilter::new(config, true).unwrap();
        let passed = filter.apply(&key(table, &["a", "b"], &[]), cells(), (OWN, PEER));
        let names = passed.into_iter().flat_map(|(_, cells)| cells);
        names.map(|cell| String::from_utf8_lossy(cell.family()).into_owned()).collect()
    }

    fn table_cfs(table: &[u8], families: &[&'static str]) -> pb::TableCf {
        let families = families.iter().map(|family| Bytes::from_static(family.as_bytes())).collect();
        pb::TableCf { table_name: Some(TableName::parse(table).unwrap().to_pb()), families }
    }

    #[test]
    fn the_lists_of_a_peer_say_what_it_gets() {
        let all = pb::ReplicationPeer::default();
        assert_eq!(families(&all, "t"), ["a", "b"]);
        assert_eq!(families(&all, "n:t"), ["a", "b"]);
        assert!(families(&all, "hbase:t").is_empty());
        let but = pb::ReplicationPeer {
            exclude_namespaces: vec![Bytes::from_static(b"n")],
            exclude_table_cfs: vec![table_cfs(b"t", &["a"]), table_cfs(b"u", &[])],
            ..Default::default()
        };
        assert_eq!(families(&but, "t"), ["b"]);
        assert!(families(&but, "u").is_empty() && families(&but, "n:t").is_empty());
        assert_eq!(families(&but, "m:t"), ["a", "b"]);
        let only = pb::ReplicationPeer {
            replicate_all: Some(false),
            namespaces: vec![Bytes::from_static(b"n")],
            table_cfs: vec![table_cfs(b"t", &["a"]), table_cfs(b"u", &[])],
            ..Default::default()
        };
        assert_eq!(families(&only, "t"), ["a"]);
        assert_eq!(families(&only, "u"), ["a", "b"]);
        assert_eq!(families(&only, "n:t"), ["a", "b"]);
        assert!(families(&only, "v").is_empty());
    }

    #[test]
    fn a_peer_gets_nothing_that_it_has() {
        let filter = PeerFilter::new(&pb::ReplicationPeer::default(), true).unwrap();
        let apply = |key: &pb::WalKey| filter.apply(key, cells(), (OWN, PEER));
        assert!(apply(&key("t", &["a"], &[OTHER, PEER])).is_none());
        assert!(apply(&key("t", &[], &[])).is_none());
        let (entry, cells) = apply(&key("t", &["b"], &[OTHER])).unwrap();
        assert_eq!((cells.len(), entry.associated_cell_count), (1, Some(1)));
        assert_eq!(entry.key.cluster_ids, [OTHER.to_pb(), OWN.to_pb()]);
        assert_eq!((entry.key.write_time, entry.key.scopes.len()), (7, 0));
        let (entry, _) = apply(&key("t", &["b"], &[OWN])).unwrap();
        assert_eq!(entry.key.cluster_ids, [OWN.to_pb()]);
    }

    #[test]
    fn bulk_loads_are_sent_without_the_families_that_stay_here() {
        let store = |family: &'static str| pb::StoreDescriptor {
            family_name: Bytes::from_static(family.as_bytes()),
            store_home_dir: family.to_string(),
            store_file: vec![format!("{family}1")],
            store_file_size_bytes: None,
        };
        let sent = |load: &pb::BulkLoadDescriptor, loads, key: &pb::WalKey| {
            let value = load.encode_to_vec();
            let marker = Cell::build(b"r", META_FAMILY, BULK_LOAD, 1, CellType::Put, &value, b"", 0);
            let filter = PeerFilter::new(&pb::ReplicationPeer::default(), loads).unwrap();
            let cells =
                filter.apply(key, vec![marker], (OWN, PEER)).map(|(_, cells)| cells).unwrap_or_default();
            let stores = cells.iter().filter_map(load_of).inspect(|load| assert!(load.replicate()));
            let names = stores.flat_map(|load| load.stores).map(|store| store.store_home_dir);
            names.collect::<Vec<_>>()
        };
        let load = pb::BulkLoadDescriptor {
            replicate: Some(true),
            stores: vec![store("a"), store("b")],
            cluster_ids: vec!["00000000-0000-0001-0000-000000000001".to_string()],
            ..Default::default()
        };
        let both = key("t", &["a", "b"], &[]);
        assert_eq!(sent(&load, true, &both), ["a", "b"]);
        assert_eq!(sent(&load, true, &key("t", &["b"], &[])), ["b"]);
        assert!(sent(&load, true, &key("t", &["c"], &[])).is_empty());
        assert!(sent(&load, false, &both).is_empty(), "bulk loads are not replicated");
        let stays = pb::BulkLoadDescriptor { replicate: Some(false), ..load.clone() };
        assert!(sent(&stays, true, &both).is_empty());
        let mut known = load;
        known.cluster_ids.push("00000000-0000-0002-0000-000000000002".to_string());
        assert!(sent(&known, true, &both).is_empty(), "the peer has loaded it");
    }
}
