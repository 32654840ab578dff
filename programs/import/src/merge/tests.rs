//! The merge beside a sorted list, with files of Accumulo.

use super::*;
use crate::rfile::tests::{Entry, expected, file, open};

const NAMES: [&str; 5] = ["none", "gz", "snappy", "lz4", "zstd"];

/// Entries of several files, as a scan of Accumulo shows them. `times` are set times of the files.
fn model(times: &[Option<i64>], versions_max: Option<u64>) -> (Vec<Entry>, LeftOut) {
    let mut all: Vec<(Entry, usize)> = Vec::new();
    for (number, (name, time)) in NAMES.iter().zip(times).enumerate() {
        for (mut key, value) in expected(&format!("{name}.txt")) {
            key.timestamp = time.unwrap_or(key.timestamp);
            all.push(((key, value), number));
        }
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
    for times in [[None; 5], [None, Some(7), None, Some(7), None], [Some(9); 5]] {
        for versions_max in [None, Some(1), Some(2)] {
            let (found, wanted) = (merged(&times, versions_max, b"", b""), model(&times, versions_max));
            assert_eq!(found.1, wanted.1, "{times:?} {versions_max:?}");
            assert!(found.0 == wanted.0, "{times:?} {versions_max:?}");
            assert!(found.1.deletes > 50 && found.0.len() > 100);
        }
    }
    let (_, left) = merged(&[Some(9); 5], None, b"", b"");
    assert!(left.doubles > 0 && left.deleted > 0, "{left:?}");
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
