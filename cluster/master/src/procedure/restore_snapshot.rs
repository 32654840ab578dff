//! Makes a table of a snapshot: a new one (clone), or a disabled one again what it was (restore).
//!
//! ```text
//! prepare          the whole snapshot is looked at: manifest, families, regions, every file, time to live
//! write files      directories of new regions, which nobody sees yet
//! copy files       the snapshot's files, into them: as second names where the file system has those, else as links
//! write meta       in one write the new regions take the place of the old ones
//! a clone: open regions               a restore: archive old regions
//! ```
//!
//! Until the write to meta a restored table is what it was, and a failure takes the new directories away; from there on it
//! is what the snapshot holds. It gets new regions, because edits that the write-ahead log still holds for the old ones
//! must not come back with them.

use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, STORE_FILE_TRACKER, TableDescriptor, TableName, layout};
use prost::Message;

use super::create_table::{
    FIRST_SEQUENCE, check_count, check_name, check_namespace, check_unused, delete_from_meta, split,
};
use super::enable_table::check_disabled;
use super::table_regions::infos;
use super::{HasSteps, Lock, Parameters, Procedure, Step, new_regions, parameters, payload, step};
use crate::state::{MasterState, TableEntry, TableState};
use crate::{
    archive, descriptors, erasure_coding, errors, groups, meta, mob, quotas, regions, snapshot, trackers,
};

pub(super) const KIND: &str = "restore_snapshot";

pub(crate) struct RestoreSnapshot {
    snapshot: String,
    table: TableName,
    /// Of a clone: instead of the snapshot's.
    tracker: Option<String>,
    plan: Payload,
    /// The write to meta has been tried, so that it may have been done, or be done later.
    meta_tried: bool,
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
    /// The descriptor of the table as it is, for an undo.
    #[prost(message, optional, tag = "8")]
    old_schema: Option<pb::TableSchema>,
}

