//! Random scripts over a running server and the oracle: every read must agree, through flushes, compactions,
//! stops and kills of the process.
//!
//! Reads and writes choose among the ways in which clients do them: Mutate or Multi, cells in the cell block or in
//! the message, Get, Multi or Scan with any number of rows, small results, parts of rows, the limit of rows kept
//! here or there. Many tables have several regions, and a scan goes from one to the next as a client does. Regions
//! are split and merged before flushes, and while the server is killed.
//!
//! `HALCYON_SEEDS` sets how many scripts are tried, `HALCYON_SEED` chooses one.

#[path = "../common/mod.rs"]
mod common;
mod regions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{Client, Server, fresh_dir, site, specifier};
use halcyon_cell::{Cell, CellType, TagType, append_tag};
use halcyon_client::ConnectOptions;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::{
    ColumnValue, DeleteType, MutationType, column_value::QualifierValue,
};
use halcyon_rpc::Codec;
use halcyon_schema::RegionInfo;
use halcyon_testkit::{
    Engine, FamilyOptions, KeepDeletedCells, MajorRows, Oracle, OracleScan, Random, Script, Step, TimeRange,
    minimize, run_script,
};
use tokio::runtime::Runtime;

const COMMAND: &str = "cargo test -p halcyon --test oracle";
/// A server's clock is the real one. Scripts are moved from 1970 into the past of it that no time to live
/// reaches: cells of 2025, kept for thirty years.
const MOVED_MS: i64 = 1_760_000_000_000;
const TTL_MS: i64 = 30 * 365 * 24 * 3_600_000;
/// Where tables of several regions are split; between, at and below rows of the scripts.
const SPLITS: [&[u8]; 2] = [b"b\0", b"d"];

// ---- scripts ----

fn for_a_server(mut script: Script) -> Script {
    script.start_ms += MOVED_MS;
    for family in &mut script.families {
        family.ttl_ms = family.ttl_ms.map(|_| TTL_MS);
    }
    script.steps.retain(|step| !matches!(step, Step::Advance(_)));
    for step in &mut script.steps {
        match step {
            Step::Write(cells) => cells.iter_mut().for_each(|cell| *cell = moved(cell)),
            Step::Read(scan) => {
                scan.time_range = moved_range(scan.time_range);
                scan.family_time_ranges.values_mut().for_each(|range| *range = moved_range(*range));
            }
            _ => {}
        }
    }
    script
}

fn moved(cell: &Cell) -> Cell {
    let mut tags = Vec::new();
    if !cell.tags().is_empty() {
        append_tag(&mut tags, TagType::TTL, &TTL_MS.to_be_bytes());
    }
    let timestamp = cell.timestamp() + MOVED_MS;
    let (family, qualifier) = (cell.family(), cell.qualifier());
    Cell::build(cell.row(), family, qualifier, timestamp, cell.cell_type(), cell.value(), &tags, 0)
}

fn moved_range(range: TimeRange) -> TimeRange {
    let to = |end: i64| if end == 0 || end == i64::MAX { end } else { end + MOVED_MS };
    TimeRange { min: to(range.min), max: to(range.max) }
}

// ---- the server, one for all scripts ----

/// What scripts share. The server is `None` only while it starts again.
struct Lab {
    runtime: Runtime,
    data: PathBuf,
    config: PathBuf,
    server: Option<Server>,
    client: Option<Client>,
    tables: usize,
}

impl Lab {
    fn new() -> Lab {
        let data = fresh_dir("oracle");
        let config = site(
            &data,
            &[
                // Compactions happen when a script says so: only then the oracle knows.
                ("hbase.hstore.compaction.min", "100000"),
                ("hbase.hstore.blockingStoreFiles", "100000"),
                ("hbase.hregion.majorcompaction", "0"),
                ("hbase.regionserver.compaction.enabled", "false"),
            ],
        );
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let mut lab = Lab { runtime: runtime.unwrap(), data, config, server: None, client: None, tables: 0 };
        lab.start();
        lab
    }

