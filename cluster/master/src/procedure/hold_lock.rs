//! A lock that a client holds (`LockService`): a procedure that keeps its locks while its client sends heartbeats.
//!
//! ```text
//! requested ─> waiting ─(locks free)─> held ─(heartbeat)─> held ─┬─ unlocked by the client ─> ended
//!                                                                └─ no heartbeat in time   ─> ended
//! ```
//!
//! The heartbeats are in memory. A restart of the master takes a recorded lock up again: it is held as soon as its locks are
//! free, and has its time for a first heartbeat. Checked against `LockProcedure` of 2.6.4.

use std::collections::{BTreeMap, HashMap};

use halcyon_cell::{Error, Result};
use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::MasterState;

pub(super) const KIND: &str = "hold_lock";
/// HBase's class of these procedures.
pub(crate) const CLASS: &str = "org.apache.hadoop.hbase.master.locking.LockProcedure";

/// What clients have said of their locks, by number of the procedure.
///
/// *Thread safety*: from any thread. The engine asks under its own lock, so nothing here asks the engine.
#[derive(Default)]
pub(crate) struct RemoteLocks(Mutex<HashMap<u64, RemoteLock>>);

#[derive(Clone, Copy)]
struct RemoteLock {
    /// `Clock::monotonic_ns` of the last heartbeat, or of the time when the locks were taken.
    heartbeat_ns: u64,
    held: bool,
    released: bool,
}

impl RemoteLocks {
    /// Notes a heartbeat; true if the lock is held, and stays so.
    pub(crate) fn heartbeat(&self, id: u64, now_ns: u64, keep_alive: bool) -> bool {
        let mut locks = self.0.lock();
        let lock =
            locks.entry(id).or_insert(RemoteLock { heartbeat_ns: now_ns, held: false, released: false });
        lock.heartbeat_ns = now_ns;
        lock.released |= !keep_alive;
        lock.held && !lock.released
    }

    /// Until when the lock is held without another heartbeat; `None`: it is over.
    fn held_until(&self, id: u64, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        let mut locks = self.0.lock();
        let lock =
            locks.entry(id).or_insert(RemoteLock { heartbeat_ns: now_ns, held: false, released: false });
        if !lock.held {
            (lock.held, lock.heartbeat_ns) = (true, now_ns);
        }
        let until_ns = lock.heartbeat_ns.saturating_add(timeout_ns);
        lock.released |= now_ns >= until_ns;
        (!lock.released).then_some(until_ns)
    }

    /// Those that are known, of which some may have ended.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.0.lock().keys().copied().collect()
    }

    /// Of one that has ended.
    pub(crate) fn forget(&self, id: u64) {
        self.0.lock().remove(&id);
    }
}

/// See the head of the file.
pub(crate) struct HoldLock {
    request: pb::LockProcedureData,
    locks: Vec<Lock>,
}

impl HoldLock {
    /// `Invalid` if the request names nothing, or what cannot be locked that way.
    pub(crate) fn new(request: pb::LockRequest) -> Result<HoldLock> {
        HoldLock::of(pb::LockProcedureData {
            lock_type: request.lock_type,
            namespace: request.namespace,
            table_name: request.table_name,
            region_info: request.region_info,
            description: request.description,
            is_master_lock: None,
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<HoldLock> {
        HoldLock::of(payload(KIND, bytes)?)
    }

    fn of(request: pb::LockProcedureData) -> Result<HoldLock> {
        let shared = request.lock_type == pb::LockType::Shared as i32;
        let locks = if !request.region_info.is_empty() {
            region_locks(&request.region_info)?
        } else if let Some(table) = &request.table_name {
            let table = TableName::from_pb(table)?;
            if shared { Lock::table_shared(&table) } else { Lock::table(&table) }
        } else if let Some(namespace) = &request.namespace {
            if namespace.is_empty() {
                return Err(Error::invalid("Empty namespace"));
            }
            if shared {
                return Err(Error::invalid("Shared lock on namespace not supported"));
            }
            Lock::namespace(namespace)
        } else {
            return Err(Error::invalid("one of table/namespace/region should be specified"));
        };
        Ok(HoldLock { request, locks })
    }
}

/// Regions are locked exclusively, whatever the request says, as by HBase.
fn region_locks(regions: &[pb::RegionInfo]) -> Result<Vec<Lock>> {
    let mut locks = BTreeMap::new();
    let mut table: Option<TableName> = None;
    for region in regions {
        let region = RegionInfo::from_pb(region)?;
        if table.get_or_insert_with(|| region.table().clone()) != region.table() {
            return Err(Error::invalid("All regions should be from same table"));
        }
        locks.insert(region.encoded_name().to_string(), Lock::region(&region));
    }
    let mut all = table.as_ref().map(Lock::table_shared).unwrap_or_default();
    all.extend(locks.into_values());
    Ok(all)
}

impl Procedure for HoldLock {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        CLASS
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        vec![parameters::any(&self.request)]
    }

    fn locks(&self) -> Vec<Lock> {
        self.locks.clone()
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.request.encode_to_vec()
    }

    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }

    fn held_until(&self, core: &MasterState, id: u64) -> Option<u64> {
        let timeout_ns = core.settings.remote_lock_timeout.as_nanos() as u64;
        core.remote_locks.held_until(id, core.env.clock.monotonic_ns(), timeout_ns)
    }
}

const STEPS: &[Step<HoldLock>] = &[step("hold", |_, _| Ok(()))];

impl HasSteps for HoldLock {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_from_heartbeat_to_heartbeat() {
        let locks = RemoteLocks::default();
        assert!(!locks.heartbeat(1, 5, true), "it waits");
        assert_eq!(locks.held_until(1, 10, 100), Some(110), "its time begins when it is held");
        assert!(locks.heartbeat(1, 60, true));
        assert_eq!(locks.held_until(1, 110, 100), Some(160));
        assert_eq!(locks.held_until(1, 160, 100), None, "too late");
        assert!(!locks.heartbeat(1, 161, true));
        assert_eq!(locks.held_until(1, 162, 100), None, "and for good");
        assert_eq!(locks.ids(), [1]);
        locks.forget(1);
        assert!(locks.ids().is_empty());
        assert_eq!(locks.held_until(2, 0, 100), Some(100));
        assert!(!locks.heartbeat(2, 1, false), "released");
        assert_eq!(locks.held_until(2, 2, 100), None);
    }

    #[test]
    fn a_payload_goes_there_and_back_and_garbage_is_refused() {
        let request = pb::LockRequest {
            lock_type: pb::LockType::Exclusive as i32,
            table_name: Some(TableName::parse(b"n:t").unwrap().to_pb()),
            description: Some("why".to_string()),
            ..Default::default()
        };
        let lock = HoldLock::new(request).unwrap();
        let back = HoldLock::decode(&lock.payload()).unwrap();
        assert_eq!((back.locks, back.request), (lock.locks, lock.request));
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for len in 0..200 {
            let next = |_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 56) as u8
            };
            let garbage: Vec<u8> = (0..len).map(next).collect();
            let _ = HoldLock::decode(&garbage);
        }
    }
}
