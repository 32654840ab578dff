//! Deletes a snapshot, when no clone or restore reads it any more.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use prost::Message;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::MasterState;
use crate::{errors, snapshot};

pub(super) const KIND: &str = "delete_snapshot";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteSnapshot {
    #[prost(string, tag = "1")]
    name: String,
    /// The cleaner asks: only a snapshot whose time to live is over goes.
    #[prost(bool, tag = "2")]
    only_expired: bool,
}

impl DeleteSnapshot {
    pub(crate) fn new(name: String) -> DeleteSnapshot {
        DeleteSnapshot { name, only_expired: false }
    }

    pub(crate) fn expired(name: String) -> DeleteSnapshot {
        DeleteSnapshot { name, only_expired: true }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DeleteSnapshot> {
        payload(KIND, bytes)
    }
}

impl Procedure for DeleteSnapshot {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// HBase deletes a snapshot without a procedure; the name is ours, in the form of HBase's.
    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.DeleteSnapshotProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let snapshot = pb::SnapshotDescription { name: self.name.clone(), ..Default::default() };
        parameters::of(&pb::SnapshotProcedureStateData { snapshot })
    }

    fn locks(&self) -> Vec<Lock> {
        vec![Lock::snapshot(&self.name)]
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let found = snapshot::read_info(core, &self.name).map_err(|error| errors::from_error(&error))?;
        match found {
            Some(info) if self.only_expired && !snapshot::is_expired(&info, core.now_ms()) => {
                Err(RpcError::do_not_retry(format!("Snapshot '{}' is another one now", self.name)))
            }
            Some(_) => Ok(()),
            None => {
                let message = format!("Snapshot '{}' doesn't exist on the filesystem", self.name);
                Err(RpcError::snapshot_does_not_exist(message))
            }
        }
    }

    /// The master before this one may be deleting it still. Until it has ended nobody takes another snapshot of that name.
    fn held_until(&self, core: &MasterState, _id: u64) -> Option<u64> {
        core.predecessor_until_ns()
    }

    fn payload(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

const STEPS: &[Step<DeleteSnapshot>] = &[step("delete", |this, core| snapshot::delete(core, &this.name))];

impl HasSteps for DeleteSnapshot {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}
