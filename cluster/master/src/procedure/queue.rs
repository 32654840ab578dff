//! Procedures that wait, pause, run and have ended, and the locks between them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use halcyon_cell::Result;
use tokio::sync::oneshot;

use super::job::{Job, Trouble};
use super::lock::{Lock, LockTable};
use super::record::{self, Failure, Record};
use super::results::{Finished, Results};
use super::times::TimesByKind;
use super::{Answer, Parameters, Procedure, parameters};
use crate::state::MasterState;

/// All of it is behind the engine's lock.
///
/// # Invariants
/// A job is in `waiting`, in `paused` or in the hands of one thread; `views` tells about it wherever it is. The locks of
/// one that has begun are in `locks`.
pub(super) struct State {
    pub(super) waiting: VecDeque<Job>,
    /// Failed in a step, which runs again at `not_before_ns`, or wait before one. They hold their locks.
    pub(super) paused: Vec<Job>,
    /// What was asked of procedures that a thread runs; looked at between two steps.
    pub(super) interrupts: HashMap<u64, Interrupt>,
    pub(super) locks: LockTable,
    pub(super) views: HashMap<u64, ProcedureView>,
    pub(super) listeners: HashMap<u64, Listeners>,
    pub(super) results: Results,
    pub(super) times: TimesByKind,
    pub(super) nonces: HashMap<(u64, u64), u64>,
    pub(super) ids: std::ops::Range<u64>,
    pub(super) stopping: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Abort,
    Bypass,
    Stop,
}

#[derive(Default)]
pub(super) struct Listeners {
    pub(super) prepared: Vec<oneshot::Sender<Answer<u64>>>,
    pub(super) finished: Vec<oneshot::Sender<Answer<()>>>,
}

/// A procedure that has not ended.
#[derive(Clone)]
pub(crate) struct ProcedureView {
    pub(crate) id: u64,
    pub(crate) class_name: &'static str,
    pub(crate) owner: String,
    pub(crate) submitted_ms: i64,
    pub(crate) updated_ms: i64,
    pub(crate) nonce: (u64, u64),
    pub(crate) prepared: bool,
    /// A thread runs it, or it waits to repeat a step: its locks are taken.
    pub(crate) begun: bool,
    pub(crate) running: bool,
    /// The step that runs, or that runs next.
    pub(crate) step: &'static str,
    /// An abort now would lead back to the state before.
    pub(crate) undoable: bool,
    pub(crate) locks: Vec<Lock>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) parameters: Arc<Parameters>,
}

impl State {
    pub(super) fn push(
        &mut self,
        record: Record,
        procedure: Box<dyn Procedure>,
        prepared: bool,
        now_ms: i64,
    ) {
        let locks = procedure.locks();
        let nonce = (record.nonce_group, record.nonce);
        if nonce.1 != 0 {
            self.nonces.insert(nonce, record.id);
        }
        let view = ProcedureView {
            id: record.id,
            class_name: procedure.class_name(),
            owner: record.owner.clone(),
            submitted_ms: record.submitted_ms,
            updated_ms: now_ms,
            nonce,
            prepared,
            begun: false,
            running: false,
            step: procedure.step_name(record.step as usize).unwrap_or_default(),
            undoable: false,
            locks: locks.clone(),
            trouble: None,
            parameters: Arc::new(procedure.parameters(&record.owner)),
        };
        self.views.insert(record.id, view);
        let job = Job {
            failed: record.failure.as_ref().map(Failure::to_error),
            record,
            procedure,
            locks,
            prepared,
            refused_by_result: false,
            trouble: None,
            not_before_ns: 0,
        };
        self.waiting.push_back(job);
    }

    pub(super) fn next_id(&mut self, core: &MasterState) -> Result<u64> {
        if self.ids.is_empty() {
            self.ids = record::reserve_ids(core)?;
        }
        Ok(self.ids.next().expect("numbers were just reserved"))
    }

    /// A request that was made before: its number, once it is sure to be carried out.
    pub(super) fn join(
        &mut self,
        id: u64,
        sender: oneshot::Sender<Answer<u64>>,
    ) -> Option<(oneshot::Sender<Answer<u64>>, Answer<u64>)> {
        if let Some(result) = self.results.get(id) {
            let refusal = result.outcome.clone().err().filter(|_| result.refused);
            return Some((sender, refusal.map_or(Ok(id), Err)));
        }
        if self.views.get(&id).is_some_and(|view| view.prepared) {
            return Some((sender, Ok(id)));
        }
        self.listeners.entry(id).or_default().prepared.push(sender);
        None
    }

    /// A paused job whose time has come, else the first waiting one whose locks are free and wanted by nobody
    /// before it.
    pub(super) fn take_runnable(&mut self, now_ns: u64) -> Option<Job> {
        let due = self.paused.iter().position(|job| job.not_before_ns <= now_ns);
        let job = match due {
            Some(at) => self.paused.swap_remove(at),
            None => {
                let mut wanted = LockTable::default();
                let at = self.waiting.iter().position(|job| {
                    let free = self.locks.is_free(&job.locks) && wanted.is_free(&job.locks);
                    wanted.reserve(&job.locks);
                    free
                })?;
                let job = self.waiting.remove(at).expect("the place was just found");
                self.locks.take(&job.locks);
                job
            }
        };
        if let Some(view) = self.views.get_mut(&job.record.id) {
            (view.begun, view.running) = (true, true);
        }
        Some(job)
    }

    /// Remembers how a procedure ended and tells everybody who waits.
    pub(super) fn end(&mut self, job: &Job, outcome: Answer<()>, refused: bool, now_ms: i64) {
        let id = job.record.id;
        self.times.ended(job.procedure.metric(), outcome.is_ok(), now_ms - job.record.submitted_ms);
        self.views.remove(&id);
        self.interrupts.remove(&id);
        let listeners = self.listeners.remove(&id).unwrap_or_default();
        for sender in listeners.prepared {
            let _ = sender.send(if job.refused_by_result { Ok(id) } else { outcome.clone().map(|()| id) });
        }
        for sender in listeners.finished {
            let _ = sender.send(outcome.clone());
        }
        let finished = Finished {
            class_name: job.procedure.class_name(),
            owner: job.record.owner.clone(),
            submitted_ms: job.record.submitted_ms,
            finished_ms: now_ms,
            outcome,
            refused: refused && !job.refused_by_result,
            nonce: (job.record.nonce_group, job.record.nonce),
            parameters: Arc::new(parameters::kept(&*job.procedure, &job.record.owner)),
        };
        for nonce in self.results.add(id, finished) {
            if nonce.1 != 0 {
                self.nonces.remove(&nonce);
            }
        }
    }
}
