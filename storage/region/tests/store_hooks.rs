//! Coprocessors of flushes and compactions: what they keep, change and leave out, what they must not do, and what happens when they fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_env::Mutex;
use halcyon_env::sim::{CrashMode, Fault, Operation};
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, KeepDeleted, RegionInfo};

use crate::common::*;

/// What the coprocessors of a test do with one cell; `None`: it goes.
type Change = fn(&Cell) -> Option<Cell>;

#[derive(Default)]
struct Hooks {
    options: Option<ScanOptions>,
    /// `None`: cells are not looked at.
    change: Option<Change>,
    /// Bytes that are asked for at a time.
    packet: usize,
    fails: AtomicBool,
    fails_before: AtomicBool,
    /// What was called.
    called: Mutex<Vec<String>>,
    ended: AtomicUsize,
}

struct Hooked(Arc<Hooks>);

impl Hooks {
    fn note(&self, what: impl Into<String>) {
        self.called.lock().push(what.into());
    }

    fn called(&self) -> Vec<String> {
        std::mem::take(&mut self.called.lock())
    }
}

impl StoreHooks for Hooked {
    fn before_flush(&self) -> Result<()> {
        self.0.note("before");
        match self.0.fails_before.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Io, "preFlush refuses")),
            false => Ok(()),
        }
    }

    fn after_flush(&self) {
        self.0.note("after");
    }

    fn may_drop_in_memory(&self) -> bool {
        false
    }

    fn begin(&self, family: &Bytes, kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
        self.0.note(format!("begin {} {kind:?}", family.escape_ascii()));
        Ok(Some(Box::new(Hooked(self.0.clone()))))
    }
}

impl RewriteHooks for Hooked {
    fn options(&self) -> Option<ScanOptions> {
        self.0.options
    }

    fn rewrite(&mut self, source: &mut Source<'_>, sink: &mut Sink<'_>) -> Result<bool> {
        let Some(change) = self.0.change else { return Ok(false) };
        loop {
            let cells = source(self.0.packet)?;
            if self.0.fails.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Io, "the JVM has ended"));
            }
            if cells.is_empty() {
                return Ok(true);
            }
            cells.iter().filter_map(change).try_for_each(|cell| sink(&cell))?;
        }
    }

    fn end(self: Box<Self>, files: &[&Path]) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        self.0.note(format!("end {}", files.len()));
    }
}

fn hooked(hooks: Hooks) -> (Bench, Arc<Hooks>) {
    let family = FamilyDescriptor::new("f").unwrap().with("VERSIONS", "2");
    let (bench, hooks) = (Bench::new(&[family]), Arc::new(hooks));
    bench.region.set_store_hooks(Arc::new(Hooked(hooks.clone())));
    (bench, hooks)
}

