//! The read path (HBase: `HRegion.get`, `getScanner`, `HStore.getScanners`).
//!
//! ```text
//! get, scanner     the region is open, the row is the region's
//! views_for        read point, and of each wanted family its view; held for a scanner that is resumed later
//! open_store       sources that can hold wanted cells (rows, times, bloom filters) -> heap -> matcher -> StoreScanner
//! position         every store to the first row
//! RegionScanner    rows (`scan/region_scanner.rs`); of one row alone OneRow (`scan/one_row.rs`)
//! ```
//!
//! The read point is taken first and the views afterwards: what a flush or compaction leaves out of a file after that is
//! hidden at the read point, or the read point is taken anew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Key, ReadPoint, Result};
use halcyon_filter::Filter;

use crate::api::{NextState, ReadMode, Scan, ScanLimits, TimeRange};
use crate::keeping::Keeping;
use crate::mob::{MobRead, MobReader, MobScan, ReferencesOnly, SeeingValues};
use crate::read_points::HeldReadPoint;
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::one_row::OneRow;
use crate::scan::source::{Heap, Source};
use crate::scan::store_scanner::StoreScanner;
use crate::scan::{RegionScanner, ResumableScan};
use crate::store::{SeenMemory, Store, StoreFile, StoreView};

/// Bytes of a row that a Get may gather from memory alone. A larger row is read where others do not wait for it.
const CACHED_ROW_BYTES_MAX: usize = 1 << 20;

/// Which writes a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// Those up to the read point.
    Published,
    /// Also those that are not published yet, for reads under a row lock.
    Newest,
}

impl Region {
    /// Reads one row (`Scan::of_row` with what else is wanted). With `ReadMode::CacheOnly` the answer may be an
    /// error of kind `NeedsDisk`; nothing happened then. `RowTooBig` for a row that has more bytes than may be read at once, and `Moved`
    /// if it was given up because the region is closing.
    pub fn get(&self, scan: Scan, mode: ReadMode) -> Result<Vec<Cell>> {
        let _open = self.enter()?;
        self.check_row(&scan.start_row, "get")?;
        let sampled = self.is_read_due().then(|| scan.start_row.clone());
        let bytes_max = self.services.settings.row_bytes_max;
        let is_bounded = mode == ReadMode::CacheOnly && bytes_max > CACHED_ROW_BYTES_MAX;
        let bytes_max = if is_bounded { CACHED_ROW_BYTES_MAX } else { bytes_max };
        let (cells, rows_filtered) = match self.read_row(scan, mode, Visible::Published, bytes_max) {
            Err(error) if is_bounded && error.kind() == ErrorKind::RowTooBig => {
                return Err(Error::needs_disk());
            }
            read => read.map_err(|error| self.given_up(error))?,
        };
        self.note_scanned(1, rows_filtered, &[]);
        if let Some(row) = sampled {
            self.key_samples.keep(&row, false, 1);
        }
        Ok(cells)
    }

    /// The cells of one row, and how many rows were looked at of which none is returned.
    pub(crate) fn read_row(
        &self,
        scan: Scan,
        mode: ReadMode,
        visible: Visible,
        bytes_max: usize,
    ) -> Result<(Vec<Cell>, u64)> {
        if !is_plain_row(&scan) {
            let (mut scanner, mut cells) =
                (self.scanner_of_rows(None, scan, mode, visible, bytes_max)?, Vec::new());
            while scanner.next(&mut ScanLimits::NONE.clone(), &mut cells)? != NextState::Exhausted {}
            return Ok((cells, scanner.counts().rows_filtered));
        }
        let (chosen, read_point, _) = self.views_for(&scan, visible, false)?;
        let clock = &*self.services.env.clock;
        let (now_ms, first) = (clock.now_ms(), Key::first_on_row(&scan.start_row));
        let mut row = OneRow::new(&scan.start_row, bytes_max, clock);
        for chosen in &chosen {
            let mob = mob_reader(chosen, &scan, mode);
            let mut store = open_store(chosen, &scan, false, mob, read_point, mode, now_ms)?;
            store.seek(first.get())?;
            row.read(&mut store)?;
        }
        let (cells, is_dropped) = row.done()?;
        Ok((cells, u64::from(is_dropped)))
    }

