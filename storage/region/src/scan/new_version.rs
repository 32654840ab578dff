//! Versions and deletes in the order of writing, for families with `NEW_VERSION_BEHAVIOR` (HBASE-15968; HBase:
//! `NewVersionBehaviorTracker`).
//!
//! What a column shows is what it would show if each write had taken effect at once and for good: a marker hides
//! what was written before it, a put takes the place of the one with its timestamp, and when there are more than
//! `VERSIONS`, the one with the smallest timestamp goes. None of them comes back when what pushed it out goes later.
//!
//! ```text
//! sequence id  ------------------------------------------>
//! put @30               |=====x delete @30
//! put @20        |======| pushed out by @30, one version being kept
//! put @10                         |=====================>  still there
//! ```
//!
//! Cells come by timestamp, the newest first, so each put finds what could push it out already placed on this line.
//! HBase keeps counts per marker instead, and loses some puts that the rule above shows: where family markers of both
//! kinds cross, and where a put and its replacement are replaced again. Those corners are not copied.

use halcyon_cell::{CellRef, CellType};
use halcyon_env::invariant;

/// What has become of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Live,
    /// By a marker that stays.
    Deleted,
    /// Nothing that stays remembers it: hidden by a marker that goes, replaced, or pushed out by newer versions.
    Gone,
}

/// A delete marker as far as it hides anything: what was written before it, all versions up to its timestamp or only the one.
#[derive(Clone, Copy)]
struct Marker {
    timestamp: i64,
    seq: u64,
    /// A compaction writes it again.
    stays: bool,
}

/// Markers of one kind that hide a put.
struct Hiding {
    /// The first of them that was written.
    seq: u64,
    /// None of them stays that another one has not made superfluous.
    is_forgotten: bool,
}

/// Follows the cells of one row.
pub(super) struct NewVersions {
    versions_max: u32,
    /// Whether only the end of a put matters, and not what brought it about.
    ends_alike: bool,
    /// Those that hide older versions, too, by timestamp, the newest first. If `ends_alike` each was written after those before it. There may
    /// be a million of them in a row, as of the others.
    of_family: Vec<Marker>,
    of_column: Vec<Marker>,
    /// Those that hide one version: by timestamp, the newest first, and of one timestamp by when they were written, the last first.
    of_family_versions: Vec<Marker>,
    of_column_versions: Vec<Marker>,
    /// The column, once there was a cell of it.
    on_column: bool,
    qualifier: Vec<u8>,
    live: Timeline,
    /// Timestamp and sequence id of the last put.
    last_put: Option<(i64, u64)>,
    /// Versions shown, or kept because they are still there.
    pub shown: u32,
    /// Puts that a compaction keeps, deleted ones included.
    pub kept: u32,
}

/// A put counts from its moment on, a marker from right after those of its sequence id.
fn moment_of_put(seq: u64) -> u64 {
    seq.saturating_mul(2)
}

fn moment_of_marker(seq: u64) -> u64 {
    seq.saturating_mul(2).saturating_add(1)
}

impl NewVersions {
    pub fn new(versions_max: u32, ends_alike: bool) -> NewVersions {
        NewVersions {
            versions_max,
            ends_alike,
            of_family: Vec::new(),
            of_column: Vec::new(),
            of_family_versions: Vec::new(),
            of_column_versions: Vec::new(),
            on_column: false,
            qualifier: Vec::new(),
            live: Timeline::default(),
            last_put: None,
            shown: 0,
            kept: 0,
        }
    }

    /// Starts a new row.
    pub fn reset(&mut self) {
        self.of_family.clear();
        self.of_family_versions.clear();
        self.on_column = false;
    }

