//! One vocabulary for the metrics of Halcyon (`/metrics`, OpenMetrics text) and HBase (`/jmx`, JSON).

use std::collections::BTreeMap;

use serde_json::Value;

/// What is read of a server. Counters grow; levels are as of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    // counters
    CacheHits,
    CacheMisses,
    CacheEvictions,
    WalSyncs,
    WalSyncSeconds,
    WritesHeldBack,
    UpdatesBlockedMs,
    CallsRefused,
    SingleCalls,
    BatchCalls,
    // levels
    CacheCapacityBytes,
    CacheUsedBytes,
    CompactionsQueued,
    HandlersBusy,
    HandlersMax,
    CallsQueued,
    WalSyncMeanMs,
}

use Reading::*;

pub type Readings = BTreeMap<Reading, f64>;

/// Series of Halcyon. Samples of one name are added up over their labels.
const SERIES: &[(&str, Reading)] = &[
    ("halcyon_block_cache_hits_total", CacheHits),
    ("halcyon_block_cache_misses_total", CacheMisses),
    ("halcyon_block_cache_evictions_total", CacheEvictions),
    ("halcyon_block_cache_capacity_bytes", CacheCapacityBytes),
    ("halcyon_block_cache_used_bytes", CacheUsedBytes),
    ("halcyon_wal_syncs_total", WalSyncs),
    ("halcyon_wal_sync_seconds_total", WalSyncSeconds),
    ("halcyon_regionserver_writes_held_back_total", WritesHeldBack),
    ("halcyon_regionserver_compactions_queued", CompactionsQueued),
    ("halcyon_rpc_calls_refused_full_total", CallsRefused),
    ("halcyon_regionserver_gets_total", SingleCalls),
    ("halcyon_regionserver_mutations_total", SingleCalls),
    ("halcyon_regionserver_multis_total", BatchCalls),
];

/// Attributes of HBase's beans: the bean's `sub`, the attribute, the reading. `Batch` calls carry many rows each.
const ATTRIBUTES: &[(&str, &str, Reading)] = &[
    ("Server", "blockCacheHitCount", CacheHits),
    ("Server", "blockCacheMissCount", CacheMisses),
    ("Server", "blockCacheEvictionCount", CacheEvictions),
    ("Server", "blockCacheSize", CacheUsedBytes),
    ("Server", "updatesBlockedTime", UpdatesBlockedMs),
    ("Server", "compactionQueueLength", CompactionsQueued),
    ("Server", "Get_num_ops", SingleCalls),
    ("Server", "Put_num_ops", SingleCalls),
    ("Server", "Delete_num_ops", SingleCalls),
    ("Server", "PutBatch_num_ops", BatchCalls),
    ("Server", "DeleteBatch_num_ops", BatchCalls),
    ("IPC", "numActiveHandler", HandlersBusy),
    ("IPC", "numCallsInGeneralQueue", CallsQueued),
    ("IPC", "exceptions.callQueueTooBig", CallsRefused),
    ("WAL", "SyncTime_num_ops", WalSyncs),
    ("WAL", "SyncTime_mean", WalSyncMeanMs),
];

/// Reads `/metrics`. Lines that are not understood do not count.
pub fn of_open_metrics(text: &str) -> Readings {
    let mut readings = Readings::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', '{']).next().unwrap_or_default();
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        let Some(value) = value.filter(|value| value.is_finite()) else { continue };
        for (_, reading) in SERIES.iter().filter(|(series, _)| *series == name) {
            *readings.entry(*reading).or_default() += value;
        }
    }
    readings
}

/// Reads `/jmx`. `None` if it is not what HBase answers.
pub fn of_jmx(text: &str) -> Option<Readings> {
    let parsed: Value = serde_json::from_str(text).ok()?;
    let beans = parsed.get("beans")?.as_array()?;
    let mut readings = Readings::new();
    for bean in beans {
        let name = bean.get("name").and_then(Value::as_str).unwrap_or_default();
        for (sub, attribute, reading) in ATTRIBUTES {
            let is_bean = name.strip_prefix("Hadoop:service=HBase,name=RegionServer,sub=") == Some(sub);
            if let Some(value) = is_bean.then(|| bean.get(attribute)?.as_f64()).flatten() {
                *readings.entry(*reading).or_default() += value;
            }
        }
        if name.ends_with("name=RegionServer,sub=Server")
            && let Some(free) = bean.get("blockCacheFreeSize").and_then(Value::as_f64)
            && let Some(used) = readings.get(&CacheUsedBytes)
        {
            readings.insert(CacheCapacityBytes, used + free);
        }
    }
    Some(readings)
}

