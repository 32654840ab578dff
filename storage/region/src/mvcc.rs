//! The numbers of writes, and what readers see of them (HBase: `MultiVersionConcurrencyControl`).
//!
//! ```text
//! begin        number taken and log entry appended under one lock: both have one order
//! step_done    the cells are in the memstore; the log has made its entry durable: two steps, on two threads
//! publish      the front of the queue has no step left: the read point moves over it, and over all behind it that are done
//! end          wakes the waiting thread, the task of the write and the tasks of barriers
//! ```
//!
//! `mvcc/interleavings.rs` tests this file under Shuttle (`cargo xtask memory`).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use halcyon_cell::{Error, ErrorKind, ReadPoint, Result, SeqId};
use halcyon_env::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use halcyon_env::sync::{Condvar, Mutex, MutexGuard};
use halcyon_env::{Holder, Watch, WatchedMutex, invariant, vitals};
use smallvec::SmallVec;

use crate::activity;

/// Looks at a write before its thread sleeps: a few microseconds, less than it takes to be woken. Few where each look is
/// one more choice of the interleaving checker.
const SPINS_BEFORE_SLEEP: u32 = if cfg!(halcyon_shuttle) { 1 } else { 200 };

/// A region's write numbers and its read point.
///
/// A write begins with the next number and is published when its cells stand in the memstore and its log
/// entry is as durable as was asked. The read point is the highest number such that it and all before it are
/// published. *Thread safety*: all verbs may be called from any thread; none blocks on I/O.
///
/// *Invariant*: `read_point` rises by one with each write, and is the number before the front of `unfinished`.
///
/// *Lock order*: `last`, then `state`. The log is called under `last` alone, because it may run completions of
/// earlier writes, which publish.
pub(crate) struct Mvcc {
    read_point: AtomicU64,
    /// The highest number given out; its lock orders numbers and log entries alike.
    last: WatchedMutex<SeqId>,
    watch: Watch,
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    /// Writes begun and not yet behind the read point, in order of their numbers.
    unfinished: VecDeque<Arc<Write>>,
    /// Why no write is published any more.
    failed: Option<Error>,
}

/// One write on its way.
///
/// How it ended stands in `end`, so that neither who ends it nor who looks needs a lock. Only who sleeps, or is to be
/// woken, takes the one of `ending`: it registers there and then sets `AWAITED`, and who ends the write looks for that
/// bit with the same step with which it sets its own. One of the two sees the other.
pub(crate) struct Write {
    /// Set before anybody else knows of the write.
    seq: AtomicU64,
    /// What is still missing: the memstore insert, and the log's word.
    steps_left: AtomicU8,
    /// `PUBLISHED`, `FAILED`, `AWAITED`.
    end: AtomicU8,
    ending: Mutex<Ending>,
    ended: Condvar,
}

const PUBLISHED: u8 = 1;
const FAILED: u8 = 2;
/// Somebody is registered in `ending`, or sleeps there.
const AWAITED: u8 = 4;

const _: () =
    assert!(PUBLISHED & FAILED == 0 && (PUBLISHED | FAILED) & AWAITED == 0, "each bit says one thing");

#[derive(Default)]
struct Ending {
    /// Why it failed; set before `FAILED` is.
    error: Option<Error>,
    /// Of the task that awaits the write's own ticket.
    waker: Option<Waker>,
    /// Of tasks that await barriers behind which this write was the last.
    barrier_wakers: Vec<Waker>,
}

impl Mvcc {
    /// `last`: the highest sequence id in use; everything up to it can be read.
    pub fn new(last: SeqId, watch: Watch) -> Mvcc {
        let state = State { unfinished: VecDeque::new(), failed: None };
        Mvcc {
            read_point: AtomicU64::new(last.get()),
            last: WatchedMutex::new(last),
            watch,
            state: Mutex::new(state),
            moved: Condvar::new(),
        }
    }

    #[inline]
    pub fn read_point(&self) -> ReadPoint {
        ReadPoint::new(self.read_point.load(Ordering::Acquire))
    }

