//! Empties a disabled table: its regions are replaced by new ones, and it ends enabled.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use prost::Message;

use super::create_table::{split, write_meta};
use super::enable_table::check_disabled;
use super::{Lock, Procedure, payload};
use crate::state::{MasterState, TableState};
use crate::{archive, errors, meta, regions};

pub(super) const KIND: &str = "truncate_table";

pub(crate) struct TruncateTable {
    table: TableName,
    preserve_splits: bool,
    plan: Payload,
}

/// Decided in `prepare`.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    #[prost(uint32, tag = "2")]
    descriptor_sequence: u32,
    #[prost(message, repeated, tag = "3")]
    old_regions: Vec<pb::RegionInfo>,
    #[prost(message, repeated, tag = "4")]
    new_regions: Vec<pb::RegionInfo>,
}

impl TruncateTable {
    pub(crate) fn new(table: TableName, preserve_splits: bool) -> TruncateTable {
        TruncateTable { table, preserve_splits, plan: Payload::default() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TruncateTable> {
        let plan: Payload = payload(KIND, bytes)?;
        let descriptor = TableDescriptor::from_pb(&plan.schema)?;
        Ok(TruncateTable { table: descriptor.name().clone(), preserve_splits: false, plan })
    }
}

impl Procedure for TruncateTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.TruncateTableProcedure"
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return Err(RpcError::do_not_retry("Can't modify catalog tables"));
        }
        let entry = core.table(&self.table)?;
        check_disabled(&entry)?;
        let starts = entry.live_regions().into_iter().map(|region| region.start_key().clone());
        let keys = starts.filter(|start| !start.is_empty() && self.preserve_splits).collect();
        // The names of new regions must differ from those of the old ones, whose files they would inherit.
        let newest = entry.regions.keys().map(RegionInfo::region_id).max().unwrap_or(0);
        let id = (core.now_ms().max(1) as u64).max(newest + 1);
        let new_regions = split(&self.table, keys, id).map_err(errors::invalid)?;
        self.plan = Payload {
            schema: entry.descriptor.to_pb(),
            descriptor_sequence: entry.descriptor_sequence,
            old_regions: entry.regions.keys().map(RegionInfo::to_pb).collect(),
            new_regions: new_regions.iter().map(RegionInfo::to_pb).collect(),
        };
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }

    fn steps(&self) -> &'static [&'static str] {
        &["delete old regions", "write files", "write meta", "open regions"]
    }

    fn run(&mut self, core: &MasterState, step: usize) -> Result<()> {
        let descriptor = TableDescriptor::from_pb(&self.plan.schema)?;
        let infos =
            |regions: &[pb::RegionInfo]| regions.iter().map(RegionInfo::from_pb).collect::<Result<Vec<_>>>();
        let new = infos(&self.plan.new_regions)?;
        match step {
            0 => delete_regions(core, &self.table, infos(&self.plan.old_regions)?),
            1 => regions::create_files(core, &descriptor, &new),
            2 => write_meta(core, &descriptor, self.plan.descriptor_sequence, &new, TableState::Enabling),
            _ => regions::open(core, &descriptor, &new, Some(TableState::Enabled)),
        }
    }
}

/// Takes all regions of a table out of meta and memory, and their files to the archive; also those of regions that
/// went into a merge, which have no row any more.
pub(super) fn delete_regions(core: &MasterState, table: &TableName, old: Vec<RegionInfo>) -> Result<()> {
    core.meta_put(|timestamp| old.iter().map(|region| meta::delete_region(region, timestamp)).collect())?;
    core.update_table(table, |entry| entry.regions.clear());
    archive::archive_regions(core, table)
}