fn put(bench: &Bench, row: &str, text: &str) {
    let cell = parse_cell(row, text, CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
}

/// All that is there.
fn raw(bench: &Bench) -> Vec<String> {
    let scan = Scan { raw: true, max_versions: u32::MAX, ..Scan::default() };
    bench.scan(scan).unwrap().iter().flatten().map(show).collect()
}

const KEEPS_MORE: ScanOptions = ScanOptions {
    max_versions: 4,
    min_versions: 0,
    ttl_ms: None,
    keep_deleted: KeepDeleted::True,
    purge_deletes_after_ms: 0,
};

fn same(cell: &Cell) -> Option<Cell> {
    Some(cell.clone())
}

#[test]
fn options_decide_what_a_flush_and_a_compaction_keep() {
    for change in [None, Some(same as Change)] {
        for (options, kept) in [(None, 2), (Some(KEEPS_MORE), 4)] {
            let (bench, hooks) = hooked(Hooks { options, change, packet: 1, ..Hooks::default() });
            for version in 1..=6 {
                put(&bench, "r", &format!("f:q=v@{version}"));
            }
            bench.region.flush(None).unwrap();
            assert_eq!(raw(&bench).len(), kept, "{options:?}");
            assert_eq!(hooks.called(), ["before", "begin f Flush", "end 1", "after"]);
            put(&bench, "r", "f:q=v@7");
            bench.region.flush(None).unwrap();
            assert_eq!(raw(&bench).len(), kept + 1, "the versions of two files");
            hooks.called();
            bench.compact(true).unwrap();
            assert_eq!(raw(&bench).len(), kept);
            assert_eq!(hooks.called(), ["begin f Compaction { all: true, major: true }", "end 1"]);
            let read = bench.scan(Scan { max_versions: u32::MAX, ..Scan::default() }).unwrap();
            assert_eq!(read[0].len(), 2, "readers have what the family keeps");
        }
    }
}

/// By a coprocessor, and by `hbase.hstore.time.to.purge.deletes`.
#[test]
fn young_markers_outlive_a_major_compaction() {
    const HOUR_MS: i64 = 3_600_000;
    let options = ScanOptions { max_versions: 2, keep_deleted: KeepDeleted::False, ..KEEPS_MORE };
    let options = ScanOptions { purge_deletes_after_ms: HOUR_MS, ..options };
    let of_hooks = hooked(Hooks { options: Some(options), ..Hooks::default() }).0;
    let family = |behavior: &str| {
        let family = FamilyDescriptor::new("f").unwrap().with("NEW_VERSION_BEHAVIOR", behavior);
        family.with_configuration("hbase.hstore.time.to.purge.deletes", HOUR_MS.to_string())
    };
    for (what, bench) in [
        ("hooks", of_hooks),
        ("setting", Bench::new(&[family("false")])),
        ("versions by writing", Bench::new(&[family("true")])),
    ] {
        put(&bench, "r", "f:q=v");
        bench.clock.advance(Duration::from_millis(1));
        write(&bench, "r", MutationKind::Delete).unwrap();
        bench.region.flush(None).unwrap();
        for later in [Duration::ZERO, Duration::from_secs(3600)] {
            bench.clock.advance(later);
            bench.compact(true).unwrap();
            assert_eq!(
                raw(&bench).len(),
                1,
                "{what}: the marker stays, what it hides goes: {:?}",
                raw(&bench)
            );
        }
        bench.clock.advance(Duration::from_millis(1));
        bench.compact(true).unwrap();
        assert!(raw(&bench).is_empty(), "{what}: {:?}", raw(&bench));
    }
}

#[test]
fn cells_can_be_changed_and_left_out() {
    let change = |cell: &Cell| match cell.qualifier() {
        b"gone" => None,
        _ => Some(Cell::put(cell.row(), cell.family(), cell.qualifier(), cell.timestamp(), b"new")),
    };
    for packet in [1, 100, usize::MAX] {
        let (mut bench, hooks) = hooked(Hooks { change: Some(change), packet, ..Hooks::default() });
        for row in 0..20 {
            put(&bench, &format!("r{row:02}"), "f:a=old@5");
            put(&bench, &format!("r{row:02}"), "f:gone=old@5");
        }
        bench.region.flush(None).unwrap();
        let expected: Vec<String> = (0..20).map(|row| format!("r{row:02} f:a=new@5")).collect();
        assert_eq!(raw(&bench), expected);
        put(&bench, "r99", "f:gone=old@5");
        bench.region.flush(None).unwrap();
        assert_eq!(store_files(&bench).len(), 1, "of a flush that leaves nothing there is no file");
        assert_eq!(hooks.called().iter().filter(|what| *what == "end 0").count(), 1);
        bench.reopen().unwrap();
        assert_eq!(raw(&bench), expected);
    }
}

#[test]
fn what_no_reader_could_use_is_refused() {
    let wrong: [(Change, &str); 4] = [
        (
            |cell| Some(Cell::put(if cell.row() == b"b" { b"c" } else { b"b" }, b"f", b"q", 1, b"")),
            "sorts behind",
        ),
        (|cell| Some(Cell::put(cell.row(), b"g", b"q", 1, b"")), "another family"),
        (|_| Some(Cell::put(b"zz", b"f", b"q", 1, b"")), "outside the region"),
        (|cell| Some(cell.clone().with_seq(cell.seq() + 1000)), "sequence id"),
    ];
    for (change, what) in wrong {
        let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
        let (start, end) = (Bytes::from_static(b"a"), Bytes::from_static(b"z"));
        bench.info = RegionInfo::new(bench.table.name().clone(), start, end, 1);
        bench.reopen().unwrap();
        let hooks = Hooks { change: Some(change), packet: 1, ..Hooks::default() };
        bench.region.set_store_hooks(Arc::new(Hooked(Arc::new(hooks))));
        put(&bench, "b", "f:q=v@1");
        put(&bench, "c", "f:q=v@1");
        let before = raw(&bench);
        let failed = bench.region.flush(None).unwrap_err();
        assert!(failed.to_string().contains(what), "{failed}");
        assert_eq!(raw(&bench), before, "nothing is lost");
        assert!(store_files(&bench).is_empty());
    }
}

#[test]
fn a_failure_is_repeated_and_not_for_ever() {
    let nothing: Change = |_| None;
    let (bench, hooks) = hooked(Hooks { change: Some(nothing), packet: 1, ..Hooks::default() });
    hooks.fails.store(true, Ordering::Relaxed);
    for version in 1..=5 {
        put(&bench, "r", &format!("f:q=v@{version}"));
    }
    for attempt in 1..10 {
        let failed = bench.region.flush(None).unwrap_err();
        assert!(failed.to_string().contains("the JVM has ended"), "{failed}");
        assert_eq!(raw(&bench).len(), 5, "attempt {attempt}");
        assert!(store_files(&bench).is_empty());
    }
    assert_eq!(hooks.ended.load(Ordering::Relaxed), 0, "no attempt has come to its end");
    bench.region.flush(None).unwrap();
    assert_eq!((raw(&bench).len(), store_files(&bench).len()), (5, 1), "all is in a file, hidden or not");
    let failed = bench.compact(true).unwrap_err();
    assert!(failed.to_string().contains("the JVM has ended"), "{failed}");
    assert_eq!((raw(&bench).len(), store_files(&bench).len()), (5, 1));
    hooks.fails.store(false, Ordering::Relaxed);
    bench.compact(true).unwrap();
    assert!(raw(&bench).is_empty(), "a compaction asks the coprocessors again");

    put(&bench, "r", "f:q=v@8");
    bench.region.flush(None).unwrap(); // a flush that succeeds ends the row of failures
    hooks.fails_before.store(true, Ordering::Relaxed);
    put(&bench, "r", "f:q=v@9");
    assert!(bench.region.flush(None).unwrap_err().to_string().contains("preFlush refuses"));
    hooks.fails_before.store(false, Ordering::Relaxed);
    bench.region.flush(None).unwrap();
    assert!(raw(&bench).is_empty());
}

/// A scanner that has no end is left when the region closes.
#[test]
fn an_endless_compaction_can_be_called_off() {
    struct Endless;
    impl StoreHooks for Endless {
        fn before_flush(&self) -> Result<()> {
            Ok(())
        }

        fn after_flush(&self) {}

        fn may_drop_in_memory(&self) -> bool {
            false
        }

        fn begin(&self, _: &Bytes, kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
            Ok((kind != RewriteKind::Flush).then(|| Box::new(Endless) as Box<dyn RewriteHooks>))
        }
    }

    impl RewriteHooks for Endless {
        fn options(&self) -> Option<ScanOptions> {
            None
        }

        fn rewrite(&mut self, _: &mut Source<'_>, sink: &mut Sink<'_>) -> Result<bool> {
            (0u64..).try_for_each(|row| sink(&Cell::put(&row.to_be_bytes(), b"f", b"q", 1, &[0; 10_000])))?;
            Ok(true)
        }

        fn end(self: Box<Self>, _: &[&Path]) {}
    }

    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    bench.region.set_store_hooks(Arc::new(Endless));
    write(&bench, "r", MutationKind::Put).unwrap();
    bench.region.flush(None).unwrap();
    let called_off = AtomicBool::new(true);
    let whole = CompactionRequest { major: true, user: true };
    let stopped = bench.region.compact(None, whole, &mut &called_off).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Stopping);
    assert_eq!((rows(&bench).len(), store_files(&bench).len()), (1, 1));
}

