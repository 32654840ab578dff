//! When a region has grown too large, the server reports to the master that it can be split.
//!
//! A region is looked at after each flush and compaction, and all regions every few seconds. The server decides by its
//! policy whether and where, and reports `READY_TO_SPLIT`. The master checks again, and splits the region or not. A
//! region that is still too large is reported again later.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_contract::{RegionServerStatus, RegionStateTransition};
use halcyon_env::Clock;
use halcyon_region::Region;
use halcyon_schema::{RegionInfo, ServerName};

use super::listener::StoreFileListener;
use super::split_policy::Policy;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::settings::online::OnlineSettings;

/// The same region is not reported again before this.
const REPORT_PERIOD: Duration = Duration::from_secs(5);

/// See the head of the file.
pub(crate) struct SplitChecker {
    server_name: ServerName,
    settings: Arc<OnlineSettings>,
    clock: Arc<dyn Clock>,
    regions: Arc<RegionTable>,
    master: OnceLock<Weak<dyn RegionServerStatus>>,
}

impl SplitChecker {
    pub(crate) fn new(
        server_name: ServerName,
        settings: Arc<OnlineSettings>,
        clock: Arc<dyn Clock>,
        regions: Arc<RegionTable>,
    ) -> SplitChecker {
        SplitChecker { server_name, settings, clock, regions, master: OnceLock::new() }
    }

    /// Where to report. Without a master regions grow without end. The first one stays.
    pub(crate) fn report_to(&self, master: Weak<dyn RegionServerStatus>) {
        let _ = self.master.set(master);
    }

    /// Looks at every region: the master may have refused one when it was reported.
    pub(crate) fn check_all(&self) {
        for online in self.regions.online() {
            self.check(&online);
        }
    }

    /// Reports the region if it has grown too large.
    fn check(&self, online: &OnlineRegion) {
        let Some(master) = self.master.get().and_then(Weak::upgrade) else { return };
        if !self.is_too_large(&online.region) {
            return;
        }
        let now_ns = self.clock.monotonic_ns();
        let reported_ns = online.split_asked_ns.load(Ordering::Relaxed);
        if reported_ns != 0 && now_ns.saturating_sub(reported_ns) < REPORT_PERIOD.as_nanos() as u64 {
            return;
        }
        let info = online.region.info();
        match self.split_row(&online.region) {
            Ok(Some(split_row)) => {
                online.split_asked_ns.store(now_ns.max(1), Ordering::Relaxed);
                tracing::info!(region = info.encoded_name(), row = %split_row.escape_ascii(), "ready to split");
                let transition = RegionStateTransition::ReadyToSplit { parent: info.clone(), split_row };
                master.report_region_state_transition(&self.server_name, transition);
            }
            Ok(None) => tracing::debug!(region = info.encoded_name(), "too large, but cannot be split"),
            Err(error) => tracing::warn!(region = info.encoded_name(), %error, "no split point was found"),
        }
    }

    fn is_too_large(&self, region: &Region) -> bool {
        let (info, table, settings) = (region.info(), region.table(), self.settings.in_force());
        let settings = &settings.split;
        if info.is_secondary()
            || info.table().is_system()
            || !table.split_enabled()
            || region.has_references()
        {
            return false;
        }
        let policy = Policy::of(table, settings);
        let regions = self.regions.online();
        let of_table = regions.iter().filter(|other| other.region.info().table() == info.table()).count();
        let flush_bytes = region.flush_size_bytes();
        regions.len() < settings.regions_max
            && policy.should_split(info, table, &region.stats(), of_table, flush_bytes, settings)
    }

    /// Whether the policy of the region's table allows splits at all.
    pub(crate) fn allows_splits(&self, region: &Region) -> bool {
        Policy::of(region.table(), &self.settings.in_force().split).allows_splits()
    }

    /// Where the region would be split; `None` if it has no such row, or if the row is too long to begin a region and cannot be cut.
    /// *Blocking*.
    pub(crate) fn split_row(&self, region: &Region) -> Result<Option<Bytes>> {
        let policy = Policy::of(region.table(), &self.settings.in_force().split);
        let restriction = region.table().split_restriction();
        let info = region.info();
        let longest = RegionInfo::start_key_len_max(info.table());
        let row = region.split_point()?.and_then(|row| {
            let start = restriction.start_of(policy.at_prefix(row.clone()));
            match start.len() <= longest {
                true => Some(start),
                // Any key may begin a region. Rows of one prefix stay together, though.
                false => (start == row).then(|| row.slice(..longest)),
            }
        });
        // A prefix may begin where the region does.
        Ok(row.filter(|row| info.contains_row(row) && row != info.start_key()))
    }
}

impl StoreFileListener for SplitChecker {
    fn store_files_changed(&self, online: &Arc<OnlineRegion>) {
        self.check(online);
    }
}
