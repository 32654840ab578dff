//! How a store knows which files it has (HBase: `StoreFileTrackerFactory`, `MigrationStoreFileTracker`).
//!
//! | name | a store's files are |
//! |---|---|
//! | `DEFAULT` | all of its directory |
//! | `FILE` | those that a list in its directory names |
//! | `MIGRATION` | those that the tracker it comes from knows; both trackers are kept up to date |

use halcyon_cell::{Error, Result};

use crate::{FamilyDescriptor, TableDescriptor};

/// The setting that names the tracker, of a family or a table. HBase writes it into every table.
pub const STORE_FILE_TRACKER: &str = "hbase.store.file-tracker.impl";
/// With `MIGRATION`: the tracker that a store comes from.
pub const TRACKER_MIGRATION_SRC: &str = "hbase.store.file-tracker.migration.src.impl";
/// With `MIGRATION`: the tracker that a store goes to.
pub const TRACKER_MIGRATION_DST: &str = "hbase.store.file-tracker.migration.dst.impl";

const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.storefiletracker.";

/// One of HBase's trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracker {
    Default,
    File,
    Migration,
}

impl Tracker {
    const ALL: [Tracker; 3] = [Tracker::Default, Tracker::File, Tracker::Migration];

    /// HBase takes the name in any case, or the class. `None`: neither.
    pub fn parse(text: &str) -> Option<Tracker> {
        let is_of = |tracker: &Tracker| {
            text.eq_ignore_ascii_case(tracker.name())
                || text.trim().strip_prefix(PACKAGE) == Some(tracker.class_suffix())
        };
        Tracker::ALL.into_iter().find(is_of)
    }

    pub fn name(self) -> &'static str {
        match self {
            Tracker::Default => "DEFAULT",
            Tracker::File => "FILE",
            Tracker::Migration => "MIGRATION",
        }
    }

    /// The class, as Java shows it.
    pub fn class(self) -> String {
        format!("class {PACKAGE}{}", self.class_suffix())
    }

    fn class_suffix(self) -> &'static str {
        match self {
            Tracker::Default => "DefaultStoreFileTracker",
            Tracker::File => "FileBasedStoreFileTracker",
            Tracker::Migration => "MigrationStoreFileTracker",
        }
    }
}

/// What the stores of a family do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFileTracker {
    /// What an opening goes by.
    src: Tracker,
    /// The same without a migration.
    dst: Tracker,
}

impl StoreFileTracker {
    pub const DEFAULT: StoreFileTracker = StoreFileTracker { src: Tracker::Default, dst: Tracker::Default };
    pub const FILE: StoreFileTracker = StoreFileTracker { src: Tracker::File, dst: Tracker::File };

    /// An opening goes by the list, and by nothing else.
    pub fn loads_list(self) -> bool {
        self.src == Tracker::File
    }

    /// Each change of the files is written to the list.
    pub fn writes_list(self) -> bool {
        self.src == Tracker::File || self.dst == Tracker::File
    }

    /// A file that is not whole may be in the store's directory: nobody takes it for one of the store's. During a migration
    /// one side would (HBase: `requireWritingToTmpDirFirst`).
    pub fn writes_in_place(self) -> bool {
        self.src == Tracker::File && self.dst == Tracker::File
    }

    pub fn is_migration(self) -> bool {
        self.src != self.dst
    }
}