#[test]
fn a_region_closes_without_its_coprocessors() {
    let nothing: Change = |_| None;
    let (mut bench, hooks) = hooked(Hooks { change: Some(nothing), packet: 1, ..Hooks::default() });
    for version in 1..=5 {
        put(&bench, "r", &format!("f:q=v@{version}"));
    }
    hooks.fails.store(true, Ordering::Relaxed);
    hooks.fails_before.store(true, Ordering::Relaxed);
    bench.reopen().unwrap();
    assert!(hooks.called().contains(&"begin f Flush".to_string()), "they were asked");
    assert_eq!((raw(&bench).len(), store_files(&bench).len()), (5, 1));
}

/// Edits that are replayed are flushed before there are coprocessors.
#[test]
fn replay_leaves_nothing_out_for_coprocessors_that_come() {
    for (is_hosted, kept) in [(false, 2), (true, 5)] {
        let (mut bench, _) = hooked(Hooks::default());
        for version in 1..=5 {
            put(&bench, "r", &format!("f:q=v@{version}"));
        }
        bench.is_hosted = is_hosted;
        bench.recover_on(Arc::new(bench.fs.crash(CrashMode::Drop, 1))).unwrap();
        assert_eq!((raw(&bench).len(), store_files(&bench).len()), (kept, 1));
    }
}

