//! Locks of rows, and the last timestamps given to them (HBase: `HRegion.getRowLock`).

use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::sync::MutexGuard;
use halcyon_env::{Holder, Watch, WatchedMutex, random_bytes};
use smallvec::{SmallVec, smallvec};

use crate::activity;
use crate::api::ReadMode;

const STRIPES: usize = 1024;

const _: () = assert!(STRIPES.is_power_of_two(), "a row's stripe is some bits of its hash: no division");

/// Striped locks of rows: equal rows share a lock, and so may different ones.
///
/// Held from before a write reads what it depends on until its cells stand in the memstore (see docs/decisions/0002). What it reads
/// from files is in the cache by then, but for what the cache does not take: then the lock is held over the read. *Lock order*: stripes of one batch in ascending order, then the region's update
/// lock, then the write numbers, then the log.
///
/// A stripe also remembers the clock's last word to its rows, because a millisecond is long: a row that is deleted
/// and written again within one would hide what was acknowledged last. Clients of HBase hardly meet this, as its
/// writes take longer.
pub(crate) struct RowLocks {
    stripes: Box<[WatchedMutex<Stamps>]>,
    /// Random, so that nobody can choose rows that share a stripe.
    hash_keys: [u64; 2],
    watch: Watch,
    /// Of what rows these are, for who waits.
    region: Box<str>,
}

/// A timestamp that the server gave to a delete of a stripe's rows, or to cells ahead of the clock: twice the time, and one more if a delete
/// has it. So the later one is the greater one, and of two at one time that of a delete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stamped(i64);

impl Stamped {
    const NEVER: Stamped = Stamped(i64::MIN);

    fn new(at_ms: i64, deleted: bool) -> Stamped {
        Stamped(at_ms.clamp(i64::MIN / 2, i64::MAX / 2) * 2 + i64::from(deleted))
    }

    fn at_ms(self) -> i64 {
        self.0 >> 1
    }

    fn deleted(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The last ones of a stripe.
#[derive(Clone, Copy)]
struct Stamps {
    near: Stamped,
    /// Too far ahead of the clock to be followed: the clock was set back since. It counts again when the clock comes to it.
    far: Stamped,
}

impl Stamps {
    const NEVER: Stamps = Stamps { near: Stamped::NEVER, far: Stamped::NEVER };

    /// Whatever is up to `limit_ms` is near, and all else is far.
    #[inline]
    fn settle(&mut self, limit_ms: i64) {
        if self.near.at_ms() > limit_ms {
            self.far = self.far.max(self.near);
            self.near = Stamped::NEVER;
        }
        if self.far.at_ms() <= limit_ms {
            self.near = self.near.max(self.far);
            self.far = Stamped::NEVER;
        }
    }
}

/// How far timestamps may run ahead of the clock when a row is deleted and written again and again.
pub(crate) const AHEAD_MS_MAX: i64 = 100;
/// How far Increments and Appends alone bring them. What is left is for deletes of such a counter and for what comes behind those.
pub(crate) const COUNTER_AHEAD_MS_MAX: i64 = 50;

const _: () = assert!(
    0 < COUNTER_AHEAD_MS_MAX && COUNTER_AHEAD_MS_MAX < AHEAD_MS_MAX,
    "a row that is deleted and written within a millisecond needs two of them"
);

/// How long a write waits for rows that others hold. Who holds one may read from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowWait {
    /// As long as a thread that serves connections may; then `NeedsDisk`.
    OfEventLoop,
    /// As long as HBase does (`hbase.rowlock.wait.duration`); then `Expired`.
    OfClient,
}

impl RowWait {
    /// What may not wait for the disk does not wait for those who do.
    pub fn of(mode: ReadMode) -> RowWait {
        match mode {
            ReadMode::CacheOnly => RowWait::OfEventLoop,
            ReadMode::AnyDisk => RowWait::OfClient,
        }
    }

    fn time(self) -> Duration {
        match self {
            RowWait::OfEventLoop => Duration::from_millis(1),
            RowWait::OfClient => Duration::from_secs(30),
        }
    }

