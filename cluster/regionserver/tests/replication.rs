//! What another cluster sends is applied once, in order, as it was written there.

use crate::common::{Lab, class, settings, text};
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, TagType, append_tag};
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_proto::pb;
use halcyon_rpc::{RpcError, Service};
use halcyon_schema::{ClusterId, layout};
use halcyon_wal::{SyncMode, WalReader};
use prost::Message;

fn entry(table: &'static str, cluster_ids: &[u64], count: i32) -> pb::WalEntry {
    let id = |&least| pb::Uuid { least_sig_bits: least, most_sig_bits: 1 };
    let key = pb::WalKey {
        encoded_region_name: "there".into(),
        table_name: Bytes::from_static(table.as_bytes()),
        cluster_ids: cluster_ids.iter().map(id).collect(),
        write_time: 1_699_999_999_000,
        ..Default::default()
    };
    pb::WalEntry { key, associated_cell_count: Some(count), ..Default::default() }
}

fn replicate(lab: &Lab, entries: Vec<pb::WalEntry>, cells: &[Cell]) -> Result<(), RpcError> {
    let request = pb::ReplicateWalEntryRequest { entry: entries, ..Default::default() };
    let call = lab.raw_call("ReplicateWALEntry", request.encode_to_vec().into(), cells.to_vec());
    lab.finish(&lab.admin, lab.admin.call(call)).map(|_| ())
}

fn cell(row: &str, timestamp: i64, kind: CellType, value: &str) -> Cell {
    let mut tags = Vec::new();
    append_tag(&mut tags, TagType::TTL, &(1i64 << 50).to_be_bytes());
    Cell::build(row.as_bytes(), b"f", b"q", timestamp, kind, value.as_bytes(), &tags, 0)
}

/// All cells, with markers, newest first.
fn raw(lab: &Lab) -> Vec<String> {
    let scan = pb::Scan {
        max_versions: Some(100),
        attribute: vec![pb::NameBytesPair { name: "_raw_".into(), value: Some(Bytes::from_static(&[0xff])) }],
        ..Default::default()
    };
    let (_, cells) = lab.scan(&lab.open(100, scan)).unwrap();
    let shown = |cell: &Cell| {
        let row = String::from_utf8_lossy(cell.row()).into_owned();
        format!("{row} {} {:?} {}", cell.timestamp(), cell.cell_type(), text(std::slice::from_ref(cell))[0])
    };
    cells.iter().map(shown).collect()
}

#[test]
fn cells_are_those_of_the_source_however_often_they_come() {
    let lab = Lab::new();
    let cells = [
        cell("a", 5, CellType::Put, "old"),
        cell("a", 5, CellType::Put, "new"),
        cell("a", 7, CellType::Put, "seven"),
        cell("a", 5, CellType::Delete, ""),
        cell("b", 9, CellType::DeleteColumn, ""),
        cell("b", 3, CellType::Put, "hidden"),
    ];
    let entries = || vec![entry("t", &[1], 1), entry("t", &[1], 3), entry("t", &[1, 2], 2)];
    for _ in 0..2 {
        replicate(&lab, entries(), &cells).unwrap();
        let expected = ["a 7 Put seven", "a 5 Delete ", "a 5 Put new", "b 9 DeleteColumn ", "b 3 Put hidden"];
        assert_eq!(raw(&lab), expected);
    }
    assert_eq!(lab.row("a"), ["seven"]);
    assert!(lab.row("b").is_empty());
    let load = lab.server.server_load().repl_load_sink.unwrap();
    assert_eq!(load.total_ops_processed, Some(6));
    assert_eq!(
        (load.age_of_last_applied_op, load.time_stamps_of_last_applied_op),
        (1_000, 1_699_999_999_000)
    );
}

#[test]
fn the_wal_names_the_clusters_that_have_an_edit() {
    let lab = Lab::new();
    let cells =
        [cell("a", 1, CellType::Put, ""), cell("b", 1, CellType::Put, ""), cell("c", 1, CellType::Put, "")];
    replicate(&lab, vec![entry("t", &[1], 1), entry("t", &[1, 2], 2)], &cells).unwrap();
    lab.put("here", "q", "v");
    let dir = layout::wals_dir("/hbase".as_ref()).join(lab.server.server_name().to_string());
    let env = lab.fs.env();
    let mut found = Vec::new();
    for file in env.fs.list(&dir).unwrap() {
        for read in WalReader::open(&env, &dir.join(file.name)).unwrap() {
            let (key, cells) = read.unwrap();
            let ids: Vec<u64> = key.cluster_ids.iter().map(|id| id.least_sig_bits).collect();
            let tags: Vec<usize> = cells.iter().map(|cell| cell.tags().len()).collect();
            found.push((ids, tags));
        }
    }
    assert_eq!(found, [(vec![1], vec![11]), (vec![1, 2], vec![11, 11]), (vec![], vec![0])]);
}

