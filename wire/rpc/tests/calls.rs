//! Calls over a socket, byte for byte.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Client, header, opening, request, request_within, start};
use halcyon_cell::Cell;
use halcyon_rpc::{CallClass, Codec, Compressor, Notable, QueueLimits, RpcSettings, decode_cells};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(digit).collect()
}

/// One cell as HBase's KeyValueCodec wrote it.
const GOLDEN_CELL: &str = "0000001b 00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631";

#[tokio::test]
async fn a_call_and_its_answer_byte_for_byte() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    let mut frame = request(7, "Echo", b"abc", &hex(GOLDEN_CELL));
    assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
    client.send(&frame).await;
    // length | header { call_id 7, cell_block_meta { length 31 } } | message | cells
    let expected = hex(&format!("0000002a 06 0807 1a02081f 03 616263 {GOLDEN_CELL}"));
    assert_eq!(&client.bytes(expected.len()).await[..], &expected[..]);

    // Without cells there is no meta; call id 0 and an empty parameter are ordinary.
    frame = request(0, "Echo", b"", b"");
    client.send(&frame).await;
    assert_eq!(&client.bytes(8).await[..], &hex("00000004 02 0800 00")[..]);
    assert_eq!(*service.seen.lock(), [(7, "Echo".to_string()), (0, "Echo".to_string())]);
}

#[tokio::test]
async fn registry_answer_of_hbase() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut client = Client::raw(&server).await;
    client.send(b"Regist").await;
    let mut expected = hex("0000002e 06 08ffffffff0f 26 0a24");
    expected.extend(common::CLUSTER_ID.bytes());
    assert_eq!(&client.bytes(expected.len()).await[..], &expected[..]);
    client.expect_close().await;
}

#[tokio::test]
async fn principal_is_refused_and_the_connection_goes_on() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut client = Client::raw(&server).await;
    client.send(b"Securi").await;
    let answer = client.answer().await;
    assert_eq!(answer.header.call_id, Some(u32::MAX));
    let (class, _, do_not_retry) = answer.exception();
    assert_eq!(class, "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException");
    assert!(!do_not_retry);
    client.send(&opening(&header(None, None))).await;
    client.send(&request(1, "Echo", b"x", b"")).await;
    assert_eq!(&client.answer().await.message[..], b"x");
}

#[tokio::test]
async fn a_secured_client_is_offered_to_go_on_without() {
    let (server, _service) = start(RpcSettings::default()).await;
    for auth in [0x51, 0x52] {
        let mut client = Client::raw(&server).await;
        client.send(&[b'H', b'B', b'a', b's', 0, auth]).await;
        client.send(b"\x00\x00\x00\x05token").await;
        assert_eq!(&client.bytes(8).await[..], &hex("00000000 FFFFFFA8")[..]);
        client.send(&opening(&header(None, None))[6..]).await;
        client.send(&request(1, "Echo", b"x", b"")).await;
        assert_eq!(&client.answer().await.message[..], b"x");
    }
}

#[tokio::test]
async fn bad_preambles_are_told_so() {
    let (server, _service) = start(RpcSettings::default()).await;
    for (bytes, class) in [
        (b"HBas\x07\x50", "org.apache.hadoop.hbase.ipc.WrongVersionException"),
        (b"HBas\x00\x01", "org.apache.hadoop.hbase.ipc.BadAuthException"),
        (b"GET / ", "org.apache.hadoop.hbase.ipc.FatalConnectionException"),
    ] {
        let mut client = Client::raw(&server).await;
        client.send(bytes).await;
        client.send(b"and more that nobody reads").await;
        let answer = client.answer().await;
        assert_eq!(answer.header.call_id, Some(u32::MAX));
        assert_eq!(answer.exception().0, class);
        assert!(answer.exception().2);
        client.expect_close().await;
    }
}

#[tokio::test]
async fn unknown_service_codec_and_compressor_close_without_a_word() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut unknown_service = header(None, None);
    unknown_service.service_name = Some("NoService".to_string());
    for header in [
        unknown_service,
        header(Some("org.example.Codec"), None),
        header(None, Some("org.example.Compressor")),
    ] {
        let mut client = Client::raw(&server).await;
        client.send(&opening(&header)).await;
        client.expect_close().await;
    }
}

