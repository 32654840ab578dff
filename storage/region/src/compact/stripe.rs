//! Stripe compaction: like exploring compaction in each stripe by itself, so that no compaction has to take all of a
//! large store (HBase: `StripeCompactionPolicy`).
//!
//! Looked for in this order: level 0 with enough files goes into the stripes, with a stripe that is to be compacted
//! whole if there is one, as its markers can go then; stripes of which everything has expired become one; files alike
//! in size of one stripe become one, or the stripe is divided if it was taken whole and is large.

use bytes::Bytes;

use super::ratio;
use super::state::{CompactionRequest, Drops, FileState, Selection, StoreState};
use crate::store::Cut;

/// Stripes that one compaction makes at most.
pub(super) const STRIPES_COUNT_MAX: usize = 256;

/// Chooses files of a striped store; `None`: nothing is to be done. There are no major compactions by period. One that
/// a user asks for takes all files and keeps the stripes; HBase knows none at all.
pub(super) fn select(store: &StoreState<'_>, request: CompactionRequest) -> Option<Selection> {
    let files = store.files;
    if files.is_empty() {
        return None;
    }
    let everything = || (0..files.len()).collect();
    if files.iter().any(|file| file.reference) {
        return Some(into_new_stripes(store, everything()));
    }
    let striped = store.stripes.count();
    if request.major && request.user {
        if striped == 0 {
            return Some(Selection { major: true, ..into_new_stripes(store, everything()) });
        }
        let cut = Cut::AtRows { starts: store.stripes.starts().to_vec(), always: 0..striped };
        return Some(Selection {
            files: everything(),
            all: true,
            major: true,
            cut,
            drops: Drops::Everything,
        });
    }
    let level0 = files_of(store, None);
    let settings = &store.settings.stripes;
    let level0_is_due = level0.len() >= settings.level0_files_min.max(1) || has_all_expired(store, &level0);
    if striped == 0 {
        return level0_is_due.then(|| level0_only(store, level0));
    }
    if level0_is_due {
        let is_too_much = level0_is_too_much(store, &level0);
        return single_stripe(store, &level0, !is_too_much).or_else(|| Some(level0_only(store, level0)));
    }
    expired_stripes(store, &level0).or_else(|| single_stripe(store, &level0, false))
}

/// Indices of a stripe's files, or of level 0's.
fn files_of(store: &StoreState<'_>, stripe: Option<usize>) -> Vec<usize> {
    (0..store.files.len()).filter(|&at| store.files[at].stripe == stripe).collect()
}

fn size_of(store: &StoreState<'_>, files: &[usize]) -> u64 {
    files.iter().map(|&at| store.files[at].len_bytes).sum()
}

fn has_expired(store: &StoreState<'_>, file: &FileState) -> bool {
    let Some(ttl_ms) = store.file_ttl_ms else { return false };
    let newest = file.time_range.map_or(i64::MIN, |(_, newest)| newest);
    newest < store.now_ms.saturating_sub(ttl_ms)
}

fn has_all_expired(store: &StoreState<'_>, files: &[usize]) -> bool {
    !files.is_empty() && files.iter().all(|&at| has_expired(store, &store.files[at]))
}

fn level0_is_too_much(store: &StoreState<'_>, level0: &[usize]) -> bool {
    level0.len() > store.stripe_files_max() || size_of(store, level0) > store.max_size_bytes()
}

/// All given files into stripes that are made of them.
fn into_new_stripes(store: &StoreState<'_>, files: Vec<usize>) -> Selection {
    let (cells, count_max) = parts_of(store, &files, store.settings.stripes.initial_count as f64);
    let all = files.len() == store.files.len();
    let cut = Cut::BySize { span: (Bytes::new(), Bytes::new()), cells, count_max };
    Selection { files, all, major: false, cut, drops: if all { Drops::Everything } else { Drops::Nothing } }
}

/// Level 0 into the stripes that there are, or into new ones.
fn level0_only(store: &StoreState<'_>, level0: Vec<usize>) -> Selection {
    let files = if level0_is_too_much(store, &level0) { some_of_level0(store, &level0) } else { level0 };
    if store.stripes.count() == 0 {
        return into_new_stripes(store, files);
    }
    let cut = Cut::AtRows { starts: store.stripes.starts().to_vec(), always: 0..0 };
    Selection { files, all: false, major: false, cut, drops: Drops::Nothing }
}

/// Files alike in size, or else the oldest up to the limits.
fn some_of_level0(store: &StoreState<'_>, level0: &[usize]) -> Vec<usize> {
    let alike = alike_in_size(store, level0, store.stripe_files_min());
    if !alike.is_empty() {
        return alike;
    }
    let mut size = 0;
    let fits = |&&at: &&usize| {
        let has_room = size < store.max_size_bytes();
        size += store.files[at].len_bytes;
        has_room
    };
    level0.iter().take(store.stripe_files_max().max(1)).take_while(fits).copied().collect()
}

