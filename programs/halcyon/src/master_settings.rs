//! Settings of a master: the normalizer, store file trackers, replication peers, and region server groups.

use std::time::Duration;

use halcyon_master::{GroupSettings, NormalizerSettings, QuotaSettings};
use halcyon_regionserver::WHITELIST_OBSERVER;
use halcyon_schema::Tracker;
use halcyon_servers::StatusSettings;
use halcyon_settings::{Codec, Effect::Restart, Flag, Millis, Number, Section, Setting, Text, settings};

use crate::settings::StandaloneSettings;

/// What HBase's master loads for groups.
pub const GROUP_ENDPOINT: &str = "org.apache.hadoop.hbase.rsgroup.RSGroupAdminEndpoint";

/// Parts of the settings that a master takes as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct MasterParts {
    pub normalizer: NormalizerSettings,
    pub groups: GroupSettings,
    /// The script that names the groups of new tables; empty: there is none.
    pub group_script: String,
    pub group_script_timeout: Duration,
    pub quotas: QuotaSettings,
    /// How clients are told of dead servers.
    pub status: StatusSettings,
    /// Time between two heartbeats of a lock that a client holds.
    pub remote_lock_timeout: Duration,
    /// Regions that overlap which one merge of a repair takes at most.
    pub fix_merge_count_max: usize,
    /// Whether the second daughter of a split opens at another server than the first.
    pub separate_daughters: bool,
    /// Region servers that a starting master needs.
    pub servers_min: usize,
    /// With so many it waits for no others; no number below 1.
    pub servers_max: i64,
    /// How long it waits for others after the newest.
    pub servers_settle: Duration,
    /// How the stores of new tables know their files (`hbase.store.file-tracker.impl`).
    pub store_file_tracker: String,
    /// What the configuration of each replication peer has (`hbase.replication.peer.base.config`).
    pub peer_base_config: String,
}

impl Default for MasterParts {
    fn default() -> MasterParts {
        MasterParts {
            normalizer: NormalizerSettings::default(),
            groups: GroupSettings::default(),
            group_script: String::new(),
            group_script_timeout: Duration::from_secs(5),
            quotas: QuotaSettings::default(),
            status: StatusSettings::default(),
            remote_lock_timeout: Duration::from_secs(30),
            fix_merge_count_max: 64,
            separate_daughters: false,
            servers_min: 1,
            servers_max: -1,
            servers_settle: Duration::from_millis(1500),
            store_file_tracker: Tracker::Default.name().to_string(),
            peer_base_config: String::new(),
        }
    }
}

pub const TRACKERS: Section<StandaloneSettings> = Section {
    title: "Store file trackers",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.store.file-tracker.impl", "DEFAULT, FILE", TrackerName, parts.store_file_tracker,
            "How the stores of new tables know their files. Tables and families may say otherwise. It is written into each new table.";
    ),
};

/// A store file tracker that a new table can have. HBase's class is one, too.
struct TrackerName;

impl Codec<String> for TrackerName {
    fn parse(text: &str) -> Option<String> {
        let tracker = Tracker::parse(text).filter(|tracker| *tracker != Tracker::Migration);
        tracker.map(|tracker| tracker.name().to_string())
    }

    fn print(value: &String) -> Option<String> {
        Some(value.clone())
    }

    fn refused(_: &String) -> &'static str {
        "is neither DEFAULT nor FILE"
    }
}

pub const PEERS: Section<StandaloneSettings> = Section {
    title: "WAL",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.replication.peer.base.config", "name=value;...", BaseConfig, parts.peer_base_config,
            "What the configuration of each replication peer gets when it is added, and at the start of the master. A name without a \
             value is removed from it.";
    ),
};

/// Names with their values.
struct BaseConfig;

impl Codec<String> for BaseConfig {
    fn parse(text: &str) -> Option<String> {
        let is_pair = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty());
        let mut pairs = text.split(';').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.all(is_pair).then(|| text.to_string())
    }

    fn print(value: &String) -> Option<String> {
        Some(value.clone())
    }

    fn refused(_: &String) -> &'static str {
        "is not a list of name=value with semicolons"
    }
}