    fn start(&mut self) {
        let server = Server::start(&self.data, &["--config", self.config.to_str().unwrap()]);
        let options =
            ConnectOptions { codec: Some(Codec::KeyValueWithTags), ..ConnectOptions::new("ClientService") };
        self.client = Some(self.runtime.block_on(Client::with(&server, &options)));
        self.server = Some(server);
    }

    fn server(&mut self) -> Server {
        self.client = None;
        self.server.take().expect("it runs between the steps")
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it runs between the steps")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.client = None;
        self.server = None;
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.data);
            let _ = std::fs::remove_dir_all(&self.config);
        }
    }
}

// ---- the engine: one table ----

struct ServerEngine {
    lab: Arc<Mutex<Lab>>,
    random: Random,
    table: String,
    /// Whether regions may be split and merged.
    reshapes: bool,
    regions: Vec<RegionInfo>,
}

fn schema(options: &FamilyOptions) -> pb::ColumnFamilySchema {
    let keep = match options.keep_deleted_cells {
        KeepDeletedCells::False => "FALSE",
        KeepDeletedCells::True => "TRUE",
        KeepDeletedCells::Ttl => "TTL",
    };
    let mut attributes = vec![
        ("VERSIONS", options.versions_max.to_string()),
        ("MIN_VERSIONS", options.min_versions.to_string()),
        ("KEEP_DELETED_CELLS", keep.to_string()),
        ("NEW_VERSION_BEHAVIOR", options.new_version_behavior.to_string()),
        ("BLOCKSIZE", "256".to_string()),
        ("BLOOMFILTER", if options.versions_max.is_multiple_of(2) { "ROWCOL" } else { "ROW" }.to_string()),
    ];
    if let Some(ttl_ms) = options.ttl_ms {
        attributes.push(("TTL", (ttl_ms / 1000).to_string()));
    }
    let attributes = attributes
        .into_iter()
        .map(|(name, value)| pb::BytesBytesPair { first: Bytes::from(name), second: Bytes::from(value) });
    let name = Bytes::from(options.name.clone());
    pb::ColumnFamilySchema { name, attributes: attributes.collect(), ..Default::default() }
}

impl ServerEngine {
    fn new(lab: &Arc<Mutex<Lab>>, seed: u64, families: &[FamilyOptions]) -> ServerEngine {
        let mut random = Random::new(!seed);
        let mut here = lab.lock().unwrap();
        here.tables += 1;
        let name = format!("t{}", here.tables);
        // Kept delete markers leave with the earliest put of their store, which the oracle takes for the table's.
        let keeps = families.iter().any(|family| family.keep_deleted_cells != KeepDeletedCells::False);
        let splits = if keeps || random.one_in(4) { &[] } else { &SPLITS[..] };
        let families = families.iter().map(schema).collect();
        let regions = here.runtime.block_on(here.client().create_table(&name, families, splits));
        assert_eq!(regions.len(), splits.len() + 1);
        drop(here);
        ServerEngine { lab: Arc::clone(lab), random, table: name, reshapes: !keeps, regions }
    }

    fn region_of(&self, row: &[u8]) -> &RegionInfo {
        let after = self.regions.partition_point(|region| &region.start_key()[..] <= row);
        &self.regions[after - 1]
    }
}

/// A server that carries the tables of all scripts would take ever longer to start.
impl Drop for ServerEngine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let lab = self.lab.lock().unwrap();
        let Some(client) = &lab.client else { return };
        lab.runtime.block_on(client.drop_table(&self.table));
    }
}

fn kind_of(cell: &Cell) -> MutationType {
    if cell.cell_type() == CellType::Put { MutationType::Put } else { MutationType::Delete }
}

/// A mutation of one kind, its cells behind it in the cell block.
fn block_mutation(cells: &[Cell]) -> pb::MutationProto {
    pb::MutationProto { mutate_type: Some(kind_of(&cells[0]) as i32), ..common::put(cells.len()) }
}

