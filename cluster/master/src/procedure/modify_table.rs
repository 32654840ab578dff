//! Changes a table's descriptor: the whole of it, or one family.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};
use prost::Message;

use super::create_table::check_count;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::reopen::Reopened;
use crate::state::{MasterState, TableEntry, TableState};
use crate::{
    archive, descriptors, erasure_coding, errors, groups, meta, meta_region, mob, regions, trackers,
};

pub(super) const KIND: &str = "modify_table";
const REPLICATION: &str = "REGION_REPLICATION";
/// Regions of `hbase:meta` with its copies. Each has a znode.
const META_REPLICATION_MAX: i32 = 10;

/// What is asked for. Made into a whole descriptor when the table's lock is held.
pub(crate) enum Change {
    Table(TableDescriptor),
    AddFamily(FamilyDescriptor),
    ModifyFamily(FamilyDescriptor),
    DeleteFamily(Bytes),
}

pub(crate) struct ModifyTable {
    table: TableName,
    change: Option<Change>,
    reopen_regions: bool,
    plan: Payload,
    reopened: Reopened,
}

/// Decided in `prepare`.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    /// Number of the new descriptor's file.
    #[prost(uint32, tag = "2")]
    sequence: u32,
    #[prost(bool, tag = "3")]
    reopen_regions: bool,
    #[prost(string, repeated, tag = "4")]
    deleted_families: Vec<String>,
    #[prost(int32, tag = "6")]
    old_replication: i32,
    /// Whether the table asks for another group of servers.
    #[prost(bool, tag = "7")]
    group_changed: bool,
}

impl ModifyTable {
    /// `reopen_regions`: whether open regions are to take the change at once.
    pub(crate) fn new(table: TableName, change: Change, reopen_regions: bool) -> ModifyTable {
        let (plan, reopened) = Default::default();
        ModifyTable { table, change: Some(change), reopen_regions, plan, reopened }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ModifyTable> {
        let plan: Payload = payload(KIND, bytes)?;
        let descriptor = TableDescriptor::from_pb(&plan.schema)?;
        let reopen_regions = plan.reopen_regions;
        let (table, reopened) = (descriptor.name().clone(), Reopened::default());
        Ok(ModifyTable { table, change: None, reopen_regions, plan, reopened })
    }
}

impl Procedure for ModifyTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.ModifyTableProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let mut modified_table_schema = self.plan.schema.clone();
        modified_table_schema.table_name.get_or_insert_with(|| self.table.to_pb()); // not prepared
        parameters::of(&pb::ModifyTableStateData {
            user_info: parameters::user(owner),
            modified_table_schema,
            delete_column_family_in_modify: !self.plan.deleted_families.is_empty(),
            reopen_regions: Some(self.reopen_regions),
            ..Default::default()
        })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return self.prepare_meta(core);
        }
        let entry = core.table(&self.table)?;
        let old = &*entry.descriptor;
        let change = self.change.take().expect("a procedure is prepared once");
        let new = apply(old, change)?;
        if new.families().is_empty() {
            let message = format!("Table {} should have at least one column family.", self.table);
            return Err(RpcError::do_not_retry(message));
        }
        trackers::check_modified_table(old, &new, entry.state == TableState::Disabled)?;
        trackers::check_migrated(&entry, &new)?;
        core.check_change(old, &new).map_err(|error| errors::from_error(&error))?;
        // A table that has grown over the limit by splits can be altered all the same.
        if new.region_replication() > old.region_replication() {
            check_count(entry.regions.len(), &new)?;
        }
        if !self.reopen_regions {
            check_without_reopening(old, &new)?;
        }
        let group_changed = groups::group_attribute(old) != groups::group_attribute(&new);
        if group_changed {
            groups::check_new_table(core, &new)?;
        }
        let missing = |from: &TableDescriptor, name: &Bytes| from.family(name).is_none();
        let deleted = old.families().iter().filter(|family| missing(&new, family.name()));
        self.plan = Payload {
            schema: new.to_pb(),
            sequence: entry.descriptor_sequence + 1,
            reopen_regions: self.reopen_regions,
            deleted_families: deleted.map(|family| family.name_str().into_owned()).collect(),
            old_replication: old.region_replication(),
            group_changed,
        };
        Ok(())
    }

    /// The master before this one may be archiving a family still. Until it has ended nobody adds the family again.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        if self.plan.deleted_families.is_empty() { None } else { core.predecessor_until_ns() }
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }

    /// Regions are reopened where they were, and then go to the servers of another group.
    fn followers(&self, core: &MasterState) -> Vec<Box<dyn Procedure>> {
        if self.plan.group_changed { groups::moves_of_table(core, &self.table) } else { Vec::new() }
    }
}

const STEPS: &[Step<ModifyTable>] = &[
    step("write descriptor", ModifyTable::write_descriptor),
    step("reopen regions", ModifyTable::reopen),
    step("archive families", ModifyTable::archive_families),
];

impl HasSteps for ModifyTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl ModifyTable {
    /// Of `hbase:meta` only the number of copies changes.
    fn prepare_meta(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let refuse = |why: &str| Err(RpcError::do_not_retry(format!("Can't modify catalog tables: {why}")));
        let Some(Change::Table(new)) = self.change.take() else {
            return refuse("the families of hbase:meta stay as they are");
        };
        let old = core.meta_descriptor.read().clone();
        let replication = new.region_replication();
        let rest =
            |table: TableDescriptor| table.with(REPLICATION, replication.to_string()).with_family_defaults();
        if rest(TableDescriptor::clone(&old)) != rest(new.clone()) {
            return refuse("of hbase:meta only REGION_REPLICATION can be changed");
        }
        if !(1..=META_REPLICATION_MAX).contains(&replication) {
            return refuse(&format!(
                "REGION_REPLICATION of hbase:meta is between 1 and {META_REPLICATION_MAX}"
            ));
        }
        let known = descriptors::read(&core.env, &core.root, &self.table);
        let known = known.map_err(|error| errors::from_error(&error))?;
        self.plan = Payload {
            schema: new.to_pb(),
            sequence: known.map_or(0, |(_, sequence)| sequence) + 1,
            old_replication: old.region_replication(),
            ..Payload::default()
        };
        Ok(())
    }

