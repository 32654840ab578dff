//! HBase's properties for compactions with mob files.

use std::str::FromStr;

use halcyon_schema::{FamilyDescriptor, TableDescriptor};

/// What a major compaction does with mob files (`hbase.mob.compaction.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MobCompactionType {
    /// All values of a region go to one new file.
    Full,
    /// Values in files of at least `hbase.mob.compactions.max.file.size` stay there, and new files are about as large.
    Optimized,
}

/// Settings of one store; names in parentheses are the properties that set them.
#[derive(Clone, Debug, PartialEq)]
pub struct MobSettings {
    /// `full` or `optimized`; HBase takes any other word for `full` (`hbase.mob.compaction.type`).
    pub compaction_type: String,
    /// See [`MobCompactionType::Optimized`] (`hbase.mob.compactions.max.file.size`).
    pub file_bytes_max: u64,
    /// A major compaction drops references whose file is gone, and does not fail
    /// (`hbase.unsafe.mob.discard.miss`).
    pub discards_missing: bool,
}

impl Default for MobSettings {
    fn default() -> MobSettings {
        MobSettings { compaction_type: "full".to_string(), file_bytes_max: 1 << 30, discards_missing: false }
    }
}

impl MobSettings {
    pub fn compaction_type(&self) -> MobCompactionType {
        match &*self.compaction_type {
            "optimized" => MobCompactionType::Optimized,
            _ => MobCompactionType::Full,
        }
    }

    /// These settings with what the family, or else the table, sets for itself. A value that cannot be read is passed over.
    pub(crate) fn for_store(mut self, table: &TableDescriptor, family: &FamilyDescriptor) -> MobSettings {
        fn take<T: FromStr>(table: &TableDescriptor, family: &FamilyDescriptor, name: &str, field: &mut T) {
            let text = family.setting(name).or_else(|| table.setting(name));
            if let Some(value) = text.and_then(|text| text.trim().parse().ok()) {
                *field = value;
            }
        }
        take(table, family, "hbase.mob.compaction.type", &mut self.compaction_type);
        take(table, family, "hbase.mob.compactions.max.file.size", &mut self.file_bytes_max);
        take(table, family, "hbase.unsafe.mob.discard.miss", &mut self.discards_missing);
        self
    }
}