    /// Starts a scan. *Blocking* with `ReadMode::AnyDisk`.
    pub fn scanner(self: &Arc<Self>, scan: Scan, mode: ReadMode) -> Result<RegionScanner> {
        let _open = self.enter()?;
        let opened = self.scanner_at(Some(self.clone()), scan, mode, Visible::Published);
        opened.map_err(|error| self.given_up(error))
    }

    /// The stores of a scan with what they hold, and the read point of the scan; if the scan `stays`, held.
    ///
    /// A flush leaves versions out that newer ones hide, and who came for an older read point before would find
    /// neither in the file. So a read point that is older than what was left out of some view is taken anew: what is
    /// in files was published before. One that was asked for stays, and so does one that the client had before
    /// (`Scan::resumes_at`) once it is held: flushes that begin later keep what it sees.
    fn views_for<'a>(
        &'a self,
        scan: &'a Scan,
        visible: Visible,
        stays: bool,
    ) -> Result<(Vec<SelectedStore<'a>>, ReadPoint, Option<HeldReadPoint>)> {
        let fixed = match visible {
            Visible::Published if !scan.read_uncommitted => scan.read_point,
            _ => Some(ReadPoint::NEWEST),
        };
        let resumes_at = scan.resumes_at.filter(|_| fixed.is_none() && stays);
        loop {
            let loads = self.loads.load(Ordering::Acquire);
            let take = || fixed.unwrap_or_else(|| self.read_point());
            let held = (stays && fixed != Some(ReadPoint::NEWEST)).then(|| match resumes_at {
                Some(wish) => self.read_points.hold_again(wish, take),
                None => self.read_points.hold(take),
            });
            let is_resumed = resumes_at.is_some() && held.as_ref().map(HeldReadPoint::point) == resumes_at;
            let read_point = held.as_ref().map_or_else(take, HeldReadPoint::point);
            let mut chosen: Vec<SelectedStore<'a>> = Vec::with_capacity(self.stores.len());
            if scan.families.is_empty() {
                chosen.extend((0..self.stores.len()).map(|at| SelectedStore::new(self, at, None, stays)));
            }
            for (family, wanted) in &scan.families {
                self.store_or_error(family)?;
                let at = self.stores.iter().position(|store| store.family.name() == family);
                chosen.extend(at.map(|at| SelectedStore::new(self, at, wanted.as_ref(), stays)));
            }
            // A bulk load exchanged views meanwhile: of its files all are seen, or none.
            if loads % 2 == 1 || self.loads.load(Ordering::Acquire) != loads {
                halcyon_env::yield_now();
                continue;
            }
            let is_whole = |chosen: &SelectedStore<'_>| read_point.sees(chosen.view.dropped_up_to());
            if fixed.is_some() || is_resumed || chosen.iter().all(is_whole) {
                assert!(
                    fixed.is_some() || read_point <= self.read_point(),
                    "a read at {read_point} would see writes that are not published"
                );
                return Ok((chosen, read_point, held));
            }
        }
    }

    /// With a `region` the scanner can be resumed in later calls.
    pub(crate) fn scanner_at(
        &self,
        region: Option<Arc<Region>>,
        scan: Scan,
        mode: ReadMode,
        visible: Visible,
    ) -> Result<RegionScanner> {
        self.scanner_of_rows(region, scan, mode, visible, self.services.settings.row_bytes_max)
    }

    /// As `scanner_at`, of rows with at most so many bytes.
    fn scanner_of_rows(
        &self,
        region: Option<Arc<Region>>,
        mut scan: Scan,
        mode: ReadMode,
        visible: Visible,
        row_bytes_max: usize,
    ) -> Result<RegionScanner> {
        let mut filter = scan.filter.take();
        let (chosen, read_point, held) = self.views_for(&scan, visible, region.is_some())?;
        let mut mobs = Vec::new();
        if let Some(inner) = filter.take() {
            mobs.extend(chosen.iter().map(|it| mob_reader(it, &scan, mode).map(MobReader::sharing)));
            filter = Some(seeing_values(inner, &chosen, &mobs));
        }
        if scan.mob.references_only
            && let Some(first) = chosen.iter().find(|chosen| chosen.store.mob.is_on())
        {
            let first_family = first.store.family.name().clone();
            filter = Some(Box::new(ReferencesOnly::new(filter.take(), first_family)));
        }
        if let Some(filter) = &mut filter
            && scan.reversed
        {
            filter.set_reversed(true);
        }
        let now_ms = self.services.env.clock.now_ms();
        // A list that grows by itself begins with room for four of these, some kilobytes that nearly no read needs.
        let (mut stores, mut joined) = (Vec::with_capacity(chosen.len()), Vec::new());
        for (number, chosen) in chosen.into_iter().enumerate() {
            let store = chosen.store;
            let mob = match mobs.get_mut(number) {
                Some(known) => known.take(),
                None => mob_reader(&chosen, &scan, mode),
            };
            let essential = !scan.load_families_on_demand
                || filter.as_ref().is_none_or(|f| f.is_family_essential(store.family.name()).unwrap_or(true));
            let opened = if essential { &mut stores } else { &mut joined };
            opened.push(open_store(&chosen, &scan, filter.is_some(), mob, read_point, mode, now_ms)?);
            let scanner = opened.last_mut().expect("it was put there");
            position(scanner, &scan)?;
            scanner.remember(chosen.seen);
        }
        if stores.is_empty() {
            joined.clear(); // no family says which rows there are (HBase: `RegionScannerImpl.nextInternal`)
        }
        let (stop_row, include_stop_row) = (scan.stop_row.clone(), scan.include_stop_row);
        let (reversed, batch) = (scan.reversed, scan.batch);
        let resumable =
            region.map(|region| ResumableScan { region, scan, now_ms, _held: held, has_let_go: false });
        RegionScanner::new(crate::scan::Parts {
            resumable,
            clock: self.services.env.clock.clone(),
            comparator: self.info.comparator(),
            read_point,
            stores,
            joined,
            filter,
            stop_row,
            include_stop_row,
            reversed,
            batch,
            row_bytes_max,
        })
    }

    /// Lets the scanners of a scan that had let go go on in what their stores have now. *Blocking*. `Moved` if the
    /// region is closing.
    pub(crate) fn open_again<'s>(
        &self,
        scan: &Scan,
        read_point: ReadPoint,
        now_ms: i64,
        scanners: impl Iterator<Item = &'s mut StoreScanner>,
    ) -> Result<()> {
        assert!(!self.is_secondary(), "{}: its files may no longer have what a scanner sees", self.info);
        let _open = self.enter()?;
        let scanners: Vec<&mut StoreScanner> = scanners.collect();
        let views = whole_views(&self.loads, || {
            let stores = scanners.iter().map(|scanner| &self.stores[scanner.store_at]);
            stores.map(|store| (store.see_memory(), store.view())).collect::<Vec<_>>()
        });
        for (scanner, (seen, view)) in scanners.into_iter().zip(views) {
            let store = &self.stores[scanner.store_at];
            let wanted = scan.families.get(store.family.name()).and_then(Option::as_ref);
            let sources = sources(store, &view, scan, wanted, read_point, ReadMode::AnyDisk, now_ms)?;
            scanner.open_again(Heap::new(store.comparator, sources), seen)?;
        }
        Ok(())
    }
}

