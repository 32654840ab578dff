//! The write-ahead log.

use super::Verdict;
use crate::numbers::ServerNumbers;
use crate::readings::Reading::*;

/// Fewer syncs say nothing of their mean.
const SYNCS_MIN: f64 = 20.0;
/// A disk with a write cache that survives power loss takes less than 1 ms, a disk without one 5 to 10 ms.
const SYNC_MS_MAX: f64 = 20.0;

pub fn slow_sync(server: &ServerNumbers, _: f64) -> Verdict {
    let looks = &server.looks;
    let Some(syncs) = looks.grown(WalSyncs) else {
        return Verdict::not_measured("the server does not tell WAL syncs");
    };
    if syncs < SYNCS_MIN {
        return Verdict::not_measured(&format!("there were {syncs:.0} WAL syncs, fewer than {SYNCS_MIN:.0}"));
    }
    let of_counters = looks.grown(WalSyncSeconds).map(|seconds| seconds * 1000.0 / syncs);
    let Some(mean_ms) = of_counters.or(looks.mean(WalSyncMeanMs)) else {
        return Verdict::not_measured("the server does not tell the time of WAL syncs");
    };
    let measured = format!("a WAL sync took {mean_ms:.1} ms on average, of {syncs:.0} syncs");
    let change = "a faster or less busy disk for the WAL (hbase.wal.dir), or a disk of its own; where a power failure may \
                  lose the last writes, hbase.wal.hsync=false (Halcyon: --wal-sync written)";
    Verdict::of(mean_ms > SYNC_MS_MAX, measured, change)
}
