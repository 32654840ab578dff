//! What coprocessors ask of the regions: the calls of the JVM, served on the thread that waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::Mutex;
use halcyon_proto::coprocessor::{Cells, Frame, Method, Mutation as Part, mutation::Status};
use halcyon_proto::pb;
use halcyon_region::{
    CellsWritten, NextState, Nonce, ReadMode, RegionScanner, ReleasedView, Scan, ScanLimits,
};
use halcyon_rpc::RpcError;
use prost::Message;

use super::RegionCoprocessors;
use super::frames::{self, Broken};
use super::operation::Operation;
use super::write::{self, Asked, Written};
use crate::calls::nonces::Once;
use crate::convert;
use crate::errors::{self, invalid};
use crate::regions::region_table::OnlineRegion;
use crate::service::CallError;

/// Scanners of all coprocessors at most.
const SCANS_MAX: usize = 10_000;
/// A scanner that was not asked for so long is closed.
const SCAN_LEASE_NS: u64 = 600_000_000_000;
/// Bytes of cells in one answer at most, whatever is asked for.
const PACKET_BYTES_MAX: u64 = 1 << 20;

/// Scanners that coprocessors have opened. One that rests holds no memory of flushed memstores (`calls/scanners.rs`). *Thread safety*: one
/// short lock; who uses a scanner has taken it out.
#[derive(Default)]
pub(crate) struct OpenScans {
    next_id: AtomicU64,
    open: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    scans: HashMap<u64, OpenScan>,
    /// The last JVM that has ended: its scanners are of no use.
    ended_generation: u64,
}

struct OpenScan {
    scanner: RegionScanner,
    online: Arc<OnlineRegion>,
    /// Of the JVM that has opened it.
    generation: u64,
    used_ns: u64,
}

impl OpenScan {
    fn let_go_flushed(&mut self) -> Option<ReleasedView> {
        self.scanner.holds_flushed().then(|| self.scanner.let_go())
    }
}

impl OpenScans {
    /// Keeps a scanner that was opened just now.
    fn keep_new(&self, id: u64, scan: OpenScan) -> Result<(), RpcError> {
        if self.open.lock().scans.len() >= SCANS_MAX {
            return Err(RpcError::region_too_busy(format!("coprocessors have {SCANS_MAX} scanners open")));
        }
        self.keep(id, scan)
    }

    /// Keeps a scanner until it is taken. One that was taken may come back whoever has come meanwhile, or it would end in the middle:
    /// there may be more than [`SCANS_MAX`], by as many as are in use at a time.
    ///
    /// What was flushed while the scanner was used is let go under the lock, or a flush that ends meanwhile would be missed.
    fn keep(&self, id: u64, mut scan: OpenScan) -> Result<(), RpcError> {
        let mut open = self.open.lock();
        if scan.generation <= open.ended_generation {
            return Err(RpcError::io("the JVM of coprocessors has ended during the call"));
        }
        let let_go = scan.let_go_flushed();
        let before = open.scans.insert(id, scan);
        assert!(before.is_none(), "each scanner has an id of its own, and who puts it back has taken it out");
        drop(open);
        drop(let_go);
        Ok(())
    }

    fn take(&self, id: u64) -> Result<OpenScan, RpcError> {
        let taken = self.open.lock().scans.remove(&id);
        taken.ok_or_else(|| RpcError::unknown_scanner(format!("a coprocessor has no scanner {id}")))
    }

    /// Lets scanners that no call is at let go of memory of a region that was flushed or compacted in memory.
    pub(super) fn region_flushed(&self, online: &Arc<OnlineRegion>) {
        let mut open = self.open.lock();
        let of_region = open.scans.values_mut().filter(|scan| Arc::ptr_eq(&scan.online, online));
        let let_go: Vec<ReleasedView> = of_region.filter_map(OpenScan::let_go_flushed).collect();
        drop(open);
        drop(let_go);
    }

    /// Closes those that nobody uses.
    pub(super) fn expire(&self, now_ns: u64) {
        self.close_if(|scan| now_ns.saturating_sub(scan.used_ns) > SCAN_LEASE_NS);
    }

    /// Closes those of a region.
    pub(super) fn close_region(&self, online: &Arc<OnlineRegion>) {
        self.close_if(|scan| Arc::ptr_eq(&scan.online, online));
    }

