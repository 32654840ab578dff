//! How a store's files are compacted: HBase's properties, from hbase-site, the table and the family.

use std::fmt;

use halcyon_cell::Result;
use halcyon_schema::{FamilyDescriptor, TableDescriptor};
use halcyon_settings::Effect::Online;
use halcyon_settings::{Alias, Description, Flag, Maybe, Number, Positive, Section, Share, Text, settings};

use super::stripe_settings::StripeSettings;

/// Which rule chooses the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionPolicy {
    /// Of all runs of files alike in size the one with the most files (`ExploringCompactionPolicy`).
    Exploring,
    /// The oldest file that is not much larger than all newer ones, and those (`RatioBasedCompactionPolicy`).
    RatioBased,
    /// Files go when all their cells have expired, and are never rewritten (`FIFOCompactionPolicy`).
    Fifo,
    /// Files of the same window of time, by a rule for each window (`DateTieredCompactionPolicy`).
    DateTiered,
    /// Files of the same stripe of rows (`StripeStoreEngine`).
    Stripe,
}

/// Settings of date-tiered compaction (`hbase.hstore.compaction.date.tiered.*`). Times in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DateTieredSettings {
    /// Files whose newest cell is older take no part in minor compactions (`max.storefile.age.millis`).
    pub file_age_max_ms: i64,
    /// Fewest files of the newest window that are worth a compaction (`incoming.window.min`).
    pub incoming_files_min: usize,
    /// The rule inside a window, a class name (`window.policy.class`).
    pub window_policy_class: String,
    /// Minor compactions write one file, whatever windows their cells belong to
    /// (`single.output.for.minor.compaction`).
    pub single_output: bool,
    /// Length of the newest window (`base.window.millis`).
    pub base_window_ms: i64,
    /// Windows of one length before the next, as many times longer, begins (`windows.per.tier`).
    pub windows_per_tier: i64,
    /// Windows before this age grow no longer; `None`: `file_age_max_ms` (`max.tier.age.millis`).
    pub tier_age_max_ms: Option<i64>,
}

/// Hours of the day in which compactions may take more, in the server's time zone (`hbase.offpeak.start.hour`, `.end.hour`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffPeakHours {
    /// First hour, -1: none.
    pub start: i64,
    /// The hour that does not belong to it any more, -1: none.
    pub end: i64,
}

/// Settings of one store's compactions; names in parentheses are the properties that set them.
///
/// HBase: `CompactionConfiguration`, and for the order in which table and family are asked
/// `StoreUtils.createStoreConfiguration`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSettings {
    /// (`hbase.hstore.engine.class`); see [`CompactionSettings::policy`].
    pub engine_class: String,
    /// (`hbase.hstore.defaultengine.compactionpolicy.class`); see [`CompactionSettings::policy`].
    pub policy_class: String,
    /// Most files a minor compaction takes (`hbase.hstore.compaction.max`).
    pub files_max: usize,
    /// Fewest files a minor compaction takes, at least 2 (`hbase.hstore.compaction.min`).
    pub files_min: usize,
    /// A file larger than this many times the sum of the others stays out (`hbase.hstore.compaction.ratio`).
    pub ratio: f64,
    /// The same in off-peak hours (`hbase.hstore.compaction.ratio.offpeak`).
    pub ratio_offpeak: f64,
    /// Files below this size are always taken; `None`: the flush size (`hbase.hstore.compaction.min.size`).
    pub min_size_bytes: Option<u64>,
    /// Files above this size are left to major compactions (`hbase.hstore.compaction.max.size`).
    pub max_size_bytes: u64,
    /// The same in off-peak hours; `None`: no other (`hbase.hstore.compaction.max.size.offpeak`).
    pub max_size_offpeak_bytes: Option<u64>,
    pub off_peak: OffPeakHours,
    /// A store with this many files is to be relieved before anything else; with more, flushes wait
    /// (`hbase.hstore.blockingStoreFiles`).
    pub blocking_files_count: usize,
    /// Milliseconds between major compactions, 0: only on demand (`hbase.hregion.majorcompaction`).
    pub major_period_ms: i64,
    /// Share of `major_period_ms` by which it varies from store to store
    /// (`hbase.hregion.majorcompaction.jitter`).
    pub major_jitter: f64,
    /// Whether files whose cells have all expired are removed without being read
    /// (`hbase.store.delete.expired.storefile`).
    pub delete_expired_files: bool,
    /// Major compactions keep delete markers that are not older, in milliseconds; 0: none
    /// (`hbase.hstore.time.to.purge.deletes`).
    pub purge_deletes_after_ms: i64,
    pub date_tiered: DateTieredSettings,
    pub stripes: StripeSettings,
}

