//! Whole reads out of calls and answers that passed through the proxy.
//!
//! A get or a batch of gets is one call. A scan is an opening, its nexts, and its end: it is handed on when the region is done,
//! when the client closes it, or when it had all rows that it wanted. What failed, and a scan that nobody ended, is counted
//! and left out: the client asks again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{Cluster, ClusterOptions};
use halcyon_proto::pb;
use halcyon_schema::{TableName, parse_region_name};
use prost::Message;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::proxy::calls::Method;
use crate::proxy::frames::response_parts;
use crate::proxy::relay::Seen;
use crate::proxy::{Proxy, take_room};
use crate::read::{Answer, Cells, Part, Read, ScanRead, kept_bytes, scan_bytes};

/// Scans that are followed at a time.
const SCANS_MAX: usize = 10_000;
/// A scan that had no call for so long will not go on: its lease has expired.
const IDLE_MAX: Duration = Duration::from_secs(180);
/// Regions of which the end is remembered.
const REGIONS_MAX: usize = 100_000;
/// Time to look up where a region ends.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// A read that is over.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) read: Read,
    /// Length of the message that it came in, which its parts keep in memory.
    pub(crate) request_bytes: usize,
    /// Names of the regions, as the client knew them.
    pub(crate) regions: Vec<Bytes>,
    /// The server as `host:port`.
    pub(crate) server: Arc<str>,
    pub(crate) began: Instant,
    /// Time that the server took, in all calls together.
    pub(crate) took: Duration,
    /// When each call of a scan began after the first one, its time, and its rows. Empty for other reads.
    pub(crate) calls: Vec<ScanCall>,
    pub(crate) answer: Answer,
}

/// One call of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanCall {
    pub(crate) after: Duration,
    pub(crate) took: Duration,
    pub(crate) rows: u32,
}

/// What a caller makes of a read.
pub(crate) trait Sink: Send {
    /// Must not wait: what has no room is dropped, and counted by the proxy.
    fn take(&mut self, observed: Observed);
}

/// A scan under way.
struct OpenScan {
    /// Its share of the memory for scans under way.
    room: OwnedSemaphorePermit,
    request_bytes: usize,
    region: Bytes,
    table: TableName,
    scan: pb::Scan,
    caching: Option<u32>,
    began: Instant,
    last: Instant,
    took: Duration,
    calls: Vec<ScanCall>,
    cells: Cells,
    /// Complete rows so far, and the row of the last cell.
    rows: u32,
    last_row: Option<Bytes>,
    is_last_partial: bool,
}

/// What a scan under way costs at least.
const SCAN_BYTES: usize = 1024;
/// Calls of a scan that are kept one by one.
const CALLS_KEPT_MAX: usize = 10_000;

/// How a scan of a region ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The region has no more rows.
    Region,
    /// All rows that were wanted came.
    Limit,
    /// A filter had enough.
    Filter,
    /// The client closed it.
    Closed,
}

pub(crate) struct Observer<S> {
    proxy: Arc<Proxy>,
    sink: S,
    kept_bytes_max: usize,
    /// Bytes of scans under way: one may be so for minutes, long after its calls have left the queue.
    scans_room: Arc<Semaphore>,
    scans: HashMap<(Arc<str>, u64), OpenScan>,
    region_ends: HashMap<Bytes, Bytes>,
    /// Made when the end of a region is asked for.
    cluster: Option<Cluster>,
}

impl<S: Sink> Observer<S> {
    /// Of the cells of an answer up to `kept_bytes_max` are kept, of all scans under way together up to `scans_bytes_max`.
    pub(crate) fn new(
        proxy: Arc<Proxy>,
        sink: S,
        kept_bytes_max: usize,
        scans_bytes_max: usize,
    ) -> Observer<S> {
        Observer {
            proxy,
            sink,
            kept_bytes_max,
            scans_room: Arc::new(Semaphore::new(scans_bytes_max)),
            scans: HashMap::new(),
            region_ends: HashMap::new(),
            cluster: None,
        }
    }