/// An error of the disk is that of the disk, whatever the coprocessors make of it, and does not count as theirs.
#[test]
fn errors_of_the_disk_are_not_theirs() {
    let (bench, hooks) = hooked(Hooks { change: Some(same), packet: 1, ..Hooks::default() });
    for version in 1..=5 {
        put(&bench, "r", &format!("f:q=v@{version}"));
    }
    for attempt in 1..=12 {
        bench.fs.inject(Fault::new(Operation::Create, ".tmp"));
        bench.region.flush(None).unwrap_err();
        assert_eq!(bench.fs.faults_hit(), attempt);
    }
    bench.region.flush(None).unwrap();
    assert_eq!(raw(&bench).len(), 2, "it was not the coprocessors that failed: hidden versions go");
    assert_eq!(hooks.ended.load(Ordering::Relaxed), 1);
}

/// A crash at each step of a flush and a compaction that coprocessors change.
#[test]
fn a_crash_leaves_cells_as_they_were_or_as_they_are_to_be() {
    let change: Change = |cell| match cell.row() {
        b"gone" => None,
        _ => Some(cell.clone()),
    };
    let lives = |point: Option<u64>| {
        let (bench, _) = hooked(Hooks { change: Some(change), packet: 1, ..Hooks::default() });
        put(&bench, "a", "f:q=v@1");
        put(&bench, "gone", "f:q=v@1");
        let before = bench.fs.sync_points();
        if let Some(point) = point {
            bench.fs.fail_at(before + point);
        }
        let done = bench.region.flush(None).and_then(|_| bench.compact(true)).is_ok();
        (bench.fs.sync_points() - before, done, bench)
    };
    let (points, done, _) = lives(None);
    assert!(done && points > 5, "{points} sync points");
    for point in 1..=points {
        for mode in CrashMode::ALL {
            let (_, _, mut bench) = lives(Some(point));
            assert!(bench.fs.is_dead(), "point {point} was not reached");
            bench.recover_on(Arc::new(bench.fs.crash(mode, point))).unwrap();
            let rows = rows(&bench);
            assert!(rows == ["a"] || rows == ["a", "gone"], "point {point}, {mode:?}: {rows:?}");
        }
    }
}
