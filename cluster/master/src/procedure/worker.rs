//! A thread of the engine: takes a procedure, runs its steps, and ends it, undoes it or puts it aside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::contained;
use halcyon_rpc::RpcError;
use tracing::{error, info, warn};

use super::engine::{Shared, Submission};
use super::job::{Job, Trouble};
use super::queue::{Interrupt, State};
use super::record::{self, Record, SetAside};
use super::{Answer, Class};
use crate::errors;

enum Progress {
    Done,
    /// To be tried again.
    Pause(Error),
    /// As `Pause`, after an assertion has failed in what all regions of a server wait for.
    PauseLong(Error),
    /// To be looked at again: it only holds its locks.
    Held,
    /// To be left as it is until somebody ends it.
    SetAside,
    Stopped,
}

/// Of the longest pauses before a step is repeated, before one that has failed in an assertion: a minute in all by default.
const ASSERTION_PAUSES: u32 = 6;
/// For so many of the longest pauses a request is checked again that could not be checked: a minute in all by default.
const CHECK_PAUSES: u32 = 6;

/// Why a request is not carried out.
enum Refusal {
    Final(RpcError),
    /// It could not be checked, which may be repeated.
    MayPass(RpcError),
}

/// What brings regions back is repeated whatever fails in it.
fn is_never_set_aside(job: &Job) -> bool {
    job.class <= Class::Assignment
}

impl Shared {
    /// One thread's life. It runs no procedure of a class behind `last`.
    pub(super) fn work(&self, last: Class) {
        let mut state = self.state.lock();
        while !state.stopping {
            let now = self.core.env.clock.monotonic_ns();
            let Some(mut job) = state.take_runnable(now, last) else {
                match state.next_due_ns(last) {
                    Some(at) => {
                        self.wake.wait_for(&mut state, Duration::from_nanos(at.saturating_sub(now).max(1)));
                    }
                    None => self.wake.wait(&mut state),
                }
                continue;
            };
            drop(state);
            let (refused, mut progress) = match self.prepare(&mut job) {
                Ok(()) => (None, self.advance(&mut job)),
                Err(Refusal::Final(error)) if job.record.bypassed => {
                    (Some(error), self.end_unrecorded(&mut job))
                }
                Err(Refusal::Final(error)) => (Some(error), Progress::Done),
                Err(Refusal::MayPass(error)) => {
                    let pause = Progress::Pause(Error::new(ErrorKind::Busy, error.message.clone()));
                    (Some(error), pause)
                }
            };
            self.remove_forgotten();
            state = self.state.lock();
            let id = job.record.id;
            // Nothing has been done, so nothing has to be repeated where somebody wants it to end.
            if !job.prepared && state.interrupts.contains_key(&id) {
                progress = Progress::Done;
            }
            match progress {
                Progress::Done => {
                    let was_refused = refused.is_some();
                    if let Some(error) = &refused {
                        info!(id, procedure = job.procedure.class_name(), %error, "a procedure is refused");
                    }
                    let outcome = refused.or(job.failed.take()).map_or(Ok(()), Err);
                    state.locks.release(&job.locks);
                    let has_recovered = outcome.is_ok() && job.class <= Class::Recovery;
                    state.end(&job, outcome, was_refused, self.core.now_ms());
                    if has_recovered {
                        state.repeat_now();
                    }
                    self.wake.notify_all();
                }
                Progress::Pause(error) => {
                    let attempts = job.trouble.as_ref().map_or(0, |trouble| trouble.attempts);
                    self.pause(&mut state, job, &error, self.pause_ns(attempts));
                }
                Progress::PauseLong(error) => {
                    let pause = self.core.settings.retry_pause_max.saturating_mul(ASSERTION_PAUSES);
                    self.pause(&mut state, job, &error, pause.as_nanos() as u64);
                }
                Progress::SetAside => {
                    // Whoever aborts or bypasses it looks for it in `paused`.
                    job.not_before_ns = if state.interrupts.contains_key(&id) { 0 } else { u64::MAX };
                    let why = job.record.set_aside.as_ref().map(|set_aside| set_aside.why.clone());
                    if let Some(view) = state.views.get_mut(&id) {
                        (view.running, view.set_aside) = (false, why);
                    }
                    state.put_aside(job);
                    self.wake.notify_all();
                }
                Progress::Held => {
                    // It may have been released since; whoever does that looks for it in `paused`.
                    job.not_before_ns = job.held_until(&self.core).unwrap_or(0);
                    if state.interrupts.contains_key(&id) {
                        job.not_before_ns = 0;
                    }
                    if let Some(view) = state.views.get_mut(&id) {
                        view.running = false;
                    }
                    assert!(
                        job.yielded.is_empty(),
                        "procedure {id} holds its locks for others, and has lent some"
                    );
                    state.paused.push(job);
                }
                Progress::Stopped => {
                    self.left_thread.notify_all();
                    return;
                }
            }
            debug_assert!(
                state.views.get(&id).is_none_or(|view| !view.running),
                "its thread has released it"
            );
            self.left_thread.notify_all();
        }
    }

