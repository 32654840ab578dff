use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply};

use super::{decode, pooled, ready};
use crate::RegionServer;

/// Drops the cached blocks of regions. Regions that are not here are named in the answer.
pub(super) fn clear(server: &Arc<RegionServer>, call: Call) -> Outcome {
    match decode::<pb::ClearRegionBlockCacheRequest>(&call.method, call.param.clone()) {
        Ok(request) => pooled(server, call.into_terms(), move |server| Ok(evict(server, request))),
        Err(error) => ready(Err(error)),
    }
}

fn evict(server: &RegionServer, request: pb::ClearRegionBlockCacheRequest) -> Reply {
    let before = server.resources.cache.stats();
    let (mut evicted, mut exception) = (0, Vec::new());
    for specifier in request.region {
        match server.regions.find_for_admin(&specifier) {
            Ok(online) => evicted += online.region.evict_blocks(),
            Err(error) => exception.push(pb::RegionExceptionMessage {
                region: specifier,
                exception: error.to_name_bytes_pair(),
            }),
        }
    }
    let after = server.resources.cache.stats();
    let stats = pb::CacheEvictionStats {
        evicted_blocks: Some(evicted as i64),
        bytes_evicted: Some(before.used_bytes.saturating_sub(after.used_bytes) as i64),
        max_cache_size: Some(after.capacity_bytes as i64),
        exception,
    };
    Reply::message(&pb::ClearRegionBlockCacheResponse { stats })
}

/// Names of the files of which all blocks were read ahead into the cache and are still there.
pub(super) fn cached_files(server: &RegionServer) -> Reply {
    let regions = server.regions.online();
    let cached_files = regions.iter().flat_map(|online| online.region.cached_files()).collect();
    Reply::message(&pb::GetCachedFilesListResponse { cached_files })
}
