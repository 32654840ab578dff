use std::fmt;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_settings::Effect::Restart;
use halcyon_settings::{
    Description, Flag, Millis, Number, OrNever, Positive, Section, Setting, Text, settings,
};

use super::rate_limiter::Refill;

const TITLE: &str = "Quotas";
const AVERAGE: &str = "org.apache.hadoop.hbase.quotas.AverageIntervalRateLimiter";
const FIXED: &str = "org.apache.hadoop.hbase.quotas.FixedIntervalRateLimiter";

/// Quotas of users, tables and namespaces. Names in parentheses are the HBase properties that set them.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaSettings {
    /// Whether there are quotas (`hbase.quota.enabled`).
    pub enabled: bool,
    /// How often `hbase:quota` is read without being told to (`hbase.quota.refresh.period`).
    pub refresh_period: Duration,
    /// Bytes of a capacity unit (`hbase.quota.read.capacity.unit`, `hbase.quota.write.capacity.unit`).
    pub read_unit: usize,
    pub write_unit: usize,
    /// Reads count the bytes that they return, and not the blocks that they look at (`hbase.quota.use.result.size.bytes`).
    pub by_result_size: bool,
    /// All at once, and not little by little (`hbase.quota.rate.limiter`).
    is_fixed_interval: bool,
    /// `hbase.quota.rate.limiter.refill.interval.ms`
    refill_interval: Duration,
    /// The attribute of a request that names the user whose quotas count for it; empty: none (`hbase.quota.user.override.key`).
    pub user_override: String,
    /// Limits a second of users without quotas of their own (`hbase.quota.default.user.machine.*`).
    user_read_num: Option<u64>,
    user_read_size: Option<u64>,
    user_request_num: Option<u64>,
    user_request_size: Option<u64>,
    user_write_num: Option<u64>,
    user_write_size: Option<u64>,
    user_atomic_read_size: Option<u64>,
    user_atomic_request_num: Option<u64>,
    user_atomic_write_size: Option<u64>,
    user_handler_usage_ms: Option<u64>,
    /// How often a region server looks which tables exceed their space quotas
    /// (`hbase.regionserver.quotas.policy.refresher.chore.period`).
    pub space_refresh_period: Duration,
    /// How often the master of another process is told how large regions are
    /// (`hbase.regionserver.quotas.region.size.reporting.chore.period`).
    pub size_report_period: Duration,
}

impl Default for QuotaSettings {
    fn default() -> QuotaSettings {
        QuotaSettings {
            enabled: false,
            refresh_period: Duration::from_secs(12 * 60 * 60),
            read_unit: 1024,
            write_unit: 1024,
            by_result_size: false,
            is_fixed_interval: false,
            refill_interval: Duration::from_secs(1),
            user_override: String::new(),
            user_read_num: None,
            user_read_size: None,
            user_request_num: None,
            user_request_size: None,
            user_write_num: None,
            user_write_size: None,
            user_atomic_read_size: None,
            user_atomic_request_num: None,
            user_atomic_write_size: None,
            user_handler_usage_ms: None,
            space_refresh_period: Duration::from_secs(60),
            size_report_period: Duration::from_secs(60),
        }
    }
}

impl QuotaSettings {
    pub(super) fn refill(&self) -> Refill {
        if self.is_fixed_interval { Refill::every(self.refill_interval) } else { Refill::Steady }
    }

    /// Limits of a user without quotas of his own.
    pub(super) fn default_throttle(&self) -> pb::Throttle {
        let quota = |limit: Option<u64>| {
            limit.map(|limit| pb::TimedQuota {
                time_unit: pb::TimeUnit::Seconds as i32,
                soft_limit: Some(limit),
                scope: Some(pb::QuotaScope::Machine as i32),
                ..Default::default()
            })
        };
        pb::Throttle {
            read_num: quota(self.user_read_num),
            read_size: quota(self.user_read_size),
            req_num: quota(self.user_request_num),
            req_size: quota(self.user_request_size),
            write_num: quota(self.user_write_num),
            write_size: quota(self.user_write_size),
            atomic_read_size: quota(self.user_atomic_read_size),
            atomic_req_num: quota(self.user_atomic_request_num),
            atomic_write_size: quota(self.user_atomic_write_size),
            req_handler_usage_ms: quota(self.user_handler_usage_ms),
            ..Default::default()
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &QuotaSettings::default())
    }
}

