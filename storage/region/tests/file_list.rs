//! Stores that know their files by a list (the store file tracker FILE), and the way there and back.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::*;
use halcyon_env::FileSystem;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, RegionInfo, StoreFileTracker};

fn family() -> FamilyDescriptor {
    FamilyDescriptor::new("f").unwrap()
}

fn in_store(bench: &Bench) -> Vec<String> {
    let entries = bench.fs.list(&bench.region.dir().join("f")).unwrap();
    entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.name).collect()
}

fn put_file(bench: &Bench, name: &str) {
    bench.fs.put_new(&bench.region.dir().join("f").join(name), b"half of a file").unwrap();
}

const STRAY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn files_are_made_in_the_store_and_committed_by_the_list() {
    let mut bench = Bench::new(&[listed(family())]);
    write(&bench, "r1", MutationKind::Put).unwrap();
    // The list cannot be written: the file leaves the store again.
    bench.fs.inject(Fault::new(Operation::Create, "list-"));
    bench.region.flush(None).unwrap_err();
    assert!(in_store(&bench).is_empty());
    bench.region.flush(None).unwrap();
    assert_eq!(in_store(&bench).len(), 1);
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r1"]);
}

#[test]
fn what_no_list_names_is_nobodys_and_goes_when_it_is_due() {
    let mut bench = Bench::new(&[listed(family())]);
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    put_file(&bench, STRAY);
    bench.reopen().unwrap();
    write(&bench, "r2", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    assert_eq!(rows(&bench), ["r1", "r2"]);
    assert_eq!(bench.region.archive_strays(|_| false).unwrap(), 0);
    assert!(in_store(&bench).contains(&STRAY.to_string()));
    assert_eq!(bench.region.archive_strays(|path| path.ends_with(STRAY)).unwrap(), 1);
    assert_eq!(in_store(&bench).len(), 1);
    let archived: Vec<PathBuf> = bench.fs.dump().into_iter().map(|(path, _)| path).collect();
    assert!(archived.iter().any(|path| path.starts_with("/root/archive") && path.ends_with(STRAY)));
    assert_eq!(rows(&bench), ["r1", "r2"]);
}

/// A server that has lost the region does not take what may be the next one's.
#[test]
fn an_opening_that_lost_the_region_archives_nothing() {
    let bench = Bench::on(Arc::new(SimFileSystem::hdfs(1)), &[listed(family())]);
    write(&bench, "r1", MutationKind::Put).unwrap();
    let mut other = bench.other_server();
    other.take_over().unwrap();
    other.region.flush(None).unwrap();
    let files = in_store(&other);
    assert!(!files.is_empty());
    assert!(bench.region.archive_strays(|_| true).is_err());
    assert_eq!(in_store(&other), files);
    assert_eq!(rows(&other), ["r1"]);
}

/// With DEFAULT a file that is half written would be the store's.
#[test]
fn a_migration_to_default_is_rid_of_what_no_list_names() {
    for (src, dst, stays) in [("FILE", "DEFAULT", false), ("DEFAULT", "FILE", true)] {
        let mut bench = Bench::new(&[migrating(family(), src, dst)]);
        write(&bench, "r1", MutationKind::Put).unwrap();
        bench.region.flush(None).unwrap();
        let [file]: [String; 1] = in_store(&bench).try_into().unwrap();
        if src == "FILE" {
            put_file(&bench, STRAY);
        }
        bench.reopen().unwrap();
        assert_eq!(in_store(&bench), std::slice::from_ref(&file), "from {src} to {dst}");
        let list = Region::listed_files(&bench.env(), &bench.region.dir().join("f"), StoreFileTracker::FILE);
        let list: Vec<String> = list.unwrap().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(list, [file], "both are kept up to date");
        put_file(&bench, STRAY);
        // A file of its directory belongs to a store that comes from DEFAULT, and this one is damaged.
        assert_eq!(bench.reopen().is_err(), stays, "from {src} to {dst}");
    }
}

#[test]
fn a_list_that_names_a_missing_file_keeps_the_region_closed() {
    let mut bench = Bench::new(&[listed(family())]);
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    let [file]: [String; 1] = in_store(&bench).try_into().unwrap();
    bench.fs.remove_file(&bench.region.dir().join("f").join(&file)).unwrap();
    assert!(bench.reopen().unwrap_err().to_string().contains(&file));
}

/// The files of a split are in the lists of the daughters, whatever the directory of the parent has besides.
#[test]
fn daughters_have_lists() {
    let bench = Bench::new(&[listed(family())]);
    for row in ["a", "m", "z"] {
        write(&bench, row, MutationKind::Put).unwrap();
        bench.region.flush(None).unwrap();
    }
    put_file(&bench, STRAY);
    bench.region.close(false).unwrap();
    let split: bytes::Bytes = "m".into();
    let name = bench.info.table().clone();
    let daughters = [
        RegionInfo::new(name.clone(), "".into(), split.clone(), 7),
        RegionInfo::new(name, split, "".into(), 7),
    ];
    Region::split_files(
        &bench.services_with(MobFileCache::new(0, 0.0)),
        &root(),
        &bench.table,
        &bench.info,
        &daughters,
    )
    .unwrap();
    let counts = daughters.each_ref().map(|daughter| {
        let dir = daughter.dir(&root()).join("f");
        Region::listed_files(&bench.env(), &dir, StoreFileTracker::FILE).unwrap().unwrap().len()
    });
    assert_eq!(counts, [1, 2]);
}
