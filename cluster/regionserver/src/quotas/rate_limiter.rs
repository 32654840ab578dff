//! How much of one kind may be used in a time (HBase: `RateLimiter` and its two forms).
//!
//! A limiter holds what is available, at most its limit. Using more than that is allowed, because the real cost of a call is
//! known only afterwards: then the amount available is negative, and later calls wait until it was refilled.

use std::time::Duration;

/// Limits nothing.
const UNLIMITED: i64 = i64::MAX;

/// When what was used comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// Little by little (HBase: `AverageIntervalRateLimiter`).
    Steady,
    /// All at once, each time that so many milliseconds have passed; at most a second, which is the unit that HBase builds
    /// it with (`FixedIntervalRateLimiter`).
    Every(u64),
}

impl Refill {
    /// The interval is at most a second, and not 0.
    pub(crate) fn every(interval: Duration) -> Refill {
        Refill::Every(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).clamp(1, 1000))
    }
}

/// One limit, such as 10 requests a second. Times are `Clock::now_ms` or any other that does not go back.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    refill: Refill,
    unit_ms: u64,
    limit: i64,
    available: i64,
    /// `Steady`: when it was refilled last. `Every`: when it will be. `None`: nothing was asked yet.
    refill_at_ms: Option<u64>,
}

impl RateLimiter {
    pub(super) fn unlimited(refill: Refill) -> RateLimiter {
        RateLimiter { refill, unit_ms: 1000, limit: UNLIMITED, available: UNLIMITED, refill_at_ms: None }
    }

    /// `limit` in each `unit_ms`. Both are at least 1.
    pub(super) fn new(refill: Refill, limit: i64, unit_ms: u64) -> RateLimiter {
        let (limit, unit_ms) = (limit.max(1), unit_ms.max(1));
        RateLimiter { refill, unit_ms, limit, available: limit, refill_at_ms: None }
    }

    /// Takes the limit of another one. What was used stays used.
    pub(super) fn change_to(&mut self, other: &RateLimiter) {
        if self.is_unlimited() || other.is_unlimited() {
            *self = other.clone();
            return;
        }
        if self.limit < other.limit {
            self.available = self.available.saturating_add(other.limit - self.limit).min(other.limit);
        }
        (self.unit_ms, self.limit, self.refill) = (other.unit_ms, other.limit, other.refill);
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.limit == UNLIMITED
    }

    pub(super) fn limit(&self) -> i64 {
        self.limit
    }

    /// How long to wait until `amount` is available; zero: it is.
    pub(super) fn wait_ms(&mut self, amount: i64, now_ms: u64) -> u64 {
        if self.is_unlimited() {
            return 0;
        }
        let refilled = self.refilled(now_ms);
        self.available = self.available.saturating_add(refilled).min(self.limit);
        if self.available >= amount { 0 } else { self.time_until(amount, now_ms) }
    }

    /// Uses `amount`; a negative one gives back.
    pub(super) fn consume(&mut self, amount: i64) {
        if !self.is_unlimited() {
            self.available = self.available.saturating_sub(amount).min(self.limit);
        }
    }

    /// What has come back since the last look.
    fn refilled(&mut self, now_ms: u64) -> i64 {
        let Some(at_ms) = self.refill_at_ms else {
            self.refill_at_ms = Some(match self.refill {
                Refill::Steady => now_ms,
                Refill::Every(interval_ms) => now_ms + interval_ms,
            });
            return self.limit;
        };
        match self.refill {
            Refill::Steady => {
                let passed_ms = now_ms.saturating_sub(at_ms);
                let amount = share(self.limit, passed_ms.min(self.unit_ms), self.unit_ms);
                if amount > 0 {
                    self.refill_at_ms = Some(now_ms);
                }
                amount
            }
            Refill::Every(_) if now_ms < at_ms => 0,
            Refill::Every(interval_ms) => {
                let times = (interval_ms + now_ms - at_ms) / interval_ms;
                self.refill_at_ms = Some(now_ms + interval_ms);
                let times = i64::try_from(times).unwrap_or(i64::MAX);
                self.amount_of_interval(interval_ms).saturating_mul(times).min(self.limit)
            }
        }
    }

    fn amount_of_interval(&self, interval_ms: u64) -> i64 {
        let amount = (interval_ms as f64 / self.unit_ms as f64 * self.limit as f64).ceil();
        (amount as i64).max(1)
    }

