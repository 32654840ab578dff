//! More writes than memory: a server with a small budget is sent large values by many connections as fast as they
//! can. It takes them or says that it is too busy; it stays within its budget and a bit, keeps what it has
//! acknowledged, and serves as before when the flood is over.
//!
//! The quick variant runs for a few seconds; `cargo test -p halcyon --test flood -- --ignored --nocapture` runs for
//! twenty.

#![allow(clippy::disallowed_methods)] // the time is the real one

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Client, Server, class, family, fresh_dir, get, site, specifier};
use halcyon_client::ClientError;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

const MEMORY_BYTES: u64 = 128 << 20;
const VALUE_BYTES: usize = 100_000;
const CONNECTIONS: usize = 48;
/// Rows that are read; more than the memory's cache has room for.
const READ_ROWS: usize = 700;
/// Calls under way of one connection: together 38 MB of requests, more than an eighth of the memory.
const CALLS: usize = 8;
/// The budget is for cells, blocks and calls; code, threads and buffers of connections come on top.
const OVERHEAD_BYTES: u64 = 32 << 20;

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// Every writer has rows of its own; returns how many of them were acknowledged.
async fn write(
    client: Arc<Client>,
    region: RegionInfo,
    writer: usize,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
) -> Vec<usize> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match client.put(&region, &row(writer, number), &value(writer, number)).await {
            Ok(()) => {
                counts.acknowledged.fetch_add(1, Ordering::Relaxed);
                acknowledged.push(number);
            }
            Err(error) => {
                let class = class(&error);
                let known = ["RegionTooBusyException", "CallQueueTooBigException"].contains(&&class[..]);
                assert!(known, "{error}");
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    acknowledged
}

fn row(writer: usize, number: usize) -> String {
    format!("{writer:03}-{number:06}")
}

/// Bytes that compress badly and differ from row to row.
fn value(writer: usize, number: usize) -> Vec<u8> {
    let mut random = halcyon_testkit::Random::new(((writer as u64) << 32) | number as u64);
    let words = (0..VALUE_BYTES / 8).flat_map(|_| random.next_u64().to_be_bytes());
    words.collect()
}

async fn flood(name: &str, time: Duration) {
    let data = fresh_dir(name);
    // A region of these sizes would be split, and the client of this test does not look for it again.
    let config = site(&data, &[("hbase.regionserver.region.split.policy", "DisabledRegionSplitPolicy")]);
    let config = config.to_str().unwrap();
    let mut server = Server::start(&data, &["--memory", "128m", "--wal-sync", "written", "--config", config]);
    let first = Client::connect(&server).await;
    let region = first.create_table("t", vec![family("f")], &[]).await.remove(0);
    first.put(&region, "before", b"hand").await.unwrap();

    let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let mut writers = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = Arc::new(Client::connect(&server).await);
        for _ in 0..CALLS {
            let (client, region) = (Arc::clone(&client), region.clone());
            let writing = write(client, region, writers.len(), Arc::clone(&counts), Arc::clone(&stop));
            writers.push(tokio::spawn(writing));
        }
    }
    let (started, mut peak, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while started.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(server.is_running(), "{}", server.log());
        peak = peak.max(server.resident_bytes());
        // Reads are served all the while.
        let asked = Instant::now();
        match first.value(&region, "before").await {
            Ok(found) => assert_eq!(found.unwrap(), b"hand"),
            Err(error) => assert_eq!(class(&error), "CallQueueTooBigException"),
        }
        slowest = slowest.max(asked.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.push(writer.await.unwrap());
    }
    let (written, refused) =
        (counts.acknowledged.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed));
    println!(
        "{written} values of {VALUE_BYTES} bytes written, {refused} refused, resident at most {} MiB, \
         {} MiB afterwards, slowest read {slowest:?}",
        peak >> 20,
        server.resident_bytes() >> 20
    );
    assert!(written > 100, "{written} written, {refused} refused");
    assert!(
        peak < MEMORY_BYTES + OVERHEAD_BYTES,
        "{} MiB resident for a memory of {} MiB",
        peak >> 20,
        MEMORY_BYTES >> 20
    );

    // Afterwards: it takes writes again, and has all that it acknowledged; also behind a kill.
    first.put(&region, "after", b"all").await.unwrap();
    drop(first);
    server.kill();
    let server = Server::start(&data, &["--memory", "128m", "--config", config]);
    let client = Client::connect(&server).await;
    assert_eq!(client.value(&region, "after").await.unwrap().unwrap(), b"all");
    for (writer, numbers) in acknowledged.iter().enumerate() {
        let checked = numbers.iter().rev().take(3).chain(numbers.first());
        for &number in checked {
            let found = client.value(&region, &row(writer, number)).await.unwrap();
            assert!(found == Some(value(writer, number)), "row {}", row(writer, number));
        }
    }
    drop(client);
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_dir_all(config).unwrap();
}

