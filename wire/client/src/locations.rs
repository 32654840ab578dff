//! Which server has which region: rows of `hbase:meta`, read when they are needed and remembered.
//!
//! A location stays in the cache until a call finds it wrong. That call asks for one that was read later, which makes
//! one task read meta again while others wait for its result (HBase: `AsyncNonMetaRegionLocator`).

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use parking_lot::RwLock;
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Cluster, Server};
use crate::scanner::Scanner;
use crate::{ClientError, Row, Scan};

/// Rows of meta for each call (`hbase.meta.scanner.caching`), of a whole table.
const META_CACHING: u32 = 1_000;
/// Regions that are remembered with the one that was asked for.
const PREFETCH_COUNT: u32 = 100;
/// Rows of meta in which a region of a row is looked for: parents of splits may stand before it.
const LOOKUP_ROWS_MAX: u32 = 10;

/// A region and the server that has it.
pub(crate) struct Location {
    pub(crate) specifier: pb::RegionSpecifier,
    pub(crate) info: RegionInfo,
    pub(crate) server: Arc<Server>,
    /// Number of the reading of meta that found it.
    pub(crate) generation: u64,
}

/// A region as `hbase:meta` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLocation {
    /// The region.
    pub region: RegionInfo,
    /// The server that has it, if one does.
    pub server: Option<ServerName>,
    /// Its state (`OPEN`, `CLOSED`, `SPLIT`), if the master has written one.
    pub state: Option<String>,
}