impl RestoreSnapshot {
    /// `tracker`: the store file tracker of a new table, whatever the snapshot says.
    pub(crate) fn new(snapshot: String, table: TableName, tracker: Option<String>) -> RestoreSnapshot {
        RestoreSnapshot { snapshot, table, tracker, plan: Payload::default(), meta_tried: false }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<RestoreSnapshot> {
        let plan: Payload = payload(KIND, bytes)?;
        let table = TableDescriptor::from_pb(&plan.schema)?.name().clone();
        Ok(RestoreSnapshot { snapshot: plan.snapshot.clone(), table, tracker: None, plan, meta_tried: false })
    }

    fn plan(&self, core: &MasterState) -> std::result::Result<Payload, RpcError> {
        let failed = |error: Error| errors::from_error(&error);
        let Some(info) = snapshot::read_info(core, &self.snapshot).map_err(failed)? else {
            let message = format!("Snapshot '{}' doesn't exist on the filesystem", self.snapshot);
            return Err(RpcError::snapshot_does_not_exist(message));
        };
        if snapshot::is_expired(&info, core.now_ms()) {
            return Err(errors::snapshot_expired(&self.snapshot));
        }
        let broken = |error: Error| {
            if !error.kind().is_permanent() {
                return errors::from_error(&error);
            }
            RpcError::corrupted_snapshot(format!("Snapshot '{}': {}", self.snapshot, error.message()))
        };
        let manifest = snapshot::read_manifest(core, &self.snapshot).map_err(broken)?;
        let source = TableName::parse(info.table().as_bytes()).map_err(broken)?;
        let mut schema =
            pb::TableSchema { table_name: Some(self.table.to_pb()), ..manifest.table_schema.clone() };
        let mut descriptor = TableDescriptor::from_pb(&schema).map_err(broken)?;
        let existing = core.tables.read().by_name.get(&self.table).cloned();
        match (&existing, &self.tracker) {
            (Some(entry), _) => trackers::check_restore(&entry.descriptor, &descriptor)?,
            (None, Some(tracker)) => {
                descriptor = with_tracker(descriptor, tracker);
                schema = descriptor.to_pb();
            }
            (None, None) => {}
        }
        core.check_descriptor(&descriptor).map_err(|error| errors::from_error(&error))?;
        let (mut old_regions, mut descriptor_sequence, mut newest) = (Vec::new(), FIRST_SEQUENCE, 0);
        if let Some(entry) = &existing {
            check_disabled(entry)?;
            old_regions = entry.regions.keys().map(RegionInfo::to_pb).collect();
            descriptor_sequence = entry.descriptor_sequence + 1;
            newest = entry.regions.keys().map(RegionInfo::region_id).max().unwrap_or(0);
        }
        let id = (core.now_ms().max(1) as u64).max(newest + 1);
        let new_regions =
            split(&self.table, snapshot::split_keys(&manifest).map_err(broken)?, id).map_err(broken)?;
        let copies = snapshot::copies(core, &source, &descriptor, &manifest, &new_regions).map_err(broken)?;
        let mob_files = mob::snapshots::named(&source, &manifest).map_err(broken)?;
        mob::snapshots::check_links(&self.table, &mob_files).map_err(errors::invalid)?;
        snapshot::check_files(core, copies).map_err(broken)?;
        mob::snapshots::check(core, &mob_files).map_err(broken)?;
        Ok(Payload {
            snapshot: self.snapshot.clone(),
            source: info.table().to_string(),
            schema,
            descriptor_sequence,
            old_regions,
            new_regions: new_regions.iter().map(RegionInfo::to_pb).collect(),
            is_clone: existing.is_none(),
            old_schema: existing.map(|entry| entry.descriptor.to_pb()),
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

    fn metric(&self) -> Option<&'static str> {
        Some(if self.plan.is_clone { "SnapshotClone" } else { "SnapshotRestore" })
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let source = Some(self.plan.source.clone()).filter(|source| !source.is_empty());
        let snapshot =
            pb::SnapshotDescription { name: self.snapshot.clone(), table: source, ..Default::default() };
        let (user_info, mut schema) = (parameters::user(owner), self.plan.schema.clone());
        schema.table_name.get_or_insert_with(|| self.table.to_pb()); // not prepared
        if self.plan.is_clone {
            return parameters::of(&pb::CloneSnapshotStateData {
                user_info,
                snapshot,
                table_schema: schema,
                region_info: self.plan.new_regions.clone(),
                custom_sft: self.tracker.clone(),
                ..Default::default()
            });
        }
        parameters::of(&pb::RestoreSnapshotStateData {
            user_info,
            snapshot,
            old_table_schema: self.plan.old_schema.clone().unwrap_or_else(|| schema.clone()),
            modified_table_schema: schema,
            region_info_for_remove: self.plan.old_regions.clone(),
            region_info_for_add: self.plan.new_regions.clone(),
            ..Default::default()
        })
    }

    fn locks(&self) -> Vec<Lock> {
        let mut locks = Lock::table(&self.table);
        locks.push(Lock::snapshot_shared(&self.snapshot));
        locks
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        check_name(&self.table)?;
        core.namespace(self.table.namespace())?;
        if self.table.is_meta() {
            return Err(RpcError::do_not_retry("Can't modify catalog tables"));
        }
        self.plan = self.plan(core)?;
        let descriptor = self.descriptor().map_err(errors::invalid)?;
        check_count(self.plan.new_regions.len(), &descriptor)?;
        if self.plan.is_clone {
            check_unused(core, &self.table)?;
            groups::check_new_table(core, &descriptor)?;
            quotas::check_new_table(core, &self.table, self.plan.new_regions.len())?;
        } else {
            quotas::check_new_regions(core, &self.table, self.plan.new_regions.len())?;
        }
        Ok(())
    }

    /// A clone reads `hbase:meta`, which may be on its way to another server.
    fn can_be_checked_again(&self) -> bool {
        true
    }

    fn makes_or_deletes_table(&self) -> bool {
        self.plan.is_clone
    }

    /// The master before this one may be archiving regions still. Until it has ended none of them is restored once more.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        core.predecessor_until_ns()
    }

    fn undo_held_until(&self, core: &MasterState) -> Option<u64> {
        core.predecessor_until_ns()
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }

    fn can_undo(&self, core: &MasterState, _step: usize) -> bool {
        self.plan.is_clone || !(self.meta_tried || self.is_replaced(core))
    }

    /// A clone leaves nothing behind. A restore leaves the old table, or, once meta has it, the new one.
    fn undo(&mut self, core: &MasterState) -> Result<()> {
        let new = infos(&self.plan.new_regions)?;
        if self.plan.is_clone {
            regions::close_only(core, &new, true)?;
            delete_from_meta(core, &self.table, &new)?;
            groups::forget(core, &self.table)?;
            return archive::archive_created(core, &self.table, &new);
        }
        if self.is_replaced(core) {
            return Ok(());
        }
        self.restore_descriptor(core)?;
        new.iter().try_for_each(|region| archive::remove_region(core, region))
    }
}

/// The first step does nothing. In records of earlier versions the steps after it have these numbers, too.
const BEGIN: Step<RestoreSnapshot> = step("begin", |_, _| Ok(()));
const WRITE_FILES: Step<RestoreSnapshot> = step("write files", RestoreSnapshot::write_files);
const COPY_FILES: Step<RestoreSnapshot> = step("copy files", RestoreSnapshot::copy_files);
const WRITE_META: Step<RestoreSnapshot> = step("write meta", RestoreSnapshot::write_meta);
const CLONE_STEPS: &[Step<RestoreSnapshot>] =
    &[BEGIN, WRITE_FILES, COPY_FILES, WRITE_META, step("open regions", RestoreSnapshot::open_regions)];
const RESTORE_STEPS: &[Step<RestoreSnapshot>] =
    &[BEGIN, WRITE_FILES, COPY_FILES, WRITE_META, step("archive old regions", RestoreSnapshot::archive_old)];

impl HasSteps for RestoreSnapshot {
    fn steps(&self) -> &'static [Step<Self>] {
        if self.plan.is_clone { CLONE_STEPS } else { RESTORE_STEPS }
    }
}

impl RestoreSnapshot {
    fn descriptor(&self) -> Result<TableDescriptor> {
        TableDescriptor::from_pb(&self.plan.schema)
    }

