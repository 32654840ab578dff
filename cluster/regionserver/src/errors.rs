//! From error kinds to HBase's exceptions: the one table of the region server.
//!
//! | kind | exception |
//! |---|---|
//! | `Moved` | `NotServingRegionException` |
//! | `RowOutOfRange` | `WrongRegionException` |
//! | `Busy` | `RegionTooBusyException` |
//! | `Stopping` | `RegionServerStoppedException` |
//! | `Expired` | `TimeoutIOException` |
//! | `Invalid` | `DoNotRetryIOException` |
//! | `NoSuchFamily` | `NoSuchColumnFamilyException` |
//! | `RowTooBig` | `RowTooBigException` |
//! | `Corrupt` | `CorruptHFileException` |
//! | `Io`, `NeedsDisk` | `java.io.IOException` |
//!
//! Checked against the exceptions that `RSRpcServices` and `HRegion` of 2.6.4 throw in these cases.

use halcyon_cell::{Error, ErrorKind};
use halcyon_rpc::{ExceptionClass, RpcError, exceptions};

/// The exception for an error of the storage floor.
pub fn to_rpc(error: &Error) -> RpcError {
    RpcError::new(class_of(error.kind()), error.message())
}

fn class_of(kind: ErrorKind) -> &'static ExceptionClass {
    match kind {
        ErrorKind::RowOutOfRange => &exceptions::WRONG_REGION,
        ErrorKind::Moved => &exceptions::NOT_SERVING_REGION,
        ErrorKind::Busy => &exceptions::REGION_TOO_BUSY,
        ErrorKind::Stopping => &exceptions::REGION_SERVER_STOPPED,
        ErrorKind::Expired => &exceptions::TIMEOUT_IO,
        ErrorKind::NoSuchFamily => &exceptions::NO_SUCH_COLUMN_FAMILY,
        ErrorKind::RowTooBig => &exceptions::ROW_TOO_BIG,
        ErrorKind::Invalid => &exceptions::DO_NOT_RETRY_IO,
        ErrorKind::Corrupt => &exceptions::CORRUPT_HFILE,
        ErrorKind::Io | ErrorKind::NeedsDisk => &exceptions::IO,
    }
}

/// An Increment or Append that a client repeats was done, and what it answered cannot be read any more.
pub(crate) fn answer_is_gone() -> RpcError {
    RpcError::do_not_retry(
        "The operation was carried out when it was called before, and its answer is gone: later writes have replaced its cells",
    )
}

/// A request that is wrong and will be wrong again.
pub(crate) fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::do_not_retry(message)
}

/// A parameter message that is not the message of its method.
pub(crate) fn undecodable(method: &str, error: &prost::DecodeError) -> RpcError {
    RpcError::do_not_retry(format!("the parameter of {method} cannot be decoded: {error}"))
}

/// A method that this server knows and does not serve. The text is the one by which clients tell it.
pub(crate) fn unsupported(method: &str) -> RpcError {
    RpcError::unknown_method(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_exception_and_flag() {
        let table = [
            (ErrorKind::Moved, "t,,1.x. is closed", "NotServingRegionException", false),
            (ErrorKind::Moved, "Requested row out of range for Get", "NotServingRegionException", false),
            (ErrorKind::RowOutOfRange, "not between a and b", "WrongRegionException", false),
            (ErrorKind::Busy, "over the limit", "RegionTooBusyException", false),
            (ErrorKind::Stopping, "going down", "RegionServerStoppedException", false),
            (ErrorKind::Expired, "too late", "TimeoutIOException", false),
            (ErrorKind::Invalid, "bad", "DoNotRetryIOException", true),
            (ErrorKind::Invalid, "Column family x does not exist", "DoNotRetryIOException", true),
            (ErrorKind::NoSuchFamily, "x is not there", "NoSuchColumnFamilyException", true),
            (ErrorKind::RowTooBig, "larger than a row may be", "RowTooBigException", true),
            (ErrorKind::Corrupt, "file f, offset 7", "CorruptHFileException", true),
            (ErrorKind::Io, "no space", "IOException", false),
            (ErrorKind::NeedsDisk, "", "IOException", false),
        ];
        for (kind, message, class, do_not_retry) in table {
            let error = to_rpc(&Error::new(kind, message));
            assert!(error.class.ends_with(&format!(".{class}")), "{kind:?}: {}", error.class);
            assert_eq!(error.do_not_retry, do_not_retry, "{kind:?}");
            assert_eq!(error.message, message);
        }
    }
}
