use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use halcyon_env::Clock;
use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

/// The timer fires at multiples of this: who is due between two of them goes with the others. To be woken is what costs
/// most at some ten thousand operations a second, above all in a virtual machine.
const GRAIN_NS: u64 = 100_000;

/// When the operations of one client should begin: its share of a rate, evenly spread.
pub struct Pace {
    pacer: Arc<Shared>,
    number: usize,
    next_ns: f64,
    period_ns: f64,
}

impl Pace {
    /// Client `number` of those of `pacer`, which together make `rate` operations a second from `start_ns` on.
    pub fn new(pacer: &Pacer, rate: f64, number: usize, start_ns: u64) -> Pace {
        let next_ns = start_ns as f64 + number as f64 * 1e9 / rate;
        let period_ns = pacer.shared.clients as f64 * 1e9 / rate;
        Pace { pacer: Arc::clone(&pacer.shared), number, next_ns, period_ns }
    }

    /// The moment at which the next operation should begin; each call is one operation.
    fn next(&mut self) -> u64 {
        let next = self.next_ns;
        self.next_ns += self.period_ns;
        next as u64
    }

    /// Waits for the moment at which the next operation should begin, and tells it. What is late already does not wait.
    pub async fn turn(&mut self) -> io::Result<u64> {
        let due_ns = self.next();
        if due_ns > self.pacer.clock.monotonic_ns() {
            self.pacer.wait(self.number, due_ns).await?;
        }
        Ok(due_ns)
    }
}

/// Wakes the clients of a run, each at its time, until it is dropped.
///
/// One timer for all: those of the runtime are no finer than a millisecond, and one for each client costs two system
/// calls an operation. Whoever is due when it fires goes at once.
///
/// # Thread safety
/// Clients may run on several threads; a lock is held for a step of the heap and, if a client comes to be the first, for
/// setting the timer.
pub struct Pacer {
    shared: Arc<Shared>,
    waking: JoinHandle<()>,
}

struct Shared {
    clients: usize,
    clock: Arc<dyn Clock>,
    timer: AsyncFd<OwnedFd>,
    turns: Mutex<Turns>,
}

struct Turns {
    /// Moment and client, the earliest on top.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    sleepers: Vec<Sleeper>,
    /// The timer does not work any more, and why.
    failed: Option<io::ErrorKind>,
}

enum Sleeper {
    Awake,
    Waiting(Waker),
}

impl Sleeper {
    fn wake(&mut self) {
        if let Sleeper::Waiting(waker) = std::mem::replace(self, Sleeper::Awake) {
            waker.wake();
        }
    }
}

impl Pacer {
    /// For `clients` of them, numbered from 0. Must be called upon a runtime, which carries the task that wakes them.
    pub fn start(clients: usize, clock: Arc<dyn Clock>) -> io::Result<Pacer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // its successor is unsafe code, for descriptors that somebody else may close; nobody else has this one
        #[allow(deprecated)]
        let timer = AsyncFd::new(fd)?;
        let sleepers = (0..clients).map(|_| Sleeper::Awake).collect();
        let turns = Turns { due: BinaryHeap::with_capacity(clients), sleepers, failed: None };
        let shared = Arc::new(Shared { clients, clock, timer, turns: Mutex::new(turns) });
        let waker = Arc::clone(&shared);
        Ok(Pacer { shared, waking: tokio::spawn(async move { waker.wake_all().await }) })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.waking.abort();
    }
}

impl Shared {
    async fn wait(&self, number: usize, due_ns: u64) -> io::Result<()> {
        let mut is_entered = false;
        poll_fn(|context| {
            let mut turns = self.turns.lock();
            if let Some(kind) = turns.failed {
                return Poll::Ready(Err(kind.into()));
            }
            if is_entered && matches!(turns.sleepers[number], Sleeper::Awake) {
                return Poll::Ready(Ok(()));
            }
            turns.sleepers[number] = Sleeper::Waiting(context.waker().clone());
            if !is_entered {
                is_entered = true;
                let is_first = turns.due.peek().is_none_or(|Reverse((first_ns, _))| due_ns < *first_ns);
                turns.due.push(Reverse((due_ns, number)));
                if is_first && let Err(error) = self.set_timer(due_ns) {
                    return Poll::Ready(Err(error));
                }
            }
            Poll::Pending
        })
        .await
    }

    async fn wake_all(&self) {
        loop {
            let woken = match self.timer.readable().await {
                Ok(mut ready) => {
                    // What it counts is not read: setting it begins anew, and each time it fires is told of.
                    ready.clear_ready();
                    self.wake_due()
                }
                Err(error) => Err(error),
            };
            if let Err(error) = woken {
                let mut turns = self.turns.lock();
                turns.failed = Some(error.kind());
                turns.sleepers.iter_mut().for_each(Sleeper::wake);
                return;
            }
        }
    }

    /// Wakes who is due, and sets the timer for who is next.
    fn wake_due(&self) -> io::Result<()> {
        let mut turns = self.turns.lock();
        let now_ns = self.clock.monotonic_ns();
        while let Some(&Reverse((due_ns, number))) = turns.due.peek() {
            if due_ns > now_ns {
                return self.set_timer(due_ns);
            }
            turns.due.pop();
            turns.sleepers[number].wake();
        }
        Ok(())
    }

    /// Fires at `due_ns` of the clock or up to [`GRAIN_NS`] later; soon, if that is over.
    fn set_timer(&self, due_ns: u64) -> io::Result<()> {
        let due_ns = due_ns.next_multiple_of(GRAIN_NS);
        let wait = Duration::from_nanos(due_ns.saturating_sub(self.clock.monotonic_ns()).max(1)); // 0 would stop it
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let fires = Itimerspec { it_interval: interval, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &fires)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_env::Env;

    #[tokio::test]
    async fn clients_share_a_rate() {
        let pacer = Pacer::start(2, Env::real().clock).unwrap();
        let mut first = Pace::new(&pacer, 1_000.0, 0, 5);
        let mut second = Pace::new(&pacer, 1_000.0, 1, 5);
        let both: Vec<u64> = (0..3).flat_map(|_| [first.next(), second.next()]).collect();
        assert_eq!(both, [5, 1_000_005, 2_000_005, 3_000_005, 4_000_005, 5_000_005]);
    }

    /// Each has all its turns, none before its time, whoever comes to be the first meanwhile.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_goes_early_or_never() {
        let clock = Env::real().clock;
        let pacer = Pacer::start(5, Arc::clone(&clock)).unwrap();
        let start_ns = clock.monotonic_ns() + 1_000_000;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..5 {
            // the last ones are much slower
            let rate = if number < 3 { 25_000.0 } else { 1_000.0 };
            let mut pace = Pace::new(&pacer, rate, number, start_ns);
            let clock = Arc::clone(&clock);
            tasks.spawn(async move {
                let mut last_ns = 0;
                for _ in 0..20 {
                    let due_ns = pace.turn().await.unwrap();
                    assert!(clock.monotonic_ns() >= due_ns && due_ns > last_ns);
                    last_ns = due_ns;
                }
            });
        }
        let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("all have their turns");
    }
}
