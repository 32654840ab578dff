//! Changes the store file tracker of a table or of one family, through `MIGRATION` (HBase:
//! `ModifyTableStoreFileTrackerProcedure`, `ModifyColumnFamilyStoreFileTrackerProcedure`).
//!
//! ```text
//! MIGRATION to another tracker  -> that tracker      a migration that was begun is ended first
//! a tracker                     -> MIGRATION         regions open by the old tracker, and write the list of the new one
//! MIGRATION                     -> the tracker
//! ```
//!
//! After each change all regions are opened again. One that does not open keeps the procedure where it is: with the next
//! tracker it would open without its files.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{
    FamilyDescriptor, STORE_FILE_TRACKER, TRACKER_MIGRATION_DST, TRACKER_MIGRATION_SRC, TableDescriptor,
    TableName, Tracker,
};
use prost::Message;

use super::enable_table::check_enabled;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::MasterState;
use crate::{descriptors, errors, regions, trackers};

pub(super) const KIND: &str = "modify_tracker";

pub(crate) struct ModifyTracker {
    table: TableName,
    plan: Payload,
    /// An attempt to reopen regions has closed some of them.
    are_closed: bool,
}

/// The descriptors are decided in `prepare`.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    /// `None`: of the table.
    #[prost(bytes = "bytes", optional, tag = "1")]
    family: Option<Bytes>,
    /// As the client named it.
    #[prost(string, tag = "2")]
    wanted: String,
    #[prost(message, optional, tag = "3")]
    previous_ended: Option<Stage>,
    #[prost(message, optional, tag = "4")]
    migrating: Option<Stage>,
    #[prost(message, optional, tag = "5")]
    ended: Option<Stage>,
    #[prost(string, tag = "6")]
    table: String,
}

/// One change of the descriptor.
#[derive(Clone, PartialEq, Message)]
struct Stage {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    #[prost(uint32, tag = "2")]
    sequence: u32,
}

