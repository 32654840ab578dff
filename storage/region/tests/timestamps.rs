//! Timestamps that the server gives.

use std::time::Duration;

use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_env::Clock;
use halcyon_proto::pb::CompareType;
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

fn change_together(bench: &Bench, batch: Vec<Mutation>) -> Vec<Cell> {
    let outcome = bench.region.mutate(batch, true, Nonce::default(), ReadMode::AnyDisk).unwrap();
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
    outcome.results.into_iter().flat_map(|result| result.unwrap().unwrap_or_default()).collect()
}

fn increment_of(qualifier: &str) -> Mutation {
    let one = 1_i64.to_be_bytes();
    let (qualifier, put) = (qualifier.as_bytes(), CellType::Put);
    let delta = Cell::build(b"c", b"f", qualifier, LATEST_TIMESTAMP, put, &one, b"", 0);
    mutation(MutationKind::Increment, b"c", vec![delta])
}

/// The new value of a hot counter kept its timestamp, and was hidden by a delete that came before it in its batch: the call had
/// answered with a value that nobody could read.
#[test]
fn a_delete_beside_an_increment_hides_what_was_there_before() {
    let deletes: [fn() -> Mutation; 4] = [
        || mutation(MutationKind::Delete, b"c", Vec::new()),
        || mutation(MutationKind::Delete, b"c", vec![parse_cell("c", "f:", CellType::DeleteFamily, false)]),
        || mutation(MutationKind::Delete, b"c", vec![parse_cell("c", "f:n", CellType::DeleteColumn, false)]),
        || mutation(MutationKind::Delete, b"c", vec![parse_cell("c", "f:n", CellType::Delete, false)]),
    ];
    for delete in deletes {
        let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("VERSIONS", "5")]);
        (0..5_000).for_each(|_| increment(&bench, "c"));
        // As in HBase it is made of the value before the batch.
        let told = change_together(&bench, vec![delete(), increment_of("n")]);
        assert_eq!(told.iter().map(Cell::value).collect::<Vec<_>>(), [5_001_i64.to_be_bytes()]);
        assert_eq!(values(&bench), [5_001_i64.to_be_bytes()], "what was answered can be read");
        let seen = || bench.scan(Scan { max_versions: 5, ..Scan::default() }).unwrap().concat();
        if delete().cells.first().is_none_or(|marker| marker.cell_type() != CellType::Delete) {
            assert_eq!(seen().len(), 1, "no older value is there: {:?}", seen());
        }
        // What comes later goes on from there.
        increment(&bench, "c");
        assert_eq!(values(&bench), [5_002_i64.to_be_bytes()]);
        change_together(&bench, vec![delete(), increment_of("n"), increment_of("other")]);
        // As in HBase one that was not there has the timestamp of the batch, and is hidden by a delete of all columns.
        let is_of_column = delete().cells.first().is_some_and(|marker| !marker.qualifier().is_empty());
        let expected = [5_003_i64.to_be_bytes(), 1_i64.to_be_bytes()];
        let expected = &expected[..if is_of_column { 2 } else { 1 }];
        assert_eq!(values(&bench), expected);
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
        assert_eq!(values(&bench), expected);
        put(&bench, "c", "f:n=00000000");
        assert_eq!(values(&bench)[0], b"00000000", "a put behind it is not hidden");
        let ahead = seen()[0].timestamp() - bench.clock.now_ms();
        assert!(ahead <= 100, "{ahead} ms ahead of the clock");
    }
}

/// A counter that was changed in this very millisecond had its new value one behind, and a delete after it in the batch did not hide it.
#[test]
fn a_delete_behind_an_increment_hides_it() {
    for before in [0, 1, 20, 5_000] {
        let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
        (0..before).for_each(|_| increment(&bench, "c"));
        let marker = parse_cell("c", "f:n", CellType::DeleteColumn, false);
        let delete = mutation(MutationKind::Delete, b"c", vec![marker]);
        change_together(&bench, vec![increment_of("n"), delete]);
        assert!(values(&bench).is_empty(), "deleted last, {before} before: {:?}", values(&bench));
        increment(&bench, "c");
        assert_eq!(values(&bench), [1_i64.to_be_bytes()], "begun anew");
    }
}