fn alike_in_size(store: &StoreState<'_>, files: &[usize], files_min: usize) -> Vec<usize> {
    let states: Vec<FileState> = files.iter().map(|&at| store.files[at].clone()).collect();
    let mut limits = store.limits(files_min, false);
    limits.files_max = store.stripe_files_max().max(files_min);
    let run = ratio::exploring(&states, &limits);
    if run.len() < files_min { Vec::new() } else { files[run].to_vec() }
}

/// The stripe with the best selection. `with_level0`: only whole stripes, which all of level 0 comes along with.
fn single_stripe(store: &StoreState<'_>, level0: &[usize], with_level0: bool) -> Option<Selection> {
    let mut best: Option<(usize, Vec<usize>, u64)> = None;
    for stripe in 0..store.stripes.count() {
        let files = files_of(store, Some(stripe));
        let whole = if with_level0 { files.len() } else { 0 };
        let chosen = alike_in_size(store, &files, store.stripe_files_min().max(whole));
        let size = size_of(store, &chosen);
        let is_better = best.as_ref().is_none_or(|(_, best, best_size)| {
            chosen.len() > best.len() || (chosen.len() == best.len() && size < *best_size)
        });
        if !chosen.is_empty() && is_better {
            best = Some((stripe, chosen, size));
        }
    }
    let (stripe, mut files, size) = best?;
    let is_whole = files.len() == files_of(store, Some(stripe)).len();
    let span = store.stripes.span(stripe);
    let is_large = is_whole && size >= store.settings.stripes.size_to_split_bytes(store.flush_size_bytes);
    let drops = if is_whole && (with_level0 || level0.is_empty()) {
        Drops::Rows(span.clone())
    } else {
        Drops::Nothing
    };
    if !with_level0 {
        let (cells, count_max) = match is_large {
            true => parts_of(store, &files, store.settings.stripes.split_part_count),
            false => (u64::MAX, 1),
        };
        return Some(finished(
            store,
            Selection { files, all: false, major: false, cut: Cut::BySize { span, cells, count_max }, drops },
        ));
    }
    if is_large {
        return None; // level 0 comes first, then the stripe is divided
    }
    files.extend_from_slice(level0);
    files.sort_unstable();
    let cut = Cut::AtRows { starts: store.stripes.starts().to_vec(), always: stripe..stripe + 1 };
    Some(finished(store, Selection { files, all: false, major: false, cut, drops }))
}

/// A selection of all files drops what one of its rows drops, everywhere.
fn finished(store: &StoreState<'_>, selection: Selection) -> Selection {
    let all = selection.files.len() == store.files.len();
    let drops = if all { Drops::Everything } else { selection.drops };
    Selection { all, drops, ..selection }
}

/// The longest row of stripes of which everything has expired becomes one stripe. A single one is joined with the next,
/// as a stripe is known by its files only.
fn expired_stripes(store: &StoreState<'_>, level0: &[usize]) -> Option<Selection> {
    let count = store.stripes.count();
    let is_over = |stripe: &usize| has_all_expired(store, &files_of(store, Some(*stripe)));
    let (mut first, mut len) = (0, 0);
    for start in 0..count {
        let here = (start..count).take_while(is_over).count();
        if here > len {
            (first, len) = (start, here);
        }
    }
    if len == 0 || (len == 1 && first + 1 == count) {
        return None;
    }
    let last = first + len.max(2) - 1;
    let files = (0..store.files.len())
        .filter(|&at| store.files[at].stripe.is_some_and(|stripe| (first..=last).contains(&stripe)))
        .collect();
    let span = (store.stripes.span(first).0, store.stripes.span(last).1);
    let drops = if level0.is_empty() { Drops::Rows(span.clone()) } else { Drops::Nothing };
    let cut = Cut::BySize { span, cells: u64::MAX, count_max: 1 };
    Some(finished(store, Selection { files, all: false, major: false, cut, drops }))
}

/// Cells of a part and number of parts, so that parts come near the size wanted after a division
/// (`estimateTargetKvs`).
fn parts_of(store: &StoreState<'_>, files: &[usize], count: f64) -> (u64, usize) {
    let size = size_of(store, files) as f64;
    let part_size = store.settings.stripes.part_size_bytes(store.flush_size_bytes) as f64;
    let mut count = count;
    let mut ratio = size / (count * part_size);
    while ratio > 1.0 && count < STRIPES_COUNT_MAX as f64 {
        let with_one_more = size / ((count + 1.0) * part_size);
        if 1.0 / with_one_more >= ratio {
            break; // smaller than wanted, and further off
        }
        ratio = with_one_more;
        count += 1.0;
    }
    let cells: u64 = files.iter().map(|&at| store.files[at].entries).sum();
    (((cells as f64 / count) as u64).max(1), (count.ceil() as usize).clamp(1, STRIPES_COUNT_MAX))
}
