//! The scanner protocol: limits, sequence numbers, leases, partial results, heartbeats, cursors.

use crate::common;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Lab, class, decoded, put, rows, text};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{Codec, Service};
use prost::Message;

const LEASE: Duration = Duration::from_secs(60);

/// Rows r00 to r19 with one cell each.
fn lab() -> Lab {
    let lab = Lab::new();
    for number in 0..20 {
        lab.put(&format!("r{number:02}"), "q", &number.to_string());
    }
    lab
}

fn next(id: u64, rows: u32, seq: u64) -> pb::ScanRequest {
    pb::ScanRequest {
        scanner_id: Some(id),
        number_of_rows: Some(rows),
        next_call_seq: Some(seq),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..Default::default()
    }
}

fn close(id: u64) -> pb::ScanRequest {
    let close_scanner = Some(true);
    pb::ScanRequest { scanner_id: Some(id), number_of_rows: Some(0), close_scanner, ..Default::default() }
}

/// Each open scanner kept the frame that it came in, with whatever had arrived together with it: a hundred thousand of them were counted
/// with 4 KiB each.
#[test]
fn an_open_scanner_keeps_nothing_of_its_frame() {
    let ways = [(false, None, false), (false, None, true), (true, None, true), (false, Some(3), false)];
    for (flushed, limit_of_rows, filtered) in ways {
        let lab = lab();
        if flushed {
            lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        }
        let range = pb::TimeRange { from: Some(0), to: None };
        let scan = pb::Scan {
            start_row: Some("r00".into()),
            stop_row: Some("r99".into()),
            column: vec![pb::Column { family: "f".into(), qualifier: vec!["q".into()] }],
            filter: filtered.then(|| prefix_filter("r")),
            cf_time_range: vec![pb::ColumnFamilyTimeRange { column_family: "f".into(), time_range: range }],
            attribute: vec![pb::NameBytesPair {
                name: "_isolationlevel_".to_string(),
                value: Some("x".into()),
            }],
            // Two rows, so that a scan with a limit does not end, either.
            max_result_size: limit_of_rows.map(|_| 100),
            ..Default::default()
        };
        let frame = Bytes::from(pb::ScanRequest { limit_of_rows, ..lab.open(3, scan) }.encode_to_vec());
        let call = lab.raw_call("Scan", frame.clone(), Vec::new());
        let context = lab.runtime.enter();
        let reply = lab.finish(&lab.client, lab.client.call(call)).unwrap();
        drop(context);
        let (opened, cells) = decoded::<pb::ScanResponse>(reply);
        assert!(!cells.is_empty() && opened.more_results_in_region(), "{cells:?}");
        assert!(frame.is_unique(), "{flushed} {limit_of_rows:?} {filtered}");
        let (_, more) = lab.scan(&next(opened.scanner_id(), 1, 0)).unwrap();
        assert_eq!(rows(&more), [format!("r{:02}", cells.len())]);
    }
}

#[test]
fn a_scan_goes_through_the_region() {
    for flushed in [false, true] {
        let lab = lab();
        if flushed {
            lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        }
        let (first, cells) = lab.scan(&lab.open(8, pb::Scan::default())).unwrap();
        assert_eq!(first.cells_per_result, [1; 8]);
        assert_eq!(first.partial_flag_per_result, [false; 8]);
        assert_eq!((first.more_results, first.more_results_in_region), (Some(true), Some(true)));
        assert_eq!((first.ttl, first.stale, first.heartbeat_message), (Some(60_000), Some(false), None));
        assert!(first.mvcc_read_point() > 0);
        assert_eq!(rows(&cells)[7], "r07");
        let id = first.scanner_id();
        assert!(id > 0 && i64::try_from(id).is_ok());
        let (second, cells) = lab.scan(&next(id, 8, 0)).unwrap();
        assert_eq!((second.scanner_id(), second.ttl), (id, None));
        assert_eq!(rows(&cells)[0], "r08");
        let (third, cells) = lab.scan(&next(id, 8, 1)).unwrap();
        assert_eq!((third.more_results, third.more_results_in_region), (Some(true), Some(false)));
        assert_eq!(rows(&cells), ["r16", "r17", "r18", "r19"]);
        // The server has closed it; old clients close it again, others never ask.
        let (fourth, _) = lab.scan(&close(id)).unwrap();
        assert_eq!(fourth, pb::ScanResponse { scanner_id: Some(id), ..Default::default() });
        assert_eq!(lab.scan(&next(id, 8, 2)).unwrap().0.scanner_id(), id);
        assert_eq!(class(lab.scan(&next(id, 8, 1))), "OutOfOrderScannerNextException");
        assert_eq!(class(lab.scan(&close(id + 99))), "UnknownScannerException");
    }
}