impl Default for CompactionSettings {
    fn default() -> CompactionSettings {
        CompactionSettings {
            engine_class: "org.apache.hadoop.hbase.regionserver.DefaultStoreEngine".to_string(),
            policy_class: "org.apache.hadoop.hbase.regionserver.compactions.ExploringCompactionPolicy"
                .to_string(),
            files_max: 10,
            files_min: 3,
            ratio: 1.2,
            ratio_offpeak: 5.0,
            min_size_bytes: None,
            max_size_bytes: i64::MAX as u64,
            max_size_offpeak_bytes: None,
            off_peak: OffPeakHours { start: -1, end: -1 },
            blocking_files_count: 16,
            major_period_ms: 7 * 24 * 3_600_000,
            major_jitter: 0.5,
            delete_expired_files: true,
            purge_deletes_after_ms: 0,
            date_tiered: DateTieredSettings {
                file_age_max_ms: i64::MAX,
                incoming_files_min: 6,
                window_policy_class:
                    "org.apache.hadoop.hbase.regionserver.compactions.ExploringCompactionPolicy".to_string(),
                single_output: true,
                base_window_ms: 6 * 3_600_000,
                windows_per_tier: 4,
                tier_age_max_ms: None,
            },
            stripes: StripeSettings::default(),
        }
    }
}

const SECTION: &str = "Compaction";

/// The old name of a setting stands before the one that wins over it.
const SETTINGS: &[Section<CompactionSettings>] = &[Section {
    title: SECTION,
    settings: settings!(CompactionSettings:
        Online, "hbase.hstore.engine.class", "class", Text, engine_class,
            "`DefaultStoreEngine`, `DateTieredStoreEngine`, `StripeStoreEngine`. To and from stripes: when the region \
             opens again.";
        Online, "hbase.hstore.defaultengine.compactionpolicy.class", "class", Text, policy_class,
            "Exploring, ratio-based, FIFO or date-tiered policy.";
        Online, "hbase.hstore.compactionThreshold", "files", Alias<Number>, files_min,
            "Old name of `hbase.hstore.compaction.min`.";
        Online, "hbase.hstore.compaction.min", "files", Number, files_min, "Fewest files of a minor compaction.";
        Online, "hbase.hstore.compaction.max", "files", Number, files_max, "Most files of a minor compaction.";
        Online, "hbase.hstore.compaction.ratio", "times", Number, ratio,
            "A file larger than this many times the sum of the others stays out.";
        Online, "hbase.hstore.compaction.ratio.offpeak", "times", Number, ratio_offpeak,
            "The same in off-peak hours.";
        Online, "hbase.hstore.compaction.min.size", "bytes", Maybe<Number>, min_size_bytes,
            "Smaller files are always taken. Not set: the flush size.";
        Online, "hbase.hstore.compaction.max.size", "bytes", Number, max_size_bytes,
            "Larger files are left to major compactions.";
        Online, "hbase.hstore.compaction.max.size.offpeak", "bytes", Maybe<Number>, max_size_offpeak_bytes,
            "The same in off-peak hours. Not set: no other.";
        Online, "hbase.offpeak.start.hour", "hour", Number, off_peak.start, "First off-peak hour; -1: none.";
        Online, "hbase.offpeak.end.hour", "hour", Number, off_peak.end,
            "First hour that is not off-peak any more; -1: none.";
        Online, "hbase.hstore.blockingStoreFiles", "files", Number, blocking_files_count,
            "With more files in a store, flushes wait.";
        Online, "hbase.hregion.majorcompaction", "ms", Number, major_period_ms,
            "Time between major compactions; 0: on demand only.";
        Online, "hbase.hregion.majorcompaction.jitter", "share", Share, major_jitter,
            "Part of that time by which it varies from store to store.";
        Online, "hbase.store.delete.expired.storefile", "true, false", Flag, delete_expired_files,
            "Whether files whose cells have all expired are removed unread.";
        Online, "hbase.hstore.time.to.purge.deletes", "ms", Number, purge_deletes_after_ms,
            "Major compactions keep delete markers that are not older.";
        Online, "hbase.hstore.compaction.date.tiered.max.storefile.age.millis", "ms", Number,
            date_tiered.file_age_max_ms, "Older files take no part in minor compactions.";
        Online, "hbase.hstore.compaction.date.tiered.incoming.window.min", "files", Number,
            date_tiered.incoming_files_min, "Fewest files of the newest window that are worth a compaction.";
        Online, "hbase.hstore.compaction.date.tiered.window.policy.class", "class", Text,
            date_tiered.window_policy_class, "The policy inside a window.";
        Online, "hbase.hstore.compaction.date.tiered.single.output.for.minor.compaction", "true, false", Flag,
            date_tiered.single_output, "Minor compactions write one file, whatever windows its cells belong to.";
        Online, TIERED_BASE_WINDOW, "ms", Positive, date_tiered.base_window_ms, "Length of the newest window.";
        Online, "hbase.hstore.compaction.date.tiered.windows.per.tier", "windows", Positive,
            date_tiered.windows_per_tier, "Windows of one length before the next, as many times longer, begins.";
        Online, "hbase.hstore.compaction.date.tiered.max.tier.age.millis", "ms", Maybe<Number>,
            date_tiered.tier_age_max_ms, "Windows before this age grow no longer. Not set: the age of files above.";
    ),
}];

