//! A thread of the master that works now and then, until the master stops.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::{Condvar, Mutex, join_thread, spawn_thread};

/// The thread. It is stopped when this is dropped.
///
/// *Thread safety*: all methods from any thread, also from the chore's own.
pub(crate) struct Chore {
    pauses: Arc<Pauses>,
    /// `None`: it has been stopped, or there never was one.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Where the thread waits for its next turn.
#[derive(Default)]
pub(crate) struct Pauses {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    /// Since the last pause.
    is_woken: bool,
}

impl Chore {
    /// `work` returns soon after a pause that says so.
    pub(crate) fn start(
        name: &str,
        pauses: Arc<Pauses>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Chore> {
        let thread = Mutex::new(Some(spawn_thread(name, work)?));
        Ok(Chore { pauses, thread })
    }

    /// A chore that is turned off.
    pub(crate) fn none() -> Chore {
        Chore { pauses: Arc::default(), thread: Mutex::new(None) }
    }

    /// Waits for the end of the thread, unless that is the caller. Idempotent.
    pub(crate) fn stop(&self) {
        self.pauses.state.lock().is_stopping = true;
        self.pauses.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = join_thread(thread);
        }
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Pauses {
    /// Waits for this time; without one, and before it is over, until it is woken. What was woken since the last pause does not
    /// wait. False once the chore is stopped.
    #[must_use]
    pub(crate) fn pause(&self, time: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if !state.is_stopping && !state.is_woken {
            match time {
                Some(time) => _ = self.changed.wait_for(&mut state, time),
                None => self.changed.wait(&mut state),
            }
        }
        state.is_woken = false;
        !state.is_stopping
    }

    /// Ends the pause, or leaves out the next one.
    pub(crate) fn wake(&self) {
        self.state.lock().is_woken = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_chore_is_woken_and_stopped() {
        let (pauses, turns) = (Arc::new(Pauses::default()), Arc::new(AtomicUsize::new(0)));
        pauses.wake(); // before its first pause
        let chore = Chore::start("a-chore", pauses.clone(), {
            let (pauses, turns) = (pauses.clone(), turns.clone());
            move || {
                while pauses.pause((turns.load(Ordering::SeqCst) == 0).then_some(LONG)) {
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let chore = chore.unwrap();
        let has_turned = |count| {
            while turns.load(Ordering::SeqCst) < count {
                std::thread::yield_now();
            }
        };
        has_turned(1);
        pauses.wake();
        has_turned(2);
        chore.stop();
        chore.stop();
        assert!(!pauses.pause(None) && !pauses.pause(Some(LONG)), "nothing waits any more");
        assert_eq!(turns.load(Ordering::SeqCst), 2);
        Chore::none().stop();
    }

    #[test]
    fn a_chore_may_stop_itself() {
        let (own, has_stopped) = (Arc::new(Mutex::new(None::<Arc<Chore>>)), Arc::new(AtomicUsize::new(0)));
        let pauses = Arc::new(Pauses::default());
        let chore = Chore::start("a-chore", pauses.clone(), {
            let (own, has_stopped) = (own.clone(), has_stopped.clone());
            move || {
                while pauses.pause(Some(LONG)) {
                    let chore = own.lock().take();
                    chore.unwrap().stop();
                    has_stopped.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let chore = Arc::new(chore.unwrap());
        *own.lock() = Some(chore.clone());
        chore.pauses.wake();
        while has_stopped.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        chore.stop();
        assert_eq!(has_stopped.load(Ordering::SeqCst), 1);
    }
}
