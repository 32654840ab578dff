use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::Cell;
use halcyon_env::Patience;
use halcyon_proto::pb;
use halcyon_region::{BlockReads, ReadMode};
use halcyon_rpc::{Call, Codec, Outcome, Reply, RpcError, Tags};

use super::{CallError, INLINE_BYTES_MAX, Waits, decode, decode_on_pool, hosted, inline, ready};
use crate::RegionServer;
use crate::convert;
use crate::metrics::op_times::Op;
use crate::quotas::{Intent, OperationQuota};
use crate::regions::region_table::{OnlineRegion, text};

/// What a read of one row found.
pub(super) struct Found {
    pub cells: Vec<Cell>,
    /// Only the existence was asked for.
    pub existence_only: bool,
    /// What a hook says of that; `None`: the cells say it.
    pub exists: Option<bool>,
    /// Bytes of blocks that were looked at, if they are counted.
    pub block_bytes: Option<u64>,
    /// If the client asked for them.
    pub metrics: Option<pb::QueryMetrics>,
}

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    server.counters.gets.add(1);
    server.user_loads.note_reads(&call.connection, 1);
    let param = std::mem::take(&mut call.param);
    if param.len() > INLINE_BYTES_MAX {
        return decode_on_pool(server, call, "Get", param, |server, call, request| {
            begin(server, call, request, true)
        });
    }
    match decode("Get", param) {
        Ok(request) => begin(server, call, request, false),
        Err(error) => ready(Err(error)),
    }
}

/// `is_large`: it would keep the thread that received it for too long.
fn begin(server: &Arc<RegionServer>, call: Call, request: pb::GetRequest, is_large: bool) -> Outcome {
    let codec = if call.connection.get_uses_cell_block() { call.connection.codec } else { None };
    let online = match server.regions.find(&request.region) {
        Ok(online) => online,
        Err(error) => return ready(Err(error)),
    };
    let quota = match server.quotas.begin(&online, &call.connection, &call.attributes, Intent::GET) {
        Ok(quota) => quota,
        Err(error) => return ready(Err(error)),
    };
    if online.reads_hosted(request.get.filter.as_ref()) {
        return hosted::get(server, online, request.get, call, codec, quota);
    }
    let counts = quota.is_some();
    let tried = match is_large {
        true => Err(CallError::NeedsDisk),
        false => inline(|| read(&online, &request.get, ReadMode::CacheOnly, counts)),
    };
    match tried {
        Ok(found) => {
            settle(quota, &found);
            ready(Ok(reply(&online, found, codec)))
        }
        Err(CallError::Failed(error)) => ready(Err(error)),
        Err(CallError::NeedsDisk) => {
            let server = server.clone();
            let waits = Waits::new(call.terms()).with_room(&server);
            Outcome::Later(Box::pin(async move {
                let on_pool = online.clone();
                let is_wanted = server.is_wanted_of(&waits.terms, &online);
                let work = move || {
                    let read = || read(&on_pool, &request.get, ReadMode::AnyDisk, counts);
                    Patience::while_wanted(is_wanted, read).map_err(CallError::into_rpc)
                };
                let (found, reservation) = server.run_reserved("Get", waits, work).await?;
                settle(quota, &found);
                Ok(Reply { reservation, ..reply(&online, found, codec) })
            }))
        }
    }
}

/// The call pays for what it has found.
pub(super) fn settle(quota: Option<OperationQuota>, found: &Found) {
    if let Some(mut quota) = quota {
        quota.add_read(&found.cells, found.block_bytes.unwrap_or_default());
    }
}

/// Reads one row as the message says. `counts`: the blocks that are looked at are counted.
pub(super) fn read(
    online: &OnlineRegion,
    get: &pb::Get,
    mode: ReadMode,
    counts: bool,
) -> Result<Found, CallError> {
    if get.closest_row_before() {
        // asynchbase takes exactly this class as the sign to scan in reverse instead.
        return Err(RpcError::unknown_protocol(
            "closest_row_before is gone since HBase 2.0: scan in reverse",
        )
        .into());
    }
    let mut scan = convert::get(get).map_err(|error| given_up(online, error))?;
    let reads: Option<Arc<BlockReads>> = (counts || get.query_metrics_enabled()).then(Arc::default);
    scan.reads.clone_from(&reads);
    let cells = online.region.get(scan, mode)?;
    let block_bytes = reads.map(|reads| reads.scanned_bytes.load(Ordering::Relaxed));
    let metrics = block_bytes.filter(|_| get.query_metrics_enabled()).map(query_metrics);
    Ok(Found { cells, existence_only: get.existence_only(), exists: None, block_bytes, metrics })
}

/// What a client is told of a read that failed before it began: if it was given up because its region is closing, that it has moved.
fn given_up(online: &OnlineRegion, error: CallError) -> CallError {
    match error {
        CallError::Failed(error) if online.region.is_closing() && !error.do_not_retry => {
            let region = text(online.region.info().region_name());
            RpcError::not_serving_region(format!("{region} is closing")).into()
        }
        error => error,
    }
}

/// What a client gets to know of the cost of one result, if it asks (`Query.setQueryMetricsEnabled`, since 2.6).
pub(super) fn query_metrics(block_bytes_scanned: u64) -> pb::QueryMetrics {
    pb::QueryMetrics { block_bytes_scanned: Some(block_bytes_scanned) }
}

pub(super) fn reply(online: &OnlineRegion, found: Found, codec: Option<Codec>) -> Reply {
    let Found { cells, existence_only, exists, metrics, .. } = found;
    let (result, cells) = if existence_only {
        (convert::exists_result(exists.unwrap_or(!cells.is_empty())), None)
    } else if let Some(codec) = codec {
        (convert::no_cells_result(cells.len()), convert::cell_block(codec, &cells))
    } else {
        (convert::inline_result(&cells, false), None)
    };
    let result = pb::Result { metrics, ..convert::stale_result(result, online.region.is_secondary()) };
    let tags = Tags::One(online.ops.tag(Op::Get, 1));
    Reply { cells, tags, ..Reply::message(&pb::GetResponse { result: Some(result) }) }
}
