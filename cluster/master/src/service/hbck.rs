//! `HbckService`: what HBCK2 asks a master to do when something is stuck or wrong.
//!
//! HBase writes states and rows at once, whatever its procedures do. Here a procedure makes each change, under the lock
//! of its table. A call that would wait for a procedure that is stuck is refused with the number of that procedure,
//! which `BypassProcedure` then ends.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use halcyon_contract::Standing;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use halcyon_schema::{RegionInfo, ServerName, TableName};
use tracing::warn;

use super::work::Workers;
use super::{Answer, audit, decode, regions, submission};
use crate::Master;
use crate::errors::{self, invalid};
use crate::hbck::{self, HbckReport, Problem};
use crate::meta;
use crate::placement::may_be_open;
use crate::procedure::{
    Engine, FixRegions, MergeRegions, ProcedureView, RegionAction, Resource, ServerCrash, SetState,
    StateChange, TransitRegion,
};
use crate::state::{MasterState, RegionEntry, RegionState};

/// Procedures, regions or states named in one call.
const NAMED_MAX: usize = 1000;
/// HBase's `Procedure.NO_PROC_ID`, -1 to clients: nothing was begun.
const NO_PROCEDURE: u64 = u64::MAX;
/// States that a region passes through. They belong to the procedure that changes it.
const PASSING: [RegionState; 10] = [
    RegionState::Opening,
    RegionState::PendingOpen,
    RegionState::Closing,
    RegionState::PendingClose,
    RegionState::Splitting,
    RegionState::SplittingNew,
    RegionState::Split,
    RegionState::Merging,
    RegionState::MergingNew,
    RegionState::Merged,
];

/// The repair service. It has threads of its own, so that a call that waits for a stuck procedure does not delay other
/// administrative calls.
pub struct HbckService {
    master: Arc<Master>,
    workers: Workers,
}

impl HbckService {
    pub fn new(master: Arc<Master>) -> halcyon_cell::Result<HbckService> {
        Ok(HbckService { master, workers: Workers::start("master-hbck", 2)? })
    }

    fn dispatch(&self, call: &Call) -> Answer<Outcome> {
        audit(call, &[]);
        match call.method.as_str() {
            "SetTableStateInMeta" => self.set_table_state(call, decode(call)?),
            "SetRegionStateInMeta" => self.set_region_states(call, decode(call)?),
            "Assigns" => {
                let request: pb::AssignsRequest = decode(call)?;
                let (assign, force) = (RegionAction::Assign, request.r#override());
                self.transit(call, request.region, assign, force, |pid| {
                    Reply::message(&pb::AssignsResponse { pid })
                })
            }
            "Unassigns" => {
                let request: pb::UnassignsRequest = decode(call)?;
                let (unassign, force) = (RegionAction::Unassign, request.r#override());
                self.transit(call, request.region, unassign, force, |pid| {
                    Reply::message(&pb::UnassignsResponse { pid })
                })
            }
            "BypassProcedure" => {
                let (engine, request) = (self.master.engine.clone(), decode(call)?);
                self.workers.run(move || bypass(&engine, &request).map(|response| Reply::message(&response)))
            }
            "RunHbckChore" => {
                let (core, busy) = (self.master.core.clone(), self.busy_tables());
                self.workers.run(move || {
                    let report = hbck::check(&core, &busy).map_err(|error| errors::from_error(&error))?;
                    *core.hbck_report.lock() = Some(report);
                    Ok(Reply::message(&pb::RunHbckChoreResponse { ran: true }))
                })
            }
            "FixMeta" => self.fix_meta(call),
            "ScheduleSCPsForUnknownServers" => {
                let unknown = unknown_servers(&self.master.core);
                self.recover(call, unknown, |pid| {
                    Reply::message(&pb::ScheduleScPsForUnknownServersResponse { pid })
                })
            }
            "ScheduleServerCrashProcedure" => {
                let request: pb::ScheduleServerCrashProcedureRequest = decode(call)?;
                let servers = request.server_name.iter().map(ServerName::from_pb);
                let servers = servers.collect::<halcyon_cell::Result<Vec<_>>>().map_err(invalid)?;
                self.recover(call, servers, |pid| {
                    Reply::message(&pb::ScheduleServerCrashProcedureResponse { pid })
                })
            }
            other => Err(RpcError::unknown_method(other)),
        }
    }

    /// Answers with the state before.
    fn set_table_state(&self, call: &Call, request: pb::SetTableStateInMetaRequest) -> Answer<Outcome> {
        let table = TableName::from_pb(&request.table_name).map_err(invalid)?;
        if table.is_meta() {
            return Err(RpcError::do_not_retry("hbase:meta is always ENABLED"));
        }
        check_not_stuck(&self.master.engine, &table)?;
        let (change, before) = SetState::new(StateChange::Table(table, request.table_state.state()));
        let done = self.master.engine.run(Box::new(change), submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move {
            done.await?;
            let table_state = pb::TableState { state: before.await.map_err(|_| errors::stopping())? };
            Ok(Reply::message(&pb::GetTableStateResponse { table_state }))
        })))
    }

