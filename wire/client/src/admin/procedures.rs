//! Procedures of the master and their locks.

use halcyon_proto::pb;

use super::{Admin, foreign};
use crate::ClientError;

/// A procedure of the master.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Its id.
    pub id: u64,
    /// The procedure that waits for it.
    pub parent_id: Option<u64>,
    /// Java class.
    pub class: String,
    /// `RUNNABLE`, `WAITING`, `SUCCESS`, ...
    pub state: String,
    /// Who asked for it.
    pub owner: Option<String>,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it last made progress, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Why it failed.
    pub error: Option<ClientError>,
    /// Parameters as JSON, as the master sends them.
    pub parameters: Vec<String>,
}

impl Procedure {
    fn of_pb(message: &pb::Procedure) -> Procedure {
        Procedure {
            id: message.proc_id,
            parent_id: message.parent_id,
            class: message.class_name.clone(),
            state: message.state().as_str_name().to_string(),
            owner: message.owner.clone().filter(|owner| !owner.is_empty()),
            submitted_ms: message.submitted_time,
            updated_ms: message.last_update,
            error: message.exception.as_ref().map(foreign),
            parameters: message.state_message.iter().map(|any| any.type_url.clone()).collect(),
        }
    }
}

/// Whether others may hold a lock too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// One procedure holds it.
    Exclusive,
    /// Several may hold it.
    Shared,
}

/// A lock that procedures hold.
#[derive(Clone, Debug)]
pub struct Lock {
    /// `TABLE`, `REGION`, `NAMESPACE`, `SERVER` or `PEER`.
    pub resource_type: String,
    /// Name of the table, region and so on.
    pub resource_name: String,
    /// Whether others may hold it too.
    pub kind: LockKind,
    /// The holder of an exclusive lock.
    pub owner: Option<Procedure>,
    /// How many hold a shared lock.
    pub shared_count: i32,
    /// Procedures that wait for it.
    pub waiting: Vec<Procedure>,
}

impl Admin {
    /// Procedures of the master, with ended ones that it still remembers.
    pub async fn procedures(&self) -> Result<Vec<Procedure>, ClientError> {
        let answer: pb::GetProceduresResponse =
            self.call("GetProcedures", &pb::GetProceduresRequest {}).await?;
        let mut procedures: Vec<_> = answer.procedure.iter().map(Procedure::of_pb).collect();
        procedures.sort_by_key(|procedure| procedure.id);
        Ok(procedures)
    }

    /// Locks of the master.
    pub async fn locks(&self) -> Result<Vec<Lock>, ClientError> {
        let answer: pb::GetLocksResponse = self.call("GetLocks", &pb::GetLocksRequest {}).await?;
        let lock = |lock: &pb::LockedResource| Lock {
            resource_type: lock.resource_type().as_str_name().to_string(),
            resource_name: lock.resource_name().to_string(),
            kind: match lock.lock_type() {
                pb::LockType::Exclusive => LockKind::Exclusive,
                pb::LockType::Shared => LockKind::Shared,
            },
            owner: lock.exclusive_lock_owner_procedure.as_ref().map(Procedure::of_pb),
            shared_count: lock.shared_lock_count.unwrap_or(0),
            waiting: lock.waiting_procedures.iter().map(Procedure::of_pb).collect(),
        };
        Ok(answer.lock.iter().map(lock).collect())
    }

    /// Asks a procedure to end; `false` if it is not to be aborted.
    pub async fn abort_procedure(&self, id: u64, interrupt: bool) -> Result<bool, ClientError> {
        let request = pb::AbortProcedureRequest { proc_id: id, may_interrupt_if_running: Some(interrupt) };
        let answer: pb::AbortProcedureResponse = self.call("AbortProcedure", &request).await?;
        Ok(answer.is_procedure_aborted)
    }
}
