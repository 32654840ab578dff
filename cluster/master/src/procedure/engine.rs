//! Runs procedures on a few threads, one after the other where their locks require it. `queue.rs` has those that wait,
//! `worker.rs` what a thread does with one, `job.rs` one on its way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_contract::Standing;
use halcyon_env::{Condvar, Mutex, contained, join_thread, spawn_thread};
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::job::{Job, STUCK_ATTEMPTS};
use super::lock::{Lock, LockTable, Resource};
use super::queue::{Interrupt, ProcedureView, State, Waiting};
use super::record::{self, Loaded, Record, SetAside};
use super::results::{Finished, Results};
use super::times::{ProcedureTimes, TimesByKind};
use super::unreadable::Unreadable;
use super::{Answer, Class, Procedure, TAKE_SNAPSHOT_CLASS, decode, server_crash};
use crate::errors;
use crate::state::MasterState;

/// The executor.
///
/// # Thread safety
/// All of [`State`] is behind one lock, which is not held while a procedure runs. A procedure is in `waiting`, in
/// `paused` or in the hands of one thread; `views` tells about it wherever it is.
///
/// # Invariants
/// The locks of a procedure are in `locks` from before `prepare` until it has ended, also across pauses; but what it yields
/// is not while it waits to repeat a step.
/// No procedure is stuck for good: one whose step fails again and again can be aborted while it can be undone, and
/// bypassed always.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct Shared {
    pub(super) core: Arc<MasterState>,
    pub(super) state: Mutex<State>,
    /// There may be something to run.
    pub(super) wake: Condvar,
    /// A procedure has left its thread; [`Engine::bypass`] waits for it.
    pub(super) left_thread: Condvar,
    /// Held while a record is written, so that a bypass cannot be overwritten by the step under way.
    pub(super) record_writes: Mutex<()>,
}

/// Threads that run recoveries alone: those that run any procedure may all wait for a region that is to be recovered.
const RECOVERY_THREADS: usize = 2;

/// A procedure of a record. What this program cannot read, or fails over, is set aside; others have nothing to do with it.
fn taken_up(core: &MasterState, mut record: Record) -> (Record, Box<dyn Procedure>) {
    let decoded = contained(|| decode(&record.kind, &record.payload));
    match decoded.unwrap_or_else(|failure| Err(Error::corrupt(failure))) {
        Ok(procedure) => {
            // An earlier program set recoveries aside, too. Regions wait for them.
            if procedure.class(core) <= Class::Assignment {
                record.set_aside = None;
            }
            (record, procedure)
        }
        Err(error) => {
            let set_aside = record.set_aside.take();
            record.set_aside = set_aside.or_else(|| record::unreadable(core, record.id, &error).set_aside);
            let payload = record.payload.clone();
            (record, Box::new(Unreadable::new(payload)))
        }
    }
}

/// The master before this one has declared a server dead. It may live and have its znode still, and its recovery goes on all the same:
/// it gets no regions any more, and those that it got from this master are recovered too.
fn keep_verdict(core: &MasterState, record: &Record, procedure: &dyn Procedure) {
    if record.kind != server_crash::KIND {
        return;
    }
    for lock in procedure.locks() {
        if let Resource::Server(server) = &lock.resource
            && core.cluster.servers.standing(server) == Standing::Online
        {
            warn!(%server, "a server lives that an earlier master has declared dead: that stays so");
            core.cluster.servers.declare_dead(server);
        }
    }
}

/// What `getProcedureResult` is told.
pub(crate) enum ProcedureStatus {
    NotFound,
    Running { submitted_ms: i64, updated_ms: i64 },
    Finished(Finished),
}

/// Who asks, and how a repeated request is known.
#[derive(Clone, Default)]
pub(crate) struct Submission {
    pub(crate) owner: String,
    /// Group and nonce; a nonce of 0 is none.
    pub(crate) nonce: (u64, u64),
    /// Whether a refusal is the procedure's result, to be asked for like any other, and not the answer.
    pub(crate) refused_by_result: bool,
}

