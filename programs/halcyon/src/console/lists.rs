//! Lists that are made when they are asked for: tables, regions, memory, procedures and locks, settings.

use std::collections::BTreeMap;
use std::time::Duration;

use halcyon_regionserver::{MemoryPart, OnlineRegion};
use halcyon_settings::Effect;
use serde::{Deserialize, Serialize};

use super::api::{NoParameters, Refused};
use super::keys::KeyTraffic;
use super::keys_text::key_text;
use super::{Console, Role};
use crate::surroundings::Scope;

/// Regions of one answer.
const REGIONS_MAX: usize = 1000;
const REGIONS_DEFAULT: usize = 100;
/// Tables of one answer.
const TABLES_MAX: usize = 1000;

// ---- tables and regions ----

/// Sums over regions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Load {
    files_count: usize,
    file_bytes: u64,
    memstore_bytes: u64,
    reads_count: u64,
    writes_count: u64,
    reads_per_s: f64,
    writes_per_s: f64,
}

impl Load {
    fn of(online: &OnlineRegion, keys: &KeyTraffic) -> Load {
        let (stats, rate) = (online.region.stats(), keys.rate(online.region.info().encoded_name()));
        Load {
            files_count: stats.store_files,
            file_bytes: stats.store_file_bytes,
            memstore_bytes: stats.memstore.data_bytes,
            reads_count: stats.read_requests,
            writes_count: stats.write_requests,
            reads_per_s: rate.reads,
            writes_per_s: rate.writes,
        }
    }

    fn add(&mut self, other: &Load) {
        self.files_count += other.files_count;
        self.file_bytes += other.file_bytes;
        self.memstore_bytes += other.memstore_bytes;
        self.reads_count += other.reads_count;
        self.writes_count += other.writes_count;
        self.reads_per_s += other.reads_per_s;
        self.writes_per_s += other.writes_per_s;
    }
}

#[derive(Debug, Default, Serialize)]
struct Table {
    name: String,
    /// `enabled`, `disabled` ...; of `hbase:meta` always `enabled`.
    state: String,
    families: Vec<String>,
    regions_count: usize,
    #[serde(flatten)]
    load: Load,
}

#[derive(Serialize)]
pub struct Tables {
    /// Of what the tables are: of the cluster, or with open regions at this server.
    scope: Scope,
    /// All tables, those that are left out too.
    count: usize,
    tables: Vec<Table>,
}

