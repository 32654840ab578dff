//! Tables: listing, descriptors, and the requests that become procedures.

use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};

use super::{Answer, Request};
use crate::errors::invalid;
use crate::names::NamePattern;
use crate::procedure::{
    Change, CreateTable, DeleteTable, DisableTable, EnableTable, FlushTable, ModifyTable, ModifyTracker,
    TruncateTable,
};
use crate::state::{MasterState, RegionState, TableState};

pub(super) fn names(
    core: &MasterState,
    request: &pb::GetTableNamesRequest,
) -> Answer<pb::GetTableNamesResponse> {
    let found = list(core, request.namespace(), request.regex.as_deref(), request.include_sys_tables())?;
    Ok(pb::GetTableNamesResponse { table_names: found.iter().map(|table| table.name().to_pb()).collect() })
}

pub(super) fn descriptors(
    core: &MasterState,
    request: &pb::GetTableDescriptorsRequest,
) -> Answer<pb::GetTableDescriptorsResponse> {
    let found = find(core, request)?;
    Ok(pb::GetTableDescriptorsResponse { table_schema: found.iter().map(TableDescriptor::to_pb).collect() })
}

/// Tables that a request names, or that match.
pub(super) fn find(
    core: &MasterState,
    request: &pb::GetTableDescriptorsRequest,
) -> Answer<Vec<TableDescriptor>> {
    let mut found = Vec::new();
    if request.table_names.is_empty() {
        found = list(core, request.namespace(), request.regex.as_deref(), request.include_sys_tables())?;
    } else {
        for name in &request.table_names {
            found.extend(descriptor(core, &TableName::from_pb(name).map_err(invalid)?));
        }
        retain_matching(&mut found, request.regex.as_deref())?;
    }
    Ok(found)
}

pub(super) fn names_by_state(
    core: &MasterState,
    request: &pb::ListTableNamesByStateRequest,
) -> Answer<pb::ListTableNamesByStateResponse> {
    let found = by_state(core, request.is_enabled)?;
    Ok(pb::ListTableNamesByStateResponse {
        table_names: found.iter().map(|table| table.name().to_pb()).collect(),
    })
}

pub(super) fn descriptors_by_state(
    core: &MasterState,
    request: &pb::ListTableDescriptorsByStateRequest,
) -> Answer<pb::ListTableDescriptorsByStateResponse> {
    let found = by_state(core, request.is_enabled)?;
    Ok(pb::ListTableDescriptorsByStateResponse {
        table_schema: found.iter().map(TableDescriptor::to_pb).collect(),
    })
}

pub(super) fn state(
    core: &MasterState,
    request: &pb::GetTableStateRequest,
) -> Answer<pb::GetTableStateResponse> {
    let name = TableName::from_pb(&request.table_name).map_err(invalid)?;
    let state = if name.is_meta() { TableState::Enabled } else { core.table(&name)?.state };
    Ok(pb::GetTableStateResponse { table_state: pb::TableState { state: state as i32 } })
}

/// How many regions have not taken a change yet. Clients ask until there are none.
pub(super) fn alter_status(
    core: &MasterState,
    request: &pb::GetSchemaAlterStatusRequest,
) -> pb::GetSchemaAlterStatusResponse {
    let tables = core.tables.read();
    let entry = TableName::from_pb(&request.table_name).ok().and_then(|name| tables.by_name.get(&name));
    let moving = |state: RegionState| matches!(state, RegionState::Opening | RegionState::Closing);
    let yet = entry.map_or(0, |entry| entry.all().filter(|(_, region)| moving(region.state)).count());
    pb::GetSchemaAlterStatusResponse {
        yet_to_update_regions: Some(yet as u32),
        total_regions: Some(entry.map_or(0, |entry| entry.all().count()) as u32),
    }
}

/// Tables of a namespace (empty: all), as `HMaster.getTableDescriptors` picks them, in its order.
pub(super) fn list(
    core: &MasterState,
    namespace: &str,
    regex: Option<&str>,
    include_system: bool,
) -> Answer<Vec<TableDescriptor>> {
    if !namespace.is_empty() {
        core.namespace(namespace)?;
    }
    let tables = core.tables.read();
    let mut found: Vec<TableDescriptor> =
        tables.by_name.values().map(|entry| TableDescriptor::clone(&entry.descriptor)).collect();
    drop(tables);
    found.push(TableDescriptor::clone(&core.meta_descriptor.read()));
    found.retain(|table| include_system || !table.name().is_system());
    found.retain(|table| namespace.is_empty() || table.name().namespace() == namespace);
    // `FSTableDescriptors.getAll` sorts names with the namespace, also where it is the default one.
    found.sort_by_cached_key(|table| format!("{}:{}", table.name().namespace(), table.name().qualifier()));
    retain_matching(&mut found, regex)?;
    Ok(found)
}

