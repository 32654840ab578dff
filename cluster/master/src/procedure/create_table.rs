//! Creates a table.

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, STORE_FILE_TRACKER, TableDescriptor, TableName, check_file_name, layout};
use prost::Message;

use super::table_regions::{infos, messages};
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::placement::soon;
use crate::state::{MasterState, TableEntry, TableState};
use crate::{archive, descriptors, erasure_coding, errors, groups, meta, quotas, regions, trackers};

pub(super) const KIND: &str = "create_table";
/// Regions a table may be created with; each costs a directory and a row.
const REGIONS_MAX: usize = 100_000;

pub(crate) struct CreateTable {
    descriptor: TableDescriptor,
    split_keys: Vec<Bytes>,
    regions: Vec<RegionInfo>,
    /// The master before this one has begun it.
    is_taken_over: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

impl CreateTable {
    pub(crate) fn new(descriptor: TableDescriptor, split_keys: Vec<Bytes>) -> CreateTable {
        CreateTable { descriptor, split_keys, regions: Vec::new(), is_taken_over: false }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<CreateTable> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(CreateTable {
            descriptor: TableDescriptor::from_pb(&payload.schema)?,
            split_keys: Vec::new(),
            regions: infos(&payload.regions)?,
            is_taken_over: true,
        })
    }

    fn table(&self) -> &TableName {
        self.descriptor.name()
    }

    /// HBase writes the tracker of the cluster into every new table that names none.
    fn with_tracker(&self, core: &MasterState) -> TableDescriptor {
        let (key, tracker) = (STORE_FILE_TRACKER, &core.settings.store_file_tracker);
        let named = self.descriptor.attribute(key.as_bytes()).filter(|name| !name.is_empty());
        let descriptor = self.descriptor.clone();
        if named.is_some() { descriptor } else { descriptor.with(key, tracker) }
    }

    /// What can be said of the request before its turn comes.
    pub(crate) fn check(&self, core: &MasterState) -> std::result::Result<(), RpcError> {
        check_name(self.table())?;
        core.namespace(self.table().namespace())?;
        if self.table().is_meta() {
            return Err(RpcError::table_exists(self.table().to_string()));
        }
        if self.descriptor.families().is_empty() {
            let message = format!("Table {} should have at least one column family.", self.table());
            return Err(RpcError::do_not_retry(message));
        }
        trackers::check_new_table(&self.with_tracker(core))?;
        core.check_descriptor(&self.descriptor).map_err(|error| errors::from_error(&error))
    }
}

impl Procedure for CreateTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.CreateTableProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let (user_info, table_schema) = (parameters::user(owner), self.descriptor.to_pb());
        let region_info = messages(&self.regions);
        parameters::of(&pb::CreateTableStateData { user_info, table_schema, region_info })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        self.check(core)?;
        if core.tables.read().by_name.contains_key(self.table()) {
            return Err(RpcError::table_exists(self.table().to_string()));
        }
        check_unused(core, self.table())?;
        groups::check_new_table(core, &self.descriptor)?;
        let id = core.now_ms().max(1) as u64;
        self.regions = split(self.table(), self.split_keys.clone(), id).map_err(errors::invalid)?;
        check_count(self.regions.len(), &self.descriptor)?;
        quotas::check_new_table(core, self.table(), self.regions.len())?;
        self.descriptor = self.with_tracker(core);
        Ok(())
    }

    /// It reads `hbase:meta`, which may be on its way to another server.
    fn can_be_checked_again(&self) -> bool {
        true
    }

    fn makes_or_deletes_table(&self) -> bool {
        true
    }

    /// The master before this one may be at it still, and write over or take back what clients find. Until it has ended the table is
    /// locked.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        if self.is_taken_over { core.predecessor_until_ns() } else { None }
    }

    fn undo_held_until(&self, core: &MasterState) -> Option<u64> {
        self.held_until(core, 0)
    }

    fn payload(&self) -> Vec<u8> {
        let regions = messages(&self.regions);
        Payload { schema: self.descriptor.to_pb(), regions }.encode_to_vec()
    }

    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }

    fn undo(&mut self, core: &MasterState) -> Result<()> {
        regions::close_only(core, &self.regions, true)?;
        delete_from_meta(core, self.table(), &self.regions)?;
        groups::forget(core, self.table())?;
        archive::archive_created(core, self.table(), &self.regions)
    }
}

const STEPS: &[Step<CreateTable>] = &[
    step("write files", CreateTable::write_files),
    step("write meta", CreateTable::write_meta),
    step("open regions", CreateTable::open_regions),
];

impl HasSteps for CreateTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl CreateTable {
    fn write_files(&mut self, core: &MasterState) -> Result<()> {
        check_namespace(core, self.table())?;
        groups::adopt(core, &self.descriptor)?;
        // Of a creation that an administrator has ended a descriptor may be left, under a higher number.
        archive::remove_dir(&*core.env.fs, &layout::table_desc_dir(&core.root, self.table()))?;
        erasure_coding::apply(core, None, &self.descriptor)?;
        descriptors::write(&core.env, &core.root, &self.descriptor, FIRST_SEQUENCE)?;
        regions::create_files(core, &self.descriptor, &self.regions)
    }