impl Engine {
    /// Loads the unfinished procedures; they run when [`Engine::start`] is called. And how those ended that clients may ask for.
    pub(crate) fn load(core: Arc<MasterState>) -> Result<Engine> {
        let keep_ms = core.settings.result_keep.as_millis() as i64;
        let Loaded { records, ended } = record::load(&core, keep_ms)?;
        let mut state = State {
            waiting: Waiting::default(),
            paused: Vec::new(),
            interrupts: HashMap::new(),
            locks: LockTable::default(),
            views: HashMap::new(),
            listeners: HashMap::new(),
            results: Results::new(keep_ms, core.settings.results_max),
            times: TimesByKind::default(),
            nonces: HashMap::new(),
            proposed: HashMap::new(),
            ids: record::reserve_ids(&core)?,
            stopping: false,
            limited_count: 0,
            forgotten: Vec::new(),
        };
        for ended in &ended {
            if ended.nonce != 0 {
                state.nonces.insert((ended.nonce_group, ended.nonce), ended.id);
            }
            state.remember(ended.id, Finished::of_record(ended));
        }
        let (mut of_later_steps, mut of_first_step) = (Vec::new(), Vec::new());
        for record in records {
            if record.bypassed {
                record::remove(&core, record.id)?;
                continue;
            }
            let (record, procedure) = taken_up(&core, record);
            match &record.set_aside {
                Some(SetAside { why, .. }) => {
                    warn!(id = record.id, kind = record.kind, why, "a procedure stays set aside");
                }
                None => info!(
                    id = record.id,
                    kind = record.kind,
                    step = record.step,
                    "an unfinished procedure resumes"
                ),
            }
            keep_verdict(&core, &record, &*procedure);
            let begun = if record.is_in_first_step() { &mut of_first_step } else { &mut of_later_steps };
            begun.push(record.id);
            let by_number = record.by_number;
            state.push(record, procedure, true, by_number, &core);
        }
        // Before anybody waits. Else one that comes now could run in the middle of another: a merge of a region whose move is half
        // done, and the move would open what was merged.
        state.resume(of_later_steps.into_iter().chain(of_first_step));
        let shared = Arc::new(Shared {
            core,
            state: Mutex::new(state),
            wake: Condvar::new(),
            left_thread: Condvar::new(),
            record_writes: Mutex::new(()),
        });
        Ok(Engine { shared, threads: Mutex::new(Vec::new()) })
    }

    pub(crate) fn start(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        assert!(threads.is_empty(), "an engine that is started twice runs more procedures than it may");
        let any = (0..self.shared.core.settings.procedure_threads.max(1))
            .map(|number| (number.to_string(), Class::Rest));
        let recovery = (0..RECOVERY_THREADS).map(|number| (format!("recovery-{number}"), Class::Recovery));
        for (name, last) in any.chain(recovery).chain([("meta".to_string(), Class::Meta)]) {
            let shared = self.shared.clone();
            threads.push(spawn_thread(&format!("procedure-{name}"), move || shared.work(last))?);
        }
        Ok(())
    }

    /// Starts no other steps.
    pub(crate) fn stop_soon(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.wake.notify_all();
    }

