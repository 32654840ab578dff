//! Scans that lose their scanner, by a server that follows a script: no row is missing and none comes twice.

mod fake;

use std::time::Duration;

use bytes::Bytes;
use fake::{Asked, Say, cell, fail, options, region, scanned, start};
use halcyon_cell::Cell;
use halcyon_client::{Row, Scan, Scanner};
use halcyon_proto::pb;
use halcyon_rpc::exceptions;
use prost::Message;

/// The rows of the table: five, of three cells each.
fn rows() -> Vec<Vec<Cell>> {
    let row = |key: &str| {
        let column = |qualifier: &str| Cell::put(key.as_bytes(), b"f", qualifier.as_bytes(), 1, b"v");
        vec![column("1"), column("2"), column("3")]
    };
    ["a", "b", "c", "n", "o"].iter().map(|key| row(key)).collect()
}

fn asked(asked: &Asked<'_>) -> pb::ScanRequest {
    pb::ScanRequest::decode(asked.param.clone()).unwrap()
}

/// Rows of the range that a new scanner is opened for.
fn wanted(scan: &pb::Scan, region: &Bytes) -> Vec<Vec<Cell>> {
    let start = scan.start_row.clone().unwrap_or_default();
    let is_first = region == fake::region("", "m", 1).region_name();
    let mut rows = rows();
    rows.retain(|row| {
        let key = row[0].row();
        let in_region = (key < &b"m"[..]) == is_first;
        in_region && (key > &start[..] || (key == &start[..] && scan.include_start_row()))
    });
    rows
}

/// A server that answers `per_call` cells a call, and fails each call whose number is among the given ones.
async fn serve(fail_at: &'static [usize], per_call: usize) -> fake::Running {
    let mut left: Vec<Cell> = Vec::new();
    start(vec![region("", "m", 1), region("m", "", 1)], options(), move |call| {
        let request = asked(&call);
        if let Some(scan) = &request.scan {
            left = wanted(scan, &request.region.as_ref().unwrap().value).concat();
        }
        if fail_at.contains(&call.number) {
            let classes = [
                &exceptions::UNKNOWN_SCANNER,
                &exceptions::NOT_SERVING_REGION,
                &exceptions::SCANNER_RESET,
                &exceptions::OUT_OF_ORDER_SCANNER_NEXT,
                &exceptions::REGION_TOO_BUSY,
            ];
            return fail(classes[call.number % classes.len()]);
        }
        let now: Vec<Cell> = left.drain(..per_call.min(left.len())).collect();
        let (mut results, mut flags) = (Vec::<Vec<Cell>>::new(), Vec::new());
        for cell in now {
            match results.last_mut().filter(|row| row[0].row() == cell.row()) {
                Some(row) => row.push(cell),
                None => results.push(vec![cell]),
            }
        }
        for (at, row) in results.iter().enumerate() {
            let is_last = at + 1 == results.len();
            flags.push(is_last && left.first().is_some_and(|next| next.row() == row[0].row()));
        }
        let is_done = left.is_empty();
        scanned(results, |response| {
            response.partial_flag_per_result = flags;
            response.more_results_in_region = Some(!is_done);
            response.ttl = Some(100);
        })
    })
    .await
}

async fn read(mut scanner: Scanner) -> Vec<Row> {
    let mut rows = Vec::new();
    while let Some(row) = scanner.next().await.unwrap() {
        rows.push(row);
    }
    rows
}

#[tokio::test]
async fn a_lost_scanner_costs_no_row() {
    for per_call in 1..=7 {
        for fail_at in [&[1][..], &[0, 2], &[1, 3, 5], &[2, 3, 4, 7], &[0, 1, 2, 3]] {
            let fake = serve(fail_at, per_call).await;
            let found = read(fake.table.scan(Scan::new())).await;
            let cells: Vec<Vec<Cell>> = found.into_iter().map(Row::into_cells).collect();
            assert_eq!(cells, rows(), "{per_call} cells a call, failures at {fail_at:?}");

            // parts as they come, and parts of two cells
            let fake = serve(fail_at, per_call).await;
            let parts = read(fake.table.scan(Scan::new().allow_partial_rows())).await;
            let cells: Vec<Cell> = parts.into_iter().flatten().collect();
            assert_eq!(cells, rows().concat(), "partial, {per_call}, {fail_at:?}");
            let fake = serve(fail_at, per_call).await;
            let parts = read(fake.table.scan(Scan::new().batch(2))).await;
            let sizes: Vec<_> = parts.iter().map(|part| (part.len(), part.has_more_cells())).collect();
            assert_eq!(sizes, [(2, true), (1, false)].repeat(5), "batch, {per_call}, {fail_at:?}");
            assert_eq!(parts.into_iter().flatten().collect::<Vec<Cell>>(), rows().concat());
        }
    }
}

