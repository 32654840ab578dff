//! Store files that are links to HFiles of other regions, as HBase makes them when it clones a snapshot or splits a region.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use halcyon_cell::{ErrorKind, Result};
use halcyon_env::FileSystem;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

/// The region that the HFiles belong to.
const SOURCE: &str = "n/source.x/0f0f";
const LINK: &str = "n=source.x=0f0f-";
const PARENT: &str = "2140f686c386930b96c060b1030c2875";
const HFILE: &str = "0a1b";

fn data(region: &str, name: &str) -> PathBuf {
    root().join("data").join(region).join("f").join(name)
}

fn temporary(name: &str) -> PathBuf {
    root().join(".tmp/data").join(SOURCE).join("f").join(name)
}

fn archived(name: &str) -> PathBuf {
    root().join("archive/data").join(SOURCE).join("f").join(name)
}

fn move_file(fs: &dyn FileSystem, from: &Path, to: &Path) {
    fs.create_dir_all(to.parent().unwrap()).unwrap();
    fs.rename(from, to).unwrap();
}

/// A closed region whose rows are in one HFile of another region, which it has a link to.
fn clone_on(fs: SimFileSystem, hfile: &str) -> Bench {
    let bench = Bench::on(Arc::new(fs), &[FamilyDescriptor::new("f").unwrap()]);
    for row in ["a", "b", "c", "d"] {
        write(&bench, row, MutationKind::Put).unwrap();
    }
    bench.region.flush(None).unwrap();
    bench.region.close(false).unwrap();
    let own = store_files(&bench);
    assert_eq!(own.len(), 1);
    let dir = bench.region.dir().join("f");
    move_file(&*bench.fs, &dir.join(&own[0]), &data(SOURCE, hfile));
    bench.fs.put_new(&dir.join(format!("{LINK}{hfile}")), b"").unwrap();
    bench
}

fn clone() -> Bench {
    clone_on(SimFileSystem::new(), HFILE)
}

fn open(bench: &mut Bench) -> Result<()> {
    bench.take_over()
}

fn compact(bench: &Bench) {
    assert_eq!(bench.compact(true).unwrap().compacted_files, 1);
}

#[test]
fn a_link_is_read_wherever_its_hfile_is() {
    let mut bench = clone();
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench), ["a", "b", "c", "d"]);
    bench.region.close(false).unwrap();
    for (from, to) in [(data(SOURCE, HFILE), temporary(HFILE)), (temporary(HFILE), archived(HFILE))] {
        move_file(&*bench.fs, &from, &to);
        open(&mut bench).unwrap();
        assert_eq!(rows(&bench), ["a", "b", "c", "d"], "{}", to.display());
        bench.region.close(false).unwrap();
    }
}

/// The sequence id of a bulk-loaded file is in its name, and the table's name has a dot in it.
#[test]
fn a_link_to_a_bulk_loaded_file_has_its_sequence_id() {
    let hfile = format!("{HFILE}_SeqId_900_");
    let mut bench = clone_on(SimFileSystem::new(), &hfile);
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench).len(), 4);
    let named = bench.region.snapshot_manifest();
    let file = &named.family_files[0].store_files[0];
    assert_eq!(file.name, format!("{LINK}{hfile}"));
    assert_eq!(file.file_size, Some(bench.fs.read(&data(SOURCE, &hfile)).unwrap().len() as u64));
    assert!(file.reference.is_none());
}

/// The link of the parent is not needed: the name says where the HFile is.
#[test]
fn a_reference_to_a_link_shows_its_half() {
    let mut bench = clone();
    let dir = bench.region.dir().join("f");
    bench.fs.remove_file(&dir.join(format!("{LINK}{HFILE}"))).unwrap();
    let top = Reference { split_row: "c".into(), top: true };
    let reference = format!("{LINK}{HFILE}.{PARENT}");
    bench.fs.put_new(&dir.join(&reference), &top.encode()).unwrap();
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench), ["c", "d"]);
    assert!(bench.region.has_references());
    compact(&bench);
    assert_eq!(rows(&bench), ["c", "d"]);
    assert!(!bench.region.has_references());
    assert!(bench.fs.exists(&data(SOURCE, HFILE)).unwrap());
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["c", "d"]);
    assert!(!store_files(&bench).contains(&reference));
}

/// HBase's cleaner removes the back reference once the link is in no store, and then the HFile if it is archived. Whoever
/// archived the HFile itself would take it from the table that it belongs to.
#[test]
fn a_compaction_archives_the_link_and_leaves_its_hfile() {
    let mut bench = clone();
    let back = archived(&format!(".links-{HFILE}")).join(format!("{}.t", bench.info.encoded_name()));
    bench.fs.create_dir_all(back.parent().unwrap()).unwrap();
    bench.fs.put_new(&back, b"").unwrap();
    open(&mut bench).unwrap();
    compact(&bench);
    let archive = root().join("archive/data/default/t").join(bench.info.encoded_name()).join("f");
    let names = |dir: &Path| bench.fs.list(dir).unwrap().into_iter().map(|entry| entry.name);
    assert!(names(&archive).any(|name| name == format!("{LINK}{HFILE}")));
    assert_eq!(store_files(&bench).len(), 1);
    assert!(!store_files(&bench)[0].contains('='));
    assert!(bench.fs.exists(&data(SOURCE, HFILE)).unwrap() && bench.fs.exists(&back).unwrap());
    bench.fs.remove_file(&data(SOURCE, HFILE)).unwrap();
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["a", "b", "c", "d"]);
}

