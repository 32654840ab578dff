//! Which server has which region: `hbase:meta`, read and remembered.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use parking_lot::RwLock;

use crate::cluster::{Cluster, Server, timed_out};
use crate::scan::ScanRun;
use crate::{ClientError, RemoteException};

/// Rows of meta for each call (`hbase.meta.scanner.caching` is 100; a table's rows are all wanted here).
const META_CACHING: u32 = 1_000;

/// A region and the server that has it.
pub(crate) struct Location {
    pub(crate) specifier: pb::RegionSpecifier,
    pub(crate) info: RegionInfo,
    pub(crate) server: Arc<Server>,
    /// Number of the reading of meta that found it.
    pub(crate) generation: u64,
}

/// Regions of one table by their start key.
type TableLocations = BTreeMap<Bytes, Arc<Location>>;

/// The cache of locations. A table is read as a whole; whoever met a wrong location has it read again.
#[derive(Default)]
pub(crate) struct Locations {
    tables: RwLock<HashMap<TableName, TableLocations>>,
    /// Whoever reads meta; what it guards is the number of readings so far.
    reading: tokio::sync::Mutex<u64>,
}

impl Locations {
    fn cached(&self, table: &TableName, row: &[u8]) -> Option<Arc<Location>> {
        let tables = self.tables.read();
        let (_, location) =
            tables.get(table)?.range::<[u8], _>((Bound::Unbounded, Bound::Included(row))).next_back()?;
        location.info.contains_row(row).then(|| Arc::clone(location))
    }
}

impl Cluster {
    /// The region of a row. `stale`: one that was found wrong, which makes sure that meta was read after it.
    pub(crate) async fn locate(
        &self,
        table: &TableName,
        row: &[u8],
        stale: Option<u64>,
    ) -> Result<Arc<Location>, ClientError> {
        let locations = &self.inner.locations;
        let fresh = |location: &Arc<Location>| stale.is_none_or(|stale| location.generation > stale);
        if let Some(location) = locations.cached(table, row).filter(fresh) {
            return Ok(location);
        }
        if table.is_meta() {
            return self.locate_meta().await;
        }
        let patience = self.inner.options.operation_timeout;
        let reading = tokio::time::timeout(patience, locations.reading.lock()).await;
        let mut reading = reading.map_err(|_| timed_out(format!("{table}: hbase:meta cannot be read")))?;
        if let Some(location) = locations.cached(table, row).filter(fresh) {
            return Ok(location);
        }
        *reading += 1;
        let found = self.read_meta(table, *reading).await?;
        if found.is_empty() {
            locations.tables.write().remove(table);
            return Err(exception("TableNotFoundException", true, table.to_string()));
        }
        locations.tables.write().insert(table.clone(), found);
        drop(reading);
        // A hole, for as long as a region is split or moves.
        let hole =
            || exception("NotServingRegionException", false, format!("{table}: no region for the row"));
        locations.cached(table, row).ok_or_else(hole)
    }

    /// The region of a row and the server that has it (`host:port`), read from meta and not remembered
    /// (`RegionLocator.getRegionLocation` with `reload`). `None` if meta has no region with a server for the row.
    pub async fn read_location(
        &self,
        table: &TableName,
        row: &[u8],
        slot: usize,
    ) -> Result<Option<(RegionInfo, String)>, ClientError> {
        // the last region whose start key is not above the row: no id of a region has more digits
        let start = [&b","[..], row, b",99999999999999"].concat();
        let scan = pb::Scan {
            reversed: Some(true),
            start_row: Some(meta_row(table, &start)),
            stop_row: Some(meta_row(table, b",,")),
            include_stop_row: Some(true),
            read_type: Some(pb::scan::ReadType::Pread as i32),
            ..info_scan()
        };
        let mut scan = ScanRun::new(self.clone(), TableName::META, slot, scan, 1).with_limit(1);
        let found = match scan.next().await? {
            Some(row) => region_of(&row)?,
            None => None,
        };
        scan.close().await;
        Ok(found.filter(|(info, _)| info.table() == table && info.contains_row(row)))
    }

