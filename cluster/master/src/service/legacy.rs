//! What older clients ask for in another way.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::{Call, RpcError};
use halcyon_schema::TableName;

use super::{Answer, snapshots};
use crate::backup;
use crate::errors::invalid;
use crate::procedure::{Engine, FlushTable, Procedure, Resource, TakeSnapshot};
use crate::state::MasterState;

/// How clients up to 2.5 flush a table.
const FLUSH_SIGNATURE: &str = "flush-table-proc";
/// Longest time such clients wait, in milliseconds.
pub(super) const EXPECTED_TIMEOUT_MS: i64 = 600_000;

/// How a snapshot can be asked for by its mechanism's name; the instance is the snapshot's name.
const SNAPSHOT_SIGNATURE: &str = "online-snapshot";

/// The procedure behind an `ExecProcedure`.
pub(super) fn exec(call: &Call, request: pb::ExecProcedureRequest) -> Answer<Box<dyn Procedure>> {
    let description = &request.procedure;
    if description.signature == SNAPSHOT_SIGNATURE {
        let table = description.configuration.iter().find(|pair| pair.name == "table");
        let snapshot = pb::SnapshotDescription {
            name: description.instance().to_string(),
            table: table.map(|pair| pair.value.clone()),
            ..Default::default()
        };
        let owner = call.connection.user.clone().unwrap_or_default();
        return Ok(Box::new(TakeSnapshot::new(snapshot, owner).map_err(invalid)?));
    }
    let table = flushed_table(description)?;
    let named = description.configuration.iter().filter(|pair| pair.name == "family");
    let families =
        named.flat_map(|pair| pair.value.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let families = families.map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    Ok(Box::new(FlushTable::new(table, families)))
}

/// A flush is done when nothing is flushing the table any more, a snapshot when it is there.
pub(super) fn is_done(
    core: &MasterState,
    engine: &Engine,
    request: pb::IsProcedureDoneRequest,
) -> Answer<pb::IsProcedureDoneResponse> {
    let Some(description) = request.procedure else {
        return Err(RpcError::do_not_retry("The request names no procedure"));
    };
    // `ExecProcedure` has answered when the WALs were rolled.
    if description.signature == backup::ROLL_SIGNATURE && core.settings.backup_enabled {
        return Ok(pb::IsProcedureDoneResponse { done: Some(true), snapshot: Some(description) });
    }
    if description.signature == SNAPSHOT_SIGNATURE {
        let name = description.instance().to_string();
        let asked = pb::SnapshotDescription { name, ..Default::default() };
        let done = snapshots::is_done(core, engine, pb::IsSnapshotDoneRequest { snapshot: Some(asked) })?;
        return Ok(pb::IsProcedureDoneResponse { done: done.done, snapshot: Some(description) });
    }
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
