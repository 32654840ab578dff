//! Holds the server to its memory budget: what each part takes, and how the limits follow the load.
//!
//! The plan of `budget.rs` knows nothing of code and stacks, nor of what the allocator cannot give back: holes between
//! what is in use. The latter may be much under mixed load. So the accountant also looks at what is resident, and gives
//! memstores and blocks less, chunks that wait first, while that is above the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_cache::BlockCache;
use halcyon_env::{FileSystem, Mutex};
use halcyon_memstore::ChunkPool;
use halcyon_region::MobFileCache;

use super::account::MemoryAccounts;
use super::budget::{MemoryPart, MemoryPlan, WRITER_BYTES, next_cut};
use super::pressure::Pressure;
use super::tuner::{Needs, Tuner};
use super::writers::FileWriters;
use crate::calls::nonces::Nonces;
use crate::calls::scanners::Scanners;
use crate::regions::region_table::RegionTable;
use crate::settings::online::OnlineSettings;
use crate::wal::logs::Logs;

/// While memstores get less than was planned, so many chunks of theirs may wait to be used as fill this part of them.
const READY_PART_WHEN_CUT: f64 = 0.125;

/// Whose memory is accounted for.
pub(crate) struct MemoryParts {
    pub(crate) local: Arc<dyn FileSystem>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) scanners: Arc<Scanners>,
    pub(crate) nonces: Arc<Nonces>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) mob_files: Arc<MobFileCache>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) writers: Arc<FileWriters>,
}

/// Plain values out of the server's settings.
pub(crate) struct MemoryShares {
    pub(crate) plan: MemoryPlan,
    pub(crate) memstore_share: f64,
    pub(crate) cache_share: f64,
    /// For the low mark of the memstores.
    pub(crate) online: Arc<OnlineSettings>,
    pub(crate) chunk_pool_share: f64,
    /// Whether the shares follow the load.
    pub(crate) adapts: bool,
}

/// See the head of the file.
pub(crate) struct MemoryAccountant {
    parts: MemoryParts,
    shares: MemoryShares,
    tuner: Mutex<Tuner>,
    /// Bytes that the limits of memstores and blocks are below what was planned, because more is resident.
    cut_bytes: AtomicU64,
    /// What the memstores may hold before that is taken off.
    memstores_bytes: AtomicU64,
    /// What regions keep for calls that are repeated, when it was last looked at.
    kept_answers_bytes: AtomicU64,
    pub(crate) accounts: MemoryAccounts,
}

impl MemoryAccountant {
    pub(crate) fn new(parts: MemoryParts, shares: MemoryShares) -> MemoryAccountant {
        MemoryAccountant {
            tuner: Mutex::new(Tuner::new(shares.memstore_share, shares.cache_share)),
            cut_bytes: AtomicU64::new(0),
            memstores_bytes: AtomicU64::new(parts.pressure.high_bytes()),
            kept_answers_bytes: AtomicU64::new(0),
            accounts: MemoryAccounts::default(),
            parts,
            shares,
        }
    }

    /// What each part holds, but for requests and answers, which the servers of the ports count.
    pub(crate) fn report(&self) -> Vec<MemoryPart> {
        let (plan, parts) = (&self.shares.plan, &self.parts);
        let part = |name, held, limit| MemoryPart { name, held, limit: Some(limit) };
        let beside = |name, held| MemoryPart { name, held, limit: None };
        let high = parts.pressure.high_bytes();
        let blocks = self.blocks_bytes();
        let pooled = parts.chunks.pooled_bytes() as u64;
        let regions = parts.regions.online();
        let live = regions.iter().map(|online| online.region.chunks_bytes()).sum::<u64>();
        let used = parts.chunks.used_bytes() as u64;
        let by_readers = (parts.chunks.in_segments_bytes() as u64).saturating_sub(live);
        let (in_cells, going) = (parts.chunks.in_cells_bytes() as u64, parts.chunks.going_bytes() as u64);
        let mut report = vec![
            part("memstores", used.saturating_sub(by_readers + in_cells + going), high),
            beside("memstores-flushed-held-by-scans", by_readers),
            beside("memstores-flushed-held-by-answers", in_cells),
            beside("memstores-being-freed", going),
            beside("chunks-ready", pooled),
            part("block-cache", parts.cache.stats().used_bytes, blocks),
            beside("files", self.files_held_bytes()),
            beside("scanners", parts.scanners.held_bytes()),
            beside("nonces", parts.nonces.stats().held_bytes),
            beside("splits-of-wals", parts.logs.split_memory().held_bytes() as u64),
            part("answers-for-repeated-calls", self.kept_answers_bytes.load(Ordering::Relaxed), plan.working),
        ];
        report.extend(self.accounts.all().iter().map(|account| beside(account.name(), account.held_bytes())));
        report.push(part("log", parts.logs.held_bytes(), plan.log));
        report.push(part("working", parts.writers.busy_count() as u64 * WRITER_BYTES, plan.working));
        report
    }

