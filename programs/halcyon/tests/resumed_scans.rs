//! Scans that go on as HBase's clients do when they lose a scanner: behind the last row, with the read point of the lost one.
//!
//! The story: a region dropped its scanners and with them their read points before its last flush, which left out the versions
//! that only they could see. The next scanner read at the old point all the same, and saw neither those nor what is newer. Rows
//! that were there all the time were missing from scans while regions split, merged and moved under writers.

#![allow(clippy::disallowed_methods)] // clocks and processes from outside

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::ClientError;
use halcyon_env::sim::Dice;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

use crate::common::{Client, Server, decoded, family, fresh_dir, put, specifier};

const TABLE: &str = "t";
const ROWS: usize = 24;
const WRITERS: u64 = 3;
/// Between two calls of a scan.
const PAUSE: Duration = Duration::from_millis(15);
/// Scans at a time.
const SCANS: u64 = 4;
/// How long regions are disturbed.
const TIME: Duration = Duration::from_secs(8);

fn row(number: usize) -> String {
    format!("r{number:02}")
}

fn region_of<'a>(regions: &'a [RegionInfo], row: &[u8]) -> Option<&'a RegionInfo> {
    regions.iter().find(|region| region.contains_row(row))
}

/// What all tasks of the test share.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    scans: AtomicU64,
    /// Scanners that were opened with the read point of a lost one.
    resumed: AtomicU64,
    changes: AtomicU64,
}

/// One scan of the table, as `ClientScanner` of HBase 2 makes it.
struct JavaScan<'a> {
    client: &'a Client,
    progress: &'a Progress,
    reversed: bool,
    rows_of_call: u32,
    start_row: Vec<u8>,
    include_start_row: bool,
    /// Of the scanner that was open last in this region.
    read_point: Option<u64>,
    rows: Vec<Vec<u8>>,
}

impl JavaScan<'_> {
    /// Reads all rows. `None`: the test was over before that.
    async fn run(mut self) -> Option<Vec<Vec<u8>>> {
        let mut open: Option<(RegionInfo, u64, u64)> = None;
        while !self.progress.is_over.load(Ordering::Relaxed) {
            let (region, request) = match &open {
                Some((region, id, seq)) => (region.clone(), self.next(*id, *seq)),
                None => match self.region().await {
                    Some(region) => (region.clone(), self.open(&region)),
                    None => continue,
                },
            };
            match self.client.call("Scan", &request, &[]).await {
                Ok(answer) => {
                    let response: pb::ScanResponse = decoded(&answer);
                    self.take(&response, answer.cells);
                    if response.more_results == Some(false) {
                        return Some(self.rows);
                    }
                    let seq = open.as_ref().map_or(0, |(_, _, seq)| seq + 1);
                    open = Some((region.clone(), response.scanner_id(), seq));
                    if response.more_results_in_region == Some(false) {
                        open = None;
                        if !self.leave(&region) {
                            return Some(self.rows);
                        }
                    }
                    // So long that something happens to the region meanwhile.
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    self.lose(&error);
                    open = None;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
        None
    }

    /// Where the scan goes on; `None`: nobody serves that just now.
    async fn region(&self) -> Option<RegionInfo> {
        let regions = self.client.regions(TABLE).await;
        let start = &self.start_row;
        let is_before = |region: &&RegionInfo| {
            let end = region.end_key();
            region.start_key()[..] < start[..] && (end.is_empty() || start[..] <= end[..])
        };
        let found = match self.reversed {
            true if start.is_empty() => regions.iter().find(|region| region.end_key().is_empty()),
            true if !self.include_start_row => regions.iter().find(is_before),
            _ => region_of(&regions, start),
        };
        if found.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        found.cloned()
    }

    fn open(&self, region: &RegionInfo) -> pb::ScanRequest {
        self.progress.resumed.fetch_add(u64::from(self.read_point.is_some()), Ordering::Relaxed);
        let scan = pb::Scan {
            start_row: Some(self.start_row.clone().into()),
            include_start_row: Some(self.include_start_row),
            reversed: Some(self.reversed),
            mvcc_read_point: self.read_point,
            ..Default::default()
        };
        pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(scan),
            number_of_rows: Some(self.rows_of_call),
            next_call_seq: Some(0),
            ..Default::default()
        }
    }

    fn next(&self, id: u64, seq: u64) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(id),
            number_of_rows: Some(self.rows_of_call),
            next_call_seq: Some(seq + 1),
            ..Default::default()
        }
    }

    fn take(&mut self, response: &pb::ScanResponse, cells: Vec<Cell>) {
        self.read_point = response.mvcc_read_point.or(self.read_point);
        let mut cells = cells.into_iter();
        for count in &response.cells_per_result {
            let row: Vec<Cell> = cells.by_ref().take(*count as usize).collect();
            let families: Vec<&[u8]> = row.iter().map(Cell::family).collect();
            assert_eq!(families, [b"f", b"g"], "a row without one of its families: {row:?}");
            assert_eq!(row[0].value(), row[1].value(), "a row of two moments: {row:?}");
            self.rows.push(row[0].row().to_vec());
        }
    }

    /// The scanner is lost; another one begins behind the last row, at the same point.
    fn lose(&mut self, error: &ClientError) {
        let expected = [
            "NotServingRegionException",
            "UnknownScannerException",
            "ScannerResetException",
            "RegionMovedException",
            "RegionTooBusyException",
        ];
        let class = error.remote().map(|exception| exception.simple_class().to_string());
        assert!(class.as_deref().is_some_and(|class| expected.contains(&class)), "{error}");
        let Some(last) = self.rows.last() else { return };
        self.start_row.clone_from(last);
        self.include_start_row = !self.reversed;
        if !self.reversed {
            self.start_row.push(0);
        }
    }

    /// Goes on in the next region. False: there is none.
    fn leave(&mut self, region: &RegionInfo) -> bool {
        let edge = if self.reversed { region.start_key() } else { region.end_key() };
        self.start_row = edge.to_vec();
        self.include_start_row = !self.reversed;
        self.read_point = None;
        !edge.is_empty()
    }
}

