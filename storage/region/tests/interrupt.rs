//! A compaction that is ended half-way: soon, without a trace, and to be done again.

#![allow(clippy::disallowed_methods)] // a thread and a pause of the test itself

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, ErrorKind, Result};
use halcyon_env::FileSystem;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

const VALUE_BYTES: usize = 64 << 10;
const ROWS: usize = 48;
/// Between two questions at most this much is looked at, and one cell.
const STEP_BYTES: u64 = (1 << 20) + VALUE_BYTES as u64 + 100;

/// Two files of 3 MB each with the same rows.
fn bench() -> Bench {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    for round in 0..2 {
        for row in 0..ROWS {
            let row = format!("row{row:03}");
            let value = vec![b'0' + round; VALUE_BYTES];
            let cell = Cell::build(row.as_bytes(), b"f", b"q", 100, CellType::Put, &value, b"", 0);
            bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
        }
        bench.region.flush(None).unwrap();
    }
    bench
}

fn names(bench: &Bench, dir: &str) -> Vec<String> {
    let entries = bench.fs.list(&bench.region.dir().join(dir)).unwrap_or_default();
    entries.into_iter().map(|entry| entry.name).collect()
}

/// What the openings of the region have in their directories.
fn unfinished(bench: &Bench) -> Vec<String> {
    let openings = names(bench, ".tmp");
    assert_eq!(openings.len(), 1, "the last opening has a directory, and no other");
    names(bench, &format!(".tmp/{}", openings[0]))
}

fn is_whole(bench: &Bench) -> bool {
    let rows = bench.scan(Scan { max_versions: 1, ..Scan::default() }).unwrap();
    rows.len() == ROWS && rows.iter().all(|cells| cells[0].value() == vec![b'1'; VALUE_BYTES])
}

/// Says no at one of the questions, and adds up what it heard until then.
struct StopAt {
    question: usize,
    asked: usize,
    written_bytes: u64,
}

impl CompactionControl for StopAt {
    fn go_on(&mut self, written_bytes: u64, _: &dyn Fn() -> bool) -> bool {
        self.asked += 1;
        self.written_bytes += written_bytes;
        self.asked < self.question
    }
}

#[test]
fn it_ends_after_a_bounded_number_of_bytes_and_leaves_nothing() {
    let bench = bench();
    let files = names(&bench, "f");
    let all = CompactionRequest { major: true, user: true };
    for question in 1..=4 {
        let mut control = StopAt { question, asked: 0, written_bytes: 0 };
        let error = bench.region.compact(None, all, &mut control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopping);
        assert_eq!(control.asked, question);
        assert!(control.written_bytes <= question as u64 * STEP_BYTES, "{}", control.written_bytes);
        assert!(unfinished(&bench).is_empty());
        assert_eq!(names(&bench, "f"), files);
        assert!(is_whole(&bench));
    }
    let mut control = StopAt { question: usize::MAX, asked: 0, written_bytes: 0 };
    let outcome = bench.region.compact(None, all, &mut control).unwrap();
    assert!(outcome.major && outcome.compacted_files == 2);
    assert!(control.asked >= 4, "what is not written counts as well");
    assert_eq!(names(&bench, "f").len(), 1);
    assert!(is_whole(&bench));
}

#[test]
fn a_wish_outlives_the_compaction_that_was_ended() {
    let bench = bench();
    let cancel = AtomicBool::new(true);
    bench.region.request_major_compaction(Some(b"f"));
    let request = CompactionRequest::default();
    assert!(bench.region.compact(None, request, &mut &cancel).is_err());
    assert!(bench.region.compaction_wanted());
    let outcome = bench.region.compact(None, request, &mut &AtomicBool::new(false)).unwrap();
    assert!(outcome.major);
    assert!(!bench.region.compaction_wanted());
}

/// Waits at its first question for the region to close.
struct AwaitClose<'a>(&'a std::sync::Barrier);

impl CompactionControl for AwaitClose<'_> {
    fn go_on(&mut self, _: u64, is_closing: &dyn Fn() -> bool) -> bool {
        self.0.wait();
        while !is_closing() {
            std::thread::yield_now();
        }
        true
    }
}

#[test]
fn a_region_that_closes_ends_its_compaction() {
    let mut bench = bench();
    let running = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| {
            let all = CompactionRequest { major: true, user: true };
            bench.region.compact(None, all, &mut AwaitClose(&running))
        });
        running.wait();
        bench.region.close(false).unwrap();
        assert_eq!(compaction.join().unwrap().unwrap_err().kind(), ErrorKind::Stopping);
    });
    assert_eq!(names(&bench, "f").len(), 2);
    bench.reopen().unwrap();
    assert!(is_whole(&bench));
    assert!(bench.compact(true).unwrap().major);
    assert!(is_whole(&bench));
}