/// Which region is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Seek<'a> {
    /// The region that has the row.
    At(&'a [u8]),
    /// The last region that has rows before this one.
    Before(&'a [u8]),
    /// The last region of the table.
    Last,
}

/// Known regions of one table by their start key.
pub(crate) struct TableRegions {
    table: TableName,
    known: RwLock<BTreeMap<Bytes, Arc<Location>>>,
    /// Held by whoever reads meta.
    reading: tokio::sync::Mutex<()>,
}

/// The cache of locations.
#[derive(Default)]
pub(crate) struct Locations {
    tables: RwLock<HashMap<TableName, Arc<TableRegions>>>,
    meta: tokio::sync::Mutex<Option<Arc<Location>>>,
    /// Readings of meta so far.
    generation: AtomicU64,
}

impl Locations {
    pub(crate) fn table(&self, table: &TableName) -> Arc<TableRegions> {
        if let Some(found) = self.tables.read().get(table) {
            return Arc::clone(found);
        }
        let new = || {
            let (known, reading) = (RwLock::default(), tokio::sync::Mutex::default());
            Arc::new(TableRegions { table: table.clone(), known, reading })
        };
        Arc::clone(self.tables.write().entry(table.clone()).or_insert_with(new))
    }

    /// Forgets which regions dead servers had.
    pub(crate) async fn forget_dead(&self) {
        let tables: Vec<Arc<TableRegions>> = self.tables.read().values().cloned().collect();
        for table in tables {
            table.known.write().retain(|_, location| !location.server.is_dead());
        }
        let mut meta = self.meta.lock().await;
        if meta.as_ref().is_some_and(|location| location.server.is_dead()) {
            *meta = None;
        }
    }

    fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl TableRegions {
    pub(crate) fn name(&self) -> &TableName {
        &self.table
    }

    /// What the cache knows, if it was read after `stale`.
    pub(crate) fn cached(&self, seek: Seek<'_>, stale: Option<u64>) -> Option<Arc<Location>> {
        let known = self.known.read();
        let bound = match seek {
            Seek::At(row) => Bound::Included(row),
            Seek::Before(row) => Bound::Excluded(row),
            Seek::Last => Bound::Unbounded,
        };
        let (_, found) = known.range::<[u8], _>((Bound::Unbounded, bound)).next_back()?;
        let end = found.info.end_key();
        let fits = match seek {
            Seek::At(row) => found.info.contains_row(row),
            // the row before is the region's last one or behind it
            Seek::Before(row) => end.is_empty() || row <= &end[..],
            Seek::Last => end.is_empty(),
        };
        let is_fresh = stale.is_none_or(|stale| found.generation > stale);
        (fits && is_fresh).then(|| Arc::clone(found))
    }

    fn insert(&self, location: Arc<Location>) {
        let mut known = self.known.write();
        let (start, end) = (location.info.start_key().clone(), location.info.end_key().clone());
        // regions that were merged into this one
        let bound = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        let inside: Vec<Bytes> =
            known.range((Bound::Excluded(start.clone()), bound)).map(|(start, _)| start.clone()).collect();
        inside.iter().for_each(|start| drop(known.remove(start)));
        known.insert(start, location);
    }

    fn clear(&self) {
        self.known.write().clear();
    }

    /// Forgets a location that was found wrong by an operation that does not try again: the next one reads meta.
    pub(crate) fn forget(&self, location: &Location) {
        let mut known = self.known.write();
        let start = location.info.start_key();
        if known.get(start).is_some_and(|found| found.generation == location.generation) {
            known.remove(start);
        }
    }
}

impl Cluster {
    /// A region of a table. `stale`: a generation that was found wrong, so that meta is read again.
    pub(crate) async fn locate(
        &self,
        regions: &TableRegions,
        seek: Seek<'_>,
        stale: Option<u64>,
        deadline: Instant,
    ) -> Result<Arc<Location>, ClientError> {
        if let Some(location) = regions.cached(seek, stale) {
            return Ok(location);
        }
        let located = async {
            match regions.name().is_meta() {
                true => self.locate_meta(stale).await,
                false => self.locate_in_meta(regions, seek, stale).await,
            }
        };
        let late = |_| ClientError::timed_out(format!("{}: hbase:meta was not read in time", regions.name()));
        timeout_at(deadline, located).await.map_err(late)?
    }

    async fn locate_in_meta(
        &self,
        regions: &TableRegions,
        seek: Seek<'_>,
        stale: Option<u64>,
    ) -> Result<Arc<Location>, ClientError> {
        let _one_at_a_time = regions.reading.lock().await;
        if let Some(location) = regions.cached(seek, stale) {
            return Ok(location);
        }
        let generation = self.inner.locations.next_generation();
        let location = self.lookup(regions.name(), seek, generation).await?;
        let Some(location) = location else {
            regions.clear();
            return Err(self.why_not_found(regions.name()).await);
        };
        regions.insert(Arc::clone(&location));
        if stale.is_none() && !location.info.end_key().is_empty() {
            self.prefetch(regions, &location, generation).await;
        }
        Ok(location)
    }

    /// The region in meta; `None` if no server has it.
    async fn lookup(
        &self,
        table: &TableName,
        seek: Seek<'_>,
        generation: u64,
    ) -> Result<Option<Arc<Location>>, ClientError> {
        let scan = lookup_scan(table, seek);
        for row in self.meta_rows(scan, 0).await? {
            if let Some(location) = self.usable_location(&row, table, generation)? {
                let fits = match seek {
                    Seek::At(row) => location.info.contains_row(row),
                    _ => true,
                };
                return Ok(fits.then_some(location));
            }
        }
        Ok(None)
    }

    /// Remembers the regions behind one; an error only means that they are looked up later.
    async fn prefetch(&self, regions: &TableRegions, from: &Location, generation: u64) {
        let scan = pb::Scan {
            start_row: Some(from.info.region_name().clone()),
            include_start_row: Some(false),
            stop_row: Some(meta_row(regions.name(), b" ,,")),
            ..info_scan()
        };
        let scan = Scan::from(scan).caching(PREFETCH_COUNT).limit(PREFETCH_COUNT);
        let Ok(rows) = self.meta_rows(scan, 0).await else { return };
        for row in rows {
            if let Ok(Some(location)) = self.usable_location(&row, regions.name(), generation) {
                regions.insert(location);
            }
        }
    }

    /// A row of meta as a location, if clients may use the region.
    fn usable_location(
        &self,
        row: &Row,
        table: &TableName,
        generation: u64,
    ) -> Result<Option<Arc<Location>>, ClientError> {
        let Some(found) = RegionLocation::of_row(row)? else { return Ok(None) };
        let RegionLocation { region: info, server: Some(server), .. } = found else { return Ok(None) };
        if info.is_split() || info.is_offline() || info.table() != table || info.replica_id() != 0 {
            return Ok(None);
        }
        // The master has not yet written where the region is now.
        if self.is_dead(&server) {
            return Ok(None);
        }
        let server = self.named_server(&server);
        Ok(Some(Arc::new(Location { specifier: specifier(&info), info, server, generation })))
    }

    /// Why a table has no region for a row: it does not exist, is disabled, or the region is about to move.
    async fn why_not_found(&self, table: &TableName) -> ClientError {
        match self.read_table_state(table).await {
            Ok(None) => ClientError::exception("TableNotFoundException", table),
            Ok(Some(pb::table_state::State::Disabled)) => {
                ClientError::exception("TableNotEnabledException", table)
            }
            Ok(Some(_)) => {
                let text = format!("{table}: no server has the region of the row");
                ClientError::exception("NotServingRegionException", text)
            }
            Err(error) => error,
        }
    }

    /// A table's state in meta; `None` if there is no such table.
    pub(crate) async fn read_table_state(
        &self,
        table: &TableName,
    ) -> Result<Option<pb::table_state::State>, ClientError> {
        let column = pb::Column {
            family: Bytes::from_static(b"table"),
            qualifier: vec![Bytes::from_static(b"state")],
        };
        let scan = pb::Scan {
            column: vec![column],
            start_row: Some(table.full_name().clone()),
            stop_row: Some(table.full_name().clone()),
            include_stop_row: Some(true),
            ..Default::default()
        };
        let rows = self.meta_rows(Scan::from(scan).caching(1).limit(1), 0).await?;
        let Some(value) = rows.first().and_then(|row| row.value("table", "state")) else { return Ok(None) };
        let state: pb::TableState = prost::Message::decode(value).map_err(ClientError::malformed)?;
        Ok(Some(state.state()))
    }

    async fn locate_meta(&self, stale: Option<u64>) -> Result<Arc<Location>, ClientError> {
        let locations = &self.inner.locations;
        let mut meta = locations.meta.lock().await;
        let is_fresh = |found: &&Arc<Location>| stale.is_none_or(|stale| found.generation > stale);
        if let Some(found) = meta.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(found));
        }
        let generation = locations.next_generation();
        let server = self.meta_server().await?;
        if self.is_dead(&server) {
            let text = format!("hbase:meta is still at {server}, which was published as dead");
            return Err(ClientError::exception("NotServingRegionException", text));
        }
        let server = self.named_server(&server);
        let info = RegionInfo::meta();
        let location = Arc::new(Location { specifier: specifier(&info), info, server, generation });
        *meta = Some(Arc::clone(&location));
        Ok(location)
    }

    /// Forgets where meta was found, in this reading or an earlier one: it was not there.
    pub(crate) async fn forget_meta(&self, generation: u64) {
        let mut meta = self.inner.locations.meta.lock().await;
        if meta.as_ref().is_some_and(|found| found.generation <= generation) {
            *meta = None;
        }
    }

    /// The region of a row and the server that has it (`host:port`), read from meta and not remembered
    /// (`RegionLocator.getRegionLocation` with `reload`). `None` if meta has no region with a server for the row.
    /// `slot` picks the connection.
    pub async fn read_location(
        &self,
        table: &TableName,
        row: &[u8],
        slot: usize,
    ) -> Result<Option<(RegionInfo, String)>, ClientError> {
        let mut scan = lookup_scan(table, Seek::At(row)).limit(1).caching(1);
        scan.message.read_type = Some(pb::scan::ReadType::Pread as i32);
        let mut scan = Scanner::new(self.clone(), self.inner.locations.table(&TableName::META), slot, scan);
        let found = match scan.next().await? {
            Some(row) => RegionLocation::of_row(&row)?,
            None => None,
        };
        scan.close().await;
        let server = |found: RegionLocation| Some((found.region, found.server?.address()));
        Ok(found.and_then(server).filter(|(info, _)| info.table() == table && info.contains_row(row)))
    }

    /// All regions of a table in the order of their keys, read from meta; parents of splits are among them.
    pub(crate) async fn read_regions(&self, table: &TableName) -> Result<Vec<RegionLocation>, ClientError> {
        if table.is_meta() {
            let server = Some(self.meta_server().await?);
            return Ok(vec![RegionLocation { region: RegionInfo::meta(), server, state: None }]);
        }
        let scan = pb::Scan {
            start_row: Some(meta_row(table, b",,")),
            // the blank sorts as the end of the table's name (`MetaTableAccessor`)
            stop_row: Some(meta_row(table, b" ,,")),
            ..info_scan()
        };
        let scan = Scan::from(scan).caching(META_CACHING);
        let meta = self.inner.locations.table(&TableName::META);
        let mut scan = Scanner::new(self.clone(), meta, 0, scan);
        let mut found = Vec::new();
        while let Some(row) = scan.next().await? {
            let location = RegionLocation::of_row(&row)?;
            found.extend(location.filter(|found| found.region.table() == table));
        }
        Ok(found)
    }

    /// Rows of meta; tried once, as whoever locates tries again. Boxed: reading meta is a scan, a scan locates, and
    /// locating reads meta.
    fn meta_rows(&self, scan: Scan, slot: usize) -> RowsFuture {
        let meta = self.inner.locations.table(&TableName::META);
        let mut scan = Scanner::new(self.clone(), meta, slot, scan).with_single_try();
        Box::pin(async move {
            let mut rows = Vec::new();
            while let Some(row) = scan.next().await? {
                rows.push(row);
            }
            Ok(rows)
        })
    }
}

