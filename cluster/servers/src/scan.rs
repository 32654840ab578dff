//! The scan of one region, call by call.
//!
//! An answer may end within a row, may be empty though there is more (a heartbeat), and says when the region is done. All
//! answers of one scanner are of one read point, so the rows are of one moment.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_client::ClientError;
use halcyon_proto::pb;

use crate::Target;
use crate::links::Links;

/// Bytes of one answer, about (`hbase.client.scanner.max.result.size`).
const RESULT_BYTES_MAX: u64 = 2 << 20;
/// As many rows as the bytes allow.
const ROWS_MAX: u32 = i32::MAX as u32;
/// Answers without a row, one after the other.
const EMPTY_ANSWERS_MAX: usize = 1_000;

/// Rows `[start, stop)` of some families, or of all if none is named.
pub(crate) struct RegionScan {
    pub(crate) region: pb::RegionSpecifier,
    pub(crate) start_row: Bytes,
    pub(crate) stop_row: Bytes,
    pub(crate) families: Vec<&'static str>,
}

/// Why a scan failed.
pub(crate) enum ScanError {
    Call(ClientError),
    Answer(Error),
}

impl From<Error> for ScanError {
    fn from(error: Error) -> ScanError {
        ScanError::Answer(error)
    }
}

/// Reads all rows. *Blocking*.
pub(crate) fn run(
    links: &Arc<Links>,
    scan: &RegionScan,
    timeout: Duration,
) -> std::result::Result<Vec<Vec<Cell>>, ScanError> {
    let call = |request: pb::ScanRequest| {
        links.call_blocking::<pb::ScanResponse>(Target::Client, "Scan", request, None, timeout)
    };
    let (mut rows, mut scanner_id, mut empty_count) = (Rows::default(), None, 0);
    for number in 0_u64.. {
        let mut request = request();
        match scanner_id {
            None => (request.region, request.scan) = (Some(scan.region.clone()), Some(scan.message())),
            Some(_) => (request.scanner_id, request.next_call_seq) = (scanner_id, Some(number - 1)),
        }
        let (response, cells) = call(request).map_err(ScanError::Call)?;
        scanner_id = response.scanner_id.or(scanner_id);
        let before = rows.cells_count;
        let taken = rows.take(&response, cells);
        let is_end = response.more_results == Some(false) || response.more_results_in_region == Some(false);
        if taken.is_ok() && is_end {
            break;
        }
        empty_count = if rows.cells_count > before { 0 } else { empty_count + 1 };
        let has_ended = taken.is_err() || empty_count > EMPTY_ANSWERS_MAX || scanner_id.is_none();
        if has_ended {
            if scanner_id.is_some() {
                // If that fails, the lease of the scanner ends.
                let _ = call(pb::ScanRequest {
                    scanner_id,
                    close_scanner: Some(true),
                    number_of_rows: Some(0),
                    ..Default::default()
                });
            }
            taken?;
            return Err(malformed("a scan without rows and without an end").into());
        }
    }
    Ok(rows.finish())
}

fn request() -> pb::ScanRequest {
    pb::ScanRequest {
        number_of_rows: Some(ROWS_MAX),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..Default::default()
    }
}

impl RegionScan {
    fn message(&self) -> pb::Scan {
        let column = |family: &&'static str| pb::Column { family: (*family).into(), qualifier: Vec::new() };
        pb::Scan {
            column: self.families.iter().map(column).collect(),
            start_row: Some(self.start_row.clone()),
            stop_row: Some(self.stop_row.clone()),
            max_versions: Some(1),
            max_result_size: Some(RESULT_BYTES_MAX),
            caching: Some(ROWS_MAX),
            ..Default::default()
        }
    }
}

/// Puts the parts of rows together.
#[derive(Default)]
struct Rows {
    rows: Vec<Vec<Cell>>,
    /// The next result may continue the last row.
    is_open: bool,
    cells_count: usize,
}

impl Rows {
    fn take(&mut self, response: &pb::ScanResponse, cells: Vec<Cell>) -> Result<()> {
        let mut cells = cells.into_iter();
        for (at, &count) in response.cells_per_result.iter().enumerate() {
            let row: Vec<Cell> = cells.by_ref().take(count as usize).collect();
            if row.len() != count as usize {
                return Err(malformed("fewer cells than the answer says"));
            }
            self.push(row, response.partial_flag_per_result.get(at).copied().unwrap_or(false));
        }
        for result in &response.results {
            let row = result.cell.iter().map(cell_of).collect::<Result<Vec<_>>>()?;
            self.push(row, result.partial());
        }
        Ok(())
    }

    fn push(&mut self, part: Vec<Cell>, is_partial: bool) {
        self.cells_count += part.len();
        if let Some(first) = part.first() {
            let last = self.rows.last_mut().filter(|_| self.is_open);
            match last.filter(|row| row.first().is_some_and(|cell| cell.row() == first.row())) {
                Some(row) => row.extend(part),
                None => self.rows.push(part),
            }
        }
        self.is_open = is_partial;
    }

    fn finish(self) -> Vec<Vec<Cell>> {
        self.rows
    }
}

/// A cell in the message itself.
fn cell_of(cell: &pb::Cell) -> Result<Cell> {
    let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
    let code = u8::try_from(cell.cell_type.unwrap_or(CellType::Put as i32)).ok();
    let kind = code.and_then(CellType::from_code).ok_or_else(|| malformed("a cell of no known type"))?;
    let timestamp = cell.timestamp.unwrap_or(i64::MAX as u64) as i64;
    let (row, family) = (part(&cell.row), part(&cell.family));
    Cell::check_parts(&row, &family, b"").map_err(|error| malformed(&error.to_string()))?;
    Ok(Cell::build(&row, &family, &part(&cell.qualifier), timestamp, kind, &part(&cell.value), b"", 0))
}

/// Not `Corrupt`: the scan may be repeated.
fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the answer of a region server: {what}"))
}
