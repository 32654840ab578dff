//! `HbckService`: what HBCK2 asks a master to do when something is stuck.

use std::sync::Arc;
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};

use super::work::Workers;
use super::{Answer, audit, decode};
use crate::Master;
use crate::procedure::Engine;

/// Procedures named in one call; each may be waited for.
const PROCEDURES_MAX: usize = 1000;

/// The repair service. It has threads of its own, so that a call that waits for a stuck procedure does not delay other
/// administrative calls.
pub struct HbckService {
    master: Arc<Master>,
    workers: Workers,
}

impl HbckService {
    pub fn new(master: Arc<Master>) -> halcyon_cell::Result<HbckService> {
        Ok(HbckService { master, workers: Workers::start()? })
    }

    fn dispatch(&self, call: &Call) -> Answer<Outcome> {
        match call.method.as_str() {
            "BypassProcedure" => {
                let (engine, request) = (self.master.engine.clone(), decode(call)?);
                audit(call, &[]);
                self.workers.run(move || bypass(&engine, &request).map(|response| Reply::message(&response)))
            }
            other => Err(RpcError::do_not_retry(format!(
                "java.lang.UnsupportedOperationException: {other} of HbckService is not supported"
            ))),
        }
    }
}

impl Service for HbckService {
    fn call(&self, call: Call) -> Outcome {
        let outcome = self.master.core.check_running().and_then(|()| self.dispatch(&call));
        outcome.unwrap_or_else(|error| Outcome::Ready(Err(error)))
    }
}

/// One answer for each procedure, in the order of the request. `recursive` asks for the children of a procedure, too;
/// procedures have none here. `waitTime` is HBase's, in milliseconds.
fn bypass(engine: &Engine, request: &pb::BypassProcedureRequest) -> Answer<pb::BypassProcedureResponse> {
    if request.proc_id.len() > PROCEDURES_MAX {
        let count = request.proc_id.len();
        return Err(RpcError::do_not_retry(format!("{count} procedures are named, over {PROCEDURES_MAX}")));
    }
    let wait = Duration::from_millis(request.wait_time());
    let bypassed = request.proc_id.iter().map(|&id| engine.bypass(id, wait, request.r#override()));
    Ok(pb::BypassProcedureResponse { bypassed: bypassed.collect() })
}