pub const NORMALIZER: Section<StandaloneSettings> = Section {
    title: "Normalizer",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.normalizer.period", "ms", Millis, parts.normalizer.period,
            "How often regions are split and merged to one size, of tables with `NORMALIZATION_ENABLED`. 0: when a client asks.";
        Restart, "hbase.table.normalization.enabled", "true, false", Flag, parts.normalizer.tables_by_default,
            "Whether that holds for tables that do not say so.";
        Restart, "hbase.normalizer.split.enabled", "true, false", Flag, parts.normalizer.split,
            "Whether the normalizer splits regions. This and most others can be attributes of a table, which hold for it.";
        Restart, "hbase.normalizer.merge.enabled", "true, false", Flag, parts.normalizer.merge,
            "Whether the normalizer merges regions.";
        Restart, "hbase.normalizer.min.region.count", "regions", Number, parts.normalizer.merge_region_count_min,
            "Older name of the next setting. Of the two, the one that comes last in the file holds.";
        Restart, "hbase.normalizer.merge.min.region.count", "regions", Number, parts.normalizer.merge_region_count_min,
            "No regions of a table with fewer are merged.";
        Restart, "hbase.normalizer.merge.min_region_age.days", "days", Number, parts.normalizer.merge_region_age_min_days,
            "Younger regions are not merged.";
        Restart, "hbase.normalizer.merge.min_region_size.mb", "MB", Number, parts.normalizer.merge_region_size_min_mb,
            "Smaller regions are not merged.";
        Restart, "hbase.normalizer.merge.merge_request_max_number_of_regions", "regions", Number,
            parts.normalizer.merge_regions_max, "Regions that are merged into one at most.";
        Restart, "hbase.normalizer.plans_size_limit.mb", "MB", Number, parts.normalizer.plans_size_max_mb,
            "Size of the regions of a table that are split and merged in one run.";
        Restart, "hbase.normalizer.throughput.max_bytes_per_sec", "bytes/s", ByteCount, parts.normalizer.bytes_per_second_max,
            "Sizes of regions that are split and merged in a second, such as `200m`. Below 1 MB it is no limit, as in HBase.";
    ),
};

pub const QUOTAS: Section<StandaloneSettings> = Section {
    title: "Quotas",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.quota.remove.on.table.delete", "true, false", Flag, parts.quotas.removed_with_table,
            "Whether a table or namespace that is deleted loses its quotas.";
        Restart, "hbase.master.quotas.observer.chore.period", "ms", Millis, parts.quotas.observer_period,
            "How often space quotas are compared with what tables use.";
        Restart, "hbase.master.quotas.snapshot.chore.period", "ms", Millis, parts.quotas.snapshot_period,
            "How often it is looked at what snapshots hold that their tables do not any more. It counts as used by the table.";
        Restart, "hbase.master.quotas.region.report.retention.millis", "ms", Millis, parts.quotas.report_keep,
            "For how long the size of a region counts that no server reports. Its table then exceeds no quota, unless the quota disabled it.";
    ),
};

pub const LOCKS: Section<StandaloneSettings> = Section {
    title: "Locks of clients",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.master.procedure.remote.locks.timeout.ms", "ms", Millis, parts.remote_lock_timeout,
            "A lock of a client (`LockService`) ends without a heartbeat in this time.";
    ),
};

pub const REPAIRS: Section<StandaloneSettings> = Section {
    title: "Repairs of regions",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.master.metafixer.max.merge.count", "regions", Number, parts.fix_merge_count_max,
            "Regions that overlap which `fixMeta` of HBCK2 merges into one at a time. The next call merges those that are left.";
    ),
};

pub const PLACEMENT: Section<StandaloneSettings> = Section {
    title: "Places of regions",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.master.auto.separate.child.regions.after.split.enabled", "true, false", Flag, parts.separate_daughters,
            "Whether the second daughter of a split opens at another server than its parent had. The first one always opens there.";
        Restart, "hbase.master.wait.on.regionservers.mintostart", "servers", Number, parts.servers_min,
            "Region servers that a master waits for before it starts, however long it takes. At least one.";
        Restart, "hbase.master.wait.on.regionservers.maxtostart", "servers", Number, parts.servers_max,
            "With so many servers a starting master waits for no others. -1: no number is enough.";
        Restart, "hbase.master.wait.on.regionservers.interval", "ms", Millis, parts.servers_settle,
            "When all servers of a cluster start, the master waits for those that had regions, until no other has come for so long.";
    ),
};

