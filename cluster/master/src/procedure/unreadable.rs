//! A record that this program cannot read. It is kept, and shown, and an administrator may bypass it, which removes it.

use halcyon_cell::Error;
use halcyon_rpc::RpcError;

use super::{HasSteps, Lock, Parameters, Procedure, Step, step};
use crate::state::MasterState;

pub(super) struct Unreadable {
    payload: Vec<u8>,
}

impl Unreadable {
    pub(super) fn new(payload: Vec<u8>) -> Unreadable {
        Unreadable { payload }
    }
}

impl Procedure for Unreadable {
    fn kind(&self) -> &'static str {
        "unreadable"
    }

    /// The name is ours, in the form of HBase's.
    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.procedure2.UnreadableProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        Vec::new()
    }

    /// What it is about is not known.
    fn locks(&self) -> Vec<Lock> {
        Vec::new()
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Err(RpcError::do_not_retry("nobody asks for a procedure that cannot be read"))
    }

    fn payload(&self) -> Vec<u8> {
        self.payload.clone()
    }
}

const STEPS: &[Step<Unreadable>] =
    &[step("read the record", |_, _| Err(Error::corrupt("the record cannot be read")))];

impl HasSteps for Unreadable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}
