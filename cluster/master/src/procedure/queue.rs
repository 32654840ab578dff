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
use super::{Answer, Class, Parameters, Procedure, parameters};
use crate::state::MasterState;

/// All of it is behind the engine's lock.
///
/// # Invariants
/// A job is in `waiting`, in `paused` or in the hands of one thread; `views` tells about it wherever it is. The locks of
/// one that has begun are in `locks`.
pub(super) struct State {
    pub(super) waiting: Waiting,
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
    /// What was proposed and has not ended, by its key.
    pub(super) proposed: HashMap<String, u64>,
    pub(super) ids: std::ops::Range<u64>,
    pub(super) stopping: bool,
    /// Procedures that count for the limit.
    pub(super) limited_count: usize,
    /// Results that are forgotten and still have a file.
    pub(super) forgotten: Vec<u64>,
}

/// Those that have not begun, by class; of a class first come, first served.
#[derive(Default)]
pub(super) struct Waiting([VecDeque<Job>; Class::ALL.len()]);

impl Waiting {
    fn push(&mut self, job: Job) {
        self.0[job.class as usize].push_back(job);
    }

    pub(super) fn push_front(&mut self, job: Job) {
        self.0[job.class as usize].push_front(job);
    }

    /// Takes out the one that is meant.
    pub(super) fn take(&mut self, mut is_it: impl FnMut(&Job) -> bool) -> Option<Job> {
        self.0.iter_mut().find_map(|class| {
            let at = class.iter().position(&mut is_it)?;
            class.remove(at)
        })
    }

    fn up_to(&mut self, last: Class) -> impl Iterator<Item = &mut VecDeque<Job>> {
        self.0.iter_mut().take(last as usize + 1)
    }
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
    /// Why it does nothing until somebody ends it.
    pub(crate) set_aside: Option<String>,
    /// It makes or deletes its table.
    pub(crate) comes_or_goes: bool,
    pub(crate) parameters: Arc<Parameters>,
    is_limited: bool,
}

impl State {
    pub(super) fn push(
        &mut self,
        record: Record,
        procedure: Box<dyn Procedure>,
        prepared: bool,
        by_number: bool,
        core: &MasterState,
    ) {
        let (locks, class) = (procedure.locks(), procedure.class(core));
        let is_limited = class.is_limited(&record.owner);
        self.limited_count += usize::from(is_limited);
        let nonce = (record.nonce_group, record.nonce);
        if nonce.1 != 0 {
            self.nonces.insert(nonce, record.id);
        }
        let view = ProcedureView {
            id: record.id,
            class_name: procedure.class_name(),
            owner: record.owner.clone(),
            submitted_ms: record.submitted_ms,
            updated_ms: core.now_ms(),
            nonce,
            prepared,
            begun: false,
            running: false,
            step: procedure.step_name(record.step as usize).unwrap_or_default(),
            undoable: false,
            locks: locks.clone(),
            trouble: None,
            set_aside: record.set_aside.as_ref().map(|set_aside| set_aside.why.clone()),
            comes_or_goes: procedure.makes_or_deletes_table(),
            parameters: Arc::new(procedure.parameters(&record.owner)),
            is_limited,
        };
        self.views.insert(record.id, view);
        let job = Job {
            failed: record.failure.as_ref().map(Failure::to_error),
            record,
            procedure,
            locks,
            prepared,
            refused_by_result: by_number,
            trouble: None,
            not_before_ns: 0,
            class,
            yielded: Vec::new(),
        };
        self.waiting.push(job);
    }

    /// Gives procedures of the master before their locks back, in this order. All of them had theirs: a record is written when a
    /// procedure has its locks, and before its first step. What they may have lent comes last: another of them may have that now.
    ///
    /// One whose locks another has waits. Programs before this one let that happen to procedures that were in their first step.
    ///
    /// No thread looks at one that is set aside: whoever wants to end it would find it running. What it may lend is lent at once.
    pub(super) fn resume(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            let locks = &self.locks;
            let is_free = |job: &Job| job.record.id == id && locks.is_free(&job.never_yielded());
            let Some(mut job) = self.waiting.take(is_free) else { continue };
            assert!(job.prepared, "procedure {id} has a record, so it was checked");
            self.locks.take(&job.never_yielded());
            job.yielded = job.yieldable();
            if job.is_set_aside() {
                job.not_before_ns = u64::MAX;
            }
            if let Some(view) = self.views.get_mut(&id) {
                view.begun = true;
            }
            self.paused.push(job);
        }
        for job in self.paused.iter_mut().filter(|job| !job.is_set_aside()) {
            if self.locks.is_free(&job.yielded) {
                self.locks.take(&job.yielded);
                job.yielded.clear();
            }
        }
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

    /// Of the first class that has one, and of none behind `last`: a paused job whose time has come, else the first waiting one whose
    /// locks are free and wanted by nobody before it.
    ///
    /// Who waits for a procedure that fails again and again, or is set aside, keeps nobody behind it from what is free: that may
    /// last for days.
    pub(super) fn take_runnable(&mut self, now_ns: u64, last: Class) -> Option<Job> {
        let mut due: Option<(Class, usize)> = None;
        for (at, job) in self.paused.iter().enumerate() {
            let is_better = job.class <= last && due.is_none_or(|(class, _)| job.class < class);
            if is_better && job.not_before_ns <= now_ns && self.locks.is_free(&job.yielded) {
                due = Some((job.class, at));
            }
        }
        let first_of_paused = due.map(|(class, _)| class);
        let job = match self.take_waiting(last, first_of_paused) {
            Some(job) => {
                assert!(job.yielded.is_empty(), "what waits has lent nothing");
                job
            }
            None => {
                let mut job = self.paused.swap_remove(due?.1);
                self.locks.take(&job.yielded);
                job.yielded.clear();
                job
            }
        };
        assert!(job.class <= last, "a thread of recoveries runs what may wait for a recovery");
        if let Some(view) = self.views.get_mut(&job.record.id) {
            assert!(!view.running, "two threads run procedure {}", job.record.id);
            (view.begun, view.running) = (true, true);
        }
        Some(job)
    }

