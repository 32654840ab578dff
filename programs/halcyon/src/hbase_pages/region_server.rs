//! Beans of the region server, with HBase's names.

use std::collections::BTreeMap;

use halcyon_proto::pb;
use halcyon_region::{MobCounts, RegionStats};
use halcyon_regionserver::{Op, ServerStats, SourceStats, TableTimes};
use halcyon_rpc::{CallClass, RpcStatsSnapshot};
use halcyon_schema::{RegionInfo, TableName};

use super::beans::Bean;
use crate::pages::Sources;

const CONTEXT: &str = "regionserver";
const SERVER: &str = "RegionServer";

/// An open region and its numbers.
pub struct Counted {
    pub info: RegionInfo,
    pub stores: usize,
    pub stats: RegionStats,
    /// Bytes of store files that are on this machine.
    pub local_bytes: u64,
}

impl Counted {
    /// The part of the store files' bytes that is on this machine, for people; empty without store files.
    pub fn locality(&self) -> String {
        match self.stats.store_file_bytes {
            0 => String::new(),
            all => format!("{:.2}", self.local_bytes as f64 / all as f64),
        }
    }
}

/// Every open region, in the order of names.
pub fn regions(sources: &Sources) -> Vec<Counted> {
    let online = sources.region_server.regions().online();
    let host = &sources.region_server.server_name().host;
    let counted = online.iter().map(|online| Counted {
        local_bytes: online.region.store_file_bytes_at(host),
        info: online.region.info().clone(),
        stores: online.region.table().families().len(),
        stats: online.region.stats(),
    });
    let mut regions: Vec<Counted> = counted.collect();
    regions.sort_by(|a, b| a.info.region_name().cmp(b.info.region_name()));
    regions
}

pub fn beans(sources: &Sources) -> Vec<Bean> {
    let (regions, stats) = (regions(sources), sources.region_server.stats());
    let host = sources.region_server.server_name().host.clone();
    let bean = |sub| Bean::of_hbase(SERVER, Some(sub), CONTEXT, &host);
    let names =
        ["Server", "IPC", "WAL", "Memory", "Regions", "Tables", "TableLatencies", "Replication", "Quotas"];
    let mut beans = names.map(bean);
    // HBase's region server says nothing of quotas either.
    let [server, ipc, wal, memory, of_regions, of_tables, latencies, replication, _quotas] = &mut beans;
    server_attributes(server, sources, &regions, &stats);
    ipc_attributes(ipc, sources, "regionserver");
    wal_attributes(wal, &stats);
    memory.gauge("memStoreSize", stats.memstore_bytes, "Size of all memstores in bytes");
    memory.gauge("blockCacheSize", stats.cache.used_bytes, "Size of the block cache in bytes");
    regions.iter().for_each(|region| region_attributes(of_regions, region));
    table_attributes(of_tables, &regions);
    latency_attributes(latencies, sources);
    replication_attributes(replication, sources);
    Vec::from(beans)
}

/// Name, value and help of what is counted of all peers and of each of them.
type SourceCounter = (&'static str, fn(&SourceStats) -> u64, &'static str);
const SOURCE_COUNTERS: [SourceCounter; 9] = [
    ("shippedOps", |it| it.shipped_ops, "WAL entries that were applied"),
    ("logEditsRead", |it| it.read_edits, "WAL entries that were read"),
    ("shippedBatches", |it| it.shipped_batches, "Requests that were applied"),
    ("shippedBytes", |it| it.shipped_bytes, "Bytes of cells that were applied"),
    ("shippedKBs", |it| it.shipped_bytes >> 10, "The same in KiB"),
    ("shippedHFiles", |it| it.shipped_hfiles, "HFiles of bulk loads that were applied"),
    ("failedBatches", |it| it.failed_batches, "Requests that failed"),
    ("logEditsFiltered", |it| it.filtered_edits, "WAL entries that were not to be sent"),
    ("completedLogs", |it| it.completed_wals, "WALs that were sent to their end"),
];