pub const GROUPS: Section<StandaloneSettings> = Section {
    title: "Region server groups",
    settings: &[
        Setting {
            name: "hbase.coprocessor.master.classes",
            unit: "classes",
            effect: Restart,
            text: "With `org.apache.hadoop.hbase.rsgroup.RSGroupAdminEndpoint` there are region server groups. With \
                   `org.apache.hadoop.hbase.security.access.CoprocessorWhitelistMasterObserver` tables name jars of \
                   `hbase.coprocessor.region.whitelist.paths` only. Other classes cannot be loaded.",
            set: |settings, text| {
                let names = |wanted| text.split(',').any(|class| class.trim() == wanted);
                settings.parts.groups.enabled = names(GROUP_ENDPOINT);
                settings.regionserver.coprocessors.only_listed_jars = names(WHITELIST_OBSERVER);
                Ok(())
            },
            get: |settings| {
                let (groups, jars) = (settings.parts.groups.enabled, &settings.regionserver.coprocessors);
                let named = [(groups, GROUP_ENDPOINT), (jars.only_listed_jars, WHITELIST_OBSERVER)];
                let named = named.iter().filter(|(is_named, _)| *is_named).map(|(_, class)| *class);
                Some(named.collect::<Vec<_>>().join(","))
            },
        },
        Setting {
            name: "hbase.master.loadbalancer.class",
            unit: "class",
            effect: Restart,
            text: "HBase needs `RSGroupBasedLoadBalancer` with groups. The balancer here keeps to groups in any case.",
            set: |_, _| Ok(()),
            get: |_| None,
        },
        FALLBACK,
    ],
};

pub const GROUP_SCRIPT: Section<StandaloneSettings> = Section {
    title: "Region server groups",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.rsgroup.table.mapping.script", "path", Text, parts.group_script,
            "A program that is called with the namespace and the name of a new table, and prints its group. An attribute of the table \
             comes before it, and the group of the namespace after it.";
        Restart, "hbase.rsgroup.table.mapping.script.timeout", "ms", Millis, parts.group_script_timeout,
            "After that time the program is killed, and names no group.";
    ),
};

const FALLBACK: Setting<StandaloneSettings> = Setting {
    name: "hbase.rsgroup.fallback.enable",
    unit: "true, false",
    effect: Restart,
    text: "Whether tables of a group without a live server go to servers of `default`. If not, their regions wait.",
    set: |settings, text| {
        let value = text.trim().parse().map_err(|_| "is neither true nor false".to_string())?;
        settings.parts.groups.fallback = value;
        Ok(())
    },
    get: |settings| Some(settings.parts.groups.fallback.to_string()),
};

/// A number, with one of the letters that HBase takes for powers of 1024.
struct ByteCount;

impl Codec<u64> for ByteCount {
    fn parse(text: &str) -> Option<u64> {
        let text = text.to_ascii_lowercase();
        let letter = text.chars().last().filter(char::is_ascii_alphabetic);
        let power = letter.map_or(Some(0), |letter| "kmgtpe".find(letter).map(|at| at as u32 + 1))?;
        let number: u64 = text.trim_end_matches(|it: char| it.is_ascii_alphabetic()).trim().parse().ok()?;
        number.checked_mul(1024u64.checked_pow(power)?)
    }

    fn print(bytes: &u64) -> Option<String> {
        Some(bytes.to_string())
    }

    fn refused(_: &u64) -> &'static str {
        "is not a number of bytes"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<MasterParts, String> {
        let mut settings = StandaloneSettings::default();
        settings.set(name, value).map_err(|error| error.to_string())?;
        Ok(settings.parts)
    }

    #[test]
    fn the_class_of_hbase_turns_groups_on() {
        for (value, on) in [
            (GROUP_ENDPOINT, true),
            (&format!("org.x.Other, {GROUP_ENDPOINT}"), true),
            ("org.x.RSGroupAdminEndpoint", false),
            ("", false),
        ] {
            assert_eq!(
                with("hbase.coprocessor.master.classes", value).unwrap().groups.enabled,
                on,
                "{value}"
            );
        }
        let mut settings = StandaloneSettings::default();
        settings
            .set("hbase.coprocessor.master.classes", &format!("{GROUP_ENDPOINT},{WHITELIST_OBSERVER}"))
            .unwrap();
        assert!(settings.parts.groups.enabled && settings.regionserver.coprocessors.limits_jars());
        assert!(with("hbase.rsgroup.fallback.enable", "true").unwrap().groups.fallback);
        assert!(with("hbase.rsgroup.fallback.enable", "perhaps").is_err());
    }

    #[test]
    fn a_rate_has_letters() {
        let rate = |text: &str| {
            let parts = with("hbase.normalizer.throughput.max_bytes_per_sec", text);
            parts.map(|parts| parts.normalizer.bytes_per_second_max)
        };
        assert_eq!((rate("7"), rate("2k"), rate("3 M")), (Ok(7), Ok(2048), Ok(3 << 20)));
        for bad in ["", "m", "1x", "-1", "99999999999e"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
