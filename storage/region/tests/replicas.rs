//! Secondaries: copies of a region that read the files of their primary.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::ErrorKind;
use halcyon_env::FileSystem;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn bench() -> Bench {
    Bench::new(&[FamilyDescriptor::new("f").unwrap()])
}

/// A secondary at a server of its own.
fn try_secondary(bench: &Bench) -> halcyon_cell::Result<Arc<Region>> {
    let services = RegionServices {
        env: bench.env(),
        wal: bench.wal.clone(),
        cache: Arc::new(BlockCache::new(1 << 20)),
        mob_files: MobFileCache::new(1000, 0.5),
        chunks: bench.chunks.clone(),
        settings: settings(),
        wal_root: None,
    };
    Region::open_secondary(services, &root(), bench.info.replica(1), bench.table.clone())
}

fn secondary(bench: &Bench) -> Arc<Region> {
    try_secondary(bench).unwrap()
}

fn rows_of(region: &Arc<Region>) -> Vec<String> {
    let mut scanner = region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    rest_of(&mut scanner)
}

fn rest_of(scanner: &mut RegionScanner) -> Vec<String> {
    let mut cells = Vec::new();
    while scanner.next(&mut ScanLimits::NONE.clone(), &mut cells).unwrap() != NextState::Exhausted {}
    cells.iter().map(|cell| String::from_utf8_lossy(cell.row()).into_owned()).collect()
}

fn put(bench: &Bench, row: &str) {
    write(bench, row, MutationKind::Put).unwrap();
}

fn flush(bench: &Bench) {
    bench.region.flush(None).unwrap();
}

#[test]
fn a_secondary_shows_what_its_primary_has_flushed() {
    let bench = bench();
    put(&bench, "a");
    flush(&bench);
    put(&bench, "b");
    let copy = secondary(&bench);
    assert!(copy.is_secondary() && !bench.region.is_secondary());
    assert_eq!(copy.dir(), bench.region.dir());
    assert_eq!(rows_of(&copy), ["a"], "b is in the primary's memory");
    flush(&bench);
    assert_eq!(rows_of(&copy), ["a"]);
    assert!(copy.refresh_files(&root()).unwrap());
    assert_eq!(rows_of(&copy), ["a", "b"]);
    assert!(!copy.refresh_files(&root()).unwrap(), "nothing is new");
    let scan = Scan::of_row(Bytes::from_static(b"b"));
    assert_eq!(copy.get(scan, ReadMode::AnyDisk).unwrap().len(), 1);
}

#[test]
fn a_secondary_takes_no_writes_and_changes_no_file() {
    let bench = bench();
    put(&bench, "a");
    flush(&bench);
    put(&bench, "b");
    flush(&bench);
    let (copy, before) = (secondary(&bench), store_files(&bench));
    let put =
        mutation(MutationKind::Put, b"c", vec![parse_cell("c", "f:q=v", halcyon_cell::CellType::Put, false)]);
    let refused = copy.mutate(vec![put], false, Nonce::default(), ReadMode::AnyDisk).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("region is read only"), "{refused}");
    assert!(!copy.flush(None).unwrap().flushed);
    copy.request_major_compaction(None);
    assert!(!copy.compaction_wanted());
    let request = CompactionRequest { major: true, user: true };
    let control = &mut &std::sync::atomic::AtomicBool::new(false);
    assert_eq!(copy.compact(None, request, control).unwrap().compacted_files, 0);
    copy.close(false).unwrap();
    assert_eq!(store_files(&bench), before);
    assert_eq!(copy.refresh_files(&root()).err().map(|error| error.kind()), Some(ErrorKind::Moved));
    // The primary works on: the secondary did not take its directory away.
    self::put(&bench, "c");
    flush(&bench);
    assert_eq!(rows(&bench), ["a", "b", "c"]);
}

/// Compacted files go to the archive, and from there they are deleted.
#[test]
fn compactions_of_the_primary_are_followed_and_do_not_disturb_scans() {
    let bench = bench();
    for row in ["a", "b", "c"] {
        put(&bench, row);
        flush(&bench);
    }
    write(&bench, "b", MutationKind::Delete).unwrap();
    let copy = secondary(&bench);
    let mut begun = copy.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    flush(&bench);
    bench.compact(true).unwrap();
    assert_eq!(store_files(&bench).len(), 1);
    assert_eq!(rows_of(&copy), ["a", "b", "c"], "its files are in the archive");
    assert!(copy.refresh_files(&root()).unwrap());
    assert_eq!(rows_of(&copy), ["a", "c"]);
    assert_eq!(copy.stats().store_files, 1);
    assert_eq!(rest_of(&mut begun), ["a", "b", "c"], "a scan stays with the files that it began with");
}

