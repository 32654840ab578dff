use super::*;

const REGION: &[u8] = b"t,g,17.0123456789abcdef0123456789abcdef.";

fn scan(start: &str, stop: &str, reversed: bool) -> pb::Scan {
    let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    pb::Scan {
        start_row: bytes(start),
        stop_row: bytes(stop),
        reversed: Some(reversed),
        ..Default::default()
    }
}

#[test]
fn a_scan_ends_with_its_region() {
    let region = REGION;
    let stop = |mut scan: pb::Scan, end: &'static str| {
        clip(&mut scan, region, Bytes::from_static(end.as_bytes()));
        (String::from_utf8(scan.stop_row().to_vec()).unwrap(), scan.include_stop_row)
    };
    assert_eq!(stop(scan("g", "", false), "m"), ("m".to_string(), Some(false)));
    assert_eq!(stop(scan("g", "z", false), "m"), ("m".to_string(), Some(false)));
    assert_eq!(stop(scan("g", "k", false), "m"), ("k".to_string(), None));
    assert_eq!(stop(scan("g", "m", false), "m"), ("m".to_string(), Some(false)));
    assert_eq!(stop(scan("g", "", false), ""), (String::new(), None));
    assert_eq!(stop(scan("k", "", true), ""), ("g".to_string(), Some(true)));
    assert_eq!(stop(scan("k", "h", true), ""), ("h".to_string(), None));
}

#[test]
fn cells_come_from_the_block_or_from_the_message() {
    let block = vec![Cell::put(b"a", b"f", b"q", 1, b"v"), Cell::put(b"b", b"f", b"q", 1, b"v")];
    let mut cells = block.clone().into_iter();
    let result = |count| pb::Result { associated_cell_count: Some(count), ..Default::default() };
    assert_eq!(cells_of(&result(1), &mut cells).unwrap(), block[..1]);
    assert_eq!(cells_of(&result(0), &mut cells).unwrap(), []);
    assert_eq!(cells_of(&result(2), &mut cells), Err(Miss::Unknown));
    let plain = pb::Cell {
        row: Some("a".into()),
        family: Some("f".into()),
        qualifier: Some("q".into()),
        timestamp: Some(1),
        cell_type: Some(4),
        value: Some("v".into()),
        tags: None,
    };
    let result = pb::Result { cell: vec![plain.clone()], ..Default::default() };
    assert_eq!(cells_of(&result, &mut std::iter::empty()).unwrap(), block[..1]);
    let wrong = pb::Cell { cell_type: Some(77), ..plain };
    assert!(plain_cell(&wrong).is_none());
}

/// Takes nothing.
#[derive(Default)]
struct Taken(Vec<Observed>);

impl Sink for Taken {
    fn take(&mut self, observed: Observed) {
        self.0.push(observed);
    }
}

fn call_of_scan(proxy: &Proxy, request: &pb::ScanRequest, response: &pb::ScanResponse) -> Seen {
    let header = pb::ResponseHeader { call_id: Some(1), ..Default::default() };
    Seen {
        server: "rs:1".into(),
        method: Method::Scan,
        request: request.encode_to_vec().into(),
        response: crate::proxy::frames::frame(&header, Some(&response.encode_to_vec()), &[]),
        form: crate::proxy::names::CellForm { codec: None, compressor: None },
        began: Instant::now(),
        took: Duration::ZERO,
        _room: proxy.tap.room(0).unwrap(),
    }
}

fn result_of(row: &str, value_bytes: usize) -> pb::Result {
    let cell = pb::Cell {
        row: Some(Bytes::copy_from_slice(row.as_bytes())),
        family: Some("f".into()),
        qualifier: Some("q".into()),
        timestamp: Some(1),
        cell_type: Some(4),
        value: Some(vec![7; value_bytes].into()),
        tags: None,
    };
    pb::Result { cell: vec![cell], ..Default::default() }
}

/// A scan was kept for minutes, with its request and up to 4 MiB of its cells, when its share of the queue had been given back. Ten
/// thousand were allowed.
#[tokio::test]
async fn scans_under_way_have_a_limit_in_bytes() {
    let (proxy, _seen) = Proxy::with_queue(1 << 20);
    let mut observer = Observer::new(Arc::clone(&proxy), Taken::default(), 1 << 20, 20_000);
    let opening = pb::ScanRequest {
        region: Some(pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(REGION) }),
        scan: Some(scan(&"s".repeat(4_000), "", true)),
        ..Default::default()
    };
    let opened = |id, results| pb::ScanResponse {
        scanner_id: Some(id),
        more_results: Some(true),
        more_results_in_region: Some(true),
        results,
        ..Default::default()
    };
    for id in 1..=3 {
        observer.take(call_of_scan(&proxy, &opening, &opened(id, Vec::new()))).await;
    }
    assert_eq!((observer.scans.len(), proxy.counts.dropped.get()), (2, 1));
    assert_eq!(proxy.counts.failed.get() + proxy.counts.unknown.get(), 0);
    observer.forget_idle(Instant::now() + IDLE_MAX * 2);
    assert_eq!((observer.scans.len(), observer.scans_room.available_permits()), (0, 20_000));

    // Cells without room are in the checksum.
    let row = |number: usize| result_of(&format!("r{number}"), 4_000);
    let rows: Vec<pb::Result> = (0..9).rev().map(row).collect();
    observer.take(call_of_scan(&proxy, &opening, &opened(4, rows[..5].to_vec()))).await;
    let next = pb::ScanRequest { scanner_id: Some(4), ..Default::default() };
    let last = pb::ScanResponse { more_results_in_region: Some(false), ..opened(4, rows[5..].to_vec()) };
    observer.take(call_of_scan(&proxy, &next, &last)).await;
    let observed = observer.sink.0.pop().unwrap();
    let Part::Cells(cells) = &observed.answer.parts[0] else { panic!("no cells") };
    assert!(cells.count == 9 && (1..5).contains(&cells.kept.len()), "{}", cells.kept.len());
    let all = rows.iter().map(|row| plain_cell(&row.cell[0]).unwrap()).collect();
    assert!(*cells == Cells::of(all, 0));
    assert_eq!(observed.request_bytes, opening.encoded_len());
    assert_eq!(observer.scans_room.available_permits(), 20_000);
}
