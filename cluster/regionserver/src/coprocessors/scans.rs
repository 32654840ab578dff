//! Scans whose scanner is an object of the JVM, because a class overrides `postScannerOpen` or a hook behind it, or because the
//! filter is of a class that only the JVM has.
//!
//! The JVM does with them what `RSRpcServices.scan` does; results come as whole rows or batches. Leases and numbers of calls are
//! as those of other scanners (`calls/scanners.rs`).

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::{Mutex, spawn_thread};
use halcyon_proto::coprocessor::{Frame, Method};
use halcyon_proto::pb;
use halcyon_rpc::{Codec, Reply, RpcError};
use prost::Message;

use super::frames;
use super::hooks::Hooks;
use super::operation::Operation;
use crate::RegionServer;
use crate::convert;
use crate::regions::region_table::OnlineRegion;

/// Scanners of clients in the JVM at most.
const SCANS_MAX: usize = 10_000;

/// See the head of the file. *Thread safety*: one short lock; a call takes its scan out.
#[derive(Default)]
pub(crate) struct HostedScans {
    open: Mutex<HashMap<u64, Entry>>,
    count: AtomicUsize,
    /// Those that a call has left without closing them.
    left: Mutex<Vec<HostedScan>>,
}

enum Entry {
    Idle(HostedScan),
    Busy,
}

/// A scan of a client.
pub(crate) struct HostedScan {
    pub online: Arc<OnlineRegion>,
    generation: u64,
    scanner: u64,
    next_call_seq: u64,
    used_ns: u64,
    result_bytes_max: u64,
    needs_cursor: bool,
}

/// A scan in the hand of a call, which puts it back or closes it. A call that ends otherwise (refused, failed, its client gone) drops it;
/// then the thread that looks for leases that ran out closes it in the JVM, where nobody else would.
pub(crate) struct ClaimedScan {
    scans: Arc<HostedScans>,
    id: u64,
    /// `None` once it is put back or closed.
    scan: Option<HostedScan>,
}

impl Deref for ClaimedScan {
    type Target = HostedScan;

    fn deref(&self) -> &HostedScan {
        self.scan.as_ref().expect("it is taken out by what ends the claim only")
    }
}

impl DerefMut for ClaimedScan {
    fn deref_mut(&mut self) -> &mut HostedScan {
        self.scan.as_mut().expect("it is taken out by what ends the claim only")
    }
}

impl ClaimedScan {
    /// Keeps the scan for the next call. RegionTooBusyException if there are too many: then it is closed.
    fn put_back(mut self) -> Result<(), RpcError> {
        let mut open = self.scans.open.lock();
        if open.len() >= SCANS_MAX && !open.contains_key(&self.id) {
            return Err(RpcError::region_too_busy(format!(
                "{SCANS_MAX} scanners are open in the JVM of coprocessors"
            )));
        }
        if let Some(scan) = self.scan.take() {
            open.insert(self.id, Entry::Idle(scan));
        }
        self.scans.count.store(open.len(), Ordering::Release);
        Ok(())
    }

    /// Closes the scanner in the JVM. *Blocking*.
    fn close(mut self, operation: &mut Operation) {
        if close(operation, &self) {
            self.scans.remove(self.id);
            self.scan = None;
        }
    }
}

impl Drop for ClaimedScan {
    fn drop(&mut self) {
        if let Some(scan) = self.scan.take() {
            self.scans.remove(self.id);
            self.scans.left.lock().push(scan);
        }
    }
}

/// What one call may take.
pub(crate) struct HostedLimits {
    pub rows: u32,
    pub limit_of_rows: Option<u32>,
    pub close: bool,
    pub partials: bool,
    /// Milliseconds until a heartbeat is due; 0: never.
    pub time_ms: u64,
    pub codec: Option<Codec>,
}

