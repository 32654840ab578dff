//! The block cache of a running server: what is copied between it and the socket, and its file tier across a restart.
#![allow(clippy::disallowed_methods)] // looks at files and clocks from outside

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_client::Answer;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;

const VALUE_LEN: usize = 10_000;
/// In a cache that has room for all of them.
const ROWS: usize = 60;
/// In one that has not.
const MANY_ROWS: usize = 700;

fn row(number: usize) -> String {
    format!("row{number:04}")
}

fn value(number: usize) -> Vec<u8> {
    (0..VALUE_LEN).map(|at| (at * 7 + number) as u8).collect()
}

/// A number from the region server's `/metrics`.
fn metric(server: &Server, name: &str) -> u64 {
    let mut socket = TcpStream::connect(server.address("regionserver-info")).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Waits until a number satisfies `wanted`.
fn wait_for(server: &Server, name: &str, wanted: impl Fn(u64) -> bool) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = metric(server, name);
        if wanted(found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{name} is {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn fill(client: &Client, region: &RegionInfo, rows: usize) {
    for number in 0..rows {
        client.put(region, &row(number), &value(number)).await.unwrap();
    }
}

async fn read_all(client: &Client, region: &RegionInfo, rows: usize) {
    for number in 0..rows {
        assert_eq!(client.value(region, &row(number)).await.unwrap(), Some(value(number)), "{number}");
    }
}

/// Scans the region; every value is looked at.
async fn scan_all(client: &Client, region: &RegionInfo, rows: usize) {
    let scan = pb::Scan { max_result_size: Some(64 << 20), ..Default::default() };
    let mut request = pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(scan),
        number_of_rows: Some(rows as u32 + 1),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..Default::default()
    };
    let mut found = 0;
    loop {
        let answer: Answer = client.call("Scan", &request, &[]).await.unwrap();
        for cell in &answer.cells {
            assert_eq!(cell.value(), value(found));
            found += 1;
        }
        let said: pb::ScanResponse = decoded(&answer);
        if !said.more_results() || said.more_results_in_region == Some(false) {
            break;
        }
        request = pb::ScanRequest {
            scanner_id: said.scanner_id,
            number_of_rows: request.number_of_rows,
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..Default::default()
        };
    }
    assert_eq!(found, rows);
}

/// Bytes of cells that left the server as they lay there, that were copied, and that were made plain before.
fn copies(server: &Server) -> [u64; 3] {
    [
        metric(server, "halcyon_rpc_shared_cell_bytes_total{port=\"regionserver\"}"),
        metric(server, "halcyon_rpc_copied_cell_bytes_total{port=\"regionserver\"}"),
        metric(server, "halcyon_block_cache_decoded_bytes_total"),
    ]
}

async fn read_and_scan(server: &Server, client: &Client, region: &RegionInfo) -> [u64; 3] {
    let before = copies(server);
    read_all(client, region, ROWS).await;
    scan_all(client, region, ROWS).await;
    copies_since(server, before, 2 * (ROWS * VALUE_LEN) as u64).await
}

/// What was added to `before`, as soon as answers' cells are `bytes`: an answer is counted when it has been written, which
/// its client may see first.
async fn copies_since(server: &Server, before: [u64; 3], bytes: u64) -> [u64; 3] {
    let begin = Instant::now();
    loop {
        let after = copies(server);
        let counted = [0, 1, 2].map(|at| after[at] - before[at]);
        if counted[0] + counted[1] >= bytes || begin.elapsed() > Duration::from_secs(5) {
            return counted;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// From a memstore's chunks, and from cached blocks whose cells lie there whole, values of ten kilobytes go to the socket
/// without being copied. Blocks of differences are made plain first. Small cells are gathered.
#[tokio::test]
async fn large_values_are_not_copied_on_their_way_to_the_socket() {
    let data = fresh_dir("cache-copies");
    let server = Server::start(&data, &[]);
    let client = Client::connect(&server).await;
    for encoding in ["NONE", "ROW_INDEX_V1", "FAST_DIFF"] {
        let mut family = family("f");
        family.attributes =
            vec![pb::BytesBytesPair { first: "DATA_BLOCK_ENCODING".into(), second: encoding.into() }];
        let region = client.create_table(encoding, vec![family], &[]).await.remove(0);
        fill(&client, &region, ROWS).await;
        let all = 2 * (ROWS * VALUE_LEN) as u64;
        let [shared, copied, decoded] = read_and_scan(&server, &client, &region).await;
        assert!(shared >= all && copied == 0 && decoded == 0, "memstore: {shared} {copied} {decoded}");

        client.flush(&region).await.unwrap();
        read_and_scan(&server, &client, &region).await; // now the blocks are in the cache
        let misses = metric(&server, "halcyon_block_cache_misses_total");
        let [shared, copied, decoded] = read_and_scan(&server, &client, &region).await;
        assert_eq!(metric(&server, "halcyon_block_cache_misses_total"), misses, "all of it was cached");
        assert!(shared >= all && copied == 0, "{encoding}: {shared} {copied}");
        assert_eq!(decoded > 0, encoding == "FAST_DIFF", "{encoding}: {decoded}");

        client.put(&region, "small", b"value").await.unwrap();
        let before = copies(&server);
        assert_eq!(client.value(&region, "small").await.unwrap(), Some(b"value".to_vec()));
        let [shared, copied, _] = copies_since(&server, before, 1).await;
        assert!(shared == 0 && copied > 0, "a small cell is gathered with others");
    }
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

/// More rows than the memory has room for: what leaves it is read from the file, also after a restart in order; a kill
/// begins with an empty file.
#[tokio::test]
async fn the_file_tier_goes_on_after_a_restart() {
    let data = fresh_dir("cache-file");
    let (cache, index) = (data.with_extension("cache"), data.with_extension("index"));
    let config = site(
        &data,
        &[
            ("halcyon.memory.bytes", &(64 << 20).to_string()),
            ("hfile.block.cache.size", "0.06"),
            ("hbase.bucketcache.ioengine", &format!("file:{}", cache.display())),
            ("hbase.bucketcache.size", "16"),
            ("hbase.bucketcache.persistent.path", index.to_str().unwrap()),
        ],
    );
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&data, &flags);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
    fill(&client, &region, MANY_ROWS).await;
    client.flush(&region).await.unwrap();
    read_all(&client, &region, MANY_ROWS).await;
    wait_for(&server, "halcyon_block_cache_file_written_total", |count| count > 5);
    read_all(&client, &region, MANY_ROWS).await;
    scan_all(&client, &region, MANY_ROWS).await;
    assert!(metric(&server, "halcyon_block_cache_file_hits_total") > 5);
    server.stop();
    assert!(index.exists(), "kept for the next life");

    let server = Server::start(&data, &flags);
    assert!(!index.exists(), "a crash from here on finds none");
    let restored = metric(&server, "halcyon_block_cache_file_restored_total");
    assert!(restored as usize > 5, "{restored}");
    let client = Client::connect(&server).await;
    read_all(&client, &region, MANY_ROWS).await;
    scan_all(&client, &region, MANY_ROWS).await;
    let hits = metric(&server, "halcyon_block_cache_file_hits_total");
    assert!(hits as usize > 5, "{hits} of {restored} blocks were read");
    assert_eq!(metric(&server, "halcyon_block_cache_file_damaged_total"), 0);

    // What is compacted leaves the file, too.
    client.compact(&region, true).await.unwrap();
    client.put(&region, &row(0), &value(0)).await.unwrap();
    client.flush(&region).await.unwrap();
    client.compact(&region, true).await.unwrap();
    wait_for(&server, "halcyon_block_cache_file_blocks", |count| count < restored);
    read_all(&client, &region, MANY_ROWS).await;
    server.kill();

    let server = Server::start(&data, &flags);
    assert_eq!(metric(&server, "halcyon_block_cache_file_restored_total"), 0);
    assert_eq!(metric(&server, "halcyon_block_cache_file_on"), 1);
    read_all(&Client::connect(&server).await, &region, MANY_ROWS).await;
    // A dropped table leaves nothing behind but blocks of hbase:meta.
    wait_for(&server, "halcyon_block_cache_file_blocks", |count| count > 20);
    Client::connect(&server).await.drop_table("t").await;
    wait_for(&server, "halcyon_block_cache_file_blocks", |count| count < 10);
    server.stop();
    fs::remove_dir_all(&data).unwrap();
    fs::remove_dir_all(&config).unwrap();
    fs::remove_file(&cache).unwrap();
    let _ = fs::remove_file(&index);
}

/// A file that cannot be used is told and changes nothing else; and a family's files are read ahead behind the opening
/// of its region.
#[tokio::test]
async fn without_its_file_the_server_serves_and_reads_ahead() {
    let data = fresh_dir("cache-ahead");
    let config =
        site(&data, &[("hbase.bucketcache.ioengine", "file:/dev/full"), ("hbase.bucketcache.size", "16")]);
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&data, &flags);
    assert_eq!(metric(&server, "halcyon_block_cache_file_on"), 0);
    assert_eq!(metric(&server, "halcyon_block_cache_file_failures_total"), 1);
    assert!(server.log().contains("/dev/full"), "{}", server.log());
    let client = Client::connect(&server).await;
    let mut family = family("f");
    family.attributes =
        vec![pb::BytesBytesPair { first: "PREFETCH_BLOCKS_ON_OPEN".into(), second: "true".into() }];
    let region = client.create_table("t", vec![family], &[]).await.remove(0);
    fill(&client, &region, ROWS).await;
    server.stop();

    let server = Server::start(&data, &flags);
    wait_for(&server, "halcyon_block_cache_used_bytes", |bytes| bytes as usize > ROWS * VALUE_LEN);
    let client = Client::connect(&server).await;
    let misses = metric(&server, "halcyon_block_cache_misses_total");
    read_all(&client, &region, ROWS).await;
    let missed = metric(&server, "halcyon_block_cache_misses_total") - misses;
    assert!(missed <= 2, "{missed} blocks were not there (one may be of hbase:meta)");
    server.stop();
    fs::remove_dir_all(&data).unwrap();
    fs::remove_dir_all(&config).unwrap();
}
