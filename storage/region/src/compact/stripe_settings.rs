use std::fmt;
use std::str::FromStr;

use halcyon_cell::Result;
use halcyon_settings::Effect::Online;
use halcyon_settings::{Description, Flag, Maybe, Number, Section, Setting, settings};

use super::stripe::STRIPES_COUNT_MAX;

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

const SETTINGS: &[Section<StripeSettings>] = &[
    Section {
        title: "Compaction",
        settings: settings!(StripeSettings:
            Online, "hbase.store.stripe.sizeToSplit", "bytes", Maybe<Number>, size_to_split_bytes,
                "Size at which a stripe is divided. Not set: computed from the flush size.";
            Online, "hbase.store.stripe.compaction.minFiles", "files", Maybe<Number>, files_min,
                "Fewest files of a stripe that are worth a compaction. Not set: as `hbase.hstore.compaction.min`, at \
                 least 4.";
            Online, "hbase.store.stripe.compaction.maxFiles", "files", Maybe<Number>, files_max,
                "Most files of a stripe that a compaction takes. Not set: as `hbase.hstore.compaction.max`.";
            Online, "hbase.store.stripe.compaction.minFilesL0", "files", Number, level0_files_min,
                "Fewest files of level 0 that are worth a compaction.";
            Online, "hbase.store.stripe.compaction.flushToL0", "true, false", Flag, flush_to_level0,
                "Flushes write one file for all stripes, to level 0.";
        ),
    },
    Section { title: "Compaction", settings: &[INITIAL_COUNT, PART_COUNT, IMBALANCE] },
];

const INITIAL_COUNT: Setting<StripeSettings> = Setting {
    name: "hbase.store.stripe.initialStripeCount",
    unit: "stripes",
    effect: Online,
    text: "Stripes made when there are none yet.",
    set: |settings, text| {
        settings.initial_count = number::<usize>(text)?.clamp(1, STRIPES_COUNT_MAX);
        Ok(())
    },
    get: |settings| Some(settings.initial_count.to_string()),
};

const PART_COUNT: Setting<StripeSettings> = Setting {
    name: "hbase.store.stripe.splitPartCount",
    unit: "parts",
    effect: Online,
    text: "Into how many a stripe is divided.",
    set: |settings, text| {
        let count = over_one(number(text)?, 2.0);
        settings.split_part_count = if (count - 1.0).abs() < EPSILON { 2.0 } else { count };
        Ok(())
    },
    get: |settings| Some(settings.split_part_count.to_string()),
};

const IMBALANCE: Setting<StripeSettings> = Setting {
    name: "hbase.store.stripe.region.split.max.imbalance",
    unit: "times",
    effect: Online,
    text: "A region is split between two stripes if neither side is more than so many times the other.",
    set: |settings, text| {
        settings.split_imbalance_max = over_one(number(text)?, 1.5);
        Ok(())
    },
    get: |settings| Some(settings.split_imbalance_max.to_string()),
};

fn number<T: FromStr>(text: &str) -> std::result::Result<T, String> {
    text.trim().parse().map_err(|_| "is not a number that fits".to_string())
}

impl StripeSettings {
    /// As [`super::CompactionSettings::set`].
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(super) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &StripeSettings::default())
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        halcyon_settings::names(SETTINGS)
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
        halcyon_settings::print(SETTINGS, self, f)
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
        for (name, value) in [
            ("hbase.store.stripe.compaction.flushToL0", "true"),
            (PART_COUNT.name, "0.4"),
            ("hbase.store.stripe.sizeToSplit", "1000"),
        ] {
            assert!(settings.set(name, value).unwrap());
        }
        assert_eq!((settings.files_min(3), settings.part_size_bytes(100)), (3, 400));
        assert!(settings.set(PART_COUNT.name, "1").unwrap());
        assert!(settings.set(IMBALANCE.name, "-1").unwrap());
        assert_eq!((settings.split_part_count, settings.split_imbalance_max), (2.0, 1.5));
    }
}
