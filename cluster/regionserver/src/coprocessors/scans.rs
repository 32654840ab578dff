//! Scans whose scanner is an object of the JVM, because a class overrides `postScannerOpen` or a hook behind it, or because the
//! filter is of a class that only the JVM has.
//!
//! The JVM does with them what `RSRpcServices.scan` does; results come as whole rows or batches. Leases and numbers of calls are
//! as those of other scanners (`calls/scanners.rs`), and so is what one connection and one peer may have of them.
//!
//! A scan has its place from before its scanner is opened in the JVM until it is closed there.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::{Mutex, spawn_thread};
use halcyon_proto::coprocessor::{Frame, Method};
use halcyon_proto::pb;
use halcyon_rpc::{Codec, Connection, Reply, RpcError};
use prost::Message;

use super::frames;
use super::hooks::Hooks;
use super::operation::Operation;
use crate::RegionServer;
use crate::calls::scanners::{OpenCounts, Opener, ScannerLimits};
use crate::convert;
use crate::regions::region_table::OnlineRegion;

/// Scanners of clients in the JVM at most, of all.
const SCANS_MAX: usize = 10_000;

/// See the head of the file. *Thread safety*: one short lock; a call takes its scan out.
#[derive(Default)]
pub(crate) struct HostedScans {
    open: Mutex<Open>,
    count: AtomicUsize,
    /// Those that a call has left without closing them.
    left: Mutex<Vec<(u64, HostedScan)>>,
}

#[derive(Default)]
struct Open {
    scans: HashMap<u64, Entry>,
    counts: OpenCounts,
}

impl Open {
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.scans.remove(&id)?;
        self.counts.sub(entry.opener(), 1);
        Some(entry)
    }
}

enum Entry {
    Idle(HostedScan),
    /// In the hand of a call.
    Busy(Opener),
    /// Nobody's any more, and still in the JVM.
    Closing(Opener),
}

impl Entry {
    fn opener(&self) -> Opener {
        match self {
            Entry::Idle(scan) => scan.opener,
            Entry::Busy(opener) | Entry::Closing(opener) => *opener,
        }
    }
}

/// The place of a scan that is being opened, until dropped.
struct Place {
    scans: Arc<HostedScans>,
    id: u64,
    is_taken: bool,
}

impl Place {
    fn take(mut self, scan: HostedScan) -> ClaimedScan {
        self.is_taken = true;
        ClaimedScan { scans: Arc::clone(&self.scans), id: self.id, scan: Some(scan) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_taken {
            self.scans.remove(self.id);
        }
    }
}

/// A scan of a client.
pub(crate) struct HostedScan {
    pub online: Arc<OnlineRegion>,
    opener: Opener,
    generation: u64,
    scanner: u64,
    /// Of the scanner in the JVM: the client names it when it has lost the scanner (`Scan::resumes_at`). `None`: it has none.
    read_point: Option<u64>,
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
    /// Keeps the scan for the next call.
    fn put_back(mut self) {
        let scan = self.scan.take().expect("it is taken out by what ends the claim only");
        let before = self.scans.open.lock().scans.insert(self.id, Entry::Idle(scan));
        assert!(matches!(before, Some(Entry::Busy(_))), "a scan in the hand of a call keeps its place");
    }

    /// Closes the scanner in the JVM. *Blocking*.
    fn close(mut self, operation: &mut Operation) {
        if close(operation, &self) {
            self.forget();
        }
    }

    /// As [`ClaimedScan::close`], for the last time: the JVM may not know it any more.
    fn close_finally(mut self, operation: &mut Operation) {
        close(operation, &self);
        self.forget();
    }