    /// All regions are looked up before the first state changes. Answers with the states before.
    fn set_region_states(&self, call: &Call, request: pb::SetRegionStateInMetaRequest) -> Answer<Outcome> {
        check_count(request.states.len())?;
        let mut changes = Vec::new();
        let online = self.master.core.online_regions().map_err(|error| errors::from_error(&error))?;
        let online: HashSet<RegionInfo> = online.into_iter().collect();
        for asked in request.states {
            let region = regions::find(&self.master.core, &asked.region_specifier)?;
            let state = asked.state();
            if PASSING.contains(&state) {
                let state = state.as_str_name();
                return Err(RpcError::do_not_retry(format!(
                    "Region {region} cannot be set to {state}: only a procedure leads into this state and out of it"
                )));
            }
            check_not_stuck(&self.master.engine, region.table())?;
            let is_open = online.contains(&region);
            if is_open != (state == RegionState::Open) {
                warn!(%region, is_open, state = state.as_str_name(), "hbck: the region server knows otherwise");
            }
            changes.push((asked.region_specifier, StateChange::Region(region, state)));
        }
        let (engine, by) = (self.master.engine.clone(), submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move {
            let mut states = Vec::new();
            for (region_specifier, change) in changes {
                let (change, before) = SetState::new(change);
                engine.run(Box::new(change), by.clone()).await?;
                let state = before.await.map_err(|_| errors::stopping())?;
                states.push(pb::RegionSpecifierAndState { region_specifier, state });
            }
            Ok(Reply::message(&pb::SetRegionStateInMetaResponse { states }))
        })))
    }

    /// One number for each region, before the procedures end. A procedure that refuses its request says so in its result.
    fn transit(
        &self,
        call: &Call,
        named: Vec<pb::RegionSpecifier>,
        action: RegionAction,
        force: bool,
        reply: fn(Vec<u64>) -> Reply,
    ) -> Answer<Outcome> {
        check_count(named.len())?;
        let (master, by) = (self.master.clone(), submission(call, (0, 0)));
        self.workers.run(move || {
            let mut rows = None;
            let mut begin = |specifier: &pb::RegionSpecifier| {
                let transit = match regions::find(&master.core, specifier) {
                    Ok(region) => Some(TransitRegion::new(region, action, force)),
                    Err(_) => find_row(&master.core, specifier, &mut rows)?
                        .map(|(region, row)| TransitRegion::adopting(region, row, action, force)),
                };
                match transit {
                    Some(transit) => master.engine.enqueue(Box::new(transit), by.clone()),
                    None => {
                        let region = specifier.value.escape_ascii();
                        warn!(%region, "hbck: a region of this name is not known");
                        Ok(NO_PROCEDURE)
                    }
                }
            };
            Ok(reply(named.iter().map(&mut begin).collect::<Answer<_>>()?))
        })
    }

    /// Has servers recovered as if they had crashed, which live ones do not survive: one number for each, before the procedures end.
    /// That of a server whose recovery is under way is [`NO_PROCEDURE`], as in HBase.
    fn recover(
        &self,
        call: &Call,
        servers: Vec<ServerName>,
        reply: fn(Vec<u64>) -> Reply,
    ) -> Answer<Outcome> {
        check_count(servers.len())?;
        if self.master.core.cluster.servers.is_one_process() {
            if servers.is_empty() {
                return Ok(Outcome::Ready(Ok(reply(Vec::new()))));
            }
            return Err(errors::unsupported(
                "ScheduleServerCrashProcedure of HbckService: master and region server are one process, whose start \
                 recovers the WALs of a crash, so a crash procedure is",
            ));
        }
        let (master, by) = (self.master.clone(), submission(call, (0, 0)));
        self.workers.run(move || {
            let begin = |server: ServerName| {
                if server == master.core.settings.server_name {
                    return Err(RpcError::do_not_retry(format!(
                        "{server} is the active master, which lives"
                    )));
                }
                let lock = Resource::Server(server.clone());
                let views = master.engine.views();
                if views.iter().any(|view| view.locks.iter().any(|it| it.resource == lock)) {
                    return Ok(NO_PROCEDURE);
                }
                warn!(%server, "hbck: a server is to be recovered as after a crash");
                master.core.cluster.servers.declare_dead(&server);
                master.engine.enqueue(Box::new(ServerCrash::new(server)), by.clone())
            };
            Ok(reply(servers.into_iter().map(begin).collect::<Answer<_>>()?))
        })
    }

    /// Repairs one table after the other. The answer does not wait for a table that a procedure has, nor for merges: their
    /// procedures have begun, or wait for the lock, as HBase's do.
    fn fix_meta(&self, call: &Call) -> Answer<Outcome> {
        let (core, busy) = (self.master.core.clone(), self.busy_tables());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let checked = self.workers.run(move || {
            let report = hbck::check(&core, &busy).map_err(|error| errors::from_error(&error))?;
            let _ = sender.send(report); // the client may have given up
            Ok(Reply::message(&pb::FixMetaResponse {}))
        })?;
        let (master, by) = (self.master.clone(), submission(call, (0, 0)));
        let Outcome::Later(checked) = checked else { return Ok(checked) };
        Ok(Outcome::Later(Box::pin(async move {
            let reply = checked.await?;
            let report = receiver.await.map_err(|_| errors::stopping())?;
            let fixable = report.problems.iter().filter(|problem| problem.is_fixable());
            let tables: BTreeSet<TableName> =
                fixable.map(Problem::table).chain(&report.busy).cloned().collect();
            for table in tables {
                let repair = Box::new(FixRegions::new(table.clone()));
                if locked_tables(&master.engine, false).contains(&table) {
                    master.engine.enqueue(repair, by.clone())?;
                } else {
                    master.engine.run(repair, by.clone()).await?;
                }
            }
            let refused = check_merges(&master.core, &report);
            *master.core.hbck_report.lock() = Some(report);
            refused.map(|()| reply)
        })))
    }

    /// Tables that a procedure changes; their regions may be in between two states.
    fn busy_tables(&self) -> HashSet<TableName> {
        locked_tables(&self.master.engine, true)
    }
}

