//! Which files of a store are compacted (HBase: `SortedCompactionPolicy` and the policies below it).

use super::settings::CompactionPolicy;
use super::state::{CompactionRequest, Drops, FileState, Selection, StoreState, has_expired_cells};
use super::{date_tiered, ratio, stripe};
use crate::store::Cut;

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
    Some(Selection { files, all, major: major && all, cut: Cut::AtTimes(boundaries), drops })
}

fn select_minor(store: &StoreState<'_>, candidates: &[FileState], stuck: bool) -> (Vec<usize>, Vec<i64>) {
    if store.policy == CompactionPolicy::DateTiered {
        return date_tiered::select_minor(store, candidates, store.files_min(), stuck);
    }
    let (places, files): (Vec<usize>, Vec<FileState>) =
        candidates.iter().cloned().enumerate().filter(|(_, file)| !file.major_only).unzip();
    let limits = store.limits(store.files_min(), stuck);
    let mut chosen = ratio::by_size(store.policy, &files, &limits);
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
