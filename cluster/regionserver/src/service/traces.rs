//! What a traced call tells: where its time went, as spans with HBase's names, and which region it was for.
//!
//! The times are those of the slow log ([`TimeParts`]). Time without a span of its own is work.

use halcyon_env::Lookups;
use halcyon_rpc::{CallParts, Part};
use opentelemetry::{Array, KeyValue, StringValue, Value};

use crate::calls::asked::name_text;
use crate::calls::slow_calls::SlowCall;
use crate::calls::time_parts::TimeParts;

pub(super) fn parts_of(call: &SlowCall) -> CallParts {
    let TimeParts { queue, memory, lock, disk, wal, .. } = call.parts;
    let reads = vec![KeyValue::new("db.hbase.io.reads_count", number(call.disk_reads))];
    CallParts {
        before: vec![
            Part::new("RpcServer.queue", queue),
            Part::new("MemStoreFlusher.reclaimMemStoreMemory", memory),
        ],
        within: vec![
            Part::new("Region.getRowLock", lock),
            Part { attributes: reads, ..Part::new("HFile.read", disk) },
            Part::new("WAL.sync", wal),
        ],
        attributes: lookup_attributes(call.lookups)
            .into_iter()
            .chain(region_attributes(&call.region))
            .collect(),
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// None of a call that looked for no block.
fn lookup_attributes(Lookups { hits, misses }: Lookups) -> Vec<KeyValue> {
    if hits + misses == 0 {
        return Vec::new();
    }
    vec![
        KeyValue::new("db.hbase.io.block_cache_hits", number(hits)),
        KeyValue::new("db.hbase.io.block_cache_misses", number(misses)),
    ]
}

/// Attributes of HBase's clients: the region, and the table that its name begins with.
fn region_attributes(region: &[u8]) -> Vec<KeyValue> {
    if region.is_empty() {
        return Vec::new();
    }
    let table = region.split(|byte| *byte == b',').next().unwrap_or_default();
    let names = vec![StringValue::from(name_text(region))];
    vec![
        KeyValue::new("db.system", "hbase"),
        KeyValue::new("db.hbase.regions", Value::Array(Array::String(names))),
        KeyValue::new("db.hbase.table", name_text(table)),
    ]
}
