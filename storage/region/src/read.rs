use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{Cell, Key, Result};

use crate::api::{NextState, ReadMode, Scan, ScanLimits, TimeRange};
use crate::region::Region;
use crate::scan::RegionScanner;
use crate::scan::matcher::Matcher;
use crate::scan::source::{Heap, Source};
use crate::scan::store_scanner::StoreScanner;
use crate::store::{Store, StoreFile};

impl Region {
    /// Reads one row (`Scan::of_row` with what else is wanted). With `ReadMode::CacheOnly` the answer may be an
    /// error of kind `NeedsDisk`; nothing happened then.
    pub fn get(&self, scan: Scan, mode: ReadMode) -> Result<Vec<Cell>> {
        let _open = self.enter()?;
        self.check_row(&scan.start_row, "get")?;
        let mut cells = Vec::new();
        let mut scanner = self.scanner_at(None, scan, mode, None)?;
        while scanner.next(&mut ScanLimits::NONE.clone(), &mut cells)? != NextState::Exhausted {}
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        Ok(cells)
    }

    /// Starts a scan. *Blocking* with `ReadMode::AnyDisk`.
    pub fn scanner(self: &Arc<Self>, scan: Scan, mode: ReadMode) -> Result<RegionScanner> {
        let _open = self.enter()?;
        self.scanner_at(Some(self.clone()), scan, mode, None)
    }

    /// `newest`: see also writes that are not published yet, for reads under a row lock.
    pub(crate) fn scanner_at(
        &self,
        region: Option<Arc<Region>>,
        mut scan: Scan,
        mode: ReadMode,
        newest: Option<()>,
    ) -> Result<RegionScanner> {
        let read_point = if scan.read_uncommitted || newest.is_some() {
            u64::MAX
        } else {
            scan.read_point.unwrap_or_else(|| self.read_point())
        };
        let mut filter = scan.filter.take();
        if let Some(filter) = &mut filter
            && scan.reversed
        {
            filter.set_reversed(true);
        }
        let now_ms = self.services.env.clock.now_ms();
        let (mut stores, mut joined) = (Vec::new(), Vec::new());
        let mut open = |store: &Store, wanted| -> Result<()> {
            let essential = !scan.load_families_on_demand
                || filter.as_ref().is_none_or(|f| f.is_family_essential(store.family.name()).unwrap_or(true));
            let mut scanner = open_store(store, &scan, wanted, filter.is_some(), read_point, mode, now_ms)?;
            position(&mut scanner, &scan)?;
            if essential {
                stores.push(scanner)
            } else {
                joined.push(scanner)
            }
            Ok(())
        };
        if scan.families.is_empty() {
            for store in &self.stores {
                open(store, None)?;
            }
        } else {
            for (family, wanted) in &scan.families {
                open(self.store_or_error(family)?, wanted.as_ref())?;
            }
        }
        if stores.is_empty() {
            std::mem::swap(&mut stores, &mut joined); // somebody has to say which rows there are
        }
        RegionScanner::new(crate::scan::Parts {
            region,
            clock: self.services.env.clock.clone(),
            comparator: self.info.comparator(),
            read_point,
            stores,
            joined,
            filter,
            stop_row: scan.stop_row,
            include_stop_row: scan.include_stop_row,
            reversed: scan.reversed,
            batch: scan.batch,
        })
    }
}

#[allow(clippy::too_many_arguments)] // what a scan asks of one family
fn open_store(
    store: &Store,
    scan: &Scan,
    wanted: Option<&std::collections::BTreeSet<bytes::Bytes>>,
    has_filter: bool,
    read_point: u64,
    mode: ReadMode,
    now_ms: i64,
) -> Result<StoreScanner> {
    if scan.raw && wanted.is_some() {
        return Err(halcyon_cell::Error::invalid("Cannot specify any column for a raw scan"));
    }
    let time_range = scan.family_time_ranges.get(store.family.name()).copied().unwrap_or(scan.time_range);
    let view = store.view();
    let mut sources = Vec::with_capacity(1 + view.snapshot.len() + view.files.len());
    for segment in std::iter::once(&view.active).chain(&view.snapshot) {
        if !segment.is_empty() {
            sources.push(Source::Segment(segment.scanner(read_point)));
        }
    }
    // The row of a Get can be looked up in the files' bloom filters.
    let single_row = (scan.start_row == scan.stop_row && scan.include_stop_row && !scan.start_row.is_empty())
        .then_some(&scan.start_row);
    // With MIN_VERSIONS cells outlive the family's time to live, so age alone rules no file out.
    let oldest = match store.keeping.ttl_ms {
        Some(ttl) if store.keeping.min_versions == 0 => now_ms.saturating_sub(ttl),
        _ => i64::MIN,
    };
    for file in &view.files {
        if file_is_wanted(file, single_row, wanted, time_range, oldest, scan.raw, mode)? {
            let newest = if file.max_cell_seq > read_point { read_point } else { u64::MAX };
            let cache = scan.cache_blocks && store.family.block_cache();
            sources.push(Source::File { scanner: file.hfile.scanner(mode, cache), read_point: newest });
        }
    }
    let matcher =
        Matcher::user(store.keeping, wanted, scan.max_versions, time_range, scan.raw, has_filter, now_ms);
    let heap = Heap::new(store.comparator, sources);
    Ok(StoreScanner::new(heap, matcher, scan.reversed, scan.store_limit, scan.store_offset))
}

fn file_is_wanted(
    file: &StoreFile,
    single_row: Option<&bytes::Bytes>,
    wanted: Option<&std::collections::BTreeSet<bytes::Bytes>>,
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
