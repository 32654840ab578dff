//! What this server does for procedures that HBase's master coordinates through znodes.
//!
//! | procedure | instance | data | work |
//! |---|---|---|---|
//! | `online-snapshot` | name of the snapshot | `SnapshotDescription` | flush, manifest of each region |
//! | `flush-table-proc` | table | nothing, or `NameStringPair` with families | flush each region |
//! | `rolllog-proc` | `rolllog` | root directory of the backup | new WALs, a note of the last one before |
//!
//! Regions are those that are open here when the work begins. If one has moved meanwhile, HBase's master finds it missing
//! in the snapshot. A flush needs no more of a region that was closed, because that has flushed it.
//!
//! Checked against `RegionServerSnapshotManager`, `FlushSnapshotSubprocedure`, `RegionServerFlushTableProcedureManager`,
//! `FlushTableSubprocedure` and `LogRollBackupSubprocedure` of HBase 2.6.4.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{BarrierKind, BarrierProcedure, Cancelled, ProcedureMember, Subprocedure};
use halcyon_env::{Mutex, spawn_thread};
use halcyon_proto::pb;
use halcyon_proto::pb::snapshot_description::Type;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::snapshots;
use crate::{RegionServer, backup};

/// Regions that are flushed at the same time for one procedure (HBase: `hbase.snapshot.region.concurrentTasks`, 3).
const THREADS_COUNT: usize = 3;
/// HBase: `LogRollRegionServerProcedureManager.BACKUP_TIMEOUT_MILLIS_DEFAULT`.
const ROLL_TIME_MAX: Duration = Duration::from_secs(60);

/// A server that takes part in such procedures. *Thread safety*: all methods from any thread.
pub struct BarrierWork {
    server: Arc<RegionServer>,
}

impl BarrierWork {
    pub fn new(server: Arc<RegionServer>) -> BarrierWork {
        BarrierWork { server }
    }

    fn snapshot(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        let snapshot: pb::SnapshotDescription = decode(procedure)?;
        if snapshot.name != procedure.instance {
            let (name, instance) = (&snapshot.name, &procedure.instance);
            return Err(Error::invalid(format!(
                "the snapshot {instance:?} has the name {name:?} in its description"
            )));
        }
        let kind = snapshot.r#type.unwrap_or(Type::Flush as i32);
        if !matches!(Type::try_from(kind), Ok(Type::Flush | Type::Skipflush)) {
            return Err(Error::invalid(format!("a snapshot of type {kind} is not for region servers")));
        }
        snapshots::check_name(&snapshot.name)?;
        let table = TableName::parse(snapshot.table().as_bytes())?;
        let server = Arc::clone(&self.server);
        let work = move |cancelled: &Cancelled| {
            each_region(&server, &table, cancelled, move |server, region| {
                snapshots::snapshot_region(server, region, &snapshot)
            })
        };
        Ok(Subprocedure { time_max: self.server.settings.snapshot_time_max, work: Box::new(work) })
    }

    fn flush_table(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        let table = TableName::parse(procedure.instance.as_bytes())?;
        let families = match procedure.data.is_empty() {
            true => Vec::new(),
            false => families(&decode::<pb::NameStringPair>(procedure)?.value),
        };
        let server = Arc::clone(&self.server);
        let work = move |cancelled: &Cancelled| {
            each_region(&server, &table, cancelled, move |server, region| {
                match server.flush_region(region.encoded_name(), &families) {
                    Err(error) if error.kind() == ErrorKind::Moved => Ok(()),
                    flushed => flushed.map(drop),
                }
            })
        };
        Ok(Subprocedure { time_max: self.server.settings.flush_table_time_max, work: Box::new(work) })
    }

    fn roll_logs(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        if !self.server.settings.backup_enabled {
            return Err(Error::invalid(
                "a Halcyon server rolls its WALs for backups with hbase.backup.enable only",
            ));
        }
        let backup_root = std::str::from_utf8(&procedure.data)
            .map_err(|error| Error::invalid(format!("the root directory of the backup: {error}")))?
            .to_string();
        let server = Arc::clone(&self.server);
        let work = move |_: &Cancelled| backup::roll_logs(&server, &backup_root);
        Ok(Subprocedure { time_max: ROLL_TIME_MAX, work: Box::new(work) })
    }
}

impl ProcedureMember for BarrierWork {
    fn prepare(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        match procedure.kind {
            BarrierKind::Snapshot => self.snapshot(procedure),
            BarrierKind::FlushTable => self.flush_table(procedure),
            BarrierKind::RollLogs => self.roll_logs(procedure),
        }
    }
}

fn decode<M: Message + Default>(procedure: &BarrierProcedure) -> Result<M> {
    M::decode(&procedure.data[..]).map_err(|error| {
        let (signature, instance) = (procedure.kind.signature(), &procedure.instance);
        Error::invalid(format!("the data of {signature} {instance:?} cannot be decoded: {error}"))
    })
}

/// The names between the commas.
fn families(text: &str) -> Vec<Bytes> {
    text.split(',')
        .filter(|name| !name.is_empty())
        .map(|name| Bytes::copy_from_slice(name.as_bytes()))
        .collect()
}

/// Does something with each region of a table that is open here, with some threads. The first error ends it.
fn each_region(
    server: &Arc<RegionServer>,
    table: &TableName,
    cancelled: &Cancelled,
    work: impl Fn(&Arc<RegionServer>, &RegionInfo) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let online = server.regions.online();
    let regions = online
        .iter()
        .map(|online| online.region.info())
        .filter(|info| info.table() == table && !info.is_secondary());
    let left: Vec<RegionInfo> = regions.cloned().collect();
    drop(online);
    let threads_count = left.len().min(THREADS_COUNT);
    let (left, work) = (Arc::new(Mutex::new(left)), Arc::new(work));
    let mut threads = Vec::new();
    for at in 0..threads_count {
        let (server, left, work) = (Arc::clone(server), Arc::clone(&left), Arc::clone(&work));
        let cancelled = cancelled.clone();
        threads.push(spawn_thread(&format!("barrier-{at}"), move || {
            loop {
                let Some(region) = left.lock().pop() else { return Ok(()) };
                let done = match cancelled.is_set() {
                    true => Err(Error::new(ErrorKind::Stopping, "the procedure was cancelled")),
                    false => work(&server, &region),
                };
                if let Err(error) = done {
                    left.lock().clear();
                    return Err(error.context(&region));
                }
            }
        })?);
    }
    let ended: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_separated_by_commas() {
        assert_eq!(families("f"), ["f"]);
        assert_eq!(families("f,g"), ["f", "g"]);
        assert!(families("").is_empty() && families(",").is_empty());
    }
}