    /// Closes those of a JVM that has ended, and of those before it.
    pub(super) fn close_generation(&self, generation: u64) {
        let mut open = self.open.lock();
        open.ended_generation = generation.max(open.ended_generation);
        drop(open);
        self.close_if(|scan| scan.generation <= generation);
    }

    fn close_if(&self, goes: impl Fn(&OpenScan) -> bool) {
        let mut open = self.open.lock();
        let ids: Vec<u64> = open.scans.iter().filter(|(_, scan)| goes(scan)).map(|(id, _)| *id).collect();
        let closed: Vec<OpenScan> = ids.iter().filter_map(|id| open.scans.remove(id)).collect();
        drop(open);
        drop(closed);
    }
}

/// Serves one call of the JVM. *Blocking*.
pub(super) fn serve(operation: &mut Operation, frame: Frame) -> Result<Frame, RpcError> {
    let online = operation.server.coprocessors.region(frame.region())?;
    let coprocessors =
        online.coprocessors.clone().ok_or_else(|| invalid("the region has no coprocessors"))?;
    let method = frame.method.and_then(|method| Method::try_from(method).ok());
    match method {
        Some(Method::ReadRow) => read_row(operation, &online, &frame),
        Some(Method::OpenScan) => open_scan(operation, &online, &frame),
        Some(Method::NextRows) => next_rows(operation, &frame),
        Some(Method::CloseScan) => {
            let closed = operation.jvm.scans.take(frame.scanner());
            closed.map(|_| frames::answer())
        }
        Some(Method::Mutate) => mutate(operation, &online, frame),
        Some(Method::CheckAndMutate) => check_and_mutate(operation, &online, frame),
        Some(Method::LockRow) => lock_row(operation, &coprocessors, &frame),
        Some(Method::UnlockRow) => {
            operation.unlock_row(&coprocessors, frame.row.as_ref().unwrap_or(&Bytes::new()), frame.flag());
            Ok(frames::answer())
        }
        Some(Method::Flush) => {
            operation.server.background.flusher.request(&online);
            Ok(frames::answer())
        }
        Some(Method::Counters) => Ok(counters(&online)),
        Some(Method::NextCells) => {
            Err(invalid("the scanner of a store gives cells only to the thread of its flush or compaction"))
        }
        _ => Err(invalid(format!("the JVM of coprocessors asks for method {:?}", frame.method))),
    }
}

fn decode<M: Message + Default>(what: &str, bytes: Option<&Bytes>) -> Result<M, RpcError> {
    M::decode(bytes.cloned().unwrap_or_default()).map_err(|error| errors::undecodable(what, &error))
}

fn read_row(operation: &mut Operation, online: &OnlineRegion, frame: &Frame) -> Result<Frame, RpcError> {
    let get: pb::Get = decode("Get", frame.get.as_ref())?;
    let options = operation.checked(frames::options(frame))?;
    let scan = convert::get(&get).map_err(CallError::into_rpc)?;
    let cells = online.region.get(Scan { options, ..scan }, ReadMode::AnyDisk);
    let cells = cells.map_err(|error| errors::to_rpc(&error))?;
    Ok(Frame { cells: vec![frames::cells_of(&cells)], ..frames::answer() })
}

fn open_scan(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    frame: &Frame,
) -> Result<Frame, RpcError> {
    let scan: pb::Scan = decode("Scan", frame.scan.as_ref())?;
    let options = operation.checked(frames::options(frame))?;
    let scan = convert::scan(&scan).map_err(CallError::into_rpc)?;
    let scanner = online.region.scanner(Scan { options, ..scan }, ReadMode::AnyDisk);
    let scanner = scanner.map_err(|error| errors::to_rpc(&error))?;
    let scans = &operation.jvm.scans;
    let id = scans.next_id.fetch_add(1, Ordering::Relaxed) + 1;
    let read_point = scanner.read_point().get();
    let used_ns = operation.server.env.clock.monotonic_ns();
    let generation = operation.child.generation;
    scans.keep_new(id, OpenScan { scanner, online: online.clone(), generation, used_ns })?;
    Ok(Frame { scanner: Some(id), read_point: Some(read_point), ..frames::answer() })
}

