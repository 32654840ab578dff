//! Runs procedures on a few threads, one after the other where their locks say so.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_env::spawn_thread;
use halcyon_rpc::RpcError;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::lock::{Lock, LockTable};
use super::record::{self, Failure, Record};
use super::results::{Finished, Results};
use super::{Procedure, decode};
use crate::errors;
use crate::state::MasterState;

type Answer<T> = std::result::Result<T, RpcError>;

/// The executor.
///
/// # Thread safety
/// All of [`State`] is behind one lock, which is not held while a procedure runs. A procedure is in `waiting`, in
/// `paused` or in the hands of one thread; `views` tells about it wherever it is.
///
/// # Invariants
/// The locks of a procedure are in `locks` from before `prepare` until it has ended, also across pauses.
/// No procedure is stuck for good: one whose step fails again and again can be aborted while it can be undone, and
/// bypassed always.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    core: Arc<MasterState>,
    state: Mutex<State>,
    /// There may be something to run.
    wake: Condvar,
    /// A procedure has left its thread; [`Engine::bypass`] waits for it.
    left_thread: Condvar,
    /// Held while a record is written, so that a bypass cannot be overwritten by the step under way.
    record_writes: Mutex<()>,
}

struct State {
    waiting: VecDeque<Job>,
    /// Failed in a step, which runs again at `not_before_ns`. They hold their locks.
    paused: Vec<Job>,
    /// What was asked of procedures that a thread runs; looked at between two steps.
    interrupts: HashMap<u64, Interrupt>,
    locks: LockTable,
    views: HashMap<u64, ProcedureView>,
    listeners: HashMap<u64, Listeners>,
    results: Results,
    nonces: HashMap<(u64, u64), u64>,
    ids: std::ops::Range<u64>,
    stopping: bool,
}

struct Job {
    record: Record,
    procedure: Box<dyn Procedure>,
    locks: Vec<Lock>,
    /// Checked, and its record is on disk.
    prepared: bool,
    /// A final error of a step, or an abort; what was done is being taken back. Or a bypass: nothing more is done.
    failed: Option<RpcError>,
    refused_by_result: bool,
    trouble: Option<Trouble>,
    not_before_ns: u64,
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    Abort,
    Bypass,
    Stop,
}

#[derive(Default)]
struct Listeners {
    prepared: Vec<oneshot::Sender<Answer<u64>>>,
    finished: Vec<oneshot::Sender<Answer<()>>>,
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
    /// An abort now would lead back to the state before.
    pub(crate) undoable: bool,
    pub(crate) locks: Vec<Lock>,
    pub(crate) trouble: Option<Trouble>,
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

enum Progress {
    Done,
    /// To be tried again.
    Pause(Error),
    Stopped,
}

impl Engine {
    /// Loads the unfinished procedures; they run when [`Engine::start`] is called.
    pub(crate) fn load(core: Arc<MasterState>) -> Result<Engine> {
        let records = record::load(&core)?;
        let keep_ms = core.settings.result_keep.as_millis() as i64;
        let mut state = State {
            waiting: VecDeque::new(),
            paused: Vec::new(),
            interrupts: HashMap::new(),
            locks: LockTable::default(),
            views: HashMap::new(),
            listeners: HashMap::new(),
            results: Results::new(keep_ms, core.settings.results_max),
            nonces: HashMap::new(),
            ids: record::reserve_ids(&core)?,
            stopping: false,
        };
        for record in records {
            if record.bypassed {
                record::remove(&core, record.id)?;
                continue;
            }
            let procedure = decode(&record.kind, &record.payload)
                .map_err(|error| error.context(format_args!("procedure {}", record.id)))?;
            info!(id = record.id, kind = record.kind, step = record.step, "an unfinished procedure goes on");
            state.push(record, procedure, true, core.now_ms());
        }
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
        for number in 0..self.shared.core.settings.procedure_threads.max(1) {
            let shared = self.shared.clone();
            threads.push(spawn_thread(&format!("procedure-{number}"), move || shared.work())?);
        }
        Ok(())
    }

