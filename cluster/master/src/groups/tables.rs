//! The groups of tables that are made, changed and deleted, and of namespaces.

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_rpc::RpcError;
use halcyon_schema::{NamespaceDescriptor, TableDescriptor, TableName};

use super::{ATTRIBUTE, Address, DEFAULT, store};
use crate::errors;
use crate::state::MasterState;

/// So often a table may be moved by operators while its group is looked for.
const ATTEMPTS_MAX: usize = 10;

/// The group that the table's descriptor asks for.
pub(crate) fn group_attribute(table: &TableDescriptor) -> Option<&str> {
    table.setting(ATTRIBUTE)
}

/// The group that a table gets: that of its attribute, else the one that it was moved to, else what the mapping says, else its
/// namespace's, else `default` (`RSGroupInfoManagerImpl.determineRSGroupInfoForTable`). *Blocking*.
fn wanted(core: &MasterState, table: &TableDescriptor) -> std::result::Result<String, RpcError> {
    if let Some(group) = group_attribute(table) {
        return match core.group(group) {
            Some(_) => Ok(group.to_string()),
            None => Err(errors::constraint(format!("Region server group {group} does not exist."))),
        };
    }
    let known = core.group_of_table(table.name());
    if known != DEFAULT {
        return Ok(known);
    }
    if let Some(group) = core.settings.group_mapping.group_of(table.name())
        && core.group(&group).is_some()
    {
        return Ok(group);
    }
    let namespace = core.namespace(table.name().namespace())?;
    let of_namespace = namespace.configuration.get(ATTRIBUTE).cloned();
    Ok(of_namespace.filter(|group| core.group(group).is_some()).unwrap_or_else(|| DEFAULT.to_string()))
}

/// Refuses a table whose group is not there, or has no server that may get regions.
pub(crate) fn check_new_table(
    core: &MasterState,
    table: &TableDescriptor,
) -> std::result::Result<(), RpcError> {
    if !core.has_groups() || table.name().is_system() {
        return Ok(());
    }
    let name = wanted(core, table)?;
    let group = core.group(&name).unwrap_or_default();
    let draining = core.cluster.servers.draining();
    let mut online = core.cluster.servers.online().into_iter().filter(|server| !draining.contains(server));
    if online.any(|server| group.servers.contains(&Address::of(&server))) {
        return Ok(());
    }
    let text = format!("No online servers in the rsgroup {name} which table {} belongs to", table.name());
    Err(errors::hbase_io(text))
}

/// Refuses a namespace whose group is not there.
pub(crate) fn check_namespace(
    core: &MasterState,
    namespace: &NamespaceDescriptor,
) -> std::result::Result<(), RpcError> {
    match namespace.configuration.get(ATTRIBUTE).filter(|_| core.has_groups()) {
        Some(group) if core.group(group).is_none() => {
            Err(errors::constraint(format!("Region server group {group} does not exist.")))
        }
        _ => Ok(()),
    }
}

/// Puts a table into its group. May run twice. *Blocking*.
pub(crate) fn adopt(core: &MasterState, table: &TableDescriptor) -> Result<()> {
    if !core.has_groups() || table.name().is_system() {
        return Ok(());
    }
    for _ in 0..ATTEMPTS_MAX {
        let before = core.group_of_table(table.name());
        // Without the lock: a script may be asked.
        let group = wanted(core, table).map_err(|error| Error::invalid(error.message))?;
        let _one_at_a_time = core.groups.changing.lock();
        if core.group_of_table(table.name()) != before {
            continue; // an operator has moved it meanwhile
        }
        if core.group(&group).is_none() {
            return Err(Error::invalid(format!("Region server group {group} does not exist.")));
        }
        if group == DEFAULT && before == DEFAULT {
            return Ok(()); // should hbase:rsgroup, once it is read, have it in a group, an operator has put it there
        }
        return put(core, table.name(), &group);
    }
    Err(Error::new(ErrorKind::Busy, format!("{} goes from group to group", table.name())))
}

/// Takes a table that is deleted out of its group. May run twice. *Blocking*.
pub(crate) fn forget(core: &MasterState, table: &TableName) -> Result<()> {
    if !core.has_groups() {
        return Ok(());
    }
    let _one_at_a_time = core.groups.changing.lock();
    put(core, table, DEFAULT)
}

/// The caller holds `changing`.
fn put(core: &MasterState, table: &TableName, group: &str) -> Result<()> {
    // What the znodes say may be older than the table: it may name a group for a table that is in none, and the other way round.
    core.groups.check_loaded()?;
    let mut groups = core.groups_now();
    if groups.of_table(table) != group {
        groups.move_tables(&[table.clone()].into(), group);
        store::write(core, groups)?;
    }
    assert_eq!(core.group_of_table(table), group, "regions of {table} would be placed in another group");
    Ok(())
}