    fn write_descriptor(&mut self, core: &MasterState) -> Result<()> {
        let descriptor = Arc::new(TableDescriptor::from_pb(&self.plan.schema)?);
        if self.plan.group_changed {
            groups::adopt(core, &descriptor)?;
        }
        if !self.table.is_meta() {
            let old = core.locked_descriptor(&self.table)?;
            erasure_coding::apply(core, Some(&old), &descriptor)?;
        }
        descriptors::write(&core.env, &core.root, &descriptor, self.plan.sequence)?;
        if self.table.is_meta() {
            *core.meta_descriptor.write() = descriptor;
            return Ok(());
        }
        core.update_table(&self.table, |entry| {
            entry.descriptor = descriptor;
            entry.descriptor_sequence = self.plan.sequence;
        });
        Ok(())
    }

    fn reopen(&mut self, core: &MasterState) -> Result<()> {
        if self.table.is_meta() {
            return meta_region::fit_replicas(core);
        }
        core.know_replicas(&self.table, i32::MAX);
        let entry = core.locked_table(&self.table)?;
        if self.plan.reopen_regions && entry.state == TableState::Enabled {
            self.reopened.reopen(core, &entry)?; // what will never open stays so
        }
        self.drop_copies(core, &entry)
    }

    /// Closes and forgets copies that the descriptor asks for no more. Later than their regions are reopened: one that cannot be closed
    /// now keeps nothing else waiting.
    fn drop_copies(&self, core: &MasterState, entry: &TableEntry) -> Result<()> {
        let replication = entry.descriptor.region_replication();
        let gone = replication..self.plan.old_replication;
        if gone.is_empty() {
            return Ok(());
        }
        let live = entry.live_regions();
        let surplus: Vec<_> =
            entry.replicas.keys().filter(|copy| copy.replica_id() >= replication).cloned().collect();
        regions::close_exactly(core, &surplus)?;
        core.meta_put(|timestamp| {
            live.iter().flat_map(|region| meta::delete_replicas(region, gone.clone(), timestamp)).collect()
        })?;
        core.know_replicas(&self.table, replication);
        Ok(())
    }

    fn archive_families(&mut self, core: &MasterState) -> Result<()> {
        if self.plan.deleted_families.is_empty() {
            return Ok(());
        }
        for region in core.locked_table(&self.table)?.regions.keys() {
            for family in &self.plan.deleted_families {
                archive::archive_family(core, &self.table, region.encoded_name(), family)?;
            }
        }
        for family in &self.plan.deleted_families {
            mob::archive::archive_family(core, &self.table, family)?;
        }
        Ok(())
    }
}

fn apply(old: &TableDescriptor, change: Change) -> std::result::Result<TableDescriptor, RpcError> {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match change {
        Change::Table(new) => Ok(new),
        Change::AddFamily(family) if old.family(family.name()).is_some() => {
            Err(RpcError::invalid_family_operation(format!(
                "Column family '{}' in table '{}' already exists so cannot be added",
                family.name_str(),
                old.name()
            )))
        }
        Change::ModifyFamily(family) if old.family(family.name()).is_none() => {
            Err(RpcError::invalid_family_operation(format!(
                "Family '{}' does not exist, so it cannot be modified",
                family.name_str()
            )))
        }
        Change::AddFamily(family) | Change::ModifyFamily(family) => Ok(old.clone().with_family(family)),
        Change::DeleteFamily(name) if old.family(&name).is_none() => Err(RpcError::invalid_family_operation(
            format!("Family '{}' does not exist, so it cannot be deleted", shown(&name)),
        )),
        Change::DeleteFamily(name) if old.families().len() == 1 => {
            Err(RpcError::invalid_family_operation(format!(
                "Family '{}' is the only column family in the table, so it cannot be deleted",
                shown(&name)
            )))
        }
        Change::DeleteFamily(name) => Ok(old.clone().without_family(&name)),
    }
}

/// What a change must leave alone if regions are not reopened (`ModifyTableProcedure.preflightChecks`).
fn check_without_reopening(
    old: &TableDescriptor,
    new: &TableDescriptor,
) -> std::result::Result<(), RpcError> {
    let names =
        |table: &TableDescriptor| table.families().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    let coprocessors = |table: &TableDescriptor| {
        let all = table.attributes().filter(|(key, _)| key.to_ascii_lowercase().starts_with(b"coprocessor$"));
        let mut all: Vec<_> = all.map(|(key, value)| (key.clone(), value.clone())).collect();
        all.sort();
        all
    };
    let refuse = |what: &str| {
        let message = format!("{what} when this modification won't reopen regions");
        Err(RpcError::do_not_retry(message))
    };
    if old.name() != new.name() {
        return refuse("Cannot change the table name");
    }
    if names(old) != names(new) {
        return refuse("Cannot add or remove column families");
    }
    if coprocessors(old) != coprocessors(new) {
        return refuse("Can not modify Coprocessor");
    }
    for key in ["REGION_REPLICATION", "REGION_MEMSTORE_REPLICATION", "hbase.rsgroup.name"] {
        if old.attribute(key.as_bytes()) != new.attribute(key.as_bytes()) {
            return refuse(&format!("Can not modify {key} of a table"));
        }
    }
    Ok(())
}
