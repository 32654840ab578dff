//! The threads that serve connections, and which connection belongs to which.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_env::{Watch, spawn_thread};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// An event loop polls its sockets at least once in so many polls of connections.
const EVENT_INTERVAL: u32 = 8;
/// One poll in so many serves a task that another thread has woken (disk pool, WAL) before tasks that the event loop
/// has queued itself. With Tokio's own number, 31, a few busy connections starve the calls that wait for the disk.
const WOKEN_ELSEWHERE_INTERVAL: u32 = 2;

/// Threads that serve connections, each with an event loop of its own.
///
/// A connection stays on its event loop. A request that is answered from memory is received, executed and answered
/// without waking another thread. A runtime that shares its tasks among threads wakes a second one for most requests of
/// a lightly loaded server, which costs more than a small Get does.
///
/// The event loop is chosen when a connection has named its service. Clients open connections of several kinds side by
/// side, and those of one kind are spread evenly ([`EventLoops::assign`]).
///
/// The threads end when the last reference is dropped.
pub struct EventLoops {
    loops: Vec<EventLoop>,
    _stops: Vec<oneshot::Sender<()>>,
    assigned: Mutex<Assigned>,
}

struct EventLoop {
    handle: Handle,
    calls: Calls,
}

/// Calls that an event loop received, on a cache line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Calls(AtomicU64);

/// Which connections each event loop has.
#[derive(Default)]
struct Assigned {
    /// Open connections of each service, by event loop.
    open: HashMap<&'static str, Vec<usize>>,
    /// The `calls` of each event loop when the last connection was assigned.
    calls_before: Vec<u64>,
    /// Recent calls of each event loop: those before the last connection count half, before the last but one a quarter,
    /// and so on.
    lately: Vec<u64>,
}

/// Keeps a connection assigned to its event loop until dropped.
pub(crate) struct LoopHandle {
    owner: Arc<EventLoops>,
    index: usize,
    service: &'static str,
}

impl EventLoops {
    /// Starts `count` event loops (at least one).
    pub fn start(count: usize) -> io::Result<Arc<EventLoops>> {
        let (mut loops, mut stops) = (Vec::new(), Vec::new());
        for index in 0..count.max(1) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .global_queue_interval(WOKEN_ELSEWHERE_INTERVAL)
                .build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            loops.push(EventLoop { handle: runtime.handle().clone(), calls: Calls::default() });
            stops.push(stop);
            spawn_thread(&format!("network-{index}"), move || {
                halcyon_env::raise_priority();
                let _ = runtime.block_on(stopped); // ends when the sender goes
                runtime.shutdown_background();
            })?;
        }
        Ok(Arc::new(EventLoops { loops, _stops: stops, assigned: Mutex::default() }))
    }

    /// Measures on every event loop, each `period`, how late a timer fires, and records what is too late. All
    /// connections of the event loop waited as long.
    pub fn watch(&self, watch: &Watch, period: Duration) {
        for (index, event_loop) in self.loops.iter().enumerate() {
            let watch = watch.clone();
            event_loop.handle.spawn(async move {
                loop {
                    let due = watch.due_in(period);
                    tokio::time::sleep(period).await;
                    due.came("network-thread", || format!("network-{index}"));
                }
            });
        }
    }

    /// Returns free memory to the allocator on every event loop, each `period`. Frames that an event loop has read are
    /// freed by other threads, and it would keep them until it reads others of their size.
    pub fn give_back_memory(&self, period: Duration) {
        for event_loop in &self.loops {
            event_loop.handle.spawn(async move {
                loop {
                    tokio::time::sleep(period).await;
                    halcyon_allocator::give_back();
                }
            });
        }
    }

    /// The first event loop that does not come round within `timeout`, by its index; `None` if all do.
    pub async fn stuck_loop(&self, timeout: Duration) -> Option<usize> {
        let mut rounds = Vec::with_capacity(self.loops.len());
        for event_loop in &self.loops {
            let (came, round) = oneshot::channel::<()>();
            event_loop.handle.spawn(async move { came.send(()) });
            rounds.push(round);
        }
        let deadline = tokio::time::Instant::now() + timeout;
        for (index, round) in rounds.into_iter().enumerate() {
            if !matches!(tokio::time::timeout_at(deadline, round).await, Ok(Ok(()))) {
                return Some(index);
            }
        }
        None
    }

    /// An event loop for one more connection: one with the fewest open connections of its service, and among these the
    /// one with the fewest recent calls.
    pub(crate) fn assign(self: &Arc<Self>, service: &'static str) -> LoopHandle {
        let mut assigned = self.assigned.lock();
        let Assigned { open, calls_before, lately } = &mut *assigned;
        calls_before.resize(self.loops.len(), 0);
        lately.resize(self.loops.len(), 0);
        for (index, event_loop) in self.loops.iter().enumerate() {
            let calls = event_loop.calls.0.load(Ordering::Relaxed);
            lately[index] = lately[index] / 2 + (calls - calls_before[index]);
            calls_before[index] = calls;
        }
        let open = open.entry(service).or_insert_with(|| vec![0; self.loops.len()]);
        let least = |index: &usize| (open[*index], lately[*index]);
        let index = (0..self.loops.len()).min_by_key(least).expect("at least one event loop was started");
        open[index] += 1;
        LoopHandle { owner: Arc::clone(self), index, service }
    }
}

