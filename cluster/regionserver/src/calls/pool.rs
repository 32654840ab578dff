//! The disk pool: threads for calls that may wait for the disk.
//!
//! The number of threads is bounded. Each class of calls has a queue, no longer than `Queues` of `halcyon-rpc` allows. Each
//! class has some threads that no other class may take; all classes share the rest, in turn. So a scan waits behind ten
//! thousand scans, and a Get does not. HBase gives each class a queue and handlers of its own (`RWQueueRpcExecutor`). With
//! both of HBase's ratios set the threads are divided here as they are there.
//!
//! Reads and scans announce how large their answers may become. They begin when there is room for that (`Queues::reserve` of
//! `halcyon-rpc`). A call whose client has not taken earlier answers is skipped. It is checked again when another call ends
//! and when [`DiskPool::look_again`] is called. Calls that announce nothing, such as Gets, do not wait behind one that waits for room.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use halcyon_env::{Clock, Mutex};
use halcyon_rpc::{CallClass, NoRoom, Queues, Reservation, RpcError, Terms};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Limits of a pool. Plain data; arrays are in the order of [`CallClass::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    /// Calls that run at the same time.
    pub threads_max: usize,
    /// Of them, those that only calls of a class may take.
    pub reserved: [usize; CallClass::COUNT],
}

impl PoolLimits {
    /// `threads` for whoever comes.
    pub fn flat(threads: usize) -> PoolLimits {
        PoolLimits { threads_max: threads, reserved: [0; CallClass::COUNT] }
    }

    /// `threads` for all classes but meta's, which has `meta_threads` besides. `read_share`: part of the threads that
    /// is for reads and scans alone, the rest being for writes; 0: divided as they come, but for an eighth each.
    /// `scan_share`: part of the former that is for scans alone, in the same way.
    pub fn new(threads: usize, meta_threads: usize, read_share: f64, scan_share: f64) -> PoolLimits {
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
        PoolLimits { threads_max, reserved }
    }
}

/// See the head of the file. *Thread safety*: from any thread; a short lock.
pub(crate) struct DiskPool(Arc<Shared>);

struct Shared {
    limits: PoolLimits,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    queues: OnceLock<Arc<Queues>>,
    /// Whose threads do the work; `None`: those of whoever waits.
    threads: OnceLock<Handle>,
}

#[derive(Default)]
struct State {
    running: [usize; CallClass::COUNT],
    waiting: [VecDeque<Waiting>; CallClass::COUNT],
    /// The class whose turn is next.
    turn: usize,
}

struct Waiting {
    terms: Terms,
    answer_bytes: usize,
    /// It has begun; not dropped whoever has gone.
    must: bool,
    start: oneshot::Sender<Entered>,
}

/// A place, and room for the answer.
type Entered = Result<(Permit, Option<Reservation>), RpcError>;

/// A place among those that run, until dropped.
pub(crate) struct Permit {
    /// `None` once the place was given back.
    shared: Option<Arc<Shared>>,
    class: CallClass,
    /// At most so large is the answer.
    answer_bytes: usize,
}

/// How many calls whose clients are slow are passed over to find one whose client is not.
const PASSED_OVER_MAX: usize = 64;
/// How many calls that wait for room are passed over to find one that needs none.
const LOOKED_THROUGH_MAX: usize = 4096;
/// How many calls that nobody waits for are dropped in one go.
const DROPPED_MAX: usize = 256;

impl DiskPool {
    pub(crate) fn new(limits: PoolLimits, clock: Arc<dyn Clock>) -> DiskPool {
        DiskPool(Arc::new(Shared {
            limits,
            clock,
            state: Mutex::default(),
            queues: OnceLock::new(),
            threads: OnceLock::new(),
        }))
    }

    /// Does the work on the threads of one runtime from now on. Otherwise every network thread has a pool of its own,
    /// and memory that one thread has freed is of no use to another.
    pub(crate) fn work_on(&self, threads: Handle) {
        let _ = self.0.threads.set(threads);
    }

    /// Keeps room for answers there from now on.
    pub(crate) fn keep_room_in(&self, queues: Arc<Queues>) {
        let _ = self.0.queues.set(queues); // once is enough
    }

    /// Waits for a place, and for room for an answer of up to `answer_bytes`. Dropped if nobody waits for the answer any
    /// more when its turn comes, unless the call has begun and `must` run.
    pub(crate) async fn enter(&self, terms: &Terms, answer_bytes: usize, must: bool) -> Entered {
        let class = terms.class;
        let started = {
            let mut state = self.0.state.lock();
            // While there is a thread, all that wait for their class wait for room.
            if (state.waiting[class.index()].is_empty() || answer_bytes == 0)
                && self.0.has_thread(&state, class)
                && let Ok(reservation) = self.0.reserve(terms, answer_bytes)
            {
                return Ok((self.0.start(&mut state, class, answer_bytes), reservation));
            }
            let (start, started) = oneshot::channel();
            state.waiting[class.index()].push_back(Waiting {
                terms: terms.clone(),
                answer_bytes,
                must,
                start,
            });
            started
        };
        let lost = |_| RpcError::io("the call was lost inside the server: the pool is gone");
        started.await.map_err(lost).flatten()
    }

    /// Room for the answer of a call, which may turn out to be larger than it announced while it is made.
    pub(crate) fn room(&self, terms: &Terms) -> Arc<AnswerRoom> {
        Arc::new(AnswerRoom { pool: self.0.clone(), terms: terms.clone(), taken: Mutex::new(None) })
    }

    /// Starts calls that wait for something else than a thread and have it now. To be called now and then.
    pub(crate) fn look_again(&self) {
        self.0.start_waiting(&mut self.0.state.lock());
    }

    /// Runs `work` on a thread that may block. Where no runtime is, that is the thread of whoever waits.
    pub(crate) async fn run<T, F>(&self, permit: Permit, work: F) -> Result<T, RpcError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, RpcError> + Send + 'static,
    {
        let work = move || {
            let permit = permit; // as a whole, until the end
            let result = work();
            give_back_now_and_then(permit.answer_bytes);
            result
        };
        let threads = self.0.threads.get().cloned().or_else(|| Handle::try_current().ok());
        let Some(threads) = threads else { return work() };
        let running = threads.spawn_blocking(work);
        match running.await {
            Ok(result) => result,
            Err(error) => Err(RpcError::io(format!("the call was lost inside the server: {error}"))),
        }
    }

    /// Calls of a class that wait for a thread.
    pub(crate) fn waiting_count(&self, class: CallClass) -> usize {
        self.0.state.lock().waiting[class.index()].len()
    }
}

/// After every so many calls, or so many bytes of answers, a thread gives back what others have freed of what it had
/// allocated.
fn give_back_now_and_then(answer_bytes: usize) {
    const CALLS: u32 = 32;
    const ANSWER_BYTES: usize = 1 << 20;
    thread_local! {
        static DONE: Cell<(u32, usize)> = const { Cell::new((0, 0)) };
    }
    let (calls, bytes) = DONE.get();
    let done = (calls + 1, bytes + answer_bytes);
    if done.0 < CALLS && done.1 < ANSWER_BYTES {
        DONE.set(done);
    } else {
        DONE.set((0, 0));
        halcyon_allocator::give_back();
    }
}

/// What a call has taken for its answer, that which it announced with it: what it needs later is judged as if it had been asked for at
/// once, so a call that nothing else is beside never stands in its own way.
pub(crate) struct AnswerRoom {
    pool: Arc<Shared>,
    terms: Terms,
    taken: Mutex<Option<Reservation>>,
}

impl AnswerRoom {
    /// Carries out `work`; large rows that it reads take room. *Blocking*.
    pub(crate) fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let room = self.clone();
        halcyon_region::with_room(move |bytes| room.grow(bytes), work)
    }

    /// The call has begun with this.
    pub(crate) fn hold(&self, announced: Option<Reservation>) {
        let Some(announced) = announced else { return };
        let mut taken = self.taken.lock();
        *taken = Some(match taken.take() {
            Some(before) => before.joined(announced),
            None => announced,
        });
    }

    /// Room for so many bytes more; false if there is none.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let mut taken = self.taken.lock();
        match &mut *taken {
            Some(reservation) => reservation.grow(self.terms.class, bytes),
            None => match self.pool.reserve(&self.terms, bytes) {
                Ok(reservation) => {
                    *taken = reservation;
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// To be kept until the answer is handed to its connection.
    pub(crate) fn take(&self) -> Option<Reservation> {
        self.taken.lock().take()
    }
}

impl Shared {
    fn has_thread(&self, state: &State, class: CallClass) -> bool {
        let (at, limits) = (class.index(), &self.limits);
        if state.running[at] < limits.reserved[at] {
            return true;
        }
        let kept = |other: usize| limits.reserved[other].saturating_sub(state.running[other]);
        let kept: usize = (0..CallClass::COUNT).filter(|&other| other != at).map(kept).sum();
        state.running.iter().sum::<usize>() + kept < limits.threads_max
    }

    fn reserve(&self, terms: &Terms, answer_bytes: usize) -> Result<Option<Reservation>, NoRoom> {
        match self.queues.get() {
            Some(queues) if answer_bytes > 0 => queues.reserve(terms, answer_bytes).map(Some),
            _ => Ok(None),
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, class: CallClass, answer_bytes: usize) -> Permit {
        state.running[class.index()] += 1;
        Permit { shared: Some(self.clone()), class, answer_bytes }
    }

    /// Starts whoever waits and can run now, one of each class in turn.
    fn start_waiting(self: &Arc<Self>, state: &mut State) {
        let mut passed = 0;
        while passed < CallClass::COUNT {
            let class = CallClass::ALL[state.turn];
            state.turn = (state.turn + 1) % CallClass::COUNT;
            passed = if self.start_one(state, class) { 0 } else { passed + 1 };
        }
    }

    /// Starts the first of a class that can run. False if none can.
    fn start_one(self: &Arc<Self>, state: &mut State, class: CallClass) -> bool {
        let at = class.index();
        if !self.has_thread(state, class) {
            return false;
        }
        self.drop_unwanted(state, class);
        let looked_at = state.waiting[at].len().min(PASSED_OVER_MAX);
        for _ in 0..looked_at {
            let Some(first) = state.waiting[at].front() else { return false };
            let reserved = self.reserve(&first.terms, first.answer_bytes);
            if matches!(reserved, Err(NoRoom::ForClass)) {
                return self.start_without_room(state, class);
            }
            let first = state.waiting[at].pop_front().expect("it was looked at");
            let Ok(reservation) = reserved else {
                state.waiting[at].push_back(first);
                continue;
            };
            if self.hand_over(state, class, first, reservation) {
                return true;
            }
        }
        false
    }

    /// Starts the first of a class that needs no room, when the first of all finds none. False if there is none.
    fn start_without_room(self: &Arc<Self>, state: &mut State, class: CallClass) -> bool {
        let at = class.index();
        let next = |state: &State| {
            let mut looked_at = state.waiting[at].iter().take(LOOKED_THROUGH_MAX);
            looked_at.position(|waiting| waiting.answer_bytes == 0)
        };
        while let Some(place) = next(state) {
            let found = state.waiting[at].remove(place).expect("it was looked at");
            if self.hand_over(state, class, found, None) {
                return true;
            }
        }
        false
    }

    /// Gives a place to a call that has waited. False if whoever waited is gone.
    fn hand_over(
        self: &Arc<Self>,
        state: &mut State,
        class: CallClass,
        waiting: Waiting,
        reservation: Option<Reservation>,
    ) -> bool {
        let permit = self.start(state, class, waiting.answer_bytes);
        match waiting.start.send(Ok((permit, reservation))) {
            Ok(()) => true,
            Err(unwanted) => {
                // Under the lock already.
                let (mut permit, _) = unwanted.expect("it was sent a place");
                permit.shared = None;
                state.running[class.index()] -= 1;
                false
            }
        }
    }

    /// Tells the first ones of a class that they are dropped if nobody waits for them, so that they take neither a place
    /// nor room from those behind them.
    fn drop_unwanted(&self, state: &mut State, class: CallClass) {
        let waiting = &mut state.waiting[class.index()];
        let now_ns = if waiting.is_empty() { 0 } else { self.clock.monotonic_ns() };
        for _ in 0..DROPPED_MAX {
            let may_be_dropped = |first: &&Waiting| !first.must;
            let Some(why) =
                waiting.front().filter(may_be_dropped).and_then(|first| first.terms.dropped(now_ns))
            else {
                return;
            };
            let first = waiting.pop_front().expect("it was looked at");
            let _ = first.start.send(Err(RpcError::dropped(why))); // or nobody is there at all
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let mut state = shared.state.lock();
            state.running[self.class.index()] -= 1;
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

    fn terms(class: CallClass) -> Terms {
        until(class, u64::MAX)
    }

    fn until(class: CallClass, deadline_ns: u64) -> Terms {
        let connection = Arc::new(halcyon_rpc::Connection::new(1, ""));
        Terms { class, deadline_ns, connection, call_id: 0, is_traced: false, attributes: Vec::new() }
    }

    fn pool(limits: PoolLimits) -> DiskPool {
        DiskPool::new(limits, Arc::new(halcyon_env::SystemClock::new()))
    }

    fn enter_now(pool: &DiskPool, class: CallClass) -> Option<Permit> {
        match poll(pin!(pool.enter(&terms(class), 0, false))) {
            Poll::Ready(entered) => entered.ok().map(|(permit, _)| permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_flood_of_one_class_leaves_threads_to_the_others() {
        let pool = pool(PoolLimits::new(16, 2, 0.0, 0.0));
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
        let limits = PoolLimits::new(16, 2, 0.5, 0.25);
        assert_eq!(limits.reserved, [2, 6, 2, 8, 0]);
        assert_eq!(PoolLimits::new(16, 2, 0.75, 0.0).reserved, [2, 2, 2, 4, 0]);
        for threads in 0..40 {
            for shares in [(0.0, 0.0), (0.01, 0.01), (0.5, 0.5), (1.0, 0.0), (1.0, 1.0), (0.3, 1.0)] {
                let limits = PoolLimits::new(threads, 1, shares.0, shares.1);
                let some = CallClass::ALL.iter().filter(|class| limits.reserved[class.index()] > 0).count();
                assert_eq!(some, 4, "{threads} {shares:?}: {limits:?}");
            }
        }
    }

    #[test]
    fn classes_take_turns_and_a_class_keeps_its_order() {
        let pool = pool(PoolLimits::new(3, 1, 1.0, 0.5));
        let (scan, read) = (enter_now(&pool, CallClass::Scan), enter_now(&pool, CallClass::Read));
        assert!(scan.is_some() && read.is_some());
        let scan_terms = terms(CallClass::Scan);
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(pool.enter(&scan_terms, 0, false))).collect();
        for entering in &mut waiting {
            assert!(poll(entering.as_mut()).is_pending());
        }
        assert_eq!(pool.waiting_count(CallClass::Scan), 3);
        assert!(enter_now(&pool, CallClass::Write).is_some(), "another class does not wait behind them");
        drop(read);
        assert!(poll(waiting[0].as_mut()).is_pending(), "the read's thread stays the read's");
        drop(waiting.remove(0)); // gives up
        drop(scan);
        let second = poll(waiting[0].as_mut());
        assert!(second.is_ready(), "the next one in the order");
        assert!(poll(waiting[1].as_mut()).is_pending());
    }

    fn room_for(bytes: usize) -> Arc<Queues> {
        let limits = halcyon_rpc::QueueLimits::new(10, 1000);
        Queues::new(halcyon_rpc::QueueLimits { answer_bytes_max: bytes, ..limits })
    }

    #[test]
    fn a_call_begins_when_there_is_room_for_its_answer() {
        let pool = pool(PoolLimits::new(16, 1, 0.0, 0.0));
        let queues = room_for(1000);
        pool.keep_room_in(queues.clone());
        let (silent, other) = (terms(CallClass::Scan), terms(CallClass::Scan));
        let large = match poll(pin!(pool.enter(&silent, 300, false))) {
            Poll::Ready(Ok((permit, reservation))) => {
                drop(permit); // the answer is made and waits for its client
                reservation.expect("it was asked for")
            }
            _ => panic!("alone it may be of any size"),
        };
        let mut next = pin!(pool.enter(&silent, 100, false));
        assert!(poll(next.as_mut()).is_pending(), "its client has enough to take");
        let mut large_one = pin!(pool.enter(&other, 300, false));
        assert!(poll(large_one.as_mut()).is_pending(), "half of the room is not for scans");
        let mut small_one = pin!(pool.enter(&other, 200, false));
        assert!(poll(small_one.as_mut()).is_pending(), "it waits behind the others");
        assert_eq!(queues.reserved_bytes(), 300);
        drop(large);
        assert!(poll(next.as_mut()).is_pending(), "nobody has looked");
        pool.look_again();
        assert!(poll(next.as_mut()).is_ready() && poll(large_one.as_mut()).is_ready());
        assert!(poll(small_one.as_mut()).is_pending());
        assert_eq!(pool.waiting_count(CallClass::Scan), 1);
    }

    /// What a call had announced was another's to what it needed later: with half of all announced it never got more.
    #[test]
    fn a_call_does_not_stand_in_its_own_way() {
        let pool = pool(PoolLimits::new(16, 1, 0.0, 0.0));
        let queues = room_for(1000);
        pool.keep_room_in(queues.clone());
        let (reader, other) = (terms(CallClass::Read), terms(CallClass::Read));
        let Poll::Ready(Ok((_permit, announced))) = poll(pin!(pool.enter(&reader, 500, false))) else {
            panic!("alone")
        };
        let room = pool.room(&reader);
        room.hold(announced);
        assert!(room.grow(400) && room.grow(400), "alone it may be of any size");
        assert_eq!(queues.reserved_bytes(), 1300);
        let all = room.take().expect("what it announced and what it took");
        assert!(queues.reserve(&other, 1).is_err());
        drop(all);
        let _beside = queues.reserve(&other, 100).expect("all was given back");
        let Poll::Ready(Ok((_permit, announced))) = poll(pin!(pool.enter(&reader, 500, false))) else {
            panic!("there is room")
        };
        let room = pool.room(&reader);
        room.hold(announced);
        assert!(room.grow(150) && !room.grow(1), "three quarters are for reads");
        drop(room);
        assert_eq!(queues.reserved_bytes(), 100);
    }

    /// A call whose cells needed much room, and never found it, kept all Gets of the server waiting until they timed out.
    #[test]
    fn who_needs_no_room_does_not_wait_for_it() {
        let pool = pool(PoolLimits::new(3, 1, 1.0, 0.5));
        let queues = room_for(1000);
        pool.keep_room_in(queues.clone());
        let silent = queues.reserve(&terms(CallClass::Read), 100).expect("alone");
        let (large, small) = (terms(CallClass::Read), terms(CallClass::Read));
        let mut large_one = pin!(pool.enter(&large, 700, false));
        assert!(poll(large_one.as_mut()).is_pending(), "three quarters are for reads");
        let Poll::Ready(Ok((running, _))) = poll(pin!(pool.enter(&small, 0, false))) else {
            panic!("there is a thread")
        };
        let mut gone = Box::pin(pool.enter(&small, 0, false));
        let mut next = pin!(pool.enter(&small, 0, false));
        let mut behind = pin!(pool.enter(&small, 0, false));
        assert!(poll(gone.as_mut()).is_pending() && poll(next.as_mut()).is_pending(), "no thread is left");
        assert!(poll(behind.as_mut()).is_pending());
        drop(gone);
        drop(running);
        assert!(poll(large_one.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
        let Poll::Ready(Ok(running)) = poll(next.as_mut()) else { panic!("the first that needs no room") };
        drop(silent);
        drop(running);
        let Poll::Ready(Ok(_running)) = poll(large_one.as_mut()) else {
            panic!("the first, now that there is room")
        };
        assert!(poll(behind.as_mut()).is_pending());
    }

    #[test]
    fn who_takes_nothing_is_passed_over() {
        let pool = pool(PoolLimits::new(3, 1, 1.0, 0.5));
        pool.keep_room_in(room_for(1000));
        let (silent, other) = (terms(CallClass::Scan), terms(CallClass::Scan));
        let Poll::Ready(Ok((permit, _held))) = poll(pin!(pool.enter(&silent, 300, false))) else {
            panic!("alone");
        };
        let mut silent_next = pin!(pool.enter(&silent, 100, false));
        let mut other_next = pin!(pool.enter(&other, 100, false));
        assert!(poll(silent_next.as_mut()).is_pending() && poll(other_next.as_mut()).is_pending());
        drop(permit);
        assert!(poll(other_next.as_mut()).is_ready());
        assert!(poll(silent_next.as_mut()).is_pending());
    }

    /// They are told in one go as soon as there is a place, which goes to the first one that somebody waits for.
    #[test]
    fn who_is_not_waited_for_takes_no_place() {
        let pool = pool(PoolLimits::new(3, 1, 1.0, 0.5));
        let running = enter_now(&pool, CallClass::Scan);
        let (late, other) = (until(CallClass::Scan, 0), terms(CallClass::Scan));
        let mut left: Vec<_> = (0..3).map(|_| Box::pin(pool.enter(&late, 0, false))).collect();
        let mut begun = pin!(pool.enter(&late, 0, true));
        let mut next = pin!(pool.enter(&other, 0, false));
        assert!(left.iter_mut().all(|entering| poll(entering.as_mut()).is_pending()));
        assert!(poll(begun.as_mut()).is_pending() && poll(next.as_mut()).is_pending());
        drop(running);
        for entering in &mut left {
            let Poll::Ready(Err(error)) = poll(entering.as_mut()) else { panic!("its time is over") };
            assert_eq!(error.dropped, Some(halcyon_rpc::Dropped::Expired));
        }
        let Poll::Ready(Ok(_running)) = poll(begun.as_mut()) else { panic!("it must come to its end") };
        assert!(poll(next.as_mut()).is_pending());
        assert_eq!(pool.waiting_count(CallClass::Scan), 1);
    }
}
