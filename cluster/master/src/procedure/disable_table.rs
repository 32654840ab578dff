//! Disables an enabled table.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;
use prost::Message;

use super::enable_table::check_enabled;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::{MasterState, TableState};
use crate::{errors, regions};

pub(super) const KIND: &str = "disable_table";

pub(crate) struct DisableTable {
    table: TableName,
    /// It is DISABLING already, and the procedure that has made it so is lost.
    is_left: bool,
}

impl DisableTable {
    pub(crate) fn new(table: TableName) -> DisableTable {
        DisableTable { table, is_left: false }
    }

    pub(crate) fn left(table: &TableName) -> DisableTable {
        DisableTable { table: table.clone(), is_left: true }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DisableTable> {
        Ok(DisableTable::new(TableName::from_pb(&payload::<pb::TableName>(KIND, bytes)?)?))
    }
}

impl Procedure for DisableTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.DisableTableProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let (user_info, table_name) = (parameters::user(owner), self.table.to_pb());
        parameters::of(&pb::DisableTableStateData { user_info, table_name, skip_table_state_check: false })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return Err(errors::constraint(format!("Cannot disable {}", self.table)));
        }
        let entry = core.table(&self.table)?;
        if self.is_left && entry.state == TableState::Disabling {
            return Ok(());
        }
        check_enabled(&entry)
    }

    fn payload(&self) -> Vec<u8> {
        self.table.to_pb().encode_to_vec()
    }
}

const STEPS: &[Step<DisableTable>] = &[
    step("set DISABLING", |this, core| regions::set_table_state(core, &this.table, TableState::Disabling)),
    step("close regions", DisableTable::close_regions),
];

impl HasSteps for DisableTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl DisableTable {
    fn close_regions(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(&self.table)?;
        let live = entry.live_regions();
        // The files of a disabled table are to be all of it: HBase, too, opens what its server did not close
        // (`TransitRegionStateProcedure.confirmClosed`).
        for region in regions::died(core, &live) {
            if let Err(error) = regions::ensure_open(core, &region, &entry.descriptor) {
                tracing::warn!(%region, %error, "a region of a table that is disabled is closed before its edits are replayed");
            }
        }
        regions::close(core, &self.table, &live, Some(TableState::Disabled))
    }
}