    fn forget(&mut self) {
        self.scans.remove(self.id);
        self.scan = None;
    }
}

impl Drop for ClaimedScan {
    fn drop(&mut self) {
        if let Some(scan) = self.scan.take() {
            let closing = Entry::Closing(scan.opener);
            self.scans.open.lock().scans.insert(self.id, closing);
            self.scans.left.lock().push((self.id, scan));
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
        self.count.load(Ordering::Acquire) > 0 && self.open.lock().scans.contains_key(&id)
    }

    /// A place for a scan that this client opens. RegionTooBusyException if it may have no more.
    fn begin(self: &Arc<Self>, id: u64, opener: Opener, limits: &ScannerLimits) -> Result<Place, RpcError> {
        let mut open = self.open.lock();
        if open.counts.is_full(&opener, 1, limits) {
            let (all, own) = (open.counts.all(), open.counts.of(&opener));
            return Err(RpcError::region_too_busy(format!(
                "{all} scanners are open in the JVM of coprocessors, {own} of them by this connection, which may have no \
                 more now (halcyon.peer.share)"
            )));
        }
        open.counts.add(opener, 1);
        let before = open.scans.insert(id, Entry::Busy(opener));
        assert!(before.is_none(), "each scanner has an id of its own");
        self.count.store(open.scans.len(), Ordering::Release);
        Ok(Place { scans: Arc::clone(self), id, is_taken: false })
    }

    fn remove(&self, id: u64) {
        let mut open = self.open.lock();
        let removed = open.remove(id);
        self.count.store(open.scans.len(), Ordering::Release);
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
        let unknown = || RpcError::unknown_scanner(format!("Unknown scanner '{id}'"));
        let entry = open.scans.get_mut(&id).ok_or_else(unknown)?;
        let scan = match entry {
            Entry::Idle(scan) => scan,
            Entry::Busy(_) => return Err(RpcError::lease(format!("lease '{id}' does not exist"))),
            Entry::Closing(_) => return Err(unknown()),
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
        let busy = Entry::Busy(scan.opener);
        let Entry::Idle(scan) = std::mem::replace(entry, busy) else {
            unreachable!("it was idle under the same lock")
        };
        Ok(Some(ClaimedScan { scans: self.clone(), id, scan: Some(scan) }))
    }

    /// Those whose lease ran out, and those that their call has left: to be closed. One that is dropped instead comes again.
    fn expired(self: &Arc<Self>, now_ns: u64, lease_ns: u64) -> Vec<ClaimedScan> {
        let mut expired = std::mem::take(&mut *self.left.lock());
        for (&id, entry) in &mut self.open.lock().scans {
            let Entry::Idle(scan) = &*entry else { continue };
            if now_ns.saturating_sub(scan.used_ns) <= lease_ns {
                continue;
            }
            let closing = Entry::Closing(scan.opener);
            if let Entry::Idle(scan) = std::mem::replace(entry, closing) {
                expired.push((id, scan));
            }
        }
        let claim = |(id, scan)| ClaimedScan { scans: Arc::clone(self), id, scan: Some(scan) };
        expired.into_iter().map(claim).collect()
    }

    /// Forgets those of a region that is closing; the JVM closes them with it.
    pub(crate) fn region_closing(&self, online: &Arc<OnlineRegion>) {
        let mut left = Vec::new();
        self.left.lock().retain(|(id, scan)| {
            let stays = !Arc::ptr_eq(&scan.online, online);
            if !stays {
                left.push(*id);
            }
            stays
        });
        left.into_iter().for_each(|id| self.remove(id));
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut open = self.open.lock();
        let of_region =
            |entry: &Entry| matches!(entry, Entry::Idle(scan) if Arc::ptr_eq(&scan.online, online));
        let ids: Vec<u64> =
            open.scans.iter().filter(|(_, entry)| of_region(entry)).map(|(id, _)| *id).collect();
        let forgotten: Vec<Entry> = ids.into_iter().filter_map(|id| open.remove(id)).collect();
        self.count.store(open.scans.len(), Ordering::Release);
        drop(open);
        drop(forgotten);
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
    connection: &Connection,
) -> Result<Opened, RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    let hooks = operation.hooks(&coprocessors)?;
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
    let opener = Opener::of(connection);
    let peer_share = server.scanners.limits().peer_share;
    let limits = ScannerLimits { open_count_max: SCANS_MAX, peer_share };
    let place = server.coprocessors.scans.begin(id, opener, &limits)?;
    let frame = Frame { scan: sent, ..frames::call(Method::ScannerOpen, coprocessors.number) };
    let answer = operation.call(frame)?;
    // Results have to fit into a frame.
    let frame_max = server.settings.coprocessors.frame_bytes_max as u64 / 2;
    let server_max = server.settings.result_bytes_max.min(frame_max);
    let asked = scan.max_result_size.filter(|&size| size > 0 && size <= i64::MAX as u64);
    let needs_cursor = scan.need_cursor_result();
    let scan = HostedScan {
        online: online.clone(),
        opener,
        generation: operation.child.generation,
        scanner: answer.scanner(),
        read_point: answer.read_point.filter(|&point| point > 0),
        next_call_seq,
        used_ns: server.env.clock.monotonic_ns(),
        result_bytes_max: asked.map_or(server_max, |size| size.min(server_max)),
        needs_cursor,
    };
    Ok(Opened::Hosted(place.take(scan)))
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
        response.mvcc_read_point = scan.read_point;
    }
    scan.used_ns = server.env.clock.monotonic_ns();
    scan.online.region.note_scanned(u64::from(!cells.is_empty()), 0, &[]);
    if is_over || limits.close {
        let next_call_seq = scan.next_call_seq;
        scan.close(operation);
        server.scanners.ended(id, next_call_seq);
    } else {
        scan.put_back();
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
                    scan.close_finally(&mut operation);
                }
            }
        };
        if let Err(error) = spawn_thread("coprocessor-leases", close_all) {
            tracing::warn!(%error, "scanners of the JVM of coprocessors stay open");
        }
    }
}
