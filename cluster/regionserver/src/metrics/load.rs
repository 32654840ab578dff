//! A server's and its regions' numbers in the form that the master and `ClusterMetrics` want.

use std::sync::atomic::Ordering;

use halcyon_cache::CacheStats;
use halcyon_proto::pb;
use halcyon_proto::pb::region_load::CompactionState;
use halcyon_region::{MobCacheStats, Region, RegionStats};
use halcyon_rpc::{CallClass, CallTimesSnapshot};
use halcyon_wal::WalStats;

use crate::RegionServer;
use crate::calls::nonces::NonceStats;
use crate::metrics::op_times::{Op, TableTimes};
use crate::regions::region_table::OnlineRegion;
use crate::replication::{SinkStats, SourceStats};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Tasks that a server tells of at most (HBase: `hbase.taskmonitor.max.tasks`).
const TASKS_MAX: usize = 1000;

/// What is queued and held at this moment, for the console.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStats {
    pub regions_count: usize,
    pub open_scanners_count: usize,
    pub queued_flushes_count: usize,
    pub queued_compactions_count: usize,
    /// Calls that wait for a thread that may wait for the disk.
    pub waiting_calls_count: usize,
    pub memstore_bytes: u64,
    /// Writers are held back from here on.
    pub memstore_high_bytes: u64,
    /// Writers held back since start, and those of them that were refused.
    pub held_back_count: u64,
    pub refused_count: u64,
    pub nonces: NonceStats,
    pub cache: CacheStats,
    pub mob_files: MobCacheStats,
    /// Of the tables' log.
    pub wal: WalStats,
}

impl RegionServer {
    pub fn stats(&self) -> ServerStats {
        let (held_back_count, refused_count) = self.pressure.held_back();
        ServerStats {
            regions_count: self.regions.online().len(),
            open_scanners_count: self.scanners.open_count(),
            queued_flushes_count: self.background.flusher.queued_count(),
            queued_compactions_count: self.background.compactions.queued_count(),
            waiting_calls_count: CallClass::ALL.iter().map(|class| self.pool.waiting_count(*class)).sum(),
            memstore_bytes: self.pressure.used_bytes(),
            memstore_high_bytes: self.pressure.high_bytes(),
            held_back_count,
            refused_count,
            nonces: self.nonces.stats(),
            cache: self.resources.cache.stats(),
            mob_files: self.resources.mob_files.stats(),
            wal: self.logs.tables().stats(),
        }
    }

    /// How long all operations of one kind took.
    pub fn op_times(&self, op: Op) -> CallTimesSnapshot {
        self.op_times.of_all_tables(op)
    }

    /// How long the operations on each table took that has open regions here.
    pub fn table_times(&self) -> Vec<TableTimes> {
        self.op_times.by_table()
    }

    /// The longest WAL sync since the last call of this, in nanoseconds. For the console, which asks each second.
    pub fn take_wal_sync_longest_ns(&self) -> u64 {
        self.logs.tables().take_sync_longest_ns()
    }

    /// What was sent to each peer.
    pub fn source_stats(&self) -> Vec<SourceStats> {
        self.sources.stats()
    }

    /// Replication queues of servers that are gone, which were sent to the end since start: how many, and what was sent of them. It is
    /// not among `source_stats`.
    pub fn completed_claims(&self) -> (u64, SourceStats) {
        self.sources.completed_claims()
    }

    /// What came from other clusters since start.
    pub fn sink_stats(&self) -> SinkStats {
        self.sink.stats()
    }

    /// By how much clients with `hbase.client.backpressure.enabled` slow down (HBase: `HRegion.getLoadStatistics`). Numbers are
    /// percentages; where HBase says how full the heap is, this says how much of the memory budget is in use.
    pub(crate) fn region_statistics(&self, region: &Region) -> pb::RegionLoadStats {
        let percent = |part: u64, whole: u64| (part.saturating_mul(100) / whole.max(1)).min(100) as i32;
        let used_bytes =
            self.resources.chunks.allocated_bytes() as u64 + self.resources.cache.stats().used_bytes;
        pb::RegionLoadStats {
            mem_store_load: Some(percent(region.memstore_size().heap_bytes, region.flush_size_bytes())),
            heap_occupancy: Some(percent(used_bytes, self.settings.memory_bytes)),
            compaction_pressure: Some(self.background.compactions.pressure_percent() as i32),
        }
    }

