//! What one client can take from the others: memory, connections, time of event loops.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Client, eventually, header, opening, request, start};
use flate2::Compression;
use flate2::write::GzEncoder;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{CallClass, CellBlock, Codec, Compressor, QueueLimits, RpcServer, RpcSettings};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

const GZIP: &str = "org.apache.hadoop.io.compress.GzipCodec";
const TOO_BIG: &str = "org.apache.hadoop.hbase.CallQueueTooBigException";
const DO_NOT_RETRY: &str = "org.apache.hadoop.hbase.DoNotRetryIOException";

/// A client that packs its cells.
async fn packing(server: &RpcServer, compressor: &str) -> Client {
    let mut client = Client::raw(server).await;
    client.send(&opening(&header(Some(Codec::KeyValue.class()), Some(compressor)))).await;
    client
}

/// A client on another machine, as far as addresses tell.
async fn from_elsewhere(server: &RpcServer, address: &str) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse::<SocketAddr>().unwrap()).unwrap();
    let stream = socket.connect(server.local_addr()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    Client::of(stream)
}

/// Cells as small as they get, `raw_bytes` of them.
fn small_cells(raw_bytes: usize) -> Vec<u8> {
    let mut block = CellBlock::new(Codec::KeyValue);
    block.push(&Cell::put(b"r", b"f", b"", 1, b""));
    let one = block.into_bytes();
    one.repeat(raw_bytes / one.len())
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

fn limited(request_bytes_max: usize) -> RpcSettings {
    RpcSettings {
        queues: QueueLimits::new(1 << 20, request_bytes_max),
        frame_bytes_max: request_bytes_max,
        ..RpcSettings::default()
    }
}

async fn is_served(client: &mut Client, call_id: u32) {
    client.send(&request(call_id, "Echo", b"honest", b"")).await;
    assert_eq!(client.answer().await.header.call_id, Some(call_id));
}

/// 150 KB became 57 MB of two million cells, on the event loop, before anybody had looked at the method.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_cells_have_their_room_before_they_are_unpacked() {
    let (server, service) = start(limited(16 << 20)).await;
    let bomb = gzip(&small_cells(15 << 20));
    assert!(bomb.len() < 64 << 10, "{}", bomb.len());
    let mut client = packing(&server, GZIP).await;
    for call_id in 0..4 {
        client.send(&request(call_id, "Echo", b"", &bomb)).await;
        let answer = client.answer().await;
        assert_eq!(answer.exception().0, TOO_BIG, "cells are twice as large as their bytes");
    }
    assert!(service.seen.lock().is_empty());
    assert_eq!(server.queues().request_bytes(), 0);
    assert_eq!(server.queues().snapshot(CallClass::Write).refused, 4);
    // What fits is unpacked, on the event loop or beside it.
    for (call_id, raw_bytes) in (10..).zip([100, 50 << 10, 900 << 10, 3 << 20]) {
        let raw = small_cells(raw_bytes);
        client.send(&request(call_id, "Echo", b"", &gzip(&raw))).await;
        let answer = client.answer().await;
        let unpacked = Compressor::Gzip.decompress(&answer.cells, 16 << 20).unwrap();
        assert!(unpacked == raw[..], "{raw_bytes}");
        assert!(service.batches.load(Ordering::SeqCst) > 0, "the log is driven");
    }
    eventually("all room is given back", || server.queues().request_bytes() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_keep_their_room_until_the_call_is_answered() {
    let (server, service) = start(limited(64 << 20)).await;
    for (call_id, raw_bytes) in [(1, 300 << 10), (2, 3 << 20)] {
        let mut client = packing(&server, GZIP).await;
        client.send(&request(call_id, "Later", b"", &gzip(&small_cells(raw_bytes)))).await;
        eventually("it waits with its cells", || {
            let waiting = server.queues().snapshot(CallClass::Write);
            waiting.calls_waiting == 1 && waiting.request_bytes > 2 * raw_bytes
        })
        .await;
        service.release.add_permits(1);
        assert_eq!(client.answer().await.header.call_id, Some(call_id));
        eventually("the room is given back", || server.queues().request_bytes() == 0).await;
    }
}

/// A batch had room for its message, then none for its cells beside its own message, and was refused on an idle server each
/// time it was sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_replication_find_room_on_an_idle_server() {
    let (server, _service) = start(limited(99 << 20)).await; // of a process with 1 GiB
    let mut client = Client::open(&server).await;
    // What others replicate in a call, and the largest that HBase sends by default.
    for (call_id, (entries, value_bytes)) in (1..).zip([(12_000, 1), (25_000, 1), (25_000, 2_600)]) {
        let mut block = CellBlock::new(Codec::KeyValue);
        block.push(&Cell::put(b"row", b"f", b"q", 1, &vec![b'v'; value_bytes]));
        let cells = block.into_bytes().repeat(entries);
        for again in 0..2 {
            client.send(&request(call_id * 2 + again, "Replicate", &[0x0a, 0].repeat(entries), &cells)).await;
            assert_eq!(client.answer().await.message, entries.to_string().as_bytes(), "{value_bytes}");
        }
    }
    assert_eq!(server.queues().snapshot(CallClass::Replication).refused, 0);
    eventually("all room is given back", || server.queues().request_bytes() == 0).await;
}

#[tokio::test]
async fn cells_of_a_method_without_cells_are_not_unpacked() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = packing(&server, GZIP).await;
    client.send(&request(1, "Fail", b"", b"nothing of gzip")).await;
    let answer = client.answer().await;
    assert_eq!(answer.exception().0, DO_NOT_RETRY);
    assert!(answer.exception().1.contains("Fail takes no cell block"), "{:?}", answer.exception());
    assert!(service.seen.lock().is_empty());
    is_served(&mut client, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_may_not_become_a_hundred_times_as_large() {
    let settings = RpcSettings { cell_block_ratio_max: 20, ..limited(256 << 20) };
    let (server, _service) = start(settings).await;
    let mut client = packing(&server, GZIP).await;
    client.send(&request(1, "Later", b"", &gzip(&vec![0; 17 << 20]))).await;
    let answer = client.answer().await;
    assert_eq!(answer.exception().0, DO_NOT_RETRY);
    assert!(answer.exception().1.contains("halcyon.ipc.cellblock.ratio.max"), "{:?}", answer.exception());
    is_served(&mut client, 2).await;
}

/// Thousands of connections that each send most of a small frame and stop held hundreds of megabytes in no account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_do_not_end_are_counted_and_leave_room_for_others() {
    const MAX: usize = 8 << 20;
    let (server, _service) = start(limited(MAX)).await;
    let whole = request(1, "Echo", &vec![0; 60_000], b"");
    let mut hostile = Vec::new();
    for _ in 0..200 {
        let mut client = Client::open(&server).await;
        client.stream.write_all(&whole[..50_000]).await.unwrap();
        hostile.push(client);
    }
    eventually("all have been read", || server.stats().snapshot().received_bytes >= 200 * 50_000).await;
    let queues = server.queues();
    eventually("some are refused", || server.stats().snapshot().calls_refused > 100).await;
    assert!(queues.arriving_bytes() > 0 && queues.arriving_bytes() <= MAX / 16 / 2);
    assert!(queues.snapshot(CallClass::Write).request_bytes <= MAX / 16 * 9 / 16 * 15);
    assert!(hostile.iter().all(|client| client.stream.peer_addr().is_ok()));
    // The same from elsewhere.
    let mut honest = from_elsewhere(&server, "127.0.0.2").await;
    honest.send(&opening(&header(None, None))).await;
    honest.stream.write_all(&whole[..50_000]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    honest.send(&whole[50_000..]).await;
    assert_eq!(honest.answer().await.message.len(), 60_000);
    // And from here, whole at once.
    is_served(&mut Client::open(&server).await, 7).await;
    drop((hostile, honest));
    eventually("all is given back", || queues.request_bytes() == 0).await;
}

/// Not even the call of such a frame is known, so there is nobody to answer.
#[tokio::test]
async fn beginnings_of_frames_are_counted_from_the_first_byte() {
    let (server, _service) = start(limited(1 << 20)).await;
    let mut clients = Vec::new();
    for beginning in [&b"\0"[..], b"\0\x0f\0\0\xff\xff"] {
        for _ in 0..20 {
            let mut client = Client::open(&server).await;
            client.send(beginning).await;
            clients.push(client);
        }
    }
    // 64 KiB for such beginnings, half of it for one peer, and 4 KiB for each.
    eventually("most have to go", || server.stats().snapshot().connections_open == 8).await;
    assert_eq!(server.queues().arriving_bytes(), 32 << 10);
    drop(clients);
    eventually("all is given back", || server.queues().arriving_bytes() == 0).await;
}

/// Attributes of two bytes each became two megabytes for each connection, for as long as it was open.
#[tokio::test]
async fn what_connections_say_of_themselves_has_room() {
    let (server, _service) = start(limited(1 << 20)).await;
    let mut said = header(None, None);
    said.attribute = vec![pb::NameBytesPair::default(); 200];
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::raw(&server).await;
        client.send(&opening(&said)).await;
        is_served(&mut client, 1).await;
        clients.push(client);
    }
    // 32 KiB for one peer, and 56 bytes for each attribute.
    let mut third = Client::raw(&server).await;
    third.send(&opening(&said)).await;
    third.expect_close().await;
    is_served(&mut Client::open(&server).await, 2).await;
    drop(clients);
    eventually("all is given back", || server.queues().arriving_bytes() == 0).await;
    let mut again = Client::raw(&server).await;
    again.send(&opening(&said)).await;
    is_served(&mut again, 3).await;
}

/// The attributes of one request took all memory before its class was known.
#[tokio::test]
async fn a_header_without_end_is_refused_and_the_connection_goes_on() {
    let (server, service) = start(limited(64 << 20)).await;
    let mut client = Client::open(&server).await;
    let header = [&[0x08, 0x05][..], &[0x42, 0].repeat(1 << 20)].concat();
    let mut frame = Vec::new();
    prost::encoding::encode_varint(header.len() as u64, &mut frame);
    frame.extend_from_slice(&header);
    client.send(&[&(frame.len() as u32).to_be_bytes()[..], &frame].concat()).await;
    let answer = client.answer().await;
    assert_eq!((answer.header.call_id, answer.exception().0), (Some(5), DO_NOT_RETRY));
    assert!(service.seen.lock().is_empty());
    is_served(&mut client, 6).await;
}

/// Large frames that never end kept a class full for as long as their connections stayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_do_not_arrive_go_when_room_is_short() {
    let silent_timeout = Duration::from_millis(100);
    let (server, _service) = start(RpcSettings { silent_timeout, ..limited(8 << 20) }).await;
    let whole = request(1, "Echo", &vec![0; 100_000], b"");
    let mut hostile = Vec::new();
    for address in ["127.0.0.2", "127.0.0.3", "127.0.0.4"] {
        for _ in 0..20 {
            let mut client = from_elsewhere(&server, address).await;
            client.send(&opening(&header(None, None))).await;
            let _ = client.stream.write_all(&whole[..80_000]).await;
            hostile.push(client);
        }
    }
    eventually("they are left", || {
        let is_free = server.queues().snapshot(CallClass::Write).request_bytes <= (8 << 20) / 16 * 9 / 2;
        server.stats().snapshot().connections_left > 0 && is_free
    })
    .await;
}