/// Views of several stores, between which no bulk load has exchanged some (`Region::loads`): of its files all are seen, or none.
fn whole_views<T>(loads: &AtomicU64, mut take: impl FnMut() -> T) -> T {
    loop {
        let before = loads.load(Ordering::Acquire);
        let views = take();
        if before.is_multiple_of(2) && loads.load(Ordering::Acquire) == before {
            return views;
        }
        halcyon_env::yield_now();
    }
}

/// A family that is read: the columns that are wanted of it (`None`: all), and what there is to read.
struct SelectedStore<'a> {
    /// The number of the store in its region.
    at: usize,
    store: &'a Store,
    wanted: Option<&'a BTreeSet<Bytes>>,
    seen: Option<SeenMemory>,
    view: Arc<StoreView>,
}

impl<'a> SelectedStore<'a> {
    fn new(
        region: &'a Region,
        at: usize,
        wanted: Option<&'a BTreeSet<Bytes>>,
        stays: bool,
    ) -> SelectedStore<'a> {
        let store = &region.stores[at];
        let seen = stays.then(|| store.see_memory());
        SelectedStore { at, store, wanted, seen, view: store.view() }
    }
}

/// Whether the scan is of one row and wants its cells as they are.
fn is_plain_row(scan: &Scan) -> bool {
    let is_row = scan.start_row == scan.stop_row && !scan.start_row.is_empty();
    is_row
        && (scan.include_start_row && scan.include_stop_row && !scan.reversed)
        && (scan.filter.is_none() && scan.batch.is_none() && !scan.mob.references_only)
}

