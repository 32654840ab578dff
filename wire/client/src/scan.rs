//! A scan that walks regions.
//!
//! Each call asks for `caching` rows. An answer may end within a row (a partial result), say that the region is
//! done, say that all is done, or be a heartbeat without rows. Rows come out whole. If a scanner is lost the scan
//! goes on behind the last whole row. HBase: `ScannerCallable`, `AsyncScanSingleRegionRpcRetryingCaller`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::TableName;
use prost::Message;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::locations::Location;
use crate::retry::Advice;
use crate::{Answer, ClientError, Connection};

/// Bytes an answer may have (`hbase.client.scanner.max.result.size`).
const RESULT_BYTES_MAX: u64 = 2 << 20;

/// A scan under way. Close it, or read it to its end: else the server keeps its scanner until the lease is over.
pub struct ScanRun {
    cluster: Cluster,
    table: TableName,
    slot: usize,
    /// What is still to be scanned.
    scan: pb::Scan,
    caching: u32,
    /// Whether errors are for the caller to deal with.
    is_single_try: bool,
    /// Rows that are still wanted.
    limit: Option<u32>,
    open: Option<Open>,
    /// A region that was found to be elsewhere.
    stale: Option<u64>,
    rows: VecDeque<Vec<Cell>>,
    /// Cells of a row whose rest is still to come.
    partial: Vec<Cell>,
    calls_count: u64,
    done: bool,
}

/// A scanner of one region.
struct Open {
    location: Arc<Location>,
    connection: Arc<Connection>,
    scanner_id: u64,
    next_call_seq: u64,
}

impl ScanRun {
    pub(crate) fn new(
        cluster: Cluster,
        table: TableName,
        slot: usize,
        mut scan: pb::Scan,
        caching: u32,
    ) -> ScanRun {
        scan.max_result_size.get_or_insert(RESULT_BYTES_MAX);
        scan.caching = Some(caching);
        ScanRun {
            cluster,
            table,
            slot,
            scan,
            caching,
            is_single_try: false,
            limit: None,
            open: None,
            stale: None,
            rows: VecDeque::new(),
            partial: Vec::new(),
            calls_count: 0,
            done: false,
        }
    }

    /// Ends after so many rows, which is at least one; the server closes its scanner by itself then.
    pub fn with_limit(mut self, rows: u32) -> ScanRun {
        assert!(rows > 0, "a scan is for some row");
        self.limit = Some(rows);
        self
    }

    /// Hands the first error to the caller.
    pub(crate) fn with_single_try(mut self) -> ScanRun {
        self.is_single_try = true;
        self
    }

    /// Calls made so far.
    pub fn calls_count(&self) -> u64 {
        self.calls_count
    }

