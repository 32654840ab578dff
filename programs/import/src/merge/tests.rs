//! The merge beside a sorted list, with files of Accumulo.

use super::*;
use crate::rfile::tests::{Entry, expected, file, open};

const NAMES: [&str; 5] = ["none", "gz", "snappy", "lz4", "zstd"];

/// Entries of several files, as a scan of Accumulo shows them.
fn model(versions_max: Option<u64>) -> (Vec<Entry>, LeftOut) {
    let mut all: Vec<(Entry, usize)> = Vec::new();
    for (number, name) in NAMES.iter().enumerate() {
        all.extend(expected(&format!("{name}.txt")).into_iter().map(|entry| (entry, number)));
    }
    all.sort_by(|left, right| left.0.0.cmp(&right.0.0).then_with(|| left.1.cmp(&right.1)));
    let (mut shown, mut left): (Vec<Entry>, LeftOut) = (Vec::new(), LeftOut::default());
    let mut at = 0;
    while at < all.len() {
        let column = &all[at].0.0;
        let len = all[at..].iter().take_while(|((key, _), _)| key.is_same_column(column)).count();
        let mut versions: Vec<&Entry> = Vec::new();
        let mut is_deleted = false;
        for (entry, _) in &all[at..at + len] {
            match (entry.0.is_deleted, is_deleted) {
                (true, _) => {
                    is_deleted = true;
                    left.deletes += 1;
                }
                (false, true) => left.deleted += 1,
                _ if versions.last().is_some_and(|last| last.0.timestamp == entry.0.timestamp) => {
                    left.doubles += 1
                }
                _ if versions_max.is_some_and(|max| versions.len() as u64 >= max) => left.old_versions += 1,
                _ => versions.push(entry),
            }
        }
        shown.extend(versions.into_iter().cloned());
        at += len;
    }
    (shown, left)
}

fn merged(
    times: &[Option<i64>],
    versions_max: Option<u64>,
    start: &[u8],
    end: &[u8],
) -> (Vec<Entry>, LeftOut) {
    let mut streams = Vec::new();
    for (number, (name, time)) in NAMES.iter().zip(times).enumerate() {
        let file = open(file(&format!("{name}.rf"))).unwrap();
        for group in 0..file.groups().len() {
            let scanner = file.scan(group, start, end).unwrap();
            streams.extend(Stream::open(scanner, number, *time, start).unwrap());
        }
    }
    let mut merged = Merged::new(streams, versions_max);
    let mut shown = Vec::new();
    while merged.next().unwrap() {
        shown.push((merged.key().clone(), merged.value().to_vec()));
    }
    (shown, merged.left_out())
}

#[test]
fn files_are_merged_as_a_compaction_does_it() {
    for versions_max in [None, Some(1), Some(2)] {
        let (found, wanted) = (merged(&[None; 5], versions_max, b"", b""), model(versions_max));
        assert_eq!(found.1, wanted.1, "{versions_max:?}");
        assert!(found.0 == wanted.0, "{versions_max:?}");
        assert!(found.1.deletes > 50 && found.0.len() > 100);
    }
}

/// A set time holds for all entries of a file. In a column they keep the order that they have in the file, as in Accumulo.
#[test]
fn a_set_time_is_that_of_all_entries_of_a_file() {
    let (shown, left) = merged(&[Some(9); 5], None, b"", b"");
    assert!(shown.iter().all(|(key, _)| key.timestamp == 9));
    assert!(left.doubles > 0, "{left:?}");
    let count = shown.len() as u64 + left.deletes + left.deleted + left.doubles;
    let all: u64 = NAMES.iter().map(|name| expected(&format!("{name}.txt")).len() as u64).sum();
    assert_eq!(count, all);
    let (some, _) = merged(&[None, Some(9), None, None, None], None, b"", b"");
    assert!(some.iter().any(|(key, _)| key.timestamp == 9) && some.iter().any(|(key, _)| key.timestamp != 9));
}

#[test]
fn ranges_together_have_everything_once() {
    let all = merged(&[None; 5], Some(1), b"", b"").0;
    let bounds: [&[u8]; 6] = [b"", &[0], &[0, 3], &[0, 9, b'r'], &[0, 17, 255], &[1]];
    let mut found = Vec::new();
    for at in 0..bounds.len() {
        let end = bounds.get(at + 1).copied().unwrap_or_default();
        found.extend(merged(&[None; 5], Some(1), bounds[at], end).0);
    }
    assert!(found == all);
}
