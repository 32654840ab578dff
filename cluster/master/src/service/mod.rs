//! `MasterService`, which administers the cluster; `methods.rs` has its methods by name.
//!
//! Reads are answered on the network thread from memory. What writes a file or asks a region server goes to a
//! thread; procedures answer when their request has been checked and recorded.

mod cluster;
mod groups;
pub(crate) use cluster::regions_in_transition_count;
mod admin;
mod hbck;
mod legacy;
mod locks;
mod methods;
mod namespaces;
mod peers;
mod procedures;
mod regions;
mod snapshots;
mod switches;
mod tables;
mod work;

use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use prost::Message;
use tracing::info;

use crate::procedure::{Lock, Procedure, Submission};
use crate::state::MasterState;
use crate::switches::Switch;
use crate::{Master, backup, errors};
use work::Workers;

pub use admin::MasterAdminService;
pub use hbck::HbckService;
pub use locks::LockService;

type Answer<T> = Result<T, RpcError>;
/// A procedure and the nonce (group and number) it was asked for with.
type Request = (Box<dyn Procedure>, (u64, u64));

/// The administrative service. Shared by all connections.
pub struct MasterService {
    master: Arc<Master>,
    workers: Workers,
    /// Changes of region server groups, which take as long as regions move. One after the other.
    group_workers: Workers,
}

impl MasterService {
    /// Starts two threads for calls that may block, and one for groups.
    pub fn new(master: Arc<Master>) -> halcyon_cell::Result<MasterService> {
        const THREADS: usize = 2;
        let (workers, group_workers) =
            (Workers::start("master-call", THREADS)?, Workers::start("master-groups", 1)?);
        Ok(MasterService { master, workers, group_workers })
    }
}

impl Service for MasterService {
    fn call(&self, call: Call) -> Outcome {
        let outcome = self.master.core.check_running().and_then(|()| self.dispatch(&call));
        outcome.unwrap_or_else(|error| Outcome::Ready(Err(error)))
    }
}

impl MasterService {
    fn dispatch(&self, call: &Call) -> Answer<Outcome> {
        if call.method == "ExecMasterService" {
            return self.exec_master_service(call);
        }
        if let Some(outcome) = groups::of_master(self, call) {
            return outcome;
        }
        let handler = methods::find(&call.method).ok_or_else(|| refused(&call.method))?;
        handler(self, call)
    }

    fn core(&self) -> &MasterState {
        &self.master.core
    }

    fn is_on(&self, switch: Switch) -> bool {
        self.core().switches.lock().get(switch)
    }

    /// A call that asks for a procedure; the answer carries its number.
    fn submit<M, R>(
        &self,
        call: &Call,
        request: impl FnOnce(M) -> Answer<Request>,
        response: impl FnOnce(u64) -> R + Send + 'static,
    ) -> Answer<Outcome>
    where
        M: Message + Default,
        R: Message,
    {
        let (procedure, nonce) = request(decode(call)?)?;
        audit(call, &procedure.locks());
        let receiver = self.master.engine.submit(procedure, submission(call, nonce));
        Ok(Outcome::Later(Box::pin(async move {
            let id = receiver.await.map_err(|_| errors::stopping())??;
            Ok(Reply::message(&response(id)))
        })))
    }

