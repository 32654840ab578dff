//! The master's calls to a region server in the same process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{
    Announce, CloseRegionRequest, ClusterServices, FlushRegionRequest, MasterCoordination, OpenRegionRequest,
    OpenRegionResponse, QuotaEnforcement, RegionInfoRequest, RegionInfoResponse, RegionServerApi,
    RegionServers, ServerReport, SplitWal, Standing, SystemTables, WalFiles,
};
use halcyon_region::Scan;
use halcyon_schema::{ClusterId, META_ENCODED_NAME, RegionInfo, ServerName};
use halcyon_wal::FlushedOf;

use crate::RegionServer;
use crate::metrics::load::is_compacting;
use crate::regions::region_table::OnlineRegion;
use crate::regions::rows;
use crate::wal::recover::{self, split_log};

impl RegionServer {
    /// What a master in the same process needs.
    pub fn cluster_services(self: &Arc<Self>) -> ClusterServices {
        ClusterServices {
            servers: Arc::new(OneServer(self.clone())),
            files: self.region_files(),
            system_tables: self.clone(),
            wals: WalFiles {
                env: self.resources.wals().0.clone(),
                root: self.resources.wals().1.to_path_buf(),
                is_root: self.resources.wal_root.is_none(),
            },
            coordination: Arc::new(OneServer(self.clone())),
            replication: Some(self.clone()),
            quotas: Some(self.clone()),
        }
    }

    /// `Moved` if the region is not online here.
    pub(crate) fn online_region(&self, encoded_name: &str) -> Result<Arc<OnlineRegion>> {
        let missing =
            || Error::new(ErrorKind::Moved, format!("{encoded_name} is not online on {}", self.name));
        self.regions.get(encoded_name).ok_or_else(missing)
    }

    /// Flushes families of a region, or all if none is named. *Blocking*. Returns whether there was anything to
    /// flush; `Moved` if the region is not here.
    pub fn flush_region(&self, encoded_name: &str, families: &[Bytes]) -> Result<bool> {
        Ok(self.background.flusher.flush(&self.online_region(encoded_name)?, families)?.flushed)
    }

    /// Splits the WAL of a dead server that is at this path, among the files that WALs are among. `flushed_of` knows what files of
    /// regions have already. *Blocking*.
    pub(crate) fn split_wal_at(&self, path: &Path, flushed_of: &FlushedOf<'_>) -> Result<SplitWal> {
        let resources = &self.resources;
        let (wal_env, wal_root) = resources.wals();
        if !wal_env.fs.exists(path)? {
            return Ok(SplitWal::NotFound);
        }
        let on_damage = resources.online.in_force().on_wal_damage();
        let memory = resources.logs.split_memory();
        split_log(&resources.env, &resources.root, (wal_env, wal_root), path, flushed_of, on_damage, memory)?;
        Ok(SplitWal::Done)
    }

    /// Whether a region can be split or merged now, and on demand where. A region whose rows are all in memory is
    /// flushed to find that out (`RSRpcServices.getRegionInfo`). *Blocking.*
    pub(crate) fn region_info_of(
        &self,
        online: &Arc<OnlineRegion>,
        best_split_row: bool,
    ) -> Result<RegionInfoResponse> {
        let (region, splits) = (&online.region, &self.background.splits);
        let info = region.info();
        let whole = !info.is_split() && !info.is_offline() && !info.is_meta() && !region.has_references();
        let whole = whole && !info.is_secondary();
        let mut row = None;
        if best_split_row && !info.is_meta() {
            row = splits.split_row(region)?;
            if row.is_none() {
                self.background.flusher.flush(online, &[])?;
                row = splits.split_row(region)?;
            }
        }
        Ok(RegionInfoResponse {
            splittable: whole && region.table().split_enabled() && splits.allows_splits(region),
            mergeable: whole && region.table().merge_enabled(),
            best_split_row: row,
        })
    }
}

impl RegionServerApi for RegionServer {
    fn server_name(&self) -> ServerName {
        self.name.clone()
    }