impl HostedScans {
    /// Whether a client's scanner is one of these. Costs one load where there are none.
    #[inline]
    pub(crate) fn has(&self, id: u64) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.open.lock().contains_key(&id)
    }

    fn remove(&self, id: u64) {
        let mut open = self.open.lock();
        let removed = open.remove(&id);
        self.count.store(open.len(), Ordering::Release);
        drop(open);
        drop(removed);
    }

    /// The scan, for one call. `None`: the lease was renewed.
    pub(crate) fn claim(
        self: &Arc<Self>,
        id: u64,
        call_seq: Option<u64>,
        renew_at_ns: Option<u64>,
    ) -> Result<Option<ClaimedScan>, RpcError> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&id);
        let entry = entry.ok_or_else(|| RpcError::unknown_scanner(format!("Unknown scanner '{id}'")))?;
        let Entry::Idle(scan) = entry else {
            return Err(RpcError::lease(format!("lease '{id}' does not exist")));
        };
        if let Some(call_seq) = call_seq {
            if call_seq != scan.next_call_seq {
                let expected = scan.next_call_seq;
                return Err(RpcError::out_of_order_scanner_next(format!(
                    "Expected nextCallSeq: {expected} But the nextCallSeq got from client: {call_seq}"
                )));
            }
            scan.next_call_seq += 1;
        }
        if let Some(now_ns) = renew_at_ns {
            scan.used_ns = now_ns;
            return Ok(None);
        }
        match std::mem::replace(entry, Entry::Busy) {
            Entry::Idle(scan) => Ok(Some(ClaimedScan { scans: self.clone(), id, scan: Some(scan) })),
            Entry::Busy => unreachable!("it was idle under the same lock"),
        }
    }

    /// Those whose lease ran out, and those that their call has left: to be closed.
    pub(super) fn expired(&self, now_ns: u64, lease_ns: u64) -> Vec<HostedScan> {
        let mut expired = self.take_if(|scan| now_ns.saturating_sub(scan.used_ns) > lease_ns);
        expired.append(&mut self.left.lock());
        expired
    }

    /// Forgets those of a region that is closing.
    pub(crate) fn region_closing(&self, online: &Arc<OnlineRegion>) {
        if self.count.load(Ordering::Acquire) > 0 {
            drop(self.take_if(|scan| Arc::ptr_eq(&scan.online, online)));
        }
        self.left.lock().retain(|scan| !Arc::ptr_eq(&scan.online, online));
    }

    fn take_if(&self, wanted: impl Fn(&HostedScan) -> bool) -> Vec<HostedScan> {
        let mut open = self.open.lock();
        let is_wanted = |entry: &Entry| matches!(entry, Entry::Idle(scan) if wanted(scan));
        let ids: Vec<u64> = open.iter().filter(|(_, entry)| is_wanted(entry)).map(|(id, _)| *id).collect();
        let taken = ids.iter().filter_map(|id| open.remove(id)).filter_map(|entry| match entry {
            Entry::Idle(scan) => Some(scan),
            Entry::Busy => None,
        });
        let taken = taken.collect();
        self.count.store(open.len(), Ordering::Release);
        taken
    }
}

/// What is to be done with a scan that a client opens.
pub(crate) enum Opened {
    /// The server's own scanner does it, for this message.
    Own(Box<pb::Scan>),
    /// Its scanner is in the JVM; the first call may go on.
    Hosted(ClaimedScan),
}

/// Runs the hooks of a scan that is opened. *Blocking*.
pub(crate) fn open(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    scan: &pb::Scan,
    call_seq: Option<u64>,
) -> Result<Opened, RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    let hooks = operation.hooks(&coprocessors);
    let sent = Some(Bytes::from(scan.encode_to_vec()));
    let is_foreign = scan.filter.is_some() && convert::scan(scan).is_err();
    if !hooks.any(Hooks::SCANNER.or(Hooks::STORE_SCANNER)) && !is_foreign {
        if !hooks.any(Hooks::PRE_SCANNER_OPEN) {
            return Ok(Opened::Own(Box::new(scan.clone())));
        }
        let frame = Frame { scan: sent.clone(), ..frames::call(Method::PreScannerOpen, coprocessors.number) };
        let answer = operation.call(frame)?;
        let changed = pb::Scan::decode(answer.scan.unwrap_or_default());
        let changed = changed.map_err(|error| crate::errors::undecodable("Scan", &error))?;
        let is_foreign = changed.filter.is_some() && convert::scan(&changed).is_err();
        if !is_foreign {
            return Ok(Opened::Own(Box::new(changed)));
        }
    }
    let server = operation.server.clone();
    let (id, next_call_seq) = server.scanners.begin(call_seq)?;
    let frame = Frame { scan: sent, ..frames::call(Method::ScannerOpen, coprocessors.number) };
    let answer = operation.call(frame)?;
    // Results have to fit into a frame.
    let frame_max = server.settings.coprocessors.frame_bytes_max as u64 / 2;
    let server_max = server.settings.result_bytes_max.min(frame_max);
    let asked = scan.max_result_size.filter(|&size| size > 0 && size <= i64::MAX as u64);
    let needs_cursor = scan.need_cursor_result();
    let scan = HostedScan {
        online: online.clone(),
        generation: operation.child.generation,
        scanner: answer.scanner(),
        next_call_seq,
        used_ns: server.env.clock.monotonic_ns(),
        result_bytes_max: asked.map_or(server_max, |size| size.min(server_max)),
        needs_cursor,
    };
    Ok(Opened::Hosted(ClaimedScan { scans: server.coprocessors.scans.clone(), id, scan: Some(scan) }))
}