/// What the compacted file names as its input is the link, so the next opening archives that.
#[test]
fn a_link_that_was_not_archived_goes_at_the_next_opening() {
    let mut bench = clone();
    open(&mut bench).unwrap();
    bench.fs.inject(Fault::new(Operation::Rename, &format!("{LINK}{HFILE}")).forever());
    compact(&bench);
    assert!(bench.fs.faults_hit() > 0);
    assert_eq!(store_files(&bench).len(), 2);
    bench.fs.clear_faults();
    bench.reopen().unwrap();
    assert_eq!(store_files(&bench).len(), 1);
    assert_eq!(rows(&bench), ["a", "b", "c", "d"]);
}

#[test]
fn a_link_to_nothing_fails_the_opening_and_names_the_places() {
    let mut bench = clone();
    bench.fs.remove_file(&data(SOURCE, HFILE)).unwrap();
    let error = open(&mut bench).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for place in [data(SOURCE, HFILE), temporary(HFILE), archived(HFILE)] {
        assert!(error.to_string().contains(&*place.to_string_lossy()), "{error}");
    }
    assert_eq!(store_files(&bench), [format!("{LINK}{HFILE}")], "the next attempt may find it");
    assert!(bench.region.snapshot_manifest().family_files.len() == 1);
}

/// An HFile that cannot be read is not taken for one that is elsewhere.
#[test]
fn an_error_of_the_file_system_is_told() {
    let mut bench = clone();
    bench.fs.inject(Fault::new(Operation::Open, HFILE));
    let error = open(&mut bench).unwrap_err();
    assert_eq!((bench.fs.faults_hit(), error.kind()), (1, ErrorKind::Io), "{error}");
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench).len(), 4);
}

/// The table that the HFile belongs to archives it at any moment of the opening, or finishes what it clones.
#[test]
fn an_hfile_that_moves_during_the_opening_is_found() {
    for (from, to) in [(data(SOURCE, HFILE), archived(HFILE)), (temporary(HFILE), data(SOURCE, HFILE))] {
        let mut n = 0;
        loop {
            let mut bench = clone();
            if from != data(SOURCE, HFILE) {
                move_file(&*bench.fs, &data(SOURCE, HFILE), &from);
            }
            n += 1;
            let (fs, source, target) = (bench.fs.clone(), from.clone(), to.clone());
            fs.pause_at(fs.calls() + n, {
                let fs = fs.clone();
                move || move_file(&*fs, &source, &target)
            });
            let opened = open(&mut bench);
            if bench.fs.exists(&from).unwrap() {
                break; // the opening has fewer calls
            }
            // An open file of this file system outlives its move.
            opened.unwrap_or_else(|error| panic!("before call {n}: {error}"));
            assert_eq!(rows(&bench), ["a", "b", "c", "d"], "before call {n}");
        }
        assert!(n > 10, "the calls of an opening");
    }
}

/// Between the listing of the store and the opening of the link its HFile is removed.
#[test]
fn an_hfile_that_vanishes_during_the_opening_is_an_error() {
    let (mut n, mut failed) = (0, 0);
    loop {
        let mut bench = clone();
        n += 1;
        let fs = bench.fs.clone();
        fs.pause_at(fs.calls() + n, {
            let fs = fs.clone();
            move || fs.remove_file(&data(SOURCE, HFILE)).unwrap()
        });
        let opened = open(&mut bench);
        if bench.fs.exists(&data(SOURCE, HFILE)).unwrap() {
            break;
        }
        if let Err(error) = opened {
            failed += 1;
            let place = archived(HFILE).display().to_string();
            assert!(error.to_string().contains(&place), "before call {n}: {error}");
        }
    }
    assert!(failed > 3 && n > failed, "{failed} of {n} failed");
}

#[test]
fn names_that_only_look_like_links_are_passed_over() {
    let mut bench = clone();
    let dir = bench.region.dir().join("f");
    for name in
        ["=", "t=0f", "=0f-1a", "a=b=c=0f-1a", "..=0f-1a", "t=0F-1a", "t=0f-1a_SeqId_x_", "t=0f-1a.x", "x"]
    {
        bench.fs.put_new(&dir.join(name), b"garbage").unwrap();
    }
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench), ["a", "b", "c", "d"]);
    compact(&bench);
    assert_eq!(rows(&bench), ["a", "b", "c", "d"]);
}

/// Both regions are open here and share the cached blocks. The one that compacts leaves them to the other.
#[test]
fn a_compaction_leaves_the_blocks_of_the_hfile_in_the_cache() {
    let mut bench = clone();
    open(&mut bench).unwrap();
    assert_eq!(rows(&bench).len(), 4);
    let before = bench.cache.stats().used_bytes;
    assert!(before > 0);
    compact(&bench);
    assert!(bench.cache.stats().used_bytes >= before);
}
