//! What to do about an error, and how long to wait before that.
//!
//! HBase: `ClientExceptionsUtil`, `HBaseServerExceptionPauseManager`, `ConnectionUtils.getPauseTime`.

use std::time::Duration;

use crate::{ClientError, exceptions};

/// Multiples of the pause from retry to retry (`HConstants.RETRY_BACKOFF`); the last one stays.
const BACKOFF: [u32; 13] = [1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200];

/// Pauses between attempts, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Pause before the first retry (`hbase.client.pause`, 100 ms). Later ones are multiples of it.
    pub pause: Duration,
    /// The same when the server is overloaded (`hbase.client.pause.server.overloaded`, 500 ms).
    pub pause_overloaded: Duration,
    /// Retries after the first attempt (`hbase.client.retries.number`, 15).
    pub retries_max: u32,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            pause: Duration::from_millis(100),
            pause_overloaded: Duration::from_millis(500),
            retries_max: 15,
        }
    }
}

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Look up the region again, then try again.
    Relocate,
    /// Try again later; the region is where it was.
    Wait,
    /// The scanner is gone: open a new one after the last row.
    Reopen,
    /// No retry will help.
    Fail,
}

/// Sorts an error by what it asks for.
pub fn advice(error: &ClientError) -> Advice {
    let exception = match error {
        ClientError::Io(_) | ClientError::Closed => return Advice::Relocate,
        ClientError::Malformed(_) | ClientError::Invalid(_) => return Advice::Fail,
        ClientError::Remote(exception) => exception,
    };
    match exception.simple_class() {
        "NotServingRegionException"
        | "RegionMovedException"
        | "RegionServerStoppedException"
        | "RegionServerAbortedException"
        | "ServerNotRunningYetException"
        | "MasterNotRunningException"
        | "MasterStoppedException" => Advice::Relocate,
        // The region is there, and is busy, opening, or throttled.
        "RegionOpeningException"
        | "RegionTooBusyException"
        | "CallQueueTooBigException"
        | "CallDroppedException"
        | "RpcThrottlingException"
        | "RetryImmediatelyException"
        | "MultiActionResultTooLarge"
        | "PleaseHoldException" => Advice::Wait,
        "UnknownScannerException"
        | "ScannerResetException"
        | "OutOfOrderScannerNextException"
        | "LeaseException"
        | "LeaseStillHeldException" => Advice::Reopen,
        _ if exception.do_not_retry => Advice::Fail,
        // A class that is not known here: the location may be the reason.
        _ => Advice::Relocate,
    }
}

/// The pause before retry `number` (from 0), without jitter.
pub fn pause(policy: &RetryPolicy, error: &ClientError, number: u32) -> Duration {
    let exception = error.remote();
    match exception.map(|exception| exception.simple_class()) {
        Some("RetryImmediatelyException" | "MultiActionResultTooLarge") => return Duration::ZERO,
        Some("RpcThrottlingException") => {
            if let Some(told) =
                exception.and_then(|exception| exceptions::throttle_pause(exception.message()))
            {
                return told;
            }
        }
        _ => {}
    }
    let overloaded = exception.is_some_and(|exception| exception.server_overloaded);
    let base = if overloaded { policy.pause_overloaded } else { policy.pause };
    base * BACKOFF[(number as usize).min(BACKOFF.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteException;

    fn remote(class: &str, do_not_retry: bool, server_overloaded: bool) -> ClientError {
        let class = format!("org.apache.hadoop.hbase.{class}");
        ClientError::Remote(Box::new(RemoteException {
            class,
            trace: String::new(),
            do_not_retry,
            server_overloaded,
        }))
    }

    #[test]
    fn each_exception_has_its_answer() {
        assert_eq!(advice(&remote("NotServingRegionException", false, false)), Advice::Relocate);
        assert_eq!(advice(&remote("exceptions.RegionMovedException", false, false)), Advice::Relocate);
        assert_eq!(advice(&remote("exceptions.RegionOpeningException", false, false)), Advice::Wait);
        assert_eq!(advice(&remote("RegionTooBusyException", false, false)), Advice::Wait);
        assert_eq!(advice(&remote("CallQueueTooBigException", false, true)), Advice::Wait);
        // a subclass of DoNotRetryIOException, and yet a scan goes on
        assert_eq!(advice(&remote("UnknownScannerException", true, false)), Advice::Reopen);
        assert_eq!(advice(&remote("regionserver.NoSuchColumnFamilyException", true, false)), Advice::Fail);
        assert_eq!(advice(&remote("SomethingNewException", false, false)), Advice::Relocate);
        assert_eq!(advice(&remote("SomethingNewException", true, false)), Advice::Fail);
        assert_eq!(advice(&ClientError::Closed), Advice::Relocate);
        assert_eq!(advice(&ClientError::Invalid(String::new())), Advice::Fail);
    }

    #[test]
    fn pauses_grow_as_in_hbase_and_stay() {
        let policy = RetryPolicy::default();
        let busy = remote("RegionTooBusyException", false, false);
        let pauses_ms: Vec<_> = (0..14).map(|number| pause(&policy, &busy, number).as_millis()).collect();
        let expected =
            [100, 200, 300, 500, 1000, 2000, 4000, 10000, 10000, 10000, 10000, 20000, 20000, 20000];
        assert_eq!(pauses_ms, expected);
        assert_eq!(pause(&policy, &busy, 400), Duration::from_secs(20));
        let overloaded = remote("CallQueueTooBigException", false, true);
        assert_eq!(pause(&policy, &overloaded, 0), Duration::from_millis(500));
        let now = remote("RetryImmediatelyException", false, false);
        assert_eq!(pause(&policy, &now, 3), Duration::ZERO);
    }

    #[test]
    fn a_throttled_client_waits_as_long_as_it_was_told() {
        let error = ClientError::exception("quotas.RpcThrottlingException", "too many - wait 2sec, 5ms");
        assert_eq!(advice(&error), Advice::Wait);
        assert_eq!(pause(&RetryPolicy::default(), &error, 9), Duration::from_millis(2_005));
    }
}