    fn write_meta(&mut self, core: &MasterState) -> Result<()> {
        check_namespace(core, self.table())?;
        self.regions.iter().try_for_each(RegionInfo::check_name)?;
        write_meta(core, &self.descriptor, FIRST_SEQUENCE, &self.regions, TableState::Enabling)
    }

    fn open_regions(&mut self, core: &MasterState) -> Result<()> {
        regions::open(core, &self.descriptor, &self.regions, Some(TableState::Enabled))
    }
}

/// Number of a new table's descriptor file.
pub(super) const FIRST_SEQUENCE: u32 = 1;

/// A table's name is also that of a directory.
pub(super) fn check_name(table: &TableName) -> std::result::Result<(), RpcError> {
    check_file_name("The table", table.qualifier()).map_err(errors::invalid)
}

/// The namespace of a new table may have gone while a step of its creation failed.
pub(super) fn check_namespace(core: &MasterState, table: &TableName) -> Result<()> {
    core.check_namespaces().map_err(|error| Error::new(ErrorKind::Busy, error.message))?;
    core.namespace(table.namespace()).map(drop).map_err(|_| {
        Error::invalid(format!("The namespace of table {table} was deleted while the table was being made"))
    })
}

/// Regions and their copies.
pub(super) fn check_count(
    regions_count: usize,
    table: &TableDescriptor,
) -> std::result::Result<(), RpcError> {
    let copies = usize::try_from(table.region_replication().max(1)).unwrap_or(usize::MAX);
    if regions_count.saturating_mul(copies) <= REGIONS_MAX {
        return Ok(());
    }
    Err(RpcError::do_not_retry(format!("{regions_count} regions in {copies} copies are over {REGIONS_MAX}")))
}

/// TableExistsException if a table that is not known has left rows of `hbase:meta` or store files: a new one would mix with them, and
/// whatever takes the new one back would take them too.
pub(super) fn check_unused(core: &MasterState, table: &TableName) -> std::result::Result<(), RpcError> {
    let failed = |error: Error| errors::from_error(&error);
    let rows = soon(&*core.env.clock, || core.meta_rows_of(table)).map_err(failed)?;
    if let Some((region, _)) = rows.regions.first() {
        return Err(RpcError::table_exists(format!(
            "{table}: hbase:meta has regions of it, such as {region}, and no descriptor of it can be read. Put the descriptor back into \
             {}, or delete these rows",
            layout::table_desc_dir(&core.root, table).display()
        )));
    }
    if let Some(path) = archive::left_file(core, table).map_err(failed)? {
        return Err(RpcError::table_exists(format!(
            "{table}: a table of this name has left files, such as {}, and has no rows in hbase:meta. Move them away",
            path.display()
        )));
    }
    Ok(())
}

/// The regions between these keys. Invalid if a key is empty or there twice, or too long.
pub(super) fn split(table: &TableName, mut keys: Vec<Bytes>, id: u64) -> Result<Vec<RegionInfo>> {
    keys.sort();
    if keys.first().is_some_and(Bytes::is_empty) {
        return Err(Error::invalid("Empty split key must not be passed in the split keys."));
    }
    if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("All split keys must be unique, found duplicate: {}", pair[0].escape_ascii());
        return Err(Error::invalid(message));
    }
    if keys.len() >= REGIONS_MAX {
        return Err(Error::invalid(format!("{} regions are over {REGIONS_MAX}", keys.len() + 1)));
    }
    let starts = std::iter::once(Bytes::new()).chain(keys.iter().cloned());
    let ends = keys.iter().cloned().chain(std::iter::once(Bytes::new()));
    let regions: Vec<RegionInfo> =
        starts.zip(ends).map(|(start, end)| RegionInfo::new(table.clone(), start, end, id)).collect();
    regions.iter().try_for_each(RegionInfo::check_name)?;
    Ok(regions)
}

/// Makes a table known, with closed regions.
pub(super) fn write_meta(
    core: &MasterState,
    descriptor: &TableDescriptor,
    sequence: u32,
    regions: &[RegionInfo],
    state: TableState,
) -> Result<()> {
    core.meta_put(|timestamp| {
        let rows = regions.iter().flat_map(|region| meta::closed_region(region, timestamp));
        rows.chain([meta::table_state(descriptor.name(), state, timestamp)]).collect()
    })?;
    core.tables.write().put(TableEntry::closed(descriptor, sequence, regions, state));
    Ok(())
}

/// Takes a table and its regions out of meta and memory.
pub(super) fn delete_from_meta(core: &MasterState, table: &TableName, regions: &[RegionInfo]) -> Result<()> {
    // One whose name is too long for a row has none.
    let with_rows = regions.iter().filter(|region| region.check_name().is_ok());
    core.meta_put(|timestamp| {
        let rows = with_rows.map(|region| meta::delete_region(region, timestamp));
        rows.chain([meta::delete_table_state(table, timestamp)]).collect()
    })?;
    core.tables.write().remove(table);
    Ok(())
}
