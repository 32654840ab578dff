//! The background threads of a server: how they start, and how they end.
//!
//! A thread repeats one small function as long as the server serves. It waits inside that function, and never longer
//! than the timeout it is given, so that a missed wake-up delays the end of the server and does not prevent it.
//!
//! All of them are watched. A thread whose end would hurt clients says what it works on ([`halcyon_env::vitals::work`]): those of the
//! WALs, of flushes and of the master's orders.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::vitals::Vitals;
use halcyon_env::{Mutex, lower_priority, raise_priority, spawn_thread};

use crate::lifecycle::Lifecycle;

/// How long a worker waits for work before it looks whether the server still serves.
pub(crate) const IDLE_WAIT: Duration = Duration::from_millis(500);
/// How far flushes, compactions and prefetching lower their priority below calls, in steps of `nice`. Where all want
/// one processor they get two parts in seven of it. Not further, because calls wait for them in the end, when memory or
/// files run short.
const BEHIND_CALLS_STEPS: i32 = 4;

/// Work that one thread repeats.
pub(crate) trait Worker: Send + Sync + 'static {
    /// Waits for work, at most `timeout`, and does one piece of it.
    fn run_once(&self, timeout: Duration);

    /// Ends the wait.
    fn wake(&self);

    /// A thread of it has ended its last piece, because the server does not serve any more.
    fn end(&self) {}
}

/// Which goes first where a thread and the calls want the same processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Before calls, which wait for this thread.
    Raised,
    /// As calls.
    Normal,
    /// Behind calls.
    Lowered,
}

/// See the head of the file.
pub(crate) struct Workers {
    lifecycle: Arc<Lifecycle>,
    vitals: Arc<Vitals>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub(crate) fn new(lifecycle: Arc<Lifecycle>, vitals: Arc<Vitals>) -> Workers {
        Workers { lifecycle, vitals, threads: Mutex::default() }
    }

    /// Starts a thread for a worker.
    pub(crate) fn start(&self, name: &str, priority: Priority, worker: Arc<impl Worker>) -> Result<()> {
        let woken = Arc::clone(&worker);
        self.lifecycle.on_end(move || woken.wake());
        let (lifecycle, ended) = (Arc::clone(&self.lifecycle), Arc::clone(&worker));
        let goes_on = move || {
            let is_serving = lifecycle.is_serving();
            if !is_serving {
                ended.end();
            }
            is_serving
        };
        self.repeat_while(name, priority, goes_on, move || worker.run_once(IDLE_WAIT))
    }

    /// Starts a thread that repeats `run`, which does not wait for long, until the server stops.
    pub(crate) fn repeat(
        &self,
        name: &str,
        priority: Priority,
        run: impl FnMut() + Send + 'static,
    ) -> Result<()> {
        let lifecycle = Arc::clone(&self.lifecycle);
        self.repeat_while(name, priority, move || lifecycle.is_serving(), run)
    }

    /// As [`Workers::repeat`], for as long as `is_needed`.
    pub(crate) fn repeat_while(
        &self,
        name: &str,
        priority: Priority,
        is_needed: impl Fn() -> bool + Send + 'static,
        mut run: impl FnMut() + Send + 'static,
    ) -> Result<()> {
        let vitals = Arc::clone(&self.vitals);
        let thread = spawn_thread(name, move || {
            vitals.watch_thread();
            drop(vitals);
            match priority {
                Priority::Raised => raise_priority(),
                Priority::Normal => {}
                Priority::Lowered => lower_priority(BEHIND_CALLS_STEPS),
            }
            while is_needed() {
                run();
            }
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Waits for the ends of all threads but the calling one. The server must have stopped serving.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let current = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != current) {
            let _ = thread.join(); // a panic was reported when it happened
        }
    }
}
