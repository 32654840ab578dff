//! Whether a region is large enough to be split, and where: HBase's split policies.
//!
//! | policy | splits when a store is over |
//! |---|---|
//! | `ConstantSize` | the maximum |
//! | `IncreasingToUpperBound` | the initial size times the cube of the number of the table's regions here; at most the maximum |
//! | `Stepping` (the default) | the initial size while the table has one region here, then the maximum |
//! | `KeyPrefix`, `DelimitedKeyPrefix` | as `IncreasingToUpperBound`; rows of one prefix stay together |
//! | `Busy` | as `IncreasingToUpperBound`: requests are not looked at |
//! | `Disabled`, classes of Phoenix | never, not even when asked |
//!
//! The maximum is `MAX_FILESIZE` of the table or `hbase.hregion.max.filesize`, varied from region to region so that
//! not all split at once. Checked against the classes `*RegionSplitPolicy` of 2.6.4.

use std::fmt;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_region::RegionStats;
use halcyon_schema::{PHOENIX_CLASSES, RegionInfo, RowPrefix, TableDescriptor};
use halcyon_settings::Effect::Online;
use halcyon_settings::{Description, Flag, Number, Section, Setting, settings};

/// With more regions of a table on a server than this, `IncreasingToUpperBound` waits for the maximum.
const CUBED_REGIONS_MAX: u64 = 100;
const POLICY: &str = "hbase.regionserver.region.split.policy";

/// What a server splits by where the table does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitSettings {
    /// Simple or full class name (`hbase.regionserver.region.split.policy`).
    pub policy: String,
    /// A region with a larger store is split (`hbase.hregion.max.filesize`).
    pub region_bytes_max: u64,
    /// Share of the maximum by which it varies, half of it to either side
    /// (`hbase.hregion.max.filesize.jitter`).
    pub jitter: f64,
    /// First size of the growing policies; 0: twice the flush size (`hbase.increasing.policy.initial.size`).
    pub initial_bytes: u64,
    /// Whether all stores together count, and not the largest (`hbase.hregion.split.overallfiles`).
    pub overall_files: bool,
    /// A server with this many regions asks for no more (`hbase.regionserver.regionSplitLimit`).
    pub regions_max: usize,
}

impl Default for SplitSettings {
    fn default() -> SplitSettings {
        SplitSettings {
            policy: "SteppingSplitPolicy".to_string(),
            region_bytes_max: 10 << 30,
            jitter: 0.25,
            initial_bytes: 0,
            overall_files: false,
            regions_max: 1000,
        }
    }
}

const SETTINGS: &[Section<SplitSettings>] = &[
    Section { title: "Splits", settings: &[POLICY_SETTING] },
    Section {
        title: "Splits",
        settings: settings!(SplitSettings:
            Online, "hbase.hregion.max.filesize", "bytes", Number, region_bytes_max,
                "A region with a larger store is split.";
            Online, "hbase.hregion.max.filesize.jitter", "share", Number, jitter,
                "Part of the maximum by which it varies, half to either side.";
            Online, "hbase.increasing.policy.initial.size", "bytes", Number, initial_bytes,
                "First size of the growing policies; 0: twice the flush size.";
            Online, "hbase.hregion.split.overallfiles", "true, false", Flag, overall_files,
                "Whether all stores together count, and not the largest.";
            Online, "hbase.regionserver.regionSplitLimit", "regions", Number, regions_max,
                "A server with this many regions asks for no more splits.";
        ),
    },
];

const POLICY_SETTING: Setting<SplitSettings> = Setting {
    name: POLICY,
    unit: "class",
    effect: Online,
    text: "When regions are split.",
    set: |settings, text| {
        Policy::by_name(text).ok_or_else(|| "is no policy that is known".to_string())?;
        settings.policy = text.trim().to_string();
        Ok(())
    },
    get: |settings| Some(settings.policy.clone()),
};

impl SplitSettings {
    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &SplitSettings::default())
    }
}

impl fmt::Display for SplitSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Constant,
    Cubed,
    Stepping,
    Never,
}

/// The policy of one table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    growth: Growth,
    prefix: RowPrefix,
}

