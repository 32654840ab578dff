//! What snapshots of tables with space quotas hold that their tables do not any more (HBase: `SnapshotQuotaObserverChore`,
//! `FileArchiverNotifierImpl`).
//!
//! A store file counts for the first snapshot, by name, that has it, and for none while it is with its table. A table's quota
//! counts all of its snapshots. Clients read the sizes in `hbase:quota`: `u:ss<snapshot>` in the row of the table, and the sum
//! in `u:ss` of the namespace.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use halcyon_cell::{Cell, Result};
use halcyon_contract::{QUOTA_SNAPSHOT_SIZE_QUALIFIER, QUOTA_USAGE_FAMILY, QuotaSubject, QuotaTable};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;
use tracing::warn;

use super::delete_column;
use crate::snapshot;
use crate::state::MasterState;

/// Bytes by table and snapshot.
pub(super) type SnapshotSizes = BTreeMap<TableName, BTreeMap<String, u64>>;

/// Those of snapshots of `tables`. A snapshot that cannot be read is named in the log and left out. *Blocking*.
pub(super) fn sizes(core: &MasterState, tables: &BTreeSet<TableName>) -> Result<SnapshotSizes> {
    let mut names: BTreeMap<TableName, BTreeSet<String>> = BTreeMap::new();
    for info in snapshot::list_infos(core)? {
        if let Ok(table) = TableName::parse(info.table().as_bytes())
            && tables.contains(&table)
        {
            names.entry(table).or_default().insert(info.name);
        }
    }
    let mut sizes = SnapshotSizes::new();
    for (table, names) in names {
        let mut counted = HashSet::new();
        for name in names {
            match size_of(core, &name, &mut counted) {
                Ok(size) => drop(sizes.entry(table.clone()).or_default().insert(name, size)),
                Err(error) => warn!(snapshot = name, %error, "the size of a snapshot is not known"),
            }
        }
    }
    Ok(sizes)
}

/// Bytes of files that are neither with the table nor in `counted`, which takes them.
fn size_of(core: &MasterState, name: &str, counted: &mut HashSet<String>) -> Result<u64> {
    let mut size = 0;
    for region in snapshot::read_manifest(core, name)?.region_manifests {
        let dir = RegionInfo::from_pb(&region.region_info)?.dir(&core.root);
        for family in region.family_files {
            let dir = dir.join(&*String::from_utf8_lossy(&family.family_name));
            for file in family.store_files {
                if !counted.contains(&file.name) && !core.env.fs.exists(&dir.join(&file.name))? {
                    size += file.file_size();
                    counted.insert(file.name);
                }
            }
        }
    }
    Ok(size)
}

pub(super) fn by_table(sizes: &SnapshotSizes) -> BTreeMap<TableName, u64> {
    sizes.iter().map(|(table, of)| (table.clone(), of.values().sum())).collect()
}

/// What makes the table say `sizes`.
pub(super) fn changes(quotas: &QuotaTable, sizes: &SnapshotSizes, timestamp: i64) -> Vec<Cell> {
    let mut wanted: BTreeMap<QuotaSubject, BTreeMap<String, u64>> = BTreeMap::new();
    for (table, of) in sizes {
        let namespace = QuotaSubject::Namespace(table.namespace().to_string());
        *wanted.entry(namespace).or_default().entry(String::new()).or_default() += of.values().sum::<u64>();
        wanted.insert(QuotaSubject::Table(table.clone()), of.clone());
    }
    let qualifier = |name: &str| [QUOTA_SNAPSHOT_SIZE_QUALIFIER, name.as_bytes()].concat();
    let known = |subject: &QuotaSubject, name: &str| quotas.snapshot_sizes.get(subject)?.get(name).copied();
    let mut cells = Vec::new();
    for (subject, of) in &wanted {
        for (name, &size) in of.iter().filter(|(name, size)| known(subject, name) != Some(**size)) {
            let usage = pb::SpaceQuotaSnapshot { quota_usage: Some(size), ..Default::default() };
            let value = usage.encode_to_vec();
            cells.push(Cell::put(&subject.row(), QUOTA_USAGE_FAMILY, &qualifier(name), timestamp, &value));
        }
    }
    for (subject, of) in &quotas.snapshot_sizes {
        let is_gone = |name: &str| !wanted.get(subject).is_some_and(|of| of.contains_key(name));
        for name in of.keys().filter(|name| is_gone(name)) {
            cells.push(delete_column(&subject.row(), QUOTA_USAGE_FAMILY, &qualifier(name), timestamp));
        }
    }
    cells
}
