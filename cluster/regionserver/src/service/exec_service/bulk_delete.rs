//! `BulkDeleteService` of HBase's examples: deletes what a scan finds in one region.
//!
//! The deletes are written in batches. An error ends the call; what was deleted before it stays deleted, and the client is not
//! told how much. HBase does the same, but counts a delete that alone fails as not done and reports no error. Checked against
//! `BulkDeleteEndpoint` of 2.6.1.

use std::collections::BTreeSet;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, CellType};
use halcyon_proto::pb;
use halcyon_proto::pb::bulk_delete_request::DeleteType;
use halcyon_region::{Mutation, MutationKind, Nonce, ReadMode, TimeRange, WriteTicket};

use super::rows::RowScan;
use super::{Answer, CallError, EndpointCall, decode};
use crate::calls::nonces::Once;
use crate::convert;
use crate::coprocessors::{self, Asked, Operation};
use crate::errors::invalid;

const LATEST_TIMESTAMP: i64 = i64::MAX;
/// Rows and cells of a batch at most, whatever the client asks for.
const BATCH_ROWS_MAX: u64 = 1000;
const BATCH_CELLS_MAX: usize = 10_000;

pub(super) fn run(call: &EndpointCall) -> Result<Answer, CallError> {
    if call.method != "delete" {
        return Err(call.unknown_method().into());
    }
    let request: pb::BulkDeleteRequest = decode("delete", call.request.clone())?;
    let mut proto = request.scan.clone();
    let kind = DeleteType::try_from(request.delete_type);
    let kind = kind.map_err(|_| invalid(format!("there is no delete type {}", request.delete_type)))?;
    if request.row_batch_size == 0 {
        return Err(invalid("rowBatchSize is 0: a batch needs a row").into());
    }
    if proto.filter.is_none() && kind == DeleteType::Row {
        proto = convert::first_keys_only(&proto);
    }
    let timestamp = request.timestamp.map(|timestamp| timestamp as i64);
    let mut rows = RowScan::open(call, convert::scan(&proto)?)?;
    let mut deletes = Deletes::new(call, kind, timestamp);
    let batch_rows_max = u64::from(request.row_batch_size).min(BATCH_ROWS_MAX);
    loop {
        let piece = rows.next()?;
        deletes.rows_count += u64::from(piece.ended_before);
        if !rows.cells.is_empty() {
            deletes.add((0..rows.cells.len()).map(|at| rows.cells.get(at)));
            deletes.rows_count += u64::from(piece.ends);
        }
        if !piece.more || deletes.rows_count >= batch_rows_max || deletes.cells_count >= BATCH_CELLS_MAX {
            deletes.write()?;
        }
        if !piece.more {
            break;
        }
    }
    let response = pb::BulkDeleteResponse {
        rows_deleted: deletes.rows_deleted,
        versions_deleted: (kind == DeleteType::Version).then_some(deletes.versions_deleted),
    };
    Ok(Answer { ticket: deletes.ticket, ..Answer::new("hbase.pb.BulkDeleteResponse", &response) })
}

/// A batch of deletes, and what was written before it.
struct Deletes<'a> {
    call: &'a EndpointCall,
    kind: DeleteType,
    /// Of the deletes; `None`: the server's clock, or that of each version.
    timestamp: Option<i64>,
    batch: Vec<Mutation>,
    /// Delete markers of the batch.
    cells_count: usize,
    /// Rows that end in the batch.
    rows_count: u64,
    rows_deleted: u64,
    versions_deleted: u64,
    /// Of the last batch that was written.
    ticket: Option<WriteTicket>,
}

impl<'a> Deletes<'a> {
    fn new(call: &'a EndpointCall, kind: DeleteType, timestamp: Option<i64>) -> Deletes<'a> {
        Deletes {
            call,
            kind,
            timestamp,
            batch: Vec::new(),
            cells_count: 0,
            rows_count: 0,
            rows_deleted: 0,
            versions_deleted: 0,
            ticket: None,
        }
    }

    /// Adds the delete of cells of one row.
    fn add<'c>(&mut self, found: impl Iterator<Item = CellRef<'c>>) {
        let timestamp = self.timestamp.unwrap_or(LATEST_TIMESTAMP);
        let mut found = found.peekable();
        let Some(first) = found.peek() else { return };
        let row = Bytes::copy_from_slice(first.row());
        let marker = |cell: &CellRef<'_>, qualifier: &[u8], timestamp: i64, kind: CellType| {
            Cell::build(cell.row(), cell.family(), qualifier, timestamp, kind, b"", b"", 0)
        };
        let mut cells = Vec::new();
        let mut seen = BTreeSet::new();
        // Of a row delete, the row is enough: all families of the region are deleted.
        for cell in found.take_while(|_| self.kind != DeleteType::Row) {
            let column = (cell.family(), cell.qualifier());
            match self.kind {
                DeleteType::Family if seen.insert((cell.family(), &b""[..])) => {
                    cells.push(marker(&cell, b"", timestamp, CellType::DeleteFamily));
                }
                DeleteType::Column if seen.insert(column) => {
                    cells.push(marker(&cell, cell.qualifier(), timestamp, CellType::DeleteColumn));
                }
                DeleteType::Version if self.timestamp.is_none() => {
                    cells.push(marker(&cell, cell.qualifier(), cell.timestamp(), CellType::Delete));
                }
                DeleteType::Version if seen.insert(column) => {
                    cells.push(marker(&cell, cell.qualifier(), timestamp, CellType::Delete));
                }
                _ => {}
            }
        }
        self.cells_count += cells.len().max(1);
        self.batch.push(Mutation {
            kind: MutationKind::Delete,
            row,
            cells,
            timestamp,
            durability: None,
            time_range: TimeRange::ALL,
            return_results: false,
            cell_ttl_ms: None,
            cluster_ids: None,
        });
    }

    /// Writes the batch. One batch at a time is on its way to the disk. *Blocking.*
    fn write(&mut self) -> Result<(), CallError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (server, online) = (&self.call.server, &self.call.online);
        if let Some(ticket) = self.ticket.take() {
            ticket.wait()?;
        }
        if server.pressure.is_high() {
            tokio::runtime::Handle::current().block_on(server.pressure.wait())?;
        }
        let markers_count: usize = self.batch.iter().map(|delete| delete.cells.len()).sum();
        let batch = std::mem::take(&mut self.batch);
        if online.is_hosted() {
            let message = pb::MutationProto {
                mutate_type: Some(pb::mutation_proto::MutationType::Delete as i32),
                timestamp: self.timestamp.map(|timestamp| timestamp as u64),
                ..Default::default()
            };
            let asked = batch.into_iter().map(|delete| Asked::new(&message, delete)).collect();
            let mut operation = Operation::begin(server, online, Some(&self.call.terms))?;
            for written in
                coprocessors::mutate(&mut operation, online, asked, false, &mut Once::default(), None)?
            {
                written?;
            }
        } else {
            let outcome = online.region.mutate(batch, false, Nonce::default(), ReadMode::AnyDisk)?;
            server.after_write(online);
            server.drive_logs();
            self.ticket = Some(outcome.ticket);
            for result in outcome.results {
                result?;
            }
        }
        self.rows_deleted += std::mem::take(&mut self.rows_count);
        self.versions_deleted += markers_count as u64;
        self.cells_count = 0;
        Ok(())
    }
}
