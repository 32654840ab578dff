//! Settings that change while the server runs (`UpdateConfiguration`).
//!
//! The owner of the server says how the settings are read again. What can change takes effect at once; of the rest the
//! server's log output names each setting that waits for a restart. [`RegionServer::settings`] stays what the server was
//! started with, [`RegionServer::online_settings`] is what is in force.
//!
//! | setting | takes effect |
//! |---|---|
//! | compaction: files, sizes, ratios, periods, off-peak hours, stripes, date tiers | at the next selection, in every open region |
//! | compaction throughput | at once, also for running compactions |
//! | split policy, sizes, limits | at the next check |
//! | thresholds of slow calls and large answers, flush period, compaction check period, wait for blocked flushes | at once |
//! | lower mark of the memstores | at the next measurement |
//! | whether damaged WALs are split | at the next split |

use std::sync::{Arc, OnceLock};

use halcyon_cell::{Error, Result};
use halcyon_env::RwLock;

use crate::RegionServer;
use crate::settings::server::RegionServerSettings;
use crate::settings::warn::WarnLimits;

/// Reads the settings again. The error is one sentence.
type Source = Box<dyn Fn() -> std::result::Result<RegionServerSettings, String> + Send + Sync>;

/// *Thread safety*: all methods from any thread.
pub(crate) struct OnlineSettings {
    in_force: RwLock<Arc<RegionServerSettings>>,
    /// Copied, as every call looks at it.
    pub(crate) warn: WarnLimits,
    source: OnceLock<Source>,
}

/// What an update did: lines `name = value`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) in_force: Vec<String>,
    pub(crate) after_restart: Vec<String>,
}

impl OnlineSettings {
    pub(crate) fn new(settings: RegionServerSettings) -> OnlineSettings {
        OnlineSettings {
            warn: WarnLimits::new(&settings.warn),
            in_force: RwLock::new(Arc::new(settings)),
            source: OnceLock::new(),
        }
    }

    pub(crate) fn in_force(&self) -> Arc<RegionServerSettings> {
        self.in_force.read().clone()
    }

    /// Puts what can change of `wanted` in force.
    pub(crate) fn update(&self, wanted: &RegionServerSettings) -> Changes {
        let mut in_force = self.in_force.write();
        let next = with_changes(&in_force, wanted);
        let (before, after, wanted) = (in_force.to_string(), next.to_string(), wanted.to_string());
        self.warn.set(&next.warn);
        *in_force = Arc::new(next);
        Changes { in_force: differing(&before, &after), after_restart: differing(&after, &wanted) }
    }
}

/// The running settings with those of `wanted` that can change.
fn with_changes(running: &RegionServerSettings, wanted: &RegionServerSettings) -> RegionServerSettings {
    let mut next = running.clone();
    next.throughput = wanted.throughput.clone();
    next.split = wanted.split.clone();
    next.region.compaction = wanted.region.compaction.clone();
    next.warn = wanted.warn.clone();
    next.flush_period = wanted.flush_period;
    next.file_refresh_period = wanted.file_refresh_period;
    next.meta_file_refresh_period = wanted.meta_file_refresh_period;
    next.compaction_check_period = wanted.compaction_check_period;
    next.blocking_files_wait = wanted.blocking_files_wait;
    next.memstore_low_share = wanted.memstore_low_share;
    next.wal_split_skips_errors = wanted.wal_split_skips_errors;
    next
}

/// Lines of `after` that `before` does not have, and names that only `before` has.
fn differing(before: &str, after: &str) -> Vec<String> {
    let name = |line: &str| line.split(" =").next().unwrap_or_default().to_string();
    let names: Vec<_> = after.lines().map(name).collect();
    let changed = after.lines().filter(|line| !before.lines().any(|old| old == *line)).map(str::to_string);
    let gone =
        before.lines().map(name).filter(|old| !names.contains(old)).map(|old| format!("{old} = (default)"));
    changed.chain(gone).collect()
}

impl RegionServer {
    /// How the settings are read again when an administrator asks for it. The first source stays.
    pub fn on_configuration_update(
        &self,
        read: impl Fn() -> std::result::Result<RegionServerSettings, String> + Send + Sync + 'static,
    ) {
        let _ = self.online.source.set(Box::new(read));
    }

