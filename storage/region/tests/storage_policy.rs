//! On which kind of disks HDFS keeps the files of a region.

use std::sync::Arc;

use crate::common::*;
use halcyon_env::FileSystem;
use halcyon_env::sim::{Fault, Operation, SimDisk, SimFileSystem};
use halcyon_region::MutationKind;
use halcyon_schema::FamilyDescriptor;

fn families() -> [FamilyDescriptor; 3] {
    let family = |name: &str| FamilyDescriptor::new(name).unwrap();
    [
        family("f").with("STORAGE_POLICY", "one_ssd"),
        family("g").with_configuration("hbase.hstore.block.storage.policy", " ALL_SSD "),
        family("h"),
    ]
}

fn flush(bench: &Bench) {
    for family in ["f", "g", "h"] {
        let cell = parse_cell("row", &format!("{family}:q=1"), halcyon_cell::CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, b"row", vec![cell])).unwrap();
    }
    bench.region.flush(None).unwrap();
}

/// The policies of the region's directory and of its families, and those by which their files were placed.
fn policies(bench: &Bench) -> Vec<(Option<String>, Vec<Option<String>>)> {
    let dir = bench.region.dir();
    let of_family = |family: &str| {
        let family = dir.join(family);
        let files = bench.fs.list(&family).unwrap().into_iter();
        let placed = files.map(|file| bench.fs.storage_policy(&family.join(file.name))).collect();
        (bench.fs.storage_policy(&family), placed)
    };
    let of_region = (bench.fs.storage_policy(dir), Vec::new());
    std::iter::once(of_region).chain(["f", "g", "h"].map(of_family)).collect()
}

#[test]
fn directories_and_blocks_follow_the_policy() {
    let mut bench = Bench::on(Arc::new(SimFileSystem::hdfs(1)), &families());
    let policy = |name: &str| Some(name.to_string());
    let of_files = |name: &str, count| (policy(name), vec![policy(name); count]);
    let default = (None, vec![None]);
    flush(&bench);
    let flushed = [(None, vec![]), of_files("ONE_SSD", 1), of_files("ALL_SSD", 1), default.clone()];
    assert_eq!(policies(&bench), flushed);
    flush(&bench);
    bench.compact(true).unwrap();
    assert_eq!(policies(&bench), flushed, "what a compaction writes is placed likewise");
    let of_table =
        [("hbase.hregion.block.storage.policy", "WARM"), ("hbase.hstore.block.storage.policy", "none")];
    let table = of_table.iter().fold((*bench.table).clone(), |table, (name, value)| table.with(name, *value));
    bench.table = Arc::new(table);
    bench.reopen().unwrap();
    assert_eq!(policies(&bench)[0], (policy("WARM"), vec![]));
    bench.compact(true).unwrap();
    assert_eq!(policies(&bench)[1..3], flushed[1..3]);
    flush(&bench);
    assert_eq!(policies(&bench)[3].0, policy("WARM"), "a family without a policy has its region's");
}

#[test]
fn a_policy_that_is_not_taken_keeps_nothing_closed() {
    let fs = Arc::new(SimFileSystem::hdfs(1));
    fs.inject(Fault::new(Operation::SetStoragePolicy, "").forever());
    let bench = Bench::on(fs.clone(), &families());
    flush(&bench);
    assert_eq!(fs.faults_hit(), 4, "two families, in the store and where their files are made");
    assert_eq!(policies(&bench)[1], (None, vec![None]));
}

/// A policy means nothing there, and no file is made elsewhere than without one.
#[test]
fn on_a_local_disk_nothing_is_asked() {
    let calls = |families: &[FamilyDescriptor]| {
        let bench = Bench::on(Arc::new(SimDisk::Local.files(1)), families);
        flush(&bench);
        bench.fs.calls()
    };
    let plain = ["f", "g", "h"].map(|name| FamilyDescriptor::new(name).unwrap());
    assert_eq!(calls(&families()), calls(&plain));
}

/// `DFS_REPLICATION`. A file that names nothing is left to HDFS.
#[test]
fn store_files_have_the_copies_of_their_family() {
    let families = [
        FamilyDescriptor::new("f").unwrap().with("DFS_REPLICATION", "2"),
        FamilyDescriptor::new("g").unwrap().with("DFS_REPLICATION", "0"),
        FamilyDescriptor::new("h").unwrap(),
    ];
    let bench = Bench::on(Arc::new(SimFileSystem::hdfs(1)), &families);
    let copies = |family: &str| {
        let dir = bench.region.dir().join(family);
        let files = bench.fs.list(&dir).unwrap();
        files.iter().map(|file| bench.fs.copies(&dir.join(&file.name))).collect::<Vec<_>>()
    };
    flush(&bench);
    flush(&bench);
    assert_eq!([copies("f"), copies("g"), copies("h")], [vec![Some(2); 2], vec![None; 2], vec![None; 2]]);
    bench.compact(true).unwrap();
    assert_eq!(
        [copies("f"), copies("g")],
        [vec![Some(2)], vec![None]],
        "what a compaction writes is kept likewise"
    );
}