/// What goes to peers, together and for each of them, and what came from other clusters (HBase: `MetricsReplicationSource`).
fn replication_attributes(bean: &mut Bean, sources: &Sources) {
    let server = &sources.region_server;
    let loads = server.server_load().repl_load_source;
    let sum = |value: fn(&pb::ReplicationLoadSource) -> u64| loads.iter().map(value).sum::<u64>();
    bean.gauge(
        "source.sizeOfLogQueue",
        sum(|it| it.size_of_log_queue.into()),
        "WALs of which peers need something",
    );
    for load in &loads {
        let name = |attribute: &str| format!("source.{}.{attribute}", load.queue_id());
        bean.gauge(name("sizeOfLogQueue"), load.size_of_log_queue, "WALs of which the peer needs something");
        let help = "Time in ms between writing and arrival of the last entry that the peer has applied";
        bean.gauge(name("ageOfLastShippedOp"), load.age_of_last_shipped_op, help);
        bean.gauge(
            name("replicationLag"),
            load.replication_lag,
            "How long the oldest entry waits for the peer, in ms",
        );
    }
    let help = "Queues of servers that are gone, which were sent to the end";
    let (completed, of_completed) = server.completed_claims();
    bean.counter("source.completedRecoverQueues", completed, help);
    let stats = server.source_stats();
    for (name, value, help) in SOURCE_COUNTERS {
        let full = format!("source.{name}");
        bean.counter(full, stats.iter().map(value).sum::<u64>() + value(&of_completed), help);
        for source in &stats {
            bean.counter(format!("source.{}.{name}", source.queue_id), value(source), help);
        }
    }
    let help = "HFiles of bulk loads that peers have still to copy";
    bean.gauge("source.sizeOfHFileRefsQueue", stats.iter().map(|it| it.queued_hfiles).sum::<u64>(), help);
    for source in &stats {
        bean.gauge(format!("source.{}.sizeOfHFileRefsQueue", source.queue_id), source.queued_hfiles, help);
    }
    let sink = server.sink_stats();
    bean.counter("sink.appliedHFiles", sink.hfiles, "Files of bulk loads of other clusters that were loaded");
    bean.counter("sink.appliedBatches", sink.batches, "Requests with edits of other clusters");
    bean.counter("sink.appliedOps", sink.ops, "WAL entries of other clusters");
    bean.counter("sink.failedBatches", sink.failed_batches, "Such requests that failed");
}