    /// The load of the server and of every region on it.
    pub fn server_load(&self) -> pb::ServerLoad {
        let region_loads: Vec<pb::RegionLoad> =
            self.regions.online().iter().map(|online| self.region_load(online)).collect();
        let writes = region_loads.iter().map(|load| load.write_requests_count()).sum::<u64>();
        let counted_bytes =
            || self.resources.chunks.allocated_bytes() as u64 + self.resources.cache.stats().used_bytes;
        let used_bytes = halcyon_env::resident_bytes(&*self.env.local).unwrap_or_else(counted_bytes);
        let rate = self.request_rate.get();
        pb::ServerLoad {
            number_of_requests: Some(rate.per_second),
            total_number_of_requests: Some(self.counters.requests()),
            used_heap_mb: Some(whole_mib(used_bytes)),
            max_heap_mb: Some(whole_mib(self.settings.memory_bytes)),
            region_loads,
            report_start_time: Some(rate.since_ms.max(0) as u64),
            report_end_time: Some(self.env.clock.now_ms().max(0) as u64),
            info_server_port: Some(self.info_port()),
            write_requests_count: Some(writes + self.counters.closed_writes.get()),
            repl_load_source: self.sources.loads(),
            repl_load_sink: Some(self.sink.load()),
            user_loads: self.user_loads.to_pb(),
            tasks: self.tasks(),
            ..Default::default()
        }
    }

    /// What the server is doing (HBase: `TaskMonitor`): regions that it opens, flushes and compacts.
    fn tasks(&self) -> Vec<pb::ServerTask> {
        let (now_ms, now_ns) = (self.env.clock.now_ms(), self.env.clock.monotonic_ns());
        let openings = self.regions.openings().into_iter().map(|(encoded, began_ns)| {
            let age_ms = i64::try_from(now_ns.saturating_sub(began_ns) / 1_000_000).unwrap_or(i64::MAX);
            task(format!("Opening region {encoded}"), String::new(), now_ms.checked_sub(age_ms))
        });
        let online = self.regions.online();
        let of_online = online.iter().flat_map(|online| {
            let (region, stats) = (&online.region, online.region.stats());
            let compacts = stats.major_compactions_running + stats.minor_compactions_running > 0;
            let cells = format!("{} of {} cells", stats.compacted_cells, stats.compacting_cells);
            let flushing =
                region.is_flushing().then(|| (format!("Flushing {}", region.info()), String::new()));
            let compacting = compacts.then(|| (format!("Compacting {}", region.info()), cells));
            flushing.into_iter().chain(compacting).map(|(what, status)| task(what, status, None))
        });
        openings.chain(of_online).take(TASKS_MAX).collect()
    }

    /// The load of one region.
    pub(crate) fn region_load(&self, online: &OnlineRegion) -> pb::RegionLoad {
        region_load(online, &self.name.host)
    }
}

fn task(description: String, status: String, start_ms: Option<i64>) -> pb::ServerTask {
    let start_time = start_ms.and_then(|start_ms| u64::try_from(start_ms).ok());
    let state = pb::server_task::State::Running as i32;
    pb::ServerTask { description, status, state, start_time, completion_time: None }
}

