//! The cluster as a whole: its status, its capabilities, its end.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_contract::ServerReport;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName, parse_region_name};
use prost::Message;

use super::Answer;
use crate::Master;
use crate::errors::{self, invalid};
use crate::groups::{self, Address};
use crate::in_transition::Living;
use crate::procedure::Engine;
use crate::settings::StopRequest;
use crate::state::{MasterState, MetaState, RegionState, TableEntry, TableState};
use crate::switches::Switch;
use crate::timeline::RecoveryKind;

type TaskState = pb::server_task::State;

/// State of a region whose server is dead. HBase 2 has `ABNORMALLY_CLOSED`, but clients of HBase 1 do not know it, and could not read
/// the answer.
const LOST: RegionState = RegionState::Offline;

/// HBase forgets a task a minute after its end (`TaskMonitor`).
const TASKS_KEPT_MS: i64 = 60_000;

/// The parts asked for; with no option, all of them.
pub(super) fn status(
    core: &MasterState,
    engine: &Engine,
    request: pb::GetClusterStatusRequest,
) -> Answer<pb::GetClusterStatusResponse> {
    let wanted =
        |option: pb::Option| request.options.is_empty() || request.options.contains(&(option as i32));
    let mut status = pb::ClusterStatus::default();
    if wanted(pb::Option::HbaseVersion) {
        let version = core.settings.hbase_version.clone();
        status.hbase_version = Some(pb::HBaseVersionFileContent { version });
    }
    if wanted(pb::Option::ClusterId) {
        status.cluster_id = Some(pb::ClusterId { cluster_id: core.cluster_id.to_string() });
    }
    if wanted(pb::Option::LiveServers) || wanted(pb::Option::Tasks) {
        let live = |report: ServerReport| pb::LiveServerInfo {
            server: report.server.to_pb(),
            server_load: report.load,
        };
        status.live_servers = core.cluster.servers.reports().into_iter().map(live).collect();
    }
    if wanted(pb::Option::Tasks) {
        status.master_tasks = tasks(core, engine);
    }
    if wanted(pb::Option::UnknownServers) {
        status.unknown_servers = unknown_servers(core).iter().map(ServerName::to_pb).collect();
    }
    if wanted(pb::Option::ServersName) {
        status.servers_name = core.cluster.servers.online().iter().map(ServerName::to_pb).collect();
    }
    if wanted(pb::Option::DeadServers) {
        status.dead_servers = dead_servers(core).iter().map(ServerName::to_pb).collect();
    }
    if wanted(pb::Option::BackupMasters) {
        status.backup_masters = core.backup_masters().iter().map(ServerName::to_pb).collect();
    }
    if wanted(pb::Option::Master) {
        status.master = Some(core.settings.server_name.to_pb());
    }
    if wanted(pb::Option::MasterInfoPort) {
        status.master_info_port = Some(core.settings.info_port);
    }
    if wanted(pb::Option::BalancerOn) {
        status.balancer_on = Some(core.switches.lock().get(Switch::Balancer));
    }
    if wanted(pb::Option::RegionsInTransition) {
        status.regions_in_transition = all_in_transition(core);
    }
    let tables = core.tables.read();
    if wanted(pb::Option::TableToRegionsCount) {
        status.table_region_states_count = tables.by_name.values().map(count).collect();
        status.table_region_states_count.push(meta_count(core));
    }
    Ok(pb::GetClusterStatusResponse { cluster_status: status })
}

/// What a former master has left is recovered as that of a server, but it is none.
fn dead_servers(core: &MasterState) -> Vec<ServerName> {
    let mut dead = core.cluster.servers.dead();
    if !dead.is_empty() {
        let recoveries = core.timelines.recoveries();
        let masters = recoveries.iter().filter(|it| it.kind() == RecoveryKind::FormerMaster);
        let masters: HashSet<&str> = masters.map(|it| it.server.as_str()).collect();
        dead.retain(|server| !masters.contains(server.to_string().as_str()));
    }
    dead
}

/// Servers that regions are at and that are neither alive nor dead.
fn unknown_servers(core: &MasterState) -> BTreeSet<ServerName> {
    let living = Living::of(core);
    let known: HashSet<ServerName> =
        core.cluster.servers.dead().into_iter().chain(core.cluster.servers.recovering()).collect();
    let tables = core.tables.read();
    let regions = tables.by_name.values().flat_map(TableEntry::all);
    let lost =
        regions.filter(|(_, region)| living.lost(region)).filter_map(|(_, region)| region.server.clone());
    lost.filter(|server| !known.contains(server)).collect()
}