    /// The settings in force.
    pub fn online_settings(&self) -> Arc<RegionServerSettings> {
        self.online.in_force()
    }

    /// Reads the settings again and puts in force what can change. Nothing changes if they cannot be read. *Blocking*.
    pub(crate) fn update_configuration(&self) -> Result<()> {
        let Some(read) = self.online.source.get() else {
            tracing::info!("configuration update: there is no file to read");
            return Ok(());
        };
        let wanted = read().map_err(Error::invalid)?;
        let changes = self.online.update(&wanted);
        let settings = self.online.in_force();
        let compaction = &settings.region.compaction;
        self.background.compactions.set_throughput(settings.throughput.clone(), compaction.off_peak);
        for online in self.regions.online() {
            online.region.set_compaction(compaction);
        }
        self.background.memory.fit_memstores();
        for line in &changes.in_force {
            tracing::info!(setting = line, "configuration update: in force");
        }
        for line in &changes.after_restart {
            tracing::warn!(setting = line, "configuration update: needs a restart");
        }
        tracing::info!(
            changed = changes.in_force.len(),
            after_restart = changes.after_restart.len(),
            "configuration was read again"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use halcyon_rpc::CallClass;

    use super::*;

    #[test]
    fn what_can_change_is_in_force_and_the_rest_is_named() {
        let online = OnlineSettings::new(RegionServerSettings::default());
        let mut wanted = RegionServerSettings::default();
        for (name, value) in [
            ("hbase.hstore.compaction.min", "7"),
            ("hbase.hstore.compaction.min.size", "100"),
            ("hbase.hregion.max.filesize", "1000"),
            ("hbase.ipc.warn.response.time", "5"),
            ("hbase.regionserver.handler.count", "99"),
        ] {
            assert!(wanted.set(name, value).unwrap(), "{name}");
        }
        let changes = online.update(&wanted);
        let in_force = online.in_force();
        assert_eq!((in_force.region.compaction.files_min, in_force.split.region_bytes_max), (7, 1000));
        let is_slow = |ms: u64| online.warn.judge(CallClass::Read, ms * 1_000_000, 0).0;
        assert!(is_slow(5) && !is_slow(4));
        assert_eq!(in_force.disk_threads_max, RegionServerSettings::default().disk_threads_max);
        assert_eq!(changes.in_force.len(), 4, "{changes:?}");
        assert_eq!(changes.after_restart, ["hbase.regionserver.handler.count = 99"]);

        let changes = online.update(&RegionServerSettings::default());
        assert!(changes.in_force.contains(&"hbase.hstore.compaction.min.size = (default)".to_string()));
        assert_eq!((changes.in_force.len(), changes.after_restart.len()), (4, 0), "{changes:?}");
    }

    /// The declaration of each setting says when a change takes effect; this is what happens.
    #[test]
    fn every_setting_takes_effect_when_its_declaration_says() {
        const VALUES: [&str; 13] = [
            "7",
            "0.5",
            "0.25",
            "true",
            "false",
            "BASIC",
            "written",
            "SNAPPY",
            "a.FIFOCompactionPolicy",
            "org.apache.hadoop.hbase.regionserver.FlushNonSloppyStoresFirstPolicy",
            "file:/x",
            "DisabledRegionSplitPolicy",
            "org.apache.hadoop.hbase.quotas.FixedIntervalRateLimiter",
        ];
        let started = RegionServerSettings::default();
        for setting in RegionServerSettings::describe() {
            let changed = VALUES.iter().find_map(|value| {
                let mut changed = started.clone();
                let is_set = changed.set(setting.name, value).is_ok();
                (is_set && changed.to_string() != started.to_string()).then_some(changed)
            });
            let changed = changed.unwrap_or_else(|| panic!("no other value for {}", setting.name));
            let changes = OnlineSettings::new(started.clone()).update(&changed);
            let is_online = (!changes.in_force.is_empty(), changes.after_restart.is_empty());
            let expected = setting.effect == halcyon_settings::Effect::Online;
            assert_eq!(is_online, (expected, expected), "{}: {changes:?}", setting.name);
        }
    }
}
