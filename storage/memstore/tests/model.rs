//! A segment against a sorted map: every verb of the scanner, at every read point.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use halcyon_cell::{Cell, CellComparator, CellScanner, CellType, Key, ReadPoint, SeqId};
use halcyon_memstore::{ChunkPool, FlatSegment, Segment};
use proptest::prelude::*;

/// A key with its place in the comparator's order, so that a `BTreeMap` sorts like a segment.
#[derive(Clone, Debug)]
struct Ordered(CellComparator, Key);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare_keys(self.1.get(), other.1.get())
    }
}

type Model = BTreeMap<(Ordered, Reverse<u64>), Cell>;

#[derive(Clone, Debug)]
enum Verb {
    Next,
    Seek(Key),
    Reseek(Key),
    SeekBefore(Key),
    SeekToLast,
}

fn any_type() -> impl Strategy<Value = CellType> {
    prop_oneof![
        4 => Just(CellType::Put),
        1 => Just(CellType::Delete),
        1 => Just(CellType::DeleteFamilyVersion),
        1 => Just(CellType::DeleteColumn),
        1 => Just(CellType::DeleteFamily),
    ]
}

/// Rows that are alike in their first eight bytes, prefixes of each other, padded with zeroes, or shaped like
/// those of hbase:meta.
fn any_row() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255u8)], 1..4),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a')], 7..11),
        (0..3u8, 0..3u8, 0..3u8).prop_map(|(t, s, id)| format!("t{t},s{s},{id}").into_bytes()),
    ]
}

fn any_key() -> impl Strategy<Value = Key> {
    (any_row(), 0..2u8, 0..3u8, 0..4i64, any_type()).prop_map(|(row, family, qualifier, ts, cell_type)| {
        Key::new(&row, &[b'f' + family], &[b'a'][..usize::from(qualifier != 0)], ts, cell_type)
    })
}

fn any_seek() -> impl Strategy<Value = Key> {
    prop_oneof![
        4 => any_key(),
        1 => any_row().prop_map(|row| Key::first_on_row(&row)),
        1 => any_row().prop_map(|row| Key::last_on_row(&row)),
    ]
}

fn any_verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        6 => Just(Verb::Next),
        2 => any_seek().prop_map(Verb::Seek),
        3 => any_seek().prop_map(Verb::Reseek),
        2 => any_seek().prop_map(Verb::SeekBefore),
        1 => Just(Verb::SeekToLast),
    ]
}

fn cell_of(key: &Key, value_len: usize, serial: usize) -> Cell {
    let key = key.get();
    let mut value = vec![b'v'; value_len];
    value.extend_from_slice(&serial.to_be_bytes());
    Cell::build(
        key.row(),
        key.family(),
        key.qualifier(),
        key.timestamp(),
        CellType::from_code(key.type_code()).unwrap(),
        &value,
        b"",
        0,
    )
}

