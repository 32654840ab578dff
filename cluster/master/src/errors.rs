//! The exceptions the master answers with, beside those that have a constructor in `halcyon-rpc`.

use std::borrow::Cow;

use halcyon_cell::{Error, ErrorKind};
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;

/// A step's or a file's error as a client is to see it.
pub(crate) fn from_error(error: &Error) -> RpcError {
    match error.kind() {
        kind if kind.is_permanent() => RpcError::do_not_retry(error.message()),
        ErrorKind::Busy => RpcError::please_hold(error.message()),
        _ => RpcError::io(error.message()),
    }
}

/// A request that is wrong in itself.
pub(crate) fn invalid(error: Error) -> RpcError {
    RpcError::do_not_retry(error.message())
}

/// What this server cannot do (yet), named for the reader.
pub(crate) fn unsupported(what: &str) -> RpcError {
    RpcError::do_not_retry(format!("java.lang.UnsupportedOperationException: {what} not supported"))
}

pub(crate) fn table_not_found(table: &TableName) -> RpcError {
    RpcError::table_not_found(table.to_string())
}

/// A region is not in the state an action needs (`DoNotRetryRegionException`).
pub(crate) fn region_state(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.client.DoNotRetryRegionException");
    error
}

/// Regions cannot be merged as they are (`MergeRegionException`).
pub(crate) fn merge_region(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.exceptions.MergeRegionException");
    error
}

/// A rule about what may be done to what (`ConstraintException`). Clients without the server's jar, which has the
/// class, see a DoNotRetryIOException.
pub(crate) fn constraint(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.constraint.ConstraintException");
    error
}

/// HBase's plain exception, of which a client cannot tell more (`HBaseIOException`).
pub(crate) fn hbase_io(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.HBaseIOException");
    error
}

/// A snapshot's time to live is over (`SnapshotTTLExpiredException`).
pub(crate) fn snapshot_expired(name: &str) -> RpcError {
    let mut error = RpcError::do_not_retry(format!("TTL for snapshot '{name}' has already expired."));
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.snapshot.SnapshotTTLExpiredException");
    error
}

/// A snapshot cannot be restored over a table (`RestoreSnapshotException`).
pub(crate) fn restore_snapshot(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.snapshot.RestoreSnapshotException");
    error
}

/// An administrator ended a procedure (`ProcedureAbortedException`).
pub(crate) fn aborted(message: String) -> RpcError {
    let mut error = RpcError::do_not_retry(message);
    error.class = Cow::Borrowed("org.apache.hadoop.hbase.procedure2.ProcedureAbortedException");
    error
}

/// The master is going down; clients look for it again.
pub(crate) fn stopping() -> RpcError {
    RpcError::server_not_running_yet("The master is stopping")
}
