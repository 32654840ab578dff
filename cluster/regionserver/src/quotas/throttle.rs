//! The limits of one subject: a user, a table, a namespace or the region server (HBase: `TimeBasedLimiter`).

use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use pb::ThrottleType;

use super::rate_limiter::{RateLimiter, Refill};

/// Kinds of limits, and what a call is told that reaches one (HBase: `RpcThrottlingException`). Clients read the kind and the
/// time from the text.
const KINDS: [(ThrottleType, &str); 13] = [
    (ThrottleType::RequestNumber, "number of requests exceeded"),
    (ThrottleType::RequestSize, "request size limit exceeded"),
    (ThrottleType::WriteNumber, "number of write requests exceeded"),
    (ThrottleType::WriteSize, "write size limit exceeded"),
    (ThrottleType::ReadNumber, "number of read requests exceeded"),
    (ThrottleType::ReadSize, "read size limit exceeded"),
    (ThrottleType::RequestCapacityUnit, "request capacity unit exceeded"),
    (ThrottleType::WriteCapacityUnit, "write capacity unit exceeded"),
    (ThrottleType::ReadCapacityUnit, "read capacity unit exceeded"),
    (ThrottleType::AtomicReadSize, "atomic read size exceeded"),
    (ThrottleType::AtomicRequestNumber, "atomic request number exceeded"),
    (ThrottleType::AtomicWriteSize, "atomic write size exceeded"),
    (ThrottleType::RequestHandlerUsageMs, "request handler usage time exceeded"),
];

/// What a call needs, or has used. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) writes: i64,
    pub(super) reads: i64,
    pub(super) write_size: i64,
    pub(super) read_size: i64,
    pub(super) write_units: i64,
    pub(super) read_units: i64,
    /// It reads and writes as one.
    pub(super) is_atomic: bool,
    /// Microseconds of a thread: most calls need less than a millisecond, and would be free.
    pub(super) handler_us: i64,
}

/// Of the limit of thread time, which a quota gives in milliseconds.
pub(super) const US_OF_MS: i64 = 1000;

/// Limits of one subject. *Thread safety*: all methods from any thread; one lock, held for some additions.
#[derive(Debug)]
pub(super) struct Throttle {
    limiters: Mutex<[RateLimiter; KINDS.len()]>,
}

impl Throttle {
    /// `None` if nothing is limited.
    pub(super) fn new(throttle: &pb::Throttle, refill: Refill) -> Option<Throttle> {
        let limits = [
            &throttle.req_num,
            &throttle.req_size,
            &throttle.write_num,
            &throttle.write_size,
            &throttle.read_num,
            &throttle.read_size,
            &throttle.req_capacity_unit,
            &throttle.write_capacity_unit,
            &throttle.read_capacity_unit,
            &throttle.atomic_read_size,
            &throttle.atomic_req_num,
            &throttle.atomic_write_size,
            &throttle.req_handler_usage_ms,
        ];
        if limits.iter().all(|limit| limit.is_none()) {
            return None;
        }
        let limiters = std::array::from_fn(|kind| match limits[kind] {
            Some(quota) if kind == at(ThrottleType::RequestHandlerUsageMs) => {
                RateLimiter::new(refill, limit_of(quota).saturating_mul(US_OF_MS), unit_ms(quota))
            }
            Some(quota) => RateLimiter::new(refill, limit_of(quota), unit_ms(quota)),
            None => RateLimiter::unlimited(refill),
        });
        Some(Throttle { limiters: Mutex::new(limiters) })
    }

    /// Takes other limits. What was used stays used.
    pub(super) fn change_to(&self, other: &Throttle) {
        let others = other.limiters.lock().clone();
        self.limiters.lock().iter_mut().zip(&others).for_each(|(limiter, other)| limiter.change_to(other));
    }

    /// The largest size of a read that can ever be available.
    pub(super) fn read_size_limit(&self) -> i64 {
        let limiters = self.limiters.lock();
        let limit = |kind| limiters[at(kind)].limit();
        limit(ThrottleType::ReadSize).min(limit(ThrottleType::RequestSize))
    }

    /// Refuses what the limits have no room for, with the time to wait. Takes nothing. An estimate above a limit counts as
    /// the limit, or such a call could never run.
    pub(super) fn check(&self, usage: &Usage, now_ms: u64) -> Result<(), RpcError> {
        let limiters = &mut *self.limiters.lock();
        let limit = |kind| limiters[at(kind)].limit();
        let either = limit(ThrottleType::ReadNumber).saturating_add(limit(ThrottleType::WriteNumber));
        let requests_max = limit(ThrottleType::RequestNumber).min(either);
        let reads = usage.reads.min(requests_max).min(limit(ThrottleType::ReadNumber));
        let writes = usage.writes.min(requests_max).min(limit(ThrottleType::WriteNumber));
        let request_size = limit(ThrottleType::RequestSize);
        let read_size = usage.read_size.min(request_size).min(limit(ThrottleType::ReadSize));
        let write_size = usage.write_size.min(request_size).min(limit(ThrottleType::WriteSize));
        let usage = Usage { writes, reads, write_size, read_size, ..*usage };
        for (kind, amount) in usage.amounts() {
            // As HBase does it: sizes of atomic operations are refused only when nothing is left.
            let amount = match kind {
                ThrottleType::AtomicReadSize => writes + reads,
                ThrottleType::AtomicWriteSize => writes,
                _ => amount,
            };
            let wait_ms = limiters[at(kind)].wait_ms(amount, now_ms);
            if wait_ms > 0 {
                return Err(exceeded(kind, wait_ms));
            }
        }
        Ok(())
    }