#[test]
fn what_cannot_be_applied_says_why() {
    let lab = Lab::new();
    let foreign = Cell::build(b"r", b"x", b"q", 1, CellType::Put, b"", b"", 0);
    let answer = replicate(&lab, vec![entry("t", &[], 1)], &[foreign]);
    assert_eq!(class(answer), "NoSuchColumnFamilyException");
    let answer = replicate(&lab, vec![entry("t", &[], 2)], &[cell("r", 1, CellType::Put, "")]);
    assert_eq!(class(answer), "DoNotRetryIOException");
    // Where other regions are cannot be asked before the server has threads for that.
    let answer = replicate(&lab, vec![entry("u", &[], 1)], &[cell("r", 1, CellType::Put, "")]);
    assert_eq!(class(answer), "ServerNotRunningYetException");
    for method in ["Replay", "ReplicateToReplica"] {
        let request = pb::ReplicateWalEntryRequest::default();
        let error = lab.admin::<pb::ReplicateWalEntryResponse>(method, &request).unwrap_err();
        assert!(error.do_not_retry && error.message.contains("copies of regions"), "{error}");
    }
    assert_eq!(lab.server.sink_stats().failed_batches, 3);
}

#[test]
fn a_bulk_load_that_has_come_from_here_is_done() {
    let lab = Lab::new();
    let id = "b9a4f3a2-4c42-4e5f-9d58-0d1c4a6f3b11";
    let file = layout::cluster_id_file("/hbase".as_ref());
    lab.fs.env().fs.replace(&file, &ClusterId(id.to_string()).encode_file()).unwrap();
    let load = |cluster_id: &str| {
        let store = pb::StoreDescriptor {
            family_name: "f".into(),
            store_home_dir: "f".into(),
            store_file: vec!["0a_SeqId_1_".into()],
            store_file_size_bytes: None,
        };
        let load = pb::BulkLoadDescriptor {
            encoded_region_name: "0123".into(),
            replicate: Some(true),
            cluster_ids: vec![cluster_id.into()],
            stores: vec![store],
            ..Default::default()
        };
        let value = load.encode_to_vec();
        let marker = Cell::build(b"r", b"METAFAMILY", b"HBASE::BULK_LOAD", 1, CellType::Put, &value, b"", 0);
        replicate(&lab, vec![entry("t", &[], 1)], &[marker])
    };
    load(id).unwrap();
    assert_eq!(class(load("another")), "ServerNotRunningYetException", "it is looked for, by a client");
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    for mode in CrashMode::ALL {
        let settings = halcyon_regionserver::RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
        let lab = Lab::with(SimFileSystem::new(), settings.clone());
        let cells = [cell("a", 5, CellType::Put, "v"), cell("a", 9, CellType::Put, "w")];
        replicate(&lab, vec![entry("t", &[1], 1), entry("t", &[1], 1)], &cells).unwrap();
        let crashed = lab.fs.crash(mode, 1);
        lab.server.abort("the machine died");
        let again = Lab::with(crashed, settings);
        assert_eq!(raw(&again), ["a 9 Put w", "a 5 Put v"]);
        replicate(&again, vec![entry("t", &[1], 2)], &cells).unwrap(); // the source repeats what it is not sure of
        assert_eq!(raw(&again), ["a 9 Put w", "a 5 Put v"]);
    }
}

#[test]
fn wals_are_needed_until_a_peer_has_them_or_is_gone() {
    let lab = Lab::new();
    let env = lab.fs.env();
    let id = ClusterId("b9a4f3a2-4c42-4e5f-9d58-0d1c4a6f3b11".to_string());
    env.fs.replace(&layout::cluster_id_file("/hbase".as_ref()), &id.encode_file()).unwrap();
    let dir = layout::wals_dir("/hbase".as_ref()).join(lab.server.server_name().to_string());
    let wals = || -> Vec<String> { env.fs.list(&dir).unwrap().into_iter().map(|file| file.name).collect() };
    let ids = ["p".to_string()];
    let needed = |names: &[String]| {
        let mut needed: Vec<_> = lab.server.needed_wals(&ids, names).unwrap().into_iter().collect();
        needed.sort();
        needed
    };
    assert_eq!(
        needed(&["w.1".to_string(), "w.1.meta".to_string()]),
        ["w.1"],
        "of an unknown peer all but those of meta"
    );

    lab.put("a", "q", "before the peer");
    let request = pb::RollWalWriterRequest {};
    lab.admin::<pb::RollWalWriterResponse>("RollWALWriter", &request).unwrap();
    let config =
        pb::ReplicationPeer { clusterkey: Some("127.0.0.1:1:/hbase".to_string()), ..Default::default() };
    lab.server.begin_queue("p").unwrap();
    let peer = PeerDescription { id: "p".to_string(), config: config.clone(), is_enabled: false };
    lab.server.peer_changed(&peer).unwrap();
    let names = wals();
    assert!(names.len() >= 2, "{names:?}");
    assert_eq!(needed(&names), [names.iter().max().unwrap().clone()], "the one that is written");

    let bad = PeerDescription { config: pb::ReplicationPeer { clusterkey: None, ..config }, ..peer };
    lab.server.peer_changed(&bad).unwrap_err();
    lab.server.peer_removed("p").unwrap();
    lab.server.peer_removed("p").unwrap();
    assert!(env.fs.list("/hbase/replication/queues".as_ref()).unwrap().is_empty());
}
