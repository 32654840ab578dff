//! Tables and regions that a namespace may have (HBase: `NamespaceAuditor`, `NamespaceStateManager`).

use std::collections::BTreeMap;

use halcyon_rpc::RpcError;
use halcyon_schema::{NamespaceDescriptor, RegionInfo, TableName};

use super::Answer;
use crate::state::MasterState;

/// Attributes of a namespace, as HBase names them (`TableNamespaceManager`).
const TABLES_MAX: &str = "hbase.namespace.quota.maxtables";
const REGIONS_MAX: &str = "hbase.namespace.quota.maxregions";

/// Limits of the namespace of a table, and what it has; `None`: nothing limits it.
fn usage(core: &MasterState, table: &TableName) -> Option<Usage> {
    if !core.settings.quotas.enabled || table.is_system() {
        return None;
    }
    let limits = {
        let namespaces = core.namespaces.read();
        Limits::of(&namespaces.get(table.namespace())?.configuration)
    };
    if limits.tables_max.is_none() && limits.regions_max.is_none() {
        return None;
    }
    let tables = core.tables.read();
    let (mut tables_count, mut regions_count, mut regions_of_table) = (0, 0, 0);
    let entries = tables.by_name.iter().filter(|(name, _)| name.namespace() == table.namespace());
    for (name, entry) in entries {
        let count = entry.live_regions().len();
        tables_count += 1;
        regions_count += count;
        if name == table {
            regions_of_table = count;
        }
    }
    Some(Usage { limits, tables_count, regions_count, regions_of_table })
}

struct Usage {
    limits: Limits,
    tables_count: usize,
    regions_count: usize,
    regions_of_table: usize,
}

struct Limits {
    tables_max: Option<usize>,
    regions_max: Option<usize>,
}

impl Limits {
    /// An attribute that is no number limits nothing: HBase refuses such a namespace.
    fn of(configuration: &BTreeMap<String, String>) -> Limits {
        let limit = |name: &str| configuration.get(name)?.trim().parse().ok();
        Limits { tables_max: limit(TABLES_MAX), regions_max: limit(REGIONS_MAX) }
    }
}

/// Whether there may be another table with so many regions.
pub(crate) fn check_new_table(core: &MasterState, table: &TableName, regions: usize) -> Answer<()> {
    let Some(usage) = usage(core, table) else { return Ok(()) };
    if let Some(max) = usage.limits.tables_max.filter(|max| usage.tables_count >= *max) {
        return Err(RpcError::quota_exceeded(format!(
            "The table {table} cannot be created as it would exceed maximum number of tables allowed  in the namespace.  \
             The total number of tables permitted is {max}"
        )));
    }
    let count = usage.regions_count;
    if let Some(max) = usage.limits.regions_max.filter(|max| count + regions > *max) {
        return Err(RpcError::quota_exceeded(format!(
            "The table {table} is not allowed to have {regions} regions. The total number of regions permitted is only \
             {max}, while current region count is {count}. This may be transient, please retry later if there are any \
             ongoing split operations in the namespace."
        )));
    }
    Ok(())
}

/// Whether a table that is there may have so many regions.
pub(crate) fn check_new_regions(core: &MasterState, table: &TableName, regions: usize) -> Answer<()> {
    let Some(usage) = usage(core, table) else { return Ok(()) };
    let others = usage.regions_count - usage.regions_of_table;
    match usage.limits.regions_max.filter(|max| others + regions > *max) {
        None => Ok(()),
        Some(max) => Err(RpcError::quota_exceeded(format!(
            "The table {table} region count cannot be updated as it would exceed maximum number of regions allowed in the \
             namespace.  The total number of regions permitted is {max}"
        ))),
    }
}

/// Whether a region may be split.
pub(crate) fn check_split(core: &MasterState, region: &RegionInfo) -> Answer<()> {
    let Some(usage) = usage(core, region.table()) else { return Ok(()) };
    if usage.limits.regions_max.is_none_or(|max| usage.regions_count < max) {
        return Ok(());
    }
    Err(RpcError::quota_exceeded(format!(
        "Region split not possible for :{} as quota limits are exceeded ",
        region.encoded_name()
    )))
}

/// What HBase refuses of a namespace's attributes (`TableNamespaceManager.validateTableAndRegionCount`).
pub(crate) fn check_namespace(core: &MasterState, namespace: &NamespaceDescriptor) -> Answer<()> {
    if !core.settings.quotas.enabled {
        return Ok(());
    }
    let (name, configuration) = (&namespace.name, &namespace.configuration);
    for (attribute, what, plural) in [(REGIONS_MAX, "region", "regions"), (TABLES_MAX, "tables", "tables")] {
        let Some(text) = configuration.get(attribute).filter(|text| !text.is_empty()) else { continue };
        match text.parse::<i64>() {
            Err(_) => {
                let message = format!("NumberFormatException while getting max {plural}.");
                return Err(RpcError::do_not_retry(message));
            }
            Ok(limit) if limit <= 0 => {
                return Err(crate::errors::constraint(format!(
                    "The max {what} quota for {name} is less than or equal to zero."
                )));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
