//! Rows are locked for as short as can be: other rows share their locks, and event loops take them.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_proto::pb::CompareType;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use parking_lot::Mutex;

use crate::common::*;

fn cell(qualifier: &str, value: &[u8]) -> Cell {
    Cell::build(b"r", b"f", qualifier.as_bytes(), LATEST_TIMESTAMP, CellType::Put, value, b"", 0)
}

fn put(qualifier: &str) -> Mutation {
    mutation(MutationKind::Put, b"r", vec![cell(qualifier, b"value")])
}

fn increment() -> Mutation {
    mutation(MutationKind::Increment, b"r", vec![cell("n", &1_i64.to_be_bytes())])
}

/// A counter that is in a file, and in no cache.
fn cold(caches: bool) -> Bench {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("BLOCKCACHE", caches.to_string())]);
    bench.mutate(mutation(MutationKind::Put, b"r", vec![cell("n", &1_i64.to_be_bytes())])).unwrap();
    bench.region.flush(None).unwrap();
    bench
}

fn write_one(bench: &Bench, one: Mutation, atomic: bool, mode: ReadMode) -> halcyon_cell::Result<()> {
    let outcome = bench.region.mutate(vec![one], atomic, Nonce::default(), mode)?;
    bench.wal.drive();
    outcome.ticket.wait()
}

type Work = fn(&Bench) -> halcyon_cell::Result<()>;

const READERS: [Work; 4] = [
    |bench| write_one(bench, increment(), false, ReadMode::AnyDisk),
    |bench| {
        let append = mutation(MutationKind::Append, b"r", vec![cell("n", b"x")]);
        write_one(bench, append, true, ReadMode::AnyDisk)
    },
    |bench| {
        let test = ConditionTest::Column {
            family: Bytes::from_static(b"f"),
            qualifier: Bytes::from_static(b"n"),
            op: CompareType::Equal,
            value: Bytes::copy_from_slice(&1_i64.to_be_bytes()),
        };
        let condition = Condition { row: Bytes::from_static(b"r"), time_range: TimeRange::ALL, test };
        let puts = vec![put("checked")];
        let outcome = bench.region.check_and_mutate(condition, puts, Nonce::default(), ReadMode::AnyDisk)?;
        assert!(outcome.processed);
        bench.wal.drive();
        outcome.ticket.wait()
    },
    |bench| {
        let newest = Cell::build(b"r", b"f", b"n", LATEST_TIMESTAMP, CellType::Delete, b"", b"", 0);
        write_one(bench, mutation(MutationKind::Delete, b"r", vec![newest]), false, ReadMode::AnyDisk)
    },
];

/// Does `meanwhile` on another thread before each call to the disk of `work` in turn, one in each run. What it said; `None` where it did
/// not come to an end while `work` waited for the disk.
fn at_each_call<T: Send + 'static>(
    caches: bool,
    work: Work,
    meanwhile: fn(&Arc<Region>) -> T,
) -> Vec<Option<T>> {
    let mut all = Vec::new();
    for nth in 1.. {
        let bench = cold(caches);
        let (region, told) = (bench.region.clone(), Arc::new(Mutex::new(None)));
        let tell = told.clone();
        bench.fs.pause_at(bench.fs.calls() + nth, move || {
            let (done, is_done) = channel();
            let thread = halcyon_env::spawn_thread("meanwhile", move || _ = done.send(meanwhile(&region)));
            thread.expect("started");
            *tell.lock() = Some(is_done.recv_timeout(Duration::from_secs(30)).ok());
        });
        work(&bench).unwrap();
        let Some(told) = told.lock().take() else { break };
        all.push(told);
    }
    assert!(!all.is_empty(), "it reads from the disk");
    all
}

/// The row stayed locked while a read waited for the disk, and whoever came to it, or to another row of its stripe, waited as well: event
/// loops, and with them all that they serve.
#[test]
fn a_write_that_reads_from_the_disk_holds_no_row_meanwhile() {
    for (number, work) in READERS.into_iter().enumerate() {
        let done = at_each_call(true, work, |region| {
            region.mutate(vec![put("other")], false, Nonce::default(), ReadMode::AnyDisk).map(|_| ()).is_ok()
        });
        assert!(done.iter().all(|done| *done == Some(true)), "{number}: {done:?}");
    }
}

/// What is not cached is read with the row locked. A thread that serves connections does not wait for that.
#[test]
fn an_event_loop_does_not_wait_for_a_row() {
    let said = at_each_call(false, READERS[0], |region| {
        let one = region.mutate_now(vec![put("one")]).unwrap();
        let several = region.mutate_now(vec![put("a"), put("b"), put("c"), put("d")]).unwrap();
        let atomic = region.mutate(vec![put("e")], true, Nonce::default(), ReadMode::CacheOnly);
        let single = region.mutate(vec![put("f")], false, Nonce::default(), ReadMode::CacheOnly);
        let errors = [atomic, single].map(|done| done.err().map(|error| error.kind()));
        (one.left.len(), one.results.len(), several.left.len(), several.results.len(), errors)
    });
    let needs_disk = [Some(halcyon_cell::ErrorKind::NeedsDisk); 2];
    let held = said.iter().filter(|said| **said == Some((1, 0, 4, 0, needs_disk))).count();
    let free = said.iter().filter(|said| **said == Some((0, 1, 0, 4, [None, None]))).count();
    assert!(held > 0 && held + free == said.len(), "{said:?}");
}