    /// Takes what was seen until `end`, then what is still in the queue; returns the sink.
    pub(crate) async fn run(
        mut self,
        mut seen: UnboundedReceiver<Seen>,
        mut end: oneshot::Receiver<()>,
    ) -> S {
        let mut ticks = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                one = seen.recv() => match one {
                    Some(one) => self.take(one).await,
                    None => return self.sink,
                },
                _ = ticks.tick() => self.forget_idle(Instant::now()),
                _ = &mut end => break,
            }
        }
        while let Ok(one) = seen.try_recv() {
            self.take(one).await;
        }
        self.sink
    }

    fn forget_idle(&mut self, now: Instant) {
        let before = self.scans.len();
        self.scans.retain(|_, scan| now.duration_since(scan.last) < IDLE_MAX);
        (self.scans.len()..before).for_each(|_| self.proxy.counts.failed.add());
    }

    pub(crate) async fn take(&mut self, seen: Seen) {
        match self.understood(&seen).await {
            Ok(Some(observed)) => {
                self.proxy.counts.observed.add();
                self.sink.take(observed);
            }
            Ok(None) => {}
            Err(Miss::Failed) => self.proxy.counts.failed.add(),
            Err(Miss::Unknown) => self.proxy.counts.unknown.add(),
            Err(Miss::NoRoom) => self.proxy.counts.dropped.add(),
        }
    }

    async fn understood(&mut self, seen: &Seen) -> Result<Option<Observed>, Miss> {
        let parts = response_parts(&seen.response).map_err(|_| Miss::Unknown)?;
        if parts.header.exception.is_some() {
            if seen.method == Method::Scan
                && let Some(id) =
                    pb::ScanRequest::decode(seen.request.clone()).ok().and_then(|scan| scan.scanner_id)
            {
                self.scans.remove(&(Arc::clone(&seen.server), id));
            }
            return Err(Miss::Failed);
        }
        let (message, block) = (parts.message(&seen.response), parts.cells(&seen.response));
        let cells = seen.form.decode(&block).map_err(|_| Miss::Unknown)?;
        match seen.method {
            Method::Get => self.get(seen, message, cells).map(Some),
            Method::MultiGet => self.multi(seen, message, cells).map(Some),
            Method::Scan => self.scan(seen, message, cells).await,
            Method::Write | Method::Other => Ok(None),
        }
    }

    fn observed(&self, seen: &Seen, read: Read, regions: Vec<Bytes>, answer: Answer) -> Observed {
        let (server, began, took) = (Arc::clone(&seen.server), seen.began, seen.took);
        let request_bytes = seen.request.len();
        Observed { read, request_bytes, regions, server, began, took, calls: Vec::new(), answer }
    }

    fn get(&self, seen: &Seen, message: Bytes, cells: Vec<Cell>) -> Result<Observed, Miss> {
        let request = pb::GetRequest::decode(seen.request.clone()).map_err(unknown)?;
        let response = pb::GetResponse::decode(message).map_err(unknown)?;
        let (region, table) = region_of(&request.region)?;
        let part = self.part(response.result.as_ref(), &request.get, &mut cells.into_iter())?;
        let read = Read::Get(table, request.get);
        Ok(self.observed(seen, read, vec![region], Answer { parts: vec![part] }))
    }

    /// What one get found.
    fn part(
        &self,
        result: Option<&pb::Result>,
        get: &pb::Get,
        cells: &mut impl Iterator<Item = Cell>,
    ) -> Result<Part, Miss> {
        let Some(result) = result else { return Ok(Part::Cells(Cells::new(self.kept_bytes_max))) };
        if get.existence_only() {
            return Ok(Part::Exists(result.exists()));
        }
        let mut all = Cells::new(self.kept_bytes_max);
        cells_of(result, cells)?.into_iter().for_each(|cell| all.push_own(cell));
        Ok(Part::Cells(all))
    }

    fn multi(&self, seen: &Seen, message: Bytes, cells: Vec<Cell>) -> Result<Observed, Miss> {
        let request = pb::MultiRequest::decode(seen.request.clone()).map_err(unknown)?;
        let response = pb::MultiResponse::decode(message).map_err(unknown)?;
        if request.region_action.len() != response.region_action_result.len() {
            return Err(Miss::Unknown);
        }
        let (mut gets, mut parts, mut regions) = (Vec::new(), Vec::new(), Vec::new());
        let mut cells = cells.into_iter();
        for (action, result) in request.region_action.into_iter().zip(response.region_action_result) {
            let (region, table) = region_of(&action.region)?;
            if result.exception.is_some() {
                return Err(Miss::Failed); // the client asks again
            }
            let mut found: HashMap<u32, Part> = HashMap::new();
            let asked: HashMap<u32, pb::Get> = action
                .action
                .into_iter()
                .filter_map(|action| Some((action.index.unwrap_or(0), *action.get?)))
                .collect();
            for one in &result.result_or_exception {
                let index = one.index.unwrap_or(0);
                if one.exception.is_some() {
                    return Err(Miss::Failed);
                }
                match (asked.get(&index), &one.result) {
                    (Some(get), result) => {
                        found.insert(index, self.part(result.as_ref(), get, &mut cells)?);
                    }
                    // of an increment or append between the gets
                    (None, Some(result)) => drop(cells_of(result, &mut cells)?),
                    (None, None) => {}
                }
            }
            let mut asked: Vec<(u32, pb::Get)> = asked.into_iter().collect();
            asked.sort_by_key(|(index, _)| *index);
            if !asked.is_empty() {
                regions.push(region);
            }
            for (index, get) in asked {
                parts.push(found.remove(&index).ok_or(Miss::Unknown)?);
                gets.push((table.clone(), get));
            }
        }
        match gets.is_empty() {
            true => Err(Miss::Unknown),
            false => Ok(self.observed(seen, Read::Multi(gets), regions, Answer { parts })),
        }
    }

    async fn scan(
        &mut self,
        seen: &Seen,
        message: Bytes,
        cells: Vec<Cell>,
    ) -> Result<Option<Observed>, Miss> {
        let request = pb::ScanRequest::decode(seen.request.clone()).map_err(unknown)?;
        let response = pb::ScanResponse::decode(message).map_err(unknown)?;
        let scanner_id = request.scanner_id.or(response.scanner_id);
        let key = scanner_id.map(|id| (Arc::clone(&seen.server), id));
        let mut open = match request.scanner_id {
            // one that began before the proxy, or whose opening was dropped
            Some(_) => match key.as_ref().and_then(|key| self.scans.remove(key)) {
                Some(open) => open,
                None => return Ok(None),
            },
            None => self.opened(seen, &request)?,
        };
        open.last = seen.began;
        open.took += seen.took;
        let rows_before = open.rows;
        open.take(&response, cells, &self.scans_room)?;
        let keeps_call = !request.renew() && open.calls.len() < CALLS_KEPT_MAX;
        if keeps_call && open.has_room(&self.scans_room, size_of::<ScanCall>()) {
            let after = seen.began.duration_since(open.began);
            open.calls.push(ScanCall { after, took: seen.took, rows: open.rows - rows_before });
        }
        let limit = request.limit_of_rows();
        let ending = if response.more_results_in_region == Some(false) {
            Some(Ending::Region)
        } else if response.more_results == Some(false) {
            Some(if limit > 0 { Ending::Limit } else { Ending::Filter })
        } else if request.close_scanner() {
            Some(Ending::Closed)
        } else {
            None
        };
        match ending {
            Some(ending) => self.ended(seen, open, ending).await.map(Some),
            None if self.scans.len() >= SCANS_MAX => Err(Miss::Failed),
            None => {
                self.scans.insert(key.ok_or(Miss::Unknown)?, open);
                Ok(None)
            }
        }
    }

    fn opened(&self, seen: &Seen, request: &pb::ScanRequest) -> Result<OpenScan, Miss> {
        let (region, table) = region_of(request.region.as_ref().ok_or(Miss::Unknown)?)?;
        let mut scan = request.scan.clone().ok_or(Miss::Unknown)?;
        scan.mvcc_read_point = None; // of this server only
        let bytes = SCAN_BYTES + seen.request.len() + region.len() + scan_bytes(&scan);
        let room = take_room(&self.scans_room, bytes).ok_or(Miss::NoRoom)?;
        Ok(OpenScan {
            room,
            request_bytes: seen.request.len(),
            region,
            table,
            scan,
            caching: request.number_of_rows.filter(|rows| *rows > 0 && *rows < i32::MAX as u32),
            began: seen.began,
            last: seen.began,
            took: Duration::ZERO,
            calls: Vec::new(),
            cells: Cells::new(self.kept_bytes_max),
            rows: 0,
            last_row: None,
            is_last_partial: false,
        })
    }

    async fn ended(&mut self, seen: &Seen, open: OpenScan, ending: Ending) -> Result<Observed, Miss> {
        let OpenScan {
            region,
            table,
            mut scan,
            caching,
            began,
            took,
            calls,
            cells,
            rows,
            is_last_partial,
            request_bytes,
            ..
        } = open;
        let mut limit = None;
        match ending {
            Ending::Region | Ending::Filter => {
                let end = self.edge(&region, &table, scan.reversed()).await.ok_or(Miss::Unknown)?;
                clip(&mut scan, &region, end);
            }
            Ending::Limit => limit = Some(rows),
            // a row of which the client has a part does not count; without any, there is nothing to compare
            Ending::Closed => {
                let whole = rows - u32::from(is_last_partial && rows > 0);
                if whole != rows || whole == 0 {
                    return Err(Miss::Failed);
                }
                limit = Some(whole);
            }
        }
        let read = Read::Scan(table, ScanRead { scan, caching, limit });
        let (server, answer) = (Arc::clone(&seen.server), Answer { parts: vec![Part::Cells(cells)] });
        Ok(Observed { read, request_bytes, regions: vec![region], server, began, took, calls, answer })
    }

    /// The end key of a region; `None` if that cannot be known any more. A scan backwards needs none.
    async fn edge(&mut self, region: &Bytes, table: &TableName, reversed: bool) -> Option<Bytes> {
        if reversed {
            return Some(Bytes::new());
        }
        if let Some(end) = self.region_ends.get(region) {
            return Some(end.clone());
        }
        let start = parse_region_name(region).ok()?.start_key;
        let looked = async {
            if self.cluster.is_none() {
                let options = ClusterOptions { operation_timeout: LOOKUP_LIMIT, ..ClusterOptions::default() };
                self.cluster = Some(Cluster::connect(self.proxy.address.clone(), options).await.ok()?);
            }
            let cluster = self.cluster.as_ref().expect("it was just made");
            cluster.read_location(table, &start, 0).await.ok()?
        };
        let (info, _) = timeout(LOOKUP_LIMIT, looked).await.ok()??;
        if info.region_name() != region {
            return None; // it was split or merged meanwhile
        }
        if self.region_ends.len() >= REGIONS_MAX {
            self.region_ends.clear();
        }
        self.region_ends.insert(region.clone(), info.end_key().clone());
        Some(info.end_key().clone())
    }
}

