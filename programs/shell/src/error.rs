use halcyon_client::ClientError;

/// Why a command failed.
#[derive(Debug)]
pub enum ShellError {
    /// The command was not understood.
    Usage(String),
    /// The cluster refused it or could not be reached.
    Cluster(ClientError),
    /// Output, history or a file.
    Io(std::io::Error),
    /// Ctrl-C.
    Interrupted,
}

impl ShellError {
    pub(crate) fn usage(text: impl Into<String>) -> ShellError {
        ShellError::Usage(text.into())
    }

    /// The exit code of a script that this error ends.
    pub fn exit_code(&self) -> u8 {
        match self {
            ShellError::Usage(_) => 2,
            ShellError::Cluster(_) | ShellError::Io(_) => 1,
            ShellError::Interrupted => 130,
        }
    }

    /// Whether nobody reads the output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, ShellError::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// One word for what went wrong: the class of an exception, or `Usage`, `Io`, `Interrupted`.
    pub fn class(&self) -> &str {
        match self {
            ShellError::Usage(_) => "Usage",
            ShellError::Cluster(error) => error.class(),
            ShellError::Io(_) => "Io",
            ShellError::Interrupted => "Interrupted",
        }
    }
}

impl std::fmt::Display for ShellError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ShellError::Usage(text) => write!(f, "{text}"),
            ShellError::Cluster(error) => match error.remote() {
                Some(exception) if exception.message().is_empty() => {
                    write!(f, "{}", exception.simple_class())
                }
                Some(exception) => write!(f, "{}: {}", exception.simple_class(), exception.message()),
                None => write!(f, "{error}"),
            },
            ShellError::Io(error) => write!(f, "{error}"),
            ShellError::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl std::error::Error for ShellError {}

impl From<ClientError> for ShellError {
    fn from(error: ClientError) -> ShellError {
        match error {
            ClientError::Invalid(text) => ShellError::Usage(text),
            error => ShellError::Cluster(error),
        }
    }
}

impl From<std::io::Error> for ShellError {
    fn from(error: std::io::Error) -> ShellError {
        ShellError::Io(error)
    }
}
