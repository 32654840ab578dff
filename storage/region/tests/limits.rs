//! What one write may make and one read may gather.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, ErrorKind, LATEST_TIMESTAMP};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_proto::pb::CompareType;
use halcyon_region::*;
use halcyon_schema::{ClusterUuid, FamilyDescriptor};

use crate::common::*;

fn bench() -> Bench {
    change_settings(|settings| {
        settings.new_values_bytes_max = 10_000;
        settings.row_bytes_max = 50_000;
    });
    Bench::new(&[FamilyDescriptor::new("f").unwrap(), FamilyDescriptor::new("g").unwrap()])
}

fn cell(row: &str, family: &str, qualifier: &str, value: &[u8]) -> Cell {
    let [row, family, qualifier] = [row, family, qualifier].map(str::as_bytes);
    Cell::build(row, family, qualifier, LATEST_TIMESTAMP, CellType::Put, value, b"", 0)
}

fn append(row: &str, times: usize) -> Mutation {
    mutation(MutationKind::Append, row.as_bytes(), vec![cell(row, "f", "q", b"x"); times])
}

fn get(bench: &Bench, scan: Scan) -> halcyon_cell::Result<Vec<Cell>> {
    bench.region.get(scan, ReadMode::AnyDisk)
}

fn of(row: &str) -> Scan {
    Scan::of_row(Bytes::copy_from_slice(row.as_bytes()))
}

/// Appends make more than they bring: a request of some KiB wrote an entry of the log that no reader takes.
#[test]
fn appends_of_one_write_make_no_more_than_the_log_takes() {
    let bench = bench();
    bench.mutate(mutation(MutationKind::Put, b"r", vec![cell("r", "f", "q", &[7; 1_000])])).unwrap();
    let written = bench.wal.stats().entries;
    let atomic = |count: usize| {
        let batch = vec![append("r", 1); count];
        bench.region.mutate(batch, true, Nonce::default(), ReadMode::AnyDisk).map(|_| ())
    };
    let refused = [
        atomic(10).unwrap_err(),
        bench.mutate(append("r", 10)).unwrap_err(),
        bench
            .region
            .mutate_rows(
                Vec::new(),
                vec![append("r", 5), append("r", 5)],
                Nonce::default(),
                ReadMode::AnyDisk,
            )
            .map(|_| ())
            .unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(bench.wal.stats().entries, written, "nothing was written");
    assert_eq!(get(&bench, of("r")).unwrap()[0].value().len(), 1_000);
    atomic(9).unwrap();
    bench.wal.drive();
    assert_eq!(get(&bench, of("r")).unwrap()[0].value().len(), 1_001);
}

/// One Get took as much memory as its row has.
#[test]
fn a_row_that_is_too_large_is_not_gathered() {
    let bench = bench();
    for flushed in [false, true] {
        for family in ["f", "g"] {
            let cells = (0..30).map(|at| cell("r", family, &format!("{at:02}"), &[7; 1_000])).collect();
            bench.mutate(mutation(MutationKind::Put, b"r", cells)).unwrap();
        }
        bench.mutate(mutation(MutationKind::Put, b"s", vec![cell("s", "f", "q", b"v")])).unwrap();
        if flushed {
            bench.region.flush(None).unwrap();
        }
        let error = get(&bench, of("r")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RowTooBig, "{error}");
        assert!(error.message().contains("Max row size allowed: 50000"), "{error}");
        let error = bench.scan(Scan::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RowTooBig, "{error}");
        let one_family = Scan { families: [(Bytes::from_static(b"f"), None)].into(), ..of("r") };
        assert_eq!(get(&bench, one_family).unwrap().len(), 30);
        assert_eq!(get(&bench, of("s")).unwrap().len(), 1);
        // In parts all of it can be read.
        let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
        let (mut count, mut state) = (0, NextState::RowDone);
        while state != NextState::Exhausted {
            let mut cells = Vec::new();
            let mut limits = ScanLimits { size_bytes_left: 20_000, may_cut_row: true, deadline_ns: None };
            state = scanner.next(&mut limits, &mut cells).unwrap();
            count += cells.len();
        }
        assert_eq!(count, 61);
        let filter = halcyon_proto::pb::Filter {
            name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
            serialized_filter: Some(Bytes::from_static(b"\x0a\x01r")),
        };
        let condition = Condition {
            row: Bytes::from_static(b"r"),
            time_range: TimeRange::ALL,
            test: ConditionTest::Filter(filter),
        };
        let put = mutation(MutationKind::Put, b"r", vec![cell("r", "f", "q", b"v")]);
        let checked =
            bench.region.check_and_mutate(condition, vec![put], Nonce::default(), ReadMode::AnyDisk);
        assert_eq!(checked.map(|_| ()).unwrap_err().kind(), ErrorKind::RowTooBig);
    }
}

/// An event loop stood still while it gathered a gigabyte from the cache.
#[test]
fn a_large_row_is_not_gathered_from_memory_alone() {
    change_settings(|_| ());
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let put = |row: &str, count: usize| {
        let cells = (0..count).map(|at| cell(row, "f", &format!("{at:02}"), &[7; 100_000])).collect();
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), cells)).unwrap();
    };
    put("large", 11);
    put("small", 5);
    let from_memory = |row: &str| bench.region.get(of(row), ReadMode::CacheOnly).map(|cells| cells.len());
    assert_eq!(from_memory("small").unwrap(), 5);
    assert_eq!(from_memory("large").unwrap_err().kind(), ErrorKind::NeedsDisk);
    assert_eq!(get(&bench, of("large")).unwrap().len(), 11);
    put("huge", 340);
    let gathered = |steps: usize| {
        let mut asked = 0;
        let has_room = move |_| {
            asked += 1;
            asked <= steps
        };
        with_room(has_room, || get(&bench, of("huge")).map(|cells| cells.len()))
    };
    assert_eq!(gathered(2).unwrap(), 340);
    assert_eq!(gathered(1).unwrap_err().kind(), ErrorKind::Busy);
}