/// The same with the cells in the message, as older clients write.
fn inline_mutation(cells: &[Cell]) -> pb::MutationProto {
    let mut column_value: Vec<ColumnValue> = Vec::new();
    for cell in cells {
        let delete_type = match cell.cell_type() {
            CellType::Delete => Some(DeleteType::DeleteOneVersion),
            CellType::DeleteColumn => Some(DeleteType::DeleteMultipleVersions),
            CellType::DeleteFamily => Some(DeleteType::DeleteFamily),
            CellType::DeleteFamilyVersion => Some(DeleteType::DeleteFamilyVersion),
            _ => None,
        };
        let value = QualifierValue {
            qualifier: Some(Bytes::copy_from_slice(cell.qualifier())),
            value: Some(Bytes::copy_from_slice(cell.value())),
            timestamp: Some(cell.timestamp() as u64),
            delete_type: delete_type.map(|it| it as i32),
            tags: (!cell.tags().is_empty()).then(|| Bytes::copy_from_slice(cell.tags())),
        };
        let family = Bytes::copy_from_slice(cell.family());
        match column_value.iter_mut().find(|column| column.family == family) {
            Some(column) => column.qualifier_value.push(value),
            None => column_value.push(ColumnValue { family, qualifier_value: vec![value] }),
        }
    }
    let row = Some(Bytes::copy_from_slice(cells[0].row()));
    pb::MutationProto { row, column_value, associated_cell_count: None, ..block_mutation(cells) }
}

impl Engine for ServerEngine {
    fn set_now_ms(&mut self, _now_ms: i64) {}

    fn apply(&mut self, cells: &[Cell]) -> Result<(), String> {
        // A mutation has one kind; a row that gets both in one go is an atomic Multi.
        let (puts, deletes): (Vec<Cell>, Vec<Cell>) =
            cells.iter().cloned().partition(|cell| kind_of(cell) == MutationType::Put);
        let parts: Vec<&[Cell]> = [&puts[..], &deletes].into_iter().filter(|part| !part.is_empty()).collect();
        let inline = self.random.one_in(3);
        let make = |part: &[Cell]| if inline { inline_mutation(part) } else { block_mutation(part) };
        let block: Vec<Cell> = if inline { Vec::new() } else { parts.concat() };
        let region = self.region_of(cells[0].row());
        let multi = parts.len() > 1 || self.random.clone().one_in(2);
        let lab = self.lab.lock().unwrap();
        let client = lab.client();
        let done = if multi {
            let action = parts
                .iter()
                .enumerate()
                .map(|(index, part)| pb::Action::of_mutation(index as u32, make(part)));
            let region_action = pb::RegionAction {
                region: specifier(region),
                atomic: (parts.len() > 1).then_some(true),
                action: action.collect(),
                condition: None,
            };
            let request = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
            let answer = lab.runtime.block_on(client.call("Multi", &request, &block));
            answer.map(|answer| all_well(&common::decoded(&answer)))
        } else {
            lab.runtime.block_on(client.mutate(region, make(parts[0]), &block)).map(|_| Ok(()))
        };
        done.map_err(|error| error.to_string())?
    }

    fn scan(&mut self, scan: &OracleScan) -> Result<Vec<Vec<Cell>>, String> {
        let lab = Arc::clone(&self.lab);
        let lab = lab.lock().unwrap();
        if scan.is_get() && scan.batch.is_none() {
            let cells = lab.runtime.block_on(self.get(lab.client(), scan))?;
            return Ok(if cells.is_empty() { Vec::new() } else { vec![cells] });
        }
        lab.runtime.block_on(self.scan_regions(lab.client(), scan))
    }