/// Limits a scan to its region.
fn clip(scan: &mut pb::Scan, region: &[u8], end: Bytes) {
    let stop = scan.stop_row.clone().unwrap_or_default();
    if scan.reversed() {
        let start = parse_region_name(region).map(|parts| parts.start_key).unwrap_or_default();
        if start.is_empty() || (!stop.is_empty() && stop >= start) {
            return;
        }
        scan.stop_row = Some(start);
        scan.include_stop_row = Some(true);
    } else if !end.is_empty() && (stop.is_empty() || stop > end) {
        scan.stop_row = Some(end);
        scan.include_stop_row = Some(false);
    } else if !end.is_empty() && stop == end {
        scan.include_stop_row = Some(false);
    }
}

impl OpenScan {
    /// Takes bytes of the memory for scans under way. Whether there were any.
    fn has_room(&mut self, of: &Arc<Semaphore>, bytes: usize) -> bool {
        take_room(of, bytes).map(|more| self.room.merge(more)).is_some()
    }

    fn take(
        &mut self,
        response: &pb::ScanResponse,
        cells: Vec<Cell>,
        room: &Arc<Semaphore>,
    ) -> Result<(), Miss> {
        let mut cells = cells.into_iter();
        for (at, count) in response.cells_per_result.iter().enumerate() {
            let row: Vec<Cell> = cells.by_ref().take(*count as usize).collect();
            if row.len() != *count as usize {
                return Err(Miss::Unknown);
            }
            self.result(row, response.partial_flag_per_result.get(at).copied().unwrap_or(false), room);
        }
        for result in &response.results {
            let row = cells_of(result, &mut cells)?;
            self.result(row, result.partial(), room);
        }
        Ok(())
    }