impl Policy {
    /// The table's own policy or the server's. A class that is not known here may keep rows together, so its regions are not split.
    pub(crate) fn of(table: &TableDescriptor, settings: &SplitSettings) -> Policy {
        let named = table.setting("SPLIT_POLICY").or_else(|| table.setting(POLICY));
        let unknown = (Growth::Never, "");
        let (growth, prefix) = match named.filter(|name| !name.trim().is_empty()) {
            Some(name) => Policy::by_name(name).unwrap_or(unknown),
            None => Policy::by_name(&settings.policy).unwrap_or((Growth::Stepping, "")),
        };
        Policy { growth, prefix: prefix_of(table, prefix) }
    }

    /// How regions grow, and the first word of the class that cuts prefixes.
    fn by_name(name: &str) -> Option<(Growth, &'static str)> {
        if name.trim().starts_with(PHOENIX_CLASSES) {
            return Some((Growth::Never, ""));
        }
        Some(match name.trim().rsplit('.').next()? {
            "ConstantSizeRegionSplitPolicy" => (Growth::Constant, ""),
            "IncreasingToUpperBoundRegionSplitPolicy" | "BusyRegionSplitPolicy" => (Growth::Cubed, ""),
            "SteppingSplitPolicy" => (Growth::Stepping, ""),
            "KeyPrefixRegionSplitPolicy" => (Growth::Cubed, "KeyPrefix"),
            "DelimitedKeyPrefixRegionSplitPolicy" => (Growth::Cubed, "DelimitedKeyPrefix"),
            "DisabledRegionSplitPolicy" => (Growth::Never, ""),
            _ => return None,
        })
    }

    /// Whether regions of the table may be split at all.
    pub(crate) fn allows_splits(&self) -> bool {
        self.growth != Growth::Never
    }

    /// Whether a region is large enough. `regions_count`: of its table on this server, itself included;
    /// `flush_bytes`: its flush size.
    pub(crate) fn should_split(
        &self,
        region: &RegionInfo,
        table: &TableDescriptor,
        stats: &RegionStats,
        regions_count: usize,
        flush_bytes: u64,
        settings: &SplitSettings,
    ) -> bool {
        let most =
            varied(table.max_file_size().unwrap_or(settings.region_bytes_max), settings.jitter, region);
        let own = table.setting("hbase.increasing.policy.initial.size").and_then(|text| text.parse().ok());
        let initial = match own.unwrap_or(settings.initial_bytes) {
            0 => flush_bytes.saturating_mul(2),
            bytes => bytes,
        };
        let count = regions_count as u64;
        let limit = match self.growth {
            Growth::Never => return false,
            Growth::Constant => most,
            Growth::Stepping => {
                if count == 1 {
                    initial
                } else {
                    most
                }
            }
            Growth::Cubed if count == 0 || count > CUBED_REGIONS_MAX => most,
            Growth::Cubed => most.min(initial.saturating_mul(count * count * count)),
        };
        let size = if settings.overall_files { stats.store_file_bytes } else { stats.store_bytes_max };
        size > limit
    }

    /// Moves a split point to the beginning of its prefix.
    pub(crate) fn at_prefix(&self, row: Bytes) -> Bytes {
        self.prefix.start_of(row)
    }
}

fn prefix_of(table: &TableDescriptor, class: &str) -> RowPrefix {
    let length = "KeyPrefixRegionSplitPolicy.prefix_length";
    match class {
        "KeyPrefix" => RowPrefix::of_length(
            table.setting(length).or_else(|| table.setting("prefix_split_key_policy.prefix_length")),
        ),
        "DelimitedKeyPrefix" => {
            RowPrefix::of_delimiter(table.setting("DelimitedKeyPrefixRegionSplitPolicy.delimiter"))
        }
        _ => RowPrefix::Whole,
    }
}

