//! Errors of the client.

use std::fmt;
use std::sync::Arc;

use halcyon_proto::pb;

use crate::exceptions;

/// Why an operation failed. Cheap to clone: the end of a connection fails all its calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server answered with an exception.
    Remote(Box<RemoteException>),
    /// The connection could not be made or broke, or a deadline passed. Whether the call was executed is unknown.
    Io(Arc<std::io::Error>),
    /// The server sent bytes that are not a valid response; the connection is closed.
    Malformed(String),
    /// The connection had ended before the call was made.
    Closed,
    /// The caller's arguments are wrong; nothing was sent.
    Invalid(String),
}

/// An exception of HBase's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteException {
    /// Full Java class name.
    pub class: String,
    /// Message and stack as the server wrote them.
    pub trace: String,
    /// Whether the server said that a retry is useless (a child of `DoNotRetryIOException`).
    pub do_not_retry: bool,
    /// Whether the server is overloaded, so that clients must take the longer pause.
    pub server_overloaded: bool,
}

impl RemoteException {
    pub(crate) fn of(response: pb::ExceptionResponse) -> RemoteException {
        let class = response.exception_class_name.unwrap_or_default();
        RemoteException {
            trace: response.stack_trace.unwrap_or_default(),
            do_not_retry: response.do_not_retry.unwrap_or(false) || exceptions::is_do_not_retry(&class),
            server_overloaded: response.server_overloaded.unwrap_or(false)
                || exceptions::is_overloaded(&class),
            class,
        }
    }

    /// An exception of one action within a batch: only its class says whether to retry.
    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> RemoteException {
        let class = pair.name.clone();
        let trace = pair.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        RemoteException::of_class(class, trace)
    }

    /// An exception of which class and message are known.
    pub(crate) fn of_class(class: String, trace: String) -> RemoteException {
        RemoteException {
            trace: if trace.is_empty() { class.clone() } else { trace },
            do_not_retry: exceptions::is_do_not_retry(&class),
            server_overloaded: exceptions::is_overloaded(&class),
            class,
        }
    }

    /// The class without its package.
    pub fn simple_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    /// The message: the first line of the trace without the class.
    pub fn message(&self) -> &str {
        let line = self.trace.lines().next().unwrap_or_default();
        let rest = line.strip_prefix(&self.class).unwrap_or(line);
        rest.strip_prefix(": ").unwrap_or(rest).trim_end()
    }
}

impl ClientError {
    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> ClientError {
        ClientError::Remote(Box::new(RemoteException::of_pair(pair)))
    }

    /// An exception that the client raises itself, in the form in which servers send theirs.
    pub(crate) fn exception(class: &str, message: impl fmt::Display) -> ClientError {
        let class = format!("org.apache.hadoop.hbase.{class}");
        let trace = format!("{class}: {message}");
        ClientError::Remote(Box::new(RemoteException::of_class(class, trace)))
    }

    pub(crate) fn invalid(text: impl Into<String>) -> ClientError {
        ClientError::Invalid(text.into())
    }

    pub(crate) fn malformed(error: impl fmt::Display) -> ClientError {
        ClientError::Malformed(error.to_string())
    }

    pub(crate) fn timed_out(text: String) -> ClientError {
        std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
    }

    /// One word for counting: the exception's simple class, or what went wrong in the client.
    pub fn class(&self) -> &str {
        match self {
            ClientError::Remote(exception) => exception.simple_class(),
            ClientError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => "Timeout",
            ClientError::Io(_) => "Io",
            ClientError::Malformed(_) => "Malformed",
            ClientError::Closed => "Closed",
            ClientError::Invalid(_) => "Invalid",
        }
    }

    /// The exception, if the server sent one.
    pub fn remote(&self) -> Option<&RemoteException> {
        match self {
            ClientError::Remote(exception) => Some(exception),
            _ => None,
        }
    }

    /// Whether the server sent an exception of this simple class (`TableNotFoundException`).
    pub fn is_exception(&self, simple_class: &str) -> bool {
        self.remote().is_some_and(|exception| exception.simple_class() == simple_class)
    }

    /// Whether a deadline passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, ClientError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Remote(exception) => write!(f, "{}", exception.trace.trim_end()),
            ClientError::Io(error) => write!(f, "{error}"),
            ClientError::Malformed(what) => write!(f, "malformed response: {what}"),
            ClientError::Closed => write!(f, "the connection is closed"),
            ClientError::Invalid(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Io(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> ClientError {
        ClientError::Io(Arc::new(error))
    }
}

impl From<halcyon_cell::Error> for ClientError {
    fn from(error: halcyon_cell::Error) -> ClientError {
        ClientError::Invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_first_line_without_the_class() {
        let error = ClientError::exception("TableNotFoundException", "t1");
        let exception = error.remote().unwrap();
        assert_eq!((exception.message(), exception.do_not_retry), ("t1", true));
        assert!(error.is_exception("TableNotFoundException"));
        let trace = "java.io.IOException: disk\n\tat X.y(X.java:1)".to_string();
        let exception = RemoteException::of_class("java.io.IOException".into(), trace);
        assert_eq!((exception.message(), exception.do_not_retry), ("disk", false));
    }
}