    /// That of the table that is restored.
    fn old_descriptor(&self) -> Result<Option<TableDescriptor>> {
        self.plan.old_schema.as_ref().map(TableDescriptor::from_pb).transpose()
    }

    fn new_regions(&self) -> Result<Vec<RegionInfo>> {
        infos(&self.plan.new_regions)
    }

    fn write_files(&mut self, core: &MasterState) -> Result<()> {
        let descriptor = self.descriptor()?;
        if self.plan.is_clone {
            check_namespace(core, &self.table)?;
            groups::adopt(core, &descriptor)?;
            // Of a creation that an administrator has ended a descriptor may be left, under a higher number.
            archive::remove_dir(&*core.env.fs, &layout::table_desc_dir(&core.root, &self.table))?;
        }
        erasure_coding::apply(core, self.old_descriptor()?.as_ref(), &descriptor)?;
        regions::create_files(core, &descriptor, &self.new_regions()?)
    }

    fn copy_files(&mut self, core: &MasterState) -> Result<()> {
        let descriptor = self.descriptor()?;
        let manifest = snapshot::read_manifest(core, &self.snapshot)?;
        let source = TableName::parse(self.plan.source.as_bytes())?;
        let copies = snapshot::copies(core, &source, &descriptor, &manifest, &self.new_regions()?)?;
        // First the values, then what refers to them.
        mob::snapshots::restore(core, &self.table, &mob::snapshots::named(&source, &manifest)?)?;
        snapshot::copy_files(core, &descriptor, copies)?;
        let new = self.new_regions()?;
        new.iter().try_for_each(|region| core.cluster.files.list_store_files(region, &descriptor))
    }

    fn open_regions(&mut self, core: &MasterState) -> Result<()> {
        regions::open(core, &self.descriptor()?, &self.new_regions()?, Some(TableState::Enabled))
    }

    fn archive_old(&mut self, core: &MasterState) -> Result<()> {
        archive::archive_other_regions(core, &self.table, &self.new_regions()?)
    }
}

/// With this tracker for all families (`CloneSnapshotProcedure.updateTableDescriptorWithSFT`).
fn with_tracker(table: TableDescriptor, tracker: &str) -> TableDescriptor {
    let families: Vec<_> = table.families().to_vec();
    families.into_iter().fold(table.with(STORE_FILE_TRACKER, tracker), |table, family| {
        table.with_family(
            family.without_configuration(STORE_FILE_TRACKER).without(STORE_FILE_TRACKER.as_bytes()),
        )
    })
}

impl RestoreSnapshot {
    /// The new regions in the place of the old ones. Both are in one write, so that a crash leaves the one or the other.
    fn write_meta(&mut self, core: &MasterState) -> Result<()> {
        check_namespace(core, &self.table)?;
        let (descriptor, new) = (self.descriptor()?, self.new_regions()?);
        descriptors::write(&core.env, &core.root, &descriptor, self.plan.descriptor_sequence)?;
        let state = if self.plan.is_clone { TableState::Enabling } else { TableState::Disabled };
        let old = infos(&self.plan.old_regions)?;
        let was_tried = std::mem::replace(&mut self.meta_tried, true);
        let written = core.meta_put_together(|timestamp| {
            let gone = old.iter().map(|region| meta::delete_region(region, timestamp));
            let there = new.iter().flat_map(|region| meta::closed_region(region, timestamp));
            gone.chain(there).chain([meta::table_state(&self.table, state, timestamp)]).collect()
        });
        if !was_tried && written.as_ref().is_err_and(|error| error.kind().is_permanent()) {
            self.meta_tried = false; // it was refused, and nothing before it was written
            return written;
        }
        written.map_err(new_regions::in_doubt)?;
        let entry = TableEntry::closed(&descriptor, self.plan.descriptor_sequence, &new, state);
        core.tables.write().put(entry);
        Ok(())
    }

    /// Puts the old descriptor back, under a number of its own, if the new one was written.
    fn restore_descriptor(&self, core: &MasterState) -> Result<()> {
        let Some(old) = self.old_descriptor()? else { return Ok(()) };
        erasure_coding::apply(core, Some(&self.descriptor()?), &old)?;
        let written = descriptors::read(&core.env, &core.root, &self.table)?;
        if written.is_none_or(|(_, sequence)| sequence != self.plan.descriptor_sequence) {
            return Ok(());
        }
        let sequence = self.plan.descriptor_sequence + 1;
        descriptors::write(&core.env, &core.root, &old, sequence)?;
        core.update_table(&self.table, |entry| {
            (entry.descriptor, entry.descriptor_sequence) = (old.into(), sequence);
        });
        Ok(())
    }

    /// Whether the table has the new regions. The same after a restart, which reads meta.
    fn is_replaced(&self, core: &MasterState) -> bool {
        let Ok(new) = infos(&self.plan.new_regions) else { return false };
        core.table(&self.table).is_ok_and(|entry| new.iter().any(|region| entry.regions.contains_key(region)))
    }
}
