//! Runs procedures on a few threads, one after the other where their locks say so.

use std::collections::{HashMap, VecDeque};
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
use super::record::{self, Record};
use super::results::{Finished, Results};
use super::{Procedure, decode};
use crate::errors;
use crate::state::Core;

type Answer<T> = std::result::Result<T, RpcError>;

/// The executor.
///
/// # Thread safety
/// All of [`State`] is behind one lock, which is not held while a procedure runs. A procedure is in `waiting`, in
/// `paused` or in the hands of one thread; `views` tells about it wherever it is.
///
/// # Invariants
/// The locks of a procedure are in `locks` from before `prepare` until it has ended, also across pauses.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    core: Arc<Core>,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    /// Failed in a step; to be gone on with at `not_before_ns`. Hold their locks.
    paused: Vec<Job>,
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
    /// A final error of a step; what was done is being taken back.
    failed: Option<RpcError>,
    refused_by_result: bool,
    attempts: u32,
    not_before_ns: u64,
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
    pub(crate) running: bool,
    pub(crate) locks: Vec<Lock>,
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
    pub(crate) fn load(core: Arc<Core>) -> Result<Engine> {
        let records = record::load(&core)?;
        let keep_ms = core.settings.result_keep.as_millis() as i64;
        let mut state = State {
            waiting: VecDeque::new(),
            paused: Vec::new(),
            locks: LockTable::default(),
            views: HashMap::new(),
            listeners: HashMap::new(),
            results: Results::new(keep_ms, core.settings.results_max),
            nonces: HashMap::new(),
            ids: record::reserve_ids(&core)?,
            stopping: false,
        };
        for record in records {
            let procedure = decode(&record.kind, &record.payload)
                .map_err(|error| error.context(format_args!("procedure {}", record.id)))?;
            info!(id = record.id, kind = record.kind, step = record.step, "an unfinished procedure goes on");
            state.push(record, procedure, true, core.now_ms());
        }
        let shared = Arc::new(Shared { core, state: Mutex::new(state), wake: Condvar::new() });
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

    /// Takes back a procedure that has not begun; one that has is carried through.
    pub(crate) fn abort(&self, id: u64) -> bool {
        let mut state = self.shared.state.lock();
        let place = state.waiting.iter().position(|job| job.record.id == id && !job.prepared);
        let Some(job) = place.and_then(|at| state.waiting.remove(at)) else { return false };
        let outcome = Err(RpcError::do_not_retry(format!("Procedure {id} was aborted before it began")));
        state.end(&job, outcome, true, self.shared.core.now_ms());
        true
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
            match progress {
                Progress::Done => {
                    let was_refused = refused.is_some();
                    let outcome = refused.or(job.failed.take()).map_or(Ok(()), Err);
                    state.locks.release(&job.locks);
                    state.end(&job, outcome, was_refused, self.core.now_ms());
                    self.wake.notify_all();
                }
                Progress::Pause(error) => {
                    warn!(id = job.record.id, kind = job.record.kind, step = job.record.step, %error,
                        "a step failed and will run again");
                    job.not_before_ns = self.core.env.clock.monotonic_ns() + self.pause_ns(job.attempts);
                    job.attempts += 1;
                    state.idle(job.record.id);
                    state.paused.push(job);
                }
                Progress::Stopped => return,
            }
        }
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
        record::write(&self.core, &job.record).map_err(|error| errors::from_error(&error))?;
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
        let steps = job.procedure.steps();
        while job.failed.is_none() && (job.record.step as usize) < steps.len() {
            if self.state.lock().stopping {
                return Progress::Stopped;
            }
            match job.procedure.run(&self.core, job.record.step as usize) {
                Ok(()) => job.attempts = 0,
                Err(error) if error.kind().is_permanent() => {
                    warn!(id = job.record.id, kind = job.record.kind, step = steps[job.record.step as usize],
                        %error, "a procedure cannot go on");
                    job.failed = Some(errors::from_error(&error));
                    break;
                }
                Err(error) => return Progress::Pause(error),
            }
            job.record.step += 1;
            if (job.record.step as usize) < steps.len() {
                if let Err(error) = record::write(&self.core, &job.record) {
                    // The step ran; it will run once more, which it must stand anyway.
                    job.record.step -= 1;
                    return Progress::Pause(error);
                }
                self.touch(job.record.id);
            }
        }
        let undone = if job.failed.is_some() { job.procedure.undo(&self.core) } else { Ok(()) };
        match undone.and_then(|()| record::remove(&self.core, job.record.id)) {
            Ok(()) => Progress::Done,
            Err(error) => Progress::Pause(error),
        }
    }

    fn touch(&self, id: u64) {
        let now = self.core.now_ms();
        if let Some(view) = self.state.lock().views.get_mut(&id) {
            view.updated_ms = now;
        }
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
            running: false,
            locks: locks.clone(),
        };
        self.views.insert(record.id, view);
        let job = Job {
            record,
            procedure,
            locks,
            prepared,
            failed: None,
            refused_by_result: false,
            attempts: 0,
            not_before_ns: 0,
        };
        self.waiting.push_back(job);
    }

    fn next_id(&mut self, core: &Core) -> Result<u64> {
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
            view.running = true;
        }
        Some(job)
    }

    fn idle(&mut self, id: u64) {
        if let Some(view) = self.views.get_mut(&id) {
            view.running = false;
        }
    }

    /// Remembers how a procedure ended and tells everybody who waits.
    fn end(&mut self, job: &Job, outcome: Answer<()>, refused: bool, now_ms: i64) {
        let id = job.record.id;
        self.views.remove(&id);
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
