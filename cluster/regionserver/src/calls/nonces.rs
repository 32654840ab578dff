//! Operations that must happen once, by (nonce group, nonce).
//!
//! An Increment, Append or atomic batch that carries a nonce begins here. The first call with the pair does the
//! work; a second one that comes meanwhile waits for it; one that comes later learns that the work is done and
//! answers with what it reads. A failed operation is forgotten, so that a retry does the work. Checked against
//! `ServerNonceManager` of 2.6.4.
//!
//! *Thread safety*: all methods from any thread. [`Nonces::begin`] never blocks; [`Nonces::wait`] does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Clock;
use halcyon_region::Nonce;
use parking_lot::{Condvar, Mutex};

/// Finished pairs that are remembered at most, over all stripes.
const REMEMBERED_COUNT_MAX: usize = 1 << 20;
const STRIPES_COUNT: usize = 16;

/// What a call with a nonce is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Do the work, then tell [`Nonces::end`].
    Work,
    /// Somebody is doing it: wait.
    Running,
    /// It was done: answer with a read.
    Done,
}

/// See the head of the file.
pub(crate) struct Nonces {
    clock: Arc<dyn Clock>,
    /// How long a finished pair is remembered.
    grace: Duration,
    stripes: [Stripe; STRIPES_COUNT],
}

#[derive(Default)]
struct Stripe {
    state: Mutex<StripeState>,
    ended: Condvar,
}

#[derive(Default)]
struct StripeState {
    /// `true`: done.
    operations: HashMap<Nonce, bool>,
    /// Done pairs, oldest first, with the monotonic time at which they may be forgotten.
    expiry: VecDeque<(u64, Nonce)>,
}

impl Nonces {
    pub(crate) fn new(clock: Arc<dyn Clock>, grace: Duration) -> Nonces {
        Nonces { clock, grace, stripes: Default::default() }
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
        match state.operations.get(&nonce) {
            None => {
                state.operations.insert(nonce, false);
                Turn::Work
            }
            Some(false) => Turn::Running,
            Some(true) => Turn::Done,
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
        while state.operations.get(&nonce) == Some(&false) {
            let left_ns = deadline_ns.saturating_sub(self.clock.monotonic_ns());
            if left_ns == 0 {
                return Turn::Running;
            }
            let _ = stripe.ended.wait_for(&mut state, Duration::from_nanos(left_ns));
        }
        drop(state);
        self.begin(nonce)
    }

    /// The work of a `Turn::Work` succeeded or not.
    pub(crate) fn end(&self, nonce: Nonce, done: bool) {
        if nonce.nonce == 0 {
            return;
        }
        let now_ns = self.clock.monotonic_ns();
        let stripe = self.stripe(nonce);
        let mut state = stripe.state.lock();
        if done {
            state.operations.insert(nonce, true);
            state.expiry.push_back((now_ns + self.grace.as_nanos() as u64, nonce));
        } else {
            state.operations.remove(&nonce);
        }
        while let Some(&(expires_ns, oldest)) = state.expiry.front() {
            let full = state.expiry.len() > REMEMBERED_COUNT_MAX / STRIPES_COUNT;
            if !full && expires_ns > now_ns {
                break;
            }
            state.expiry.pop_front();
            state.operations.remove(&oldest);
        }
        drop(state);
        stripe.ended.notify_all();
    }
}

/// Ends an operation as failed when it is dropped before [`NonceGuard::end`].
pub(crate) struct NonceGuard {
    nonces: Arc<Nonces>,
    nonce: Nonce,
}

impl NonceGuard {
    pub(crate) fn new(nonces: &Arc<Nonces>, nonce: Nonce) -> NonceGuard {
        NonceGuard { nonces: nonces.clone(), nonce }
    }

    pub(crate) fn end(mut self, done: bool) {
        self.nonces.end(self.nonce, done);
        self.nonce.nonce = 0;
    }
}

impl Drop for NonceGuard {
    fn drop(&mut self) {
        self.nonces.end(self.nonce, false);
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
        let nonces = Arc::new(Nonces::new(clock.clone(), Duration::from_secs(10)));
        assert_eq!(nonces.begin(N), Turn::Work);
        assert_eq!(nonces.begin(N), Turn::Running);
        drop(NonceGuard::new(&nonces, N)); // failed
        assert_eq!(nonces.begin(N), Turn::Work);
        NonceGuard::new(&nonces, N).end(true);
        assert_eq!(nonces.begin(N), Turn::Done);
        clock.advance(Duration::from_secs(11));
        let other = Nonce { group: 1, nonce: 8 };
        for nonce in 100..200 {
            let any = Nonce { group: 5, nonce };
            assert_eq!(nonces.begin(any), Turn::Work);
            nonces.end(any, true);
        }
        assert_eq!(nonces.begin(other), Turn::Work);
        assert_eq!(nonces.begin(N), Turn::Work, "the grace period is over");
    }

    #[test]
    fn a_duplicate_waits_for_the_first() {
        let nonces = Arc::new(Nonces::new(halcyon_env::Env::real().clock, Duration::from_secs(10)));
        assert_eq!(nonces.begin(N), Turn::Work);
        let waiting = nonces.clone();
        let thread = halcyon_env::spawn_thread("duplicate", move || {
            assert_eq!(waiting.wait(N, Duration::from_secs(20)), Turn::Done);
        });
        nonces.end(N, true);
        thread.unwrap().join().unwrap();
        let short = Nonce { group: 2, nonce: 2 };
        assert_eq!(nonces.begin(short), Turn::Work);
        assert_eq!(nonces.wait(short, Duration::from_millis(5)), Turn::Running);
    }

    #[test]
    fn nonce_zero_is_none() {
        let nonces = Nonces::new(Arc::new(ManualClock::at(0)), Duration::from_secs(1));
        let none = Nonce { group: 3, nonce: 0 };
        assert_eq!(nonces.begin(none), Turn::Work);
        assert_eq!(nonces.begin(none), Turn::Work);
    }
}
