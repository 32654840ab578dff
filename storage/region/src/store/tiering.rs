//! Data tiering: data that is older than a family's hot data has no place in the block cache.
//!
//! A file is cold when its newest cell is older than that. Its data blocks are then neither kept by reads, nor put into the
//! cache ahead of them, and they are the first to go when the cache is full. HBase: `DataTieringManager`.

use halcyon_schema::{FamilyDescriptor, TableDescriptor};

use super::StoreFile;

pub(crate) const KIND: &str = "hbase.hstore.datatiering.type";
pub(crate) const HOT_AGE: &str = "hbase.hstore.datatiering.hot.age.millis";
const HOT_AGE_DEFAULT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// What HBase's `CustomTieringMultiFileWriter` says of the times in a file.
const CUSTOM_TIME_RANGE: &str = "CUSTOM_TIERING_TIME_RANGE";

/// By which time a file is as new as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TieredBy {
    /// The timestamps of its cells (`TIME_RANGE`).
    Cells,
    /// A time that HBase took from values of a column and wrote into the file (`CUSTOM`). A file without it is hot.
    FileInfo,
}

/// How old the hot data of a family can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiering {
    hot_age_ms: i64,
    by: TieredBy,
}

impl Tiering {
    /// `None`: all data of the family are hot. What the family says counts before what the table says; a value that cannot
    /// be read is passed over, because the table was checked when it was made.
    pub fn of(family: &FamilyDescriptor, table: &TableDescriptor) -> Option<Tiering> {
        let setting = |key| family.setting(key).or_else(|| table.setting(key)).map(str::trim);
        let by = match setting(KIND)? {
            "TIME_RANGE" => TieredBy::Cells,
            "CUSTOM" => TieredBy::FileInfo,
            _ => return None,
        };
        let hot_age_ms = setting(HOT_AGE).and_then(|text| text.parse().ok()).unwrap_or(HOT_AGE_DEFAULT_MS);
        Some(Tiering { hot_age_ms, by })
    }

    pub fn is_hot(&self, file: &StoreFile, now_ms: i64) -> bool {
        let range = match self.by {
            TieredBy::Cells => file.time_range,
            TieredBy::FileInfo => file.hfile.info().time_range_named(CUSTOM_TIME_RANGE),
        };
        range.is_none_or(|(_, newest)| now_ms.saturating_sub(newest) <= self.hot_age_ms)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    #[test]
    fn the_family_counts_before_the_table() {
        let family = FamilyDescriptor::new("f").unwrap();
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap());
        let tiered = |kind| table.clone().with(KIND, kind).with(HOT_AGE, "5000");
        assert_eq!(Tiering::of(&family, &table), None);
        assert_eq!(Tiering::of(&family, &tiered("NONE")), None);
        let by_table = Tiering { hot_age_ms: 5000, by: TieredBy::Cells };
        assert_eq!(Tiering::of(&family, &tiered("TIME_RANGE")), Some(by_table));
        let own_age = family.with(HOT_AGE, "7").with(KIND, "CUSTOM");
        let by_family = Tiering { hot_age_ms: 7, by: TieredBy::FileInfo };
        assert_eq!(Tiering::of(&own_age, &tiered("TIME_RANGE")), Some(by_family));
        let default_age = Tiering { hot_age_ms: HOT_AGE_DEFAULT_MS, ..by_family };
        let only_kind = FamilyDescriptor::new("f").unwrap().with(KIND, "CUSTOM");
        assert_eq!(Tiering::of(&only_kind, &table), Some(default_age));
    }
}
