//! How region servers are reached, and where tasks run: a runtime and its connections, or what a simulation gives.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::ClientError;
use halcyon_env::{Clock, Condvar, Mutex, spawn_thread};
use halcyon_rpc::CellBlock;
use halcyon_schema::ServerName;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A service of a region server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Admin,
    Client,
}

/// Calls region servers in another way than over connections: for the simulation of a cluster.
pub trait Network: Send + Sync {
    /// The message of the answer and its cells. *Blocking*, for `timeout` at most.
    fn call(
        &self,
        server: &ServerName,
        target: Target,
        method: &str,
        param: Bytes,
        cells: Option<CellBlock>,
        timeout: Duration,
    ) -> Result<(Bytes, Vec<Cell>), ClientError>;
}

/// *Thread safety*: clones are one.
#[derive(Clone)]
pub(crate) enum Way {
    Runtime(Handle),
    /// Tasks are threads, which may block.
    Threads(Arc<dyn Network>, Arc<dyn Clock>),
}

impl Way {
    /// For tasks.
    pub(crate) async fn sleep(&self, time: Duration) {
        match self {
            Way::Runtime(_) => tokio::time::sleep(time).await,
            Way::Threads(_, clock) => clock.sleep(time),
        }
    }

    pub(crate) fn spawn(&self, name: &str, task: impl Future<Output = ()> + Send + 'static) -> Task {
        match self {
            Way::Runtime(runtime) => Task::Spawned(runtime.spawn(task).abort_handle()),
            Way::Threads(..) => {
                let wakes = Arc::new(Wakes::default());
                let waited_for = wakes.clone();
                spawn_thread(name, move || drive(task, &waited_for)).expect("there are threads");
                Task::Thread(wakes)
            }
        }
    }
}

/// A task under way.
pub(crate) enum Task {
    Spawned(AbortHandle),
    Thread(Arc<Wakes>),
}

impl Task {
    /// Ends it at the next point where it waits.
    pub(crate) fn abort(&self) {
        match self {
            Task::Spawned(task) => task.abort(),
            Task::Thread(wakes) => {
                wakes.is_aborted.store(true, Ordering::Release);
                wakes.wake_up();
            }
        }
    }
}

/// Wakes the thread of a task.
#[derive(Default)]
pub(crate) struct Wakes {
    is_woken: Mutex<bool>,
    changed: Condvar,
    is_aborted: AtomicBool,
}

impl Wakes {
    fn wake_up(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_woken = self.is_woken.lock();
        while !std::mem::take(&mut *is_woken) {
            self.changed.wait(&mut is_woken);
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_up();
    }
}

fn drive(task: impl Future<Output = ()>, wakes: &Arc<Wakes>) {
    let (waker, mut task) = (Waker::from(wakes.clone()), pin!(task));
    let mut context = Context::from_waker(&waker);
    while !wakes.is_aborted.load(Ordering::Acquire)
        && let Poll::Pending = task.as_mut().poll(&mut context)
    {
        wakes.wait();
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::SystemClock;

    use super::*;
    use crate::channel::channel;

    struct Nobody;

    impl Network for Nobody {
        fn call(
            &self,
            _: &ServerName,
            _: Target,
            _: &str,
            _: Bytes,
            _: Option<CellBlock>,
            _: Duration,
        ) -> Result<(Bytes, Vec<Cell>), ClientError> {
            Err(ClientError::Closed)
        }
    }

    #[test]
    fn tasks_run_on_threads_where_no_runtime_is() {
        let way = Way::Threads(Arc::new(Nobody), Arc::new(SystemClock::new()));
        let (numbers, mut queue) = tokio::sync::mpsc::channel(10);
        let (sender, receiver) = channel();
        let task = way.spawn("task", {
            let way = way.clone();
            async move {
                while let Some(number) = queue.recv().await {
                    way.sleep(Duration::from_millis(1)).await;
                    let _ = sender.send(2 * number);
                }
            }
        });
        for number in 0..5 {
            numbers.try_send(number).unwrap();
            assert_eq!(receiver.recv(), Ok(2 * number));
        }
        task.abort();
        assert!(receiver.recv().is_err(), "what the task had is dropped with it");
        assert!(numbers.is_closed());
    }
}