    async fn locate_meta(&self) -> Result<Arc<Location>, ClientError> {
        let address = self.meta_server().await?.address();
        let info = RegionInfo::meta();
        let location =
            Location { specifier: specifier(&info), info, server: self.server(&address), generation: 0 };
        Ok(Arc::new(location))
    }

    /// All regions of a table that some server has.
    async fn read_meta(&self, table: &TableName, generation: u64) -> Result<TableLocations, ClientError> {
        let mut found = TableLocations::new();
        for row in meta_rows(self.clone(), table.clone()).await? {
            if let Some((info, address)) = region_of(&row)?
                && !info.is_split()
                && !info.is_offline()
                && info.table() == table
                && info.replica_id() == 0
            {
                let location =
                    Location { specifier: specifier(&info), server: self.server(&address), generation, info };
                found.insert(location.info.start_key().clone(), Arc::new(location));
            }
        }
        Ok(found)
    }

    /// Regions of a table in the order of their keys, as far as servers have them; read anew.
    pub(crate) async fn table_locations(&self, table: &TableName) -> Result<Vec<Arc<Location>>, ClientError> {
        let mut reading = self.inner.locations.reading.lock().await;
        *reading += 1;
        let found = self.read_meta(table, *reading).await?;
        Ok(found.into_values().collect())
    }
}

type RowsFuture = Pin<Box<dyn Future<Output = Result<Vec<Vec<Cell>>, ClientError>> + Send>>;

/// The rows of a table in meta; tried once, as whoever locates tries again. Boxed: reading meta is a scan, a scan locates, and locating reads meta.
fn meta_rows(cluster: Cluster, table: TableName) -> RowsFuture {
    let scan = pb::Scan {
        start_row: Some(meta_row(&table, b",,")),
        // the blank sorts as the end of the table's name (`MetaTableAccessor`)
        stop_row: Some(meta_row(&table, b" ,,")),
        ..info_scan()
    };
    Box::pin(async move {
        let mut scan = ScanRun::new(cluster, TableName::META, 0, scan, META_CACHING).with_single_try();
        let mut rows = Vec::new();
        while let Some(row) = scan.next().await? {
            rows.push(row);
        }
        Ok(rows)
    })
}

/// A scan of the family that says where regions are.
fn info_scan() -> pb::Scan {
    let info = pb::Column { family: Bytes::from_static(b"info"), qualifier: Vec::new() };
    pb::Scan { column: vec![info], ..Default::default() }
}

pub(crate) fn specifier(info: &RegionInfo) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: info.region_name().clone() }
}

fn meta_row(table: &TableName, tail: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(table.full_name().len() + tail.len());
    row.put_slice(table.full_name());
    row.put_slice(tail);
    row.freeze()
}

/// `info:regioninfo` and `info:server` of a row of meta; `None` for a region without a server.
fn region_of(row: &[Cell]) -> Result<Option<(RegionInfo, String)>, ClientError> {
    let value = |qualifier: &[u8]| {
        row.iter()
            .find(|cell| cell.qualifier() == qualifier)
            .map(|cell| cell.value())
            .filter(|v| !v.is_empty())
    };
    let (Some(info), Some(server)) = (value(b"regioninfo"), value(b"server")) else { return Ok(None) };
    let info =
        RegionInfo::decode_value(info).map_err(|e| ClientError::Malformed(format!("hbase:meta: {e}")))?;
    Ok(Some((info, String::from_utf8_lossy(server).into_owned())))
}

/// An exception the client finds out by itself, in the form in which servers send theirs.
pub(crate) fn exception(class: &str, do_not_retry: bool, trace: String) -> ClientError {
    let class = format!("org.apache.hadoop.hbase.{class}");
    let trace = format!("{class}: {trace}");
    ClientError::Remote(Box::new(RemoteException { class, trace, do_not_retry, server_overloaded: false }))
}
