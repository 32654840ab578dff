//! A procedure on its way: where it is, and what went wrong.

use std::fmt;

use halcyon_rpc::RpcError;
use tracing::{info, warn};

use super::lock::{Lock, Resource};
use super::record::{Ended, Failure, Record};
use super::{Class, Procedure};
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
    pub(super) class: Class,
    /// Of its locks those that others may have until it runs again.
    pub(super) yielded: Vec<Lock>,
}

/// A step that has failed so often is not about to work.
pub(super) const STUCK_ATTEMPTS: u32 = 3;

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
        if !self.prepared {
            return "check the request";
        }
        self.procedure.step_name(self.record.step as usize).unwrap_or("remove the record")
    }

    pub(super) fn is_undoable(&self, core: &MasterState) -> bool {
        !self.has_run() && self.procedure.can_undo(core, self.record.step as usize)
    }

    /// Until when its next step, or its undo, is to wait; `None`: it may run.
    pub(super) fn held_until(&self, core: &MasterState) -> Option<u64> {
        match self.failed {
            None => self.procedure.held_until(core, self.record.id),
            Some(_) if self.record.bypassed => None, // nothing more is done
            Some(_) => self.procedure.undo_held_until(core),
        }
    }

    /// Whether it may keep its locks for days: a step fails again and again, or it is set aside.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_set_aside() || self.trouble.as_ref().is_some_and(|trouble| trouble.attempts >= STUCK_ATTEMPTS)
    }

    /// Whether it does nothing until somebody ends it.
    pub(super) fn is_set_aside(&self) -> bool {
        self.record.set_aside.is_some() && !self.record.bypassed
    }

    /// Of its locks those that it can do without while it waits to repeat a step.
    pub(super) fn yieldable(&self) -> Vec<Lock> {
        let is_yieldable = |lock: &&Lock| lock.shared && matches!(lock.resource, Resource::Namespace(_));
        let locks = self.locks.iter().filter(|_| self.procedure.yields_namespace());
        locks.filter(is_yieldable).cloned().collect()
    }

    /// Of its locks those that it has from its begin to its end.
    pub(super) fn never_yielded(&self) -> Vec<Lock> {
        let yieldable = self.yieldable();
        self.locks.iter().filter(|lock| !yieldable.contains(lock)).cloned().collect()
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
        self.record.set_aside = None; // it is undone, and set aside again if that fails in an assertion
        self.not_before_ns = 0;
    }

    /// Its result, when its work is done.
    pub(super) fn ended(&self, now_ms: i64) -> Ended {
        Ended {
            id: self.record.id,
            class_name: self.procedure.class_name().to_string(),
            owner: self.record.owner.clone(),
            submitted_ms: self.record.submitted_ms,
            finished_ms: now_ms,
            failure: self.failed.as_ref().map(Failure::of),
            nonce_group: self.record.nonce_group,
            nonce: self.record.nonce,
        }
    }

    pub(super) fn bypass(&mut self) {
        let (id, step) = (self.record.id, self.step_name());
        warn!(id, kind = self.record.kind, step, "a procedure is bypassed: its other steps do not run");
        let message = format!("Procedure {id} was bypassed before step '{step}' ended; nothing was undone");
        self.failed = Some(errors::aborted(message));
        self.record.bypassed = true;
    }
}
