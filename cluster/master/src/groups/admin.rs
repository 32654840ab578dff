//! Changes of groups that operators ask for, in the order and with the words of HBase's `RSGroupAdminServer`.
//!
//! A change is checked and written first, and then the regions move. A request is answered when they have moved; after
//! [`MOVES_TIME_MAX`] it is answered anyway, and the moves go on. All of these block.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{NamespaceDescriptor, RegionInfo, ServerName, TableName};
use tracing::{info, warn};

use super::{
    ATTRIBUTE, Address, DEFAULT, Group, Groups, busy_regions, check_name, group_attribute, move_misplaced,
    store, with_servers,
};
use crate::Master;
use crate::errors;
use crate::procedure::{Change, ModifyNamespace, ModifyTable, Submission};
use crate::state::{MasterState, RegionState, TableState};

type Answer<T> = Result<T, RpcError>;

/// Less than the time that HBase's clients give a call by default.
const MOVES_TIME_MAX: Duration = Duration::from_secs(45);
const MOVES_PAUSE: Duration = Duration::from_millis(50);

fn refuse<T>(text: impl Into<String>) -> Answer<T> {
    Err(errors::constraint(text.into()))
}

/// Changes the groups as one.
fn change(core: &MasterState, change: impl FnOnce(&mut Groups) -> Answer<()>) -> Answer<()> {
    let _one_at_a_time = core.groups.changing.lock();
    let mut groups = core.groups_now();
    change(&mut groups)?;
    store::write(core, groups).map_err(|error| errors::from_error(&error))
}

pub(crate) fn add(master: &Master, name: &str) -> Answer<()> {
    check_name(name)?;
    change(&master.core, |groups| {
        if name == DEFAULT || groups.by_name.contains_key(name) {
            return Err(RpcError::do_not_retry(format!("Group already exists: {name}")));
        }
        groups.by_name.insert(name.to_string(), Group::default());
        Ok(())
    })
}

pub(crate) fn remove(master: &Master, name: &str) -> Answer<()> {
    let core = &master.core;
    core.check_namespaces()?; // one of them may name it
    change(core, |groups| {
        let Some(group) = core.group(name) else {
            return refuse(format!("RSGroup {name} does not exist"));
        };
        if !group.tables.is_empty() {
            let count = group.tables.len();
            return refuse(format!(
                "RSGroup {name} has {count} tables; you must remove these tables from the rsgroup before the rsgroup \
                 can be removed."
            ));
        }
        if !group.servers.is_empty() {
            let count = group.servers.len();
            return refuse(format!(
                "RSGroup {name} has {count} servers; you must remove these servers from the RSGroup before the RSGroup \
                 can be removed."
            ));
        }
        let namespaces = core.namespaces.read();
        let user = namespaces.iter().find(|it| it.configuration.get(ATTRIBUTE).is_some_and(|of| of == name));
        if let Some(namespace) = user {
            return refuse(format!("RSGroup {name} is referenced by namespace: {}", namespace.name));
        }
        if groups.by_name.remove(name).is_none() {
            return Err(RpcError::do_not_retry(format!(
                "Group {name} does not exist or is a reserved group"
            )));
        }
        Ok(())
    })
}

/// What is to go to another group.
pub(crate) struct ServersAndTables {
    pub(crate) servers: BTreeSet<Address>,
    pub(crate) tables: BTreeSet<TableName>,
}

/// The group that a request names.
fn check_target(core: &MasterState, name: &str) -> Answer<()> {
    if name.is_empty() {
        return refuse("RSGroup cannot be null.");
    }
    core.group(name).map_or_else(|| refuse(format!("RSGroup does not exist: {name}")), |_| Ok(()))
}

/// The group that has all these servers.
fn source_of(core: &MasterState, servers: &BTreeSet<Address>) -> Answer<String> {
    let mut source: Option<String> = None;
    for server in servers {
        let Some(group) = core.group_of_address(server) else {
            return refuse(format!("Server {server} is either offline or it does not exist."));
        };
        let source = source.get_or_insert_with(|| group.clone());
        if *source != group {
            return refuse(format!(
                "Move server request should only come from one source RSGroup. Expecting only {source} but contains \
                 {group}"
            ));
        }
    }
    source.map_or_else(|| refuse("The list of servers to move cannot be null or empty."), Ok)
}