    /// Of a class before that of a paused one that could run.
    fn take_waiting(&mut self, last: Class, paused: Option<Class>) -> Option<Job> {
        let (mut wanted, mut stuck) = (LockTable::default(), None);
        let (locks, all_paused) = (&mut self.locks, &self.paused);
        for class in self.waiting.up_to(last) {
            let is_behind = class.front().is_some_and(|job| paused.is_some_and(|paused| job.class >= paused));
            if is_behind {
                return None;
            }
            let at = class.iter().position(|job| {
                let is_free = locks.is_free(&job.locks);
                let is_wanted = !wanted.is_free(&job.locks);
                if is_free && !is_wanted {
                    return true;
                }
                let stuck = stuck.get_or_insert_with(|| LockTable::of_stuck(all_paused));
                if stuck.is_free(&job.locks) {
                    wanted.reserve(&job.locks);
                }
                false
            });
            if let Some(at) = at {
                let job = class.remove(at).expect("the place was just found");
                locks.take(&job.locks);
                return Some(job);
            }
        }
        None
    }

    /// One of which nothing was done: it waits for its turn, or to be checked again. Its locks are free.
    pub(super) fn take_unprepared(&mut self, id: u64) -> Option<Job> {
        if let Some(at) = self.paused.iter().position(|job| job.record.id == id && !job.prepared) {
            let job = self.paused.swap_remove(at);
            assert!(job.yielded.is_empty(), "what was not checked has done nothing, and lent nothing");
            self.locks.release(&job.locks);
            return Some(job);
        }
        self.waiting.take(|job| job.record.id == id && !job.prepared)
    }

    /// As [`State::take_unprepared`], or one of a record that has not begun since the start.
    pub(super) fn take_unbegun(&mut self, id: u64) -> Option<Job> {
        self.take_unprepared(id).or_else(|| self.waiting.take(|job| job.record.id == id))
    }

    /// Puts a job aside that waits to repeat a step, or until somebody ends it. Once that may take long, others get what it can do
    /// without.
    pub(super) fn put_aside(&mut self, mut job: Job) {
        assert!(job.yielded.is_empty(), "procedure {} ran without the locks that it had lent", job.record.id);
        if job.is_stuck() && job.prepared {
            job.yielded = job.yieldable();
            self.locks.release(&job.yielded);
        }
        self.paused.push(job);
    }

    /// Steps that wait to be repeated do so at once: what they need may have come back.
    pub(super) fn repeat_now(&mut self) {
        for job in self.paused.iter_mut().filter(|job| job.trouble.is_some() && !job.is_set_aside()) {
            job.not_before_ns = 0;
        }
    }

    /// Until when there is nothing to run of the classes up to `last`; `None`: until something changes.
    pub(super) fn next_due_ns(&self, last: Class) -> Option<u64> {
        let waits = |job: &&Job| job.class <= last && self.locks.is_free(&job.yielded);
        let due = self.paused.iter().filter(waits).map(|job| job.not_before_ns).min();
        due.filter(|due_ns| *due_ns < u64::MAX)
    }

    /// Remembers how a procedure ended and tells everybody who waits.
    pub(super) fn end(&mut self, job: &Job, outcome: Answer<()>, refused: bool, now_ms: i64) {
        let id = job.record.id;
        assert!(job.yielded.is_empty(), "procedure {id} ends without the locks that it had lent");
        let mut nonce = (job.record.nonce_group, job.record.nonce);
        // The client may repeat it, with the same nonce, and is not to get this answer again.
        if refused && outcome.as_ref().is_err_and(|error| !error.do_not_retry) {
            self.nonces.remove(&nonce);
            nonce.1 = 0;
        }
        self.times.ended(job.procedure.metric(), outcome.is_ok(), now_ms - job.record.submitted_ms);
        let view = self.views.remove(&id).expect("a procedure is known until it ends, which is once");
        let rest = self.limited_count.checked_sub(usize::from(view.is_limited));
        self.limited_count = rest.expect("what counts for the limit was counted when it came");
        self.interrupts.remove(&id);
        self.proposed.retain(|_, proposed| *proposed != id);
        let listeners = self.listeners.remove(&id).unwrap_or_default();
        for sender in listeners.prepared {
            let _ = sender.send(if job.refused_by_result { Ok(id) } else { outcome.clone().map(|()| id) });
        }
        for sender in listeners.finished {
            let _ = sender.send(outcome.clone());
        }
        let finished = Finished {
            class_name: job.procedure.class_name().into(),
            owner: job.record.owner.clone(),
            submitted_ms: job.record.submitted_ms,
            finished_ms: now_ms,
            outcome,
            refused: refused && !job.refused_by_result,
            nonce,
            is_kept: job.prepared && job.record.keeps_result(),
            parameters: Arc::new(parameters::kept(&*job.procedure, &job.record.owner)),
        };
        self.remember(id, finished);
    }

    pub(super) fn remember(&mut self, id: u64, finished: Finished) {
        for forgotten in self.results.add(id, finished) {
            if forgotten.nonce.1 != 0 {
                self.nonces.remove(&forgotten.nonce);
            }
            if forgotten.is_kept {
                self.forgotten.push(forgotten.id);
            }
        }
    }
}
