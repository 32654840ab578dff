//! The master's calls to a region server in the same process.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{
    CloseRegionRequest, ClusterServices, FlushRegionRequest, OpenRegionRequest, OpenRegionResponse,
    RegionInfoRequest, RegionInfoResponse, RegionServerApi, ServerReport, ServerReports, SystemTables,
    WalFiles,
};
use halcyon_region::Scan;
use halcyon_schema::{META_ENCODED_NAME, RegionInfo, ServerName};

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;
use crate::regions::rows;

impl RegionServer {
    /// What a master in the same process needs.
    pub fn cluster_services(self: &Arc<Self>) -> ClusterServices {
        ClusterServices {
            region_server: self.clone(),
            reports: self.clone(),
            files: self.region_files(),
            system_tables: self.clone(),
            wals: WalFiles {
                env: self.resources.wals().0.clone(),
                root: self.resources.wals().1.to_path_buf(),
                is_root: self.resources.wal_root.is_none(),
            },
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
        self.background.flusher.flush(&self.online_region(encoded_name)?, families)
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

    fn open_region(&self, request: &OpenRegionRequest) -> Result<OpenRegionResponse> {
        let open_seq_num = RegionServer::open_region(self, &request.region, &request.table)?;
        Ok(OpenRegionResponse { open_seq_num })
    }

    fn close_region(&self, request: &CloseRegionRequest) -> Result<()> {
        RegionServer::close_region(self, &request.encoded_name, request.abort)
    }

    fn flush_region(&self, request: &FlushRegionRequest) -> Result<()> {
        RegionServer::flush_region(self, &request.encoded_name, &request.families).map(|_| ())
    }

    fn region_info(&self, request: &RegionInfoRequest) -> Result<RegionInfoResponse> {
        self.region_info_of(&self.online_region(&request.encoded_name)?, request.best_split_row)
    }

    fn online_regions(&self) -> Vec<RegionInfo> {
        self.regions.online().iter().map(|online| online.region.info().clone()).collect()
    }
}

impl ServerReports for RegionServer {
    fn newest_report(&self) -> ServerReport {
        ServerReport { server: self.name.clone(), load: self.server_load() }
    }
}

impl SystemTables for RegionServer {
    fn meta_put(&self, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(META_ENCODED_NAME, cells)
    }

    fn meta_put_together(&self, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(META_ENCODED_NAME)?;
        rows::put_together(&online.region, &self.logs, cells)?;
        self.after_write(&online);
        Ok(())
    }

    fn meta_scan(&self, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>> {
        let online = self.online_region(META_ENCODED_NAME)?;
        let scan = Scan {
            start_row: Bytes::copy_from_slice(start_row),
            stop_row: Bytes::copy_from_slice(stop_row),
            families: [&b"info"[..], b"table"].map(|family| (Bytes::from_static(family), None)).into(),
            ..Scan::default()
        };
        rows::scan(&online.region, scan)
    }

    fn put_rows(&self, encoded_name: &str, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(encoded_name)?;
        rows::put(&online.region, &self.logs, cells)?;
        self.after_write(&online);
        Ok(())
    }

    fn scan_rows(&self, encoded_name: &str) -> Result<Vec<Vec<Cell>>> {
        rows::scan_all(&self.online_region(encoded_name)?.region)
    }
}