fn check_online(core: &MasterState, servers: &BTreeSet<Address>) -> Answer<()> {
    let online: BTreeSet<Address> = core.cluster.servers.online().iter().map(Address::of).collect();
    servers.iter().find(|server| !online.contains(*server)).map_or(Ok(()), |server| {
        refuse(format!("Server {server} is not an online server in 'default' RSGroup."))
    })
}

fn check_not_left_alone(core: &MasterState, name: &str, moved: &ServersAndTables) -> Answer<()> {
    let group = core.group(name).unwrap_or_default();
    if group.servers.len() <= moved.servers.len() && group.tables.len() > moved.tables.len() {
        return refuse(format!(
            "Cannot leave a RSGroup {name} that contains tables without servers to host them."
        ));
    }
    Ok(())
}

pub(crate) fn move_servers(master: &Master, servers: BTreeSet<Address>, target: &str) -> Answer<()> {
    if servers.is_empty() {
        return Ok(());
    }
    let core = &master.core;
    check_target(core, target)?;
    let moved = ServersAndTables { servers, tables: BTreeSet::new() };
    change(core, |groups| {
        let source = source_of(core, &moved.servers)?;
        if source == DEFAULT {
            if core.group(DEFAULT).unwrap_or_default().servers.len() <= moved.servers.len() {
                return refuse("should keep at least one server in 'default' RSGroup.");
            }
            check_online(core, &moved.servers)?;
        }
        check_not_left_alone(core, &source, &moved)?;
        groups.move_servers(&moved.servers, target);
        Ok(())
    })?;
    info!(servers = moved.servers.len(), target, "region servers are moved to a group");
    wait_for_moves(master, |_, server| moved.servers.contains(&Address::of(server)));
    Ok(())
}

pub(crate) fn move_tables(master: &Master, tables: BTreeSet<TableName>, target: &str) -> Answer<()> {
    if tables.is_empty() {
        return Ok(());
    }
    let core = &master.core;
    change(core, |groups| {
        let Some(group) = core.group(target) else {
            return refuse(format!("Target {target} RSGroup does not exist."));
        };
        if group.servers.is_empty() {
            return refuse("Target RSGroup must have at least one server.");
        }
        groups.move_tables(&tables, target);
        Ok(())
    })?;
    info!(tables = tables.len(), target, "tables are moved to a group");
    let named = tables.iter().filter(|table| attribute_of(core, table).is_some());
    set_attribute(master, named.cloned().collect(), target)?;
    wait_for_moves(master, |region, _| tables.contains(region.table()));
    Ok(())
}

pub(crate) fn move_servers_and_tables(master: &Master, moved: ServersAndTables, target: &str) -> Answer<()> {
    if moved.servers.is_empty() {
        return refuse("The list of servers to move cannot be null or empty.");
    }
    if moved.tables.is_empty() {
        return refuse("The list of tables to move cannot be null or empty.");
    }
    let core = &master.core;
    check_target(core, target)?;
    change(core, |groups| {
        let source = source_of(core, &moved.servers)?;
        check_online(core, &moved.servers)?;
        for table in &moved.tables {
            let group = groups.of_table(table);
            if group != source {
                return refuse(format!(
                    "Move table request should only come from one source RSGroup. Expecting only {source} but contains \
                     {group}"
                ));
            }
        }
        check_not_left_alone(core, &source, &moved)?;
        groups.move_servers(&moved.servers, target);
        groups.move_tables(&moved.tables, target);
        Ok(())
    })?;
    let named = moved.tables.iter().filter(|table| attribute_of(core, table).is_some());
    set_attribute(master, named.cloned().collect(), target)?;
    wait_for_moves(master, |region, server| {
        moved.tables.contains(region.table()) || moved.servers.contains(&Address::of(server))
    });
    Ok(())
}

