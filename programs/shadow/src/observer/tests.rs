use super::*;

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
    let region = b"t,g,17.0123456789abcdef0123456789abcdef.";
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
