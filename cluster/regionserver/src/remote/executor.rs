//! Threads for orders of the master, and the queue before them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::{Clock, Condvar, Mutex};

/// More orders than this are refused; the master sends them again.
const JOBS_MAX: usize = 100_000;

struct Waiting<J> {
    due_ns: u64,
    job: J,
}

/// First in, first out among the jobs that are due.
pub(crate) struct JobQueue<J> {
    clock: Arc<dyn Clock>,
    waiting: Mutex<VecDeque<Waiting<J>>>,
    filled: Condvar,
}

impl<J> JobQueue<J> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> JobQueue<J> {
        JobQueue { clock, waiting: Mutex::default(), filled: Condvar::new() }
    }

    /// Whether `count` more jobs have room.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.waiting.lock().len() + count <= JOBS_MAX
    }

    /// An urgent job goes before all others.
    pub(crate) fn push(&self, job: J, urgent: bool) {
        let waiting = Waiting { due_ns: 0, job };
        let mut queue = self.waiting.lock();
        if urgent {
            queue.push_front(waiting);
        } else {
            queue.push_back(waiting);
        }
        self.filled.notify_one();
    }

    pub(crate) fn push_later(&self, job: J, delay: Duration) {
        let due_ns = self.clock.monotonic_ns() + delay.as_nanos() as u64;
        self.waiting.lock().push_back(Waiting { due_ns, job });
        self.filled.notify_one();
    }

    /// The next job that is due; waits for one, at most `timeout`.
    pub(crate) fn pop(&self, timeout: Duration) -> Option<J> {
        let mut queue = self.waiting.lock();
        for is_last in [false, true] {
            let now_ns = self.clock.monotonic_ns();
            if let Some(at) = queue.iter().position(|waiting| waiting.due_ns <= now_ns) {
                return queue.remove(at).map(|waiting| waiting.job);
            }
            if !is_last {
                let due_in = queue.iter().map(|waiting| waiting.due_ns - now_ns).min();
                let wait = due_in.map_or(timeout, |ns| timeout.min(Duration::from_nanos(ns)));
                self.filled.wait_for(&mut queue, wait);
            }
        }
        None
    }

    /// Takes all jobs away that have not begun, whatever their time.
    pub(crate) fn take_all(&self) -> Vec<J> {
        std::mem::take(&mut *self.waiting.lock()).into_iter().map(|waiting| waiting.job).collect()
    }

    pub(crate) fn wake_all(&self) {
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;

    #[test]
    fn urgent_jobs_go_first_and_late_ones_wait_for_their_time() {
        let clock = Arc::new(ManualClock::at(1));
        let queue = JobQueue::new(clock.clone() as Arc<dyn Clock>);
        queue.push_later("late", Duration::from_millis(5));
        queue.push("first", false);
        queue.push("second", false);
        queue.push("meta", true);
        let pop = || queue.pop(Duration::ZERO);
        assert_eq!([pop(), pop(), pop()], [Some("meta"), Some("first"), Some("second")]);
        assert_eq!(pop(), None);
        clock.advance(Duration::from_millis(6));
        assert_eq!(pop(), Some("late"));
        assert!(queue.has_room(JOBS_MAX) && !queue.has_room(JOBS_MAX + 1));
        queue.push_later("later", Duration::from_secs(5));
        queue.push("next", false);
        assert_eq!((queue.take_all(), queue.take_all()), (vec!["later", "next"], vec![]));
    }
}
