//! Actions on one region: assign, unassign, move.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

use super::enable_table::check_enabled;
use super::{Class, HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::placement::{Place, may_be_open};
use crate::regions::Wanted;
use crate::state::{MasterState, RegionEntry, RegionState, TableEntry, TableState, Tables};
use crate::{errors, meta_region, regions};

pub(super) const KIND: &str = "transit_region";

/// The numbers stand in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RegionAction {
    Assign = 0,
    Unassign = 1,
    /// Unassign and assign; with one server, to where it was.
    Move = 2,
}

pub(crate) struct TransitRegion {
    region: RegionInfo,
    action: RegionAction,
    /// Whether the region's state is left unchecked (`override`, `force`).
    force: bool,
    /// Where a region is to be moved to; if there is none, the first step chooses another server.
    to: Option<ServerName>,
    /// Where it was when the move began.
    from: Option<ServerName>,
    /// What meta says of a region that the master does not know.
    row: Option<RegionEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    region: pb::RegionInfo,
    #[prost(enumeration = "RegionAction", tag = "2")]
    action: i32,
    #[prost(message, optional, tag = "3")]
    to: Option<pb::ServerName>,
    #[prost(message, optional, tag = "4")]
    from: Option<pb::ServerName>,
}

impl TransitRegion {
    pub(crate) fn new(region: RegionInfo, action: RegionAction, force: bool) -> TransitRegion {
        TransitRegion { region, action, force, to: None, from: None, row: None }
    }

    /// Of a region that the master learns of then (HBase: `AssignmentManager.populateRegionStatesFromMeta`).
    pub(crate) fn adopting(
        region: RegionInfo,
        row: RegionEntry,
        action: RegionAction,
        force: bool,
    ) -> TransitRegion {
        TransitRegion { row: Some(row), ..TransitRegion::new(region, action, force) }
    }

    /// A move to a server.
    pub(crate) fn to(region: RegionInfo, server: ServerName) -> TransitRegion {
        TransitRegion { to: Some(server), ..TransitRegion::new(region, RegionAction::Move, false) }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TransitRegion> {
        let payload: Payload = payload(KIND, bytes)?;
        let action = RegionAction::try_from(payload.action)
            .map_err(|_| Error::corrupt(format!("region action {}", payload.action)))?;
        let server = |name: &Option<pb::ServerName>| name.as_ref().map(ServerName::from_pb).transpose();
        let (to, from) = (server(&payload.to)?, server(&payload.from)?);
        Ok(TransitRegion {
            region: RegionInfo::from_pb(&payload.region)?,
            action,
            force: true,
            to,
            from,
            row: None,
        })
    }

    /// Whether the region's state and that of its table allow the action, asked in this order
    /// (`AssignmentManager.preTransitCheck`).
    fn check_transit(&self, tables: &Tables) -> std::result::Result<(), RpcError> {
        let (_, region, entry) = find(tables, &self.region)?;
        let table = region.table();
        let node = || {
            let (state, name) = (entry.state.as_str_name(), region.encoded_name());
            let server =
                entry.server.as_ref().filter(|_| may_be_open(entry.state)).map(ServerName::to_string);
            let location = server.as_deref().unwrap_or("null");
            format!("state={state}, location={location}, table={table}, region={name}")
        };
        // HBase's RegionMover passes over what was split meanwhile. It knows that by this text.
        if !is_whole(region) || !self.expects(entry.state) {
            return Err(errors::region_state(format!("Unexpected state for {}", node())));
        }
        let state = tables.region(region.encoded_name()).map(|(table, ..)| table.state);
        if matches!(state, Some(TableState::Disabled | TableState::Disabling)) {
            return Err(RpcError::do_not_retry(format!("{table} is disabled for {}", node())));
        }
        Ok(())
    }

    /// States the action starts from (`AssignmentManager.STATES_EXPECTED_ON_*`).
    fn expects(&self, state: RegionState) -> bool {
        match self.action {
            RegionAction::Assign => !matches!(state, RegionState::Open),
            RegionAction::Unassign | RegionAction::Move => state == RegionState::Open,
        }
    }
}

impl Procedure for TransitRegion {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.TransitRegionStateProcedure"
    }