    /// Lets running steps end, starts no others, and waits. Unfinished procedures stay on disk.
    pub(crate) fn stop(&self) {
        {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            state.listeners.clear();
        }
        self.shared.wake.notify_all();
        let threads: Vec<_> = self.threads.lock().drain(..).collect();
        for thread in threads {
            // A procedure's own thread may drop the last handle to the master; it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() && join_thread(thread).is_err() {
                warn!("a procedure thread panicked");
            }
        }
    }

    /// Queues a procedure. The answer comes when its request has been checked and recorded: its number, or what
    /// is wrong. A nonce seen before gives the number of then.
    pub(crate) fn submit(
        &self,
        procedure: Box<dyn Procedure>,
        submission: Submission,
    ) -> oneshot::Receiver<Answer<u64>> {
        let (sender, receiver) = oneshot::channel();
        let answer = self.shared.submit(procedure, submission, sender);
        self.shared.wake.notify_all(); // not every thread may run it
        if let Some((sender, answer)) = answer {
            let _ = sender.send(answer);
        }
        receiver
    }

    /// Queues a procedure and returns its number at once. Wrong requests are refused later, by the procedure's result.
    pub(crate) fn enqueue(&self, procedure: Box<dyn Procedure>, by: Submission) -> Answer<u64> {
        let by = Submission { refused_by_result: true, nonce: (0, 0), ..by };
        let id = self.shared.enqueue(&mut self.shared.state.lock(), procedure, by)?;
        self.shared.wake.notify_all();
        Ok(id)
    }

    /// As [`Engine::enqueue`], but a nonce seen before gives the number of then.
    pub(crate) fn enqueue_once(&self, procedure: Box<dyn Procedure>, by: Submission) -> Answer<u64> {
        let mut state = self.shared.state.lock();
        if let Some(id) = state.nonces.get(&by.nonce).filter(|_| by.nonce.1 != 0) {
            return Ok(*id);
        }
        let by = Submission { refused_by_result: true, ..by };
        let id = self.shared.enqueue(&mut state, procedure, by)?;
        drop(state);
        self.shared.wake.notify_all();
        Ok(id)
    }

    /// Queues what a server or a chore proposes again and again, unless what it proposed under the same key has not ended. `key` says what
    /// is to be done to what.
    pub(crate) fn propose(&self, key: String, procedure: Box<dyn Procedure>) {
        let state = &mut *self.shared.state.lock();
        if state.proposed.contains_key(&key) {
            return;
        }
        match self.shared.enqueue(state, procedure, Submission::default()) {
            Ok(id) => {
                state.proposed.insert(key, id);
                self.shared.wake.notify_all();
            }
            Err(error) => info!(key, %error, "a proposal is refused"),
        }
    }

    /// HBase's class of a procedure that has not ended.
    pub(crate) fn class_of(&self, id: u64) -> Option<&'static str> {
        self.shared.state.lock().views.get(&id).map(|view| view.class_name)
    }

    /// Whether a procedure is about to end: it has not, no step of it fails again and again, and it is not set aside.
    pub(crate) fn goes_on(&self, id: u64) -> bool {
        let goes_on = |view: &ProcedureView| {
            let is_stuck = view.trouble.as_ref().is_some_and(|trouble| trouble.attempts >= STUCK_ATTEMPTS);
            view.set_aside.is_none() && !is_stuck
        };
        self.shared.state.lock().views.get(&id).is_some_and(goes_on)
    }

    /// Has a procedure that waits for its next step looked at now.
    pub(crate) fn look_again(&self, id: u64) {
        let mut state = self.shared.state.lock();
        if let Some(job) = state.paused.iter_mut().find(|job| job.record.id == id) {
            job.not_before_ns = 0;
            self.shared.wake.notify_all();
        }
    }

    /// As [`Engine::submit`], and waits until it has ended. Queued at once, also if nobody awaits the answer.
    pub(crate) fn run(
        self: &Arc<Engine>,
        procedure: Box<dyn Procedure>,
        by: Submission,
    ) -> impl Future<Output = Answer<u64>> + Send + use<> {
        let (engine, taken) = (self.clone(), self.submit(procedure, by));
        async move {
            let id = taken.await.map_err(|_| errors::stopping())??;
            let finished = engine.finished(id).ok_or_else(errors::stopping)?;
            drop(engine);
            finished.await.map_err(|_| errors::stopping())?.map(|()| id)
        }
    }

    /// Resolves when the procedure has ended; `None` if there is none of that number, or if the engine stops, which ends
    /// no procedure any more.
    pub(crate) fn finished(&self, id: u64) -> Option<oneshot::Receiver<Answer<()>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.shared.state.lock();
        if let Some(result) = state.results.get(id) {
            let _ = sender.send(result.outcome.clone());
        } else if state.views.contains_key(&id) && !state.stopping {
            state.listeners.entry(id).or_default().finished.push(sender);
        } else {
            return None;
        }
        Some(receiver)
    }

    pub(crate) fn status(&self, id: u64) -> ProcedureStatus {
        let state = self.shared.state.lock();
        if let Some(result) = state.results.get(id) {
            return ProcedureStatus::Finished(result.clone());
        }
        match state.views.get(&id) {
            Some(view) => {
                ProcedureStatus::Running { submitted_ms: view.submitted_ms, updated_ms: view.updated_ms }
            }
            None => ProcedureStatus::NotFound,
        }
    }

    /// Those that have not ended, by number.
    pub(crate) fn views(&self) -> Vec<ProcedureView> {
        let mut views: Vec<_> = self.shared.state.lock().views.values().cloned().collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// Whether a snapshot is being taken. One that waits for its table, or is set aside, has named no file yet, or names them anew.
    pub(crate) fn takes_snapshot(&self) -> bool {
        let is_taken = |view: &ProcedureView| {
            view.class_name == TAKE_SNAPSHOT_CLASS && view.begun && view.set_aside.is_none()
        };
        self.shared.state.lock().views.values().any(is_taken)
    }

    /// Whether a procedure that has begun has the table for itself: it may be about to refer to files that nothing refers to
    /// now.
    pub(crate) fn holds_table(&self, table: &TableName) -> bool {
        let is_held =
            |lock: &Lock| !lock.shared && matches!(&lock.resource, Resource::Table(name) if name == table);
        self.shared.state.lock().views.values().any(|view| view.begun && view.locks.iter().any(is_held))
    }

    /// How many there were since the start, by the words of HBase's metrics.
    pub(crate) fn times(&self) -> BTreeMap<&'static str, ProcedureTimes> {
        self.shared.state.lock().times.snapshot()
    }

    /// Those that have ended and are remembered.
    pub(crate) fn results(&self) -> Vec<(u64, Finished)> {
        self.shared.state.lock().results.iter().map(|(id, result)| (id, result.clone())).collect()
    }

    /// Takes back a procedure that has not begun. With `may_interrupt` also one that has, as long as it can be
    /// undone: while it waits to repeat a step, or, if a thread runs it, before its next step. True if it ends so,
    /// unless the step under way turns out to be its last.
    pub(crate) fn abort(&self, id: u64, may_interrupt: bool) -> bool {
        let mut state = self.shared.state.lock();
        if let Some(job) = state.take_unprepared(id) {
            let outcome = Err(RpcError::do_not_retry(format!("Procedure {id} was aborted before it began")));
            state.end(&job, outcome, true, self.shared.core.now_ms());
            self.shared.wake.notify_all(); // others may have its locks
            return true;
        }
        let Some(view) = state.views.get(&id).filter(|_| may_interrupt) else { return false };
        if view.running {
            let is_undoable = view.undoable;
            if is_undoable {
                state.interrupts.entry(id).or_insert(Interrupt::Abort);
            }
            return is_undoable;
        }
        // The job itself says whether it can be undone: no thread may have looked at it since the start.
        let core = &self.shared.core;
        let is_it = |job: &&mut Job| job.record.id == id && job.failed.is_none() && job.is_undoable(core);
        let Some(job) = state.paused.iter_mut().find(is_it) else { return false };
        job.abort(core);
        self.shared.wake.notify_all();
        true
    }

    /// Ends a procedure as it is, without undoing anything, and gives its locks back: the way out when a step can
    /// neither succeed nor be undone (HBase: `bypassProcedure`). Waits up to `wait` for a step under way to end; if it
    /// does not, `force` makes the step the last one, also after a restart. False if there is no such procedure, or
    /// if it is still running. The procedure's result is an error that says so. *Blocking.*
    pub(crate) fn bypass(&self, id: u64, wait: Duration, force: bool) -> bool {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let clock = &shared.core.env.clock;
        let until_ns = clock.monotonic_ns().saturating_add(wait.as_nanos().min(u64::MAX.into()) as u64);
        while state.views.get(&id).is_some_and(|view| view.running) && !state.stopping {
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
            if left_ns == 0 {
                break;
            }
            shared.left_thread.wait_for(&mut state, Duration::from_nanos(left_ns));
        }
        match state.views.get(&id).map(|view| view.running) {
            None => false,
            Some(true) => {
                drop(state);
                force && shared.bypass_running(id)
            }
            Some(false) => {
                drop(state);
                shared.bypass_idle(id)
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Returns the sender with an answer if there is one at once.
    fn submit(
        &self,
        procedure: Box<dyn Procedure>,
        by: Submission,
        sender: oneshot::Sender<Answer<u64>>,
    ) -> Option<(oneshot::Sender<Answer<u64>>, Answer<u64>)> {
        let mut state = self.state.lock();
        if let Some(id) = state.nonces.get(&by.nonce).copied().filter(|_| by.nonce.1 != 0 && !state.stopping)
        {
            return state.join(id, sender);
        }
        match self.enqueue(&mut state, procedure, by) {
            Ok(id) => state.listeners.entry(id).or_default().prepared.push(sender),
            Err(error) => return Some((sender, Err(error))),
        }
        None
    }

    /// Gives a procedure its number and puts it behind those that wait.
    pub(super) fn enqueue(
        &self,
        state: &mut State,
        procedure: Box<dyn Procedure>,
        by: Submission,
    ) -> Answer<u64> {
        if state.stopping {
            return Err(errors::stopping());
        }
        let is_limited = procedure.class(&self.core).is_limited(&by.owner);
        if is_limited && state.limited_count >= self.core.settings.procedures_max {
            return Err(RpcError::please_hold("Too many procedures are waiting"));
        }
        let id = state.next_id(&self.core).map_err(|error| errors::from_error(&error))?;
        let record = Record {
            id,
            kind: procedure.kind().to_string(),
            step: 0,
            payload: Vec::new(),
            submitted_ms: self.core.now_ms(),
            nonce_group: by.nonce.0,
            nonce: by.nonce.1,
            owner: by.owner,
            by_number: by.refused_by_result,
            ..Record::default()
        };
        state.times.submitted(procedure.metric());
        state.push(record, procedure, false, by.refused_by_result, &self.core);
        Ok(id)
    }
}
