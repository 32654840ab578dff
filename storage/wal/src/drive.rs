//! Who drives the WAL: one thread at a time, the leader, writes rounds and runs their completions.
//!
//! *No append is left behind*: `drive` returns early only if another thread holds the leader lock. That thread looks
//! at the buffer once more after it released the lock. It sees everything that was appended before the first thread
//! returned, or finds that a third thread has become the leader and will look as well. Both sides have a fence between
//! their two steps (append, then lock; release, then look), so at least one of them sees what the other did.
//!
//! *Waiting threads take turns*: a thread that waits for its own write (`drive_until`) writes one round and leaves the
//! next one to other waiting threads, so that their writes are prepared while this one's is written. The last thread
//! that stops waiting drives what is left.

use std::collections::VecDeque;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::sync::atomic::{AtomicUsize, Ordering, fence};
use halcyon_env::sync::{Condvar, Mutex, MutexGuard, spin_loop, yield_now};

use crate::SyncMode;
use crate::full::RETRY_PERIOD;
use crate::log::{Completion, Wal};

/// Capacity for completions that is kept from round to round.
const COMPLETIONS_KEPT_MAX: usize = 1 << 10;
/// How often a thread in `drive_until` looks whether another one has finished its round: some ten microseconds without
/// giving up the processor, then about a hundred for other threads. To sleep and be woken takes as long.
const SPINS_MAX: u32 = if cfg!(halcyon_shuttle) { 1 } else { 500 };
const LOOKS_MAX: u32 = SPINS_MAX + if cfg!(halcyon_shuttle) { 1 } else { 300 };

/// The state of the threads that drive.
#[derive(Default)]
pub(crate) struct Driving {
    leader: Mutex<Leader>,
    /// Held by the one thread that sleeps for `leader`.
    next_leader: Mutex<()>,
    /// Threads in `drive_until`, which look after what is buffered.
    waiting: AtomicUsize,
    finished: Mutex<VecDeque<Finished>>,
    /// The length of `finished`.
    finished_count: AtomicUsize,
    /// Signalled when there is something to drive.
    pub(crate) work: Condvar,
}

/// What the leader owns.
#[derive(Default)]
struct Leader {
    /// The last round whose appends were acknowledged.
    acknowledged: Option<u64>,
    /// Empty; its memory takes the completions of the round after next.
    spare: Vec<Completion>,
}

/// A round whose completions are still to be run.
struct Finished {
    round: u64,
    completions: Vec<Completion>,
    result: Result<()>,
}

impl Leader {
    fn note_finished(&mut self, finished: &Finished) {
        if finished.result.is_ok() {
            assert!(
                self.acknowledged < Some(finished.round),
                "appends are acknowledged in their order: round {} after {:?}",
                finished.round,
                self.acknowledged
            );
            self.acknowledged = Some(finished.round);
        }
    }
}

impl Wal {
    /// Writes what is buffered, in one or more rounds, and runs completions, until nothing is left. If
    /// another thread is at it this returns at once, and that thread will take what was appended before. With
    /// `SyncMode::Remote` only the log's own thread calls this.
    /// Returns whether there was anything to do. Failures are told to the completions.
    pub fn drive(&self) -> bool {
        let mut worked = false;
        loop {
            fence(Ordering::SeqCst); // the append was before this
            let Some(mut leader) = self.driving.leader.try_lock() else { return worked };
            while self.drive_round(&mut leader) {
                worked = true;
            }
            drop(leader);
            if !self.has_work() {
                return worked;
            }
        }
    }

    /// For a thread that is about to wait for what it appended: drives, or wakes the thread that does.
    pub fn drive_or_wake(&self) {
        if self.config.sync_mode == SyncMode::Remote {
            self.wake_driver();
        } else {
            self.drive();
        }
    }

    /// Writes what is buffered in one round and runs its completions. Returns whether there is more for somebody: what
    /// others append meanwhile does not keep the caller. False also if another thread is at it. With `Remote` it wakes
    /// the log's thread.
    pub fn drive_once(&self) -> bool {
        if self.config.sync_mode == SyncMode::Remote {
            self.wake_driver();
            return false;
        }
        fence(Ordering::SeqCst); // as in `drive`
        let Some(mut leader) = self.driving.leader.try_lock() else { return false };
        self.drive_round(&mut leader);
        drop(leader);
        self.has_work()
    }

