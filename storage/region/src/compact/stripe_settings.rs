use std::fmt;

use halcyon_cell::Result;

use super::settings::parsed;

/// Settings of stripe compaction (`hbase.store.stripe.*`; HBase: `StripeStoreConfig`). `None`: made of others, see the
/// methods.
#[derive(Clone, Debug, PartialEq)]
pub struct StripeSettings {
    /// Stripes made when there are none yet (`initialStripeCount`).
    pub initial_count: usize,
    /// Size at which a stripe is divided when it is compacted whole (`sizeToSplit`).
    pub size_to_split_bytes: Option<u64>,
    /// Into how many it is divided, over 1; a fraction leaves the last one smaller (`splitPartCount`).
    pub split_part_count: f64,
    /// Fewest files of a stripe that are worth a compaction (`compaction.minFiles`).
    pub files_min: Option<usize>,
    /// Most files of a stripe that a compaction takes (`compaction.maxFiles`).
    pub files_max: Option<usize>,
    /// Fewest files of level 0 that are worth a compaction (`compaction.minFilesL0`).
    pub level0_files_min: usize,
    /// Flushes write one file for all stripes, to level 0 (`compaction.flushToL0`).
    pub flush_to_level0: bool,
    /// A region is split between two stripes if one side is not more than so many times the other
    /// (`region.split.max.imbalance`).
    pub split_imbalance_max: f64,
}

impl Default for StripeSettings {
    fn default() -> StripeSettings {
        StripeSettings {
            initial_count: 1,
            size_to_split_bytes: None,
            split_part_count: 2.0,
            files_min: None,
            files_max: None,
            level0_files_min: 4,
            flush_to_level0: false,
            split_imbalance_max: 1.5,
        }
    }
}

const INITIAL_COUNT: &str = "hbase.store.stripe.initialStripeCount";
const SIZE_TO_SPLIT: &str = "hbase.store.stripe.sizeToSplit";
const PART_COUNT: &str = "hbase.store.stripe.splitPartCount";
const COUNT_MIN: &str = "hbase.store.stripe.compaction.minFiles";
const COUNT_MAX: &str = "hbase.store.stripe.compaction.maxFiles";
const COUNT_MIN_LEVEL0: &str = "hbase.store.stripe.compaction.minFilesL0";
const FLUSH_TO_LEVEL0: &str = "hbase.store.stripe.compaction.flushToL0";
const IMBALANCE: &str = "hbase.store.stripe.region.split.max.imbalance";

pub(super) const NAMES: [&str; 8] = [
    INITIAL_COUNT,
    SIZE_TO_SPLIT,
    PART_COUNT,
    COUNT_MIN,
    COUNT_MAX,
    COUNT_MIN_LEVEL0,
    FLUSH_TO_LEVEL0,
    IMBALANCE,
];

impl StripeSettings {
    /// As [`super::CompactionSettings::set`].
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            INITIAL_COUNT => self.initial_count = parsed::<usize>(name, value)?.max(1),
            SIZE_TO_SPLIT => self.size_to_split_bytes = Some(parsed(name, value)?),
            PART_COUNT => {
                let count = over_one(parsed(name, value)?, 2.0);
                self.split_part_count = if (count - 1.0).abs() < EPSILON { 2.0 } else { count };
            }
            COUNT_MIN => self.files_min = Some(parsed(name, value)?),
            COUNT_MAX => self.files_max = Some(parsed(name, value)?),
            COUNT_MIN_LEVEL0 => self.level0_files_min = parsed(name, value)?,
            FLUSH_TO_LEVEL0 => self.flush_to_level0 = parsed(name, value)?,
            IMBALANCE => self.split_imbalance_max = over_one(parsed(name, value)?, 1.5),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `of_others`: what `hbase.hstore.compaction.min` says.
    pub(super) fn files_min(&self, of_others: usize) -> usize {
        let at_least = if self.flush_to_level0 { 3 } else { 4 };
        self.files_min.unwrap_or(of_others.max(at_least)).max(2)
    }

    /// `of_others`: what `hbase.hstore.compaction.max` says.
    pub(super) fn files_max(&self, of_others: usize) -> usize {
        self.files_max.unwrap_or(of_others)
    }

    pub(super) fn size_to_split_bytes(&self, flush_size_bytes: u64) -> u64 {
        let default = flush_size_bytes as f64 * self.level0_files_min as f64 * 4.0 * self.split_part_count;
        self.size_to_split_bytes.unwrap_or(default as u64)
    }

    /// Size that a part has after a division.
    pub(super) fn part_size_bytes(&self, flush_size_bytes: u64) -> u64 {
        ((self.size_to_split_bytes(flush_size_bytes) as f64 / self.split_part_count) as u64).max(1)
    }
}

impl fmt::Display for StripeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{INITIAL_COUNT} = {}", self.initial_count)?;
        if let Some(bytes) = self.size_to_split_bytes {
            writeln!(f, "{SIZE_TO_SPLIT} = {bytes}")?;
        }
        writeln!(f, "{PART_COUNT} = {}", self.split_part_count)?;
        if let Some(count) = self.files_min {
            writeln!(f, "{COUNT_MIN} = {count}")?;
        }
        if let Some(count) = self.files_max {
            writeln!(f, "{COUNT_MAX} = {count}")?;
        }
        writeln!(f, "{COUNT_MIN_LEVEL0} = {}", self.level0_files_min)?;
        writeln!(f, "{FLUSH_TO_LEVEL0} = {}", self.flush_to_level0)?;
        writeln!(f, "{IMBALANCE} = {}", self.split_imbalance_max)
    }
}

/// Good enough for counts that people write.
const EPSILON: f64 = 0.001;

/// A part below one stands for its reciprocal; one that is too small or below zero for the default.
fn over_one(value: f64, default: f64) -> f64 {
    match value {
        _ if value.is_nan() || value < EPSILON => default,
        _ if value > 1.0 => value,
        _ => 1.0 / value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_other_settings() {
        let mut settings = StripeSettings::default();
        assert_eq!((settings.files_min(3), settings.files_min(6), settings.files_max(10)), (4, 6, 10));
        assert_eq!(settings.size_to_split_bytes(100), 100 * 4 * 4 * 2);
        assert_eq!(settings.part_size_bytes(100), 100 * 4 * 4);
        for (name, value) in [(FLUSH_TO_LEVEL0, "true"), (PART_COUNT, "0.4"), (SIZE_TO_SPLIT, "1000")] {
            assert!(settings.set(name, value).unwrap());
        }
        assert_eq!((settings.files_min(3), settings.part_size_bytes(100)), (3, 400));
        assert!(settings.set(PART_COUNT, "1").unwrap());
        assert!(settings.set(IMBALANCE, "-1").unwrap());
        assert_eq!((settings.split_part_count, settings.split_imbalance_max), (2.0, 1.5));
    }
}
