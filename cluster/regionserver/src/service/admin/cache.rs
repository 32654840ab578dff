use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply};

use super::{decode, ready};
use crate::RegionServer;

/// Drops the cached blocks of regions. Regions that are not here are named in the answer.
pub(super) fn clear(server: &Arc<RegionServer>, call: Call) -> Outcome {
    let request: pb::ClearRegionBlockCacheRequest = match decode(&call.method, call.param) {
        Ok(request) => request,
        Err(error) => return ready(Err(error)),
    };
    let before = server.cache.stats();
    let mut exception = Vec::new();
    for specifier in request.region {
        match server.regions.find(&specifier) {
            Ok(online) => online.region.evict_blocks(),
            Err(error) => exception.push(pb::RegionExceptionMessage {
                region: specifier,
                exception: error.to_name_bytes_pair(),
            }),
        }
    }
    let after = server.cache.stats();
    let stats = pb::CacheEvictionStats {
        evicted_blocks: Some(before.blocks_count.saturating_sub(after.blocks_count) as i64),
        bytes_evicted: Some(before.used_bytes.saturating_sub(after.used_bytes) as i64),
        max_cache_size: Some(after.capacity_bytes as i64),
        exception,
    };
    ready(Ok(Reply::message(&pb::ClearRegionBlockCacheResponse { stats })))
}
