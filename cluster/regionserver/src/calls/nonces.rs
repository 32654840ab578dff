//! Operations that must happen once, by (nonce group, nonce).
//!
//! An Increment, Append or atomic batch that carries a nonce begins here. The first call with the pair does the
//! work; a second one that comes meanwhile waits for it; one that comes later learns that the work is done, and the
//! sequence id of its cells, by which it finds the answer. A failed operation is forgotten, so that a retry does the
//! work, unless it has written. What replay finds in the WAL is reported here before a region serves calls. Checked against
//! `ServerNonceManager` of 2.6.4.
//!
//! A finished pair is remembered for the grace period, as a key of eight bytes with the sequence id: the nonce,
//! exclusive-or a hash of its group. Two nonces of one group never have the same key, and nonces of two groups as
//! rarely as two random numbers.
//! Keys lie in *generations*, maps that grow until they are full or a quarter of the grace period old, and that are
//! forgotten as a whole. A full generation takes about 19 bytes for each key. Memory is bounded: beyond the bound the
//! oldest generation is forgotten early and counted. The bytes are part of the block cache's share (`memory.rs`).
//!
//! *Thread safety*: all methods from any thread. [`Nonces::begin`] never blocks; [`Nonces::wait`] does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_cell::SeqId;
use halcyon_env::{Clock, Condvar, Mutex};
use halcyon_region::{Nonce, ReplayedNonce};

const STRIPES_COUNT: usize = 16;
/// Generations that begin in one grace period when none is full before.
const GENERATIONS_PER_GRACE: u32 = 4;
/// Full generations that fit into the memory of a stripe.
const FULL_GENERATIONS: usize = 8;
/// Buckets of the smallest full generation.
const BUCKETS_MIN: usize = 64;
/// Bytes of a bucket of a hash map: the key, the sequence id, and a byte to find it by.
const BUCKET_BYTES: usize = 17;

/// What a call with a nonce is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Do the work, then tell [`Nonces::end`].
    Work,
    /// Somebody is doing it: wait.
    Running,
    /// It was done, and its cells have this sequence id; zero: not known, or it wrote nothing.
    Done(SeqId),
}

/// See the head of the file.
pub(crate) struct Nonces {
    clock: Arc<dyn Clock>,
    /// How long a finished pair is remembered.
    grace: Duration,
    /// Keys of a generation at most.
    generation_count_max: usize,
    stripe_bytes_max: usize,
    forgotten_early: AtomicU64,
    stripes: [Stripe; STRIPES_COUNT],
}

/// What is remembered at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonceStats {
    pub remembered_count: u64,
    pub held_bytes: u64,
    /// Since start: pairs that were forgotten before their grace period was over, for want of memory.
    pub forgotten_early_count: u64,
}

#[derive(Default)]
struct Stripe {
    state: Mutex<StripeState>,
    ended: Condvar,
}

#[derive(Default)]
struct StripeState {
    running: HashSet<Nonce>,
    /// Oldest first; the last one grows.
    generations: VecDeque<Generation>,
}

struct Generation {
    keys: HashMap<u64, SeqId, BuildHasherDefault<KeyHasher>>,
    began_ns: u64,
    /// When the last key came.
    newest_ns: u64,
}

/// Keys are mixed already.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Different for two nonces of one group.
fn key_of(nonce: Nonce) -> u64 {
    let mut group = nonce.group;
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        group = (group ^ (group >> 31)).wrapping_mul(factor);
    }
    nonce.nonce ^ group ^ (group >> 31)
}

impl Generation {
    fn new(now_ns: u64) -> Generation {
        Generation { keys: HashMap::default(), began_ns: now_ns, newest_ns: now_ns }
    }

    /// Bytes of the map: hash maps have a power of two of buckets and fill seven of eight.
    fn held_bytes(&self) -> usize {
        if self.keys.capacity() == 0 {
            0
        } else {
            (self.keys.capacity() * 8 / 7).next_power_of_two() * BUCKET_BYTES
        }
    }
}

