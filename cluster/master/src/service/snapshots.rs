//! Snapshots.

use std::borrow::Cow;

use halcyon_proto::pb;
use halcyon_rpc::{Call, RpcError};
use halcyon_schema::TableName;

use super::{Answer, Request};
use crate::errors::{self, invalid};
use crate::procedure::{Engine, RestoreSnapshot, TakeSnapshot};
use crate::snapshot;
use crate::state::Core;

/// How long clients may wait for a snapshot, in milliseconds (`hbase.snapshot.master.timeout.millis`).
pub(super) const EXPECTED_TIMEOUT_MS: i64 = 300_000;

pub(super) fn take(call: &Call, request: pb::SnapshotRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let owner = call.connection.user.clone().unwrap_or_default();
    Ok((Box::new(TakeSnapshot::new(request.snapshot, owner).map_err(invalid)?), nonce))
}

/// The snapshot's `table` is the table to be.
pub(super) fn restore(request: pb::RestoreSnapshotRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let table = TableName::parse(request.snapshot.table().as_bytes()).map_err(invalid)?;
    Ok((Box::new(RestoreSnapshot::new(request.snapshot.name, table)), nonce))
}

pub(super) fn list(
    core: &Core,
    _request: pb::GetCompletedSnapshotsRequest,
) -> Answer<pb::GetCompletedSnapshotsResponse> {
    let snapshots = snapshot::list_infos(core).map_err(|error| errors::from_error(&error))?;
    Ok(pb::GetCompletedSnapshotsResponse { snapshots })
}

pub(super) fn delete(core: &Core, request: pb::DeleteSnapshotRequest) -> Answer<pb::DeleteSnapshotResponse> {
    let name = &request.snapshot.name;
    let failed = |error| errors::from_error(&error);
    if snapshot::read_info(core, name).map_err(failed)?.is_none() {
        let message = format!("Snapshot '{name}' doesn't exist on the filesystem");
        return Err(RpcError::snapshot_does_not_exist(message));
    }
    snapshot::delete(core, name).map_err(failed)?;
    Ok(pb::DeleteSnapshotResponse {})
}

/// Older clients ask for the snapshot itself, not for its procedure.
pub(super) fn is_done(
    core: &Core,
    engine: &Engine,
    request: pb::IsSnapshotDoneRequest,
) -> Answer<pb::IsSnapshotDoneResponse> {
    let name = request.snapshot.map(|snapshot| snapshot.name).unwrap_or_default();
    let found = snapshot::read_info(core, &name).map_err(|error| errors::from_error(&error))?;
    if found.is_some() {
        return Ok(pb::IsSnapshotDoneResponse { done: Some(true), snapshot: found });
    }
    if engine.views().iter().any(|view| view.class_name.ends_with(".SnapshotProcedure")) {
        return Ok(pb::IsSnapshotDoneResponse { done: Some(false), snapshot: None });
    }
    let message = format!("Snapshot '{name}' is neither being taken nor one of the completed snapshots");
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.snapshot.UnknownSnapshotException");
    Err(error)
}
