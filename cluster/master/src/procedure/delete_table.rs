//! Deletes a disabled table; its store files go to the archive.

use halcyon_cell::Result;
use halcyon_contract::QuotaSubject;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;

use super::create_table::delete_from_meta;
use super::enable_table::disabled_table;
use super::table_regions::{TableRegions, messages};
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, step};
use crate::state::MasterState;
use crate::{archive, groups, quotas};

pub(super) const KIND: &str = "delete_table";

/// With all regions, which `prepare` finds.
pub(crate) struct DeleteTable(TableRegions);

impl DeleteTable {
    pub(crate) fn new(table: TableName) -> DeleteTable {
        DeleteTable(TableRegions::of(table))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DeleteTable> {
        Ok(DeleteTable(TableRegions::decode(KIND, bytes)?))
    }
}

impl Procedure for DeleteTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.DeleteTableProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        parameters::of(&pb::DeleteTableStateData {
            user_info: parameters::user(owner),
            table_name: self.0.table.to_pb(),
            region_info: messages(&self.0.regions),
            snapshot_name: None,
        })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.0.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = disabled_table(core, &self.0.table)?;
        self.0.regions = entry.regions.into_keys().collect();
        Ok(())
    }

    /// An empty namespace may go with its directory, in which files are that are still to be archived.
    fn yields_namespace(&self) -> bool {
        false
    }

    fn makes_or_deletes_table(&self) -> bool {
        true
    }

    /// The master before this one may be at it still. Until it has ended the table is locked.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        core.predecessor_until_ns()
    }

    fn payload(&self) -> Vec<u8> {
        self.0.encode()
    }
}

const STEPS: &[Step<DeleteTable>] = &[
    step("delete from meta", |this, core| delete_from_meta(core, &this.0.table, &this.0.regions)),
    step("archive files", |this, core| {
        archive::archive_table(core, &this.0.table)?;
        groups::forget(core, &this.0.table)
    }),
    step("remove quotas", |this, core| quotas::forget(core, &QuotaSubject::Table(this.0.table.clone()))),
];

impl HasSteps for DeleteTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}