impl TableDescriptor {
    /// A setting of a store: that of the family counts before that of the table (HBase: `StoreUtils.createStoreConfiguration`).
    pub(crate) fn store_setting<'a>(&'a self, family: &'a FamilyDescriptor, key: &str) -> Option<&'a str> {
        // There attributes of a family count before its configuration.
        let attribute = family.attribute(key.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
        attribute
            .or_else(|| family.configuration().get(key).map(String::as_str))
            .or_else(|| self.setting(key))
            .filter(|text| !text.is_empty())
    }

    /// The tracker that is set for a family. Invalid if it is none of HBase's.
    pub fn tracker(&self, family: &FamilyDescriptor) -> Result<Tracker> {
        self.tracker_at(family, STORE_FILE_TRACKER).map(|tracker| tracker.unwrap_or(Tracker::Default))
    }

    /// The trackers between which a family migrates. Invalid if one is missing or is `MIGRATION` itself.
    pub fn migration(&self, family: &FamilyDescriptor) -> Result<(Tracker, Tracker)> {
        let side = |key: &str| match self.tracker_at(family, key)? {
            None => Err(Error::invalid(format!("config {key} is not set"))),
            Some(Tracker::Migration) => Err(Error::invalid(format!(
                "Should not specify {key} as MIGRATION because it can not be nested"
            ))),
            Some(tracker) => Ok(tracker),
        };
        Ok((side(TRACKER_MIGRATION_SRC)?, side(TRACKER_MIGRATION_DST)?))
    }

    fn tracker_at(&self, family: &FamilyDescriptor, key: &str) -> Result<Option<Tracker>> {
        let Some(text) = self.store_setting(family, key) else { return Ok(None) };
        let unknown =
            || Error::invalid(format!("{key} of family {} is '{text}': {TRACKERS}", family.name_str()));
        Tracker::parse(text).ok_or_else(unknown).map(Some)
    }

    /// What the stores of a family do. Invalid if the settings cannot be obeyed: with another tracker a store would show
    /// wrong cells or none.
    pub fn store_file_tracker(&self, family: &FamilyDescriptor) -> Result<StoreFileTracker> {
        match self.tracker(family)? {
            Tracker::Migration => {
                let (src, dst) = self.migration(family)?;
                if src == dst {
                    let message = format!("src and dst is the same: {}", src.class());
                    return Err(Error::invalid(message));
                }
                Ok(StoreFileTracker { src, dst })
            }
            tracker => Ok(StoreFileTracker { src: tracker, dst: tracker }),
        }
    }
}

const TRACKERS: &str = "supported are DEFAULT, FILE and MIGRATION";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableName;

    fn family() -> FamilyDescriptor {
        FamilyDescriptor::new("f").unwrap()
    }

    fn table() -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"t").unwrap())
    }

    #[test]
    fn names_and_classes() {
        assert_eq!(Tracker::parse("file"), Some(Tracker::File));
        let class = "org.apache.hadoop.hbase.regionserver.storefiletracker.DefaultStoreFileTracker";
        assert_eq!(Tracker::parse(class), Some(Tracker::Default));
        assert_eq!(Tracker::Default.class(), format!("class {class}"));
        for unknown in ["", " ", "FILES", "a.b.FileBasedStoreFileTracker"] {
            assert_eq!(Tracker::parse(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn a_family_has_its_own_or_that_of_the_table() {
        let of =
            |table: TableDescriptor, family: FamilyDescriptor| table.store_file_tracker(&family).unwrap();
        assert_eq!(of(table(), family()), StoreFileTracker::DEFAULT);
        assert_eq!(of(table().with(STORE_FILE_TRACKER, "file"), family()), StoreFileTracker::FILE);
        let own = family().with_configuration(STORE_FILE_TRACKER, "DEFAULT");
        assert_eq!(of(table().with(STORE_FILE_TRACKER, "FILE"), own.clone()), StoreFileTracker::DEFAULT);
        assert_eq!(of(table(), own.with(STORE_FILE_TRACKER, "FILE")), StoreFileTracker::FILE);
    }

    #[test]
    fn a_migration_names_two_trackers() {
        let between = |src: &str, dst: &str| {
            table()
                .with(STORE_FILE_TRACKER, "MIGRATION")
                .with(TRACKER_MIGRATION_SRC, src)
                .with(TRACKER_MIGRATION_DST, dst)
                .store_file_tracker(&family())
        };
        let there = between("DEFAULT", "FILE").unwrap();
        assert!(there.writes_list() && !there.loads_list() && !there.writes_in_place());
        let back = between("FILE", "DEFAULT").unwrap();
        assert!(back.writes_list() && back.loads_list() && !back.writes_in_place());
        for (src, dst) in [("FILE", "FILE"), ("MIGRATION", "FILE"), ("", "FILE"), ("DEFAULT", "x")] {
            between(src, dst).unwrap_err();
        }
    }
}