    #[cold]
    fn over(self, region: &str) -> Error {
        match self {
            RowWait::OfEventLoop => Error::needs_disk(),
            RowWait::OfClient => Error::new(
                ErrorKind::Expired,
                format!("Timed out waiting for lock for row in region {region}"),
            ),
        }
    }
}

/// Holds the locks of one batch.
pub(crate) struct RowGuards<'a> {
    guards: Guards<'a>,
}

enum Guards<'a> {
    One(MutexGuard<'a, Stamps>),
    Many(Vec<MutexGuard<'a, Stamps>>),
}

impl RowLocks {
    pub fn new(watch: Watch, region: &str) -> RowLocks {
        let stripes = (0..STRIPES).map(|_| WatchedMutex::new(Stamps::NEVER)).collect();
        RowLocks {
            stripes,
            hash_keys: [(); 2].map(|()| u64::from_le_bytes(random_bytes())),
            watch,
            region: region.into(),
        }
    }

    /// Timestamps up to `newest_ms` were given before the region was opened, perhaps ahead of the clock; what they
    /// were given to is not known any more. New cells are not put under them, nor beside them: one may be a delete.
    pub fn continue_behind(&self, newest_ms: i64, now_ms: i64) {
        if newest_ms < now_ms {
            return;
        }
        // Anything further ahead was a client's own choice.
        let at_ms = newest_ms.min(now_ms.saturating_add(AHEAD_MS_MAX - 1));
        for stripe in &self.stripes {
            stripe.unwatched().lock().near = Stamped::new(at_ms, true);
        }
    }

    fn stripe(&self, row: &[u8]) -> usize {
        (hash(self.hash_keys, row) % STRIPES as u64) as usize
    }

    /// Whether somebody holds the row's lock. For assertions: the caller ought to.
    pub fn is_locked(&self, row: &[u8]) -> bool {
        self.stripes[self.stripe(row)].unwatched().is_locked()
    }

    /// `NeedsDisk` or `Expired` if the row is held for longer than one may wait ([`RowWait`]).
    pub fn try_one(&self, row: &[u8], wait: RowWait) -> Result<RowGuards<'_>> {
        let guards = Guards::One(self.lock(self.stripe(row), wait, &mut None)?);
        Holder::me().is_at(&activity::READ);
        Ok(RowGuards { guards })
    }

    /// As `try_one`, all of them or none.
    pub fn try_all<'r>(&self, rows: impl Iterator<Item = &'r [u8]>, wait: RowWait) -> Result<RowGuards<'_>> {
        let mut stripes: Vec<usize> = rows.map(|row| self.stripe(row)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        assert!(
            stripes.is_sorted_by(|a, b| a < b),
            "two batches that take stripes in different orders wait for each other; one stripe twice for itself"
        );
        let mut until_ns = None;
        let guards = stripes.into_iter().map(|stripe| self.lock(stripe, wait, &mut until_ns));
        let guards = Guards::Many(guards.collect::<Result<_>>()?);
        Holder::me().is_at(&activity::READ);
        Ok(RowGuards { guards })
    }

    /// `until_ns`: until when all stripes of a batch together may be waited for; set at the first wait.
    #[inline]
    fn lock(
        &self,
        stripe: usize,
        wait: RowWait,
        until_ns: &mut Option<u64>,
    ) -> Result<MutexGuard<'_, Stamps>> {
        let detail = |held_by: &str| format!("a row of region {}, held by {held_by}", self.region);
        let time = || {
            let now_ns = self.watch.clock.monotonic_ns();
            let until_ns = *until_ns.get_or_insert(now_ns.saturating_add(wait.time().as_nanos() as u64));
            Duration::from_nanos(until_ns.saturating_sub(now_ns))
        };
        let guard = self.stripes[stripe].lock_within(time, &self.watch, "row-lock", detail);
        guard.ok_or_else(|| wait.over(&self.region))
    }

    #[cfg(test)]
    fn lock_one(&self, row: &[u8]) -> RowGuards<'_> {
        self.try_one(row, RowWait::OfClient).expect("nobody holds it for long")
    }

    #[cfg(test)]
    fn lock_all<'r>(&self, rows: impl Iterator<Item = &'r [u8]>) -> RowGuards<'_> {
        self.try_all(rows, RowWait::OfClient).expect("nobody holds them for long")
    }
}