    /// Puts a job aside whose step, or whose undo, failed and may work later; says so with all that is known.
    fn pause(&self, state: &mut State, mut job: Job, error: &Error, pause_ns: u64) {
        let (id, step) = (job.record.id, job.step_name());
        let trouble = job.trouble.take().filter(|trouble| trouble.step == step);
        let (attempts, since_ms) =
            trouble.map_or((0, self.core.now_ms()), |old| (old.attempts, old.since_ms));
        let trouble = Trouble { step, attempts: attempts + 1, since_ms, last_error: error.to_string() };
        let failing_s = (self.core.now_ms() - since_ms).max(0) / 1000;
        warn!(id, kind = job.record.kind, step, attempts = trouble.attempts, failing_s, pause_ms = pause_ns / 1_000_000,
            %error, "a procedure's step failed and will be repeated");
        // An abort or a bypass that came meanwhile is not kept waiting.
        let asked = state.interrupts.contains_key(&id);
        job.not_before_ns = if asked { 0 } else { self.core.env.clock.monotonic_ns() + pause_ns };
        job.trouble = Some(trouble);
        if let Some(view) = state.views.get_mut(&id) {
            (view.running, view.trouble) = (false, job.trouble.clone());
        }
        state.put_aside(job);
        self.wake.notify_all();
    }

    fn pause_ns(&self, attempts: u32) -> u64 {
        let settings = &self.core.settings;
        let pause = settings.retry_pause.saturating_mul(1 << attempts.min(16));
        pause.min(settings.retry_pause_max).as_nanos() as u64
    }

    /// Checks the request and writes the record; what is wrong goes to the caller.
    fn prepare(&self, job: &mut Job) -> std::result::Result<(), Refusal> {
        if job.prepared {
            return Ok(());
        }
        assert_eq!(job.record.step, 0, "a request is checked before its first step");
        assert!(
            self.state.lock().locks.holds(&job.locks),
            "a request is checked with its locks, or what it has seen would not last"
        );
        let prepared: std::result::Result<Answer<Vec<u8>>, String> = contained(|| {
            job.procedure.prepare(&self.core)?;
            Ok(job.procedure.payload())
        });
        let prepared = prepared.unwrap_or_else(|failure| {
            let class = job.procedure.class_name();
            error!(id = job.record.id, class, failure, "a request could not be checked: it is refused");
            Err(RpcError::do_not_retry(failure))
        });
        job.record.payload = prepared.map_err(|error| match self.may_pass(job, &error) {
            true => Refusal::MayPass(error),
            false => Refusal::Final(error),
        })?;
        if let Err(error) = self.write_record(&mut job.record) {
            let refusal = errors::from_error(&error);
            // It may have been written all the same. A later master would run what the client was told had failed.
            if let Err(error) = record::remove(&self.core, job.record.id) {
                warn!(id = job.record.id, %error, "the record of a refused procedure may be there");
                (job.prepared, job.record.bypassed, job.failed) = (true, true, Some(refusal.clone()));
                // The client need not wait until the files can be changed again.
                self.answer_submission(job.record.id, &Err(refusal.clone()));
            }
            return Err(Refusal::Final(refusal));
        }
        (job.prepared, job.trouble) = (true, None);
        let parameters = Arc::new(job.procedure.parameters(&job.record.owner));
        let mut state = self.state.lock();
        let id = job.record.id;
        if let Some(view) = state.views.get_mut(&id) {
            (view.prepared, view.parameters, view.trouble) = (true, parameters, None);
        }
        drop(state);
        self.answer_submission(id, &Ok(id));
        Ok(())
    }

