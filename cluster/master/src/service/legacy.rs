//! What older clients ask for in another way, and what there is never one of.

use std::borrow::Cow;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, RpcError};
use halcyon_schema::TableName;
use prost::Message;

use super::{Answer, decode, ready};
use crate::errors::invalid;
use crate::procedure::{Engine, FlushTable, Procedure, Resource};

/// How clients up to 2.5 flush a table.
const FLUSH_SIGNATURE: &str = "flush-table-proc";
/// Longest time such clients wait, in milliseconds.
pub(super) const EXPECTED_TIMEOUT_MS: i64 = 600_000;

/// The procedure behind an `ExecProcedure`.
pub(super) fn exec(request: pb::ExecProcedureRequest) -> Answer<Box<dyn Procedure>> {
    let table = flushed_table(&request.procedure)?;
    let named = request.procedure.configuration.iter().filter(|pair| pair.name == "family");
    let families =
        named.flat_map(|pair| pair.value.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let families = families.map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    Ok(Box::new(FlushTable::new(table, families)))
}

/// Done when nothing is flushing the table any more.
pub(super) fn is_done(
    engine: &Engine,
    request: pb::IsProcedureDoneRequest,
) -> Answer<pb::IsProcedureDoneResponse> {
    let Some(description) = request.procedure else {
        return Err(RpcError::do_not_retry("The request names no procedure"));
    };
    let table = Resource::Table(flushed_table(&description)?);
    let flushes = engine.views().into_iter().filter(|view| view.class_name.ends_with(".FlushTableProcedure"));
    let running = flushes.flat_map(|view| view.locks).any(|lock| lock.resource == table);
    Ok(pb::IsProcedureDoneResponse { done: Some(!running), snapshot: Some(description) })
}

fn flushed_table(description: &pb::ProcedureDescription) -> Answer<TableName> {
    if description.signature != FLUSH_SIGNATURE {
        let message = format!("The procedure is not registered: {}", description.signature);
        return Err(RpcError::do_not_retry(message));
    }
    TableName::parse(description.instance().as_bytes()).map_err(invalid)
}

/// There are no snapshots, so the one named does not exist.
pub(super) fn no_such_snapshot(call: &Call) -> Answer<Outcome> {
    // Both requests carry the snapshot under the same number.
    let request: pb::IsSnapshotDoneRequest = decode(call)?;
    let name = request.snapshot.map(|snapshot| snapshot.name).unwrap_or_default();
    ready(call, |_: pb::IsSnapshotDoneRequest| {
        let message = format!("Snapshot '{name}' doesn't exist on the filesystem");
        Err::<pb::IsSnapshotDoneResponse, _>(RpcError::snapshot_does_not_exist(message))
    })
}

/// There are no replication peers, so the one named does not exist.
pub(super) fn no_such_peer<M: Message>(peer: &str) -> Answer<M> {
    let mut error = RpcError::do_not_retry(format!("Replication peer {peer} does not exist"));
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.ReplicationPeerNotFoundException");
    Err(error)
}