/// Word by word: multiplied, and the product's halves laid over one another.
fn hash([start, factor]: [u64; 2], row: &[u8]) -> u64 {
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(factor | 1);
        (product >> 64) as u64 ^ product as u64
    };
    let (words, rest) = row.as_chunks::<8>();
    let mut hash = words.iter().fold(start, |hash, word| fold(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = fold(hash, u64::from_le_bytes(last));
    fold(hash, row.len() as u64)
}

impl RowGuards<'_> {
    /// The timestamp for cells of a batch that leave it to the server: `now_ms`, unless that would put a cell
    /// under a delete that came before it, or leave one uncovered that a delete comes after. `deletes`: the batch
    /// has deletes that get this timestamp; `puts`: it has other cells.
    pub fn stamp(&mut self, now_ms: i64, puts: bool, deletes: bool) -> i64 {
        let stripes = match &mut self.guards {
            Guards::One(stripe) => std::slice::from_mut(stripe),
            Guards::Many(stripes) => stripes,
        };
        let limit_ms = now_ms.saturating_add(AHEAD_MS_MAX);
        let mut wanted = now_ms;
        for stripe in stripes.iter_mut() {
            stripe.settle(limit_ms);
            let near = stripe.near;
            wanted = wanted.max(near.at_ms().saturating_add(i64::from(near.deleted() && puts)));
        }
        // Held at the limit rather than sent back to the clock: what was given before was held there as well.
        let at_ms = wanted.min(limit_ms);
        assert!(
            at_ms >= now_ms,
            "a cell stamped {at_ms} at {now_ms} would lie under what was written before it"
        );
        // A batch whose cells all have timestamps gets none. Where the limit holds one back, it may be that of a delete before, which is
        // remembered.
        if deletes || (puts && at_ms > now_ms) {
            for stripe in stripes.iter_mut() {
                stripe.near = stripe.near.max(Stamped::new(at_ms, deletes));
            }
        }
        at_ms
    }
}

impl<'a> RowGuards<'a> {
    /// Carries out `work`, which may stamp. If it fails nothing has got a timestamp.
    pub fn stamping<T>(&mut self, work: impl FnOnce(&mut RowGuards<'a>) -> Result<T>) -> Result<T> {
        let before: SmallVec<[Stamps; 1]> = match &self.guards {
            Guards::One(stripe) => smallvec![**stripe],
            Guards::Many(stripes) => stripes.iter().map(|stripe| **stripe).collect(),
        };
        let done = work(self);
        if done.is_err() {
            let stripes = match &mut self.guards {
                Guards::One(stripe) => std::slice::from_mut(stripe),
                Guards::Many(stripes) => stripes,
            };
            stripes.iter_mut().zip(before).for_each(|(stripe, before)| **stripe = before);
        }
        done
    }
}

impl RowGuards<'_> {
    /// A timestamp was given that is ahead of the clock: what comes next to these rows is not put under it.
    pub fn raise(&mut self, at_ms: i64, now_ms: i64) {
        if at_ms <= now_ms {
            return;
        }
        let stripes = match &mut self.guards {
            Guards::One(stripe) => std::slice::from_mut(stripe),
            Guards::Many(stripes) => stripes,
        };
        let stamped = Stamped::new(at_ms, false);
        for stripe in stripes.iter_mut() {
            if at_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
                stripe.far = stripe.far.max(stamped);
            } else {
                stripe.near = stripe.near.max(stamped);
            }
        }
    }
}