/// It had its class for itself until it was answered, and longer if its client sent no end: all other writes were refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_larger_than_its_class_leaves_a_part_to_others() {
    let (server, service) = start(limited(16 << 20)).await;
    let mut large = from_elsewhere(&server, "127.0.0.2").await;
    large.send(&opening(&header(None, None))).await;
    let whole = request(1, "Later", &vec![0; 15 << 20], b"");
    large.send(&whole[..1 << 20]).await;
    eventually("it is counted", || server.queues().request_bytes() == whole.len() - 4).await;
    let mut other = from_elsewhere(&server, "127.0.0.3").await;
    other.send(&opening(&header(None, None))).await;
    let usual = request(2, "Echo", &vec![0; 1 << 20], b"");
    for waits in [false, true] {
        if waits {
            large.send(&whole[1 << 20..]).await;
            eventually("its call waits", || server.queues().calls_waiting() == 1).await;
        }
        other.send(&usual).await;
        assert_eq!(other.answer().await.message.len(), 1 << 20, "{waits}");
        is_served(&mut other, 3).await;
    }
    let counted = server.queues().snapshot(CallClass::Write).request_bytes;
    assert!(counted <= (16 << 20) / 16 * 9 / 4 * 3, "{counted}");
    assert!(server.queues().request_bytes() >= whole.len() - 4, "and the rest is counted elsewhere");
    service.release.add_permits(1);
    assert_eq!(large.answer().await.message.len(), 15 << 20);
    eventually("all is given back", || server.queues().request_bytes() == 0).await;
    assert_eq!(server.queues().snapshot(CallClass::Write).refused, 0);
}