    /// Whether a request may be found right a little later: what it is checked against, such as `hbase:meta`, cannot be read now. Its
    /// client waits, as it does for a step, and for a while only.
    fn may_pass(&self, job: &Job, error: &RpcError) -> bool {
        let now_ms = self.core.now_ms();
        let since_ms = job.trouble.as_ref().map_or(now_ms, |trouble| trouble.since_ms);
        let limit = self.core.settings.retry_pause_max.saturating_mul(CHECK_PAUSES);
        job.procedure.can_be_checked_again()
            && !error.do_not_retry
            && self.core.check_running().is_ok()
            && (now_ms.saturating_sub(since_ms) as u128) < limit.as_millis()
    }

    /// Tells those who submitted the procedure whether it was taken.
    fn answer_submission(&self, id: u64, answer: &Answer<u64>) {
        let mut state = self.state.lock();
        let Some(listeners) = state.listeners.get_mut(&id) else { return };
        for sender in std::mem::take(&mut listeners.prepared) {
            let _ = sender.send(answer.clone());
        }
    }

    /// Ends a procedure that was refused because of its record, which may be there.
    fn end_unrecorded(&self, job: &mut Job) -> Progress {
        self.finish(job).map_or_else(Progress::Pause, |()| Progress::Done)
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
            if job.is_set_aside() {
                return Progress::SetAside;
            }
            if job.failed.is_some() || job.has_run() {
                break;
            }
            if job.held_until(&self.core).is_some() {
                return Progress::Held;
            }
            // The first time it runs, the record was just written.
            if job.trouble.is_some() && self.stop_if_followed() {
                return Progress::Stopped;
            }
            match contained(|| self.run_step(job)) {
                Ok(Ok(())) => {}
                // The step has found out that it has to wait.
                Ok(Err(_)) if job.held_until(&self.core).is_some() => return Progress::Held,
                Ok(Err(error)) => return Progress::Pause(error),
                Err(failure) if is_never_set_aside(job) => return self.failed_in_recovery(job, failure),
                Err(failure) => self.set_aside(job, failure),
            }
        }
        if job.failed.is_some() && job.held_until(&self.core).is_some() {
            return Progress::Held;
        }
        match contained(|| self.finish(job)) {
            Ok(Ok(())) => Progress::Done,
            Ok(Err(error)) => Progress::Pause(error),
            Err(failure) if is_never_set_aside(job) => self.failed_in_recovery(job, failure),
            Err(failure) => {
                self.set_aside(job, failure);
                Progress::SetAside
            }
        }
    }

    /// Regions stay closed until it has ended, and nobody else would begin it: it is tried again, now or by the next master.
    fn failed_in_recovery(&self, job: &Job, failure: String) -> Progress {
        let (id, step) = (job.record.id, job.step_name());
        error!(
            id,
            kind = job.record.kind,
            step,
            failure,
            "a step of a recovery failed an assertion: it is repeated"
        );
        Progress::PauseLong(Error::new(ErrorKind::Busy, failure))
    }

    /// A procedure whose step, or undo, has failed in an assertion: it would fail again. Its record says so, so that a restart, or
    /// the next master, leaves it alone.
    fn set_aside(&self, job: &mut Job, failure: String) {
        assert!(!is_never_set_aside(job), "regions would wait for a person");
        let (id, step) = (job.record.id, job.step_name());
        error!(id, kind = job.record.kind, step, failure, "a procedure is set aside: abort it, or bypass it");
        let why = format!("step '{step}': {failure}");
        job.record.set_aside = Some(SetAside::new(why, self.core.now_ms()));
        if let Err(error) = self.write_record(&mut job.record) {
            warn!(id, %error, "that a procedure is set aside could not be recorded: a restart tries it once more");
        }
    }

    /// Tells the view where the job is; returns what was asked of it meanwhile.
    fn begin_step(&self, job: &Job) -> Option<Interrupt> {
        let undoable = job.failed.is_none() && job.is_undoable(&self.core);
        let mut state = self.state.lock();
        assert!(state.locks.holds(&job.locks), "procedure {} runs without its locks", job.record.id);
        if let Some(view) = state.views.get_mut(&job.record.id) {
            (view.undoable, view.step) = (undoable, job.step_name());
        }
        let asked = state.interrupts.remove(&job.record.id);
        asked.or(state.stopping.then_some(Interrupt::Stop))
    }

    /// Runs the next step; an error is to be tried again, a final one is in the job.
    fn run_step(&self, job: &mut Job) -> Result<()> {
        let (step, count) = (job.record.step as usize, job.procedure.steps_count());
        assert!(step < count, "procedure {} has {count} steps, none of number {step}", job.record.id);
        assert!(job.prepared, "a step runs when its record is on disk: a later master goes on with it");
        assert!(
            job.failed.is_none() && !job.record.bypassed,
            "procedure {} is undone, or was ended: no step of it runs any more",
            job.record.id
        );
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
        assert!(
            job.failed.is_some() || job.has_run(),
            "procedure {} ends between two steps: its record goes, and nobody does the rest",
            job.record.id
        );
        if job.record.bypassed {
            self.write_record(&mut job.record)?;
        } else if job.failed.is_some() {
            // A restart goes on with the undo, not with the steps. Without space for the record it may do either.
            if let Err(error) = self.write_record(&mut job.record) {
                // But a successor may have ended it, and clients may use what it has made.
                if !record::are_kept(&self.core) {
                    return Err(error);
                }
                warn!(id = job.record.id, %error, "the failure of a procedure could not be recorded");
            }
            job.procedure.undo(&self.core)?;
        } else {
            for procedure in job.procedure.followers(&self.core) {
                let asked = self.enqueue(&mut self.state.lock(), procedure, Submission::default());
                let id = asked.map_err(|error| Error::new(ErrorKind::Busy, error.to_string()))?;
                info!(id, after = job.record.id, "a procedure follows another");
            }
            self.wake.notify_all();
        }
        self.core.publish_names();
        if job.record.keeps_result()
            && let Err(error) = record::write_ended(&self.core, &job.ended(self.core.now_ms()))
        {
            warn!(id = job.record.id, %error, "the result of a procedure is not kept for the next master");
        }
        record::remove(&self.core, job.record.id)
    }

    /// Removes files of results that are forgotten.
    fn remove_forgotten(&self) {
        let forgotten = std::mem::take(&mut self.state.lock().forgotten);
        for id in forgotten {
            if let Err(error) = record::remove_ended(&self.core, id) {
                warn!(id, %error, "the result of a procedure stays until the next master starts");
            }
        }
    }

    fn write_record(&self, record: &mut Record) -> Result<()> {
        let _one_at_a_time = self.record_writes.lock();
        let asked = self.state.lock().interrupts.get(&record.id).copied();
        record.bypassed |= asked == Some(Interrupt::Bypass);
        record::write(&self.core, record).inspect_err(|_| {
            self.stop_if_followed();
        })
    }

    /// Ends the work of a master that has a successor: that has taken the records, and goes on with the procedures. A step that would be
    /// repeated here could undo what was done since. Whether it has one.
    fn stop_if_followed(&self) -> bool {
        let is_followed = record::are_taken(&self.core);
        if is_followed {
            error!("another master has taken the procedures: this one does nothing more");
            self.core.stopped.store(true, Ordering::SeqCst);
            self.state.lock().stopping = true;
            self.wake.notify_all();
        }
        is_followed
    }

    /// A step that does not end: what comes after it must not run, now or after a restart.
    pub(super) fn bypass_running(&self, id: u64) -> bool {
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
    pub(super) fn bypass_idle(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        if let Some(at) = state.paused.iter().position(|job| job.record.id == id && job.prepared) {
            let job = &mut state.paused[at];
            job.bypass();
            job.not_before_ns = 0;
            self.wake.notify_all();
            return true;
        }
        let Some(mut job) = state.take_unbegun(id) else { return false };
        job.bypass();
        if job.prepared && record::remove(&self.core, id).is_err() {
            // Taken up again with its locks, and ended then.
            state.waiting.push_front(job);
            return true;
        }
        let outcome = job.failed.take().map_or(Ok(()), Err);
        state.end(&job, outcome, false, self.core.now_ms());
        self.wake.notify_all(); // others may have its locks
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
