use std::fmt;
use std::io;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for is not here (any more): look it up again.
    Moved,
    /// The row of the request is not in the region: the region was split or merged, look it up again.
    RowOutOfRange,
    /// Try again later: a limit was reached.
    Busy,
    /// The server or region is going down.
    Stopping,
    /// A lease, scanner or deadline is gone.
    Expired,
    /// The request is wrong and will be wrong again.
    Invalid,
    /// As `Invalid`: the table has no such column family.
    NoSuchFamily,
    /// As `Invalid`: a row is larger than may be read at once.
    RowTooBig,
    /// Bytes on disk or wire are wrong. The message names file, offset, expected and found.
    Corrupt,
    /// The operating system said no.
    Io,
    /// The answer needs a block from disk and the caller asked for memory only.
    NeedsDisk,
}

impl ErrorKind {
    /// Whether the same request will always fail.
    pub fn is_permanent(self) -> bool {
        matches!(
            self,
            ErrorKind::Invalid | ErrorKind::NoSuchFamily | ErrorKind::RowTooBig | ErrorKind::Corrupt
        )
    }
}

/// The error of the storage floor and of everything that decodes cells.
///
/// Shared by the crates of `base` and `storage`, because the caller's question is always the same: what to
/// do now. Context is added on the way up with [`Error::context`].
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    pub fn needs_disk() -> Error {
        Error::new(ErrorKind::NeedsDisk, String::new())
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Puts `what` in front of the message.
    pub fn context(self, what: impl fmt::Display) -> Error {
        Error { kind: self.kind, message: format!("{what}: {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let kind = match error.kind() {
            // The same request meets the same limit of the file system.
            io::ErrorKind::InvalidFilename => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error::new(kind, error.to_string())
    }
}
