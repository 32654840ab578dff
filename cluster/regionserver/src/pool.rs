//! Where calls run that may wait for the disk.
//!
//! A bounded number of threads, and a bounded queue before them for each class of calls. Every class has some
//! threads that no other class may take, and all of them share the rest; who waits is served class by class in
//! turn. So a scan waits behind ten thousand scans, and a Get beside them does not. HBase gives each class a queue
//! and handlers of its own (`RWQueueRpcExecutor`); with both ratios set the threads are divided here as they are
//! there.
//!
//! Reads and scans also announce how large their answers may become: those that are being made at the same time
//! have a limit, which each of the two classes has for itself.

use std::collections::VecDeque;
use std::sync::Arc;

use halcyon_rpc::{CallClass, RpcError};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Limits of a pool. Plain data; arrays are in the order of [`CallClass::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    /// Calls that run at the same time.
    pub threads_max: usize,
    /// Of them, those that only calls of a class may take.
    pub reserved: [usize; CallClass::COUNT],
    /// Calls of one class that wait for a thread.
    pub waiting_max: usize,
    /// Bytes of answers that calls of a class are making.
    pub answer_bytes_max: [u64; CallClass::COUNT],
}

impl PoolLimits {
    /// `threads` for all classes but meta's, which has `meta_threads` besides. `read_share`: part of the threads that
    /// is for reads and scans alone, the rest being for writes; 0: divided as they come, but for an eighth each.
    /// `scan_share`: part of the former that is for scans alone, in the same way.
    pub fn new(
        threads: usize,
        meta_threads: usize,
        waiting_max: usize,
        read_share: f64,
        scan_share: f64,
    ) -> PoolLimits {
        let threads = threads.max(3);
        let some = (threads / 8).max(1);
        let part = |whole: usize, share: f64| {
            let part = (whole as f64 * share).round() as usize;
            part.clamp(some, whole.saturating_sub(some).max(some))
        };
        let mut reserved = [0; CallClass::COUNT];
        reserved[CallClass::Meta.index()] = meta_threads.max(1);
        for class in [CallClass::Read, CallClass::Scan, CallClass::Write] {
            reserved[class.index()] = some;
        }
        if read_share > 0.0 {
            let reading = part(threads, read_share).max(2 * some).min(threads - some);
            reserved[CallClass::Write.index()] = threads - reading;
            if scan_share > 0.0 {
                let scanning = part(reading, scan_share);
                reserved[CallClass::Scan.index()] = scanning;
                reserved[CallClass::Read.index()] = reading - scanning;
            }
        }
        let threads_max = threads + meta_threads.max(1);
        assert!(reserved.iter().sum::<usize>() <= threads_max, "{reserved:?} of {threads_max} threads");
        PoolLimits { threads_max, reserved, waiting_max, answer_bytes_max: [u64::MAX; CallClass::COUNT] }
    }
}

/// See the head of the file. *Thread safety*: from any thread; a short lock.
pub(crate) struct DiskPool(Arc<Shared>);

struct Shared {
    limits: PoolLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: [usize; CallClass::COUNT],
    answer_bytes: [u64; CallClass::COUNT],
    waiting: [VecDeque<Waiting>; CallClass::COUNT],
    /// The class whose turn is next.
    turn: usize,
}

struct Waiting {
    answer_bytes: u64,
    start: oneshot::Sender<Permit>,
}

/// A place among those that run, until dropped.
pub(crate) struct Permit {
    /// `None` once the place was given back.
    shared: Option<Arc<Shared>>,
    class: CallClass,
    answer_bytes: u64,
}

impl DiskPool {
    pub(crate) fn new(limits: PoolLimits) -> DiskPool {
        DiskPool(Arc::new(Shared { limits, state: Mutex::default() }))
    }

    /// Waits for a place; `CallQueueTooBigException` if too many of the class wait already, unless the call has begun
    /// and `must` run. `answer_bytes`: how large its answer may become.
    pub(crate) async fn enter(
        &self,
        class: CallClass,
        answer_bytes: u64,
        must: bool,
    ) -> Result<Permit, RpcError> {
        let started = {
            let mut state = self.0.state.lock();
            let waiting = state.waiting[class.index()].len();
            if waiting == 0 && self.0.has_room(&state, class, answer_bytes) {
                return Ok(self.0.start(&mut state, class, answer_bytes));
            }
            if waiting >= self.0.limits.waiting_max && !must {
                let text = format!("{waiting} calls ({}) wait for the disk", class.name());
                return Err(RpcError::call_queue_too_big(text));
            }
            let (start, started) = oneshot::channel();
            state.waiting[class.index()].push_back(Waiting { answer_bytes, start });
            started
        };
        started.await.map_err(|_| RpcError::io("the call was lost inside the server: the pool is gone"))
    }

    /// Runs `work` on a thread that may block.
    pub(crate) async fn run<T, F>(&self, permit: Permit, work: F) -> Result<T, RpcError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, RpcError> + Send + 'static,
    {
        let running = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match running.await {
            Ok(result) => result,
            Err(error) => Err(RpcError::io(format!("the call was lost inside the server: {error}"))),
        }
    }

    /// Calls of a class that wait for a thread.
    pub(crate) fn waiting_count(&self, class: CallClass) -> usize {
        self.0.state.lock().waiting[class.index()].len()
    }

    /// Bytes that the answers may have that are being made.
    pub(crate) fn answer_bytes(&self) -> u64 {
        self.0.state.lock().answer_bytes.iter().sum()
    }
}

impl Shared {
    fn has_room(&self, state: &State, class: CallClass, answer_bytes: u64) -> bool {
        let at = class.index();
        let limits = &self.limits;
        let making = state.answer_bytes[at];
        if answer_bytes > 0 && making > 0 && making + answer_bytes > limits.answer_bytes_max[at] {
            return false;
        }
        if state.running[at] < limits.reserved[at] {
            return true;
        }
        let kept = |other: usize| limits.reserved[other].saturating_sub(state.running[other]);
        let kept: usize = (0..CallClass::COUNT).filter(|&other| other != at).map(kept).sum();
        state.running.iter().sum::<usize>() + kept < limits.threads_max
    }

    fn start(self: &Arc<Self>, state: &mut State, class: CallClass, answer_bytes: u64) -> Permit {
        state.running[class.index()] += 1;
        state.answer_bytes[class.index()] += answer_bytes;
        Permit { shared: Some(self.clone()), class, answer_bytes }
    }

    fn end(state: &mut State, class: CallClass, answer_bytes: u64) {
        state.running[class.index()] -= 1;
        state.answer_bytes[class.index()] -= answer_bytes;
    }

    /// Starts whoever waits and has room now, one of each class in turn.
    fn start_waiting(self: &Arc<Self>, state: &mut State) {
        let mut passed = 0;
        while passed < CallClass::COUNT {
            let class = CallClass::ALL[state.turn];
            state.turn = (state.turn + 1) % CallClass::COUNT;
            passed += 1;
            let Some(first) = state.waiting[class.index()].front() else { continue };
            if !self.has_room(state, class, first.answer_bytes) {
                continue;
            }
            let Waiting { answer_bytes, start } =
                state.waiting[class.index()].pop_front().expect("it was looked at");
            let permit = self.start(state, class, answer_bytes);
            if let Err(mut unwanted) = start.send(permit) {
                unwanted.shared = None; // who waited is gone; under the lock already
                Shared::end(state, class, answer_bytes);
            }
            passed = 0;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let mut state = shared.state.lock();
            Shared::end(&mut state, self.class, self.answer_bytes);
            shared.start_waiting(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn enter_now(pool: &DiskPool, class: CallClass) -> Option<Permit> {
        match poll(pin!(pool.enter(class, 0, false))) {
            Poll::Ready(permit) => permit.ok(),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_flood_of_one_class_leaves_threads_to_the_others() {
        let pool = DiskPool::new(PoolLimits::new(16, 2, 4096, 0.0, 0.0));
        let mut scans = Vec::new();
        while let Some(permit) = enter_now(&pool, CallClass::Scan) {
            scans.push(permit);
        }
        assert_eq!(scans.len(), 12, "two are the reads', two the writes'");
        for class in [CallClass::Read, CallClass::Write, CallClass::Meta] {
            let both = [enter_now(&pool, class), enter_now(&pool, class)];
            assert!(both.iter().all(Option::is_some), "{class:?}");
            assert!(enter_now(&pool, class).is_none());
        }
        drop(scans);
        assert!(enter_now(&pool, CallClass::Read).is_some());
    }

    #[test]
    fn ratios_divide_the_threads() {
        let limits = PoolLimits::new(16, 2, 4096, 0.5, 0.25);
        assert_eq!(limits.reserved, [2, 6, 2, 8, 0]);
        assert_eq!(PoolLimits::new(16, 2, 4096, 0.75, 0.0).reserved, [2, 2, 2, 4, 0]);
        for threads in 0..40 {
            for shares in [(0.0, 0.0), (0.01, 0.01), (0.5, 0.5), (1.0, 0.0), (1.0, 1.0), (0.3, 1.0)] {
                let limits = PoolLimits::new(threads, 1, 1, shares.0, shares.1);
                let some = CallClass::ALL.iter().filter(|class| limits.reserved[class.index()] > 0).count();
                assert_eq!(some, 4, "{threads} {shares:?}: {limits:?}");
            }
        }
    }

    #[test]
    fn classes_take_turns_and_a_class_keeps_its_order() {
        let pool = DiskPool::new(PoolLimits::new(3, 1, 3, 1.0, 0.5));
        let (scan, read) = (enter_now(&pool, CallClass::Scan), enter_now(&pool, CallClass::Read));
        assert!(scan.is_some() && read.is_some());
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(pool.enter(CallClass::Scan, 0, false))).collect();
        for entering in &mut waiting {
            assert!(poll(entering.as_mut()).is_pending());
        }
        assert_eq!(pool.waiting_count(CallClass::Scan), 3);
        match poll(pin!(pool.enter(CallClass::Scan, 0, false))) {
            Poll::Ready(Err(error)) => assert!(error.class.ends_with(".CallQueueTooBigException")),
            _ => panic!("the class is full"),
        }
        let mut begun = Box::pin(pool.enter(CallClass::Scan, 0, true));
        assert!(poll(begun.as_mut()).is_pending(), "what has begun is not refused");
        assert!(enter_now(&pool, CallClass::Write).is_some(), "another class is not full");
        drop(read);
        assert!(poll(waiting[0].as_mut()).is_pending(), "the read's thread stays the read's");
        drop(waiting.remove(0)); // gives up
        drop(scan);
        let second = poll(waiting[0].as_mut());
        assert!(second.is_ready(), "the next one in the order");
        assert!(poll(waiting[1].as_mut()).is_pending());
    }

    #[test]
    fn answers_that_are_made_at_the_same_time_have_a_limit() {
        let mut limits = PoolLimits::new(16, 1, 10, 0.0, 0.0);
        limits.answer_bytes_max[CallClass::Scan.index()] = 100;
        let pool = DiskPool::new(limits);
        let mut large = pin!(pool.enter(CallClass::Scan, 500, false));
        let Poll::Ready(Ok(large)) = poll(large.as_mut()) else { panic!("alone it may be of any size") };
        let mut small = pin!(pool.enter(CallClass::Scan, 60, false));
        assert!(poll(small.as_mut()).is_pending());
        let mut smaller = pin!(pool.enter(CallClass::Scan, 40, false));
        assert!(poll(smaller.as_mut()).is_pending());
        assert_eq!(pool.answer_bytes(), 500);
        drop(large);
        assert!(poll(small.as_mut()).is_ready());
        assert!(poll(smaller.as_mut()).is_ready());
    }
}