#[test]
fn a_scan_of_everything_ends_with_the_first_call() {
    let lab = lab();
    let (all, cells) = lab.scan(&lab.open(i32::MAX as u32, pb::Scan::default())).unwrap();
    assert_eq!((all.more_results_in_region(), cells.len()), (false, 20));
    let reversed = pb::Scan { reversed: Some(true), start_row: Some("r05".into()), ..Default::default() };
    let (_, cells) = lab.scan(&lab.open(3, reversed)).unwrap();
    assert_eq!(rows(&cells), ["r05", "r04", "r03"]);
    let one = pb::Scan { start_row: Some("r07".into()), stop_row: Some("r07".into()), ..Default::default() };
    assert_eq!(rows(&lab.scan(&lab.open(3, one.clone())).unwrap().1), ["r07"], "as clients of old mean it");
    let none = pb::Scan { include_stop_row: Some(false), ..one };
    let (empty, cells) = lab.scan(&lab.open(3, none)).unwrap();
    assert_eq!((empty.more_results_in_region(), cells.len()), (false, 0));
    assert_eq!((empty.cells_per_result.len(), empty.more_results()), (0, true));
}

#[test]
fn open_only_and_close_in_one_call() {
    let lab = lab();
    let (opened, cells) = lab.scan(&lab.open(0, pb::Scan::default())).unwrap();
    assert_eq!((opened.more_results_in_region(), cells.len()), (true, 0));
    assert_eq!(lab.scan(&next(opened.scanner_id(), 2, 0)).unwrap().1.len(), 2);
    let closing = pb::ScanRequest { close_scanner: Some(true), ..lab.open(2, pb::Scan::default()) };
    let (closed, cells) = lab.scan(&closing).unwrap();
    assert_eq!((cells.len(), closed.more_results_in_region()), (2, true));
    assert_eq!(lab.scan(&close(closed.scanner_id())).unwrap().0.more_results, None);
    assert_eq!(class(lab.scan(&pb::ScanRequest::default())), "DoNotRetryIOException");
}

#[test]
fn the_limit_of_rows_ends_the_scan() {
    for flushed in [false, true] {
        let lab = lab();
        if flushed {
            lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        }
        let limited = pb::ScanRequest { limit_of_rows: Some(3), ..lab.open(100, pb::Scan::default()) };
        let (response, cells) = lab.scan(&limited).unwrap();
        assert_eq!((cells.len(), response.more_results()), (3, false));
        assert_eq!(response.more_results_in_region, Some(true));
        assert_eq!(lab.scan(&close(response.scanner_id())).unwrap().0.more_results, None, "closed already");
    }
}

#[test]
fn limits_count_a_cut_row_when_the_next_one_begins() {
    let lab = Lab::new();
    for row in ["a", "b", "c"] {
        for qualifier in ["1", "2", "3"] {
            lab.put(row, qualifier, qualifier);
        }
    }
    let batched = pb::Scan { batch_size: Some(2), ..Default::default() };
    let limited = pb::ScanRequest { limit_of_rows: Some(2), ..lab.open(1, batched) };
    let (first, cells) = lab.scan(&limited).unwrap();
    assert_eq!((first.partial_flag_per_result.clone(), cells.len()), (vec![true], 2));
    let more = pb::ScanRequest { limit_of_rows: Some(2), ..next(first.scanner_id(), 10, 0) };
    let (second, cells) = lab.scan(&more).unwrap();
    assert_eq!(second.cells_per_result, [1, 2, 1]);
    assert_eq!(second.partial_flag_per_result, [false, true, false]);
    assert_eq!(
        (second.more_results(), text(&cells)),
        (false, vec!["3".into(), "1".into(), "2".into(), "3".into()])
    );
}

