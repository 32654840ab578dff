//! The memory budget: how it is divided among the parts of the server.
//!
//! ```text
//! budget = memstores + blocks + requests + answers + log + working
//!
//! memstores   chunks, filled or not, with the lists and arrays of flat segments, and chunks that are ready for writers
//! blocks      the block cache, roots of index and bloom filters of open files, open scanners with their blocks, nonces of
//!             finished operations, edits that splits of WALs collect, what the console keeps
//! requests    frames of calls that wait with their cells, frames that are arriving, sessions of the ZooKeeper endpoint
//! answers     answers that the disk pool is making, and answers that clients have not taken yet
//! log         WAL buffers: one that fills, and one that is being written
//! working     buffers of flushes and compactions, and read buffers of connections
//! ```
//!
//! The shares of memstores and blocks are settings, together at most four fifths, as in HBase. The rest is divided here.
//! The part that hands out memory enforces its limit:
//!
//! | part | at its limit |
//! |---|---|
//! | memstores | writers are held back and then refused (`pressure.rs`); ready chunks are used before new ones are allocated |
//! | blocks | blocks are evicted; open files, scanners, nonces, splits and the console reduce the cache's capacity; nonces and scanners take at most 1/16 of the budget each; splits write out what they have ([`MemoryPlan::splits`]) |
//! | requests | calls of the class are refused (`Queues` of `halcyon-rpc`); connections with half a frame are closed in the end |
//! | answers | calls wait (`calls/pool.rs`); a connection whose client reads no answers is not read, and closed in the end |
//! | log | the thread that appends writes the buffer first |
//! | working | the number of threads that flush and compact is fixed |
//!
//! One call may exceed a limit for a moment: a request that is being copied into chunks is counted twice until the copy
//! is complete. `accountant.rs` holds the server to the plan.

/// What a flush or compaction holds besides blocks: a buffer for the file's bytes, an index and bloom chunks.
pub(crate) const WRITER_BYTES: u64 = 2 << 20;
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

    /// What splits of the WALs of dead servers may have of the part of blocks: a quarter of it. For a moment they may have twice as much,
    /// and each of them the entry that it has read.
    pub(crate) fn splits(&self) -> u64 {
        self.blocks / 4
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

/// How much is to be cut off memstores and blocks when so much is resident.
pub(crate) fn next_cut(cut: u64, resident: u64, plan: &MemoryPlan) -> u64 {
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
        assert_eq!(mib(plan.splits()), 89, "of the part of blocks");
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
