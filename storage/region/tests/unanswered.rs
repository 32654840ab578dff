//! The file system does not say whether a file is there, or whether it is complete. No edit may be passed over and no file
//! forgotten for that.

use std::sync::Arc;

use crate::common::*;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn bench() -> Bench {
    Bench::new(&[FamilyDescriptor::new("f").unwrap()])
}

/// Recovered edits were taken for absent when the question whether their directory exists failed: the region opened
/// without acknowledged writes, and they were never replayed. What is there is listed now, as other directories are.
#[test]
fn recovered_edits_are_not_taken_for_absent() {
    for (part, least) in [("recovered.edits", 1), ("", 5)] {
        let mut questions = 0;
        for nth in 1.. {
            let mut bench = bench();
            write(&bench, "r1", MutationKind::Put).unwrap();
            let left = Arc::new(bench.fs.crash(CrashMode::Drop, nth));
            left.inject(Fault::new(Operation::List, part).nth(nth));
            let opened = bench.recover_on(left.clone());
            if left.faults_hit() == 0 {
                break;
            }
            assert!(opened.is_err(), "list {nth} of {part:?} had no answer");
            questions += 1;
            let left: SimFileSystem = left.crash(CrashMode::Drop, nth);
            bench.recover_on(Arc::new(left)).unwrap();
            assert_eq!(rows(&bench), ["r1"], "list {nth} of {part:?}");
        }
        assert!(questions >= least, "{questions} lists of {part:?}");
    }
}

/// An input of a compaction was taken for archived when the question whether it is still in the store failed. Once a
/// later compaction had dropped the delete marker, the next opening brought the deleted row back.
#[test]
fn a_compacted_file_is_not_taken_for_archived() {
    let mut bench = bench();
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    let [input]: [String; 1] = store_files(&bench).try_into().unwrap();
    write(&bench, "r1", MutationKind::Delete).unwrap();
    write(&bench, "r2", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    bench.fs.inject(Fault::new(Operation::Exists, &format!("f/{input}")));
    bench.compact(true).unwrap();
    assert_eq!(bench.fs.faults_hit(), 1);
    assert!(store_files(&bench).contains(&input), "it could not be archived");
    write(&bench, "r3", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    assert!(!store_files(&bench).contains(&input), "the next commit archives it");
    bench.compact(true).unwrap();
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r2", "r3"]);
}

/// A file of a commit that failed was taken for removed when the question whether it is there failed.
#[test]
fn a_file_of_a_failed_commit_is_not_taken_for_removed() {
    let bench = bench();
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.fs.inject(Fault::new(Operation::Open, "/f/"));
    bench.fs.inject(Fault::new(Operation::Exists, "/f/"));
    bench.region.flush(None).unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 2);
    let left = store_files(&bench);
    assert_eq!(left.len(), 1, "it could not be removed");
    bench.region.flush(None).unwrap();
    let files = store_files(&bench);
    assert!(files.len() == 1 && files != left, "the next commit removes it");
    assert_eq!(rows(&bench), ["r1"]);
}

/// A flush took a file for complete whose end it had not seen.
#[test]
fn a_file_that_cannot_be_closed_is_not_committed() {
    let bench = bench();
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.fs.inject(Fault::new(Operation::Close, ".tmp"));
    bench.region.flush(None).unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 1);
    assert!(store_files(&bench).is_empty());
    assert_eq!(rows(&bench), ["r1"]);
    bench.region.flush(None).unwrap();
    assert_eq!((store_files(&bench).len(), rows(&bench)), (1, vec!["r1".to_string()]));
}

/// The answer to the rename that puts a file in place is lost. The commit failed for its caller, so the file must not stay
/// among those that an opening finds.
#[test]
fn a_file_whose_rename_had_no_answer_leaves_its_store() {
    let mut bench = bench();
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.fs.inject(Fault::answer_lost(".tmp"));
    bench.region.flush(None).unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 1);
    assert!(store_files(&bench).is_empty());
    assert_eq!(rows(&bench), ["r1"]);
    bench.region.flush(None).unwrap();
    bench.reopen().unwrap();
    assert_eq!((store_files(&bench).len(), rows(&bench)), (1, vec!["r1".to_string()]));
}
