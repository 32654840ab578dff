//! When a region has grown too large: the server asks the master to split it.
//!
//! A region is looked at after each flush and compaction. The server decides by its policy whether and where, and
//! asks through the callback that the master's owner set; the master checks again, and does it or does not. A
//! region that is still too large is asked for again later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_master::RegionShape;
use halcyon_schema::RegionInfo;

use crate::RegionServer;
use crate::background::split_policy::Policy;
use crate::regions::region_table::OnlineRegion;

/// The master is not asked again for the same region before this.
const ASK_PERIOD: Duration = Duration::from_secs(5);

/// Asks for a split of a region at a row. Called on threads of the server; must not wait for the split.
pub(crate) type SplitRequest = Box<dyn Fn(&RegionInfo, Bytes) + Send + Sync>;

impl RegionServer {
    /// What to do when a region has grown too large. Without it regions grow on. The first callback stays.
    pub fn on_split_wanted(&self, request: impl Fn(&RegionInfo, Bytes) + Send + Sync + 'static) {
        let _ = self.split_request.set(Box::new(request));
    }

    /// Asks for a split if the region has grown too large.
    pub(crate) fn check_split(&self, online: &Arc<OnlineRegion>) {
        let Some(request) = self.split_request.get() else { return };
        let region = &online.region;
        let (info, table, settings) = (region.info(), region.table(), &self.settings.split);
        if info.table().is_system() || !table.split_enabled() || region.has_references() {
            return;
        }
        let policy = Policy::of(table, settings);
        let regions = self.regions.online();
        let of_table = regions.iter().filter(|other| other.region.info().table() == info.table()).count();
        let flush_bytes = region.flush_size_bytes();
        if regions.len() >= settings.regions_max
            || !policy.should_split(info, table, &region.stats(), of_table, flush_bytes, settings)
        {
            return;
        }
        let now_ns = self.env.clock.monotonic_ns();
        let asked_ns = online.split_asked_ns.load(Ordering::Relaxed);
        if asked_ns != 0 && now_ns.saturating_sub(asked_ns) < ASK_PERIOD.as_nanos() as u64 {
            return;
        }
        match self.split_row(online) {
            Ok(Some(row)) => {
                online.split_asked_ns.store(now_ns.max(1), Ordering::Relaxed);
                tracing::info!(region = info.encoded_name(), row = %row.escape_ascii(), "asks for a split");
                request(info, row);
            }
            Ok(None) => tracing::debug!(region = info.encoded_name(), "too large, but cannot be split"),
            Err(error) => tracing::warn!(region = info.encoded_name(), %error, "no split point was found"),
        }
    }

    /// Looks for an oversized region everywhere: one may have been refused when it was asked for.
    pub(crate) fn check_splits(&self) {
        for online in self.regions.online() {
            self.check_split(&online);
        }
    }

    fn split_row(&self, online: &OnlineRegion) -> Result<Option<Bytes>> {
        let policy = Policy::of(online.region.table(), &self.settings.split);
        let row = online.region.split_point()?.map(|row| policy.at_prefix(row));
        let info = online.region.info();
        // A prefix may begin where the region does.
        Ok(row.filter(|row| info.contains_row(row) && row != info.start_key()))
    }

    /// Whether a region can be split or merged now, and on demand where. A region whose rows are all in memory is
    /// flushed to find that out (`RSRpcServices.getRegionInfo`). *Blocking.*
    pub(crate) fn shape_of(&self, online: &Arc<OnlineRegion>, find_row: bool) -> Result<RegionShape> {
        let region = &online.region;
        let info = region.info();
        let whole = !info.is_split() && !info.is_offline() && !info.is_meta() && !region.has_references();
        let policy = Policy::of(region.table(), &self.settings.split);
        let mut split_row = None;
        if find_row && !info.is_meta() {
            split_row = self.split_row(online)?;
            if split_row.is_none() {
                self.flush_online(online, &[])?;
                split_row = self.split_row(online)?;
            }
        }
        Ok(RegionShape {
            splittable: whole && region.table().split_enabled() && policy.allows_splits(),
            mergeable: whole && region.table().merge_enabled(),
            split_row,
        })
    }

    /// As [`RegionServer::shape_of`]; `Moved` if the region is not here.
    pub(crate) fn shape_by_name(&self, encoded_name: &str, find_row: bool) -> Result<RegionShape> {
        let online = self.regions.get(encoded_name).ok_or_else(|| {
            Error::new(ErrorKind::Moved, format!("{encoded_name} is not online on {}", self.name))
        })?;
        self.shape_of(&online, find_row)
    }
}