/// HBase throws a die for each opening; here it is the region's name, so that a region keeps its maximum.
fn varied(bytes: u64, jitter: f64, region: &RegionInfo) -> u64 {
    let digits = region.encoded_name().get(..6).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let share = f64::from(digits.unwrap_or(1 << 23)) / f64::from(1 << 24);
    let change = bytes as f64 * (share - 0.5) * jitter;
    bytes.saturating_add_signed(change as i64)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    const MB: u64 = 1 << 20;

    fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap());
        attributes.iter().fold(table, |table, (name, value)| table.with(name, value))
    }

    fn splits_over(table: &TableDescriptor, settings: &SplitSettings, regions_count: usize) -> Option<u64> {
        let region = RegionInfo::new(table.name().clone(), "".into(), "".into(), 1);
        let policy = Policy::of(table, settings);
        let should = |bytes| {
            let stats = RegionStats { store_bytes_max: bytes, ..RegionStats::default() };
            policy.should_split(&region, table, &stats, regions_count, 128 * MB, settings)
        };
        if !should(u64::MAX) {
            return None;
        }
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if should(middle) { high = middle } else { low = middle + 1 }
        }
        Some(high - 1)
    }

    #[test]
    fn sizes_of_every_policy() {
        let settings = SplitSettings { jitter: 0.0, ..SplitSettings::default() };
        let class = |name: &str| format!("org.apache.hadoop.hbase.regionserver.{name}");
        let most = 10 << 30;
        for (policy, expected) in [
            ("SteppingSplitPolicy", [256 * MB, most, most, most]),
            ("ConstantSizeRegionSplitPolicy", [most; 4]),
            ("IncreasingToUpperBoundRegionSplitPolicy", [256 * MB, 2048 * MB, 6912 * MB, most]),
        ] {
            let table = table(&[("SPLIT_POLICY", &class(policy))]);
            for (at, bytes) in expected.into_iter().enumerate() {
                assert_eq!(splits_over(&table, &settings, at + 1), Some(bytes), "{policy} {}", at + 1);
            }
        }
        assert_eq!(splits_over(&table(&[]), &settings, 1), Some(256 * MB), "stepping is the default");
        let own = table(&[("MAX_FILESIZE", "1000"), (POLICY, &class("ConstantSizeRegionSplitPolicy"))]);
        assert_eq!(splits_over(&own, &settings, 1), Some(1000));
        let disabled = table(&[("SPLIT_POLICY", &class("DisabledRegionSplitPolicy"))]);
        assert_eq!(splits_over(&disabled, &settings, 1), None);
        assert!(!Policy::of(&disabled, &settings).allows_splits());
        assert!(
            !Policy::of(&table(&[("SPLIT_POLICY", "com.example.TenantSplitPolicy")]), &settings)
                .allows_splits()
        );
        let jitter =
            SplitSettings { policy: class("ConstantSizeRegionSplitPolicy"), ..SplitSettings::default() };
        let varied = splits_over(&table(&[]), &jitter, 1).unwrap();
        assert!(varied.abs_diff(most) <= most / 8 && varied != most, "{varied}");
    }

    #[test]
    fn rows_of_a_prefix_stay_together() {
        let settings = SplitSettings::default();
        let cases = [
            (vec![("SPLIT_POLICY", "KeyPrefixRegionSplitPolicy")], "user7_row"),
            (
                vec![
                    ("SPLIT_POLICY", "KeyPrefixRegionSplitPolicy"),
                    ("KeyPrefixRegionSplitPolicy.prefix_length", "4"),
                ],
                "user",
            ),
            (
                vec![
                    ("SPLIT_POLICY", "KeyPrefixRegionSplitPolicy"),
                    ("prefix_split_key_policy.prefix_length", "400"),
                ],
                "user7_row",
            ),
            (
                vec![
                    ("SPLIT_POLICY", "DelimitedKeyPrefixRegionSplitPolicy"),
                    ("DelimitedKeyPrefixRegionSplitPolicy.delimiter", "_"),
                ],
                "user7",
            ),
            (
                vec![
                    ("SPLIT_POLICY", "DelimitedKeyPrefixRegionSplitPolicy"),
                    ("DelimitedKeyPrefixRegionSplitPolicy.delimiter", "#"),
                ],
                "user7_row",
            ),
        ];
        for (attributes, expected) in cases {
            let policy = Policy::of(&table(&attributes), &settings);
            assert_eq!(policy.at_prefix("user7_row".into()), expected, "{attributes:?}");
        }
    }
}
