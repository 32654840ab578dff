//! The marker that a region was closed (HBase: `WALUtil.writeRegionEventMarker`).
//!
//! It goes behind the region's last edit. So a server knows when it has sent all edits of a region to replication peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result, SeqId};
use halcyon_proto::pb;
use halcyon_schema::{Durability, ServerName};
use halcyon_wal::{Completion, WalEntry};
use prost::Message;

use crate::Region;
use crate::open::META_FAMILY;

const REGION_CLOSE: &[u8] = b"HBASE::REGION_EVENT::REGION_CLOSE";
/// Longest wait for the WAL.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl Region {
    /// Writes the marker, durably as `SyncWal` says, of a region that is closed, and returns a sequence id that no edit of it is
    /// above. *Blocking*.
    pub fn mark_closed(&self, server: &ServerName) -> Result<u64> {
        let seq = SeqId::new(self.read_point().get()).max(self.open_seq_num);
        let info = &self.info;
        let row = if info.start_key().is_empty() { &[0][..] } else { &info.start_key()[..] };
        let event = pb::RegionEventDescriptor {
            event_type: pb::region_event_descriptor::EventType::RegionClose as i32,
            table_name: Bytes::copy_from_slice(info.table().full_name()),
            encoded_region_name: Bytes::copy_from_slice(info.encoded_name().as_bytes()),
            log_sequence_number: Some(seq.get()),
            stores: Vec::new(),
            server: Some(server.to_pb()),
            region_name: Some(info.region_name().clone()),
        };
        let now_ms = self.services.env.clock.now_ms();
        let value = event.encode_to_vec();
        let cell = Cell::build(row, META_FAMILY, REGION_CLOSE, now_ms, CellType::Put, &value, b"", 0);
        let cells = [cell.get()];
        let entry = WalEntry {
            region: info.encoded_name().as_bytes(),
            table: info.table().full_name(),
            seq,
            write_time_ms: now_ms,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &self.replicated,
            cells: &cells,
        };
        let (told, answer) = channel();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let completion: Completion = Box::new(move |result: &Result<()>| {
            done.store(true, Ordering::Release);
            let _ = told.send(result.clone()); // nobody waits any more
        });
        let wal = &self.services.wal;
        wal.append(&entry, Durability::SyncWal, completion)?;
        wal.drive_until(|| is_done.load(Ordering::Acquire));
        let late = |_| Error::new(ErrorKind::Busy, format!("the WAL takes longer than {WAIT_MAX:?}"));
        answer.recv_timeout(WAIT_MAX).map_err(late)?.map(|()| seq.get())
    }
}
