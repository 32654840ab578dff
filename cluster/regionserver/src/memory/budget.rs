//! One budget: what each part of the server may hold, and what it holds.
//!
//! ```text
//! budget = memstores + blocks + requests + answers + log + working
//!
//! memstores   chunks, filled or not, with the lists and arrays of flat segments, and chunks that wait to be used
//! blocks      the block cache, roots of index and bloom filters of open files, blocks under open scanners, nonces of
//!             finished operations
//! requests    frames of calls that wait, and large ones that are arriving
//! answers     those that threads of the disk pool are making, and those that clients do not take
//! log         what was appended and not written: a buffer that fills and one that is being written
//! working     buffers of flushes and compactions, and read buffers of connections
//! ```
//!
//! The shares of memstores and blocks are settings, at most four fifths together, as in HBase; what is left is
//! divided here. A limit is kept by whoever gives memory out:
//!
//! | part | at its limit |
//! |---|---|
//! | memstores | writers are held back and then refused (`pressure.rs`); waiting chunks go before new ones come |
//! | blocks | blocks leave the cache; its capacity is what open files, scanners and nonces leave of the part; nonces have a sixteenth of the budget at most |
//! | requests | calls of the class are refused (`Queues` of `halcyon-rpc`) |
//! | answers | calls wait (`pool.rs`); a connection whose client takes nothing is not read, and closed in the end |
//! | log | whoever appends writes first |
//! | working | the threads that flush and compact have a number |
//!
//! What one call does at once may lie above a limit: a request that is being copied into chunks is counted twice
//! until it was copied. The ledger knows nothing of code and stacks, nor of what the allocator cannot give back:
//! holes between what is in use. The latter may be much under mixed load, so the server also looks at what is resident,
//! and gives memstores and blocks less, chunks that wait first, while that is above the budget ([`RegionServer::fit_to_resident`]).

use std::sync::atomic::Ordering;

use crate::RegionServer;

/// What a flush or compaction holds besides blocks: a buffer for the file's bytes, an index and bloom chunks.
const WRITER_BYTES: u64 = 2 << 20;
/// While memstores get less than was planned, so many chunks of theirs may wait to be used as fill this part of them.
const READY_PART_WHEN_CUT: f64 = 0.125;
/// Memstores and blocks together may have so much of the budget (HBase: all but a fifth of the heap).
pub(crate) const CELLS_SHARE_MAX: f64 = 0.8;

/// How a budget is divided, in bytes. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    pub budget: u64,
    pub memstores: u64,
    pub blocks: u64,
    pub requests: u64,
    pub answers: u64,
    /// Both buffers together.
    pub log: u64,
    pub working: u64,
}

impl MemoryPlan {
    /// `writers`: flushes and compactions at the same time. Shares above four fifths together are cut to that.
    pub(crate) fn new(budget: u64, memstore_share: f64, cache_share: f64, writers: usize) -> MemoryPlan {
        let sum = memstore_share + cache_share;
        let cut = if sum > CELLS_SHARE_MAX { CELLS_SHARE_MAX / sum } else { 1.0 };
        let part = |share: f64| (budget as f64 * share * cut) as u64;
        let (memstores, blocks) = (part(memstore_share), part(cache_share));
        let rest = budget.saturating_sub(memstores + blocks);
        let log = rest / 8;
        let working = (rest / 8).max(writers as u64 * WRITER_BYTES).min(rest / 3);
        let calls = rest - log - working;
        let (requests, answers) = (calls / 2, calls / 2);
        MemoryPlan { budget, memstores, blocks, requests, answers, log, working }
    }

    /// Never more than the budget.
    pub fn sum(&self) -> u64 {
        let cells = self.memstores + self.blocks;
        cells + self.requests + self.answers + self.log + self.working
    }
}

/// One line of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    pub name: &'static str,
    /// Bytes at this moment.
    pub held: u64,
    /// Bytes that it may have; `None` if it shares the limit of the part above it.
    pub limit: Option<u64>,
}

impl RegionServer {
    /// What each part holds, but for requests and answers, which the servers of the ports count.
    pub fn memory(&self) -> Vec<MemoryPart> {
        let plan = self.settings.plan();
        let part = |name, held, limit| MemoryPart { name, held, limit: Some(limit) };
        let beside = |name, held| MemoryPart { name, held, limit: None };
        let high = self.pressure.high_bytes();
        let blocks = plan.memstores + plan.blocks - self.memstores_bytes.load(Ordering::Relaxed);
        let pooled = self.chunks.pooled_bytes() as u64;
        let regions = self.regions.online();
        let live = regions.iter().map(|online| online.region.chunks_bytes()).sum::<u64>();
        let used = self.chunks.used_bytes() as u64;
        let by_readers = (self.chunks.in_segments_bytes() as u64).saturating_sub(live);
        let (in_cells, going) = (self.chunks.in_cells_bytes() as u64, self.chunks.going_bytes() as u64);
        vec![
            part("memstores", used.saturating_sub(by_readers + in_cells + going), high),
            beside("memstores-flushed-held-by-scans", by_readers),
            beside("memstores-flushed-held-by-answers", in_cells),
            beside("memstores-being-freed", going),
            beside("chunks-ready", pooled),
            part("block-cache", self.cache.stats().used_bytes, blocks),
            beside("files", self.files_held_bytes()),
            beside("scanners", self.scanners.held_bytes()),
            beside("nonces", self.nonces.stats().held_bytes),
            part("log", self.logs.held_bytes(), plan.log),
            part("working", self.writers_busy() as u64 * WRITER_BYTES, plan.working),
        ]
    }