async fn scan_again_and_again(client: Arc<Client>, progress: Arc<Progress>, seed: u64) {
    let mut dice = Dice::new(seed);
    let forward: Vec<Vec<u8>> = (0..ROWS).map(|number| row(number).into_bytes()).collect();
    let backward: Vec<Vec<u8>> = forward.iter().rev().cloned().collect();
    while !progress.is_over.load(Ordering::Relaxed) {
        let reversed = dice.one_in(2);
        let scan = JavaScan {
            client: &client,
            progress: &progress,
            reversed,
            rows_of_call: 1 + dice.below(4) as u32,
            start_row: Vec::new(),
            include_start_row: true,
            read_point: None,
            rows: Vec::new(),
        };
        let Some(found) = scan.run().await else { return };
        assert_eq!(&found, if reversed { &backward } else { &forward }, "reversed: {reversed}");
        progress.scans.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes both families of a row with one value. False: by these regions nobody has the row.
async fn write(
    client: &Client,
    regions: &[RegionInfo],
    number: usize,
    value: u64,
) -> Result<bool, ClientError> {
    let row = row(number);
    let Some(region) = region_of(regions, row.as_bytes()) else { return Ok(false) };
    let cell = |family: &[u8]| Cell::put(row.as_bytes(), family, b"q", i64::MAX, &value.to_be_bytes());
    client.mutate(region, put(2), &[cell(b"f"), cell(b"g")]).await.map(|_| true)
}

async fn write_again_and_again(client: Arc<Client>, progress: Arc<Progress>, seed: u64) {
    let (mut dice, mut regions) = (Dice::new(seed), client.regions(TABLE).await);
    while !progress.is_over.load(Ordering::Relaxed) {
        if !write(&client, &regions, dice.below(ROWS), dice.next_u64()).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            regions = client.regions(TABLE).await;
        }
    }
}

/// Changes one region in some way; what is refused, because a region has just changed, is nothing.
async fn disturb(client: &Client, dice: &mut Dice) -> Result<(), ClientError> {
    let regions = client.regions(TABLE).await;
    let Some(region) = regions.get(dice.below(regions.len().max(1))) else { return Ok(()) };
    let procedure = match dice.below(8) {
        0 | 1 if regions.len() < 5 => {
            let split_row = Some(Bytes::from(row(dice.below(ROWS))));
            let Some(region) = region_of(&regions, split_row.as_deref().unwrap_or_default()) else {
                return Ok(());
            };
            let request =
                pb::SplitTableRegionRequest { region_info: region.to_pb(), split_row, ..Default::default() };
            client.master.call::<pb::SplitTableRegionResponse>("SplitRegion", &request).await?.proc_id
        }
        2 | 3 if regions.len() > 1 => {
            let first = dice.below(regions.len() - 1);
            let region = regions[first..first + 2].iter().map(specifier).collect();
            let request = pb::MergeTableRegionsRequest { region, ..Default::default() };
            client.master.call::<pb::MergeTableRegionsResponse>("MergeTableRegions", &request).await?.proc_id
        }
        4 => {
            let request = pb::MoveRegionRequest { region: specifier(region), dest_server_name: None };
            client.master.call::<pb::MoveRegionResponse>("MoveRegion", &request).await?;
            None
        }
        5 => {
            client.compact(region, true).await?;
            None
        }
        _ => {
            client.flush(region).await?;
            None
        }
    };
    if let Some(procedure) = procedure {
        client.finish(procedure).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_always_there_are_in_every_scan() {
    let data = fresh_dir("resumed-scans");
    let server = Server::start(&data, &[]);
    let client = Arc::new(Client::connect(&server).await);
    let families = ["f", "g"].map(|name| pb::ColumnFamilySchema {
        attributes: vec![pb::BytesBytesPair { first: "VERSIONS".into(), second: "1".into() }],
        ..family(name)
    });
    let regions = client.create_table(TABLE, families.to_vec(), &[b"r08", b"r16"]).await;
    for number in 0..ROWS {
        assert!(write(&client, &regions, number, 0).await.unwrap());
    }
    let progress = Arc::new(Progress::default());
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..WRITERS {
        tasks.spawn(write_again_and_again(client.clone(), progress.clone(), 100 + seed));
    }
    for seed in 0..SCANS {
        tasks.spawn(scan_again_and_again(client.clone(), progress.clone(), 200 + seed));
    }
    let (mut dice, end) = (Dice::new(7), Instant::now() + TIME);
    while Instant::now() < end && tasks.len() == (WRITERS + SCANS) as usize {
        let changed = disturb(&client, &mut dice).await.is_ok();
        progress.changes.fetch_add(u64::from(changed), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(dice.below(40) as u64)).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
    }
    progress.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (scans, resumed, changes) =
        (count(&progress.scans), count(&progress.resumed), count(&progress.changes));
    println!("{scans} scans, {resumed} scanners with the point of a lost one, {changes} changes of regions");
    assert!(scans > 3 && resumed > 3 && changes > 3, "{scans} {resumed} {changes}");
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}
