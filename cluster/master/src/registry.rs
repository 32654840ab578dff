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
        self.core.backup_masters()
    }

    fn meta_locations(&self) -> Vec<(MetaLocation, i64)> {
        let place = self.core.meta_place.read().clone();
        let location = MetaLocation { replica: 0, is_open: place.is_open(), server: place.server };
        let copies = self.core.meta_replicas.read().clone().into_iter();
        let copies = copies.map(|(number, server)| {
            let replica = u32::try_from(number).expect("copies are counted from 1");
            (MetaLocation { replica, server, is_open: true }, place.open_seq as i64)
        });
        std::iter::once((location, place.open_seq as i64)).chain(copies).collect()
    }

    fn region_servers(&self) -> Vec<ServerName> {
        self.core.cluster.servers.online()
    }
}