fn server_attributes(bean: &mut Bean, sources: &Sources, regions: &[Counted], stats: &ServerStats) {
    bean.tag("serverName", &sources.region_server.server_name().to_string());
    bean.tag("clusterId", &sources.cluster_id);
    let sum = |value: fn(&Counted) -> u64| regions.iter().map(value).sum::<u64>();
    let max = |value: fn(&Counted) -> u64| regions.iter().map(value).max().unwrap_or(0);
    let server = &sources.region_server;
    let counters = &server.counters;
    bean.gauge("regionCount", regions.len(), "Number of regions");
    bean.gauge("storeCount", sum(|it| it.stores as u64), "Number of stores");
    bean.gauge("hlogFileCount", stats.wal.files_count, "Number of WAL files");
    bean.gauge("hlogFileSize", stats.wal.files_bytes, "Size of all WAL files in bytes");
    bean.gauge("storeFileCount", sum(|it| it.stats.store_files as u64), "Number of store files");
    bean.gauge("maxStoreFileCount", max(|it| it.stats.files_in_a_store_max as u64), "Most files in a store");
    bean.gauge("storeFileSize", sum(|it| it.stats.store_file_bytes), "Size of the store files in bytes");
    bean.gauge(
        "numReferenceFiles",
        sum(|it| it.stats.references as u64),
        "Files that stand for a part of another",
    );
    bean.gauge("memStoreSize", sum(|it| it.stats.memstore.data_bytes), "Size of the memstores in bytes");
    bean.gauge("averageRegionSize", average_bytes(regions), "Mean of memstores and store files in bytes");
    bean.gauge("storeFileIndexSize", sum(|it| it.stats.root_index_bytes), "Roots of data indexes in memory");
    bean.gauge("staticIndexSize", sum(|it| it.stats.data_index_bytes), "Data indexes before compression");
    bean.gauge("staticBloomSize", sum(|it| it.stats.bloom_bytes), "Bloom filters before compression");
    let (local, all) = (sum(|it| it.local_bytes), sum(|it| it.stats.store_file_bytes));
    let percent = if all == 0 { 0.0 } else { 100.0 * local as f64 / all as f64 }; // 0 of nothing, as in HBase
    bean.gauge("percentFilesLocal", percent, "Part of the store files' bytes that is on this machine");
    let load = server.server_load();
    bean.counter("totalRequestCount", load.total_number_of_requests(), "Requests answered");
    bean.counter("readRequestCount", sum(|it| it.stats.read_requests), "Rows read from open regions");
    let filtered = sum(|it| it.stats.filtered_read_requests);
    bean.counter("filteredReadRequestCount", filtered, "Rows of them that filters left out");
    bean.counter("writeRequestCount", load.write_requests_count(), "Mutations");
    bean.counter("rpcGetRequestCount", counters.gets.get(), "Get calls");
    bean.counter("rpcScanRequestCount", counters.scans.get(), "Scan calls");
    bean.counter("rpcMultiRequestCount", counters.multis.get(), "Multi calls");
    bean.counter("rpcMutateRequestCount", counters.mutations.get(), "Mutate calls");
    bean.counter("blockedRequestCount", stats.refused_count, "Writes refused because memstores stayed full");
    bean.gauge("activeScanners", stats.open_scanners_count, "Open scanners");
    let expired = counters.leases_expired.get();
    bean.counter("scannerLeaseExpiredCount", expired, "Scanners closed because their lease expired");
    bean.gauge("compactionQueueLength", stats.queued_compactions_count, "Regions that wait for a compaction");
    bean.gauge("flushQueueLength", stats.queued_flushes_count, "Regions that wait for a flush");
    bean.counter("FlushTime_num_ops", counters.flushes.get(), "Memstore flushes");
    bean.counter("CompactionTime_num_ops", counters.compactions.get(), "Compactions of store files");
    bean.gauge("regionServerStartTime", sources.started_ms, "When the server started, in ms since 1970");
    for op in Op::ALL {
        let times = sources.region_server.op_times(op);
        bean.times(
            &sources.windows(),
            names(op).0,
            &times,
            "Time of such calls in ms until they are answered",
        );
    }
    cache_attributes(bean, stats);
    mob_attributes(bean, regions, stats);
}

/// Of values in mob files. Counts are those of the regions that are open now, as in HBase.
fn mob_attributes(bean: &mut Bean, regions: &[Counted], stats: &ServerStats) {
    let sum = |value: fn(&MobCounts) -> u64| regions.iter().map(|it| value(&it.stats.mob)).sum::<u64>();
    let to_mob = "Values that compactions brought into mob files";
    bean.counter("cellsCountCompactedToMob", sum(|it| it.compacted_to_mob_cells), to_mob);
    bean.counter("cellsSizeCompactedToMob", sum(|it| it.compacted_to_mob_bytes), "Bytes of them");
    let from_mob = "Values that compactions brought out of mob files";
    bean.counter("cellsCountCompactedFromMob", sum(|it| it.compacted_from_mob_cells), from_mob);
    bean.counter("cellsSizeCompactedFromMob", sum(|it| it.compacted_from_mob_bytes), "Bytes of them");
    bean.counter("mobFlushCount", sum(|it| it.flushes), "Flushes that wrote mob files");
    bean.counter("mobFlushedCellsCount", sum(|it| it.flushed_cells), "Values that they wrote");
    bean.counter("mobFlushedCellsSize", sum(|it| it.flushed_bytes), "Bytes of them");
    bean.counter("mobScanCellsCount", sum(|it| it.scanned_cells), "Values that reads took from mob files");
    bean.counter("mobScanCellsSize", sum(|it| it.scanned_bytes), "Bytes of them");
    let files = &stats.mob_files;
    let hits = files.accesses.saturating_sub(files.misses);
    let percent = if files.accesses == 0 { 0.0 } else { 100.0 * hits as f64 / files.accesses as f64 };
    bean.gauge("mobFileCacheCount", files.files, "Mob files that are kept open");
    bean.counter("mobFileCacheAccessCount", files.accesses, "Times that a mob file was asked for");
    bean.counter("mobFileCacheMissCount", files.misses, "Times of them that it had to be opened");
    bean.counter("mobFileCacheEvictedCount", files.evicted, "Mob files that are kept open no longer");
    bean.gauge("mobFileCacheHitPercent", percent, "Part of the times that it did not have to be opened");
}