/// Takes servers out of their groups that will not come back.
pub(crate) fn remove_servers(master: &Master, servers: &BTreeSet<Address>) -> Answer<()> {
    if servers.is_empty() {
        return refuse("The set of servers to remove cannot be null or empty.");
    }
    let known = &master.core.cluster.servers;
    let draining = known.draining();
    for address in servers {
        let is_here = |server: &ServerName| Address::of(server) == *address;
        if known.online().iter().any(|server| is_here(server) && !draining.contains(server)) {
            return refuse(format!("Server {address} is an online server, not allowed to remove."));
        }
        if known.dead().iter().any(is_here) {
            return refuse(format!(
                "Server {address} is on the dead servers list, Maybe it will come back again, not allowed to remove."
            ));
        }
    }
    take_out(&master.core, servers)
}

fn take_out(core: &MasterState, servers: &BTreeSet<Address>) -> Answer<()> {
    change(core, |groups| {
        groups.move_servers(servers, DEFAULT);
        Ok(())
    })
}

/// Takes servers out of their groups that an administrator has cleared (HBase: `RSGroupAdminEndpoint.postClearDeadServers`).
pub(crate) fn forget_servers(master: &Master, servers: BTreeSet<Address>) -> Answer<()> {
    let core = &master.core;
    let is_member =
        |groups: &Groups| groups.by_name.values().any(|group| !group.servers.is_disjoint(&servers));
    if !core.has_groups() || !is_member(&core.groups_now()) {
        return Ok(());
    }
    take_out(core, &servers)
}

pub(crate) fn rename(master: &Master, old: &str, new: &str) -> Answer<()> {
    check_name(old)?;
    check_name(new)?;
    let core = &master.core;
    core.check_namespaces()?;
    change(core, |groups| {
        if old == DEFAULT {
            return refuse("Can't rename default rsgroup");
        }
        if !groups.by_name.contains_key(old) {
            return refuse(format!("RSGroup {old} does not exist"));
        }
        if new == DEFAULT || groups.by_name.contains_key(new) {
            return refuse(format!("Group already exists: {new}"));
        }
        let group = groups.by_name.remove(old).expect("it was just found");
        groups.by_name.insert(new.to_string(), group);
        Ok(())
    })?;
    let tables = core.tables.read().by_name.keys().cloned().collect::<Vec<_>>();
    let named =
        tables.into_iter().filter(|table| attribute_of(core, table).is_some_and(|group| group == old));
    set_attribute(master, named.collect(), new)?;
    rename_in_namespaces(master, old, new)
}

/// HBase leaves the old name there, of a group that there is not any more: then no table can be made in the namespace.
fn rename_in_namespaces(master: &Master, old: &str, new: &str) -> Answer<()> {
    let is_named =
        |namespace: &&NamespaceDescriptor| namespace.configuration.get(ATTRIBUTE).is_some_and(|of| of == old);
    let named: Vec<_> = master.core.namespaces.read().iter().filter(is_named).cloned().collect();
    let mut ids = Vec::new();
    for mut namespace in named {
        namespace.configuration.insert(ATTRIBUTE.to_string(), new.to_string());
        let modify = ModifyNamespace { namespace };
        let taken = master.engine.submit(Box::new(modify), Submission::default());
        ids.push(taken.blocking_recv().map_err(|_| errors::stopping())??);
    }
    wait_for_all(master, ids)
}

pub(crate) fn set_configuration(
    master: &Master,
    name: &str,
    configuration: BTreeMap<String, String>,
) -> Answer<()> {
    if name == DEFAULT {
        return refuse("configuration of default can't be stored persistently");
    }
    change(&master.core, |groups| {
        let Some(group) = groups.by_name.get_mut(name) else {
            return Err(RpcError::do_not_retry(format!("RSGroup {name} does not exist")));
        };
        group.configuration = configuration;
        Ok(())
    })
}