fn region_load(online: &OnlineRegion, host: &str) -> pb::RegionLoad {
    let stats = online.region.stats();
    let local_bytes = online.region.store_file_bytes_at(host).min(stats.store_file_bytes);
    let info = online.region.info();
    let name = pb::region_specifier::RegionSpecifierType::RegionName as i32;
    // Whoever splits a WAL leaves out all edits up to there, of each family. So what the family with the oldest files has counts.
    let flushed_by_all = stats.flushed_seqs.iter().map(|(_, seq)| seq.get()).min().unwrap_or(0);
    let per_store = stats
        .flushed_seqs
        .iter()
        .map(|(family, seq)| pb::StoreSequenceId { family_name: family.clone(), sequence_id: seq.get() });
    pb::RegionLoad {
        region_specifier: pb::RegionSpecifier { r#type: name, value: info.region_name().clone() },
        stores: Some(online.region.table().families().len() as u32),
        storefiles: Some(stats.store_files as u32),
        store_uncompressed_size_mb: Some(whole_mib(stats.uncompressed_bytes)),
        storefile_size_mb: Some(whole_mib(stats.store_file_bytes)),
        mem_store_size_mb: Some(whole_mib(stats.memstore.data_bytes)),
        read_requests_count: Some(stats.read_requests),
        write_requests_count: Some(stats.write_requests),
        filtered_read_requests_count: Some(stats.filtered_read_requests),
        total_compacting_k_vs: Some(stats.compacting_cells),
        current_compacted_k_vs: Some(stats.compacted_cells),
        // HBase gives the roots' size for both.
        storefile_index_size_kb: Some(whole_kib(stats.root_index_bytes)),
        root_index_size_kb: Some(narrow(whole_kib(stats.root_index_bytes))),
        total_static_index_size_kb: Some(narrow(whole_kib(stats.data_index_bytes))),
        total_static_bloom_size_kb: Some(narrow(whole_kib(stats.bloom_bytes))),
        store_ref_count: Some(i32::try_from(stats.file_readers).unwrap_or(i32::MAX)),
        // Compacted files are archived at once: none waits in the store for its readers.
        max_compacted_store_file_ref_count: Some(0),
        cp_requests_count: Some(online.endpoint_calls_count.load(Ordering::Relaxed)),
        complete_sequence_id: Some(flushed_by_all),
        data_locality: Some(share(local_bytes, stats.store_file_bytes)),
        blocks_local_weight: Some(local_bytes),
        blocks_total_weight: Some(stats.store_file_bytes),
        last_major_compaction_ts: Some(stats.last_major_compaction_ms.max(0) as u64),
        compaction_state: Some(compaction_state(online, &stats) as i32),
        region_size_mb: Some(whole_mib(stats.store_file_bytes)),
        store_complete_sequence_id: per_store.collect(),
        ..Default::default()
    }
}

/// What is being compacted, is about to be, and what an administrator asked to be.
pub(crate) fn compaction_state(online: &OnlineRegion, stats: &RegionStats) -> CompactionState {
    // Between the queue and the region's own count, and after it, it must not look as if it were done, or of another kind.
    // The order is that in which a compaction goes through them. A minor one that is asked for while one runs stays asked for until the one
    // before has left the queue.
    let major_asked = online.major_asked.load(Ordering::Acquire);
    let asked = online.compaction_asked.load(Ordering::Acquire);
    let queued = online.compaction_queued.load(Ordering::Acquire);
    let major_begun = queued && online.major_begun.load(Ordering::Acquire);
    let major = major_asked || major_begun || stats.major_compactions_running > 0;
    let begins = queued && !major;
    let minor = stats.minor_compactions_running > 0 || asked || begins;
    match (minor, major) {
        (false, false) => CompactionState::None,
        (true, false) => CompactionState::Minor,
        (false, true) => CompactionState::Major,
        (true, true) => CompactionState::MajorAndMinor,
    }
}

/// Whether a compaction runs or was asked for.
pub(crate) fn is_compacting(online: &OnlineRegion) -> bool {
    compaction_state(online, &online.region.stats()) != CompactionState::None
}

/// 0 of nothing, as in HBase (`HDFSBlocksDistribution.getBlockLocalityIndex`).
fn share(part: u64, whole: u64) -> f32 {
    if whole == 0 { 0.0 } else { part as f32 / whole as f32 }
}

/// KiB, where anything that is not nothing is at least one.
fn whole_kib(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { (bytes / KIB).max(1) }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// MiB, where anything that is not nothing is at least one.
fn whole_mib(bytes: u64) -> u32 {
    match bytes {
        0 => 0,
        bytes => u32::try_from(bytes / MIB).unwrap_or(u32::MAX).max(1),
    }
}