#[test]
fn sequence_numbers_are_checked() {
    let lab = lab();
    let id = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    assert_eq!(class(lab.scan(&next(id, 1, 1))), "OutOfOrderScannerNextException");
    assert_eq!(rows(&lab.scan(&next(id, 1, 0)).unwrap().1), ["r01"], "the scanner is still there");
    assert_eq!(class(lab.scan(&next(id, 1, 0))), "OutOfOrderScannerNextException");
    let unnumbered = pb::ScanRequest { next_call_seq: None, ..next(id, 1, 0) };
    assert_eq!(rows(&lab.scan(&unnumbered).unwrap().1), ["r02"], "gohbase never sends one");
    let renew = pb::ScanRequest { renew: Some(true), ..next(id, 1, 1) };
    let (renewed, cells) = lab.scan(&renew).unwrap();
    assert_eq!((renewed.scanner_id(), cells.len(), renewed.more_results_in_region), (id, 0, None));
    assert_eq!(rows(&lab.scan(&next(id, 1, 2)).unwrap().1), ["r03"]);
}

fn wait_for_expiry(lab: &Lab, expired: u64) {
    for _ in 0..100 {
        if lab.server.counters.leases_expired.get() >= expired {
            return;
        }
        lab.clock.advance(Duration::from_secs(1)); // chores look once a second, by this clock
        std::thread::yield_now();
        halcyon_env::Env::real().clock.sleep(Duration::from_millis(20));
    }
    panic!("no lease expired");
}

#[test]
fn leases_run_out_and_are_renewed() {
    let lab = lab();
    let id = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    lab.clock.advance(LEASE - Duration::from_secs(10));
    lab.scan(&pb::ScanRequest { renew: Some(true), ..next(id, 1, 0) }).unwrap();
    lab.clock.advance(Duration::from_secs(20));
    assert_eq!(rows(&lab.scan(&next(id, 1, 1)).unwrap().1), ["r01"]);
    lab.clock.advance(LEASE);
    wait_for_expiry(&lab, 1);
    assert_eq!(class(lab.scan(&next(id, 1, 2))), "UnknownScannerException");
    assert_eq!(class(lab.scan(&close(id))), "UnknownScannerException");
}

#[test]
fn a_region_that_closes_takes_its_scanners_along() {
    let lab = lab();
    let id = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    assert_eq!(class(lab.scan(&next(id, 1, 0))), "NotServingRegionException");
    assert_eq!(class(lab.scan(&next(id, 1, 1))), "UnknownScannerException");
    assert_eq!(class(lab.scan(&lab.open(1, pb::Scan::default()))), "NotServingRegionException");
    lab.server.open_region(&lab.info, &common::table().into()).unwrap();
    assert_eq!(rows(&lab.scan(&lab.open(1, pb::Scan::default())).unwrap().1), ["r00"]);
}

fn wide(lab: &Lab) {
    for row in ["a", "b"] {
        let cells: Vec<Cell> = (0..10)
            .map(|n| Cell::put(row.as_bytes(), b"f", format!("q{n}").as_bytes(), i64::MAX, &[b'x'; 100]))
            .collect();
        lab.mutate(put(10), cells).unwrap();
    }
}

#[test]
fn rows_are_cut_only_for_clients_that_can_put_them_together() {
    let lab = Lab::new();
    wide(&lab);
    let small = pb::Scan { max_result_size: Some(500), ..Default::default() };
    let (response, cells) = lab.scan(&lab.open(100, small.clone())).unwrap();
    assert_eq!(response.partial_flag_per_result, [true]);
    assert!(cells.len() < 10 && response.more_results_in_region(), "{}", cells.len());
    let mut total = cells.len();
    for seq in 0.. {
        let (response, cells) = lab.scan(&next(response.scanner_id(), 100, seq)).unwrap();
        total += cells.len();
        if !response.more_results_in_region() {
            assert_ne!(response.partial_flag_per_result.last(), Some(&true));
            break;
        }
    }
    assert_eq!(total, 20);
    // asynchbase says nothing about partial results: whole rows, whatever their size.
    let whole = pb::ScanRequest {
        client_handles_partials: None,
        client_handles_heartbeats: None,
        ..lab.open(100, small)
    };
    let (response, cells) = lab.scan(&whole).unwrap();
    assert_eq!((response.cells_per_result, response.partial_flag_per_result), (vec![10], vec![false]));
    assert_eq!(cells.len(), 10);
}