/// Carries out verbs on a scanner and on the list of what it has to show.
fn follow(
    scanner: &mut dyn CellScanner,
    verbs: &[Verb],
    visible: &[(&Ordered, &Cell)],
    comparator: CellComparator,
) -> Result<(), TestCaseError> {
    let from = |key: &Key| {
        let key = Ordered(comparator, key.clone());
        visible.partition_point(|(other, _)| **other < key)
    };
    let mut place = visible.len(); // one past the end: no position
    for verb in verbs {
        match verb {
            Verb::Next => {
                scanner.next().unwrap();
                place = (place + 1).min(visible.len());
            }
            Verb::Seek(key) => {
                scanner.seek(key.get()).unwrap();
                place = from(key);
            }
            Verb::Reseek(key) => {
                scanner.reseek(key.get()).unwrap();
                let found = from(key);
                place = if place == visible.len() { found } else { place.max(found) };
            }
            Verb::SeekBefore(key) => {
                scanner.seek_before(key.get()).unwrap();
                place = from(key).checked_sub(1).unwrap_or(visible.len());
            }
            Verb::SeekToLast => {
                scanner.seek_to_last().unwrap();
                place = visible.len().saturating_sub(1);
            }
        }
        let expected = visible.get(place).map(|(_, cell)| (*cell).clone());
        prop_assert_eq!(scanner.peek().map(|cell| cell.to_cell()), expected.clone(), "{:?}", verb);
        prop_assert_eq!(scanner.cell(), expected);
    }

    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 })
    })]

    #[test]
    fn every_verb_agrees_with_a_sorted_map(
        meta in any::<bool>(),
        row_start in proptest::sample::select(vec![&b""[..], b"a", b"ab", b"b\xff", b"\0"]),
        in_runs in any::<bool>(),
        parts_count in 1..5usize,
        inserts in proptest::collection::vec((any_key(), 1..6u64, prop_oneof![9 => 0..40usize, 1 => 400..900usize]), 0..60),
        verbs in proptest::collection::vec(any_verb(), 0..40),
        read_point in 0..7u64,
    ) {
        let comparator = if meta { CellComparator::Meta } else { CellComparator::Default };
        let pool = ChunkPool::new(4096, 2);
        let segment = Segment::with_row_start(pool.clone(), comparator, row_start);
        let mut model = Model::new();
        let mut data_bytes = 0;
        let mut run = Vec::new();
        let mut run_seq = 0;
        for (serial, (key, seq, value_len)) in inserts.iter().enumerate() {
            let seq = if in_runs { &(1 + serial as u64 / 12) } else { seq };
            let cell = cell_of(key, *value_len, serial).with_seq(*seq);
            data_bytes += cell.bytes().len();
            let prepared = segment.prepare(cell.bytes(), None);
            if in_runs {
                if run_seq != *seq {
                    segment.insert_all(std::mem::take(&mut run), SeqId::new(run_seq));
                    run_seq = *seq;
                }
                run.push(prepared);
            } else {
                segment.insert(prepared, SeqId::new(*seq));
            }
            model.insert((Ordered(comparator, key.clone()), Reverse(*seq)), cell);
        }
        segment.insert_all(run, SeqId::new(run_seq));
        let common = segment.row_start();
        prop_assert!(model.values().all(|cell| cell.row().starts_with(&common)), "{common:?}");

        prop_assert_eq!(segment.is_empty(), model.is_empty());
        prop_assert_eq!(segment.size().data_bytes, data_bytes);
        prop_assert_eq!(segment.size().cells_count, model.len());
        prop_assert_eq!(segment.has_deletes(), inserts.iter().any(|(key, ..)| key.get().type_code() != 4));
        let times = inserts.iter().flat_map(|(key, ..)| {
            let key = key.get();
            [key.timestamp(), if key.type_code() >= 12 { 0 } else { key.timestamp() }]
        });
        prop_assert_eq!(segment.time_range(), times.clone().min().zip(times.max()));

        let visible: Vec<(&Ordered, &Cell)> =
            model.iter().filter(|((_, seq), _)| seq.0 <= read_point).map(|((key, _), cell)| (key, cell)).collect();
        follow(&mut segment.scanner(ReadPoint::new(read_point)), &verbs, &visible, comparator)?;

        // The same cells in several segments, which are flattened and put together.
        let row_starts = [row_start, b"", b"a", b"ab"];
        let parts: Vec<_> = row_starts[..parts_count]
            .iter()
            .map(|row_start| Segment::with_row_start(pool.clone(), comparator, row_start))
            .collect();
        for (key, cell) in &model {
            let part = &parts[cell.bytes().len() % parts_count];
            part.insert(part.prepare(cell.bytes(), None), SeqId::new(key.1.0));
        }
        let flat: Vec<_> = parts.iter().map(FlatSegment::of).collect();
        {
            let flat = FlatSegment::merged(&flat);
            prop_assert_eq!(flat.size().cells_count, model.len());
            prop_assert_eq!(flat.is_empty(), model.is_empty());
            prop_assert_eq!(flat.max_seq().get(), model.keys().map(|key| key.1.0).max().unwrap_or(0));
            let columns = model.keys().map(|(key, _)| (key.1.get().row().to_vec(), key.1.get().family().to_vec(), key.1.get().qualifier().to_vec()));
            prop_assert_eq!(flat.columns_count(), columns.collect::<BTreeSet<_>>().len());
            follow(&mut flat.scanner(ReadPoint::new(read_point)), &verbs, &visible, comparator)?;
        }
        drop((flat, parts));

        let mut all = Vec::new();
        let mut scanner = segment.scanner(ReadPoint::NEWEST);
        scanner.seek(Key::first_on_row(b"").get()).unwrap();
        while let Some(cell) = scanner.cell() {
            all.push(cell);
            scanner.next().unwrap();
        }
        prop_assert_eq!(all.iter().collect::<Vec<_>>(), model.values().collect::<Vec<_>>());
        drop((scanner, segment));
        let shared = all.iter().any(|cell| cell.bytes().len() >= 512);
        prop_assert!(shared || pool.allocated_bytes() == pool.pooled_bytes());
        drop(all);
        prop_assert_eq!(pool.allocated_bytes(), pool.pooled_bytes());
    }
}

