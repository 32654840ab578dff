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

use std::collections::BTreeMap;

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

/// Markers of one kind that hide a put.
struct Hiding {
    /// The first of them that was written.
    seq: u64,
    /// None of them stays that another one has not made superfluous.
    is_forgotten: bool,
}

/// Delete markers of the family, or of a column: they hide what was written before them. A row may have a million of each sort, and those of
/// the family may come in any order: in files of others they may lie with columns.
#[derive(Default)]
struct Markers {
    /// Those that hide all versions up to their timestamps, as far as it matters to the end of a put: by sequence id, with the timestamp. None
    /// is here of which another one hides all that it hides, so a later one has an older timestamp.
    reaching: BTreeMap<u64, i64>,
    /// All of them, by timestamp and sequence id, where it matters which one hides a put. Whether a compaction writes it again.
    older: BTreeMap<(i64, u64), bool>,
    /// Those that hide the one version, in the same way.
    versions: BTreeMap<(i64, u64), bool>,
}

impl Markers {
    /// Called for each row and column. Most have none, and of an empty map `clear` takes a tree apart all the same.
    fn clear(&mut self) {
        if !self.reaching.is_empty() {
            self.reaching.clear();
        }
        if !self.older.is_empty() {
            self.older.clear();
        }
        if !self.versions.is_empty() {
            self.versions.clear();
        }
    }

    /// Whether a marker that reaches as far hides all that this one could.
    fn is_superfluous(&self, timestamp: i64, seq: u64) -> bool {
        self.reaching.range(seq..).next().is_some_and(|(_, &reached)| reached >= timestamp)
    }

    /// One that hides older versions, too, and is not superfluous.
    fn add_reaching(&mut self, timestamp: i64, seq: u64) {
        while let Some((&earlier, &reached)) = self.reaching.range(..=seq).next_back()
            && reached <= timestamp
        {
            self.reaching.remove(&earlier);
        }
        self.reaching.insert(seq, timestamp);
    }

    /// What of those that hide older versions, too, hides a put. One of them is in one of the two maps only.
    fn hiding_older(&self, put: CellRef<'_>) -> Option<Hiding> {
        let (timestamp, seq) = (put.timestamp(), put.seq());
        if let Some((&first, &reached)) = self.reaching.range(seq..).next()
            && reached >= timestamp
        {
            return Some(Hiding { seq: first, is_forgotten: true });
        }
        let later = self.older.range((timestamp, 0)..).filter(|((_, marker), _)| *marker >= seq);
        let first = later.clone().map(|((_, marker), _)| *marker).min()?;
        Some(Hiding { seq: first, is_forgotten: later.clone().any(|(_, stays)| !stays) })
    }

    /// What of those that hide one version hides a put. Those of one version all stay, or none does.
    fn hiding_version(&self, put: CellRef<'_>) -> Option<Hiding> {
        let (timestamp, seq) = (put.timestamp(), put.seq());
        let (&(_, first), stays) = self.versions.range((timestamp, seq)..=(timestamp, u64::MAX)).next()?;
        Some(Hiding { seq: first, is_forgotten: !stays })
    }
}

/// No column has so many versions: `VERSIONS` of those that keep all.
const VERSIONS_ALL: u32 = i32::MAX as u32;