#[tokio::test]
async fn a_limit_counts_rows_over_lost_scanners() {
    for per_call in 1..=7 {
        let fake = serve(&[1, 2, 4], per_call).await;
        let found = read(fake.table.scan(Scan::new().limit(4))).await;
        let keys: Vec<_> = found.iter().map(|row| row.key().to_vec()).collect();
        assert_eq!(keys, ["a", "b", "c", "n"].map(|key| key.as_bytes().to_vec()), "{per_call}");
    }
}

#[tokio::test]
async fn heartbeats_are_no_rows() {
    let fake = start(vec![region("", "", 1)], options(), |call| match call.number {
        0..=5 => scanned(Vec::new(), |response| response.heartbeat_message = Some(true)),
        6 => scanned(vec![vec![cell("r", "v")]], |response| response.more_results = Some(false)),
        _ => Say::Never,
    });
    let fake = fake.await;
    let mut scanner = fake.table.scan(Scan::new());
    assert_eq!(scanner.next().await.unwrap().unwrap().key(), b"r");
    assert!(scanner.next().await.unwrap().is_none());
    assert_eq!(scanner.calls_count(), 7);
}

/// Each open succeeded and returned no row, and the next call lost the scanner. A success without rows reset the count of
/// retries, so the scan never ended.
#[tokio::test]
async fn a_scanner_that_is_lost_before_its_first_row_is_given_up() {
    let mut options = options();
    options.retry.retries_max = 3;
    let fake = start(vec![region("", "", 1)], options, |call| match asked(&call).scan {
        Some(_) => scanned(Vec::new(), |response| response.heartbeat_message = Some(true)),
        None => fail(&exceptions::UNKNOWN_SCANNER),
    });
    let fake = fake.await;
    let mut scanner = fake.table.scan(Scan::new());
    let ended = tokio::time::timeout(Duration::from_secs(10), scanner.next()).await;
    let error = ended.expect("the scan gives up").unwrap_err();
    assert_eq!(error.class(), "UnknownScannerException", "{error}");
    // the first attempt and three retries, two calls each
    assert_eq!(scanner.calls_count(), 8);
}

/// A region of rows that a filter drops is progress: each region may fail as often as a scan of one region.
#[tokio::test]
async fn retries_count_anew_in_each_region() {
    let mut options = options();
    options.retry.retries_max = 1;
    let regions = vec![region("", "g", 1), region("g", "m", 1), region("m", "", 1)];
    let fake = start(regions, options, |call| match call.number % 2 {
        0 => fail(&exceptions::REGION_TOO_BUSY),
        _ => scanned(Vec::new(), |response| response.more_results_in_region = Some(false)),
    });
    let fake = fake.await;
    let mut scanner = fake.table.scan(Scan::new());
    assert!(scanner.next().await.unwrap().is_none());
    assert_eq!(scanner.calls_count(), 6);
}

#[tokio::test]
async fn a_response_that_lies_about_its_cells_is_an_error() {
    let fake = start(vec![region("", "", 1)], options(), |_| {
        scanned(vec![vec![cell("r", "v")]], |response| response.cells_per_result = vec![9])
    });
    let error = fake.await.table.scan(Scan::new()).next().await.unwrap_err();
    assert_eq!(error.class(), "Malformed", "{error}");
}

#[tokio::test]
async fn a_slow_reader_of_a_stream_keeps_the_lease() {
    let fake = start(vec![region("", "", 1)], options(), |call| {
        let row = format!("r{:03}", call.number);
        scanned(vec![vec![cell(&row, "v")]], |response| {
            response.ttl = Some(100);
            response.more_results = Some(call.number < 40);
        })
    });
    let fake = fake.await;
    let mut rows = fake.table.scan(Scan::new().caching(1)).into_stream();
    rows.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(fake.state.lock().unwrap().renewals >= 2);
    let mut count = 1;
    while let Some(row) = rows.next().await {
        row.unwrap();
        count += 1;
    }
    assert_eq!(count, 41);
}

#[tokio::test]
async fn a_dropped_scan_is_closed() {
    let fake = serve(&[], 1).await;
    let mut scanner = fake.table.scan(Scan::new().caching(1));
    scanner.next().await.unwrap();
    drop(scanner);
    let mut stream = fake.table.scan(Scan::new().caching(1)).into_stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    for _ in 0..200 {
        if fake.state.lock().unwrap().closed_scanners == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} scanners closed", fake.state.lock().unwrap().closed_scanners);
}