#[tokio::test]
async fn failures_are_exceptions_and_the_connection_goes_on() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    client.send(&request(1, "Fail", b"", b"")).await;
    let answer = client.answer().await;
    let exception = answer.header.exception.as_ref().unwrap();
    assert_eq!((exception.hostname.as_deref(), exception.port), (Some("h2"), Some(16021)));
    assert!(answer.exception().1.contains("hostname=h2 port=16021 startCode=5. As of locationSeqNum=6."));

    client.send(&request(2, "NoSuchMethod", b"", b"")).await;
    let answer = client.answer().await;
    assert_eq!(answer.exception().0, "org.apache.hadoop.hbase.DoNotRetryIOException");
    assert!(answer.exception().1.contains("java.lang.UnsupportedOperationException: NoSuchMethod"));

    for (id, method) in [(3, "Panic"), (4, "LaterPanic")] {
        client.send(&request(id, method, b"", b"")).await;
        let answer = client.answer().await;
        assert_eq!(answer.header.call_id, Some(id));
        assert!(answer.exception().1.contains("as asked"));
    }
    client.send(&request(5, "Echo", b"still here", b"")).await;
    assert_eq!(&client.answer().await.message[..], b"still here");
    assert_eq!(server.stats().snapshot().calls_failed, 4);
    // The service learns of all of them, also of those that it could not know itself.
    let told = || *service.answered.lock() == (5, 4);
    common::eventually("the service is told of each answer", told).await;
}

/// Calls that came together are told together if they have the same tags, and failed calls have none.
#[tokio::test]
async fn the_service_gets_back_how_it_tagged_its_answers() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    let params: [(&str, &[u8]); 5] =
        [("Echo", b"two"), ("Echo", b"one"), ("Fail", b""), ("Echo", b"three"), ("Echo", b"three")];
    let frames: Vec<u8> =
        (0u32..).zip(params).flat_map(|(id, (method, param))| request(id, method, param, b"")).collect();
    client.send(&frames).await;
    for _ in params {
        client.answer().await;
    }
    let expected = [(vec![], 1), (vec![3], 2), (vec![5], 2)].into();
    common::eventually("every answer is told of", || *service.tags.lock() == expected).await;
}

#[tokio::test]
async fn pipelined_calls_come_as_one_batch_and_in_order() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    let frames: Vec<u8> = (0..50u32).flat_map(|id| request(id, "Echo", &id.to_be_bytes(), b"")).collect();
    client.send(&frames).await;
    for id in 0..50u32 {
        let answer = client.answer().await;
        assert_eq!((answer.header.call_id, &answer.message[..]), (Some(id), &id.to_be_bytes()[..]));
    }
    assert!(service.batches.load(Ordering::SeqCst) <= 3, "handed out in {:?} batches", service.batches);
    assert_eq!(server.stats().snapshot().calls, 50);
}

#[tokio::test]
async fn later_answers_overtake_nobody_and_hold_up_nobody() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    client.send(&request(1, "Later", b"slow", b"")).await;
    client.send(&request(2, "Echo", b"quick", b"")).await;
    assert_eq!(client.answer().await.header.call_id, Some(2));
    assert_eq!(server.queues().calls_waiting(), 1);
    service.release.add_permits(1);
    let answer = client.answer().await;
    assert_eq!((answer.header.call_id, &answer.message[..]), (Some(1), &b"slow"[..]));
    common::eventually("nothing waits", || server.queues().calls_waiting() == 0).await;
    assert_eq!(server.queues().request_bytes(), 0);
}

#[tokio::test]
async fn torn_frames_are_put_together() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut client = Client::raw(&server).await;
    let mut all = opening(&header(Some(Codec::KeyValue.class()), None));
    all.extend(request(1, "Echo", b"one", &hex(GOLDEN_CELL)));
    all.extend(request(2, "Echo", b"two", b""));
    for byte in all {
        client.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(&client.answer().await.message[..], b"one");
    assert_eq!(&client.answer().await.message[..], b"two");
}

#[tokio::test]
async fn large_values_go_both_ways() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    for len in [0usize, 100, 4000, 5000, 70_000, 3 << 20] {
        client.send(&request(1, "Big", &(len as u32).to_be_bytes(), b"")).await;
        let cells = decode_cells(Codec::KeyValue, client.answer().await.cells).unwrap();
        assert_eq!((cells.len(), cells[0].value().len()), (1, len));

        client.send(&request(2, "Echo", &vec![b'p'; len], b"")).await;
        assert_eq!(client.answer().await.message.len(), len);
    }
    common::eventually("all is written", || server.queues().response_bytes() == 0).await;
}

