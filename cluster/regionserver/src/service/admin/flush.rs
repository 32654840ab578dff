use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError};

use super::{decode, pooled, ready};
use crate::RegionServer;
use crate::errors;

/// Flushes a region or one family of it, unless it was flushed lately enough for the caller. A compaction that the flush leaves to be
/// done begins. After a flush of the table by the master it does not (`RSRpcServices.flushRegion`, `FlushRegionCallable`).
pub(super) fn call(server: &Arc<RegionServer>, call: Call) -> Outcome {
    match decode::<pb::FlushRegionRequest>(&call.method, call.param.clone()) {
        Ok(request) => pooled(server, call.into_terms(), move |server| flush(server, &request)),
        Err(error) => ready(Err(error)),
    }
}

fn flush(server: &RegionServer, request: &pb::FlushRegionRequest) -> Result<Reply, RpcError> {
    let online = server.regions.find_for_admin(&request.region)?;
    let last_flush_ms = || online.region.stats().last_flush_ms.max(0) as u64;
    let mut flushed = None;
    if online.region.is_flushing() {
        // As HBase, which does not wait for that flush either. A thread that waits here is lost to others.
        flushed = Some(false);
    } else if request.if_older_than_ts.is_none_or(|time| last_flush_ms() < time) {
        let families: Vec<_> = request.family.iter().cloned().collect();
        let outcome = server.background.flusher.flush(&online, &families);
        let outcome = outcome.map_err(|error| errors::to_rpc(&error))?;
        if outcome.compaction_wanted {
            server.background.compactions.request(&online);
        }
        flushed = Some(outcome.flushed);
    }
    Ok(Reply::message(&pb::FlushRegionResponse {
        last_flush_time: last_flush_ms(),
        flushed,
        wrote_flush_wal_marker: request.write_flush_wal_marker().then_some(false),
    }))
}
