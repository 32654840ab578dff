//! Writers, the log's thread and readers in very many interleavings:
//! `RUSTFLAGS="--cfg halcyon_shuttle" cargo test --release -p halcyon-region --lib interleavings`.
//!
//! A write that nobody wakes is a deadlock here, which Shuttle reports with the schedule that led to it.

use shuttle::sync::atomic::AtomicBool;
use shuttle::thread;

use super::*;

const ROUNDS: usize = 10_000;
/// No test gives out more numbers.
const WRITES_MAX: usize = 8;

/// Random schedules, and schedules of few preemptions at the most awkward places.
fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(body.clone(), ROUNDS);
    shuttle::check_pct(body, ROUNDS, 3);
}

/// What a region has beside its numbers: cells in the memstore, and a log that makes its entries durable in their order.
struct Region {
    mvcc: Mvcc,
    inserted: [AtomicBool; WRITES_MAX],
    durable: [AtomicBool; WRITES_MAX],
    log: shuttle::sync::Mutex<VecDeque<Arc<Write>>>,
}

impl Region {
    fn new() -> Arc<Region> {
        Arc::new(Region {
            mvcc: Mvcc::new(SeqId::ZERO, halcyon_env::Env::real().watch()),
            inserted: [(); WRITES_MAX].map(|()| AtomicBool::new(false)),
            durable: [(); WRITES_MAX].map(|()| AtomicBool::new(false)),
            log: Default::default(),
        })
    }

    /// As `Region::write_edits`: number and log entry, memstore, ticket.
    fn write(&self) -> (SeqId, WriteTicket) {
        let append = |_: SeqId, write: &Arc<Write>| {
            self.log.lock().unwrap().push_back(write.clone());
            Ok(())
        };
        let (write, ()) = self.mvcc.begin(2, append).unwrap();
        self.inserted[write.seq().get() as usize].store(true, Ordering::SeqCst);
        self.mvcc.step_done(&write);
        (write.seq(), WriteTicket::of(write))
    }

    /// One entry becomes durable; false if there is none.
    fn sync_one(&self) -> bool {
        let Some(write) = self.log.lock().unwrap().pop_front() else { return false };
        self.durable[write.seq().get() as usize].store(true, Ordering::SeqCst);
        self.mvcc.step_done(&write);
        true
    }

    /// The thread of the log, until so many entries are durable.
    fn sync_all(self: &Arc<Self>, count: usize) -> thread::JoinHandle<()> {
        let region = self.clone();
        thread::spawn(move || {
            let mut synced = 0;
            while synced < count {
                if region.sync_one() {
                    synced += 1;
                } else {
                    thread::yield_now();
                }
            }
        })
    }

    /// Takes a read point, and looks at everything that it sees.
    fn read(&self) -> ReadPoint {
        let point = self.mvcc.read_point();
        for seq in 1..=point.get() as usize {
            assert!(self.inserted[seq].load(Ordering::SeqCst), "{seq} is not in the memstore at {point}");
            assert!(self.durable[seq].load(Ordering::SeqCst), "{seq} is not durable at {point}");
        }
        point
    }
}

/// The read point moves only over writes that are whole, and never back; whoever waits for a write is woken.
#[test]
fn two_writers_and_a_reader() {
    explore(|| {
        let region = Region::new();
        let log = region.sync_all(3);
        let writers = [2, 1].map(|count| {
            let region = region.clone();
            thread::spawn(move || {
                for _ in 0..count {
                    let (seq, ticket) = region.write();
                    ticket.wait().unwrap();
                    assert!(region.read().sees(seq), "an acknowledged write can be read");
                }
            })
        });
        let mut last = ReadPoint::at(SeqId::ZERO);
        for _ in 0..3 {
            let point = region.read();
            assert!(point >= last, "the read point went back from {last} to {point}");
            last = point;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        log.join().unwrap();
        assert_eq!((region.read().get(), region.mvcc.last().get()), (3, 3));
    });
}

/// A flush takes a number among writes and waits until everything before it is published, by a wakeup and not by a clock.
#[test]
fn a_flush_waits_for_the_writes_before_it() {
    explore(|| {
        let region = Region::new();
        let log = region.sync_all(2);
        let writers = [(); 2].map(|()| {
            let region = region.clone();
            thread::spawn(move || region.write().1.wait().unwrap())
        });
        let seq = region.mvcc.take_number();
        region.inserted[seq.get() as usize].store(true, Ordering::SeqCst);
        region.durable[seq.get() as usize].store(true, Ordering::SeqCst);
        region.mvcc.wait_for(seq, || Ok(())).unwrap();
        assert!(region.mvcc.read_point().sees(seq));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        log.join().unwrap();
        assert_eq!(region.mvcc.read_point().get(), 3);
    });
}

/// A task that awaits a write and tasks that await a barrier behind it are all woken.
#[test]
fn tasks_are_woken() {
    explore(|| {
        let region = Region::new();
        let (seq, ticket) = region.write();
        let barriers = [(); 2].map(|()| {
            let region = region.clone();
            thread::spawn(move || {
                shuttle::future::block_on(region.mvcc.barrier()).unwrap();
                assert!(region.mvcc.read_point().sees(seq));
            })
        });
        let waiting = thread::spawn(move || shuttle::future::block_on(ticket).unwrap());
        assert!(region.sync_one());
        waiting.join().unwrap();
        barriers.into_iter().for_each(|barrier| barrier.join().unwrap());
    });
}

/// The log fails: the write and all behind it fail, nobody waits for ever, and readers see none of them.
#[test]
fn a_failed_log_fails_all_that_wait() {
    explore(|| {
        let region = Region::new();
        let (_, first) = region.write();
        let entry = region.log.lock().unwrap().pop_front().unwrap();
        let (_, second) = region.write();
        let waiting = [first, second]
            .map(|ticket| thread::spawn(move || assert!(ticket.wait().is_err(), "the log has refused it")));
        let flush = {
            let region = region.clone();
            thread::spawn(move || assert!(region.mvcc.wait_for(SeqId::new(2), || Ok(())).is_err()))
        };
        region.mvcc.fail(&entry, &Error::invalid("disk"));
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
        flush.join().unwrap();
        assert_eq!(region.mvcc.read_point().get(), 0);
    });
}
