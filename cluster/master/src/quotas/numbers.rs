//! What metrics say of space quotas (HBase: `MetricsMasterQuotaSource`).

use std::collections::{BTreeMap, BTreeSet};

use halcyon_contract::{QuotaSubject, QuotaTable};
use halcyon_proto::pb;
use halcyon_rpc::CallTimesSnapshot;
use halcyon_schema::TableName;

use super::observer::is_exceeded;

/// Space quotas as of the last time that they were compared with what tables use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaNumbers {
    /// Space quotas of tables, and of namespaces that have tables.
    pub quotas_count: usize,
    /// Regions whose size is known.
    pub regions_count: usize,
    /// Tables that exceed a quota of their own.
    pub exceeding_tables_count: usize,
    pub exceeding_namespaces_count: usize,
    /// Tables with quotas of their own.
    pub tables: Vec<SpaceUse>,
    pub namespaces: Vec<SpaceUse>,
    /// How long each comparison took.
    pub observer_times: CallTimesSnapshot,
    /// How long it took to add up what snapshots hold.
    pub snapshot_times: CallTimesSnapshot,
}

/// What a table or namespace uses of its space quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpaceUse {
    pub name: String,
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

/// Space quotas of tables that exist, and of namespaces that have tables.
pub(super) fn count_quotas(quotas: &QuotaTable, tables: &BTreeMap<String, BTreeSet<TableName>>) -> usize {
    let counts = |subject: &QuotaSubject| match subject {
        QuotaSubject::Table(table) => tables.get(table.namespace()).is_some_and(|it| it.contains(table)),
        QuotaSubject::Namespace(namespace) => tables.get(namespace).is_some_and(|it| !it.is_empty()),
        _ => false,
    };
    quotas.quotas.iter().filter(|(subject, quota)| quota.space.is_some() && counts(subject)).count()
}

pub(super) fn space_use<K: ToString>(snapshots: &BTreeMap<K, pb::SpaceQuotaSnapshot>) -> Vec<SpaceUse> {
    let one = |(name, snapshot): (&K, &pb::SpaceQuotaSnapshot)| SpaceUse {
        name: name.to_string(),
        used_bytes: snapshot.quota_usage(),
        limit_bytes: snapshot.quota_limit(),
    };
    snapshots.iter().map(one).collect()
}

pub(super) fn count_exceeded<K>(snapshots: &BTreeMap<K, pb::SpaceQuotaSnapshot>) -> usize {
    snapshots.values().filter(|snapshot| is_exceeded(snapshot)).count()
}
