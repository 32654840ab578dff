//! A scan that walks regions.
//!
//! Each call asks for rows of one region. A response may end within a row (a partial result), say that the region is
//! done, say that all is done, or be a heartbeat without rows. If a scanner is lost or its region moves, the scan opens a
//! new one behind the last cell that the caller has, so that no row is missing or returned twice. HBase:
//! `ScannerCallable`, `AsyncScanSingleRegionRpcRetryingCaller`, `BatchScanResultCache`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellComparator};
use halcyon_proto::pb;
use prost::Message;
use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::locations::{Location, Seek, TableRegions};
use crate::request::RowParts;
use crate::retry::{Advice, advice};
use crate::table::plain_cell;
use crate::{Answer, ClientError, Connection, Row, Scan};

/// Bytes of a response at most (`hbase.client.scanner.max.result.size`).
const RESULT_BYTES_MAX: u64 = 2 << 20;
/// Rows of a call if the caller set no number: as many as the bytes allow.
const CACHING_DEFAULT: u32 = i32::MAX as u32;

/// A scan that is being read, made by [`crate::Table::scan`].
///
/// [`Scanner::next`] returns rows as the caller asks for them. [`Scanner::into_stream`] reads ahead and keeps the
/// server's lease alive. Dropping a scanner closes it on the server in the background.
///
/// A scan is not of one moment. When its region moves, splits or merges, or its connection breaks, a new scanner reads what is
/// there then. No row is lost or returned twice, and each whole row is of one moment. Only parts of a row (`RowParts::Partial`
/// and batches) may be of two: the caller has the first ones already, and the new scanner reads the others.
pub struct Scanner {
    cluster: Cluster,
    regions: Arc<TableRegions>,
    slot: usize,
    /// What is still to be scanned.
    scan: pb::Scan,
    caching: u32,
    parts: RowParts,
    /// Whether errors are for the caller to deal with.
    is_single_try: bool,
    /// Rows that are still wanted.
    limit: Option<u32>,
    open: Option<Open>,
    /// A location that was found wrong.
    stale: Option<u64>,
    rows: VecDeque<Row>,
    /// Cells of a row whose rest is still to come.
    gathered: Vec<Cell>,
    /// The last cell that is in `rows` or with the caller, if its row has more cells: a new scanner begins behind it.
    resume_after: Option<Cell>,
    calls_count: u64,
    is_done: bool,
}

/// A scanner of one region.
struct Open {
    location: Arc<Location>,
    connection: Arc<Connection>,
    scanner_id: u64,
    next_call_seq: u64,
    lease: Option<Duration>,
}

impl Scanner {
    pub(crate) fn new(cluster: Cluster, regions: Arc<TableRegions>, slot: usize, scan: Scan) -> Scanner {
        let Scan { mut message, caching, limit, parts } = scan;
        let caching = caching.unwrap_or(CACHING_DEFAULT);
        message.max_result_size.get_or_insert(RESULT_BYTES_MAX);
        message.caching = Some(caching);
        Scanner {
            cluster,
            regions,
            slot,
            scan: message,
            caching,
            parts,
            is_single_try: false,
            limit,
            open: None,
            stale: None,
            rows: VecDeque::new(),
            gathered: Vec::new(),
            resume_after: None,
            calls_count: 0,
            is_done: false,
        }
    }

    /// Returns the first error instead of trying again.
    pub(crate) fn with_single_try(mut self) -> Scanner {
        self.is_single_try = true;
        self
    }

    /// Calls made so far.
    pub fn calls_count(&self) -> u64 {
        self.calls_count
    }