fn put_of(text: &str) -> Mutation {
    mutation(MutationKind::Put, b"c", vec![parse_cell("c", text, CellType::Put, false)])
}

/// A put behind the Increment of a client whose clock is a little ahead got that client's timestamp, and nothing remembered it: puts and
/// deletes of the next tenth of a second were acknowledged and had no effect.
#[test]
fn a_put_behind_a_value_of_a_client_ahead_is_not_in_the_way() {
    let ways: [fn(&Bench, i64) -> Vec<Mutation>; 3] = [
        // Of a column that is not there yet.
        |_, ahead_ms| {
            let one = 1_i64.to_be_bytes();
            let delta = Cell::build(b"c", b"f", b"n", ahead_ms, CellType::Put, &one, b"", 0);
            vec![mutation(MutationKind::Increment, b"c", vec![delta]), put_of("f:p=1")]
        },
        // Of a value that keeps its timestamp.
        |bench, ahead_ms| {
            put(bench, "c", &format!("f:n=00000000@{ahead_ms}"));
            vec![increment_of("n"), put_of("f:p=1")]
        },
        // A delete comes with the put.
        |bench, ahead_ms| {
            put(bench, "c", &format!("f:n=00000000@{ahead_ms}"));
            let marker = parse_cell("c", "f:p", CellType::DeleteColumn, false);
            vec![increment_of("n"), mutation(MutationKind::Delete, b"c", vec![marker])]
        },
    ];
    let found = |bench: &Bench| {
        let cells = bench.scan(Scan::default()).unwrap().concat();
        cells.iter().find(|cell| cell.qualifier() == b"p").map(|cell| cell.value().to_vec())
    };
    for (at, way) in ways.into_iter().enumerate() {
        for ahead_ms in [1, 49, 50, 80, 100, 101, 10_000] {
            let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
            let batch = way(&bench, bench.clock.now_ms() + ahead_ms);
            change_together(&bench, batch);
            bench.clock.advance(Duration::from_millis(1));
            put(&bench, "c", "f:p=2");
            assert_eq!(found(&bench).as_deref(), Some(&b"2"[..]), "{ahead_ms} ms ahead, way {at}");
            let marker = parse_cell("c", "f:p", CellType::DeleteColumn, false);
            bench.mutate(mutation(MutationKind::Delete, b"c", vec![marker])).unwrap();
            assert_eq!(found(&bench), None, "{ahead_ms} ms ahead, way {at}");
            bench.clock.advance(Duration::from_secs(1));
            put(&bench, "c", "f:p=3");
            let cells = bench.scan(Scan::default()).unwrap().concat();
            let last = cells.iter().find(|cell| cell.qualifier() == b"p").expect("it was put");
            assert_eq!(last.timestamp(), bench.clock.now_ms(), "and no clock has moved");
        }
    }
}

/// The same behind a condition: a put is not older than the cell that its condition looked at.
#[test]
fn a_put_behind_a_condition_is_not_in_the_way() {
    for ahead_ms in [1, 80, 100] {
        let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
        put(&bench, "c", &format!("f:n=x@{}", bench.clock.now_ms() + ahead_ms));
        let test = ConditionTest::Column {
            family: "f".into(),
            qualifier: "n".into(),
            op: CompareType::Equal,
            value: "x".into(),
        };
        let condition = Condition::new("c".into(), test);
        let batch = vec![put_of("f:p=1")];
        let outcome =
            bench.region.check_and_mutate(condition, batch, Nonce::default(), ReadMode::AnyDisk).unwrap();
        bench.wal.drive();
        outcome.ticket.wait().unwrap();
        assert!(outcome.processed);
        bench.clock.advance(Duration::from_millis(1));
        put(&bench, "c", "f:p=2");
        assert_eq!(values(&bench), [&b"x"[..], b"2"], "{ahead_ms} ms ahead");
    }
}