    fn metric(&self) -> Option<&'static str> {
        Some(match self.action {
            RegionAction::Assign => "Assign",
            RegionAction::Unassign => "Unassign",
            RegionAction::Move => "Move",
        })
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let action = match self.action {
            RegionAction::Assign => pb::RegionTransitionType::Assign,
            RegionAction::Unassign => pb::RegionTransitionType::Unassign,
            RegionAction::Move => pb::RegionTransitionType::Move,
        };
        let transition = pb::RegionStateTransitionStateData {
            r#type: action as i32,
            assign_candidate: self.to.as_ref().map(ServerName::to_pb),
            force_new_plan: false,
            ..Default::default()
        };
        parameters::of_region(&self.region, &transition)
    }

    fn locks(&self) -> Vec<Lock> {
        let of_table = match self.action {
            RegionAction::Assign => Lock::table_kept(self.region.table()),
            RegionAction::Unassign | RegionAction::Move => Lock::table_shared(self.region.table()),
        };
        of_table.into_iter().chain([Lock::region(&self.region)]).collect()
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if let Some(row) = self.row.take() {
            core.adopt(&self.region, row); // nothing is written: meta has it
        }
        if self.is_copy_of_meta() {
            self.from = core.meta_replicas.read().get(&self.region.replica_id()).cloned();
            return match self.action {
                RegionAction::Move if !core.cluster.servers.is_one_process() => Ok(()),
                RegionAction::Move => {
                    Err(RpcError::do_not_retry("Replicas of hbase:meta stay where the master is"))
                }
                _ => Err(RpcError::do_not_retry(
                    "Replicas of hbase:meta are open as long as its descriptor asks for them",
                )),
            };
        }
        if let Place::At(server) = core.place_of(&self.region) {
            self.from = Some(server);
        }
        if self.region.is_meta() {
            return match self.action {
                RegionAction::Move if !core.cluster.servers.is_one_process() => Ok(()),
                RegionAction::Move => Err(RpcError::do_not_retry("hbase:meta stays where the master is")),
                _ => Err(RpcError::do_not_retry("hbase:meta is always open")),
            };
        }
        let tables = core.tables.read();
        match self.action {
            // A region that is open although its table is disabled can be closed.
            RegionAction::Unassign if self.force => find_whole(&tables, &self.region).map(|_| ())?,
            _ if self.force => check_live(&tables, &self.region).map(|_| ())?,
            _ => self.check_transit(&tables)?,
        }
        Ok(())
    }

    fn class(&self, _core: &MasterState) -> Class {
        match self.action {
            _ if self.region.is_meta() && !self.region.is_secondary() => Class::Meta,
            RegionAction::Assign => Class::Assignment,
            RegionAction::Unassign | RegionAction::Move => Class::Rest,
        }
    }

    fn payload(&self) -> Vec<u8> {
        let (to, from) = (self.to.as_ref().map(ServerName::to_pb), self.from.as_ref().map(ServerName::to_pb));
        Payload { region: self.region.to_pb(), action: self.action as i32, to, from }.encode_to_vec()
    }

    /// An open can be given up; a close that does not work makes the region server stop.
    fn can_undo(&self, _core: &MasterState, step: usize) -> bool {
        self.steps()[step].name == OPEN.name
    }

    /// A region that can never be opened stays FAILED_OPEN, which tells more than CLOSED. One that was split is open nowhere, and its row
    /// says so.
    fn undo(&mut self, core: &MasterState) -> Result<()> {
        core.forget_target(&self.region);
        if self.is_gone(core) {
            return Ok(()); // also hbase:meta
        }
        let state = core.tables.read().region(self.region.encoded_name()).map(|(_, _, entry)| entry.state);
        match state {
            None | Some(RegionState::FailedOpen) => Ok(()),
            Some(_) => {
                let region = std::slice::from_ref(&self.region);
                regions::close_to(core, self.region.table(), region, None, None)
            }
        }
    }
}

const CLOSE: Step<TransitRegion> = step("close", TransitRegion::close);
const OPEN: Step<TransitRegion> = step("open", TransitRegion::open);