    /// Called for each cell before anything else: begins a new column where one begins.
    pub fn enter(&mut self, cell: CellRef<'_>) {
        if self.on_column && cell.qualifier() == self.qualifier {
            return;
        }
        self.on_column = true;
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier());
        self.of_column.clear();
        self.of_column_versions.clear();
        self.live.clear();
        self.last_put = None;
        (self.shown, self.kept) = (0, 0);
    }

    /// A marker that is in force. `stays`: a compaction keeps it.
    pub fn add(&mut self, cell: CellRef<'_>, stays: bool) {
        let (cell_type, timestamp, seq) = (cell.cell_type(), cell.timestamp(), cell.seq());
        let is_of_family = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        let with_older = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteColumn);
        let (older, versions) = match is_of_family {
            true => (&mut self.of_family, &mut self.of_family_versions),
            false => (&mut self.of_column, &mut self.of_column_versions),
        };
        if self.ends_alike {
            // A marker before it that hides all older versions of later writes hides all that this one could.
            if older.last().is_some_and(|earlier| earlier.seq >= seq) {
                return;
            }
            if !is_of_family && versions.last().is_some_and(|earlier| earlier.timestamp != timestamp) {
                versions.clear(); // nothing of that version follows in the column
            }
            invariant!(!stays, "of markers that a compaction writes again it matters which one hides a put");
        }
        let marker = Marker { timestamp, seq, stays };
        if with_older {
            invariant!(
                older.last().is_none_or(|earlier| earlier.timestamp >= timestamp),
                "markers come by timestamp, the newest first: one @{timestamp} is behind an older one"
            );
            older.push(marker);
        } else {
            // They come in this order, so this is nearly always the end.
            let is_before = |one: &Marker| (one.timestamp, one.seq) >= (timestamp, seq);
            let at = versions.partition_point(is_before);
            versions.insert(at, marker);
        }
    }

    /// What of markers that hide older versions, too, hides a put.
    fn hiding(&self, older: &[Marker], put: CellRef<'_>) -> Option<Hiding> {
        let reaching = &older[..older.partition_point(|marker| marker.timestamp >= put.timestamp())];
        if self.ends_alike {
            let first = reaching.get(reaching.partition_point(|marker| marker.seq < put.seq()))?;
            return Some(Hiding { seq: first.seq, is_forgotten: !first.stays });
        }
        let later = reaching.iter().filter(|marker| marker.seq >= put.seq());
        let seq = later.clone().map(|marker| marker.seq).min()?;
        Some(Hiding { seq, is_forgotten: later.clone().any(|marker| !marker.stays) })
    }

    /// What has become of a put, given everything before it in the row.
    pub fn judge(&mut self, put: CellRef<'_>) -> Fate {
        let start = moment_of_put(put.seq());
        let (mut end, mut fate) = (u64::MAX, Fate::Live);
        let mut is_forgotten = false;
        let older = [&self.of_family, &self.of_column].map(|markers| self.hiding(markers, put));
        let version =
            [&self.of_family_versions, &self.of_column_versions].map(|markers| hiding_version(markers, put));
        for hiding in older.into_iter().chain(version).flatten() {
            end = end.min(moment_of_marker(hiding.seq));
            fate = Fate::Deleted;
            is_forgotten |= hiding.is_forgotten;
        }
        if let Some((timestamp, seq)) = self.last_put
            && timestamp == put.timestamp()
            && moment_of_put(seq) < end
        {
            (end, fate) = (moment_of_put(seq), Fate::Gone);
        }
        invariant!(
            self.last_put.is_none_or(|last| last >= (put.timestamp(), put.seq())),
            "{put:?} is newer than the put before it: versions are counted from the newest on"
        );
        self.last_put = Some((put.timestamp(), put.seq()));
        if let Some(full) = self.live.first_with(self.versions_max, start)
            && full < end
        {
            (end, fate) = (full, Fate::Gone);
        }
        self.live.add(start, end);
        invariant!(
            self.live.count_at_end() <= self.versions_max,
            "{} puts of a column are there, of {} that it may have",
            self.live.count_at_end(),
            self.versions_max
        );
        if is_forgotten { Fate::Gone } else { fate }
    }

    /// Whether no put that follows in the column can be there still.
    pub fn is_full(&self) -> bool {
        self.ends_alike && self.live.count_at_end() >= self.versions_max
    }
}

