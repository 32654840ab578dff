//! What became of a procedure, and which are under way.

use halcyon_proto::pb;
use halcyon_rpc::RpcError;

use crate::procedure::{Engine, ProcedureStatus, ProcedureView, Resource};

type State = pb::get_procedure_result_response::State;

pub(super) fn result(
    engine: &Engine,
    request: &pb::GetProcedureResultRequest,
) -> pb::GetProcedureResultResponse {
    let mut response = pb::GetProcedureResultResponse::default();
    match engine.status(request.proc_id) {
        ProcedureStatus::NotFound => response.set_state(State::NotFound),
        ProcedureStatus::Running { submitted_ms, updated_ms } => {
            response.set_state(State::Running);
            response.submitted_time = Some(submitted_ms as u64);
            response.last_update = Some(updated_ms as u64);
        }
        ProcedureStatus::Finished(finished) => {
            response.set_state(State::Finished);
            response.submitted_time = Some(finished.submitted_ms as u64);
            response.last_update = Some(finished.finished_ms as u64);
            response.exception = finished.outcome.err().map(|error| exception(&error));
        }
    }
    response
}

/// An exception as a procedure's result carries it (`ForeignExceptionUtil`).
fn exception(error: &RpcError) -> pb::ForeignExceptionMessage {
    pb::ForeignExceptionMessage {
        source: Some("master".to_string()),
        generic_exception: Some(pb::GenericExceptionMessage {
            class_name: Some(error.class.clone().into_owned()),
            message: Some(error.message.clone()),
            error_info: None,
            trace: Vec::new(),
        }),
    }
}

pub(super) fn abort(engine: &Engine, request: &pb::AbortProcedureRequest) -> pb::AbortProcedureResponse {
    let is_procedure_aborted = engine.abort(request.proc_id, request.may_interrupt_if_running());
    pb::AbortProcedureResponse { is_procedure_aborted }
}

/// Procedures under way, then those that ended lately.
pub(super) fn list(engine: &Engine) -> pb::GetProceduresResponse {
    let mut procedure: Vec<pb::Procedure> = engine.views().iter().map(view).collect();
    procedure.extend(engine.results().into_iter().map(|(id, finished)| pb::Procedure {
        class_name: finished.class_name.to_string(),
        proc_id: id,
        submitted_time: finished.submitted_ms as u64,
        owner: Some(finished.owner),
        state: match finished.outcome {
            Ok(()) => pb::ProcedureState::Success as i32,
            Err(_) => pb::ProcedureState::Failed as i32,
        },
        last_update: finished.finished_ms as u64,
        exception: finished.outcome.as_ref().err().map(exception),
        nonce_group: Some(finished.nonce.0),
        nonce: Some(finished.nonce.1),
        state_message: finished.parameters.to_vec(),
        ..Default::default()
    }));
    pb::GetProceduresResponse { procedure }
}

pub(super) fn view(view: &ProcedureView) -> pb::Procedure {
    let state = match (&view.trouble, view.running) {
        (_, true) => pb::ProcedureState::Runnable,
        (Some(_), false) => pb::ProcedureState::WaitingTimeout,
        (None, false) => pb::ProcedureState::Waiting,
    };
    pb::Procedure {
        class_name: view.class_name.to_string(),
        proc_id: view.id,
        submitted_time: view.submitted_ms as u64,
        owner: Some(view.owner.clone()),
        state: state as i32,
        last_update: view.updated_ms as u64,
        exception: why_not_on(view).map(|why| exception(&RpcError::io(why))),
        nonce_group: Some(view.nonce.0),
        nonce: Some(view.nonce.1),
        state_message: view.parameters.to_vec(),
        locked: Some(view.begun),
        executed: Some(view.begun),
        ..Default::default()
    }
}

/// Why a procedure does not come on.
fn why_not_on(view: &ProcedureView) -> Option<String> {
    let set_aside = view.set_aside.as_ref().map(|why| format!("is set aside: {why}"));
    set_aside.or_else(|| view.trouble.as_ref().map(ToString::to_string))
}

/// The locks of procedures that have begun, also of those that wait to repeat a step, and who waits for them.
pub(super) fn locks(engine: &Engine) -> pb::GetLocksResponse {
    let mut response = pb::GetLocksResponse::default();
    let views = engine.views();
    for running in views.iter().filter(|view| view.begun) {
        for lock in &running.locks {
            let Some((kind, name)) = locked(&lock.resource) else { continue };
            if let Some(known) = find(&mut response, kind, &name) {
                known.shared_lock_count = known.shared_lock_count.map(|count| count + 1);
                continue;
            }
            let kind_of_lock = if lock.shared { pb::LockType::Shared } else { pb::LockType::Exclusive };
            response.lock.push(pb::LockedResource {
                resource_type: kind as i32,
                resource_name: Some(name),
                lock_type: kind_of_lock as i32,
                exclusive_lock_owner_procedure: (!lock.shared).then(|| view(running)),
                shared_lock_count: Some(i32::from(lock.shared)),
                waiting_procedures: Vec::new(),
            });
        }
    }
    for waiting in views.iter().filter(|view| !view.begun) {
        for lock in &waiting.locks {
            let Some((kind, name)) = locked(&lock.resource) else { continue };
            let Some(known) = find(&mut response, kind, &name) else { continue };
            if !lock.shared || known.lock_type == pb::LockType::Exclusive as i32 {
                known.waiting_procedures.push(view(waiting));
            }
        }
    }
    response
}

/// HBase's type and name of what is locked. It has no locks of snapshots, so no client knows a type for them; the info page
/// shows them.
fn locked(resource: &Resource) -> Option<(pb::LockedResourceType, String)> {
    Some(match resource {
        Resource::Namespace(name) => (pb::LockedResourceType::Namespace, name.clone()),
        Resource::Table(name) => (pb::LockedResourceType::Table, name.to_string()),
        Resource::Region(name) => (pb::LockedResourceType::Region, name.clone()),
        Resource::Server(name) => (pb::LockedResourceType::Server, name.to_string()),
        Resource::Peer(id) => (pb::LockedResourceType::Peer, id.clone()),
        Resource::Snapshot(_) => return None,
    })
}

fn find<'r>(
    response: &'r mut pb::GetLocksResponse,
    kind: pb::LockedResourceType,
    name: &str,
) -> Option<&'r mut pb::LockedResource> {
    let is_it = |known: &&mut pb::LockedResource| {
        known.resource_type == kind as i32 && known.resource_name.as_deref() == Some(name)
    };
    response.lock.iter_mut().find(is_it)
}