#[test]
fn a_result_that_turns_out_to_be_the_last_is_not_partial() {
    let lab = Lab::new();
    wide(&lab);
    let batched = pb::Scan { batch_size: Some(5), ..Default::default() };
    let (response, _) = lab.scan(&lab.open(100, batched)).unwrap();
    assert_eq!(response.cells_per_result, [5, 5, 5, 5]);
    assert!(!response.more_results_in_region());
    assert_eq!(response.partial_flag_per_result.last(), Some(&false));
}

#[test]
fn without_a_codec_results_stand_in_the_message() {
    let mut lab = lab();
    lab.connection = common::connection(None, None);
    let (response, cells) = lab.scan(&lab.open(2, pb::Scan::default())).unwrap();
    assert!(cells.is_empty() && response.cells_per_result.is_empty());
    assert_eq!(response.results.len(), 2);
    assert_eq!(response.results[1].cell[0].row.as_deref(), Some(&b"r01"[..]));
    lab.connection = common::connection(Some(Codec::KeyValue), None);
    let (response, cells) = lab.scan(&lab.open(2, pb::Scan::default())).unwrap();
    assert_eq!((response.cells_per_result.len(), cells.len()), (2, 2), "gohbase: scans use the block");
}

#[test]
fn metrics_count_what_was_looked_at() {
    let lab = lab();
    let tracked = pb::ScanRequest { track_scan_metrics: Some(true), ..lab.open(5, pb::Scan::default()) };
    let metric = |response: &pb::ScanResponse, name: &str| {
        let metrics = &response.scan_metrics.as_ref().unwrap().metrics;
        metrics.iter().find(|pair| pair.name() == name).unwrap().value()
    };
    let (first, _) = lab.scan(&tracked).unwrap();
    assert_eq!((metric(&first, "ROWS_SCANNED"), metric(&first, "ROWS_FILTERED")), (5, 0));
    let again = pb::ScanRequest { track_scan_metrics: Some(true), ..next(first.scanner_id(), 3, 0) };
    assert_eq!(metric(&lab.scan(&again).unwrap().0, "ROWS_SCANNED"), 3, "of this call alone");
    assert_eq!(lab.scan(&next(first.scanner_id(), 1, 1)).unwrap().0.scan_metrics, None);
    // gohbase's own test asks this: the row at which a filter ends the scan counts as filtered alone.
    let scan = pb::Scan { filter: Some(prefix_filter("r00")), ..Default::default() };
    let tracked = pb::ScanRequest { track_scan_metrics: Some(true), ..lab.open(5, scan) };
    let (filtered, _) = lab.scan(&tracked).unwrap();
    assert_eq!((metric(&filtered, "ROWS_SCANNED"), metric(&filtered, "ROWS_FILTERED")), (1, 1));
}

fn prefix_filter(prefix: &str) -> pb::Filter {
    pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
        serialized_filter: Some(
            pb::PrefixFilter { prefix: Some(prefix.to_string().into()) }.encode_to_vec().into(),
        ),
    }
}

#[test]
fn a_filter_that_is_done_ends_the_scan_once_nothing_is_left_to_give() {
    let lab = lab();
    let filtered = pb::Scan { filter: Some(prefix_filter("r0")), ..Default::default() };
    let (response, cells) = lab.scan(&lab.open(100, filtered)).unwrap();
    assert_eq!((cells.len(), response.more_results()), (10, true));
    assert!(!response.more_results_in_region());
    let nothing = pb::Scan { filter: Some(prefix_filter("a")), ..Default::default() };
    let (response, _) = lab.scan(&lab.open(100, nothing)).unwrap();
    assert_eq!((response.more_results(), response.more_results_in_region()), (false, false));
}

#[test]
fn bad_scans_name_what_is_wrong() {
    let lab = lab();
    let column = pb::Column { family: "f".into(), qualifier: vec!["q".into()] };
    let raw = pb::NameBytesPair { name: "_raw_".to_string(), value: Some(vec![0xff].into()) };
    let raw = pb::Scan { column: vec![column], attribute: vec![raw], ..Default::default() };
    assert_eq!(class(lab.scan(&lab.open(1, raw))), "DoNotRetryIOException");
    let versions = pb::Scan { max_versions: Some(0), ..Default::default() };
    assert_eq!(class(lab.scan(&lab.open(1, versions))), "DoNotRetryIOException");
    let nowhere = pb::Column { family: "nope".into(), qualifier: Vec::new() };
    let nowhere = pb::Scan { column: vec![nowhere], ..Default::default() };
    assert_eq!(class(lab.scan(&lab.open(1, nowhere))), "NoSuchColumnFamilyException");
    let numbered = pb::ScanRequest { next_call_seq: Some(3), ..lab.open(1, pb::Scan::default()) };
    assert_eq!(class(lab.scan(&numbered)), "OutOfOrderScannerNextException");
}