impl StripeState {
    fn done(&self, nonce: Nonce) -> Option<SeqId> {
        let key = key_of(nonce);
        self.generations.iter().rev().find_map(|generation| generation.keys.get(&key).copied())
    }

    fn held_bytes(&self) -> usize {
        self.generations.iter().map(Generation::held_bytes).sum()
    }

    /// Forgets generations whose last key is as old as the grace period.
    fn expire(&mut self, now_ns: u64, grace_ns: u64) {
        while self.generations.front().is_some_and(|oldest| oldest.newest_ns + grace_ns <= now_ns) {
            self.generations.pop_front();
        }
    }
}

impl Nonces {
    /// `bytes_max`: of what is remembered, all generations together.
    pub(crate) fn new(clock: Arc<dyn Clock>, grace: Duration, bytes_max: u64) -> Nonces {
        let stripe_bytes_max = bytes_max as usize / STRIPES_COUNT;
        let buckets = stripe_bytes_max / FULL_GENERATIONS / BUCKET_BYTES;
        // The largest power of two that is not above.
        let buckets = ((buckets + 1).next_power_of_two() / 2).max(BUCKETS_MIN);
        Nonces {
            clock,
            grace,
            generation_count_max: buckets / 8 * 7,
            stripe_bytes_max,
            forgotten_early: AtomicU64::new(0),
            stripes: Default::default(),
        }
    }