    fn flush(&mut self) -> Result<(), String> {
        let lab = Arc::clone(&self.lab);
        let lab = lab.lock().unwrap();
        if self.reshapes && self.random.one_in(2) {
            lab.runtime.block_on(self.reshape(lab.client()))?;
        }
        for region in &self.regions {
            lab.runtime.block_on(lab.client().flush(region)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn compact(&mut self, major: bool) -> Result<Vec<MajorRows>, String> {
        let lab = self.lab.lock().unwrap();
        let compact = |major: bool| -> Result<(), String> {
            lab.runtime.block_on(lab.client().switch_compactions(true));
            for region in &self.regions {
                let done = lab.runtime.block_on(lab.client().compact(region, major));
                done.map_err(|error| error.to_string())?;
            }
            lab.runtime.block_on(lab.client().switch_compactions(false));
            Ok(())
        };
        let files = || -> Vec<PathBuf> {
            let of = |region| lab.runtime.block_on(lab.client().store_files(region)).unwrap();
            self.regions.iter().flat_map(of).collect()
        };
        let before = files();
        compact(major)?;
        if major || !some_store_is_new(&before, &files()) {
            return Ok(if major { vec![MajorRows::ALL] } else { Vec::new() });
        }
        // One family's selection held all its files, but nobody here knows which.
        compact(true)?;
        Ok(vec![MajorRows::ALL])
    }

    fn reopen(&mut self) -> Result<(), String> {
        let mut lab = self.lab.lock().unwrap();
        lab.server().stop();
        lab.start();
        Ok(())
    }

    fn crash(&mut self) -> Result<(), String> {
        let lab = Arc::clone(&self.lab);
        let mut lab = lab.lock().unwrap();
        if self.reshapes && self.random.one_in(2) {
            lab.runtime.block_on(self.begin_reshape(lab.client()))?;
            let pause = Duration::from_millis(self.random.below(20) as u64);
            lab.runtime.block_on(async { tokio::time::sleep(pause).await });
        }
        lab.server().kill();
        lab.start();
        lab.runtime.block_on(self.find_regions(lab.client()))
    }
}

fn all_well(response: &pb::MultiResponse) -> Result<(), String> {
    for result in &response.region_action_result {
        let parts = result.result_or_exception.iter().filter_map(|result| result.exception.as_ref());
        if let Some(exception) = result.exception.iter().chain(parts).next() {
            return Err(format!("{exception:?}"));
        }
    }
    Ok(())
}

/// Whether some family has none of the files that it had: all of them were compacted.
fn some_store_is_new(before: &[PathBuf], after: &[PathBuf]) -> bool {
    let left: BTreeSet<_> =
        after.iter().filter(|file| before.contains(file)).filter_map(|file| file.parent()).collect();
    before.iter().filter_map(|file| file.parent()).any(|store| !left.contains(store))
}

// ---- reads ----

fn columns(scan: &OracleScan) -> Vec<pb::Column> {
    let column = |(family, qualifiers): (&Vec<u8>, &Option<BTreeSet<Vec<u8>>>)| pb::Column {
        family: family.clone().into(),
        qualifier: qualifiers.iter().flatten().cloned().map(Bytes::from).collect(),
    };
    scan.columns.iter().map(column).collect()
}

fn wire_range(range: TimeRange) -> pb::TimeRange {
    let end = (range.max != i64::MAX).then_some(range.max as u64);
    pb::TimeRange { from: Some(range.min as u64), to: end }
}

fn family_ranges(ranges: &BTreeMap<Vec<u8>, TimeRange>) -> Vec<pb::ColumnFamilyTimeRange> {
    let wire = |(family, range): (&Vec<u8>, &TimeRange)| pb::ColumnFamilyTimeRange {
        column_family: family.clone().into(),
        time_range: wire_range(*range),
    };
    ranges.iter().map(wire).collect()
}

fn wire_get(scan: &OracleScan) -> pb::Get {
    pb::Get {
        row: scan.start_row.clone().into(),
        column: columns(scan),
        time_range: (scan.time_range != TimeRange::ALL).then(|| wire_range(scan.time_range)),
        max_versions: Some(wire_count(scan.versions_max)),
        store_limit: scan.store_limit.map(wire_count),
        store_offset: (scan.store_offset > 0).then(|| wire_count(scan.store_offset)),
        cf_time_range: family_ranges(&scan.family_time_ranges),
        ..Default::default()
    }
}

fn wire_scan(scan: &OracleScan) -> pb::Scan {
    let raw = pb::NameBytesPair { name: "_raw_".to_string(), value: Some(vec![0xff].into()) };
    pb::Scan {
        column: columns(scan),
        attribute: if scan.raw { vec![raw] } else { Vec::new() },
        start_row: Some(scan.start_row.clone().into()),
        stop_row: Some(scan.stop_row.clone().into()),
        include_start_row: Some(scan.start_inclusive),
        include_stop_row: Some(scan.stop_inclusive),
        reversed: scan.reversed.then_some(true),
        time_range: (scan.time_range != TimeRange::ALL).then(|| wire_range(scan.time_range)),
        max_versions: Some(wire_count(scan.versions_max)),
        batch_size: scan.batch.map(wire_count),
        store_limit: scan.store_limit.map(wire_count),
        store_offset: (scan.store_offset > 0).then(|| wire_count(scan.store_offset)),
        cf_time_range: family_ranges(&scan.family_time_ranges),
        ..Default::default()
    }
}

fn wire_count(count: usize) -> u32 {
    count.min(i32::MAX as usize) as u32
}

impl ServerEngine {
    async fn get(&mut self, client: &Client, scan: &OracleScan) -> Result<Vec<Cell>, String> {
        let region = self.region_of(&scan.start_row).clone();
        let request = wire_get(scan);
        if self.random.one_in(2) {
            return client.get(&region, request).await.map_err(|error| error.to_string());
        }
        let action = pb::Action::of_get(0, request);
        let region_action = pb::RegionAction {
            region: specifier(&region),
            atomic: None,
            action: vec![action],
            condition: None,
        };
        let request = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
        let answer = client.call("Multi", &request, &[]).await.map_err(|error| error.to_string())?;
        all_well(&common::decoded(&answer))?;
        Ok(answer.cells)
    }

    /// From region to region, in the scan's direction, as long as rows are wanted.
    async fn scan_regions(&mut self, client: &Client, scan: &OracleScan) -> Result<Vec<Vec<Cell>>, String> {
        let mut regions = self.regions.clone();
        if scan.reversed {
            regions.reverse();
        }
        let mut results = Vec::new();
        for region in regions.iter().filter(|region| touches(scan, region)) {
            let mut part = scan.clone();
            let (start, end) = (region.start_key(), region.end_key());
            let outside = if scan.reversed {
                !end.is_empty() && (part.start_row.is_empty() || part.start_row[..] >= end[..])
            } else {
                part.start_row[..] < start[..]
            };
            if outside {
                (part.start_row, part.start_inclusive) =
                    if scan.reversed { (end.to_vec(), false) } else { (start.to_vec(), true) };
            }
            part.limit = scan.limit.map(|limit| limit - rows_of(&results));
            if part.limit == Some(0) {
                break;
            }
            results.extend(self.scan_region(client, region, &part).await?);
        }
        Ok(results)
    }

    /// One scanner from its first call to its last.
    async fn scan_region(
        &mut self,
        client: &Client,
        region: &RegionInfo,
        scan: &OracleScan,
    ) -> Result<Vec<Vec<Cell>>, String> {
        let random = &mut self.random;
        let mut wire = wire_scan(scan);
        // Results of few bytes cut rows; with a batch they would move where the batches end.
        if scan.batch.is_none() && random.one_in(3) {
            wire.max_result_size = Some(1 + random.below(400) as u64);
        }
        let partials = wire.max_result_size.is_none() || random.one_in(2);
        let limit_there = random.one_in(2);
        let numbered = random.one_in(2);
        let mut request = pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(wire),
            client_handles_partials: Some(partials),
            client_handles_heartbeats: Some(random.one_in(2)),
            limit_of_rows: scan.limit.filter(|_| limit_there).map(wire_count),
            ..Default::default()
        };
        if random.one_in(4) {
            request.number_of_rows = Some(0); // opens, and gives nothing yet
        }
        let mut results: Vec<Vec<Cell>> = Vec::new();
        let (mut part_of_row, mut calls) = (false, 0);
        loop {
            let rows = request.number_of_rows.get_or_insert_with(|| random.pick(&[1, 2, 3, 100]));
            let rows_max = *rows;
            request.next_call_seq = numbered.then_some(calls);
            let answer = client.call("Scan", &request, &[]).await.map_err(|error| error.to_string())?;
            let response: pb::ScanResponse = common::decoded(&answer);
            calls += 1;
            if response.cells_per_result.len() as u32 > rows_max {
                return Err(format!("{} results for {rows_max}", response.cells_per_result.len()));
            }
            let mut cells = answer.cells.into_iter();
            for (count, partial) in response.cells_per_result.iter().zip(&response.partial_flag_per_result) {
                let result: Vec<Cell> = cells.by_ref().take(*count as usize).collect();
                match results.last_mut() {
                    Some(last) if scan.batch.is_none() && part_of_row && last[0].row() == result[0].row() => {
                        last.extend(result);
                    }
                    _ => results.push(result),
                }
                part_of_row = *partial;
            }
            if cells.next().is_some() {
                return Err("more cells than results".to_string());
            }
            let done = !response.more_results() || !response.more_results_in_region();
            let enough = scan.limit.is_some_and(|limit| rows_of(&results) > limit);
            if done || enough {
                if !done {
                    let close = pb::ScanRequest {
                        scanner_id: response.scanner_id,
                        close_scanner: Some(true),
                        number_of_rows: Some(0),
                        ..Default::default()
                    };
                    client.call("Scan", &close, &[]).await.map_err(|error| error.to_string())?;
                }
                break;
            }
            if calls > 10_000 {
                return Err("the scan does not end".to_string());
            }
            // A row that may go on is not complete, and the server counts it when the next one begins.
            let complete = rows_of(&results) - usize::from(part_of_row);
            let limit_left = scan.limit.filter(|_| limit_there).map(|limit| limit - complete);
            if limit_left == Some(0) {
                return Err("the scan goes on behind its limit".to_string());
            }
            request = pb::ScanRequest {
                scanner_id: response.scanner_id,
                client_handles_partials: request.client_handles_partials,
                client_handles_heartbeats: request.client_handles_heartbeats,
                limit_of_rows: limit_left.map(wire_count),
                ..Default::default()
            };
        }
        if let Some(limit) = scan.limit {
            if limit_there && rows_of(&results) > limit {
                return Err(format!("{} rows for a limit of {limit}", rows_of(&results)));
            }
            cut(&mut results, limit);
        }
        Ok(results)
    }
}

/// Whether some row of the region can be in the scan.
fn touches(scan: &OracleScan, region: &RegionInfo) -> bool {
    let (low, high, high_inclusive) = if scan.reversed {
        (&scan.stop_row, &scan.start_row, scan.start_inclusive)
    } else {
        (&scan.start_row, &scan.stop_row, scan.stop_inclusive)
    };
    let (start, end) = (region.start_key(), region.end_key());
    let ends_after = end.is_empty() || low[..] < end[..];
    let starts_before = high.is_empty() || start[..] < high[..] || (high_inclusive && start[..] == high[..]);
    ends_after && starts_before
}

fn rows_of(results: &[Vec<Cell>]) -> usize {
    let mut rows: Vec<&[u8]> = results.iter().map(|result| result[0].row()).collect();
    rows.dedup();
    rows.len()
}

fn cut(results: &mut Vec<Vec<Cell>>, rows: usize) {
    while rows_of(results) > rows {
        results.pop();
    }
}

#[test]
fn random_scripts_agree_with_the_oracle() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("HALCYON_SEED").map_or(1..1 + number("HALCYON_SEEDS").unwrap_or(16), |it| it..it + 1);
    let lab = Arc::new(Mutex::new(Lab::new()));
    for seed in seeds {
        let script = for_a_server(Script::random(seed, 250));
        let make = |families: &[FamilyOptions]| ServerEngine::new(&lab, seed, families);
        let mut oracle = Oracle::new(script.families.clone());
        if let Err(first) = run_script(&mut make(&script.families), &mut oracle, &script) {
            eprintln!("{first}\nmaking the script short");
            let (short, mismatch) = minimize(&script, make);
            let mismatch = mismatch.map_or(format!("not every time; {first}"), |it| it.to_string());
            panic!("{mismatch}\nthe script, made short:\n{short}\nrepeat: HALCYON_SEED={seed} {COMMAND}");
        }
    }
    println!("{} splits and merges", regions::RESHAPED.load(std::sync::atomic::Ordering::Relaxed));
}