/// Servers that have regions by what the master knows, and that are neither alive nor recovered now (HBase:
/// `HMaster.getUnknownServers`). None where master and region server are one process: its start has replayed the WALs of the lives
/// before.
fn unknown_servers(core: &MasterState) -> Vec<ServerName> {
    let servers = &core.cluster.servers;
    if servers.is_one_process() {
        return Vec::new();
    }
    let tables = core.tables.read();
    let known = tables.by_name.values().flat_map(|table| table.all().map(|(_, known)| known));
    let having = known.filter(|known| may_be_open(known.state)).filter_map(|known| known.server.clone());
    let having: BTreeSet<ServerName> = having.chain([core.meta_place.read().server.clone()]).collect();
    drop(tables);
    having.into_iter().filter(|server| servers.standing(server) == Standing::Gone).collect()
}

/// A region that only meta knows, by its full or encoded name. `rows` are those of meta, which are read once.
fn find_row(
    core: &MasterState,
    specifier: &pb::RegionSpecifier,
    rows: &mut Option<Vec<(RegionInfo, RegionEntry)>>,
) -> Answer<Option<(RegionInfo, RegionEntry)>> {
    if rows.is_none() {
        let content = meta::read(&core.meta_rows().map_err(|error| errors::from_error(&error))?);
        *rows = Some(content.regions);
    }
    let name = &specifier.value;
    let is_it =
        |region: &RegionInfo| *region.region_name() == *name || *region.encoded_name().as_bytes() == **name;
    Ok(rows.iter().flatten().find(|(region, _)| is_it(region)).cloned())
}