    fn stripe(&self, nonce: Nonce) -> &Stripe {
        let mixed = (nonce.nonce ^ nonce.group.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.stripes[(mixed >> 60) as usize % STRIPES_COUNT]
    }

    /// Whose turn it is. Nonce 0 is none.
    pub(crate) fn begin(&self, nonce: Nonce) -> Turn {
        if nonce.nonce == 0 {
            return Turn::Work;
        }
        let mut state = self.stripe(nonce).state.lock();
        if state.running.contains(&nonce) {
            Turn::Running
        } else if let Some(seq) = state.done(nonce) {
            Turn::Done(seq)
        } else {
            state.running.insert(nonce);
            Turn::Work
        }
    }

    /// As `begin`, but waits while another call is at it; `Running` if it still is after `timeout`.
    pub(crate) fn wait(&self, nonce: Nonce, timeout: Duration) -> Turn {
        let turn = self.begin(nonce);
        if turn != Turn::Running {
            return turn;
        }
        let stripe = self.stripe(nonce);
        let mut state = stripe.state.lock();
        let deadline_ns = self.clock.monotonic_ns() + timeout.as_nanos() as u64;
        while state.running.contains(&nonce) {
            let left_ns = deadline_ns.saturating_sub(self.clock.monotonic_ns());
            if left_ns == 0 {
                return Turn::Running;
            }
            let _ = stripe.ended.wait_for(&mut state, Duration::from_nanos(left_ns));
        }
        drop(state);
        self.begin(nonce)
    }

    /// The work of a `Turn::Work` succeeded, and its cells have this sequence id; `None`: it failed.
    pub(crate) fn end(&self, nonce: Nonce, done: Option<SeqId>) {
        if nonce.nonce == 0 {
            return;
        }
        let stripe = self.stripe(nonce);
        let mut state = stripe.state.lock();
        assert!(
            state.running.remove(&nonce),
            "an operation ends that has not begun, or has ended: {nonce:?}"
        );
        if let Some(seq) = done {
            self.remember(&mut state, nonce, seq);
        }
        drop(state);
        stripe.ended.notify_all();
    }

    /// What replay found: these operations are done. Entries that are older than one and a half grace periods are left
    /// out, because the clocks of two servers may differ; the others are remembered for a grace period from now, as in HBase.
    pub(crate) fn report_replayed(&self, found: &[ReplayedNonce]) {
        let oldest_ms = self.clock.now_ms().saturating_sub(self.replayed_age_max().as_millis() as i64);
        for found in found {
            if found.nonce.nonce != 0 && found.write_time_ms >= oldest_ms {
                let mut state = self.stripe(found.nonce).state.lock();
                if state.done(found.nonce).is_none() {
                    self.remember(&mut state, found.nonce, found.seq);
                }
            }
        }
    }

    /// How old an entry of the WAL may be whose nonce still counts.
    pub(crate) fn replayed_age_max(&self) -> Duration {
        self.grace * 3 / 2
    }

    /// Forgets what is old enough, so that its memory is free also when nothing comes.
    pub(crate) fn expire(&self) {
        let (now_ns, grace_ns) = (self.clock.monotonic_ns(), self.grace.as_nanos() as u64);
        for stripe in &self.stripes {
            stripe.state.lock().expire(now_ns, grace_ns);
        }
    }

    pub(crate) fn stats(&self) -> NonceStats {
        let forgotten_early_count = self.forgotten_early.load(Ordering::Relaxed);
        let mut stats = NonceStats { forgotten_early_count, ..NonceStats::default() };
        for stripe in &self.stripes {
            let state = stripe.state.lock();
            stats.remembered_count += state.generations.iter().map(|g| g.keys.len() as u64).sum::<u64>();
            stats.held_bytes += state.held_bytes() as u64;
        }
        stats
    }

    fn remember(&self, state: &mut StripeState, nonce: Nonce, seq: SeqId) {
        let (now_ns, grace_ns) = (self.clock.monotonic_ns(), self.grace.as_nanos() as u64);
        state.expire(now_ns, grace_ns);
        let span_ns = grace_ns / u64::from(GENERATIONS_PER_GRACE);
        let grows = |last: &&mut Generation| {
            last.keys.len() < self.generation_count_max && now_ns < last.began_ns + span_ns
        };
        let generation = match state.generations.back_mut().filter(grows) {
            Some(last) => last,
            None => {
                state.generations.push_back(Generation::new(now_ns));
                state.generations.back_mut().expect("it was just put in")
            }
        };
        generation.keys.insert(key_of(nonce), seq);
        generation.newest_ns = now_ns;
        while state.held_bytes() > self.stripe_bytes_max && state.generations.len() > 1 {
            let forgotten = state.generations.pop_front().map_or(0, |oldest| oldest.keys.len());
            if self.forgotten_early.fetch_add(forgotten as u64, Ordering::Relaxed) == 0 {
                let bytes_max = self.stripe_bytes_max * STRIPES_COUNT;
                tracing::warn!(
                    bytes_max,
                    "no memory for nonces: the oldest are forgotten before their grace period is over"
                );
            }
        }
    }
}

/// Ends an operation as failed when it is dropped before [`NonceGuard::end`], unless it has written: then nobody knows whether the WAL has
/// it, which has failed. A call that repeats the operation here is told that it is running, until the server ends.
pub(crate) struct NonceGuard {
    nonces: Arc<Nonces>,
    nonce: Nonce,
    seq: SeqId,
    has_written: bool,
}

impl NonceGuard {
    pub(crate) fn new(nonces: &Arc<Nonces>, nonce: Nonce) -> NonceGuard {
        NonceGuard { nonces: nonces.clone(), nonce, seq: SeqId::ZERO, has_written: false }
    }

    /// The sequence id of what the operation has written.
    pub(crate) fn wrote(mut self, seq: SeqId) -> NonceGuard {
        self.seq = seq;
        self.written()
    }

    /// The operation has written, and no sequence id leads to an answer.
    pub(crate) fn written(mut self) -> NonceGuard {
        self.has_written = true;
        self
    }

