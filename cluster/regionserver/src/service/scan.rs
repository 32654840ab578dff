//! Opening, continuing, renewing and closing scanners.
//!
//! ```text
//! open   region + scan        -> region scanner, id          \
//! next   scanner_id           -> claimed from the leases      > run (scan_run.rs) -> closed, or lease runs again
//! close  close_scanner        -> after this call's results   /
//! renew  scanner_id, renew    -> the lease runs again, nothing is read
//! ```
//!
//! Checked against `RSRpcServices.scan` of 2.6.4. A scan runs on the pool, unless it cannot touch the disk and
//! is small; a small scan that is sure to end with this call is tried from the cache first.

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{Mutex, Patience};
use halcyon_proto::pb;
use halcyon_region::{BlockReads, ReadMode, RegionScanner};
use halcyon_rpc::{Call, Connection, Outcome, Reply, RpcError};

use super::scan_run::{Limits, Origin, ScanRun, Turn};
use super::{CallError, INLINE_BYTES_MAX, Waits, decode, decode_on_pool, hosted, inline, ready};
use crate::RegionServer;
use crate::calls::scanners::{Claim, OpenScanner};
use crate::convert;
use crate::errors::invalid;
use crate::quotas::{Intent, OperationQuota, ScanHistory};
use crate::regions::region_table::OnlineRegion;

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    server.counters.scans.add(1);
    let param = std::mem::take(&mut call.param);
    if param.len() > INLINE_BYTES_MAX {
        return decode_on_pool(server, call, "Scan", param, |server, call, request| {
            begin(server, &call, request, true)
        });
    }
    match decode("Scan", param) {
        Ok(request) => begin(server, &call, request, false),
        Err(error) => ready(Err(error)),
    }
}

/// `is_large`: to open the scanner would keep the thread that received the call for too long.
fn begin(server: &Arc<RegionServer>, call: &Call, request: pb::ScanRequest, is_large: bool) -> Outcome {
    match request.scanner_id {
        Some(id) if server.coprocessors.scans.has(id) => hosted::next_scan(server, call, &request, id),
        Some(id) => next(server, call, request, id),
        None => open(server, call, request, is_large),
    }
}

fn next(server: &Arc<RegionServer>, call: &Call, request: pb::ScanRequest, id: u64) -> Outcome {
    let echo = || Reply::message(&pb::ScanResponse { scanner_id: Some(id), ..Default::default() });
    let mut holder = match server.scanners.claim(id, request.next_call_seq, request.renew()) {
        Ok(Claim::Owned(holder)) => holder,
        Ok(Claim::AlreadyClosed | Claim::Renewed) => return ready(Ok(echo())),
        Err(error) => return ready(Err(error)),
    };
    if !server.regions.serves(&holder.online) {
        server.scanners.close(id);
        let name = holder.online.region.info().region_name().clone();
        return ready(Err(server.regions.not_online(&name)));
    }
    holder.connection = Arc::clone(&call.connection);
    let mut limits = Limits::new(server, call, &request);
    let counted = request.next_call_seq.is_some();
    let quota = match server.scan_quota(&holder.online, call, &request, holder.history) {
        Ok(quota) => quota,
        Err(error) => {
            server.scanners.unclaim(id, holder, counted);
            return ready(Err(error));
        }
    };
    let small = is_small(server, &request) && !holder.has_filter;
    // One that has let go of its view may find a file when it takes another.
    let is_in_memory = holder.online.region.memory_only() && !holder.scanner.has_let_go();
    // It cannot begin anew on the pool, but it may end early where the client knows heartbeats.
    let is_inline = limits.rows == 0 || (small && is_in_memory && limits.deadline_ns.is_some());
    if is_inline && let Some(deadline_ns) = &mut limits.deadline_ns {
        let inline_ns = INLINE_TIME_MAX.as_nanos() as u64;
        *deadline_ns = (*deadline_ns).min(server.env.clock.monotonic_ns().saturating_add(inline_ns));
    }
    let turn = Turn::new(server.clone(), id, Origin::Claimed);
    let run = ScanRun { turn, holder, limits, counted, quota };
    if is_inline { ready(run.run().map_err(CallError::into_rpc)) } else { pooled(server, call, run) }
}

/// So long a call of a scanner is served by the thread that received it, about.
const INLINE_TIME_MAX: Duration = Duration::from_millis(2);