pub fn tables(console: &Console, _: Role, _: NoParameters) -> Result<Tables, Refused> {
    let surroundings = &console.sources.surroundings;
    let states = surroundings.table_states().into_iter();
    let mut tables: BTreeMap<String, Table> = states
        .map(|(name, state)| {
            let state = state.to_lowercase();
            (name.clone(), Table { name, state, ..Table::default() })
        })
        .collect();
    for online in console.sources.region_server.regions().online() {
        let load = Load::of(&online, &console.kept.lock().keys);
        let name = online.region.info().table().to_string();
        let table = tables.entry(name.clone()).or_insert_with(|| Table {
            name,
            state: "enabled".to_string(),
            ..Table::default()
        });
        let families = online.region.table().families();
        table.families = families.iter().map(|family| key_text(family.name())).collect();
        table.regions_count += 1;
        table.load.add(&load);
    }
    let count = tables.len();
    Ok(Tables { scope: surroundings.scope(), count, tables: tables.into_values().take(TABLES_MAX).collect() })
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Requests per second, the most first.
    #[default]
    Requests,
    /// Bytes of store files, the largest first.
    Size,
    /// Table and first key.
    Key,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionParameters {
    table: Option<String>,
    #[serde(default)]
    order: Order,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

#[derive(Serialize)]
struct Region {
    table: String,
    name: String,
    start: String,
    end: String,
    #[serde(skip)]
    start_key: Vec<u8>,
    #[serde(flatten)]
    load: Load,
}

#[derive(Serialize)]
pub struct Regions {
    /// All regions that were asked for, those that are left out too.
    count: usize,
    regions: Vec<Region>,
}

pub fn regions(console: &Console, _: Role, parameters: RegionParameters) -> Result<Regions, Refused> {
    let RegionParameters { table, order, limit, offset } = parameters;
    let limit = limit.unwrap_or(REGIONS_DEFAULT);
    if !(1..=REGIONS_MAX).contains(&limit) {
        return Err(Refused::invalid(format!("limit: {limit} is not between 1 and {REGIONS_MAX}")));
    }
    let mut regions = Vec::new();
    for online in console.sources.region_server.regions().online() {
        let info = online.region.info();
        let of = info.table().to_string();
        if table.as_ref().is_none_or(|table| *table == of) {
            let load = Load::of(&online, &console.kept.lock().keys);
            let (start, end) = (key_text(info.start_key()), key_text(info.end_key()));
            let (name, start_key) = (info.encoded_name().to_string(), info.start_key().to_vec());
            regions.push(Region { table: of, name, start, end, start_key, load });
        }
    }
    regions.sort_by(|a, b| (&a.table, &a.start_key).cmp(&(&b.table, &b.start_key)));
    match order {
        Order::Key => {}
        Order::Size => regions.sort_by_key(|region| std::cmp::Reverse(region.load.file_bytes)),
        Order::Requests => {
            let requests = |region: &Region| region.load.reads_per_s + region.load.writes_per_s;
            regions.sort_by(|a, b| requests(b).total_cmp(&requests(a)));
        }
    }
    Ok(Regions { count: regions.len(), regions: regions.into_iter().skip(offset).take(limit).collect() })
}

// ---- memory ----

#[derive(Serialize)]
struct Part {
    name: &'static str,
    held_bytes: u64,
    /// None: it shares the limit of the part above it.
    limit_bytes: Option<u64>,
}

#[derive(Serialize)]
pub struct Memory {
    budget_bytes: u64,
    resident_bytes: Option<u64>,
    parts: Vec<Part>,
}

pub fn memory(console: &Console, _: Role, _: NoParameters) -> Result<Memory, Refused> {
    let sources = &console.sources;
    let part = |MemoryPart { name, held, limit }| Part { name, held_bytes: held, limit_bytes: limit };
    Ok(Memory {
        budget_bytes: sources.region_server.settings().plan().budget,
        resident_bytes: (sources.resident_bytes)(),
        parts: sources.memory().into_iter().map(part).collect(),
    })
}

// ---- procedures and locks ----

#[derive(Serialize)]
struct Procedure {
    id: u64,
    name: &'static str,
    /// Empty: the server itself.
    owner: String,
    submitted_ms: i64,
    age_ms: i64,
    is_failing: bool,
    state: String,
    locks: Vec<String>,
}

/// Who holds what a procedure locks, and who waits for it.
#[derive(Default, Serialize)]
struct Lock {
    resource: String,
    mode: &'static str,
    holders: Vec<u64>,
    waiters: Vec<u64>,
}

#[derive(Serialize)]
pub struct Procedures {
    now_ms: i64,
    procedures: Vec<Procedure>,
    locks: Vec<Lock>,
}

pub fn procedures(console: &Console, _: Role, _: NoParameters) -> Result<Procedures, Refused> {
    let now_ms = console.sources.clock.now_ms();
    let mut locks: BTreeMap<String, Lock> = BTreeMap::new();
    let mut procedures = Vec::new();
    for one in console.sources.surroundings.procedures() {
        for resource in &one.locks {
            let lock = locks.entry(resource.clone()).or_default();
            lock.resource = resource.clone();
            let is_shared = one.shared_locks.contains(resource);
            if one.is_begun {
                lock.mode = if is_shared { "shared" } else { "exclusive" };
                lock.holders.push(one.id);
            } else {
                lock.waiters.push(one.id);
            }
        }
        procedures.push(Procedure {
            id: one.id,
            name: one.name,
            owner: one.owner,
            submitted_ms: one.submitted_ms,
            age_ms: (now_ms - one.submitted_ms).max(0),
            is_failing: one.is_failing,
            state: one.state,
            locks: one.locks,
        });
    }
    Ok(Procedures { now_ms, procedures, locks: locks.into_values().collect() })
}

// ---- slow calls ----

#[derive(Serialize)]
struct SlowCall {
    received_ms: i64,
    took_ms: f64,
    is_slow: bool,
    is_large: bool,
    failed: bool,
    class: &'static str,
    method: String,
    /// Region, row, number of actions.
    param: String,
    /// Escaped; empty if the call has none.
    region: String,
    client: String,
    user: String,
    response_bytes: u64,
    /// Where its time went; the sum is `took_ms`.
    parts: Vec<SlowCallPart>,
    /// Times that it read from disk.
    cache_misses: u64,
    stalls: Vec<SlowCallStall>,
}

#[derive(Serialize)]
struct SlowCallPart {
    part: &'static str,
    ms: f64,
}

/// A stall that ended while the call was under way.
#[derive(Serialize)]
struct SlowCallStall {
    cause: &'static str,
    what: String,
    length_ms: f64,
}

#[derive(Serialize)]
pub struct SlowCalls {
    /// Calls that take as long are slow; `null`: none.
    threshold_ms: Option<u64>,
    /// Answers that are larger are large; `null`: none.
    large_bytes: Option<u64>,
    /// The newest first.
    calls: Vec<SlowCall>,
}

pub fn slow_calls(console: &Console, _: Role, _: NoParameters) -> Result<SlowCalls, Refused> {
    let server = &console.sources.region_server;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let stall = |(cause, what, time): (&'static str, String, Duration)| SlowCallStall {
        cause,
        what,
        length_ms: ms(time),
    };
    let part = |(part, time)| SlowCallPart { part, ms: ms(time) };
    let calls = server.slow_calls().into_iter().map(|call| SlowCall {
        received_ms: call.received_ms,
        took_ms: ms(call.took()),
        is_slow: call.is_slow,
        is_large: call.is_large,
        failed: call.failed,
        class: call.class.name(),
        region: key_text(&call.region),
        response_bytes: call.response_bytes,
        parts: call.parts.named().into_iter().map(part).collect(),
        cache_misses: call.disk_reads,
        stalls: call.stalls.into_iter().map(stall).collect(),
        method: call.method,
        param: call.param,
        client: call.client,
        user: call.user,
    });
    let warn = &server.online_settings().warn;
    let threshold_ms = warn.time.map(|time| time.as_millis() as u64);
    Ok(SlowCalls { threshold_ms, large_bytes: warn.bytes, calls: calls.collect() })
}

// ---- settings ----

#[derive(Serialize)]
struct Setting {
    section: &'static str,
    name: &'static str,
    value: String,
    default: Option<String>,
    unit: &'static str,
    source: &'static str,
    /// In force after `UpdateConfiguration`, without a restart.
    online: bool,
    text: &'static str,
}

#[derive(Serialize)]
pub struct Settings {
    settings: Vec<Setting>,
}

/// What is in force now: the settings of the start, and those that an update has changed since.
pub fn settings(console: &Console, _: Role, _: NoParameters) -> Result<Settings, Refused> {
    let now = console.sources.region_server.online_settings().to_string();
    let now: BTreeMap<&str, &str> = now
        .lines()
        .filter_map(|line| line.split_once(" ="))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let shown = console.sources.shown_settings.iter().map(|shown| {
        let description = &shown.description;
        let updated = now.get(description.name).filter(|value| **value != shown.value);
        Setting {
            section: description.section,
            name: description.name,
            value: updated.map_or_else(|| shown.value.clone(), |value| (*value).to_string()),
            default: description.default.clone(),
            unit: description.unit,
            source: if updated.is_some() { "update at run time" } else { shown.source },
            online: description.effect == Effect::Online,
            text: description.text,
        }
    });
    Ok(Settings { settings: shown.collect() })
}