/// Whether overlaps may be merged at all. HBase answers with the same error, and what else it repairs is repaired then.
fn check_merges(core: &MasterState, report: &HbckReport) -> Answer<()> {
    report.problems.iter().try_for_each(|problem| match problem {
        Problem::Overlap(first, second) => {
            MergeRegions::check_enabled(core, &[first.clone(), second.clone()])
        }
        _ => Ok(()),
    })
}

/// Tables whose lock procedures have that have begun; with `exclusive` those that only one has.
fn locked_tables(engine: &Engine, exclusive: bool) -> HashSet<TableName> {
    let views = engine.views().into_iter().filter(|view| view.begun);
    let locks = views.flat_map(|view| view.locks).filter(|lock| !(exclusive && lock.shared));
    let table = |resource| match resource {
        Resource::Table(table) => Some(table),
        _ => None,
    };
    locks.filter_map(|lock| table(lock.resource)).collect()
}

impl Service for HbckService {
    fn call(&self, call: Call) -> Outcome {
        let outcome = self.master.core.check_running().and_then(|()| self.dispatch(&call));
        outcome.unwrap_or_else(|error| Outcome::Ready(Err(error)))
    }
}

/// Refuses where a change would wait for a procedure that has the table and repeats a step. Others end soon, and the
/// change waits for them.
fn check_not_stuck(engine: &Engine, table: &TableName) -> Answer<()> {
    let is_table = |resource: &Resource| *resource == Resource::Table(table.clone());
    let views = engine.views();
    let why = |view: &ProcedureView| {
        view.set_aside.clone().or_else(|| view.trouble.as_ref().map(ToString::to_string))
    };
    let mut stuck = views.iter().filter_map(|view| Some((view, why(view)?)));
    match stuck.find(|(view, _)| view.locks.iter().any(|lock| is_table(&lock.resource))) {
        Some((view, trouble)) => Err(RpcError::do_not_retry(format!(
            "Procedure {} ({}) has the lock of table {table}, bypass it first: {trouble}",
            view.id, view.class_name
        ))),
        None => Ok(()),
    }
}

fn check_count(count: usize) -> Answer<()> {
    if count <= NAMED_MAX {
        return Ok(());
    }
    Err(RpcError::do_not_retry(format!("{count} are named in one request, over {NAMED_MAX}")))
}

/// One answer for each procedure, in the order of the request. `recursive` asks for the children of a procedure, too;
/// procedures have none here. `waitTime` is HBase's, in milliseconds.
fn bypass(engine: &Engine, request: &pb::BypassProcedureRequest) -> Answer<pb::BypassProcedureResponse> {
    check_count(request.proc_id.len())?;
    let wait = Duration::from_millis(request.wait_time());
    let bypassed = request.proc_id.iter().map(|&id| engine.bypass(id, wait, request.r#override()));
    Ok(pb::BypassProcedureResponse { bypassed: bypassed.collect() })
}
