//! Makes a table of a snapshot: a new one (clone), or a disabled one again what it was (restore).
//!
//! Both fill new regions with copies of the snapshot's files. A restored table gets new regions, too: edits that
//! the write-ahead log still holds for the old ones must not come back with them.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use prost::Message;

use super::create_table::{FIRST_SEQUENCE, delete_from_meta, split, write_meta};
use super::enable_table::check_disabled;
use super::truncate_table::delete_regions;
use super::{Lock, Procedure, payload};
use crate::state::{Core, TableState};
use crate::{archive, descriptors, errors, regions, snapshot};

pub(super) const KIND: &str = "restore_snapshot";

pub(crate) struct RestoreSnapshot {
    snapshot: String,
    table: TableName,
    plan: Payload,
}

/// Decided in `prepare`. No old regions and no sequence above the first: a clone.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(string, tag = "1")]
    snapshot: String,
    /// The table that the snapshot was taken of.
    #[prost(string, tag = "2")]
    source: String,
    /// The table to be, under its own name.
    #[prost(message, required, tag = "3")]
    schema: pb::TableSchema,
    #[prost(uint32, tag = "4")]
    descriptor_sequence: u32,
    #[prost(message, repeated, tag = "5")]
    old_regions: Vec<pb::RegionInfo>,
    #[prost(message, repeated, tag = "6")]
    new_regions: Vec<pb::RegionInfo>,
    #[prost(bool, tag = "7")]
    is_clone: bool,
}

impl RestoreSnapshot {
    pub(crate) fn new(snapshot: String, table: TableName) -> RestoreSnapshot {
        RestoreSnapshot { snapshot, table, plan: Payload::default() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<RestoreSnapshot> {
        let plan: Payload = payload(KIND, bytes)?;
        let table = TableDescriptor::from_pb(&plan.schema)?.name().clone();
        Ok(RestoreSnapshot { snapshot: plan.snapshot.clone(), table, plan })
    }

    fn plan(&self, core: &Core) -> std::result::Result<Payload, RpcError> {
        let failed = |error: Error| errors::from_error(&error);
        let Some(info) = snapshot::read_info(core, &self.snapshot).map_err(failed)? else {
            let message = format!("Snapshot '{}' doesn't exist on the filesystem", self.snapshot);
            return Err(RpcError::snapshot_does_not_exist(message));
        };
        let manifest = snapshot::read_manifest(core, &self.snapshot).map_err(failed)?;
        let schema =
            pb::TableSchema { table_name: Some(self.table.to_pb()), ..manifest.table_schema.clone() };
        let existing = core.tables.read().by_name.get(&self.table).cloned();
        let (mut old_regions, mut descriptor_sequence, mut newest) = (Vec::new(), FIRST_SEQUENCE, 0);
        if let Some(entry) = &existing {
            check_disabled(entry)?;
            old_regions = entry.regions.keys().map(RegionInfo::to_pb).collect();
            descriptor_sequence = entry.descriptor_sequence + 1;
            newest = entry.regions.keys().map(RegionInfo::region_id).max().unwrap_or(0);
        }
        let id = (core.now_ms().max(1) as u64).max(newest + 1);
        let new_regions = split(&self.table, snapshot::split_keys(&manifest), id).map_err(failed)?;
        Ok(Payload {
            snapshot: self.snapshot.clone(),
            source: info.table().to_string(),
            schema,
            descriptor_sequence,
            old_regions,
            new_regions: new_regions.iter().map(RegionInfo::to_pb).collect(),
            is_clone: existing.is_none(),
        })
    }
}

impl Procedure for RestoreSnapshot {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        if self.plan.is_clone {
            "org.apache.hadoop.hbase.master.procedure.CloneSnapshotProcedure"
        } else {
            "org.apache.hadoop.hbase.master.procedure.RestoreSnapshotProcedure"
        }
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &Core) -> std::result::Result<(), RpcError> {
        core.namespace(self.table.namespace())?;
        if self.table.is_meta() {
            return Err(RpcError::do_not_retry("Can't modify catalog tables"));
        }
        self.plan = self.plan(core)?;
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }

    fn steps(&self) -> &'static [&'static str] {
        if self.plan.is_clone {
            &["delete old regions", "write files", "copy files", "write meta", "open regions"]
        } else {
            &["delete old regions", "write files", "copy files", "write meta"]
        }
    }

    fn run(&mut self, core: &Core, step: usize) -> Result<()> {
        let descriptor = TableDescriptor::from_pb(&self.plan.schema)?;
        let new = infos(&self.plan.new_regions)?;
        match step {
            0 if self.plan.is_clone => Ok(()),
            0 => delete_regions(core, &self.table, infos(&self.plan.old_regions)?),
            1 => {
                descriptors::write(&core.env, &core.root, &descriptor, self.plan.descriptor_sequence)?;
                regions::create_files(core, &descriptor, &new)
            }
            2 => {
                let manifest = snapshot::read_manifest(core, &self.snapshot)?;
                let source = TableName::parse(self.plan.source.as_bytes())?;
                snapshot::copy_files(core, &source, &descriptor, &manifest, &new)
            }
            3 => {
                let state = if self.plan.is_clone { TableState::Enabling } else { TableState::Disabled };
                write_meta(core, &descriptor, self.plan.descriptor_sequence, &new, state)
            }
            _ => regions::open(core, &descriptor, &new, Some(TableState::Enabled)),
        }
    }

    /// A clone leaves nothing behind. A restore has nothing to go back to: its old regions are in the archive.
    fn undo(&mut self, core: &Core) -> Result<()> {
        if !self.plan.is_clone {
            return Ok(());
        }
        let new = infos(&self.plan.new_regions)?;
        regions::close_only(core, &new, true)?;
        delete_from_meta(core, &self.table, &new)?;
        archive::archive_table(core, &self.table)
    }
}

fn infos(regions: &[pb::RegionInfo]) -> Result<Vec<RegionInfo>> {
    regions.iter().map(RegionInfo::from_pb).collect()
}