/// HBase's names of an operation: of all tables together, and of one.
fn names(op: Op) -> (&'static str, &'static str) {
    match op {
        Op::Get => ("Get", "getTime"),
        Op::Scan => ("ScanTime", "scanTime"),
        Op::Put => ("Put", "putTime"),
        Op::PutBatch => ("PutBatch", "putBatchTime"),
        Op::Delete => ("Delete", "deleteTime"),
        Op::DeleteBatch => ("DeleteBatch", "deleteBatchTime"),
        Op::Increment => ("Increment", "incrementTime"),
        Op::Append => ("Append", "appendTime"),
        Op::CheckAndPut => ("CheckAndPut", "checkAndPutTime"),
        Op::CheckAndDelete => ("CheckAndDelete", "checkAndDeleteTime"),
        Op::CheckAndMutate => ("CheckAndMutate", "checkAndMutateTime"),
    }
}

fn latency_attributes(bean: &mut Bean, sources: &Sources) {
    for TableTimes { table, op, times } in sources.region_server.table_times() {
        let (namespace, qualifier, name) = (table.namespace(), table.qualifier(), names(op).1);
        let name = format!("Namespace_{namespace}_table_{qualifier}_metric_{name}");
        bean.times(&sources.windows(), &name, &times, "");
    }
}

fn cache_attributes(bean: &mut Bean, stats: &ServerStats) {
    let cache = &stats.cache;
    let percent = |hits: u64, misses: u64| match hits + misses {
        0 => 0.0,
        all => 100.0 * hits as f64 / all as f64,
    };
    let free = cache.capacity_bytes.saturating_sub(cache.used_bytes);
    bean.gauge("blockCacheFreeSize", free, "Size of the block cache that is not used, in bytes");
    bean.gauge("blockCacheCount", cache.blocks_count, "Blocks in the block cache");
    bean.gauge("blockCacheSize", cache.used_bytes, "Size of the block cache in bytes");
    bean.counter("blockCacheHitCount", cache.hits_count, "Blocks found in the cache");
    bean.counter("blockCacheMissCount", cache.misses_count, "Blocks not found in the cache");
    bean.counter("blockCacheEvictionCount", cache.evictions_count, "Blocks evicted from the cache");
    let hit_percent = percent(cache.hits_count, cache.misses_count);
    bean.gauge("blockCacheCountHitPercent", hit_percent, "Percent of the blocks that were found");
    bean.gauge("l1CacheSize", cache.used_bytes, "Size of the memory tier in bytes");
    bean.gauge("l1CacheFreeSize", free, "Size of the memory tier that is not used, in bytes");
    bean.gauge("l1CacheCount", cache.blocks_count, "Blocks in the memory tier");
    bean.counter("l1CacheHitCount", cache.hits_count, "Blocks found in the memory tier");
    bean.counter("l1CacheMissCount", cache.misses_count, "Blocks not found in the memory tier");
    bean.counter("l1CacheEvictionCount", cache.evictions_count, "Blocks evicted from the memory tier");
    let tier = cache.file_tier.unwrap_or_default();
    let free = tier.capacity_bytes.saturating_sub(tier.used_bytes);
    bean.gauge("l2CacheSize", tier.used_bytes, "Size of the cache file that is used, in bytes");
    bean.gauge("l2CacheFreeSize", free, "Size of the cache file that is not used, in bytes");
    bean.gauge("l2CacheCount", tier.blocks_count, "Blocks in the cache file");
    bean.counter("l2CacheHitCount", tier.hits_count, "Blocks found in the cache file");
    bean.counter("l2CacheMissCount", tier.misses_count, "Blocks not found in the cache file");
    bean.counter("l2CacheEvictionCount", tier.evictions_count, "Blocks evicted from the cache file");
    let kinds = halcyon_regionserver::READ_KINDS.iter().zip(&cache.reads);
    for (_, reads) in kinds.filter(|(kind, _)| **kind == "bloom") {
        bean.counter("blockCacheBloomChunkHitCount", reads.hits_count, "Blocks of bloom filters found");
        bean.counter(
            "blockCacheBloomChunkMissCount",
            reads.misses_count,
            "Blocks of bloom filters not found",
        );
    }
}

