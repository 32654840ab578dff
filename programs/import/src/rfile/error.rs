use std::{fmt, io};

/// Why a file cannot be read.
#[derive(Debug)]
pub(crate) enum RFileError {
    /// The file system says so.
    Io(io::Error),
    /// The bytes are not those of a whole RFile.
    Damaged(String),
    /// The file may be whole, but this program cannot read it.
    Unsupported(String),
}

pub(super) type Result<T> = std::result::Result<T, RFileError>;

pub(super) fn damaged<T>(why: impl Into<String>) -> Result<T> {
    Err(RFileError::Damaged(why.into()))
}

impl RFileError {
    /// The same error, with where it was met.
    pub(super) fn at(self, place: impl fmt::Display) -> RFileError {
        match self {
            RFileError::Damaged(why) => RFileError::Damaged(format!("{place}: {why}")),
            other => other,
        }
    }
}

impl fmt::Display for RFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RFileError::Io(error) => write!(f, "{error}"),
            RFileError::Damaged(why) => write!(f, "damaged: {why}"),
            RFileError::Unsupported(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for RFileError {
    fn from(error: io::Error) -> RFileError {
        RFileError::Io(error)
    }
}
