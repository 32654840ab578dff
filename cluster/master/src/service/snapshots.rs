//! Snapshots.

use std::borrow::Cow;
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_rpc::{Call, RpcError};
use halcyon_schema::TableName;

use super::{Answer, Request};
use crate::errors::{self, invalid};
use crate::procedure::{DeleteSnapshot, Engine, Procedure, Resource, RestoreSnapshot, TakeSnapshot};
use crate::state::MasterState;
use crate::{snapshot, trackers};

pub(super) fn take(call: &Call, request: pb::SnapshotRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let owner = call.connection.user.clone().unwrap_or_default();
    Ok((Box::new(TakeSnapshot::new(request.snapshot, owner).map_err(invalid)?), nonce))
}

/// `timeout`: how long the client may wait.
pub(super) fn taken(id: u64, timeout: Duration) -> pb::SnapshotResponse {
    let expected_timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
    pb::SnapshotResponse { expected_timeout, proc_id: Some(id as i64) }
}

/// The snapshot's `table` is the table to be. `restoreACL` has nothing to do for a snapshot without permissions, as in
/// HBase without access control; one with them is refused, because they would be lost.
pub(super) fn restore(core: &MasterState, request: pb::RestoreSnapshotRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let table = TableName::parse(request.snapshot.table().as_bytes()).map_err(invalid)?;
    let name = request.snapshot.name.clone();
    if request.restore_acl() {
        let info = snapshot::read_info(core, &name).map_err(|error| errors::from_error(&error))?;
        let permissions = info.and_then(|info| info.users_and_permissions);
        if permissions.is_some_and(|all| !all.user_permissions.is_empty()) {
            return Err(errors::unsupported(&format!(
                "RESTORE_ACL of snapshot '{name}', which has permissions of users, is"
            )));
        }
    }
    let tracker = request.custom_sft.as_deref().filter(|tracker| !tracker.is_empty());
    tracker.map_or(Ok(()), |tracker| trackers::named(tracker).map(|_| ()))?;
    Ok((Box::new(RestoreSnapshot::new(name, table, tracker.map(str::to_string))), nonce))
}

pub(super) fn list(
    core: &MasterState,
    _request: pb::GetCompletedSnapshotsRequest,
) -> Answer<pb::GetCompletedSnapshotsResponse> {
    let snapshots = snapshot::list_infos(core).map_err(|error| errors::from_error(&error))?;
    Ok(pb::GetCompletedSnapshotsResponse { snapshots })
}

/// Answered when the snapshot is gone: what clones or restores it ends first.
pub(super) fn delete(
    _core: &MasterState,
    request: pb::DeleteSnapshotRequest,
) -> Answer<Option<Box<dyn Procedure>>> {
    Ok(Some(Box::new(DeleteSnapshot::new(request.snapshot.name))))
}

/// Older clients ask for the snapshot itself, not for its procedure.
pub(super) fn is_done(
    core: &MasterState,
    engine: &Engine,
    request: pb::IsSnapshotDoneRequest,
) -> Answer<pb::IsSnapshotDoneResponse> {
    let name = request.snapshot.map(|snapshot| snapshot.name).unwrap_or_default();
    let found = snapshot::read_info(core, &name).map_err(|error| errors::from_error(&error))?;
    if found.is_some() {
        return Ok(pb::IsSnapshotDoneResponse { done: Some(true), snapshot: found });
    }
    let taken = Resource::Snapshot(name.clone());
    let mut taking =
        engine.views().into_iter().filter(|view| view.class_name.ends_with(".SnapshotProcedure"));
    if taking.any(|view| view.locks.iter().any(|lock| lock.resource == taken)) {
        return Ok(pb::IsSnapshotDoneResponse { done: Some(false), snapshot: None });
    }
    let message = format!("Snapshot '{name}' is neither being taken nor one of the completed snapshots");
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.snapshot.UnknownSnapshotException");
    Err(error)
}