    /// At least a millisecond: less would be told as no wait at all.
    fn time_until(&self, amount: i64, now_ms: u64) -> u64 {
        let missing = amount.saturating_sub(self.available).max(1);
        let time_ms = match self.refill {
            Refill::Steady => {
                share(i64::try_from(self.unit_ms).unwrap_or(i64::MAX), missing as u64, self.limit as u64)
                    as u64
            }
            Refill::Every(interval_ms) => {
                let next_ms = self.refill_at_ms.unwrap_or(now_ms).saturating_sub(now_ms);
                let intervals = (missing - 1) / self.amount_of_interval(interval_ms);
                next_ms.saturating_add(interval_ms.saturating_mul(intervals as u64))
            }
        };
        time_ms.max(1)
    }
}

/// `whole` times `part` / `of`, rounded down.
fn share(whole: i64, part: u64, of: u64) -> i64 {
    let share = i128::from(whole) * i128::from(part) / i128::from(of);
    i64::try_from(share).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_limiter_gives_back_little_by_little() {
        let mut limiter = RateLimiter::new(Refill::Steady, 10, 1000);
        assert_eq!(limiter.wait_ms(10, 5000), 0);
        limiter.consume(10);
        assert_eq!(limiter.wait_ms(1, 5000), 100);
        assert_eq!(limiter.wait_ms(1, 5099), 100, "less than one has come back");
        assert_eq!(limiter.wait_ms(1, 5100), 0);
        limiter.consume(1);
        assert_eq!(limiter.wait_ms(3, 5200), 200);
        assert_eq!(limiter.wait_ms(10, 9000), 0, "never more than the limit");
        assert_eq!(limiter.wait_ms(11, 9000), 100);
    }

    #[test]
    fn a_debt_is_waited_for() {
        let mut limiter = RateLimiter::new(Refill::Steady, 10, 1000);
        assert_eq!(limiter.wait_ms(1, 0), 0);
        limiter.consume(30);
        assert_eq!(limiter.wait_ms(1, 0), 2100);
        assert_eq!(limiter.wait_ms(1, 1000), 1100);
        limiter.consume(-15);
        assert_eq!(limiter.wait_ms(5, 1000), 0);
        limiter.consume(-100);
        assert_eq!(limiter.wait_ms(11, 1000), 100, "what is given back is never more than the limit");
    }

    #[test]
    fn a_limiter_with_intervals_gives_back_at_their_ends() {
        let mut limiter = RateLimiter::new(Refill::every(Duration::from_secs(5)), 10, 1000);
        assert_eq!(limiter.wait_ms(10, 5000), 0);
        limiter.consume(10);
        assert_eq!(limiter.wait_ms(1, 5400), 600);
        assert_eq!(limiter.wait_ms(11, 5400), 1600);
        assert_eq!(limiter.wait_ms(10, 6000), 0);
        let mut short = RateLimiter::new(Refill::every(Duration::from_millis(100)), 10, 1000);
        assert_eq!(short.wait_ms(10, 0), 0);
        short.consume(10);
        assert_eq!((short.wait_ms(1, 0), short.wait_ms(3, 0)), (100, 300));
        assert_eq!(short.wait_ms(2, 250), 0);
    }

    #[test]
    fn a_new_limit_leaves_what_was_used() {
        let mut limiter = RateLimiter::new(Refill::Steady, 10, 1000);
        assert_eq!(limiter.wait_ms(8, 0), 0);
        limiter.consume(8);
        limiter.change_to(&RateLimiter::new(Refill::Steady, 20, 1000));
        assert_eq!((limiter.wait_ms(12, 0), limiter.wait_ms(13, 0)), (0, 50));
        limiter.change_to(&RateLimiter::new(Refill::Steady, 5, 1000));
        assert_eq!((limiter.wait_ms(5, 0), limiter.wait_ms(6, 0)), (0, 200));
        limiter.change_to(&RateLimiter::unlimited(Refill::Steady));
        assert_eq!(limiter.wait_ms(i64::MAX, 0), 0);
    }

    #[test]
    fn huge_limits_and_amounts_do_not_overflow() {
        for refill in [Refill::Steady, Refill::Every(1)] {
            let mut limiter = RateLimiter::new(refill, i64::MAX - 1, 1);
            assert_eq!(limiter.wait_ms(1, u64::MAX / 2), 0);
            limiter.consume(i64::MIN);
            limiter.consume(i64::MAX);
            limiter.consume(i64::MAX);
            assert!(limiter.wait_ms(i64::MAX, u64::MAX / 2) > 0);
            let _ = limiter.wait_ms(i64::MAX, u64::MAX - 2);
        }
    }
}