    /// The operation succeeded.
    pub(crate) fn end(mut self) {
        self.nonces.end(self.nonce, Some(self.seq));
        self.nonce.nonce = 0; // nothing is left to be ended
    }
}

impl Drop for NonceGuard {
    fn drop(&mut self) {
        if !self.has_written {
            self.nonces.end(self.nonce, None);
        }
    }
}

/// The nonce of a write through the hooks of coprocessors. Once the write is durable it ends as done, also if a hook behind the write fails: a
/// client that repeats the call must not have it done twice. Dropped before that, it ends as [`NonceGuard`] does.
#[derive(Default)]
pub(crate) struct Once {
    /// As the WAL gets it.
    pub nonce: Nonce,
    /// `None`: there is no nonce, or it has ended.
    guard: Option<NonceGuard>,
    is_durable: bool,
}

impl Once {
    /// After a `Turn::Work` of the nonce.
    pub(crate) fn new(nonces: &Arc<Nonces>, nonce: Nonce) -> Once {
        let guard = (nonce.nonce != 0).then(|| NonceGuard::new(nonces, nonce));
        Once { nonce, guard, is_durable: false }
    }

    /// A nonce that is only for the WAL.
    pub(crate) fn unguarded(nonce: Nonce) -> Once {
        Once { nonce, guard: None, is_durable: false }
    }

    /// The write stands in the WAL with this sequence id, or nobody knows whether it does.
    pub(crate) fn wrote(&mut self, seq: SeqId) {
        self.guard = self.guard.take().map(|guard| guard.wrote(seq));
    }

    /// The write is durable. Hooks behind it may still change the answer, for which whoever repeats the call waits.
    pub(crate) fn durable(&mut self) {
        self.is_durable = true;
    }

