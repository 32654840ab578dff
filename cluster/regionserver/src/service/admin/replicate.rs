use std::sync::Arc;

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
    let request: Result<pb::ReplicateWalEntryRequest, RpcError> = decode(&call.method, call.param.clone());
    let parsed = request.and_then(|request| {
        let written_ms = request.entry.last().map_or(0, |entry| entry.key.write_time);
        let entries = by_table(&request.entry, cells)?;
        Ok((entries, SourceDirs::of(&request), request.entry.len(), written_ms))
    });
    let (entries, source, ops, written_ms) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            server.sink.note_failed();
            tracing::error!(%error, peer = call.connection.peer, "replicated edits are refused");
            return ready(Err(error));
        }
    };
    if ops == 0 {
        return ready(Ok(reply()));
    }
    let (server, terms) = (Arc::clone(server), call.into_terms());
    Outcome::Later(Box::pin(async move {
        match apply(&server, entries, source, terms).await {
            Ok(()) => {
                server.sink.note_applied(ops, written_ms, server.env.clock.now_ms());
                Ok(reply())
            }
            Err(error) => {
                server.sink.note_failed();
                if error.dropped.is_none() {
                    tracing::error!(%error, "replicated edits are not applied");
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
    Entries { tables, loads }: Entries,
    source: SourceDirs,
    terms: Terms,
) -> Result<(), RpcError> {
    server.wait_for_room(&terms).await?;
    let waits = Waits::new(Terms { class: CallClass::Write, ..terms });
    let on_pool = Arc::clone(server);
    let write = move || {
        let written = write_local(&on_pool.regions, tables);
        written.iter().flat_map(|local| &local.written).for_each(|online| on_pool.after_write(online));
        on_pool.drive_logs(); // nobody else does behind this thread
        written
    };
    let local = server.run_pooled("ReplicateWALEntry", waits, write).await?;
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