const TIERED_BASE_WINDOW: &str = "hbase.hstore.compaction.date.tiered.base.window.millis";

impl CompactionSettings {
    /// Sets one by its property name; `Ok(false)` if no setting has that name. Invalid if the value makes no sense.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        Ok(halcyon_settings::set(SETTINGS, self, name, value)? || self.stripes.set(name, value)?)
    }

    /// All settings with their defaults.
    pub fn describe() -> Vec<Description> {
        let mut all = halcyon_settings::describe(SETTINGS, &CompactionSettings::default());
        all.extend(StripeSettings::describe());
        all
    }

    fn names() -> impl Iterator<Item = &'static str> {
        halcyon_settings::names(SETTINGS).chain(StripeSettings::names())
    }

    /// These settings with what the table and its family set for themselves; the family wins. A value that
    /// cannot be read is named in the log and passed over.
    pub(crate) fn for_store(
        mut self,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> CompactionSettings {
        for name in CompactionSettings::names() {
            for value in [table.setting(name), family.setting(name)].into_iter().flatten() {
                if let Err(error) = self.set(name, value) {
                    tracing::warn!(table = %table.name(), family = %family.name_str(), %error, "not used");
                }
            }
        }
        self
    }

    /// The rule that the classes ask for. Of a class that is not known here, its name instead.
    pub fn policy(&self) -> std::result::Result<CompactionPolicy, &str> {
        match class_name(&self.engine_class) {
            "DateTieredStoreEngine" => Ok(CompactionPolicy::DateTiered),
            "StripeStoreEngine" => Ok(CompactionPolicy::Stripe),
            "DefaultStoreEngine" | "" => match class_name(&self.policy_class) {
                "ExploringCompactionPolicy" | "" => Ok(CompactionPolicy::Exploring),
                "RatioBasedCompactionPolicy" => Ok(CompactionPolicy::RatioBased),
                "FIFOCompactionPolicy" => Ok(CompactionPolicy::Fifo),
                "DateTieredCompactionPolicy" => Ok(CompactionPolicy::DateTiered),
                _ => Err(&self.policy_class),
            },
            _ => Err(&self.engine_class),
        }
    }

    /// The rule inside a window of date-tiered compaction.
    pub(crate) fn window_policy(&self) -> CompactionPolicy {
        match class_name(&self.date_tiered.window_policy_class) {
            "RatioBasedCompactionPolicy" => CompactionPolicy::RatioBased,
            _ => CompactionPolicy::Exploring,
        }
    }
}

