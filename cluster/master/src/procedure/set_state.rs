//! Sets the state of a table or of a region to what an administrator says (HBCK2: `setTableState`, `setRegionState`).
//!
//! Nothing is opened or closed: the state in meta and in memory changes. HBase writes it without a procedure. Here only
//! a procedure that holds the table's lock may change the table's entry.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::{HasSteps, Lock, Procedure, Step, payload, step};
use crate::state::{MasterState, RegionState, TableState};
use crate::{meta, regions};

pub(super) const KIND: &str = "set_state";

pub(crate) enum SetState {
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
    pub(super) fn decode(bytes: &[u8]) -> Result<SetState> {
        let payload: Payload = payload(KIND, bytes)?;
        match (&payload.table, &payload.region) {
            (Some(table), None) => Ok(SetState::Table(TableName::from_pb(table)?, payload.table_state())),
            (None, Some(region)) => {
                Ok(SetState::Region(RegionInfo::from_pb(region)?, payload.region_state()))
            }
            _ => Err(Error::corrupt("the payload of a set_state procedure names neither table nor region")),
        }
    }

    fn table(&self) -> &TableName {
        match self {
            SetState::Table(table, _) => table,
            SetState::Region(region, _) => region.table(),
        }
    }

    fn write(&mut self, core: &MasterState) -> Result<()> {
        match self {
            SetState::Table(table, state) => regions::set_table_state(core, table, *state),
            SetState::Region(region, state) => {
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

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = core.table(self.table())?;
        match self {
            SetState::Region(region, _) if !entry.regions.contains_key(region) => {
                Err(RpcError::unknown_region(region.region_name().escape_ascii().to_string()))
            }
            _ => Ok(()),
        }
    }

    fn payload(&self) -> Vec<u8> {
        let payload = match self {
            SetState::Table(table, state) => {
                Payload { table: Some(table.to_pb()), table_state: *state as i32, ..Payload::default() }
            }
            SetState::Region(region, state) => {
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