fn average_bytes(regions: &[Counted]) -> u64 {
    let bytes = |it: &Counted| it.stats.store_file_bytes + it.stats.memstore.data_bytes;
    let sum: u64 = regions.iter().map(bytes).sum();
    sum.checked_div(regions.len() as u64).unwrap_or(0)
}

/// Bytes and connections are those of one port; times and queues those of both, which share them.
pub fn ipc_attributes(bean: &mut Bean, sources: &Sources, port: &str) {
    let stats = sources.rpc.iter().find(|(name, _)| *name == port).map(|(_, read)| read());
    let RpcStatsSnapshot { sent_bytes, received_bytes, connections_open, calls_failed, .. } =
        stats.unwrap_or_default();
    bean.counter("sentBytes", sent_bytes, "Bytes sent");
    bean.counter("receivedBytes", received_bytes, "Bytes received");
    bean.gauge("numOpenConnections", connections_open, "Open connections");
    bean.counter("exceptions", calls_failed, "Calls answered with an exception");
    let classes = CallClass::ALL.map(|class| (class, sources.queues.snapshot(class)));
    let refused = classes.iter().map(|(_, held)| held.refused).sum();
    let expired = classes.iter().map(|(_, held)| held.expired).sum();
    bean.counter(
        "exceptions.callQueueTooBig",
        refused,
        "Calls refused because the queue of their class was full",
    );
    bean.counter("exceptions.callTimedOut", expired, "Calls dropped after their client's timeout");
    bean.gauge("queueSize", sources.queues.request_bytes(), "Bytes of requests that wait");
    let general =
        [CallClass::Read, CallClass::Scan, CallClass::Write].map(|class| sources.queues.snapshot(class));
    let general = general.iter().map(|held| held.calls_waiting).sum::<usize>();
    bean.gauge("numCallsInGeneralQueue", general, "Reads, scans and writes that wait for their answer");
    let names = [
        (CallClass::Meta, "numCallsInPriorityQueue"),
        (CallClass::Read, "numCallsInReadQueue"),
        (CallClass::Scan, "numCallsInScanQueue"),
        (CallClass::Write, "numCallsInWriteQueue"),
        (CallClass::Replication, "numCallsInReplicationQueue"),
    ];
    for (class, name) in names {
        let waiting = sources.queues.snapshot(class).calls_waiting;
        bean.gauge(name, waiting, "Calls of this class that wait for their answer");
    }
    let help = "Time of calls from reading the request to handing the answer to the socket, in ms";
    bean.times(&sources.windows(), "TotalCallTime", &all_times(sources), help);
}

/// The times of all classes together: their buckets have the same bounds.
fn all_times(sources: &Sources) -> halcyon_rpc::CallTimesSnapshot {
    let mut classes = CallClass::ALL.into_iter().map(|class| sources.queues.times(class));
    let mut all = classes.next().unwrap_or_default();
    for times in classes {
        all.count += times.count;
        all.sum_seconds += times.sum_seconds;
        for (sum, (_, count)) in all.up_to.iter_mut().zip(&times.up_to) {
            sum.1 += count;
        }
    }
    all
}