/// Some rows. At the end the scanner is closed, and `more` is absent.
fn next_rows(operation: &Operation, frame: &Frame) -> Result<Frame, RpcError> {
    let scans = &operation.jvm.scans;
    let mut scan = scans.take(frame.scanner())?;
    let regions = &operation.server.regions;
    if !regions.serves(&scan.online) && !regions.is_opening(scan.online.region.info().encoded_name()) {
        return Err(operation.server.regions.not_online(scan.online.region.info().region_name()));
    }
    let mut limits = ScanLimits::NONE;
    let bytes_max = frame.bytes_max().clamp(1, PACKET_BYTES_MAX);
    let (mut results, mut bytes, mut more): (Vec<Cells>, u64, bool) = (Vec::new(), 0, true);
    while more && (results.len() as u64) < frame.count().max(1) && bytes < bytes_max {
        let mut cells: Vec<Cell> = Vec::new();
        let state = scan.scanner.next(&mut limits, &mut cells).map_err(|error| errors::to_rpc(&error))?;
        more = state != NextState::Exhausted;
        if cells.is_empty() {
            continue;
        }
        bytes += convert::cells_size_bytes(&cells);
        let partial = (state == NextState::BatchReached).then_some(true);
        results.push(Cells { partial, ..frames::cells_of(&cells) });
    }
    scan.online.region.note_scanned(results.len() as u64, 0, scan.scanner.last_row());
    if more {
        scan.used_ns = operation.server.env.clock.monotonic_ns();
        scans.keep(frame.scanner(), scan)?;
    }
    Ok(Frame { cells: results, more: more.then_some(true), ..frames::answer() })
}

fn mutations(operation: &mut Operation, frame: &Frame) -> Result<Vec<Asked>, RpcError> {
    frame.mutation.iter().map(|part| write::asked_of(operation, part)).collect()
}

fn nonce(frame: &Frame) -> Once {
    Once::unguarded(Nonce { group: frame.nonce_group(), nonce: frame.nonce() })
}

fn mutate(operation: &mut Operation, online: &Arc<OnlineRegion>, frame: Frame) -> Result<Frame, RpcError> {
    let batch = mutations(operation, &frame)?;
    let mut told = CellsWritten::new();
    let written = write::mutate(operation, online, batch, frame.flag(), &mut nonce(&frame), Some(&mut told))?;
    let parts = written.into_iter().enumerate().map(|(at, written)| part_of(written, told.get(at)));
    Ok(Frame { mutation: parts.collect(), ..frames::answer() })
}

/// What became of one mutation, and its cells as they were written.
pub(super) fn part_of(written: Written, told: Option<&Vec<Cell>>) -> Part {
    match written {
        Ok(cells) => Part {
            status: Some(Status::Done as i32),
            result: cells.as_deref().map(frames::cells_of),
            cell: told.into_iter().flatten().map(|cell| cell.bytes().clone()).collect(),
            ..Part::default()
        },
        Err(error) => Part {
            status: Some(Status::Failed as i32),
            failure: Some(frames::failure_of(&error)),
            ..Part::default()
        },
    }
}

fn check_and_mutate(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    frame: Frame,
) -> Result<Frame, RpcError> {
    let condition: pb::Condition = decode("Condition", frame.condition.as_ref())?;
    let batch = mutations(operation, &frame)?;
    let (mut nonce, mut told) = (nonce(&frame), CellsWritten::new());
    let done = write::check_and_mutate(operation, online, &condition, batch, &mut nonce, Some(&mut told));
    let (processed, cells) = done?;
    let cells = cells.iter().map(frames::cells_of).collect();
    let mutation = told.iter().map(|told| part_of(Ok(None), Some(told))).collect();
    Ok(Frame { flag: Some(processed), cells, mutation, ..frames::answer() })
}

fn lock_row(
    operation: &mut Operation,
    coprocessors: &Arc<RegionCoprocessors>,
    frame: &Frame,
) -> Result<Frame, RpcError> {
    let row = frame.row.clone().unwrap_or_default();
    operation.lock_row(coprocessors, &row, frame.flag())?;
    Ok(frames::answer())
}

fn counters(online: &OnlineRegion) -> Frame {
    let (stats, size) = (online.region.stats(), online.region.memstore_size());
    let text = format!(
        "{} {} {} {} {} {}",
        stats.read_requests,
        stats.filtered_read_requests,
        stats.write_requests,
        size.data_bytes,
        size.heap_bytes,
        online.region.smallest_read_point().get()
    );
    Frame { text: Some(text), ..frames::answer() }
}

/// For errors of what came.
pub(super) fn garbage(what: impl Into<String>) -> Broken {
    Broken::Garbage(what.into())
}