/// Of equal cells with equal sequence ids the one of the newest segment counts.
#[test]
fn the_newest_of_equal_cells_counts_when_segments_are_merged() {
    let pool = ChunkPool::new(4096, 0);
    let flat = |values: &[&[u8]]| {
        let segment = Segment::new(pool.clone(), CellComparator::Default);
        for value in values {
            let cell = Cell::put(b"r", b"f", b"q", 1, value);
            segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(3));
        }
        FlatSegment::of(&segment)
    };
    let merged = FlatSegment::merged(&[flat(&[b"new", b"newest"]), flat(&[b"old"])]);
    assert_eq!((merged.size().cells_count, merged.columns_count(), merged.max_seq().get()), (1, 1, 3));
    let mut scanner = merged.scanner(ReadPoint::NEWEST);
    scanner.seek(Key::first_on_row(b"").get()).unwrap();
    assert_eq!(scanner.peek().unwrap().value(), b"newest");
    drop((scanner, merged));
    assert_eq!(pool.allocated_bytes(), 0);
}

#[test]
fn prepare_stamps_the_copy_and_not_the_source() {
    let segment = Segment::new(ChunkPool::new(4096, 0), CellComparator::Default);
    let source = Cell::put(b"r", b"f", b"q", i64::MAX, b"value");
    let prepared = segment.prepare(source.bytes(), Some(77));
    assert!(segment.is_empty());
    let copy = prepared.cell_ref(SeqId::new(5)).to_cell();
    assert_eq!(copy, source.with_timestamp(77).with_seq(5));
    assert_eq!(source.timestamp(), i64::MAX);
    segment.insert(prepared, SeqId::new(5));
    assert_eq!(segment.time_range(), Some((77, 77)));
    assert_eq!(segment.size().data_bytes, copy.bytes().len());
}

#[test]
fn cells_and_prepared_cells_outlive_their_segment() {
    let pool = ChunkPool::new(4096, 8);
    let segment = Segment::new(pool.clone(), CellComparator::Default);
    let large = Cell::put(b"r", b"f", b"large", 1, &[b'x'; 10_000]);
    let middle = Cell::put(b"r", b"f", b"middle", 1, &[b'y'; 450]);
    for cell in [&large, &middle] {
        segment.insert(segment.prepare(cell.bytes(), None), SeqId::ZERO);
    }
    let prepared = segment.prepare(middle.bytes(), None);
    let mut scanner = segment.scanner(ReadPoint::new(0));
    drop(segment);
    scanner.seek(Key::first_on_row(b"").get()).unwrap();
    let first = scanner.cell().unwrap();
    scanner.next().unwrap();
    let second = scanner.cell().unwrap();
    drop(scanner);
    assert!(pool.allocated_bytes() > pool.pooled_bytes());
    assert_eq!((&first, &second), (&large, &middle));
    assert_eq!(prepared.cell_ref(SeqId::ZERO).bytes(), &middle.bytes()[..]);
    drop((first, second, prepared));
    assert_eq!(pool.allocated_bytes(), pool.pooled_bytes());
}

