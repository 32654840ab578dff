//! Bad input to a running server: the request in question gets a clear error, everything else goes on, and
//! nothing acknowledged is lost.
//!
//! | what is bad | tried here | tried below |
//! |---|---|---|
//! | garbage on any port | [`garbage_on_every_port`] | `coord/tests/protocol.rs`, `rpc/tests/garbage.rs`, `regionserver/tests/garbage.rs`, `info.rs` |
//! | a frame over the limit | [`wrong_calls_fail_alone`] | `rpc/tests/calls.rs` (old clients too) |
//! | many large frames announced, or sent slowly | – | `rpc/tests/garbage.rs`, `rpc/tests/calls.rs` |
//! | an unknown service, codec, compressor | [`strangers_are_shown_out`] | `rpc/tests/calls.rs` |
//! | an unknown method | [`wrong_calls_fail_alone`] | `rpc/tests/calls.rs`, `regionserver/tests/single.rs` |
//! | a truncated cell block | [`wrong_calls_fail_alone`] | `rpc/tests/garbage.rs` |
//! | a row or cell over the limit | [`wrong_calls_fail_alone`] | – |
//! | an unknown family | [`wrong_calls_fail_alone`] | `regionserver/tests/single.rs`, `scan.rs`, `admin.rs` |
//! | a region that is not here | [`wrong_calls_fail_alone`] | `regionserver/tests/single.rs`, `multi.rs` |
//! | an unsupported compression of a family | [`wrong_calls_fail_alone`] | `schema/src/check.rs` |
//! | a port, a data directory in use | – | `standalone.rs` |
//! | a data directory of a newer format | – | `standalone.rs`, `master/tests/service.rs` |
//! | a damaged block of a store file | [`a_damaged_block_spoils_its_rows_only`] | `hfile/src/*` |
//! | a damaged trailer of a store file | [`a_region_with_a_damaged_file_stays_closed_alone`] | `hfile/src/*` |
//! | a torn log | [`a_torn_log_loses_nothing_before_the_tear`] | `wal/tests/damage.rs`, `crash.rs` |
//! | more writes than memory | `flood.rs` | `regionserver/tests/admin.rs` |

#![allow(clippy::disallowed_methods)] // looks at files from outside

use crate::common;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{
    Client, PORTS, Server, class, family, fresh_dir, get, put, site, specifier, store_files,
};
use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_client::{ConnectOptions, Connection};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::{ColumnValue, column_value::QualifierValue};
use halcyon_rpc::{CellBlock, Codec};
use halcyon_schema::{RegionInfo, TableName};
use halcyon_testkit::Random;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const KEYVALUE_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";

// ---- the network ----

/// The opening of a connection: preamble and header.
fn opening(service: &str, codec: &str) -> Vec<u8> {
    let header = pb::ConnectionHeader {
        service_name: Some(service.to_string()),
        cell_block_codec_class: Some(codec.to_string()),
        ..Default::default()
    };
    let mut bytes = b"HBas\x00\x50".to_vec();
    bytes.put_u32(header.encoded_len() as u32);
    header.encode(&mut bytes).unwrap();
    bytes
}

/// One call's frame.
fn frame(method: &str, param: &impl Message, cells: &[u8]) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(7),
        method_name: Some(method.to_string()),
        request_param: Some(true),
        cell_block_meta: Some(pb::CellBlockMeta { length: Some(cells.len() as u32) }),
        ..Default::default()
    };
    let mut body = header.encode_length_delimited_to_vec();
    body.extend(param.encode_length_delimited_to_vec());
    body.extend(cells);
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// The exception that answers a call: class and trace.
async fn exception(stream: &mut TcpStream) -> (String, String) {
    let len = stream.read_u32().await.unwrap();
    let mut bytes = BytesMut::zeroed(len as usize);
    stream.read_exact(&mut bytes).await.unwrap();
    let header = pb::ResponseHeader::decode_length_delimited(&mut bytes.freeze()).unwrap();
    assert_eq!(header.call_id, Some(7));
    let exception = header.exception.expect("an exception");
    (exception.exception_class_name.unwrap(), exception.stack_trace.unwrap())
}

/// Reads until the server closes.
async fn expect_close(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is a close, too: the server did not read all.
    let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
    assert!(closed.is_ok(), "the connection is still open after {} bytes", bytes.len());
    bytes
}