/// Follows the cells of one row.
pub(super) struct NewVersions {
    versions_max: u32,
    /// Whether only the end of a put matters, and not what brought it about.
    ends_alike: bool,
    of_family: Markers,
    of_column: Markers,
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
            of_family: Markers::default(),
            of_column: Markers::default(),
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
        self.live.clear();
        self.last_put = None;
        (self.shown, self.kept) = (0, 0);
    }

    /// A marker that is in force. `stays`: a compaction keeps it.
    pub fn add(&mut self, cell: CellRef<'_>, stays: bool) {
        let (cell_type, timestamp, seq) = (cell.cell_type(), cell.timestamp(), cell.seq());
        let is_of_family = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        let with_older = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteColumn);
        let markers = if is_of_family { &mut self.of_family } else { &mut self.of_column };
        if self.ends_alike {
            invariant!(!stays, "of markers that a compaction writes again it matters which one hides a put");
            if markers.is_superfluous(timestamp, seq) {
                return;
            }
            if !is_of_family && markers.versions.first_key_value().is_some_and(|(key, _)| key.0 != timestamp)
            {
                markers.versions.clear(); // nothing of that version follows in the column
            }
        }
        match (with_older, self.ends_alike) {
            (true, true) => markers.add_reaching(timestamp, seq),
            (true, false) => _ = markers.older.insert((timestamp, seq), stays),
            (false, _) => _ = markers.versions.insert((timestamp, seq), stays),
        }
    }

    /// What has become of a put, given everything before it in the row.
    pub fn judge(&mut self, put: CellRef<'_>) -> Fate {
        let start = moment_of_put(put.seq());
        let (mut end, mut fate) = (u64::MAX, Fate::Live);
        let mut is_forgotten = false;
        let markers = [&self.of_family, &self.of_column];
        let hiding = markers.map(|markers| [markers.hiding_older(put), markers.hiding_version(put)]);
        for hiding in hiding.into_iter().flatten().flatten() {
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
        if self.versions_max < VERSIONS_ALL {
            if let Some(full) = self.live.first_with(self.versions_max, start)
                && full < end
            {
                (end, fate) = (full, Fate::Gone);
            }
            self.live.add(start, end);
        }
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

/// How many of the puts seen so far were there at each moment.
///
/// A put adds one to a part of the line, which may be as long as `VERSIONS`. So the line is cut into blocks, and of those in between one number
/// is changed.
#[derive(Default)]
struct Timeline {
    /// Ascending. Only a block that is alone may have no steps.
    blocks: Vec<Block>,
}

const BLOCK_STEPS_MAX: usize = 1024;

/// Steps that follow each other.
#[derive(Default)]
struct Block {
    /// From a moment on to the next entry's, this many, and `more`. Ascending; none before the first.
    steps: Vec<(u64, u32)>,
    more: u32,
    /// The greatest count of the steps, `more` left out.
    most: u32,
}

impl Block {
    /// The index of the step that begins at `moment`; if there is none, of the first one behind it.
    fn find(&self, moment: u64) -> Result<usize, usize> {
        self.steps.binary_search_by_key(&moment, |&(begin, _)| begin)
    }

    /// One more in those steps that begin from `start` on and before `end`.
    fn add(&mut self, start: u64, end: u64) {
        let [first, last] = [start, end].map(|moment| self.find(moment).unwrap_or_else(|behind| behind));
        if last - first == self.steps.len() {
            self.more += 1;
            return;
        }
        self.steps[first..last].iter_mut().for_each(|(_, count)| *count += 1);
        self.find_most();
    }

    fn find_most(&mut self) {
        self.most = self.steps.iter().map(|&(_, count)| count).max().unwrap_or(0);
    }

    fn count_at_end(&self) -> u32 {
        self.steps.last().map_or(0, |&(_, count)| count + self.more)
    }
}

impl Timeline {
    fn clear(&mut self) {
        self.blocks.truncate(1);
        if let Some(block) = self.blocks.first_mut() {
            block.steps.clear(); // its memory is used again
            (block.more, block.most) = (0, 0);
        }
    }

    fn count_at_end(&self) -> u32 {
        self.blocks.last().map_or(0, Block::count_at_end)
    }

    /// The block of the moment: the last one that does not begin behind it, or else the first.
    fn block_of(&self, moment: u64) -> usize {
        let begins = |block: &Block| block.steps.first().is_some_and(|&(begin, _)| begin <= moment);
        self.blocks.partition_point(begins).saturating_sub(1)
    }

    /// The first moment not before `from` at which there were at least `count`.
    fn first_with(&self, count: u32, from: u64) -> Option<u64> {
        let first = self.block_of(from);
        self.blocks.iter().enumerate().skip(first).find_map(|(at, block)| {
            if block.most + block.more < count {
                return None;
            }
            let after =
                if at == first { block.steps.partition_point(|&(moment, _)| moment <= from) } else { 0 };
            let steps = &block.steps[after.saturating_sub(1)..];
            let step = steps.iter().find(|&&(_, there)| there + block.more >= count);
            step.map(|&(moment, _)| moment.max(from))
        })
    }

    /// One more from `start` up to, and not at, `end`; `u64::MAX` is for ever.
    fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.cut(start);
        if end != u64::MAX {
            self.cut(end);
        }
        let first = self.block_of(start);
        for block in &mut self.blocks[first..] {
            if block.steps[0].0 >= end {
                break;
            }
            block.add(start, end);
        }
        self.join(start);
        self.join(end);
        invariant!(
            self.blocks.len() == 1 || self.blocks.iter().all(|block| !block.steps.is_empty()),
            "a block is found by where it begins"
        );
        invariant!(
            self.blocks.iter().flat_map(|block| &block.steps).is_sorted_by(|a, b| a.0 < b.0),
            "moments ascend, as they are searched by halves: up to {start} and {end}"
        );
    }

    /// Makes a step begin at `moment`.
    fn cut(&mut self, moment: u64) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let at = self.block_of(moment);
        let block = &mut self.blocks[at];
        let Err(behind) = block.find(moment) else { return };
        if let Some(before) = behind.checked_sub(1) {
            block.steps.insert(behind, (moment, block.steps[before].1));
        } else {
            let more = std::mem::take(&mut block.more); // none were there before the first, so it counts itself alone
            block.steps.iter_mut().for_each(|(_, count)| *count += more);
            block.most += more;
            block.steps.insert(0, (moment, 0));
        }
        if block.steps.len() > BLOCK_STEPS_MAX {
            let steps = block.steps.split_off(BLOCK_STEPS_MAX / 2);
            let mut behind = Block { steps, more: block.more, most: 0 };
            behind.find_most();
            block.find_most();
            self.blocks.insert(at + 1, behind);
        }
    }

    /// Drops the step that begins at `moment` if it changes nothing.
    fn join(&mut self, moment: u64) {
        let at = self.block_of(moment);
        let Ok(within) = self.blocks[at].find(moment) else { return };
        let count = |block: &Block, step: usize| block.steps[step].1 + block.more;
        let before = match (within.checked_sub(1), at.checked_sub(1)) {
            (Some(before), _) => count(&self.blocks[at], before),
            (None, Some(before)) => self.blocks[before].count_at_end(),
            (None, None) => 0,
        };
        if count(&self.blocks[at], within) != before {
            return;
        }
        self.blocks[at].steps.remove(within);
        if self.blocks[at].steps.is_empty() && self.blocks.len() > 1 {
            self.blocks.remove(at);
        } else {
            self.blocks[at].find_most();
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
                "family:q" => (CellType::DeleteFamily, "q"),
                "version:q" => (CellType::DeleteFamilyVersion, "q"),
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

    /// As files may have them. They were searched as if they had come by timestamp, and a put behind a newer one was there again.
    #[test]
    fn markers_of_the_family_may_lie_with_columns() {
        assert_eq!(live(9, "family@30#1 family@10#2 family:q@50#3 put@40#2 put@30#4 put@20#3"), "@30#4");
        assert_eq!(live(9, "family@30#5 put@25#5 family:q@20#4 put@20#6"), "@20#6", "it hides no more");
        assert_eq!(live(9, "family@30#5 family:q@40#5 put@40#5 put@35#6 put@30#1"), "@35#6");
        assert_eq!(live(9, "family@10#7 family:q@20#4 put@20#4 put@15#5 put@10#5"), "@15#5");
        assert_eq!(
            live(9, "version@30#1 version@10#2 version:q@50#3 put@50#3 put@30#1 put@20#1 put@10#2"),
            "@20#1"
        );
        assert_eq!(live(9, "version@30#1 version:q@30#3 put@30#4 put@30#2"), "@30#4");
    }

    /// What one of them hides, with the first that was written, against all of them looked through.
    #[test]
    fn markers_in_any_order_hide_what_each_of_them_hides() {
        let mut number = 1u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (number >> 33) % below
        };
        for round in 0..2_000 {
            let (mut markers, mut known) = (Markers::default(), Vec::new());
            for _ in 0..random(9) {
                let (timestamp, seq) = (random(9) as i64, random(9));
                known.push((timestamp, seq));
                if !markers.is_superfluous(timestamp, seq) {
                    markers.add_reaching(timestamp, seq);
                }
            }
            for (timestamp, seq) in (0..9).flat_map(|timestamp| (0..9).map(move |seq| (timestamp, seq))) {
                let put = Cell::build(b"r", b"f", b"q", timestamp, CellType::Put, b"", b"", 0).with_seq(seq);
                let later = known.iter().filter(|known| known.0 >= timestamp && known.1 >= seq);
                let hiding = markers.hiding_older(put.get());
                // That of one which hides no more than another may have been left out.
                let (found, first) = (hiding.map(|it| it.seq), later.clone().map(|known| known.1).min());
                assert_eq!(found.is_some(), first.is_some(), "{round}: {known:?} @{timestamp}#{seq}");
                assert!(found >= first && found.is_none_or(|seq| later.clone().any(|known| known.1 == seq)));
            }
        }
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
            let hides = [&versions.of_family, &versions.of_column];
            let hides = hides.map(|markers| markers.hiding_older(hidden.get())).into_iter().flatten().next();
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
            assert!(versions.live.blocks[0].steps.len() <= 4);
        }
        assert_eq!(versions.live.blocks.len(), 1);
    }

    /// Each put added one to all steps behind its own: with a million versions a read took minutes.
    #[test]
    fn a_put_changes_few_steps_of_a_long_line() {
        const COUNT: u64 = 6_000;
        for versions_max in [COUNT as u32 / 2, COUNT as u32, i32::MAX as u32, u32::MAX] {
            let mut versions = NewVersions::new(versions_max, true);
            for seq in (1..=COUNT).rev() {
                let cell =
                    Cell::build(b"r", b"f", b"q", seq as i64, CellType::Put, b"", b"", 0).with_seq(seq);
                versions.enter(cell.get());
                let is_live = versions.judge(cell.get()) == Fate::Live;
                assert_eq!(is_live, COUNT - seq < u64::from(versions_max));
            }
            let blocks = &versions.live.blocks;
            if versions_max >= VERSIONS_ALL {
                assert!(blocks.is_empty(), "nothing can push a put out");
                continue;
            }
            assert_eq!(versions.live.count_at_end(), versions_max);
            assert!(blocks.iter().all(|block| block.steps.len() <= BLOCK_STEPS_MAX));
            assert!(blocks.len() <= 2 * COUNT as usize / BLOCK_STEPS_MAX + 1, "{} blocks", blocks.len());
        }
    }

    /// The line in blocks against one number for each moment.
    #[test]
    fn the_line_counts_what_was_there() {
        const MOMENTS: u64 = 6_000;
        const COUNT_MAX: u32 = 700;
        let mut number = 1u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (number >> 33) % below
        };
        let (mut line, mut counts) = (Timeline::default(), vec![0u32; MOMENTS as usize]);
        let (mut blocks_most, mut full_count, mut left_count) = (0, 0, 0);
        for round in 0..6_000 {
            let start = random(MOMENTS);
            let mut end = match random(4) {
                0 => u64::MAX,
                1 => MOMENTS.min(start + random(50)),
                _ => start + random(MOMENTS - start),
            };
            let from = start as usize;
            for count in [1, 2, 300, COUNT_MAX] {
                let there = counts[from..].iter().position(|&it| it >= count).map(|at| (at + from) as u64);
                assert_eq!(line.first_with(count, start), there, "round {round}");
                if count == COUNT_MAX && there.is_some_and(|full| full < end) {
                    (end, full_count) = (there.unwrap(), full_count + 1); // as of a put
                }
            }
            line.add(start, end);
            counts.iter_mut().take(end.min(MOMENTS) as usize).skip(from).for_each(|count| *count += 1);
            left_count += u32::from(end == u64::MAX);
            assert_eq!(line.count_at_end(), left_count, "round {round}");
            blocks_most = blocks_most.max(line.blocks.len());
        }
        assert!(
            blocks_most > 2 && full_count > 100,
            "{blocks_most} blocks, {full_count} puts that met a full line"
        );
        let steps = line
            .blocks
            .iter()
            .flat_map(|block| block.steps.iter().map(move |&(moment, count)| (moment, count + block.more)));
        let mut changes = vec![(0, 0)];
        for (moment, &count) in counts.iter().enumerate() {
            if changes.last().is_some_and(|last| last.1 != count) {
                changes.push((moment as u64, count));
            }
        }
        let steps: Vec<(u64, u32)> = steps.filter(|step| step.0 < MOMENTS).collect();
        assert_eq!(steps, changes[1..], "a step where the number changes, and no other");
    }
}