/// What of markers that hide one version hides a put. Those of one version all stay, or none does.
fn hiding_version(versions: &[Marker], put: CellRef<'_>) -> Option<Hiding> {
    let (timestamp, seq) = (put.timestamp(), put.seq());
    let behind = versions.partition_point(|one| (one.timestamp, one.seq) >= (timestamp, seq));
    let last = versions[..behind].last().filter(|last| last.timestamp == timestamp)?;
    Some(Hiding { seq: last.seq, is_forgotten: !last.stays })
}

/// How many of the puts seen so far were there at each moment.
#[derive(Default)]
struct Timeline {
    /// From a moment on to the next entry's, this many. Ascending; none before the first.
    steps: Vec<(u64, u32)>,
}

impl Timeline {
    fn clear(&mut self) {
        self.steps.clear();
    }

    fn count_at_end(&self) -> u32 {
        self.steps.last().map_or(0, |&(_, count)| count)
    }

    /// The first moment not before `from` at which there were at least `count`.
    fn first_with(&self, count: u32, from: u64) -> Option<u64> {
        let after = self.steps.partition_point(|&(moment, _)| moment <= from);
        let steps = &self.steps[after.saturating_sub(1)..];
        steps.iter().find(|&&(_, there)| there >= count).map(|&(moment, _)| moment.max(from))
    }

