use std::collections::{BTreeMap, BTreeSet};

/// Timestamps from `min` up to but not including `max`, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub min: i64,
    pub max: i64,
}

impl TimeRange {
    /// HBase's default range.
    pub const ALL: TimeRange = TimeRange { min: 0, max: i64::MAX };

    /// `i64::MAX` as the end includes that timestamp itself, as in HBase.
    pub fn contains(&self, timestamp: i64) -> bool {
        timestamp >= self.min && !self.is_before(timestamp)
    }

    /// Whether the range ends before the timestamp.
    pub(crate) fn is_before(&self, timestamp: i64) -> bool {
        self.max != i64::MAX && timestamp >= self.max
    }
}

/// A read: which rows, and what of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleScan {
    /// Where to begin, in the direction of the scan; empty is the first row, or the last one if reversed.
    pub start_row: Vec<u8>,
    pub start_inclusive: bool,
    /// Where to end; empty is after all rows.
    pub stop_row: Vec<u8>,
    pub stop_inclusive: bool,
    pub reversed: bool,
    /// The families to read, each whole (`None`) or some of its qualifiers; empty is all of all families.
    /// HBase refuses qualifiers in raw scans, and so does the oracle.
    pub columns: BTreeMap<Vec<u8>, Option<BTreeSet<Vec<u8>>>>,
    /// Versions of a column; HBase's default is 1.
    pub versions_max: usize,
    pub time_range: TimeRange,
    /// Takes the place of `time_range` for some families.
    pub family_time_ranges: BTreeMap<Vec<u8>, TimeRange>,
    /// Delete markers and deleted cells are returned as they are stored.
    pub raw: bool,
    /// Rows at most.
    pub limit: Option<usize>,
    /// Cells of a row and family at most, after `store_offset` of them were passed over.
    pub store_limit: Option<usize>,
    pub store_offset: usize,
    /// Cells of one result at most; longer rows come in several results.
    pub batch: Option<usize>,
}

impl OracleScan {
    /// Every row, the newest version of every column.
    pub fn all() -> OracleScan {
        OracleScan {
            start_row: Vec::new(),
            start_inclusive: true,
            stop_row: Vec::new(),
            stop_inclusive: false,
            reversed: false,
            columns: BTreeMap::new(),
            versions_max: 1,
            time_range: TimeRange::ALL,
            family_time_ranges: BTreeMap::new(),
            raw: false,
            limit: None,
            store_limit: None,
            store_offset: 0,
            batch: None,
        }
    }

    /// One row: a scan from the row through the row, as HBase sees a get.
    pub fn get(row: &[u8]) -> OracleScan {
        OracleScan {
            start_row: row.to_vec(),
            stop_row: row.to_vec(),
            stop_inclusive: true,
            ..OracleScan::all()
        }
    }

    /// Whether this is what [`OracleScan::get`] makes; an engine may take another path for it.
    pub fn is_get(&self) -> bool {
        !self.start_row.is_empty()
            && self.start_row == self.stop_row
            && self.start_inclusive
            && self.stop_inclusive
            && !self.reversed
            && !self.raw
            && self.limit.is_none()
    }

    pub fn versions(self, versions_max: usize) -> OracleScan {
        OracleScan { versions_max, ..self }
    }

    pub fn raw(self) -> OracleScan {
        OracleScan { raw: true, ..self }
    }

    pub fn time(self, min: i64, max: i64) -> OracleScan {
        OracleScan { time_range: TimeRange { min, max }, ..self }
    }

    pub fn family(mut self, family: &[u8]) -> OracleScan {
        self.columns.insert(family.to_vec(), None);
        self
    }

    pub fn column(mut self, family: &[u8], qualifier: &[u8]) -> OracleScan {
        let entry = self.columns.entry(family.to_vec()).or_insert_with(|| Some(BTreeSet::new()));
        if let Some(qualifiers) = entry {
            qualifiers.insert(qualifier.to_vec());
        }
        self
    }

    pub(crate) fn includes_row(&self, row: &[u8]) -> bool {
        let (low, low_inclusive, high, high_inclusive) = if self.reversed {
            (&self.stop_row, self.stop_inclusive, &self.start_row, self.start_inclusive)
        } else {
            (&self.start_row, self.start_inclusive, &self.stop_row, self.stop_inclusive)
        };
        let above = low.is_empty() || row > &low[..] || (low_inclusive && row == &low[..]);
        let below = high.is_empty() || row < &high[..] || (high_inclusive && row == &high[..]);
        above && below
    }

    pub(crate) fn includes_family(&self, family: &[u8]) -> bool {
        self.columns.is_empty() || self.columns.contains_key(family)
    }

    /// The qualifiers that are asked for one by one; `None` if all are.
    pub(crate) fn qualifiers(&self, family: &[u8]) -> Option<&BTreeSet<Vec<u8>>> {
        self.columns.get(family).and_then(Option::as_ref)
    }

    pub(crate) fn time_range_of(&self, family: &[u8]) -> TimeRange {
        self.family_time_ranges.get(family).copied().unwrap_or(self.time_range)
    }
}
