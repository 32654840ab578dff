//! Writes that read before they write: Increments, Appends, conditions, deletes of the newest version.
//!
//! They hold their rows while they read, and other writes wait for these rows: each stands for many others of its stripe. So what they
//! read is brought into the cache before the rows are locked. Under the lock it is read from memory; when it is gone again by
//! then, once more. Only what does not stay in the cache is read from the disk under the lock.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use halcyon_cell::{ErrorKind, Result};
use halcyon_filter::parse_filter;

use crate::api::{Condition, ConditionTest, Mutation, NextState, ReadMode, Scan, ScanLimits};
use crate::read::Visible;
use crate::region::Region;
use crate::row_lock::RowWait;
use crate::write::is_newest_version_delete;

/// How often blocks are brought into the cache before the disk is read under the lock.
pub(crate) const ROUNDS: usize = 3;
/// Bytes of cells that are read into the cache at a time.
const STEP_BYTES: i64 = 1 << 20;

/// One attempt at a write.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    pub mode: ReadMode,
    pub wait: RowWait,
    /// There is none behind it.
    pub is_last: bool,
}

impl Attempt {
    pub fn only(mode: ReadMode) -> Attempt {
        Attempt { mode, wait: RowWait::of(mode), is_last: true }
    }
}

impl Region {
    /// Carries out a write that reads first. `read_ahead` brings what it reads into the cache. `attempt` has done nothing when it ends
    /// with `NeedsDisk`. What is not in the cache after `rounds_max` rounds is read under the lock.
    pub(crate) fn reading_first<T>(
        &self,
        mode: ReadMode,
        rounds_max: usize,
        read_ahead: impl Fn(),
        mut attempt: impl FnMut(Attempt) -> Result<T>,
    ) -> Result<T> {
        let last = Attempt::only(mode);
        if mode == ReadMode::CacheOnly {
            return attempt(last);
        }
        let all_cached = self.stores.iter().all(|store| store.family.block_cache());
        let rounds = if all_cached { rounds_max } else { 1 };
        for _ in 0..rounds {
            match attempt(Attempt { mode: ReadMode::CacheOnly, is_last: false, ..last }) {
                Err(error) if error.kind() == ErrorKind::NeedsDisk => {}
                done => return done,
            }
            read_ahead();
        }
        attempt(last)
    }

    /// Reads what a write will read, from the disk if need be, while its rows are not locked. What fails here fails again under the
    /// lock, and is told then.
    pub(crate) fn read_into_cache(&self, scans: Vec<Scan>) {
        self.read_each_into_cache(scans.into_iter());
    }

    /// As [`Region::read_into_cache`]. Each scan is made when the one before it has ended: filters of conditions may be large.
    pub(crate) fn read_each_into_cache(&self, scans: impl Iterator<Item = Scan>) {
        for scan in scans {
            _ = self.read_through(scan);
        }
    }

    fn read_through(&self, scan: Scan) -> Result<()> {
        let mut scanner = self.scanner_at(None, scan, ReadMode::AnyDisk, Visible::Published)?;
        let (mut cells, mut state) = (Vec::new(), NextState::RowDone);
        // A row with more than that cannot be read as a whole.
        let mut bytes_left = i64::try_from(self.services.settings.row_bytes_max).unwrap_or(i64::MAX);
        while state != NextState::Exhausted && bytes_left >= 0 {
            let mut limits = ScanLimits { size_bytes_left: STEP_BYTES, may_cut_row: true, deadline_ns: None };
            state = scanner.next(&mut limits, &mut cells)?;
            bytes_left = bytes_left.saturating_sub(STEP_BYTES.saturating_sub(limits.size_bytes_left));
            cells.clear();
        }
        Ok(())
    }
}

/// The columns that an Increment or Append changes.
pub(crate) fn scan_of_columns(mutation: &Mutation) -> Scan {
    let mut scan = Scan::of_row(mutation.row.clone());
    scan.time_range = mutation.time_range;
    for cell in &mutation.cells {
        add_column(&mut scan, cell.family(), cell.qualifier());
    }
    scan
}

/// What carrying out the mutation reads; `None`: nothing.
pub(crate) fn scan_of_mutation(mutation: &Mutation) -> Option<Scan> {
    if mutation.kind.returns_cells() {
        return Some(scan_of_columns(mutation));
    }
    let mut scan = Scan::of_row(mutation.row.clone());
    // Of a column as many versions as it has deletes: the first is of the newest one, the second of the next one.
    let mut deletes: HashMap<(&[u8], &[u8]), u32> = HashMap::new();
    for cell in mutation.cells.iter().filter(|cell| is_newest_version_delete(cell)) {
        let count = deletes.entry((cell.family(), cell.qualifier())).or_default();
        *count += 1;
        scan.max_versions = scan.max_versions.max(*count);
        add_column(&mut scan, cell.family(), cell.qualifier());
    }
    (!scan.families.is_empty()).then_some(scan)
}

/// What a condition looks at: with its filter, which passes over most of many rows, and ends at the limit for one row.
pub(crate) fn scan_of_condition(condition: &Condition) -> Scan {
    let mut scan = Scan::of_row(condition.row.clone());
    scan.time_range = condition.time_range;
    match &condition.test {
        ConditionTest::Column { family, qualifier, .. } => add_column(&mut scan, family, qualifier),
        ConditionTest::Filter(filter) => scan.filter = parse_filter(filter).ok(), // its attempt has told of an error
    }
    scan
}

fn add_column(scan: &mut Scan, family: &[u8], qualifier: &[u8]) {
    let wanted = scan.families.entry(Bytes::copy_from_slice(family)).or_insert_with(|| Some(BTreeSet::new()));
    if let Some(wanted) = wanted {
        wanted.insert(Bytes::copy_from_slice(qualifier));
    }
}
