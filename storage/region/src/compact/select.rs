use crate::RegionSettings;

/// What selection looks at in a file. Files are given oldest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileChoice {
    pub len_bytes: u64,
    /// Left out of minor compactions (`EXCLUDE_FROM_MINOR_COMPACTION`).
    pub major_only: bool,
}

/// A run of adjacent files to be merged: indices into the files given, and whether nothing older is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub from: usize,
    pub to: usize,
    pub major: bool,
}

/// Chooses by HBase's exploring policy (`ExploringCompactionPolicy`): of all runs of adjacent files whose
/// members are alike in size, the one with the most files, and of those the smallest.
///
/// `major`: all files are wanted. `forced`: somebody asked, so two files, and one that was never compacted as
/// major, are worth the work.
pub(crate) fn select(
    files: &[FileChoice],
    major: bool,
    forced: bool,
    settings: &RegionSettings,
) -> Option<Selection> {
    if files.is_empty() {
        return None;
    }
    if major {
        return Some(Selection { from: 0, to: files.len(), major: true });
    }
    // Files too large for minor compactions count as settled together with all that is older.
    let from = files
        .iter()
        .rposition(|file| file.len_bytes > settings.compaction_max_size_bytes || file.major_only)
        .map_or(0, |at| at + 1);
    let min = if forced { 2 } else { settings.compaction_files_min.max(2) };
    let mut best: Option<(usize, usize, u64)> = None;
    let mut smallest: Option<(usize, usize, u64)> = None;
    let may_be_stuck = files.len() >= settings.blocking_files_count;
    for start in from..files.len() {
        let longest = files.len().min(start + settings.compaction_files_max);
        for end in start + min..=longest {
            let run = &files[start..end];
            let size: u64 = run.iter().map(|file| file.len_bytes).sum();
            if may_be_stuck && smallest.is_none_or(|(_, _, least)| size < least) {
                smallest = Some((start, end, size));
            }
            if size > settings.compaction_max_size_bytes {
                continue;
            }
            if size >= settings.compaction_min_size_bytes && !alike(run, size, settings.compaction_ratio) {
                continue;
            }
            let better = match best {
                None => true,
                Some((s, e, least)) => end - start > e - s || (end - start == e - s && size < least),
            };
            if better {
                best = Some((start, end, size));
            }
        }
    }
    let (from, to, _) = best.or(smallest)?;
    Some(Selection { from, to, major: from == 0 && to == files.len() })
}

/// No file is larger than `ratio` times all the others together (`filesInRatio`).
fn alike(run: &[FileChoice], total: u64, ratio: f64) -> bool {
    run.iter().all(|file| file.len_bytes as f64 <= (total - file.len_bytes) as f64 * ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn files(sizes: &[u64]) -> Vec<FileChoice> {
        sizes.iter().map(|&mb| FileChoice { len_bytes: mb * MB, major_only: false }).collect()
    }

    fn run(sizes: &[u64]) -> Option<(usize, usize)> {
        let settings = RegionSettings { compaction_min_size_bytes: 10 * MB, ..RegionSettings::default() };
        select(&files(sizes), false, false, &settings).map(|s| (s.from, s.to))
    }

    #[test]
    fn too_few_files_wait() {
        assert_eq!(run(&[]), None);
        assert_eq!(run(&[50, 50]), None);
    }

    #[test]
    fn a_large_old_file_stays_out() {
        assert_eq!(run(&[1000, 50, 60, 55]), Some((1, 4)));
    }

    #[test]
    fn the_longest_run_wins_then_the_smallest() {
        assert_eq!(run(&[500, 100, 100, 100, 20, 20, 20, 20]), Some((1, 8)));
        assert_eq!(run(&[900, 300, 20, 20, 20]), Some((2, 5)));
    }

    #[test]
    fn small_files_are_taken_whatever_their_ratio() {
        assert_eq!(run(&[6, 1, 1]), Some((0, 3)));
    }

    #[test]
    fn a_store_that_is_stuck_takes_the_smallest_run() {
        let sizes: Vec<u64> = (0..16).map(|n| 11 << (2 * (16 - n))).collect();
        assert!(run(&sizes).is_some());
    }

    #[test]
    fn the_whole_store_is_major() {
        let settings = RegionSettings::default();
        assert!(select(&files(&[1, 1, 1]), false, false, &settings).unwrap().major);
        assert!(select(&files(&[1]), true, true, &settings).unwrap().major);
    }
}