fn pooled(server: &Arc<RegionServer>, call: &Call, run: ScanRun) -> Outcome {
    let server = server.clone();
    let waits = Waits::of_answer(call.terms(), run.answer_bytes_max()).on(&run.holder.online);
    let waits = waits.of_scan(&run.limits, run.holder.has_filter, &server);
    let ScanRun { mut turn, holder, limits, counted, quota } = run;
    let (_, id) = turn.end(); // it begins again when the call has a place
    server.scanners.await_turn(id, holder);
    let queued = Queued { server: server.clone(), id, limits: Some(limits), counted, quota };
    let is_wanted = server.is_wanted(&waits.terms);
    Outcome::Later(Box::pin(async move {
        let run = move || queued.run().map_err(CallError::into_rpc);
        let work = move || Patience::while_wanted(is_wanted, run);
        let (reply, reservation) = server.run_reserved("Scan", waits, work).await?;
        Ok(Reply { reservation, ..reply })
    }))
}

/// A call for a claimed scanner whose turn has not come. If it never does, because the call is refused or dropped, the
/// scanner is as it was before the call: the client may ask again.
struct Queued {
    server: Arc<RegionServer>,
    id: u64,
    /// `None` once its turn has come.
    limits: Option<Limits>,
    counted: bool,
    quota: ScanQuota,
}

impl Queued {
    fn run(mut self) -> Result<Reply, CallError> {
        let limits = self.limits.take().expect("it runs once");
        let (server, id, counted, quota) = (self.server.clone(), self.id, self.counted, self.quota.take());
        let holder = server.scanners.take_turn(id).expect("only this call ends the wait");
        if !server.regions.serves(&holder.online) {
            server.scanners.close(id);
            let name = holder.online.region.info().region_name();
            return Err(CallError::Failed(server.regions.not_online(name)));
        }
        ScanRun { turn: Turn::new(server, id, Origin::Claimed), holder, limits, counted, quota }.run()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.limits.is_some()
            && let Some(holder) = self.server.scanners.take_turn(self.id)
        {
            self.server.scanners.unclaim(self.id, holder, self.counted);
        }
    }
}

fn open(server: &Arc<RegionServer>, call: &Call, request: pb::ScanRequest, is_large: bool) -> Outcome {
    let (Some(specifier), Some(_)) = (&request.region, &request.scan) else {
        return ready(Err(invalid("Missing required input: scannerId or scan")));
    };
    let online = match server.regions.find(specifier) {
        Ok(online) => online,
        Err(error) => return ready(Err(error)),
    };
    let quota = match server.scan_quota(&online, call, &request, ScanHistory::default()) {
        Ok(quota) => quota,
        Err(error) => return ready(Err(error)),
    };
    let opening = Opening {
        quota,
        server: server.clone(),
        online,
        connection: Arc::clone(&call.connection),
        limits: Limits::new(server, call, &request),
        request,
    };
    if opening.online.reads_hosted(opening.request.scan.as_ref().and_then(|scan| scan.filter.as_ref())) {
        let (online, request) = (opening.online.clone(), opening.request.clone());
        let own = move |request: pb::ScanRequest| {
            Opening { request, ..opening }.run(ReadMode::AnyDisk, true).map_err(CallError::into_rpc)
        };
        return hosted::open_scan(server, online, call, request, own);
    }
    if !is_large && opening.is_small() {
        let is_in_memory = opening.online.region.memory_only();
        let mode = if is_in_memory { ReadMode::AnyDisk } else { ReadMode::CacheOnly };
        match inline(|| opening.run(mode, is_in_memory && !opening.ends())) {
            Err(CallError::NeedsDisk) => {}
            result => return ready(result.map_err(CallError::into_rpc)),
        }
    }
    let server = server.clone();
    let waits = Waits::of_answer(call.terms(), opening.answer_bytes_max());
    let has_filter = opening.request.scan.as_ref().is_some_and(|scan| scan.filter.is_some());
    let waits = waits.of_scan(&opening.limits, has_filter, &server);
    let is_wanted = server.is_wanted(&waits.terms);
    Outcome::Later(Box::pin(async move {
        let run = move || opening.run(ReadMode::AnyDisk, true).map_err(CallError::into_rpc);
        let work = move || Patience::while_wanted(is_wanted, run);
        let (reply, reservation) = server.run_reserved("Scan", waits, work).await?;
        Ok(Reply { reservation, ..reply })
    }))
}

impl Waits {
    /// For a client that takes no parts of rows a row may be larger than what was announced, and so may one of which a filter has to
    /// see all.
    fn of_scan(self, limits: &Limits, has_filter: bool, server: &RegionServer) -> Waits {
        if limits.partials && !has_filter { self } else { self.with_room(server) }
    }
}

/// Whether a call asks for so few rows that the thread that received it may do it. A filter may look at any
/// number of rows before it finds one.
fn is_small(server: &RegionServer, request: &pb::ScanRequest) -> bool {
    let limit = request.limit_of_rows.filter(|&limit| limit > 0).unwrap_or(u32::MAX);
    let rows = request.number_of_rows.unwrap_or(1).min(limit);
    rows <= server.settings.inline_scan_rows_max
        && request.scan.as_ref().is_none_or(|scan| scan.filter.is_none())
}