    /// Lets regions forget what they have answered to Increments and Appends: what is too old, and the oldest of each region if all of them
    /// together keep more than they may.
    pub(crate) fn fit_answers(&self) {
        let regions = self.parts.regions.online();
        let kept: Vec<u64> = regions.iter().map(|online| online.region.expire_answers()).collect();
        let (sum, limit) = (kept.iter().sum::<u64>(), self.shares.plan.working);
        self.kept_answers_bytes.store(sum.min(limit), Ordering::Relaxed);
        if sum <= limit {
            return;
        }
        for (online, bytes) in regions.iter().zip(kept) {
            online.region.trim_answers((u128::from(bytes) * u128::from(limit) / u128::from(sum)) as u64);
        }
    }

    /// What blocks may take of what they share with the memstores.
    fn blocks_bytes(&self) -> u64 {
        let plan = &self.shares.plan;
        (plan.memstores + plan.blocks).saturating_sub(self.memstores_bytes.load(Ordering::Relaxed))
    }

    fn files_held_bytes(&self) -> u64 {
        let of_regions: u64 =
            self.parts.regions.online().iter().map(|online| online.region.files_held_bytes()).sum();
        of_regions + self.parts.mob_files.stats().held_bytes
    }

    /// Looks how much the operating system says that the process takes. While that is too much, whatever the ledger
    /// says, memstores and blocks get less; when it is not any more, they get it back little by little.
    pub(crate) fn fit_to_resident(&self) {
        let Some(resident) = halcyon_env::resident_bytes(&*self.parts.local) else { return };
        let cut = self.cut_bytes.load(Ordering::Relaxed);
        let next = next_cut(cut, resident, &self.shares.plan);
        if next != cut {
            self.cut_bytes.store(next, Ordering::Relaxed);
            self.fit_memstores();
            self.fit_cache();
        }
    }

    /// Moves the marks of the memstores to where they are to be.
    pub(crate) fn fit_memstores(&self) {
        let low_share = self.shares.online.in_force().memstore_low_share;
        let (parts, shares) = (&self.parts, &self.shares);
        let planned = self.memstores_bytes.load(Ordering::Relaxed);
        let high = planned.saturating_sub(self.cut_bytes.load(Ordering::Relaxed) / 2).max(planned / 4);
        parts.pressure.set_high(high, (high as f64 * low_share) as u64);
        parts.chunks.set_allocated_max(high as usize);
        let share = shares.chunk_pool_share;
        let share = if high < planned { share.min(READY_PART_WHEN_CUT) } else { share };
        parts.chunks.set_pooled_max((high as f64 * share) as usize);
    }

    /// Leaves the block cache what open files, scanners, nonces, splits of WALs and accounts do not take of their part, at least an
    /// eighth of it.
    pub(crate) fn fit_cache(&self) {
        let blocks = self.blocks_bytes();
        let (scanners, nonces) = (self.parts.scanners.held_bytes(), self.parts.nonces.stats().held_bytes);
        let splits = self.parts.logs.split_memory().held_bytes() as u64;
        let beside = self.files_held_bytes() + scanners + nonces + splits + self.accounts.held_bytes();
        let cut = self.cut_bytes.load(Ordering::Relaxed) / 2;
        let capacity = blocks.saturating_sub(beside + cut).max(blocks / 8);
        let now = self.parts.cache.stats().capacity_bytes;
        // Every change locks every shard once: small ones are not worth it.
        if capacity.abs_diff(now) > blocks / 64 {
            self.parts.cache.resize(capacity);
        }
    }

    /// Moves memory between memstores and blocks if the load wants it elsewhere.
    pub(crate) fn tune(&self) {
        if !self.shares.adapts {
            return;
        }
        let cache = self.parts.cache.stats();
        let needs = Needs {
            memstores: self.parts.pressure.flushes() + self.parts.pressure.held_back().0,
            evicted: cache.evictions_count,
            missed: cache.misses_count,
        };
        let Some(part) = self.tuner.lock().next_memstore_part(needs) else { return };
        let cells = self.shares.plan.memstores + self.shares.plan.blocks;
        let memstores = (cells as f64 * part) as u64;
        self.memstores_bytes.store(memstores, Ordering::Relaxed);
        self.fit_memstores();
        self.fit_cache();
        tracing::info!(memstores, blocks = cells - memstores, "memory divided anew");
    }
}