/// Closes the region while its small compaction is being written.
struct CloseInRewrite(Arc<OnceLock<Weak<Region>>>);

impl StoreHooks for CloseInRewrite {
    fn before_flush(&self) -> Result<()> {
        Ok(())
    }

    fn after_flush(&self) {}

    fn may_drop_in_memory(&self) -> bool {
        true
    }

    fn begin(&self, _family: &Bytes, kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
        let is_compaction = matches!(kind, RewriteKind::Compaction { .. });
        Ok(is_compaction.then(|| Box::new(CloseInRewrite(self.0.clone())) as Box<dyn RewriteHooks>))
    }
}

impl RewriteHooks for CloseInRewrite {
    fn options(&self) -> Option<ScanOptions> {
        None
    }

    fn rewrite(&mut self, _source: &mut Source<'_>, _sink: &mut Sink<'_>) -> Result<bool> {
        let region = self.0.get().and_then(Weak::upgrade).expect("it is being compacted");
        let closing = region.clone();
        std::thread::spawn(move || closing.close(false).unwrap());
        while region.scanner(Scan::default(), ReadMode::AnyDisk).is_ok() {
            std::thread::yield_now();
        }
        // It has to have come to where it waits for the compaction; else this test shows nothing.
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(false)
    }

    fn end(self: Box<Self>, _files: &[&Path]) {}
}

/// A region was opened and closed again and again on a busy machine. Each close threw away what the compaction under way had written, though
/// nothing was left to be done. No compaction ended any more; each opening had more files than the one before, and took longer.
#[test]
fn a_compaction_that_is_written_when_its_region_closes_takes_effect() {
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    for round in 0..5 {
        let row = format!("r{round}");
        let cell = parse_cell(&row, "f:q=v", CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
        bench.region.flush(None).unwrap();
    }
    let region = Arc::new(OnceLock::new());
    region.set(Arc::downgrade(&bench.region)).expect("it is set once");
    bench.region.set_store_hooks(Arc::new(CloseInRewrite(region)));
    let all = CompactionRequest { major: true, user: true };
    let outcome = bench.region.compact(None, all, &mut &AtomicBool::new(false)).unwrap();
    assert_eq!(outcome.compacted_files, 5);
    bench.region.close(false).unwrap();
    assert_eq!(names(&bench, "f").len(), 1);
    let error = bench.region.compact(None, all, &mut &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopping, "nothing begins behind the close");
    bench.reopen().unwrap();
    assert_eq!(bench.scan(Scan::default()).unwrap().len(), 5);
}

#[test]
fn what_a_crash_leaves_in_tmp_goes_at_the_next_open() {
    let mut bench = bench();
    let dir = bench.region.dir().join(".tmp/f");
    bench.fs.create_dir_all(&dir).unwrap();
    bench.fs.replace(&dir.join("00112233445566778899aabbccddeeff"), b"half a file").unwrap();
    bench.reopen().unwrap();
    assert!(unfinished(&bench).is_empty() && names(&bench, ".tmp/f").is_empty());
    assert!(is_whole(&bench));
}

#[test]
fn pressure_grows_with_the_files() {
    let family = FamilyDescriptor::new("f")
        .unwrap()
        .with_configuration("hbase.hstore.compaction.min", "2")
        .with_configuration("hbase.hstore.blockingStoreFiles", "6");
    let bench = Bench::new(&[family]);
    let mut seen = Vec::new();
    for number in 0..8 {
        let cell = parse_cell("r", &format!("f:q=v{number}"), CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, b"r", vec![cell])).unwrap();
        bench.region.flush(None).unwrap();
        seen.push((bench.region.compaction_pressure(), bench.region.store_files_left()));
    }
    let expected = [(0.0, 5), (0.0, 4), (0.25, 3), (0.5, 2), (0.75, 1), (1.0, 0), (1.25, -1), (1.5, -2)];
    assert_eq!(seen, expected);
    bench
        .region
        .compact(
            Some(&Bytes::from_static(b"f")),
            CompactionRequest { major: true, user: true },
            &mut &AtomicBool::new(false),
        )
        .unwrap();
    assert_eq!(bench.region.compaction_pressure(), 0.0);
}
