//! Scans that go on with a new scanner: rows that were there all the time are found, each of one moment.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use halcyon_cell::{Cell, LATEST_TIMESTAMP, ReadPoint, Result};
use halcyon_env::Mutex;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::{Random, for_each_seed};

use crate::common::*;

const ROWS: usize = 8;
const FAMILIES: [&[u8]; 2] = [b"f", b"g"];

fn bench() -> Bench {
    Bench::new(
        &FAMILIES
            .map(|name| FamilyDescriptor::new(str::from_utf8(name).unwrap()).unwrap().with("VERSIONS", "1")),
    )
}

fn row(number: usize) -> Vec<u8> {
    format!("r{number}").into_bytes()
}

/// Both families of a row get the value, in one write.
fn put(bench: &Bench, number: usize, value: &str) {
    let row = row(number);
    let cell = |family| Cell::put(&row, family, b"q", LATEST_TIMESTAMP, value.as_bytes());
    bench.mutate(mutation(MutationKind::Put, &row, FAMILIES.map(cell).to_vec())).unwrap();
    bench.clock.advance(std::time::Duration::from_millis(1));
}

fn put_all(bench: &Bench, value: &str) {
    (0..ROWS).for_each(|number| put(bench, number, value));
}

/// The rest of a scan as a client asks for it that has the rows up to `last`, read at `point`.
fn behind(last: Option<&[u8]>, point: Option<ReadPoint>, reversed: bool) -> Scan {
    let start_row = Bytes::copy_from_slice(last.unwrap_or_default());
    Scan { start_row, include_start_row: last.is_none(), resumes_at: point, reversed, ..Scan::default() }
}

/// The next row and its value, which both families have.
fn next_row(scanner: &mut RegionScanner) -> Option<(Vec<u8>, String)> {
    let mut cells = Vec::new();
    scanner.next(&mut ScanLimits::NONE.clone(), &mut cells).unwrap();
    let first = cells.first()?;
    let families: Vec<&[u8]> = cells.iter().map(Cell::family).collect();
    assert_eq!(families, FAMILIES, "a row without one of its families: {cells:?}");
    assert_eq!(cells[0].value(), cells[1].value(), "a row of two moments: {cells:?}");
    Some((first.row().to_vec(), String::from_utf8(first.value().to_vec()).unwrap()))
}

fn rest(bench: &Bench, scan: Scan) -> Vec<(Vec<u8>, String)> {
    let mut scanner = bench.region.scanner(scan, ReadMode::AnyDisk).unwrap();
    std::iter::from_fn(|| next_row(&mut scanner)).collect()
}

/// Reads the first row, writes all rows anew, loses the scanner, and does what `disturb` does. Returns the values of the rest.
fn resumed(disturb: impl FnOnce(&mut Bench)) -> Vec<String> {
    let mut bench = bench();
    put_all(&bench, "old");
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    let (first, _) = next_row(&mut scanner).unwrap();
    let point = scanner.read_point();
    put_all(&bench, "new");
    drop(scanner);
    disturb(&mut bench);
    let found = rest(&bench, behind(Some(&first), Some(point), false));
    let rows: Vec<Vec<u8>> = found.iter().map(|(row, _)| row.clone()).collect();
    assert_eq!(rows, (1..ROWS).map(row).collect::<Vec<_>>(), "every row was there all the time");
    found.into_iter().map(|(_, value)| value).collect()
}

/// HBase's clients name the read point of the scanner that they have lost. When a region closed, its scanners were dropped before
/// its last flush, which left out the versions that only they could see; the next scanner then read at their point, and
/// saw neither those nor what is newer.
#[test]
fn a_scan_that_goes_on_after_its_region_was_closed_loses_no_rows() {
    assert_eq!(resumed(|bench| bench.reopen().unwrap()), ["new"; ROWS - 1]);
}

#[test]
fn a_scan_that_goes_on_after_its_scanner_was_lost_loses_no_rows() {
    assert_eq!(resumed(|bench| _ = bench.region.flush(None).unwrap()), ["new"; ROWS - 1]);
    // Only one of the families has lost its old versions.
    let one_family = |bench: &mut Bench| _ = bench.region.flush(Some(&[Bytes::from("g")])).unwrap();
    assert_eq!(resumed(one_family), ["new"; ROWS - 1]);
    let twice = |bench: &mut Bench| {
        bench.region.flush(None).unwrap();
        put_all(bench, "newest");
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
    };
    assert_eq!(resumed(twice), ["newest"; ROWS - 1]);
}

#[test]
fn a_scan_that_goes_on_reads_at_its_point_where_nothing_has_gone() {
    assert_eq!(resumed(|_| {}), ["old"; ROWS - 1]);
}

/// What another scanner keeps is there for this one, too.
#[test]
fn a_point_that_others_have_kept_is_taken_again() {
    let bench = bench();
    put_all(&bench, "old");
    let other = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    let point = other.read_point();
    put_all(&bench, "new");
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    let found = rest(&bench, behind(None, Some(point), false));
    assert!(found.len() == ROWS && found.iter().all(|(_, value)| value == "old"), "{found:?}");
    drop(other);
    let above = ReadPoint::new(bench.region.read_point().get() + 1);
    let found = rest(&bench, behind(None, Some(above), false));
    assert!(found.len() == ROWS && found.iter().all(|(_, value)| value == "new"), "{found:?}");
}