#[test]
#[should_panic(expected = "where it was prepared")]
fn a_cell_of_another_segment_is_refused() {
    let pool = ChunkPool::new(4096, 0);
    let one = Segment::new(pool.clone(), CellComparator::Default);
    let other = Segment::new(pool, CellComparator::Default);
    let prepared = one.prepare(Cell::put(b"r", b"f", b"q", 1, b"").bytes(), None);
    other.insert(prepared, SeqId::new(1));
}

#[test]
fn the_same_inserts_take_the_same_memory() {
    let size = || {
        let segment: Arc<Segment> = Segment::new(ChunkPool::new(1 << 16, 4), CellComparator::Default);
        for i in 0..if cfg!(miri) { 50 } else { 5000u32 } {
            let cell = Cell::put(&i.wrapping_mul(7919).to_be_bytes(), b"f", b"q", 1, b"value");
            segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(1));
        }
        segment.size()
    };
    assert_eq!(size(), size());
}

/// Small segments one after the other fill chunks together, and each keeps what its cells need.
#[test]
fn a_successor_goes_on_with_the_chunk() {
    const CELLS_EACH: u32 = 10;
    let pool = ChunkPool::new(1 << 16, 0);
    let cell = |i: u32| Cell::put(&i.to_be_bytes(), b"f", b"q", 1, &[b'v'; 500]);
    let mut segments = vec![Segment::new(pool.clone(), CellComparator::Default)];
    let late = segments[0].prepare(cell(1_000).bytes(), None);
    for i in 0..10 * CELLS_EACH {
        let segment = segments.last().unwrap();
        segment.insert(segment.prepare(cell(i).bytes(), None), SeqId::new(1));
        if (i + 1).is_multiple_of(CELLS_EACH) {
            segments.push(segment.successor(b""));
        }
    }
    segments[0].insert(late, SeqId::new(1));
    let held: usize = segments.iter().map(|segment| segment.chunks_bytes()).sum();
    assert_eq!((held, pool.in_segments_bytes()), (pool.allocated_bytes(), pool.allocated_bytes()));
    let filled: usize =
        segments.iter().map(|segment| segment.size()).map(|s| s.data_bytes + s.overhead_bytes).sum();
    assert!(held < 2 * filled, "{held} for {filled}");

    // In whatever order they go, what is left is whole.
    let numbers = |segment: &Arc<Segment>| {
        let mut scanner = segment.scanner(ReadPoint::new(1));
        scanner.seek(Key::first_on_row(b"").get()).unwrap();
        let mut out = Vec::new();
        while let Some(cell) = scanner.peek() {
            assert_eq!(cell.value(), [b'v'; 500]);
            out.push(u32::from_be_bytes(cell.row().try_into().unwrap()));
            scanner.next().unwrap();
        }
        out
    };
    let expected = |at: u32| (at * CELLS_EACH..(at + 1) * CELLS_EACH).collect::<Vec<_>>();
    drop(segments.drain(5..)); // and the youngest, which the others share chunks with
    for (at, segment) in (1..).zip(&segments[1..]) {
        assert_eq!(numbers(segment), expected(at));
    }
    assert_eq!(numbers(&segments[0]), [expected(0), vec![1_000]].concat());
    drop(segments.drain(..4));
    assert_eq!(numbers(&segments[0]), expected(4));
    drop(segments);
    assert_eq!((pool.allocated_bytes(), pool.in_segments_bytes()), (0, 0));
}
