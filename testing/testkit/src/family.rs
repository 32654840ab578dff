/// What happens to cells that a delete marker hides (HBase: `KEEP_DELETED_CELLS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeletedCells {
    /// Compactions drop them.
    #[default]
    False,
    /// They stay until versions or TTL remove them, and so do the markers.
    True,
    /// They stay until the marker is older than the TTL.
    Ttl,
}

/// The settings of a family that change what a read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyOptions {
    pub name: Vec<u8>,
    /// `VERSIONS`: as many versions of a column are kept and shown. At least 1.
    pub versions_max: usize,
    /// `MIN_VERSIONS`: as many versions are kept and shown even if the TTL has passed.
    pub min_versions: usize,
    /// `TTL` in milliseconds; `None` is for ever.
    pub ttl_ms: Option<i64>,
    pub keep_deleted_cells: KeepDeletedCells,
    /// `NEW_VERSION_BEHAVIOR`: versions and deletes by the order of writing.
    pub new_version_behavior: bool,
}

impl FamilyOptions {
    /// HBase's defaults: one version, for ever.
    pub fn new(name: &[u8]) -> FamilyOptions {
        FamilyOptions {
            name: name.to_vec(),
            versions_max: 1,
            min_versions: 0,
            ttl_ms: None,
            keep_deleted_cells: KeepDeletedCells::False,
            new_version_behavior: false,
        }
    }

    pub fn versions(self, versions_max: usize) -> FamilyOptions {
        FamilyOptions { versions_max, ..self }
    }

    pub fn min_versions(self, min_versions: usize) -> FamilyOptions {
        FamilyOptions { min_versions, ..self }
    }

    pub fn ttl_ms(self, ttl_ms: i64) -> FamilyOptions {
        FamilyOptions { ttl_ms: Some(ttl_ms), ..self }
    }

    pub fn keep(self, keep_deleted_cells: KeepDeletedCells) -> FamilyOptions {
        FamilyOptions { keep_deleted_cells, ..self }
    }

    pub fn new_version_behavior(self) -> FamilyOptions {
        FamilyOptions { new_version_behavior: true, ..self }
    }

    /// Timestamps below this one have expired at `now_ms`.
    pub(crate) fn oldest_unexpired(&self, now_ms: i64) -> i64 {
        self.ttl_ms.map_or(i64::MIN, |ttl_ms| now_ms.saturating_sub(ttl_ms))
    }
}
