//! A thread of the engine: takes a procedure, runs its steps, and ends it, undoes it or puts it aside.

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use tracing::{info, warn};

use super::Answer;
use super::engine::{Shared, Submission};
use super::job::{Job, Trouble};
use super::queue::{Interrupt, State};
use super::record::{self, Record};
use crate::errors;

enum Progress {
    Done,
    /// To be tried again.
    Pause(Error),
    /// To be looked at again: it only holds its locks.
    Held,
    Stopped,
}

impl Shared {
    /// One thread's life.
    pub(super) fn work(&self) {
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
                Some(_) if job.record.bypassed => self.end_unrecorded(&mut job),
                Some(_) => Progress::Done,
                None => self.advance(&mut job),
            };
            state = self.state.lock();
            let id = job.record.id;
            match progress {
                Progress::Done => {
                    let was_refused = refused.is_some();
                    if let Some(error) = &refused {
                        info!(id, procedure = job.procedure.class_name(), %error, "a procedure is refused");
                    }
                    let outcome = refused.or(job.failed.take()).map_or(Ok(()), Err);
                    state.locks.release(&job.locks);
                    state.end(&job, outcome, was_refused, self.core.now_ms());
                    self.wake.notify_all();
                }
                Progress::Pause(error) => self.pause(&mut state, job, &error),
                Progress::Held => {
                    // It may have been released since; whoever does that looks for it in `paused`.
                    job.not_before_ns = job.procedure.held_until(&self.core, id).unwrap_or(0);
                    if state.interrupts.contains_key(&id) {
                        job.not_before_ns = 0;
                    }
                    if let Some(view) = state.views.get_mut(&id) {
                        view.running = false;
                    }
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
        if let Err(error) = self.write_record(&mut job.record) {
            let refusal = errors::from_error(&error);
            // It may have been written all the same. A later master would run what the client was told had failed.
            if let Err(error) = record::remove(&self.core, job.record.id) {
                warn!(id = job.record.id, %error, "the record of a refused procedure may be there");
                (job.prepared, job.record.bypassed, job.failed) = (true, true, Some(refusal.clone()));
                // The client need not wait until the files can be changed again.
                self.answer_submission(job.record.id, &Err(refusal.clone()));
            }
            return Err(refusal);
        }
        job.prepared = true;
        let parameters = Arc::new(job.procedure.parameters(&job.record.owner));
        let mut state = self.state.lock();
        let id = job.record.id;
        if let Some(view) = state.views.get_mut(&id) {
            (view.prepared, view.parameters) = (true, parameters);
        }
        drop(state);
        self.answer_submission(id, &Ok(id));
        Ok(())
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
            if job.failed.is_some() || job.has_run() {
                break;
            }
            if job.procedure.held_until(&self.core, job.record.id).is_some() {
                return Progress::Held;
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
            (view.undoable, view.step) = (undoable, job.step_name());
        }
        let asked = state.interrupts.remove(&job.record.id);
        asked.or(state.stopping.then_some(Interrupt::Stop))
    }

    /// Runs the next step; an error is to be tried again, a final one is in the job.
    fn run_step(&self, job: &mut Job) -> Result<()> {
        let (step, count) = (job.record.step as usize, job.procedure.steps_count());
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
        } else {
            for procedure in job.procedure.followers(&self.core) {
                let asked = self.enqueue(&mut self.state.lock(), procedure, Submission::default());
                let id = asked.map_err(|error| Error::new(ErrorKind::Busy, error.to_string()))?;
                info!(id, after = job.record.id, "a procedure follows another");
            }
            self.wake.notify_all();
        }
        self.core.publish_names();
        record::remove(&self.core, job.record.id)
    }

    fn write_record(&self, record: &mut Record) -> Result<()> {
        let _one_at_a_time = self.record_writes.lock();
        let asked = self.state.lock().interrupts.get(&record.id).copied();
        record.bypassed |= asked == Some(Interrupt::Bypass);
        record::write(&self.core, record)
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
