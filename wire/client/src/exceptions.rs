//! What exception classes say about a retry.
//!
//! A response header carries a flag. Exceptions inside a batch and of procedures carry only a class name, which the Java
//! client turns into the class and asks for its parents. The lists here have the children of `DoNotRetryIOException` in
//! HBase 2.6's jars.

use std::time::Duration;

const PACKAGE: &str = "org.apache.hadoop.hbase.";

/// Children of `DoNotRetryIOException`, without [`PACKAGE`].
const DO_NOT_RETRY: &[&str] = &[
    "CallerDisconnectedException",
    "ConcurrentTableModificationException",
    "DoNotRetryIOException",
    "InvalidFamilyOperationException",
    "NamespaceExistException",
    "NamespaceNotFoundException",
    "NotAllMetaRegionsOnlineException",
    "ReplicationPeerNotFoundException",
    "TableExistsException",
    "TableInfoMissingException",
    "TableNotDisabledException",
    "TableNotEnabledException",
    "TableNotFoundException",
    "UnknownRegionException",
    "UnknownScannerException",
    "client.DoNotRetryRegionException",
    "client.RowTooBigException",
    "client.WrongRowIOException",
    "constraint.ConstraintException",
    "coprocessor.CoprocessorException",
    "exceptions.FailedSanityCheckException",
    "exceptions.MergeRegionException",
    "exceptions.OperationConflictException",
    "exceptions.OutOfOrderScannerNextException",
    "exceptions.RequestTooBigException",
    "exceptions.ScannerResetException",
    "exceptions.UnknownProtocolException",
    "ipc.BadAuthException",
    "ipc.CallCancelledException",
    "ipc.CallerDisconnectedException",
    "ipc.EmptyServiceNameException",
    "ipc.FatalConnectionException",
    "ipc.UnknownServiceException",
    "ipc.UnsupportedCellCodecException",
    "ipc.UnsupportedCompressionCodecException",
    "ipc.WrongVersionException",
    "procedure2.FailedProcedureException",
    "quotas.InvalidQuotaSettingsException",
    "quotas.QuotaExceededException",
    "quotas.SpaceLimitingException",
    "regionserver.LeaseException",
    "regionserver.LeaseAlreadyExistsException",
    "regionserver.NoSuchColumnFamilyException",
    "replication.ReplicationException",
    "rsgroup.RSGroupException",
    "security.AccessDeniedException",
    "security.visibility.InvalidLabelException",
    "security.visibility.LabelAlreadyExistsException",
    "security.visibility.VisibilityControllerNotReadyException",
    "snapshot.CorruptedSnapshotException",
    "snapshot.ExportSnapshotException",
    "snapshot.HBaseSnapshotException",
    "snapshot.RestoreSnapshotException",
    "snapshot.SnapshotCreationException",
    "snapshot.SnapshotDoesNotExistException",
    "snapshot.SnapshotExistsException",
    "snapshot.SnapshotTTLExpiredException",
    "snapshot.TablePartiallyOpenException",
    "snapshot.UnknownSnapshotException",
];

/// Whether a retry after an exception of this class is useless.
pub(crate) fn is_do_not_retry(class: &str) -> bool {
    match class.strip_prefix(PACKAGE) {
        Some(name) => {
            DO_NOT_RETRY.contains(&name)
                || halcyon_rpc::exceptions::ALL.iter().any(|known| known.name == class && known.do_not_retry)
        }
        // no IOException: a bug in the request or the server, which the next attempt meets again
        None => class.starts_with("java.lang.") && class != "java.lang.InterruptedException",
    }
}

/// Whether the class asks for the longer pause.
pub(crate) fn is_overloaded(class: &str) -> bool {
    matches!(class.strip_prefix(PACKAGE), Some("CallQueueTooBigException" | "CallDroppedException"))
}

/// The pause that a throttled client is told: `... - wait 1mins, 2sec, 30ms` (`RpcThrottlingException`).
pub(crate) fn throttle_pause(message: &str) -> Option<Duration> {
    let (_, text) = message.rsplit_once("wait ")?;
    let mut total = Duration::ZERO;
    let mut is_any = false;
    for part in text.split(", ") {
        let part = part.trim();
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = part[..digits].parse().ok()?;
        let unit_ms: u64 = match part[digits..].trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
            "hrs" => 3_600_000,
            "mins" => 60_000,
            "sec" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        total += Duration::from_millis(number.checked_mul(unit_ms)?);
        is_any = true;
    }
    is_any.then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_known_by_their_full_name() {
        assert!(is_do_not_retry("org.apache.hadoop.hbase.TableNotFoundException"));
        assert!(is_do_not_retry("org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"));
        assert!(is_do_not_retry("java.lang.IllegalArgumentException"));
        assert!(!is_do_not_retry("org.apache.hadoop.hbase.NotServingRegionException"));
        assert!(!is_do_not_retry("java.io.IOException"));
        assert!(!is_do_not_retry("com.example.Unknown"));
        assert!(is_overloaded("org.apache.hadoop.hbase.CallQueueTooBigException"));
        for known in halcyon_rpc::exceptions::ALL {
            assert_eq!(is_do_not_retry(known.name), known.do_not_retry, "{}", known.name);
            assert_eq!(is_overloaded(known.name), known.server_overloaded, "{}", known.name);
        }
    }

    #[test]
    fn a_throttled_client_is_told_how_long_to_wait() {
        let wait = |text: &str| throttle_pause(text).map(|pause| pause.as_millis());
        assert_eq!(wait("number of requests exceeded - wait 10sec, 0ms"), Some(10_000));
        assert_eq!(wait("read size limit exceeded - wait 1mins, 2sec, 30ms"), Some(62_030));
        assert_eq!(wait("wait 250ms"), Some(250));
        assert_eq!(wait("wait for it"), None);
        assert_eq!(wait("no time"), None);
    }
}