fn wal_attributes(bean: &mut Bean, stats: &ServerStats) {
    let wal = &stats.wal;
    bean.counter("appendCount", wal.entries, "Entries appended");
    bean.counter("writtenBytes", wal.bytes, "Bytes of entries");
    bean.counter("successfulLogRolls", wal.rolls, "WAL files begun");
    bean.counter("errorRollRequest", wal.replacements, "WAL files that failed and were replaced by new ones");
    bean.counter(
        "slowSyncRollRequest",
        wal.late_syncs,
        "WAL syncs that were late and were tried in the next file too",
    );
    bean.counter("SyncTime_num_ops", wal.syncs, "WAL syncs");
    let mean_ms = if wal.syncs == 0 { 0.0 } else { wal.sync_ns_total as f64 / 1e6 / wal.syncs as f64 };
    bean.gauge("SyncTime_mean", mean_ms, "Mean time of a sync in ms");
    bean.gauge("SyncTime_max", wal.sync_ns_longest as f64 / 1e6, "Longest sync since the start in ms");
}

fn region_attributes(bean: &mut Bean, region: &Counted) {
    let (table, stats) = (region.info.table(), &region.stats);
    let prefix = format!(
        "Namespace_{}_table_{}_region_{}_metric_",
        table.namespace(),
        table.qualifier(),
        region.info.encoded_name()
    );
    let gauges = [
        ("storeCount", region.stores as u64),
        ("storeFileCount", stats.store_files as u64),
        ("storeRefCount", stats.file_readers as u64),
        ("maxCompactedStoreFileRefCount", 0),
        ("memStoreSize", stats.memstore.data_bytes),
        ("numReferenceFiles", stats.references as u64),
        ("storeFileSize", stats.store_file_bytes),
        ("replicaid", region.info.replica_id().max(0) as u64),
    ];
    for (name, value) in gauges {
        bean.gauge(format!("{prefix}{name}"), value, "");
    }
    let counters = [
        ("readRequestCount", stats.read_requests),
        ("filteredReadRequestCount", stats.filtered_read_requests),
        ("writeRequestCount", stats.write_requests),
    ];
    for (name, value) in counters {
        bean.counter(format!("{prefix}{name}"), value, "");
    }
}

fn table_attributes(bean: &mut Bean, regions: &[Counted]) {
    let mut tables: BTreeMap<&TableName, Vec<&Counted>> = BTreeMap::new();
    for region in regions {
        tables.entry(region.info.table()).or_default().push(region);
    }
    bean.gauge("numTables", tables.len(), "Number of tables in the metrics system");
    for (table, regions) in tables {
        let sum = |value: fn(&Counted) -> u64| regions.iter().map(|region| value(region)).sum::<u64>();
        let prefix = format!("Namespace_{}_table_{}_metric_", table.namespace(), table.qualifier());
        let (memory, files) = (sum(|it| it.stats.memstore.data_bytes), sum(|it| it.stats.store_file_bytes));
        let (reads, writes) = (sum(|it| it.stats.read_requests), sum(|it| it.stats.write_requests));
        for (name, value) in [
            ("regionCount", regions.len() as u64),
            ("storeCount", sum(|it| it.stores as u64)),
            ("storeFileCount", sum(|it| it.stats.store_files as u64)),
            ("memStoreSize", memory),
            ("storeFileSize", files),
            ("tableSize", memory + files),
            ("averageRegionSize", (memory + files) / regions.len() as u64),
            ("numReferenceFiles", sum(|it| it.stats.references as u64)),
            ("staticIndexSize", sum(|it| it.stats.data_index_bytes)),
            ("staticBloomSize", sum(|it| it.stats.bloom_bytes)),
        ] {
            bean.gauge(format!("{prefix}{name}"), value, "");
        }
        for (name, value) in [
            ("readRequestCount", reads),
            ("filteredReadRequestCount", sum(|it| it.stats.filtered_read_requests)),
            ("writeRequestCount", writes),
            ("totalRequestCount", reads + writes),
        ] {
            bean.counter(format!("{prefix}{name}"), value, "");
        }
    }
}