/// A point that was of the region before it was split is of no use in a daughter of it, and none of it shows.
#[test]
fn a_point_of_another_opening_is_not_taken() {
    let mut bench = bench();
    put_all(&bench, "old");
    let point = bench.region.read_point();
    bench.reopen().unwrap();
    put_all(&bench, "new");
    let found = rest(&bench, behind(None, Some(point), true));
    assert!(found.len() == ROWS && found.iter().all(|(_, value)| value == "new"), "{found:?}");
}

/// Opens a scanner at an old point while a flush is on its way that has asked already what it has to keep.
struct ResumeInFlush {
    region: OnceLock<Weak<Region>>,
    point: Mutex<Option<ReadPoint>>,
    opened: Mutex<Option<RegionScanner>>,
}

struct Hooked(Arc<ResumeInFlush>);

impl StoreHooks for Hooked {
    fn before_flush(&self) -> Result<()> {
        Ok(())
    }

    fn after_flush(&self) {}

    fn may_drop_in_memory(&self) -> bool {
        true
    }

    fn begin(&self, _family: &Bytes, _kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
        Ok(Some(Box::new(Hooked(self.0.clone()))))
    }
}

impl RewriteHooks for Hooked {
    fn options(&self) -> Option<ScanOptions> {
        None
    }

    fn rewrite(&mut self, _source: &mut Source<'_>, _sink: &mut Sink<'_>) -> Result<bool> {
        if let Some(point) = self.0.point.lock().take() {
            let region = self.0.region.get().and_then(Weak::upgrade).expect("it is being flushed");
            let scanner = region.scanner(behind(None, Some(point), false), ReadMode::AnyDisk)?;
            *self.0.opened.lock() = Some(scanner);
        }
        Ok(false)
    }

    fn end(self: Box<Self>, _files: &[&Path]) {}
}

#[test]
fn a_flush_that_has_begun_does_not_take_away_what_a_resumed_scan_sees() {
    let bench = bench();
    let hooks = Arc::new(ResumeInFlush {
        region: OnceLock::new(),
        point: Mutex::new(None),
        opened: Mutex::new(None),
    });
    hooks.region.set(Arc::downgrade(&bench.region)).expect("it is set once");
    bench.region.set_store_hooks(Arc::new(Hooked(hooks.clone())));
    put_all(&bench, "old");
    *hooks.point.lock() = Some(bench.region.read_point());
    put_all(&bench, "new");
    bench.region.flush(None).unwrap();
    let mut scanner = hooks.opened.lock().take().expect("it was opened in the flush");
    drop(scanner.let_go());
    let found: Vec<_> = std::iter::from_fn(|| next_row(&mut scanner)).collect();
    assert_eq!(found.len(), ROWS, "{found:?}");
}

/// A client that reads row by row, loses its scanner again and again, and comes back with the point that it had.
struct Client {
    reversed: bool,
    last: Option<Vec<u8>>,
    point: Option<ReadPoint>,
    scanner: Option<RegionScanner>,
    rows: usize,
}

impl Client {
    /// Reads one row. Returns whether the scan has ended.
    fn step(&mut self, bench: &Bench) -> bool {
        let (last, reversed, point) = (self.last.as_deref(), self.reversed, self.point);
        let open = || bench.region.scanner(behind(last, point, reversed), ReadMode::AnyDisk).unwrap();
        let scanner = self.scanner.get_or_insert_with(open);
        self.point = Some(scanner.read_point());
        let Some((row, _)) = next_row(scanner) else {
            assert_eq!(self.rows, ROWS, "every row was there all the time");
            return true;
        };
        let is_ahead = self.last.as_ref().is_none_or(|last| if reversed { row < *last } else { row > *last });
        assert!(is_ahead, "{row:?} behind {:?}", self.last);
        self.rows += 1;
        self.last = Some(row);
        false
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let policy = ["NONE", "BASIC", "EAGER"][random.below(3)];
    let family = |name: &[u8]| {
        let family = FamilyDescriptor::new(str::from_utf8(name).unwrap()).unwrap();
        family.with("IN_MEMORY_COMPACTION", policy).with("VERSIONS", "1")
    };
    let mut bench = Bench::new(&FAMILIES.map(family));
    put_all(&bench, "0");
    let client = |reversed| Client { reversed, last: None, point: None, scanner: None, rows: 0 };
    let mut clients = [client(false), client(true), client(false)];
    for step in 1..200 {
        match random.below(12) {
            0..=4 => (0..2).for_each(|_| put(&bench, random.below(ROWS), &step.to_string())),
            5 => _ = bench.region.flush(None).unwrap(),
            6 => {
                let family = Bytes::from_static(FAMILIES[random.below(2)]);
                bench.region.flush(Some(&[family])).unwrap();
            }
            7 => _ = bench.compact(random.below(2) == 0).unwrap(),
            8 => _ = bench.region.compact_memory().unwrap(),
            9 if random.below(4) == 0 => {
                clients.iter_mut().for_each(|client| client.scanner = None);
                bench.reopen().unwrap();
            }
            _ => {
                let chosen = &mut clients[random.below(3)];
                match random.below(4) {
                    0 => chosen.scanner = None,
                    1 => drop(chosen.scanner.as_mut().map(RegionScanner::let_go)),
                    _ => {}
                }
                if chosen.step(&bench) {
                    *chosen = client(chosen.reversed);
                }
            }
        }
    }
}

#[test]
fn clients_that_lose_their_scanners_find_every_row() {
    for_each_seed("-p halcyon-region --test all clients_that_lose_their_scanners", 1..61, run);
}