/// One answer of as much as the server gives: results of a scan or of many gets.
async fn read_much(client: &Client, region: &RegionInfo, by_scan: bool) -> Result<u64, ClientError> {
    let (method, cells) = if by_scan {
        let request = pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(pb::Scan::default()), // names no limit, as clients of old
            number_of_rows: Some(100_000),
            close_scanner: Some(true),
            client_handles_partials: Some(true),
            ..Default::default()
        };
        ("Scan", client.call("Scan", &request, &[]).await?.cells)
    } else {
        let gets =
            (0..READ_ROWS).map(|number| pb::Action::of_get(number as u32, get(row(0, number).as_bytes())));
        let region_action = pb::RegionAction {
            region: specifier(region),
            atomic: None,
            action: gets.collect(),
            condition: None,
        };
        let request = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
        ("Multi", client.call("Multi", &request, &[]).await?.cells)
    };
    let bytes = cells.iter().map(|cell| cell.bytes().len() as u64).sum::<u64>();
    assert!(bytes > VALUE_BYTES as u64, "{method} makes no progress");
    Ok(bytes)
}

/// The largest answers that clients can ask for, by many at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_share_the_memory() {
    let data = fresh_dir("flood-reads");
    let mut server = Server::start(&data, &["--memory", "128m", "--wal-sync", "written"]);
    let first = Client::connect(&server).await;
    let region = first.create_table("t", vec![family("f")], &[]).await.remove(0);
    for number in 0..READ_ROWS {
        while let Err(error) = first.put(&region, &row(0, number), &value(0, number)).await {
            assert_eq!(class(&error), "RegionTooBusyException", "{error}");
        }
    }
    first.flush(&region).await.unwrap();
    let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let mut readers = Vec::new();
    for number in 0..24 {
        let client = Client::connect(&server).await;
        let (region, counts, stop) = (region.clone(), Arc::clone(&counts), Arc::clone(&stop));
        readers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match read_much(&client, &region, number % 2 == 0).await {
                    Ok(bytes) => counts.acknowledged.fetch_add(bytes, Ordering::Relaxed),
                    Err(error) => {
                        assert_eq!(class(&error), "CallQueueTooBigException", "{error}");
                        counts.refused.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
        }));
    }
    let (started, mut peak) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(4) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(server.is_running(), "{}", server.log());
        peak = peak.max(server.resident_bytes());
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let (read, refused) =
        (counts.acknowledged.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed));
    println!("{} MiB read, {refused} calls refused, resident at most {} MiB", read >> 20, peak >> 20);
    assert!(
        peak < MEMORY_BYTES + OVERHEAD_BYTES,
        "{} MiB resident for a memory of {} MiB",
        peak >> 20,
        MEMORY_BYTES >> 20
    );
    assert_eq!(first.value(&region, &row(0, 7)).await.unwrap(), Some(value(0, 7)));
    drop(first);
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_flood() {
    flood("flood-short", Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute and the whole machine"]
async fn a_long_flood() {
    flood("flood-long", Duration::from_secs(20)).await;
}