    /// One more from `start` up to, and not at, `end`; `u64::MAX` is for ever.
    fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.cut(start);
        let last = if end == u64::MAX { self.steps.len() } else { self.cut(end) };
        self.steps[first..last].iter_mut().for_each(|(_, count)| *count += 1);
        self.steps.dedup_by(|step, before| step.1 == before.1);
        invariant!(
            self.steps.is_sorted_by(|a, b| a.0 < b.0),
            "moments ascend, as they are searched by halves: {:?}",
            self.steps
        );
    }

    /// The index of the step that begins at `moment`, made if there is none.
    fn cut(&mut self, moment: u64) -> usize {
        match self.steps.binary_search_by_key(&moment, |&(moment, _)| moment) {
            Ok(at) => at,
            Err(at) => {
                let count = if at == 0 { 0 } else { self.steps[at - 1].1 };
                self.steps.insert(at, (moment, count));
                at
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::Cell;
    use halcyon_env::{Clock, SystemClock};

    use super::*;

    /// Cells of one column as `type@timestamp#sequence id`, in their order; which puts are there still.
    fn live(versions_max: u32, cells: &str) -> String {
        let mut versions = NewVersions::new(versions_max, true);
        let mut out = Vec::new();
        for text in cells.split_whitespace() {
            let (kind, rest) = text.split_once('@').unwrap();
            let (timestamp, seq) = rest.split_once('#').unwrap();
            let (cell_type, qualifier) = match kind {
                "put" => (CellType::Put, "q"),
                "delete" => (CellType::Delete, "q"),
                "column" => (CellType::DeleteColumn, "q"),
                "family" => (CellType::DeleteFamily, ""),
                "version" => (CellType::DeleteFamilyVersion, ""),
                other => panic!("unknown type {other}"),
            };
            let timestamp = timestamp.parse().unwrap();
            let cell = Cell::build(b"r", b"f", qualifier.as_bytes(), timestamp, cell_type, b"", b"", 0)
                .with_seq(seq.parse().unwrap());
            versions.enter(cell.get());
            if cell_type.is_delete() {
                versions.add(cell.get(), false);
            } else if versions.judge(cell.get()) == Fate::Live {
                out.push(text.trim_start_matches("put"));
            }
        }
        out.join(" ")
    }

    #[test]
    fn a_marker_hides_what_was_written_before_it() {
        assert_eq!(live(9, "column@20#2 put@10#1"), "");
        assert_eq!(live(9, "column@20#2 put@10#3"), "@10#3");
        assert_eq!(live(9, "family@20#2 put@30#1 put@10#3 put@5#1"), "@30#1 @10#3");
        assert_eq!(live(9, "delete@10#2 put@10#3 put@10#1"), "@10#3");
        assert_eq!(live(9, "version@10#2 put@11#1 put@10#1 put@9#1"), "@11#1 @9#1");
        assert_eq!(live(9, "column@20#2 put@10#2"), "", "in one batch the marker is the later one");
    }

    #[test]
    fn what_was_pushed_out_does_not_come_back() {
        assert_eq!(live(1, "put@20#1 put@10#2"), "@20#1");
        assert_eq!(live(1, "delete@20#3 put@20#1 put@10#2"), "", "there was no room for it when it came");
        assert_eq!(live(1, "delete@20#2 put@20#1 put@10#3"), "@10#3");
        assert_eq!(live(2, "delete@30#4 put@30#3 put@20#2 put@10#1"), "@20#2");
        assert_eq!(live(2, "put@30#5 delete@20#4 put@20#3 put@10#1"), "@30#5 @10#1");
    }

    #[test]
    fn a_put_takes_the_place_of_its_timestamp() {
        assert_eq!(live(2, "put@20#3 put@20#1 put@10#2"), "@20#3 @10#2");
        assert_eq!(live(1, "delete@20#2 put@20#3 put@20#1 put@10#1"), "@20#3");
        assert_eq!(live(2, "put@30#9 put@20#6 put@20#4 put@20#2 put@10#1"), "@30#9 @20#6");
    }

    /// Each put was compared with all of them.
    #[test]
    fn many_markers_of_falling_timestamps_take_no_time_for_each_put() {
        const COUNT: u64 = 200_000;
        let clock = SystemClock::new();
        let work = || clock.thread_ran_ns().expect("the system counts it");
        let begun = work();
        for (of_marker, qualifier) in [
            (CellType::DeleteFamily, ""),
            (CellType::DeleteFamilyVersion, ""),
            (CellType::DeleteColumn, "q"),
            (CellType::Delete, "q"),
        ] {
            let mut versions = NewVersions::new(3, true);
            let cell = |cell_type, qualifier: &str, timestamp: u64, seq: u64| {
                let cell =
                    Cell::build(b"r", b"f", qualifier.as_bytes(), timestamp as i64, cell_type, b"", b"", 0);
                cell.with_seq(seq)
            };
            let add = |versions: &mut NewVersions, timestamp: u64| {
                let marker = cell(of_marker, qualifier, timestamp, 3 * COUNT - timestamp);
                versions.enter(marker.get());
                versions.add(marker.get(), false);
            };
            let is_of_family = qualifier.is_empty();
            if is_of_family {
                (1..=COUNT).rev().for_each(|timestamp| add(&mut versions, timestamp));
            }
            for timestamp in (1..=COUNT).rev() {
                if !is_of_family {
                    add(&mut versions, timestamp);
                }
                let put = cell(CellType::Put, "q", timestamp, 3 * COUNT + timestamp); // after all markers
                versions.enter(put.get());
                let is_live = versions.judge(put.get()) == Fate::Live;
                assert_eq!(is_live, timestamp > COUNT - 3, "{of_marker:?} @{timestamp}");
            }
            let hidden = cell(CellType::Put, "q", 0, 2);
            versions.enter(hidden.get());
            let is_hidden = matches!(of_marker, CellType::DeleteFamily | CellType::DeleteColumn);
            let hides = versions.hiding(&versions.of_family, hidden.get());
            let hides = hides.or_else(|| versions.hiding(&versions.of_column, hidden.get()));
            assert_eq!(hides.map(|it| it.seq), is_hidden.then_some(2 * COUNT), "the first that was written");
        }
        let took = std::time::Duration::from_nanos(work() - begun);
        assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    }

    #[test]
    fn the_line_of_many_versions_stays_short() {
        let mut versions = NewVersions::new(3, true);
        for seq in (1..10_000u64).rev() {
            let cell = Cell::build(b"r", b"f", b"q", seq as i64, CellType::Put, b"", b"", 0).with_seq(seq);
            versions.enter(cell.get());
            let fate = versions.judge(cell.get());
            assert_eq!(fate == Fate::Live, seq >= 9_997);
            assert_eq!(versions.is_full(), seq <= 9_997);
            assert!(versions.live.steps.len() <= 4);
        }
    }
}