impl fmt::Display for QuotaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)
    }
}

const SETTINGS: &[Section<QuotaSettings>] = &[
    Section {
        title: TITLE,
        settings: settings!(QuotaSettings:
            Restart, "hbase.quota.enabled", "true, false", Flag, enabled,
                "Whether there are quotas: throttles, space quotas, and limits of namespaces.";
            Restart, "hbase.quota.refresh.period", "ms", Millis, refresh_period,
                "How often a region server reads `hbase:quota` without being told to. It is told of each change.";
            Restart, "hbase.quota.read.capacity.unit", "bytes", Positive, read_unit,
                "Size of a read capacity unit.";
            Restart, "hbase.quota.write.capacity.unit", "bytes", Positive, write_unit,
                "Size of a write capacity unit.";
            Restart, "hbase.quota.use.result.size.bytes", "true, false", Flag, by_result_size,
                "Whether reads count the bytes that they return, and not those of the blocks that they look at.";
            Restart, "hbase.quota.rate.limiter.refill.interval.ms", "ms", Millis, refill_interval,
                "How often a `FixedIntervalRateLimiter` refills; at most a second.";
            Restart, "hbase.quota.user.override.key", "attribute", Text, user_override,
                "Name of an attribute of requests. A request that has it counts for the user whom it names, and not for the caller.";
            Restart, "hbase.quota.default.user.machine.read.num", "requests/s", OrNever<Number>, user_read_num,
                "Reads of a user who has no quota. The following are such limits, too.";
            Restart, "hbase.quota.default.user.machine.read.size", "bytes/s", OrNever<Number>, user_read_size, "Read bytes.";
            Restart, "hbase.quota.default.user.machine.request.num", "requests/s", OrNever<Number>, user_request_num,
                "Reads and writes.";
            Restart, "hbase.quota.default.user.machine.request.size", "bytes/s", OrNever<Number>, user_request_size,
                "Read and written bytes.";
            Restart, "hbase.quota.default.user.machine.write.num", "requests/s", OrNever<Number>, user_write_num, "Writes.";
            Restart, "hbase.quota.default.user.machine.write.size", "bytes/s", OrNever<Number>, user_write_size,
                "Written bytes.";
            Restart, "hbase.quota.default.user.machine.atomic.read.size", "bytes/s", OrNever<Number>, user_atomic_read_size,
                "Bytes read by increments, appends and conditional mutations.";
            Restart, "hbase.quota.default.user.machine.atomic.request.num", "requests/s", OrNever<Number>,
                user_atomic_request_num, "Such requests.";
            Restart, "hbase.quota.default.user.machine.atomic.write.size", "bytes/s", OrNever<Number>, user_atomic_write_size,
                "Bytes written by them.";
            Restart, "hbase.quota.default.user.machine.request.handler.usage.ms", "ms/s", OrNever<Number>,
                user_handler_usage_ms, "Time of the server's threads.";
            Restart, "hbase.regionserver.quotas.policy.refresher.chore.period", "ms", Millis, space_refresh_period,
                "How often a region server looks which tables exceed their space quotas.";
            Restart, "hbase.regionserver.quotas.region.size.reporting.chore.period", "ms", Millis, size_report_period,
                "How often the master is told how large regions are; `halcyon regionserver` only.";
        ),
    },
    Section { title: TITLE, settings: &[RATE_LIMITER] },
];

const RATE_LIMITER: Setting<QuotaSettings> = Setting {
    name: "hbase.quota.rate.limiter",
    unit: "class",
    effect: Restart,
    text: "`AverageIntervalRateLimiter` gives back little by little, `FixedIntervalRateLimiter` all at once; with their package.",
    set: |settings, text| {
        settings.is_fixed_interval = match text.trim() {
            AVERAGE => false,
            FIXED => true,
            _ => return Err(format!("is neither {AVERAGE} nor {FIXED}")),
        };
        Ok(())
    },
    get: |settings| Some(if settings.is_fixed_interval { FIXED } else { AVERAGE }.to_string()),
};
