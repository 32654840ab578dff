//! Where calls run that may wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halcyon_rpc::RpcError;
use tokio::sync::Semaphore;

/// A bounded number of the runtime's blocking threads, and a bounded queue before them.
///
/// *Thread safety*: from any thread with a tokio runtime behind it.
pub(crate) struct DiskPool {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl DiskPool {
    pub(crate) fn new(threads_max: usize, waiting_max: usize) -> DiskPool {
        let permits = Arc::new(Semaphore::new(threads_max.max(1)));
        DiskPool { permits, waiting: AtomicUsize::new(0), waiting_max }
    }

    /// Runs `work` when a thread is free. `CallQueueTooBigException` if too many wait already.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, RpcError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, RpcError> + Send + 'static,
    {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::enter(self)?;
                self.permits.clone().acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        let running = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match running.await {
            Ok(result) => result,
            Err(error) => Err(RpcError::io(format!("the call was lost inside the server: {error}"))),
        }
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn enter(pool: &DiskPool) -> Result<Waiting<'_>, RpcError> {
        let waiting = Waiting(&pool.waiting);
        let before = pool.waiting.fetch_add(1, Ordering::Relaxed);
        if before >= pool.waiting_max {
            return Err(RpcError::call_queue_too_big(format!("{before} calls wait for the disk")));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
