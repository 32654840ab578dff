//! Where the time of one call went.
//!
//! `wire/rpc` measures three parts of every call: on the network thread, put aside, and on the way to the socket. What a
//! call did while it was put aside is noted by the disk pool and by writes that wait for memory ([`Noted`]). What is left
//! of a write's time is the WAL's: it waits for nothing else.

use std::time::Duration;

use bytes::Bytes;
use halcyon_env::{Lookups, Tally};
use halcyon_rpc::{CallClass, NotedCall};

/// Parts of a call's time; their sum is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeParts {
    /// It ran on the network thread, or waited for it: in memory, behind calls that arrived before it.
    pub thread: Duration,
    /// It waited for its turn on the disk pool, or for the scanner's call before it.
    pub queue: Duration,
    /// It was held back because the memstores or the WAL were full, or waited for memory of the operating system.
    pub memory: Duration,
    /// It waited for locks of rows, regions or chunks.
    pub lock: Duration,
    /// It waited for the WAL.
    pub wal: Duration,
    /// It read from disk: blocks that were not in the cache.
    pub disk: Duration,
    /// It ran on the disk pool: all but the waits above.
    pub work: Duration,
    /// Its answer waited for the socket, because the client or the network took it slowly.
    pub network: Duration,
    /// It was put aside, and no part of the server noted why.
    pub other: Duration,
}

impl TimeParts {
    /// With their names, in the order of a call's life.
    pub fn named(&self) -> [(&'static str, Duration); 9] {
        [
            ("thread", self.thread),
            ("queue", self.queue),
            ("memory", self.memory),
            ("lock", self.lock),
            ("wal", self.wal),
            ("disk", self.disk),
            ("work", self.work),
            ("network", self.network),
            ("other", self.other),
        ]
    }

    pub fn sum(&self) -> Duration {
        self.named().iter().map(|(_, time)| *time).sum()
    }

    /// Adds measured waits, as far as `left` has time for them. Returns how many of them were reads from disk.
    fn add_waits(&mut self, waits: &Tally, left: &mut Left) -> u64 {
        let mut disk_reads = 0;
        for waited in waits.waits() {
            match cause_of(waited.cause) {
                Cause::Lock => self.lock += left.take(waited.time),
                Cause::Wal => self.wal += left.take(waited.time),
                Cause::Memory => self.memory += left.take(waited.time),
                Cause::Disk => {
                    self.disk += left.take(waited.time);
                    disk_reads += if waited.cause == "read" { waited.count } else { 0 };
                }
                Cause::None => {}
            }
        }
        disk_reads
    }
}

/// What the server noted of a call that was put aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// It waited for its turn on the disk pool.
    pub queued: Duration,
    /// It ran there.
    pub ran: Duration,
    /// Of `ran`: measured waits.
    pub waits: Tally,
    /// Measured waits on the network thread. Of traced calls only.
    pub on_thread: Tally,
    /// It was held back before it began.
    pub held_back: Duration,
    /// Lookups of blocks. Of traced calls only.
    pub lookups: Lookups,
    /// Name of the region, if the request does not name it.
    pub region: Bytes,
}

impl Noted {
    /// A step on the disk pool. A call may have several.
    pub(crate) fn add_pooled(&mut self, queued: Duration, ran: Duration, waits: &Tally) {
        self.queued += queued;
        self.ran += ran;
        self.waits.merge(waits);
    }

    /// Something was noted of the time while it was put aside.
    fn is_of_wait(&self) -> bool {
        !(self.queued + self.ran + self.held_back).is_zero()
    }
}

/// What a wait of this cause was for.
enum Cause {
    Lock,
    Wal,
    Disk,
    Memory,
    /// Waits that contain others, or none of a call's.
    None,
}

fn cause_of(name: &str) -> Cause {
    match name {
        "row-lock" | "update-lock" | "chunk-lock" => Cause::Lock,
        "sync" | "write" | "rename" => Cause::Wal,
        "read" | "files" => Cause::Disk,
        "chunk-memory" => Cause::Memory,
        _ => Cause::None,
    }
}