    /// The next row; `None` at the end. After an error the scan can be continued by calling this again.
    pub async fn next(&mut self) -> Result<Option<Row>, ClientError> {
        let (mut deadline, mut number) = (None, 0);
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Ok(Some(row));
            }
            if self.is_done {
                return Ok(None);
            }
            let until = *deadline.get_or_insert_with(|| self.cluster.deadline());
            match self.step(until).await {
                Ok(()) => {
                    // a heartbeat says that the server works on it: the operation's time begins again
                    deadline = None;
                    // Retries count until rows come or the region is done. A scanner that opens and is then lost,
                    // again and again, would otherwise never end.
                    if self.open.is_none() {
                        number = 0;
                    }
                }
                Err(error) => {
                    self.give_up_scanner(error, number, until).await?;
                    number += 1;
                }
            }
        }
    }

    /// Extends the lease of the server's scanner (`ResultScanner.renewLease`), for callers that take long between two
    /// rows. A scan whose lease expired continues with a new scanner, which may see newer data.
    pub async fn renew(&mut self) -> Result<(), ClientError> {
        let timeout = Some(self.cluster.inner.options.call_timeout);
        let Some(open) = &mut self.open else { return Ok(()) };
        let request = pb::ScanRequest {
            scanner_id: Some(open.scanner_id),
            number_of_rows: Some(0),
            next_call_seq: Some(open.next_call_seq),
            renew: Some(true),
            ..Default::default()
        };
        open.next_call_seq += 1;
        self.calls_count += 1;
        let renewed = open.connection.call_with_cells("Scan", &request, None, timeout).await;
        if renewed.is_err() {
            self.lose_scanner();
        }
        renewed.map(drop)
    }

    /// Half the server's lease, if a scanner is open there.
    pub(crate) fn renew_period(&self) -> Option<Duration> {
        Some(self.open.as_ref()?.lease? / 2)
    }

    /// Ends the scan and waits until the server has closed its scanner. A server that cannot be reached closes it when
    /// the lease expires.
    pub async fn close(mut self) {
        if let Some(open) = self.open.take() {
            open.close(self.cluster.inner.options.call_timeout).await;
        }
    }

    /// Forgets the server's scanner; the next step opens a new one behind what was read.
    fn lose_scanner(&mut self) -> Option<u64> {
        self.gathered.clear();
        self.open.take().map(|open| open.location.generation)
    }

    async fn give_up_scanner(
        &mut self,
        error: ClientError,
        number: u32,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let generation = self.lose_scanner();
        if self.is_single_try {
            // look-ups in meta: the next one must not ask the same server again
            if let Some(wrong) = generation.max(self.stale).filter(|_| advice(&error) == Advice::Relocate) {
                self.cluster.forget_meta(wrong).await;
            }
            return Err(error);
        }
        let advice = self.cluster.wait_to_retry_in(&self.regions, error, number, deadline).await?;
        if advice == Advice::Relocate {
            self.stale = generation.max(self.stale);
        }
        Ok(())
    }

    /// One call, and what follows from its response.
    async fn step(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let mut request = pb::ScanRequest {
            number_of_rows: Some(self.caching),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            limit_of_rows: self.limit,
            ..Default::default()
        };
        self.calls_count += 1;
        let answer = match &mut self.open {
            Some(open) => {
                request.scanner_id = Some(open.scanner_id);
                request.next_call_seq = Some(open.next_call_seq);
                open.next_call_seq += 1;
                let timeout = Some(self.cluster.call_timeout(deadline));
                open.connection.call_with_cells("Scan", &request, None, timeout).await?
            }
            None => self.open_scanner(request, deadline).await?,
        };
        self.take(answer)
    }

    async fn open_scanner(
        &mut self,
        mut request: pb::ScanRequest,
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let location = self.locate(deadline).await?;
        // until a response says otherwise this is the location to blame
        self.stale = Some(location.generation);
        let connected = location.server.connection(self.slot, &self.cluster.inner.options);
        let late =
            |_| ClientError::timed_out(format!("{}: no connection in time", location.server.address()));
        let connection = timeout_at(deadline, connected).await.map_err(late)??;
        request.region = Some(location.specifier.clone());
        request.scan = Some(self.scan.clone());
        let timeout = Some(self.cluster.call_timeout(deadline));
        let answer = connection.call_with_cells("Scan", &request, None, timeout).await?;
        self.stale = None;
        self.open = Some(Open { location, connection, scanner_id: 0, next_call_seq: 0, lease: None });
        Ok(answer)
    }

    async fn locate(&self, deadline: Instant) -> Result<Arc<Location>, ClientError> {
        let start = self.scan.start_row.clone().unwrap_or_default();
        let seek = match self.scan.reversed() {
            true if start.is_empty() => Seek::Last,
            true if !self.scan.include_start_row() => Seek::Before(&start),
            _ => Seek::At(&start),
        };
        self.cluster.locate(&self.regions, seek, self.stale, deadline).await
    }

    fn take(&mut self, answer: Answer) -> Result<(), ClientError> {
        let response = pb::ScanResponse::decode(answer.message).map_err(ClientError::malformed)?;
        let open = self.open.as_mut().expect("a response comes from an open scanner");
        if let Some(id) = response.scanner_id {
            open.scanner_id = id;
        }
        open.lease = response.ttl.map(|ttl| Duration::from_millis(ttl.into())).or(open.lease);
        let region = open.location.info.clone();
        let mut cells = answer.cells.into_iter();
        for (at, count) in response.cells_per_result.iter().enumerate() {
            let count = *count as usize;
            let row: Vec<Cell> = cells.by_ref().take(count).collect();
            if row.len() != count {
                return Err(ClientError::malformed("fewer cells than the response says"));
            }
            let is_partial = response.partial_flag_per_result.get(at).copied().unwrap_or(false);
            self.take_result(row, is_partial);
        }
        // connections without a codec
        for result in &response.results {
            let row = result.cell.iter().map(plain_cell).collect::<Result<Vec<Cell>, _>>()?;
            self.take_result(row, result.partial());
        }
        if response.more_results == Some(false) {
            self.finish_row();
            self.open = None; // the server has closed it
            self.is_done = true;
        } else if response.more_results_in_region == Some(false) {
            self.finish_row();
            self.open = None;
            let edge = if self.scan.reversed() { region.start_key() } else { region.end_key() };
            self.is_done |= edge.is_empty() || self.is_behind_stop(edge);
            self.scan.start_row = Some(edge.clone());
            self.scan.include_start_row = Some(!self.scan.reversed());
        }
        if self.is_done
            && let Some(open) = self.open.take()
        {
            // the limit was reached before the server noticed
            open.close_later(self.cluster.inner.options.call_timeout);
        }
        Ok(())
    }

    fn take_result(&mut self, mut row: Vec<Cell>, is_partial: bool) {
        if self.is_done {
            return;
        }
        self.drop_known_cells(&mut row);
        let Some(first) = row.first() else {
            if !is_partial && self.resume_after.is_some() {
                self.finish_row();
            }
            return;
        };
        let current = self.gathered.first().or(self.resume_after.as_ref());
        if current.is_some_and(|cell| cell.row() != first.row()) {
            self.finish_row();
        }
        if self.is_done {
            return;
        }
        if self.gathered.is_empty() {
            self.gathered = row;
        } else {
            self.gathered.extend(row);
        }
        match self.parts {
            RowParts::Whole => {}
            RowParts::Partial => self.hand_out(self.gathered.len(), is_partial),
            RowParts::Batch(cells) => {
                let cells = cells as usize;
                while self.gathered.len() > cells || (is_partial && self.gathered.len() == cells) {
                    self.hand_out(cells, true);
                }
            }
        }
        if !is_partial {
            self.finish_row();
        }
    }

    /// Cells that a new scanner reads again, because it begins with the row of which the caller has a part.
    fn drop_known_cells(&self, row: &mut Vec<Cell>) {
        let Some(last) = self.resume_after.as_ref().filter(|_| self.gathered.is_empty()) else { return };
        if row.first().is_some_and(|first| first.row() == last.row()) {
            let is_known = |cell: &Cell| {
                CellComparator::Default.compare_keys(cell.get().key(), last.get().key()) != Ordering::Greater
            };
            row.retain(|cell| !is_known(cell));
        }
    }

    /// Hands out the first gathered cells as a part of their row.
    fn hand_out(&mut self, count: usize, has_more_cells: bool) {
        let rest = self.gathered.split_off(count);
        let part = std::mem::replace(&mut self.gathered, rest);
        if let Some(last) = part.last() {
            self.scan.start_row = Some(Bytes::copy_from_slice(last.row()));
            self.scan.include_start_row = Some(true);
            self.resume_after = Some(last.clone());
            self.rows.push_back(Row::partial(part, has_more_cells));
        }
    }

    /// What was gathered ends a row; from here on a new scanner begins behind it.
    fn finish_row(&mut self) {
        let rest = std::mem::take(&mut self.gathered);
        let known = self.resume_after.take();
        let Some(row) = rest.first().or(known.as_ref()).map(|cell| Bytes::copy_from_slice(cell.row())) else {
            return;
        };
        self.scan.start_row = Some(row);
        self.scan.include_start_row = Some(false);
        if !rest.is_empty() {
            self.rows.push_back(Row::new(rest));
        }
        if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(1);
            self.is_done |= *limit == 0;
        }
    }

    fn is_behind_stop(&self, edge: &Bytes) -> bool {
        let stop = self.scan.stop_row.as_deref().unwrap_or_default();
        if stop.is_empty() {
            return false;
        }
        match self.scan.reversed() {
            false => edge > stop || (edge == stop && !self.scan.include_stop_row()),
            // the next region ends before its edge
            true => edge[..] <= *stop,
        }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.close_later(self.cluster.inner.options.call_timeout);
        }
    }
}

impl Open {
    async fn close(self, call_timeout: Duration) {
        let request = pb::ScanRequest {
            scanner_id: Some(self.scanner_id),
            close_scanner: Some(true),
            number_of_rows: Some(0),
            ..Default::default()
        };
        // a server that cannot be told forgets the scanner when its lease expires
        let _ = self.connection.call_with_cells("Scan", &request, None, Some(call_timeout)).await;
    }

    /// Closes in the background. Without a runtime the lease has to expire.
    fn close_later(self, call_timeout: Duration) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.close(call_timeout));
        }
    }
}
