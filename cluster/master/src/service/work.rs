//! Threads for calls that may block: they write a small file or ask a region server.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use halcyon_env::spawn_thread;
use halcyon_rpc::{Outcome, Reply, RpcError};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::errors;

type Work = Box<dyn FnOnce() + Send>;

/// Calls that may wait; beyond, clients are asked to come back.
const WAITING_MAX: usize = 1000;

pub(super) struct Workers {
    /// Taken away to end the threads.
    sender: Option<SyncSender<Work>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(super) fn start(name: &str, count: usize) -> halcyon_cell::Result<Workers> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::new();
        for number in 0..count {
            let receiver = receiver.clone();
            threads.push(spawn_thread(&format!("{name}-{number}"), move || run(&receiver))?);
        }
        Ok(Workers { sender: Some(sender), threads })
    }

    pub(super) fn run<F>(&self, work: F) -> Result<Outcome, RpcError>
    where
        F: FnOnce() -> Result<Reply, RpcError> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let work: Work = Box::new(move || drop(answer.send(work())));
        let sender = self.sender.as_ref().ok_or_else(errors::stopping)?;
        sender
            .try_send(work)
            .map_err(|_| RpcError::call_queue_too_big("Too many calls wait for the master"))?;
        Ok(Outcome::Later(Box::pin(async move { receiver.await.map_err(|_| errors::stopping())? })))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            // A thread may itself drop the last handle to the service.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn run(receiver: &Mutex<Receiver<Work>>) {
    loop {
        let next = receiver.lock().recv();
        match next {
            Ok(work) => work(),
            Err(_) => return,
        }
    }
}