impl ModifyTracker {
    /// Refused at once: a tracker that is none, or `MIGRATION`.
    pub(crate) fn new(
        table: TableName,
        family: Option<Bytes>,
        wanted: String,
    ) -> std::result::Result<ModifyTracker, RpcError> {
        if trackers::named(&wanted)? == Tracker::Migration {
            return Err(RpcError::do_not_retry(format!("Do not need to transfer to {wanted}")));
        }
        let plan = Payload { family, wanted, table: table.to_string(), ..Payload::default() };
        Ok(ModifyTracker { table, plan, are_closed: false })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ModifyTracker> {
        let plan: Payload = payload(KIND, bytes)?;
        let table = TableName::parse(plan.table.as_bytes())?;
        Ok(ModifyTracker { table, plan, are_closed: false })
    }

    /// The table with other settings of the tracker; `None` takes one away.
    fn with(&self, table: &TableDescriptor, settings: [(&str, Option<&str>); 3]) -> TableDescriptor {
        let Some(family) = self.plan.family.as_ref().and_then(|name| table.family(name)) else {
            return settings.iter().fold(table.clone(), |table, (key, value)| match value {
                Some(value) => table.with(key, value),
                None => table.without(key.as_bytes()),
            });
        };
        let family =
            settings.iter().fold(family.clone(), |family: FamilyDescriptor, (key, value)| match value {
                Some(value) => family.with_configuration(*key, *value),
                None => family.without_configuration(key),
            });
        table.clone().with_family(family)
    }

    /// What is set now, and the destination of a migration under way (HBase: `createConf`, `checkState`).
    fn current(&self, table: &TableDescriptor) -> Result<(Tracker, Option<Tracker>)> {
        let nobody = FamilyDescriptor::new("none").expect("a legal name");
        let family = self.plan.family.as_ref().and_then(|name| table.family(name)).unwrap_or(&nobody);
        let tracker = table.tracker(family)?;
        let dst = (tracker == Tracker::Migration).then(|| table.migration(family)).transpose()?;
        Ok((tracker, dst.map(|(_, dst)| dst)))
    }

    /// Adds a change to the plan; refused like any change of a table.
    fn stage(
        core: &MasterState,
        table: &mut TableDescriptor,
        next: TableDescriptor,
        sequence: &mut u32,
    ) -> std::result::Result<Option<Stage>, RpcError> {
        trackers::check_modified_table(table, &next, false)?;
        core.check_change(table, &next).map_err(|error| errors::from_error(&error))?;
        *sequence += 1;
        let stage = Stage { schema: next.to_pb(), sequence: *sequence };
        *table = next;
        Ok(Some(stage))
    }
}

impl Procedure for ModifyTracker {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        const PACKAGE: [&str; 2] = [
            "org.apache.hadoop.hbase.regionserver.storefiletracker.ModifyTableStoreFileTrackerProcedure",
            "org.apache.hadoop.hbase.regionserver.storefiletracker.ModifyColumnFamilyStoreFileTrackerProcedure",
        ];
        PACKAGE[usize::from(self.plan.family.is_some())]
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let (table_name, dst_sft) = (self.table.to_pb(), self.plan.wanted.clone());
        let mut all = parameters::of(&pb::ModifyStoreFileTrackerStateData { table_name, dst_sft });
        if let Some(family) = self.plan.family.clone() {
            all.push(parameters::any(&pb::ModifyColumnFamilyStoreFileTrackerStateData { family }));
        }
        all
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return Err(RpcError::do_not_retry("Can't modify catalog tables"));
        }
        let entry = core.table(&self.table)?;
        check_enabled(&entry)?;
        let (mut table, mut sequence) =
            (TableDescriptor::clone(&entry.descriptor), entry.descriptor_sequence);
        if let Some(family) = self.plan.family.as_ref().filter(|family| table.family(family).is_none()) {
            let family = family.escape_ascii();
            let message = format!("{family} does not exist for table {}", self.table);
            return Err(RpcError::no_such_column_family(message));
        }
        let wanted = trackers::named(&self.plan.wanted)?;
        let (mut current, dst) = self.current(&table).map_err(errors::invalid)?;
        if current == wanted {
            return Ok(()); // nothing is to be done
        }
        if let Some(dst) = dst.filter(|dst| *dst != wanted) {
            // HBase leaves the settings of the migration here; the next one replaces them.
            let settings = [
                (STORE_FILE_TRACKER, Some(dst.name())),
                (TRACKER_MIGRATION_SRC, None),
                (TRACKER_MIGRATION_DST, None),
            ];
            let next = self.with(&table, settings);
            self.plan.previous_ended = Self::stage(core, &mut table, next, &mut sequence)?;
            current = dst;
        }
        let name = self.plan.wanted.clone();
        if current == wanted {
            return Ok(());
        }
        if current != Tracker::Migration {
            let settings = [
                (STORE_FILE_TRACKER, Some(Tracker::Migration.name())),
                (TRACKER_MIGRATION_SRC, Some(current.name())),
                (TRACKER_MIGRATION_DST, Some(&*name)),
            ];
            let next = self.with(&table, settings);
            self.plan.migrating = Self::stage(core, &mut table, next, &mut sequence)?;
        }
        let settings = [
            (STORE_FILE_TRACKER, Some(&*name)),
            (TRACKER_MIGRATION_SRC, None),
            (TRACKER_MIGRATION_DST, None),
        ];
        let next = self.with(&table, settings);
        self.plan.ended = Self::stage(core, &mut table, next, &mut sequence)?;
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }
}

const STEPS: &[Step<ModifyTracker>] = &[
    step("end previous migration", |this, core| this.change(core, this.plan.previous_ended.clone())),
    step("begin migration", |this, core| this.change(core, this.plan.migrating.clone())),
    step("end migration", |this, core| this.change(core, this.plan.ended.clone())),
];

impl HasSteps for ModifyTracker {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl ModifyTracker {
    /// Writes the descriptor and opens all regions with it.
    fn change(&mut self, core: &MasterState, stage: Option<Stage>) -> Result<()> {
        let Some(Stage { schema, sequence }) = stage else { return Ok(()) };
        let descriptor = Arc::new(TableDescriptor::from_pb(&schema)?);
        descriptors::write(&core.env, &core.root, &descriptor, sequence)?;
        core.update_table(&self.table, |entry| {
            (entry.descriptor, entry.descriptor_sequence) = (descriptor.clone(), sequence);
        });
        let live = core.locked_table(&self.table)?.live_regions();
        regions::close_to_reopen(core, &descriptor, &live, &mut self.are_closed)?;
        // A final error would end the procedure, and the table would stay between two trackers. The region may open later.
        regions::open(core, &descriptor, &live, None)
            .map_err(|error| Error::new(ErrorKind::Busy, error.message().to_string()))
    }
}