impl fmt::Display for CompactionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)?;
        write!(f, "{}", self.stripes)
    }
}

impl OffPeakHours {
    /// Whether an hour of the day is one of them. Never, if one of the two is no hour (HBase: `OffPeakHours`).
    pub fn contains(&self, hour: i64) -> bool {
        let hours = 0..24;
        if !hours.contains(&self.start) || !hours.contains(&self.end) {
            return false;
        }
        if self.start <= self.end {
            self.start <= hour && hour < self.end
        } else {
            hour < self.end || self.start <= hour
        }
    }
}

/// A Java class without its package.
fn class_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    const ENGINE: &str = "hbase.hstore.engine.class";
    const POLICY: &str = "hbase.hstore.defaultengine.compactionpolicy.class";
    const COUNT_MIN: &str = "hbase.hstore.compaction.min";
    const COUNT_MAX: &str = "hbase.hstore.compaction.max";
    const RATIO: &str = "hbase.hstore.compaction.ratio";

    #[test]
    fn settings_print_and_parse_back() {
        let mut settings = CompactionSettings::default();
        for name in CompactionSettings::names() {
            let value = match name {
                _ if name.ends_with("class") => "a.b.FIFOCompactionPolicy",
                _ if name.ends_with("expired.storefile") || name.contains("single.output") => "false",
                _ if name.ends_with("flushToL0") => "true",
                _ if name.ends_with("majorcompaction.jitter") => "0.25",
                _ => "7",
            };
            assert!(settings.set(name, value).unwrap(), "{name}");
        }
        let printed = settings.to_string();
        let mut read = CompactionSettings::default();
        for line in printed.lines() {
            let (name, value) = line.split_once(" = ").expect("name = value");
            assert!(read.set(name, value).unwrap(), "{name}");
        }
        assert_eq!(read, settings);
        let names_count = CompactionSettings::names().count();
        assert_eq!(names_count, 32);
        assert_eq!(printed.lines().count(), names_count - 1, "all but the old name");
        assert!(!read.set("some.other.name", "1").unwrap());
        assert!(read.set(TIERED_BASE_WINDOW, "0").is_err());
    }

    #[test]
    fn the_family_wins_over_the_table_and_the_table_over_the_server() {
        let family = FamilyDescriptor::new("f").unwrap().with_configuration(COUNT_MIN, "5");
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap())
            .with(COUNT_MIN, "4")
            .with(COUNT_MAX, "20")
            .with(RATIO, "often")
            .with(ENGINE, "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine");
        let server = CompactionSettings { files_min: 3, ratio: 2.0, ..CompactionSettings::default() };
        let store = server.for_store(&table, &family);
        assert_eq!((store.files_min, store.files_max, store.ratio), (5, 20, 2.0));
        assert_eq!(store.policy(), Ok(CompactionPolicy::DateTiered));
    }

    #[test]
    fn classes_and_policies() {
        let mut settings = CompactionSettings::default();
        assert_eq!(settings.policy(), Ok(CompactionPolicy::Exploring));
        settings
            .set(POLICY, "org.apache.hadoop.hbase.regionserver.compactions.FIFOCompactionPolicy")
            .unwrap();
        assert_eq!(settings.policy(), Ok(CompactionPolicy::Fifo));
        settings.set(ENGINE, "org.apache.hadoop.hbase.regionserver.StripeStoreEngine").unwrap();
        assert_eq!(settings.policy(), Ok(CompactionPolicy::Stripe));
        settings.set(ENGINE, "org.example.SomeStoreEngine").unwrap();
        assert_eq!(settings.policy(), Err("org.example.SomeStoreEngine"));
    }

    #[test]
    fn off_peak_hours_may_span_midnight() {
        let night = OffPeakHours { start: 22, end: 6 };
        assert!(night.contains(22) && night.contains(5) && !night.contains(6));
        let noon = OffPeakHours { start: 11, end: 13 };
        assert!(noon.contains(11) && noon.contains(12) && !noon.contains(13));
        assert!(!OffPeakHours { start: -1, end: 6 }.contains(3));
    }
}
