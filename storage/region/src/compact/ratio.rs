//! Minor compactions by size: the ratio-based rule, and the exploring one that grew out of it. Both choose a run of
//! adjacent files.

use std::ops::Range;

use super::settings::CompactionPolicy;
use super::state::{FileState, Limits};

/// How much better a run must be, in files for each byte, to take the place of an earlier one in a stuck store.
const BETTER_BY: f64 = 1.05;

/// Indices of the files that the policy chooses by their sizes; one that is not by size chooses as the exploring one.
pub(super) fn by_size(policy: CompactionPolicy, files: &[FileState], limits: &Limits) -> Vec<usize> {
    let run = match policy {
        CompactionPolicy::RatioBased => ratio_based(files, limits),
        _ => exploring(files, limits),
    };
    run.collect()
}

/// Of all runs whose members are alike in size the one with the most files, and of those the smallest. In a stuck
/// store the one that removes most files for its bytes; and if none is alike, the smallest.
pub(super) fn exploring(files: &[FileState], limits: &Limits) -> Range<usize> {
    let mut best: Option<(Range<usize>, u64)> = None;
    let mut smallest: Option<(Range<usize>, u64)> = None;
    let files_min = limits.files_min.max(1);
    for start in 0..files.len() {
        let longest = files.len().min(start.saturating_add(limits.files_max));
        for end in start + files_min..=longest {
            let run = &files[start..end];
            let size: u64 = run.iter().map(|file| file.len_bytes).sum();
            if limits.stuck && smallest.as_ref().is_none_or(|(_, least)| size < *least) {
                smallest = Some((start..end, size));
            }
            if size > limits.max_size_bytes {
                continue;
            }
            if size >= limits.min_size_bytes && !are_alike(run, size, limits.ratio) {
                continue;
            }
            let is_better = match &best {
                None => true,
                Some((best, best_size)) if limits.stuck && *best_size > 0 && size > 0 => {
                    let quality = best.len() as f64 / *best_size as f64 * BETTER_BY;
                    quality < run.len() as f64 / size as f64
                }
                Some((best, best_size)) => {
                    run.len() > best.len() || (run.len() == best.len() && size < *best_size)
                }
            };
            if is_better {
                best = Some((start..end, size));
            }
        }
    }
    let run = best.or(smallest).map_or(0..0, |(run, _)| run);
    assert!(
        run.is_empty() || (run.len() >= files_min && run.len() <= limits.files_max && run.end <= files.len()),
        "a run of {files_min} to {} files of {}: {run:?}",
        limits.files_max,
        files.len()
    );
    run
}

/// No file is larger than `ratio` times all the others together (`filesInRatio`).
fn are_alike(run: &[FileState], total: u64, ratio: f64) -> bool {
    run.len() < 2 || run.iter().all(|file| file.len_bytes as f64 <= (total - file.len_bytes) as f64 * ratio)
}

/// The first file that is small, or not larger than `ratio` times the newer ones, and all newer ones.
pub(super) fn ratio_based(files: &[FileState], limits: &Limits) -> Range<usize> {
    let count = files.len();
    let files_min = limits.files_min.max(1);
    let sum_of_newer = |start: usize| -> u64 {
        let end = count.min(start.saturating_add(limits.files_max));
        files[start + 1..end.max(start + 1)].iter().map(|file| file.len_bytes).sum()
    };
    let mut start = 0;
    while count - start >= files_min && start < count {
        let of_newer = (sum_of_newer(start) as f64 * limits.ratio) as u64;
        if files[start].len_bytes <= limits.min_size_bytes.max(of_newer) {
            break;
        }
        start += 1;
    }
    // A stuck store would be left with too few: then its newest files are taken, whatever their sizes.
    if count - start < files_min && limits.stuck && count >= files_min {
        start = count - files_min;
    }
    start..count
}
