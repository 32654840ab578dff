//! Date-tiered compaction: cells of like age in one file, so that a scan of a range of time reads few files and
//! expired files go as a whole.
//!
//! ```text
//! time   ------------------------------------------------------------> now
//!        [        tier 2        ][  tier 1 ][  tier 1 ][ base ][ base ]
//! ```
//!
//! Time is cut into windows, the newest of the base length; after some windows of a length the next ones are as many
//! times longer. A minor compaction takes files of one window, a major one all, and writes a file for each window
//! that has cells (HBase: `DateTieredCompactionPolicy`, `ExponentialCompactionWindowFactory`).

use std::cmp::Ordering;

use super::ratio;
use super::state::{FileState, StoreState, has_expired_cells};

/// Files that one compaction writes at most; what is older than so many windows shares one.
const OUTPUTS_COUNT_MAX: usize = 64;
/// Windows that a selection looks at; older files stay as they are.
const WINDOWS_COUNT_MAX: usize = 100_000;

/// A range of timestamps: all that give `position` when divided by `len_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    len_ms: i64,
    position: i64,
    windows_per_tier: i64,
    /// Windows before this time do not grow.
    cutoff_ms: i64,
}

impl Window {
    /// The one that now belongs to.
    fn incoming(store: &StoreState<'_>) -> Window {
        let settings = &store.settings.date_tiered;
        let tier_age_max_ms = settings.tier_age_max_ms.unwrap_or(settings.file_age_max_ms);
        Window {
            len_ms: settings.base_window_ms,
            position: store.now_ms.div_euclid(settings.base_window_ms),
            windows_per_tier: settings.windows_per_tier,
            cutoff_ms: store.now_ms.checked_sub(tier_age_max_ms).unwrap_or(i64::MIN),
        }
    }

    /// Greater: the window is later than the timestamp.
    fn compare(&self, timestamp: i64) -> Ordering {
        self.position.cmp(&timestamp.div_euclid(self.len_ms))
    }

    fn start_ms(&self) -> i64 {
        self.len_ms.checked_mul(self.position).unwrap_or(i64::MIN)
    }

    fn earlier(&self) -> Window {
        let earlier = self.one_before();
        assert!(
            earlier.start_ms() < self.start_ms() || earlier.start_ms() == i64::MIN,
            "windows are walked until the oldest cell: {earlier:?} does not come before {self:?}"
        );
        earlier
    }

    fn one_before(&self) -> Window {
        let longer_ms = self.len_ms.checked_mul(self.windows_per_tier);
        let stays = self.position % self.windows_per_tier > 0
            || longer_ms.is_none_or(|longer_ms| self.start_ms().saturating_sub(longer_ms) < self.cutoff_ms);
        match longer_ms {
            Some(len_ms) if !stays => {
                Window { len_ms, position: self.position / self.windows_per_tier - 1, ..*self }
            }
            _ => Window { position: self.position - 1, ..*self },
        }
    }
}

/// Files of the newest window that has enough of them, and where the output is cut.
///
/// Files are looked at from the newest on. One that holds older cells than a file before it counts as if it held
/// the newest of those, so that what is merged always is adjacent by sequence id.
pub(super) fn select_minor(
    store: &StoreState<'_>,
    files: &[FileState],
    files_min: usize,
    stuck: bool,
) -> (Vec<usize>, Vec<i64>) {
    let settings = &store.settings.date_tiered;
    let oldest_ms = store.now_ms.checked_sub(settings.file_age_max_ms).unwrap_or(i64::MIN);
    let mut newest_so_far = i64::MIN;
    let newest: Vec<i64> = files
        .iter()
        .map(|file| {
            newest_so_far = newest_so_far.max(file.time_range.map_or(i64::MIN, |(_, newest)| newest));
            newest_so_far
        })
        .collect();
    let mut window = Window::incoming(store);
    let mut enough = settings.incoming_files_min.max(1);
    let mut end = files.len();
    for _ in 0..WINDOWS_COUNT_MAX {
        if end == 0 || window.compare(oldest_ms) == Ordering::Less {
            break;
        }
        if newest[end - 1] == i64::MIN {
            break; // nothing is known of the times of this file and all older ones
        }
        if window.compare(newest[end - 1]) == Ordering::Greater {
            window = window.earlier();
            enough = files_min;
            continue;
        }
        // Cells from the future count as of the newest window.
        let start = newest[..end].partition_point(|&newest| window.compare(newest) == Ordering::Greater);
        let of_window = &files[start..end];
        if of_window.len() >= enough {
            let chosen = if stuck {
                (0..of_window.len()).collect()
            } else {
                ratio::by_size(store.settings.window_policy(), of_window, &store.limits(enough, false))
            };
            if !chosen.is_empty() {
                let single = settings.single_output || chosen.len() != of_window.len();
                let boundaries = if single { vec![i64::MIN] } else { vec![i64::MIN, window.start_ms()] };
                return (chosen.into_iter().map(|at| start + at).collect(), boundaries);
            }
        }
        end = start;
    }
    (Vec::new(), vec![i64::MIN])
}

/// The starts of all windows back to the oldest cell.
pub(super) fn boundaries_for_major(store: &StoreState<'_>, files: &[FileState]) -> Vec<i64> {
    let oldest = files.iter().filter_map(|file| file.time_range).map(|(oldest, _)| oldest).min();
    let mut boundaries = Vec::new();
    let mut window = Window::incoming(store);
    while boundaries.len() < OUTPUTS_COUNT_MAX - 1
        && oldest.is_some_and(|oldest| window.compare(oldest) == Ordering::Greater)
    {
        boundaries.push(window.start_ms());
        window = window.earlier();
    }
    boundaries.push(i64::MIN);
    boundaries.reverse();
    boundaries
}

/// Whether the files are not yet one for each window, all of them written by major compactions and without expired
/// cells.
pub(super) fn is_major_useful(store: &StoreState<'_>, files: &[FileState]) -> bool {
    let boundaries = boundaries_for_major(store, files);
    let mut is_taken = vec![false; boundaries.len()];
    let place = |timestamp: i64| boundaries.partition_point(|&start| start <= timestamp).saturating_sub(1);
    for file in files {
        if has_expired_cells(store, file) || !file.major || file.bulk_loaded {
            return true;
        }
        let (oldest, newest) = file.time_range.unwrap_or((i64::MAX, i64::MAX));
        let window = place(newest);
        if place(oldest) != window || std::mem::replace(&mut is_taken[window], true) {
            return true;
        }
    }
    false
}
