use std::fmt;
use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::exceptions;

/// Why a call has no answer. Cheap to clone: the end of a connection goes to all its calls.
#[derive(Clone, Debug)]
pub enum ClientError {
    /// The server answered with an exception.
    Remote(Box<RemoteException>),
    /// The connection could not be made or broke; whether the call was carried out is unknown.
    Io(Arc<std::io::Error>),
    /// The server sent what cannot be understood; the connection is closed.
    Malformed(String),
    /// The connection had ended before the call was made.
    Closed,
}

/// An exception of HBase's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteException {
    /// Full Java class name.
    pub class: String,
    /// Message and stack as the server wrote them.
    pub trace: String,
    pub do_not_retry: bool,
    pub server_overloaded: bool,
}

impl RemoteException {
    pub(crate) fn of(response: pb::ExceptionResponse) -> RemoteException {
        RemoteException {
            class: response.exception_class_name.unwrap_or_default(),
            trace: response.stack_trace.unwrap_or_default(),
            do_not_retry: response.do_not_retry.unwrap_or(false),
            server_overloaded: response.server_overloaded.unwrap_or(false),
        }
    }

    /// An exception of one action within a batch. Whether to retry is known by its class alone.
    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> RemoteException {
        let class = pair.name.clone();
        let trace = pair.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let known = exceptions::ALL.iter().find(|known| known.name == class);
        RemoteException {
            trace: if trace.is_empty() { class.clone() } else { trace },
            do_not_retry: known.is_some_and(|known| known.do_not_retry),
            server_overloaded: known.is_some_and(|known| known.server_overloaded),
            class,
        }
    }

    /// The class without its package.
    pub fn simple_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }
}

impl ClientError {
    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> ClientError {
        ClientError::Remote(Box::new(RemoteException::of_pair(pair)))
    }

    /// One word for counting: the exception's simple class, or what went wrong here.
    pub fn class(&self) -> &str {
        match self {
            ClientError::Remote(exception) => exception.simple_class(),
            ClientError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => "Timeout",
            ClientError::Io(_) => "Io",
            ClientError::Malformed(_) => "Malformed",
            ClientError::Closed => "Closed",
        }
    }

    /// The exception, if the server sent one.
    pub fn remote(&self) -> Option<&RemoteException> {
        match self {
            ClientError::Remote(exception) => Some(exception),
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Remote(exception) => write!(f, "{}", exception.trace.trim_end()),
            ClientError::Io(error) => write!(f, "{error}"),
            ClientError::Malformed(what) => write!(f, "malformed answer: {what}"),
            ClientError::Closed => write!(f, "the connection is closed"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> ClientError {
        ClientError::Io(Arc::new(error))
    }
}