/// The parts of a call's time, and how many times it read from disk. `log_stall` is how long the network thread was held
/// up by the WAL meanwhile.
pub(crate) fn parts(call: &NotedCall<'_>, noted: Option<&Noted>, log_stall: Duration) -> (TimeParts, u64) {
    let mut left = Left(Duration::from_nanos(call.waited_ns));
    let mut parts = TimeParts {
        thread: Duration::from_nanos(call.thread_ns),
        network: Duration::from_nanos(call.network_ns),
        ..TimeParts::default()
    };
    let mut disk_reads = 0;
    if let Some(noted) = noted {
        parts.memory = left.take(noted.held_back);
        parts.queue = left.take(noted.queued);
        let mut ran = Left(left.take(noted.ran));
        disk_reads += parts.add_waits(&noted.waits, &mut ran);
        parts.work = ran.0;
        let mut thread = Left(parts.thread);
        disk_reads += parts.add_waits(&noted.on_thread, &mut thread);
        parts.thread = thread.0;
    }
    match (call.class, noted.filter(|noted| noted.is_of_wait())) {
        (CallClass::Write, _) => parts.wal += left.0,
        (_, Some(_)) => parts.queue += left.0,
        (_, None) => parts.other = left.0,
    }
    if call.class == CallClass::Write {
        let by_log = parts.thread.min(log_stall);
        parts.thread -= by_log;
        parts.wal += by_log;
    }
    (parts, disk_reads)
}

/// Time that no part has yet.
struct Left(Duration);

impl Left {
    fn take(&mut self, time: Duration) -> Duration {
        let taken = time.min(self.0);
        self.0 -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::{Clock, ManualClock, Stalls};
    use halcyon_rpc::Connection;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn parts_of(class: CallClass, times_ms: [u64; 3], noted: Option<&Noted>) -> (TimeParts, u64) {
        let connection = Connection::new(1, "a:1");
        let [thread_ns, waited_ns, network_ns] = times_ms.map(|ms| ms * 1_000_000);
        let call = NotedCall {
            connection: &connection,
            class,
            call_id: 1,
            method: "",
            param: &Bytes::new(),
            failed: false,
            response_bytes: 0,
            thread_ns,
            waited_ns,
            network_ns,
            is_traced: false,
            batch_ns: 0,
        };
        let (parts, reads) = parts(&call, noted, ms(3));
        assert_eq!(parts.sum(), ms(times_ms.iter().sum()), "no time is lost or counted twice");
        (parts, reads)
    }

    /// Waits as the engine measures them.
    fn waits(all: &[(&'static str, u64)]) -> Tally {
        let (clock, stalls) = (ManualClock::at(0), Stalls::default());
        let wait = |(cause, ms): &(&'static str, u64)| {
            stalls.watch(&clock as &dyn Clock, cause, String::new, || {
                clock.advance(Duration::from_millis(*ms));
            });
        };
        Tally::of(|| all.iter().for_each(wait)).1
    }

    #[test]
    fn a_read_waits_for_its_turn_and_for_the_disk() {
        let waits = waits(&[("read", 20), ("read", 30), ("row-lock", 7), ("call", 99)]);
        let noted = Noted { queued: ms(300), ran: ms(100), waits, ..Noted::default() };
        let (parts, reads) = parts_of(CallClass::Read, [5, 410, 50], Some(&noted));
        let expected = TimeParts {
            thread: ms(5),
            queue: ms(310),
            lock: ms(7),
            disk: ms(50),
            work: ms(43),
            network: ms(50),
            ..TimeParts::default()
        };
        assert_eq!((parts, reads), (expected, 2));
        let (parts, _) = parts_of(CallClass::Read, [5, 10, 0], None);
        assert_eq!((parts.thread, parts.other), (ms(5), ms(10)));
    }

    #[test]
    fn a_write_waits_for_memory_and_for_the_wal() {
        let (parts, _) = parts_of(CallClass::Write, [5, 70, 0], None);
        assert_eq!((parts.thread, parts.wal), (ms(2), ms(73)));
        let noted = Noted {
            queued: ms(1),
            ran: ms(60),
            waits: waits(&[("sync", 40), ("chunk-memory", 2)]),
            held_back: ms(100),
            ..Noted::default()
        };
        let (parts, _) = parts_of(CallClass::Write, [3, 170, 0], Some(&noted));
        assert_eq!((parts.memory, parts.work, parts.wal), (ms(102), ms(18), ms(40 + 9 + 3)));
        // Clocks are read at slightly different moments: a part is never longer than the whole.
        let (parts, _) = parts_of(CallClass::Write, [0, 100, 0], Some(&noted));
        assert_eq!((parts.memory, parts.wal), (ms(100), ms(0)));
    }
}
