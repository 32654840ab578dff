//! What the master and the region servers do for an administrator.
//!
//! Methods return when the work is done: they wait for the master's procedure. A request that starts a procedure carries a
//! nonce, so that a retry does not start another one.

mod groups;
mod hbck;
mod log_entries;
mod namespaces;
mod operations;
mod peers;
mod procedures;
mod quotas;
mod regions;
mod servers;
mod snapshots;
mod status;
mod switches;
mod tables;

pub use groups::{GroupBalance, ServerGroup};
pub use log_entries::{BalancerDecision, BalancerRejection, CallLog, CallLogFilter, LoggedCall};
pub use peers::Peer;
pub use procedures::{Lock, LockKind, Procedure};
pub use quotas::{Quota, QuotaFilter, QuotaSubject, SpaceUse, Throttle};
pub use regions::CompactionState;
pub use servers::CacheEvictions;
pub use snapshots::{Snapshot, SnapshotType};
pub use status::{
    ClientMetrics, ClusterMetrics, RegionInTransition, RegionMetrics, ReplicationSource, ServerMetrics, Task,
    UserMetrics,
};
pub use switches::Switch;
pub use tables::{AlterStatus, TableState};

use std::sync::Arc;
use std::time::Duration;

use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::{Cluster, after, random_number};
use crate::{Answer, ClientError, Connection, RemoteException};

/// Pauses between questions whether a procedure has ended: short ones first, as most end soon.
const POLL_PERIODS_MS: [u64; 6] = [2, 5, 10, 20, 50, 100];
/// So often at least a call that waits looks whether its master is still the active one.
const LOOK_PERIOD_MAX: Duration = Duration::from_secs(10);

/// The master of a cluster, and the region servers as an administrator sees them. Clones share a connection.
#[derive(Clone)]
pub struct Admin {
    cluster: Cluster,
    master: Arc<tokio::sync::Mutex<Option<Master>>>,
}

/// The master that was active when it was connected to.
#[derive(Clone)]
struct Master {
    name: ServerName,
    connection: Arc<Connection>,
}

/// Nonces of one request.
struct Nonces {
    group: Option<u64>,
    nonce: Option<u64>,
}

impl Cluster {
    /// Connects to the active master.
    pub async fn admin(&self) -> Result<Admin, ClientError> {
        let admin = Admin { cluster: self.clone(), master: Arc::default() };
        admin.connection(self.deadline()).await?;
        Ok(admin)
    }
}

impl Admin {
    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn nonces(&self) -> Nonces {
        Nonces { group: Some(self.cluster.inner.nonce_group), nonce: Some(random_number()) }
    }

    /// The master that was active when it was connected to.
    async fn connection(&self, deadline: Instant) -> Result<Master, ClientError> {
        let connected = async {
            let mut master = self.master.lock().await;
            if let Some(known) = master.as_ref().filter(|known| !known.connection.has_ended()) {
                return Ok(known.clone());
            }
            let name = self.cluster.active_master().await?;
            let connection = Arc::new(self.cluster.service(&name.address(), "MasterService").await?);
            Ok(master.insert(Master { name, connection }).clone())
        };
        let late = |_| ClientError::timed_out("no connection to the master in time".to_string());
        timeout_at(deadline, connected).await.map_err(late)?
    }

    /// A call that is made again while the master starts or another one takes over.
    async fn call<M: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<M, ClientError> {
        let (deadline, mut number) = (self.cluster.deadline(), 0);
        loop {
            let called = async {
                let master = self.connection(deadline).await?;
                let answer = self.ask(&master, method, request, deadline).await;
                let is_elsewhere = |error: &ClientError| {
                    error.remote().is_none()
                        || error.is_exception("MasterNotRunningException")
                        || error.is_exception("MasterStoppedException")
                        || error.is_exception("ServerNotRunningYetException")
                };
                if answer.as_ref().is_err_and(is_elsewhere) {
                    self.forget(&master).await;
                }
                answer
            };
            match called.await {
                Ok(answer) => return crate::table::decode(&answer),
                Err(error) => self.cluster.wait_to_retry(error, number, deadline).await?,
            };
            number += 1;
        }
    }

    /// Asks a master once, which may take until the deadline. The connection to a process that is frozen, or to a machine that was lost,
    /// does not end: so while there is no answer, the cluster is asked now and then who is active.
    async fn ask(
        &self,
        master: &Master,
        method: &str,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let limit = Some(deadline.saturating_duration_since(Instant::now()));
        let mut answer = std::pin::pin!(master.connection.call_with_cells(method, request, None, limit));
        let period = self.cluster.inner.options.call_timeout.min(LOOK_PERIOD_MAX);
        loop {
            if let Ok(answer) = timeout(period, &mut answer).await {
                return answer;
            }
            let active = tokio::select! {
                answer = &mut answer => return answer,
                active = self.cluster.active_master() => active,
            };
            // Whoever does not know has not said that it is another one.
            if let Ok(active) = active
                && active != master.name
            {
                let text =
                    format!("{method}: {} does not answer, and {active} is the active master", master.name);
                return Err(ClientError::timed_out(text));
            }
        }
    }

    /// Asks for the active master before the next call.
    async fn forget(&self, asked: &Master) {
        let mut master = self.master.lock().await;
        if master.as_ref().is_some_and(|known| Arc::ptr_eq(&known.connection, &asked.connection)) {
            *master = None;
        }
    }

    /// Waits for a procedure; its exception is the error.
    async fn finish(&self, proc_id: Option<u64>) -> Result<(), ClientError> {
        let Some(proc_id) = proc_id else { return Ok(()) };
        let deadline = after(self.cluster.inner.options.procedure_timeout);
        let mut polls = 0;
        loop {
            let request = pb::GetProcedureResultRequest { proc_id };
            let answer: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request).await?;
            if answer.state != pb::get_procedure_result_response::State::Running as i32 {
                return match answer.exception {
                    None => Ok(()),
                    Some(exception) => Err(foreign(&exception)),
                };
            }
            if Instant::now() > deadline {
                let waited = self.cluster.inner.options.procedure_timeout;
                return Err(ClientError::timed_out(format!(
                    "procedure {proc_id} has not ended within {waited:?}"
                )));
            }
            poll_pause(polls).await;
            polls += 1;
        }
    }
}

/// Waits before another question whether something has ended.
async fn poll_pause(number: usize) {
    let period_ms = POLL_PERIODS_MS[number.min(POLL_PERIODS_MS.len() - 1)];
    tokio::time::sleep(Duration::from_millis(period_ms)).await;
}

fn foreign(message: &pb::ForeignExceptionMessage) -> ClientError {
    let generic = message.generic_exception.as_ref();
    let class = generic.and_then(|e| e.class_name.clone()).unwrap_or_default();
    let text = generic.and_then(|e| e.message.clone()).unwrap_or_default();
    let trace = format!("{class}: {text}");
    // the procedure has ended: another attempt is for the caller to decide
    let exception = RemoteException { do_not_retry: true, ..RemoteException::of_class(class, trace) };
    ClientError::Remote(Box::new(exception))
}
