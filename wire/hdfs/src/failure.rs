//! Why a call has failed, and what that says about what it has done.

use std::io;
use std::path::Path;
use std::time::Duration;

use halcyon_env::in_doubt;
use hdfs_native::HdfsError;

use crate::HdfsAddress;

/// A call that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The NameNode has answered; nothing was changed.
    Refused(HdfsError),
    /// The NameNode has answered that it cannot serve now; nothing was changed.
    NotNow(HdfsError),
    /// The connection broke; a change may have been made, unless there was none.
    Broken(HdfsError),
    /// There was no answer in this time; a change may have been made, or may still be.
    Late(Duration),
}

/// Exceptions of a NameNode that starts, stands by or saves its state.
const NOT_NOW: &[&str] =
    &["SafeModeException", "StandbyException", "RetriableException", "ObserverRetryOnActiveException"];

impl Failure {
    pub(crate) fn of(error: HdfsError) -> Failure {
        match &error {
            HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _)
                if NOT_NOW.contains(&simple_name(class)) =>
            {
                Failure::NotNow(error)
            }
            HdfsError::RPCTimeout(_, limit) => Failure::Late(*limit),
            HdfsError::IOError(_)
            | HdfsError::NotConnected(_)
            | HdfsError::InvalidRPCResponse(_)
            | HdfsError::DataTransferError(_) => Failure::Broken(error),
            _ => Failure::Refused(error),
        }
    }

    /// Another attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Failure::Refused(_))
    }

    /// A change may have been made although the call failed.
    pub(crate) fn is_ambiguous(&self) -> bool {
        match self {
            Failure::Refused(_) | Failure::NotNow(_) | Failure::Broken(HdfsError::NotConnected(_)) => false,
            Failure::Broken(_) | Failure::Late(_) => true,
        }
    }

    /// The NameNode has answered with this exception, whose name has no package.
    pub(crate) fn is_exception(&self, name: &str) -> bool {
        match self {
            Failure::Refused(HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _)) => {
                simple_name(class) == name
            }
            _ => false,
        }
    }

    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Failure::Refused(error) => kind_of(error),
            Failure::NotNow(_) => io::ErrorKind::ResourceBusy,
            Failure::Broken(HdfsError::IOError(error) | HdfsError::NotConnected(error)) => error.kind(),
            Failure::Broken(_) => io::ErrorKind::ConnectionAborted,
            Failure::Late(_) => io::ErrorKind::TimedOut,
        }
    }

    /// As `into_io`, of a call that was to change something: in doubt if it may have.
    pub(crate) fn into_change_io(self, path: &Path, what: &str, address: &HdfsAddress) -> io::Error {
        let is_ambiguous = self.is_ambiguous();
        let error = self.into_io(path, what, address);
        if is_ambiguous { in_doubt(error) } else { error }
    }

    /// A sentence for whoever reads the log. `what` is what was to be done, such as "cannot be opened".
    pub(crate) fn into_io(self, path: &Path, what: &str, address: &HdfsAddress) -> io::Error {
        let why = match &self {
            Failure::Refused(error) => format!("{address} refused it: {}", plain(error)),
            Failure::NotNow(error) => {
                format!(
                    "{address} cannot serve now: {}; wait until it has left safe mode or become active",
                    plain(error)
                )
            }
            Failure::Broken(error) => {
                format!(
                    "the connection to {address} failed: {}; check that the NameNode runs and is reached from here",
                    plain(error)
                )
            }
            Failure::Late(limit) => {
                format!(
                    "{address} gave no answer within {limit:?}; check that the NameNode runs and is reached from here"
                )
            }
        };
        io::Error::new(self.kind(), format!("{} {what}: {why}", path.display()))
    }
}

