//! Bytes that no client of ours would send. The seed is in the message of a failure; `HALCYON_SEED` repeats it.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Client, header, opening, request, start};
use halcyon_cell::Cell;
use halcyon_env::sim::Dice;
use halcyon_rpc::{CellBlock, Codec, RpcSettings, decode_cells};
use tokio::io::AsyncWriteExt;

/// Damage that repeats itself from its seed.
struct Random(Dice);

impl Random {
    fn from_environment() -> Random {
        let seed =
            std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_120);
        println!("HALCYON_SEED={seed}");
        Random(Dice::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// Flips, cuts, repeats or overwrites some bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 0x7f, 0x80, 0xff][self.below(4)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                _ => {
                    let end = (at + self.below(16)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.extend(part);
                }
            }
        }
    }
}

const CODECS: [Codec; 5] =
    [Codec::KeyValue, Codec::KeyValueWithTags, Codec::Cell, Codec::CellWithTags, Codec::Message];

fn some_cells(codec: Codec) -> Vec<u8> {
    let mut block = CellBlock::new(codec);
    block.push(&Cell::put(b"row", b"family", b"qualifier", 1, b"value"));
    block.push(&Cell::put(b"r", b"", b"", -1, b""));
    block.push(&Cell::put(b"row2", b"f", b"q", i64::MAX, &[3; 300]));
    block.into_bytes().to_vec()
}

#[test]
fn damaged_cell_blocks_are_errors_or_whole_cells() {
    let mut random = Random::from_environment();
    for codec in CODECS {
        let good = some_cells(codec);
        for _ in 0..20_000 {
            let mut bad = good.clone();
            random.damage(&mut bad);
            let Ok(cells) = decode_cells(codec, Bytes::from(bad)) else { continue };
            for cell in cells {
                let _ = (cell.row(), cell.family(), cell.qualifier(), cell.value(), cell.tags());
            }
        }
        for len in 0..good.len() {
            let _ = decode_cells(codec, Bytes::copy_from_slice(&good[..len]));
        }
    }
}

/// Whatever one client sends, it is answered with frames or a close, and the next one is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_streams_harm_nobody_else() {
    let mut random = Random::from_environment();
    let settings = RpcSettings { frame_bytes_max: 1 << 20, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    service.release.add_permits(100_000);
    let mut good = Client::open(&server).await;
    let mut stream = opening(&header(Some(Codec::KeyValue.class()), None));
    stream.extend(request(1, "Echo", b"parameter", &some_cells(Codec::KeyValue)));
    stream.extend(request(2, "Later", b"", b""));
    stream.extend(request(3, "Fail", b"", b""));
    for round in 0..2_000u32 {
        let mut bad = stream.clone();
        random.damage(&mut bad);
        let mut client = Client::raw(&server).await;
        let _ = client.stream.write_all(&bad).await;
        drop(client);
        if round % 100 == 0 {
            good.send(&request(round, "Echo", b"x", b"")).await;
            assert_eq!(good.answer().await.header.call_id, Some(round));
        }
    }
    drop(good);
    common::eventually("all connections end", || server.stats().snapshot().connections_open == 0).await;
    let queues = server.queues();
    assert_eq!((queues.calls_waiting(), queues.request_bytes(), queues.response_bytes()), (0, 0, 0));
}

#[tokio::test]
async fn bad_frames_are_answered_where_there_is_a_call_and_else_end_the_connection() {
    let (server, _service) = start(RpcSettings::default()).await;
    // A cell block longer than the frame, and a parameter longer than the frame: the call is told.
    let mut client = Client::open(&server).await;
    let mut frame = request(5, "Echo", b"", &[1; 40]);
    frame.truncate(frame.len() - 10);
    let len = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&len.to_be_bytes());
    client.send(&frame).await;
    let answer = client.answer().await;
    assert_eq!(answer.header.call_id, Some(5));
    assert_eq!(answer.exception().0, "org.apache.hadoop.hbase.DoNotRetryIOException");
    client.send(&request(6, "Echo", b"", &[9; 7])).await;
    assert!(client.answer().await.exception().1.contains("Unable to read cell block"));
    client.send(&request(7, "Echo", b"fine", b"")).await;
    assert_eq!(&client.answer().await.message[..], b"fine");

    // Cells without a codec.
    let mut plain = Client::raw(&server).await;
    plain.send(&opening(&header(None, None))).await;
    plain.send(&request(1, "Echo", b"", &[0; 4])).await;
    assert!(plain.answer().await.exception().1.contains("named no codec"));

    // No header: nobody to tell. The calls before it are answered.
    for garbage in [&b"\x00\x00\x00\x00"[..], b"\x00\x00\x00\x03\xff\xff\xff", b"\x00\x00\x00\x02\x05a"] {
        let mut client = Client::open(&server).await;
        let mut bytes = request(1, "Echo", b"before", b"");
        bytes.extend_from_slice(garbage);
        client.send(&bytes).await;
        assert_eq!(&client.answer().await.message[..], b"before");
        client.expect_close().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_introduce_itself_is_shown_out() {
    let settings = RpcSettings { handshake_timeout: Duration::from_millis(100), ..RpcSettings::default() };
    let (server, _service) = start(settings).await;
    let mut client = Client::raw(&server).await;
    client.send(b"HB").await;
    client.expect_close().await;
    let mut client = Client::raw(&server).await;
    client.send(b"HBas\x00\x50\x7f\xff\xff\xff").await;
    client.expect_close().await;
}

/// An announced length is not memory: a thousand clients that announce 200 MiB cost what they sent.
#[tokio::test]
async fn announcing_a_large_frame_costs_nothing() {
    let (server, _service) = start(RpcSettings::default()).await;
    let before = resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = Client::open(&server).await;
        client.send(&(200u32 << 20).to_be_bytes()).await;
        client.send(&[0; 100]).await;
        clients.push(client);
    }
    common::eventually("all have sent", || server.stats().snapshot().received_bytes >= 300 * 104).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for 300 announcements");
}

#[allow(clippy::disallowed_methods)] // reads /proc
fn resident_bytes() -> usize {
    let statm = std::fs::read("/proc/self/statm").unwrap();
    let pages = String::from_utf8(statm).unwrap().split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    pages * 4096
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_at_once() {
    let settings = RpcSettings { connections_max: 2, peer_share: 1.0, ..RpcSettings::default() };
    let (server, _service) = start(settings).await;
    let (mut first, _second) = (Client::open(&server).await, Client::open(&server).await);
    first.send(&request(1, "Echo", b"", b"")).await;
    first.answer().await;
    let mut third = Client::raw(&server).await;
    third.expect_close().await;
    assert_eq!(server.stats().snapshot().connections_refused, 1);
}