    /// Uses, also beyond the limits.
    pub(super) fn consume(&self, usage: &Usage) {
        let mut limiters = self.limiters.lock();
        usage.amounts().for_each(|(kind, amount)| limiters[at(kind)].consume(amount));
    }
}

impl Usage {
    /// Of each kind of limit, in the order in which they are looked at.
    fn amounts(&self) -> impl Iterator<Item = (ThrottleType, i64)> + use<> {
        use ThrottleType::*;
        let usage = *self;
        let of_atomic = move |amount: i64| if usage.is_atomic { amount } else { 0 };
        [
            (RequestNumber, usage.writes + usage.reads),
            (RequestSize, usage.write_size + usage.read_size),
            (RequestCapacityUnit, usage.write_units + usage.read_units),
            (AtomicRequestNumber, of_atomic(usage.writes + usage.reads)),
            (WriteNumber, usage.writes),
            (WriteSize, usage.write_size),
            (WriteCapacityUnit, usage.write_units),
            (AtomicWriteSize, of_atomic(usage.write_size)),
            (ReadNumber, usage.reads),
            (ReadSize, usage.read_size),
            (ReadCapacityUnit, usage.read_units),
            (AtomicReadSize, of_atomic(usage.read_size)),
            (RequestHandlerUsageMs, usage.handler_us),
        ]
        .into_iter()
        .filter(|(_, amount)| *amount != 0)
    }
}

fn at(kind: ThrottleType) -> usize {
    kind as usize - ThrottleType::RequestNumber as usize
}

fn limit_of(quota: &pb::TimedQuota) -> i64 {
    i64::try_from(quota.soft_limit()).unwrap_or(i64::MAX - 1)
}

/// Milliseconds of a quota's unit; units below a millisecond count as one, which HBase refuses.
fn unit_ms(quota: &pb::TimedQuota) -> u64 {
    match quota.time_unit() {
        pb::TimeUnit::Nanoseconds | pb::TimeUnit::Microseconds | pb::TimeUnit::Milliseconds => 1,
        pb::TimeUnit::Seconds => 1000,
        pb::TimeUnit::Minutes => 60 * 1000,
        pb::TimeUnit::Hours => 60 * 60 * 1000,
        pb::TimeUnit::Days => 24 * 60 * 60 * 1000,
    }
}

fn exceeded(kind: ThrottleType, wait_ms: u64) -> RpcError {
    RpcError::rpc_throttling(format!("{} - wait {}", KINDS[at(kind)].1, time_text(wait_ms)))
}

/// As `RpcThrottlingException.stringFromMillis` writes it: clients parse it.
fn time_text(ms: u64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    let mut part = |count: u64, one: &str, many: &str| {
        if count > 0 {
            text += &format!("{count}{}, ", if count == 1 { one } else { many });
        }
    };
    part(hours, "hr", "hrs");
    part(minutes, "min", "mins");
    part(seconds, "sec", "sec");
    format!("{text}{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(limit: u64, unit: pb::TimeUnit) -> Option<pb::TimedQuota> {
        Some(pb::TimedQuota { time_unit: unit as i32, soft_limit: Some(limit), ..Default::default() })
    }

    #[test]
    fn each_kind_stands_where_its_number_says() {
        KINDS.iter().enumerate().for_each(|(place, (kind, _))| assert_eq!(at(*kind), place));
    }

    #[test]
    fn a_call_is_told_what_it_has_exceeded_and_how_long_to_wait() {
        let throttle = pb::Throttle { write_num: quota(2, pb::TimeUnit::Hours), ..Default::default() };
        let throttle = Throttle::new(&throttle, Refill::Steady).unwrap();
        let put = Usage { writes: 1, write_size: 100, ..Usage::default() };
        let get = Usage { reads: 1, read_size: 100, ..Usage::default() };
        for _ in 0..2 {
            throttle.check(&put, 0).unwrap();
            throttle.consume(&put);
        }
        let error = throttle.check(&put, 0).unwrap_err();
        assert_eq!(error.message, "number of write requests exceeded - wait 30mins, 0ms");
        assert!(!error.do_not_retry);
        throttle.check(&get, 0).unwrap();
        let many = Usage { writes: 100, write_size: 10_000, ..Usage::default() };
        throttle.check(&many, 3_600_000).unwrap();
        throttle.consume(&many);
        assert_eq!(
            throttle.check(&put, 3_600_000).unwrap_err().message.split(" - ").last(),
            Some("wait 49hrs, 30mins, 0ms")
        );
    }

    #[test]
    fn an_estimate_above_the_limit_counts_as_the_limit() {
        let throttle = pb::Throttle { read_size: quota(1000, pb::TimeUnit::Seconds), ..Default::default() };
        let throttle = Throttle::new(&throttle, Refill::Steady).unwrap();
        let get = Usage { reads: 1, read_size: 65536, ..Usage::default() };
        throttle.check(&get, 0).unwrap();
        throttle.consume(&get);
        throttle.consume(&Usage { read_size: 64 - 65536, ..Usage::default() });
        assert!(throttle.check(&get, 0).is_err());
        throttle.check(&get, 64).unwrap();
    }

    #[test]
    fn times_are_written_as_clients_read_them() {
        for (ms, text) in [
            (1, "1ms"),
            (1999, "1sec, 999ms"),
            (61_000, "1min, 1sec, 0ms"),
            (3_600_000, "1hr, 0ms"),
            (2 * 3_600_000 + 120_000 + 3_004, "2hrs, 2mins, 3sec, 4ms"),
        ] {
            assert_eq!(time_text(ms), text);
        }
    }

    #[test]
    fn nothing_is_limited_by_an_empty_throttle() {
        assert!(Throttle::new(&pb::Throttle::default(), Refill::Steady).is_none());
    }
}
