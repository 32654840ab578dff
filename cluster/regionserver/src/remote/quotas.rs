//! The quotas of a cluster whose master is another process: `hbase:quota` is read as any client reads it, and the master is
//! told how large regions are (HBase: `QuotaCache`, `RegionSizeReportingChore`).

use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions, Scan, Switch};
use halcyon_contract::{
    QuotaEnforcement, QuotaSource, QuotaSubject, QuotaTable, QuotaView, quota_table_name,
};
use halcyon_env::Mutex;
use halcyon_proto::pb;
use tokio::runtime::Handle;

use super::link::MasterLink;
use crate::RegionServer;
use crate::background::workers::{Priority, Worker};

/// Longest time of one look.
const LOOK_TIME_MAX: Duration = Duration::from_secs(20);

/// See the head of the file.
pub struct RemoteQuotas {
    runtime: Handle,
    address: ClusterAddress,
    server: Weak<RegionServer>,
    link: Arc<MasterLink>,
    /// Connected to when it is first needed; not kept after an error.
    cluster: Mutex<Option<Cluster>>,
}

impl RemoteQuotas {
    /// Reads the quotas of the cluster that a ZooKeeper is of, and reports sizes. Does nothing while quotas are off. Calls run
    /// on `runtime`.
    pub fn start(
        server: &Arc<RegionServer>,
        link: Arc<MasterLink>,
        runtime: Handle,
        (quorum, base): (Vec<String>, String),
    ) -> Result<Option<Arc<RemoteQuotas>>> {
        if !server.quotas.is_enabled() {
            return Ok(None);
        }
        let address = ClusterAddress::ZooKeeper { quorum, base };
        let (server_weak, cluster) = (Arc::downgrade(server), Mutex::new(None));
        let quotas = Arc::new(RemoteQuotas { runtime, address, server: server_weak, link, cluster });
        server.background.start_worker("region-sizes", Priority::Normal, Arc::clone(&quotas))?;
        let source: Weak<RemoteQuotas> = Arc::downgrade(&quotas);
        server.read_quotas_from(source);
        Ok(Some(quotas))
    }

    async fn look(&self) -> Result<QuotaView> {
        let failed = |error: halcyon_client::ClientError| {
            Error::new(ErrorKind::Io, format!("the quotas of the cluster cannot be read: {error}"))
        };
        let known = self.cluster.lock().clone();
        let cluster = match known {
            Some(cluster) => cluster,
            None => {
                let options =
                    ClusterOptions { operation_timeout: LOOK_TIME_MAX, ..ClusterOptions::default() };
                Cluster::connect(self.address.clone(), options).await.map_err(failed)?
            }
        };
        let admin = cluster.admin().await.map_err(failed)?;
        let is_throttling = admin.switch(Switch::RpcThrottle).await.map_err(failed)?;
        let servers_count = admin.region_servers().await.map_err(failed)?.len();
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let mut scanner = cluster.table(quota_table_name(), 0).scan(Scan::new());
        while let Some(row) = scanner.next().await.map_err(failed)? {
            rows.push(row.into_cells());
        }
        let table = QuotaTable::of_rows(&rows);
        let mut view = QuotaView { table, is_throttling, servers_count, ..QuotaView::default() };
        for subject in view.table.quotas.keys() {
            if let QuotaSubject::Table(name) | QuotaSubject::UserOnTable(_, name) = subject {
                // A table that is gone has no share to look for.
                let count = admin.regions_count(name).await.unwrap_or_default();
                view.open_regions.insert(name.clone(), count);
            }
        }
        *self.cluster.lock() = Some(cluster);
        Ok(view)
    }

    fn report_sizes(&self, server: &RegionServer) {
        let of_region = |(region, size): (halcyon_schema::RegionInfo, u64)| pb::RegionSpaceUse {
            region_info: Some(region.to_pb()),
            region_size: Some(size),
        };
        let space_use: Vec<_> = server.region_sizes().into_iter().map(of_region).collect();
        if space_use.is_empty() {
            return;
        }
        if let Err(error) = self.link.report_sizes(&pb::RegionSpaceUseReportRequest { space_use }) {
            tracing::debug!(%error, "the master did not take the sizes of regions");
        }
    }
}

impl QuotaSource for RemoteQuotas {
    fn quotas(&self) -> Result<QuotaView> {
        let looked = self.runtime.block_on(async { tokio::time::timeout(LOOK_TIME_MAX, self.look()).await });
        let late = || Error::new(ErrorKind::Busy, format!("no quotas within {LOOK_TIME_MAX:?}"));
        let view = looked.map_err(|_| late()).and_then(|view| view);
        if view.is_err() {
            *self.cluster.lock() = None;
        }
        view
    }
}

impl Worker for RemoteQuotas {
    fn run_once(&self, _timeout: Duration) {
        let Some(server) = self.server.upgrade() else { return };
        self.report_sizes(&server);
        server.pause(server.settings.quotas.size_report_period);
    }

    /// The pause between reports ends with the server.
    fn wake(&self) {}
}
