//! Ten times what the server can take: writes of 1 to 100 KB, gets, full scans and batches of megabytes by many
//! connections that never wait longer than for their own answers, among them clients that read nothing of what they
//! asked for, and clients that leave in the middle.
//!
//! The server stays within its budget and a tenth, answers a client that comes now and then within a bound, makes
//! progress all the while, and is as quick as ever a moment after the load has gone.
//!
//! A short form runs for some seconds. The long one:
//! `HALCYON_SOAK_SECONDS=600 cargo test -p halcyon --test soak -- --ignored --nocapture`

#![allow(clippy::disallowed_methods)] // the time is the real one

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Client, Server, family, fresh_dir, get, put, site, specifier};
use halcyon_cell::Cell;
use halcyon_client::ClientError;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use halcyon_testkit::Random;
use prost::Message;

const MEMORY_BYTES: u64 = 512 << 20;
/// What stacks and the allocator may take on top of the budget. Pages of files, which are the code of the program, do not count.
const OVER_PART: u64 = 10;
const WRITERS: usize = 32;
/// Calls under way of one writer or reader.
const CALLS: usize = 8;
const BATCHERS: usize = 8;
const READERS: usize = 16;
const SCANNERS: usize = 24;
const SILENT: usize = 16;
const ROWS: u64 = 200_000;
/// A client that asks once in a while has its answer after this at the latest. It is the machine that decides: load
/// and server share it.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Nobody may wait this long for the next write that is acknowledged.
const PROGRESS_MAX: Duration = Duration::from_secs(15);
/// After the load has gone, everything is as before after this.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
const CALM_PROBE_MAX: Duration = Duration::from_millis(200);

/// What came of the calls of one kind.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    bytes: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    fn count(&self, bytes: usize, result: Result<(), ClientError>) {
        match result {
            Ok(()) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&self, error: &ClientError) {
        let class = match error {
            // The client's own patience: the server drops such a call when it comes to it.
            error if error.remote().is_none() => format!("{error}"),
            error => common::class(error),
        };
        *self.refused.lock().unwrap().entry(class).or_default() += 1;
    }
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    writes: Tally,
    batches: Tally,
    gets: Tally,
    scans: Tally,
}

impl Load {
    fn is_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn progress(&self) -> u64 {
        self.writes.done.load(Ordering::Relaxed) + self.batches.done.load(Ordering::Relaxed)
    }
}

fn row(number: u64) -> String {
    format!("{:06}", number % ROWS)
}

fn region_of<'a>(regions: &'a [RegionInfo], row: &str) -> &'a RegionInfo {
    regions.iter().find(|region| region.contains_row(row.as_bytes())).expect("regions cover all rows")
}

fn value(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_be_bytes()).take(len).collect()
}

/// One to a hundred kilobytes, small ones more often.
fn value_len(random: &mut Random) -> usize {
    match random.next_u64() % 10 {
        0 => 100_000,
        1 | 2 => 20_000,
        _ => 1_000,
    }
}

async fn write(client: Arc<Client>, regions: Arc<Vec<RegionInfo>>, load: Arc<Load>, seed: u64) {
    let mut random = Random::new(seed);
    while load.is_on() {
        let (row, len) = (row(random.next_u64()), value_len(&mut random));
        let result = client.put(region_of(&regions, &row), &row, &value(&mut random, len)).await;
        load.writes.count(len, result);
    }
}

/// Batches of up to eight megabytes.
async fn write_batches(client: Client, regions: Arc<Vec<RegionInfo>>, load: Arc<Load>, seed: u64) {
    let mut random = Random::new(seed);
    while load.is_on() {
        let (count, len) = if random.next_u64().is_multiple_of(2) { (4_000, 1_000) } else { (80, 100_000) };
        let region = &regions[random.next_u64() as usize % regions.len()];
        let start = String::from_utf8_lossy(region.start_key()).parse().unwrap_or(0);
        let cells: Vec<Cell> = (0..count)
            .map(|_| {
                let row = row(start + random.next_u64() % (ROWS / regions.len() as u64));
                Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, &value(&mut random, len))
            })
            .collect();
        let action = (0..count)
            .map(|at| pb::Action::of_mutation(at as u32, pb::MutationProto { row: None, ..put(1) }));
        let region_action = pb::RegionAction {
            region: specifier(region),
            atomic: None,
            action: action.collect(),
            condition: None,
        };
        let request = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
        let result = client.call("Multi", &request, &cells).await;
        load.batches.count(count * len, result.map(|_| ()));
    }
}