/// The number of handlers, from HBase's `/conf?format=json`.
pub fn handlers_of_conf(text: &str) -> Option<f64> {
    let parsed: Value = serde_json::from_str(text).ok()?;
    let mut properties = parsed.get("properties")?.as_array()?.iter();
    let handlers = properties.find(|one| one["key"] == "hbase.regionserver.handler.count")?;
    handlers.get("value")?.as_str()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_are_added_up_over_labels() {
        let text = "# HELP halcyon_rpc_calls_refused_full Calls.\n# TYPE x counter\n\
                    halcyon_rpc_calls_refused_full_total{class=\"read\"} 3\n\
                    halcyon_rpc_calls_refused_full_total{class=\"a } b\"} 4\n\
                    halcyon_block_cache_hits_total 17\nhalcyon_block_cache_hits_totals 1\n\
                    halcyon_regionserver_gets_total 5\nhalcyon_regionserver_mutations_total 6\n\
                    halcyon_wal_sync_seconds_total 0.25\nhalcyon_wal_syncs_total NaN\nnonsense\n\n# EOF\n";
        let expected = [(CacheHits, 17.0), (WalSyncSeconds, 0.25), (CallsRefused, 7.0), (SingleCalls, 11.0)];
        assert_eq!(of_open_metrics(text), Readings::from(expected));
        assert_eq!(of_open_metrics("<html>"), Readings::new());
    }

    #[test]
    fn beans_of_hbase_are_understood() {
        let text = r#"{"beans": [
            {"name": "Hadoop:service=HBase,name=RegionServer,sub=Server", "blockCacheHitCount": 90,
             "blockCacheMissCount": 10, "blockCacheSize": 600, "blockCacheFreeSize": 400, "Get_num_ops": 5,
             "Put_num_ops": 6, "PutBatch_num_ops": 7, "updatesBlockedTime": 1200},
            {"name": "Hadoop:service=HBase,name=RegionServer,sub=IPC", "numActiveHandler": 30,
             "numCallsInGeneralQueue": 12, "exceptions.callQueueTooBig": 2},
            {"name": "Hadoop:service=HBase,name=RegionServer,sub=WAL", "SyncTime_num_ops": 4, "SyncTime_mean": 12.5},
            {"name": "Hadoop:service=HBase,name=Master,sub=Server", "blockCacheHitCount": 1000},
            {"no name": 1}
        ]}"#;
        let readings = of_jmx(text).unwrap();
        let expected = [
            (CacheHits, 90.0),
            (CacheMisses, 10.0),
            (CacheUsedBytes, 600.0),
            (CacheCapacityBytes, 1000.0),
            (UpdatesBlockedMs, 1200.0),
            (SingleCalls, 11.0),
            (BatchCalls, 7.0),
            (HandlersBusy, 30.0),
            (CallsQueued, 12.0),
            (CallsRefused, 2.0),
            (WalSyncs, 4.0),
            (WalSyncMeanMs, 12.5),
        ];
        assert_eq!(readings, Readings::from(expected));
        for other in ["", "{}", "[]", "{\"beans\": 3}", "There is no such page."] {
            assert_eq!(of_jmx(other), None, "{other}");
        }
    }

    #[test]
    fn handlers_are_a_setting() {
        let text = r#"{"properties": [{"key": "a", "value": "1"},
            {"key": "hbase.regionserver.handler.count", "value": "30", "isFinal": false}]}"#;
        assert_eq!(handlers_of_conf(text), Some(30.0));
        for other in ["", "{}", "{\"properties\": [{\"key\": \"hbase.regionserver.handler.count\"}]}"] {
            assert_eq!(handlers_of_conf(other), None);
        }
    }
}
