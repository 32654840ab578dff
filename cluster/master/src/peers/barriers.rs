//! Barriers of serial peers in `hbase:meta` (`halcyon_schema::RegionBarriers`), besides those that openings, splits and merges write.

use std::collections::HashSet;

use bytes::Bytes;
use halcyon_cell::{Cell, Result};
use halcyon_schema::{RegionBarriers, RegionInfo, barrier_cells, delete_barriers, delete_ranges};
use tracing::info;

use crate::state::{MasterState, RegionState};

/// Rows of one write to meta.
const ROWS_MAX: usize = 1000;

fn rows(core: &MasterState) -> Result<Vec<Vec<Cell>>> {
    core.cluster.system_tables.scan_rows(&core.meta_server(), &RegionInfo::meta())
}

/// Gives each open region whose edits go to peers a barrier, if it has none. It begins with sequence id 0, so the next opening is behind it.
/// May run twice.
pub(crate) fn write_missing(core: &MasterState) -> Result<()> {
    let rows = rows(core)?;
    let barriers = rows.iter().filter_map(|row| RegionBarriers::of_row(row));
    let known: HashSet<Bytes> =
        barriers.filter(|found| !found.ranges.is_empty()).map(|found| found.region_name).collect();
    let mut missing = Vec::new();
    for entry in core.tables.read().by_name.values().filter(|entry| entry.descriptor.has_global_scope()) {
        for (region, at) in &entry.regions {
            let server = at.server.as_ref().filter(|_| at.state == RegionState::Open);
            if let Some(server) = server.filter(|_| !known.contains(region.region_name())) {
                missing.push((region.clone(), server.clone()));
            }
        }
    }
    for some in missing.chunks(ROWS_MAX) {
        core.meta_put(|timestamp| {
            some.iter().flat_map(|(region, server)| barrier_cells(region, 0, server, timestamp)).collect()
        })?;
    }
    Ok(())
}

/// Takes barriers away that no serial peer needs any more (HBase: `ReplicationBarrierCleaner`). Of a region that is there one stays, from
/// which on a peer that becomes serial counts. Returns how many went.
pub(crate) fn clean(core: &MasterState) -> Result<usize> {
    let Some(sources) = &core.cluster.replication else { return Ok(0) };
    let (mut found, mut is_there) = (Vec::new(), Vec::new());
    for row in rows(core)? {
        let Some(barriers) = RegionBarriers::of_row(&row) else { continue };
        found.push(barriers);
        is_there.push(row.iter().any(|cell| cell.family() == b"info"));
    }
    if found.is_empty() {
        return Ok(0);
    }
    let serial: Vec<String> =
        core.peers.all().into_iter().filter(|peer| peer.config.serial()).map(|peer| peer.id).collect();
    let counts = sources.sent_ranges(&serial, &found)?;
    let mut gone = 0;
    let mut changes: Vec<(&RegionBarriers, Option<usize>)> = Vec::new();
    for ((barriers, is_there), sent) in found.iter().zip(is_there).zip(counts) {
        let len = barriers.ranges.len();
        if !is_there && sent == len {
            gone += len;
            changes.push((barriers, None));
        } else if sent.min(len.saturating_sub(1)) > 0 {
            let count = sent.min(len - 1);
            gone += count;
            changes.push((barriers, Some(count)));
        }
    }
    for some in changes.chunks(ROWS_MAX) {
        core.meta_put(|timestamp| {
            let cells = some.iter().map(|(barriers, count)| match count {
                None => vec![delete_barriers(&barriers.region_name, timestamp)],
                Some(count) => delete_ranges(barriers, *count, timestamp),
            });
            cells.flatten().collect()
        })?;
    }
    if gone > 0 {
        info!(gone, "barriers that no serial peer needs are deleted");
    }
    Ok(gone)
}
