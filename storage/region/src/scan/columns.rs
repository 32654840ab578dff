//! Counts versions, and follows the wanted columns of a row.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use halcyon_cell::{CellRef, CellType, keep_bytes, same_bytes};

use super::matcher::MatchCode;

/// Which columns are wanted, and how many versions of the current one were seen
/// (HBase: `ExplicitColumnTracker`, `ScanWildcardColumnTracker`).
pub(crate) struct ColumnTracker {
    max_versions: u32,
    min_versions: u32,
    /// Cells older than this are expired.
    oldest_unexpired: i64,
    /// Versions counted of the current column.
    count: u32,
    last_timestamp: Option<i64>,
    last_type: u8,
    kind: Kind,
}

enum Kind {
    Wildcard { qualifier: Vec<u8>, on_column: bool },
    Explicit { qualifiers: Vec<Bytes>, at: usize },
}

impl ColumnTracker {
    pub fn new(
        wanted: Option<&BTreeSet<Bytes>>,
        max_versions: u32,
        min_versions: u32,
        oldest_unexpired: i64,
    ) -> ColumnTracker {
        let kind = match wanted {
            None => Kind::Wildcard { qualifier: Vec::new(), on_column: false },
            Some(set) => Kind::Explicit { qualifiers: set.iter().cloned().collect(), at: 0 },
        };
        ColumnTracker {
            max_versions,
            min_versions,
            oldest_unexpired,
            count: 0,
            last_timestamp: None,
            last_type: 0,
            kind,
        }
    }

    pub fn is_explicit(&self) -> bool {
        matches!(self.kind, Kind::Explicit { .. })
    }

    /// Starts a new row.
    pub fn reset(&mut self) {
        self.count = 0;
        self.last_timestamp = None;
        match &mut self.kind {
            Kind::Wildcard { on_column, .. } => *on_column = false,
            Kind::Explicit { at, .. } => *at = 0,
        }
    }

    /// No wanted column can follow in this row.
    pub fn done(&self) -> bool {
        match &self.kind {
            Kind::Wildcard { .. } => false,
            Kind::Explicit { qualifiers, at } => *at >= qualifiers.len(),
        }
    }

    /// The next wanted column, to seek to.
    pub fn hint(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Wildcard { .. } => None,
            Kind::Explicit { qualifiers, at } => qualifiers.get(*at),
        }
    }

    /// Whether a cell of this age can be passed over with all that is older.
    pub fn is_done_with(&self, timestamp: i64) -> bool {
        self.min_versions == 0 && timestamp < self.oldest_unexpired
    }

    /// Whether the cell's column is wanted.
    #[inline]
    pub fn check_column(&mut self, cell: CellRef<'_>) -> MatchCode {
        let Kind::Explicit { qualifiers, at } = &mut self.kind else { return MatchCode::Include };
        let qualifier = cell.qualifier();
        loop {
            let Some(wanted) = qualifiers.get(*at) else { return MatchCode::SeekNextRow };
            match qualifier.cmp(wanted) {
                Ordering::Equal => return MatchCode::Include,
                Ordering::Less => {
                    self.last_timestamp = None;
                    return MatchCode::SeekNextCol;
                }
                Ordering::Greater => {
                    self.last_timestamp = None;
                    self.count = 0;
                    *at += 1;
                }
            }
        }
    }

    /// Counts the cell as a version of its column. With `ignore_count` it is let through uncounted.
    #[inline]
    pub fn check_versions(&mut self, cell: CellRef<'_>, timestamp: i64, ignore_count: bool) -> MatchCode {
        let type_code = cell.type_code();
        match &mut self.kind {
            Kind::Wildcard { qualifier, on_column } => {
                let is_same = same_bytes(cell.qualifier(), qualifier);
                if !is_same {
                    keep_bytes(qualifier, cell.qualifier());
                }
                if !*on_column || !is_same {
                    *on_column = true;
                    self.count = 0;
                    self.last_timestamp = None;
                    if ignore_count {
                        return MatchCode::Include;
                    }
                } else {
                    if ignore_count {
                        return MatchCode::Include;
                    }
                    if self.last_timestamp == Some(timestamp) && self.last_type == type_code {
                        return MatchCode::Skip; // the same version again, from an older source
                    }
                }
                self.count_wildcard(timestamp, type_code)
            }
            Kind::Explicit { .. } => {
                if ignore_count {
                    return MatchCode::Include;
                }
                if self.last_timestamp == Some(timestamp) && self.last_type == type_code {
                    return MatchCode::Skip;
                }
                self.count_explicit(timestamp, type_code)
            }
        }
    }

    /// As `check_versions`, of a marker of the family that a compaction keeps: it lies among the versions of the column without
    /// a name and is none of them. However many those are, it still hides cells of other columns.
    pub fn check_family_marker(&mut self, cell: CellRef<'_>, timestamp: i64) -> MatchCode {
        if self.check_versions(cell, timestamp, false) == MatchCode::Skip {
            return MatchCode::Skip; // the same marker again
        }
        (self.last_timestamp, self.last_type) = (Some(timestamp), cell.type_code());
        MatchCode::Include
    }

    fn count_wildcard(&mut self, timestamp: i64, type_code: u8) -> MatchCode {
        if !CellType::from_code(type_code).is_some_and(CellType::is_delete) {
            self.count += 1;
        }
        if self.count > self.max_versions {
            return MatchCode::SeekNextCol;
        }
        if self.count <= self.min_versions || timestamp >= self.oldest_unexpired {
            self.last_timestamp = Some(timestamp);
            self.last_type = type_code;
            return MatchCode::Include;
        }
        MatchCode::SeekNextCol
    }

    fn count_explicit(&mut self, timestamp: i64, type_code: u8) -> MatchCode {
        self.count += 1;
        assert!(
            self.count <= self.max_versions.max(1),
            "a wanted column is left with its last version; this one would be version {}",
            self.count
        );
        self.last_timestamp = Some(timestamp);
        self.last_type = type_code;
        let expired = timestamp < self.oldest_unexpired;
        if self.count >= self.max_versions || (self.count >= self.min_versions && expired) {
            self.advance();
            return if self.done() {
                MatchCode::IncludeAndSeekNextRow
            } else {
                MatchCode::IncludeAndSeekNextCol
            };
        }
        MatchCode::Include
    }

    fn advance(&mut self) {
        if let Kind::Explicit { at, .. } = &mut self.kind {
            *at += 1;
        }
        self.count = 0;
        self.last_timestamp = None;
    }

    /// Nothing more is wanted of the cell's column.
    pub fn done_with_column(&mut self, cell: CellRef<'_>) {
        let qualifier = cell.qualifier();
        while let Kind::Explicit { qualifiers, at } = &self.kind
            && qualifiers.get(*at).is_some_and(|wanted| wanted.as_ref() <= qualifier)
        {
            self.advance();
        }
    }

    /// Where to go when nothing more is wanted of the cell's column.
    pub fn next_row_or_column(&mut self, cell: CellRef<'_>) -> MatchCode {
        if !self.is_explicit() {
            return MatchCode::SeekNextCol;
        }
        self.done_with_column(cell);
        if self.done() { MatchCode::SeekNextRow } else { MatchCode::SeekNextCol }
    }
}
