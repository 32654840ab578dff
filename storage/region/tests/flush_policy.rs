//! Flushes of some families: which ones a policy takes, and that nothing of the others is lost.

use std::sync::Arc;

use crate::common::*;
use halcyon_cell::CellType;
use halcyon_env::sim::CrashMode;
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, FlushPolicy};

const LARGE: &str = "hbase.hregion.percolumnfamilyflush.size.lower.bound";

/// Families `f`, `g` and `s`, which compacts its memory. More than 1000 bytes are much.
fn bench(policy: FlushPolicy) -> Bench {
    let family = |name: &str| FamilyDescriptor::new(name).unwrap();
    let sloppy = family("s").with("IN_MEMORY_COMPACTION", "BASIC");
    let mut bench = Bench::new(&[family("f"), family("g"), sloppy]);
    let table = (*bench.table).clone().with("FLUSH_POLICY", policy.class()).with(LARGE, "1000");
    bench.table = Arc::new(table);
    bench.reopen().unwrap();
    bench
}

fn put(bench: &Bench, row: &str, family: &str, bytes: usize) {
    let cell = parse_cell(row, &format!("{family}:q={}", "v".repeat(bytes)), CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
}

fn chosen(bench: &Bench) -> Option<Vec<String>> {
    let families = bench.region.families_to_flush()?;
    Some(families.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| name.to_string()).collect())
}

#[test]
fn large_families_go_first() {
    let bench = bench(FlushPolicy::AllLargeStores);
    assert_eq!(chosen(&bench), None, "none is large");
    put(&bench, "a", "f", 100);
    put(&bench, "a", "g", 2000);
    assert_eq!(chosen(&bench), names(&["g"]));
    put(&bench, "a", "s", 2000);
    assert_eq!(chosen(&bench), names(&["g", "s"]));
    put(&bench, "b", "f", 2000);
    assert_eq!(chosen(&bench), None, "all are large");
}

#[test]
fn families_that_compact_their_memory_go_last() {
    let bench = bench(FlushPolicy::NonSloppyStoresFirst);
    put(&bench, "a", "s", 2000);
    assert_eq!(chosen(&bench), names(&["s"]));
    put(&bench, "a", "g", 2000);
    assert_eq!(chosen(&bench), names(&["g"]));
}

#[test]
fn without_a_policy_all_are_flushed() {
    let bench = bench(FlushPolicy::AllStores);
    put(&bench, "a", "g", 2000);
    assert_eq!(chosen(&bench), None);
}

/// What stays in memory stays in the log, and counts as not flushed.
#[test]
fn a_crash_after_a_flush_of_some_families_loses_nothing() {
    let mut bench = bench(FlushPolicy::AllLargeStores);
    bench.clock.advance(std::time::Duration::from_secs(1));
    let opened_ms = bench.region.stats().last_flush_ms;
    put(&bench, "a", "f", 100);
    put(&bench, "b", "g", 2000);
    let families = bench.region.families_to_flush().unwrap();
    assert!(bench.region.flush(Some(&families)).unwrap().flushed);
    assert!(store_files(&bench).is_empty(), "family f stays in memory");
    assert_eq!(bench.region.stats().last_flush_ms, opened_ms, "the edit of f still waits");
    put(&bench, "c", "g", 2000);
    let crashed = Arc::new(bench.fs.crash(CrashMode::Drop, 1));
    bench.recover_on(crashed).unwrap();
    assert_eq!(rows(&bench), ["a", "b", "c"]);
    bench.clock.advance(std::time::Duration::from_secs(1));
    bench.region.flush(None).unwrap();
    assert!(bench.region.stats().last_flush_ms > opened_ms);
}
