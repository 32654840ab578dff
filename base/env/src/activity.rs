//! What threads are doing while they hold locks, so that a long wait can say whom it waited for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// One kind of work, named by the code that does it:
/// `static APPEND: Activity = Activity::new("a write appending to the WAL");`
pub struct Activity {
    text: &'static str,
    /// Its place in `KNOWN` plus one; 0 until a thread has been at it.
    number: AtomicU8,
}

static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// What a thread does that holds nothing any more.
const NOTHING: &str = "a thread that has just let go";

impl Activity {
    pub const fn new(text: &'static str) -> Activity {
        Activity { text, number: AtomicU8::new(0) }
    }

    /// In words, for a thread that waits.
    pub const fn text(&self) -> &'static str {
        self.text
    }

    #[inline]
    fn number(&self) -> u8 {
        match self.number.load(Ordering::Relaxed) {
            0 => self.register(),
            number => number,
        }
    }

    #[cold]
    fn register(&self) -> u8 {
        let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = known.iter().position(|text| *text == self.text).unwrap_or_else(|| {
            known.push(self.text);
            known.len() - 1
        });
        let number = u8::try_from(place + 1).expect("a program has fewer than 255 kinds of work");
        self.number.store(number, Ordering::Relaxed);
        number
    }
}

fn text_of(number: u8) -> Option<&'static str> {
    let known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    known.get(usize::from(number).checked_sub(1)?).copied()
}

/// Threads that report their work share this many slots; with more threads, some share one.
const SLOTS: usize = 64;
static ACTIVITIES: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];

const _: () = assert!(SLOTS <= u8::MAX as usize, "a slot's number fits into a lock's holder byte");

/// A thread as others see it that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u8);

impl Holder {
    /// The calling thread.
    #[inline]
    pub fn me() -> Holder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static SLOT: u8 = (NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS) as u8;
        }
        Holder(SLOT.with(|slot| *slot))
    }

    /// Says what the thread does from now on. Returns what it did before, for [`Holder::resumes`].
    #[inline]
    pub fn is_at(self, activity: &'static Activity) -> Before {
        let slot = &ACTIVITIES[usize::from(self.0)];
        let before = Before(slot.load(Ordering::Relaxed));
        slot.store(activity.number(), Ordering::Relaxed);
        before
    }

    /// The thread continues with what it did before.
    #[inline]
    pub fn resumes(self, before: Before) {
        ACTIVITIES[usize::from(self.0)].store(before.0, Ordering::Relaxed);
    }

    /// The thread has let go of what others may want.
    #[inline]
    pub fn is_idle(self) {
        self.resumes(Before(0));
    }

    /// What it said last, in words.
    pub fn activity(self) -> &'static str {
        text_of(ACTIVITIES[usize::from(self.0)].load(Ordering::Relaxed)).unwrap_or(NOTHING)
    }

    /// What threads do, each kind of work once.
    pub fn activities() -> Vec<&'static str> {
        let mut numbers: Vec<u8> = ACTIVITIES.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().filter_map(text_of).collect()
    }

    /// To be kept beside a lock (see `locks.rs`).
    #[inline]
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn of_number(number: u8) -> Holder {
        Holder(number % SLOTS as u8)
    }
}

/// What a thread did before it said something else.
#[derive(Clone, Copy)]
pub struct Before(u8);

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Activity = Activity::new("a test at one");
    static SAME: Activity = Activity::new("a test at one");
    static TWO: Activity = Activity::new("a test at two");

    #[test]
    fn a_thread_says_what_it_is_at_and_continues_with_what_it_was_at_before() {
        let me = Holder::me();
        me.is_idle();
        assert_eq!(me.activity(), NOTHING);
        me.is_at(&ONE);
        let before = me.is_at(&TWO);
        assert_eq!(
            (me.activity(), ONE.number(), TWO.text()),
            ("a test at two", SAME.number(), "a test at two")
        );
        me.resumes(before);
        assert_eq!(Holder::of_number(me.number()).activity(), "a test at one");
        assert!(Holder::activities().contains(&"a test at one"));
    }
}