/// The connection of a client broke during its scan of a copy, and the scanner let go of its files, as that of a primary may. Meanwhile the
/// primary had written rows again and compacted: in its new file they are above the scanner's read point, and the scan went on without
/// them.
#[test]
fn a_scan_that_is_to_let_go_of_its_files_still_finds_its_rows() {
    let bench = bench();
    ["a", "b", "c"].iter().for_each(|row| put(&bench, row));
    flush(&bench);
    let copy = secondary(&bench);
    let mut scanner = copy.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    let mut first = Vec::new();
    assert_eq!(scanner.next(&mut ScanLimits::NONE.clone(), &mut first).unwrap(), NextState::RowDone);
    drop(scanner.let_go());
    ["b", "c"].iter().for_each(|row| put(&bench, row));
    flush(&bench);
    bench.compact(true).unwrap();
    assert!(copy.refresh_files(&root()).unwrap());
    assert_eq!(rest_of(&mut scanner), ["b", "c"]);
    assert_eq!(rows_of(&copy), ["a", "b", "c"]);
}

/// The input of a compaction that a crash left in the store is not shown twice, and not archived by a secondary.
#[test]
fn inputs_beside_their_output_are_passed_over() {
    let bench = bench();
    for row in ["a", "b"] {
        put(&bench, row);
        flush(&bench);
    }
    write(&bench, "a", MutationKind::Delete).unwrap();
    flush(&bench);
    let dir = bench.region.dir().join("f");
    let inputs: Vec<_> = store_files(&bench).into_iter().map(|name| dir.join(name)).collect();
    let contents: Vec<_> = inputs.iter().map(|path| bench.fs.read(path).unwrap()).collect();
    bench.compact(true).unwrap();
    assert_eq!(store_files(&bench).len(), 1);
    inputs.iter().zip(contents).for_each(|(path, content)| bench.fs.put_new(path, &content).unwrap());
    let before = store_files(&bench);
    assert_eq!(rows_of(&secondary(&bench)), ["b"]);
    assert_eq!(store_files(&bench), before);
}

/// Whatever happens between two calls to the file system, a look shows all rows once.
#[test]
fn a_look_during_a_compaction_shows_every_row() {
    let with_files = || {
        let bench = Arc::new(bench());
        for row in ["a", "b", "c"] {
            put(&bench, row);
            flush(&bench);
        }
        bench
    };
    let bench = with_files();
    let copy = secondary(&bench);
    let before = bench.fs.calls();
    copy.refresh_files(&root()).unwrap();
    let of_look = bench.fs.calls() - before;
    assert!(of_look >= 2);
    for at in 1..=of_look {
        let bench = with_files();
        let copy = secondary(&bench);
        let other = bench.clone();
        bench.fs.pause_at(bench.fs.calls() + at, move || {
            put(&other, "d");
            flush(&other);
            other.compact(true).unwrap();
        });
        copy.refresh_files(&root()).unwrap();
        let rows = rows_of(&copy);
        assert!(rows == ["a", "b", "c"] || rows == ["a", "b", "c", "d"], "before call {at}: {rows:?}");
        copy.refresh_files(&root()).unwrap();
        assert_eq!(rows_of(&copy), ["a", "b", "c", "d"], "before call {at}");
    }
}

#[test]
fn a_secondary_of_nothing_is_opened_later() {
    let bench = bench();
    bench.fs.remove_dir_all(bench.region.dir()).unwrap();
    assert_eq!(try_secondary(&bench).err().map(|error| error.kind()), Some(ErrorKind::Busy));
}

/// What cannot be read is an error, and the secondary goes on with the files that it has.
#[test]
fn a_damaged_file_leaves_a_secondary_as_it_was() {
    let bench = bench();
    put(&bench, "a");
    flush(&bench);
    let copy = secondary(&bench);
    let name = "0123456789abcdef0123456789abcdef";
    bench.fs.put_new(&bench.region.dir().join("f").join(name), b"no HFile").unwrap();
    assert_eq!(copy.refresh_files(&root()).err().map(|error| error.kind()), Some(ErrorKind::Corrupt));
    assert_eq!(rows_of(&copy), ["a"]);
    assert!(Path::new(copy.dir()).ends_with(bench.info.encoded_name()));
}
