//! The first reading: all entries of all ranges, before anything is written.
//!
//! It finds damaged files, entries that HBase cannot have, and what the table has to be. It also leaves the sums by which the
//! table is compared at the end, so the source is not read a third time then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_client::Cell;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::files::Damages;
use crate::mapping::{Mapper, Mapping, Refusal};
use crate::merge::{Entries, LeftOut, ReadError};
use crate::progress::Progress;
use crate::rfile::Key;
use crate::source::Source;
use crate::state::Range;
use crate::sum::{RowSums, Sum};

/// Visibility expressions that are counted; more are many.
const VISIBILITIES_MAX: usize = 1000;

/// What was found in ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) left_out: LeftOut,
    /// Entries without a cell: how many, and the first.
    pub(crate) refusals: BTreeMap<Refusal, (u64, String)>,
    pub(crate) families: BTreeSet<Bytes>,
    pub(crate) visibilities: BTreeSet<Vec<u8>>,
    pub(crate) with_visibility: u64,
    /// The highest number of versions of a column.
    pub(crate) versions: u64,
    pub(crate) longest_value: usize,
}

impl Findings {
    fn add(&mut self, other: Findings) {
        self.left_out.add(other.left_out);
        for (refusal, (count, example)) in other.refusals {
            self.refusals.entry(refusal).or_insert((0, example)).0 += count;
        }
        self.families.extend(other.families);
        self.visibilities.extend(other.visibilities);
        self.with_visibility += other.with_visibility;
        self.versions = self.versions.max(other.versions);
        self.longest_value = self.longest_value.max(other.longest_value);
    }
}

/// Reads entries and adds up what there is, without a target.
#[derive(Default)]
struct RangeCheck {
    findings: Findings,
    sum: Sum,
    rows: RowSums,
    previous: Option<Cell>,
    versions: u64,
}

impl RangeCheck {
    fn read(
        mut self,
        entries: &mut dyn Entries,
        mapping: &Mapping,
        progress: &Progress,
    ) -> Result<RangeCheck, ReadError> {
        let mut mapper = Mapper::new(mapping);
        while entries.next()? {
            let (key, value) = (entries.key(), entries.value());
            if !key.visibility.is_empty() {
                self.visibility(key);
            }
            self.findings.longest_value = self.findings.longest_value.max(value.len());
            match mapper.map(key, value) {
                Ok(cell) => self.cell(cell, progress),
                Err(refusal) => {
                    let found = self.findings.refusals.entry(refusal);
                    found.or_insert_with(|| (0, shown(key))).0 += 1;
                }
            }
        }
        if let Some(row) = self.rows.finish() {
            self.sum.add(&row.sum);
        }
        self.findings.left_out = entries.left_out();
        Ok(self)
    }

    fn visibility(&mut self, key: &Key) {
        let known = &mut self.findings.visibilities;
        self.findings.with_visibility += 1;
        if known.len() < VISIBILITIES_MAX && !known.contains(&key.visibility) {
            known.insert(key.visibility.clone());
        }
    }

    fn cell(&mut self, cell: Cell, progress: &Progress) {
        let is_same_column = self.previous.as_ref().is_some_and(|previous| {
            previous.qualifier() == cell.qualifier()
                && previous.row() == cell.row()
                && previous.family() == cell.family()
        });
        self.versions = if is_same_column { self.versions + 1 } else { 1 };
        self.findings.versions = self.findings.versions.max(self.versions);
        if !self.findings.families.contains(cell.family()) {
            self.findings.families.insert(Bytes::copy_from_slice(cell.family()));
        }
        progress.add(0, 1, cell.bytes().len() as u64);
        if let Some(row) = self.rows.add(&cell) {
            progress.add(1, 0, 0);
            self.sum.add(&row.sum);
        }
        self.previous = Some(cell);
    }
}

/// A key for a person.
pub(crate) fn shown(key: &Key) -> String {
    const BYTES_MAX: usize = 200;
    let text = |bytes: &[u8]| {
        let end = if bytes.len() > BYTES_MAX { "..." } else { "" };
        format!("{}{end}", bytes[..bytes.len().min(BYTES_MAX)].escape_ascii())
    };
    let (row, family) = (text(&key.row), text(&key.family));
    format!("'{row}' {family}:{} [{}] {}", text(&key.qualifier), text(&key.visibility), key.timestamp)
}

/// Reads all ranges, and sets their sums. Damaged files are noted.
pub(crate) async fn check(
    source: &Arc<Source>,
    mapping: &Arc<Mapping>,
    ranges: Vec<Range>,
    threads: usize,
    progress: &Arc<Progress>,
    damages: &Arc<Damages>,
) -> Result<(Vec<Range>, Findings), String> {
    let next = Arc::new(AtomicUsize::new(0));
    let found = Arc::new(Mutex::new((ranges.clone(), Findings::default())));
    let ranges = Arc::new(ranges);
    let mut tasks = JoinSet::new();
    for _ in 0..threads.min(ranges.len()) {
        let (source, mapping, progress) = (Arc::clone(source), Arc::clone(mapping), Arc::clone(progress));
        let (next, found, ranges, damages) =
            (Arc::clone(&next), Arc::clone(&found), Arc::clone(&ranges), Arc::clone(damages));
        tasks.spawn_blocking(move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(range) = ranges.get(number) else { return Ok(()) };
                let read = source
                    .entries(range)
                    .and_then(|mut entries| RangeCheck::default().read(&mut *entries, &mapping, &progress));
                match read {
                    Ok(checked) => {
                        let mut found = found.lock();
                        found.0[number].sum = Some(checked.sum);
                        found.1.add(checked.findings);
                    }
                    Err(error) => damages.note(error)?,
                }
                progress.range_done();
            }
        });
    }
    progress.watch("check", ranges.len(), &mut tasks).await?;
    drop(tasks);
    let found = found.lock();
    Ok((found.0.clone(), found.1.clone()))
}