    /// The work is done, and durable if something was written.
    pub(crate) fn end(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.end();
        }
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        if self.is_durable {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;

    const N: Nonce = Nonce { group: 1, nonce: 7 };

    #[test]
    fn done_once_failed_again_and_forgotten_late() {
        let clock = Arc::new(ManualClock::at(0));
        let nonces = Arc::new(Nonces::new(clock.clone(), Duration::from_secs(10), 1 << 20));
        assert_eq!(nonces.begin(N), Turn::Work);
        assert_eq!(nonces.begin(N), Turn::Running);
        drop(NonceGuard::new(&nonces, N)); // failed
        assert_eq!(nonces.begin(N), Turn::Work);
        NonceGuard::new(&nonces, N).wrote(SeqId::new(5)).end();
        assert_eq!(nonces.begin(N), Turn::Done(SeqId::new(5)));
        for (nonce, guard) in
            [(91, NonceGuard::wrote as fn(_, _) -> _), (92, |guard: NonceGuard, _| guard.written())]
        {
            let in_doubt = Nonce { group: 1, nonce };
            assert_eq!(nonces.begin(in_doubt), Turn::Work);
            drop(guard(NonceGuard::new(&nonces, in_doubt), SeqId::new(6)));
            assert_eq!(nonces.begin(in_doubt), Turn::Running, "the WAL may have it");
        }
        clock.advance(Duration::from_secs(11));
        let other = Nonce { group: 1, nonce: 8 };
        for nonce in 100..200 {
            let any = Nonce { group: 5, nonce };
            assert_eq!(nonces.begin(any), Turn::Work);
            nonces.end(any, Some(SeqId::ZERO));
        }
        assert_eq!(nonces.begin(other), Turn::Work);
        assert_eq!(nonces.begin(N), Turn::Work, "the grace period is over");
    }

    #[test]
    fn a_duplicate_waits_for_the_first() {
        let nonces = Arc::new(Nonces::new(halcyon_env::Env::real().clock, Duration::from_secs(10), 1 << 20));
        assert_eq!(nonces.begin(N), Turn::Work);
        let waiting = nonces.clone();
        let thread = halcyon_env::spawn_thread("duplicate", move || {
            assert_eq!(waiting.wait(N, Duration::from_secs(20)), Turn::Done(SeqId::new(8)));
        });
        nonces.end(N, Some(SeqId::new(8)));
        thread.unwrap().join().unwrap();
        let short = Nonce { group: 2, nonce: 2 };
        assert_eq!(nonces.begin(short), Turn::Work);
        assert_eq!(nonces.wait(short, Duration::from_millis(5)), Turn::Running);
    }

    #[test]
    fn nonce_zero_is_none() {
        let nonces = Nonces::new(Arc::new(ManualClock::at(0)), Duration::from_secs(1), 1 << 20);
        let none = Nonce { group: 3, nonce: 0 };
        assert_eq!(nonces.begin(none), Turn::Work);
        assert_eq!(nonces.begin(none), Turn::Work);
    }

    #[test]
    fn what_replay_reports_is_done() {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let nonces = Nonces::new(clock.clone(), Duration::from_secs(10), 1 << 20);
        let found = |nonce, age_ms: i64| ReplayedNonce {
            nonce: Nonce { group: 4, nonce },
            write_time_ms: 1_000_000 - age_ms,
            seq: SeqId::new(nonce),
        };
        // A client may repeat its call late, and the other server's clock may have been ahead.
        nonces.report_replayed(&[
            found(1, 0),
            found(2, 15_000),
            found(3, 15_001),
            found(0, 0),
            found(5, -90_000),
        ]);
        let turns = [1, 2, 3, 5].map(|nonce| nonces.begin(Nonce { group: 4, nonce }));
        let done = |seq| Turn::Done(SeqId::new(seq));
        assert_eq!(turns, [done(1), done(2), Turn::Work, done(5)]);
        assert_eq!(nonces.stats().remembered_count, 3);
        clock.advance(Duration::from_secs(10));
        nonces.expire();
        assert_eq!(nonces.stats().remembered_count, 0, "the grace period runs from the report on");
    }

    /// 65,536 pairs a stripe were remembered once, whatever memory there was: above 580 operations a second the grace
    /// period was not kept, and nobody was told.
    #[test]
    fn a_grace_period_of_many_operations_is_kept_in_its_memory() {
        let clock = Arc::new(ManualClock::at(0));
        let grace = Duration::from_secs(1800);
        let nonces = Nonces::new(clock.clone(), grace, 128 << 20);
        let nonce = |at: u64| Nonce { group: 7, nonce: at.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1 };
        let (seconds, a_second) = (1800, 2000);
        for at in 0..seconds * a_second {
            if at % a_second == 0 {
                clock.advance(Duration::from_secs(1));
            }
            nonces.begin(nonce(at));
            nonces.end(nonce(at), Some(SeqId::new(at)));
        }
        let stats = nonces.stats();
        assert_eq!(stats.forgotten_early_count, 0, "{stats:?}");
        assert!(stats.held_bytes <= 128 << 20, "{stats:?}");
        assert!(
            (0..seconds * a_second)
                .step_by(997)
                .all(|at| nonces.begin(nonce(at)) == Turn::Done(SeqId::new(at)))
        );
    }

    #[test]
    fn beyond_the_memory_the_oldest_are_forgotten_and_counted() {
        let clock = Arc::new(ManualClock::at(0));
        let nonces = Nonces::new(clock.clone(), Duration::from_secs(1800), 1 << 20);
        let count = 400_000;
        for nonce in 1..=count {
            clock.advance(Duration::from_micros(100));
            nonces.begin(Nonce { group: 3, nonce });
            nonces.end(Nonce { group: 3, nonce }, Some(SeqId::ZERO));
            if nonce % 1000 == 0 {
                assert!(nonces.stats().held_bytes <= 1 << 20);
            }
        }
        let stats = nonces.stats();
        assert!(stats.forgotten_early_count > 0);
        assert_eq!(stats.remembered_count + stats.forgotten_early_count, count);
        assert!(stats.remembered_count > 45_000, "a key takes about 19 bytes: {stats:?}");
        let newest = nonces.begin(Nonce { group: 3, nonce: count });
        assert_eq!(newest, Turn::Done(SeqId::ZERO), "the newest stay");
        assert_eq!(nonces.begin(Nonce { group: 3, nonce: 1 }), Turn::Work);
    }
}
