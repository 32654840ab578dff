//! Tables of which hbase:meta or the file system has lost a part.
//!
//! The row of a table's state was deleted by hand. After a restart the table was not listed, and a table made under its name took its
//! files to the archive.

use std::path::Path;

use crate::common::*;
use halcyon_cell::{Cell, CellType, ErrorKind};
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_schema::layout;
use prost::Message;

fn start(sim: &SimFileSystem, start_code: i64) -> Cluster {
    Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), start_code).unwrap()
}

fn lose_state(c: &Cluster, table: &str) {
    let at_ms = c.env.clock.now_ms();
    let delete =
        Cell::build(table.as_bytes(), b"table", b"state", at_ms, CellType::DeleteColumn, b"", b"", 0);
    c.server.meta_put(vec![delete]).unwrap();
    assert_eq!(c.server.meta_value(table.as_bytes(), "table", "state"), None);
}

#[test]
fn a_table_without_a_state_is_enabled() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let (regions, files) = (c.regions("t"), c.server.files(&c.regions("t")[0]));
    assert_eq!(files.len(), 1);
    lose_state(&c, "t");
    drop(c);

    let c = start(&sim, 2);
    assert_eq!(c.state("t"), Some(State::Enabled));
    let error = c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap_err();
    assert!(error.class.ends_with(".TableExistsException"), "{error:?}");
    assert_eq!((c.regions("t"), c.server.files(&regions[0])), (regions, files));
    let request = pb::SetTableStateInMetaRequest {
        table_name: name("t").to_pb(),
        table_state: pb::TableState { state: State::Enabled as i32 },
    };
    let before: pb::GetTableStateResponse = answer(&c.hbck, "SetTableStateInMeta", &request).unwrap();
    assert_eq!(before.table_state.state(), State::Enabled);
    c.check();
}

/// A start between a creation's files and its rows, and one in the middle of a deletion, find no table without a state.
#[test]
fn a_namespace_table_without_a_state_is_opened() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    lose_state(&c, "hbase:namespace");
    drop(c);
    let c = start(&sim, 2);
    assert_eq!(c.state("hbase:namespace"), Some(State::Enabled));
    c.check();
}

#[test]
fn a_table_without_a_descriptor_keeps_its_files_and_its_name() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    let region = c.regions("t").remove(0);
    drop(c);
    let (fs, desc_dir) = (sim.env().fs, layout::table_desc_dir(Path::new(ROOT), &name("t")));
    let files = fs.list(&desc_dir).unwrap();
    let saved: Vec<_> = files
        .iter()
        .map(|file| (desc_dir.join(&file.name), fs.read(&desc_dir.join(&file.name)).unwrap()))
        .collect();
    for damaged in [None, Some(&b"PBUF\xff\xff"[..])] {
        for (path, _) in &saved {
            match damaged {
                None => fs.remove_file(path).unwrap(),
                Some(bytes) => fs.replace(path, bytes).unwrap(),
            }
        }
        let c = start(&sim, 2);
        assert_eq!(c.state("t"), None);
        let create_again = c.run("CreateTable", &create(&table("t", &["f"]), &[]));
        for error in [create_again, c.run("RestoreSnapshot", &restore("s", "t"))].map(Result::unwrap_err) {
            assert!(error.class.ends_with(".TableExistsException"), "{error:?}");
            assert!(error.message.contains("hbase:meta has regions of it"), "{error}");
        }
        assert_eq!(c.server.files(&region).len(), 1);
        c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap();
        c.run("DisableTable", &disable("u")).unwrap();
        c.run("DeleteTable", &delete("u")).unwrap();
        for (path, bytes) in &saved {
            fs.replace(path, bytes).unwrap();
        }
    }
    let c = start(&sim, 3);
    assert_eq!(c.state("t"), Some(State::Enabled));
    c.check();
}