fn simple_name(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

/// The text of an error. A Java exception has its class and first line only; the rest is a stack.
fn plain(error: &HdfsError) -> String {
    match error {
        HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => {
            format!("{}: {}", simple_name(class), first_line(text))
        }
        HdfsError::AlreadyExists(text) => first_line(text).to_string(),
        error => error.to_string(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What went wrong while bytes went to DataNodes or came from them.
pub(crate) fn data_error(error: &HdfsError) -> String {
    plain(error)
}

pub(crate) fn kind_of(error: &HdfsError) -> io::ErrorKind {
    match error {
        HdfsError::FileNotFound(_) => io::ErrorKind::NotFound,
        HdfsError::AlreadyExists(_) => io::ErrorKind::AlreadyExists,
        HdfsError::IsADirectoryError(_) => io::ErrorKind::IsADirectory,
        HdfsError::InvalidArgument(_) | HdfsError::InvalidPath(_) => io::ErrorKind::InvalidInput,
        HdfsError::ChecksumError => io::ErrorKind::InvalidData,
        HdfsError::UnsupportedFeature(_) | HdfsError::UnsupportedErasureCodingPolicy(_) => {
            io::ErrorKind::Unsupported
        }
        HdfsError::IOError(error) | HdfsError::NotConnected(error) => error.kind(),
        HdfsError::RPCTimeout(..) => io::ErrorKind::TimedOut,
        HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => {
            kind_of_exception(class, text)
        }
        _ => io::ErrorKind::Other,
    }
}

fn kind_of_exception(class: &str, text: &str) -> io::ErrorKind {
    match simple_name(class) {
        "FileNotFoundException" => io::ErrorKind::NotFound,
        "FileAlreadyExistsException" | "AlreadyBeingCreatedException" => io::ErrorKind::AlreadyExists,
        "PathIsNotEmptyDirectoryException" => io::ErrorKind::DirectoryNotEmpty,
        "PathIsNotDirectoryException" | "ParentNotDirectoryException" => io::ErrorKind::NotADirectory,
        "AccessControlException" => io::ErrorKind::PermissionDenied,
        "NSQuotaExceededException" | "DSQuotaExceededException" => io::ErrorKind::QuotaExceeded,
        // Another client has sealed the file, or removed it.
        "LeaseExpiredException" | "RecoveryInProgressException" => io::ErrorKind::StaleNetworkFileHandle,
        // `rename` says it only in words.
        _ if text.contains("is not empty") => io::ErrorKind::DirectoryNotEmpty,
        _ => io::ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::is_in_doubt;

    use super::*;
    use crate::Site;

    fn exception(class: &str, text: &str) -> Failure {
        Failure::of(HdfsError::RPCError(class.to_string(), text.to_string()))
    }

    #[test]
    fn what_a_failure_says() {
        let missing = exception("java.io.FileNotFoundException", "File does not exist: /a\n\tat org.apache");
        assert_eq!(
            (missing.kind(), missing.may_pass(), missing.is_ambiguous()),
            (io::ErrorKind::NotFound, false, false)
        );
        let starting = exception("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "x");
        assert_eq!((starting.may_pass(), starting.is_ambiguous()), (true, false));
        let broken = Failure::of(HdfsError::IOError(io::ErrorKind::ConnectionReset.into()));
        assert_eq!((broken.kind(), broken.is_ambiguous()), (io::ErrorKind::ConnectionReset, true));
        let unreached = Failure::of(HdfsError::NotConnected(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!((unreached.kind(), unreached.is_ambiguous()), (io::ErrorKind::ConnectionRefused, false));
        assert!(unreached.may_pass());
        let limit = Duration::from_secs(5);
        let late = Failure::of(HdfsError::RPCTimeout("one:8020".to_string(), limit));
        assert!(matches!(late, Failure::Late(time) if time == limit) && late.is_ambiguous());
        let secret = exception("org.apache.hadoop.security.token.SecretManager$InvalidToken", "x");
        assert!(!secret.may_pass());
        let full = exception("java.io.IOException", "rename destination directory is not empty: /b");
        assert_eq!(full.kind(), io::ErrorKind::DirectoryNotEmpty);
    }

    /// A caller takes an error that is not in doubt for "nothing was done".
    #[test]
    fn a_change_without_an_answer_is_in_doubt() {
        let address = HdfsAddress::new("hdfs://one:9000/", &Site::default()).unwrap();
        let of = |failure: Failure| failure.into_change_io(Path::new("/a"), "cannot be removed", &address);
        assert!(is_in_doubt(&of(Failure::Late(Duration::from_secs(5)))));
        assert!(is_in_doubt(&of(Failure::of(HdfsError::IOError(io::ErrorKind::ConnectionReset.into())))));
        let refused = of(exception("java.io.FileNotFoundException", "x"));
        assert!(!is_in_doubt(&refused) && refused.kind() == io::ErrorKind::NotFound);
        assert!(!is_in_doubt(&of(exception(
            "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
            "x"
        ))));
    }

    #[test]
    fn errors_name_path_and_namenode_and_no_stack() {
        let address = HdfsAddress::new("hdfs://one:9000/", &Site::default()).unwrap();
        let missing = exception("java.io.FileNotFoundException", "File does not exist: /a\n\tat org.apache");
        let text = missing.into_io(Path::new("/a"), "cannot be opened", &address).to_string();
        assert_eq!(
            text,
            "/a cannot be opened: hdfs://one:9000 refused it: FileNotFoundException: File does not exist: /a"
        );
        let text =
            Failure::Late(Duration::from_secs(5)).into_io(Path::new("/a"), "cannot be opened", &address);
        assert!(text.to_string().contains("hdfs://one:9000 gave no answer within 5s; check that"));
    }
}