fn retain_matching(found: &mut Vec<TableDescriptor>, regex: Option<&str>) -> Answer<()> {
    if let Some(regex) = regex {
        let pattern = NamePattern::new(regex)?;
        found.retain(|table| pattern.matches(table.name()));
    }
    Ok(())
}

fn descriptor(core: &MasterState, name: &TableName) -> Option<TableDescriptor> {
    if name.is_meta() {
        return Some(TableDescriptor::clone(&core.meta_descriptor.read()));
    }
    core.tables.read().by_name.get(name).map(|entry| TableDescriptor::clone(&entry.descriptor))
}

/// As [`list`], of one state. Tables of the system are left out.
fn by_state(core: &MasterState, enabled: bool) -> Answer<Vec<TableDescriptor>> {
    let state = if enabled { TableState::Enabled } else { TableState::Disabled };
    let mut found = list(core, "", None, false)?;
    let tables = core.tables.read();
    found.retain(|table| tables.by_name.get(table.name()).is_some_and(|entry| entry.state == state));
    Ok(found)
}

fn name(name: &pb::TableName) -> Answer<TableName> {
    TableName::from_pb(name).map_err(invalid)
}

pub(super) fn create(core: &MasterState, request: pb::CreateTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let descriptor = TableDescriptor::from_pb(&request.table_schema).map_err(invalid)?;
    let procedure = CreateTable::new(descriptor, request.split_keys);
    procedure.check(core)?;
    Ok((Box::new(procedure), nonce))
}

pub(super) fn delete(request: pb::DeleteTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(DeleteTable::new(name(&request.table_name)?)), nonce))
}

pub(super) fn truncate(request: pb::TruncateTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(TruncateTable::new(name(&request.table_name)?, request.preserve_splits())), nonce))
}

pub(super) fn enable(request: pb::EnableTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(EnableTable { table: name(&request.table_name)? }), nonce))
}

pub(super) fn disable(request: pb::DisableTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(DisableTable::new(name(&request.table_name)?)), nonce))
}

pub(super) fn modify(request: pb::ModifyTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let (table, reopen) = (name(&request.table_name)?, request.reopen_regions());
    let descriptor = TableDescriptor::from_pb(&request.table_schema).map_err(invalid)?;
    if *descriptor.name() != table {
        return Err(RpcError::do_not_retry(format!(
            "The new descriptor of {table} names {}",
            descriptor.name()
        )));
    }
    Ok((Box::new(ModifyTable::new(table, Change::Table(descriptor), reopen)), nonce))
}

pub(super) fn add_family(request: pb::AddColumnRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let family = FamilyDescriptor::from_pb(&request.column_families).map_err(invalid)?;
    Ok((Box::new(ModifyTable::new(name(&request.table_name)?, Change::AddFamily(family), true)), nonce))
}

pub(super) fn modify_family(request: pb::ModifyColumnRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let family = FamilyDescriptor::from_pb(&request.column_families).map_err(invalid)?;
    Ok((Box::new(ModifyTable::new(name(&request.table_name)?, Change::ModifyFamily(family), true)), nonce))
}

pub(super) fn delete_family(request: pb::DeleteColumnRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let change = Change::DeleteFamily(request.column_name.clone());
    Ok((Box::new(ModifyTable::new(name(&request.table_name)?, change, true)), nonce))
}

pub(super) fn flush(request: pb::FlushTableRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(FlushTable::new(name(&request.table_name)?, request.column_family)), nonce))
}

pub(super) fn modify_tracker(request: pb::ModifyTableStoreFileTrackerRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(ModifyTracker::new(name(&request.table_name)?, None, request.dst_sft)?), nonce))
}

pub(super) fn modify_family_tracker(request: pb::ModifyColumnStoreFileTrackerRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let (table, family) = (name(&request.table_name)?, Some(request.family));
    Ok((Box::new(ModifyTracker::new(table, family, request.dst_sft)?), nonce))
}