/// Balances the servers of one group.
pub(crate) fn balance(
    master: &Master,
    request: &pb::BalanceRsGroupRequest,
) -> Answer<pb::BalanceRsGroupResponse> {
    let name = request.r_s_group_name.as_str();
    let none =
        pb::BalanceRsGroupResponse { balance_ran: false, moves_calculated: None, moves_executed: None };
    if !master.is_balancer_on() && !request.dry_run() {
        return Ok(none);
    }
    let Some(group) = master.core.group(name) else {
        return refuse(format!("RSGroup does not exist: {name}"));
    };
    if !request.ignore_rit() && has_regions_in_transition(&master.core, &group) {
        return Ok(none);
    }
    let (calculated, executed) = master.balance_group(name, request.dry_run());
    let count = |moves: usize| Some(u32::try_from(moves).unwrap_or(u32::MAX));
    Ok(pb::BalanceRsGroupResponse {
        balance_ran: calculated > 0,
        moves_calculated: count(calculated),
        moves_executed: count(executed),
    })
}

fn has_regions_in_transition(core: &MasterState, group: &Group) -> bool {
    let tables = core.tables.read();
    let entries = group.tables.iter().filter_map(|table| tables.by_name.get(table));
    entries.filter(|entry| entry.state == TableState::Enabled).any(|entry| {
        let is_open = |region: &RegionInfo| entry.regions[region].state == RegionState::Open;
        !entry.live_regions().iter().all(is_open)
    })
}

fn attribute_of(core: &MasterState, table: &TableName) -> Option<String> {
    let tables = core.tables.read();
    let entry = tables.by_name.get(table)?;
    group_attribute(&entry.descriptor).map(str::to_string)
}

/// Tables whose attribute names their group get the new name there.
fn set_attribute(master: &Master, tables: Vec<TableName>, group: &str) -> Answer<()> {
    let mut ids = Vec::new();
    for table in tables {
        let Ok(entry) = master.core.table(&table) else { continue };
        let changed = entry.descriptor.as_ref().clone().with(ATTRIBUTE, group);
        let modify = ModifyTable::new(table, Change::Table(changed), true);
        let taken = master.engine.submit(Box::new(modify), Submission::default());
        ids.push(taken.blocking_recv().map_err(|_| errors::stopping())??);
    }
    wait_for_all(master, ids)
}

fn wait_for_all(master: &Master, ids: Vec<u64>) -> Answer<()> {
    for id in ids {
        let finished = master.engine.finished(id).ok_or_else(errors::stopping)?;
        finished.blocking_recv().map_err(|_| errors::stopping())??;
    }
    Ok(())
}

/// Has regions moved until none is left that `wanted` names.
fn wait_for_moves(master: &Master, wanted: impl Fn(&RegionInfo, &ServerName) -> bool) {
    let clock = &master.core.env.clock;
    let begin_ns = clock.monotonic_ns();
    let mut seen: BTreeSet<RegionInfo> = BTreeSet::new();
    loop {
        // First: what is not busy any more when misplaced regions are looked for is open, and found among them.
        let busy = busy_regions(master);
        let is_busy = |(region, server): &(RegionInfo, ServerName)| {
            busy.contains(region.encoded_name()) && wanted(region, server)
        };
        seen.extend(with_servers(&master.core).into_iter().filter(is_busy).map(|(region, _)| region));
        let misplaced = move_misplaced(master, &wanted);
        seen.extend(misplaced.iter().cloned());
        let misplaced: HashSet<RegionInfo> = misplaced.into_iter().collect();
        let is_left =
            |region: &&RegionInfo| misplaced.contains(region) || busy.contains(region.encoded_name());
        let left = seen.iter().filter(is_left).count();
        if left == 0 || master.core.check_running().is_err() {
            return;
        }
        if u128::from(clock.monotonic_ns() - begin_ns) >= MOVES_TIME_MAX.as_nanos() {
            warn!(left, "regions are still moving to the servers of their groups");
            return;
        }
        clock.sleep(MOVES_PAUSE);
    }
}