#[tokio::test]
async fn compressed_cell_blocks() {
    let (server, _service) = start(RpcSettings::default()).await;
    for (class, compressor) in [
        ("org.apache.hadoop.io.compress.SnappyCodec", Compressor::Snappy),
        ("org.apache.hadoop.io.compress.Lz4Codec", Compressor::Lz4),
        ("org.apache.hadoop.io.compress.GzipCodec", Compressor::Gzip),
        ("org.apache.hadoop.io.compress.DefaultCodec", Compressor::Deflate),
    ] {
        let mut client = Client::raw(&server).await;
        client.send(&opening(&header(Some(Codec::KeyValue.class()), Some(class)))).await;
        let block = compressor.compress(&hex(GOLDEN_CELL));
        client.send(&request(1, "Echo", b"", &block)).await;
        let answer = client.answer().await;
        let raw = compressor.decompress(&answer.cells, 1 << 20).unwrap();
        assert_eq!(&raw[..], &hex(GOLDEN_CELL)[..], "{class}");

        client.send(&request(2, "Echo", b"", b"\x00\x00\x00\x10nonsense")).await;
        assert!(client.answer().await.exception().1.contains("Unable to read cell block"));
    }
}

#[tokio::test]
async fn a_frame_over_the_limit_is_refused_and_ends_the_connection() {
    let settings = RpcSettings { frame_bytes_max: 10_000, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut old = header(None, None);
    old.version_info = None;
    for (header, class) in [
        (header(None, None), "org.apache.hadoop.hbase.exceptions.RequestTooBigException"),
        (old, "org.apache.hadoop.hbase.DoNotRetryIOException"),
    ] {
        let mut client = Client::raw(&server).await;
        client.send(&opening(&header)).await;
        client.send(&request(1, "Echo", b"before", b"")).await;
        client.send(&request(9, "Echo", &[0; 20_000], b"")).await;
        assert_eq!(&client.answer().await.message[..], b"before");
        let answer = client.answer().await;
        assert_eq!(answer.header.call_id, Some(9));
        assert_eq!(answer.exception().0, class);
        client.expect_close().await;
    }
    assert_eq!(service.seen.lock().len(), 2);
}

/// The answer to such a frame was written and the connection closed while most of the frame was still to be read:
/// the client's system then threw the answer away with a reset, and clients tried again for minutes.
#[tokio::test]
async fn a_frame_far_over_the_limit_can_be_sent_to_its_end() {
    let settings = RpcSettings { frame_bytes_max: 10_000, ..RpcSettings::default() };
    let (server, _service) = start(settings).await;
    let mut client = Client::open(&server).await;
    client.send(&request(9, "Echo", &vec![0; 30 << 20], b"")).await;
    assert_eq!(
        client.answer().await.exception().0,
        "org.apache.hadoop.hbase.exceptions.RequestTooBigException"
    );
    client.expect_close().await;
}

/// A connection whose own work fails by an assertion ends, and leaves nothing counted.
#[tokio::test]
async fn a_connection_that_fails_takes_nothing_along() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    for id in 0..5 {
        client.send(&request(id, "Later", b"", b"")).await;
    }
    common::eventually("all are waiting", || server.queues().calls_waiting() == 5).await;
    client.send(&request(5, "PanicEarly", b"", b"")).await;
    client.expect_close().await;
    service.release.add_permits(5);
    common::eventually("the service was told", || service.closed.load(Ordering::SeqCst) == 1).await;
    let queues = server.queues();
    assert_eq!((queues.calls_waiting(), queues.request_bytes(), queues.response_bytes()), (0, 0, 0));
    common::eventually("the connection ends", || server.stats().snapshot().connections_open == 0).await;
}

#[tokio::test]
async fn calls_of_a_client_that_went_away_are_driven_to_their_end() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    for id in 0..5 {
        client.send(&request(id, "Later", b"", b"")).await;
    }
    common::eventually("all are waiting", || server.queues().calls_waiting() == 5).await;
    drop(client);
    service.release.add_permits(5);
    common::eventually("all are finished", || service.finished.load(Ordering::SeqCst) == 5).await;
    common::eventually("the service was told", || service.closed.load(Ordering::SeqCst) == 1).await;
    let queues = server.queues();
    assert_eq!((queues.calls_waiting(), queues.request_bytes(), queues.response_bytes()), (0, 0, 0));
    common::eventually("the connection ends", || server.stats().snapshot().connections_open == 0).await;
}

