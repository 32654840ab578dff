//! What the master's process tells clients that begin: see [`halcyon_coord::ClientMetaService`].

use halcyon_coord::ConnectionRegistry;
use halcyon_schema::ServerName;
use halcyon_schema::znode::MetaLocation;

use crate::Master;

impl ConnectionRegistry for Master {
    fn cluster_id(&self) -> String {
        self.core.cluster_id.to_string()
    }

    /// `None` after it was stopped.
    fn active_master(&self) -> Option<ServerName> {
        let is_active = self.core.check_running().is_ok();
        is_active.then(|| self.core.settings.server_name.clone())
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        Vec::new()
    }

    fn meta_locations(&self) -> Vec<(MetaLocation, i64)> {
        let server = self.core.cluster.region_server.server_name().clone();
        vec![(MetaLocation { replica: 0, server, is_open: true }, self.core.meta_open_seq as i64)]
    }

    fn region_servers(&self) -> Vec<ServerName> {
        vec![self.core.cluster.region_server.server_name().clone()]
    }
}
