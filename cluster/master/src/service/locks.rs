//! `LockService`: locks on namespaces, tables and regions that clients hold with heartbeats (`LockServiceClient`).

use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_proto::pb::lock_heartbeat_response::LockStatus;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};

use super::{Answer, audit, decode, submission};
use crate::Master;
use crate::errors::invalid;
use crate::procedure::{HOLD_LOCK_CLASS, HoldLock, Procedure};

/// Regions of one lock at most.
const REGIONS_MAX: usize = 10_000;

/// The service. Shared by all connections; answers from memory.
pub struct LockService {
    master: Arc<Master>,
}

impl LockService {
    pub fn new(master: Arc<Master>) -> LockService {
        LockService { master }
    }

    fn dispatch(&self, call: &Call) -> Answer<Reply> {
        match call.method.as_str() {
            "RequestLock" => self.request(call, decode(call)?),
            "LockHeartbeat" => Ok(self.heartbeat(&decode(call)?)),
            other => Err(RpcError::unknown_method(other)),
        }
    }

    /// Answers at once. Heartbeats tell when the lock is held.
    fn request(&self, call: &Call, request: pb::LockRequest) -> Answer<Reply> {
        if request.description().is_empty() {
            return Err(RpcError::do_not_retry("Empty description"));
        }
        if request.region_info.len() > REGIONS_MAX {
            return Err(RpcError::do_not_retry(format!("A lock of more than {REGIONS_MAX} regions")));
        }
        let nonce = (request.nonce_group(), request.nonce());
        let procedure = HoldLock::new(request).map_err(invalid)?;
        audit(call, &procedure.locks());
        let engine = &self.master.engine;
        let known = &self.master.core.remote_locks;
        known.ids().into_iter().filter(|id| engine.class_of(*id).is_none()).for_each(|id| known.forget(id));
        let proc_id = engine.enqueue_once(Box::new(procedure), submission(call, nonce))?;
        Ok(Reply::message(&pb::LockResponse { proc_id }))
    }

    fn heartbeat(&self, request: &pb::LockHeartbeatRequest) -> Reply {
        let (core, engine, id) = (&self.master.core, &self.master.engine, request.proc_id);
        let is_lock = engine.class_of(id) == Some(HOLD_LOCK_CLASS);
        let now_ns = core.env.clock.monotonic_ns();
        let is_held = is_lock && core.remote_locks.heartbeat(id, now_ns, request.keep_alive());
        if is_lock && !request.keep_alive() && !engine.abort(id, false) {
            engine.look_again(id);
        }
        let timeout_ms = u32::try_from(core.settings.remote_lock_timeout.as_millis()).unwrap_or(u32::MAX);
        Reply::message(&pb::LockHeartbeatResponse {
            lock_status: if is_held { LockStatus::Locked } else { LockStatus::Unlocked } as i32,
            timeout_ms: is_held.then_some(timeout_ms),
        })
    }
}

impl Service for LockService {
    fn call(&self, call: Call) -> Outcome {
        let answer = self.master.core.check_running().and_then(|()| self.dispatch(&call));
        Outcome::Ready(answer)
    }
}
