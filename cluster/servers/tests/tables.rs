//! Rows of system tables, at region servers that keep cells.

mod common;

use bytes::Bytes;
use common::{FakeServer, Master, region};
use halcyon_cell::{Cell, CellType, ErrorKind};
use halcyon_contract::SystemTables;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_rpc::{RpcError, exceptions};
use halcyon_schema::{RegionInfo, ServerName};
use halcyon_servers::RemoteTables;

const LATEST: i64 = i64::MAX;

fn put(row: &str, qualifier: &str, value: &str) -> Cell {
    Cell::put(row.as_bytes(), b"info", qualifier.as_bytes(), LATEST, value.as_bytes())
}

fn delete(row: &str, qualifier: &str) -> Cell {
    let (row, qualifier) = (row.as_bytes(), qualifier.as_bytes());
    Cell::build(row, b"info", qualifier, LATEST, CellType::DeleteColumn, b"", b"", 0)
}

fn text(rows: &[Vec<Cell>]) -> Vec<String> {
    let cell = |cell: &Cell| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        format!("{}:{}={}", text(cell.row()), text(cell.qualifier()), text(cell.value()))
    };
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn rows_are_written_and_read() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let tables = RemoteTables::new(master.servers.clone());
    let at = &server.name;
    let first = vec![put("a", "x", "1"), put("a", "y", "2"), put("a", "z", "3"), put("b", "x", "4")];
    tables.meta_put(at, first).unwrap();
    tables
        .meta_put(at, vec![put("a", "v", "5"), delete("a", "x"), put("c", "x", "6"), delete("b", "x")])
        .unwrap();
    let all = tables.meta_scan(at, b"", b"").unwrap();
    assert_eq!(text(&all), ["a:v=5 a:y=2 a:z=3", "c:x=6"]);
    assert_eq!(text(&tables.meta_scan(at, b"b", b"").unwrap()), ["c:x=6"]);
    assert_eq!(text(&tables.meta_scan(at, b"", b"b").unwrap()), ["a:v=5 a:y=2 a:z=3"]);
    assert_eq!(text(&tables.scan_rows(at, &region("")).unwrap()).len(), 2);

    // A row with both kinds is a part of its own that happens at once; the others are together.
    let multis = server.shared.multis.lock().unwrap();
    assert_eq!(multis.len(), 2);
    let parts = &multis[1].region_action;
    let kinds = |part: &pb::RegionAction| {
        let actions = part.action.iter();
        actions.map(|action| action.mutation.as_ref().unwrap().mutate_type()).collect::<Vec<_>>()
    };
    assert_eq!((parts.len(), parts[0].atomic(), parts[1].atomic()), (2, false, true));
    assert_eq!(kinds(&parts[0]), [MutationType::Put, MutationType::Delete]);
    assert_eq!(kinds(&parts[1]), [MutationType::Put, MutationType::Delete]);
    assert_eq!(parts[0].action.iter().map(|action| action.index()).collect::<Vec<_>>(), [0, 1]);
    assert!(parts.iter().all(|part| part.region.value == RegionInfo::meta().region_name()));
    let scans = server.shared.scans.lock().unwrap();
    let opening = scans[0].scan.as_ref().unwrap();
    let families: Vec<_> = opening.column.iter().map(|column| column.family.clone()).collect();
    assert_eq!((families, opening.max_versions()), (vec![Bytes::from("info"), "table".into()], 1));
}

#[test]
fn rows_that_belong_together_are_one_call() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let tables = RemoteTables::new(master.servers.clone());
    let at = &server.name;
    tables.meta_put(at, vec![put("a", "x", "1"), put("a", "y", "2")]).unwrap();
    let family = Cell::build(b"a", b"info", b"", LATEST, CellType::DeleteFamily, b"", b"", 0);
    tables
        .meta_put_together(at, vec![family, put("b", "x", "3"), put("c", "x", "4"), delete("c", "y")])
        .unwrap();
    assert_eq!(text(&tables.meta_scan(at, b"", b"").unwrap()), ["b:x=3", "c:x=4"]);
    tables.meta_put_together(at, Vec::new()).unwrap();
    tables.meta_put(at, Vec::new()).unwrap();
}