type RowsFuture = Pin<Box<dyn Future<Output = Result<Vec<Row>, ClientError>> + Send>>;

/// A scan backwards in meta whose first region is the one that is looked for.
fn lookup_scan(table: &TableName, seek: Seek<'_>) -> Scan {
    let start = match seek {
        // no id of a region has more digits
        Seek::At(row) => meta_row(table, &[&b","[..], row, b",99999999999999"].concat()),
        Seek::Before(row) => meta_row(table, &[&b","[..], row, b","].concat()),
        Seek::Last => meta_row(table, b" ,,"),
    };
    let scan = pb::Scan {
        reversed: Some(true),
        start_row: Some(start),
        stop_row: Some(meta_row(table, b",,")),
        include_stop_row: Some(true),
        read_type: Some(pb::scan::ReadType::Pread as i32),
        ..info_scan()
    };
    Scan::from(scan).caching(LOOKUP_ROWS_MAX).limit(LOOKUP_ROWS_MAX)
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

impl RegionLocation {
    /// A row of meta; `None` if it is not a region's.
    fn of_row(row: &Row) -> Result<Option<RegionLocation>, ClientError> {
        let value = |qualifier: &str| row.value("info", qualifier).filter(|value| !value.is_empty());
        let Some(info) = value("regioninfo") else { return Ok(None) };
        let malformed = |error| ClientError::Malformed(format!("hbase:meta: {error}"));
        let region = RegionInfo::decode_value(info).map_err(malformed)?;
        let server = value("server").and_then(|address| {
            let (host, port) = std::str::from_utf8(address).ok()?.rsplit_once(':')?;
            let start_code = value("serverstartcode").and_then(|code| code.try_into().ok());
            let start_code = start_code.map_or(-1, i64::from_be_bytes);
            Some(ServerName::new(host, port.parse().ok()?, start_code))
        });
        let state = value("state").map(|state| String::from_utf8_lossy(state).into_owned());
        Ok(Some(RegionLocation { region, server, state }))
    }
}
