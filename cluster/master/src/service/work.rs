//! Threads for calls that may block: they write a small file or ask a region server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use halcyon_env::{Condvar, Mutex, join_thread, spawn_thread};
use halcyon_rpc::{Outcome, Reply, RpcError};
use tokio::sync::oneshot;

use crate::errors;

type Work = Box<dyn FnOnce() + Send>;

/// Calls that may wait; beyond, clients are asked to come back.
const WAITING_MAX: usize = 1000;

pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    is_ended: bool,
}

impl Workers {
    pub(super) fn start(name: &str, count: usize) -> halcyon_cell::Result<Workers> {
        let queue = Arc::new(Queue::default());
        let mut threads = Vec::new();
        for number in 0..count {
            let queue = queue.clone();
            threads.push(spawn_thread(&format!("{name}-{number}"), move || queue.work())?);
        }
        Ok(Workers { queue, threads })
    }

    pub(super) fn run<F>(&self, work: F) -> Result<Outcome, RpcError>
    where
        F: FnOnce() -> Result<Reply, RpcError> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let work: Work = Box::new(move || drop(answer.send(work())));
        {
            let mut state = self.queue.state.lock();
            if state.waiting.len() >= WAITING_MAX {
                return Err(RpcError::call_queue_too_big("Too many calls wait for the master"));
            }
            state.waiting.push_back(work);
        }
        self.queue.changed.notify_one();
        Ok(Outcome::Later(Box::pin(async move { receiver.await.map_err(|_| errors::stopping())? })))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state.lock().is_ended = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread may itself drop the last handle to the service.
            if thread.thread().id() != std::thread::current().id() {
                let _ = join_thread(thread);
            }
        }
    }
}

impl Queue {
    /// One thread's life. What waits at the end is still done.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            match state.waiting.pop_front() {
                Some(work) => {
                    drop(state);
                    work();
                    state = self.state.lock();
                }
                None if state.is_ended => return,
                None => self.changed.wait(&mut state),
            }
        }
    }
}