/// The table is not listed, but its files are there, and a namespace's directory goes without an archive.
#[test]
fn a_namespace_with_a_table_that_cannot_be_read_stays() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let request = pb::CreateNamespaceRequest { namespace_descriptor: namespace("n"), ..Default::default() };
    c.run("CreateNamespace", &request).unwrap();
    c.run("CreateTable", &create(&table("n:t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("n:t")).unwrap();
    let region = c.regions("n:t").remove(0);
    drop(c);
    let (fs, table_dir) = (sim.env().fs, layout::table_dir(Path::new(ROOT), &name("n:t")));
    let desc_dir = table_dir.join(layout::TABLE_DESC);
    let file = desc_dir.join(&fs.list(&desc_dir).unwrap()[0].name);
    let saved = fs.read(&file).unwrap();
    fs.replace(&file, b"PBUF\xff\xff").unwrap();

    let c = start(&sim, 2);
    assert_eq!(c.state("n:t"), None);
    let request = pb::DeleteNamespaceRequest { namespace_name: "n".to_string(), ..Default::default() };
    let error = c.run("DeleteNamespace", &request).unwrap_err();
    assert!(error.message.contains("data/n/t"), "{error}");
    let aside = Path::new(ROOT).join("aside");
    fs.rename(&table_dir, &aside).unwrap();
    let error = c.run("DeleteNamespace", &request).unwrap_err();
    assert!(error.message.contains("rows of table n:t"), "{error}");
    fs.rename(&aside, &table_dir).unwrap();
    fs.replace(&file, &saved).unwrap();
    drop(c);

    let c = start(&sim, 3);
    assert_eq!(c.state("n:t"), Some(State::Enabled));
    assert_eq!(c.server.files(&region).len(), 1);
    c.check();
}

/// A new one would be made in its place, with a region that overlaps with that of the old one, and the namespaces would be lost.
#[test]
fn the_table_of_namespaces_is_not_made_again_where_it_cannot_be_read() {
    let sim = SimFileSystem::new();
    drop(start(&sim, 1));
    let (fs, desc_dir) = (sim.env().fs, layout::table_desc_dir(Path::new(ROOT), &name("hbase:namespace")));
    let file = desc_dir.join(&fs.list(&desc_dir).unwrap()[0].name);
    fs.replace(&file, b"PBUF\xff\xff").unwrap();
    let error = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn a_creation_takes_no_files_that_it_did_not_make() {
    let (_sim, c) = Cluster::simulated();
    let dir = layout::table_dir(&c.root, &name("t")).join("0123456789abcdef0123456789abcdef").join("f");
    c.env.fs.create_dir_all(&dir).unwrap();
    c.run("CreateTable", &create(&table("s", &["f"]), &[])).unwrap();
    c.run("Snapshot", &snapshot("s", "s")).unwrap();
    let file = dir.join("0123456789abcdef0123456789abcdef");
    c.env.fs.replace(&file, b"cells").unwrap();
    for error in [
        c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap_err(),
        c.run("RestoreSnapshot", &restore("s", "t")).unwrap_err(),
    ] {
        assert!(error.class.ends_with(".TableExistsException"), "{error:?}");
        assert!(error.message.contains("has left files"), "{error}");
    }
    c.env.fs.remove_file(&file).unwrap();

    // What a creation that was bypassed has left without cells is in nobody's way, and a creation that is undone leaves it.
    c.run("CreateTable", &create(&table("t", &["f"]).with("POISON", "1"), &[])).unwrap_err();
    assert!(c.env.fs.exists(&dir).unwrap());
    let archived = layout::archive_table_dir(&c.root, &name("t"));
    assert!(!c.env.fs.exists(&archived).unwrap());
    // Nor does an old descriptor win over the new one.
    let old = table("t", &["old"]).encode_file();
    let desc_dir = layout::table_desc_dir(&c.root, &name("t"));
    c.env.fs.create_dir_all(&desc_dir).unwrap();
    c.env.fs.replace(&desc_dir.join(layout::table_info_name(7, old.len())), &old).unwrap();
    c.env.fs.remove_dir_all(dir.parent().unwrap()).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    assert_eq!(c.env.fs.list(&desc_dir).unwrap().len(), 1);
    c.check();
}

/// Rows that a client has written make no master fail.
#[test]
fn rows_of_regions_that_nobody_can_write_again_are_left_out() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let at_ms = c.env.clock.now_ms();
    let region = |start: Vec<u8>, id| {
        halcyon_schema::RegionInfo::new(name("t"), start.into(), bytes::Bytes::new(), id)
    };
    let odd = [region(vec![b'x'; 40_000], 5), region(b"y".to_vec(), u64::MAX)];
    for (row, region) in [&b"t,x,1.a."[..], b"t,y,2.b."].into_iter().zip(&odd) {
        let cell = Cell::put(row, b"info", b"regioninfo", at_ms, &region.encode_value());
        c.server.meta_put(vec![cell]).unwrap();
    }
    let state = pb::TableState { state: 77 }.encode_to_vec();
    let cell = Cell::put(b"odd", b"table", b"state", at_ms, &state);
    c.server.meta_put(vec![cell]).unwrap();
    drop(c);
    let c = start(&sim, 2);
    assert_eq!(c.state("t"), Some(State::Enabled));
    let request = pb::FixMetaRequest {};
    let _: pb::FixMetaResponse = answer(&c.hbck, "FixMeta", &request).unwrap();
}