fn prefix_filter() -> halcyon_proto::pb::Filter {
    halcyon_proto::pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
        serialized_filter: Some(Bytes::from_static(b"\x0a\x01h")),
    }
}

/// What Increments and Appends of one write have made stood in memory, in no account.
#[test]
fn what_one_write_makes_asks_for_room() {
    change_settings(|_| ());
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    bench.mutate(mutation(MutationKind::Put, b"r", vec![cell("r", "f", "q", &[7; 1 << 20])])).unwrap();
    let asked = |has_room: bool, count: usize| {
        let appends = vec![append("r", 1); count];
        let write = || bench.region.mutate(appends, true, Nonce::default(), ReadMode::AnyDisk);
        with_room(move |_| has_room, || write().map(|_| ()))
    };
    let written = bench.wal.stats().entries;
    assert_eq!(asked(false, 20).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(bench.wal.stats().entries, written, "nothing was written");
    asked(false, 10).unwrap();
    asked(true, 20).unwrap();
    bench.wal.drive();
}

/// A condition with a filter had all blocks of its row read before it was asked, also those that the filter passes over.
#[test]
fn a_condition_reads_what_its_filter_looks_at() {
    change_settings(|_| ());
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let cells = (0..2_000).map(|at| cell("huge", "f", &format!("{at:04}"), &[7; 1_000])).collect();
    bench.mutate(mutation(MutationKind::Put, b"huge", cells)).unwrap();
    bench.region.flush(None).unwrap();
    let column = halcyon_proto::pb::Filter {
        name: "org.apache.hadoop.hbase.filter.ColumnPrefixFilter".to_string(),
        serialized_filter: Some(Bytes::from_static(b"\x0a\x040001")),
    };
    let check = |filter| {
        let test = ConditionTest::Filter(filter);
        let condition = Condition::new(Bytes::from_static(b"huge"), test);
        let put = mutation(MutationKind::Put, b"huge", vec![cell("huge", "f", "z", b"v")]);
        let checked =
            bench.region.check_and_mutate(condition, vec![put], Nonce::default(), ReadMode::AnyDisk);
        bench.wal.drive();
        checked.unwrap().processed
    };
    let before = bench.fs.calls();
    assert!(check(column));
    let calls = bench.fs.calls() - before;
    assert!(calls < 20, "{calls} calls to the disk for one column");
    assert!(check(prefix_filter()));
}

/// All values that an Append was to change stood in memory before the first one was counted.
#[test]
fn what_is_too_much_to_change_is_not_gathered() {
    change_settings(|settings| settings.new_values_bytes_max = 1 << 20);
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let column = |at: usize, value: &[u8]| cell("r", "f", &format!("{at:02}"), value);
    for at in 0..40 {
        bench.mutate(mutation(MutationKind::Put, b"r", vec![column(at, &[7; 1_000_000])])).unwrap();
    }
    let asked = |atomic: bool, batch: Vec<Mutation>| {
        let count = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = count.clone();
        let has_room = move |_| {
            counted.set(counted.get() + 1);
            true
        };
        let write = || bench.region.mutate(batch, atomic, Nonce::default(), ReadMode::AnyDisk);
        let error = with_room(has_room, || match write() {
            Ok(mut outcome) => outcome.results.remove(0).map(drop).expect_err("too much"),
            Err(error) => error,
        });
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains("new values of one write have more than"), "{error}");
        count.get()
    };
    let append = |from: usize, to: usize| {
        mutation(MutationKind::Append, b"r", (from..to).map(|at| column(at, b"x")).collect())
    };
    assert_eq!(asked(false, vec![append(0, 40)]), 0);
    assert_eq!(asked(true, vec![append(0, 1), append(1, 40)]), 0);
    bench.mutate(append(7, 8)).unwrap();
}

