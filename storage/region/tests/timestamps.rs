//! Timestamps that the server gives.

use std::time::Duration;

use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
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

fn increment(bench: &Bench, row: &str) {
    let delta = Cell::build(
        row.as_bytes(),
        b"f",
        b"n",
        LATEST_TIMESTAMP,
        CellType::Put,
        &1_i64.to_be_bytes(),
        b"",
        0,
    );
    bench.mutate(mutation(MutationKind::Increment, row.as_bytes(), vec![delta])).unwrap();
}

fn values(bench: &Bench) -> Vec<Vec<u8>> {
    bench.scan(Scan::default()).unwrap().concat().iter().map(|cell| cell.value().to_vec()).collect()
}

/// Each change is a millisecond behind the one before, and a second has only a thousand of them.
#[test]
fn a_hot_counter_hides_no_put_and_survives_no_delete() {
    for reopens in [false, true] {
        let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
        (0..5_000).for_each(|_| increment(&bench, "c"));
        assert_eq!(values(&bench), [5_000_i64.to_be_bytes()]);
        if reopens {
            bench.region.flush(None).unwrap();
            bench.reopen().unwrap();
        }
        put(&bench, "c", "f:n=00000000");
        assert_eq!(values(&bench), [b"00000000"], "what was put last");
        increment(&bench, "c");
        let after = i64::from_be_bytes(*b"00000000") + 1;
        assert_eq!(values(&bench), [after.to_be_bytes()]);
        (0..500).for_each(|_| increment(&bench, "c"));
        let marker = parse_cell("c", "f:n", CellType::DeleteColumn, false);
        bench.mutate(mutation(MutationKind::Delete, b"c", vec![marker])).unwrap();
        assert!(values(&bench).is_empty(), "it was deleted");
        increment(&bench, "c");
        assert_eq!(values(&bench), [1_i64.to_be_bytes()], "begun anew");
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
        assert_eq!(values(&bench), [1_i64.to_be_bytes()]);
        let ahead = bench.scan(Scan::default()).unwrap().concat()[0].timestamp() - bench.clock.now_ms();
        assert!(ahead <= 200, "{ahead} ms ahead of the clock");
    }
}
