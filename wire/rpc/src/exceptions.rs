//! HBase's exception classes by name, each with the retry flag its Java class implies.
//!
//! Clients map by class name alone: the class must be an `IOException` on their class path with a constructor
//! that takes one String, and the retry flag must say whether it extends `DoNotRetryIOException`. Checked
//! against hbase-client 2.6.4 (`RemoteWithExtrasException`, `ExceptionUtil`).

/// One exception class as clients know it.
#[derive(Debug, PartialEq, Eq)]
pub struct ExceptionClass {
    /// Full Java class name.
    pub name: &'static str,
    /// Whether the class extends `DoNotRetryIOException`.
    pub do_not_retry: bool,
    /// Whether clients should wait their longer pause before they try again.
    pub server_overloaded: bool,
}

const fn retry(name: &'static str) -> ExceptionClass {
    ExceptionClass { name, do_not_retry: false, server_overloaded: false }
}

const fn overloaded(name: &'static str) -> ExceptionClass {
    ExceptionClass { name, do_not_retry: false, server_overloaded: true }
}

const fn fatal(name: &'static str) -> ExceptionClass {
    ExceptionClass { name, do_not_retry: true, server_overloaded: false }
}

macro_rules! classes {
    ($($constant:ident = $kind:ident $name:literal;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: ExceptionClass = $kind($name);)*

        /// Every class of this module.
        pub const ALL: &[&ExceptionClass] = &[$(&$constant),*];
    };
}

classes! {
    // Look the region up again, or try the server again.
    NOT_SERVING_REGION = retry "org.apache.hadoop.hbase.NotServingRegionException";
    REGION_MOVED = retry "org.apache.hadoop.hbase.exceptions.RegionMovedException";
    REGION_OPENING = retry "org.apache.hadoop.hbase.exceptions.RegionOpeningException";
    WRONG_REGION = retry "org.apache.hadoop.hbase.regionserver.WrongRegionException";
    REGION_TOO_BUSY = retry "org.apache.hadoop.hbase.RegionTooBusyException";
    CALL_QUEUE_TOO_BIG = overloaded "org.apache.hadoop.hbase.CallQueueTooBigException";
    CALL_DROPPED = overloaded "org.apache.hadoop.hbase.CallDroppedException";
    CALL_TIMEOUT = retry "org.apache.hadoop.hbase.ipc.CallTimeoutException";
    RPC_THROTTLING = retry "org.apache.hadoop.hbase.quotas.RpcThrottlingException";
    RETRY_IMMEDIATELY = retry "org.apache.hadoop.hbase.RetryImmediatelyException";
    MULTI_ACTION_RESULT_TOO_LARGE = retry "org.apache.hadoop.hbase.MultiActionResultTooLarge";
    REGION_SERVER_STOPPED = retry "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException";
    REGION_SERVER_ABORTED = retry "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException";
    SERVER_NOT_RUNNING_YET = retry "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException";
    PLEASE_HOLD = retry "org.apache.hadoop.hbase.PleaseHoldException";
    MASTER_NOT_RUNNING = retry "org.apache.hadoop.hbase.MasterNotRunningException";
    TIMEOUT_IO = retry "org.apache.hadoop.hbase.exceptions.TimeoutIOException";
    IO = retry "java.io.IOException";
    // Reading the same file again would not help.
    CORRUPT_HFILE = fatal "org.apache.hadoop.hbase.io.hfile.CorruptHFileException";
    SECURITY_NOT_ENABLED = retry "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException";
    // Scanners.
    UNKNOWN_SCANNER = fatal "org.apache.hadoop.hbase.UnknownScannerException";
    SCANNER_RESET = fatal "org.apache.hadoop.hbase.exceptions.ScannerResetException";
    OUT_OF_ORDER_SCANNER_NEXT = fatal "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException";
    LEASE = fatal "org.apache.hadoop.hbase.regionserver.LeaseException";
    // The request is wrong.
    DO_NOT_RETRY_IO = fatal "org.apache.hadoop.hbase.DoNotRetryIOException";
    NO_SUCH_COLUMN_FAMILY = fatal "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException";
    ROW_TOO_BIG = fatal "org.apache.hadoop.hbase.client.RowTooBigException";
    QUOTA_EXCEEDED = fatal "org.apache.hadoop.hbase.quotas.QuotaExceededException";
    SPACE_LIMITING = fatal "org.apache.hadoop.hbase.quotas.SpaceLimitingException";
    FAILED_SANITY_CHECK = fatal "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException";
    UNKNOWN_PROTOCOL = fatal "org.apache.hadoop.hbase.exceptions.UnknownProtocolException";
    REQUEST_TOO_BIG = fatal "org.apache.hadoop.hbase.exceptions.RequestTooBigException";
    ACCESS_DENIED = fatal "org.apache.hadoop.hbase.security.AccessDeniedException";
    // Administration.
    TABLE_NOT_FOUND = fatal "org.apache.hadoop.hbase.TableNotFoundException";
    TABLE_EXISTS = fatal "org.apache.hadoop.hbase.TableExistsException";
    TABLE_NOT_DISABLED = fatal "org.apache.hadoop.hbase.TableNotDisabledException";
    TABLE_NOT_ENABLED = fatal "org.apache.hadoop.hbase.TableNotEnabledException";
    NAMESPACE_EXIST = fatal "org.apache.hadoop.hbase.NamespaceExistException";
    NAMESPACE_NOT_FOUND = fatal "org.apache.hadoop.hbase.NamespaceNotFoundException";
    INVALID_FAMILY_OPERATION = fatal "org.apache.hadoop.hbase.InvalidFamilyOperationException";
    UNKNOWN_REGION = fatal "org.apache.hadoop.hbase.UnknownRegionException";
    MERGE_REGION = fatal "org.apache.hadoop.hbase.exceptions.MergeRegionException";
    SNAPSHOT_CREATION = fatal "org.apache.hadoop.hbase.snapshot.SnapshotCreationException";
    SNAPSHOT_EXISTS = fatal "org.apache.hadoop.hbase.snapshot.SnapshotExistsException";
    SNAPSHOT_DOES_NOT_EXIST = fatal "org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException";
    RESTORE_SNAPSHOT = fatal "org.apache.hadoop.hbase.snapshot.RestoreSnapshotException";
    CORRUPTED_SNAPSHOT = fatal "org.apache.hadoop.hbase.snapshot.CorruptedSnapshotException";
    // The connection itself; clients fail every call on it.
    FATAL_CONNECTION = fatal "org.apache.hadoop.hbase.ipc.FatalConnectionException";
    WRONG_VERSION = fatal "org.apache.hadoop.hbase.ipc.WrongVersionException";
    BAD_AUTH = fatal "org.apache.hadoop.hbase.ipc.BadAuthException";
}
