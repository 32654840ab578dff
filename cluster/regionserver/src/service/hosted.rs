//! Calls of regions that have coprocessors in the JVM. They run on threads of their own (`Coprocessors::pool`), so that a
//! coprocessor that is slow keeps nobody else's calls waiting.

use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Codec, Outcome, Reply, RpcError};

use super::get::{self, Found};
use super::scan_run::Limits;
use super::{Waits, ready};
use crate::RegionServer;
use crate::coprocessors::{self, CallPermit, HostedLimits, Opened, Operation};
use crate::quotas::OperationQuota;
use crate::regions::region_table::OnlineRegion;

/// A Get.
pub(super) fn get(
    server: &Arc<RegionServer>,
    online: Arc<OnlineRegion>,
    get: pb::Get,
    call: Call,
    codec: Option<Codec>,
    quota: Option<OperationQuota>,
) -> Outcome {
    let waits = match Waits::hosted(server, &online, &call) {
        Ok(waits) => waits.with_room(server),
        Err(error) => return ready(Err(error)),
    };
    let (server, terms) = (server.clone(), call.into_terms());
    Outcome::Later(Box::pin(async move {
        let (on_pool, region) = (server.clone(), online.clone());
        let work = move || {
            let mut operation = Operation::begin(&on_pool, &region, Some(&terms))?;
            read(&mut operation, &region, &get, true)
        };
        let (found, reservation) = server.run_reserved("Get", waits, work).await?;
        get::settle(quota, &found);
        Ok(Reply { reservation, ..get::reply(&online, found, codec) })
    }))
}

/// *Blocking*.
pub(super) fn read(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    get: &pb::Get,
    alone: bool,
) -> Result<Found, RpcError> {
    let read = coprocessors::get(operation, online, get, alone)?;
    let existence_only = get.existence_only();
    Ok(Found {
        cells: read.cells,
        existence_only,
        exists: Some(read.exists),
        block_bytes: None,
        metrics: None,
    })
}

/// A Scan that a client opens. `own` serves it where no hook and no filter needs the JVM.
pub(super) fn open_scan(
    server: &Arc<RegionServer>,
    online: Arc<OnlineRegion>,
    call: &Call,
    request: pb::ScanRequest,
    own: impl FnOnce(pb::ScanRequest) -> Result<Reply, RpcError> + Send + 'static,
) -> Outcome {
    let waits = match Waits::hosted(server, &online, call) {
        Ok(waits) => waits.with_room(server), // `own` may read rows as a whole
        Err(error) => return ready(Err(error)),
    };
    let limits = hosted_limits(server, call, &request);
    let (server, terms) = (server.clone(), call.terms());
    Outcome::Later(Box::pin(async move {
        let on_pool = server.clone();
        let work = move || {
            let mut operation = Operation::begin(&on_pool, &online, Some(&terms))?;
            let scan = request.scan.clone().unwrap_or_default();
            let (call_seq, connection) = (request.next_call_seq, &terms.connection);
            match coprocessors::open(&mut operation, &online, &scan, call_seq, connection)? {
                Opened::Own(scan) => {
                    drop(operation);
                    own(pb::ScanRequest { scan: Some(*scan), ..request })
                }
                Opened::Hosted(scan) => coprocessors::next(&mut operation, scan, &limits, true),
            }
        };
        let (reply, reservation) = server.run_reserved("Scan", waits, work).await?;
        Ok(Reply { reservation, ..reply })
    }))
}

/// A call for a scanner in the JVM.
pub(super) fn next_scan(
    server: &Arc<RegionServer>,
    call: &Call,
    request: &pb::ScanRequest,
    id: u64,
) -> Outcome {
    let echo = || Reply::message(&pb::ScanResponse { scanner_id: Some(id), ..Default::default() });
    let renew_at_ns = request.renew().then(|| server.env.clock.monotonic_ns());
    let permit = match server.coprocessors.jvm().permit() {
        Ok(permit) => permit,
        Err(error) => return ready(Err(error)),
    };
    let scan = match server.coprocessors.scans.claim(id, request.next_call_seq, renew_at_ns) {
        Ok(Some(scan)) => scan,
        Ok(None) => return ready(Ok(echo())),
        Err(error) => return ready(Err(error)),
    };
    let waits = Waits { hosted: Some(permit), begun: true, ..Waits::new(call.terms()) }.on(&scan.online);
    let limits = hosted_limits(server, call, request);
    let (server, terms) = (server.clone(), call.terms());
    Outcome::Later(Box::pin(async move {
        let on_pool = server.clone();
        let work = move || {
            let online = scan.online.clone();
            if !on_pool.regions.serves(&online) {
                return Err(on_pool.regions.not_online(online.region.info().region_name()));
            }
            let begun = Operation::begin(&on_pool, &online, Some(&terms));
            coprocessors::next(&mut begun.map_err(super::scan_reset)?, scan, &limits, false)
        };
        server.run_pooled("Scan", waits, work).await
    }))
}

fn hosted_limits(server: &RegionServer, call: &Call, request: &pb::ScanRequest) -> HostedLimits {
    let limits = Limits::new(server, call, request);
    let now_ns = server.env.clock.monotonic_ns();
    let time_ms = limits.deadline_ns.map_or(0, |at_ns| (at_ns.saturating_sub(now_ns) / 1_000_000).max(1));
    HostedLimits {
        rows: limits.rows,
        limit_of_rows: limits.limit_of_rows,
        close: limits.close,
        partials: limits.partials,
        time_ms,
        codec: limits.codec,
    }
}

impl Waits {
    /// On the threads of calls to coprocessors; RegionTooBusyException if there are too many.
    pub(super) fn hosted(
        server: &RegionServer,
        online: &OnlineRegion,
        call: &Call,
    ) -> Result<Waits, RpcError> {
        let permit: CallPermit = server.coprocessors.jvm().permit()?;
        Ok(Waits { hosted: Some(permit), ..Waits::new(call.terms()) }.on(online))
    }
}
