//! Decides cell by cell what a scan or a compaction does with it (HBase: the `ScanQueryMatcher` family).
//!
//! The order of questions is HBase's: end of row, time to live, delete markers, time range, wanted columns,
//! versions up to the family's limit, filter, versions up to the scan's limit.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use halcyon_cell::{
    CellComparator, CellRef, CellType, Key, ReadPoint, Result, SeqId, TagType, keep_bytes, same_bytes,
};
use halcyon_env::{INVARIANTS, Witness};
use halcyon_filter::{Filter, ReturnCode};
use halcyon_schema::KeepDeleted;

use super::columns::ColumnTracker;
use super::deletes::{DeleteTracker, Hidden};
use super::new_version::NewVersions;
use crate::api::TimeRange;
use crate::keeping::{Keeping, RowSpan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchCode {
    Include,
    IncludeAndSeekNextCol,
    IncludeAndSeekNextRow,
    Skip,
    SeekNextCol,
    SeekNextRow,
    SeekNextUsingHint,
    /// The cell belongs to another row: this one is done.
    Done,
    /// The filter wants no more rows.
    DoneScan,
}

impl MatchCode {
    /// Passes no cell over unseen.
    fn without_seek(self) -> MatchCode {
        match self {
            MatchCode::IncludeAndSeekNextCol | MatchCode::IncludeAndSeekNextRow => MatchCode::Include,
            MatchCode::SeekNextCol | MatchCode::SeekNextRow => MatchCode::Skip,
            code => code,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    User {
        see_past_deletes: bool,
    },
    Raw,
    /// Flush and minor compaction: markers stay, what they hide goes.
    Minor,
    /// Major compaction: markers go as well.
    Major {
        earliest_put: i64,
    },
}

pub(crate) struct Matcher {
    pub(super) mode: Mode,
    /// Rows that a major compaction has all of, and how those are gone through; others as by a minor one.
    major_within: Option<(RowSpan, Mode)>,
    pub(super) keeping: Keeping,
    /// A compaction keeps cells above this sequence id, and judges the others as if they were not there.
    keep_above: ReadPoint,
    now_ms: i64,
    pub(super) oldest_unexpired: i64,
    pub(super) time_range: TimeRange,
    pub(super) columns: ColumnTracker,
    deletes: DeleteTracker,
    /// Counts versions and deletes by the order of writing instead, where the family asks for that.
    pub(super) new_versions: Option<Box<NewVersions>>,
    /// Versions of a column that the scan wants after its filter.
    pub(super) versions_after_filter: u32,
    versions_count: u32,
    versions_column: Option<Vec<u8>>,
    row: Vec<u8>,
    on_row: bool,
    sticky_next_row: bool,
    seen: Witness<SeenOfRow>,
}

/// What invariants remember of the row.
#[derive(Default)]
struct SeenOfRow {
    last: Option<Key>,
    /// Cells of the column that were let through.
    versions_count: u32,
}

impl Matcher {
    /// For a user's Get or Scan.
    #[allow(clippy::too_many_arguments)] // the questions of a scan
    pub fn user(
        keeping: Keeping,
        wanted: Option<&BTreeSet<Bytes>>,
        scan_versions: u32,
        time_range: TimeRange,
        raw: bool,
        has_filter: bool,
        now_ms: i64,
    ) -> Matcher {
        let wanted_versions = if raw { scan_versions } else { scan_versions.min(keeping.max_versions) };
        // What the filter passes on is counted after it (HBase: `ScanQueryMatcher.getTrackers`).
        let checked_versions = match (has_filter, raw) {
            (false, _) => wanted_versions,
            (true, false) => keeping.max_versions,
            (true, true) => u32::MAX,
        };
        let mode = if raw {
            Mode::Raw
        } else {
            Mode::User { see_past_deletes: keeping.keep_deleted != KeepDeleted::False }
        };
        Matcher::new(mode, keeping, wanted, checked_versions, wanted_versions, time_range, now_ms)
    }

    /// For flush and minor compaction.
    pub fn minor(keeping: Keeping, now_ms: i64) -> Matcher {
        Matcher::new(Mode::Minor, keeping, None, keeping.max_versions, u32::MAX, TimeRange::ALL, now_ms)
    }

    /// For major compaction. `earliest_put`: the smallest timestamp of a put in the files.
    pub fn major(keeping: Keeping, earliest_put: i64, now_ms: i64) -> Matcher {
        let mode = Mode::Major { earliest_put };
        Matcher::new(mode, keeping, None, keeping.max_versions, u32::MAX, TimeRange::ALL, now_ms)
    }

    /// As `major`, for rows of the span; for others as `minor`.
    pub fn major_within(span: RowSpan, keeping: Keeping, earliest_put: i64, now_ms: i64) -> Matcher {
        let mut matcher = Matcher::major(keeping, earliest_put, now_ms);
        matcher.major_within = Some((span, matcher.mode));
        matcher
    }

    /// For flushes and compactions: keeps every cell above `point`, and what would be kept if those had not been written.
    pub fn keeping_above(mut self, point: ReadPoint) -> Matcher {
        self.keep_above = point;
        self
    }

    fn new(
        mode: Mode,
        keeping: Keeping,
        wanted: Option<&BTreeSet<Bytes>>,
        checked_versions: u32,
        versions_after_filter: u32,
        time_range: TimeRange,
        now_ms: i64,
    ) -> Matcher {
        // A raw scan sees what is stored, expired or not (StoreScanner's constructor).
        let oldest_unexpired = if mode == Mode::Raw { 0 } else { keeping.oldest_unexpired(now_ms) };
        let new_versions = (keeping.new_version_behavior && mode != Mode::Raw).then(|| {
            let ends_alike =
                !matches!(mode, Mode::Major { .. }) || keeping.keep_deleted == KeepDeleted::False;
            Box::new(NewVersions::new(keeping.max_versions, ends_alike))
        });
        Matcher {
            mode,
            major_within: None,
            keeping,
            keep_above: ReadPoint::NEWEST,
            now_ms,
            oldest_unexpired,
            time_range,
            columns: ColumnTracker::new(wanted, checked_versions, keeping.min_versions, oldest_unexpired),
            deletes: DeleteTracker::default(),
            new_versions,
            versions_after_filter,
            versions_count: 0,
            versions_column: None,
            row: Vec::new(),
            on_row: false,
            sticky_next_row: false,
            seen: Witness::default(),
        }
    }

    /// Starts on the row of `cell`.
    #[inline]
    pub fn set_row(&mut self, row: &[u8]) {
        keep_bytes(&mut self.row, row);
        self.on_row = true;
        if let Some(((start, end), major)) = &self.major_within {
            let is_within = row >= &start[..] && (end.is_empty() || row < &end[..]);
            self.mode = if is_within { *major } else { Mode::Minor };
        }
        self.sticky_next_row = false;
        self.columns.reset();
        self.deletes.reset();
        if let Some(versions) = &mut self.new_versions {
            versions.reset();
        }
        self.versions_column = None;
        self.versions_count = 0;
        self.seen = Witness::default();
    }

    pub fn clear_row(&mut self) {
        self.on_row = false;
    }

    pub fn on_row(&self) -> bool {
        self.on_row
    }

    pub fn row(&self) -> &[u8] {
        &self.row
    }

    /// The key to seek to for `SeekNextCol`; `None`: the next cell is to be looked at. Markers of the family lie in the
    /// column without a name, by their timestamps, and would be passed over unseen.
    pub fn next_column_key(&self, cell: CellRef<'_>) -> Option<Key> {
        if cell.qualifier().is_empty() {
            return None;
        }
        Some(match self.columns.hint() {
            Some(hint) => Key::first_on_column(cell.row(), cell.family(), hint),
            None => Key::last_on_column(cell.row(), cell.family(), cell.qualifier()),
        })
    }

    #[inline]
    pub fn match_cell(
        &mut self,
        cell: CellRef<'_>,
        filter: &mut Option<Box<dyn Filter>>,
    ) -> Result<MatchCode> {
        if let Some(filter) = filter
            && filter.filter_all_remaining()?
        {
            return Ok(MatchCode::DoneScan);
        }
        if self.keep_above.is_newest() {
            let code = self.judge(cell, filter)?;
            self.check_seen(cell, code);
            return Ok(code);
        }
        if !self.keep_above.sees(SeqId::new(cell.seq())) && self.on_row && cell.row() == self.row {
            return Ok(if self.is_hidden_from_all(cell) { MatchCode::Skip } else { MatchCode::Include });
        }
        Ok(self.judge(cell, filter)?.without_seek()) // what would be passed over may be above
    }

    /// Cells of a row come in their order, on which columns and deletes rely, and a column has no more versions than asked.
    #[inline]
    fn check_seen(&mut self, cell: CellRef<'_>, code: MatchCode) {
        if !INVARIANTS {
            return; // what the check compares is computed in this function, too
        }
        let wanted = match self.mode {
            Mode::User { .. } => self.versions_after_filter,
            Mode::Raw => u32::MAX,
            Mode::Minor | Mode::Major { .. } => self.keeping.max_versions,
        };
        let is_counted = self.on_row && self.new_versions.is_none() && !cell.cell_type().is_delete();
        let (on_row, comparator) = (self.on_row && cell.row() == self.row, CellComparator::Default);
        self.seen.check(|seen| {
            if !on_row {
                return;
            }
            let key = cell.key();
            if let Some(last) = &seen.last {
                let order = comparator.compare_keys(last.get(), key);
                assert!(
                    order != Ordering::Greater,
                    "{cell:?} is before a cell of its row that was looked at already"
                );
                if last.get().qualifier() != key.qualifier() || last.get().family() != key.family() {
                    seen.versions_count = 0;
                }
            }
            seen.last = Some(key.to_key());
            let is_included = matches!(
                code,
                MatchCode::Include | MatchCode::IncludeAndSeekNextCol | MatchCode::IncludeAndSeekNextRow
            );
            seen.versions_count += u32::from(is_included && is_counted);
            assert!(
                seen.versions_count <= wanted,
                "{cell:?} is version {} of its column, and {wanted} are wanted",
                seen.versions_count
            );
        });
    }

    /// Whether a marker that everybody sees hides a newer put: the marker may go, and would have to take the put along.
    fn is_hidden_from_all(&mut self, cell: CellRef<'_>) -> bool {
        !cell.cell_type().is_delete() && self.new_versions.is_none() && self.check_hidden(cell).is_some()
    }

    fn judge(&mut self, cell: CellRef<'_>, filter: &mut Option<Box<dyn Filter>>) -> Result<MatchCode> {
        if self.new_versions.is_some() {
            return self.match_in_order_of_writing(cell, filter);
        }
        if let Some(code) = self.before_deletes(cell) {
            return Ok(code);
        }
        let timestamp = cell.timestamp();
        match self.mode {
            Mode::User { see_past_deletes } => {
                if cell.cell_type().is_delete() {
                    if self.is_in_force(timestamp, see_past_deletes) {
                        self.deletes.add(cell);
                    }
                    return Ok(MatchCode::Skip);
                }
                match self.check_hidden(cell) {
                    Some(code) => Ok(code),
                    None => self.match_column(cell, timestamp, filter),
                }
            }
            Mode::Raw => self.match_column(cell, timestamp, filter),
            Mode::Minor => Ok(self.match_minor(cell, timestamp)),
            Mode::Major { earliest_put } => Ok(self.match_major(cell, timestamp, earliest_put)),
        }
    }

    /// Whether a read minds a marker. Markers behind the range count as well, unless what they hide is kept.
    pub(super) fn is_in_force(&self, timestamp: i64, see_past_deletes: bool) -> bool {
        if see_past_deletes { self.time_range.contains(timestamp) } else { timestamp >= self.time_range.min }
    }

    /// End of row, and the time to live of family and cell.
    #[inline]
    pub(super) fn before_deletes(&mut self, cell: CellRef<'_>) -> Option<MatchCode> {
        if !self.on_row || !same_bytes(cell.row(), &self.row) {
            return Some(MatchCode::Done);
        }
        if self.columns.done() {
            self.sticky_next_row = true;
        }
        if self.sticky_next_row {
            return Some(MatchCode::SeekNextRow);
        }
        if self.columns.is_done_with(cell.timestamp()) {
            return Some(self.columns.next_row_or_column(cell));
        }
        if self.is_expired_by_tag(cell) {
            return Some(MatchCode::Skip);
        }
        None
    }

    fn is_expired_by_tag(&self, cell: CellRef<'_>) -> bool {
        if cell.tags().is_empty() {
            return false;
        }
        let ttl = cell.tag_iter().find(|tag| tag.tag_type == TagType::TTL);
        ttl.and_then(|tag| tag.value.try_into().ok())
            .is_some_and(|ttl| cell.timestamp().saturating_add(i64::from_be_bytes(ttl)) < self.now_ms)
    }

    fn check_hidden(&mut self, cell: CellRef<'_>) -> Option<MatchCode> {
        if self.deletes.is_empty() {
            return None;
        }
        match self.deletes.hides(cell) {
            Hidden::No => None,
            Hidden::Alone => Some(MatchCode::Skip),
            Hidden::WithOlder => Some(self.columns.next_row_or_column(cell)),
        }
    }

    #[inline]
    fn match_column(
        &mut self,
        cell: CellRef<'_>,
        timestamp: i64,
        filter: &mut Option<Box<dyn Filter>>,
    ) -> Result<MatchCode> {
        if !self.time_range.contains(timestamp) {
            return Ok(if timestamp < self.time_range.min {
                self.columns.next_row_or_column(cell)
            } else {
                MatchCode::Skip
            });
        }
        let code = self.columns.check_column(cell);
        if code != MatchCode::Include {
            return Ok(code);
        }
        let code = self.columns.check_versions(cell, timestamp, false);
        if !matches!(
            code,
            MatchCode::Include | MatchCode::IncludeAndSeekNextCol | MatchCode::IncludeAndSeekNextRow
        ) {
            return Ok(code);
        }
        self.ask_filter(cell, code, filter)
    }

    #[inline]
    pub(super) fn ask_filter(
        &mut self,
        cell: CellRef<'_>,
        code: MatchCode,
        filter: &mut Option<Box<dyn Filter>>,
    ) -> Result<MatchCode> {
        match filter {
            None => Ok(code),
            Some(filter) => {
                let answer = filter.filter_cell(cell)?;
                Ok(self.merge_filter(cell, code, answer))
            }
        }
    }

    /// Puts the filter's word and the column tracker's together (`UserScanQueryMatcher.mergeFilterResponse`).
    fn merge_filter(&mut self, cell: CellRef<'_>, code: MatchCode, answer: ReturnCode) -> MatchCode {
        use MatchCode::*;
        let mut code = match answer {
            ReturnCode::Skip => {
                return match code {
                    Include => Skip,
                    IncludeAndSeekNextCol => SeekNextCol,
                    _ => SeekNextRow,
                };
            }
            ReturnCode::NextCol => {
                return match code {
                    Include | IncludeAndSeekNextCol => self.columns.next_row_or_column(cell),
                    _ => SeekNextRow,
                };
            }
            ReturnCode::NextRow => return SeekNextRow,
            ReturnCode::SeekNextUsingHint => {
                return match code {
                    Include | IncludeAndSeekNextCol => SeekNextUsingHint,
                    _ => SeekNextRow,
                };
            }
            ReturnCode::Include => code,
            ReturnCode::IncludeAndNextCol if code == Include => IncludeAndSeekNextCol,
            ReturnCode::IncludeAndNextCol => code,
            ReturnCode::IncludeAndSeekNextRow => IncludeAndSeekNextRow,
        };
        let same_column = self.versions_column.as_deref() == Some(cell.qualifier());
        if !same_column {
            self.versions_count = 0;
            let column = self.versions_column.get_or_insert_with(Vec::new);
            column.clear();
            column.extend_from_slice(cell.qualifier());
        }
        self.versions_count += 1;
        if self.versions_count > self.versions_after_filter {
            code = if code == IncludeAndSeekNextRow { SeekNextRow } else { SeekNextCol };
        }
        if matches!(code, IncludeAndSeekNextCol | SeekNextCol) {
            self.columns.done_with_column(cell);
        }
        code
    }

    fn match_minor(&mut self, cell: CellRef<'_>, timestamp: i64) -> MatchCode {
        if cell.cell_type().is_delete() {
            self.track_delete(cell);
            return MatchCode::Include;
        }
        match self.check_hidden(cell) {
            Some(code) => code,
            None => self.columns.check_versions(cell, timestamp, false),
        }
    }

    fn match_major(&mut self, cell: CellRef<'_>, timestamp: i64, earliest_put: i64) -> MatchCode {
        if cell.cell_type().is_delete() {
            self.track_delete(cell);
            if self.is_too_young_to_purge(timestamp) {
                return MatchCode::Include;
            }
            if !self.marker_stays(timestamp) {
                return MatchCode::Skip;
            }
            if timestamp < earliest_put {
                return self.columns.next_row_or_column(cell); // nothing left that it could hide
            }
            if matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion) {
                return self.columns.check_family_marker(cell, timestamp);
            }
        } else if let Some(code) = self.check_hidden(cell) {
            return code;
        }
        self.columns.check_versions(cell, timestamp, false)
    }

    /// With KEEP_DELETED_CELLS compaction drops cells by versions and time to live only.
    fn track_delete(&mut self, cell: CellRef<'_>) {
        if !self.marker_stays(cell.timestamp()) {
            self.deletes.add(cell);
        }
    }

    /// Whether a major compaction leaves a marker for a later one (`DropDeletesCompactionScanQueryMatcher.tryDropDelete`).
    pub(super) fn is_too_young_to_purge(&self, timestamp: i64) -> bool {
        let age_ms = self.keeping.purge_deletes_after_ms;
        age_ms > 0 && self.now_ms.saturating_sub(timestamp) <= age_ms
    }

    /// Whether a major compaction keeps a marker, and a minor one what it hides.
    pub(super) fn marker_stays(&self, timestamp: i64) -> bool {
        match self.keeping.keep_deleted {
            KeepDeleted::True => true,
            KeepDeleted::Ttl => timestamp >= self.oldest_unexpired,
            KeepDeleted::False => false,
        }
    }
}