    /// A call that is answered when its procedure has ended.
    fn transit<M, R>(
        &self,
        call: &Call,
        request: impl FnOnce(&MasterState, M) -> Answer<Option<Box<dyn Procedure>>>,
        response: R,
    ) -> Answer<Outcome>
    where
        M: Message + Default,
        R: Message + 'static,
    {
        let Some(procedure) = request(&self.master.core, decode(call)?)? else {
            return Ok(Outcome::Ready(Ok(Reply::message(&response))));
        };
        audit(call, &procedure.locks());
        let done = self.master.engine.run(procedure, submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move { done.await.map(|_| Reply::message(&response)) })))
    }

    /// A call that may block: runs on a thread of its own kind.
    fn blocking<M, R>(
        &self,
        call: &Call,
        work: impl FnOnce(&MasterState, M) -> Answer<R> + Send + 'static,
    ) -> Answer<Outcome>
    where
        M: Message + Default + Send + 'static,
        R: Message,
    {
        let request: M = decode(call)?;
        audit_change(call);
        let core = self.master.core.clone();
        self.workers.run(move || work(&core, request).map(|response| Reply::message(&response)))
    }

    fn exec_procedure(&self, call: &Call) -> Answer<Outcome> {
        let request: pb::ExecProcedureRequest = decode(call)?;
        if request.procedure.signature == backup::ROLL_SIGNATURE && self.core().settings.backup_enabled {
            return self.blocking(call, |core, request: pb::ExecProcedureRequest| {
                backup::roll_logs(core, &request.procedure)?;
                let expected_timeout = Some(legacy::EXPECTED_TIMEOUT_MS);
                Ok(pb::ExecProcedureResponse { expected_timeout, return_data: None })
            });
        }
        let procedure = legacy::exec(call, request)?;
        audit(call, &procedure.locks());
        let receiver = self.master.engine.submit(procedure, submission(call, (0, 0)));
        Ok(Outcome::Later(Box::pin(async move {
            receiver.await.map_err(|_| errors::stopping())??;
            let expected_timeout = Some(legacy::EXPECTED_TIMEOUT_MS);
            Ok(Reply::message(&pb::ExecProcedureResponse { expected_timeout, return_data: None }))
        })))
    }
}

/// Methods that exist in HBase and not here, each named; any other is unknown.
fn refused(method: &str) -> RpcError {
    let what = match method {
        "TransitReplicationPeerSyncReplicationState" => "Synchronous replication is",
        "Grant" | "Revoke" | "GetUserPermissions" | "HasUserPermissions" => "Access control is",
        name if name.contains("RSGroup") || matches!(name, "MoveServers" | "RemoveServers") => {
            "Region server groups are"
        }
        name => return RpcError::unknown_method(name),
    };
    errors::unsupported(what)
}

/// Since 2.0 the master refuses some requests by the result of their procedure (`ProcedurePrepareLatch`); the
/// message then reaches the user without the class in front.
const REFUSED_BY_RESULT: [&str; 9] = [
    "CreateTable",
    "DeleteTable",
    "truncateTable",
    "TruncateRegion",
    "AddReplicationPeer",
    "RemoveReplicationPeer",
    "EnableReplicationPeer",
    "DisableReplicationPeer",
    "UpdateReplicationPeerConfig",
];

fn submission(call: &Call, nonce: (u64, u64)) -> Submission {
    Submission {
        owner: call.connection.user.clone().unwrap_or_default(),
        nonce,
        refused_by_result: call.connection.client_at_least(2, 0)
            && REFUSED_BY_RESULT.contains(&call.method.as_str()),
    }
}

/// As [`audit`], for a call without a procedure; not for one that only reads, by HBase's naming.
fn audit_change(call: &Call) {
    if !["Get", "get", "Is", "List"].iter().any(|verb| call.method.starts_with(verb)) {
        audit(call, &[]);
    }
}

/// One line for each administrative call that changes something: who, from where, what. The tables and namespaces are
/// those that its procedure locks exclusively.
fn audit(call: &Call, locks: &[Lock]) {
    let user = call.connection.user.as_deref().unwrap_or_default();
    let on: Vec<String> =
        locks.iter().filter(|lock| !lock.shared).map(|lock| lock.resource.to_string()).collect();
    let (address, method, on) = (&call.connection.peer, &call.method, on.join(", "));
    info!(target: "halcyon_audit", user, %address, %method, %on, "administrative call");
}

fn decode<M: Message + Default>(call: &Call) -> Answer<M> {
    M::decode(call.param.clone()).map_err(|error| {
        RpcError::do_not_retry(format!("{}: the request cannot be read: {error}", call.method))
    })
}

/// A call that is answered from memory.
fn ready<M, R>(call: &Call, work: impl FnOnce(M) -> Answer<R>) -> Answer<Outcome>
where
    M: Message + Default,
    R: Message,
{
    let request = decode(call)?;
    audit_change(call);
    let response = work(request)?;
    Ok(Outcome::Ready(Ok(Reply::message(&response))))
}
