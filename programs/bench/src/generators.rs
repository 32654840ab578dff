//! Threads that make calls, each with an event loop and connections of its own: a call is made, sent, received and timed
//! without waking another thread. A loop that shares its tasks among threads added up to ten milliseconds of its own to
//! the latencies of a machine whose processors are busy.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Turns of tasks after which sockets and timers are looked at, and new tasks from elsewhere: few, so that what has
/// come is seen soon.
const EVENT_INTERVAL: u32 = 8;
const NEW_TASKS_INTERVAL: u32 = 4;

/// Ends with the last reference.
pub struct Generators {
    handles: Vec<Handle>,
    _stops: Vec<oneshot::Sender<()>>,
}

impl Generators {
    /// Starts `count` threads (at least one).
    pub fn start(count: usize) -> io::Result<Generators> {
        let (mut handles, mut stops) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .global_queue_interval(NEW_TASKS_INTERVAL)
                .build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            stops.push(stop);
            thread::Builder::new().name(format!("generator-{number}")).spawn(move || {
                let _ = runtime.block_on(stopped); // ends when the sender goes
                runtime.shutdown_background();
            })?;
        }
        Ok(Generators { handles, _stops: stops })
    }

    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// The event loop that a connection belongs to.
    pub fn of_connection(&self, connection: usize) -> &Handle {
        &self.handles[connection % self.handles.len()]
    }
}
