//! Sets the state of a table or of a region to what an administrator says (HBCK2: `setTableState`, `setRegionState`).
//!
//! Nothing is opened or closed: the state in meta and in memory changes. HBase writes it without a procedure. Here only
//! a procedure that holds the table's lock may change the table's entry.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;
use tokio::sync::oneshot;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::{MasterState, RegionState, TableState};
use crate::{meta, regions};

pub(super) const KIND: &str = "set_state";

pub(crate) struct SetState {
    change: StateChange,
    /// Receives the number of the state before, when the lock is held.
    before: Option<oneshot::Sender<i32>>,
}

pub(crate) enum StateChange {
    Table(TableName, TableState),
    Region(RegionInfo, RegionState),
}

/// One of the two.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, optional, tag = "1")]
    table: Option<pb::TableName>,
    #[prost(enumeration = "TableState", tag = "2")]
    table_state: i32,
    #[prost(message, optional, tag = "3")]
    region: Option<pb::RegionInfo>,
    #[prost(enumeration = "RegionState", tag = "4")]
    region_state: i32,
}

impl SetState {
    /// The receiver gets the number of the state before, unless the request is refused.
    pub(crate) fn new(change: StateChange) -> (SetState, oneshot::Receiver<i32>) {
        let (sender, before) = oneshot::channel();
        (SetState { change, before: Some(sender) }, before)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<SetState> {
        let payload: Payload = payload(KIND, bytes)?;
        let change = match (&payload.table, &payload.region) {
            (Some(table), None) => StateChange::Table(TableName::from_pb(table)?, payload.table_state()),
            (None, Some(region)) => StateChange::Region(RegionInfo::from_pb(region)?, payload.region_state()),
            _ => {
                let message = "the payload of a set_state procedure names neither table nor region";
                return Err(Error::corrupt(message));
            }
        };
        Ok(SetState { change, before: None })
    }

    fn table(&self) -> &TableName {
        match &self.change {
            StateChange::Table(table, _) => table,
            StateChange::Region(region, _) => region.table(),
        }
    }

    fn write(&mut self, core: &MasterState) -> Result<()> {
        match &self.change {
            StateChange::Table(table, state) => regions::set_table_state(core, table, *state),
            StateChange::Region(region, state) => {
                regions::check_flags(core, std::slice::from_ref(region))?;
                core.meta_put(|timestamp| meta::region_in_state(region, *state, timestamp))?;
                regions::mark(core, region.table(), std::slice::from_ref(region), *state);
                Ok(())
            }
        }
    }
}

impl Procedure for SetState {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// The name is ours, in the form of HBase's.
    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.SetStateInMetaProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        match &self.change {
            StateChange::Table(table, _) => vec![parameters::any(&table.to_pb())],
            StateChange::Region(region, _) => vec![parameters::any(&region.to_pb())],
        }
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = core.table(self.table())?;
        let before = match &self.change {
            StateChange::Table(..) => entry.state as i32,
            StateChange::Region(region, _) => {
                let unknown = || RpcError::unknown_region(region.region_name().escape_ascii().to_string());
                entry.regions.get(region).ok_or_else(unknown)?.state as i32
            }
        };
        if let Some(sender) = self.before.take() {
            let _ = sender.send(before); // the client may have given up
        }
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        let payload = match &self.change {
            StateChange::Table(table, state) => {
                Payload { table: Some(table.to_pb()), table_state: *state as i32, ..Payload::default() }
            }
            StateChange::Region(region, state) => {
                Payload { region: Some(region.to_pb()), region_state: *state as i32, ..Payload::default() }
            }
        };
        payload.encode_to_vec()
    }
}

const STEPS: &[Step<SetState>] = &[step("write meta", SetState::write)];

impl HasSteps for SetState {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}
