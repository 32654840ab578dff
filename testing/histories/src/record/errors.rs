//! What an error says about an operation.

use std::time::Duration;

use halcyon_client::ClientError;

use crate::history::Outcome;

/// Exceptions that servers send before they write anything.
const BEFORE_WRITING: &[&str] = &[
    "NotServingRegionException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionTooBusyException",
    "CallQueueTooBigException",
    "CallDroppedException",
    "ServerNotRunningYetException",
    "NoSuchColumnFamilyException",
    "FailedSanityCheckException",
    "TableNotFoundException",
    "TableNotEnabledException",
];

/// The outcome of a write that failed after this time. Only the answer of a first attempt is certain, and before the client
/// may retry it pauses: `first_pause`, or no time at all for an operation that has one attempt.
pub fn outcome(error: &ClientError, took: Duration, first_pause: Option<Duration>) -> Outcome {
    let is_first = first_pause.is_none_or(|pause| took < pause);
    let is_before = match error {
        ClientError::Invalid(_) => true,
        ClientError::Remote(exception) => BEFORE_WRITING.contains(&exception.simple_class()),
        _ => false,
    };
    if is_first && is_before { Outcome::Refused } else { Outcome::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_client::RemoteException;

    #[test]
    fn only_first_answers_are_certain() {
        let remote = |class: &str| {
            let class = format!("org.apache.hadoop.hbase.{class}");
            let trace = class.clone();
            ClientError::Remote(Box::new(RemoteException {
                class,
                trace,
                do_not_retry: false,
                server_overloaded: false,
            }))
        };
        let (short, long) = (Duration::from_millis(99), Duration::from_millis(100));
        let pause = Some(long);
        let moved = remote("exceptions.RegionMovedException");
        assert_eq!(outcome(&moved, short, pause), Outcome::Refused);
        assert_eq!(outcome(&moved, long, pause), Outcome::Unknown);
        assert_eq!(outcome(&moved, long, None), Outcome::Refused);
        for error in [
            remote("regionserver.RegionServerStoppedException"),
            remote("exceptions.OperationConflictException"),
            ClientError::Closed,
            std::io::Error::other("reset").into(),
        ] {
            assert_eq!(outcome(&error, short, None), Outcome::Unknown, "{error}");
        }
        assert_eq!(outcome(&ClientError::Invalid(String::new()), short, None), Outcome::Refused);
    }
}