#[test]
fn raw_scans_show_delete_markers() {
    let lab = lab();
    lab.clock.advance(Duration::from_millis(1));
    let kind = pb::mutation_proto::MutationType::Delete;
    let marker = Cell::build(b"r00", b"f", b"q", i64::MAX, halcyon_cell::CellType::DeleteColumn, b"", b"", 0);
    lab.mutate(common::mutation(kind, 1), vec![marker]).unwrap();
    let raw = pb::NameBytesPair { name: "_raw_".to_string(), value: Some(vec![0xff].into()) };
    let scan = pb::Scan { attribute: vec![raw], max_versions: Some(5), ..Default::default() };
    let (response, _) = lab.scan(&lab.open(1, scan)).unwrap();
    assert_eq!(response.cells_per_result, [2], "the marker and what it hides");
}

#[test]
fn a_late_scan_answers_with_a_heartbeat_and_a_cursor() {
    let mut settings = common::settings();
    settings.scan_time_min = Duration::ZERO;
    settings.rpc_timeout = Duration::ZERO;
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    for number in 0..5 {
        lab.put(&format!("r{number}"), "q", "v");
    }
    let filter =
        pb::Filter { name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(), ..prefix_filter("z") };
    let scan = pb::Scan { need_cursor_result: Some(true), filter: Some(filter), ..Default::default() };
    let (mut response, cells) = lab.scan(&lab.open(100, scan.clone())).unwrap();
    assert!(cells.is_empty());
    let id = response.scanner_id();
    let mut heartbeats = 0;
    for seq in 0..100 {
        if !response.more_results_in_region() {
            break;
        }
        assert_eq!(response.heartbeat_message, Some(true));
        assert!(response.cursor.as_ref().is_some_and(|cursor| cursor.row.is_some()));
        heartbeats += 1;
        response = lab.scan(&next(id, 100, seq)).unwrap().0;
    }
    assert!(heartbeats > 0 && !response.more_results_in_region());
    // Nobody who does not say that he handles them gets one.
    let plain = pb::ScanRequest { client_handles_heartbeats: None, ..lab.open(100, scan) };
    let (response, _) = lab.scan(&plain).unwrap();
    assert_eq!((response.heartbeat_message, response.more_results_in_region()), (None, false));
}

/// The scanner was claimed when the call was received; a call that is not carried out must not take it along.
#[test]
fn a_call_that_is_dropped_leaves_its_scanner_as_it_was() {
    use halcyon_rpc::{Dropped, Service};
    let lab = lab();
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let id = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    let call = lab.raw_call("Scan", next(id, 2, 0).encode_to_vec().into(), Vec::new());
    let waiting = lab.client.call(call);
    lab.clock.advance(Duration::from_secs(21)); // longer than the client waits, less than the lease
    let dropped = lab.finish(&lab.client, waiting).err().expect("nobody waits for it");
    assert_eq!(dropped.dropped, Some(Dropped::Expired));

    let call = lab.raw_call("Scan", next(id, 2, 0).encode_to_vec().into(), Vec::new());
    let waiting = lab.client.call(call);
    lab.connection.state.gone.store(true, Ordering::Relaxed);
    let dropped = lab.finish(&lab.client, waiting).err().expect("nobody is there");
    assert_eq!(dropped.dropped, Some(Dropped::Abandoned));
    lab.connection.state.gone.store(false, Ordering::Relaxed);

    assert_eq!(rows(&lab.scan(&next(id, 2, 0)).unwrap().1), ["r01", "r02"]);
    assert_eq!(rows(&lab.scan(&next(id, 2, 1)).unwrap().1), ["r03", "r04"]);
}