/// Such a write was accepted and could never be written to a log in HDFS, which stopped, and with it the server.
#[test]
fn a_row_that_no_file_of_the_log_takes_is_refused() {
    change_settings(|_| ());
    let fs = SimFileSystem::new();
    fs.set_len_max(1 << 20);
    let bench = Bench::on(Arc::new(fs), &[FamilyDescriptor::new("f").unwrap()]);
    let put = |row: &str, count: usize| {
        let cells = (0..count).map(|at| cell(row, "f", &at.to_string(), &[7; 300_000])).collect();
        mutation(MutationKind::Put, row.as_bytes(), cells)
    };
    let mutate = |batch: Vec<Mutation>, atomic: bool| {
        bench.region.mutate(batch, atomic, Nonce::default(), ReadMode::AnyDisk)
    };
    let outcome = mutate(vec![put("a", 1), put("b", 5), put("c", 1)], false).unwrap();
    bench.wal.drive();
    let refused = outcome.results[1].as_ref().expect_err("it fits into no file");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("hbase.regionserver.hlog.blocksize"), "{refused}");
    assert!(outcome.results[0].is_ok() && outcome.results[2].is_ok());
    outcome.ticket.wait().unwrap();
    assert_eq!(mutate(vec![put("b", 5)], true).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    let counts = ["a", "b", "c"].map(|row| get(&bench, of(row)).unwrap().len());
    assert_eq!(counts, [1, 0, 1]);
    assert!(bench.wal.stopped().is_none());
}

