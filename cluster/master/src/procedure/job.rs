//! A procedure on its way: where it is, and what went wrong.

use std::fmt;

use halcyon_rpc::RpcError;
use tracing::{info, warn};

use super::Procedure;
use super::lock::Lock;
use super::record::{Failure, Record};
use crate::errors;
use crate::state::MasterState;

pub(super) struct Job {
    pub(super) record: Record,
    pub(super) procedure: Box<dyn Procedure>,
    pub(super) locks: Vec<Lock>,
    /// Checked, and its record is on disk.
    pub(super) prepared: bool,
    /// A final error of a step, or an abort; what was done is being taken back. Or a bypass: nothing more is done.
    pub(super) failed: Option<RpcError>,
    pub(super) refused_by_result: bool,
    pub(super) trouble: Option<Trouble>,
    pub(super) not_before_ns: u64,
}

/// A step, or an undo, that fails and is repeated.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) step: &'static str,
    pub(crate) attempts: u32,
    pub(crate) since_ms: i64,
    pub(crate) last_error: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { step, attempts, since_ms, last_error } = self;
        write!(
            f,
            "step '{step}' failed {attempts} times since {since_ms} ms (Unix time); last error: {last_error}"
        )
    }
}

impl Job {
    pub(super) fn has_run(&self) -> bool {
        self.record.step as usize >= self.procedure.steps_count()
    }

    pub(super) fn step_name(&self) -> &'static str {
        if self.failed.is_some() {
            return "undo";
        }
        self.procedure.step_name(self.record.step as usize).unwrap_or("remove the record")
    }

    pub(super) fn is_undoable(&self, core: &MasterState) -> bool {
        !self.has_run() && self.procedure.can_undo(core, self.record.step as usize)
    }

    pub(super) fn fail(&mut self, error: RpcError) {
        self.record.failure = Some(Failure::of(&error));
        self.failed = Some(error);
    }

    pub(super) fn abort(&mut self, core: &MasterState) {
        if !self.is_undoable(core) || self.failed.is_some() {
            return;
        }
        let (id, step) = (self.record.id, self.step_name());
        info!(id, kind = self.record.kind, step, "a procedure is aborted and undone");
        let why = self.trouble.as_ref().map(|trouble| format!("; last error: {}", trouble.last_error));
        let message = format!("Procedure {id} was aborted in step '{step}'{}", why.unwrap_or_default());
        self.fail(errors::aborted(message));
        self.not_before_ns = 0;
    }

    pub(super) fn bypass(&mut self) {
        let (id, step) = (self.record.id, self.step_name());
        warn!(id, kind = self.record.kind, step, "a procedure is bypassed: its other steps do not run");
        let message = format!("Procedure {id} was bypassed before step '{step}' ended; nothing was undone");
        self.failed = Some(errors::aborted(message));
        self.record.bypassed = true;
    }
}
