//! What to do about an error, and how long to wait before that.

use std::time::Duration;

use crate::ClientError;

/// Pause before the first retry (`hbase.client.pause`).
const PAUSE: Duration = Duration::from_millis(100);
/// Pause when the server says it is overloaded (`hbase.client.pause.server.overloaded`).
const PAUSE_OVERLOADED: Duration = Duration::from_millis(500);
/// Multiples of the pause from retry to retry (`HConstants.RETRY_BACKOFF`); the last one stays.
const BACKOFF: [u32; 9] = [1, 2, 3, 5, 10, 20, 40, 100, 100];

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Look up the region again, then try again.
    Relocate,
    /// Try again later; the region is where it was.
    Wait,
    /// The scanner is gone: open it again behind the last row.
    Reopen,
    /// Nothing will help.
    Fail,
}

/// Exceptions by what they ask for; other retriable ones are waited for.
pub fn advice(error: &ClientError) -> Advice {
    let exception = match error {
        ClientError::Io(_) | ClientError::Closed => return Advice::Relocate,
        ClientError::Malformed(_) => return Advice::Fail,
        ClientError::Remote(exception) => exception,
    };
    match exception.simple_class() {
        "NotServingRegionException"
        | "RegionMovedException"
        | "RegionOpeningException"
        | "WrongRegionException"
        | "RegionServerStoppedException"
        | "RegionServerAbortedException"
        | "ServerNotRunningYetException"
        | "MasterNotRunningException"
        | "MasterStoppedException" => Advice::Relocate,
        "UnknownScannerException"
        | "ScannerResetException"
        | "OutOfOrderScannerNextException"
        | "LeaseException"
        | "LeaseStillHeldException" => Advice::Reopen,
        _ if exception.do_not_retry => Advice::Fail,
        _ => Advice::Wait,
    }
}

/// The pause before retry `number` (from 0), without the chance that callers add.
pub fn pause(error: &ClientError, number: u32) -> Duration {
    let overloaded = error.remote().is_some_and(|exception| exception.server_overloaded);
    let base = if overloaded { PAUSE_OVERLOADED } else { PAUSE };
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
        assert_eq!(advice(&remote("RegionTooBusyException", false, false)), Advice::Wait);
        assert_eq!(advice(&remote("CallQueueTooBigException", false, true)), Advice::Wait);
        // a subclass of DoNotRetryIOException, and yet a scan goes on
        assert_eq!(advice(&remote("UnknownScannerException", true, false)), Advice::Reopen);
        assert_eq!(advice(&remote("regionserver.NoSuchColumnFamilyException", true, false)), Advice::Fail);
        assert_eq!(advice(&ClientError::Closed), Advice::Relocate);
    }

    #[test]
    fn pauses_grow_and_stay() {
        let busy = remote("RegionTooBusyException", false, false);
        assert_eq!(pause(&busy, 0), Duration::from_millis(100));
        assert_eq!(pause(&busy, 4), Duration::from_secs(1));
        assert_eq!(pause(&busy, 400), Duration::from_secs(10));
        assert_eq!(pause(&remote("CallQueueTooBigException", false, true), 0), Duration::from_millis(500));
    }
}