    /// Brings the log along until `is_done`, which says whether the caller's own write was completed: for a thread
    /// that has nothing else to do before. Several of them take turns. Returns earlier if others look after what the
    /// caller appended, or if nothing can be written for now; then the caller may sleep until it is told. With `Remote`
    /// the log's thread looks after all.
    pub fn drive_until(&self, is_done: impl Fn() -> bool) {
        if self.config.sync_mode == SyncMode::Remote {
            return self.wake_driver();
        }
        self.driving.waiting.fetch_add(1, Ordering::SeqCst);
        while !is_done() {
            let Some(mut leader) = self.take_turn(&is_done) else { break };
            if is_done() || !self.drive_round(&mut leader) {
                break;
            }
        }
        // Others that wait will look; the last one leaves nothing behind.
        if self.driving.waiting.fetch_sub(1, Ordering::SeqCst) == 1 && self.has_work() {
            self.drive();
        }
    }

    /// The leader lock, unless `is_done` before it is free, or another thread sleeps for it already: that one writes
    /// what is there for all.
    fn take_turn(&self, is_done: impl Fn() -> bool) -> Option<MutexGuard<'_, Leader>> {
        for look in 0..LOOKS_MAX {
            if !self.driving.leader.is_locked()
                && let Some(leader) = self.driving.leader.try_lock()
            {
                return Some(leader);
            }
            if is_done() {
                return None;
            }
            if look < SPINS_MAX { spin_loop() } else { yield_now() }
        }
        let _next = self.driving.next_leader.try_lock()?;
        Some(self.driving.leader.lock())
    }

    /// Blocks until there is something to drive, at most `timeout`; returns whether there is.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let now_ns = || self.env.clock.monotonic_ns();
        let mut appends = self.appends.unwatched().lock();
        if !appends.is_due(now_ns) && !self.has_finished() {
            let retries = appends.full.is_some() || appends.broken.is_some();
            let timeout = if retries { timeout.min(RETRY_PERIOD) } else { timeout };
            self.driving.work.wait_for(&mut appends, timeout);
        }
        appends.is_due(now_ns) || self.has_finished()
    }

    /// Wakes a driver in [`Wal::wait_for_work`]: completions are to be run, or the driver is to end. Passing through the
    /// lock makes sure that it has not yet looked, or is waiting.
    pub fn wake_driver(&self) {
        drop(self.appends.unwatched().lock());
        self.driving.work.notify_one();
    }

    /// Whether there is something to drive; to be asked after letting go of the leader lock.
    fn has_work(&self) -> bool {
        fence(Ordering::SeqCst); // see the head of this file
        self.seems_to_have_work()
            && (self.has_finished()
                || self.appends.unwatched().lock().is_due(|| self.env.clock.monotonic_ns()))
    }

    fn drive_round(&self, leader: &mut Leader) -> bool {
        if !self.seems_to_have_work() {
            return false;
        }
        self.replace_if_broken();
        let wrote = {
            let mut writer = self.writer.lock();
            // What others have written, as a roll does, is told first: a round of a slow codec takes seconds.
            !self.has_finished() && self.write_round(&mut writer, &mut leader.spare)
        };
        let mut completed = false;
        while self.has_finished() {
            let Some(mut finished) = self.take_finished() else { break };
            completed = true;
            leader.note_finished(&finished);
            for completion in finished.completions.drain(..) {
                completion(&finished.result);
            }
            if finished.completions.capacity() <= COMPLETIONS_KEPT_MAX {
                leader.spare = finished.completions;
            }
        }
        wrote || completed
    }

    fn take_finished(&self) -> Option<Finished> {
        let mut finished = self.driving.finished.lock();
        let first = finished.pop_front();
        self.driving.finished_count.store(finished.len(), Ordering::Release);
        first
    }

    /// Leaves the completions of a round to the leader.
    pub(crate) fn finish(&self, round: u64, completions: Vec<Completion>, result: &Result<()>) {
        if !completions.is_empty() {
            assert!(
                result.is_ok() || self.stopped().is_some(),
                "a write that was taken fails only with the log: its region takes no others, and only the end of the server ends that"
            );
            let mut finished = self.driving.finished.lock();
            finished.push_back(Finished { round, completions, result: result.clone() });
            self.driving.finished_count.store(finished.len(), Ordering::Release);
        }
    }

    /// Without a lock. What another thread does at this moment may be missed.
    #[inline]
    fn seems_to_have_work(&self) -> bool {
        self.buffered_bytes() > 0 || self.has_finished()
    }

    #[inline]
    fn has_finished(&self) -> bool {
        self.driving.finished_count.load(Ordering::Acquire) > 0
    }
}