    /// Cells for which there is no room are in the checksum only.
    fn result(&mut self, row: Vec<Cell>, is_partial: bool, room: &Arc<Semaphore>) {
        let Some(first) = row.first() else { return };
        if self.last_row.as_deref() != Some(first.row()) {
            self.rows += 1;
            self.last_row = Some(Bytes::copy_from_slice(first.row()));
        }
        self.is_last_partial = is_partial;
        for cell in row {
            if self.cells.keeps(&cell) && !self.has_room(room, kept_bytes(&cell)) {
                self.cells.stop_keeping();
            }
            self.cells.push_own(cell);
        }
    }
}

/// Why a read is left out.
#[derive(Debug, PartialEq, Eq)]
enum Miss {
    Failed,
    Unknown,
    NoRoom,
}

fn unknown(_: prost::DecodeError) -> Miss {
    Miss::Unknown
}

/// Name and table of a region. Clients of HBase name regions in full.
fn region_of(specifier: &pb::RegionSpecifier) -> Result<(Bytes, TableName), Miss> {
    let parts = parse_region_name(&specifier.value).map_err(|_| Miss::Unknown)?;
    Ok((Bytes::copy_from_slice(&specifier.value), parts.table))
}

/// Cells of a result: those in the message, or the next ones of the cell block.
fn cells_of(result: &pb::Result, cells: &mut impl Iterator<Item = Cell>) -> Result<Vec<Cell>, Miss> {
    let count = usize::try_from(result.associated_cell_count()).map_err(|_| Miss::Unknown)?;
    let mut found: Vec<Cell> = cells.by_ref().take(count).collect();
    if found.len() != count {
        return Err(Miss::Unknown);
    }
    for cell in &result.cell {
        found.push(plain_cell(cell).ok_or(Miss::Unknown)?);
    }
    Ok(found)
}

/// A cell that stands in a message.
fn plain_cell(cell: &pb::Cell) -> Option<Cell> {
    let code = u8::try_from(cell.cell_type.unwrap_or(4)).ok()?;
    let cell_type = halcyon_cell::CellType::from_code(code)?;
    let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
    let (row, family) = (part(&cell.row), part(&cell.family));
    Cell::check_parts(&row, &family, b"").ok()?;
    let timestamp = cell.timestamp.unwrap_or(u64::MAX >> 1) as i64;
    Some(Cell::build(&row, &family, &part(&cell.qualifier), timestamp, cell_type, &part(&cell.value), b"", 0))
}

#[cfg(test)]
mod tests;
