//! Which files of a store are compacted (HBase: `SortedCompactionPolicy` and the policies below it).

use super::date_tiered;
use super::ratio::{self, Limits};
use super::run::CompactionRequest;
use super::settings::{CompactionPolicy, CompactionSettings};
use super::stripe;
use crate::store::{Cut, RowSpan, Stripes};

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

    fn files_min(&self) -> usize {
        self.settings.files_min.max(2)
    }

    pub(super) fn stripe_files_min(&self) -> usize {
        self.settings.stripes.files_min(self.settings.files_min)
    }

    pub(super) fn stripe_files_max(&self) -> usize {
        self.settings.stripes.files_max(self.settings.files_max)
    }

    pub(super) fn by_size(
        &self,
        policy: CompactionPolicy,
        files: &[FileState],
        limits: &Limits,
    ) -> Vec<usize> {
        let run = match policy {
            CompactionPolicy::RatioBased => ratio::ratio_based(files, limits),
            _ => ratio::exploring(files, limits),
        };
        run.collect()
    }
}

impl Selection {
    /// What holds of the choice of every policy.
    fn check(&self, store: &StoreState<'_>) {
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

/// Chooses files by the store's policy; `None`: nothing is to be done.
pub(crate) fn select(store: &StoreState<'_>, request: CompactionRequest) -> Option<Selection> {
    let selection = match store.policy {
        CompactionPolicy::Stripe => stripe::select(store, request),
        _ => select_files(store, request),
    }?;
    selection.check(store);
    Some(selection)
}

/// A major compaction that a user asked for takes all files. One that is due, or asked for by the server, becomes
/// a minor one if there are too many files or too large ones. After a split or merge everything is taken, so that
/// no reference is left.
fn select_files(store: &StoreState<'_>, request: CompactionRequest) -> Option<Selection> {
    let count = store.files.len();
    let is_after_split = store.files.iter().any(|file| file.reference);
    if store.policy == CompactionPolicy::Fifo && !is_after_split {
        return None; // nothing is rewritten; files go when they have expired
    }
    let stuck = count >= store.settings.blocking_files_count;
    let skipped = if request.major { 0 } else { too_large(store) };
    let candidates = &store.files[skipped..];
    if candidates.is_empty() {
        return None;
    }
    let has_all = skipped == 0;
    let forced = request.major && has_all;
    let major = (forced && request.user)
        || ((forced || is_major_due(store, candidates)) && candidates.len() < store.settings.files_max);
    let (mut chosen, boundaries) = if major || is_after_split {
        let boundaries = match store.policy {
            CompactionPolicy::DateTiered => date_tiered::boundaries_for_major(store, candidates),
            _ => vec![i64::MIN],
        };
        ((0..candidates.len()).collect(), boundaries)
    } else {
        select_minor(store, candidates, stuck)
    };
    if !(major && request.user) {
        chosen.truncate(store.settings.files_max);
    }
    if chosen.is_empty() {
        return None;
    }
    let all = chosen.len() == count;
    let drops = if all { Drops::Everything } else { Drops::Nothing };
    assert!(
        major && request.user || chosen.len() <= store.settings.files_max,
        "a compaction that nobody asked for reads at most {} files at a time",
        store.settings.files_max
    );
    let files = chosen.into_iter().map(|at| at + skipped).collect();
    Some(Selection { files, all, cut: Cut::AtTimes(boundaries), drops })
}

fn select_minor(store: &StoreState<'_>, candidates: &[FileState], stuck: bool) -> (Vec<usize>, Vec<i64>) {
    if store.policy == CompactionPolicy::DateTiered {
        return date_tiered::select_minor(store, candidates, store.files_min(), stuck);
    }
    let (places, files): (Vec<usize>, Vec<FileState>) =
        candidates.iter().cloned().enumerate().filter(|(_, file)| !file.major_only).unzip();
    let limits = store.limits(store.files_min(), stuck);
    let mut chosen = store.by_size(store.policy, &files, &limits);
    if chosen.len() < limits.files_min {
        chosen.clear();
    }
    (chosen.into_iter().map(|at| places[at]).collect(), vec![i64::MIN])
}

/// Number of oldest files that are too large for minor compactions.
fn too_large(store: &StoreState<'_>) -> usize {
    let max_bytes = store.max_size_bytes();
    store.files.iter().take_while(|file| !file.reference && file.len_bytes > max_bytes).count()
}

/// Whether the period since the oldest of the files was written is over, and a major compaction would change
/// something (`shouldPerformMajorCompaction`).
///
/// HBase leaves a single file that no major compaction wrote as it is; here it is taken, as its markers can go.
fn is_major_due(store: &StoreState<'_>, files: &[FileState]) -> bool {
    let written_ms = files.iter().map(|file| file.created_ms).min().unwrap_or(0);
    let is_over = store.major_period_ms > 0
        && written_ms > 0
        && written_ms < store.now_ms.saturating_sub(store.major_period_ms);
    if !is_over {
        return false;
    }
    if store.policy == CompactionPolicy::DateTiered {
        return date_tiered::is_major_useful(store, files);
    }
    match files {
        [file] => !file.major || has_expired_cells(store, file),
        _ => true,
    }
}

/// Whether a cell of the file has expired.
pub(super) fn has_expired_cells(store: &StoreState<'_>, file: &FileState) -> bool {
    let (Some(ttl_ms), Some((oldest, _))) = (store.file_ttl_ms, file.time_range) else { return false };
    store.now_ms.saturating_sub(oldest) > ttl_ms
}
