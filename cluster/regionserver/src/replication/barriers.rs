//! Reads the barriers of regions from `hbase:meta` (HBase: `MetaTableAccessor.getReplicationBarrierResult`).

use std::pin::Pin;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_client::{
    ClientError, Cluster, ClusterAddress, ClusterOptions, Get, RetryPolicy, Row, Scan, Table,
};
use halcyon_schema::{BARRIER_FAMILY, RegionBarriers, RegionInfo, TableName, parse_region_name};

/// A source looks again soon.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(10);
const CLIENT_RETRIES_MAX: u32 = 4;
/// Larger than any region id, as HBase's `NINES`.
const LAST_ID: &str = "99999999999999";

pub type BarriersFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<RegionBarriers>>> + Send + 'a>>;

/// Where sources read barriers. *Thread safety*: shared freely.
pub trait ReadBarriers: Send + Sync {
    /// Those of the region of a table with this encoded name, which holds this row. `None`: nothing is known of it.
    fn find<'a>(&'a self, table: &'a TableName, row: &'a [u8], encoded_name: &'a str) -> BarriersFuture<'a>;

    /// Those of the region with this name.
    fn named<'a>(&'a self, region_name: &'a [u8]) -> BarriersFuture<'a>;
}

/// Reads through a client, which asks this server where the others are.
pub(crate) struct MetaBarriers {
    own_address: String,
    client: tokio::sync::Mutex<Option<Cluster>>,
}

impl MetaBarriers {
    pub(crate) fn new(own_address: String) -> MetaBarriers {
        MetaBarriers { own_address, client: tokio::sync::Mutex::default() }
    }

    async fn meta(&self) -> Result<Table> {
        let mut client = self.client.lock().await;
        if client.is_none() {
            let options = ClusterOptions {
                operation_timeout: CLIENT_TIME_MAX,
                retry: RetryPolicy { retries_max: CLIENT_RETRIES_MAX, ..RetryPolicy::default() },
                ..ClusterOptions::default()
            };
            let address = ClusterAddress::registry([self.own_address.clone()]);
            *client = Some(Cluster::connect(address, options).await.map_err(unread)?);
        }
        let cluster = client.as_ref().expect("it was just connected");
        Ok(cluster.table(TableName::META, 0))
    }
}

impl ReadBarriers for MetaBarriers {
    /// A region begins at the row or before, so the scan goes backwards. Regions that were split or merged may come first.
    fn find<'a>(&'a self, table: &'a TableName, row: &'a [u8], encoded_name: &'a str) -> BarriersFuture<'a> {
        Box::pin(async move {
            let start = [&table.full_name()[..], b",", row, b",", LAST_ID.as_bytes()].concat();
            let stop = [&table.full_name()[..], b",,"].concat();
            let scan = Scan::new().start(start).stop(stop).reversed(true).family(BARRIER_FAMILY);
            let mut rows = self.meta().await?.scan(scan);
            let mut found = None;
            while let Some(row) = rows.next().await.map_err(unread)? {
                let parts = parse_region_name(row.key());
                if parts.is_ok_and(|parts| parts.encoded_name.as_deref() == Some(encoded_name)) {
                    found = RegionBarriers::of_row(row.cells());
                    break;
                }
            }
            rows.close().await;
            Ok(found)
        })
    }

    fn named<'a>(&'a self, region_name: &'a [u8]) -> BarriersFuture<'a> {
        Box::pin(async move {
            let get = Get::new(region_name).family(BARRIER_FAMILY);
            let row: Row = self.meta().await?.get(get).await.map_err(unread)?;
            Ok(RegionBarriers::of_row(row.cells()))
        })
    }
}

fn unread(error: ClientError) -> Error {
    let meta = RegionInfo::meta();
    Error::new(ErrorKind::Busy, format!("replication barriers cannot be read from {meta}: {error}"))
}