async fn read(client: Arc<Client>, regions: Arc<Vec<RegionInfo>>, load: Arc<Load>, seed: u64) {
    let mut random = Random::new(seed);
    while load.is_on() {
        let row = row(random.next_u64());
        let result = client.get(region_of(&regions, &row), get(row.as_bytes())).await;
        let bytes = result.as_ref().map_or(0, |cells| cells.iter().map(|cell| cell.bytes().len()).sum());
        load.gets.count(bytes, result.map(|_| ()));
    }
}

fn scan_request(region: &RegionInfo) -> pb::ScanRequest {
    pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan { max_result_size: Some(2 << 20), ..Default::default() }),
        number_of_rows: Some(i32::MAX as u32),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        next_call_seq: Some(0),
        ..Default::default()
    }
}

/// Whole regions, one after the other.
async fn scan(client: Client, regions: Arc<Vec<RegionInfo>>, load: Arc<Load>, seed: u64) {
    let mut random = Random::new(seed);
    while load.is_on() {
        let mut request = scan_request(&regions[random.next_u64() as usize % regions.len()]);
        loop {
            match client.call("Scan", &request, &[]).await {
                Ok(answer) => {
                    let bytes = answer.cells.iter().map(|cell| cell.bytes().len()).sum();
                    load.scans.count(bytes, Ok(()));
                    let response: pb::ScanResponse = common::decoded(&answer);
                    if !response.more_results_in_region() || !load.is_on() {
                        break;
                    }
                    let seq = request.next_call_seq.filter(|_| request.scanner_id.is_some());
                    request.scanner_id = response.scanner_id;
                    (request.region, request.scan) = (None, None);
                    request.next_call_seq = Some(seq.map_or(1, |seq| seq + 1));
                }
                // A call that was not carried out may be asked for again with its number.
                Err(error)
                    if error.remote().is_some() && common::class(&error) == "CallQueueTooBigException" =>
                {
                    load.scans.refuse(&error);
                    if !load.is_on() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => {
                    load.scans.refuse(&error);
                    break;
                }
            }
        }
    }
}

/// A connection that asks and asks, and reads nothing. Ends when the load does; the server finds it gone.
fn ask_and_read_nothing(server: std::net::SocketAddr, region: &RegionInfo, load: &Load, leaves: bool) {
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: "silent".into(), real_user: None }),
        service_name: Some("ClientService".into()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".into()),
        ..Default::default()
    };
    let mut opening = b"HBas\x00\x50".to_vec();
    opening.extend((header.encoded_len() as u32).to_be_bytes());
    header.encode(&mut opening).unwrap();
    while load.is_on() {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(&opening).unwrap();
        for call_id in 0.. {
            let header = pb::RequestHeader {
                call_id: Some(call_id),
                method_name: Some("Scan".into()),
                request_param: Some(true),
                timeout: Some(20_000),
                ..Default::default()
            };
            let mut request = scan_request(region);
            request.close_scanner = Some(true);
            let mut body = header.encode_length_delimited_to_vec();
            body.extend(request.encode_length_delimited_to_vec());
            let mut frame = (body.len() as u32).to_be_bytes().to_vec();
            frame.extend(body);
            // It fails when the server has stopped reading, which is what is to happen.
            let sent = stream.write_all(&frame).is_ok();
            if !load.is_on() || (leaves && call_id > 50) {
                break; // with its calls still waiting
            }
            if !sent {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Gigabytes that are not to stay when the test fails.
struct RemovedAtEnd(std::path::PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A page of the info port.
fn page(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address("regionserver-info")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The sum of a metric over its labels.
fn metric(text: &str, name: &str) -> u64 {
    let of = |line: &&str| {
        line.starts_with(name) && [Some(&b'{'), Some(&b' ')].contains(&line.as_bytes().get(name.len()))
    };
    text.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

/// A Get of a table's row and a lookup in meta, as a client makes that comes by now and then.
async fn probe(client: &Client, region: &RegionInfo) -> Result<Duration, ClientError> {
    let asked = Instant::now();
    assert_eq!(client.value(region, "before").await?.unwrap(), b"hand");
    let meta = pb::RegionSpecifier { r#type: 1, value: "hbase:meta,,1".into() };
    let mut wanted = get(region.region_name());
    wanted.column = vec![pb::Column { family: "info".into(), qualifier: vec![] }];
    let found = client.call("Get", &pb::GetRequest { region: meta, get: wanted }, &[]).await?;
    assert!(!found.cells.is_empty(), "meta knows the region");
    Ok(asked.elapsed())
}

async fn soak(name: &str, time: Duration) {
    let data = fresh_dir(name);
    let _removed = RemovedAtEnd(data.clone());
    let config = site(&data, &[("hbase.regionserver.region.split.policy", "DisabledRegionSplitPolicy")]);
    let config = config.to_str().unwrap();
    let mut server = Server::start(&data, &["--memory", "512m", "--wal-sync", "written", "--config", config]);
    let first = Client::connect(&server).await;
    let own = first.create_table("own", vec![family("f")], &[]).await.remove(0);
    first.put(&own, "before", b"hand").await.unwrap();
    let splits: [&[u8]; 3] = [b"050000", b"100000", b"150000"];
    let regions = Arc::new(first.create_table("t", vec![family("f")], &splits).await);
    let before = probe(&first, &own).await.unwrap();

    let load = Arc::new(Load::default());
    let (mut tasks, mut threads) = (Vec::new(), Vec::new());
    for number in 0..WRITERS + READERS {
        let client = Arc::new(Client::connect(&server).await);
        for call in 0..CALLS {
            let (client, regions, load) = (Arc::clone(&client), Arc::clone(&regions), Arc::clone(&load));
            let seed = (number * CALLS + call) as u64;
            tasks.push(if number < WRITERS {
                tokio::spawn(write(client, regions, load, seed))
            } else {
                tokio::spawn(read(client, regions, load, seed))
            });
        }
    }
    for number in 0..BATCHERS + SCANNERS {
        let client = Client::connect(&server).await;
        let (regions, load, seed) = (Arc::clone(&regions), Arc::clone(&load), 10_000 + number as u64);
        tasks.push(if number < BATCHERS {
            tokio::spawn(write_batches(client, regions, load, seed))
        } else {
            tokio::spawn(scan(client, regions, load, seed))
        });
    }
    for number in 0..SILENT {
        let (address, load) = (server.address("regionserver"), Arc::clone(&load));
        let region = regions[number % regions.len()].clone();
        let leaves = number % 4 == 0;
        threads.push(std::thread::spawn(move || ask_and_read_nothing(address, &region, &load, leaves)));
    }

    // The load is on: what a client meets that comes by, and what the server takes.
    let (started, mut peak, mut files, mut probes, mut probes_refused) =
        (Instant::now(), 0, 0, Vec::new(), 0);
    let (mut progress, mut progressed, mut pause_max) = (0, Instant::now(), Duration::ZERO);
    let mut ledger = String::new();
    while started.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(server.is_running(), "{}", server.log());
        let anonymous = server.anonymous_bytes();
        files = server.resident_bytes().saturating_sub(anonymous).max(files);
        if anonymous > peak {
            peak = anonymous;
            ledger = page(&server, "/memory");
        }
        match probe(&first, &own).await {
            Ok(took) => probes.push(took),
            Err(error) => {
                assert_eq!(common::class(&error), "CallQueueTooBigException");
                probes_refused += 1;
            }
        }
        if load.progress() > progress {
            (progress, progressed) = (load.progress(), Instant::now());
        }
        pause_max = pause_max.max(progressed.elapsed());
    }
    let (metrics, at_the_end) = (page(&server, "/metrics"), page(&server, "/memory"));
    load.stop.store(true, Ordering::Relaxed);
    let stopped = Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let drained = stopped.elapsed();

    // It is over: quick again, nobody held back, nothing left behind.
    let recovered = loop {
        let calm = probe(&first, &own).await.is_ok_and(|took| took < CALM_PROBE_MAX)
            && metric(&page(&server, "/metrics"), "halcyon_rpc_calls_waiting") == 0;
        if calm {
            break stopped.elapsed();
        }
        assert!(
            stopped.elapsed() < drained + RECOVERY_MAX,
            "{}\n{}",
            page(&server, "/metrics"),
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    for number in 0..2_000u64 {
        let asked = Instant::now();
        let row = row(number * 101);
        let written = first.put(region_of(&regions, &row), &row, &[b'v'; 1_000]).await;
        if let Err(error) = written {
            panic!(
                "a write is refused: {error}\n{}\nat the end of the load: {at_the_end}",
                page(&server, "/memory")
            );
        }
        slowest = slowest.max(asked.elapsed());
    }
    let calm_writes = began.elapsed();
    let after = probe(&first, &own).await.unwrap();

    probes.sort_unstable();
    let rank = |part: f64| probes[((probes.len() - 1) as f64 * part) as usize];
    let seconds = time.as_secs_f64();
    for (kind, tally) in
        [("writes", &load.writes), ("batches", &load.batches), ("gets", &load.gets), ("scans", &load.scans)]
    {
        let (done, bytes) = (tally.done.load(Ordering::Relaxed), tally.bytes.load(Ordering::Relaxed));
        println!(
            "{kind}: {:.0}/s, {:.1} MB/s, refused {:?}",
            done as f64 / seconds,
            bytes as f64 / 1e6 / seconds,
            tally.refused.lock().unwrap()
        );
    }
    let dropped = ["expired", "abandoned", "refused_full"].map(|why| {
        let name = format!("halcyon_rpc_calls_{why}_total");
        format!("{why} {}", metric(&metrics, &name))
    });
    println!("server: {}", dropped.join(", "));
    println!(
        "probes: {} answered, {probes_refused} refused, half within {:?}, p99 {:?}, slowest {:?} ({before:?} before, \
         {after:?} after); longest time without a write {pause_max:?}",
        probes.len(),
        rank(0.5),
        rank(0.99),
        rank(1.0)
    );
    println!(
        "resident at most {} MiB of {} MiB, and {} MiB of files; drained after {drained:?}, calm after {recovered:?}, 2000 writes one after \
         the other in {calm_writes:?}, slowest {slowest:?}",
        peak >> 20,
        MEMORY_BYTES >> 20,
        files >> 20
    );
    println!("at the end of the load {at_the_end}");
    let stalls = page(&server, "/stalls");
    println!("{}", stalls.split("\ncause  count").nth(1).unwrap_or_default());
    let limit = MEMORY_BYTES + MEMORY_BYTES / OVER_PART;
    assert!(peak <= limit, "{} MiB resident\n{ledger}", peak >> 20);
    assert!(rank(1.0) <= PROBE_MAX, "a probe took {:?}", rank(1.0));
    assert!(pause_max <= PROGRESS_MAX, "no write was acknowledged for {pause_max:?}");
    for tally in [&load.writes, &load.batches, &load.gets, &load.scans] {
        assert!(tally.done.load(Ordering::Relaxed) > 0, "every kind of call makes progress");
        let known = ["RegionTooBusyException", "CallQueueTooBigException"];
        let refused = tally.refused.lock().unwrap();
        assert!(refused.keys().all(|class| known.contains(&&class[..])), "{refused:?}");
    }
    drop(first);
    server.stop();
    std::fs::remove_dir_all(config).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_soak() {
    soak("soak-short", Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as many seconds as HALCYON_SOAK_SECONDS says, and the whole machine"]
async fn a_long_soak() {
    let seconds = std::env::var("HALCYON_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    soak("soak-long", Duration::from_secs(seconds.unwrap_or(120))).await;
}