#[tokio::test]
async fn a_connection_with_too_many_calls_is_not_read_until_some_are_answered() {
    let settings = RpcSettings { connection_calls_max: 3, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    for id in 0..10 {
        client.send(&request(id, "Later", b"", b"")).await;
    }
    common::eventually("three are taken", || service.seen.lock().len() == 3).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(service.seen.lock().len(), 3);
    service.release.add_permits(10);
    let mut ids: Vec<u32> = Vec::new();
    for _ in 0..10 {
        ids.push(client.answer().await.header.call_id.unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_full_server_refuses_calls() {
    let settings = RpcSettings { queues: QueueLimits::new(2, 1 << 20), ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    for id in 0..2 {
        client.send(&request(id, "Later", b"", b"")).await;
    }
    common::eventually("two wait", || server.queues().calls_waiting() == 2).await;
    let mut other = Client::open(&server).await;
    other.send(&request(7, "Echo", b"", b"")).await;
    let answer = other.answer().await;
    assert_eq!(answer.exception().0, "org.apache.hadoop.hbase.CallQueueTooBigException");
    assert_eq!(answer.header.exception.unwrap().server_overloaded, Some(true));
    service.release.add_permits(2);
    common::eventually("none waits", || server.queues().calls_waiting() == 0).await;
    other.send(&request(8, "Echo", b"now", b"")).await;
    assert_eq!(&other.answer().await.message[..], b"now");
}

#[tokio::test]
async fn a_full_class_refuses_its_calls_and_no_others() {
    let settings = RpcSettings { queues: QueueLimits::new(2, 1 << 20), ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    for id in 0..5 {
        client.send(&request(id, "ScanLater", b"", b"")).await;
        let waiting = 2.min(id as usize + 1);
        common::eventually("it is handed out", || server.queues().calls_waiting() == waiting).await;
    }
    for id in 2..5 {
        let answer = client.answer().await;
        assert_eq!(answer.header.call_id, Some(id));
        assert_eq!(answer.exception().0, "org.apache.hadoop.hbase.CallQueueTooBigException");
    }
    client.send(&request(5, "Echo", b"not a scan", b"")).await;
    assert_eq!(&client.answer().await.message[..], b"not a scan");
    let scans = server.queues().snapshot(CallClass::Scan);
    assert_eq!((scans.calls_waiting, scans.refused), (2, 3));
    assert_eq!(server.queues().snapshot(CallClass::Write).refused, 0);
    service.release.add_permits(2);
    for _ in 0..2 {
        assert!(client.answer().await.header.exception.is_none());
    }
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_dropped_without_a_word() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    client.send(&request_within(1, "ScanLater", b"", b"", Some(30))).await;
    client.send(&request_within(2, "ScanLater", b"", b"", Some(600_000))).await;
    common::eventually("both wait", || server.queues().calls_waiting() == 2).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    service.release.add_permits(2);
    assert_eq!(client.answer().await.header.call_id, Some(2));
    common::eventually("it is dropped", || server.queues().calls_waiting() == 0).await;
    let scans = server.queues().snapshot(CallClass::Scan);
    assert_eq!((scans.expired, scans.abandoned, scans.request_bytes), (1, 0, 0));
    assert_eq!(service.finished.load(Ordering::SeqCst), 1);
    client.send(&request(3, "Echo", b"on", b"")).await;
    assert_eq!(client.answer().await.header.call_id, Some(3), "no answer came for the first one");
}

/// A call may come in one piece with the opening of its connection; its time began then, and not with the clock.
#[tokio::test]
async fn a_call_behind_the_opening_has_all_its_time() {
    let (server, service) = start(RpcSettings::default()).await;
    let asleep = Duration::from_millis(30); // the server's clock began with it
    tokio::time::sleep(asleep).await;
    let mut client = Client::raw(&server).await;
    let mut bytes = common::opening(&common::header(None, None));
    bytes.extend(request(1, "Echo", b"first", b""));
    client.send(&bytes).await;
    assert_eq!(&client.answer().await.message[..], b"first");
    assert!(u128::from(service.received_ns.load(Ordering::SeqCst)) >= asleep.as_nanos());
}

/// Frames that wait because their client takes no answers wait as well.
#[tokio::test]
async fn a_call_that_waited_unread_is_dropped_when_its_time_is_over() {
    let settings = RpcSettings { connection_calls_max: 1, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    let mut both = request(1, "Later", b"", b"");
    both.extend(request_within(2, "Echo", b"", b"", Some(30)));
    both.extend(request_within(3, "Echo", b"", b"", Some(600_000)));
    client.send(&both).await;
    common::eventually("one waits", || server.queues().calls_waiting() == 1).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    service.release.add_permits(1);
    for id in [1, 3] {
        assert_eq!(client.answer().await.header.call_id, Some(id));
    }
    assert_eq!(server.queues().snapshot(CallClass::Write).expired, 1);
}

#[tokio::test]
async fn what_a_client_left_behind_is_dropped() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    for id in 0..5 {
        client.send(&request(id, "ScanLater", b"", b"")).await;
    }
    common::eventually("all wait", || server.queues().calls_waiting() == 5).await;
    // Not only the end of what it sends: an answer that it cannot take any more.
    client.stream.set_zero_linger().unwrap();
    drop(client);
    common::eventually("it is noticed", || server.stats().snapshot().connections_open == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    service.release.add_permits(5);
    common::eventually("none waits", || server.queues().calls_waiting() == 0).await;
    assert_eq!(server.queues().snapshot(CallClass::Scan).abandoned, 5);
    assert_eq!(service.finished.load(Ordering::SeqCst), 0);
}

/// Large requests are counted while they arrive: what does not fit is refused without being kept, and the
/// connection goes on.
#[tokio::test]
async fn large_frames_that_arrive_slowly_do_not_fill_the_memory() {
    let settings = RpcSettings { queues: QueueLimits::new(100, 1 << 20), ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let (mut first, mut second) = (Client::open(&server).await, Client::open(&server).await);
    // Larger than the limit, but alone.
    let large = request(1, "Echo", &vec![1; 2 << 20], b"");
    first.send(&large[..large.len() / 2]).await;
    common::eventually("it is counted", || server.queues().request_bytes() == large.len() - 4).await;
    let refused = request(2, "Echo", &vec![2; 500_000], b"");
    second.send(&refused).await;
    second.send(&request(3, "Echo", b"small", b"")).await;
    let answer = second.answer().await;
    assert_eq!(answer.header.call_id, Some(2));
    assert_eq!(answer.exception().0, "org.apache.hadoop.hbase.CallQueueTooBigException");
    let small = second.answer().await; // something is left for others
    assert_eq!((small.header.call_id, &small.message[..]), (Some(3), &b"small"[..]));

    first.send(&large[large.len() / 2..]).await;
    assert_eq!(first.answer().await.message.len(), 2 << 20);
    second.send(&refused).await;
    assert_eq!(second.answer().await.message.len(), 500_000);
    first.send(&large[..100_000]).await;
    common::eventually("it is counted", || server.queues().request_bytes() > 0).await;
    drop(first);
    common::eventually("it is forgotten", || server.queues().request_bytes() == 0).await;
    assert_eq!(service.seen.lock().len(), 3);
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_not_read() {
    let settings = RpcSettings { connection_response_bytes_max: 1 << 20, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    let count = 100u32;
    let frames: Vec<u8> =
        (0..count).flat_map(|id| request(id, "Big", &(1u32 << 20).to_be_bytes(), b"")).collect();
    client.send(&frames).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let taken = service.seen.lock().len();
    assert!(taken < 50, "{taken} answers of a megabyte were made for nobody");
    assert!(server.queues().response_bytes() <= 3 << 20);
    for id in 0..count {
        let answer = client.answer().await;
        assert_eq!((answer.header.call_id, answer.cells.len() > 1 << 20), (Some(id), true));
    }
}

#[tokio::test]
async fn stop_answers_what_it_took_and_refuses_the_rest() {
    let (server, service) = start(RpcSettings::default()).await;
    let address = server.local_addr();
    let mut client = Client::open(&server).await;
    let mut idle = Client::open(&server).await;
    let mut silent = Client::raw(&server).await;
    client.send(&request(1, "Later", b"x", b"")).await;
    common::eventually("it waits", || server.queues().calls_waiting() == 1).await;
    let stopping = tokio::spawn(async move { server.stop(Duration::from_secs(10)).await });
    idle.expect_close().await;
    silent.expect_close().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    service.release.add_permits(1);
    assert_eq!(&client.answer().await.message[..], b"x");
    client.expect_close().await;
    assert!(stopping.await.unwrap(), "all was drained");
}

#[tokio::test]
async fn stop_does_not_wait_for_ever() {
    let (server, _service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    client.send(&request(1, "Later", b"x", b"")).await;
    common::eventually("it waits", || server.queues().calls_waiting() == 1).await;
    assert!(!server.stop(Duration::from_millis(50)).await);
    client.expect_close().await;
}

#[test]
fn cells_of_every_codec_come_back() {
    let cells = [Cell::put(b"r1", b"f", b"q1", 1000, b"v1"), Cell::put(b"r2", b"", b"", 5, &[7; 9000])];
    for codec in [Codec::KeyValue, Codec::KeyValueWithTags, Codec::Cell, Codec::CellWithTags, Codec::Message]
    {
        assert_eq!(Codec::of_class(codec.class()), Some(codec));
        let mut block = halcyon_rpc::CellBlock::new(codec);
        cells.iter().for_each(|cell| block.push(cell));
        assert_eq!(block.cells_count(), 2);
        let (len, bytes) = (block.len(), block.into_bytes());
        assert_eq!(bytes.len(), len);
        assert_eq!(decode_cells(codec, bytes).unwrap(), cells, "{codec:?}");
    }
}

#[tokio::test]
async fn what_calls_took_is_counted_by_class() {
    let (server, service) = start(RpcSettings::default()).await;
    let mut client = Client::open(&server).await;
    client.send(&request(1, "ScanLater", b"x", b"")).await;
    common::eventually("it waits", || server.queues().calls_waiting() == 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    service.release.add_permits(1);
    client.answer().await;
    client.send(&request(2, "Echo", b"x", b"")).await;
    client.answer().await;
    common::eventually("both are counted", || server.queues().times(CallClass::Write).count == 1).await;
    let times = server.queues().times(CallClass::Scan);
    assert_eq!(times.count, 1);
    assert!(times.sum_seconds >= 0.02, "{times:?}");
    let (_, soon) = times.up_to.iter().rev().find(|(seconds, _)| *seconds < 0.02).unwrap();
    assert_eq!((*soon, times.up_to.last().unwrap().1), (0, 1));
}

/// A service knew of slow calls only how many of a class there were, and nothing of large answers.
#[tokio::test]
async fn a_service_is_told_of_each_slow_call_and_of_each_large_answer() {
    let settings = RpcSettings { connection_response_bytes_max: 64 << 20, ..RpcSettings::default() };
    let (server, service) = start(settings).await;
    let mut client = Client::open(&server).await;
    client.send(&request(1, "Echo", b"quick", b"")).await;
    client.answer().await;
    assert!(service.noted.lock().is_empty(), "nothing is notable");

    const SLOW: Duration = Duration::from_millis(100);
    *service.notable.lock() = Notable { time_ns: SLOW.as_nanos() as u64, response_bytes: 1 << 20 };
    client.send(&request(2, "Later", b"slow", b"")).await;
    client.send(&request(3, "Echo", b"quick", b"")).await;
    assert_eq!(client.answer().await.header.call_id, Some(3));
    tokio::time::sleep(SLOW).await;
    service.release.add_permits(1);
    assert_eq!(client.answer().await.header.call_id, Some(2));
    common::eventually("the slow call is told", || service.noted.lock().len() == 1).await;
    let slow = service.noted.lock()[0].clone();
    assert_eq!(
        (slow.call_id, &*slow.method, &slow.param[..], slow.failed),
        (2, "Later", &b"slow"[..], false)
    );
    assert!(slow.times[1] >= SLOW && slow.response_bytes < 100, "{slow:?}");

    client.send(&request(4, "Big", &(2u32 << 20).to_be_bytes(), b"")).await;
    client.answer().await;
    common::eventually("the large answer is told", || service.noted.lock().len() == 2).await;
    let large = service.noted.lock()[1].clone();
    assert!(large.call_id == 4 && large.response_bytes > 2 << 20, "{large:?}");

    // More than the buffers of the socket hold, and a client that does not read: the time is the network's.
    service.notable.lock().response_bytes = u64::MAX;
    client.send(&request(5, "Big", &(32u32 << 20).to_be_bytes(), b"")).await;
    tokio::time::sleep(2 * SLOW).await;
    assert_eq!(service.noted.lock().len(), 2, "its answer is not sent yet");
    client.answer().await;
    common::eventually("the slow client is told", || service.noted.lock().len() == 3).await;
    let unread = service.noted.lock()[2].clone();
    assert!(unread.call_id == 5 && unread.times[2] >= SLOW, "{unread:?}");
}