    fn open_region(
        &self,
        request: &OpenRegionRequest,
        announce: &Announce<'_>,
    ) -> Result<OpenRegionResponse> {
        let open_seq_num = self.open_region_announced(&request.region, &request.table, announce)?;
        Ok(OpenRegionResponse { open_seq_num })
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        RegionServer::close_region(self, request.region.encoded_name(), request.abort)
    }

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()> {
        RegionServer::flush_region(self, request.region.encoded_name(), &request.families).map(|_| ())
    }

    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        self.region_info_of(&self.online_region(request.region.encoded_name())?, request.best_split_row)
    }

    fn compact_region(&self, region: &RegionInfo, family: &Bytes, major: bool) -> Result<()> {
        let online = self.online_region(region.encoded_name())?;
        self.background.compactions.request_by_user(&online, Some(family), major)
    }

    fn is_compacting(&self, region: &RegionInfo) -> Result<bool> {
        let online = self.online_region(region.encoded_name())?;
        Ok(is_compacting(&online))
    }

    fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        Ok(self.regions.online().iter().map(|online| online.region.info().clone()).collect())
    }

    fn split_wal(&self, wal: &Path) -> Result<SplitWal> {
        self.split_wal_at(&self.resources.wals().1.join(wal), &recover::unknown)
    }

    fn roll_wals(&self) -> Result<()> {
        let to_flush = self.logs.roll()?;
        self.background.flusher.flush_for_wal(&to_flush);
        Ok(())
    }
}

impl QuotaEnforcement for RegionServer {
    fn reload(&self) {
        if let Err(error) = self.reload_quotas() {
            tracing::warn!(%error, "the quotas could not be read");
        }
    }

    fn region_sizes(&self) -> Vec<(RegionInfo, u64)> {
        let regions = self.regions.online().into_iter().map(|online| online.region.clone());
        let counted = regions.filter(|region| !region.is_secondary() && !region.info().table().is_system());
        counted.map(|region| (region.info().clone(), region.stats().store_file_bytes)).collect()
    }
}

/// The only server of a cluster in one process.
struct OneServer(Arc<RegionServer>);

impl RegionServers for OneServer {
    fn online(&self) -> Vec<ServerName> {
        vec![self.0.name.clone()]
    }

    fn draining(&self) -> Vec<ServerName> {
        Vec::new()
    }

    /// What earlier servers have left was recovered when this one started.
    fn standing(&self, server: &ServerName) -> Standing {
        if *server == self.0.name { Standing::Online } else { Standing::Gone }
    }

    fn recovering(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn recovered(&self, _server: &ServerName) {}

    fn dead(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn forget_dead(&self, _server: &ServerName) {}

    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>> {
        (*server == self.0.name).then(|| self.0.clone() as Arc<dyn RegionServerApi>)
    }

    fn reports(&self) -> Vec<ServerReport> {
        vec![ServerReport { server: self.0.name.clone(), load: self.0.server_load() }]
    }

    fn is_one_process(&self) -> bool {
        true
    }
}

/// The process tells clients where everything is when it serves.
impl MasterCoordination for OneServer {
    fn meta_last(&self) -> Result<Option<ServerName>> {
        Ok(None)
    }

    fn meta_opening(&self, _server: &ServerName) -> Result<()> {
        Ok(())
    }

    fn meta_opened(&self, _server: &ServerName) -> Result<()> {
        Ok(())
    }

    fn meta_replicas_last(&self) -> BTreeMap<i32, ServerName> {
        BTreeMap::new()
    }

    fn meta_replicas_opened(&self, _replicas: &BTreeMap<i32, ServerName>) -> Result<()> {
        Ok(())
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn cluster_id_of(&self, cluster_key: &str) -> Result<Option<ClusterId>> {
        self.0.sources.cluster_id_of(cluster_key)
    }

    fn set_draining(&self, server: &ServerName, _is_draining: bool) -> Result<()> {
        Err(Error::invalid(format!("{server} is the only region server: it cannot be drained")))
    }
}

impl SystemTables for RegionServer {
    fn meta_put(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(at, &RegionInfo::meta(), cells)
    }

    fn meta_put_together(&self, at: &ServerName, cells: Vec<Cell>) -> Result<()> {
        self.put_rows_together(at, &RegionInfo::meta(), cells)
    }

    fn meta_scan(&self, _at: &ServerName, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>> {
        let online = self.online_region(META_ENCODED_NAME)?;
        let scan = Scan {
            start_row: Bytes::copy_from_slice(start_row),
            stop_row: Bytes::copy_from_slice(stop_row),
            families: [&b"info"[..], b"table"].map(|family| (Bytes::from_static(family), None)).into(),
            ..Scan::default()
        };
        rows::scan(&online.region, scan)
    }

    fn put_rows(&self, _at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(region.encoded_name())?;
        rows::put(&online.region, &self.logs, cells)?;
        self.after_write(&online);
        Ok(())
    }

    fn put_rows_together(&self, _at: &ServerName, region: &RegionInfo, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(region.encoded_name())?;
        rows::put_together(&online.region, &self.logs, cells)?;
        self.after_write(&online);
        Ok(())
    }

    fn scan_rows(&self, _at: &ServerName, region: &RegionInfo) -> Result<Vec<Vec<Cell>>> {
        rows::scan_all(&self.online_region(region.encoded_name())?.region)
    }
}