    fn files_held_bytes(&self) -> u64 {
        self.regions.online().iter().map(|online| online.region.files_held_bytes()).sum()
    }

    /// Looks how much the operating system says that the process takes. While that is too much, whatever the ledger
    /// says, memstores and blocks get less; when it is not any more, they get it back little by little.
    pub(crate) fn fit_to_resident(&self) {
        let plan = self.settings.plan();
        let Some(resident) = halcyon_env::resident_bytes(&*self.env.fs) else { return };
        let cut = self.cut_bytes.load(Ordering::Relaxed);
        let next = next_cut(cut, resident, &plan);
        if next != cut {
            self.cut_bytes.store(next, Ordering::Relaxed);
            self.fit_memstores();
            self.fit_cache();
        }
    }

    /// Moves the marks of the memstores to where they are to be.
    pub(crate) fn fit_memstores(&self) {
        let planned = self.memstores_bytes.load(Ordering::Relaxed);
        let high = planned.saturating_sub(self.cut_bytes.load(Ordering::Relaxed) / 2).max(planned / 4);
        self.pressure.set_high(high, (high as f64 * self.settings.memstore_low_share) as u64);
        self.chunks.set_allocated_max(high as usize);
        let part = self.settings.chunk_pool_share;
        let part = if high < planned { part.min(READY_PART_WHEN_CUT) } else { part };
        self.chunks.set_pooled_max((high as f64 * part) as usize);
    }

    /// Leaves the block cache what open files, scanners and nonces do not take of their part, at least an eighth of it.
    pub(crate) fn fit_cache(&self) {
        let plan = self.settings.plan();
        let blocks =
            (plan.memstores + plan.blocks).saturating_sub(self.memstores_bytes.load(Ordering::Relaxed));
        let beside = self.files_held_bytes() + self.scanners.held_bytes() + self.nonces.stats().held_bytes;
        let cut = self.cut_bytes.load(Ordering::Relaxed) / 2;
        let capacity = blocks.saturating_sub(beside + cut).max(blocks / 8);
        let now = self.cache.stats().capacity_bytes;
        // Every change locks every shard once: small ones are not worth it.
        if capacity.abs_diff(now) > blocks / 64 {
            self.cache.resize(capacity);
        }
    }
}

/// How much is to be cut off memstores and blocks when so much is resident.
fn next_cut(cut: u64, resident: u64, plan: &MemoryPlan) -> u64 {
    let enough = plan.budget - plan.budget / 16;
    let cut_max = (plan.memstores + plan.blocks) / 4 * 3;
    if resident > plan.budget {
        (cut + (resident - plan.budget).max(plan.budget / 64)).min(cut_max)
    } else if resident < enough {
        cut.saturating_sub(plan.budget / 256)
    } else {
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The budget holds by construction: whatever is set, the limits are not more than it together.
    #[test]
    fn limits_of_all_parts_are_not_more_than_the_budget() {
        for budget in [0, 1, 1 << 20, 64 << 20, 128 << 20, 1 << 30, 100 << 30] {
            for memstores in [0.0, 0.1, 0.35, 0.4, 0.8, 1.0] {
                for blocks in [0.0, 0.2, 0.35, 0.4, 1.0] {
                    for writers in [1, 4, 40] {
                        let plan = MemoryPlan::new(budget, memstores, blocks, writers);
                        assert!(plan.sum() <= budget, "{plan:?}");
                        assert!(plan.sum() + 8 >= budget, "and nearly all of it: {plan:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_gibibyte_divided() {
        let mib = |bytes: u64| bytes >> 20;
        let plan = MemoryPlan::new(1 << 30, 0.35, 0.35, 4);
        let cells = (mib(plan.memstores), mib(plan.blocks));
        assert_eq!((cells, mib(plan.requests)), ((358, 358), 115), "{plan:?}");
        assert_eq!(mib(plan.answers), 115, "{plan:?}");
        assert_eq!((mib(plan.log), mib(plan.working)), (38, 38), "{plan:?}");
    }

    #[test]
    fn what_is_resident_counts_in_the_end() {
        let plan = MemoryPlan::new(1 << 30, 0.35, 0.35, 4);
        let mut cut = 0;
        for _ in 0..10 {
            cut = next_cut(cut, plan.budget + (100 << 20), &plan);
        }
        assert!(cut > 300 << 20 && cut <= (plan.memstores + plan.blocks) / 4 * 3);
        assert_eq!(next_cut(cut, plan.budget, &plan), cut, "neither too much nor much less");
        for _ in 0..300 {
            cut = next_cut(cut, plan.budget / 2, &plan);
        }
        assert_eq!(cut, 0);
        assert_eq!(next_cut(0, plan.budget, &plan), 0);
    }
}