    /// Begins a write with the next number and hands it to `log`, under the lock that orders numbers: what
    /// `log` appends stands in the log in the order of the numbers. `steps`: how many times `step_done` has to
    /// be called. If `log` fails the number is given up and no write exists. `Stopping` if a write before failed in the log, because
    /// this one would never be published.
    pub fn begin<T>(
        &self,
        steps: u8,
        log: impl FnOnce(SeqId, &Arc<Write>) -> Result<T>,
    ) -> Result<(Arc<Write>, T)> {
        assert!(
            steps > 0,
            "a write with no step left would be published before its cells are in the memstore"
        );
        let write = Arc::new(Write::new(SeqId::ZERO, steps)); // made before the lock is held
        let mut last = self.lock_last();
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            let message =
                format!("the region takes no writes since one could not be written to the log: {error}");
            return Err(Error::new(ErrorKind::Stopping, message));
        }
        let seq = last.next();
        write.seq.store(seq.get(), Ordering::Relaxed);
        *last = seq;
        self.enqueue(&mut state, write.clone());
        drop(state);
        match log(seq, &write) {
            Ok(value) => Ok((write, value)),
            Err(error) => {
                write.steps_left.store(0, Ordering::Release);
                self.publish();
                Err(error)
            }
        }
    }

    /// Puts a write behind those before it. Under the lock of `last`.
    fn enqueue(&self, state: &mut State, write: Arc<Write>) {
        let seq = write.seq();
        assert!(
            !self.read_point().sees(seq),
            "number {seq} is not above the read point: readers would see a half write"
        );
        invariant!(
            state.unfinished.back().is_none_or(|last| last.seq().next() == seq),
            "number {seq} does not follow the last one begun: publication would leave one out"
        );
        state.unfinished.push_back(write);
    }

    fn lock_last(&self) -> MutexGuard<'_, SeqId> {
        let holder = Holder::me();
        holder.is_at(&activity::WAIT_FOR_NUMBER);
        let last = self.last.lock(&self.watch, "write-number", |held_by| format!("held by {held_by}"));
        holder.is_at(&activity::APPEND_TO_WAL);
        last
    }

    /// One step of the write is through. The last one publishes it, and tells who waits.
    pub fn step_done(&self, write: &Write) {
        assert!(
            write.end.load(Ordering::Relaxed) & PUBLISHED == 0,
            "write {} was published before all of its steps were done: readers saw it half done",
            write.seq()
        );
        let steps_left = write.steps_left.fetch_sub(1, Ordering::AcqRel);
        assert!(steps_left > 0, "write {} has more steps than were announced", write.seq());
        if steps_left == 1 {
            self.publish();
        }
    }

    /// The log refused the write: it is never published, nor is any after it.
    pub fn fail(&self, write: &Write, error: &Error) {
        write.end(Err(error));
        // Whoever waits for a later number would wait for ever.
        let waiting: Vec<Arc<Write>> = {
            let mut state = self.state.lock();
            state.failed.get_or_insert_with(|| error.clone());
            state.unfinished.iter().filter(|other| other.seq() > write.seq()).cloned().collect()
        };
        for other in waiting {
            other.end(Err(error));
        }
        self.moved.notify_all();
    }

    fn publish(&self) {
        let mut done = SmallVec::<[Arc<Write>; 4]>::new();
        {
            let mut state = self.state.lock();
            while let Some(front) = state.unfinished.front()
                && front.steps_left.load(Ordering::Acquire) == 0
            {
                let write = state.unfinished.pop_front().expect("there is a front");
                self.raise_read_point(write.seq());
                done.push(write);
            }
        }
        for write in &done {
            write.end(Ok(()));
        }
        if !done.is_empty() {
            self.moved.notify_all();
        }
    }

    /// Lets readers see the next write. Under the lock of `state`.
    #[inline]
    fn raise_read_point(&self, seq: SeqId) {
        let before = SeqId::new(self.read_point.load(Ordering::Relaxed));
        assert!(
            seq == before.next(),
            "write {seq} is published after {before}: one between them would be seen half done"
        );
        self.read_point.store(seq.get(), Ordering::Release);
    }

    /// Takes a number without a write: everything before it can be waited for (used by flush).
    pub fn take_number(&self) -> SeqId {
        let mut last = self.last.unwatched().lock();
        let seq = last.next();
        *last = seq;
        let mut state = self.state.lock();
        if state.unfinished.is_empty() {
            self.raise_read_point(seq);
        } else {
            // Published as soon as the writes before it are.
            self.enqueue(&mut state, Arc::new(Write::new(seq, 0)));
        }
        seq
    }

    /// What was written elsewhere up to this number can be read from now on. Only where nothing is written.
    pub fn follow(&self, seq: SeqId) {
        let mut last = self.last.unwatched().lock();
        if seq > *last {
            *last = seq;
            assert!(self.state.lock().unfinished.is_empty(), "a copy of a region has no writes of its own");
            // Over all numbers between them: those writes are whole in the files that are shown next.
            self.read_point.store(seq.get(), Ordering::Release);
        }
    }

    /// The highest number given out.
    pub fn last(&self) -> SeqId {
        *self.last.unwatched().lock()
    }

    /// Resolves when everything begun so far is published.
    pub fn barrier(&self) -> WriteTicket {
        let state = self.state.lock();
        WriteTicket { write: state.unfinished.back().cloned(), barrier: true }
    }

    /// Blocks until `seq` is published; `drive` is called in between to move the log along, and says why that cannot be
    /// awaited. Fails when a write before it failed.
    pub fn wait_for(&self, seq: SeqId, mut drive: impl FnMut() -> Result<()>) -> Result<()> {
        let mut before = self.read_point();
        while !self.read_point().sees(seq) {
            drive()?;
            let now = self.read_point();
            if std::mem::replace(&mut before, now) != now {
                vitals::turn();
            }
            let mut state = self.state.lock();
            if self.read_point().sees(seq) {
                break;
            }
            if let Some(front) = state.unfinished.front()
                && let Some(Err(error)) = front.result()
            {
                return Err(error);
            }
            self.moved.wait_for(&mut state, std::time::Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Write {
    fn new(seq: SeqId, steps: u8) -> Write {
        Write {
            seq: AtomicU64::new(seq.get()),
            steps_left: AtomicU8::new(steps),
            end: AtomicU8::new(0),
            ending: Mutex::new(Ending::default()),
            ended: Condvar::new(),
        }
    }

    #[inline]
    pub fn seq(&self) -> SeqId {
        SeqId::new(self.seq.load(Ordering::Relaxed))
    }

    /// How it ended; `None` before that.
    #[inline]
    fn result(&self) -> Option<Result<()>> {
        match self.end.load(Ordering::Acquire) & (PUBLISHED | FAILED) {
            0 => None,
            FAILED => Some(Err(self.ending.lock().failure())),
            _ => Some(Ok(())),
        }
    }

    /// Marks the write as awaited by who is registered in `ending`; if it has ended before, says how.
    fn await_in(&self, ending: &Ending) -> Option<Result<()>> {
        match self.end.fetch_or(AWAITED, Ordering::AcqRel) & (PUBLISHED | FAILED) {
            0 => None,
            FAILED => Some(Err(ending.failure())),
            _ => Some(Ok(())),
        }
    }

    fn end(&self, result: std::result::Result<(), &Error>) {
        if let Err(error) = result {
            self.ending.lock().error.get_or_insert_with(|| error.clone());
        }
        let bit = if result.is_ok() { PUBLISHED } else { FAILED };
        let before = self.end.fetch_or(bit, Ordering::AcqRel);
        assert!(
            before & (PUBLISHED | FAILED) & !bit == 0,
            "write {} is published and failed: its client was told one thing and readers see the other",
            self.seq()
        );
        if before & AWAITED == 0 {
            return; // who comes to wait from now on finds the bit
        }
        let (waker, barrier_wakers) = {
            let mut ending = self.ending.lock();
            (ending.waker.take(), std::mem::take(&mut ending.barrier_wakers))
        };
        self.ended.notify_all();
        waker.into_iter().chain(barrier_wakers).for_each(Waker::wake);
    }
}

impl Ending {
    fn failure(&self) -> Error {
        self.error.clone().expect("an error is set before its bit")
    }
}

/// Resolves when a write is as durable as was asked and can be read. Runs on any executor.
///
/// Publication goes on whether or not the ticket is polled, and dropping it cancels nothing. One task at a
/// time may await it; a write's own ticket and any number of barriers may be awaited side by side.
pub struct WriteTicket {
    write: Option<Arc<Write>>,
    /// The write belongs to another ticket, whose task is to be woken as well.
    barrier: bool,
}

impl WriteTicket {
    /// A ticket for nothing: ready at once.
    pub fn ready() -> WriteTicket {
        WriteTicket { write: None, barrier: false }
    }

    pub(crate) fn of(write: Arc<Write>) -> WriteTicket {
        WriteTicket { write: Some(write), barrier: false }
    }

    /// The sequence id of the cells of its write; zero: nothing was written.
    pub fn seq(&self) -> SeqId {
        self.write.as_ref().filter(|_| !self.barrier).map_or(SeqId::ZERO, |write| write.seq())
    }

    /// Whether awaiting it would return at once.
    pub fn is_ready(&self) -> bool {
        let ended = |write: &Arc<Write>| write.end.load(Ordering::Acquire) & (PUBLISHED | FAILED) != 0;
        self.write.as_ref().is_none_or(ended)
    }

    /// Blocks the calling thread. The log has to be driven by another one.
    pub fn wait(self) -> Result<()> {
        let Some(write) = self.write else { return Ok(()) };
        // Where the log waits for no disk, its word is here before a thread has been put to sleep.
        for _ in 0..SPINS_BEFORE_SLEEP {
            if let Some(result) = write.result() {
                return result;
            }
            halcyon_env::sync::spin_loop();
        }
        let mut ending = write.ending.lock();
        loop {
            if let Some(result) = write.await_in(&ending) {
                return result;
            }
            write.ended.wait(&mut ending);
        }
    }
}

impl Future for WriteTicket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(write) = &self.write else { return Poll::Ready(Ok(())) };
        if let Some(result) = write.result() {
            return Poll::Ready(result);
        }
        let mut ending = write.ending.lock();
        if !self.barrier {
            ending.waker = Some(context.waker().clone());
        } else if !ending.barrier_wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            ending.barrier_wakers.push(context.waker().clone());
        }
        write.await_in(&ending).map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(all(test, halcyon_shuttle))]
mod interleavings;

#[cfg(all(test, not(halcyon_shuttle)))]
mod tests {
    use super::*;

    fn begin(mvcc: &Mvcc) -> Arc<Write> {
        mvcc.begin(1, |_, _| Ok(())).unwrap().0
    }

    /// A checkAndMutate whose condition does not hold awaits a barrier, which is the last write's ticket once
    /// more. It took the place of that write's waker, and the writer's call was never answered.
    #[test]
    fn a_barrier_leaves_the_writer_its_waker() {
        use std::sync::atomic::AtomicUsize;
        use std::task::Wake;

        #[derive(Default)]
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mvcc = Mvcc::new(SeqId::ZERO, halcyon_env::Env::real().watch());
        let write = begin(&mvcc);
        let mut tickets = [WriteTicket::of(write.clone()), mvcc.barrier(), mvcc.barrier()];
        let counts = [(); 3].map(|()| Arc::new(Count::default()));
        for _ in 0..2 {
            for (ticket, count) in tickets.iter_mut().zip(&counts) {
                let waker = Waker::from(count.clone());
                assert!(Pin::new(ticket).poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        mvcc.step_done(&write);
        for (ticket, count) in tickets.iter_mut().zip(&counts) {
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
            assert!(ticket.is_ready());
        }
    }

    #[test]
    fn read_point_waits_for_the_oldest_write() {
        let mvcc = Mvcc::new(SeqId::new(10), halcyon_env::Env::real().watch());
        let (first, second) = (begin(&mvcc), begin(&mvcc));
        mvcc.step_done(&second);
        assert_eq!(mvcc.read_point().get(), 10);
        let ticket = WriteTicket::of(second);
        assert!(!ticket.is_ready());
        mvcc.step_done(&first);
        assert_eq!(mvcc.read_point().get(), 12);
        assert!(ticket.is_ready());
        ticket.wait().unwrap();
    }

    #[test]
    fn a_failed_append_gives_its_number_up() {
        let mvcc = Mvcc::new(SeqId::ZERO, halcyon_env::Env::real().watch());
        assert!(mvcc.begin(2, |_, _| Err::<(), _>(Error::invalid("no"))).is_err());
        assert_eq!(mvcc.read_point().get(), 1);
        assert!(mvcc.barrier().is_ready());
    }

    #[test]
    fn a_failed_sync_fails_every_later_write() {
        let mvcc = Mvcc::new(SeqId::ZERO, halcyon_env::Env::real().watch());
        let (first, second) = (begin(&mvcc), begin(&mvcc));
        let ticket = WriteTicket::of(second);
        mvcc.fail(&first, &Error::invalid("disk"));
        assert!(ticket.wait().is_err());
        assert_eq!(mvcc.read_point().get(), 0);
        assert!(mvcc.wait_for(SeqId::new(2), || Ok(())).is_err());
        let error = mvcc.begin(1, |_, _| Ok(())).err().expect("it would wait for ever");
        assert_eq!(error.kind(), ErrorKind::Stopping);
    }

    #[test]
    fn a_taken_number_is_reached_with_the_writes_before_it() {
        let mvcc = Mvcc::new(SeqId::ZERO, halcyon_env::Env::real().watch());
        let first = begin(&mvcc);
        let taken = mvcc.take_number();
        assert_eq!((taken.get(), mvcc.read_point().get()), (2, 0));
        mvcc.step_done(&first);
        assert_eq!(mvcc.read_point().get(), 2);
    }
}
