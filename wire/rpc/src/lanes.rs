use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_env::{Watch, spawn_thread};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// After so many turns of connections a lane looks for new input at the latest.
const EVENT_INTERVAL: u32 = 8;
/// One turn in so many goes to who was woken by another thread (a disk, the log), before those whose turn the lane itself
/// has noted. Tokio's own number, 31, lets a few connections with much to do starve whoever waits for a disk.
const WOKEN_ELSEWHERE_INTERVAL: u32 = 2;

/// Threads that serve connections, each with an event loop of its own.
///
/// A connection stays on the lane it was given, so a request that is answered from memory is received, worked on
/// and answered without waking another thread. A runtime that shares its tasks among threads wakes a second one
/// for most requests of a lightly loaded server, which costs more than a small Get does.
///
/// Which lane that is, is decided when a connection has said which service it wants: clients open connections of
/// several kinds side by side, and those of one kind are spread evenly ([`Lanes::deal`]).
///
/// Lanes end when the last reference goes.
pub struct Lanes {
    lanes: Vec<Lane>,
    _stops: Vec<oneshot::Sender<()>>,
    dealt: Mutex<Dealt>,
}

struct Lane {
    handle: Handle,
    calls: Calls,
}

/// Calls that a lane was given, on a cache line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Calls(AtomicU64);

/// Who was given which lane.
#[derive(Default)]
struct Dealt {
    /// Open connections of each service, lane by lane.
    open: HashMap<&'static str, Vec<usize>>,
    /// What each lane's `calls` were when the last connection was dealt.
    calls_before: Vec<u64>,
    /// Calls of each lane; those before the last connection count half, before the last but one a quarter ...
    lately: Vec<u64>,
}

/// A connection's place on a lane, until dropped.
pub(crate) struct Seat {
    lanes: Arc<Lanes>,
    lane: usize,
    service: &'static str,
}

impl Lanes {
    /// Starts `count` lanes (at least one).
    pub fn start(count: usize) -> io::Result<Arc<Lanes>> {
        let (mut lanes, mut stops) = (Vec::new(), Vec::new());
        for lane in 0..count.max(1) {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .global_queue_interval(WOKEN_ELSEWHERE_INTERVAL)
                .build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            lanes.push(Lane { handle: runtime.handle().clone(), calls: Calls::default() });
            stops.push(stop);
            spawn_thread(&format!("network-{lane}"), move || {
                halcyon_env::go_before();
                let _ = runtime.block_on(stopped); // ends when the sender goes
                runtime.shutdown_background();
            })?;
        }
        Ok(Arc::new(Lanes { lanes, _stops: stops, dealt: Mutex::default() }))
    }

    /// Looks on every lane, each `period`, how much later than wanted it gets there, and records what is too late: so
    /// long did everything wait that the lane serves.
    pub fn watch(&self, watch: &Watch, period: Duration) {
        for (number, lane) in self.lanes.iter().enumerate() {
            let watch = watch.clone();
            lane.handle.spawn(async move {
                loop {
                    let due = watch.due_in(period);
                    tokio::time::sleep(period).await;
                    due.came("network-thread", || format!("network-{number}"));
                }
            });
        }
    }

    /// Gives memory back on every lane, each `period`: frames that a lane has read are freed by other threads, and it
    /// would keep them until it reads others of their size.
    pub fn give_back_memory(&self, period: Duration) {
        for lane in &self.lanes {
            lane.handle.spawn(async move {
                loop {
                    tokio::time::sleep(period).await;
                    halcyon_allocator::give_back();
                }
            });
        }
    }

    /// A lane for one more connection: one with the fewest open connections of its service, of these the one that has
    /// had the fewest calls lately.
    pub(crate) fn deal(self: &Arc<Self>, service: &'static str) -> Seat {
        let mut dealt = self.dealt.lock();
        let Dealt { open, calls_before, lately } = &mut *dealt;
        calls_before.resize(self.lanes.len(), 0);
        lately.resize(self.lanes.len(), 0);
        for (number, lane) in self.lanes.iter().enumerate() {
            let calls = lane.calls.0.load(Ordering::Relaxed);
            lately[number] = lately[number] / 2 + (calls - calls_before[number]);
            calls_before[number] = calls;
        }
        let open = open.entry(service).or_insert_with(|| vec![0; self.lanes.len()]);
        let least = |lane: &usize| (open[*lane], lately[*lane]);
        let lane = (0..self.lanes.len()).min_by_key(least).expect("there is a lane");
        open[lane] += 1;
        Seat { lanes: Arc::clone(self), lane, service }
    }
}

impl Seat {
    /// The lane's event loop.
    pub fn handle(&self) -> &Handle {
        &self.lanes.lanes[self.lane].handle
    }

    /// So many calls came on this connection.
    #[inline]
    pub fn note_calls(&self, count: u64) {
        self.lanes.lanes[self.lane].calls.0.fetch_add(count, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(open) = self.lanes.dealt.lock().open.get_mut(self.service) {
            open[self.lane] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn connections_of_a_service_are_spread_whatever_comes_between() {
        let lanes = Lanes::start(2).unwrap();
        let mut seats = Vec::new();
        for _ in 0..4 {
            seats.push(lanes.deal("AdminService"));
            seats.push(lanes.deal("ClientService"));
        }
        for service in ["AdminService", "ClientService"] {
            let mut on: Vec<usize> =
                seats.iter().filter(|seat| seat.service == service).map(|seat| seat.lane).collect();
            on.sort();
            assert_eq!(on, [0, 0, 1, 1], "{service}");
        }
        seats.retain(|seat| seat.lane == 0);
        let next = lanes.deal("ClientService");
        assert_eq!(next.lane, 1, "where some have ended");
    }

    /// The lane has plenty to do of its own while what another thread has woken waits.
    #[test]
    fn who_is_woken_by_another_thread_has_every_other_turn() {
        const WOKEN: usize = 50;
        let lanes = Lanes::start(1).unwrap();
        let lane = &lanes.lanes[0].handle;
        let (turns, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(WOKEN as u64)));
        let mut wakers = Vec::new();
        for _ in 0..WOKEN {
            let (wake, woken) = oneshot::channel::<()>();
            let left = Arc::clone(&left);
            lane.spawn(async move {
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
                lane.spawn(std::future::poll_fn(move |cx| {
                    if left.load(Ordering::SeqCst) == 0 {
                        return Poll::Ready(());
                    }
                    turns.fetch_add(1, Ordering::SeqCst);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }))
            })
            .collect();
        lane.spawn(async move {
            all_wait.send(()).unwrap();
            hold.recv().unwrap(); // nobody on the lane has a turn
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
    fn of_lanes_with_equally_many_the_idle_one_is_taken() {
        let lanes = Lanes::start(3).unwrap();
        let seats: Vec<Seat> = (0..3).map(|_| lanes.deal("ClientService")).collect();
        for (seat, calls) in seats.iter().zip([500, 20, 100]) {
            seat.note_calls(calls);
        }
        let other = lanes.deal("MasterService");
        assert_eq!(other.lane, seats[1].lane);
        let order: Vec<Seat> = (0..3).map(|_| lanes.deal("ClientService")).collect();
        let expected = [seats[1].lane, seats[2].lane, seats[0].lane];
        assert_eq!(order.iter().map(|seat| seat.lane).collect::<Vec<_>>(), expected);
    }
}