#[test]
fn a_scanner_serves_one_call_at_a_time() {
    use halcyon_rpc::{Outcome, Service};
    let lab = lab();
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let id = lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    let call = |seq| lab.raw_call("Scan", next(id, 2, seq).encode_to_vec().into(), Vec::new());
    let running = lab.client.call(call(0));
    assert!(matches!(running, Outcome::Later(_)), "files: it runs on the pool");
    assert_eq!(class(lab.scan(&next(id, 2, 1))), "LeaseException");
    assert_eq!(class(lab.scan(&close(id))), "LeaseException");
    let reply = lab.finish(&lab.client, running).unwrap();
    assert_eq!(rows(&common::decoded::<pb::ScanResponse>(reply).1), ["r01", "r02"]);
    assert_eq!(rows(&lab.scan(&next(id, 2, 1)).unwrap().1), ["r03", "r04"]);
}

/// Bytes of a line of the ledger.
fn held(lab: &Lab, part: &str) -> u64 {
    lab.server.memory().iter().find(|it| it.name == part).expect("a line of the ledger").held
}

#[test]
fn an_idle_scanner_holds_nothing_that_was_flushed_and_goes_on() {
    const HELD: &str = "memstores-flushed-held-by-scans";
    for reversed in [false, true] {
        let lab = Lab::new();
        wide(&lab);
        for number in 0..20 {
            lab.put(&format!("r{number:02}"), "q", &"v".repeat(1000));
        }
        let all =
            lab.scan(&lab.open(100, pb::Scan { reversed: Some(reversed), ..Default::default() })).unwrap().1;
        let scans = [
            pb::Scan { reversed: Some(reversed), max_result_size: Some(300), ..Default::default() },
            pb::Scan { reversed: Some(reversed), batch_size: Some(3), ..Default::default() },
            pb::Scan { reversed: Some(reversed), filter: Some(prefix_filter("r")), ..Default::default() },
        ];
        let mut found: Vec<(u64, Vec<Cell>)> = Vec::new();
        for scan in scans {
            let (response, cells) = lab.scan(&lab.open(1, scan)).unwrap();
            assert!(response.more_results_in_region());
            found.push((response.scanner_id(), cells));
        }
        assert_eq!(held(&lab, HELD), 0);
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        assert_eq!(held(&lab, HELD), 0, "they let go when it was flushed");
        for (at, (id, cells)) in found.iter_mut().enumerate() {
            for seq in 0.. {
                let (response, more) = lab.scan(&next(*id, 2, seq)).unwrap();
                cells.extend(more);
                if !response.more_results_in_region() {
                    break;
                }
                lab.put("z", "q", "not seen");
                lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
                // a thread of the pool that gave the answer may be about to put away what it worked with
                for look in 0.. {
                    match held(&lab, HELD) {
                        0 => break,
                        bytes => assert!(look < 10_000, "{bytes} bytes stay"),
                    }
                    halcyon_env::Env::real().clock.sleep(Duration::from_millis(1));
                }
            }
            let expected = all.iter().filter(|cell| at < 2 || cell.row().starts_with(b"r"));
            let bytes = |cell: &Cell| cell.bytes().clone();
            assert_eq!(cells.iter().map(bytes).collect::<Vec<_>>(), expected.map(bytes).collect::<Vec<_>>());
        }
    }
}

/// HBase's scanners outlive the connection, and its clients go on with them on another one. Here they were dropped: a client
/// that came back found its scanner unknown, named its old read point for the next one, and a flush in between had taken
/// away what that point saw.
#[test]
fn a_scanner_outlives_its_connection_and_keeps_what_it_sees() {
    use halcyon_rpc::Service;
    let mut lab = lab();
    let open = |lab: &Lab| lab.scan(&lab.open(1, pb::Scan::default())).unwrap().0.scanner_id();
    let (left, taken_over) = (open(&lab), open(&lab));
    let first = lab.connection.clone();
    let mut second = common::connection(Some(Codec::KeyValue), Some((2, 6)));
    std::sync::Arc::get_mut(&mut second).unwrap().id = 2;
    lab.connection = second;
    assert_eq!(rows(&lab.scan(&next(taken_over, 1, 0)).unwrap().1), ["r01"]);
    lab.client.connection_closed(&first);
    assert_eq!(rows(&lab.scan(&next(taken_over, 1, 1)).unwrap().1), ["r02"]);
    for row in 0..20 {
        lab.put(&format!("r{row:02}"), "q", "newer");
    }
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let (_, cells) = lab.scan(&next(left, 100, 0)).unwrap();
    assert_eq!(rows(&cells).len(), 19, "all that its point saw was kept for it");
    assert!(cells.iter().all(|cell| cell.value() != b"newer"), "{cells:?}");
}
