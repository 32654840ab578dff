use std::sync::Arc;

use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{Call, CallClass, Outcome, Reply, RpcError, Terms};

use super::{Waits, decode, ready};
use crate::RegionServer;
use crate::errors;
use crate::replication::{Entries, SourceDirs, by_table, write_local};
use crate::service::bulk_load::cluster_id;

/// Applies WAL entries of another cluster; answered when all of them are durable.
pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    let cells = std::mem::take(&mut call.cells);
    let request: pb::ReplicateWalEntryRequest = match decode(&call.method, call.param.clone()) {
        Ok(request) => request,
        Err(error) => {
            server.sink.note_failed();
            tracing::error!(%error, peer = call.connection.peer, "replicated edits are refused");
            return ready(Err(error));
        }
    };
    let (ops, written_ms) =
        (request.entry.len(), request.entry.last().map_or(0, |entry| entry.key.write_time));
    if ops == 0 && cells.is_empty() {
        return ready(Ok(reply()));
    }
    let (server, peer, terms) = (Arc::clone(server), call.connection.peer.clone(), call.into_terms());
    Outcome::Later(Box::pin(async move {
        match apply(&server, request, cells, terms).await {
            Ok(()) => {
                server.sink.note_applied(ops, written_ms, server.env.clock.now_ms());
                Ok(reply())
            }
            Err(error) => {
                server.sink.note_failed();
                if error.dropped.is_none() {
                    tracing::error!(%error, peer, "replicated edits are not applied");
                }
                Err(error)
            }
        }
    }))
}

fn reply() -> Reply {
    Reply::message(&pb::ReplicateWalEntryResponse {})
}

async fn apply(
    server: &Arc<RegionServer>,
    request: pb::ReplicateWalEntryRequest,
    cells: Vec<Cell>,
    terms: Terms,
) -> Result<(), RpcError> {
    server.wait_for_room(&terms).await?;
    let source = SourceDirs::of(&request);
    let waits = Waits::new(Terms { class: CallClass::Write, ..terms }).with_room(server);
    let (on_pool, room) = (Arc::clone(server), waits.room.clone());
    // A request may have a hundred megabytes: mutations are not made of them where others wait.
    let write = move || {
        let mut grow = |bytes| room.as_ref().is_none_or(|room| room.grow(bytes));
        let Entries { tables, loads } = by_table(&request.entry, cells, &mut grow)?;
        let written = write_local(&on_pool.regions, tables);
        written.iter().flat_map(|local| &local.written).for_each(|online| on_pool.after_write(online));
        on_pool.drive_logs(); // nobody else does behind this thread
        Ok((written?, loads))
    };
    let (local, loads) = server.run_pooled("ReplicateWALEntry", waits, write).await?;
    for ticket in local.tickets {
        ticket.await.map_err(|error| errors::to_rpc(&error))?;
    }
    server.sink.write_remote(local.elsewhere).await?;
    if loads.is_empty() {
        return Ok(());
    }
    let own_id = cluster_id(server)?;
    server.sink.load_files(&server.resources, &own_id, loads, source).await
}