/// The log counts more than the cells of a write, and refused what the region had let through and copied into its memstore. That memory was
/// in no account of the region: no flush freed it, and one client filled the server with it.
#[test]
fn a_write_that_the_log_does_not_take_is_refused_before_it_is_copied() {
    let test = || {
        change_settings(|_| ());
        let fs = SimFileSystem::new();
        fs.set_len_max(1 << 20);
        let bench = Bench::on(Arc::new(fs), &[FamilyDescriptor::new("f").unwrap()]);
        let put = |value_len: usize| {
            let cells =
                (0..1_000).map(|at| cell("r", "f", &format!("{at:03}"), &vec![7; value_len])).collect();
            mutation(MutationKind::Put, b"r", cells)
        };
        let before = bench.chunks.used_bytes();
        let refused = (0..1_025).rev().take_while(|value_len| {
            let error = bench.mutate(put(*value_len)).err();
            let Some(error) = error else { return false };
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert_eq!(bench.chunks.used_bytes(), before, "values of {value_len} bytes were copied");
            true
        });
        let refused_count = refused.count();
        assert!(refused_count > 4, "{refused_count}");
        assert!(bench.chunks.used_bytes() > before, "the next one was taken");
        let used = bench.chunks.used_bytes();
        let cluster = ClusterUuid { most: u64::MAX, least: u64::MAX };
        let mut named = mutation(MutationKind::Put, b"r", vec![cell("r", "f", "q", &[7; 300_000])]);
        named.cluster_ids = Some(vec![cluster; 60_000].into());
        assert_eq!(bench.mutate(named).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(bench.chunks.used_bytes(), used);
    };
    test();
    encrypted(test);
}

/// As above, for what the log refuses later: while its buffer is full, or when it has ended.
#[test]
fn memory_of_a_write_that_the_log_has_refused_is_counted_and_goes_with_a_flush() {
    let bench = bench();
    for row in ["a", "b"] {
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell(row, "f", "q", b"v")])).unwrap();
    }
    bench.region.flush(None).unwrap();
    let put = |row: &str| {
        let cells = [("f", 100), ("f", 300_000), ("g", 1_000)];
        let cells = cells.into_iter().map(|(family, len)| cell(row, family, &len.to_string(), &vec![7; len]));
        mutation(MutationKind::Put, row.as_bytes(), cells.collect())
    };
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    let mut next = || {
        let mut cells = Vec::new();
        scanner.next(&mut ScanLimits::NONE.clone(), &mut cells).unwrap();
        assert_eq!(cells.len(), 1);
    };
    next();
    let empty = bench.chunks.used_bytes();
    bench.wal.close().unwrap();
    for row in ["r", "s"] {
        assert_eq!(bench.mutate(put(row)).unwrap_err().kind(), ErrorKind::Stopping);
    }
    let size = bench.region.memstore_size();
    assert!(size.data_bytes == 0 && size.heap_bytes > 602_000, "{size:?}");
    assert!(bench.region.chunks_bytes() > 602_000);
    assert!(!bench.region.flush(None).unwrap().flushed, "there are no cells");
    assert_eq!(bench.region.memstore_size(), MemStoreSize::default());
    next(); // who reads lets go of it, too
    assert_eq!((bench.region.chunks_bytes(), bench.chunks.used_bytes()), (0, empty));
    assert_eq!(get(&bench, of("r")).unwrap(), Vec::<Cell>::new());
}

/// Writes of one round that no file took failed together, and each of their regions took no writes any more, while the log went on.
#[test]
fn what_no_file_of_the_log_takes_ends_no_other_writes() {
    change_settings(|_| ());
    let fs = Arc::new(SimFileSystem::new());
    let bench = Bench::on(fs.clone(), &[FamilyDescriptor::new("f").unwrap()]);
    let write = |row: &str, len: usize| {
        let put = mutation(MutationKind::Put, row.as_bytes(), vec![cell(row, "f", "q", &vec![7; len])]);
        bench.region.mutate(vec![put], false, Nonce::default(), ReadMode::AnyDisk).map(|it| it.ticket)
    };
    let first = write("0", 10).unwrap();
    bench.wal.drive();
    first.wait().unwrap();
    let tickets: Vec<_> = ["a", "b", "c", "d"].map(|row| write(row, 90_000).unwrap()).into();
    fs.set_len_max(200_000);
    bench.wal.drive();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    fs.set_len_max(50_000);
    let (fits, too_large) = (write("e", 10).unwrap(), write("f", 90_000).unwrap());
    bench.wal.drive();
    fits.wait().unwrap();
    too_large.wait().unwrap_err();
    assert_eq!(bench.scan(Scan::default()).unwrap().len(), 6);
    // Now the server ends, as with every log that fails.
    assert!(bench.wal.stopped().is_some());
    assert_eq!(write("g", 10).err().map(|error| error.kind()), Some(ErrorKind::Stopping));
}