    /// The next row's cells; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Cell>>, ClientError> {
        let (deadline, mut number) = (self.cluster.deadline(), 0);
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Ok(Some(row));
            }
            if self.done {
                return Ok(None);
            }
            if let Err(error) = self.step().await {
                self.give_up_scanner(error, number, deadline).await?;
                number += 1;
            }
        }
    }

    /// Ends the scan; a server that cannot be told any more forgets it by itself.
    pub async fn close(mut self) {
        if let Some(open) = self.open.take() {
            let request = pb::ScanRequest {
                scanner_id: Some(open.scanner_id),
                close_scanner: Some(true),
                number_of_rows: Some(0),
                ..Default::default()
            };
            let timeout = Some(self.cluster.inner.options.call_timeout);
            let _ = open.connection.call_with_cells("Scan", &request, None, timeout).await;
        }
    }

    async fn give_up_scanner(
        &mut self,
        error: ClientError,
        number: u32,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let generation = self.open.take().map(|open| open.location.generation);
        self.partial.clear();
        if self.is_single_try {
            return Err(error);
        }
        if self.cluster.wait_to_retry(error, number, deadline).await? == Advice::Relocate {
            self.stale = generation.max(self.stale);
        }
        Ok(())
    }

    /// One call, and what follows from its answer.
    async fn step(&mut self) -> Result<(), ClientError> {
        let timeout = Some(self.cluster.inner.options.call_timeout);
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
                open.connection.call_with_cells("Scan", &request, None, timeout).await?
            }
            None => {
                let location = self.locate().await?;
                let options = &self.cluster.inner.options.connect;
                // until an answer says otherwise this is the location to blame
                self.stale = Some(location.generation);
                let connection = location.server.connection(self.slot, options).await?;
                request.region = Some(location.specifier.clone());
                request.scan = Some(self.scan.clone());
                let answer = connection.call_with_cells("Scan", &request, None, timeout).await?;
                self.stale = None;
                self.open = Some(Open { location, connection, scanner_id: 0, next_call_seq: 0 });
                answer
            }
        };
        self.take(answer)
    }

    async fn locate(&self) -> Result<Arc<Location>, ClientError> {
        let start = self.scan.start_row.clone().unwrap_or_default();
        if !self.is_reversed() || (self.scan.include_start_row() && !start.is_empty()) {
            return self.cluster.locate(&self.table, &start, self.stale).await;
        }
        // The last region that has rows before `start`; no start at all is the end of the table.
        let locations = self.cluster.table_locations(&self.table).await?;
        let before = |l: &&Arc<Location>| start.is_empty() || l.info.start_key() < &start;
        let none = || ClientError::Malformed(format!("{}: no region before the row", self.table));
        locations.iter().rev().find(before).cloned().ok_or_else(none)
    }

    fn is_reversed(&self) -> bool {
        self.scan.reversed()
    }

    fn take(&mut self, answer: Answer) -> Result<(), ClientError> {
        let malformed = |error: prost::DecodeError| ClientError::Malformed(error.to_string());
        let response = pb::ScanResponse::decode(answer.message).map_err(malformed)?;
        let open = self.open.as_mut().expect("an answer comes from an open scanner");
        if let Some(id) = response.scanner_id {
            open.scanner_id = id;
        }
        let region = open.location.info.clone();
        let mut cells = answer.cells.into_iter();
        for (at, count) in response.cells_per_result.iter().enumerate() {
            let row: Vec<Cell> = cells.by_ref().take(*count as usize).collect();
            if row.len() != *count as usize {
                return Err(ClientError::Malformed("fewer cells than the answer says".to_string()));
            }
            let is_partial = response.partial_flag_per_result.get(at).copied().unwrap_or(false);
            self.take_result(row, is_partial);
        }
        if response.more_results == Some(false) {
            self.finish_row();
            self.open = None; // the server has closed it
            self.done = true;
        } else if response.more_results_in_region == Some(false) {
            self.finish_row();
            self.open = None;
            let edge = if self.is_reversed() { region.start_key() } else { region.end_key() };
            self.done |= edge.is_empty() || self.is_behind_stop(edge);
            self.scan.start_row = Some(edge.clone());
            self.scan.include_start_row = Some(!self.is_reversed());
        }
        Ok(())
    }

    fn take_result(&mut self, row: Vec<Cell>, is_partial: bool) {
        let Some(first) = row.first() else { return };
        if self.partial.first().is_some_and(|cell| cell.row() != first.row()) {
            self.finish_row();
        }
        self.partial.extend(row);
        if !is_partial {
            self.finish_row();
        }
    }

    /// What has gathered is a whole row; from here on the scan would go on behind it.
    fn finish_row(&mut self) {
        let row = std::mem::take(&mut self.partial);
        if let Some(cell) = row.first() {
            self.scan.start_row = Some(Bytes::copy_from_slice(cell.row()));
            self.scan.include_start_row = Some(false);
            self.rows.push_back(row);
            if let Some(limit) = &mut self.limit {
                *limit = limit.saturating_sub(1);
                self.done |= *limit == 0;
            }
        }
    }

    fn is_behind_stop(&self, edge: &Bytes) -> bool {
        let stop = self.scan.stop_row.as_deref().unwrap_or_default();
        if stop.is_empty() {
            return false;
        }
        match self.is_reversed() {
            false => edge > stop || (edge == stop && !self.scan.include_stop_row()),
            // the next region ends before its edge
            true => edge[..] <= *stop,
        }
    }
}