/// Procedures under way, and those that ended in the last minute.
fn tasks(core: &MasterState, engine: &Engine) -> Vec<pb::ServerTask> {
    let what = |class: &str| class.rsplit('.').next().unwrap_or_default().to_string();
    let under_way = engine.views().into_iter().map(|view| pb::ServerTask {
        description: format!("{} {}", what(view.class_name), view.id),
        status: match &view.trouble {
            Some(trouble) => trouble.to_string(),
            None => view.step.to_string(),
        },
        state: if view.running { TaskState::Running as i32 } else { TaskState::Waiting as i32 },
        start_time: Some(view.submitted_ms as u64),
        completion_time: None,
    });
    let since_ms = core.now_ms() - TASKS_KEPT_MS;
    let ended = engine.results().into_iter().filter(|(_, ended)| ended.finished_ms >= since_ms);
    let ended = ended.map(|(id, ended)| pb::ServerTask {
        description: format!("{} {id}", what(&ended.class_name)),
        status: ended.outcome.as_ref().err().map(|error| error.message.clone()).unwrap_or_default(),
        state: if ended.outcome.is_ok() { TaskState::Complete as i32 } else { TaskState::Aborted as i32 },
        start_time: Some(ended.submitted_ms as u64),
        completion_time: Some(ended.finished_ms as u64),
    });
    under_way.chain(ended).collect()
}

/// Takes dead servers from the list that clients are shown, and out of their groups. Returns those that are not on the list. None
/// is taken while one is recovered (`MasterRpcServices.clearDeadServers`). *Blocking*.
pub(super) fn clear_dead_servers(
    master: &Master,
    request: &pb::ClearDeadServersRequest,
) -> Answer<pb::ClearDeadServersResponse> {
    let servers = &master.core.cluster.servers;
    let dead = if servers.recovering().is_empty() { servers.dead() } else { Vec::new() };
    let named = request.server_name.iter().map(ServerName::from_pb);
    let named: Vec<ServerName> = named.collect::<Result<_>>().map_err(invalid)?;
    let (cleared, left): (Vec<_>, Vec<_>) = named.into_iter().partition(|server| dead.contains(server));
    groups::forget_servers(master, cleared.iter().map(Address::of).collect())?;
    for server in &cleared {
        servers.forget_dead(server);
    }
    Ok(pb::ClearDeadServersResponse { server_name: left.iter().map(ServerName::to_pb).collect() })
}

/// Regions that open, close, split or merge, that could not open, and those of a dead server until they are open elsewhere.
fn in_transition<'e>(
    entry: &'e TableEntry,
    living: &'e Living,
) -> impl Iterator<Item = (&'e RegionInfo, RegionState)> {
    let is_wanted = matches!(entry.state, TableState::Enabled | TableState::Enabling);
    entry.all().filter_map(move |(info, region)| match region.state {
        RegionState::FailedOpen => Some((info, region.state)),
        state if is_moving(state) => Some((info, state)),
        RegionState::Open if is_wanted && !info.is_split() && !info.is_offline() && living.lost(region) => {
            Some((info, LOST))
        }
        _ => None,
    })
}

fn meta_in_transition(core: &MasterState, living: &Living) -> Option<RegionState> {
    let meta = core.meta_place.read();
    match meta.state {
        MetaState::Opening => Some(RegionState::Opening),
        MetaState::Closed => Some(RegionState::Closed),
        MetaState::Open => (!living.has(&meta.server)).then_some(LOST),
    }
}

fn all_in_transition(core: &MasterState) -> Vec<pb::RegionInTransition> {
    let living = Living::of(core);
    let meta = meta_in_transition(core, &living).map(|state| (RegionInfo::meta(), state));
    let mut all: Vec<_> = meta.into_iter().collect();
    {
        let tables = core.tables.read();
        let of_tables = tables.by_name.values().flat_map(|entry| in_transition(entry, &living));
        all.extend(of_tables.map(|(info, state)| (info.clone(), state)));
    }
    // Without the lock of the tables: who asks since when they are on their way may hold the other one, and wants this one.
    let names: Vec<&str> = all.iter().map(|(info, _)| info.encoded_name()).collect();
    let since = core.transitions.since_ms(&names, core.now_ms());
    let shown = |((info, state), since_ms): (&(RegionInfo, RegionState), i64)| {
        let spec = pb::RegionSpecifier {
            r#type: pb::region_specifier::RegionSpecifierType::RegionName as i32,
            value: info.region_name().clone(),
        };
        let region_state =
            pb::RegionState { region_info: info.to_pb(), state: *state as i32, stamp: Some(since_ms as u64) };
        pb::RegionInTransition { spec, region_state }
    };
    all.iter().zip(since).map(shown).collect()
}