/// A Delete of a row brings its key once and writes it for each family, on the thread that received it.
#[test]
fn an_event_loop_makes_no_megabytes_of_markers() {
    change_settings(|settings| settings.mini_batch_rows_max = 1_000);
    let families: Vec<_> = (0..40).map(|at| FamilyDescriptor::new(format!("f{at}")).unwrap()).collect();
    let bench = Bench::new(&families);
    let delete = |len: usize| mutation(MutationKind::Delete, &vec![b'r'; len], Vec::new());
    let row_len = 32_000;
    let region = &bench.region;
    for batch in
        [vec![delete(row_len)], (1..=101).map(delete).collect(), (1_500..1_520).map(delete).collect()]
    {
        let count = batch.len();
        assert_eq!(region.mutate_now(batch).unwrap().left.len(), count);
    }
    let needs_disk =
        |error: Option<halcyon_cell::Error>| error.map(|error| error.kind()) == Some(ErrorKind::NeedsDisk);
    for atomic in [false, true] {
        let done = region.mutate(vec![delete(row_len)], atomic, Nonce::default(), ReadMode::CacheOnly);
        assert!(needs_disk(done.err()), "{atomic}");
    }
    let check = |mode| {
        let (family, op) = (Bytes::from_static(b"f0"), CompareType::Equal);
        let test = ConditionTest::Column { family, qualifier: Bytes::new(), op, value: Bytes::new() };
        let condition = Condition::new(vec![b'r'; row_len].into(), test);
        region.check_and_mutate(condition, vec![delete(row_len)], Nonce::default(), mode)
    };
    assert!(needs_disk(check(ReadMode::CacheOnly).err()));
    assert_eq!(region.memstore_size().data_bytes, 0);
    assert!(check(ReadMode::AnyDisk).unwrap().processed);
    bench.wal.drive();
    let outcome = region.mutate_now((1..=100).map(delete).collect()).unwrap();
    assert_eq!((outcome.results.len(), outcome.left.len()), (100, 0));
    assert_eq!(outcome.new_bytes, 40 * 100 * 20 + 40 * (1..=100).sum::<usize>() + (10 * 2 + 30 * 3) * 100);
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
}

/// A Delete of a row brings a key and makes a marker for each family. One call of many filled the memory, because its pressure was looked
/// at before the first of them only.
#[test]
fn markers_of_one_call_are_held_back_by_what_it_has_made() {
    let families: Vec<_> = (0..40).map(|at| FamilyDescriptor::new(format!("f{at}")).unwrap()).collect();
    change_settings(|settings| settings.flush_size_bytes = 4 << 20);
    let bench = Bench::new(&families);
    let delete = |at: usize| mutation(MutationKind::Delete, format!("{at:02000}").as_bytes(), Vec::new());
    let batch: Vec<_> = (0..1_000).map(delete).collect();
    let outcome = bench.region.mutate(batch, false, Nonce::default(), ReadMode::AnyDisk).unwrap();
    let is_written: Vec<bool> = outcome.results.iter().map(Result::is_ok).collect();
    let written = is_written.iter().filter(|&&is_written| is_written).count();
    assert!(is_written.is_sorted_by(|a, b| a >= b), "the first ones are written");
    assert!(written > 100 && written < 400, "{written} of {}", is_written.len());
    assert_eq!(outcome.results.len(), 1_000);
    for refused in outcome.results.into_iter().filter_map(Result::err) {
        assert_eq!(refused.kind(), ErrorKind::Busy);
    }
    let held = bench.region.memstore_size().heap_bytes;
    assert!(held > 16 << 20 && held < 18 << 20, "{held}");
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
}

/// The whole call failed, so its client repeated what was written. A delete of the newest version took another one each time.
#[test]
fn what_a_call_has_written_before_the_log_is_full_is_no_failure() {
    change_settings(|_| ());
    let fs = Arc::new(SimFileSystem::new());
    let bench = Bench::on(fs.clone(), &[FamilyDescriptor::new("f").unwrap()]);
    fs.inject(Fault::new(Operation::Write, "WALs").no_space().forever());
    let put = |at: usize| {
        let row = format!("{at:02}");
        mutation(MutationKind::Put, row.as_bytes(), vec![cell(&row, "f", "q", &vec![7; 2 << 20])])
    };
    let mut told = CellsWritten::new();
    let batch: Vec<_> = (0..40).map(put).collect();
    let region = &bench.region;
    let outcome =
        region.mutate_telling(batch, false, Nonce::default(), ReadMode::AnyDisk, Some(&mut told)).unwrap();
    let written = outcome.results.iter().position(Result::is_err).expect("the log holds less than 80 MiB");
    assert!(written > 10, "{written}");
    assert_eq!(told.iter().map(Vec::len).sum::<usize>(), written);
    assert_eq!((outcome.results.len(), told.len()), (40, 40));
    for refused in &outcome.results[written..] {
        assert_eq!(refused.as_ref().err().map(|error| error.kind()), Some(ErrorKind::Busy));
    }
    fs.clear_faults();
    bench.clock.advance(std::time::Duration::from_millis(200)); // the log's next attempt is due
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
    assert_eq!(bench.scan(Scan::default()).unwrap().len(), written);
}
