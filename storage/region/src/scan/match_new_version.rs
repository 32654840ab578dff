//! The matcher of families with `NEW_VERSION_BEHAVIOR`. Time to live, time range, wanted columns and filter are those
//! of the others; which puts are still there is [`super::new_version`]'s word.
//!
//! Flushes and minor compactions keep every cell, sequence ids included, as what they see is not all (HBase:
//! `IncludeAllCompactionQueryMatcher`). So nothing that they do can change what is read.

use halcyon_cell::{CellRef, CellType, Result};
use halcyon_filter::Filter;

use super::matcher::{MatchCode, Matcher, Mode};
use super::new_version::{Fate, NewVersions};

impl Matcher {
    pub(super) fn match_in_order_of_writing(
        &mut self,
        cell: CellRef<'_>,
        filter: &mut Option<Box<dyn Filter>>,
    ) -> Result<MatchCode> {
        if self.mode == Mode::Minor && self.on_row() && cell.row() == self.row() {
            return Ok(MatchCode::Include);
        }
        if let Some(code) = self.before_deletes(cell) {
            return Ok(code);
        }
        self.versions().enter(cell);
        match self.mode {
            Mode::User { see_past_deletes } if cell.cell_type().is_delete() => {
                if self.is_in_force(cell.timestamp(), see_past_deletes) {
                    self.versions().add(cell, false);
                }
                Ok(MatchCode::Skip)
            }
            Mode::User { .. } => self.match_put(cell, filter),
            Mode::Major { earliest_put } if cell.cell_type().is_delete() => {
                Ok(self.compact_marker(cell, earliest_put))
            }
            Mode::Major { .. } => Ok(self.compact_put(cell)),
            Mode::Minor | Mode::Raw => unreachable!("handled before, or by the other matcher"),
        }
    }

    fn versions(&mut self) -> &mut NewVersions {
        self.new_versions.as_mut().expect("only called for such families")
    }

    fn match_put(&mut self, cell: CellRef<'_>, filter: &mut Option<Box<dyn Filter>>) -> Result<MatchCode> {
        let code = self.columns.check_column(cell);
        if code != MatchCode::Include {
            return Ok(if cell.qualifier().is_empty() { MatchCode::Skip } else { code });
        }
        let timestamp = cell.timestamp();
        if timestamp < self.time_range.min {
            return Ok(self.columns.next_row_or_column(cell));
        }
        if self.versions().judge(cell) != Fate::Live {
            let is_full = self.versions().is_full();
            return Ok(if is_full { self.leave_column(cell) } else { MatchCode::Skip });
        }
        if !self.time_range.contains(timestamp) {
            return Ok(MatchCode::Skip);
        }
        let versions = self.versions();
        versions.shown += 1;
        let shown = versions.shown;
        let is_expired = timestamp < self.oldest_unexpired;
        let unexpired = if is_expired { self.keeping.min_versions } else { u32::MAX };
        let wanted = self.versions_after_filter.min(unexpired);
        if shown > wanted {
            return Ok(self.leave_column(cell));
        }
        let mut code = MatchCode::Include;
        if shown == wanted {
            code = match self.leave_column(cell) {
                MatchCode::Skip => MatchCode::Include,
                MatchCode::SeekNextRow => MatchCode::IncludeAndSeekNextRow,
                _ => MatchCode::IncludeAndSeekNextCol,
            };
        }
        self.ask_filter(cell, code, filter)
    }

    /// Nothing more is wanted of the column. Family markers stand among the cells of the empty qualifier, so that
    /// column is not left by a seek.
    fn leave_column(&mut self, cell: CellRef<'_>) -> MatchCode {
        if cell.qualifier().is_empty() { MatchCode::Skip } else { self.columns.next_row_or_column(cell) }
    }

    /// A marker is written again if deleted cells are kept and it may hide one of those.
    fn compact_marker(&mut self, cell: CellRef<'_>, earliest_put: i64) -> MatchCode {
        let timestamp = cell.timestamp();
        let stays = self.marker_stays(timestamp);
        self.versions().add(cell, stays);
        if self.is_too_young_to_purge(timestamp) {
            return MatchCode::Include;
        }
        if !stays {
            return MatchCode::Skip;
        }
        if timestamp < earliest_put {
            return self.columns.next_row_or_column(cell); // nothing left that it could hide
        }
        let is_of_family = matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        if is_of_family || self.has_room(timestamp) { MatchCode::Include } else { MatchCode::Skip }
    }

    /// Puts that are still there stay within `VERSIONS` and `MIN_VERSIONS`. Deleted ones that are kept do if they would
    /// with nothing deleted; they never take the place of others.
    fn compact_put(&mut self, cell: CellRef<'_>) -> MatchCode {
        let timestamp = cell.timestamp();
        let min_versions = self.keeping.min_versions;
        let is_expired = timestamp < self.oldest_unexpired;
        let has_room = self.has_room(timestamp);
        let versions = self.versions();
        let is_kept = match versions.judge(cell) {
            Fate::Gone if versions.is_full() => return self.leave_column(cell),
            Fate::Gone => false,
            Fate::Deleted => has_room,
            Fate::Live => {
                versions.shown += 1;
                !is_expired || versions.shown <= min_versions
            }
        };
        versions.kept += u32::from(is_kept);
        if is_kept { MatchCode::Include } else { MatchCode::Skip }
    }

    /// Whether the column's kept versions are fewer than it may have of this age.
    fn has_room(&mut self, timestamp: i64) -> bool {
        let is_expired = timestamp < self.oldest_unexpired;
        let most = if is_expired { self.keeping.min_versions } else { self.keeping.max_versions };
        self.versions().kept < most
    }
}
