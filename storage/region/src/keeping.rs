//! What stores and scans both speak of: which cells a family keeps, and spans of rows.

use bytes::Bytes;
use halcyon_schema::{FamilyDescriptor, KeepDeleted};

/// From this row on, and before that one; empty: no bound.
pub(crate) type RowSpan = (Bytes, Bytes);

/// What a family keeps; the part of its descriptor that decides about cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub max_versions: u32,
    pub min_versions: u32,
    /// Milliseconds; `None`: for ever.
    pub ttl_ms: Option<i64>,
    pub keep_deleted: KeepDeleted,
    /// Markers hide only what was written before them, and what was pushed out stays out
    /// (`NEW_VERSION_BEHAVIOR`).
    pub new_version_behavior: bool,
    /// Major compactions keep delete markers that are not older, in milliseconds.
    pub purge_deletes_after_ms: i64,
}

impl Keeping {
    pub fn of(family: &FamilyDescriptor) -> Keeping {
        Keeping {
            max_versions: family.versions().max(1),
            min_versions: family.min_versions(),
            ttl_ms: family.ttl_seconds().map(|s| i64::try_from(s.saturating_mul(1000)).unwrap_or(i64::MAX)),
            keep_deleted: family.keep_deleted(),
            new_version_behavior: family.new_version_behavior(),
            purge_deletes_after_ms: 0, // a setting of compactions
        }
    }

    /// Cells older than this have expired.
    pub fn oldest_unexpired(&self, now_ms: i64) -> i64 {
        self.ttl_ms.map_or(i64::MIN, |ttl| now_ms.saturating_sub(ttl))
    }
}
