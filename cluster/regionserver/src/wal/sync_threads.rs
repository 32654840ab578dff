//! Threads that wait for syncs of WAL files on other machines, so that the WAL thread can stop waiting for one that is
//! late (`hedge.rs` of `halcyon-wal`).

use std::collections::VecDeque;
use std::sync::Arc;

use halcyon_cell::Result;
use halcyon_env::{Condvar, Mutex, spawn_thread};
use halcyon_wal::{SyncJob, SyncThreads};

/// Both logs have one sync under way, or two if one is late. The others are for files that never answer, until the file
/// system gives them up.
const THREADS_COUNT: usize = 6;

/// The threads end with this.
pub(crate) struct SyncPool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Never more than idle threads.
    jobs: VecDeque<SyncJob>,
    idle_count: usize,
    is_closed: bool,
}

impl SyncPool {
    pub(crate) fn start() -> Result<Arc<SyncPool>> {
        let pool = SyncPool { shared: Arc::default() };
        for number in 0..THREADS_COUNT {
            let shared = pool.shared.clone();
            spawn_thread(&format!("wal-sync-{number}"), move || shared.work_until_closed())?;
        }
        Ok(Arc::new(pool))
    }
}

impl SyncThreads for SyncPool {
    fn run(&self, job: SyncJob) -> std::result::Result<(), SyncJob> {
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= state.idle_count {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl Drop for SyncPool {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn work_until_closed(&self) {
        while let Some(job) = self.next_job() {
            job();
        }
    }

    fn next_job(&self) -> Option<SyncJob> {
        let mut state = self.state.lock();
        state.idle_count += 1;
        while state.jobs.is_empty() && !state.is_closed {
            self.work.wait(&mut state);
        }
        state.idle_count -= 1;
        state.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_job_without_an_idle_thread_is_given_back() {
        let pool = SyncPool::start().unwrap();
        let (told, ran) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let mut started = 0;
        while started < THREADS_COUNT {
            let (told, released) = (told.clone(), released.clone());
            let job = move || {
                told.send(()).expect("the test waits");
                let _ = released.lock().recv();
            };
            match pool.run(Box::new(job)) {
                Ok(()) => started += 1,
                Err(_) => std::thread::yield_now(), // its thread has not begun to wait
            }
        }
        (0..THREADS_COUNT).for_each(|_| ran.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(pool.run(Box::new(|| unreachable!("all threads are busy"))).is_err());
        drop(release);
        while pool
            .run(Box::new({
                let told = told.clone();
                move || told.send(()).unwrap()
            }))
            .is_err()
        {
            std::thread::yield_now();
        }
        ran.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
