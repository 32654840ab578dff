use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_env::{Clock, Stalls, spawn_thread};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

const EVENT_INTERVAL: u32 = 24;

/// Threads that serve connections, each with an event loop of its own.
///
/// A connection stays on the lane it was given, so a request that is answered from memory is received, worked on
/// and answered without waking another thread. A runtime that shares its tasks among threads wakes a second one
/// for most requests of a lightly loaded server, which costs more than a small Get does.
///
/// Lanes end when the last reference goes.
pub struct Lanes {
    handles: Vec<Handle>,
    _stops: Vec<oneshot::Sender<()>>,
    next: AtomicUsize,
}

impl Lanes {
    /// Starts `count` lanes (at least one).
    pub fn start(count: usize) -> io::Result<Arc<Lanes>> {
        let (mut handles, mut stops) = (Vec::new(), Vec::new());
        for lane in 0..count.max(1) {
            // Sockets and timers are looked at after so many turns of connections at the latest.
            let runtime =
                Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            stops.push(stop);
            spawn_thread(&format!("network-{lane}"), move || {
                let _ = runtime.block_on(stopped); // ends when the sender goes
                runtime.shutdown_background();
            })?;
        }
        Ok(Arc::new(Lanes { handles, _stops: stops, next: AtomicUsize::new(0) }))
    }

    /// Looks on every lane, each `period`, how much later than wanted it gets there, and records what is too late: so
    /// long did everything wait that the lane serves.
    pub fn watch(&self, clock: &Arc<dyn Clock>, stalls: &Arc<Stalls>, period: Duration) {
        for (lane, handle) in self.handles.iter().enumerate() {
            let (clock, stalls) = (Arc::clone(clock), Arc::clone(stalls));
            handle.spawn(async move {
                loop {
                    let due_ns = clock.monotonic_ns() + period.as_nanos() as u64;
                    tokio::time::sleep(period).await;
                    let late_ns = clock.monotonic_ns().saturating_sub(due_ns);
                    stalls.took(&*clock, "network-thread", || format!("network-{lane}"), late_ns);
                }
            });
        }
    }

    /// The lane for one more connection: each in turn.
    pub(crate) fn pick(&self) -> &Handle {
        &self.handles[self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}
