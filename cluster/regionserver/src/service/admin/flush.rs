use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_region::FlushOutcome;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Terms};
use tokio::sync::oneshot;

use super::{decode, on_pool, ready};
use crate::RegionServer;
use crate::errors;
use crate::regions::region_table::OnlineRegion;

/// How often others may be first before a thread waits for them.
const ROUNDS_MAX: usize = 16;

/// Flushes a region or one family of it, unless it was flushed lately enough for the caller. A compaction that the flush leaves to be
/// done begins. After a flush of the table by the master it does not (`RSRpcServices.flushRegion`, `FlushRegionCallable`).
///
/// Beside a flush that is running HBase answers at once that nothing was flushed, and its clients pass over that. Here what was
/// acknowledged before the call is in files when it is answered.
pub(super) fn call(server: &Arc<RegionServer>, call: Call) -> Outcome {
    let request: pb::FlushRegionRequest = match decode(&call.method, call.param.clone()) {
        Ok(request) => request,
        Err(error) => return ready(Err(error)),
    };
    let (server, terms) = (server.clone(), call.into_terms());
    Outcome::Later(Box::pin(async move { flush(&server, terms, &request).await }))
}

async fn flush(
    server: &Arc<RegionServer>,
    terms: Terms,
    request: &pb::FlushRegionRequest,
) -> Result<Reply, RpcError> {
    let online = server.regions.find_for_admin(&request.region)?;
    let last_flush_ms = || online.region.stats().last_flush_ms.max(0) as u64;
    let mut flushed = None;
    if request.if_older_than_ts.is_none_or(|time| last_flush_ms() < time) {
        let families: Vec<Bytes> = request.family.iter().cloned().collect();
        flushed = Some(flush_in_turn(server, &terms, &online, &families).await?.flushed);
    }
    Ok(Reply::message(&pb::FlushRegionResponse {
        last_flush_time: last_flush_ms(),
        flushed,
        wrote_flush_wal_marker: request.write_flush_wal_marker().then_some(false),
    }))
}

/// Flushes when what is running now is over; a thread that waited for that would be lost to others. A flush that another one begins
/// meanwhile serves as well.
async fn flush_in_turn(
    server: &Arc<RegionServer>,
    terms: &Terms,
    online: &Arc<OnlineRegion>,
    families: &[Bytes],
) -> Result<FlushOutcome, RpcError> {
    let begun = online.region.flushes_begun();
    let mut round = 0;
    loop {
        if let Some(outcome) = online.region.flushed_since(begun) {
            return Ok(outcome);
        }
        let (ended, is_over) = oneshot::channel();
        if online.region.when_flush_ends(move || _ = ended.send(())) {
            _ = is_over.await; // whether it ended well is seen above
            continue;
        }
        let (online, families) = (online.clone(), families.to_vec());
        let work = move |server: &RegionServer| flush_now(server, &online, &families, round >= ROUNDS_MAX);
        if let Some(outcome) = on_pool(server, terms.clone(), work).await? {
            return Ok(outcome);
        }
        round += 1;
    }
}

/// *Blocking*. `None`: another one was first.
fn flush_now(
    server: &RegionServer,
    online: &Arc<OnlineRegion>,
    families: &[Bytes],
    waits: bool,
) -> Result<Option<FlushOutcome>, RpcError> {
    let flusher = &server.background.flusher;
    let outcome =
        if waits { flusher.flush(online, families).map(Some) } else { flusher.try_flush(online, families) };
    let outcome = outcome.map_err(|error| errors::to_rpc(&error))?;
    if outcome.is_some_and(|outcome| outcome.compaction_wanted) {
        server.background.compactions.request(online);
    }
    Ok(outcome)
}