    /// Lets running steps end, starts no others, and waits. Unfinished procedures stay on disk.
    pub(crate) fn stop(&self) {
        {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            state.listeners.clear();
        }
        self.shared.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A procedure's own thread may drop the last handle to the master; it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
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
        self.shared.wake.notify_one();
        if let Some((sender, answer)) = answer {
            let _ = sender.send(answer);
        }
        receiver
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

    /// Resolves when the procedure has ended; `None` if there is none of that number.
    pub(crate) fn finished(&self, id: u64) -> Option<oneshot::Receiver<Answer<()>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.shared.state.lock();
        if let Some(result) = state.results.get(id) {
            let _ = sender.send(result.outcome.clone());
        } else if state.views.contains_key(&id) {
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

    /// Those that have ended and are remembered.
    pub(crate) fn results(&self) -> Vec<(u64, Finished)> {
        self.shared.state.lock().results.iter().map(|(id, result)| (id, result.clone())).collect()
    }

    /// Takes back a procedure that has not begun. With `may_interrupt` also one that has, as long as it can be
    /// undone: while it waits to repeat a step, or, if a thread runs it, before its next step. True if it ends so,
    /// unless the step under way turns out to be its last.
    pub(crate) fn abort(&self, id: u64, may_interrupt: bool) -> bool {
        let mut state = self.shared.state.lock();
        if let Some(at) = state.waiting.iter().position(|job| job.record.id == id && !job.prepared) {
            let job = state.waiting.remove(at).expect("the place was just found");
            let outcome = Err(RpcError::do_not_retry(format!("Procedure {id} was aborted before it began")));
            state.end(&job, outcome, true, self.shared.core.now_ms());
            return true;
        }
        let Some(view) = state.views.get(&id).filter(|view| may_interrupt && view.undoable) else {
            return false;
        };
        if view.running {
            state.interrupts.entry(id).or_insert(Interrupt::Abort);
            return true;
        }
        let core = &self.shared.core;
        let Some(job) = state.paused.iter_mut().find(|job| job.record.id == id && job.failed.is_none())
        else {
            return false;
        };
        job.abort(core);
        self.shared.wake.notify_one();
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
        if state.stopping {
            return Some((sender, Err(errors::stopping())));
        }
        if let Some(id) = state.nonces.get(&by.nonce).copied().filter(|_| by.nonce.1 != 0) {
            return state.join(id, sender);
        }
        if state.views.len() >= self.core.settings.procedures_max {
            return Some((sender, Err(RpcError::please_hold("Too many procedures are waiting"))));
        }
        let id = match state.next_id(&self.core) {
            Ok(id) => id,
            Err(error) => return Some((sender, Err(errors::from_error(&error)))),
        };
        let now = self.core.now_ms();
        let record = Record {
            id,
            kind: procedure.kind().to_string(),
            step: 0,
            payload: Vec::new(),
            submitted_ms: now,
            nonce_group: by.nonce.0,
            nonce: by.nonce.1,
            owner: by.owner,
            bypassed: false,
            failure: None,
        };
        state.push(record, procedure, false, now);
        state.waiting.back_mut().expect("was just pushed").refused_by_result = by.refused_by_result;
        state.listeners.entry(id).or_default().prepared.push(sender);
        None
    }

    /// One thread's life.
    fn work(&self) {
        let mut state = self.state.lock();
        while !state.stopping {
            let now = self.core.env.clock.monotonic_ns();
            let Some(mut job) = state.take_runnable(now) else {
                match state.paused.iter().map(|job| job.not_before_ns).min() {
                    Some(at) => {
                        self.wake.wait_for(&mut state, Duration::from_nanos(at.saturating_sub(now).max(1)));
                    }
                    None => self.wake.wait(&mut state),
                }
                continue;
            };
            drop(state);
            let refused = self.prepare(&mut job).err();
            let progress = match &refused {
                Some(_) => Progress::Done,
                None => self.advance(&mut job),
            };
            state = self.state.lock();
            let id = job.record.id;
            match progress {
                Progress::Done => {
                    let was_refused = refused.is_some();
                    let outcome = refused.or(job.failed.take()).map_or(Ok(()), Err);
                    state.locks.release(&job.locks);
                    state.end(&job, outcome, was_refused, self.core.now_ms());
                    self.wake.notify_all();
                }
                Progress::Pause(error) => self.pause(&mut state, job, &error),
                Progress::Stopped => {
                    self.left_thread.notify_all();
                    return;
                }
            }
            debug_assert!(
                state.views.get(&id).is_none_or(|view| !view.running),
                "its thread has let go of it"
            );
            self.left_thread.notify_all();
        }
    }

    /// Puts a job aside whose step, or whose undo, failed and may work later; says so with all that is known.
    fn pause(&self, state: &mut State, mut job: Job, error: &Error) {
        let (id, step) = (job.record.id, job.step_name());
        let trouble = job.trouble.take().filter(|trouble| trouble.step == step);
        let (attempts, since_ms) =
            trouble.map_or((0, self.core.now_ms()), |old| (old.attempts, old.since_ms));
        let trouble = Trouble { step, attempts: attempts + 1, since_ms, last_error: error.to_string() };
        let failing_s = (self.core.now_ms() - since_ms).max(0) / 1000;
        let pause_ns = self.pause_ns(attempts);
        warn!(id, kind = job.record.kind, step, attempts = trouble.attempts, failing_s, pause_ms = pause_ns / 1_000_000,
            %error, "a procedure's step failed and will be repeated");
        // An abort or a bypass that came meanwhile is not kept waiting.
        let asked = state.interrupts.contains_key(&id);
        job.not_before_ns = if asked { 0 } else { self.core.env.clock.monotonic_ns() + pause_ns };
        job.trouble = Some(trouble);
        if let Some(view) = state.views.get_mut(&id) {
            (view.running, view.trouble) = (false, job.trouble.clone());
        }
        state.paused.push(job);
    }

    fn pause_ns(&self, attempts: u32) -> u64 {
        let settings = &self.core.settings;
        let pause = settings.retry_pause.saturating_mul(1 << attempts.min(16));
        pause.min(settings.retry_pause_max).as_nanos() as u64
    }

    /// Checks the request and writes the record; what is wrong goes to the caller.
    fn prepare(&self, job: &mut Job) -> Answer<()> {
        if job.prepared {
            return Ok(());
        }
        job.procedure.prepare(&self.core)?;
        job.record.payload = job.procedure.payload();
        self.write_record(&mut job.record).map_err(|error| errors::from_error(&error))?;
        job.prepared = true;
        let mut state = self.state.lock();
        let id = job.record.id;
        if let Some(view) = state.views.get_mut(&id) {
            view.prepared = true;
        }
        for sender in
            state.listeners.get_mut(&id).map(|l| std::mem::take(&mut l.prepared)).unwrap_or_default()
        {
            let _ = sender.send(Ok(id));
        }
        Ok(())
    }

    /// Runs steps until the end or an error.
    fn advance(&self, job: &mut Job) -> Progress {
        loop {
            match self.begin_step(job) {
                Some(Interrupt::Stop) if job.failed.is_none() && !job.has_run() => return Progress::Stopped,
                Some(Interrupt::Bypass) => job.bypass(),
                Some(Interrupt::Abort) if job.is_undoable(&self.core) => job.abort(&self.core),
                _ => {}
            }
            if job.failed.is_some() || job.has_run() {
                break;
            }
            if let Err(error) = self.run_step(job) {
                return Progress::Pause(error);
            }
        }
        match self.finish(job) {
            Ok(()) => Progress::Done,
            Err(error) => Progress::Pause(error),
        }
    }

    /// Tells the view where the job is; returns what was asked of it meanwhile.
    fn begin_step(&self, job: &Job) -> Option<Interrupt> {
        let undoable = job.failed.is_none() && job.is_undoable(&self.core);
        let mut state = self.state.lock();
        assert!(state.locks.holds(&job.locks), "procedure {} runs without its locks", job.record.id);
        if let Some(view) = state.views.get_mut(&job.record.id) {
            view.undoable = undoable;
        }
        let asked = state.interrupts.remove(&job.record.id);
        asked.or(state.stopping.then_some(Interrupt::Stop))
    }

    /// Runs the next step; an error is to be tried again, a final one is in the job.
    fn run_step(&self, job: &mut Job) -> Result<()> {
        let (step, count) = (job.record.step as usize, job.procedure.steps().len());
        assert!(step < count, "procedure {} has {count} steps, none of number {step}", job.record.id);
        match job.procedure.run(&self.core, step) {
            Ok(()) => {}
            Err(error) if error.kind().is_permanent() => {
                warn!(id = job.record.id, kind = job.record.kind, step = job.step_name(), %error,
                    "a procedure failed and is undone");
                job.fail(errors::from_error(&error));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        job.record.step += 1;
        if job.has_run() {
            return Ok(());
        }
        if let Err(error) = self.write_record(&mut job.record) {
            // The step ran; it will run once more, which it must stand anyway.
            job.record.step -= 1;
            return Err(error);
        }
        job.trouble = None;
        self.touch(job.record.id);
        Ok(())
    }

    /// Undoes what failed, and removes the record.
    fn finish(&self, job: &mut Job) -> Result<()> {
        if job.record.bypassed {
            self.write_record(&mut job.record)?;
        } else if job.failed.is_some() {
            // A restart goes on with the undo, not with the steps. Without space for the record it may do either.
            if let Err(error) = self.write_record(&mut job.record) {
                warn!(id = job.record.id, %error, "the failure of a procedure could not be recorded");
            }
            job.procedure.undo(&self.core)?;
        }
        record::remove(&self.core, job.record.id)
    }

    fn write_record(&self, record: &mut Record) -> Result<()> {
        let _one_at_a_time = self.record_writes.lock();
        let asked = self.state.lock().interrupts.get(&record.id).copied();
        record.bypassed |= asked == Some(Interrupt::Bypass);
        record::write(&self.core, record)
    }

    /// A step that does not end: what comes after it must not run, now or after a restart.
    fn bypass_running(&self, id: u64) -> bool {
        {
            let mut state = self.state.lock();
            if !state.views.contains_key(&id) {
                return false;
            }
            state.interrupts.insert(id, Interrupt::Bypass);
        }
        warn!(id, "a running procedure is bypassed by force: the step under way is its last");
        let _one_at_a_time = self.record_writes.lock();
        if let Err(error) = record::mark_bypassed(&self.core, id) {
            warn!(id, %error, "a restart before the step has ended would run the bypassed procedure again");
        }
        true
    }

    /// Ends a procedure that no thread runs.
    fn bypass_idle(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        if let Some(at) = state.paused.iter().position(|job| job.record.id == id) {
            let job = &mut state.paused[at];
            job.bypass();
            job.not_before_ns = 0;
            self.wake.notify_one();
            return true;
        }
        let Some(at) = state.waiting.iter().position(|job| job.record.id == id) else { return false };
        let mut job = state.waiting.remove(at).expect("the place was just found");
        job.bypass();
        if job.prepared && record::remove(&self.core, id).is_err() {
            // Taken up again with its locks, and ended then.
            state.waiting.insert(at, job);
            return true;
        }
        let outcome = job.failed.take().map_or(Ok(()), Err);
        state.end(&job, outcome, false, self.core.now_ms());
        true
    }

    fn touch(&self, id: u64) {
        let now = self.core.now_ms();
        if let Some(view) = self.state.lock().views.get_mut(&id) {
            view.updated_ms = now;
            view.trouble = None;
        }
    }
}

impl Job {
    fn has_run(&self) -> bool {
        self.record.step as usize >= self.procedure.steps().len()
    }

    fn step_name(&self) -> &'static str {
        if self.failed.is_some() {
            return "undo";
        }
        self.procedure.steps().get(self.record.step as usize).copied().unwrap_or("remove the record")
    }

    fn is_undoable(&self, core: &MasterState) -> bool {
        !self.has_run() && self.procedure.can_undo(core, self.record.step as usize)
    }

    fn fail(&mut self, error: RpcError) {
        self.record.failure = Some(Failure::of(&error));
        self.failed = Some(error);
    }

    fn abort(&mut self, core: &MasterState) {
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

    fn bypass(&mut self) {
        let (id, step) = (self.record.id, self.step_name());
        warn!(id, kind = self.record.kind, step, "a procedure is bypassed: its other steps do not run");
        let message = format!("Procedure {id} was bypassed before step '{step}' ended; nothing was undone");
        self.failed = Some(errors::aborted(message));
        self.record.bypassed = true;
    }
}

impl State {
    fn push(&mut self, record: Record, procedure: Box<dyn Procedure>, prepared: bool, now_ms: i64) {
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
            undoable: false,
            locks: locks.clone(),
            trouble: None,
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

    fn next_id(&mut self, core: &MasterState) -> Result<u64> {
        if self.ids.is_empty() {
            self.ids = record::reserve_ids(core)?;
        }
        Ok(self.ids.next().expect("numbers were just reserved"))
    }

    /// A request that was made before: its number, once it is sure to be carried out.
    fn join(
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
    fn take_runnable(&mut self, now_ns: u64) -> Option<Job> {
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
    fn end(&mut self, job: &Job, outcome: Answer<()>, refused: bool, now_ms: i64) {
        let id = job.record.id;
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
        };
        for nonce in self.results.add(id, finished) {
            if nonce.1 != 0 {
                self.nonces.remove(&nonce);
            }
        }
    }
}
