//! Between messages of the wire and requests of a region.
//!
//! Everything that a client may get wrong is found here or by the region; nothing of a message is trusted.
//! Checked against `ProtobufUtil` of 2.6.4 (`toGet`, `toScan`, `toPut`, `toDelete`, `toIncrement`, `toAppend`).

mod inline_cells;
mod mutation;
mod read;
mod result;

pub(crate) use inline_cells::InlineCells;
pub(crate) use mutation::{CellSource, cluster_ids_attribute, condition, mutation};
pub(crate) use read::{detached_scan, first_keys_only, get, scan};
pub(crate) use result::{
    cell_block, cells_size_bytes, exists_result, inline_result, no_cells_result, shared_cell_block,
    stale_result,
};

use bytes::Bytes;
use halcyon_cell::ROW_LEN_MAX;
use halcyon_proto::pb;
use halcyon_region::TimeRange;
use halcyon_rpc::RpcError;

use crate::errors::invalid;

fn check_row(row: &[u8]) -> Result<(), RpcError> {
    if row.is_empty() {
        return Err(invalid("Row length is 0"));
    }
    if row.len() > ROW_LEN_MAX {
        return Err(invalid(format!("Row length {} is > {ROW_LEN_MAX}", row.len())));
    }
    Ok(())
}

/// Absent bounds are open; HBase refuses negative ones and a maximum below the minimum.
fn time_range(range: Option<&pb::TimeRange>) -> Result<TimeRange, RpcError> {
    let Some(range) = range else { return Ok(TimeRange::ALL) };
    let min = range.from.map_or(0, |from| from as i64);
    let max = range.to.map_or(i64::MAX, |to| to as i64);
    if min < 0 || max < 0 {
        return Err(invalid(format!("Timestamp cannot be negative. minStamp:{min}, maxStamp:{max}")));
    }
    if max < min {
        return Err(invalid(format!("maxStamp is smaller than minStamp: {max} < {min}")));
    }
    Ok(TimeRange { min, max })
}

fn attribute<'a>(attributes: &'a [pb::NameBytesPair], name: &str) -> Option<&'a Bytes> {
    attributes.iter().find(|pair| pair.name == name).and_then(|pair| pair.value.as_ref())
}