struct Opening {
    server: Arc<RegionServer>,
    online: Arc<OnlineRegion>,
    connection: Arc<Connection>,
    request: pb::ScanRequest,
    limits: Limits,
    quota: ScanQuota,
}

impl Opening {
    fn answer_bytes_max(&self) -> u64 {
        let asked = self.request.scan.as_ref().and_then(|scan| scan.max_result_size).filter(|&size| size > 0);
        let server_max = self.server.settings.result_bytes_max;
        if self.limits.rows == 0 { 0 } else { asked.map_or(server_max, |asked| asked.min(server_max)) }
    }

    /// Whether to try it here: either nothing can need the disk, or the scanner is likely to end with the call.
    fn is_small(&self) -> bool {
        is_small(&self.server, &self.request) && (self.ends() || self.online.region.memory_only())
    }

    /// Whether the scanner is likely to end with the call.
    fn ends(&self) -> bool {
        self.request.limit_of_rows.is_some_and(|limit| limit > 0 && limit <= self.limits.rows)
            || self.request.close_scanner()
    }

    /// Opens the scanner and serves the first results. Ends in `NeedsDisk`, with no trace left, if it needs the disk with
    /// `CacheOnly`, or if the scanner goes on that must not stay open.
    fn run(&self, mode: ReadMode, may_stay: bool) -> Result<Reply, CallError> {
        assert!(
            !may_stay || mode == ReadMode::AnyDisk,
            "a scanner that must not use the disk does not stay open"
        );
        let proto = self.request.scan.as_ref().expect("checked by open");
        // One that ends with this call may stand on the frame of the call.
        let detached = (may_stay && !self.limits.close).then(|| convert::detached_scan(proto));
        let (proto, message_bytes) = detached.as_ref().map_or((proto, 0), |(scan, kept)| (scan, *kept));
        let mut scan = convert::scan(proto)?;
        let wants_metrics = proto.query_metrics_enabled();
        scan.reads = match self.limits.track_metrics {
            true => Some(Arc::new(BlockReads::for_metrics(self.server.env.clock.clone()))),
            false => (wants_metrics || self.quota.is_some()).then(Arc::default),
        };
        let scanner: RegionScanner = self.online.region.scanner(scan, mode)?;
        let message_bytes = if detached.is_some() { message_bytes + scanner.filter_bytes() } else { 0 };
        let holder = Box::new(OpenScanner {
            scanner,
            online: self.online.clone(),
            connection: Arc::clone(&self.connection),
            partial_row: None,
            needs_cursor: proto.need_cursor_result(),
            has_filter: proto.filter.is_some(),
            wants_metrics,
            message_bytes,
            result_bytes_max: proto.max_result_size.filter(|&size| size > 0 && size <= i64::MAX as u64),
            history: ScanHistory::default(),
        });
        let (id, next_call_seq) = self.server.scanners.begin(self.request.next_call_seq)?;
        let origin = Origin::Opened { next_call_seq, may_be_kept: may_stay };
        let limits = self.limits.clone();
        let (turn, quota) = (Turn::new(self.server.clone(), id, origin), self.quota.clone());
        ScanRun { turn, holder, limits, counted: false, quota }.run()
    }
}

/// Shared by the attempts of one call, and settled when it has ended.
pub(super) type ScanQuota = Option<Arc<Mutex<OperationQuota>>>;

impl RegionServer {
    /// A call that only closes its scanner is never refused, or the scanner would stay.
    fn scan_quota(
        &self,
        online: &OnlineRegion,
        call: &Call,
        request: &pb::ScanRequest,
        history: ScanHistory,
    ) -> Result<ScanQuota, RpcError> {
        let intent = Intent::Scan { history, result_bytes_max: self.settings.result_bytes_max };
        let only_closes = request.close_scanner() && request.number_of_rows.unwrap_or(0) == 0;
        match self.quotas.begin(online, &call.connection, &call.attributes, intent) {
            Err(_) if only_closes => Ok(None),
            begun => Ok(begun?.map(|quota| Arc::new(Mutex::new(quota)))),
        }
    }
}

/// What the client gets to know about a scanner that has failed in the middle (`RSRpcServices.scan`).
pub(super) fn reset_error(error: RpcError, knows_reset: bool) -> RpcError {
    if error.do_not_retry {
        return error;
    }
    let message = format!("Scanner is closed on the server-side: {error}");
    if knows_reset { RpcError::scanner_reset(message) } else { RpcError::unknown_scanner(message) }
}

/// As [`reset_error`], for a scanner in the JVM of coprocessors, whose clients know the exception.
pub(crate) fn hosted_reset(error: RpcError) -> RpcError {
    let is_moved = error.class.ends_with(".NotServingRegionException");
    if is_moved { error } else { reset_error(error, true) }
}