#[test]
fn a_row_that_fails_fails_the_call() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let tables = RemoteTables::new(master.servers.clone());
    let at = &server.name;
    let cells = || vec![put("a", "x", "1"), put("b", "x", "2"), delete("b", "y"), put("c", "x", "3")];
    for bad in ["a", "b", "c"] {
        for (class, kind) in [
            (&exceptions::NOT_SERVING_REGION, ErrorKind::Moved),
            (&exceptions::REGION_TOO_BUSY, ErrorKind::Busy),
            (&exceptions::NO_SUCH_COLUMN_FAMILY, ErrorKind::NoSuchFamily),
        ] {
            *server.shared.bad_row.lock().unwrap() = Some((bad.into(), RpcError::new(class, "why")));
            let error = tables.meta_put(at, cells()).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains("why"), "{error}");
            let error = tables.meta_put_together(at, cells()).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
    let maximum = Cell::build(b"a", b"info", b"x", 1, CellType::Maximum, b"", b"", 0);
    assert_eq!(tables.meta_put(at, vec![maximum]).unwrap_err().kind(), ErrorKind::Invalid);
    let gone = ServerName::new("h", 1, 1);
    assert_eq!(tables.meta_put(&gone, cells()).unwrap_err().kind(), ErrorKind::Moved);
    assert!(master.servers.expire(at));
    assert_eq!(tables.meta_scan(at, b"", b"").unwrap_err().kind(), ErrorKind::Moved);
}

#[test]
fn many_rows_are_several_calls() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let tables = RemoteTables::new(master.servers.clone());
    let cells = (0..4_500).map(|row| put(&format!("{row:05}"), "x", "1")).collect();
    tables.meta_put(&server.name, cells).unwrap();
    assert_eq!(server.shared.rows.lock().unwrap().len(), 4_500);
    assert_eq!(server.shared.multis.lock().unwrap().len(), 3);
}

#[test]
fn scans_cope_with_heartbeats_and_with_cells_in_the_message() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let tables = RemoteTables::new(master.servers.clone());
    let say = |response: pb::ScanResponse, cells: Vec<Cell>| {
        let response = pb::ScanResponse { scanner_id: Some(7), ..response };
        server.shared.scan_answers.lock().unwrap().push_back((response, cells));
    };
    say(pb::ScanResponse { heartbeat_message: Some(true), ..Default::default() }, Vec::new());
    let inline = pb::Cell {
        row: Some("a".into()),
        family: Some("info".into()),
        qualifier: Some("x".into()),
        timestamp: Some(5),
        value: Some("1".into()),
        ..Default::default()
    };
    let result = pb::Result { cell: vec![inline], partial: Some(true), ..Default::default() };
    say(pb::ScanResponse { results: vec![result], ..Default::default() }, Vec::new());
    say(pb::ScanResponse { heartbeat_message: Some(true), ..Default::default() }, Vec::new());
    let counted = |counts: &[u32], more| pb::ScanResponse {
        cells_per_result: counts.to_vec(),
        more_results: Some(more),
        ..Default::default()
    };
    say(counted(&[1, 1], false), vec![put("a", "y", "2"), put("b", "x", "3")]);
    assert_eq!(text(&tables.meta_scan(&server.name, b"", b"").unwrap()), ["a:x=1 a:y=2", "b:x=3"]);
    let numbers: Vec<_> = server.shared.scans.lock().unwrap().iter().map(|scan| scan.next_call_seq).collect();
    assert_eq!(numbers, [None, Some(0), Some(1), Some(2)]);

    // Fewer cells than promised: an error, and the scanner is closed.
    say(counted(&[3], true), vec![put("a", "y", "2")]);
    assert_eq!(tables.meta_scan(&server.name, b"", b"").unwrap_err().kind(), ErrorKind::Io);
    assert!(server.shared.scans.lock().unwrap().last().unwrap().close_scanner());
    // No scanner and no end.
    let lost = pb::ScanResponse { more_results: Some(true), ..Default::default() };
    server.shared.scan_answers.lock().unwrap().push_back((lost, Vec::new()));
    assert_eq!(tables.meta_scan(&server.name, b"", b"").unwrap_err().kind(), ErrorKind::Io);
}