impl LoopHandle {
    /// The runtime of the event loop.
    pub fn handle(&self) -> &Handle {
        &self.owner.loops[self.index].handle
    }

    /// Counts calls that came on this connection.
    #[inline]
    pub fn note_calls(&self, count: u64) {
        self.owner.loops[self.index].calls.0.fetch_add(count, Ordering::Relaxed);
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        if let Some(open) = self.owner.assigned.lock().open.get_mut(self.service) {
            open[self.index] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn connections_of_a_service_are_spread_whatever_comes_between() {
        let event_loops = EventLoops::start(2).unwrap();
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(event_loops.assign("AdminService"));
            handles.push(event_loops.assign("ClientService"));
        }
        for service in ["AdminService", "ClientService"] {
            let mut on: Vec<usize> = handles
                .iter()
                .filter(|handle| handle.service == service)
                .map(|handle| handle.index)
                .collect();
            on.sort();
            assert_eq!(on, [0, 0, 1, 1], "{service}");
        }
        handles.retain(|handle| handle.index == 0);
        let next = event_loops.assign("ClientService");
        assert_eq!(next.index, 1, "where some have ended");
    }

    /// The event loop has plenty to do of its own while what another thread has woken waits.
    #[test]
    fn who_is_woken_by_another_thread_has_every_other_turn() {
        const WOKEN: usize = 50;
        let event_loops = EventLoops::start(1).unwrap();
        let event_loop = &event_loops.loops[0].handle;
        let (turns, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(WOKEN as u64)));
        let mut wakers = Vec::new();
        for _ in 0..WOKEN {
            let (wake, woken) = oneshot::channel::<()>();
            let left = Arc::clone(&left);
            event_loop.spawn(async move {
                let _ = woken.await;
                left.fetch_sub(1, Ordering::SeqCst);
            });
            wakers.push(wake);
        }
        let (held, hold) = std::sync::mpsc::channel::<()>();
        let (all_wait, holding) = std::sync::mpsc::channel::<()>();
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let (turns, left) = (Arc::clone(&turns), Arc::clone(&left));
                event_loop.spawn(std::future::poll_fn(move |cx| {
                    if left.load(Ordering::SeqCst) == 0 {
                        return Poll::Ready(());
                    }
                    turns.fetch_add(1, Ordering::SeqCst);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }))
            })
            .collect();
        event_loop.spawn(async move {
            all_wait.send(()).unwrap();
            hold.recv().unwrap(); // nobody on the event loop has a turn
        });
        holding.recv().unwrap();
        let before = turns.load(Ordering::SeqCst);
        wakers.into_iter().for_each(|wake| wake.send(()).unwrap());
        held.send(()).unwrap();
        Builder::new_current_thread().build().unwrap().block_on(async {
            for busy in busy {
                busy.await.unwrap();
            }
        });
        let turns = turns.load(Ordering::SeqCst) - before;
        assert!(turns <= 2 * WOKEN as u64, "{WOKEN} that were woken waited for {turns} turns");
    }

    #[test]
    fn a_loop_that_does_not_come_round_is_named() {
        let event_loops = EventLoops::start(2).unwrap();
        let stuck_loop = |timeout_ms: u64| {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(event_loops.stuck_loop(Duration::from_millis(timeout_ms)))
        };
        assert_eq!(stuck_loop(60_000), None);
        let (release, held) = std::sync::mpsc::channel::<()>();
        event_loops.loops[1].handle.spawn(async move { held.recv().unwrap() });
        assert_eq!(stuck_loop(50), Some(1));
        release.send(()).unwrap();
        assert_eq!(stuck_loop(60_000), None);
    }

    #[test]
    fn of_event_loops_with_equally_many_the_idle_one_is_taken() {
        let event_loops = EventLoops::start(3).unwrap();
        let handles: Vec<LoopHandle> = (0..3).map(|_| event_loops.assign("ClientService")).collect();
        for (handle, calls) in handles.iter().zip([500, 20, 100]) {
            handle.note_calls(calls);
        }
        let other = event_loops.assign("MasterService");
        assert_eq!(other.index, handles[1].index);
        let order: Vec<LoopHandle> = (0..3).map(|_| event_loops.assign("ClientService")).collect();
        let expected = [handles[1].index, handles[2].index, handles[0].index];
        assert_eq!(order.iter().map(|handle| handle.index).collect::<Vec<_>>(), expected);
    }
}