/// Answers one call of a scan. *Blocking*. `opened`: the call has opened it.
pub(crate) fn next(
    operation: &mut Operation,
    mut scan: ClaimedScan,
    limits: &HostedLimits,
    opened: bool,
) -> Result<Reply, RpcError> {
    let server = operation.server.clone();
    let done = run(operation, &scan, limits);
    let (response, cells, is_over) = match done {
        Ok(done) => done,
        Err(error) => {
            scan.close(operation);
            return Err(if opened { error } else { crate::service::scan_reset(error) });
        }
    };
    let id = scan.id;
    let mut response = pb::ScanResponse { scanner_id: Some(id), ..response };
    if opened {
        response.ttl = Some(u32::try_from(server.scanners.lease().as_millis()).unwrap_or(u32::MAX));
    }
    scan.used_ns = server.env.clock.monotonic_ns();
    scan.online.region.note_scanned(u64::from(!cells.is_empty()), 0, &[]);
    if is_over || limits.close {
        let next_call_seq = scan.next_call_seq;
        scan.close(operation);
        server.scanners.ended(id, next_call_seq);
    } else {
        scan.put_back()?;
    }
    let block = limits.codec.and_then(|codec| convert::cell_block(codec, &cells));
    Ok(Reply { cells: block, ..Reply::message(&response) })
}

type Answer = (pb::ScanResponse, Vec<Cell>, bool);

fn run(operation: &mut Operation, scan: &HostedScan, limits: &HostedLimits) -> Result<Answer, RpcError> {
    let mut response = pb::ScanResponse {
        more_results: Some(true),
        more_results_in_region: Some(true),
        stale: Some(scan.online.region.is_secondary()),
        ..Default::default()
    };
    if limits.rows == 0 {
        return Ok((response, Vec::new(), false));
    }
    if scan.generation != operation.child.generation {
        return Err(RpcError::unknown_scanner(
            "the JVM of coprocessors has ended since the scanner was opened",
        ));
    }
    let coprocessors = scan.online.coprocessors.as_ref().expect("a region with coprocessors");
    let frame = Frame {
        scanner: Some(scan.scanner),
        count: Some(u64::from(limits.rows)),
        rows_max: limits.limit_of_rows.map(u64::from),
        partials: Some(limits.partials),
        bytes_max: Some(scan.result_bytes_max),
        time_ms: Some(limits.time_ms),
        ..frames::call(Method::ScannerNext, coprocessors.number)
    };
    let answer = operation.call(frame)?;
    let more = answer.more();
    let mut all = Vec::new();
    for result in &answer.cells {
        let cells = operation.checked(frames::parse(&result.cell))?;
        let partial = result.partial();
        if limits.codec.is_some() {
            response.cells_per_result.push(cells.len() as u32);
            response.partial_flag_per_result.push(partial);
            all.extend(cells);
        } else {
            response.results.push(convert::inline_result(&cells, partial));
        }
    }
    let nothing_left = answer.text.is_some();
    response.more_results = Some(!nothing_left);
    response.more_results_in_region = Some(more);
    response.heartbeat_message = (more && answer.flag()).then_some(true);
    if more && scan.needs_cursor {
        response.cursor = answer.cursor.map(|row| pb::Cursor { row: Some(row) });
    }
    Ok((response, all, nothing_left || !more))
}

/// Closes the scanner in the JVM, if that is there. An error, which is `false`, changes nothing for the client.
pub(super) fn close(operation: &mut Operation, scan: &HostedScan) -> bool {
    if scan.generation != operation.child.generation {
        return true;
    }
    let coprocessors = scan.online.coprocessors.as_ref().expect("a region with coprocessors");
    let frame =
        Frame { scanner: Some(scan.scanner), ..frames::call(Method::ScannerClose, coprocessors.number) };
    let closed = operation.call(frame);
    if let Err(error) = &closed {
        tracing::debug!(%error, "a scanner was not closed in the JVM of coprocessors");
    }
    closed.is_ok()
}

impl RegionServer {
    /// Closes scanners of the JVM whose leases ran out, on a thread of its own: the JVM may be slow. Called now and then.
    pub(crate) fn expire_hosted_scans(self: &Arc<Self>) {
        let (now_ns, lease_ns) = (self.env.clock.monotonic_ns(), self.scanners.lease().as_nanos() as u64);
        let expired = self.coprocessors.scans.expired(now_ns, lease_ns);
        if expired.is_empty() {
            return;
        }
        let server = self.clone();
        let close_all = move || {
            for scan in expired {
                if let Ok(mut operation) = Operation::connect(&server) {
                    close(&mut operation, &scan);
                }
            }
        };
        if let Err(error) = spawn_thread("coprocessor-leases", close_all) {
            tracing::warn!(%error, "scanners of the JVM of coprocessors stay open");
        }
    }
}