/// See [`in_transition`].
pub(crate) fn regions_in_transition_count(core: &MasterState) -> usize {
    let living = Living::of(core);
    let of_tables: usize =
        core.tables.read().by_name.values().map(|entry| in_transition(entry, &living).count()).sum();
    of_tables + usize::from(meta_in_transition(core, &living).is_some())
}

fn is_moving(state: RegionState) -> bool {
    matches!(
        state,
        RegionState::Opening | RegionState::Closing | RegionState::Splitting | RegionState::Merging
    )
}

fn count(entry: &TableEntry) -> pb::TableRegionStatesCount {
    let mut counts =
        pb::RegionStatesCount { total_regions: entry.all().count() as u32, ..Default::default() };
    for (info, region) in entry.all() {
        match region.state {
            _ if info.is_split() => counts.split_regions += 1,
            RegionState::Open => counts.open_regions += 1,
            state if is_moving(state) => counts.regions_in_transition += 1,
            _ => counts.closed_regions += 1,
        }
    }
    pb::TableRegionStatesCount { table_name: entry.descriptor.name().to_pb(), region_states_count: counts }
}

fn meta_count(core: &MasterState) -> pb::TableRegionStatesCount {
    let open_regions = 1 + core.meta_replicas.read().len() as u32;
    let region_states_count =
        pb::RegionStatesCount { open_regions, total_regions: open_regions, ..Default::default() };
    pb::TableRegionStatesCount { table_name: TableName::META.to_pb(), region_states_count }
}

fn region_loads(core: &MasterState) -> Vec<pb::RegionLoad> {
    core.cluster.servers.reports().into_iter().flat_map(|report| report.load.region_loads).collect()
}

/// The oldest last major compaction of a table's regions; 0 if none is known.
pub(super) fn last_major_compaction(
    core: &MasterState,
    request: pb::MajorCompactionTimestampRequest,
) -> Answer<pb::MajorCompactionTimestampResponse> {
    let table = TableName::from_pb(&request.table_name).map_err(invalid)?;
    let loads = region_loads(core);
    let of_table = loads.iter().filter(|load| {
        parse_region_name(&load.region_specifier.value).is_ok_and(|parts| parts.table == table)
    });
    let oldest = of_table.map(pb::RegionLoad::last_major_compaction_ts).min().unwrap_or(0);
    Ok(pb::MajorCompactionTimestampResponse { compaction_timestamp: oldest as i64 })
}

pub(super) fn last_major_compaction_of_region(
    core: &MasterState,
    request: pb::MajorCompactionTimestampForRegionRequest,
) -> Answer<pb::MajorCompactionTimestampResponse> {
    let loads = region_loads(core);
    let load = loads.iter().find(|load| load.region_specifier.value == request.region.value);
    let compaction_timestamp = load.map_or(0, |load| load.last_major_compaction_ts() as i64);
    Ok(pb::MajorCompactionTimestampResponse { compaction_timestamp })
}

/// Users are who they say they are, and may do everything.
pub(super) fn security_capabilities() -> pb::SecurityCapabilitiesResponse {
    let simple = pb::security_capabilities_response::Capability::SimpleAuthentication;
    pb::SecurityCapabilitiesResponse { capabilities: vec![simple as i32] }
}

/// The balancer's decisions, or why it made none.
pub(super) fn log_entries(core: &MasterState, request: &pb::LogRequest) -> Answer<pb::LogEntry> {
    let asked = request.log_class_name.as_str();
    let limit = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
    let wrong = |error: prost::DecodeError| invalid(Error::invalid(format!("{asked}: {error}")));
    let (log_class_name, log_message) = if asked.contains("BalancerDecisionsRequest") {
        let request = pb::BalancerDecisionsRequest::decode(request.log_message.clone()).map_err(wrong)?;
        let decisions = core.balancing.decisions(limit(request.limit));
        (asked.replace("Request", "Response"), decisions.encode_to_vec())
    } else if asked.contains("BalancerRejectionsRequest") {
        let request = pb::BalancerRejectionsRequest::decode(request.log_message.clone()).map_err(wrong)?;
        let rejections = core.balancing.rejections(limit(request.limit));
        (asked.replace("Request", "Response"), rejections.encode_to_vec())
    } else {
        return Err(errors::unsupported(&format!("A log of {asked} is")));
    };
    Ok(pb::LogEntry { log_class_name, log_message: Bytes::from(log_message) })
}

pub(super) fn stop(core: &MasterState, request: StopRequest) -> Answer<()> {
    match &*core.stop_callback.lock() {
        Some(callback) => {
            callback(request);
            Ok(())
        }
        None => Err(errors::unsupported("Stopping by a call is")),
    }
}
