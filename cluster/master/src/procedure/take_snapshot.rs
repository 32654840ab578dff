//! Takes a snapshot of a table.
//!
//! A region that is not open (unassigned by an administrator, FAILED_OPEN, of a disabled table) is taken from its files,
//! which hold all of it: it was flushed when it was closed. The exception is a region with edits to replay, recovered
//! from the log of a server that was killed; a snapshot without them would lack acknowledged writes and is refused.
//!
//! If a server dies meanwhile, the snapshot waits until its WALs are split, opens its regions and goes on.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use prost::Message;

use super::table_regions::infos;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::{MasterState, TableState};
use crate::{errors, regions, snapshot};

pub(super) const KIND: &str = "take_snapshot";
/// By which the cleaner knows that a snapshot is being taken.
pub(crate) const CLASS_NAME: &str = "org.apache.hadoop.hbase.master.procedure.SnapshotProcedure";

pub(crate) struct TakeSnapshot {
    table: TableName,
    plan: Payload,
}

/// The regions are those of the moment the request was checked; the lock keeps them.
#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    info: pb::SnapshotDescription,
    #[prost(message, required, tag = "2")]
    schema: pb::TableSchema,
    #[prost(message, repeated, tag = "3")]
    regions: Vec<pb::RegionInfo>,
    #[prost(bool, tag = "4")]
    flush: bool,
}

impl TakeSnapshot {
    /// Invalid if the snapshot names no table.
    pub(crate) fn new(info: pb::SnapshotDescription, owner: String) -> Result<TakeSnapshot> {
        let table = TableName::parse(info.table().as_bytes())?;
        let owner = info.owner.clone().filter(|owner| !owner.is_empty()).or(Some(owner));
        let info = pb::SnapshotDescription { table: Some(table.to_string()), owner, ..info };
        Ok(TakeSnapshot { table, plan: Payload { info, ..Default::default() } })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TakeSnapshot> {
        let plan: Payload = payload(KIND, bytes)?;
        Ok(TakeSnapshot { table: TableName::parse(plan.info.table().as_bytes())?, plan })
    }
}

impl Procedure for TakeSnapshot {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        CLASS_NAME
    }

    fn metric(&self) -> Option<&'static str> {
        Some("Snapshot")
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        parameters::of(&pb::SnapshotProcedureStateData { snapshot: self.plan.info.clone() })
    }

    fn locks(&self) -> Vec<Lock> {
        let mut locks = Lock::table(&self.table);
        locks.push(Lock::snapshot(&self.plan.info.name));
        locks
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let info = &mut self.plan.info;
        halcyon_schema::check_table_qualifier(info.name.as_bytes()).map_err(errors::invalid)?;
        halcyon_schema::check_file_name("The snapshot", &info.name).map_err(errors::invalid)?;
        if snapshot::read_info(core, &info.name).map_err(|error| errors::from_error(&error))?.is_some() {
            let message = format!("Snapshot '{}' already stored on the filesystem.", info.name);
            return Err(RpcError::snapshot_exists(message));
        }
        let Ok(entry) = core.table(&self.table) else {
            let message = format!("Table '{}' doesn't exist, can't take snapshot.", self.table);
            return Err(RpcError::snapshot_creation(message));
        };
        let enabled = match entry.state {
            TableState::Enabled => true,
            TableState::Disabled => false,
            _ => {
                let message = format!("Table is not entirely open or entirely closed: {}", self.table);
                return Err(RpcError::snapshot_creation(message));
            }
        };
        let asked = info.r#type();
        if !enabled {
            info.set_type(pb::snapshot_description::Type::Disabled);
        }
        info.creation_time = Some(core.now_ms());
        info.version = Some(snapshot::LAYOUT_VERSION);
        let mut descriptor = TableDescriptor::clone(&entry.descriptor);
        // As HBase's `loadTableDescriptorSnapshot`: the snapshot's own limit counts where the table has none.
        match (descriptor.max_file_size(), info.max_file_size()) {
            (None, given) if given > 0 => descriptor = descriptor.with("MAX_FILESIZE", given.to_string()),
            (Some(size), 0) => info.max_file_size = Some(size as i64),
            _ => {}
        }
        if info.ttl() == 0 {
            info.ttl = Some(core.settings.snapshot_ttl.as_secs() as i64);
        }
        self.plan.flush = enabled && asked != pb::snapshot_description::Type::Skipflush;
        self.plan.schema = descriptor.to_pb();
        self.plan.regions = entry.live_regions().iter().map(RegionInfo::to_pb).collect();
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.plan.encode_to_vec()
    }

    /// Until the snapshot is complete it is a directory that nobody sees.
    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }

    fn undo(&mut self, core: &MasterState) -> Result<()> {
        snapshot::delete_working(core, &self.plan.info.name)
    }
}

const STEPS: &[Step<TakeSnapshot>] =
    &[step("flush regions", TakeSnapshot::flush), step("write snapshot", TakeSnapshot::write)];

impl HasSteps for TakeSnapshot {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl TakeSnapshot {
    fn flush(&mut self, core: &MasterState) -> Result<()> {
        let regions = infos(&self.plan.regions)?;
        self.open_died(core, &regions)?;
        if self.plan.flush { regions::flush(core, &regions, &[]) } else { Ok(()) }
    }

    fn write(&mut self, core: &MasterState) -> Result<()> {
        let (regions, table) = (infos(&self.plan.regions)?, TableDescriptor::from_pb(&self.plan.schema)?);
        // Those of a server that has died since. Each opening brings what it replays into files.
        self.open_died(core, &regions)?;
        snapshot::check_unreplayed(core, &regions)?;
        snapshot::write(core, &self.plan.info, &table, &regions)
    }

    /// Opens regions whose server has died: what was in memory there is in no file before, and whoever is to open them waits for the lock
    /// of the table. The same for those that a server was ordered to open before. What will never open stays so.
    fn open_died(&self, core: &MasterState, regions: &[RegionInfo]) -> Result<()> {
        let entry = core.locked_table(&self.table)?;
        if entry.state != TableState::Enabled {
            return Ok(());
        }
        let mut wanted = regions::died(core, regions);
        let opening = regions.iter().filter(|region| regions::is_opening(core, region));
        let opening: Vec<_> = opening.filter(|region| !wanted.contains(region)).cloned().collect();
        wanted.extend(opening);
        if wanted.is_empty() { Ok(()) } else { regions::open_exactly(core, &entry.descriptor, &wanted, None) }
    }
}