/// A second for each MiB of what it had announced was left to one that sent nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_announces_much_and_sends_little_goes_when_others_need_the_room() {
    let silent_timeout = Duration::from_millis(200);
    let (server, _service) = start(RpcSettings { silent_timeout, ..limited(64 << 20) }).await;
    let mut hostile = from_elsewhere(&server, "127.0.0.2").await;
    hostile.send(&opening(&header(None, None))).await;
    hostile.send(&request(1, "Echo", &vec![0; 60 << 20], b"")[..100_000]).await;
    eventually("it is counted", || server.queues().request_bytes() > 60 << 20).await;
    tokio::time::sleep(2 * silent_timeout).await;
    assert_eq!(server.stats().snapshot().connections_left, 0, "nobody needs its room");
    let mut honest = from_elsewhere(&server, "127.0.0.3").await;
    honest.send(&opening(&header(None, None))).await;
    let large = request(2, "Echo", &vec![0; 16 << 20], b"");
    honest.send(&large).await;
    assert_eq!(honest.answer().await.exception().0, TOO_BIG);
    eventually("it is left", || server.stats().snapshot().connections_left == 1).await;
    eventually("its room is given back", || server.queues().request_bytes() == 0).await;
    honest.send(&large).await;
    assert_eq!(honest.answer().await.message.len(), 16 << 20);
}