impl RowGuards<'_> {
    /// As [`RowGuards::raise`], of a delete, which is not further ahead than a stripe may be: what comes next is put behind it.
    pub fn raise_deleted(&mut self, at_ms: i64) {
        let stripes = match &mut self.guards {
            Guards::One(stripe) => std::slice::from_mut(stripe),
            Guards::Many(stripes) => stripes,
        };
        for stripe in stripes.iter_mut() {
            stripe.near = stripe.near.max(Stamped::new(at_ms, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_hides_what_was_before_it_and_nothing_after() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let stamp = |now_ms, deletes: bool| locks.lock_one(b"r").stamp(now_ms, !deletes, deletes);
        assert_eq!(stamp(5, false), 5);
        assert_eq!(stamp(5, false), 5, "puts alone follow the clock");
        assert_eq!(stamp(5, true), 5);
        assert_eq!(stamp(5, true), 5, "deletes too");
        assert_eq!(stamp(5, false), 6, "behind the delete");
        assert_eq!(stamp(5, true), 6, "covers what was put before it");
        assert_eq!(stamp(5, false), 7);
        let both = locks.lock_one(b"r").stamp(5, true, true);
        assert_eq!(both, 7, "a put beside a delete, with no delete before it");
        let both = locks.lock_one(b"r").stamp(5, true, true);
        assert_eq!(both, 8, "a put beside a delete is behind the delete before it");
        assert_eq!(stamp(9, false), 9, "the clock has caught up");
        assert_eq!(locks.lock_all([&b"r"[..], b"s"].into_iter()).stamp(9, false, true), 9);
        assert_eq!(locks.lock_one(b"s").stamp(9, true, false), 10);
    }

    /// It got no timestamp, and the delete before it was forgotten: the next put had that one's.
    #[test]
    fn a_delete_with_a_timestamp_of_its_own_forgets_no_other() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let stamp = |puts, deletes| locks.lock_one(b"r").stamp(5, puts, deletes);
        assert_eq!([stamp(false, true), stamp(true, false), stamp(false, true)], [5, 6, 6]);
        stamp(false, false);
        assert_eq!(stamp(true, false), 7, "behind the second delete");
    }

    #[test]
    fn a_delete_at_the_limit_is_not_forgotten() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let stamp = |now_ms, puts, deletes| locks.lock_one(b"r").stamp(now_ms, puts, deletes);
        while stamp(5, true, false) < 5 + AHEAD_MS_MAX {
            stamp(5, false, true);
        }
        assert_eq!(stamp(5, false, true), 5 + AHEAD_MS_MAX);
        assert_eq!(stamp(5, true, false), 5 + AHEAD_MS_MAX, "there is nothing behind it yet");
        assert_eq!(stamp(6, true, false), 6 + AHEAD_MS_MAX, "behind the delete");
    }

    /// The put before was stamped earlier than the delete, which was forgotten then: puts were hidden until the clock was there again.
    #[test]
    fn a_clock_that_is_set_back_lets_no_delete_be_forgotten() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let stamp = |now_ms, puts, deletes| locks.lock_one(b"r").stamp(now_ms, puts, deletes);
        assert_eq!(stamp(1_000, false, true), 1_000);
        assert_eq!(stamp(500, true, false), 500, "it cannot be behind the delete");
        assert_eq!(stamp(950, true, false), 1_001, "behind the delete");
    }

    /// Each cell got the time of the limit, until the clock was there again: what was deleted and put within a millisecond stayed hidden.
    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_order_of_deletes_and_puts() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let stamp = |now_ms, puts, deletes| locks.lock_one(b"r").stamp(now_ms, puts, deletes);
        assert_eq!(stamp(3_600_000, false, true), 3_600_000);
        let mut last_ms = i64::MIN;
        for now_ms in (0..3_600_000).step_by(997) {
            let put_ms = stamp(now_ms, true, false);
            assert!(put_ms > last_ms && put_ms <= now_ms + AHEAD_MS_MAX);
            let deleted_ms = stamp(now_ms, false, true);
            assert!(deleted_ms >= put_ms);
            last_ms = stamp(now_ms, true, false);
            assert!(last_ms > deleted_ms, "{last_ms}: the put at {now_ms} is hidden");
        }
        assert_eq!(stamp(3_599_950, true, false), 3_600_001, "behind the first delete");
        // Set back again, and back to the same time.
        assert_eq!(stamp(10, false, true), 10);
        assert_eq!(stamp(10, true, false), 11);
        assert_eq!(stamp(3_599_950, true, false), 3_600_001);
    }

    #[test]
    fn rows_spread_over_the_stripes() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        for rows in
            [|at: u64| format!("{at:016}"), |at: u64| format!("{at}"), |at| format!("{at:x}-of-a-user")]
        {
            let mut counts = vec![0; STRIPES];
            (0..16 * STRIPES as u64).for_each(|at| counts[locks.stripe(rows(at).as_bytes())] += 1);
            let most = counts.iter().max().copied().unwrap_or(0);
            let unused_count = counts.iter().filter(|&&count| count == 0).count();
            assert!(most < 64 && unused_count < 10, "{most} rows in one stripe, {unused_count} without any");
        }
    }

    #[test]
    fn a_hot_counter_does_not_push_its_neighbours_back() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let mut last = i64::MIN;
        for now_ms in 0..500 {
            locks.lock_one(b"r").raise(now_ms * 3, now_ms);
            let at_ms = locks.lock_one(b"r").stamp(now_ms, true, false);
            assert!(at_ms >= last && at_ms <= now_ms + AHEAD_MS_MAX);
            last = at_ms;
        }
    }

    #[test]
    fn a_long_wait_for_a_row_is_recorded_with_what_its_holder_is_at() {
        let watch = halcyon_env::Env::real().watch();
        watch.stalls.set_threshold(std::time::Duration::from_millis(5));
        let locks = std::sync::Arc::new(RowLocks::new(watch.clone(), "0123"));
        let held = locks.lock_one(b"r");
        Holder::me().is_at(&activity::INSERT_INTO_MEMSTORE);
        let others = locks.clone();
        let waiting = halcyon_env::spawn_thread("waits", move || drop(others.lock_one(b"r"))).unwrap();
        watch.clock.sleep(std::time::Duration::from_millis(30));
        drop(held);
        waiting.join().unwrap();
        let stall = watch.stalls.recent().pop().expect("it waited long");
        assert_eq!(stall.cause, "row-lock");
        assert_eq!(stall.detail, "a row of region 0123, held by a write inserting into the memstore");
        drop(locks.lock_one(b"r"));
        assert_eq!(watch.stalls.recent().len(), 1, "a free lock is no wait");
    }

    #[test]
    fn what_fails_has_given_no_timestamp() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        for fails in [true, true, false, true] {
            let attempt = |guards: &mut RowGuards<'_>| match (guards.stamp(5, true, true), fails) {
                (_, true) => Err(Error::needs_disk()),
                (at_ms, false) => Ok(at_ms),
            };
            let done = locks.lock_one(b"r").stamping(attempt);
            assert_eq!(done.ok(), (!fails).then_some(5));
        }
        assert_eq!(locks.lock_all([&b"r"[..], b"s"].into_iter()).stamp(5, true, false), 6);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        let held = locks.lock_one(b"r");
        let error = |wait| locks.try_one(b"r", wait).err().map(|error| error.kind());
        assert_eq!(error(RowWait::OfEventLoop), Some(ErrorKind::NeedsDisk));
        let both = locks.try_all([&b"s"[..], b"r", b"t"].into_iter(), RowWait::OfEventLoop);
        assert_eq!(both.err().map(|error| error.kind()), Some(ErrorKind::NeedsDisk));
        drop(held);
        assert!(locks.try_all([&b"s"[..], b"r", b"t"].into_iter(), RowWait::OfEventLoop).is_ok());
    }

    #[test]
    fn an_opening_does_not_forget_what_ran_ahead() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        locks.continue_behind(4, 5);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 5);
        locks.continue_behind(7, 5);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 8);
        assert_eq!(locks.lock_one(b"s").stamp(5, false, true), 7);
        locks.continue_behind(i64::MAX, 5);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 5 + AHEAD_MS_MAX);
    }

    /// A row was deleted by one server and put by the next one in the same millisecond: the put was hidden.
    #[test]
    fn a_put_is_behind_a_delete_of_the_opening_before() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        locks.continue_behind(5, 5);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 6);
        let later = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        later.continue_behind(5, 6);
        assert_eq!(later.lock_one(b"r").stamp(6, true, false), 6);
    }

    #[test]
    fn what_ran_ahead_is_not_overtaken() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        locks.lock_one(b"r").raise(7, 5);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 7);
        assert_eq!(locks.lock_one(b"r").stamp(5, false, true), 7);
        assert_eq!(locks.lock_one(b"r").stamp(5, true, false), 8);
        locks.lock_one(b"r").raise(8, 9);
        assert_eq!(locks.lock_one(b"r").stamp(9, true, false), 9);
    }

    #[test]
    fn timestamps_stay_near_the_clock() {
        let locks = RowLocks::new(halcyon_env::Env::real().watch(), "r");
        for _ in 0..5000 {
            for deletes in [true, false] {
                let at_ms = locks.lock_one(b"r").stamp(0, !deletes, deletes);
                assert!((0..=AHEAD_MS_MAX).contains(&at_ms));
            }
        }
    }
}
