//! What is asked, what selection looks at, and what it answers. No file is touched, and nothing is decided here.

use super::settings::{CompactionPolicy, CompactionSettings};
use crate::keeping::RowSpan;
use crate::store::{Cut, Stripes};

/// What somebody asks for. The default: whatever the policy finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// All files of the store, markers dropped.
    pub major: bool,
    /// A user asked: a major compaction takes all files, however many and large they are.
    pub user: bool,
}

/// By what the two rules choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub files_min: usize,
    pub files_max: usize,
    pub ratio: f64,
    /// Runs below this size need not be alike.
    pub min_size_bytes: u64,
    pub max_size_bytes: u64,
    /// The store has so many files that any compaction is better than none.
    pub stuck: bool,
}

/// What selection looks at in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FileState {
    pub len_bytes: u64,
    pub entries: u64,
    /// Left out of minor compactions (`EXCLUDE_FROM_MINOR_COMPACTION`).
    pub major_only: bool,
    /// Stands for rows of another region's file, which can go when nothing refers to it.
    pub reference: bool,
    /// Written by a compaction of all files.
    pub major: bool,
    pub bulk_loaded: bool,
    pub created_ms: i64,
    /// Smallest and largest timestamp, inclusive; `None`: not known, or no cells.
    pub time_range: Option<(i64, i64)>,
    /// Of a striped store; `None`: level 0.
    pub stripe: Option<usize>,
}

/// What selection knows of a store.
pub(crate) struct StoreState<'a> {
    /// Oldest first: by sequence id, then by largest timestamp.
    pub files: &'a [FileState],
    pub settings: &'a CompactionSettings,
    pub policy: CompactionPolicy,
    pub stripes: &'a Stripes,
    pub now_ms: i64,
    pub hour_of_day: i64,
    /// Age at which a file's cells may be forgotten; `None`: for ever, or the family has `MIN_VERSIONS`.
    pub file_ttl_ms: Option<i64>,
    /// This store's period of major compactions, its variation included; 0: only on demand.
    pub major_period_ms: i64,
    pub flush_size_bytes: u64,
}

/// What is to be merged, and into what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Indices into the files given, ascending.
    pub files: Vec<usize>,
    /// Nothing of the store is left out.
    pub all: bool,
    /// And that was wanted. One that only happens to take all files counts as a minor one
    /// (`SortedCompactionPolicy.selectCompaction`).
    pub major: bool,
    pub cut: Cut,
    pub drops: Drops,
}

/// Of which rows nothing in files is left out, so that delete markers can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Drops {
    Nothing,
    Rows(RowSpan),
    Everything,
}

impl StoreState<'_> {
    pub(super) fn is_off_peak(&self) -> bool {
        self.settings.off_peak.contains(self.hour_of_day)
    }

    pub(super) fn limits(&self, files_min: usize, stuck: bool) -> Limits {
        let settings = self.settings;
        let off_peak = self.is_off_peak();
        Limits {
            files_min,
            files_max: settings.files_max,
            ratio: if off_peak { settings.ratio_offpeak } else { settings.ratio },
            min_size_bytes: settings.min_size_bytes.unwrap_or(self.flush_size_bytes),
            max_size_bytes: self.max_size_bytes(),
            stuck,
        }
    }

    pub(super) fn max_size_bytes(&self) -> u64 {
        match self.settings.max_size_offpeak_bytes {
            Some(bytes) if self.is_off_peak() => bytes,
            _ => self.settings.max_size_bytes,
        }
    }

    pub(super) fn files_min(&self) -> usize {
        self.settings.files_min.max(2)
    }

    pub(super) fn stripe_files_min(&self) -> usize {
        self.settings.stripes.files_min(self.settings.files_min)
    }

    pub(super) fn stripe_files_max(&self) -> usize {
        self.settings.stripes.files_max(self.settings.files_max)
    }
}

impl Selection {
    /// What holds of the choice of every policy.
    pub(super) fn check(&self, store: &StoreState<'_>) {
        assert!(
            self.files.is_sorted_by(|a, b| a < b)
                && self.files.last().is_some_and(|&at| at < store.files.len()),
            "a selection names files of the store, oldest first and each once: {:?} of {}",
            self.files,
            store.files.len()
        );
        assert!(
            self.all == (self.files.len() == store.files.len())
                && (self.all || self.drops != Drops::Everything),
            "markers go only where no file is left out that has cells which they hide"
        );
        assert!(self.all || !self.major, "a major compaction leaves out no file");
        let is_chosen = |at: &usize| self.files.binary_search(at).is_ok();
        let left_out: Vec<usize> = (0..store.files.len()).filter(|at| !is_chosen(at)).collect();
        for &at in &left_out {
            let file = &store.files[at];
            if let Drops::Rows(span) = &self.drops {
                let stripe = file.stripe.map(|stripe| store.stripes.span(stripe));
                assert!(
                    stripe.is_some_and(|stripe| are_apart(&stripe, span)),
                    "markers of {span:?} go, and file {at} is left out, which has rows of it"
                );
            }
            let mut alike = self.files.iter().filter(|&&chosen| store.files[chosen].stripe == file.stripe);
            let is_between = alike.clone().any(|&chosen| chosen < at) && alike.any(|&chosen| chosen > at);
            assert!(
                !is_between || file.major_only,
                "file {at} is passed over by one that counts as newer and has older cells: {:?}",
                self.files
            );
        }
    }
}

/// Whether no row is in both.
fn are_apart(a: &RowSpan, b: &RowSpan) -> bool {
    let ends_before = |a: &RowSpan, b: &RowSpan| !a.1.is_empty() && a.1 <= b.0;
    ends_before(a, b) || ends_before(b, a)
}

/// Whether a cell of the file has expired.
pub(super) fn has_expired_cells(store: &StoreState<'_>, file: &FileState) -> bool {
    let (Some(ttl_ms), Some((oldest, _))) = (store.file_ttl_ms, file.time_range) else { return false };
    store.now_ms.saturating_sub(oldest) > ttl_ms
}