/// A frame of more than half of its class was the crowd for which late frames have to go: over a slow link it never arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_has_its_time_while_nobody_needs_the_room() {
    let silent_timeout = Duration::from_millis(50);
    let (server, _service) = start(RpcSettings { silent_timeout, ..limited(1 << 20) }).await;
    let mut slow = Client::open(&server).await;
    let whole = request(1, "Echo", &vec![7; 400_000], b"");
    for part in whole.chunks(80_000) {
        slow.send(part).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(slow.answer().await.message.len(), 400_000);
    assert_eq!(server.stats().snapshot().connections_left, 0);
}

#[tokio::test]
async fn a_peer_does_not_take_all_connections() {
    let settings = RpcSettings { connections_max: 8, ..RpcSettings::default() };
    let (server, _service) = start(settings).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::open(&server).await;
        is_served(&mut client, 1).await;
        clients.push(client);
    }
    Client::raw(&server).await.expect_close().await;
    assert_eq!(server.stats().snapshot().connections_refused, 1);
    for address in ["127.0.0.2", "127.0.0.3"] {
        let mut elsewhere = from_elsewhere(&server, address).await;
        elsewhere.send(&opening(&header(None, None))).await;
        is_served(&mut elsewhere, 1).await;
        clients.push(elsewhere);
    }
    drop(clients);
    eventually("they have gone", || server.stats().snapshot().connections_open == 0).await;
    is_served(&mut Client::open(&server).await, 9).await;
}

/// HBase reads a parameter to the end of its frame if its length says more, and a client in Python relies on it.
#[tokio::test]
async fn a_parameter_longer_than_its_frame_ends_with_it() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    let mut frame = request(5, "Echo", &[b'x'; 200], b"");
    let at = frame.len() - 202;
    assert_eq!(frame[at..at + 2], [200 | 0x80, 1][..], "the length of the parameter");
    frame[at + 1] = 0x7f; // 16,256 and some more
    client.send(&frame).await;
    assert_eq!(&client.answer().await.message[..], &[b'x'; 200]);
    // With cells behind it, nobody knows where they begin.
    let mut frame = request(6, "Echo", &[b'x'; 200], b"cells");
    let at = frame.len() - 202 - 5;
    frame[at + 1] = 0x7f;
    client.send(&frame).await;
    assert_eq!(client.answer().await.exception().0, DO_NOT_RETRY);
    assert_eq!(service.seen.lock().len(), 1);
}
