//! Enables a disabled table.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;
use prost::Message;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::regions;
use crate::state::{MasterState, TableEntry, TableState};

pub(super) const KIND: &str = "enable_table";

pub(crate) struct EnableTable {
    pub(crate) table: TableName,
}

impl EnableTable {
    pub(super) fn decode(bytes: &[u8]) -> Result<EnableTable> {
        Ok(EnableTable { table: TableName::from_pb(&payload::<pb::TableName>(KIND, bytes)?)? })
    }
}

impl Procedure for EnableTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.EnableTableProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let (user_info, table_name) = (parameters::user(owner), self.table.to_pb());
        parameters::of(&pb::EnableTableStateData { user_info, table_name, skip_table_state_check: false })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return Err(RpcError::table_not_disabled("Not DISABLED tableName=hbase:meta, state=ENABLED"));
        }
        check_disabled(&core.table(&self.table)?)
    }

    fn payload(&self) -> Vec<u8> {
        self.table.to_pb().encode_to_vec()
    }

    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }

    fn undo(&mut self, core: &MasterState) -> Result<()> {
        let live = core.locked_table(&self.table)?.live_regions();
        regions::close(core, &self.table, &live, Some(TableState::Disabled))
    }
}

const STEPS: &[Step<EnableTable>] = &[
    step("set ENABLING", |this, core| regions::set_table_state(core, &this.table, TableState::Enabling)),
    step("open regions", EnableTable::open_regions),
];

impl HasSteps for EnableTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl EnableTable {
    fn open_regions(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(&self.table)?;
        regions::open_what_can(core, &entry.descriptor, &entry.live_regions(), Some(TableState::Enabled))
    }
}

/// What actions on a disabled table ask first (`HMaster.checkTableModifiable`).
pub(super) fn check_disabled(entry: &TableEntry) -> std::result::Result<(), RpcError> {
    if entry.state == TableState::Disabled {
        return Ok(());
    }
    let (table, state) = (entry.descriptor.name(), entry.state.as_str_name());
    Err(RpcError::table_not_disabled(format!("Not DISABLED tableName={table}, state={state}")))
}

/// A disabled table, which can be deleted or emptied.
pub(super) fn disabled_table(
    core: &MasterState,
    table: &TableName,
) -> std::result::Result<TableEntry, RpcError> {
    if table.is_meta() {
        return Err(RpcError::do_not_retry("Can't modify catalog tables"));
    }
    let entry = core.table(table)?;
    check_disabled(&entry)?;
    Ok(entry)
}

pub(super) fn check_enabled(entry: &TableEntry) -> std::result::Result<(), RpcError> {
    if entry.state == TableState::Enabled {
        return Ok(());
    }
    let (table, state) = (entry.descriptor.name(), entry.state.as_str_name());
    Err(RpcError::table_not_enabled(format!("Not ENABLED tableName={table}, state={state}")))
}
