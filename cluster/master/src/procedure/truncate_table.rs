//! Empties a disabled table: its regions are replaced by new ones, and it ends enabled.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use prost::Message;

use super::create_table::{split, write_meta};
use super::enable_table::disabled_table;
use super::table_regions::infos;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::{MasterState, TableState};
use crate::{archive, errors, meta, mob, regions};

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

    fn parameters(&self, owner: &str) -> Parameters {
        let is_prepared = self.plan.descriptor_sequence > 0;
        parameters::of(&pb::TruncateTableStateData {
            user_info: parameters::user(owner),
            preserve_splits: self.preserve_splits || self.plan.new_regions.len() > 1,
            table_name: (!is_prepared).then(|| self.table.to_pb()),
            table_schema: is_prepared.then(|| self.plan.schema.clone()),
            region_info: self.plan.new_regions.clone(),
            snapshot_name: None,
        })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = disabled_table(core, &self.table)?;
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

    /// The master before this one may be at it still. Until it has ended the table is locked.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        core.predecessor_until_ns()
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }
}

const STEPS: &[Step<TruncateTable>] = &[
    step("delete old regions", TruncateTable::delete_old_regions),
    step("write files", TruncateTable::write_files),
    step("write meta", TruncateTable::write_meta),
    step("open regions", TruncateTable::open_regions),
];

impl HasSteps for TruncateTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl TruncateTable {
    fn descriptor(&self) -> Result<TableDescriptor> {
        TableDescriptor::from_pb(&self.plan.schema)
    }

    fn new_regions(&self) -> Result<Vec<RegionInfo>> {
        infos(&self.plan.new_regions)
    }

    /// Takes all regions out of meta and memory, and their files to the archive; also those of regions that went into a
    /// merge, which have no row any more.
    fn delete_old_regions(&mut self, core: &MasterState) -> Result<()> {
        let old = infos(&self.plan.old_regions)?;
        core.meta_put(|timestamp| old.iter().map(|region| meta::delete_region(region, timestamp)).collect())?;
        core.update_table(&self.table, |entry| {
            entry.regions.clear();
            entry.replicas.clear();
        });
        archive::archive_regions(core, &self.table)?;
        mob::archive::archive_table(core, &self.table)
    }

    fn write_files(&mut self, core: &MasterState) -> Result<()> {
        regions::create_files(core, &self.descriptor()?, &self.new_regions()?)
    }

    fn write_meta(&mut self, core: &MasterState) -> Result<()> {
        let (descriptor, sequence) = (self.descriptor()?, self.plan.descriptor_sequence);
        write_meta(core, &descriptor, sequence, &self.new_regions()?, TableState::Enabling)
    }

    fn open_regions(&mut self, core: &MasterState) -> Result<()> {
        regions::open(core, &self.descriptor()?, &self.new_regions()?, Some(TableState::Enabled))
    }
}