impl HasSteps for TransitRegion {
    fn steps(&self) -> &'static [Step<Self>] {
        match self.action {
            RegionAction::Assign => &[OPEN],
            RegionAction::Unassign => &[CLOSE],
            RegionAction::Move => &[CLOSE, OPEN],
        }
    }
}

impl TransitRegion {
    fn is_copy_of_meta(&self) -> bool {
        self.region.is_meta() && self.region.is_secondary()
    }

    /// Whether its rows are in other regions now, or nowhere: it was split or merged between two steps, which another program or a
    /// master before this one may have let happen.
    fn is_gone(&self, core: &MasterState) -> bool {
        find_whole(&core.tables.read(), &self.region).is_err()
    }

    fn close(&mut self, core: &MasterState) -> Result<()> {
        if self.is_copy_of_meta() {
            return Ok(()); // after it was opened
        }
        if self.region.is_meta() {
            return meta_region::close(core, self.to.as_ref());
        }
        if self.to.is_none() && self.action == RegionAction::Move && !core.cluster.servers.is_one_process() {
            self.to = core.choose_target(&self.region, self.from.as_ref());
        }
        if self.is_gone(core) {
            return Ok(()); // it is open nowhere
        }
        self.warm_up(core);
        let region = std::slice::from_ref(&self.region);
        regions::close_to(core, self.region.table(), region, None, self.to.as_ref())
    }

    /// The move does not depend on it. When the step is done again, the region may be closed already.
    fn warm_up(&self, core: &MasterState) {
        let Some(to) = self.to.as_ref().filter(|_| !core.is_closing(&self.region)) else { return };
        let is_elsewhere = matches!(core.place_of(&self.region), Place::At(server) if server != *to);
        let Some(server) = core.cluster.servers.get(to).filter(|_| is_elsewhere) else { return };
        if let Err(error) = server.warm_up_region(&self.region) {
            tracing::warn!(region = %self.region, server = %to, %error, "a region moves without a warm-up");
        }
    }

    fn open(&mut self, core: &MasterState) -> Result<()> {
        if self.is_copy_of_meta() {
            return meta_region::move_replica(core, &self.region, self.from.as_ref(), self.to.as_ref());
        }
        let not_at = self.from.as_ref().filter(|_| self.action == RegionAction::Move);
        if self.region.is_meta() {
            return meta_region::open(core, not_at, self.to.as_ref());
        }
        if self.is_gone(core) {
            let text = format!("{} is not opened: it is part of another region, or deleted", self.region);
            return Err(Error::invalid(text));
        }
        let descriptor = core.locked_descriptor(self.region.table())?;
        let wanted = Wanted { to: self.to.as_ref(), not_at, ..Wanted::default() };
        let opened = regions::open_as(core, &descriptor, std::slice::from_ref(&self.region), None, wanted);
        core.forget_target(&self.region);
        opened
    }
}

/// Finds a region that can be acted on: known, of an enabled table, not the parent of a split.
pub(super) fn check_live<'a>(
    tables: &'a Tables,
    region: &RegionInfo,
) -> std::result::Result<(&'a RegionInfo, &'a RegionEntry), RpcError> {
    if let Some((table, ..)) = tables.region(region.encoded_name()) {
        check_enabled(table)?;
    }
    find_whole(tables, region)
}

/// As `check_live`, whatever the state of the table.
pub(super) fn find_whole<'a>(
    tables: &'a Tables,
    region: &RegionInfo,
) -> std::result::Result<(&'a RegionInfo, &'a RegionEntry), RpcError> {
    let (_, region, entry) = find(tables, region)?;
    if !is_whole(region) {
        return Err(errors::region_state(format!("{region} is the parent of a split")));
    }
    Ok((region, entry))
}

fn find<'a>(
    tables: &'a Tables,
    region: &RegionInfo,
) -> std::result::Result<(&'a TableEntry, &'a RegionInfo, &'a RegionEntry), RpcError> {
    let unknown = || RpcError::unknown_region(region.region_name().escape_ascii().to_string());
    tables.region(region.encoded_name()).ok_or_else(unknown)
}

/// Whether it is not the parent of a split.
fn is_whole(region: &RegionInfo) -> bool {
    !region.is_split() && !region.is_offline()
}