fn open_store(
    chosen: &SelectedStore<'_>,
    scan: &Scan,
    has_filter: bool,
    mob: Option<MobReader>,
    read_point: ReadPoint,
    mode: ReadMode,
    now_ms: i64,
) -> Result<StoreScanner> {
    let SelectedStore { at, store, wanted, view, .. } = chosen;
    if scan.raw && wanted.is_some() {
        return Err(Error::invalid("Cannot specify any column for a raw scan"));
    }
    let sources = sources(store, view, scan, *wanted, read_point, mode, now_ms)?;
    let time_range = time_range_of(store, scan);
    let matcher = Matcher::user(
        keeping_of(store, scan),
        *wanted,
        scan.max_versions,
        time_range,
        scan.raw,
        has_filter,
        now_ms,
    );
    let heap = Heap::new(store.comparator, sources);
    let (limit, offset) = (scan.store_limit, scan.store_offset);
    Ok(StoreScanner::new(*at, read_point, heap, matcher, scan.reversed, limit, offset).resolving(mob))
}

/// What follows the references that the scan finds in the store; `None`: there are none, or they are wanted themselves.
fn mob_reader(chosen: &SelectedStore<'_>, scan: &Scan, mode: ReadMode) -> Option<MobReader> {
    let SelectedStore { store, view, .. } = chosen;
    if scan.mob.raw || !store.mob.may_have_references(&view.files) {
        return None;
    }
    let MobScan { cache_blocks, empty_on_miss, .. } = scan.mob;
    let how = MobRead { mode, cache_blocks, empty_on_miss, reads: scan.reads.clone() };
    Some(MobReader::new(store.mob.clone(), how))
}

