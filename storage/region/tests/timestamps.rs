//! Timestamps that the server gives.

use std::time::Duration;

use halcyon_cell::CellType;
use halcyon_env::Clock;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

use crate::common::*;

fn put(bench: &Bench, row: &str, text: &str) {
    let cell = parse_cell(row, text, CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
}

/// One put of a client far ahead of the clock had all writes of the first tenth of a second after each opening stamped ahead as well.
#[test]
fn a_time_far_ahead_moves_no_clock_at_an_opening() {
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    put(&bench, "far", &format!("f:q=v@{}", i64::MAX / 2));
    bench.region.flush(None).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    bench.reopen().unwrap();
    put(&bench, "now", "f:q=v");
    let found = bench.scan(Scan::default()).unwrap().concat();
    assert_eq!(found[1].timestamp(), bench.clock.now_ms());
    // What was given a moment ago may have run ahead, and is not overtaken.
    bench.reopen().unwrap();
    put(&bench, "then", "f:q=v");
    let found = bench.scan(Scan::default()).unwrap().concat();
    assert!(found[2].timestamp() > found[1].timestamp(), "{found:?}");
}
