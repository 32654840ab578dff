//! What each compaction policy leaves in a store.

use std::time::Duration;

use crate::common::*;
use halcyon_cell::CellType;
use halcyon_env::{Clock, FileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn family() -> FamilyDescriptor {
    FamilyDescriptor::new("f").unwrap()
}

fn file_with(bench: &Bench, row: &str, timestamp: i64) {
    let cell = parse_cell(row, &format!("f:q=v@{timestamp}"), CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    bench.region.flush(None).unwrap();
}

fn files(bench: &Bench) -> usize {
    bench.fs.list(&bench.region.dir().join("f")).unwrap().len()
}

fn rows(bench: &Bench) -> Vec<String> {
    let rows = bench.scan(Scan { max_versions: 1, ..Scan::default() }).unwrap();
    rows.iter().map(|cells| cells[0].row().escape_ascii().to_string()).collect()
}

#[test]
fn files_that_have_expired_go_unread_and_the_newest_stays() {
    let mut bench = Bench::new(&[with_policy(family().with("TTL", "10"), Policy::Fifo, 0)]);
    let now_ms = bench.clock.now_ms();
    for (row, age_ms) in [("a", 9_000), ("b", 2_000), ("c", 9_000), ("d", 9_000)] {
        file_with(&bench, row, now_ms - age_ms);
    }
    assert!(!bench.region.compaction_wanted());
    bench.clock.advance(Duration::from_secs(2));
    assert!(bench.region.compaction_wanted());
    let seq = bench.region.stats().flushed_seqs[0].1;
    let outcome = bench.compact(true).unwrap();
    assert_eq!((outcome.expired_files, outcome.compacted_files, outcome.bytes_read), (2, 0, 0));
    assert_eq!((rows(&bench), files(&bench)), (vec!["b".to_string()], 2));
    assert!(!bench.region.compaction_wanted());
    bench.reopen().unwrap();
    assert_eq!(bench.region.stats().flushed_seqs[0].1, seq, "replay has to know what is in files");
    assert!(bench.region.open_seq_num() > seq);
}

#[test]
fn versions_that_are_kept_for_ever_keep_their_files() {
    let kept = family().with("TTL", "10").with("MIN_VERSIONS", "1");
    let bench = Bench::new(&[with_policy(kept, Policy::Fifo, 0)]);
    let now_ms = bench.clock.now_ms();
    ["a", "b", "c"].iter().for_each(|row| file_with(&bench, row, now_ms - 60_000));
    assert_eq!(bench.compact(true).unwrap().expired_files, 0);
    assert_eq!((rows(&bench).len(), files(&bench)), (3, 3));
}

#[test]
fn other_policies_drop_expired_files_as_well_unless_told_not_to() {
    for (delete, expired) in [("true", 2), ("false", 0)] {
        let family = family()
            .with("TTL", "10")
            .with_configuration("hbase.store.delete.expired.storefile", delete)
            .with_configuration("hbase.hstore.compaction.min", "100");
        let bench = Bench::new(&[family]);
        let now_ms = bench.clock.now_ms();
        for (row, age_ms) in [("a", 9_000), ("b", 9_000), ("c", 0)] {
            file_with(&bench, row, now_ms - age_ms);
        }
        bench.clock.advance(Duration::from_secs(2));
        assert_eq!(bench.compact(false).unwrap().expired_files, expired);
        assert_eq!((rows(&bench), files(&bench)), (vec!["c".to_string()], 3 - expired));
    }
}

#[test]
fn a_major_compaction_by_time_leaves_a_file_for_each_window() {
    let mut bench = Bench::new(&[with_policy(family().with("VERSIONS", "5"), Policy::DateTiered, 1_000)]);
    let now_ms = bench.clock.now_ms();
    for age_ms in [100, 8_000, 90_000, 100_000] {
        file_with(&bench, &format!("row{age_ms:06}"), now_ms - age_ms);
        file_with(&bench, "same", now_ms - age_ms);
    }
    let outcome = bench.compact(true).unwrap();
    assert!(outcome.major && outcome.compacted_files >= 2);
    assert_eq!(files(&bench), 3, "the two oldest share a window");
    let stats = bench.region.stats();
    assert_eq!(stats.store_files, 3);
    bench.reopen().unwrap();
    assert_eq!(rows(&bench).len(), 5);
    assert_eq!(files(&bench), 3);
    assert!(!bench.region.compaction_wanted());
    // Markers of one window hide cells of older ones.
    let marker = parse_cell("same", &format!("f:q@{}", now_ms - 8_000), CellType::DeleteColumn, false);
    bench.mutate(mutation(MutationKind::Delete, b"same", vec![marker])).unwrap();
    bench.region.flush(None).unwrap();
    let versions = || {
        let same = Scan { max_versions: 5, ..Scan::of_row(bytes::Bytes::from_static(b"same")) };
        bench.region.get(same, ReadMode::AnyDisk).unwrap().len()
    };
    assert_eq!(versions(), 1);
    bench.compact(true).unwrap();
    assert_eq!((versions(), files(&bench)), (1, 3));
}

#[test]
fn an_unknown_engine_is_the_default_one() {
    let family = family().with_configuration("hbase.hstore.engine.class", "org.example.SomeStoreEngine");
    let bench = Bench::new(&[family]);
    ["a", "b", "c"].iter().for_each(|row| file_with(&bench, row, 1));
    assert_eq!(bench.compact(false).unwrap().compacted_files, 3);
    assert_eq!((rows(&bench).len(), files(&bench)), (3, 1));
}

/// What file info says of tags: the length of the longest, if cells have a part for them.
fn tags(bench: &Bench) -> Vec<Option<u32>> {
    let of = |file: &std::sync::Arc<halcyon_hfile::HFile>| {
        file.info().get("hfile.MAX_TAGS_LEN").map(|_| file.info().max_tags_len())
    };
    store_files(bench).iter().map(of).collect()
}

#[test]
fn a_compaction_leaves_the_part_for_tags_out_where_there_are_none() {
    let bench = Bench::new(&[family()]);
    ["a", "b"].iter().for_each(|row| file_with(&bench, row, 1));
    assert_eq!(tags(&bench), [Some(0), Some(0)]);
    bench.compact(true).unwrap();
    assert_eq!(tags(&bench), [None]);
    let mut ttl = mutation(MutationKind::Put, b"c", vec![parse_cell("c", "f:q=v", CellType::Put, false)]);
    ttl.cell_ttl_ms = Some(1_000);
    bench.mutate(ttl).unwrap();
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    assert_eq!(
        (tags(&bench).len(), rows(&bench)),
        (1, vec!["a".to_string(), "b".to_string(), "c".to_string()])
    );
    assert!(tags(&bench)[0].is_some_and(|len| len > 0));
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(rows(&bench), ["a", "b"]);
}

const ROWS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn striped(settings: &[(&str, &str)]) -> Bench {
    let family = with_policy(family(), Policy::Stripe, 0);
    let set = |family: FamilyDescriptor, (name, value): &(&str, &str)| {
        family.with_configuration(format!("hbase.store.stripe.{name}"), *value)
    };
    Bench::new(&[settings.iter().fold(family, set)])
}

fn flush_rows(bench: &Bench, rows: &[&str], timestamp: i64) {
    for row in rows {
        let cell = parse_cell(row, &format!("f:q=v@{timestamp}"), CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    }
    bench.region.flush(None).unwrap();
}

fn store_files(bench: &Bench) -> Vec<std::sync::Arc<halcyon_hfile::HFile>> {
    let dir = bench.region.dir().join("f");
    let cache = std::sync::Arc::new(halcyon_cache::BlockCache::new(1 << 20));
    let open = |entry: halcyon_env::DirEntry| {
        let options = halcyon_hfile::ReaderOptions::default();
        halcyon_hfile::HFile::open(&bench.env(), &dir.join(entry.name), &cache, options).unwrap()
    };
    bench.fs.list(&dir).unwrap().into_iter().map(open).collect()
}

/// What the files say of their stripes, as `start-end`, or nothing for one of level 0.
fn spans(bench: &Bench) -> Vec<String> {
    let mut spans: Vec<String> = store_files(bench)
        .iter()
        .map(|file| {
            let row = |name: &str| file.info().get(name).map(|row| row.escape_ascii().to_string());
            match (row("STRIPE_START_KEY"), row("STRIPE_END_KEY")) {
                (Some(start), Some(end)) => format!("{start}-{end}"),
                _ => String::new(),
            }
        })
        .collect();
    spans.sort();
    spans
}

#[test]
fn a_flush_writes_a_file_for_each_stripe_with_cells() {
    let mut bench = striped(&[("initialStripeCount", "3")]);
    flush_rows(&bench, &ROWS, 1);
    assert_eq!(spans(&bench), ["-c", "c-e", "e-"]);
    bench.reopen().unwrap();
    flush_rows(&bench, &["c", "d", "f"], 2);
    assert_eq!(spans(&bench), ["-c", "c-e", "c-e", "e-", "e-"]);
    assert_eq!(rows(&bench), ROWS.map(String::from));
    let limited = Scan { stop_row: bytes::Bytes::from_static(b"d"), ..Scan::default() };
    assert_eq!(bench.scan(limited).unwrap().len(), 3);
}

#[test]
fn level_0_becomes_stripes_and_stripes_are_divided_and_compacted_by_themselves() {
    let mut bench = striped(&[("compaction.flushToL0", "true"), ("sizeToSplit", "100000")]);
    flush_rows(&bench, &ROWS, 1);
    assert!(!bench.region.compaction_wanted());
    flush_rows(&bench, &ROWS, 2);
    assert_eq!(spans(&bench), ["", ""]);
    let outcome = bench.compact(false).unwrap();
    assert!(outcome.major && outcome.compacted_files == 2);
    assert_eq!(spans(&bench), ["-e", "e-"]);
    bench.reopen().unwrap();
    flush_rows(&bench, &["a"], 3);
    flush_rows(&bench, &["b"], 3);
    // Level 0 into the stripes: the second one has no cells of it, and no file.
    assert_eq!(bench.compact(false).unwrap().compacted_files, 2);
    assert_eq!(spans(&bench), ["-e", "-e", "e-"]);
    // One stripe whole, and nothing of level 0: its markers could go.
    let outcome = bench.compact(false).unwrap();
    let major = MajorRows { family: "f".into(), start: "".into(), end: "e".into() };
    assert_eq!((outcome.compacted_files, outcome.major, outcome.major_rows), (2, false, vec![major]));
    assert_eq!(spans(&bench), ["-e", "e-"]);
    assert!(!bench.region.compaction_wanted());
    assert_eq!(rows(&bench), ROWS.map(String::from));
}

#[test]
fn a_stripe_of_which_nothing_is_left_keeps_a_file() {
    let mut bench = striped(&[("initialStripeCount", "3"), ("sizeToSplit", "100000")]);
    flush_rows(&bench, &ROWS, 1);
    for row in ["c", "d"] {
        bench.mutate(mutation(MutationKind::Delete, row.as_bytes(), Vec::new())).unwrap();
    }
    bench.region.flush(None).unwrap();
    assert_eq!(spans(&bench), ["-c", "c-e", "c-e", "e-"]);
    let outcome = bench.compact(false).unwrap();
    assert_eq!((outcome.compacted_files, outcome.major_rows.len()), (2, 1));
    assert_eq!(spans(&bench), ["-c", "c-e", "e-"]);
    bench.reopen().unwrap();
    assert_eq!(rows(&bench), ["a", "b", "e", "f"]);
    assert!(bench.compact(true).unwrap().major);
    assert_eq!(spans(&bench), ["-c", "c-e", "e-"]);
    assert_eq!(rows(&bench), ["a", "b", "e", "f"]);
}

#[test]
fn a_store_that_is_no_longer_striped_takes_the_files_as_they_are() {
    let bench = striped(&[("initialStripeCount", "3")]);
    flush_rows(&bench, &ROWS, 1);
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    let other = Bench::on(bench.fs.clone(), &[family()]);
    assert_eq!(rows(&other), ROWS);
    assert_eq!(other.compact(true).unwrap().compacted_files, 3);
    assert_eq!((rows(&other), spans(&other)), (ROWS.map(String::from).to_vec(), vec![String::new()]));
}
