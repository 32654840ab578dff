//! A region is opened a second time while its first opening still runs, as after a long pause of its server. The first
//! opening flushes and compacts. No file of it enters the stores, and none leaves them.

use crate::common::*;
use halcyon_cell::Result;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use std::time::Duration;

fn compact(region: &Region) -> Result<CompactionOutcome> {
    let control = &mut &std::sync::atomic::AtomicBool::new(false);
    region.compact(None, CompactionRequest { major: true, user: true }, control)
}

#[test]
fn a_left_opening_commits_nothing() {
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    write(&bench, "r1", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    write(&bench, "r2", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    write(&bench, "r3", MutationKind::Put).unwrap();
    let left = bench.region.clone();
    bench.recover_on(bench.fs.clone()).unwrap();
    write(&bench, "r1", MutationKind::Delete).unwrap();
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    let files = store_files(&bench);
    for _ in 0..2 {
        left.flush(None).unwrap_err();
        compact(&left).unwrap_err();
        assert_eq!(store_files(&bench), files);
    }
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["r2", "r3"], "the deleted row does not come back");
}

/// Nor does it drop files that it takes for expired: the next opening may keep them for longer.
#[test]
fn a_left_opening_drops_no_expired_files() {
    let family = FamilyDescriptor::new("f").unwrap().with("TTL", "10");
    let mut bench = Bench::new(&[family]);
    for row in ["r1", "r2", "r3"] {
        write(&bench, row, MutationKind::Put).unwrap();
        bench.region.flush(None).unwrap();
        bench.clock.advance(Duration::from_secs(6));
    }
    let left = bench.region.clone();
    bench.recover_on(bench.fs.clone()).unwrap();
    let files = store_files(&bench);
    assert_eq!(files.len(), 3);
    let _ = compact(&left); // its view loses the file, and the rest fails
    assert_eq!(store_files(&bench), files);
}