/// Every port does its work.
async fn all_is_well(server: &Server, region: &RegionInfo) {
    let client = Client::connect(server).await;
    client.put(region, "after", b"all").await.unwrap();
    assert_eq!(client.value(region, "before").await.unwrap().unwrap(), b"hand");
    let mut zookeeper = TcpStream::connect(server.address("zookeeper")).await.unwrap();
    zookeeper.write_all(b"ruok").await.unwrap();
    assert_eq!(expect_close(zookeeper).await, b"imok");
    for page in ["master-info", "regionserver-info"] {
        let mut stream = TcpStream::connect(server.address(page)).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(expect_close(stream).await.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn garbage_on_every_port() {
    let data = fresh_dir("garbage");
    let mut server = Server::start(&data, &["--memory", "64m"]);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
    client.put(&region, "before", b"hand").await.unwrap();
    let before = server.resident_bytes();
    let mut random = Random::new(20_261_120);
    let mut kept = Vec::new();
    for port in PORTS {
        let openings: [&[u8]; 8] = [
            b"",
            b"GET / HTTP/1.1\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"HBas\x00\x50",
            b"HBas\x00\x50\x00\x00\x00\x02ab",
            b"HBas\x00\x51\x00\x00\xff\xff",
            b"\x00\x00\x00\x2d\x00\x00\x00\x00",
            b"\x7f\xff\xff\xff",
        ];
        for round in 0..60 {
            let mut bytes = openings[round % openings.len()].to_vec();
            let noise = random.below(2_000);
            bytes.extend((0..noise).map(|_| random.next_u64() as u8));
            let mut stream = TcpStream::connect(server.address(port)).await.unwrap();
            let _ = stream.write_all(&bytes).await; // it may be shown out before it has said all
            match random.below(3) {
                0 => kept.push(stream),
                1 => drop(stream),
                _ => {
                    let _ = stream.shutdown().await;
                    expect_close(stream).await;
                }
            }
        }
        all_is_well(&server, &region).await;
    }
    assert!(server.is_running());
    let grown = server.resident_bytes().saturating_sub(before) >> 20;
    assert!(grown < 64, "{grown} MiB for {} strangers", kept.len());
    drop((client, kept));
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

/// The protocol has no answer to a connection header; HBase closes, too.
#[tokio::test]
async fn strangers_are_shown_out() {
    let data = fresh_dir("strangers");
    let server = Server::start(&data, &[]);
    for port in ["master", "regionserver"] {
        for (service, codec) in [("NoSuchService", KEYVALUE_CODEC), ("ClientService", "org.example.Codec")] {
            let mut stream = TcpStream::connect(server.address(port)).await.unwrap();
            stream.write_all(&opening(service, codec)).await.unwrap();
            assert_eq!(expect_close(stream).await, b"");
            for _ in 0..1_000 {
                if server.log().contains(if codec == KEYVALUE_CODEC { service } else { codec }) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let log = server.log();
            assert!(log.contains(if codec == KEYVALUE_CODEC { service } else { codec }), "{log}");
        }
    }
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

#[tokio::test]
async fn wrong_calls_fail_alone() {
    let data = fresh_dir("calls");
    let config = site(&data, &[("hbase.ipc.max.request.size", "30000000")]);
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
    client.put(&region, "r", b"good").await.unwrap();
    // One connection through all of it: each error is its call's only.
    let value = QualifierValue { qualifier: Some("q".into()), value: Some("v".into()), ..Default::default() };
    let column_value = vec![ColumnValue { family: "f".into(), qualifier_value: vec![value] }];
    let row = Some("r".repeat(32_768).into());
    let long = pb::MutationProto { row, column_value, associated_cell_count: None, ..put(0) };
    let error = client.mutate(&region, long, &[]).await.unwrap_err();
    assert_eq!(class(&error), "DoNotRetryIOException");
    assert!(error.to_string().contains("Row length 32768 is > 32767"), "{error}");
    let error = client.get(&region, get(&[b'r'; 40_000])).await.unwrap_err();
    assert_eq!(class(&error), "DoNotRetryIOException");
    assert!(error.to_string().contains("Row length 40000 is > 32767"), "{error}");
    client.put(&region, &"r".repeat(32_767), b"the longest").await.unwrap();
    let error = client.put(&region, "large", &vec![1; 11 << 20]).await.unwrap_err();
    assert_eq!(class(&error), "DoNotRetryIOException");
    assert!(error.to_string().contains("exceeds limit of 10485760 bytes"), "{error}");

    let nowhere = Cell::put(b"r", b"nope", b"q", 5, b"v");
    let error = client.mutate(&region, put(1), &[nowhere]).await.unwrap_err();
    assert_eq!(class(&error), "NoSuchColumnFamilyException");
    let gone = RegionInfo::new(TableName::parse(b"t").unwrap(), Bytes::new(), Bytes::new(), 5);
    let error = client.value(&gone, "r").await.unwrap_err();
    assert_eq!(class(&error), "NotServingRegionException");
    for connection in [&client.rows, &client.admin, &client.master] {
        let nothing = pb::ClusterId::default();
        let error = connection.call::<pb::ClusterId>("NoSuchMethod", &nothing).await.unwrap_err();
        assert_eq!(class(&error), "DoNotRetryIOException");
        assert!(error.to_string().contains("UnsupportedOperationException: NoSuchMethod"), "{error}");
    }

    // In a Multi, only the action is refused.
    let cells = [("large", 11 << 20), ("small", 3)]
        .map(|(row, len)| Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, &vec![b'x'; len]));
    let action = |index| pb::Action::of_mutation(index, put(1));
    let region_action = pb::RegionAction {
        region: specifier(&region),
        atomic: None,
        action: vec![action(0), action(1)],
        condition: None,
    };
    let request = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
    let answer = client.call("Multi", &request, &cells).await.unwrap();
    let response: pb::MultiResponse = common::decoded(&answer);
    let results = &response.region_action_result[0].result_or_exception;
    let refused: Vec<bool> = results.iter().map(|result| result.exception.is_some()).collect();
    assert_eq!(refused, [true, false], "{response:?}");
    assert_eq!(client.value(&region, "small").await.unwrap().unwrap(), b"xxx");
    assert_eq!(client.value(&region, "large").await.unwrap(), None);

    truncated_cells(&server, &region).await;
    unsupported_compression(&client).await;

    // A frame over the limit costs its own connection.
    let other = Client::connect(&server).await;
    let error = other.put(&region, "r", &vec![1; 31_000_000]).await.unwrap_err();
    assert_eq!(class(&error), "RequestTooBigException", "{error}");
    assert_eq!(client.value(&region, "r").await.unwrap().unwrap(), b"good");
    drop((client, other));
    server.stop();
    fs::remove_dir_all(&data).unwrap();
    fs::remove_dir_all(&config).unwrap();
}

/// The frame and its lengths are right, but the last cell is not all there.
async fn truncated_cells(server: &Server, region: &RegionInfo) {
    let mut stream = TcpStream::connect(server.address("regionserver")).await.unwrap();
    stream.write_all(&opening("ClientService", KEYVALUE_CODEC)).await.unwrap();
    let mut block = CellBlock::new(Codec::KeyValue);
    block.push(&Cell::put(b"r", b"f", b"q", i64::MAX, b"bad"));
    let block = block.into_bytes();
    let request =
        pb::MutateRequest { region: specifier(region), mutation: put(1), condition: None, nonce_group: None };
    for len in [1, 4, 9, block.len() - 1] {
        stream.write_all(&frame("Mutate", &request, &block[..len])).await.unwrap();
        let (class, trace) = exception(&mut stream).await;
        assert_eq!(class, "org.apache.hadoop.hbase.DoNotRetryIOException", "{len} bytes");
        assert!(trace.contains("cell block"), "{trace}");
    }
    // None at all, although one was announced.
    stream.write_all(&frame("Mutate", &request, b"")).await.unwrap();
    assert_eq!(exception(&mut stream).await.0, "org.apache.hadoop.hbase.DoNotRetryIOException");
}

async fn unsupported_compression(client: &Client) {
    let zip = pb::BytesBytesPair { first: "COMPRESSION".into(), second: "ZIP".into() };
    let table_schema = pb::TableSchema {
        table_name: Some(common::table_name("zip")),
        column_families: vec![pb::ColumnFamilySchema { attributes: vec![zip], ..family("f") }],
        ..Default::default()
    };
    let request = pb::CreateTableRequest { table_schema, ..Default::default() };
    let created = client.master.call::<pb::CreateTableResponse>("CreateTable", &request).await;
    let error = created.unwrap_err();
    assert_eq!(class(&error), "DoNotRetryIOException");
    assert!(error.to_string().contains("ZIP"), "{error}");
}

// ---- the disk ----

/// Rows of a kilobyte, a block each.
const ROWS: usize = 60;

fn row(number: usize) -> String {
    format!("row{number:03}")
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:03}").repeat(400).into_bytes()
}

async fn table_on_disk(client: &Client, name: &str, splits: &[&[u8]]) -> Vec<RegionInfo> {
    let blocks = pb::BytesBytesPair { first: "BLOCKSIZE".into(), second: "1024".into() };
    let family = pb::ColumnFamilySchema { attributes: vec![blocks], ..family("f") };
    let regions = client.create_table(name, vec![family], splits).await;
    for number in 0..ROWS {
        client.put(home(&regions, number), &row(number), &value(number)).await.unwrap();
    }
    for region in &regions {
        client.flush(region).await.unwrap();
    }
    regions
}

fn home(regions: &[RegionInfo], number: usize) -> &RegionInfo {
    let row = row(number);
    regions.iter().rev().find(|region| &region.start_key()[..] <= row.as_bytes()).unwrap()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn find(bytes: &[u8], part: &[u8]) -> Vec<usize> {
    (0..bytes.len().saturating_sub(part.len())).filter(|&at| bytes[at..].starts_with(part)).collect()
}

#[tokio::test]
async fn a_damaged_block_spoils_its_rows_only() {
    const DAMAGED: usize = 7;
    let data = fresh_dir("block");
    let server = Server::start_on_this_machine(&data, &[]);
    let client = Client::connect(&server).await;
    let regions = table_on_disk(&client, "t", &[b"row030"]).await;
    drop(client);
    server.stop();
    let files = store_files(&data, &regions[0]);
    let [file] = &files[..] else { panic!("{files:?}") };
    let mut offset = 0;
    change(file, |bytes| {
        let at = find(bytes, row(DAMAGED).as_bytes())[0];
        offset = *find(&bytes[..at], b"DATABLK*").last().unwrap();
        bytes[at + 100] ^= 0x10;
    });

    let server = Server::start_on_this_machine(&data, &[]);
    let client = Client::connect(&server).await;
    let named = [file.display().to_string(), format!("{offset}")];
    let check = |error: &halcyon_client::ClientError| {
        let text = error.to_string();
        assert!(named.iter().all(|part| text.contains(part)), "{named:?}: {text}");
    };
    for _ in 0..2 {
        for number in 0..ROWS {
            let found = client.value(home(&regions, number), &row(number)).await;
            match found {
                // To see where the row before ends, and where the one behind begins, takes the block, too.
                Err(error) if number.abs_diff(DAMAGED) <= 1 => {
                    assert_eq!(class(&error), "CorruptHFileException");
                    check(&error);
                }
                found => {
                    assert_ne!(number, DAMAGED, "made of damaged bytes: {found:?}");
                    assert_eq!(found.unwrap(), Some(value(number)), "{number}");
                }
            }
        }
        let (good, bad) = (scan(&client, &regions[1]).await, scan(&client, &regions[0]).await);
        assert_eq!(good.unwrap(), ROWS - 30);
        check(&bad.unwrap_err());
        // The region goes on: it takes writes and flushes them. A compaction gives up and keeps the files.
        client.put(&regions[0], "new", b"fresh").await.unwrap();
        client.flush(&regions[0]).await.unwrap();
        client.compact(&regions[0], true).await.unwrap();
        assert!(file.exists());
        assert_eq!(client.value(&regions[0], "new").await.unwrap().unwrap(), b"fresh");
    }
    let log = server.log();
    assert!(log.contains("compaction failed; the old files stay"), "{log}");
    drop(client);
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

/// All rows of a region in one scanner, or its error.
async fn scan(client: &Client, region: &RegionInfo) -> Result<usize, halcyon_client::ClientError> {
    let request = pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(10_000),
        close_scanner: Some(true),
        ..Default::default()
    };
    Ok(client.call("Scan", &request, &[]).await?.cells.len())
}

#[tokio::test]
async fn a_region_with_a_damaged_file_stays_closed_alone() {
    let data = fresh_dir("trailer");
    let server = Server::start_on_this_machine(&data, &[]);
    let client = Client::connect(&server).await;
    let regions = table_on_disk(&client, "t", &[b"row030"]).await;
    let other = table_on_disk(&client, "other", &[]).await;
    drop(client);
    server.stop();
    let file = store_files(&data, &regions[0]).remove(0);
    let whole = fs::read(&file).unwrap();
    change(&file, |bytes| {
        let len = bytes.len();
        bytes[len - 100..].fill(0);
    });

    let server = Server::start_on_this_machine(&data, &[]);
    let client = Client::connect(&server).await;
    for number in 0..ROWS {
        assert_eq!(client.value(&other[0], &row(number)).await.unwrap(), Some(value(number)));
        let found = client.value(home(&regions, number), &row(number)).await;
        if home(&regions, number) == &regions[0] {
            let class = class(&found.unwrap_err());
            assert!(["NotServingRegionException", "RegionOpeningException"].contains(&&class[..]), "{class}");
        } else {
            assert_eq!(found.unwrap(), Some(value(number)));
        }
    }
    let reason = server.log();
    let reason = reason.lines().find(|line| line.contains("could not be opened")).expect("a reason");
    assert!(reason.contains(&file.display().to_string()) && reason.contains("trailer"), "{reason}");

    // The file is repaired: the region opens by itself, or with the next start at the latest.
    fs::write(&file, whole).unwrap();
    drop(client);
    server.stop();
    let server = Server::start_on_this_machine(&data, &[]);
    let client = Client::connect(&server).await;
    for number in 0..ROWS {
        assert_eq!(client.value(home(&regions, number), &row(number)).await.unwrap(), Some(value(number)));
    }
    drop(client);
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}

/// The log that regions of tables were written to last.
fn newest_log(data: &Path) -> PathBuf {
    let mut logs = Vec::new();
    for dir in fs::read_dir(data.join("WALs")).unwrap() {
        logs.extend(fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    logs.retain(|log| log.extension().is_none_or(|end| end != "meta"));
    logs.sort_by_key(|log| fs::metadata(log).unwrap().modified().unwrap());
    logs.pop().unwrap()
}

#[tokio::test]
async fn a_torn_log_loses_nothing_before_the_tear() {
    type Tear = fn(&mut Vec<u8>);
    // What is done to the log, and how many of the last rows are in what is torn away.
    let tears: [(&str, Tear, usize); 4] = [
        ("bytes of a write that was never acknowledged", |bytes| bytes.extend([0x4a; 700]), 0),
        ("the beginning of an entry", |bytes| bytes.extend(bytes[100..130].to_vec()), 0),
        (
            "the last entry ends in its key",
            |bytes| {
                let at = *find(bytes, b"row059").last().unwrap();
                bytes.truncate(at + 3);
            },
            1,
        ),
        (
            "the last two entries end in a value",
            |bytes| {
                let at = *find(bytes, b"row058").last().unwrap();
                bytes.truncate(at + 500);
            },
            2,
        ),
    ];
    for (what, tear, lost) in tears {
        let data = fresh_dir("torn");
        let server = Server::start_on_this_machine(&data, &[]);
        let client = Client::connect(&server).await;
        let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
        for number in 0..ROWS {
            client.put(&region, &row(number), &value(number)).await.unwrap();
        }
        drop(client);
        server.kill();
        change(&newest_log(&data), tear);

        let server = Server::start_on_this_machine(&data, &[]);
        let client = Client::connect(&server).await;
        for number in 0..ROWS {
            let expected = (number < ROWS - lost).then(|| value(number));
            assert_eq!(client.value(&region, &row(number)).await.unwrap(), expected, "{what}: row {number}");
        }
        client.put(&region, "after", b"all").await.unwrap();
        drop(client);
        server.kill();
        let server = Server::start_on_this_machine(&data, &[]);
        let client = Client::connect(&server).await;
        assert_eq!(client.value(&region, "after").await.unwrap().unwrap(), b"all", "{what}");
        assert_eq!(client.value(&region, &row(3)).await.unwrap(), Some(value(3)), "{what}");
        drop(client);
        server.stop();
        fs::remove_dir_all(&data).unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_costs_nobody() {
    let data = fresh_dir("silent");
    let server = Server::start(&data, &[]);
    let mut silent = Vec::new();
    for port in PORTS {
        for _ in 0..20 {
            silent.push(TcpStream::connect(server.address(port)).await.unwrap());
        }
    }
    let options = ConnectOptions::new("ClientService");
    let connection = Connection::connect(server.address("regionserver"), &options).await.unwrap();
    assert!(connection.call::<pb::ClusterId>("NoSuchMethod", &pb::ClusterId::default()).await.is_err());
    drop(connection);
    server.stop(); // does not wait for them
    fs::remove_dir_all(&data).unwrap();
}