/// The filter as it sees what is read: by `readers`, values that stand in mob files.
fn seeing_values(
    inner: Box<dyn Filter>,
    chosen: &[SelectedStore<'_>],
    readers: &[Option<MobReader>],
) -> Box<dyn Filter> {
    if readers.iter().all(Option::is_none) {
        return inner;
    }
    let family = |chosen: &SelectedStore<'_>| chosen.store.family.name().clone();
    let by_family = chosen.iter().zip(readers).filter_map(|(it, reader)| Some((family(it), reader.clone()?)));
    Box::new(SeeingValues::new(inner, by_family.collect()))
}

fn keeping_of(store: &Store, scan: &Scan) -> Keeping {
    scan.options.get(store.family.name()).map_or(store.keeping, |options| options.change(store.keeping))
}

fn time_range_of(store: &Store, scan: &Scan) -> TimeRange {
    scan.family_time_ranges.get(store.family.name()).copied().unwrap_or(scan.time_range)
}

/// What of a store can hold cells of the scan, newest first.
fn sources(
    store: &Store,
    view: &StoreView,
    scan: &Scan,
    wanted: Option<&BTreeSet<Bytes>>,
    read_point: ReadPoint,
    mode: ReadMode,
    now_ms: i64,
) -> Result<Vec<Source>> {
    let time_range = time_range_of(store, scan);
    let mut sources = Vec::with_capacity(1 + view.pipeline.len() + view.snapshot.len() + view.files.len());
    if !view.active.is_empty() {
        sources.push(Source::Segment(view.active.scanner(read_point)).counting(scan.reads.as_ref()));
    }
    sources.extend(view.parts().map(|part| part.source(read_point).counting(scan.reads.as_ref())));
    // The row of a Get can be looked up in the files' bloom filters.
    let single_row = (scan.start_row == scan.stop_row && scan.include_stop_row && !scan.start_row.is_empty())
        .then_some(&scan.start_row);
    // With MIN_VERSIONS cells outlive the family's time to live, so age alone rules no file out.
    let keeping = keeping_of(store, scan);
    let oldest = match keeping.ttl_ms {
        Some(ttl) if keeping.min_versions == 0 => now_ms.saturating_sub(ttl),
        _ => i64::MIN,
    };
    // By the order of writing, newer timestamps than the asked ones have a say in what is still there.
    let files_range = match store.keeping.new_version_behavior {
        true => TimeRange { max: i64::MAX, ..time_range },
        false => time_range,
    };
    let (low, high) =
        if scan.reversed { (&scan.stop_row, &scan.start_row) } else { (&scan.start_row, &scan.stop_row) };
    for file in view.files_with_rows(low, high) {
        if file_is_wanted(file, single_row, wanted, files_range, oldest, scan.raw, mode)? {
            let newest = if read_point.sees(file.max_cell_seq) { ReadPoint::NEWEST } else { read_point };
            let cache = scan.cache_blocks && store.keeps_in_cache(file, now_ms);
            sources.push(file.source_counting(mode, cache, newest, scan.reads.clone()));
        }
    }
    Ok(sources)
}

fn file_is_wanted(
    file: &StoreFile,
    single_row: Option<&Bytes>,
    wanted: Option<&BTreeSet<Bytes>>,
    time_range: TimeRange,
    oldest: i64,
    raw: bool,
    mode: ReadMode,
) -> Result<bool> {
    // A marker above the range can hide cells inside it, but its file reaches down to 0 then.
    if !raw && !file.may_contain_time(time_range, oldest) {
        return Ok(false);
    }
    let Some(row) = single_row else { return Ok(true) };
    if let Some(wanted) = wanted
        && wanted.len() == 1
        && let Some(qualifier) = wanted.first()
    {
        return file.hfile.may_contain_row_col(row, qualifier, mode);
    }
    file.hfile.may_contain_row(row, mode)
}

fn position(scanner: &mut StoreScanner, scan: &Scan) -> Result<()> {
    match (scan.reversed, scan.include_start_row) {
        (false, true) => scanner.seek(Key::first_on_row(&scan.start_row).get()),
        (false, false) if scan.start_row.is_empty() => scanner.seek(Key::first_on_row(b"").get()),
        (false, false) => scanner.seek(Key::last_on_row(&scan.start_row).get()),
        (true, _) if scan.start_row.is_empty() => scanner.seek_to_row_before(None),
        (true, true) => scanner.seek_to_row_before(Some(Key::last_on_row(&scan.start_row).get())),
        (true, false) => scanner.seek_to_row_before(Some(Key::first_on_row(&scan.start_row).get())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scanner that had let go took the views of its families one by one: it saw what a bulk load had brought to the second one and
    /// not what it had brought to the first.
    #[test]
    fn views_between_which_a_load_was_shown_are_taken_again() {
        let loads = AtomicU64::new(8);
        let mut taken = 0;
        let (first, second) = whole_views(&loads, || {
            let first = loads.load(Ordering::Relaxed);
            taken += 1;
            if taken < 5 {
                loads.fetch_add(1, Ordering::Relaxed); // a load begins or ends
            }
            (first, loads.load(Ordering::Relaxed))
        });
        assert_eq!((taken, first, second), (5, 12, 12));
    }
}
