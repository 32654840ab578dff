//! Block cache and memstores.

use super::{Verdict, bytes};
use crate::numbers::ServerNumbers;
use crate::readings::Reading::*;

/// Fewer look-ups say nothing of a hit rate.
const LOOKUPS_MIN: f64 = 1000.0;
const HIT_SHARE_MIN: f64 = 0.9;
/// Evictions for each miss from which on the cache is full of what is wanted.
const EVICTIONS_PER_MISS_MIN: f64 = 0.2;

/// Many misses while blocks have to leave: what is read does not fit. Misses of a cache that has room are first reads.
pub fn cache_too_small(server: &ServerNumbers, _: f64) -> Verdict {
    let looks = &server.looks;
    let (Some(hits), Some(misses), Some(evictions)) =
        (looks.grown(CacheHits), looks.grown(CacheMisses), looks.grown(CacheEvictions))
    else {
        return Verdict::not_measured("the server does not tell hits, misses and evictions");
    };
    let lookups = hits + misses;
    if lookups < LOOKUPS_MIN {
        return Verdict::not_measured(&format!(
            "{lookups:.0} blocks were looked up, fewer than {LOOKUPS_MIN:.0}"
        ));
    }
    let share = hits / lookups;
    let capacity = looks
        .last(CacheCapacityBytes)
        .map_or("of unknown size".to_string(), |size| format!("of {}", bytes(size)));
    let measured = format!(
        "{:.1} % of {lookups:.0} block look-ups were hits, {evictions:.0} blocks were evicted; the cache {capacity} serves \
         store files of {}",
        share * 100.0,
        bytes(server.size_mb() as f64 * f64::from(1 << 20))
    );
    let is_bad = share < HIT_SHARE_MIN && evictions >= misses * EVICTIONS_PER_MISS_MIN;
    let change = "more memory for the cache: hfile.block.cache.size (Halcyon: --memory), or a cache tier on a local disk \
                  (hbase.bucketcache.ioengine); or read less, with narrower scans and fewer families";
    Verdict::of(is_bad, measured, change)
}

/// Memstores filled up faster than they were flushed.
pub fn writes_blocked(server: &ServerNumbers, seconds: f64) -> Verdict {
    let change = "more memory for memstores (hbase.regionserver.global.memstore.size; Halcyon: --memory), fewer regions \
                  with writes, or faster disks for flushes";
    if let Some(held_back) = server.looks.grown(WritesHeldBack) {
        let measured =
            format!("{held_back:.0} writes were held back in {seconds:.0} s because memstores were full");
        return Verdict::of(held_back > 0.0, measured, change);
    }
    match server.looks.grown(UpdatesBlockedMs) {
        Some(blocked_ms) => {
            let measured = format!("updates were blocked for {blocked_ms:.0} ms in {seconds:.0} s");
            Verdict::of(blocked_ms > 0.0, measured, change)
        }
        None => Verdict::not_measured("the server does not tell blocked writes"),
    }
}
