//! The double as all there is of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_contract::{MasterCoordination, RegionServerApi, RegionServers, ServerReport, Standing};
use halcyon_schema::{ClusterId, RegionInfo, ServerName};

use super::FakeRegionServer;

/// The double as the only server.
pub struct OneServer(pub Arc<FakeRegionServer>);

impl RegionServers for OneServer {
    fn online(&self) -> Vec<ServerName> {
        vec![self.0.server_name()]
    }

    fn draining(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn standing(&self, server: &ServerName) -> Standing {
        if *server == self.0.server_name() { Standing::Online } else { Standing::Gone }
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
        (*server == self.0.server_name()).then(|| self.0.clone() as Arc<dyn RegionServerApi>)
    }

    fn reports(&self) -> Vec<ServerReport> {
        vec![self.0.newest_report()]
    }

    fn is_one_process(&self) -> bool {
        true
    }
}

impl MasterCoordination for OneServer {
    fn meta_last(&self) -> Result<Option<ServerName>> {
        Ok(None)
    }

    fn meta_opening(&self, _: &ServerName) -> Result<()> {
        Ok(())
    }

    fn meta_opened(&self, _: &ServerName) -> Result<()> {
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

    /// Clusters with `away` in their key are not reached.
    fn cluster_id_of(&self, cluster_key: &str) -> Result<Option<ClusterId>> {
        if cluster_key.contains("away") {
            return Err(Error::new(halcyon_cell::ErrorKind::Busy, "no answer"));
        }
        Ok(self.0.clusters.lock().get(cluster_key).cloned())
    }

    fn set_draining(&self, _: &ServerName, _: bool) -> Result<()> {
        Err(Error::invalid("the only server cannot be drained"))
    }
}

impl FakeRegionServer {
    /// What it reports of a region's store files from now on.
    pub fn set_size(&self, region: &RegionInfo, size_mb: u32) {
        self.sizes.lock().insert(region.encoded_name().to_string(), size_mb);
    }
}
